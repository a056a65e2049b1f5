package activation

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"unicode/utf8"
)

// A safetensors file is an 8-byte little-endian length, a JSON header of that
// length, and the data of the tensors, one after the other without a gap
// (https://github.com/huggingface/safetensors, "Format").

// maxHeader is far below the format's own 100 MB: a thousand layers take 100 kB.
const maxHeader = 1 << 20

// headerAlign keeps data aligned for readers that map the file.
const headerAlign = 64

const metadataKey = "__metadata__"

// tensorInfo is where one tensor lies, relative to the end of the header.
type tensorInfo struct {
	DType   string   `json:"dtype"`
	Shape   []int64  `json:"shape"`
	Offsets [2]int64 `json:"data_offsets"`
}

type header struct {
	meta    map[string]string
	tensors map[string]tensorInfo
	data    int64 // where the data starts in the file
}

// sizes of the types that files may hold; readers say which of them they take.
var sizes = map[string]int64{"F16": 2, "BF16": 2, "F32": 4, "F64": 8, "I32": 4, "I64": 8}

func (d DType) size() int {
	switch d {
	case F16, F32:
		return int(sizes[string(d)])
	}
	return 0
}

// product multiplies at least one number; false means overflow or a negative one.
func product(ns []int64) (int64, bool) {
	if slices.Min(ns) <= 0 {
		return 0, slices.Min(ns) == 0
	}
	p := int64(1)
	for _, n := range ns {
		if p > math.MaxInt64/n {
			return 0, false
		}
		p *= n
	}
	return p, true
}

// encode returns the bytes before the data, padded with spaces as the format
// allows.
func (h *header) encode() ([]byte, error) {
	all := map[string]any{metadataKey: h.meta}
	for name, t := range h.tensors {
		all[name] = t
	}
	b, err := json.Marshal(all)
	if err != nil {
		return nil, fmt.Errorf("encode the header: %w", err)
	}
	for (8+len(b))%headerAlign != 0 {
		b = append(b, ' ')
	}
	if len(b) > maxHeader {
		return nil, fmt.Errorf("the header would have %d bytes; at most %d are read back", len(b), maxHeader)
	}
	return append(binary.LittleEndian.AppendUint64(nil, uint64(len(b))), b...), nil
}

// readHeader reads and checks the header of a file of the given size. Nothing
// that the header says is believed before it was compared with the size.
func readHeader(r io.ReaderAt, size int64) (*header, error) {
	var length [8]byte
	if size < int64(len(length)) {
		return nil, fmt.Errorf("it has %d bytes, fewer than a header", size)
	}
	if _, err := r.ReadAt(length[:], 0); err != nil {
		return nil, fmt.Errorf("read the header's length: %w", err)
	}
	n := binary.LittleEndian.Uint64(length[:])
	switch {
	case n > maxHeader:
		return nil, fmt.Errorf("its header claims %d bytes; at most %d are read", n, maxHeader)
	case n > uint64(size)-8:
		return nil, fmt.Errorf("its header claims %d bytes and %d are there: the file is truncated", n, size-8)
	}
	text := make([]byte, n)
	if _, err := r.ReadAt(text, 8); err != nil {
		return nil, fmt.Errorf("read the header: %w", err)
	}
	h := &header{tensors: map[string]tensorInfo{}, data: 8 + int64(n)}
	if err := h.decode(text); err != nil {
		return nil, fmt.Errorf("its header: %w", err)
	}
	return h, h.checkOffsets(size - h.data)
}

// decode goes through the header key by key, because encoding/json would let
// the second of two tensors of one name win.
func (h *header) decode(text []byte) error {
	if !utf8.Valid(text) {
		return errors.New("the text is not UTF-8")
	}
	if len(text) == 0 || text[0] != '{' {
		return errors.New("it does not start with {")
	}
	dec := json.NewDecoder(bytes.NewReader(text))
	if _, err := dec.Token(); err != nil {
		return err
	}
	for dec.More() {
		key, err := dec.Token()
		if err != nil {
			return err
		}
		name, ok := key.(string)
		if !ok {
			return fmt.Errorf("%v is not a name", key)
		}
		if _, twice := h.tensors[name]; twice || name == metadataKey && h.meta != nil {
			return fmt.Errorf("%q occurs twice", name)
		}
		if name == metadataKey {
			h.meta = map[string]string{}
			if err := dec.Decode(&h.meta); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			continue
		}
		var t struct {
			DType   string  `json:"dtype"`
			Shape   []int64 `json:"shape"`
			Offsets []int64 `json:"data_offsets"`
		}
		if err := dec.Decode(&t); err != nil {
			return fmt.Errorf("tensor %.40q: %w", name, err)
		}
		if len(t.Offsets) != 2 {
			return fmt.Errorf("tensor %.40q has %d data_offsets, not 2", name, len(t.Offsets))
		}
		h.tensors[name] = tensorInfo{t.DType, t.Shape, [2]int64(t.Offsets)}
	}
	if _, err := dec.Token(); err != nil {
		return err
	}
	if _, err := dec.Token(); err != io.EOF {
		return errors.New("text follows the JSON object")
	}
	return nil
}

// checkOffsets makes sure that the tensors fill n bytes of data exactly, each
// with what its type and shape need, without gap or overlap.
func (h *header) checkOffsets(n int64) error {
	for name, t := range h.tensors {
		size, ok := sizes[t.DType]
		if !ok {
			return fmt.Errorf("tensor %.40q has type %.20q; F16, BF16, F32, F64, I32 and I64 are known", name, t.DType)
		}
		want, ok := product(append([]int64{size}, t.Shape...))
		if !ok {
			return fmt.Errorf("tensor %.40q has the impossible shape %.80s", name, fmt.Sprint(t.Shape))
		}
		from, to := t.Offsets[0], t.Offsets[1]
		if from < 0 || to < from || to-from != want {
			return fmt.Errorf("tensor %.40q lies at %d to %d, but its shape %.80s of %s needs %d bytes", name, from, to, fmt.Sprint(t.Shape), t.DType, want)
		}
	}
	names := slices.SortedFunc(maps.Keys(h.tensors), func(a, b string) int {
		x, y := h.tensors[a].Offsets, h.tensors[b].Offsets
		return slices.Compare(x[:], y[:])
	})
	end := int64(0)
	for _, name := range names {
		t := h.tensors[name]
		if t.Offsets[0] < end {
			return fmt.Errorf("tensor %.40q starts at %d, inside the tensor before, which ends at %d", name, t.Offsets[0], end)
		}
		if t.Offsets[0] > end {
			return fmt.Errorf("tensor %.40q starts at %d, but the tensor before ends at %d", name, t.Offsets[0], end)
		}
		end = t.Offsets[1]
	}
	switch {
	case end > n:
		return fmt.Errorf("its tensors need %d bytes and %d are there: the file is truncated", end, n)
	case end < n:
		return fmt.Errorf("its tensors need %d bytes and %d are there: something else follows", end, n)
	}
	return nil
}
