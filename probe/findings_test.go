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
	"github.com/ccmed/ccmed/bench/dmis"
	"github.com/ccmed/ccmed/bench/report"
	"github.com/ccmed/ccmed/bench/run"
	"github.com/ccmed/ccmed/infer"
	"github.com/ccmed/ccmed/probe"
)

// planted is a model whose block.1 carries what knows says, as raised columns, and
// noise everywhere else.
type planted struct {
	reader
	ds    []dialogue.Dialogue
	knows func(seen) []int
}

// seen is what a state comes after.
type seen struct {
	d     dialogue.Dialogue
	named dmis.Stage // by the prompt; -1 for none
	own   bool       // the model's own line
	end   bool       // the end of a line, not of the prompt
}

// stage is the column of a stage, topic that of what the speakers disagree about.
func stage(s dmis.Stage) []int { return []int{int(s)} }
func (s seen) topic() int      { return 3 + (s.d.ID-1)%100%12 }

func (*planted) Width() int { return 15 }

func (p *planted) States(_ context.Context, seqs []infer.Sequence, layers []string, row func(seq, pos, layer int, x []float32) error) error {
	for i, s := range seqs {
		var b strings.Builder
		for _, t := range s.Tokens {
			if t < 256 {
				b.WriteByte(byte(t))
			}
		}
		text := b.String()
		at := seen{named: -1, own: strings.Contains(text, "line of ")}
		for _, d := range p.ds {
			if strings.Contains(text, d.Unmediated()[0].Message) {
				at.d = d
			}
		}
		for st := range dmis.Minimization + 1 {
			if strings.Contains(text, st.Pattern()) {
				at.named = st
			}
		}
		for _, pos := range s.At {
			at.end = s.Tokens[pos] == endOfTurn
			for l, name := range layers {
				h := fnv.New64a()
				h.Write([]byte(text + name))
				rng := rand.New(rand.NewPCG(h.Sum64(), uint64(pos)))
				x := make([]float32, p.Width())
				for j := range x {
					x[j] = float32(rng.NormFloat64())
				}
				if name == "block.1" {
					for _, c := range p.knows(at) {
						x[c] += 20
					}
				}
				if err := row(i, pos, l, x); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// many returns copies of the sample, each with other ids, contexts and first words.
func many(t *testing.T, from, to int) []dialogue.Dialogue {
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
	for i := from; i < to; i++ {
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
			// The stage must not follow from what the speakers disagree about.
			was, err := dmis.ParseStage(meta["conflict_stage"].(string))
			if err != nil {
				t.Fatal(err)
			}
			meta["conflict_stage"] = ((was + dmis.Stage(i)) % (dmis.Minimization + 1)).String()
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
	ds, _, err := dialogue.Read(context.Background(), out, dialogue.ReadOptions{Whole: true})
	if err != nil {
		t.Fatal(err)
	}
	return ds
}

var findOptions = probe.FindOptions{Controls: 1, Design: probe.Design{Folds: 2, Seeds: []uint64{1, 2}, Inner: 2, CPath: []float64{0.1, 1}},
	Resampling: probe.Resampling{Resamples: 200, Seed: 1}}

// planting makes a store of such a model.
func planting(t *testing.T, ds []dialogue.Dialogue, contexts, texts string, knows func(seen) []int) *run.Dir {
	t.Helper()
	p := &planted{knows: knows, ds: ds}
	x := extraction(t, &p.reader, mustPairs(t, contexts, texts))
	x.Reader = p
	path := filepath.Join(t.TempDir(), "run")
	if _, err := extractFrom(t, x, path, ds); err != nil {
		t.Fatal(err)
	}
	dir, err := run.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

func find(t *testing.T, contexts string, knows func(seen) []int) *probe.Findings {
	t.Helper()
	o := findOptions
	o.Dialogues = many(t, 0, 4)
	f, err := probe.Find(t.Context(), planting(t, o.Dialogues, contexts, "own-D,own-ND,placebo", knows), o)
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
	f := find(t, "D,ND", func(s seen) []int {
		if s.end && s.named < 0 {
			return nil
		}
		return stage(s.d.Stage)
	})
	if f.N != 48 || f.Left != 0 {
		t.Errorf("%d dialogues and %d left out, want all 48", f.N, f.Left)
	}
	for _, c := range []struct {
		context, text, position, layer string
		least, most                    float64
	}{
		{"D", "prompt", probe.PromptEnd, "block.1", 0.96, 1},
		{"ND", "prompt", probe.PromptEnd, "block.1", 0.96, 1},
		{"D", "own-D", probe.UtteranceEnd, "block.1", 0.96, 1},
		{"ND", "own-ND", probe.UtteranceEnd, "block.1", 0, 0.7},
		{"D", "prompt", probe.PromptEnd, "embed", 0, 0.7},
	} {
		if a := accuracy(t, f, c.context, c.text, c.position, c.layer); a < c.least || a > c.most {
			t.Errorf("%v: accuracy %.3f, want %.2f to %.2f", c, a, c.least, c.most)
		}
	}
	d := f.Decomposition[1]
	if math.Abs(d.Text.Value) > 0.05 || d.Ctx.Value < 0.3 || math.Abs(d.Elic.Value-d.Ctx.Value-d.Text.Value) > 1e-9 || d.Placebo.Value < 0.3 {
		t.Errorf("Δelic %.3f = Δctx %.3f + Δtext %.3f, Δplacebo %.3f; want Δtext about 0 and the rest above 0.3", d.Elic.Value, d.Ctx.Value, d.Text.Value, d.Placebo.Value)
	}
	if f.Verdict == nil || f.Verdict.Sentence == probe.Collapse {
		t.Errorf("verdict %+v: 48 dialogues cannot show a collapse", f.Verdict)
	}
	for _, x := range f.Transfers {
		if x.From.Context == "D" && x.From.Position == probe.PromptEnd && x.To.Position == probe.UtteranceEnd && x.Accuracy[1].Value < 0.96 {
			t.Errorf("the same direction carries the stage in D, but the transfer has accuracy %.3f", x.Accuracy[1].Value)
		}
	}
	for _, c := range f.Controls {
		if c.Types != 12 || c.Real[1]-c.Control[1] < 0.3 && c.Cell.Context == "D" {
			t.Errorf("%s: %d templates, accuracy %.3f and of the control %.3f where the stage is planted", c.Cell, c.Types, c.Real[1], c.Control[1])
		}
		if c.Cell.Context == "D" && (c.Compression[1] < 1.3 || c.Compression[0] > 1.2) {
			t.Errorf("%s: compression %.2f where the stage is planted and %.2f where nothing is", c.Cell, c.Compression[1], c.Compression[0])
		}
	}
	if len(f.Controls) != 4 {
		t.Errorf("controls of %d cells, want 4", len(f.Controls))
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
	f := find(t, "D,ND", func(seen) []int { return nil })
	for _, c := range f.Cells {
		for k, l := range c.Layers {
			if l.Accuracy > 0.75 {
				t.Errorf("%s, %s: accuracy %.3f without any signal (shuffled %.3f)", c.Cell, l.Layer, l.Accuracy, c.Shuffled[k])
			}
		}
	}
}

// TestWrongStage tells a model that believes the prompt from one that believes
// the dialogue.
func TestWrongStage(t *testing.T) {
	for _, tt := range []struct {
		name        string
		knows       func(seen) []int
		named, kept float64
	}{
		{"believes the prompt", func(s seen) []int {
			if s.named < 0 {
				return nil
			}
			return stage(s.named)
		}, 1, 0},
		{"believes the dialogue", func(s seen) []int { return stage(s.d.Stage) }, 0, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			seen := 0
			for _, x := range find(t, "D,ND,wrong", tt.knows).Follow {
				if x.From.Context != "D" {
					continue
				}
				seen++
				if math.Abs(x.Named[1].Value-tt.named) > 0.05 || math.Abs(x.True[1].Value-tt.kept) > 0.05 {
					t.Errorf("%s to %s: %.3f follow the named stage and %.3f the true one, want %v and %v", x.From, x.To, x.Named[1].Value, x.True[1].Value, tt.named, tt.kept)
				}
			}
			if seen != 6 { // the prompt's end and five texts
				t.Errorf("%d comparisons, want 6", seen)
			}
		})
	}
}

// TestMatchedAttribute loses the stage in writing, with and without what the
// speakers disagree about: only the former is more than a loss of everything.
func TestMatchedAttribute(t *testing.T) {
	for _, tt := range []struct {
		name   string
		topic  bool
		lo, hi float64
	}{{"the stage alone is lost", true, 0.6, 1.4}, {"both are lost", false, -0.3, 0.3}} {
		t.Run(tt.name, func(t *testing.T) {
			f := find(t, "D,ND", func(s seen) []int {
				switch {
				case !s.end || !s.own:
					return append(stage(s.d.Stage), s.topic())
				case tt.topic:
					return []int{s.topic()}
				}
				return nil
			})
			excess := f.Decomposition[1].Excess
			if excess.Value < 0.3 {
				t.Errorf("excess loss %+v, want above 0.3", excess)
			}
			m := f.Matched[0]
			if m.Values != 12 || !m.Readable || m.Beyond.Value < tt.lo || m.Beyond.Value > tt.hi || math.Abs(m.Beyond.Value-(m.Stage.Value-m.Lost.Value)) > 1e-9 {
				t.Errorf("%+v, want 12 values, readable, and the stage beyond it by %v to %v", m, tt.lo, tt.hi)
			}
			if g := f.Verdict.Gates[3]; g.Effect == nil {
				t.Errorf("gate (d) %+v, want it measured", g)
			}
		})
	}
}

// TestSavedProbes applies what was trained on some dialogues to others.
func TestSavedProbes(t *testing.T) {
	knows := func(s seen) []int {
		if !s.end {
			return stage(s.d.Stage)
		}
		return nil
	}
	train, other := many(t, 0, 4), many(t, 3, 6)
	from := planting(t, train, "D,ND", "own-D", knows)
	f, err := probe.Find(t.Context(), from, findOptions)
	if err != nil {
		t.Fatal(err)
	}
	saved, err := probe.Save(t.Context(), from, f, findOptions)
	if err != nil || len(saved) != 4 {
		t.Fatalf("%d files saved (%v), want one for each of 4 cells", len(saved), err)
	}
	to := planting(t, other, "D,ND", "own-D", knows)
	found, err := probe.Apply(t.Context(), to, filepath.Join(from.Path(), probe.ProbesDir), probe.Resampling{Resamples: 200})
	if err != nil || len(found) != 4 {
		t.Fatalf("%d cells (%v), want 4", len(found), err)
	}
	for _, a := range found {
		if a.N != 24 || a.Seen != 12 || a.SeenContexts != 0 {
			t.Errorf("%s: n %d, %d seen, %d contexts; want 24, 12 of the shared copy, 0", a.Cell, a.N, a.Seen, a.SeenContexts)
		}
		at, noise := a.Accuracy[1].Value, a.Accuracy[0].Value
		if a.Cell.Position == probe.PromptEnd && at < 0.96 || a.Cell.Position == probe.UtteranceEnd && at > 0.75 || noise > 0.75 {
			t.Errorf("%s: accuracy %.3f in block.1 and %.3f in the embeddings", a.Cell, at, noise)
		}
	}
	one, err := probe.Apply(t.Context(), to, saved[0], probe.Resampling{Resamples: 100})
	if err != nil || len(one) != 4 {
		t.Errorf("one file on every cell: %d cells (%v), want 4", len(one), err)
	}
	if _, err := probe.Apply(t.Context(), from, saved[0], probe.Resampling{}); err == nil || !strings.Contains(err.Error(), "trained on") {
		t.Errorf("all dialogues were trained on: %v", err)
	}
	if _, err := probe.Apply(t.Context(), to, t.TempDir(), probe.Resampling{}); err == nil || !strings.Contains(err.Error(), "holds no probes") {
		t.Errorf("an empty folder: %v", err)
	}
}

// TestWhatCannotBeFound says in the dialogues' own terms why.
func TestWhatCannotBeFound(t *testing.T) {
	ds := many(t, 0, 1)
	dir := planting(t, ds, "D", "own-D", func(seen) []int { return nil })
	for _, tt := range []struct {
		name string
		edit func(*probe.FindOptions)
		want string
	}{
		{"few contexts", func(o *probe.FindOptions) { o.Design.Folds = 5 }, "the stage Denial has dialogues of 4 different values of context"},
		{"other dialogues", func(o *probe.FindOptions) { o.Dialogues = many(t, 1, 2) }, "have no dialogue 9001"},
		{"no dialogues", func(o *probe.FindOptions) { o.Grouping = probe.GroupCountry }, "need the dialogues"},
		{"a layer", func(o *probe.FindOptions) { o.Layers = []string{"block.9"} }, "has embed to final_norm"},
	} {
		o := findOptions
		tt.edit(&o)
		if _, err := probe.Find(t.Context(), dir, o); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %q", tt.name, err, tt.want)
		}
	}
}
