package activation

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"maps"
	"math"
	"os"
	"slices"
	"strings"

	"github.com/x448/float16"

	"github.com/ccmed/ccmed/bench/disk"
)

// Tensor is a small tensor, held in memory whole.
type Tensor struct {
	Shape  []int64
	Values []float64 // row by row; exactly what the file holds, whatever its type
}

// ReadTensors reads a small safetensors file of F16, F32 and F64 tensors that
// anybody wrote: its tensors and metadata, by name. A damaged file is
// ErrDamaged.
func ReadTensors(path string) (tensors map[string]Tensor, meta map[string]string, err error) {
	b, err := disk.ReadFile(path, maxWeights)
	if err != nil {
		return nil, nil, fmt.Errorf("read tensors: %w", err)
	}
	h, err := readHeader(bytes.NewReader(b), int64(len(b)))
	if err != nil {
		return nil, nil, damaged(path, err, "write it again")
	}
	tensors = make(map[string]Tensor, len(h.tensors))
	for name, t := range h.tensors {
		if t.DType != "F16" && t.DType != "F32" && t.DType != "F64" {
			return nil, nil, damaged(path, fmt.Errorf("tensor %.40q has type %s; F16, F32 and F64 are read", name, t.DType), "write it again")
		}
		tensors[name] = Tensor{t.Shape, values(t.DType, b[h.data+t.Offsets[0]:h.data+t.Offsets[1]])}
	}
	return tensors, h.meta, nil
}

func values(dtype string, b []byte) []float64 {
	size := int(sizes[dtype])
	out := make([]float64, len(b)/size)
	for i := range out {
		switch at := b[i*size:]; dtype {
		case "F16":
			out[i] = float64(float16.Frombits(binary.LittleEndian.Uint16(at)).Float32())
		case "F32":
			out[i] = float64(math.Float32frombits(binary.LittleEndian.Uint32(at)))
		default:
			out[i] = math.Float64frombits(binary.LittleEndian.Uint64(at))
		}
	}
	return out
}

// WriteTensors writes tensors as F32, and metadata, to a safetensors file. The
// file is replaced atomically.
func WriteTensors(path string, tensors map[string]Tensor, meta map[string]string) error {
	h := &header{meta: meta, tensors: map[string]tensorInfo{}}
	names := slices.Sorted(maps.Keys(tensors))
	at := int64(0)
	for _, name := range names {
		t := tensors[name]
		if n, ok := product(append([]int64{1}, t.Shape...)); !ok || n != int64(len(t.Values)) {
			return fmt.Errorf("write tensors to %s: tensor %s has %d values and the shape %v", path, name, len(t.Values), t.Shape)
		}
		end := at + 4*int64(len(t.Values))
		h.tensors[name] = tensorInfo{"F32", t.Shape, [2]int64{at, end}}
		at = end
	}
	b, err := h.encode()
	if err != nil {
		return fmt.Errorf("write tensors to %s: %w", path, err)
	}
	for _, name := range names {
		for _, v := range tensors[name].Values {
			b = binary.LittleEndian.AppendUint32(b, math.Float32bits(float32(v)))
		}
	}
	if err := disk.WriteEntry(path, b, 0o644); err != nil {
		return fmt.Errorf("write tensors: %w", err)
	}
	return nil
}

// TensorAt is where a tensor lies in a safetensors file.
type TensorAt struct {
	DType     string
	Shape     []int64
	At, Bytes int64
}

// FindTensor finds a tensor in a safetensors file that anybody wrote, without reading it.
func FindTensor(f *os.File, name string) (TensorAt, error) {
	info, err := f.Stat()
	if err != nil {
		return TensorAt{}, err
	}
	h, err := readHeader(f, info.Size())
	if err != nil {
		return TensorAt{}, fmt.Errorf("it is no readable safetensors file: %w", err)
	}
	t, ok := h.tensors[name]
	if !ok {
		return TensorAt{}, fmt.Errorf("there is no tensor %.40q; it has %.200s", name, strings.Join(slices.Sorted(maps.Keys(h.tensors)), ", "))
	}
	return TensorAt{t.DType, t.Shape, h.data + t.Offsets[0], t.Offsets[1] - t.Offsets[0]}, nil
}
