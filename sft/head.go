package sft

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/ccmed/ccmed/infer"
	"github.com/ccmed/ccmed/probe/activation"
)

// Names of the decision head's tensors.
const (
	headWeight = "decision.weight" // (1, width)
	headBias   = "decision.bias"   // (1)
)

// headModel is the metadata key by which a head names its model.
const headModel = "model_digest"

// Head is the decision head of a tuned model: a linear map of the final-norm
// state at a TurnEnd to the log-odds of stepping in there.
type Head struct {
	Weight []float64 // one a value of the state
	Bias   float64
	// Model is the digest of the GGUF file that the head was trained with, as
	// "sha256:…"; empty until the two are packaged.
	Model string
}

// ReadHead reads a head from a safetensors file: decision.weight of shape
// (1, width) and decision.bias of shape (1), all finite.
func ReadHead(path string) (*Head, error) {
	ts, meta, err := activation.ReadTensors(path)
	if err != nil {
		return nil, fmt.Errorf("read the decision head: %w", err)
	}
	w, b := ts[headWeight], ts[headBias]
	switch {
	case len(w.Shape) != 2 || w.Shape[0] != 1 || w.Shape[1] < 1:
		return nil, fmt.Errorf("%s is no decision head: it has no tensor %s of shape [1, width], but %v", path, headWeight, w.Shape)
	case len(b.Shape) != 1 || b.Shape[0] != 1:
		return nil, fmt.Errorf("%s is no decision head: it has no tensor %s of shape [1], but %v", path, headBias, b.Shape)
	case len(ts) != 2:
		return nil, fmt.Errorf("%s is no decision head: it holds %d tensors and a head has two, %s and %s", path, len(ts), headWeight, headBias)
	}
	h := &Head{Weight: w.Values, Bias: b.Values[0], Model: meta[headModel]}
	for i, v := range append(w.Values, b.Values...) {
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return nil, fmt.Errorf("%s: value %d of the decision head is %v; train again with a smaller learning rate", path, i, v)
		}
	}
	return h, nil
}

// Write writes the head to a safetensors file that ReadHead reads.
func (h *Head) Write(path string) error {
	meta := map[string]string{"content": "decision head", headModel: h.Model}
	err := activation.WriteTensors(path, map[string]activation.Tensor{
		headWeight: {Shape: []int64{1, int64(len(h.Weight))}, Values: h.Weight},
		headBias:   {Shape: []int64{1}, Values: []float64{h.Bias}},
	}, meta)
	if err != nil {
		return fmt.Errorf("write the decision head: %w", err)
	}
	return nil
}

// Hash identifies the head's values: "sha256:" and the SHA-256 of the weights and
// the bias as little-endian float64.
func (h *Head) Hash() string {
	b := make([]byte, 0, 8*(len(h.Weight)+1))
	for _, v := range append(slices.Clone(h.Weight), h.Bias) {
		b = binary.LittleEndian.AppendUint64(b, math.Float64bits(v))
	}
	return "sha256:" + sum(b)
}

// P is the probability of stepping in, from 0 to 1, after a final-norm state of
// the head's width.
func (h *Head) P(state []float32) float64 {
	z := h.Bias
	for i, x := range state {
		z += h.Weight[i] * float64(x)
	}
	return sigmoid(z)
}

// sigmoid is 1/(1+exp(-z)), written so that exp never overflows.
func sigmoid(z float64) float64 {
	if z >= 0 {
		return 1 / (1 + math.Exp(-z))
	}
	e := math.Exp(z)
	return e / (1 + e)
}

// ErrOtherHead is wrapped by errors about a head that was trained with another
// model than the one it is to be used with.
var ErrOtherHead = errors.New("the decision head belongs to another model")

// Check returns an error, which wraps ErrOtherHead, unless the head belongs to
// the model, whose states have that width. A head that names no model belongs to
// none.
func (h *Head) Check(m infer.Model, width int) error {
	switch {
	case len(h.Weight) != width:
		return fmt.Errorf("%w: it was trained with %s and reads states of width %d, and %s (%s) has %d",
			ErrOtherHead, cmp.Or(h.Model, "no model that it names"), len(h.Weight), m.Name, m.Digest, width)
	case h.Model == "":
		return fmt.Errorf("%w: it names no model, so that nothing shows that it belongs to %s; bind them with `ccmed sft package`", ErrOtherHead, m.Name)
	case h.Model != m.Digest:
		return fmt.Errorf("%w: it was trained with %s, and %s is %s", ErrOtherHead, h.Model, m.Name, m.Digest)
	}
	return nil
}
