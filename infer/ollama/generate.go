package ollama

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"strings"

	"github.com/ollama/ollama/api"

	"github.com/ccmed/ccmed/infer"
	"github.com/ccmed/ccmed/infer/internal/prefix"
	"github.com/ccmed/ccmed/infer/internal/transport"
)

// request is one generation, to be sent by send.
type request struct {
	by       *call
	rendered string // the prompt as the model reads it
	units    []int32
	numCtx   int
	predict  int
	params   infer.Params
	stop     []string
	chat     []api.Message // sent through /api/chat when not nil, else rendered through /api/generate
	logprobs bool
	// hold asks for more tokens than the one that counts. A server of several slots
	// frees a slot before it gives out those for the requests that came meanwhile,
	// so that after one token a dialogue's slot goes to another one. The tokens are
	// drawn evenly from the most probable ones: the likeliest one after an answer
	// ends it. Log-probabilities are those before the drawing.
	hold bool
	// follow begins to follow a generation, anew in every attempt: what it returns
	// is given every generated token as it comes, and ends the generation by
	// returning false. nil waits for the whole answer.
	follow func() func(token) bool
	doubts map[string]int // what was wrong with this request's answers, and how often
}

// tokens is how many tokens the server may generate; 0 would be without a limit.
func (r request) tokens() int { return max(1, r.predict) }

// reply is what came back.
type reply struct {
	answer
	usage infer.Usage
}

var errEnough = errors.New("ollama: enough was generated")

// What an answer may need, in bytes: a token with 20 alternatives, one without,
// and all the rest.
const (
	logprobsBytes = 16 << 10
	tokenBytes    = 1 << 10
	restBytes     = 1 << 20
)

// send makes one request, again while that can help, and keeps account of the
// prompt cache.
func (b *Backend) send(ctx context.Context, r request) (reply, error) {
	if b.opts.Tokenize != nil && len(r.units)+1 > r.numCtx {
		return reply{}, &infer.ContextError{Need: len(r.units) + 1, Have: r.numCtx}
	}
	at, held, common, sure, err := b.slots.take(ctx, r.by, r.units)
	if err != nil {
		return reply{}, err
	}
	if r.hold {
		r.predict = 2
		if !sure {
			r.predict = 4
		}
	}
	perToken := tokenBytes
	if r.logprobs {
		perToken = logprobsBytes
	}
	r.doubts = map[string]int{}
	a, err := transport.Do(transport.WithLimit(ctx, restBytes+r.tokens()*perToken), b.server.client,
		func(ctx context.Context) (answer, error) { return b.attempt(ctx, r, held) })
	if err != nil {
		b.slots.put(at, afterError(held, err))
		return reply{}, b.failure(ctx, r, err)
	}
	if a.prompt == 0 { // ended by us, or by the server that gave up
		a.prompt = len(r.units)
		if b.opts.Tokenize == nil {
			a.prompt = int(math.Round(float64(len(r.units)) * b.slots.density()))
		}
	}
	shared := common
	if b.opts.Tokenize == nil {
		shared = held.shared(common)
	}
	b.slots.put(at, b.content(ctx, r, a.prompt, a.generated, a.text))
	return reply{a, usage(a.prompt, min(shared, a.prompt), a.generated)}, nil
}

// attempt makes a request once. An answer that is not whole, or not one to this
// request, is an error that is worth another attempt.
func (b *Backend) attempt(ctx context.Context, r request, held slot) (a answer, err error) {
	each := r.each()
	var scored *token
	path, body := b.body(r)
	err = b.server.once(ctx, http.MethodPost, path, body, func(object json.RawMessage) error {
		p, err := b.parse(object)
		if err != nil {
			return err
		}
		if err := a.add(p, r); err != nil || each == nil {
			return err
		}
		if len(p.Logprobs) == 0 && p.says() {
			return broken("a part of the server's answer has no log-probabilities")
		}
		for _, t := range p.Logprobs {
			if scored = &t; !each(t) {
				return errEnough
			}
		}
		scored = nil
		return nil
	})
	enough := errors.Is(err, errEnough)
	if enough {
		a.prompt = 0
	} else if err == nil {
		err = a.end()
	}
	if err != nil && !enough {
		return a, err
	}
	if a.ended && !enough {
		if err := r.again(b.check(r, held, a.prompt)); err != nil {
			return a, err
		}
	}
	switch {
	case !r.logprobs:
		return a, nil
	case each == nil && len(a.tokens) > 0:
		scored = &a.tokens[0]
	case each != nil && scored == nil:
		return a, nil // the generation came to its end without an answer
	}
	return a, b.weigh(r, a, scored)
}

func (r request) each() func(token) bool {
	if r.follow == nil {
		return nil
	}
	return r.follow()
}

// content is what a slot holds after a request: the prompt and what was
// generated, without the last token, which was sampled and not evaluated.
func (b *Backend) content(ctx context.Context, r request, prompt, generated int, text string) slot {
	h := slot{units: r.units, prompt: len(r.units), text: r.rendered, tokens: prompt}
	if generated < 2 || text == "" {
		return h
	}
	if b.opts.Tokenize == nil {
		h.units = append(h.units[:h.prompt:h.prompt], prefix.Pieces(text)...)
		h.more = generated - 1
	} else if all, err := b.opts.Tokenize(ctx, r.rendered+text); err == nil && len(all) >= len(r.units) {
		h.units = all[:min(len(all), prompt+generated-1)]
		h.more = len(h.units) - prompt
	}
	return h
}

// afterError is what a slot holds after a failed request: unchanged when the
// server refused it, unknown otherwise.
func afterError(held slot, err error) slot {
	var status *infer.StatusError
	if errors.As(err, &status) && status.Code < http.StatusInternalServerError {
		return held
	}
	return slot{}
}

// body is what is sent for a request, and where.
func (b *Backend) body(r request) (path string, body any) {
	no, stream, top := false, r.follow != nil, 0
	if r.logprobs {
		top = maxAlternatives
	}
	opts := options(r.params, r.numCtx, r.predict, r.stop)
	if r.hold {
		opts["temperature"], opts["top_k"] = anyToken, maxAlternatives
	}
	var format json.RawMessage
	if r.params.Schema != nil {
		format = r.params.Schema.JSON()
	}
	if r.chat != nil {
		return "/api/chat", &api.ChatRequest{
			Model: b.model, Messages: r.chat, Format: format, Stream: &stream, KeepAlive: b.keepAlive(), Options: opts,
			Think: &api.ThinkValue{Value: false}, Truncate: &no, Shift: &no, Logprobs: r.logprobs, TopLogprobs: top,
		}
	}
	return "/api/generate", &api.GenerateRequest{
		Model: b.model, Prompt: r.rendered, Format: format, Raw: true, Stream: &stream, KeepAlive: b.keepAlive(), Options: opts,
		Think: &api.ThinkValue{Value: false}, Truncate: &no, Shift: &no, Logprobs: r.logprobs, TopLogprobs: top,
	}
}

// failure names a prompt that was too long, and wraps everything else.
func (b *Backend) failure(ctx context.Context, r request, err error) error {
	var long *infer.ContextError
	switch {
	case errors.As(err, &long):
		return long
	case tooLongStatus(err):
		// The server lowers num_ctx to what the model was trained with.
		have := r.numCtx
		if m, err := b.Model(ctx); err == nil && m.ContextTrain > 0 {
			have = min(have, m.ContextTrain)
		}
		return b.tooLong(r, have)
	}
	return b.wrap("asking "+b.model, err)
}

func (b *Backend) tooLong(r request, have int) error {
	if b.opts.Tokenize != nil {
		return &infer.ContextError{Need: len(r.units) + 1, Have: have}
	}
	need := int(math.Ceil(float64(len(r.units)) * b.slots.density()))
	return &infer.ContextError{Need: max(need, have) + 1, Have: have, About: true}
}

// check compares the number of prompt tokens that the server evaluated with what
// it was given, since a prompt that was cut is answered like any other.
func (b *Backend) check(r request, held slot, count int) error {
	if b.opts.Tokenize != nil {
		if count != len(r.units) {
			return fmt.Errorf("ollama: the server read %d prompt tokens and %d were sent: it cut the prompt, or its tokenizer is not that of the file read here",
				count, len(r.units))
		}
		return nil
	}
	if count >= r.numCtx {
		return b.tooLong(r, r.numCtx)
	}
	// Tokenizers make between 0.9 and 1.5 tokens of a piece.
	if n := len(r.units); n > 100 && float64(count) < 0.6*float64(n) {
		return fmt.Errorf("ollama: the server read %d prompt tokens of a text of about %d: it cut the prompt; raise --num-ctx", count, n)
	}
	// A few tokens less are possible where the shorter prompt ended within a word.
	const slack = 4
	if held.text != "" && strings.HasPrefix(r.rendered, held.text) && count+slack < held.tokens {
		return fmt.Errorf("ollama: the server read %d prompt tokens, and %d of a prompt that this one begins with: it cut the prompt; raise --num-ctx",
			count, held.tokens)
	}
	return nil
}

// Render returns the prompt as the server's template writes it, with the lead-in
// at its end. Where the template leaves the answer within a channel or a block
// of reasoning, as for gpt-oss and models that always reason, the answer's own
// channel is opened, or the block closed: what Ollama's templates do for
// think=false where they can.
func (b *Backend) Render(ctx context.Context, p infer.Prompt) (string, error) {
	return b.render(ctx, p, b.settled())
}

func (b *Backend) render(ctx context.Context, p infer.Prompt, numCtx int) (string, error) {
	if p.Literal {
		return b.opts.Controls.Break(p.Raw), nil
	}
	if p.Raw != "" {
		return p.Raw, nil
	}
	s, err := b.template(ctx, p.Messages, numCtx)
	if err != nil {
		return "", err
	}
	return direct(s) + p.LeadIn, nil
}

// template renders messages with the server's template, which must show the model
// all of them. The request names num_ctx because the server loads the model for it.
func (b *Backend) template(ctx context.Context, ms []infer.Message, numCtx int) (string, error) {
	if len(ms) == 0 {
		return "", errors.New("ollama: a prompt without messages")
	}
	no, sent := false, b.messages(ms)
	body := &api.ChatRequest{
		Model: b.model, Messages: sent, Stream: &no, KeepAlive: b.keepAlive(), DebugRenderOnly: true,
		Think: &api.ThinkValue{Value: false}, Truncate: &no, Shift: &no,
		Options: options(infer.Params{}, numCtx, 1, nil),
	}
	size := 0
	for _, m := range sent {
		size += len(m.Content)
	}
	r := request{doubts: map[string]int{}}
	rendered, err := transport.Do(transport.WithLimit(ctx, restBytes+8*size), b.server.client, func(ctx context.Context) (string, error) {
		var parts []part
		err := b.server.once(ctx, http.MethodPost, "/api/chat", body, func(object json.RawMessage) error {
			p, err := b.parse(object)
			parts = append(parts, p)
			return err
		})
		switch {
		case err != nil:
			return "", err
		case len(parts) != 1:
			return "", broken("the server's rendering has %d objects instead of one", len(parts))
		case parts[0].Debug == nil && parts[0].Done:
			return "", r.again(errors.New("the server does not render prompts (_debug_render_only); it needs Ollama 0.12.11 or later"))
		case parts[0].Debug == nil || parts[0].Debug.Rendered == "":
			return "", broken("the server's answer has no rendered prompt")
		}
		rendered := parts[0].Debug.Rendered
		if i := leftOut(rendered, sent); i >= 0 {
			return "", r.again(fmt.Errorf("the template of %s leaves out the %s message, number %d of %d, so that the model would never see it; "+
				"give the model a template that shows every message", b.model, sent[i].Role, i+1, len(sent)))
		}
		return rendered, nil
	})
	if err != nil {
		return "", b.wrap("rendering a prompt", err)
	}
	return rendered, nil
}

// leftOut returns the index of a message that a rendered prompt does not hold as
// often as it was sent, and -1 when it holds all. Templates trim messages, and
// may move a system message into another one.
func leftOut(rendered string, ms []api.Message) int {
	times := map[string]int{}
	for i, m := range ms {
		text := strings.TrimSpace(m.Content)
		if times[text]++; text != "" && strings.Count(rendered, text) < times[text] {
			return i
		}
	}
	return -1
}

// direct completes a rendered prompt so that the answer comes next.
func direct(rendered string) string {
	end := strings.TrimSpace(rendered)
	switch {
	case strings.HasSuffix(end, "<|start|>assistant"):
		return end + "<|channel|>final<|message|>"
	case strings.HasSuffix(end, "<think>"):
		return end + "\n\n</think>\n\n"
	}
	return rendered
}

// messages are the server's form of messages. It tokenises all of a rendered
// prompt with control tokens, so that those in the contents are broken.
func (b *Backend) messages(ms []infer.Message) []api.Message {
	out := make([]api.Message, len(ms))
	for i, m := range b.opts.Controls.BreakAll(ms) {
		out[i] = api.Message{Role: m.Role, Content: m.Content}
	}
	return out
}
