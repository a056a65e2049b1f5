package openai

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"net/http"
	"strings"

	api "github.com/sashabaranov/go-openai"
	"golang.org/x/sync/errgroup"

	"github.com/ccmed/ccmed/infer"
	"github.com/ccmed/ccmed/infer/internal/reasoning"
	"github.com/ccmed/ccmed/infer/internal/transport"
)

// request builds a chat request and the members that it must state.
func (b *Backend) request(p infer.Prompt, o infer.Params) (req api.ChatCompletionRequest, f fields, err error) {
	if p.Raw != "" {
		return req, nil, fmt.Errorf("openai: a raw prompt: %w; the server applies its template to everything", infer.ErrUnsupported)
	}
	if len(p.Messages) == 0 {
		return req, nil, errors.New("openai: a prompt without messages")
	}
	req = api.ChatCompletionRequest{Model: b.model, Stop: o.Stop}
	for _, m := range (*infer.Controls)(nil).BreakAll(p.Messages) {
		req.Messages = append(req.Messages, api.ChatCompletionMessage{Role: m.Role, Content: m.Content})
	}
	topP := o.TopP
	if topP == 0 {
		topP = 1
	}
	// max_tokens is deprecated at OpenAI, and what all local servers understand.
	f = fields{"max_tokens": max(1, o.MaxTokens), "temperature": o.Temperature, "top_p": topP, "seed": o.Seed,
		"presence_penalty": 0, "frequency_penalty": 0}
	if o.Schema != nil {
		f["response_format"] = map[string]any{"type": "json_schema", "json_schema": map[string]any{"name": "answer", "strict": true, "schema": o.Schema.JSON()}}
	}
	maps.Copy(f, b.opts.Extra)
	if p.LeadIn != "" && b.opts.ContinueFinal {
		req.Messages = append(req.Messages, api.ChatCompletionMessage{Role: infer.Assistant, Content: p.LeadIn})
		f["continue_final_message"], f["add_generation_prompt"] = true, false
	}
	return req, f, nil
}

// answer is the first choice of a completion.
type answer struct {
	text, thinking, stop string
	tokens               []token
	usage                infer.Usage
}

// What an answer can need, in bytes: a text a token, an answer a token with its
// alternatives and without, and an answer beside its tokens.
const (
	textBytes     = 256
	tokenBytes    = 1 << 10
	logprobsBytes = 8 << 10
	restBytes     = 1 << 20
)

// complete makes a chat request. With choose it asks for log-probabilities, and
// choose says which token's are needed, below 0 for none.
func (b *Backend) complete(ctx context.Context, p infer.Prompt, o infer.Params, choose func([]token) int) (answer, error) {
	req, f, err := b.request(p, o)
	if err != nil {
		return answer{}, err
	}
	perToken := tokenBytes
	if choose != nil {
		perToken = logprobsBytes
	}
	asking := transport.WithLimit(withFields(ctx, f), restBytes+max(1, o.MaxTokens)*perToken)
	ask := func(ctx context.Context) error {
		_, err := b.client.CreateChatCompletion(ctx, req)
		return err
	}
	for {
		asked := 0
		if choose != nil {
			asked = int(b.top.Load())
			req.LogProbs, req.TopLogProbs = true, asked
		}
		var out answer
		var few fewer
		_, err := send(asking, b, ask, func(r *completion) (err error) {
			if out, err = b.read(p, o, r); err == nil && choose != nil {
				err = b.checkLogprobs(out, choose(out.tokens), &few)
			}
			if err == nil {
				err = b.checkModel(ctx, r.Model)
			}
			return err
		})
		var status *infer.StatusError
		if errors.As(err, &status) && (status.Code == http.StatusBadRequest || status.Code == http.StatusUnprocessableEntity) &&
			asked > fewerAlternatives && strings.Contains(status.Message, "logprobs") {
			b.top.Store(fewerAlternatives)
			b.least.Store(fewerAlternatives)
			continue
		}
		if err != nil {
			return answer{}, b.failure(p, err)
		}
		if err := checkCut(p, out.usage.Prompt); err != nil {
			return answer{}, err
		}
		return out, nil
	}
}

// read takes the answer out of a completion, and says what it lacks.
func (b *Backend) read(p infer.Prompt, o infer.Params, r *completion) (answer, error) {
	if len(r.Choices) == 0 || r.Choices[0].Message == nil {
		return answer{}, &infer.BrokenError{What: "the server's answer is without choices"}
	}
	c := r.Choices[0]
	out := answer{text: c.Message.Content, thinking: c.Message.Thinking, stop: c.FinishReason}
	if out.thinking == "" {
		out.thinking = c.Message.Reasoning
	}
	if n, most := len(out.text)+len(out.thinking), textBytes*(max(1, o.MaxTokens)+4); n > most {
		return answer{}, &infer.BrokenError{What: fmt.Sprintf("the server's answer holds %d bytes of text, too many for max_tokens %d",
			n, max(1, o.MaxTokens))}
	}
	if out.stop == "" {
		// Ollama ends an answer without a reason, and without counts, where a
		// token has come 30 times in a row.
		if !repeats(out.text + out.thinking) {
			return answer{}, &infer.BrokenError{What: "the server's answer does not say why it ends (finish_reason): it may be incomplete"}
		}
		out.stop = "length"
	}
	if c.Logprobs != nil {
		out.tokens = c.Logprobs.Content
	}
	switch u := r.Usage; {
	case u != nil && u.PromptTokens > 0:
		b.gaveUsage.Store(true)
		out.usage = usage(u.PromptTokens, min(u.Details.CachedTokens, u.PromptTokens), u.CompletionTokens)
	case b.gaveUsage.Load() && c.FinishReason != "":
		return answer{}, &infer.BrokenError{What: "the server's answer does not count its tokens (usage): it may be incomplete"}
	default:
		out.usage = usage(pieces(p), 0, len(out.tokens))
	}
	return out, nil
}

// usage takes the server's word for cached tokens; where it says none, all
// prompt tokens count as evaluated. Unique is an upper bound.
func usage(prompt, cached, generated int) infer.Usage {
	return infer.Usage{Prompt: prompt, Unique: prompt, Evaluated: prompt - cached, Cached: cached, Generated: generated, Estimated: true}
}

// repeats reports whether a text ends in 30 times the same.
func repeats(text string) bool {
	const times, longest = 30, 64
	for n := 1; n <= longest && n*times <= len(text); n++ {
		if strings.HasSuffix(text, strings.Repeat(text[len(text)-n:], times)) {
			return true
		}
	}
	return false
}

// fewer follows the attempts of a request that get too few alternatives.
type fewer struct{ got, times int }

// checkLogprobs says which log-probabilities an answer lacks, of those of the
// token at which the choice is made. A server that gives none at all leaves its
// choices unscored; one that has given some owes them.
func (b *Backend) checkLogprobs(a answer, at int, few *fewer) error {
	var all strings.Builder
	for _, t := range a.tokens {
		all.WriteString(t.Token)
	}
	none := len(a.tokens) == 0 || at >= 0 && len(a.tokens[at].Top) == 0
	switch s := all.String(); {
	case none && a.text != "" && b.gaveLogprobs.Load():
		return &infer.BrokenError{What: "the server's answer has no log-probabilities"}
	case none:
		return nil
	case !strings.Contains(s, "\uFFFD") && !strings.Contains(s, strings.TrimSpace(a.text)):
		return &infer.BrokenError{What: "the server's answer has log-probabilities of other tokens than those of its text"}
	case at >= 0:
		if err := b.checkCount(a.tokens[at].Top, few); err != nil {
			return err
		}
	}
	b.gaveLogprobs.Store(true)
	return nil
}

// checkCount notices alternatives that are missing: an answer among them would
// be taken for improbable. A server that returns the same smaller number three
// times in a row gives no more, and is asked no further.
func (b *Backend) checkCount(top []infer.TokenLogprob, few *fewer) error {
	n, asked := len(top), int(b.top.Load())
	if n >= min(asked, int(b.least.Load())) {
		return nil
	}
	kept, unscored := infer.Alternatives(top)
	total := 0.0
	for _, t := range kept {
		total += math.Exp(t.Logprob)
	}
	if unscored != "" || total > 1-1e-3 {
		return nil // unscored with its own reason, or nothing is left for those that are missing
	}
	if n != few.got {
		*few = fewer{got: n}
	}
	if few.times++; few.times < 3 {
		return &infer.BrokenError{What: fmt.Sprintf("the server's answer has %d of the %d alternatives asked for", n, asked)}
	}
	b.least.Store(int64(n))
	b.opts.Retry.Notify(fmt.Sprintf("the server returns %d of the %d alternatives asked for: answers that are not among them are bounded less closely",
		n, asked))
	return nil
}

// Chat generates one answer. A prompt with raw text is infer.ErrUnsupported.
func (b *Backend) Chat(ctx context.Context, p infer.Prompt, o infer.Params) (infer.Reply, error) {
	a, err := b.complete(ctx, p, o, nil)
	if err != nil {
		return infer.Reply{}, err
	}
	r := infer.Reply{Text: a.text, Thinking: a.thinking, Stop: a.stop, Usage: a.usage}
	thinking, text, complete := infer.SplitThinking(a.text)
	switch {
	case !complete:
		r.Text, r.Thinking = "", strings.TrimSpace(r.Thinking+"\n"+thinking)
	case thinking != "" || text != a.text:
		r.Text, r.Thinking = text, strings.TrimSpace(r.Thinking+"\n"+thinking)
	}
	return r, nil
}

// Choose asks for one token after each prompt, Options.Parallel at a time, and
// reads the answers' probabilities off its most probable alternatives; answers
// outside them are bounded by the mass that is left. When the first token is
// reasoning, the answer is looked for after it, within o.ThinkTokens. A server
// that gives no log-probabilities leaves every choice unscored.
func (b *Backend) Choose(ctx context.Context, ps []infer.Prompt, as []infer.Answer, o infer.Params) ([]infer.Choice, error) {
	if err := infer.CheckAnswers(as); err != nil {
		return nil, err
	}
	o.Temperature = 0
	out := make([]infer.Choice, len(ps))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(cap(b.places))
	for i, p := range ps {
		g.Go(func() error {
			if err := ctx.Err(); err != nil {
				return err
			}
			c, err := b.choose(ctx, p, as, o)
			out[i] = c
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	return out, nil
}

func (b *Backend) choose(ctx context.Context, p infer.Prompt, as []infer.Answer, o infer.Params) (infer.Choice, error) {
	o.MaxTokens, o.Stop, o.Schema = 1, nil, nil
	a, err := b.complete(ctx, p, o, func([]token) int { return 0 })
	if err != nil {
		return infer.Choice{}, err
	}
	var top []infer.TokenLogprob
	if len(a.tokens) > 0 {
		top = a.tokens[0].Top
	}
	c, err := infer.Merge(top, as)
	if err != nil {
		return c, err
	}
	c.Usage = a.usage
	hidden := a.thinking != "" || (a.text == "" && len(a.tokens) > 0 && a.usage.Generated > 0 && a.stop == "length")
	switch {
	case hidden || len(c.Top) > 0 && infer.OpensThinking(c.Top[0].Token) || infer.OpensThinking(a.text):
		return b.afterReasoning(ctx, p, c, a.thinking != "", as, o)
	case len(c.Top) == 0 && a.text == "":
		c.Unscored = "empty answer: the model ended at once and the server gave no log-probabilities"
	case len(c.Top) == 0:
		c.Unscored = "the server returned no log-probabilities"
	}
	return c, nil
}

// afterReasoning asks again for a whole answer and takes the alternatives at the
// first token after the reasoning; first is returned when it was none.
func (b *Backend) afterReasoning(ctx context.Context, p infer.Prompt, first infer.Choice, inside bool, as []infer.Answer,
	o infer.Params) (infer.Choice, error) {
	o.MaxTokens = o.ThinkTokens
	if o.MaxTokens <= 0 {
		o.MaxTokens = 1024
	}
	var find reasoning.Finder
	var state reasoning.State
	at := -1
	a, err := b.complete(ctx, p, o, func(tokens []token) int {
		find, state, at = reasoning.Finder{Inside: inside}, reasoning.Open, -1
		for i, t := range tokens {
			state = find.Add(t.Token)
			if state == reasoning.Answer {
				at = i
			}
			if state != reasoning.Open && state != reasoning.Closed {
				break
			}
		}
		return at
	})
	if err != nil {
		return first, err
	}
	var top []infer.TokenLogprob
	switch state {
	case reasoning.Plain:
		first.Usage = again(first.Usage, a.usage)
		return first, nil
	case reasoning.Answer:
		top = a.tokens[at].Top
	}
	c, err := infer.Merge(top, as)
	if err != nil {
		return c, err
	}
	c.Usage, c.Thinking = again(first.Usage, a.usage), find.Thinking()
	if c.Thinking == "" {
		c.Thinking = a.thinking
	}
	switch state {
	case reasoning.Open, reasoning.Closed:
		c.Unscored = reasoning.NoAnswer
	case reasoning.Merged:
		c.Unscored = reasoning.Mixed
	}
	return c, nil
}

// again adds a second request for the same prompt, which counts once.
func again(u, v infer.Usage) infer.Usage {
	u.Generated += v.Generated
	return u
}
