package timing

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/ccmed/ccmed/bench/dialogue"
	"github.com/ccmed/ccmed/bench/report"
	"github.com/ccmed/ccmed/bench/run"
	"github.com/ccmed/ccmed/infer"
	"github.com/ccmed/ccmed/infer/infertest"
)

var quick = ScoreOptions{Seed: 1, Resamples: 200}

// predictions returns n samples with gold turns 3..8 in turn, two a context,
// and what predict says of each gold turn. Their curves rise up to the
// prediction.
func predictions(t *testing.T, n int, predict func(i, gold int) int) []run.Sample {
	t.Helper()
	var ss []run.Sample
	for i := range n {
		d := Decision{Mode: Stream, Gold: 3 + i%6, Stage: []string{"Denial", "Defense", "Minimization"}[i/2%3], Context: fmt.Sprint(i / 2), FirstTurn: 3, LastTurn: 10}
		d.Predicted = predict(i, d.Gold)
		for turn := 1; turn <= d.LastTurn; turn++ {
			p := Point{Turn: turn, P: 0.1, No: 0.9, Share: 0.1, Mass: 1}
			if turn == d.Predicted {
				p.P, p.No, p.Share = 0.9, 0.1, 0.9
			}
			d.Curve, d.Lengths = append(d.Curve, p), append(d.Lengths, 10+(turn*7+i)%5)
		}
		data, err := json.Marshal(d)
		if err != nil {
			t.Fatal(err)
		}
		ss = append(ss, run.Sample{Key: run.Key{Step: StepDecide, Item: fmt.Sprint(95 + i), Condition: "stream"}, Data: data})
	}
	return ss
}

// answers reads samples that are not damaged.
func answers(t testing.TB, ss []run.Sample) Answers {
	t.Helper()
	a, err := Read(run.Each(ss))
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// scoredDecisions are the decisions that can be used.
func scoredDecisions(t testing.TB, ss []run.Sample) []Decision {
	t.Helper()
	var out []Decision
	for _, d := range answers(t, ss).Decided {
		out = append(out, d.Decision)
	}
	return out
}

func scored(t *testing.T, ss []run.Sample) Metrics {
	t.Helper()
	m, err := Score(answers(t, ss), quick)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func perfect(_, gold int) int { return gold }

func TestAPerfectPredictor(t *testing.T) {
	m := scored(t, predictions(t, 30, perfect))
	for _, c := range []struct {
		fact      string
		got, want any
	}{
		{"scored", m.Scored, 30},
		{"correct", m.Correct, 30},
		{"TurnAcc", m.TurnAcc.Value, 1.0},
		{"V", math.Round(m.V.Raw*1e9) / 1e9, 1.0},
		{"signed error", m.SignedError.Value, 0.0},
		{"within one", m.WithinOne, 30},
		{"AUROC", m.AUROC.Model.Value, 1.0},
		{"AUROC within", m.AUROC.Within.Value, 1.0},
		{"contexts", m.Contexts, 15},
		{"turn 5", m.PerTurn[5].K, 5},
		{"Defense", m.PerStage["Defense"].K, 10},
		{"interval of TurnAcc", report.Estimate(*m.TurnAcc, 3), "1.000 [0.782, 1.000]"}, // 0.025^(1/15)
		{"interval of the AUROC within", report.Estimate(m.AUROC.Within, 3), "1.000 [0.782, 1.000]"},
		{"interval of the pooled AUROC", report.Estimate(m.AUROC.Model, 3), "1.000 (all alike)"},
		{"interval of the signed error", report.Estimate(*m.SignedError, 3), "0.000 (all alike)"},
		{"confusion", m.Confusion[4], map[int]int{4: 5}},
		{"notes", len(m.Notes), 0},
	} {
		if !reflect.DeepEqual(c.got, c.want) {
			t.Errorf("%s: %v, want %v", c.fact, c.got, c.want)
		}
	}
	if m.V.P > 0.01 {
		t.Errorf("p of V is %v", m.V.P)
	}
}

// V is association, not accuracy.
// The curve of a perfect predictor rises at the conflict and nowhere else.
func TestCurveAroundTheConflict(t *testing.T) {
	m := scored(t, predictions(t, 60, perfect))
	if len(m.Aligned) == 0 {
		t.Fatal("no curve")
	}
	for _, a := range m.Aligned {
		want := 0.1
		if a.Offset == 0 {
			want = 0.9
		}
		if math.Abs(a.Value-want) > 1e-9 || a.N < 5 {
			t.Errorf("%+d turns from the conflict: %.3f of %d dialogues, want %.1f of at least 5", a.Offset, a.Value, a.N, want)
		}
	}
	for _, s := range Sections("m", m, nil) {
		for _, f := range s.Figures {
			if err := f.Check(); err != nil {
				t.Error(err)
			}
		}
	}
}

func TestAlwaysOneLate(t *testing.T) {
	m := scored(t, predictions(t, 30, func(_, gold int) int { return gold + 1 }))
	if m.Correct != 0 || m.TurnAcc.Value != 0 || math.Abs(m.V.Raw-1) > 1e-9 || m.SignedError.Value != 1 || m.WithinOne != 30 {
		t.Errorf("correct %d, TurnAcc %v, V %v, error %v, within one %d; want 0, 0, 1, 1, 30", m.Correct, m.TurnAcc, m.V, m.SignedError, m.WithinOne)
	}
}

func TestNoPredictionIsWrong(t *testing.T) {
	m := scored(t, predictions(t, 30, func(i, gold int) int {
		if i%3 == 0 {
			return 0
		}
		return gold
	}))
	if m.Scored != 30 || m.Correct != 20 || m.NoPrediction != 10 || m.Predicted[0] != 10 || math.Abs(m.TurnAcc.Value-2.0/3) > 1e-9 {
		t.Errorf("%+v; want 20 of 30 and 10 without a prediction", m)
	}
	if m.SignedError.N != 20 || m.SignedError.Value != 0 || m.WithinOne != 20 {
		t.Errorf("errors are over %d predictions with mean %v, within one %d; no prediction has no distance", m.SignedError.N, m.SignedError.Value, m.WithinOne)
	}
}

func TestUnscoredSamplesAreCountedApart(t *testing.T) {
	ss := predictions(t, 30, perfect)
	for i := range 4 {
		ss[i].Unscored = "too little mass"
	}
	ss[4].Unscored = "no reasoning"
	m := scored(t, ss)
	if m.N != 30 || m.Scored != 25 || m.Correct != 25 || !reflect.DeepEqual(m.Unscored, map[string]int{"too little mass": 4, "no reasoning": 1}) {
		t.Errorf("%+v", m)
	}
	for i := range ss {
		ss[i].Unscored = "too little mass"
	}
	if m = scored(t, ss); m.Scored != 0 || m.TurnAcc != nil || len(m.Notes) != 1 {
		t.Errorf("with nothing scored: %+v", m)
	}
	if text := text(t, Sections("m", m, nil)); !strings.Contains(text, "0 of 30 dialogues scored") || decimal.MatchString(text) {
		t.Errorf("with nothing scored the report says\n%s", text)
	}
}

var decimal = regexp.MustCompile(`\d\.\d`)

func text(t *testing.T, s []report.Section) string {
	t.Helper()
	var b bytes.Buffer
	if err := report.Write(&b, report.Markdown, s, report.Options{}); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// More than 90 % of one answer measures nothing.
func TestConstantAnswers(t *testing.T) {
	constant := func(turn, others int) []run.Sample {
		return predictions(t, 40, func(i, gold int) int {
			if i < others {
				return 4 + i%5
			}
			return turn
		})
	}
	for _, c := range []struct {
		fact       string
		ss         []run.Sample
		degenerate string
	}{
		{"always turn 3", constant(3, 0), "for all 40 dialogues (steps in after turn 3)"},
		{"turn 3 but for three", constant(3, 3), "for 37 of 40 dialogues (steps in after turn 3)"},
		{"never a turn", constant(0, 0), "for all 40 dialogues (never steps in)"},
		{"turn 3 but for four is 90 % and not more", constant(3, 4), ""},
	} {
		t.Run(c.fact, func(t *testing.T) {
			m := scored(t, c.ss)
			if m.DegenerateAnswer != c.degenerate {
				t.Fatalf("degenerate %q, want %q", m.DegenerateAnswer, c.degenerate)
			}
			if c.degenerate == "" {
				if m.V == nil || m.TurnAcc == nil || m.AUROC == nil {
					t.Errorf("%+v lacks what can be computed", m)
				}
				return
			}
			if m.TurnAcc != nil || m.V != nil || m.AUROC != nil || m.SignedError != nil {
				t.Errorf("computed from a constant answer: %+v", m)
			}
			out := text(t, Sections("m", m, nil))
			if !strings.Contains(out, Degenerate) || strings.Contains(out, "Cramér") || strings.Contains(out, "AUROC of") {
				t.Errorf("the report says\n%s", out)
			}
			if strings.Contains(strings.ReplaceAll(out, "[95 %]", ""), "[0.") {
				t.Errorf("the report shows an interval\n%s", out)
			}
		})
	}
}

func TestVIsUndefinedForOneGoldTurn(t *testing.T) {
	var ss []run.Sample
	for i, s := range predictions(t, 60, func(i, _ int) int { return 3 + i/6%3 }) {
		if i%6 == 2 { // gold turn 5
			ss = append(ss, s)
		}
	}
	m := scored(t, ss)
	if m.V != nil || m.TurnAcc == nil || !slices.ContainsFunc(m.Notes, func(n string) bool { return strings.HasPrefix(n, "V is undefined") }) {
		t.Errorf("V %v, TurnAcc %v, notes %q", m.V, m.TurnAcc, m.Notes)
	}
}

func TestScoreDoesNotDependOnOrder(t *testing.T) {
	ss := predictions(t, 40, func(i, gold int) int { return gold - i%2 })
	ss[7].Unscored, ss[20].Unscored = "a", "b"
	want := scored(t, ss)
	r := rand.New(rand.NewPCG(1, 2))
	for range 5 {
		r.Shuffle(len(ss), func(i, j int) { ss[i], ss[j] = ss[j], ss[i] })
		before := slices.Clone(ss)
		if got := scored(t, ss); !reflect.DeepEqual(got, want) {
			t.Fatalf("in another order %+v\nwant %+v", got, want)
		}
		if !reflect.DeepEqual(ss, before) {
			t.Fatal("scoring reorders the caller's samples")
		}
	}
}

func TestScoreRefusesDamagedSamples(t *testing.T) {
	ss := predictions(t, 2, perfect)
	ss[1].Data = json.RawMessage(`{"gold": "three"}`)
	if _, err := Read(run.Each(ss)); err == nil || !strings.Contains(err.Error(), "item 96") {
		t.Errorf("got %v, want an error that names the item", err)
	}
}

func TestSectionsShowBaselines(t *testing.T) {
	m := scored(t, predictions(t, 30, perfect))
	rs, err := Baselines(t.Context(), dialogue.Sample(), nil, 0, nil, "")
	if err != nil {
		t.Fatal(err)
	}
	out := text(t, Sections("some-model", m, rs))
	for _, w := range []string{"some-model", "baseline: uniform over 3..8", "baseline: longest turn", "baseline: marker phrases", "does not by itself show understanding", "Cramér's V, bias-corrected"} {
		if !strings.Contains(out, w) {
			t.Errorf("the report lacks %q:\n%s", w, out)
		}
	}
	if rs, err = Baselines(t.Context(), nil, nil, 0, nil, ""); err != nil || rs != nil {
		t.Errorf("baselines of nothing: %v, %v", rs, err)
	}
	if out = text(t, Sections("some-model", m, nil)); !strings.Contains(out, "no baselines: the records were not at hand") {
		t.Errorf("the report does not say that baselines are missing:\n%s", out)
	}
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

// public reads the evaluation records, which never enter the repository.
func public(t *testing.T) []dialogue.Dialogue {
	t.Helper()
	root, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for {
		if _, err := os.Stat(filepath.Join(root, "go.mod")); err == nil {
			break
		}
		if filepath.Dir(root) == root {
			t.Skip("the public records are not at hand: no go.mod above the test")
		}
		root = filepath.Dir(root)
	}
	dir := filepath.Join(root, "..", "shared", "data", "cc-mediation")
	if _, err := os.Stat(dir); err != nil {
		t.Skipf("the public records are not at hand: %v", err)
	}
	ds, _, err := dialogue.Read(t.Context(), dir, dialogue.ReadOptions{Split: dialogue.Evaluate})
	if err != nil {
		t.Fatal(err)
	}
	return ds
}

// What the turn's number and its length alone reach, over all turns up to the
// conflict of the public evaluation records.
func TestSeparationOnPublicRecords(t *testing.T) {
	ds := public(t)
	gold := map[string]bool{}
	for _, d := range ds {
		ps, err := Prompts(d, Options{Prompts: prompts(t)})
		if err != nil {
			t.Fatal(err)
		}
		gold[ps[d.ConflictTurn-1].Hash()] = true
	}
	knows := &infertest.Scripted{Forget: true, Answer: func(p infer.Prompt, as []infer.Answer) infer.Choice {
		if gold[p.Hash()] {
			return infertest.Choice(as, []float64{0.9, 0.05})
		}
		return infertest.Choice(as, []float64{0.05, 0.9})
	}}
	m := scored(t, decided(t, knows, Options{}, ds...))
	if m.Scored != 159 || m.Correct != 159 || m.Contexts != 71 || m.AUROC == nil {
		t.Fatalf("%d of %d correct in %d contexts, AUROC %v; want 159, 159, 71", m.Correct, m.Scored, m.Contexts, m.AUROC)
	}
	a := m.AUROC
	if a.Model.Value != 1 || a.Within.Value != 1 || math.Abs(a.Position-0.833) > 0.0005 || math.Abs(a.Length-0.951) > 0.0005 {
		t.Errorf("model %v, within %v, position %.4f, length %.4f; want 1, 1, 0.833, 0.951", a.Model.Value, a.Within.Value, a.Position, a.Length)
	}
}

// What names a turn that the dialogue has not, or what is no probability, is no
// prediction: it becomes neither a column nor a part of a mean.
func TestWhatIsNoPredictionIsUnscored(t *testing.T) {
	good := predictions(t, 30, func(i, gold int) int { return min(gold+i%3, 10) })
	change := func(i int, of func(*Decision)) []run.Sample {
		ss := slices.Clone(good)
		d, why, err := readDecision(ss[i])
		if err != nil || why != "" {
			t.Fatal(why, err)
		}
		of(&d)
		if ss[i].Data, err = json.Marshal(d); err != nil {
			t.Fatal(err)
		}
		return ss
	}
	for _, c := range []struct {
		why string
		of  func(*Decision)
	}{
		{"the predicted turn -1 is not one of 3 to 10", func(d *Decision) { d.Predicted = -1 }},
		{"the predicted turn 99 is not one of 3 to 10", func(d *Decision) { d.Predicted = 99 }},
		{"the predicted turn 2 is not one of 3 to 10", func(d *Decision) { d.Predicted = 2 }},
		{"the conflict turn 11 is not one of the dialogue's 1 to 10", func(d *Decision) { d.Gold = 11 }},
		{"an answer is about turn 0, which the dialogue has not", func(d *Decision) { d.Curve[0].Turn = 0 }},
		{"the probability of turn 4 is 1.5", func(d *Decision) { d.Curve[3].Share = 1.5 }},
	} {
		ss := change(0, c.of)
		m := scored(t, ss)
		if m.Scored != 29 || m.Unscored[c.why] != 1 {
			t.Errorf("%s: %d scored, unscored %v", c.why, m.Scored, m.Unscored)
		}
		for turn := range m.Predicted {
			if turn < 0 || turn > 10 {
				t.Errorf("%s: a column of turn %d", c.why, turn)
			}
		}
		if e := m.SignedError; e.Lo < -2 || e.Hi > 2 {
			t.Errorf("%s: mean error %+v of errors that are 0 to 2", c.why, e)
		}
		if ms, _ := answers(t, ss).Measures(); ms[0].Observations[0].Unscored != c.why {
			t.Errorf("%s: compared as %+v", c.why, ms[0].Observations[0])
		}
	}
	if m := scored(t, change(0, func(d *Decision) { d.Predicted = 0 })); m.Scored != 30 {
		t.Errorf("no prediction is an answer: %d of 30 scored", m.Scored)
	}
}

// A confusion grid has turns 3 to 8 and none in every run, and what else was predicted.
func TestGridIsTheSameInEveryRun(t *testing.T) {
	golds, predicted := grid(Metrics{Predicted: map[int]int{0: 1, 5: 2, 11: 1}, Confusion: map[int]map[int]int{4: {5: 2, 0: 1, 11: 1}}})
	if !slices.Equal(golds, []int{3, 4, 5, 6, 7, 8}) || !slices.Equal(predicted, []int{3, 4, 5, 6, 7, 8, 11, 0}) {
		t.Errorf("golds %v, predicted %v", golds, predicted)
	}
	if golds, predicted = grid(Metrics{}); len(golds) != 6 || len(predicted) != 7 || predicted[6] != 0 {
		t.Errorf("of nothing: %v, %v", golds, predicted)
	}
}
