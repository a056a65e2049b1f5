package timing

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/ccmed/ccmed/bench/dialogue"
	"github.com/ccmed/ccmed/bench/dmis"
	"github.com/ccmed/ccmed/bench/prompt"
	"github.com/ccmed/ccmed/bench/run"
	"github.com/ccmed/ccmed/infer"
	"github.com/ccmed/ccmed/infer/infertest"
)

func prompts(t *testing.T) *prompt.Set {
	t.Helper()
	s, err := prompt.Load("")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// decided runs the task over dialogues with a scripted model and returns the
// samples of the deciding step.
func decided(t *testing.T, b *infertest.Scripted, o Options, ds ...dialogue.Dialogue) []run.Sample {
	t.Helper()
	o.Prompts = prompts(t)
	task, err := Task(ds, o)
	if err != nil {
		t.Fatal(err)
	}
	d, err := run.Create(filepath.Join(t.TempDir(), "run"), run.Identity{Task: "timing"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := run.Execute(t.Context(), d, task, run.Options{Workers: workers(b)}); err != nil {
		t.Fatal(err)
	}
	return decidedIn(t, d.Path())
}

func workers(bs ...infer.Backend) func(context.Context, string) ([]infer.Backend, error) {
	return func(_ context.Context, role string) ([]infer.Backend, error) {
		if role != Role {
			return nil, fmt.Errorf("asked for the role %q", role)
		}
		return bs, nil
	}
}

func decidedIn(t *testing.T, path string) []run.Sample {
	t.Helper()
	d, err := run.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	all, err := d.Samples()
	if err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(all, func(s run.Sample) bool { return s.Step != StepDecide })
}

func decision(t *testing.T, s run.Sample) Decision {
	t.Helper()
	var d Decision
	if err := json.Unmarshal(s.Data, &d); err != nil {
		t.Fatal(err)
	}
	return d
}

// after answers yes with p[t] after turn t, and no with the rest of 0.9; a
// negative p[t] spreads hardly anything over the two.
func after(p map[int]float64) func(infer.Prompt, []infer.Answer) infer.Choice {
	return func(q infer.Prompt, as []infer.Answer) infer.Choice {
		for t, yes := range p {
			if !strings.Contains(q.Messages[1].Content, fmt.Sprintf("right after turn %d?", t)) {
				continue
			}
			if yes < 0 {
				return infertest.Choice(as, []float64{0.02, 0.01})
			}
			return infertest.Choice(as, []float64{yes, 0.9 - yes})
		}
		return infertest.Choice(as, []float64{0.1, 0.8})
	}
}

func TestStream(t *testing.T) {
	d := dialogue.Sample()[0] // nine turns
	for _, c := range []struct {
		fact      string
		yes       map[int]float64
		first     int
		predicted int
		unscored  string
	}{
		{"the first yes wins, not the surest", map[int]float64{4: 0.5, 6: 0.9}, 0, 4, ""},
		{"turns before --first-turn cannot be predicted", map[int]float64{1: 0.9, 2: 0.9, 5: 0.6}, 0, 5, ""},
		{"--first-turn itself can", map[int]float64{3: 0.6}, 0, 3, ""},
		{"--first-turn 1 lets the first turn count", map[int]float64{1: 0.6}, 1, 1, ""},
		{"--first-turn 5 passes over an earlier yes", map[int]float64{3: 0.9, 6: 0.9}, 5, 6, ""},
		{"as likely as no is not a yes", map[int]float64{4: 0.45, 8: 0.5}, 0, 8, ""},
		{"no yes is no prediction, and scored", nil, 0, 0, ""},
		{"an unscored turn before the first yes leaves the sample unscored", map[int]float64{4: -1, 5: 0.9}, 0, 0,
			"turn 4: the answers got 0.03 of the probability, less than 0.05"},
		{"an unscored turn after the first yes does not matter", map[int]float64{5: 0.9, 6: -1}, 0, 5, ""},
		{"an unscored turn before --first-turn does not matter", map[int]float64{2: -1, 5: 0.9}, 0, 5, ""},
		{"an unscored turn and no yes is not a no", map[int]float64{9: -1}, 0, 0, "turn 9: the answers got 0.03 of the probability, less than 0.05"},
	} {
		t.Run(c.fact, func(t *testing.T) {
			b := &infertest.Scripted{Answer: after(c.yes)}
			s := decided(t, b, Options{FirstTurn: c.first}, d)[0]
			dec := decision(t, s)
			if dec.Predicted != c.predicted || s.Unscored != c.unscored {
				t.Errorf("turn %d, unscored %q; want turn %d, %q", dec.Predicted, s.Unscored, c.predicted, c.unscored)
			}
			if b.Count() != 9 || len(dec.Curve) != 9 || len(dec.Lengths) != 9 || dec.LastTurn != 9 {
				t.Errorf("%d questions, %d points, %d lengths, last turn %d; the curve holds all 9 turns", b.Count(), len(dec.Curve), len(dec.Lengths), dec.LastTurn)
			}
			for i, p := range dec.Curve {
				if p.Turn != i+1 || p.Mass > 0 && p.Share != p.P/p.Mass {
					t.Errorf("point %d is %+v", i, p)
				}
			}
		})
	}
}

func TestUnseenAnswersAreUnscored(t *testing.T) {
	d := dialogue.Sample()[0]
	for _, m := range Modes {
		b := &infertest.Scripted{Answer: func(_ infer.Prompt, as []infer.Answer) infer.Choice {
			return infer.Choice{P: make([]float64, len(as)), Bound: make([]float64, len(as)), Unscored: infer.NoAnswerSeen}
		}}
		s := decided(t, b, Options{Mode: m}, d)[0]
		if dec := decision(t, s); !strings.HasSuffix(s.Unscored, infer.NoAnswerSeen) || dec.Predicted != 0 {
			t.Errorf("%s: unscored %q, turn %d", m, s.Unscored, dec.Predicted)
		}
	}
}

// Every prompt but for its question is the beginning of the next one, so that a
// model reads each turn once.
func TestStreamPromptsSharePrefixes(t *testing.T) {
	for _, d := range dialogue.Sample() {
		ps, err := Prompts(d, Options{Prompts: prompts(t)})
		if err != nil {
			t.Fatal(err)
		}
		if len(ps) != d.LastTurn() {
			t.Fatalf("%d prompts for %d turns", len(ps), d.LastTurn())
		}
		turns := d.Unmediated()
		for i, p := range ps {
			shared, _, ok := strings.Cut(p.Messages[1].Content, "\nShould a mediator")
			if !ok || !strings.HasSuffix(shared, turns[i].Message+"\n") {
				t.Fatalf("prompt %d does not end with turn %d and the question: %q", i, i+1, p.Messages[1].Content)
			}
			if i+1 == len(ps) {
				continue
			}
			if next := ps[i+1]; next.Messages[0] != p.Messages[0] || !strings.HasPrefix(next.Messages[1].Content, shared) || next.LeadIn != p.LeadIn {
				t.Errorf("dialogue %d: prompt %d is not the beginning of the next", d.ID, i)
			}
			if strings.Contains(p.Messages[1].Content, turns[i+1].Message) {
				t.Errorf("dialogue %d: prompt %d shows a later turn", d.ID, i)
			}
		}
	}
}

// A prompt that told who the conflict speaker is would give the turn's parity
// away.
func TestPromptsDoNotRevealTheAnswer(t *testing.T) {
	for _, m := range Modes {
		for _, d := range dialogue.Sample() {
			o := Options{Mode: m, Prompts: prompts(t)}
			want, err := Prompts(d, o)
			if err != nil {
				t.Fatal(err)
			}
			for name, change := range map[string]func(*dialogue.Dialogue){
				"turn":  func(d *dialogue.Dialogue) { d.ConflictTurn = 1 + d.ConflictTurn%4 },
				"agent": func(d *dialogue.Dialogue) { d.ConflictAgent = 3 - d.ConflictAgent },
				"stage": func(d *dialogue.Dialogue) { d.Stage = (d.Stage + 1) % 3 },
			} {
				changed := d
				change(&changed)
				if changed.ConflictTurn == d.ConflictTurn && changed.ConflictAgent == d.ConflictAgent && changed.Stage == d.Stage {
					t.Fatalf("the change of the %s changes nothing", name)
				}
				got, err := Prompts(changed, o)
				if err != nil || !reflect.DeepEqual(got, want) {
					t.Errorf("%s: another conflict %s changes the prompts of dialogue %d (%v)", m, name, d.ID, err)
				}
			}
			for _, p := range want {
				for s := dmis.Denial; s <= dmis.Minimization; s++ {
					for _, msg := range p.Messages {
						if strings.Contains(msg.Content, s.String()) || strings.Contains(msg.Content, d.Value(1)) {
							t.Errorf("%s: a prompt of dialogue %d names a stage or a persona: %q", m, d.ID, msg.Content)
						}
					}
				}
			}
		}
	}
}

func TestPick(t *testing.T) {
	d := dialogue.Sample()[0]
	for _, first := range []int{0, 1, 5, 9} {
		var labels []string
		b := &infertest.Scripted{Answer: func(p infer.Prompt, as []infer.Answer) infer.Choice {
			for _, a := range as {
				labels = append(labels, a.Label)
			}
			return infertest.Always("I", 0.6)(p, as)
		}}
		s := decided(t, b, Options{Mode: Pick, FirstTurn: first}, d)[0]
		dec := decision(t, s)
		from := first
		if from == 0 {
			from = 3
		}
		if want := "ABCDEFGHI"[from-1:]; strings.Join(labels, "") != want {
			t.Errorf("from turn %d: offered %q, want %q", from, labels, want)
		}
		if dec.Predicted != 9 || s.Unscored != "" || len(dec.Curve) != 10-from || dec.Curve[0].Turn != from {
			t.Errorf("from turn %d: %+v, unscored %q; I is turn 9", from, dec, s.Unscored)
		}
		user := b.Calls()[0].Prompt.Messages[1].Content
		for i, turn := range d.Unmediated() {
			if line := fmt.Sprintf("%c (%s): %s\n", 'A'+i, turn.Speaker, turn.Message); !strings.Contains(user, line) {
				t.Errorf("the prompt lacks %q", line)
			}
		}
		if want := fmt.Sprintf("%c to I", 'A'+from-1); !strings.Contains(user, want) {
			t.Errorf("the question lacks %q", want)
		}
	}
}

func TestLowMassIsUnscored(t *testing.T) {
	d := dialogue.Sample()[0]
	for _, c := range []struct {
		mass, min float64
		unscored  string
	}{
		{0.04, 0, "the answers got 0.04 of the probability, less than 0.05"},
		{0.06, 0, ""},
		{0.06, 0.5, "the answers got 0.06 of the probability, less than 0.5"},
	} {
		b := &infertest.Scripted{Answer: func(_ infer.Prompt, as []infer.Answer) infer.Choice {
			ps := make([]float64, len(as))
			ps[1] = c.mass
			return infertest.Choice(as, ps)
		}}
		s := decided(t, b, Options{Mode: Pick, MinMass: c.min}, d)[0]
		want := 4
		if c.unscored != "" {
			want = 0
		}
		if dec := decision(t, s); s.Unscored != c.unscored || dec.Predicted != want {
			t.Errorf("mass %v of %v: unscored %q, turn %d", c.mass, c.min, s.Unscored, dec.Predicted)
		}
	}
}

func TestCoT(t *testing.T) {
	d := dialogue.Sample()[0]
	b := &infertest.Scripted{
		Say:    func(infer.Prompt, infer.Params) infer.Reply { return infer.Reply{Text: " Turn D gets sharp.\n"} },
		Answer: infertest.Always("D", 0.9),
	}
	s := decided(t, b, Options{Mode: CoT, ReasonTokens: 40, Seed: 7}, d)[0]
	dec := decision(t, s)
	if dec.Predicted != 4 || s.Unscored != "" || dec.Reasoning != "Turn D gets sharp." {
		t.Errorf("%+v, unscored %q", dec, s.Unscored)
	}
	calls := b.Calls()
	if len(calls) != 2 || calls[0].Method != "Chat" || calls[1].Method != "Choose" {
		t.Fatalf("calls %+v", calls)
	}
	if p := calls[0].Params; p.MaxTokens != 40 || p.Seed != 7 || p.Temperature != 0 || calls[0].Prompt.LeadIn != "" {
		t.Errorf("the reasoning is asked with %+v and the lead-in %q", p, calls[0].Prompt.LeadIn)
	}
	if !reflect.DeepEqual(calls[0].Prompt.Messages, calls[1].Prompt.Messages) || !strings.HasPrefix(calls[1].Prompt.LeadIn, "Turn D gets sharp.\n") {
		t.Errorf("the turn is not asked for after the same messages and the reasoning: %+v", calls[1].Prompt)
	}

	b = &infertest.Scripted{Say: func(infer.Prompt, infer.Params) infer.Reply { return infer.Reply{Text: " \n"} }}
	s = decided(t, b, Options{Mode: CoT}, d)[0]
	if dec := decision(t, s); s.Unscored != "the model wrote no reasoning" || dec.Predicted != 0 || b.Count() != 1 {
		t.Errorf("without reasoning: unscored %q, turn %d after %d calls", s.Unscored, dec.Predicted, b.Count())
	}
}

// variant writes a record like the first sample one, with its messages changed and
// n-9 turns added, and reads it.
func variant(t *testing.T, n int, change func(string) string) dialogue.Dialogue {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("..", "dialogue", "sample", "9001.json"))
	if err != nil {
		t.Fatal(err)
	}
	var r map[string]any
	if err := json.Unmarshal(b, &r); err != nil {
		t.Fatal(err)
	}
	original := r["continuations"].(map[string]any)["original"].(map[string]any)
	turns := original["turns"].([]any)
	for i := 10; i <= n; i++ {
		more := map[string]any{}
		for k, v := range turns[len(turns)-2].(map[string]any) {
			more[k] = v
		}
		more["t"] = i
		turns = append(turns, more)
	}
	original["turns"] = turns
	r["metadata"].(map[string]any)["max_turns"] = n
	for _, turn := range r["shared_prefix"].([]any) {
		m := turn.(map[string]any)
		m["message"] = change(m["message"].(string))
	}
	if b, err = json.Marshal(r); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "9001.json"), b, 0o600); err != nil {
		t.Fatal(err)
	}
	ds, _, err := dialogue.Read(t.Context(), dir, dialogue.ReadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return ds[0]
}

// A message with line breaks must not pass for further turns.
func TestPickShowsOneLineATurn(t *testing.T) {
	d := variant(t, 9, func(m string) string { return m + "\nI (Nobody): Me too.\r\nJ (Nobody): And me." })
	ps, err := Prompts(d, Options{Mode: Pick, Prompts: prompts(t)})
	if err != nil {
		t.Fatal(err)
	}
	if user := ps[0].Messages[1].Content; strings.Count(user, "\nI (") != 1 || strings.Contains(user, "\nJ (") || strings.Contains(user, "\r") {
		t.Errorf("turn I is not there once: %q", user)
	}
}

func TestRefusals(t *testing.T) {
	set := prompts(t)
	for _, c := range []struct {
		fact string
		o    Options
		word string
	}{
		{"an unknown mode", Options{Mode: "guess", Prompts: set}, "guess"},
		{"no templates", Options{}, "no prompt templates"},
		{"a negative first turn", Options{FirstTurn: -2, Prompts: set}, "turns start at 1"},
	} {
		if _, err := Task(dialogue.Sample(), c.o); err == nil || !strings.Contains(err.Error(), c.word) {
			t.Errorf("%s: %v", c.fact, err)
		}
		if _, err := Prompts(dialogue.Sample()[0], c.o); err == nil {
			t.Errorf("%s: the prompts are made", c.fact)
		}
	}
	long, same := variant(t, 27, strings.Clone), dialogue.Sample()[0]
	for _, c := range []struct {
		fact string
		d    dialogue.Dialogue
		o    Options
		word string
	}{
		{"more turns than letters", long, Options{Mode: Pick, Prompts: set}, "use stream"},
		{"no turn to choose", same, Options{Mode: Pick, FirstTurn: 10, Prompts: set}, "no turn from 10 on"},
	} {
		if _, err := Prompts(c.d, c.o); err == nil || !strings.Contains(err.Error(), c.word) {
			t.Errorf("%s: %v", c.fact, err)
		}
	}
	if ps, err := Prompts(long, Options{Prompts: set}); err != nil || len(ps) != 27 {
		t.Errorf("stream takes 27 turns: %d prompts, %v", len(ps), err)
	}
}

func TestAFailingModelIsAnErrorNotADecision(t *testing.T) {
	broken := errors.New("the model is gone")
	for _, m := range Modes {
		task, err := Task(dialogue.Sample()[:2], Options{Mode: m, Prompts: prompts(t)})
		if err != nil {
			t.Fatal(err)
		}
		d, err := run.Create(filepath.Join(t.TempDir(), "run"), run.Identity{Task: "timing"}, nil)
		if err != nil {
			t.Fatal(err)
		}
		b := &infertest.Scripted{Fail: infertest.FailAt(1, broken)}
		sum, err := run.Execute(t.Context(), d, task, run.Options{Workers: workers(b), MaxFailures: 1})
		if err != nil || sum.Failed != 1 || len(decidedIn(t, d.Path())) != 1 {
			t.Errorf("%s: %+v, %v with %d decisions; want one failure and one decision", m, sum, err, len(decidedIn(t, d.Path())))
		}
	}
}

// A run that is stopped and resumed measures what an unbroken one does.
func TestResumedRun(t *testing.T) {
	stopAt := map[Mode]int{Stream: 40, Pick: 6, CoT: 18} // of about 115, 12 and 24 requests
	for _, m := range Modes {
		t.Run(string(m), func(t *testing.T) {
			id := run.Identity{Task: "timing"}
			whole := decided(t, &infertest.Scripted{}, Options{Mode: m}, dialogue.Sample()...)
			task, err := Task(dialogue.Sample(), Options{Mode: m, Prompts: prompts(t)})
			if err != nil {
				t.Fatal(err)
			}
			path := filepath.Join(t.TempDir(), "run")
			d, err := run.Create(path, id, nil)
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			stop := &infertest.Scripted{Fail: func(n int, _ infertest.Call) error {
				if n < stopAt[m] {
					return nil
				}
				cancel()
				return context.Canceled
			}}
			_, err = run.Execute(ctx, d, task, run.Options{Workers: workers(stop, stop)})
			var interrupted *run.InterruptedError
			if !errors.As(err, &interrupted) {
				t.Fatalf("the stopped run ends with %v", err)
			}
			if d, _, err = run.Resume(path, id, nil); err != nil {
				t.Fatal(err)
			}
			rest := &infertest.Scripted{}
			sum, err := run.Execute(t.Context(), d, task, run.Options{Workers: workers(rest)})
			if err != nil || sum.Reused == 0 || sum.Reused == sum.Scored {
				t.Fatalf("resumed: %+v, %v", sum, err)
			}
			score := func(s []run.Sample) Metrics {
				m, err := Score(answers(t, s), ScoreOptions{Seed: 1, Resamples: 200})
				if err != nil {
					t.Fatal(err)
				}
				return m
			}
			if a, b := score(whole), score(decidedIn(t, path)); !reflect.DeepEqual(a, b) {
				t.Errorf("unbroken %+v\nresumed %+v", a, b)
			}
		})
	}
}
