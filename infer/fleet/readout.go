package fleet

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	"github.com/ccmed/ccmed/bench/usage"
	"github.com/ccmed/ccmed/infer"
	"github.com/ccmed/ccmed/infer/internal/prefix"
	"github.com/ccmed/ccmed/infer/llamacpp"
)

// Readout is a classifier of a model's hidden states that answers questions in the model's
// place: it reads the state at the end of the prompt, where the answer would come next.
type Readout struct {
	Model   string   // the name of Ollama's or the GGUF file that it reads the states of
	Weights string   // digest of the model's weights
	Digest  string   // of the classifier itself
	Layer   string   // where it reads
	Answers []string // that it can give, by their labels
	Predict func(state []float32) ([]float64, error)
}

// openReadout opens a classifier and the model that it reads.
func (f *Fleet) openReadout(ctx context.Context, s spec) (infer.Backend, error) {
	if f.env.Readout == nil {
		return nil, usage.Errorf("%s: this command asks no classifiers of hidden states; name a model", s)
	}
	r, err := f.env.Readout(s.model)
	if err != nil {
		return nil, err
	}
	b, err := f.openEmbedded(ctx, spec{backend: "embedded", model: r.Model})
	if err != nil {
		return nil, fmt.Errorf("open the model that %s reads: %w", s, err)
	}
	e := b.(*llamacpp.Engine)
	m, err := e.Model(ctx)
	if err == nil && m.Digest != r.Weights {
		err = fmt.Errorf("%s reads the states of other weights (%s) than %s holds now (%s); fit it again", s, infer.ShortDigest(r.Weights), r.Model, infer.ShortDigest(m.Digest))
	}
	if err == nil && !slices.Contains(e.Layers(), r.Layer) {
		err = fmt.Errorf("%s reads the layer %s, which %s does not have", s, r.Layer, r.Model)
	}
	if err != nil {
		return nil, fmt.Errorf("%w%s", err, closing(e, false))
	}
	return &readout{Engine: e, r: r}, nil
}

// closing is what went wrong in closing an engine that is used no longer; one that is
// shared is others' to close.
func closing(e *llamacpp.Engine, shared bool) string {
	if shared {
		return ""
	}
	if err := e.Close(); err != nil {
		return "; closing the model: " + err.Error()
	}
	return ""
}

// readout is a model that answers by a classifier of its hidden states.
type readout struct {
	*llamacpp.Engine
	r *Readout
}

// Model identifies the classifier together with the model that it reads.
func (b *readout) Model(ctx context.Context) (infer.Model, error) {
	m, err := b.Engine.Model(ctx)
	sum := sha256.Sum256([]byte(b.r.Digest + "\n" + m.Digest))
	m.Backend, m.Name, m.Digest, m.Path = infer.ReadoutBackend, "probe of "+m.Name, "sha256:"+hex.EncodeToString(sum[:]), ""
	return m, err
}

// Chat is infer.ErrUnsupported: a classifier writes nothing.
func (b *readout) Chat(context.Context, infer.Prompt, infer.Params) (infer.Reply, error) {
	return infer.Reply{}, fmt.Errorf("a classifier of hidden states writes no text; name a model for this role: %w", infer.ErrUnsupported)
}

// Choose reads the state at the end of every prompt; the answers have all the probability.
func (b *readout) Choose(ctx context.Context, ps []infer.Prompt, as []infer.Answer, _ infer.Params) ([]infer.Choice, error) {
	for i, a := range as {
		if len(as) != len(b.r.Answers) || a.Label != b.r.Answers[i] {
			return nil, fmt.Errorf("the classifier answers %s, and another question is asked; name a model for this role: %w", strings.Join(b.r.Answers, ", "), infer.ErrUnsupported)
		}
	}
	seqs, tokens := make([]infer.Sequence, len(ps)), make([][]int32, len(ps))
	out := make([]infer.Choice, len(ps))
	for i, p := range ps {
		ts, err := b.Tokens(ctx, p, "")
		if err != nil {
			return nil, fmt.Errorf("prompt %d of %d: %w", i+1, len(ps), err)
		}
		seqs[i], tokens[i] = infer.Sequence{Tokens: ts, At: []int{len(ts) - 1}, Prompt: len(ts), Hash: p.Hash()}, ts
	}
	order := prefix.Order(tokens)
	for k, i := range order {
		shared := 0
		if k > 0 {
			shared = prefix.Common(tokens[order[k-1]], tokens[i])
		}
		n := len(tokens[i])
		out[i].Usage = infer.Usage{Prompt: n, Unique: n - shared, Evaluated: n - shared, Cached: shared, Estimated: true}
	}
	err := b.States(ctx, seqs, []string{b.r.Layer}, func(i, _, _ int, x []float32) error {
		p, err := b.r.Predict(x)
		if err != nil {
			return fmt.Errorf("prompt %d of %d: %w", i+1, len(ps), err)
		}
		out[i].P, out[i].Bound, out[i].Mass = p, slices.Clone(p), 1
		return nil
	})
	return out, err
}
