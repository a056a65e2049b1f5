package ollama

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"strings"

	"github.com/ollama/ollama/api"

	"github.com/ccmed/ccmed/infer"
	"github.com/ccmed/ccmed/infer/internal/prefix"
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
	// each is given every generated token as it comes, and ends the generation
	// by returning false; nil waits for the whole answer.
	each func(api.Logprob) bool
}

// reply is what came back.
type reply struct {
	text, thinking string
	tokens         []api.Logprob
	stop           string
	usage          infer.Usage
}

var errEnough = errors.New("ollama: enough was generated")

// send makes one request within a place and keeps account of the prompt cache.
func (b *Backend) send(ctx context.Context, r request) (reply, error) {
	if b.opts.Tokenize != nil && len(r.units)+1 > r.numCtx {
		return reply{}, &infer.ContextError{Need: len(r.units) + 1, Have: r.numCtx}
	}
	at, held, common, err := b.slots.take(ctx, r.by, r.units)
	if err != nil {
		return reply{}, err
	}
	var out reply
	var m api.Metrics
	done := false
	take := func(text, thinking, stop string, finished bool, lp []api.Logprob, metrics api.Metrics) error {
		out.text += text
		out.thinking += thinking
		out.tokens = append(out.tokens, lp...)
		if finished {
			m, out.stop, done = metrics, stop, true
		}
		if r.each == nil {
			return nil
		}
		for _, t := range lp {
			if !r.each(t) {
				return errEnough
			}
		}
		return nil
	}
	err = b.post(ctx, r, take)
	if err != nil && !errors.Is(err, errEnough) {
		b.slots.put(at, afterError(held, err))
		return reply{}, b.failure(ctx, r, err)
	}
	prompt := m.PromptEvalCount
	if !done {
		// Ended by us, or by the server, which gives up after 30 equal tokens
		// without a final count.
		m.EvalCount = len(out.tokens)
		if out.stop == "" {
			out.stop = "length"
		}
		prompt = len(r.units)
		if b.opts.Tokenize == nil {
			prompt = int(math.Round(float64(len(r.units)) * b.slots.density()))
		}
	} else if err := b.check(r, held, prompt); err != nil {
		b.slots.put(at, slot{})
		return reply{}, err
	}
	shared := common
	if b.opts.Tokenize == nil {
		shared = held.shared(common)
	}
	out.usage = usage(prompt, min(shared, prompt), m.EvalCount)
	b.slots.put(at, b.content(ctx, r, prompt, m.EvalCount, out.text))
	return out, nil
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
	var status api.StatusError
	if errors.As(err, &status) && status.StatusCode < http.StatusInternalServerError {
		return held
	}
	return slot{}
}

func (b *Backend) post(ctx context.Context, r request,
	take func(text, thinking, stop string, done bool, lp []api.Logprob, m api.Metrics) error) error {
	no, stream, top := false, r.each != nil, 0
	if r.logprobs {
		top = maxAlternatives
	}
	opts := options(r.params, r.numCtx, r.predict, r.stop)
	if r.chat != nil {
		return b.client.Chat(ctx, &api.ChatRequest{
			Model: b.model, Messages: r.chat, Stream: &stream, KeepAlive: b.keepAlive(), Options: opts,
			Think: &api.ThinkValue{Value: false}, Truncate: &no, Shift: &no, Logprobs: r.logprobs, TopLogprobs: top,
		}, func(c api.ChatResponse) error {
			return take(c.Message.Content, c.Message.Thinking, c.DoneReason, c.Done, c.Logprobs, c.Metrics)
		})
	}
	return b.client.Generate(ctx, &api.GenerateRequest{
		Model: b.model, Prompt: r.rendered, Raw: true, Stream: &stream, KeepAlive: b.keepAlive(), Options: opts,
		Think: &api.ThinkValue{Value: false}, Truncate: &no, Shift: &no, Logprobs: r.logprobs, TopLogprobs: top,
	}, func(g api.GenerateResponse) error {
		return take(g.Response, g.Thinking, g.DoneReason, g.Done, g.Logprobs, g.Metrics)
	})
}

// failure names a prompt that was too long, and wraps everything else.
func (b *Backend) failure(ctx context.Context, r request, err error) error {
	var status api.StatusError
	if errors.As(err, &status) && strings.Contains(status.ErrorMessage, "exceeds the context length") {
		// The server lowers num_ctx to what the model was trained with.
		have := r.numCtx
		if m, err := b.Model(ctx); err == nil && m.ContextTrain > 0 {
			have = min(have, m.ContextTrain)
		}
		return b.tooLong(r, have)
	}
	if r.each != nil && !errors.As(err, &status) && !infer.IsConnection(err) && ctx.Err() == nil {
		// An error line within a stream comes after the status, which was 200.
		err = api.StatusError{StatusCode: http.StatusInternalServerError, ErrorMessage: err.Error()}
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

// template renders messages with the server's template. The request names
// num_ctx because the server loads the model for it.
func (b *Backend) template(ctx context.Context, ms []infer.Message, numCtx int) (string, error) {
	if len(ms) == 0 {
		return "", errors.New("ollama: a prompt without messages")
	}
	no := false
	var rendered string
	err := b.client.Chat(ctx, &api.ChatRequest{
		Model: b.model, Messages: b.messages(ms), Stream: &no, KeepAlive: b.keepAlive(), DebugRenderOnly: true,
		Think: &api.ThinkValue{Value: false}, Truncate: &no, Shift: &no,
		Options: options(infer.Params{}, numCtx, 1, nil),
	}, func(c api.ChatResponse) error {
		if c.DebugInfo == nil {
			return errors.New("the server does not render prompts (_debug_render_only); it needs Ollama 0.12 or later")
		}
		rendered = c.DebugInfo.RenderedTemplate
		return nil
	})
	if err != nil {
		return "", b.wrap("rendering a prompt", err)
	}
	return rendered, nil
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
