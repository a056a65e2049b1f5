package activation

import (
	"errors"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestTensorsComeBack(t *testing.T) {
	path := filepath.Join(t.TempDir(), "t.safetensors")
	put := map[string]Tensor{
		"b": {Shape: []int64{2, 2}, Values: []float64{1, -0.5, math.MaxFloat32, math.Inf(-1)}},
		"a": {Shape: []int64{1}, Values: []float64{0.1}},
	}
	if err := WriteTensors(path, put, map[string]string{"who": "test"}); err != nil {
		t.Fatal(err)
	}
	got, meta, err := ReadTensors(path)
	if err != nil {
		t.Fatal(err)
	}
	put["a"].Values[0] = float64(float32(0.1)) // what the file can hold
	for name, want := range put {
		if !slices.Equal(got[name].Shape, want.Shape) || !slices.Equal(got[name].Values, want.Values) {
			t.Errorf("%s: %v, want %v", name, got[name], want)
		}
	}
	if len(got) != len(put) || meta["who"] != "test" {
		t.Errorf("%d tensors, metadata %v", len(got), meta)
	}
	if err := os.Truncate(path, 100); err != nil {
		t.Fatal(err)
	}
	if _, _, err := ReadTensors(path); !errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), path) {
		t.Errorf("a file that was cut: %v", err)
	}
}

// The bytes are written out by hand after the format's description: F16 1.5 and
// -2, F64 0.1.
func TestTensorsOfOtherTypes(t *testing.T) {
	head := `{"h":{"dtype":"F16","shape":[2],"data_offsets":[0,4]},"d":{"dtype":"F64","shape":[1],"data_offsets":[4,12]}}`
	b := append([]byte{byte(len(head)), 0, 0, 0, 0, 0, 0, 0}, head...)
	b = append(b, 0x00, 0x3E, 0x00, 0xC0, 0x9A, 0x99, 0x99, 0x99, 0x99, 0x99, 0xB9, 0x3F)
	path := filepath.Join(t.TempDir(), "t.safetensors")
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	got, _, err := ReadTensors(path)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(got["h"].Values, []float64{1.5, -2}) || !slices.Equal(got["d"].Values, []float64{0.1}) {
		t.Errorf("read %v", got)
	}
}

func TestTensorsWithoutTheirShape(t *testing.T) {
	err := WriteTensors(filepath.Join(t.TempDir(), "t"), map[string]Tensor{"x": {Shape: []int64{3}, Values: []float64{1}}}, nil)
	if err == nil || !strings.Contains(err.Error(), "tensor x has 1 values and the shape [3]") {
		t.Errorf("error %v", err)
	}
}
