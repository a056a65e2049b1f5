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
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	api "github.com/sashabaranov/go-openai"

	"github.com/ccmed/ccmed/infer"
	"github.com/ccmed/ccmed/infer/internal/transport"
)

// Options configure a Backend; the zero value means the defaults.
type Options struct {
	// HTTP carries the requests; nil means a client of the backend's own.
	HTTP *http.Client
	// Retry says how long a request is waited for and made again.
	Retry infer.RetryPolicy
	// TopLogprobs is the number of alternatives asked for; 0 means 20. A server
	// that refuses it is asked for 5 from then on.
	TopLogprobs int
	// ContinueFinal sends a lead-in as the start of the assistant's message, with
	// vLLM's continue_final_message. Without it lead-ins are dropped, since most
	// servers would close that message and begin a new one.
	ContinueFinal bool
	// Parallel is the number of requests in flight at a time; 0 means 1.
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
	client   *api.Client
	requests *transport.Client // carries the client's
	base     string
	model    string
	opts     Options
	places   chan struct{} // one for each request in flight

	top   atomic.Int64 // alternatives asked for
	least atomic.Int64 // alternatives that the server is known to return
	// What the server has given before, its answers must hold from then on.
	gaveLogprobs, gaveUsage atomic.Bool

	mu    sync.Mutex
	names []string // by which the server may call the model, beside its own; nil until asked
}

var _ infer.Backend = (*Backend)(nil)

// New returns a backend for a model of the server at baseURL, which includes
// "/v1". The key may be empty. It makes no request.
func New(baseURL, model, apiKey string, o Options) (*Backend, error) {
	u, err := url.Parse(strings.TrimRight(baseURL, "/"))
	if err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https") {
		return nil, fmt.Errorf("openai: %q is not the address of a server; write it like http://127.0.0.1:8000/v1", infer.Redact(baseURL))
	}
	if strings.TrimSpace(model) == "" {
		return nil, errors.New("openai: no model named")
	}
	if o.TopLogprobs == 0 {
		o.TopLogprobs = 20
	}
	if o.Retry.Notify == nil {
		o.Retry.Notify = func(string) {}
	}
	requests := transport.New(transport.Config{Base: o.HTTP, Server: u, Name: "server",
		Fix: "start it, or name another with --host", Policy: o.Retry})
	hc := *requests.HTTP
	hc.Transport = explicit{keeping{hc.Transport}}
	c := api.DefaultConfig(apiKey)
	c.BaseURL, c.HTTPClient = u.String(), &hc
	b := &Backend{client: api.NewClientWithConfig(c), requests: requests, base: u.String(), model: model, opts: o,
		places: make(chan struct{}, max(1, o.Parallel))}
	b.top.Store(int64(o.TopLogprobs))
	b.least.Store(int64(o.TopLogprobs))
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
	l, err := b.list(ctx)
	if err != nil {
		return infer.Model{}, err
	}
	var ids []string
	for _, x := range l {
		if x.is(b.model) {
			return m, nil
		}
		ids = append(ids, x.ID)
	}
	if l == nil {
		return m, nil // not every server lists its models
	}
	return infer.Model{}, &infer.MissingError{What: fmt.Sprintf("the server at %s has no model %q", infer.Redact(b.base), b.model),
		Fix: "it has: " + strings.Join(ids, ", ")}
}

// served is a model in a server's list.
type served struct {
	ID      string   `json:"id"`
	Root    string   `json:"root"`    // of vLLM: the path of the weights, the same for all names that it serves them under
	Aliases []string `json:"aliases"` // of llama-server
}

func (s served) is(model string) bool {
	return sameName(s.ID, model) || slices.Contains(s.Aliases, model)
}

// sameName compares names as servers do: Ollama completes one by ":latest".
func sameName(a, b string) bool {
	return strings.EqualFold(strings.TrimSuffix(a, ":latest"), strings.TrimSuffix(b, ":latest"))
}

// list returns the server's models, nil where it does not list them.
func (b *Backend) list(ctx context.Context) ([]served, error) {
	ask := func(ctx context.Context) error {
		_, err := b.client.ListModels(ctx)
		return err
	}
	l, err := send(ctx, b, ask, func(l *struct{ Data []served }) error {
		if l.Data == nil {
			return &infer.BrokenError{What: "the server's list of models has no data"}
		}
		return nil
	})
	var status *infer.StatusError
	if errors.As(err, &status) && (status.Code == http.StatusNotFound || status.Code == http.StatusMethodNotAllowed) {
		l, err = new(struct{ Data []served }), nil
	}
	if err != nil {
		return nil, b.wrap("listing models", err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.names = []string{}
	for _, x := range l.Data {
		if !x.is(b.model) {
			continue
		}
		for _, y := range l.Data {
			if y.ID == x.ID || x.Root != "" && y.Root == x.Root {
				b.names = append(append(b.names, y.ID), y.Aliases...)
			}
		}
	}
	return l.Data, nil
}

// checkModel compares the name in an answer with that of the model asked. Servers
// may use another name that they list for the same weights (vLLM answers by the
// first of its --served-model-name, llama-server by its first --alias) and the
// date of a version after the name (OpenAI). An answer without a name passes.
func (b *Backend) checkModel(ctx context.Context, name string) error {
	dated, isDated := strings.CutPrefix(name, b.model+"-")
	if name == "" || sameName(name, b.model) || isDated && strings.Trim(dated, "0123456789-") == "" {
		return nil
	}
	b.mu.Lock()
	names := b.names
	b.mu.Unlock()
	if names == nil {
		if _, err := b.list(ctx); err != nil {
			return err
		}
		b.mu.Lock()
		names = b.names
		b.mu.Unlock()
	}
	if slices.Contains(names, name) {
		return nil
	}
	return &infer.BrokenError{What: fmt.Sprintf("the answer is one of the model %q, and %q was asked; if the server calls it so, name it with --model",
		name, b.model)}
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
	type embeddings struct {
		Model string
		Data  []struct {
			Index     int
			Embedding []*float32
		}
	}
	out := make([][]float32, len(texts))
	req := api.EmbeddingRequest{Input: (*infer.Controls)(nil).BreakTexts(texts), Model: api.EmbeddingModel(b.model)}
	ask := func(ctx context.Context) error {
		_, err := b.client.CreateEmbeddings(ctx, req)
		return err
	}
	_, err := send(ctx, b, ask, func(r *embeddings) error {
		clear(out)
		for _, e := range r.Data {
			if e.Index < 0 || e.Index >= len(out) {
				continue
			}
			out[e.Index] = make([]float32, len(e.Embedding))
			for i, x := range e.Embedding {
				if x == nil {
					return &infer.BrokenError{What: fmt.Sprintf("the server's embedding of text %d holds a null", e.Index+1)}
				}
				out[e.Index][i] = *x
			}
		}
		for i, v := range out {
			if len(v) == 0 || len(v) != len(out[0]) {
				return &infer.BrokenError{What: fmt.Sprintf("the server's answer has no embedding, or one of another length, for text %d of %d",
					i+1, len(out))}
			}
		}
		return b.checkModel(ctx, r.Model)
	})
	if err != nil {
		return nil, b.wrap("embedding texts", err)
	}
	return out, nil
}
