package activation

import (
	"fmt"
	"strings"

	"gorgonia.org/tensor"
)

// Rows are the states of one layer.
type Rows struct {
	Layer   string
	Width   int
	Values  []float32 // row-major, one row a sample; NaN in a missing row
	Missing []int     // samples whose row is missing, ascending
}

// Len returns the number of samples, missing ones included.
func (r *Rows) Len() int { return len(r.Values) / r.Width }

// Row returns the state of one sample, which shares memory with Values.
func (r *Rows) Row(sample int) []float32 {
	return r.Values[sample*r.Width : (sample+1)*r.Width : (sample+1)*r.Width]
}

// NonFiniteError reports a layer that cannot be used because states that were
// written are not finite.
type NonFiniteError struct {
	Path, Layer string
	DType       DType
	Values      int // that are not finite
	Rows        int // that hold one
	First       int // the first sample that holds one
}

func (e *NonFiniteError) Error() string {
	s := fmt.Sprintf("layer %s of %s fails: %d values in the states of %d samples, sample %d first, are not finite", e.Layer, e.Path, e.Values, e.Rows, e.First)
	if e.DType == F16 {
		return s + ", or beyond the 65,504 that F16 holds; extract them as F32"
	}
	return s + "; the model gave them, use another layer"
}

// Rows reads one layer. An unknown layer is an error that lists the known ones;
// states that are not finite are a *NonFiniteError. It allocates the values as
// float32 and no more than about 1 MB or one row besides.
func (f *File) Rows(layer string) (*Rows, error) {
	k, ok := f.number[layer]
	if !ok {
		return nil, fmt.Errorf("%s has no layer %q; it has %s", f.path, layer, strings.Join(f.spec.Layers, ", "))
	}
	s := &f.spec
	r := &Rows{Layer: layer, Width: s.Width, Values: make([]float32, s.Samples*s.Width)}
	bad := &NonFiniteError{Path: f.path, Layer: layer, DType: s.DType}
	err := f.scan(k, func(sample int, b []byte) {
		missing, n := s.DType.decode(r.Row(sample), b)
		if missing {
			r.Missing = append(r.Missing, sample)
		}
		bad.add(sample, n)
	})
	if err != nil {
		return nil, err
	}
	if bad.Values > 0 {
		return nil, bad
	}
	return r, nil
}

func (e *NonFiniteError) add(sample, n int) {
	if n == 0 {
		return
	}
	if e.Rows == 0 {
		e.First = sample
	}
	e.Rows++
	e.Values += n
}

// scan shows the stored rows of a layer, in order, to each.
func (f *File) scan(layer int, each func(sample int, b []byte)) error {
	row := int(f.rowBytes())
	buf := make([]byte, min(max(1, chunk/row), f.spec.Samples)*row)
	for sample := 0; sample < f.spec.Samples; {
		b := buf[:min(len(buf), (f.spec.Samples-sample)*row)]
		if _, err := f.disk.ReadAt(b, f.offset(layer, sample)); err != nil {
			return fmt.Errorf("read layer %s of %s: %w", f.spec.Layers[layer], f.path, err)
		}
		for ; len(b) > 0; b = b[row:] {
			each(sample, b[:row])
			sample++
		}
	}
	return nil
}

// Layer reads one layer as a (samples, width) tensor of float32, which F16 is
// widened to. It fails as Rows does; a missing row is NaN, and Rows or Audit
// tell which ones are missing.
func (f *File) Layer(layer string) (*tensor.Dense, error) {
	r, err := f.Rows(layer)
	if err != nil {
		return nil, err
	}
	return tensor.New(tensor.WithShape(r.Len(), r.Width), tensor.WithBacking(r.Values)), nil
}

// Audit is what a file holds in fact.
type Audit struct {
	Missing []int   // samples that miss a row in at least one layer, ascending
	Layers  []Count // in the order of Spec.Layers
	failed  []error
	file    *File
	gone    []bool   // by sample
	sums    []string // by sample, see File.Sum
}
