package activation

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/ccmed/ccmed/bench/disk"
	"github.com/ccmed/ccmed/bench/run"
)

const statesTensor = "states"

// chunk is how many bytes are written or read at once.
const chunk = 1 << 20

// storage is what a File needs of *os.File, so that a test can fill the disk.
type storage interface {
	io.ReaderAt
	io.WriterAt
	io.Closer
	Sync() error
}

// File holds the hidden states of one cell. Its methods may be called
// concurrently, but not Put of one layer and sample by two goroutines.
type File struct {
	path     string
	spec     Spec
	disk     storage
	at       int64 // where the states start
	writable bool
	number   map[string]int // of each layer
	put      []putCount
	buffers  sync.Pool // of *[]byte, one row each
}

type putCount struct{ rows, nonFinite, overflow atomic.Int64 }

// Create makes the file of a cell in a run directory, full size and every row
// missing, or opens the one that is there to go on with it. The directory is
// locked by its run, so that there is one writer. A file of another model or
// shape is a *MismatchError, a damaged one ErrDamaged. The name appears when
// the whole file is on disk: one that cannot be finished, for a full disk or a
// cancelled context, leaves nothing.
func Create(ctx context.Context, dir string, s Spec) (*File, error) {
	return create(ctx, dir, s, func(path string) (storage, error) {
		return disk.OpenFile(path, os.O_CREATE|os.O_TRUNC|os.O_RDWR, 0o644)
	})
}

func create(ctx context.Context, dir string, s Spec, open func(path string) (storage, error)) (*File, error) {
	s = s.clone()
	if err := s.check(); err != nil {
		return nil, fmt.Errorf("make a file of hidden states: %w", err)
	}
	path := filepath.Join(dir, s.Cell.File())
	if _, err := os.Lstat(path); err == nil {
		return goOn(path, s)
	} else if !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("make a file of hidden states: %w", err)
	}
	// A fixed name: what a killed run left is overwritten, not kept beside.
	partial := path + ".partial"
	d, err := open(partial)
	if err != nil {
		return nil, fmt.Errorf("make a file of hidden states: %w", err)
	}
	at, err := prepare(ctx, d, s)
	if err == nil {
		err = os.Rename(partial, path)
	}
	if err != nil {
		remedy := "; make room there, or choose another folder with --out"
		if ctx.Err() != nil {
			remedy = ""
		}
		return nil, errors.Join(fmt.Errorf("make %s with room for %d bytes of hidden states: %w%s", path, s.bytes(), err, remedy),
			d.Close(), os.Remove(partial))
	}
	return newFile(path, s, d, at, true), nil
}

func goOn(path string, s Spec) (*File, error) {
	f, err := openFile(path, os.O_RDWR)
	if err != nil {
		return nil, err
	}
	if err := f.Check(s); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// prepare writes the header and the missing marks and returns where the states
// start. They are written rather than left as a hole, because a hole reads as
// zeros, and synced before the name appears for the same reason.
func prepare(ctx context.Context, w storage, s Spec) (int64, error) {
	n := s.bytes()
	if n < 0 {
		return 0, fmt.Errorf("%d layers of %d samples of width %d are too many", len(s.Layers), s.Samples, s.Width)
	}
	meta, err := s.metadata()
	if err != nil {
		return 0, err
	}
	h := &header{meta: meta, tensors: map[string]tensorInfo{statesTensor: {
		DType: string(s.DType), Shape: []int64{int64(len(s.Layers)), int64(s.Samples), int64(s.Width)}, Offsets: [2]int64{0, n},
	}}}
	b, err := h.encode()
	if err != nil {
		return 0, err
	}
	if _, err := w.WriteAt(b, 0); err != nil {
		return 0, err
	}
	at := int64(len(b))
	fill := make([]byte, min(chunk, n))
	s.DType.fill(fill)
	for done := int64(0); done < n; {
		if err := context.Cause(ctx); err != nil {
			return 0, err
		}
		k, err := w.WriteAt(fill[:min(int64(len(fill)), n-done)], at+done)
		if err != nil {
			return 0, err
		}
		done += int64(k)
	}
	return at, w.Sync()
}

// Open opens a file of hidden states for reading and checks its header against
// its size, without reading the states. Damage of any kind is ErrDamaged.
func Open(path string) (*File, error) { return openFile(path, os.O_RDONLY) }

func openFile(path string, flag int) (*File, error) {
	d, err := disk.OpenFile(path, flag, 0)
	if err != nil {
		return nil, fmt.Errorf("open hidden states: %w", err)
	}
	st, err := d.Stat()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open hidden states: %w", err), d.Close())
	}
	s, at, err := parse(d, st.Size())
	if err != nil {
		return nil, errors.Join(damaged(path, err, "extract these states into a new run"), d.Close())
	}
	return newFile(path, s, d, at, flag == os.O_RDWR), nil
}

func parse(r io.ReaderAt, size int64) (Spec, int64, error) {
	h, err := readHeader(r, size)
	if err != nil {
		return Spec{}, 0, err
	}
	s, err := specFrom(h)
	return s, h.data, err
}

func newFile(path string, s Spec, d storage, at int64, writable bool) *File {
	f := &File{path: path, spec: s, disk: d, at: at, writable: writable,
		number: map[string]int{}, put: make([]putCount, len(s.Layers))}
	for i, l := range s.Layers {
		f.number[l] = i
	}
	f.buffers.New = func() any { b := make([]byte, f.rowBytes()); return &b }
	return f
}

// List returns the paths of the files of hidden states in a run directory, by
// name. It goes by the names and opens none.
func List(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("list hidden states: %w", err)
	}
	var out []string
	for _, e := range entries {
		name, ok := strings.CutSuffix(e.Name(), extension)
		if !ok || e.IsDir() {
			continue
		}
		parts := strings.Split(name, ".")
		if len(parts) == 4 && !slices.ContainsFunc(parts, func(p string) bool { return !cellPart.MatchString(p) }) {
			out = append(out, filepath.Join(dir, e.Name()))
		}
	}
	return out, nil
}

// Path returns the file's path as it was given.
func (f *File) Path() string { return f.path }

// Spec returns a copy of what the file holds.
func (f *File) Spec() Spec { return f.spec.clone() }

// Check returns a *MismatchError that names what differs from want, with both
// values. Zero fields of want are not compared; of the model only the digest is.
func (f *File) Check(want Spec) error {
	if fields := f.spec.differences(want); len(fields) > 0 {
		return &MismatchError{f.path, fields}
	}
	return nil
}

func (f *File) rowBytes() int64 { return int64(f.spec.Width) * int64(f.spec.DType.size()) }

// offset returns where a row starts in the file.
func (f *File) offset(layer, sample int) int64 {
	return f.at + (int64(layer)*int64(f.spec.Samples)+int64(sample))*f.rowBytes()
}

// Put stores the state x, of the file's width, of one layer (its number in
// Spec.Layers) and sample. Values that are not finite are stored and counted,
// not refused: they fail their layer when it is read, see PutCounts. After an
// error, a full disk say, a row that was not there before is still missing, and
// all others are untouched.
func (f *File) Put(layer, sample int, x []float32) error {
	s := &f.spec
	switch {
	case !f.writable:
		return fmt.Errorf("%s is open for reading only; states are put into a file from Create", f.path)
	case layer < 0 || layer >= len(s.Layers):
		return fmt.Errorf("put a state into %s: there is no layer %d, only 0 to %d", f.path, layer, len(s.Layers)-1)
	case sample < 0 || sample >= s.Samples:
		return fmt.Errorf("put a state into %s: there is no sample %d, only 0 to %d", f.path, sample, s.Samples-1)
	case len(x) != s.Width:
		return fmt.Errorf("put a state of width %d into %s: layer %s has width %d", len(x), f.path, s.Layers[layer], s.Width)
	}
	b := f.buffers.Get().(*[]byte)
	defer f.buffers.Put(b)
	nonFinite, overflow := s.DType.encode(*b, x)
	if _, err := f.disk.WriteAt(*b, f.offset(layer, sample)); err != nil {
		return fmt.Errorf("write layer %s of sample %d: %w; what was done is kept: make room there and resume the run", s.Layers[layer], sample, err)
	}
	c := &f.put[layer]
	c.rows.Add(1)
	c.nonFinite.Add(int64(nonFinite))
	c.overflow.Add(int64(overflow))
	return nil
}

// Count says what a layer holds.
type Count struct {
	Layer     string `json:"layer"`
	Rows      int    `json:"rows"`       // that are written
	NonFinite int    `json:"non_finite"` // values in them that are NaN or infinite
	// Overflow counts, where Put made the count, finite values that F16 cannot
	// hold, besides NonFinite; in the file they are infinities like any other.
	Overflow int `json:"overflow,omitempty"`
}

// PutCounts returns what Put stored since the file was opened, a layer after
// the other, so that a failing layer is seen while the model still runs. A row
// that is put twice counts twice.
func (f *File) PutCounts() []Count {
	out := make([]Count, len(f.put))
	for i := range f.put {
		c := &f.put[i]
		out[i] = Count{f.spec.Layers[i], int(c.rows.Load()), int(c.nonFinite.Load()), int(c.overflow.Load())}
	}
	return out
}

// Has reports whether all layers of a sample are written.
func (f *File) Has(sample int) (bool, error) {
	if sample < 0 || sample >= f.spec.Samples {
		return false, fmt.Errorf("%s has no sample %d, only 0 to %d", f.path, sample, f.spec.Samples-1)
	}
	b := f.buffers.Get().(*[]byte)
	defer f.buffers.Put(b)
	x := make([]float32, f.spec.Width)
	for layer := range f.spec.Layers {
		if _, err := f.disk.ReadAt(*b, f.offset(layer, sample)); err != nil {
			return false, fmt.Errorf("read layer %s of sample %d in %s: %w", f.spec.Layers[layer], sample, f.path, err)
		}
		if missing, _ := f.spec.DType.decode(x, *b); missing {
			return false, nil
		}
	}
	return true, nil
}

// Sum returns the checksum of a sample's row: "sha256:…" of the model's digest, the
// cell, the type, and of every layer its name and its bytes. there is false when a
// layer is missing.
func (f *File) Sum(sample int) (sum string, there bool, err error) {
	there, err = f.Has(sample)
	if err != nil || !there {
		return "", there, err
	}
	h := f.rowHash()
	b := f.buffers.Get().(*[]byte)
	defer f.buffers.Put(b)
	for layer, name := range f.spec.Layers {
		if _, err := f.disk.ReadAt(*b, f.offset(layer, sample)); err != nil {
			return "", false, fmt.Errorf("read layer %s of sample %d in %s: %w", name, sample, f.path, err)
		}
		h.layer(name, *b)
	}
	return h.String(), true, nil
}

// Holds reports whether a place's row is there. A row that is not what its checksum
// says, or has one and is missing, is a *run.ChangedError.
func (f *File) Holds(p Place) (bool, error) {
	if p.SHA256 == "" {
		return f.Has(p.Row)
	}
	sum, there, err := f.Sum(p.Row)
	if err == nil && sum != p.SHA256 {
		err = f.changed(p.Row, there)
	}
	return there, err
}

func (f *File) changed(sample int, there bool) error {
	what := fmt.Sprintf("the states of row %d are not those that its sample recorded", sample)
	if !there {
		what = fmt.Sprintf("the states of row %d are missing, and its sample recorded some", sample)
	}
	return &run.ChangedError{File: f.path, What: what}
}

// rowHash is the checksum of a row under construction.
type rowHash struct{ hash.Hash }

func (f *File) rowHash() rowHash {
	h := rowHash{sha256.New()}
	fmt.Fprintf(h, "%s\n%s\n%s %d\n", f.spec.Model.Digest, f.spec.Cell.File(), f.spec.DType, f.spec.Width)
	return h
}

func (h rowHash) layer(name string, b []byte) {
	fmt.Fprintf(h, "%s\n", name)
	h.Write(b)
}

func (h rowHash) String() string { return "sha256:" + hex.EncodeToString(h.Sum(nil)) }

// Check returns a *run.ChangedError where a row is not what its entry recorded.
func (a *Audit) Check(entries []Entry) error {
	for _, e := range entries {
		if e.SHA256 != "" && (a.gone[e.Row] || a.sums[e.Row] != e.SHA256) {
			return a.file.changed(e.Row, !a.gone[e.Row])
		}
	}
	return nil
}

// Err returns one *NonFiniteError, joined, for each layer that fails.
func (a *Audit) Err() error { return errors.Join(a.failed...) }

// Audit reads the whole file once. A run that goes on after a power cut finds by
// it which samples were written down but did not reach the disk.
func (f *File) Audit(ctx context.Context) (*Audit, error) {
	s := &f.spec
	a := &Audit{Layers: make([]Count, len(s.Layers)), file: f, gone: make([]bool, s.Samples), sums: make([]string, s.Samples)}
	rows := make([]rowHash, s.Samples)
	for i := range rows {
		rows[i] = f.rowHash()
	}
	x := make([]float32, s.Width)
	for k, layer := range s.Layers {
		if err := context.Cause(ctx); err != nil {
			return nil, fmt.Errorf("audit %s: %w", f.path, err)
		}
		c := &a.Layers[k]
		c.Layer = layer
		bad := &NonFiniteError{Path: f.path, Layer: layer, DType: s.DType}
		err := f.scan(k, func(sample int, b []byte) {
			missing, n := s.DType.decode(x, b)
			rows[sample].layer(layer, b)
			if missing {
				a.gone[sample] = true
				return
			}
			c.Rows++
			c.NonFinite += n
			bad.add(sample, n)
		})
		if err != nil {
			return nil, err
		}
		if bad.Values > 0 {
			a.failed = append(a.failed, bad)
		}
	}
	for sample, gone := range a.gone {
		a.sums[sample] = rows[sample].String()
		if gone {
			a.Missing = append(a.Missing, sample)
		}
	}
	return a, nil
}

// Sync makes everything that was put outlive a power cut. Call it before a
// sample is written down as done; a mere kill loses nothing without it.
func (f *File) Sync() error {
	if err := f.disk.Sync(); err != nil {
		return fmt.Errorf("write %s to disk: %w", f.path, err)
	}
	return nil
}

// Close syncs what was put and closes the file.
func (f *File) Close() error {
	var err error
	if f.writable {
		err = f.Sync()
	}
	if e := f.disk.Close(); e != nil {
		err = errors.Join(err, fmt.Errorf("close %s: %w", f.path, e))
	}
	return err
}
