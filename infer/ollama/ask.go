package ollama

import (
	"context"
	"fmt"

	"github.com/ccmed/ccmed/infer"
	"github.com/ccmed/ccmed/infer/internal/prefix"
	"github.com/ccmed/ccmed/infer/internal/reasoning"
)

// maxAlternatives is the most that the server returns; more is a 400.
const maxAlternatives = 20

// anyToken is a temperature at which all tokens are about equally likely.
const anyToken = 1000.0

// The Unscored reasons when the alternatives stayed hidden, and when there were
// none although there was a token.
const (
	emptyAnswer = "empty answer: the model ended at once and the server gave no log-probabilities"
	noLogprobs  = "the server returned no log-probabilities"
)

// Chat generates one answer. A prompt with neither a lead-in nor raw text goes
// through /api/chat, where the server's own parsers part reasoning from answer;
// others are rendered and sent as they are. Reply.Text does not repeat the
// lead-in. The model's own stop texts count besides o.Stop.
func (b *Backend) Chat(ctx context.Context, p infer.Prompt, o infer.Params) (infer.Reply, error) {
	numCtx, err := b.freeze(o)
	if err != nil {
		return infer.Reply{}, err
	}
	about, err := b.show(ctx)
	if err != nil {
		return infer.Reply{}, err
	}
	by, err := b.begin(ctx)
	if err != nil {
		return infer.Reply{}, err
	}
	defer b.end(by)
	r := request{by: by, numCtx: numCtx, predict: o.MaxTokens, params: o, stop: append(append([]string{}, about.stop...), o.Stop...)}
	if p.Raw == "" && p.LeadIn == "" {
		r.chat = b.messages(p.Messages)
		r.rendered, err = b.template(ctx, p.Messages, numCtx)
	} else {
		r.rendered, err = b.render(ctx, p, numCtx)
	}
	if err != nil {
		return infer.Reply{}, err
	}
	if r.units, err = b.units(ctx, r.rendered); err != nil {
		return infer.Reply{}, err
	}
	a, err := b.send(ctx, r)
	if err != nil {
		return infer.Reply{}, err
	}
	out := infer.Reply{Text: a.text, Thinking: a.thinking, Stop: a.stop, Rendered: r.rendered, Usage: a.usage}
	if thinking, text, complete := infer.SplitThinking(a.text); !complete {
		out.Thinking, out.Text = join(out.Thinking, thinking), ""
	} else if thinking != "" || text != a.text {
		out.Thinking, out.Text = join(out.Thinking, thinking), text
	}
	return out, nil
}

func join(a, b string) string {
	if a == "" || b == "" {
		return a + b
	}
	return a + "\n" + b
}

// Choose asks for one token after each prompt and reads the answers'
// probabilities off its 20 most probable alternatives. Answers outside them are
// bounded by the mass that is left. The prompts are sent in the order of their
// prefix tree, so that the server's prompt cache evaluates what they have in
// common once.
//
// A first token that opens reasoning is followed for o.ThinkTokens to the first
// token after it. The server hides the alternatives of a token that ends the
// answer or is no text: it is then asked for another token of the same
// distribution, by a temperature at which all tokens are about equally likely.
// Log-probabilities are those of the model before temperature and penalties.
func (b *Backend) Choose(ctx context.Context, ps []infer.Prompt, as []infer.Answer, o infer.Params) ([]infer.Choice, error) {
	if err := infer.CheckAnswers(as); err != nil {
		return nil, err
	}
	numCtx, err := b.freeze(o)
	if err != nil {
		return nil, err
	}
	by, err := b.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer b.end(by)
	rs, units := make([]request, len(ps)), make([][]int32, len(ps))
	for i, p := range ps {
		text, err := b.render(ctx, p, numCtx)
		if err != nil {
			return nil, err
		}
		if units[i], err = b.units(ctx, text); err != nil {
			return nil, err
		}
		greedy := o
		greedy.Temperature = 0
		rs[i] = request{by: by, rendered: text, units: units[i], numCtx: numCtx, predict: 1, hold: b.opts.Parallel > 1, params: greedy, logprobs: true}
	}
	out := make([]infer.Choice, len(ps))
	var last slot
	for _, i := range prefix.Order(units) {
		c, err := b.choose(ctx, rs[i], as, o)
		if err != nil {
			return nil, err
		}
		common := last.shared(prefix.Common(last.units, units[i]))
		c.Usage.Unique = c.Usage.Prompt - min(c.Usage.Prompt, common)
		last = slot{units: units[i], prompt: len(units[i]), tokens: c.Usage.Prompt}
		out[i] = c
	}
	return out, nil
}

func (b *Backend) choose(ctx context.Context, r request, as []infer.Answer, o infer.Params) (infer.Choice, error) {
	first, err := b.send(ctx, r)
	if err != nil {
		return infer.Choice{}, err
	}
	used, prompt := first.usage, first.usage.Prompt
	for seed := range int64(4) {
		if !first.silent() {
			break
		}
		hot := r
		hot.hold, hot.params.Temperature, hot.params.Seed = false, anyToken, seed
		again, err := b.send(ctx, hot)
		if err != nil {
			return infer.Choice{}, err
		}
		used = used.Add(again.usage)
		first.answer = again.answer
	}
	var top []infer.TokenLogprob
	if len(first.tokens) > 0 {
		top = first.tokens[0].alternatives()
	}
	c, err := infer.Merge(top, as)
	if err != nil {
		return c, err
	}
	_, unreliable := infer.Alternatives(top)
	switch {
	case first.silent():
		c.Unscored = emptyAnswer
	case len(c.Top) == 0:
		c.Unscored = noLogprobs
	case unreliable == "" && infer.OpensThinking(c.Top[0].Token):
		var more infer.Usage
		if c, more, err = b.afterReasoning(ctx, r, c, as, o); err != nil {
			return c, err
		}
		used = used.Add(more)
	}
	c.Rendered = r.rendered
	c.Usage = once(used, prompt)
	return c, nil
}

// once counts the prompt of several requests for one choice as one prompt.
func once(u infer.Usage, prompt int) infer.Usage {
	u.Prompt, u.Unique = prompt, prompt
	u.Evaluated = min(u.Evaluated, prompt)
	u.Cached = prompt - u.Evaluated
	return u
}

// afterReasoning follows the generation to the first token after reasoning and
// merges its alternatives; first is returned when it was no reasoning.
func (b *Backend) afterReasoning(ctx context.Context, r request, first infer.Choice, as []infer.Answer, o infer.Params) (infer.Choice, infer.Usage, error) {
	r.predict = o.ThinkTokens
	if r.predict <= 0 {
		r.predict = 1024
	}
	r.hold = false
	var find *reasoning.Finder
	var at []infer.TokenLogprob
	var state reasoning.State
	r.follow = func() func(token) bool {
		find, at, state = &reasoning.Finder{}, nil, reasoning.Open
		return func(t token) bool {
			state = find.Add(t.Token)
			if state == reasoning.Answer {
				at = t.alternatives()
			}
			return state == reasoning.Open || state == reasoning.Closed
		}
	}
	a, err := b.send(ctx, r)
	if err != nil {
		return first, infer.Usage{}, err
	}
	switch state {
	case reasoning.Plain:
		return first, a.usage, nil
	case reasoning.Answer:
		c, err := infer.Merge(at, as)
		c.Thinking = find.Thinking()
		return c, a.usage, err
	}
	c, err := infer.Merge(nil, as)
	c.Unscored, c.Thinking = reasoning.NoAnswer, find.Thinking()
	if state == reasoning.Merged {
		c.Unscored = reasoning.Mixed
	}
	if err != nil {
		err = fmt.Errorf("ollama: %w", err)
	}
	return c, a.usage, err
}
