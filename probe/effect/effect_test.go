package effect

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
)

// fruits are what the planted mediator says of each stage.
var fruits = []string{"apples", "pears", "plums"}

var names = []string{"Denial", "Defense", "Minimization"}

// world is a planted truth: how often the line of an arm fits the dialogue's own stage, what
// the answer is, and what a token costs.
type world struct {
	n          int
	learnt     bool // the direction has seen the dialogues
	right      float64
	wrong      float64 // of the arm of another stage
	shuffled   float64
	nd, d      float64
	ask, nats  float64 // of the right arm; those of the plain lines are 0.4 and 2
	unanswered bool
	widest     float64
}

// base is a truth in which the stage is used.
var base = world{n: 180, right: 0.95, wrong: 0.1, shuffled: 0.3, nd: 0.3, d: 0.95, ask: 0.8, nats: 2.1, widest: 2.9}

func (w world) line(arm string, i int, share float64) Line {
	rng := rand.New(rand.NewPCG(uint64(i), uint64(len(arm))*1000+uint64(arm[len(arm)-1])))
	stage := i % 3
	word := stage
	if rng.Float64() >= share {
		word = (stage + 1 + rng.IntN(2)) % 3
	}
	return Line{Item: fmt.Sprint(i), Group: fmt.Sprint("context ", i/2), Stage: stage,
		Text: fmt.Sprintf("my line of today is %s, and Denial or defense", fruits[word]), Answer: math.NaN(), Name: math.NaN(), Nats: math.NaN(), Repeated: 0.01}
}

func (w world) arm(name string, e Edit, share func(stage int) float64) Arm {
	a := Arm{Name: name, Edit: e, Drift: 0.02}
	for i := range w.n {
		l := w.line(name, i, share(i%3))
		l.Answer, l.Nats = 0.4+0.001*float64(i%7-3), 2+0.001*float64(i%5)
		if e.Class == names[i%3] && e.Of == "" {
			l.Answer, l.Nats = w.ask+0.001*float64(i%11-5), w.nats+0.001*float64(i%3)
		}
		if w.unanswered {
			l.Answer = math.NaN()
		}
		a.Lines = append(a.Lines, l)
	}
	return a
}

func (w world) input() Input {
	in := Input{}
	for i := range 180 {
		l := w.line("training lines", i, 0.95)
		l.Group = "training " + l.Group
		in.Training = append(in.Training, l)
	}
	always := func(share float64) func(int) float64 { return func(int) float64 { return share } }
	in.ND, in.D = w.arm("plain ND", Edit{}, always(w.nd)), w.arm("plain D", Edit{}, always(w.d))
	for c, name := range names {
		e := Edit{File: "stage.edit", Kind: "mean", Layers: []string{"block.15"}, Class: name, Dose: 2, Widest: w.widest}
		if w.learnt {
			for i := range w.n {
				e.Groups = append(e.Groups, fmt.Sprint("context ", i/2))
			}
		}
		in.Arms = append(in.Arms, w.arm(name, e, func(stage int) float64 {
			if stage == c {
				return w.right
			}
			return w.wrong
		}))
		e.Of = "shuffled-1"
		in.Arms = append(in.Arms, w.arm(name+" shuffled", e, always(w.shuffled)))
	}
	return in
}

func (w world) find(t *testing.T) *Findings {
	t.Helper()
	f, err := Find(t.Context(), w.input(), Options{Resamples: 1000, Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func with(change func(*world)) world {
	w := base
	change(&w)
	return w
}

// TestVerdictsOfPlantedTruths: every verdict with a truth in which it holds, and next to
// it one in which a single thing differs.
func TestVerdictsOfPlantedTruths(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		world
		verdict, reason string
	}{
		"the stage is used":               {base, Used, ""},
		"used, and nobody asked":          {with(func(w *world) { w.unanswered = true }), Used, "not asked"},
		"the answer does not move":        {with(func(w *world) { w.ask = 0.4 }), Surface, "does not rise"},
		"the answer falls":                {with(func(w *world) { w.ask = 0.2 }), Surface, "does not rise"},
		"the lines cost too much":         {with(func(w *world) { w.nats = 2.5 }), Surface, "nats a token"},
		"the lines do not move":           {with(func(w *world) { w.right = 0.3 }), Decodable, "do not fit the stage better"},
		"the lines move by little":        {with(func(w *world) { w.right = 0.5 }), Decodable, "recovery"},
		"every stage's arm does the same": {with(func(w *world) { w.wrong = 0.95 }), Decodable, "wrong stage"},
		"shuffled labels do the same":     {with(func(w *world) { w.shuffled = 0.95 }), Decodable, "shuffled labels"},
		"the edit is beyond the states":   {with(func(w *world) { w.widest = 3.1 }), Decodable, "3.1 times as long"},
		"few dialogues":                   {with(func(w *world) { w.n = 148 }), Decodable, "150 are needed"},
		"the stage's name does nothing":   {with(func(w *world) { w.d = 0.3 }), Decodable, "nothing to recover"},
		"the direction knows them":        {with(func(w *world) { w.learnt = true }), "", ""},
	} {
		f := c.find(t)
		if len(f.Steer) != 1 {
			t.Fatalf("%s: %d steerings", name, len(f.Steer))
		}
		s := f.Steer[0]
		reasons := strings.Join(s.Reasons, "; ")
		if s.Verdict != c.verdict || !strings.Contains(reasons, c.reason) || c.verdict == Used && c.reason == "" && reasons != "" {
			t.Errorf("%s: %q because %q, want %q (%s); recovery %+v", name, s.Verdict, reasons, c.verdict, c.reason, s.Recovery)
		}
		if (f.Chosen != nil) != c.learnt {
			t.Errorf("%s: chosen %v", name, f.Chosen)
		}
	}
}

// TestRecovery: an arm that says what D says recovers all, one that says what ND says nothing,
// and there is no recovery of no gap.
func TestRecovery(t *testing.T) {
	t.Parallel()
	in := base.input()
	for k := range in.Arms {
		for i := range in.Arms[k].Lines {
			in.Arms[k].Lines[i].Text = map[bool]string{true: in.D.Lines[i].Text, false: in.ND.Lines[i].Text}[in.Arms[k].Edit.Of == ""]
		}
	}
	f, err := Find(t.Context(), in, Options{Resamples: 500})
	if err != nil {
		t.Fatal(err)
	}
	if r := f.Steer[0].Recovery; r == nil || math.Abs(r.Value-1) > 1e-12 {
		t.Errorf("D's own lines recover %+v", r)
	}
	for k := range in.Arms {
		for i := range in.Arms[k].Lines {
			in.Arms[k].Lines[i].Text = in.ND.Lines[i].Text
		}
	}
	if f, err = Find(t.Context(), in, Options{Resamples: 500}); err != nil {
		t.Fatal(err)
	}
	if r := f.Steer[0].Recovery; r == nil || r.Value != 0 {
		t.Errorf("ND's own lines recover %+v", r)
	}
	if r := with(func(w *world) { w.d = 0.3 }).find(t).Steer[0].Recovery; r != nil {
		t.Errorf("a recovery of no gap: %+v", r)
	}
}

// TestStageWordsDoNotCount: lines that differ only in the stage's name fit all stages alike.
func TestStageWordsDoNotCount(t *testing.T) {
	t.Parallel()
	in := base.input()
	for _, lines := range [][]Line{in.Training, in.ND.Lines, in.D.Lines} {
		for i, l := range lines {
			lines[i].Text = "this is a case of " + names[l.Stage] + ", of " + []string{"denying", "defensive", "minimising"}[l.Stage] + " kind"
		}
	}
	in.Arms = nil
	f, err := Find(t.Context(), in, Options{Resamples: 200})
	if err != nil {
		t.Fatal(err)
	}
	if a := f.Words.Accuracy.Value; a > 0.45 {
		t.Errorf("the names alone tell the stage in %g", a)
	}
	if got := Masked("Her Denial was not a defence of a DEFENSIVE, minimizing or minimal kind; she defended it."); strings.Contains(strings.ToLower(got), "deni") ||
		strings.Contains(got, "defence") || strings.Contains(got, "DEFENSIVE") || strings.Contains(got, "minimizing") || !strings.Contains(got, "minimal") || !strings.Contains(got, "defended") {
		t.Errorf("masked: %q", got)
	}
}

func TestUnscoredLinesAreLeftOut(t *testing.T) {
	t.Parallel()
	in := base.input()
	for i := range 12 {
		in.Arms[0].Lines[3*i].Text = " "
	}
	f, err := Find(t.Context(), in, Options{Resamples: 200})
	if err != nil {
		t.Fatal(err)
	}
	if a := f.Arms[0]; a.Unscored != 12 || a.N != 168 || f.Steer[0].N != 168 {
		t.Errorf("n %d, unscored %d; the steering has n %d", a.N, a.Unscored, f.Steer[0].N)
	}
	in.Arms[1].Name = in.Arms[0].Name
	if _, err := Find(t.Context(), in, Options{}); err == nil || !strings.Contains(err.Error(), "two runs are named") {
		t.Errorf("the same run twice: %v", err)
	}
}
