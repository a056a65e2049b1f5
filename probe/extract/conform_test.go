package extract

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ccmed/ccmed/bench/dialogue"
	"github.com/ccmed/ccmed/bench/prompt"
	"github.com/ccmed/ccmed/bench/run"
	"github.com/ccmed/ccmed/bench/task"
	"github.com/ccmed/ccmed/bench/task/tasktest"
	"github.com/ccmed/ccmed/infer"
	"github.com/ccmed/ccmed/infer/infertest"
	"github.com/ccmed/ccmed/probe"
	"github.com/ccmed/ccmed/probe/activation"
)

// reader stands in for a model: a token is a byte, and a state says which layer, which
// position and which token it belongs to.
type reader struct{}

func (reader) Layers() []string { return infer.LayerNames(1) }
func (reader) Width() int       { return 3 }

func (reader) Tokenize(text string) ([]int32, error) {
	var out []int32
	for _, b := range []byte(text) {
		out = append(out, int32(b))
	}
	return out, nil
}

func (reader) States(_ context.Context, seqs []infer.Sequence, layers []string, row func(seq, pos, layer int, x []float32) error) error {
	for i, s := range seqs {
		for _, at := range s.At {
			for l := range layers {
				if err := row(i, at, l, []float32{float32(l), float32(at), float32(s.Tokens[at])}); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

func TestConforms(t *testing.T) {
	set, err := prompt.Load("")
	if err != nil {
		t.Fatal(err)
	}
	render := func(_ context.Context, p infer.Prompt) (string, error) {
		var b strings.Builder
		for _, m := range p.Messages {
			b.WriteString(m.Role + ": " + m.Content + "\n")
		}
		return b.String(), nil
	}
	m := infer.Model{Name: "bytes", Digest: "sha256:00"}
	x := &probe.Extraction{Reader: reader{}, EndOfTurn: 1, Prompts: set, Pairs: []probe.Pair{{Context: probe.ContextND, Text: probe.TextOwnND}}, DType: activation.F32, Model: m, Render: render,
		Tokens: func(ctx context.Context, p infer.Prompt, said string) ([]int32, error) {
			text, err := render(ctx, p)
			if err != nil {
				return nil, err
			}
			return reader{}.Tokenize(text + said)
		}}
	ds := dialogue.Sample()[:3]
	x.Use(ds)
	store := filepath.Join(t.TempDir(), "store")
	id := run.Identity{Task: TaskName, Seed: 1, Items: task.Keys(ds), DataHash: dialogue.Hash(ds), Models: map[string]infer.Model{role: m}, Options: map[string]any{"data": task.EmbeddedSample}}
	d, err := run.Create(store, id, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := x.Open(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	defer x.Close()
	workers := func(context.Context, string) ([]infer.Backend, error) {
		return []infer.Backend{&infertest.Scripted{}}, nil
	}
	if _, err := x.Task().Execute(t.Context(), d, run.Options{Workers: workers}); err != nil {
		t.Fatal(err)
	}
	samples, err := d.Samples()
	if err != nil {
		t.Fatal(err)
	}
	files, err := activation.List(store)
	if err != nil || len(files) == 0 {
		t.Fatalf("files %v, %v", files, err)
	}
	tasktest.Conform(t, tasktest.Case{Bench: Bench{}, Identity: id, Samples: samples, Fixed: true, NoScores: true, Files: func(t *testing.T, dir string) {
		for _, f := range files {
			rel, err := filepath.Rel(store, f)
			if err != nil {
				t.Fatal(err)
			}
			b, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			to := filepath.Join(dir, rel)
			if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(to, b, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}})
}
