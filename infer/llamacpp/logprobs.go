package llamacpp

import (
	"context"
	"errors"
	"math"
	"slices"

	"github.com/ccmed/ccmed/infer"
	"github.com/hybridgroup/yzma/pkg/llama"
)

// LogProbs gives the natural-log probability of each token of a text as the answer to a
// prompt, each after those before it. Of the parameters only NumCtx is used.
//
// The text is tokenised together with the prompt, and on its own where that would change
// the prompt's tokens: Choose, too, asks what comes after just these.
func (e *Engine) LogProbs(ctx context.Context, p infer.Prompt, text string, o infer.Params) ([]infer.TokenLogprob, error) {
	var out []infer.TokenLogprob
	err := e.onText(ctx, p, text, o, func(prompt int, answer []llama.Token, path []step) error {
		return e.logits(ctx, path, prompt, func(i int, logits []float32) error {
			lp := logSoftmax(logits)
			out = append(out, infer.TokenLogprob{Token: e.text(answer[i]), Logprob: lp(answer[i])})
			return nil
		})
	})
	return out, err
}

// Divergence gives the Kullback-Leibler divergence Σ p·ln(p/q), in nats over the whole
// vocabulary, of this engine's probabilities p of each token of a text, as LogProbs
// evaluates it, from those of the plain model, q.
func (e *Engine) Divergence(ctx context.Context, p infer.Prompt, text string, o infer.Params) ([]float64, error) {
	var out []float64
	err := e.onText(ctx, p, text, o, func(prompt int, answer []llama.Token, path []step) error {
		plain := make([]step, len(path))
		for i, s := range path {
			plain[i].token = s.token
		}
		// A row of logits is large: a few are kept at a time, and each path has its slot.
		for from := prompt; from < prompt+len(answer); from += maxOutputs {
			to := min(from+maxOutputs, prompt+len(answer))
			var rows [][]float32
			e.takeSlot(0)
			err := e.logits(ctx, plain[:to-1], from, func(_ int, logits []float32) error {
				rows = append(rows, slices.Clone(logits))
				return nil
			})
			if err != nil {
				return err
			}
			e.takeSlot(1)
			err = e.logits(ctx, path[:to-1], from, func(i int, logits []float32) error {
				out = append(out, divergence(logits, rows[i]))
				return nil
			})
			if err != nil {
				return err
			}
		}
		return nil
	})
	return out, err
}

// onText calls f with the number of the prompt's tokens, those of the text, and the path of
// both without the last, after which nothing is asked.
func (e *Engine) onText(ctx context.Context, p infer.Prompt, text string, o infer.Params, f func(prompt int, answer []llama.Token, path []step) error) error {
	parts, err := e.parts(ctx, p)
	if err != nil {
		return err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if err := e.ready(ctx, o, true); err != nil {
		return err
	}
	prompt, err := e.promptTokens(parts)
	if err != nil {
		return err
	}
	if len(prompt) == 0 {
		return errors.New("llamacpp: the prompt has no tokens")
	}
	whole, err := e.promptTokens(e.withAnswer(slices.Clone(parts), text))
	if err != nil {
		return err
	}
	if len(whole) < len(prompt) || !slices.Equal(whole[:len(prompt)], prompt) {
		var answer []llama.Token
		for _, part := range e.withAnswer(nil, text) {
			some, err := e.tokensOf(part)
			if err != nil {
				return err
			}
			answer = append(answer, some...)
		}
		whole = append(prompt, answer...)
	}
	if len(whole) > e.numCtx {
		return &infer.ContextError{Need: len(whole), Have: e.numCtx}
	}
	if len(whole) == len(prompt) {
		return nil
	}
	return f(len(prompt), whole[len(prompt):], e.plan(p.Hash()).path(whole[:len(whole)-1], len(prompt)))
}

// logits calls row with the logits of the tokens of a path from index first on, and of the
// one after it, by how many came before.
func (e *Engine) logits(ctx context.Context, path []step, first int, row func(i int, logits []float32) error) error {
	keep, err := e.resume(path, first)
	if err != nil {
		return err
	}
	var want []int
	for at := first - 1; at < len(path); at++ {
		want = append(want, at-keep)
	}
	return e.push(ctx, path[keep:], want, func(i int, logits []float32) error {
		if !finite(logits) {
			return errors.Join(errors.New("llamacpp: "+ReasonNaN), e.forget())
		}
		return row(i+keep-(first-1), logits)
	})
}

// logSoftmax returns the natural-log probabilities that finite logits stand for.
func logSoftmax(logits []float32) func(llama.Token) float64 {
	top, logSum := normaliser(logits)
	return func(t llama.Token) float64 { return float64(logits[t]) - top - logSum }
}

func divergence(logits, plain []float32) float64 {
	lp, lq := logSoftmax(logits), logSoftmax(plain)
	sum := 0.0
	for t := range llama.Token(len(logits)) {
		if p := math.Exp(lp(t)); p > 0 {
			sum += p * (lp(t) - lq(t))
		}
	}
	return max(0, sum) // rounding
}
