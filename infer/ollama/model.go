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

func (b *Backend) show(ctx context.Context) (*about, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.about != nil {
		return b.about, nil
	}
	s, err := b.client.Show(ctx, &api.ShowRequest{Model: b.model})
	if err != nil {
		return nil, b.wrap("looking up "+b.model, err)
	}
	version, err := b.client.Version(ctx)
	if err != nil {
		return nil, b.wrap("asking for the server's version", err)
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
	b.about = &about{model: m, stop: stopTexts(s.Parameters)}
	return b.about, nil
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
	l, err := b.client.List(ctx)
	if err != nil {
		return "", b.wrap("listing models", err)
	}
	for _, m := range l.Models {
		if strings.EqualFold(m.Name, b.model) || strings.EqualFold(m.Name, b.model+":latest") {
			return "sha256:" + strings.TrimPrefix(m.Digest, "sha256:"), nil
		}
	}
	return "", fmt.Errorf("ollama: the server at %s shows %q and does not list it", b.host, b.model)
}

func client(host string) (*api.Client, string, error) {
	u, err := baseURL(host)
	if err != nil {
		return nil, "", err
	}
	return api.NewClient(u, http.DefaultClient), u.String(), nil
}

// Version returns the version of the server at host, and *infer.MissingError
// when none answers.
func Version(ctx context.Context, host string) (string, error) {
	c, at, err := client(host)
	if err != nil {
		return "", err
	}
	v, err := c.Version(ctx)
	return v, wrap(at, "", "asking for the server's version", err)
}

// Models lists the models on the server at host.
func Models(ctx context.Context, host string) ([]infer.Model, error) {
	c, at, err := client(host)
	if err != nil {
		return nil, err
	}
	l, err := c.List(ctx)
	if err != nil {
		return nil, wrap(at, "", "listing models", err)
	}
	out := make([]infer.Model, len(l.Models))
	for i, m := range l.Models {
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
	c, at, err := client(host)
	if err != nil {
		return nil, err
	}
	l, err := c.ListRunning(ctx)
	if err != nil {
		return nil, wrap(at, "", "listing loaded models", err)
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
	return Unload(ctx, b.host, model)
}

// Unload makes the server at host drop a model from memory.
func Unload(ctx context.Context, host, model string) error {
	c, at, err := client(host)
	if err != nil {
		return err
	}
	no := false
	err = c.Generate(ctx, &api.GenerateRequest{Model: model, Stream: &no, KeepAlive: &api.Duration{}},
		func(api.GenerateResponse) error { return nil })
	return wrap(at, model, "unloading "+model, err)
}

// Create gives the server at host the GGUF file as a model of the name, with the
// chat template in the file. A model of that name is replaced.
func Create(ctx context.Context, host, name, gguf string) error {
	_, err := CreateLike(ctx, host, name, gguf, "")
	return err
}
