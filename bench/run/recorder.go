package run

import (
	"context"
	"slices"
	"sync"

	"github.com/ccmed/ccmed/infer"
)

// recorder is the backend that a step sees: it notes what was asked and what it
// cost. Closing it does nothing, since the executor owns the backend.
type recorder struct {
	infer.Backend
	*record
}

// record is what a step asked of all its models, and what that cost.
type record struct {
	mu      sync.Mutex
	usage   infer.Usage
	prompts []Asked
}

func (r *record) note(p infer.Prompt, rendered string, u infer.Usage) {
	a := newAsked(p, rendered)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.usage = r.usage.Add(u)
	if !slices.ContainsFunc(r.prompts, func(b Asked) bool { return a.Hash == b.Hash }) {
		r.prompts = append(r.prompts, a)
	}
}

func (r *record) hashes() []string {
	var hs []string
	for _, p := range r.prompts {
		hs = append(hs, p.Hash)
	}
	return hs
}

func (r *recorder) Chat(ctx context.Context, p infer.Prompt, o infer.Params) (infer.Reply, error) {
	reply, err := r.Backend.Chat(ctx, p, o)
	if err == nil {
		r.note(p, reply.Rendered, reply.Usage)
	}
	return reply, err
}

func (r *recorder) Choose(ctx context.Context, ps []infer.Prompt, as []infer.Answer, o infer.Params) ([]infer.Choice, error) {
	cs, err := r.Backend.Choose(ctx, ps, as, o)
	if err == nil {
		for i, c := range cs[:min(len(cs), len(ps))] {
			r.note(ps[i], c.Rendered, c.Usage)
		}
	}
	return cs, err
}

func (r *recorder) CountTokens(ctx context.Context, rendered string) (int, error) {
	if c, ok := r.Backend.(infer.TokenCounter); ok {
		return c.CountTokens(ctx, rendered)
	}
	return 0, infer.ErrUnsupported
}

func (r *recorder) Close() error { return nil }
