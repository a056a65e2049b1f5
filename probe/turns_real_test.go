package probe_test

import (
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ccmed/ccmed/bench/dialogue"
	"github.com/ccmed/ccmed/bench/prompt"
	"github.com/ccmed/ccmed/infer"
	"github.com/ccmed/ccmed/infer/infertest"
	"github.com/ccmed/ccmed/infer/llamacpp"
	"github.com/ccmed/ccmed/probe"
	"github.com/ccmed/ccmed/probe/activation"
)

// TestRealTurnStates reads a dialogue with a real model in one pass and holds the
// state at the end of its conflict turn against that of the mediator's ND prompt,
// read by itself and no further than its transcript goes.
func TestRealTurnStates(t *testing.T) {
	path := infertest.ModelPath(t)
	if _, err := llamacpp.Locate(); err != nil {
		if os.Getenv("CCMED_REQUIRE") != "" {
			t.Fatal(err)
		}
		t.Skip("the engine is not installed: ccmed engine install")
	}
	e, err := llamacpp.Open(t.Context(), llamacpp.Options{ModelPath: path, NumCtx: 1024, Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	set, err := prompt.Load("")
	if err != nil {
		t.Fatal(err)
	}
	model, err := e.Model(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	x := &probe.TurnExtraction{Reader: e, Render: e.Render, Tokens: e.Tokens, Controls: e.Controls(), Prompts: set, Edits: []string{probe.EditMask, probe.EditStrip}, DType: activation.F16, Model: model, Seed: 1}
	d := dialogue.Sample()[0]
	dir, err := extractTurns(t, x, filepath.Join(t.TempDir(), "run"), "", []dialogue.Dialogue{d})
	if err != nil {
		t.Fatal(err)
	}
	nd := &probe.Extraction{Prompts: set}
	read := func(turns int) [][]float32 {
		cut := d
		cut.ConflictTurn = turns
		p, err := nd.Prompt(cut, probe.ContextND)
		if err != nil {
			t.Fatal(err)
		}
		rendered, err := e.Render(t.Context(), p)
		if err != nil {
			t.Fatal(err)
		}
		transcript := dialogue.Transcript(d.Unmediated()[:turns])
		before, _, ok := strings.Cut(rendered, transcript)
		if !ok {
			t.Fatal("the prompt does not hold the transcript")
		}
		tokens, err := e.PromptTokens(before + transcript)
		if err != nil {
			t.Fatal(err)
		}
		out := make([][]float32, len(e.Layers()))
		err = e.States(t.Context(), []infer.Sequence{{Tokens: tokens, At: []int{len(tokens) - 1}}}, e.Layers(), func(_, _, layer int, v []float32) error {
			out[layer] = append([]float32(nil), v...)
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	for text, turns := range map[string]int{probe.TextOriginal: d.ConflictTurn, probe.EditStrip: d.ConflictTurn - 1} {
		f := must(t, activation.Open, filepath.Join(dir.Path(), activation.Cell{Context: probe.ContextTranscript, Text: text, Position: probe.TurnEnd}.File()))
		defer f.Close()
		want := read(turns)
		for k, name := range e.Layers() {
			rows, err := f.Rows(name)
			if err != nil {
				t.Fatal(err)
			}
			if c := cosine(rows.Row(0), want[k]); c < 0.9999 {
				t.Errorf("%s, %s: cosine %.6f with the state of the ND prompt by itself", text, name, c)
			}
		}
	}
}

func cosine(a, b []float32) float64 {
	var ab, aa, bb float64
	for i := range a {
		ab, aa, bb = ab+float64(a[i])*float64(b[i]), aa+float64(a[i])*float64(a[i]), bb+float64(b[i])*float64(b[i])
	}
	return ab / math.Sqrt(aa*bb)
}
