package activation

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func spec(d DType) Spec {
	return Spec{
		Model:  Model{Name: "tiny", Digest: "sha256:01", Quantization: "F32", Architecture: "llama"},
		Cell:   Cell{Context: "D", Text: "own-D", Position: "prompt_end", Kind: Residual},
		Layers: []string{"embed", "block.1", "final_norm"}, Samples: 4, Width: 5, DType: d,
	}
}

func mustCreate(t testing.TB, dir string, s Spec) *File {
	t.Helper()
	f, err := Create(t.Context(), dir, s)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.disk.Close() })
	return f
}

// state is a vector that F16 holds exactly.
func state(layer, sample, width int) []float32 {
	x := make([]float32, width)
	for j := range x {
		x[j] = float32(layer*100+sample*10+j) - 0.5
	}
	return x
}

func mustPut(t testing.TB, f *File, layer, sample int, x []float32) {
	t.Helper()
	if err := f.Put(layer, sample, x); err != nil {
		t.Fatal(err)
	}
}

func putAll(t testing.TB, f *File) {
	t.Helper()
	for l := range f.spec.Layers {
		for s := range f.spec.Samples {
			mustPut(t, f, l, s, state(l, s, f.spec.Width))
		}
	}
}

func mustClose(t testing.TB, f *File) {
	t.Helper()
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}

func mustOpen(t testing.TB, path string) *File {
	t.Helper()
	f, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return f
}

func TestWhatIsPutIsRead(t *testing.T) {
	for _, d := range []DType{F32, F16} {
		t.Run(string(d), func(t *testing.T) {
			f := mustCreate(t, t.TempDir(), spec(d))
			putAll(t, f)
			mustClose(t, f)
			f = mustOpen(t, f.Path())
			if diff := cmp.Diff(spec(d), f.Spec()); diff != "" {
				t.Errorf("the specification changed: %s", diff)
			}
			for l, name := range f.Spec().Layers {
				r, err := f.Rows(name)
				if err != nil {
					t.Fatal(err)
				}
				if r.Len() != 4 || r.Missing != nil {
					t.Errorf("layer %s has %d rows and misses %v", name, r.Len(), r.Missing)
				}
				for s := range 4 {
					if diff := cmp.Diff(state(l, s, 5), r.Row(s)); diff != "" {
						t.Errorf("layer %s, sample %d: %s", name, s, diff)
					}
				}
			}
		})
	}
}

// gorgonia.org/tensor asserts at start-up, through assume-no-moving-gc, that it
// knows this Go: with the version that it asks for itself, this binary would
// panic before any test. That this test runs is the guard.
func TestLayerIsATensor(t *testing.T) {
	f := mustCreate(t, t.TempDir(), spec(F16))
	putAll(t, f)
	x, err := f.Layer("block.1")
	if err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(x.Shape()); got != "(4, 5)" {
		t.Errorf("shape %s", got)
	}
	v, err := x.At(2, 3)
	if err != nil || v != float32(122.5) {
		t.Errorf("value %v, %v; want 122.5 of layer 1, sample 2, column 3", v, err)
	}
	column, err := x.Sum(0)
	if err != nil || column.Data().([]float32)[0] != 4*100+60-2 {
		t.Errorf("sum of the first column %v, %v; want 458", column, err)
	}
}

// Files of Python's own writer: testdata/write.py.
func TestReadsWhatPythonWrote(t *testing.T) {
	for _, d := range []DType{F32, F16} {
		t.Run(string(d), func(t *testing.T) {
			f := mustOpen(t, filepath.Join("testdata", "states_"+strings.ToLower(string(d))+".safetensors"))
			want := spec(d)
			want.Cell = Cell{Context: "ND", Text: "own-ND", Position: "utterance_end", Kind: Residual}
			if diff := cmp.Diff(want, f.Spec()); diff != "" {
				t.Error(diff)
			}
			r, err := f.Rows("block.1")
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(r.Missing, []int{2}) {
				t.Errorf("missing %v, want the torn row of sample 2", r.Missing)
			}
			for j, v := range r.Row(2) {
				if v == v {
					t.Errorf("value %d of the torn row is %v", j, v)
				}
			}
			if diff := cmp.Diff(state(1, 3, 5), r.Row(3)); diff != "" {
				t.Error(diff)
			}
			var bad *NonFiniteError
			if _, err := f.Layer("final_norm"); !errors.As(err, &bad) || bad.Layer != "final_norm" || bad.Values != 2 || bad.Rows != 2 || bad.First != 1 {
				t.Errorf("the layer with a NaN and an infinity gave %v", err)
			}
		})
	}
}

func TestAMissingRowIsNeverZeros(t *testing.T) {
	for _, d := range []DType{F32, F16} {
		t.Run(string(d), func(t *testing.T) {
			f := mustCreate(t, t.TempDir(), spec(d))
			mustPut(t, f, 1, 2, make([]float32, 5)) // zeros that were written
			r, err := f.Rows("block.1")
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(r.Missing, []int{0, 1, 3}) {
				t.Errorf("missing %v", r.Missing)
			}
			for s := range 4 {
				for _, v := range r.Row(s) {
					if (s == 2) != (v == 0) || (s != 2) != (v != v) {
						t.Errorf("sample %d holds %v", s, v)
					}
				}
			}
		})
	}
}

func TestHasNeedsEveryLayerWhole(t *testing.T) {
	f := mustCreate(t, t.TempDir(), spec(F32))
	has := func(sample int) bool {
		t.Helper()
		ok, err := f.Has(sample)
		if err != nil {
			t.Fatal(err)
		}
		return ok
	}
	for l := range 3 {
		if has(1) {
			t.Errorf("sample 1 is there with %d of 3 layers", l)
		}
		mustPut(t, f, l, 1, state(l, 1, 5))
	}
	if !has(1) || has(0) {
		t.Errorf("sample 1 %t, sample 0 %t", has(1), has(0))
	}
	// A write that a power cut tore: the last value did not reach the disk.
	mark := make([]byte, 4)
	F32.fill(mark)
	if _, err := f.disk.WriteAt(mark, f.offset(1, 1)+4*4); err != nil {
		t.Fatal(err)
	}
	if has(1) {
		t.Error("a torn row counts as written")
	}
	for _, s := range []int{-1, 4} {
		if _, err := f.Has(s); err == nil {
			t.Errorf("there is no sample %d", s)
		}
	}
}

// A NaN of the model, whatever its payload, the mark's included, is a written
// one; a missing row is not a value that is not finite.
func TestNotFiniteIsNotMissing(t *testing.T) {
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	mark := math.Float32frombits(missing32)
	for _, c := range []struct {
		name             string
		dtype            DType
		x                []float32
		put              Count
		inFile           int
		message, dontSay string
	}{
		{name: "largest half", dtype: F16, x: []float32{65504, -65504, 0, 1, 2}},
		{name: "beyond it, though it would round down", dtype: F16, x: []float32{65504.01, -65519, 7e9, 0, 0},
			put: Count{Overflow: 3}, inFile: 3, message: "beyond the 65,504 that F16 holds; extract them as F32"},
		{name: "the same in single precision", dtype: F32, x: []float32{65504.01, -65519, 7e9, math.MaxFloat32, 0}},
		{name: "infinities are not overflow", dtype: F16, x: []float32{inf, -inf, nan, 0, 0}, put: Count{NonFinite: 3}, inFile: 3, message: "not finite"},
		{name: "in single precision", dtype: F32, x: []float32{inf, -inf, nan, 0, 0}, put: Count{NonFinite: 3}, inFile: 3, message: "not finite", dontSay: "F16"},
		{name: "all NaN", dtype: F32, x: []float32{nan, nan, nan, nan, nan}, put: Count{NonFinite: 5}, inFile: 5, message: "layer block.1 of "},
		{name: "the mark as a value", dtype: F32, x: []float32{mark, mark, mark, mark, mark}, put: Count{NonFinite: 5}, inFile: 5, message: "not finite"},
		{name: "the mark as a value of F16", dtype: F16, x: []float32{mark, mark, mark, mark, mark}, put: Count{NonFinite: 5}, inFile: 5, message: "not finite"},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := mustCreate(t, t.TempDir(), spec(c.dtype))
			mustPut(t, f, 0, 0, state(0, 0, 5))
			mustPut(t, f, 1, 3, c.x)
			c.put.Layer, c.put.Rows = "block.1", 1
			if diff := cmp.Diff(c.put, f.PutCounts()[1]); diff != "" {
				t.Errorf("counted while writing: %s", diff)
			}
			a, err := f.Audit(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			want := []Count{{Layer: "embed", Rows: 1}, {Layer: "block.1", Rows: 1, NonFinite: c.inFile}, {Layer: "final_norm"}}
			if diff := cmp.Diff(want, a.Layers); diff != "" {
				t.Errorf("counted in the file: %s", diff)
			}
			_, err = f.Layer("block.1")
			if (err != nil) != (c.inFile > 0) || (a.Err() != nil) != (c.inFile > 0) {
				t.Fatalf("the layer gave %v, the audit %v", err, a.Err())
			}
			if err != nil {
				if s := err.Error(); !strings.Contains(s, "block.1") || !strings.Contains(s, "sample 3 first") || !strings.Contains(s, c.message) {
					t.Errorf("the message is %q", s)
				} else if c.dontSay != "" && strings.Contains(s, c.dontSay) {
					t.Errorf("the message is %q", s)
				}
			}
			if _, err := f.Layer("embed"); err != nil {
				t.Errorf("the layer beside it fails too: %v", err)
			}
		})
	}
}

// A killed run: nothing is closed, and the next process finds what was put.
func TestCreateGoesOn(t *testing.T) {
	dir := t.TempDir()
	f := mustCreate(t, dir, spec(F16))
	for l := range 3 {
		mustPut(t, f, l, 0, state(l, 0, 5))
	}
	mustPut(t, f, 0, 1, state(0, 1, 5)) // killed in the middle of sample 1
	g := mustCreate(t, dir, spec(F16))
	a, err := g.Audit(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(a.Missing, []int{1, 2, 3}) {
		t.Errorf("missing %v, want 1, 2 and 3", a.Missing)
	}
	putAll(t, g)
	if a, err = g.Audit(t.Context()); err != nil || a.Missing != nil || a.Err() != nil {
		t.Errorf("after all is put: %v, %v", a, err)
	}
	if paths, err := List(dir); err != nil || !slices.Equal(paths, []string{g.Path()}) {
		t.Errorf("files %v, %v", paths, err)
	}
}

func TestAnotherModelOrShapeIsNamed(t *testing.T) {
	dir := t.TempDir()
	f := mustCreate(t, dir, spec(F16))
	for _, c := range []struct {
		name   string
		change func(*Spec)
		want   []string
	}{
		{"model", func(s *Spec) { s.Model.Name, s.Model.Digest = "big", "sha256:02" }, []string{"the model is tiny (sha256:01), not big (sha256:02)"}},
		{"a name alone is not another model", func(s *Spec) { s.Model.Name = "tiny:latest" }, nil},
		{"samples", func(s *Spec) { s.Samples = 1503 }, []string{"the number of samples is 4, not 1503"}},
		{"width and type", func(s *Spec) { s.Width, s.DType = 576, F32 }, []string{"the width is 5, not 576", "the type is F16, not F32"}},
		{"fewer layers", func(s *Spec) { s.Layers = s.Layers[:2] }, []string{"there are 3 layers (embed to final_norm), not 2 (embed to block.1)"}},
		{"other layers", func(s *Spec) { s.Layers[1] = "block.2" }, []string{"layer 1 is block.1, not block.2"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := spec(F16)
			c.change(&s)
			g, err := Create(t.Context(), dir, s)
			if len(c.want) == 0 {
				if err != nil {
					t.Fatal(err)
				}
				mustClose(t, g)
				return
			}
			var m *MismatchError
			if !errors.As(err, &m) {
				t.Fatalf("got %v", err)
			}
			if diff := cmp.Diff(c.want, m.Fields); diff != "" {
				t.Error(diff)
			}
			if !strings.Contains(err.Error(), f.Path()) {
				t.Errorf("the message does not name the file: %v", err)
			}
		})
	}
	if err := f.Check(Spec{}); err != nil {
		t.Errorf("fields that are not asked for are compared: %v", err)
	}
	if err := f.Check(Spec{Cell: Cell{Context: "ND", Text: "own-D", Position: "prompt_end"}}); err == nil || !strings.Contains(err.Error(), "the context is D, not ND") {
		t.Errorf("another cell gave %v", err)
	}
}

func TestSpecIsChecked(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*Spec)
		want   string
	}{
		{"no digest", func(s *Spec) { s.Model.Digest = "" }, "no digest"},
		{"no layers", func(s *Spec) { s.Layers = nil }, "0 layers"},
		{"one layer twice", func(s *Spec) { s.Layers[2] = "embed" }, `two layers are named "embed"`},
		{"a layer without a name", func(s *Spec) { s.Layers[2] = "" }, `named ""`},
		{"a layer that JSON would rename", func(s *Spec) { s.Layers[2] = "block\xff" }, "UTF-8"},
		{"a digest that JSON would change", func(s *Spec) { s.Model.Digest = "\xff" }, "UTF-8"},
		{"no samples", func(s *Spec) { s.Samples = 0 }, "0 samples of width 5"},
		{"negative width", func(s *Spec) { s.Width = -1 }, "width -1"},
		{"too large a layer", func(s *Spec) { s.Samples, s.Width = math.MaxInt32, 2 }, "at most"},
		{"another type", func(s *Spec) { s.DType = "F64" }, `"F64"`},
		{"no type", func(s *Spec) { s.DType = "" }, "F32 and F16"},
		{"a cell that leaves the folder", func(s *Spec) { s.Cell.Text = "../x" }, `the cell's text is "../x"`},
		{"a cell with a dot", func(s *Spec) { s.Cell.Context = "a.b" }, "context"},
		{"no position", func(s *Spec) { s.Cell.Position = "" }, "position"},
		{"a digest of a megabyte", func(s *Spec) { s.Model.Digest = strings.Repeat("x", 1<<20) }, "1048576 bytes long"},
		{"more than fits", func(s *Spec) {
			s.Layers, s.Samples, s.Width = make([]string, maxLayers+1), 1, 1
		}, "4097 layers"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := spec(F32)
			c.change(&s)
			dir := t.TempDir()
			_, err := Create(t.Context(), dir, s)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want it to say %q", err, c.want)
			}
			if es, _ := os.ReadDir(dir); len(es) != 0 {
				t.Errorf("left %v", es)
			}
		})
	}
}

func TestPutIsChecked(t *testing.T) {
	f := mustCreate(t, t.TempDir(), spec(F32))
	for _, c := range []struct {
		layer, sample, width int
		want                 string
	}{
		{-1, 0, 5, "no layer -1"}, {3, 0, 5, "no layer 3, only 0 to 2"}, {0, 4, 5, "no sample 4, only 0 to 3"}, {0, -1, 5, "no sample -1"},
		{1, 0, 4, "a state of width 4"}, {1, 0, 0, "a state of width 0"}, {1, 0, 6, "layer block.1 has width 5"},
	} {
		if err := f.Put(c.layer, c.sample, make([]float32, c.width)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("got %v, want it to say %q", err, c.want)
		}
	}
	if _, err := f.Rows("block.9"); err == nil || !strings.Contains(err.Error(), "embed, block.1, final_norm") {
		t.Errorf("an unknown layer gave %v", err)
	}
	if err := mustOpen(t, f.Path()).Put(0, 0, state(0, 0, 5)); err == nil || !strings.Contains(err.Error(), "reading only") {
		t.Errorf("a file from Open was written: %v", err)
	}
}

// full is a disk that is full after room more bytes.
type full struct {
	storage
	room int
}

var errFull = errors.New("no space left on device")

func (d *full) WriteAt(b []byte, at int64) (int, error) {
	if len(b) <= d.room {
		d.room -= len(b)
		return d.storage.WriteAt(b, at)
	}
	n, err := d.storage.WriteAt(b[:d.room], at)
	d.room = 0
	return n, errors.Join(errFull, err)
}

func TestDiskFull(t *testing.T) {
	t.Run("while making the file nothing is left", func(t *testing.T) {
		dir := t.TempDir()
		st, err := os.Stat(mustCreate(t, t.TempDir(), spec(F32)).Path())
		if err != nil {
			t.Fatal(err)
		}
		size := int(st.Size())
		for _, room := range []int{0, 100, size - 240, size - 1} {
			_, err := create(t.Context(), dir, spec(F32), func(path string) (storage, error) {
				f, err := os.Create(path)
				return &full{f, room}, err
			})
			if !errors.Is(err, errFull) || !strings.Contains(err.Error(), "240 bytes") {
				t.Errorf("room for %d: got %v", room, err)
			}
			if es, _ := os.ReadDir(dir); len(es) != 0 {
				t.Errorf("room for %d: left %v", room, es)
			}
		}
		mustCreate(t, dir, spec(F32))
	})
	// File systems that copy on write need room for what is overwritten, too.
	t.Run("in the middle of a row the run can go on", func(t *testing.T) {
		dir := t.TempDir()
		f := mustCreate(t, dir, spec(F32))
		disk := f.disk
		f.disk = &full{disk, 2*20 + 10}
		var err error
		put := 0
		for s := 0; s < 4 && err == nil; s++ {
			if err = f.Put(1, s, state(1, s, 5)); err == nil {
				put++
			}
		}
		if put != 2 || !errors.Is(err, errFull) || !strings.Contains(err.Error(), "layer block.1 of sample 2") {
			t.Fatalf("after %d rows: %v", put, err)
		}
		if n := f.PutCounts()[1].Rows; n != 2 {
			t.Errorf("%d rows counted", n)
		}
		g := mustCreate(t, dir, spec(F32))
		r, err := g.Rows("block.1")
		if err != nil || !slices.Equal(r.Missing, []int{2, 3}) {
			t.Fatalf("missing %v, %v; want 2 and 3", r.Missing, err)
		}
		putAll(t, g)
		if ok, err := g.Has(2); !ok || err != nil {
			t.Errorf("sample 2 after resuming: %t, %v", ok, err)
		}
	})
}

func TestCancelledCreateLeavesNothing(t *testing.T) {
	dir := t.TempDir()
	cause := errors.New("interrupted by hand")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(cause)
	if _, err := Create(ctx, dir, spec(F32)); !errors.Is(err, cause) || strings.Contains(err.Error(), "room there") {
		t.Errorf("got %v", err)
	}
	if es, _ := os.ReadDir(dir); len(es) != 0 {
		t.Errorf("left %v", es)
	}
	f := mustCreate(t, dir, spec(F32))
	if _, err := f.Audit(ctx); !errors.Is(err, cause) {
		t.Errorf("the audit gave %v", err)
	}
}

// What a kill left of a file that was being made does not stand in the way, and
// is no file of hidden states.
func TestKilledWhileMakingTheFile(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, spec(F32).Cell.File())
	if err := os.WriteFile(path+".partial", make([]byte, 1<<20), 0o644); err != nil {
		t.Fatal(err)
	}
	if paths, err := List(dir); err != nil || paths != nil {
		t.Errorf("listed %v, %v", paths, err)
	}
	f := mustCreate(t, dir, spec(F32))
	if r, err := f.Rows("embed"); err != nil || len(r.Missing) != 4 {
		t.Errorf("got %v, %v", r, err)
	}
	if _, err := os.Stat(path + ".partial"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the partial file is still there: %v", err)
	}
}

func TestListTakesOnlyCells(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"ND.own-ND.prompt_end.residual.safetensors", "D.own-D.prompt_end.residual.safetensors",
		"probe.safetensors", "samples.jsonl", "a.b.c.safetensors", "a.b..d.safetensors"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(dir, "a.b.c.d.safetensors"), 0o755); err != nil {
		t.Fatal(err)
	}
	got, err := List(dir)
	want := []string{filepath.Join(dir, "D.own-D.prompt_end.residual.safetensors"), filepath.Join(dir, "ND.own-ND.prompt_end.residual.safetensors")}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("got %v, %v", got, err)
	}
	if _, err := List(filepath.Join(dir, "none")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a folder that is not there gave %v", err)
	}
}

func TestConcurrentPut(t *testing.T) {
	s := spec(F16)
	s.Samples = 64
	f := mustCreate(t, t.TempDir(), s)
	var wg sync.WaitGroup
	for sample := range s.Samples {
		wg.Go(func() {
			for l := range s.Layers {
				if err := f.Put(l, sample, state(l, sample, s.Width)); err != nil {
					t.Error(err)
				}
				if _, err := f.Has(sample); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	for l, name := range s.Layers {
		r, err := f.Rows(name)
		if err != nil {
			t.Fatal(err)
		}
		for sample := range s.Samples {
			if !slices.Equal(r.Row(sample), state(l, sample, s.Width)) {
				t.Errorf("layer %s, sample %d: %v", name, sample, r.Row(sample))
			}
		}
	}
}

// 200 MB go through the store while the process takes a few from the system, and
// one layer more when one is read. What is taken from the system is compared,
// because under the race detector a sync.Pool forgets on purpose.
func TestMemoryStaysFlat(t *testing.T) {
	if testing.Short() {
		t.Skip("writes 200 MB")
	}
	s := spec(F32)
	s.Layers, s.Samples, s.Width = nil, 1250, 4096
	for l := range 10 {
		s.Layers = append(s.Layers, fmt.Sprintf("block.%d", l))
	}
	dir, x := t.TempDir(), state(1, 1, s.Width)
	const MB = 1 << 20
	layer := int64(s.Samples) * int64(s.Width) * 4
	flat := func(what string, most int64, do func()) {
		t.Helper()
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		do()
		runtime.ReadMemStats(&after)
		n := int64(after.Sys - before.Sys)
		t.Logf("%s took %.1f MB", what, float64(n)/MB)
		if n > most {
			t.Errorf("%s took %d bytes from the system, more than %d", what, n, most)
		}
	}
	var f *File
	flat("making the file", 16*MB, func() { f = mustCreate(t, dir, s) })
	flat("writing", 16*MB, func() {
		for sample := range s.Samples {
			for l := range s.Layers {
				mustPut(t, f, l, sample, x)
			}
		}
	})
	flat("the audit", 16*MB, func() {
		if a, err := f.Audit(t.Context()); err != nil || a.Missing != nil {
			t.Fatal(a, err)
		}
	})
	flat("reading a layer", layer+16*MB, func() {
		if _, err := f.Layer("block.7"); err != nil {
			t.Fatal(err)
		}
	})
}
