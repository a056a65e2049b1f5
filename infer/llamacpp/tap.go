package llamacpp

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"
	"unsafe"

	"github.com/ebitengine/purego"
	"github.com/hybridgroup/yzma/pkg/llama"
	"github.com/hybridgroup/yzma/pkg/loader"
	"github.com/hybridgroup/yzma/pkg/utils"
	"github.com/jupiterrider/ffi"
)

// A tap reads and changes rows of tensors while llama.cpp computes them, through its
// evaluation callback: llama.cpp asks for every tensor of the graph whether it
// is wanted, and shows those that are when they are computed and before their
// memory is used again. A graph is computed in one piece up to a wanted tensor.
type tap struct {
	width   int
	tensors []string // wanted, by name
	listing bool     // nothing is read; what llama.cpp asks for is noted
	asked   []string

	tokens int   // in this evaluation
	rows   []int // the wanted tokens' indices in it, ascending: just those with outputs
	x      [][]float32
	seen   []bool               // by tensor
	edits  map[string][]rowEdit // by tensor, those of this evaluation
	err    error
}

// rowEdit is what changes a row of a tensor.
type rowEdit struct {
	row    int
	change change
}

// tensor is the beginning of struct ggml_tensor (ggml.h of Release).
type tensor struct {
	kind   int32
	buffer uintptr
	shape  [4]int64  // values in a row, rows, ...
	stride [4]uint64 // bytes to the next value, row, ...
}

// float32Type is GGML_TYPE_F32 in ggml.h.
const float32Type = 0

// ggml holds the functions of libggml-base that the callback calls, and the
// callback itself. purego never frees a callback: it is made once a process, and
// serves every tap by its user data.
var ggml struct {
	once     sync.Once
	err      error
	getName  ffi.Fun // const char * ggml_get_name(const struct ggml_tensor *)
	size     ffi.Fun // size_t ggml_nbytes(const struct ggml_tensor *)
	read     ffi.Fun // void ggml_backend_tensor_get(const struct ggml_tensor *, void * data, size_t offset, size_t size)
	write    ffi.Fun // void ggml_backend_tensor_set(struct ggml_tensor *, const void * data, size_t offset, size_t size)
	callback uintptr
}

// taps holds the tap of each model that has a context with one, by the model's
// address, which the callback gets as its user data.
var taps sync.Map // of uintptr to *tap

// evalCallback returns the address of the evaluation callback. The libraries in
// dir are loaded already.
func evalCallback(dir string) (uintptr, error) {
	ggml.once.Do(func() {
		lib, err := loader.LoadLibrary(dir, "ggml-base")
		if err != nil {
			ggml.err = fmt.Errorf("llamacpp: loading ggml from %s: %w", dir, err)
			return
		}
		prep := func(f *ffi.Fun, name string, ret *ffi.Type, args ...*ffi.Type) {
			if ggml.err != nil {
				return
			}
			if *f, err = lib.Prep(name, ret, args...); err != nil {
				ggml.err = fmt.Errorf("llamacpp: ggml in %s has no %s: %w; run `ccmed engine install`", dir, name, err)
			}
		}
		pointer, size := &ffi.TypePointer, &ffi.TypeUint64
		prep(&ggml.getName, "ggml_get_name", pointer, pointer)
		prep(&ggml.size, "ggml_nbytes", size, pointer)
		prep(&ggml.read, "ggml_backend_tensor_get", &ffi.TypeVoid, pointer, pointer, size, size)
		prep(&ggml.write, "ggml_backend_tensor_set", &ffi.TypeVoid, pointer, pointer, size, size)
		if ggml.err == nil {
			ggml.callback = purego.NewCallback(func(t unsafe.Pointer, ask bool, data unsafe.Pointer) bool {
				p, ok := taps.Load(uintptr(data))
				return ok && p.(*tap).called((*tensor)(t), ask)
			})
		}
	})
	return ggml.callback, ggml.err
}

// expect prepares for an evaluation of n tokens, of which those at rows have
// outputs and are wanted.
func (p *tap) expect(n int, rows []int) {
	p.tokens, p.rows, p.edits, p.err = n, rows, nil, nil
	p.x = slices.Grow(p.x, len(p.tensors))[:len(p.tensors)]
	p.seen = append(p.seen[:0], make([]bool, len(p.tensors))...)
	for i := range p.x {
		p.x[i] = slices.Grow(p.x[i][:0], len(rows)*p.width)[:len(rows)*p.width]
	}
}

// called answers the evaluation callback: whether the tensor is wanted when
// llama.cpp asks, else whether to go on.
func (p *tap) called(t *tensor, ask bool) bool {
	if len(p.rows) == 0 && len(p.edits) == 0 && !p.listing {
		return !ask
	}
	var text *byte
	ggml.getName.Call(&text, &t)
	name := utils.BytePtrToString(text)
	if ask && p.listing {
		p.asked = append(p.asked, name)
	}
	i, edits := slices.Index(p.tensors, name), p.edits[name]
	if ask {
		return i >= 0 || len(edits) > 0
	}
	if len(edits) > 0 && p.err == nil {
		p.err = p.change(name, edits, t)
	}
	if i >= 0 && p.err == nil {
		p.err = p.take(i, t)
	}
	return p.err == nil
}

// take copies the wanted rows of tensor i. Where the model has dropped the
// tokens without outputs, as it does in its last block, the rows left are just
// the wanted ones.
func (p *tap) take(i int, t *tensor) error {
	n, err := p.check(p.tensors[i], t)
	if err != nil {
		return err
	}
	row := uint64(4 * p.width)
	for j, at := range p.rows {
		if n != p.tokens {
			at = j
		}
		to := unsafe.Pointer(&p.x[i][j*p.width])
		from := uint64(at) * row
		ggml.read.Call(nil, &t, &to, &from, &row)
	}
	p.seen[i] = true
	return nil
}

// change changes rows of a tensor: all of them, and those between, are read and written at
// once. A row that the model has dropped already changes nothing that comes after.
func (p *tap) change(name string, edits []rowEdit, t *tensor) error {
	n, err := p.check(name, t)
	if err != nil {
		return err
	}
	delete(p.edits, name)
	if n != p.tokens {
		var left []rowEdit
		for _, e := range edits {
			if j, ok := slices.BinarySearch(p.rows, e.row); ok {
				left = append(left, rowEdit{j, e.change})
			}
		}
		edits = left
	}
	if len(edits) == 0 {
		return nil
	}
	first, last := edits[0].row, edits[len(edits)-1].row
	x := make([]float32, (last-first+1)*p.width)
	data, from, size := unsafe.Pointer(&x[0]), uint64(4*p.width*first), uint64(4*len(x))
	ggml.read.Call(nil, &t, &data, &from, &size)
	for _, e := range edits {
		at := (e.row - first) * p.width
		e.change.apply(x[at : at+p.width])
	}
	ggml.write.Call(nil, &t, &data, &from, &size)
	return nil
}

// edited looks whether the evaluation made all edits.
func (p *tap) edited() error {
	if p.err != nil || len(p.edits) == 0 {
		return p.err
	}
	return fmt.Errorf("llamacpp: llama.cpp did not compute %s, which is edited", strings.Join(slices.Sorted(maps.Keys(p.edits)), ", "))
}

// check returns the number of rows of a tensor that holds one a token, or, where the model
// has dropped the tokens without outputs, one an output.
func (p *tap) check(name string, t *tensor) (int, error) {
	var size uint64
	ggml.size.Call(&size, &t)
	row := uint64(4 * p.width)
	n := int(t.shape[1])
	if t.kind != float32Type || t.shape[0] != int64(p.width) || t.shape[2] != 1 || t.shape[3] != 1 ||
		t.stride[0] != 4 || t.stride[1] != row || size != row*uint64(n) {
		kind := llama.GGMLTypeName(llama.GGMLType(t.kind))
		return 0, fmt.Errorf("llamacpp: tensor %s is %s of shape %v and %d bytes, want %d f32 values a token", name, kind, t.shape, size, p.width)
	}
	if n != p.tokens && n != len(p.rows) {
		return 0, fmt.Errorf("llamacpp: tensor %s has %d rows for %d tokens with %d outputs", name, n, p.tokens, len(p.rows))
	}
	return n, nil
}

// missing returns the wanted tensors that the evaluation did not compute.
func (p *tap) missing() []string {
	var names []string
	for i, ok := range p.seen {
		if !ok {
			names = append(names, p.tensors[i])
		}
	}
	return names
}

// state returns tensor i's row for the wanted token j.
func (p *tap) state(i, j int) []float32 { return p.x[i][j*p.width : (j+1)*p.width] }

var blockNumber = regexp.MustCompile(`-\d+$`)

// kinds lists names of tensors for a reader, once each, block numbers as "-#".
// Views, which are named after what they show, are left out.
func kinds(names []string) string {
	var out []string
	for _, n := range names {
		n = blockNumber.ReplaceAllString(n, "-#")
		if n != "" && !strings.ContainsAny(n, "( ") && !slices.Contains(out, n) {
			out = append(out, n)
		}
	}
	return strings.Join(out, ", ")
}
