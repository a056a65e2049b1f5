package llamacpp

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/ccmed/ccmed/infer"
	"github.com/hybridgroup/yzma/pkg/llama"
)

// Reasons for which a choice is unscored.
const (
	ReasonThinking = "reasoning without an answer"
	ReasonNaN      = "the model's logits are not numbers"
)

// defaultThinkTokens is what infer.Params.ThinkTokens documents.
const defaultThinkTokens = 1024

// topCount is how many of the most probable alternatives a Choice keeps: as many
// as Ollama can return, so that rules applied later see the same everywhere.
const topCount = 20

// Choose gives the exact probability of each answer over the whole vocabulary,
// so that Bound equals P. Each node of the prompts' token tree is evaluated once
// (the last shared one again for a prompt that adds a single token); what the
// previous call left in the cache is used too. An answer needs a variant
// that is one token of the model's vocabulary. Where the most probable token
// opens reasoning, the reasoning is generated (greedily, at most
// Params.ThinkTokens) and the answer chosen after it.
func (e *Engine) Choose(ctx context.Context, ps []infer.Prompt, as []infer.Answer, o infer.Params) ([]infer.Choice, error) {
	if err := infer.CheckAnswers(as); err != nil {
		return nil, err
	}
	parts := make([][]part, len(ps))
	for i, p := range ps {
		var err error
		if parts[i], err = e.parts(ctx, p); err != nil {
			return nil, fmt.Errorf("prompt %d of %d: %w", i+1, len(ps), err)
		}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if err := e.ready(ctx, o, false); err != nil {
		return nil, err
	}
	answers, err := e.answerTokens(as)
	if err != nil {
		return nil, err
	}
	seqs := make([][]step, len(ps))
	for i := range ps {
		if seqs[i], err = e.fitting(parts[i], e.plan(ps[i].Hash())); err != nil {
			return nil, fmt.Errorf("prompt %d of %d: %w", i+1, len(ps), err)
		}
	}
	choices, err := e.chooseTree(ctx, seqs, answers)
	if err != nil {
		return nil, err
	}
	for i := range choices {
		if c := &choices[i]; opensThinking(*c, as) {
			if err := e.chooseAfterThinking(ctx, seqs[i], e.plan(ps[i].Hash()).answer, answers, o, c); err != nil {
				return nil, err
			}
		}
		choices[i].Rendered = joined(parts[i])
		choices[i].Usage.Cached = max(0, choices[i].Usage.Prompt-choices[i].Usage.Evaluated)
	}
	if slices.ContainsFunc(choices, func(c infer.Choice) bool { return c.Unscored == ReasonNaN }) {
		return choices, e.forget() // else what made them would stay in the cache
	}
	return choices, nil
}

// answerTokens returns, for each answer, the tokens whose text is a variant.
func (e *Engine) answerTokens(as []infer.Answer) ([][]llama.Token, error) {
	if e.texts == nil {
		e.texts = e.withText()
	}
	tokens := make([][]llama.Token, len(as))
	for i, a := range as {
		for _, v := range slices.Compact(slices.Sorted(slices.Values(a.Variants))) {
			tokens[i] = append(tokens[i], e.texts[v]...)
		}
		if len(tokens[i]) == 0 {
			return nil, fmt.Errorf("llamacpp: answer %q: none of %q is a single token of %s; letter the answers instead",
				a.Label, a.Variants, e.opts.Name)
		}
	}
	return tokens, nil
}

// chooseTree evaluates the prefix tree of the sequences, depth first.
func (e *Engine) chooseTree(ctx context.Context, seqs [][]step, answers [][]llama.Token) ([]infer.Choice, error) {
	choices := make([]infer.Choice, len(seqs))
	if len(seqs) > 0 {
		e.switchSlot(seqs[0])
	}
	order := depthFirst(seqs, e.resident)
	var before []step
	for len(order) > 0 {
		// A chain: each sequence begins with the one before it. One pass over
		// the longest gives the logits of all.
		n := 1
		for n < len(order) && commonPrefix(seqs[order[n-1]], seqs[order[n]]) == len(seqs[order[n-1]]) {
			n++
		}
		chain := order[:n]
		order = order[n:]

		longest := seqs[chain[n-1]]
		keep, err := e.resume(longest, len(seqs[chain[0]]))
		if err != nil {
			return nil, err
		}
		var ends []int
		evaluated := keep
		for _, i := range chain {
			s := seqs[i]
			if end := len(s) - 1 - keep; len(ends) == 0 || ends[len(ends)-1] != end {
				ends = append(ends, end)
			}
			choices[i].Usage = infer.Usage{Prompt: len(s), Unique: len(s) - commonPrefix(before, s), Evaluated: len(s) - evaluated}
			before, evaluated = s, len(s)
		}
		err = e.push(ctx, longest[keep:], ends, func(end int, logits []float32) error {
			c := e.choice(logits, answers)
			for _, i := range chain {
				if len(seqs[i])-1-keep == end {
					u := choices[i].Usage
					choices[i] = c
					choices[i].P, choices[i].Bound, choices[i].Top = slices.Clone(c.P), slices.Clone(c.Bound), slices.Clone(c.Top)
					choices[i].Usage = u
				}
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return choices, nil
}

// choice computes the softmax over the whole vocabulary in double precision and
// adds up each answer's tokens.
func (e *Engine) choice(logits []float32, answers [][]llama.Token) infer.Choice {
	c := infer.Choice{P: make([]float64, len(answers)), Bound: make([]float64, len(answers))}
	top, logSum := normaliser(logits)
	if !finite(logits) {
		for i := range c.Bound {
			c.Bound[i] = 1
		}
		c.Unscored = ReasonNaN
		return c
	}
	for i, ts := range answers {
		for _, t := range ts {
			c.P[i] += math.Exp(float64(logits[t]) - top - logSum)
		}
		c.P[i] = math.Min(1, c.P[i])
		c.Bound[i] = c.P[i]
		c.Mass += c.P[i]
	}
	c.Mass = math.Min(1, c.Mass)
	for _, t := range largest(logits, topCount) {
		c.Top = append(c.Top, infer.TokenLogprob{
			Token:   strings.ToValidUTF8(e.text(t), "\uFFFD"),
			Logprob: float64(logits[t]) - top - logSum,
		})
	}
	if c.Mass == 0 {
		c.Unscored = "no answer has any probability"
	}
	return c
}

// normaliser returns the largest x and ln Σ exp(x - largest), which is at least
// 0: apart, so that no precision is lost far from zero. The largest is NaN when
// any x is, and infinite when no x is finite or one is +Inf.
func normaliser(xs []float32) (top, logSum float64) {
	top = math.Inf(-1)
	for _, x := range xs {
		if x != x {
			return math.NaN(), 0
		}
		top = max(top, float64(x))
	}
	if math.IsInf(top, 0) {
		return top, 0
	}
	sum := 0.0
	for _, x := range xs {
		sum += math.Exp(float64(x) - top)
	}
	return top, math.Log(sum)
}

// largest returns the tokens of the n largest finite logits, largest first, the
// lower id first among equals.
func largest(logits []float32, n int) []llama.Token {
	best := make([]llama.Token, 0, n+1)
	for i, x := range logits {
		if math.IsInf(float64(x), 0) || len(best) == n && x <= logits[best[n-1]] {
			continue
		}
		at := len(best)
		for at > 0 && x > logits[best[at-1]] {
			at--
		}
		best = slices.Insert(best, at, llama.Token(i))
		best = best[:min(n, len(best))]
	}
	return best
}

// opensThinking reports whether the most probable token begins reasoning and is
// not itself an answer.
func opensThinking(c infer.Choice, as []infer.Answer) bool {
	if len(c.Top) == 0 || !infer.OpensThinking(c.Top[0].Token) {
		return false
	}
	return !slices.ContainsFunc(as, func(a infer.Answer) bool { return slices.Contains(a.Variants, c.Top[0].Token) })
}

// chooseAfterThinking generates reasoning greedily and replaces the choice by
// the one after it. Text that turns out to be no reasoning leaves the choice as
// it was.
func (e *Engine) chooseAfterThinking(ctx context.Context, seq []step, edit editID, answers [][]llama.Token, o infer.Params, c *infer.Choice) error {
	limit := o.ThinkTokens
	if limit <= 0 {
		limit = defaultThinkTokens
	}
	var logits []float32
	push := func(ts []step) error {
		return e.push(ctx, ts, []int{len(ts) - 1}, func(_ int, row []float32) error {
			logits = append(logits[:0], row...)
			if top, _ := normaliser(row); math.IsNaN(top) || math.IsInf(top, 0) {
				logits = nil // no token is the most probable one
			}
			return nil
		})
	}
	keep, err := e.resume(seq, len(seq))
	if err != nil {
		return err
	}
	if err := push(seq[keep:]); err != nil {
		return err
	}
	c.Usage.Evaluated += len(seq) - keep
	var text string
	for ; ; c.Usage.Generated++ {
		thinking, answer, closed := infer.SplitThinking(text)
		closed = closed && answer != text // else "<" would count as an answer
		if text != "" && !infer.OpensThinking(text) {
			return nil
		}
		next := largest(logits, 1)
		if !finite(logits) {
			c.Unscored, c.Thinking = ReasonNaN, thinking
			return nil
		}
		piece := e.text(next[0])
		if closed && strings.TrimSpace(piece) != "" {
			after := e.choice(logits, answers)
			after.Usage, after.Thinking = c.Usage, thinking
			*c = after
			return nil
		}
		if llama.VocabIsEOG(e.handle, next[0]) || c.Usage.Generated >= limit || len(e.resident) >= e.numCtx {
			c.Unscored, c.Thinking = ReasonThinking, thinking
			return nil
		}
		text += piece
		if err := push(steps(next, edit)); err != nil {
			return err
		}
	}
}
