package direction

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"github.com/ccmed/ccmed/bench/disk"
)

// Numbers of the GGUF format (ggml/docs/gguf.md).
const (
	ggufVersion   = 3
	ggufInt32     = 5
	ggufString    = 8
	ggufF32       = 0
	ggufAlignment = 32
)

// SaveControlVector writes a class as the control vector that llama.cpp's programs take
// (--control-vector), as its cvector-generator writes it: a tensor direction.N is added to
// what layer N, counted from 0, puts out, so that block.k is direction.(k−1). They add it to
// every token. Its layer 0, which is block.1, has no place in the file.
func (f *File) SaveControlVector(path, class string) error {
	if f.Kind == LEACE || f.replaces() {
		return fmt.Errorf("a control vector is added; a file of the kind %s adds nothing", f.Kind)
	}
	if !slices.Contains(f.Classes, class) {
		return &UnknownClassError{class, f.Classes}
	}
	b := append([]byte("GGUF"), 0, 0, 0, 0)
	binary.LittleEndian.PutUint32(b[4:], ggufVersion)
	b = le64(b, uint64(len(f.Layers)))
	b = le64(b, 3)
	b = ggufText(ggufKey(b, "general.architecture", ggufString), "controlvector")
	b = ggufText(ggufKey(b, "controlvector.model_hint", ggufString), f.Model.Architecture)
	b = le32(ggufKey(b, "controlvector.layer_count", ggufInt32), uint32(len(f.Layers)))
	size := aligned(4 * f.Width)
	for i, layer := range f.Layers {
		k, err := block(layer)
		if err != nil {
			return err
		}
		if k == 1 {
			return fmt.Errorf("a control vector of llama.cpp begins at block.2; %s has no place in it", layer)
		}
		b = le32(ggufText(b, fmt.Sprintf("direction.%d", k-1)), 1)
		b = le32(le64(b, uint64(f.Width)), ggufF32)
		b = le64(b, uint64(i*size))
	}
	b = append(b, make([]byte, aligned(len(b))-len(b))...)
	for _, layer := range f.Layers {
		start := len(b)
		for _, v := range f.row32(tensor(layer, class, partAdd), 0, 1) {
			b = le32(b, math.Float32bits(v))
		}
		b = append(b, make([]byte, start+size-len(b))...)
	}
	if err := disk.WriteEntry(path, b, 0o644); err != nil {
		return fmt.Errorf("write the control vector: %w", err)
	}
	return nil
}

func aligned(n int) int { return (n + ggufAlignment - 1) / ggufAlignment * ggufAlignment }

func le32(b []byte, v uint32) []byte { return binary.LittleEndian.AppendUint32(b, v) }
func le64(b []byte, v uint64) []byte { return binary.LittleEndian.AppendUint64(b, v) }

func ggufText(b []byte, s string) []byte { return append(le64(b, uint64(len(s))), s...) }

func ggufKey(b []byte, name string, kind uint32) []byte { return le32(ggufText(b, name), kind) }
