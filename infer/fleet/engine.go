package fleet

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/ccmed/ccmed/bench/usage"
	"github.com/ccmed/ccmed/infer"
	"github.com/ccmed/ccmed/infer/llamacpp"
	"github.com/ccmed/ccmed/infer/ollama"
)

// useTemplate reads --chat-template, which GGUF files alone can have: a server
// renders with its own.
func (f *Fleet) useTemplate() (err error) {
	if f.flags.ChatTemplate == "" {
		return nil
	}
	if !slices.ContainsFunc(slices.Collect(maps.Values(f.roles)), spec.isFile) {
		return usage.Errorf("--chat-template is for GGUF files in the embedded engine, and no model here is one; a server renders with the template that it holds " +
			"(Ollama: TEMPLATE in a Modelfile)")
	}
	f.template, err = llamacpp.ChatTemplate(f.flags.ChatTemplate)
	return err
}

// isFile reports whether the engine opens a GGUF file that the user named.
func (s spec) isFile() bool {
	return s.backend == "embedded" && strings.EqualFold(filepath.Ext(s.model), ".gguf")
}

func (f *Fleet) openEmbedded(ctx context.Context, s spec) (infer.Backend, error) {
	o := llamacpp.Options{ModelPath: s.model, Name: strings.TrimSuffix(filepath.Base(s.model), filepath.Ext(s.model)),
		GPULayers: f.flags.GPULayers, Threads: f.flags.Threads, NumCtx: f.flags.NumCtx, ChatTemplate: f.template, Paths: f.pathsOf(s)}
	main, err := f.flags.parse(f.flags.Model)
	o.KeepTemplate = err == nil && s.plain() != main // the other roles' files keep their own
	if !s.isFile() {
		// A name of Ollama's: the same weights and the server's own rendering.
		server, err := ollama.New(f.flags.OllamaHosts(f.env.Getenv)[0], s.model, ollama.Options{Retry: f.policy()})
		if err != nil {
			return nil, err
		}
		m, err := server.Model(ctx)
		if err != nil {
			return nil, fmt.Errorf("ask Ollama where %s lies (or give a GGUF file): %w", s.model, err)
		}
		if m.Path == "" {
			return nil, fmt.Errorf("the weights of %s are not readable on this machine; give a GGUF file, or --backend ollama", s.model)
		}
		o.ModelPath, o.Name, o.Digest, o.TemplateHash = m.Path, s.model, m.Digest, m.TemplateHash
		if err := f.MakeRoom(ctx); err != nil {
			return nil, err
		}
		// The prompt is the server's to the letter, with control tokens broken as
		// it gets them itself.
		o.Render = func(ctx context.Context, ms []infer.Message) (string, error) {
			return server.Render(ctx, infer.Prompt{Messages: ms})
		}
		v, err := f.vocab(ctx, m.Path)
		if err != nil {
			return nil, err
		}
		if server, err = ollama.New(f.flags.OllamaHosts(f.env.Getenv)[0], s.model, ollama.Options{Controls: v.Controls(), Retry: f.policy()}); err != nil {
			return nil, err
		}
	}
	e, err := llamacpp.Open(ctx, o)
	if err != nil {
		return nil, err
	}
	if whose, foreign := e.Template(); whose == "given" && foreign != "" {
		f.env.Note("the chat template writes %s, which is no control token of %s: the model reads it as text", foreign, o.Name)
	}
	return e, nil
}

// MakeRoom frees the GPU where the engine is about to use one.
func (f *Fleet) MakeRoom(ctx context.Context) error {
	if info, err := llamacpp.Load(""); err != nil || !info.GPU {
		return nil // a library that cannot be loaded is reported when the model is opened
	}
	return f.freeGPU(ctx)
}

// freeGPU unloads models that Ollama holds on the GPU before the engine loads
// one there: two of them seldom fit.
func (f *Fleet) freeGPU(ctx context.Context) error {
	if f.flags.GPULayers == 0 {
		return nil
	}
	host := f.flags.OllamaHosts(f.env.Getenv)[0]
	loaded, err := ollama.Loaded(ctx, host)
	if err != nil {
		return nil // no server, nothing held
	}
	for _, m := range loaded {
		if m.VRAM == 0 {
			continue
		}
		f.env.Note("unloading %s from Ollama: it holds %.1f GB of GPU memory that the embedded engine needs", m.Name, float64(m.VRAM)/1e9)
		if err := ollama.Unload(ctx, host, m.Name); err != nil {
			return fmt.Errorf("unload %s from Ollama: %w", m.Name, err)
		}
	}
	return nil
}

func (f *Fleet) vocab(ctx context.Context, path string) (*llamacpp.Vocab, error) {
	if path == "" {
		return nil, errors.New("the weights are not readable on this machine")
	}
	if v, ok := f.vocabs[path]; ok {
		return v, nil
	}
	v, err := llamacpp.OpenVocab(ctx, path, "")
	if err != nil {
		return nil, err
	}
	f.vocabs[path] = v
	return v, nil
}

// MakeRoom frees the GPU for an engine that is opened with these flags.
func MakeRoom(ctx context.Context, env Env, m *Flags) error {
	return (&Fleet{env: env, flags: m}).MakeRoom(ctx)
}
