// Package openai asks models behind the OpenAI API: vLLM, llama-server, Ollama's
// /v1, any compatible server.
//
//	b, err := openai.New("http://127.0.0.1:8000/v1", "meta-llama/Llama-3.1-8B-Instruct", "", openai.Options{})
//	choices, err := b.Choose(ctx, prompts, infer.Words("yes", "no"), infer.Params{})
//
// The API tells less than a local server's own: no digest of the weights, no
// rendered prompt, no context length, and it cannot send a raw prompt that is
// sure to stay raw. Notes says what a run through it must do without.
package openai

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"

	api "github.com/sashabaranov/go-openai"
	"golang.org/x/sync/errgroup"

	"github.com/ccmed/ccmed/infer"
	"github.com/ccmed/ccmed/infer/internal/prefix"
	"github.com/ccmed/ccmed/infer/internal/reasoning"
)

// Options configure a Backend; the zero value means the defaults.
type Options struct {
	// HTTP carries the requests; nil means http.DefaultClient.
	HTTP *http.Client
	// TopLogprobs is the number of alternatives asked for; 0 means 20. A server
	// that refuses it is asked for 5 from then on.
	TopLogprobs int
	// ContinueFinal sends a lead-in as the start of the assistant's message, with
	// vLLM's continue_final_message. Without it lead-ins are dropped, since most
	// servers would close that message and begin a new one.
	ContinueFinal bool
	// Parallel is the number of requests in flight in one Choose; 0 means 1.
	Parallel int
	// Extra are members added to every chat request, for what a server needs
	// beyond the API: {"chat_template_kwargs": {"enable_thinking": false}}, or
	// {"repetition_penalty": 1, "top_k": -1} where vLLM takes the model's own
	// generation defaults.
	Extra map[string]any
}

const fewerAlternatives = 5

// Backend is one model of one server. It is safe for concurrent use.
type Backend struct {
	client *api.Client
	base   string
	model  string
	opts   Options
	top    atomic.Int64 // alternatives asked for
}

var _ infer.Backend = (*Backend)(nil)

// New returns a backend for a model of the server at baseURL, which includes
// "/v1". The key may be empty. It makes no request.
func New(baseURL, model, apiKey string, o Options) (*Backend, error) {
	u, err := url.Parse(strings.TrimRight(baseURL, "/"))
	if err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https") {
		return nil, fmt.Errorf("openai: %q is not the address of a server; write it like http://127.0.0.1:8000/v1", baseURL)
	}
	if strings.TrimSpace(model) == "" {
		return nil, errors.New("openai: no model named")
	}
	if o.TopLogprobs == 0 {
		o.TopLogprobs = 20
	}
	o.Parallel = max(1, o.Parallel)
	hc := http.Client{}
	if o.HTTP != nil {
		hc = *o.HTTP
	}
	if hc.Transport == nil {
		hc.Transport = http.DefaultTransport
	}
	hc.Transport = explicit{hc.Transport}
	c := api.DefaultConfig(apiKey)
	c.BaseURL, c.HTTPClient = u.String(), &hc
	b := &Backend{client: api.NewClientWithConfig(c), base: u.String(), model: model, opts: o}
	b.top.Store(int64(o.TopLogprobs))
	return b, nil
}

// Notes says, in sentences for the user, what this backend cannot do that the
// others can.
func (b *Backend) Notes() []string {
	notes := []string{
		"num_ctx cannot be set through /v1: the server's own context length holds, and some servers (Ollama) cut a longer prompt in silence",
		"/v1 gives no digest of the weights: the run records the model's name only, and the response cache is off unless asked for",
	}
	if !b.opts.ContinueFinal {
		notes = append(notes, "lead-ins are dropped: the server is not known to continue an assistant's message")
	}
	return notes
}

// Model returns the model's name, after checking that the server lists it. There
// is no digest; TemplateHash says, in words, who renders and what becomes of
// lead-ins, so that runs that differ in it are not taken for equal.
func (b *Backend) Model(ctx context.Context) (infer.Model, error) {
	m := infer.Model{Backend: "openai", Name: b.model, TemplateHash: "server's own, lead-in dropped"}
	if b.opts.ContinueFinal {
		m.TemplateHash = "server's own, lead-in continued"
	}
	l, err := b.client.ListModels(ctx)
	if code := statusOf(err); code == http.StatusNotFound || code == http.StatusMethodNotAllowed {
		return m, nil // not every server lists its models
	}
	if err != nil {
		return infer.Model{}, b.wrap("listing models", err)
	}
	var names []string
	for _, x := range l.Models {
		if x.ID == b.model || x.ID == b.model+":latest" {
			return m, nil
		}
		names = append(names, x.ID)
	}
	return infer.Model{}, &infer.MissingError{What: fmt.Sprintf("the server at %s has no model %q", b.base, b.model),
		Fix: "it has: " + strings.Join(names, ", ")}
}

// Render returns infer.ErrUnsupported: the API does not show prompts.
func (b *Backend) Render(context.Context, infer.Prompt) (string, error) {
	return "", fmt.Errorf("openai: rendering a prompt: %w", infer.ErrUnsupported)
}

// Close does nothing.
func (b *Backend) Close() error { return nil }

// Embed returns one embedding a text.
func (b *Backend) Embed(ctx context.Context, texts []string) ([][]float32, error) {
	if len(texts) == 0 {
		return nil, nil
	}
	r, err := b.client.CreateEmbeddings(ctx, api.EmbeddingRequest{Input: (*infer.Controls)(nil).BreakTexts(texts), Model: api.EmbeddingModel(b.model)})
	if err != nil {
		return nil, b.wrap("embedding texts", err)
	}
	out := make([][]float32, len(texts))
	for _, e := range r.Data {
		if e.Index >= 0 && e.Index < len(out) {
			out[e.Index] = e.Embedding
		}
	}
	for i := range out {
		if len(out[i]) == 0 {
			return nil, fmt.Errorf("openai: no embedding came back for text %d of %d", i+1, len(out))
		}
	}
	return out, nil
}

// request builds a chat request and the members that it must state.
func (b *Backend) request(ctx context.Context, p infer.Prompt, o infer.Params) (context.Context, api.ChatCompletionRequest, error) {
	req := api.ChatCompletionRequest{Model: b.model, Stop: o.Stop}
	if p.Raw != "" {
		return ctx, req, fmt.Errorf("openai: a raw prompt: %w; the server applies its template to everything", infer.ErrUnsupported)
	}
	if len(p.Messages) == 0 {
		return ctx, req, errors.New("openai: a prompt without messages")
	}
	for _, m := range (*infer.Controls)(nil).BreakAll(p.Messages) {
		req.Messages = append(req.Messages, api.ChatCompletionMessage{Role: m.Role, Content: m.Content})
	}
	topP := o.TopP
	if topP == 0 {
		topP = 1
	}
	// max_tokens is deprecated at OpenAI, and what all local servers understand.
	f := fields{"max_tokens": max(1, o.MaxTokens), "temperature": o.Temperature, "top_p": topP, "seed": o.Seed, "presence_penalty": 0, "frequency_penalty": 0}
	maps.Copy(f, b.opts.Extra)
	if p.LeadIn != "" && b.opts.ContinueFinal {
		req.Messages = append(req.Messages, api.ChatCompletionMessage{Role: infer.Assistant, Content: p.LeadIn})
		f["continue_final_message"], f["add_generation_prompt"] = true, false
	}
	return withFields(ctx, f), req, nil
}

// answer is the first choice of a completion.
type answer struct {
	text, thinking, stop string
	tokens               []api.LogProb
	usage                infer.Usage
}

func (b *Backend) complete(ctx context.Context, p infer.Prompt, o infer.Params, logprobs bool) (answer, error) {
	ctx, req, err := b.request(ctx, p, o)
	if err != nil {
		return answer{}, err
	}
	var r api.ChatCompletionResponse
	for {
		if logprobs {
			req.LogProbs, req.TopLogProbs = true, int(b.top.Load())
		}
		r, err = b.client.CreateChatCompletion(ctx, req)
		if statusOf(err) == http.StatusBadRequest && req.TopLogProbs > fewerAlternatives && strings.Contains(err.Error(), "logprobs") {
			b.top.Store(fewerAlternatives)
			continue
		}
		break
	}
	if err != nil {
		return answer{}, b.failure(p, err)
	}
	if len(r.Choices) == 0 {
		return answer{}, fmt.Errorf("openai: the server at %s sent a completion without choices", b.base)
	}
	c := r.Choices[0]
	out := answer{text: c.Message.Content, thinking: c.Message.ReasoningContent, stop: string(c.FinishReason)}
	if c.LogProbs != nil {
		out.tokens = c.LogProbs.Content
	}
	if err := checkCut(p, r.Usage.PromptTokens); err != nil {
		return answer{}, err
	}
	out.usage = usage(r.Usage)
	return out, nil
}

// usage takes the server's word for cached tokens; where it says none, all
// prompt tokens count as evaluated. Unique is an upper bound.
func usage(u api.Usage) infer.Usage {
	out := infer.Usage{Prompt: u.PromptTokens, Unique: u.PromptTokens, Evaluated: u.PromptTokens, Generated: u.CompletionTokens, Estimated: true}
	if d := u.PromptTokensDetails; d != nil {
		out.Cached = min(d.CachedTokens, u.PromptTokens)
		out.Evaluated -= out.Cached
	}
	return out
}

func pieces(p infer.Prompt) int {
	n := 0
	for _, m := range p.Messages {
		n += len(prefix.Pieces(m.Content))
	}
	return n
}

// checkCut notices a prompt of which the server read far fewer tokens than its
// text has. Tokenizers make between 0.9 and 1.5 tokens of a piece.
func checkCut(p infer.Prompt, tokens int) error {
	if n := pieces(p); tokens > 0 && n > 100 && float64(tokens) < 0.6*float64(n) {
		return fmt.Errorf("openai: the server read %d prompt tokens of a text of about %d: it cut the prompt; raise the server's context length",
			tokens, n)
	}
	return nil
}

// Chat generates one answer. A prompt with raw text is infer.ErrUnsupported.
func (b *Backend) Chat(ctx context.Context, p infer.Prompt, o infer.Params) (infer.Reply, error) {
	a, err := b.complete(ctx, p, o, false)
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
	g.SetLimit(b.opts.Parallel)
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
	o.MaxTokens, o.Stop = 1, nil
	a, err := b.complete(ctx, p, o, true)
	if err != nil {
		return infer.Choice{}, err
	}
	var top []infer.TokenLogprob
	if len(a.tokens) > 0 {
		top = alternatives(a.tokens[0])
	}
	c, err := infer.Merge(top, as)
	if err != nil {
		return c, err
	}
	c.Usage = a.usage
	hidden := a.thinking != "" || (a.text == "" && len(a.tokens) > 0 && a.usage.Generated > 0 && a.stop == string(api.FinishReasonLength))
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
func (b *Backend) afterReasoning(ctx context.Context, p infer.Prompt, first infer.Choice, inside bool, as []infer.Answer, o infer.Params) (infer.Choice, error) {
	o.MaxTokens = o.ThinkTokens
	if o.MaxTokens <= 0 {
		o.MaxTokens = 1024
	}
	a, err := b.complete(ctx, p, o, true)
	if err != nil {
		return first, err
	}
	find, state, at := reasoning.Finder{Inside: inside}, reasoning.Open, 0
	for i, t := range a.tokens {
		state, at = find.Add(t.Token), i
		if state != reasoning.Open && state != reasoning.Closed {
			break
		}
	}
	var top []infer.TokenLogprob
	switch state {
	case reasoning.Plain:
		first.Usage = again(first.Usage, a.usage)
		return first, nil
	case reasoning.Answer:
		top = alternatives(a.tokens[at])
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

func alternatives(t api.LogProb) []infer.TokenLogprob {
	out := make([]infer.TokenLogprob, 0, len(t.TopLogProbs))
	for _, a := range t.TopLogProbs {
		out = append(out, infer.TokenLogprob{Token: a.Token, Logprob: a.LogProb})
	}
	return out
}

func statusOf(err error) int {
	var a *api.APIError
	var r *api.RequestError
	switch {
	case errors.As(err, &r): // may hold an APIError without a status
		return r.HTTPStatusCode
	case errors.As(err, &a):
		return a.HTTPStatusCode
	}
	return 0
}

// have and need as vLLM writes them, and as others do.
var (
	haveTokens = regexp.MustCompile(`(?:context length is|context size \(|n_ctx["\s:=]+)\s*(\d+)`)
	needTokens = regexp.MustCompile(`(?:requested|prompt contains|request \(|n_prompt_tokens["\s:=]+)\s*(?:at least )?(\d+)`)
)

// failure names a prompt that was too long, and wraps everything else.
func (b *Backend) failure(p infer.Prompt, err error) error {
	text := strings.ToLower(err.Error())
	tooLong := strings.Contains(text, "context length") || strings.Contains(text, "context size") || strings.Contains(text, "context_length")
	if code := statusOf(err); !tooLong || (code != http.StatusBadRequest && code != http.StatusRequestEntityTooLarge) {
		return b.wrap("asking "+b.model, err)
	}
	e := &infer.ContextError{Have: number(haveTokens, text), Need: number(needTokens, text)}
	if e.Need == 0 {
		e.Need, e.About = max(pieces(p), e.Have)+1, true
	}
	return e
}

func number(re *regexp.Regexp, text string) int {
	m := re.FindStringSubmatch(text)
	if m == nil {
		return 0
	}
	n, err := strconv.Atoi(m[1])
	if err != nil {
		return 0
	}
	return n
}

func (b *Backend) wrap(doing string, err error) error {
	code := statusOf(err)
	var a *api.APIError
	var r *api.RequestError
	switch {
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("openai: %s: %w", doing, err)
	case code == 0 && infer.IsConnection(err):
		return &infer.MissingError{What: "no server answers at " + b.base,
			Fix: "start it, or name another with --host", Err: err}
	case code == 0:
		return fmt.Errorf("openai: %s: %w", doing, err)
	}
	s := &infer.StatusError{Code: code, Message: err.Error()}
	if errors.As(err, &r) && len(r.Body) > 0 {
		s.Message = strings.TrimSpace(string(r.Body))
	} else if errors.As(err, &a) && a.Message != "" {
		s.Message = a.Message
	}
	if code == http.StatusNotFound && strings.Contains(s.Message, b.model) {
		return &infer.MissingError{What: fmt.Sprintf("the server at %s has no model %q", b.base, b.model),
			Fix: "name one that it serves (GET " + b.base + "/models)", Err: s}
	}
	return fmt.Errorf("openai: %s: %w", doing, s)
}
