package sft

import (
	"errors"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ccmed/ccmed/infer"
	"github.com/ccmed/ccmed/probe/activation"
)

func TestHeadComesBack(t *testing.T) {
	path := filepath.Join(t.TempDir(), HeadFile)
	h := &Head{Weight: []float64{0.5, -2, 0.25}, Bias: -1, Model: "sha256:aa"}
	if err := h.Write(path); err != nil {
		t.Fatal(err)
	}
	got, err := ReadHead(path)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(got.Weight, h.Weight) || got.Bias != h.Bias || got.Model != h.Model || got.Hash() != h.Hash() {
		t.Errorf("read %+v, wrote %+v", got, h)
	}
	got.Bias = 0
	if got.Hash() == h.Hash() {
		t.Error("heads with different biases have one hash")
	}
}

// A state of ln 3 on a weight of 1 has odds of 3 to 1.
func TestHeadP(t *testing.T) {
	for _, c := range []struct {
		weight []float64
		bias   float64
		state  []float32
		want   float64
	}{
		{[]float64{0, 0}, 0, []float32{5, -7}, 0.5},
		{[]float64{1, 0}, 0, []float32{float32(math.Log(3)), 9}, 0.75},
		{[]float64{1, 1}, -math.Log(3), []float32{2, -2}, 0.25},
		{[]float64{1}, 0, []float32{-2000}, 0},
		{[]float64{1}, 0, []float32{2000}, 1},
	} {
		if got := (&Head{Weight: c.weight, Bias: c.bias}).P(c.state); math.Abs(got-c.want) > 1e-7 {
			t.Errorf("w %v, b %g, x %v: %g, want %g", c.weight, c.bias, c.state, got, c.want)
		}
	}
}

func TestHeadRefused(t *testing.T) {
	good := map[string]activation.Tensor{
		headWeight: {Shape: []int64{1, 2}, Values: []float64{1, 2}},
		headBias:   {Shape: []int64{1}, Values: []float64{3}},
	}
	for name, c := range map[string]struct {
		change func(map[string]activation.Tensor)
		want   string
	}{
		"no weight": {func(ts map[string]activation.Tensor) { delete(ts, headWeight) }, "decision.weight"},
		"flat weight": {func(ts map[string]activation.Tensor) {
			ts[headWeight] = activation.Tensor{Shape: []int64{2}, Values: []float64{1, 2}}
		}, "[1, width]"},
		"two rows": {func(ts map[string]activation.Tensor) {
			ts[headWeight] = activation.Tensor{Shape: []int64{2, 1}, Values: []float64{1, 2}}
		}, "[1, width]"},
		"no bias":       {func(ts map[string]activation.Tensor) { delete(ts, headBias) }, "decision.bias"},
		"another layer": {func(ts map[string]activation.Tensor) { ts["extra"] = ts[headBias] }, "3 tensors"},
		"not finite": {func(ts map[string]activation.Tensor) {
			ts[headBias] = activation.Tensor{Shape: []int64{1}, Values: []float64{math.Inf(1)}}
		}, "+Inf"},
	} {
		t.Run(name, func(t *testing.T) {
			ts := map[string]activation.Tensor{}
			for k, v := range good {
				ts[k] = v
			}
			c.change(ts)
			path := filepath.Join(t.TempDir(), HeadFile)
			if err := activation.WriteTensors(path, ts, nil); err != nil {
				t.Fatal(err)
			}
			if _, err := ReadHead(path); err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), path) {
				t.Errorf("error %v, want it to name %s and %s", err, path, c.want)
			}
		})
	}
	path := filepath.Join(t.TempDir(), "text")
	if err := os.WriteFile(path, []byte("not a tensor in sight"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadHead(path); !errors.Is(err, activation.ErrDamaged) {
		t.Errorf("a text file as head: %v, want ErrDamaged", err)
	}
}

func TestHeadOfAnotherModel(t *testing.T) {
	m := infer.Model{Name: "tuned", Digest: "sha256:aa"}
	for _, c := range []struct {
		head  Head
		words []string
	}{
		{Head{Weight: make([]float64, 3), Model: "sha256:aa"}, nil},
		{Head{Weight: make([]float64, 4), Model: "sha256:aa"}, []string{"width 4", "tuned (sha256:aa) has 3"}},
		{Head{Weight: make([]float64, 3), Model: "sha256:bb"}, []string{"sha256:aa", "sha256:bb", "tuned"}},
		{Head{Weight: make([]float64, 3)}, []string{"names no model", "ccmed sft package"}},
	} {
		err := c.head.Check(m, 3)
		if (err != nil) != (c.words != nil) || err != nil && !errors.Is(err, ErrOtherHead) {
			t.Errorf("%+v: %v", c.head, err)
		}
		for _, w := range c.words {
			if !strings.Contains(err.Error(), w) {
				t.Errorf("error %q does not say %q", err, w)
			}
		}
	}
}
