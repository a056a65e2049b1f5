// Package ollama asks models that an Ollama server holds, through its own API.
//
//	b, err := ollama.New("127.0.0.1:11434", "llama3.1:8b", ollama.Options{})
//	choices, err := b.Choose(ctx, prompts, infer.Words("yes", "no"), infer.Params{NumCtx: 4096})
//
// Ollama has defaults that change numbers in silence: it samples with penalties
// and cut-offs, cuts a prompt that is too long and answers it, and lets a model
// reason. Every request therefore states every option, forbids cutting
// (truncate and shift are false) and asks for no reasoning. The facts about the
// server in this package's comments are those of version 0.17.4.
package ollama

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ollama/ollama/api"

	"github.com/ccmed/ccmed/infer"
	"github.com/ccmed/ccmed/infer/internal/prefix"
)

// DefaultNumCtx is the context length where neither Options nor Params say one.
const DefaultNumCtx = 4096

// Options configure a Backend; the zero value means the defaults.
type Options struct {
	// HTTP carries the requests; nil means a client of the backend's own.
	HTTP *http.Client
	// Retry says how long a request is waited for and made again.
	Retry infer.RetryPolicy
	// NumCtx is the context length in tokens for what has no Params: Render and
	// Embed before the first other request. 0 means DefaultNumCtx.
	NumCtx int
	// Tokenize returns the tokens of a rendered prompt as the server's runner
	// reads it, the beginning-of-text token included where the model adds one.
	// With it all counts but Evaluated are exact and every prompt's count is
	// checked against the server's; without it they are estimated from the text.
	Tokenize func(ctx context.Context, rendered string) ([]int32, error)
	// Controls are the vocabulary's control tokens, which the server would take
	// for such within a message; they are broken there. nil means those of common
	// model families.
	Controls *infer.Controls
	// KeepAlive is how long the server holds the model after a request; 0 means
	// the server's own setting, a negative value for ever.
	KeepAlive time.Duration
	// Parallel is the number of requests in flight at a time, which must be at
	// most the server's OLLAMA_NUM_PARALLEL: its slots are that number's prompt
	// caches, and a second caller on one slot spoils the first one's. 0 means 1.
	Parallel int
	// Slots is how many prompts the server keeps, its OLLAMA_NUM_PARALLEL; less than
	// Parallel means Parallel.
	Slots int
}

// Backend is one model on one Ollama server. It is safe for concurrent use: a
// call to Choose holds one of Options.Parallel places until all its prompts are
// answered, so that they follow one another in the server's prompt cache.
type Backend struct {
	server *server
	model  string
	opts   Options
	numCtx atomic.Int64 // of the first request; all later ones must have it
	places chan struct{}
	slots  slots

	mu    sync.Mutex
	about *about // of the model; nil until asked

	most           atomic.Int64 // alternatives that the server is known to return
	sound, unsound atomic.Bool  // log-probabilities that can be used were seen; they were asked for in vain
}

var (
	_ infer.Backend      = (*Backend)(nil)
	_ infer.TokenCounter = (*Backend)(nil)
)

// New returns a backend for a model on the server at host ("127.0.0.1:11434",
// "http://gpu-box:11434", "" for the default address). It makes no request.
func New(host, model string, o Options) (*Backend, error) {
	if strings.TrimSpace(model) == "" {
		return nil, errors.New("ollama: no model named")
	}
	at, err := dial(host, o.HTTP, o.Retry)
	if err != nil {
		return nil, err
	}
	if o.NumCtx == 0 {
		o.NumCtx = DefaultNumCtx
	}
	o.Parallel = max(1, o.Parallel)
	b := &Backend{server: at, model: model, opts: o, places: make(chan struct{}, o.Parallel), slots: newSlots(max(o.Parallel, o.Slots))}
	b.most.Store(maxAlternatives)
	return b, nil
}

// baseURL completes a host as OLLAMA_HOST is written. 0.0.0.0 is where a server
// listens, not where it is reached.
func baseURL(host string) (*url.URL, error) {
	host = strings.TrimSpace(host)
	if host == "" {
		host = "127.0.0.1"
	}
	port := "11434"
	if !strings.Contains(host, "://") {
		host = "http://" + host
	} else if strings.HasPrefix(host, "https://") {
		port = "443"
	} else {
		port = "80"
	}
	u, err := url.Parse(host)
	if err != nil || u.Hostname() == "" {
		return nil, fmt.Errorf("ollama: %q is not an address of a server; write it like 127.0.0.1:11434", infer.Redact(host))
	}
	name := u.Hostname()
	if ip := net.ParseIP(name); ip != nil && ip.IsUnspecified() {
		name = "127.0.0.1"
	}
	if u.Port() != "" {
		port = u.Port()
	}
	u.Host = net.JoinHostPort(name, port)
	return u, nil
}

// freeze settles the context length of a request. A change would make the
// server reload the model, so that it is refused.
func (b *Backend) freeze(o infer.Params) (int, error) {
	n := int64(o.NumCtx)
	if n == 0 {
		n = int64(b.opts.NumCtx)
	}
	if b.numCtx.CompareAndSwap(0, n) || b.numCtx.Load() == n {
		return int(n), nil
	}
	return 0, fmt.Errorf("ollama: num_ctx %d after requests with %d: the server reloads the model at every change; use one value for the whole run",
		n, b.numCtx.Load())
}

// settled is the context length for what has no Params.
func (b *Backend) settled() int {
	if n := b.numCtx.Load(); n != 0 {
		return int(n)
	}
	return b.opts.NumCtx
}

// options states every parameter. Ollama's own defaults are temperature 0.8,
// top_k 40, top_p 0.9, repeat_penalty 1.1 over 64 tokens, seed -1 (random) and
// num_predict -1 (endless). It is a map because api.Options drops zeros.
func options(o infer.Params, numCtx, predict int, stop []string) map[string]any {
	topP := o.TopP
	if topP == 0 {
		topP = 1
	}
	if stop == nil {
		stop = []string{}
	}
	return map[string]any{
		"num_ctx":           numCtx,
		"num_predict":       max(1, predict), // 0 generates without a limit
		"temperature":       o.Temperature,
		"top_p":             topP,
		"top_k":             0,
		"min_p":             0.0,
		"typical_p":         1.0,
		"repeat_penalty":    1.0,
		"repeat_last_n":     0,
		"presence_penalty":  0.0,
		"frequency_penalty": 0.0,
		"seed":              o.Seed,
		"stop":              stop,
	}
}

func (b *Backend) keepAlive() *api.Duration {
	if b.opts.KeepAlive == 0 {
		return nil
	}
	return &api.Duration{Duration: b.opts.KeepAlive}
}

// begin waits for a place; the call must be ended.
func (b *Backend) begin(ctx context.Context) (*call, error) {
	select {
	case b.places <- struct{}{}:
		return &call{at: time.Now()}, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (b *Backend) end(c *call) {
	b.slots.end(c)
	<-b.places
}

// units returns the tokens of a rendered prompt, or pieces of about that number.
func (b *Backend) units(ctx context.Context, rendered string) ([]int32, error) {
	if b.opts.Tokenize == nil {
		return prefix.Pieces(rendered), nil
	}
	t, err := b.opts.Tokenize(ctx, rendered)
	if err != nil {
		return nil, fmt.Errorf("ollama: counting the tokens of a prompt: %w", err)
	}
	return t, nil
}

// CountTokens returns the number of tokens of a rendered prompt, or
// infer.ErrUnsupported without Options.Tokenize.
func (b *Backend) CountTokens(ctx context.Context, rendered string) (int, error) {
	if b.opts.Tokenize == nil {
		return 0, infer.ErrUnsupported
	}
	t, err := b.units(ctx, rendered)
	return len(t), err
}

// Embed returns one embedding of unit length a text. A text that is longer than
// the model's context is an error, never cut.
func (b *Backend) Embed(ctx context.Context, texts []string) ([][]float32, error) {
	if len(texts) == 0 {
		return nil, nil
	}
	no := false
	body := &api.EmbedRequest{
		Model: b.model, Input: b.opts.Controls.BreakTexts(texts), Truncate: &no, KeepAlive: b.keepAlive(),
		Options: map[string]any{"num_ctx": b.settled()},
	}
	var out [][]float32
	_, err := get(ctx, b.server, http.MethodPost, "/api/embed", body, func(r *embeddings) (err error) {
		if out, err = r.vectors(len(texts)); err == nil && !sameModel(r.Model, b.model) {
			err = broken("the embeddings are of the model %q, and %q was asked", r.Model, b.model)
		}
		return err
	})
	return out, b.wrap("embedding texts", err)
}

// embeddings is the answer to /api/embed.
type embeddings struct {
	Model      string       `json:"model"`
	Embeddings [][]*float32 `json:"embeddings"` // null is no zero
}

// vectors returns the embeddings of n texts: of one width, and none of them null.
func (e *embeddings) vectors(n int) ([][]float32, error) {
	if len(e.Embeddings) != n {
		return nil, broken("%d embeddings came back for %d texts", len(e.Embeddings), n)
	}
	out := make([][]float32, n)
	for i, v := range e.Embeddings {
		if len(v) == 0 || len(v) != len(e.Embeddings[0]) {
			return nil, broken("the embedding of text %d has %d numbers, and that of the first one %d", i+1, len(v), len(e.Embeddings[0]))
		}
		length := 0.0
		for j, x := range v {
			if x == nil {
				return nil, broken("number %d of the embedding of text %d is null", j+1, i+1)
			}
			out[i] = append(out[i], *x)
			length += float64(*x) * float64(*x)
		}
		if length == 0 {
			return nil, broken("the embedding of text %d is zero throughout", i+1)
		}
	}
	return out, nil
}

// Close does nothing: the server holds the model, see Unload.
func (b *Backend) Close() error { return nil }

func (b *Backend) wrap(doing string, err error) error { return b.server.wrap(b.model, doing, err) }
