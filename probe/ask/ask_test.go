package ask

import (
	"context"
	"math"
	"path/filepath"
	"slices"
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
)

// measure stands in for an engine: a token is a word, of half a nat, and every token of a
// neutral paragraph diverges by a tenth.
type measure struct{}

func (measure) LogProbs(_ context.Context, _ infer.Prompt, text string, _ infer.Params) (out []infer.TokenLogprob, err error) {
	for _, w := range strings.Fields(text) {
		out = append(out, infer.TokenLogprob{Token: w, Logprob: -0.5})
	}
	return out, nil
}

func (measure) Divergence(_ context.Context, _ infer.Prompt, text string, _ infer.Params) (out []float64, err error) {
	for range strings.Fields(text) {
		out = append(out, 0.1)
	}
	return out, nil
}

func askingOf(t *testing.T, condition string) *asking {
	t.Helper()
	set, err := prompt.Load("")
	if err != nil {
		t.Fatal(err)
	}
	return &asking{prompts: set, condition: condition, maxTokens: 20, edited: measure{}, plain: measure{}, numCtx: func() int { return 512 }}
}

// knowing answers with the letter of the pattern that it was told about, or the third one.
func knowing(p infer.Prompt, as []infer.Answer) infer.Choice {
	_, about, told := strings.Cut(p.Messages[1].Content, "Pattern: ")
	for i, a := range as {
		if told && strings.Contains(about, a.Label+": "+strings.SplitN(about, "\n", 2)[0]) {
			return infertest.Always(as[i].Label, 0.9)(p, as)
		}
	}
	return infertest.Always(as[len(as)-1].Label, 0.6)(p, as)
}

func samplesOf(t *testing.T, a *asking, ds []dialogue.Dialogue, given map[string]string) []run.Sample {
	t.Helper()
	d, err := run.Create(filepath.Join(t.TempDir(), "run"), run.Identity{Task: TaskName}, nil)
	if err != nil {
		t.Fatal(err)
	}
	b := &infertest.Scripted{Answer: knowing, Say: func(infer.Prompt, infer.Params) infer.Reply {
		return infer.Reply{Text: "let us see, let us hear", Stop: infer.StopEnd}
	}}
	workers := func(context.Context, string) ([]infer.Backend, error) { return []infer.Backend{b}, nil }
	if _, err := run.Execute(t.Context(), d, a.task(ds, given), run.Options{Workers: workers}); err != nil {
		t.Fatal(err)
	}
	out, err := d.Samples()
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestConforms(t *testing.T) {
	ds := dialogue.Sample()[:6]
	samples := samplesOf(t, askingOf(t, probe.ContextND), ds, nil)
	for i, s := range samples {
		if s.Step == StepAsk && s.Item == ds[0].Key() {
			samples[i].Unscored = "no mass"
		}
	}
	tasktest.Conform(t, tasktest.Case{Bench: Bench{}, Samples: samples, Identity: run.Identity{Task: TaskName, Seed: 1, Items: task.Keys(ds), DataHash: dialogue.Hash(ds),
		Models: map[string]infer.Model{role: {Name: "m", Digest: "sha256:00"}}, Options: map[string]any{"data": task.EmbeddedSample, "condition": "ND"}}})
}

// TestWhatIsAsked: letters are dealt by dialogue, the answer is held against the conflict's
// stage, costs are those of the line, and D tells the answer.
func TestWhatIsAsked(t *testing.T) {
	t.Parallel()
	ds := dialogue.Sample()
	given := map[string]string{ds[0].Key(): "a line that was made before"}
	for _, c := range []struct {
		condition string
		right     float64
	}{{probe.ContextND, 0.5}, {probe.ContextD, 1}} {
		a := askingOf(t, c.condition)
		cases, drift, err := Read(task.Units(samplesOf(t, a, ds, given)))
		if err != nil {
			t.Fatal(err)
		}
		if len(cases) != len(ds) || math.Abs(drift-0.1) > 1e-12 {
			t.Fatalf("%s: %d dialogues, divergence %g", c.condition, len(cases), drift)
		}
		right, orders := 0.0, map[[stages]string]bool{}
		for _, s := range cases {
			orders[s.Answer.Order] = true
			if s.Answer.Order[s.Answer.letter()] == s.Utterance.Stage {
				right += 1 / float64(len(ds))
			}
			want := Utterance{Text: "let us see, let us hear"}
			if s.Key.Item == ds[0].Key() {
				want = Utterance{Text: given[s.Key.Item], Taken: true}
			}
			if s.Utterance.Text != want.Text || s.Utterance.Taken != want.Taken || s.Cost == nil || s.Cost.Nats != 0.5*6 || s.Cost.Tokens != 6 {
				t.Errorf("%s: %+v costs %+v", s.Key, s.Utterance, s.Cost)
			}
			if !want.Taken && math.Abs(s.Cost.Repeated-2.0/6) > 1e-12 {
				t.Errorf("%s: %g of its words are repeated, want a third", s.Key, s.Cost.Repeated)
			}
		}
		if len(orders) < 3 {
			t.Errorf("%d orders of the letters", len(orders))
		}
		if c.condition == probe.ContextD && right < 0.999 || c.condition == probe.ContextND && right > 0.8 {
			t.Errorf("%s: right in %g", c.condition, right)
		}
	}
}

// TestNeutralParagraphs: there are twenty, none names a stage or a person.
func TestNeutralParagraphs(t *testing.T) {
	t.Parallel()
	ps := Neutral()
	if len(ps) != 20 || len(slices.Compact(slices.Sorted(slices.Values(ps)))) != 20 {
		t.Errorf("%d paragraphs", len(ps))
	}
	for _, p := range ps {
		if n := len(strings.Fields(p)); n < 35 || n > 80 || strings.Contains(strings.ToLower(p), "cultur") {
			t.Errorf("%d words: %s", n, p)
		}
	}
}
