// Package infertest stands in for models in tests: Scripted is a backend that
// answers by a rule, Server an HTTP server that answers from a script, and
// StartOllama a real Ollama server with a small real model.
//
//	b := &infertest.Scripted{Answer: infertest.Always("yes", 0.9)}
//	choices, err := b.Choose(ctx, prompts, infer.Words("yes", "no"), infer.Params{})
package infertest

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"math"
	"strings"
	"sync"

	"github.com/ccmed/ccmed/infer"
)

// Call is one recorded request to a Scripted backend. Choose makes one call a
// prompt.
type Call struct {
	Method  string // "Chat" or "Choose"
	Prompt  infer.Prompt
	Answers []infer.Answer
	Params  infer.Params
}

// Scripted is a backend that answers at once by a rule and records what it was
// asked. The zero value answers deterministically from each prompt's hash. It
// is safe for concurrent use; set its fields before the first call.
type Scripted struct {
	// Identity is what Model returns; its Name defaults to "scripted".
	Identity infer.Model
	// Answer gives the choice for one prompt; nil derives probabilities that
	// add up to 0.95 from the prompt's hash.
	Answer func(p infer.Prompt, as []infer.Answer) infer.Choice
	// Say gives the reply to one prompt; nil says "Reply " and the start of the
	// prompt's hash.
	Say func(p infer.Prompt, o infer.Params) infer.Reply
	// Fail is asked before every call, with the call's number from 1; an error
	// that is not nil is returned instead of an answer. See FailAt.
	Fail func(n int, c Call) error
	// Forget keeps no record of calls, for benchmarks; they are still counted.
	Forget bool

	mu    sync.Mutex
	count int
	calls []Call
}

var _ infer.Backend = (*Scripted)(nil)

// Always is an Answer rule: the answer with the label has probability p, and
// the others share 0.99-p equally.
func Always(label string, p float64) func(infer.Prompt, []infer.Answer) infer.Choice {
	return func(_ infer.Prompt, as []infer.Answer) infer.Choice {
		ps := make([]float64, len(as))
		for i, a := range as {
			if a.Label == label {
				ps[i] = p
			} else {
				ps[i] = (0.99 - p) / float64(max(1, len(as)-1))
			}
		}
		return Choice(as, ps)
	}
}

// FailAt is a Fail rule: the nth call, counted from 1, fails with err.
func FailAt(n int, err error) func(int, Call) error {
	return func(i int, _ Call) error {
		if i == n {
			return err
		}
		return nil
	}
}

// Choice builds a choice in which every answer's first variant has the
// probability given, as a backend that sees the whole vocabulary would.
func Choice(as []infer.Answer, ps []float64) infer.Choice {
	c := infer.Choice{P: make([]float64, len(as)), Bound: make([]float64, len(as))}
	for i, a := range as {
		c.P[i], c.Bound[i] = ps[i], ps[i]
		c.Mass += ps[i]
		if ps[i] > 0 {
			c.Top = append(c.Top, infer.TokenLogprob{Token: a.Variants[0], Logprob: math.Log(ps[i])})
		}
	}
	return c
}

// Calls returns the calls so far, in order.
func (s *Scripted) Calls() []Call {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]Call(nil), s.calls...)
}

// Count returns the number of calls so far, failed ones included.
func (s *Scripted) Count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.count
}

func (s *Scripted) record(ctx context.Context, c Call) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.mu.Lock()
	s.count++
	n := s.count
	if !s.Forget {
		s.calls = append(s.calls, c)
	}
	s.mu.Unlock()
	if s.Fail != nil {
		return s.Fail(n, c)
	}
	return nil
}

// Model returns Identity, with a name and a digest where it has none.
func (s *Scripted) Model(context.Context) (infer.Model, error) {
	m := s.Identity
	if m.Backend == "" {
		m.Backend = "scripted"
	}
	if m.Name == "" {
		m.Name = "scripted"
	}
	if m.Digest == "" {
		m.Digest = "sha256:" + strings.Repeat("0", 64)
	}
	return m, nil
}

// Render writes one line a message, "role: content", and the lead-in.
func (s *Scripted) Render(_ context.Context, p infer.Prompt) (string, error) {
	return render(p), nil
}

func render(p infer.Prompt) string {
	if p.Raw != "" {
		return p.Raw
	}
	var b strings.Builder
	for _, m := range p.Messages {
		b.WriteString(m.Role + ": " + m.Content + "\n")
	}
	b.WriteString("assistant: " + p.LeadIn)
	return b.String()
}

// Chat answers by Say.
func (s *Scripted) Chat(ctx context.Context, p infer.Prompt, o infer.Params) (infer.Reply, error) {
	if err := s.record(ctx, Call{Method: "Chat", Prompt: p, Params: o}); err != nil {
		return infer.Reply{}, err
	}
	var r infer.Reply
	if s.Say != nil {
		r = s.Say(p, o)
	} else {
		r.Text = "Reply " + p.Hash()[:8]
	}
	if r.Rendered == "" {
		r.Rendered = render(p)
	}
	if r.Stop == "" {
		r.Stop = "stop"
	}
	if r.Usage == (infer.Usage{}) {
		n := words(p)
		r.Usage = infer.Usage{Prompt: n, Unique: n, Evaluated: n, Generated: len(strings.Fields(r.Text))}
	}
	return r, nil
}

// Choose answers each prompt by Answer.
func (s *Scripted) Choose(ctx context.Context, ps []infer.Prompt, as []infer.Answer, o infer.Params) ([]infer.Choice, error) {
	if err := infer.CheckAnswers(as); err != nil {
		return nil, err
	}
	out := make([]infer.Choice, len(ps))
	for i, p := range ps {
		if err := s.record(ctx, Call{Method: "Choose", Prompt: p, Answers: as, Params: o}); err != nil {
			return nil, err
		}
		if s.Answer != nil {
			out[i] = s.Answer(p, as)
		} else {
			out[i] = hashed(p, as)
		}
		if out[i].Rendered == "" {
			out[i].Rendered = render(p)
		}
		if out[i].Usage == (infer.Usage{}) {
			n := words(p)
			out[i].Usage = infer.Usage{Prompt: n, Unique: n, Evaluated: n, Generated: 1}
		}
	}
	return out, nil
}

func words(p infer.Prompt) int { return len(strings.Fields(render(p))) }

// hashed spreads 0.95 over the answers by weights taken from the prompt's hash.
func hashed(p infer.Prompt, as []infer.Answer) infer.Choice {
	seed, _ := hex.DecodeString(p.Hash()) // of Hash: cannot fail
	x := binary.BigEndian.Uint64(seed) | 1
	ps, sum := make([]float64, len(as)), 0.0
	for i := range ps {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
		ps[i] = 0.01 + float64(x>>11)/(1<<53)
		sum += ps[i]
	}
	for i := range ps {
		ps[i] *= 0.95 / sum
	}
	return Choice(as, ps)
}

// Embed returns unit vectors of eight dimensions made from each text's hash.
func (s *Scripted) Embed(ctx context.Context, texts []string) ([][]float32, error) {
	out := make([][]float32, len(texts))
	for i, t := range texts {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		h, _ := hex.DecodeString(infer.Prompt{Raw: t}.Hash()) // of Hash: cannot fail
		v, norm := make([]float32, 8), 0.0
		for j := range v {
			v[j] = float32(h[j]) - 127.5
			norm += float64(v[j]) * float64(v[j])
		}
		for j := range v {
			v[j] /= float32(math.Sqrt(norm))
		}
		out[i] = v
	}
	return out, nil
}

// Close does nothing.
func (s *Scripted) Close() error { return nil }
