package activation

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
)

// whole returns the bytes of a small complete file.
func whole(t testing.TB, d DType) []byte {
	t.Helper()
	f := mustCreate(t, t.TempDir(), spec(d))
	putAll(t, f)
	mustClose(t, f)
	b, err := os.ReadFile(f.Path())
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// withHeader returns a file of the given header text and 240 bytes of data, as
// spec(F32) has.
func withHeader(text string) []byte {
	b := binary.LittleEndian.AppendUint64(nil, uint64(len(text)))
	return append(append(b, text...), make([]byte, 240)...)
}

// edited returns a file whose header is spec(F32)'s after a change.
func edited(change func(meta map[string]any, all map[string]any)) []byte {
	m, err := spec(F32).metadata()
	if err != nil {
		panic(err)
	}
	meta := map[string]any{}
	for k, v := range m {
		meta[k] = v
	}
	all := map[string]any{metadataKey: meta, "states": map[string]any{"dtype": "F32", "shape": []int64{3, 4, 5}, "data_offsets": []int64{0, 240}}}
	change(meta, all)
	b, err := json.Marshal(all)
	if err != nil {
		panic(err)
	}
	return withHeader(string(b))
}

func states(dtype string, shape []int64, offsets ...int64) func(_, all map[string]any) {
	return func(_, all map[string]any) {
		all["states"] = map[string]any{"dtype": dtype, "shape": shape, "data_offsets": offsets}
	}
}

func TestOpenDamaged(t *testing.T) {
	good := whole(t, F32)
	header := int(binary.LittleEndian.Uint64(good))
	length := func(n uint64) []byte {
		b := bytes.Clone(good)
		binary.LittleEndian.PutUint64(b, n)
		return b
	}
	for _, c := range []struct {
		name string
		file []byte
		want string
	}{
		{"empty", nil, "0 bytes, fewer than a header"},
		{"seven bytes", good[:7], "7 bytes, fewer than a header"},
		{"a length and nothing else", good[:8], "truncated"},
		{"cut in the header", good[:8+header/2], "the file is truncated"},
		{"cut after the header", good[:8+header], "need 240 bytes and 0 are there: the file is truncated"},
		{"cut in the data", good[:len(good)-1], "need 240 bytes and 239 are there: the file is truncated"},
		{"something after the data", append(bytes.Clone(good), 0), "something else follows"},
		{"a length of 2^64-1", length(math.MaxUint64), "claims 18446744073709551615 bytes"},
		{"a length of 2^63", length(1 << 63), "at most 1048576 are read"},
		{"a length beyond the limit", length(maxHeader + 1), "at most"},
		{"a length beyond the file", length(uint64(len(good))), "truncated"},
		{"a length of nothing", length(0), "does not start with {"},
		{"a length too short", length(10), "its header: "},
		{"no JSON", withHeader("{hello}"), "its header: "},
		{"a JSON array", withHeader(`["states"]`), "does not start with {"},
		{"white space first", withHeader(` {}`), "does not start with {"},
		{"not UTF-8", withHeader("{\"\xff\":1}"), "not UTF-8"},
		{"text behind", withHeader(`{} x`), "follows"},
		{"not closed", withHeader(`{"a":`), "its header"},
		{"deep nesting", withHeader(`{"states":` + strings.Repeat("[", 100_000)), "its header"},
		{"no tensors", withHeader(`{}`), "something else follows"},
		{"metadata that are not strings", edited(func(meta, _ map[string]any) { meta["schema"] = 1 }), metadataKey},
		{"null metadata", edited(func(_, all map[string]any) { all[metadataKey] = nil }), `holds "", not "hidden states"`},
		{"no metadata", edited(func(_, all map[string]any) { delete(all, metadataKey) }), `holds ""`},
		{"a null tensor", edited(func(_, all map[string]any) { all["states"] = nil }), "0 data_offsets"},
		{"another content", edited(func(meta, _ map[string]any) { meta["content"] = "linear probes" }), `holds "linear probes"`},
		{"a later schema", edited(func(meta, _ map[string]any) { meta["schema"] = "2" }), "use a newer ccmed"},
		{"no digest", edited(func(meta, _ map[string]any) { delete(meta, "digest") }), "no digest"},
		{"layers that are no list", edited(func(meta, _ map[string]any) { meta["layers"] = "embed" }), "names of its layers"},
		{"fewer names than layers", edited(func(meta, _ map[string]any) { meta["layers"] = `["embed"]` }), "for 1 named layers"},
		{"a cell that leaves the folder", edited(func(meta, _ map[string]any) { meta["text"] = "../.." }), "the cell's text"},
		{"another name", edited(func(_, all map[string]any) { all["x"] = all["states"]; delete(all, "states") }), `named "states"`},
		{"integers", edited(states("I32", []int64{3, 4, 5}, 0, 240)), `type "I32"`},
		{"F64 states", edited(states("F64", []int64{3, 2, 5}, 0, 240)), `"F64"`},
		{"two dimensions", edited(states("F32", []int64{3, 20}, 0, 240)), "not (layers, samples, width)"},
		{"a shape larger than its data", edited(states("F32", []int64{3, 4, 6}, 0, 240)), "needs 288 bytes"},
		{"the shape of F16", edited(states("F16", []int64{3, 4, 5}, 0, 240)), "needs 120 bytes"},
		{"a product that overflows", edited(states("F32", []int64{1 << 31, 1 << 31, 1 << 31}, 0, 240)), "impossible shape"},
		{"a product that wraps to the right size", edited(states("F32", []int64{3, 4 + 1<<62, 5}, 0, 240)), "impossible shape"},
		{"a negative shape", edited(states("F32", []int64{-3, -4, 5}, 0, 240)), "impossible shape"},
		{"nothing and less than nothing", edited(states("F32", []int64{0, -4, 5}, 0, 0)), "impossible shape"},
		{"no samples", edited(func(_, all map[string]any) {
			all["states"] = map[string]any{"dtype": "F32", "shape": []int64{3, 0, 5}, "data_offsets": []int64{0, 0}}
			all["pad"] = map[string]any{"dtype": "F32", "shape": []int64{60}, "data_offsets": []int64{0, 240}}
		}), "2 tensors"},
		{"backward offsets", edited(states("F32", []int64{3, 4, 5}, 240, 0)), "lies at 240 to 0"},
		{"negative offsets", edited(states("F32", []int64{3, 4, 5}, -240, 0)), "lies at -240 to 0"},
		{"offsets beyond the file", edited(states("F32", []int64{3, 4, 5}, 1<<60, 1<<60+240)), "starts at"},
		{"a file that claims a terabyte", edited(states("F32", []int64{3, 1 << 20, 1 << 17}, 0, 3<<39)), "the file is truncated"},
		{"one offset", edited(states("F32", []int64{3, 4, 5}, 0)), "1 data_offsets"},
		{"three offsets", edited(states("F32", []int64{3, 4, 5}, 0, 120, 240)), "3 data_offsets"},
		{"a gap in front", edited(states("F32", []int64{3, 4, 4}, 48, 240)), "starts at 48, but the tensor before ends at 0"},
		{"overlapping tensors", edited(func(_, all map[string]any) {
			all["other"] = map[string]any{"dtype": "F32", "shape": []int64{30}, "data_offsets": []int64{120, 240}}
		}), "inside the tensor before"},
		{"a tensor beside the states", edited(func(_, all map[string]any) {
			all["states"] = map[string]any{"dtype": "F32", "shape": []int64{3, 2, 5}, "data_offsets": []int64{0, 120}}
			all["other"] = map[string]any{"dtype": "F32", "shape": []int64{30}, "data_offsets": []int64{120, 240}}
		}), "2 tensors"},
		{"one tensor twice", withHeader(`{"states":{"dtype":"F32","shape":[60],"data_offsets":[0,240]},"states":{"dtype":"F32","shape":[60],"data_offsets":[0,240]}}`), "occurs twice"},
		{"metadata twice", withHeader(`{"__metadata__":{},"__metadata__":{}}`), "occurs twice"},
		{"a number of 100,000 digits", withHeader(`{"states":{"dtype":"F32","shape":[` + strings.Repeat("7", 100_000) + `],"data_offsets":[0,240]}}`), "states"},
		{"a shape of 10,000 dimensions", edited(states("F32", append(slices.Repeat([]int64{1}, 9_997), 3, 4, 5), 0, 240)), "have shape [1 1 1"},
		{"a text of 100,000 letters", edited(func(meta, _ map[string]any) { meta["content"] = strings.Repeat("x", 100_000) }), `holds "xxx`},
		{"shapes that are no integers", withHeader(`{"states":{"dtype":"F32","shape":[1.5],"data_offsets":[0,240]}}`), "states"},
		{"offsets beyond 64 bits", withHeader(`{"states":{"dtype":"F32","shape":[60],"data_offsets":[0,1e30]}}`), "states"},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "D.own-D.prompt_end.residual.safetensors")
			if err := os.WriteFile(path, c.file, 0o644); err != nil {
				t.Fatal(err)
			}
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			f, err := Open(path)
			runtime.ReadMemStats(&after)
			if err == nil {
				t.Fatal(f.Close())
			}
			if !errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want it to say %q", err, c.want)
			}
			if n := len(err.Error()); n > 600+len(path) {
				t.Errorf("the message has %d bytes", n)
			}
			if n := after.TotalAlloc - before.TotalAlloc; n > 4*maxHeader {
				t.Errorf("opening it allocated %d bytes", n)
			}
		})
	}
	// The same, unharmed, can be read: the cases fail for what they name.
	if _, _, err := parse(bytes.NewReader(edited(func(_, _ map[string]any) {})), int64(len(edited(func(_, _ map[string]any) {})))); err != nil {
		t.Errorf("the unchanged header: %v", err)
	}
	if _, err := Open(filepath.Join(t.TempDir(), "none")); !errors.Is(err, os.ErrNotExist) || errors.Is(err, ErrDamaged) {
		t.Errorf("a file that is not there gave %v", err)
	}
	if _, err := Open(t.TempDir()); err == nil {
		t.Error("a folder was opened")
	}
}

// A damaged file is not overwritten by resuming.
func TestCreateKeepsADamagedFile(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, spec(F32).Cell.File())
	if err := os.WriteFile(path, whole(t, F32)[:300], 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := Create(t.Context(), dir, spec(F32)); !errors.Is(err, ErrDamaged) {
		t.Errorf("got %v", err)
	}
	if st, err := os.Stat(path); err != nil || st.Size() != 300 {
		t.Errorf("the file is now %v, %v", st, err)
	}
}

// Whatever the bytes: an error or a file that can be read in full, and no more
// memory than the file's size explains.
func FuzzOpen(f *testing.F) {
	for _, d := range []DType{F32, F16} {
		b := whole(f, d)
		f.Add(b)
		f.Add(b[:len(b)-1])
		f.Add(b[:200])
	}
	f.Add(withHeader(`{"states":{"dtype":"F32","shape":[3,4,5],"data_offsets":[0,240]}}`))
	f.Add(edited(states("F32", []int64{3, 4 + 1<<62, 5}, 0, 240)))
	f.Add(edited(states("F16", []int64{3, 8, 5}, 0, 240)))
	f.Fuzz(func(t *testing.T, b []byte) {
		s, at, err := parse(bytes.NewReader(b), int64(len(b)))
		if err != nil {
			return
		}
		if err := s.check(); err != nil {
			t.Fatalf("accepted %v", err)
		}
		if at+s.bytes() != int64(len(b)) {
			t.Fatalf("%d + %d bytes in a file of %d", at, s.bytes(), len(b))
		}
		x := newFile("fuzz", s, memory{bytes.NewReader(b)}, at, false)
		a, err := x.Audit(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for i, l := range s.Layers {
			r, err := x.Rows(l)
			if (err != nil) != (a.Layers[i].NonFinite > 0) {
				t.Fatalf("layer %q: %v, but %d values are not finite", l, err, a.Layers[i].NonFinite)
			}
			if err == nil && len(r.Missing) != s.Samples-a.Layers[i].Rows {
				t.Fatalf("layer %q misses %v; %d of %d rows are written", l, r.Missing, a.Layers[i].Rows, s.Samples)
			}
		}
	})
}

type memory struct{ *bytes.Reader }

func (memory) WriteAt([]byte, int64) (int, error) { return 0, errors.ErrUnsupported }
func (memory) Sync() error                        { return nil }
func (memory) Close() error                       { return nil }

// Every half is read as what it is, and every float32 between two halves becomes
// the nearer one (IEEE 754, ties to even).
func TestHalfPrecision(t *testing.T) {
	dst, back := make([]byte, 2), make([]float32, 1)
	for h := range 1 << 16 {
		exp, frac := h>>10&31, h&1023
		want := math.Ldexp(float64(frac)/1024+1, exp-15)
		if exp == 0 {
			want = math.Ldexp(float64(frac)/1024, -14)
		}
		if exp == 31 {
			continue
		}
		if h>>15 == 1 {
			want = -want
		}
		binary.LittleEndian.PutUint16(dst, uint16(h))
		if missing, bad := F16.decode(back, dst); missing || bad != 0 || float64(back[0]) != want {
			t.Fatalf("half %#04x is %v, not %v", h, back[0], want)
		}
		clear(dst)
		if bad, over := F16.encode(dst, back); bad+over != 0 || binary.LittleEndian.Uint16(dst) != uint16(h) {
			t.Fatalf("%v is stored as %#04x, not %#04x", back[0], binary.LittleEndian.Uint16(dst), h)
		}
	}
	for _, c := range []struct{ x, want float32 }{
		{1 + 1.0/2048, 1}, {1 + 3.0/2048, 1 + 2.0/1024}, {1 + 1.001/2048, 1 + 1.0/1024}, {1e-9, 0}, {0.1, 0.099975586},
	} {
		F16.encode(dst, []float32{c.x})
		if F16.decode(back, dst); back[0] != c.want {
			t.Errorf("%v is read back as %v, not %v", c.x, back[0], c.want)
		}
	}
}

func TestHeaderLimit(t *testing.T) {
	s := spec(F32)
	s.Layers = nil
	for l := range maxLayers {
		s.Layers = append(s.Layers, fmt.Sprintf("%s%d", strings.Repeat("x", 120), l))
	}
	s.Samples, s.Width = 1, 1
	f := mustCreate(t, t.TempDir(), s) // the longest header that a specification can ask for
	if got := mustOpen(t, f.Path()).Spec(); len(got.Layers) != maxLayers {
		t.Errorf("%d layers came back", len(got.Layers))
	}
}
