package probe_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ccmed/ccmed/bench/dialogue"
	"github.com/ccmed/ccmed/bench/report"
	"github.com/ccmed/ccmed/bench/run"
	"github.com/ccmed/ccmed/infer"
	"github.com/ccmed/ccmed/probe"
)

// planted is a model whose block.1 holds the conflict's stage where knows says
// so, and noise everywhere else.
type planted struct {
	reader
	ds    []dialogue.Dialogue
	knows func(named, end bool) bool // the stage is named in the prompt; the token ends the sequence
}

func (*planted) Width() int { return 6 }

func (p *planted) States(_ context.Context, seqs []infer.Sequence, layers []string, row func(seq, pos, layer int, x []float32) error) error {
	for i, s := range seqs {
		var b strings.Builder
		for _, t := range s.Tokens {
			if t < 256 {
				b.WriteByte(byte(t))
			}
		}
		text := b.String()
		stage := -1
		for _, d := range p.ds {
			if strings.Contains(text, d.Unmediated()[0].Message) {
				stage = int(d.Stage)
			}
		}
		for _, at := range s.At {
			for l, name := range layers {
				h := fnv.New64a()
				h.Write([]byte(text + name))
				rng := rand.New(rand.NewPCG(h.Sum64(), uint64(at)))
				x := make([]float32, p.Width())
				for j := range x {
					x[j] = float32(rng.NormFloat64())
				}
				end := s.Tokens[at] == endOfTurn
				if name == "block.1" && p.knows(strings.Contains(text, "Pattern:"), end) {
					x[stage] += 20
				}
				if err := row(i, at, l, x); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// many returns the sample so many times over, each time with other ids, contexts
// and first words.
func many(t *testing.T, times int) []dialogue.Dialogue {
	t.Helper()
	dir := t.TempDir()
	if err := dialogue.Write(dir, dialogue.Sample()); err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(dir, "*.json"))
	if err != nil || len(files) != 12 {
		t.Fatalf("%d files (%v), want 12", len(files), err)
	}
	out := filepath.Join(dir, "all.jsonl")
	var lines bytes.Buffer
	for i := range times {
		for _, f := range files {
			b, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			var r map[string]any
			if err := json.Unmarshal(b, &r); err != nil {
				t.Fatal(err)
			}
			meta, first := r["metadata"].(map[string]any), r["shared_prefix"].([]any)[0].(map[string]any)
			r["scenario_id"] = r["scenario_id"].(float64) + float64(100*i)
			meta["scenario_context"] = fmt.Sprintf("%s (%d)", meta["scenario_context"], i)
			first["message"] = fmt.Sprintf("%d: %s", i, first["message"])
			if b, err = json.Marshal(r); err != nil {
				t.Fatal(err)
			}
			lines.Write(append(b, '\n'))
		}
	}
	if err := os.WriteFile(out, lines.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
	ds, _, err := dialogue.Read(context.Background(), out, dialogue.ReadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return ds
}

func find(t *testing.T, knows func(named, end bool) bool) *probe.Findings {
	t.Helper()
	p := &planted{knows: knows, ds: many(t, 4)}
	x := extraction(t, &p.reader, mustPairs(t, "D,ND", "own-D,own-ND,placebo"))
	x.Reader = p
	path := filepath.Join(t.TempDir(), "run")
	if _, err := extractFrom(t, x, path, p.ds); err != nil {
		t.Fatal(err)
	}
	dir, err := run.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	f, err := probe.Find(context.Background(), dir, probe.FindOptions{Dialogues: p.ds, Controls: 1, Design: probe.Design{Folds: 2, Seeds: []uint64{1, 2}, Inner: 2, CPath: []float64{0.1, 1}}, Resampling: probe.Resampling{Resamples: 200, Seed: 1}})
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func accuracy(t *testing.T, f *probe.Findings, contextName, text, position, layer string) float64 {
	t.Helper()
	for _, c := range f.Cells {
		if c.Cell.Context == contextName && c.Cell.Text == text && c.Cell.Position == position {
			for _, l := range c.Layers {
				if l.Layer == layer {
					return l.Accuracy
				}
			}
		}
	}
	t.Fatalf("no findings for %s, %s, %s, %s", contextName, text, position, layer)
	return 0
}

// TestPlantedTruth plants the stage at the end of every prompt, and at the end
// of the utterance only where the prompt names it: the whole difference is then
// reading the prompt, and the model's own text adds nothing.
func TestPlantedTruth(t *testing.T) {
	f := find(t, func(named, end bool) bool { return !end || named })
	if f.N != 48 || f.Left != 0 {
		t.Errorf("%d dialogues and %d left out, want all 48", f.N, f.Left)
	}
	for _, c := range []struct {
		context, text, position, layer string
		least, most                    float64
	}{
		{"D", "prompt", probe.PromptEnd, "block.1", 0.99, 1},
		{"ND", "prompt", probe.PromptEnd, "block.1", 0.99, 1},
		{"D", "own-D", probe.UtteranceEnd, "block.1", 0.99, 1},
		{"ND", "own-ND", probe.UtteranceEnd, "block.1", 0, 0.7},
		{"D", "prompt", probe.PromptEnd, "embed", 0, 0.7},
	} {
		if a := accuracy(t, f, c.context, c.text, c.position, c.layer); a < c.least || a > c.most {
			t.Errorf("%v: accuracy %.3f, want %.2f to %.2f", c, a, c.least, c.most)
		}
	}
	d := f.Decomposition[1]
	if math.Abs(d.Text.Value) > 1e-9 || d.Ctx.Value < 0.3 || math.Abs(d.Elic.Value-d.Ctx.Value-d.Text.Value) > 1e-9 || d.Placebo.Value < 0.3 {
		t.Errorf("Δelic %.3f = Δctx %.3f + Δtext %.3f, Δplacebo %.3f; want Δtext 0 and the rest above 0.3", d.Elic.Value, d.Ctx.Value, d.Text.Value, d.Placebo.Value)
	}
	if f.Verdict == nil || f.Verdict.Sentence == probe.Collapse {
		t.Errorf("verdict %+v: 48 dialogues cannot show a collapse", f.Verdict)
	}
	for _, x := range f.Transfers {
		if x.From.Context == "D" && x.From.Position == probe.PromptEnd && x.To.Position == probe.UtteranceEnd && x.Accuracy[1].Value < 0.99 {
			t.Errorf("the same direction carries the stage in D, but the transfer has accuracy %.3f", x.Accuracy[1].Value)
		}
	}
	var table, csv bytes.Buffer
	if err := report.Write(&table, report.Terminal, probe.Sections("planted", f), report.Options{Width: 160}); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(table.String(), probe.NotTestable) {
		t.Errorf("the report does not say %q:\n%s", probe.NotTestable, table.String())
	}
	if err := probe.WriteCSV(&csv, f); err != nil {
		t.Fatal(err)
	}
	if got, want := strings.Count(csv.String(), "\n"), 1+len(f.Cells)*len(f.Layers); got != want {
		t.Errorf("%d lines of CSV, want %d", got, want)
	}
}

// TestNothingPlanted finds nothing where nothing is.
func TestNothingPlanted(t *testing.T) {
	f := find(t, func(bool, bool) bool { return false })
	for _, c := range f.Cells {
		for k, l := range c.Layers {
			if l.Accuracy > 0.75 {
				t.Errorf("%s, %s: accuracy %.3f without any signal (shuffled %.3f)", c.Cell, l.Layer, l.Accuracy, c.Shuffled[k])
			}
		}
	}
}
