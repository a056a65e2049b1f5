package ollama

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ollama/ollama/api"

	"github.com/ccmed/ccmed/infer"
)

// about is what the server tells of the model.
type about struct {
	model infer.Model
	stop  []string // the model's own stop texts
}

// Model identifies the model. Its digest is that of the weights' file, which the
// embedded engine can compare with the file it reads; with an adapter, or where
// the server does not name the file, that of Ollama's manifest. TemplateHash
// covers all that shapes a rendered prompt: template, system text, built-in
// messages, renderer and parser. Path is set when the file can be read here.
func (b *Backend) Model(ctx context.Context) (infer.Model, error) {
	a, err := b.show(ctx)
	if err != nil {
		return infer.Model{}, err
	}
	return a.model, nil
}

// Refresh asks the server anew what Model returns: weights that were replaced
// since then have another digest.
func (b *Backend) Refresh(ctx context.Context) (infer.Model, error) {
	a, err := b.ask(ctx)
	if err != nil {
		return infer.Model{}, err
	}
	return a.model, nil
}

func (b *Backend) show(ctx context.Context) (*about, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.about != nil {
		return b.about, nil
	}
	a, err := b.ask(ctx)
	if err == nil {
		b.about = a
	}
	return a, err
}

// shown asks the server for what it tells of a model.
func (s *server) shown(ctx context.Context, model string) (*api.ShowResponse, error) {
	r, err := get(ctx, s, http.MethodPost, "/api/show", &api.ShowRequest{Model: model}, func(r *api.ShowResponse) error {
		if r.RemoteHost != "" {
			return elsewhere(model, r.RemoteHost)
		}
		if from, _ := weights(r.Modelfile); from == "" {
			return broken("the server does not say which weights the model %q has", model)
		}
		return nil
	})
	return r, s.wrap(model, "looking up "+model, err)
}

func (s *server) version(ctx context.Context) (string, error) {
	v, err := get(ctx, s, http.MethodGet, "/api/version", nil, func(v *struct{ Version string }) error {
		if v.Version == "" {
			return broken("the server does not say its version")
		}
		return nil
	})
	if err != nil {
		return "", s.wrap("", "asking for the server's version", err)
	}
	return v.Version, nil
}

func (s *server) list(ctx context.Context) ([]api.ListModelResponse, error) {
	l, err := get(ctx, s, http.MethodGet, "/api/tags", nil, func(l *api.ListResponse) error {
		if l.Models == nil {
			return broken("the server's answer has no list of models")
		}
		return nil
	})
	if err != nil {
		return nil, s.wrap("", "listing models", err)
	}
	return l.Models, nil
}

func (b *Backend) ask(ctx context.Context) (*about, error) {
	s, err := b.server.shown(ctx, b.model)
	if err != nil {
		return nil, err
	}
	version, err := b.server.version(ctx)
	if err != nil {
		return nil, err
	}
	m := infer.Model{
		Backend: "ollama", Name: b.model, Quantization: s.Details.QuantizationLevel,
		Family: s.Details.Family, Parameters: s.Details.ParameterSize, Server: version,
		TemplateHash: templateHash(s),
	}
	m.Architecture, _ = s.ModelInfo["general.architecture"].(string)
	if n, ok := s.ModelInfo[m.Architecture+".context_length"].(float64); ok {
		m.ContextTrain = int(n)
	}
	blob, adapted := weights(s.Modelfile)
	if _, hash, ok := strings.Cut(filepath.Base(strings.ReplaceAll(blob, `\`, "/")), "sha256-"); ok && !adapted {
		m.Digest = "sha256:" + hash
	} else if m.Digest, err = b.manifestDigest(ctx); err != nil {
		return nil, err
	}
	if f, err := os.Open(blob); err == nil {
		m.Path = blob
		f.Close()
	}
	return &about{model: m, stop: stopTexts(s.Parameters)}, nil
}

func templateHash(s *api.ShowResponse) string {
	h := sha256.New()
	for _, part := range []string{s.Template, s.System, s.Renderer, s.Parser} {
		fmt.Fprintf(h, "%d:%s", len(part), part)
	}
	for _, m := range s.Messages {
		fmt.Fprintf(h, "%q%q", m.Role, m.Content)
	}
	return "sha256:" + hex.EncodeToString(h.Sum(nil))
}

// weights returns the path in a Modelfile's first FROM line, and whether an
// adapter changes the weights.
func weights(modelfile string) (path string, adapted bool) {
	for line := range strings.Lines(modelfile) {
		if p, ok := strings.CutPrefix(line, "FROM "); ok && path == "" {
			path = strings.TrimSpace(p)
		}
		adapted = adapted || strings.HasPrefix(line, "ADAPTER ")
	}
	return path, adapted
}

// stopTexts reads the stop lines of a model's parameters, which the server
// writes as Go strings.
func stopTexts(parameters string) []string {
	var out []string
	for line := range strings.Lines(parameters) {
		if v, ok := strings.CutPrefix(line, "stop "); ok {
			if s, err := strconv.Unquote(strings.TrimSpace(v)); err == nil {
				out = append(out, s)
			}
		}
	}
	slices.Sort(out) // the server lists parameters in random order
	return slices.Compact(out)
}

func (b *Backend) manifestDigest(ctx context.Context) (string, error) {
	l, err := b.server.list(ctx)
	if err != nil {
		return "", err
	}
	for _, m := range l {
		if sameModel(m.Name, b.model) && m.Digest != "" {
			return "sha256:" + strings.TrimPrefix(m.Digest, "sha256:"), nil
		}
	}
	return "", fmt.Errorf("ollama: the server at %s shows %q and does not list it", b.server, b.model)
}

// quick is the policy of single questions, whose answers someone waits for.
var quick = infer.RetryPolicy{Patience: 5 * time.Second}

// Version returns the version of the server at host, and *infer.MissingError
// when none answers.
func Version(ctx context.Context, host string) (string, error) {
	s, err := dial(host, nil, quick)
	if err != nil {
		return "", err
	}
	return s.version(ctx)
}

// Models lists the models on the server at host.
func Models(ctx context.Context, host string) ([]infer.Model, error) {
	s, err := dial(host, nil, quick)
	if err != nil {
		return nil, err
	}
	l, err := s.list(ctx)
	if err != nil {
		return nil, err
	}
	out := make([]infer.Model, len(l))
	for i, m := range l {
		out[i] = infer.Model{Backend: "ollama", Name: m.Name, Quantization: m.Details.QuantizationLevel,
			Family: m.Details.Family, Parameters: m.Details.ParameterSize}
	}
	return out, nil
}

// LoadedModel is a model that a server holds in memory.
type LoadedModel struct {
	Name    string
	Size    int64 // bytes in all
	VRAM    int64 // bytes of these on GPUs
	NumCtx  int   // tokens
	Expires time.Time
}

// Loaded lists the models that the server at host holds in memory.
func Loaded(ctx context.Context, host string) ([]LoadedModel, error) {
	s, err := dial(host, nil, quick)
	if err != nil {
		return nil, err
	}
	l, err := get(ctx, s, http.MethodGet, "/api/ps", nil, func(l *api.ProcessResponse) error {
		if l.Models == nil {
			return broken("the server's answer has no list of models")
		}
		return nil
	})
	if err != nil {
		return nil, s.wrap("", "listing loaded models", err)
	}
	out := make([]LoadedModel, len(l.Models))
	for i, m := range l.Models {
		out[i] = LoadedModel{m.Name, m.Size, m.SizeVRAM, m.ContextLength, m.ExpiresAt}
	}
	return out, nil
}

// Unload makes the backend's server drop a model from memory (keep_alive 0); the
// backend's own one when model is empty.
func (b *Backend) Unload(ctx context.Context, model string) error {
	if model == "" {
		model = b.model
	}
	return b.server.unload(ctx, model)
}

// Unload makes the server at host drop a model from memory.
func Unload(ctx context.Context, host, model string) error {
	s, err := dial(host, nil, quick)
	if err != nil {
		return err
	}
	return s.unload(ctx, model)
}

func (s *server) unload(ctx context.Context, model string) error {
	no := false
	_, err := get(ctx, s, http.MethodPost, "/api/generate", &api.GenerateRequest{Model: model, Stream: &no, KeepAlive: &api.Duration{}},
		func(r *api.GenerateResponse) error {
			if !r.Done {
				return broken("the server does not say that it unloaded %s", model)
			}
			return nil
		})
	return s.wrap(model, "unloading "+model, err)
}
