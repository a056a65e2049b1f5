package probe_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ccmed/ccmed/bench/dialogue"
	"github.com/ccmed/ccmed/bench/dmis"
	"github.com/ccmed/ccmed/bench/run"
	"github.com/ccmed/ccmed/infer"
	"github.com/ccmed/ccmed/probe"
	"github.com/ccmed/ccmed/probe/activation"
)

// knower stands in for a model whose state after a question holds, in one layer beside
// noise, the stage of the number that the question ends with, or another one.
type knower struct {
	reader
	known bool
}

func (*knower) Width() int { return 8 }

func (k *knower) States(_ context.Context, seqs []infer.Sequence, layers []string, row func(seq, pos, layer int, x []float32) error) error {
	for i, s := range seqs {
		var number int
		if _, err := fmt.Sscanf(text(s.Tokens), "<user>turn %d<assistant>", &number); err != nil {
			return err
		}
		for l, name := range layers {
			x := make([]float32, k.Width())
			rng := rand.New(rand.NewPCG(uint64(number), uint64(l)))
			for j := range x {
				x[j] = float32(rng.NormFloat64())
			}
			if stage := number % 4; name == infer.LayerBlock(1) {
				if !k.known {
					stage = rng.IntN(4)
				}
				x[stage] += 8
			}
			if err := row(i, s.At[0], l, x); err != nil {
				return err
			}
		}
	}
	return nil
}

// questions writes a store about 40 dialogues of five labelled turns. Where known is false
// the states hold another stage than the one that is recorded.
func questions(t *testing.T, known bool) *run.Dir {
	t.Helper()
	k := &knower{known: known}
	x := extraction(t, &k.reader, nil)
	var ds []dialogue.Dialogue
	for i := range 40 {
		d := dialogue.Sample()[0]
		d.ID, d.Context = i+1, fmt.Sprintf("Context %d", i)
		ds = append(ds, d)
	}
	q := &probe.QuestionExtraction{Reader: k, Tokens: x.Tokens, DType: activation.F32, Model: x.Model, Ask: func(d dialogue.Dialogue) (out []probe.Question, err error) {
		for turn := range 5 {
			n := 5*d.ID + turn
			out = append(out, probe.Question{Turn: turn + 1, Stage: dmis.Stage(n % 4).String(), Text: fmt.Sprint("words ", n*7919%11),
				Prompt: infer.Prompt{Messages: []infer.Message{{Role: infer.User, Content: fmt.Sprint("turn ", n)}}}})
		}
		return out, nil
	}}
	if err := q.Use(ds); err != nil {
		t.Fatal(err)
	}
	dir, err := run.Create(filepath.Join(t.TempDir(), "run"), run.Identity{Task: "extract"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := q.Open(t.Context(), dir); err != nil {
		t.Fatal(err)
	}
	defer q.Close()
	if _, err := run.Execute(t.Context(), dir, q.Task(), run.Options{}); err != nil {
		t.Fatal(err)
	}
	if !probe.HoldsQuestions(dir) {
		t.Fatal("the store holds no questions")
	}
	return dir
}

var quickFit = probe.FindOptions{Design: probe.Design{Seeds: []uint64{1}, Folds: 4}, Resampling: probe.Resampling{Resamples: 500, Seed: 1}}

func TestLabellerFindsWhatStatesHold(t *testing.T) {
	dir := questions(t, true)
	f, err := probe.FindLabeller(t.Context(), dir, "model.gguf", quickFit)
	if err != nil {
		t.Fatal(err)
	}
	at := map[string]int{}
	for k, l := range f.Layers {
		at[l] = k
	}
	if f.At != infer.LayerBlock(1) || f.Kappa[at[f.At]].Lo < 0.95 || f.N != 200 || f.Contexts != 40 {
		t.Errorf("layer %s, kappa %v, n %d of %d contexts", f.At, f.Kappa[at[f.At]], f.N, f.Contexts)
	}
	if e := f.Kappa[at[infer.LayerEmbed]]; e.Lo > 0 || e.Hi < 0 {
		t.Errorf("a layer of noise has kappa %v", e)
	}
	if f.Words == nil || f.Words.Kappa.Lo > 0 {
		t.Errorf("words that say nothing have %+v", f.Words)
	}

	l, err := probe.LoadLabeller(dir.Path())
	if err != nil {
		t.Fatal(err)
	}
	if l.Named != "model.gguf" || l.Layer != f.At || strings.Join(l.Answers(), "") != "123456" {
		t.Errorf("loaded %+v", l)
	}
	for stage := range 4 {
		x := make([]float32, 8)
		x[stage] = 8
		p, err := l.Predict(x)
		if err != nil {
			t.Fatal(err)
		}
		sum := 0.0
		for _, v := range p {
			sum += v
		}
		if p[stage] < 0.9 || p[4] != 0 || p[5] != 0 || sum < 1-1e-9 || sum > 1+1e-9 {
			t.Errorf("stage %d gets %v", stage, p)
		}
	}
}

func TestLabellerOfStatesWithoutTheStage(t *testing.T) {
	dir := questions(t, false)
	f, err := probe.FindLabeller(t.Context(), dir, "model.gguf", quickFit)
	if err != nil {
		t.Fatal(err)
	}
	for k, e := range f.Kappa {
		if e.Lo > 0 {
			t.Errorf("%s has kappa %v", f.Layers[k], e)
		}
	}
}

func TestLoadLabellerRefusesOtherProbes(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.probe.safetensors")
	p := &activation.Probe{Model: activation.Model{Name: "m", Digest: "sha256:00"}, Cell: activation.Cell{Context: "D", Text: "own-D", Position: "prompt_end"}, Classes: []string{"Denial", "Defense"},
		Layers: []activation.LayerProbe{{Layer: "embed", W: [][]float64{{1}}, B: []float64{0}, Mean: []float64{0}, Scale: []float64{1}}}}
	if err := activation.SaveProbe(path, p, probe.LabellerCard{Model: "m"}); err != nil {
		t.Fatal(err)
	}
	if _, err := probe.LoadLabeller(path); err == nil || !strings.Contains(err.Error(), "is a probe of context D, text own-D, prompt_end, residual and no labeller") {
		t.Errorf("another probe: %v", err)
	}
	if _, err := probe.LoadLabeller(t.TempDir()); err == nil || !strings.Contains(err.Error(), "ccmed probe extract --questions") {
		t.Errorf("no probe: %v", err)
	}
}
