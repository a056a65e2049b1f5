package llamacpp

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"unicode/utf8"

	"github.com/ccmed/ccmed/infer"
	"github.com/hybridgroup/yzma/pkg/llama"
)

// coldest is the smallest temperature that is sampled at; below it the division
// of the logits overflows single precision, so the greedy token is taken.
const coldest = 1e-6

// Chat generates an answer: greedily at temperature 0, else the most probable
// tokens up to TopP in sum, at the temperature, drawn with the seed. Reasoning
// does not count as part of MaxTokens but is limited to Params.ThinkTokens. A
// lead-in is not part of the reply's text.
func (e *Engine) Chat(ctx context.Context, p infer.Prompt, o infer.Params) (infer.Reply, error) {
	if o.MaxTokens < 1 {
		return infer.Reply{}, fmt.Errorf("llamacpp: max_tokens is %d, want at least 1", o.MaxTokens)
	}
	if o.Temperature < 0 || math.IsNaN(o.Temperature) || o.TopP < 0 || o.TopP > 1 || math.IsNaN(o.TopP) {
		return infer.Reply{}, fmt.Errorf("llamacpp: temperature %v and top_p %v, want ≥ 0 and 0 to 1", o.Temperature, o.TopP)
	}
	parts, err := e.parts(ctx, p)
	if err != nil {
		return infer.Reply{}, err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if err := e.ready(ctx, o, false); err != nil {
		return infer.Reply{}, err
	}
	m := e.plan(p.Hash())
	prompt, err := e.fitting(parts, m)
	if err != nil {
		return infer.Reply{}, err
	}
	e.switchSlot(prompt)
	keep, err := e.resume(prompt, len(prompt))
	if err != nil {
		return infer.Reply{}, err
	}
	reply := infer.Reply{Rendered: joined(parts), Usage: infer.Usage{
		Prompt: len(prompt), Unique: len(prompt), Evaluated: len(prompt) - keep, Cached: keep}}
	if err := e.pushFinite(ctx, prompt[keep:]); err != nil {
		return infer.Reply{}, err
	}
	out, err := e.generate(ctx, m.answer, o)
	if err != nil {
		return infer.Reply{}, err
	}
	reply.Text, reply.Thinking = out.split()
	reply.Text, reply.Stop, reply.Usage.Generated = cutAt(reply.Text, o.Stop), out.stop, out.tokens
	return reply, nil
}

// generated is what a model wrote: all of it, and without its control tokens.
type generated struct {
	all, plain []byte
	tokens     int
	stop       string
}

// thinking reports whether what was written so far is reasoning that goes on.
func (g *generated) thinking() bool {
	s := string(g.all)
	if !infer.OpensThinking(s) {
		return false
	}
	_, answer, closed := infer.SplitThinking(s)
	return !closed || answer == s
}

// split returns the answer and the reasoning before it. Marks of reasoning may
// be control tokens, which an answer without reasoning must not show.
func (g *generated) split() (answer, thinking string) {
	all := whole(g.all)
	thinking, answer, complete := infer.SplitThinking(all)
	if complete && answer == all {
		return whole(g.plain), ""
	}
	return answer, thinking
}

// whole returns bytes as text, without a character that is cut off at the end.
func whole(b []byte) string {
	for i := 1; i < utf8.UTFMax && i <= len(b); i++ {
		if tail := b[len(b)-i:]; utf8.RuneStart(tail[0]) {
			if !utf8.FullRune(tail) {
				b = b[:len(b)-i]
			}
			break
		}
	}
	return strings.ToValidUTF8(string(b), "\uFFFD")
}

// cutAt cuts a text before the first of the stop strings in it.
func cutAt(s string, stops []string) string {
	end := len(s)
	for _, stop := range stops {
		if i := strings.Index(s, stop); stop != "" && i >= 0 {
			end = min(end, i)
		}
	}
	return s[:end]
}

// generate samples from the logits of the last evaluated token on; the edit is made at what
// is sampled.
func (e *Engine) generate(ctx context.Context, edit editID, o infer.Params) (*generated, error) {
	chain, err := e.sampler(o)
	if err != nil {
		return nil, err
	}
	defer llama.SamplerFree(chain)
	think := o.ThinkTokens
	if think <= 0 {
		think = defaultThinkTokens
	}
	g := &generated{stop: "length"}
	for left := o.MaxTokens; ; {
		t := llama.SamplerSample(chain, e.llama, -1)
		if llama.VocabIsEOG(e.handle, t) {
			g.stop = "stop"
			return g, nil
		}
		g.all = append(g.all, e.piece(t, true)...)
		g.plain = append(g.plain, e.piece(t, false)...)
		g.tokens++
		if g.thinking() {
			think--
		} else {
			left--
			if answer, _ := g.split(); cutAt(answer, o.Stop) != answer {
				g.stop = "stop"
				return g, nil
			}
		}
		if left == 0 || think == 0 || len(e.resident) >= e.numCtx {
			return g, nil
		}
		if err := e.pushFinite(ctx, []step{{t, edit}}); err != nil {
			return nil, err
		}
	}
}

// pushFinite evaluates tokens and checks that the last one's logits can be
// sampled from: llama.cpp asserts it.
func (e *Engine) pushFinite(ctx context.Context, tokens []step) error {
	return e.push(ctx, tokens, []int{len(tokens) - 1}, func(_ int, logits []float32) error {
		if !finite(logits) {
			return errors.Join(errors.New("llamacpp: "+ReasonNaN), e.forget())
		}
		return nil
	})
}

// finite reports whether a softmax of the logits is one: none is NaN or +Inf, and
// not all are -Inf.
func finite(logits []float32) bool {
	top, _ := normaliser(logits)
	return !math.IsNaN(top) && !math.IsInf(top, 0)
}

// sampler returns the chain of llama.cpp's samplers, in its own order: what a form forbids
// is taken out first.
func (e *Engine) sampler(o infer.Params) (llama.Sampler, error) {
	chain := llama.SamplerChainInit(llama.SamplerChainDefaultParams())
	if o.Schema != nil {
		grammar := llama.SamplerInitGrammar(e.handle, o.Schema.Grammar(), "root")
		if grammar == 0 {
			llama.SamplerFree(chain)
			return 0, fmt.Errorf("llamacpp: the library takes no grammar of this form: %s", o.Schema.JSON())
		}
		llama.SamplerChainAdd(chain, grammar)
	}
	if o.Temperature < coldest {
		llama.SamplerChainAdd(chain, llama.SamplerInitGreedy())
		return chain, nil
	}
	if o.TopP > 0 && o.TopP < 1 {
		llama.SamplerChainAdd(chain, llama.SamplerInitTopP(float32(o.TopP), 1))
	}
	llama.SamplerChainAdd(chain, llama.SamplerInitTemp(float32(o.Temperature)))
	llama.SamplerChainAdd(chain, llama.SamplerInitDist(seed32(o.Seed)))
	return chain, nil
}

// seed32 folds a seed to the 32 bits that llama.cpp takes, and keeps clear of the
// one value that means "a random seed".
func seed32(seed int64) uint32 {
	s := uint32(seed) ^ uint32(seed>>32)
	if s == llama.DefaultSeed {
		s--
	}
	return s
}
