package mediation

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/ccmed/ccmed/bench/dialogue"
	"github.com/ccmed/ccmed/bench/dmis"
	"github.com/ccmed/ccmed/bench/report"
	"github.com/ccmed/ccmed/bench/run"
	"github.com/ccmed/ccmed/bench/stats"
)

// recordedLabels are as reliable as those of the released records.
var recordedLabels = &dialogue.Agreement{Turns: 285, Agree: 179, Kappa: stats.Estimate{Value: 0.48}}

var quick = ScoreOptions{Seed: 1, Resamples: 200, Recorded: recordedLabels}

// unit is a dialogue of nine turns with the conflict at turn 3 by agent 1, under
// one condition. A stage of -1 is an unscored label.
type unit struct {
	item, condition string
	turn            int   // of the intervention
	pre             int   // stage, 0..5
	after           []int // stages after the turns that follow
	judge           int
	recorded        []int // of the card
	script          int   // the scripted stage, of a card whose pre is another one; 9 for Denial
}

func digit(turn, stage int, own bool) TurnLabel {
	l := TurnLabel{Turn: turn, Own: own, Unscored: "no digit"}
	if stage >= 0 {
		for i := range l.P {
			l.P[i] = 0.02
		}
		l.P[stage], l.Unscored, l.Stage, l.Mass = 0.9, "", dmis.Stage(stage).String(), 1
	}
	return l
}

func (u unit) samples(t *testing.T) []run.Sample {
	t.Helper()
	scripted := max(0, u.pre)
	if u.script > 0 {
		scripted = u.script % 9
	}
	utt := Utterance{Gold: 3, Turn: u.turn, LastTurn: 9, Stage: dmis.Stage(scripted).String(), Context: "context " + u.item[:len(u.item)-1], Source: "none"}
	unscored := ""
	j := Judgement{NotApplicable: "no mediator's line"}
	switch {
	case u.turn == 0:
		unscored = "no turn was predicted"
	case u.condition != Unmediated && u.condition != Card:
		utt.Text, utt.Sentences, utt.Source = "A line for "+u.item+".", 1, "model"
		j = Judgement{Score: u.judge, Expected: float64(u.judge) - 0.25, Mass: 1}
	}
	l := Labels{}
	if unscored == "" {
		l.Pre = digit(3, u.pre, true)
		for i, s := range u.after {
			l.After = append(l.After, digit(u.turn+1+i, s, (u.turn+1+i)%2 == 1))
			if u.recorded != nil {
				l.After[i].Recorded = dmis.Stage(u.recorded[i]).String()
			}
		}
		if u.condition == Card {
			again := l.Pre
			l.Again = &again
		}
	}
	var out []run.Sample
	for _, x := range []struct {
		step string
		data any
	}{{StepUtterance, utt}, {StepSimulate, Continuation{}}, {StepLabel, l}, {StepJudge, j}} {
		data, err := json.Marshal(x.data)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, run.Sample{Key: run.Key{Step: x.step, Item: u.item, Condition: u.condition}, Unscored: unscored, Data: data})
	}
	return out
}

func samplesOfUnits(t *testing.T, us ...unit) (out []run.Sample) {
	t.Helper()
	for _, u := range us {
		out = append(out, u.samples(t)...)
	}
	return out
}

// study is a run over n dialogues with a labeller who agrees with the record:
// D moves by two stages, ND by one, the baselines hardly.
func study(n int) (us []unit) {
	for i := range n {
		item, pre := fmt.Sprint(95+i), i%3
		rise := func(at, by int) (after []int) {
			for k := range 6 {
				after = append(after, min(5, pre+by*btoi(k >= at)))
			}
			return after
		}
		us = append(us,
			unit{item: item, condition: ND, turn: 3, pre: pre, after: rise(i%3, 1), judge: 2 + i%3},
			unit{item: item, condition: D, turn: 3, pre: pre, after: rise(i%2, 2), judge: 3 + i%3},
			unit{item: item, condition: Unmediated, turn: 3, pre: pre, after: rise(4+i%2, 1)},
			unit{item: item, condition: Generic, turn: 3, pre: pre, after: rise(3+i%2, 1), judge: 1 + i%2})
		us = append(us, card(item, pre, rise(3, 2), rise(3, 2)))
	}
	return us
}

func card(item string, pre int, given, recorded []int) unit {
	return unit{item: item, condition: Card, turn: 3, pre: pre, after: given, recorded: recorded}
}

func scored(t *testing.T, us []unit) Metrics {
	t.Helper()
	m, err := Score(samplesOfUnits(t, us...), quick)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func conditionOf(t *testing.T, m Metrics, name string) ConditionMetrics {
	t.Helper()
	for _, c := range m.Conditions {
		if c.Condition == name {
			return c
		}
	}
	t.Fatalf("no condition %s in %+v", name, m.Conditions)
	return ConditionMetrics{}
}

func text(t *testing.T, m Metrics) string {
	t.Helper()
	var b bytes.Buffer
	if err := report.Write(&b, report.Markdown, Sections(m), report.Options{}); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func outcomeOf(t *testing.T, u unit, more ...unit) Outcome {
	t.Helper()
	os, err := Outcomes(samplesOfUnits(t, append(more, u)...))
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range os {
		if o.Condition == u.condition {
			return o
		}
	}
	t.Fatal("no outcome")
	return Outcome{}
}

// On the index scale, from PRE = 0 and labels 0 1 2 2 2 3 after turns 4..9, the
// trapezoids over τ = 0, 1/6 .. 1 give (0 + .5 + 1.5 + 2 + 2 + 2.5)/6.
func TestTrajectory(t *testing.T) {
	base := unit{item: "70", condition: Unmediated, turn: 3, pre: 0, after: []int{0, 0, 0, 0, 0, 0}}
	u := unit{item: "70", condition: ND, turn: 3, pre: 0, after: []int{0, 1, 2, 2, 2, 3}}
	o := outcomeOf(t, u, base)
	for _, c := range []struct {
		metric string
		want   float64
	}{
		{AUCIndex, 8.5 / 6},
		{AUC, (0 + 0.5 + 1.5 + 2 + 2 + 3) / 6}, // Acceptance is two Paige steps above Minimization
		{DAUC, 9.0 / 6},
		{W1Index, 2 * 0.88}, // POST is turn 6: 0.88 of the mass moves by two
		{W1, 2 * 0.88},
		{DeltaE, 2 * 0.88},
		{TV, 0.88},
	} {
		if got, ok := o.Values[c.metric]; !ok || math.Abs(got-c.want) > 1e-9 {
			t.Errorf("%s is %v (%v, %q), want %v", c.metric, got, ok, o.Unscored[c.metric], c.want)
		}
	}
	own, err := dmis.AUC(-3, 3, 9, []dmis.Point{{Turn: 5, Position: -2}, {Turn: 7, Position: -1}, {Turn: 9, Position: 1}})
	if err != nil || math.Abs(o.Values[AUCOwn]-own) > 1e-9 {
		t.Errorf("AUC_own is %v, want %v over turns 5, 7 and 9 (%v)", o.Values[AUCOwn], own, err)
	}
	if *o.PreStage != 0 || *o.PostStage != 2 || len(o.Trajectory) != 6 || o.NoDirection {
		t.Errorf("%+v", o)
	}
	if o.Values[AUCE] <= 0 || o.Values[AUCE] >= o.Values[AUC] {
		t.Errorf("AUC_E %v is not between 0 and the AUC %v of the same, unsure labels", o.Values[AUCE], o.Values[AUC])
	}
}

func TestWhatIsLeftUnscored(t *testing.T) {
	steady := []int{0, 0, 1, 1, 2, 2}
	base := unit{item: "70", condition: Unmediated, turn: 3, pre: 0, after: steady}
	for _, c := range []struct {
		fact     string
		u        unit
		base     []unit
		unscored map[string]string // part of the reason by metric
		scored   []string
	}{
		{"one unscored label leaves the whole AUC unscored", unit{item: "70", condition: ND, turn: 3, after: []int{0, 0, 1, 1, 2, -1}}, []unit{base},
			map[string]string{AUC: "1 of 7 labels", AUCIndex: "1 of 7", AUCOwn: "1 of 7", AUCE: "1 of 7", DAUC: "1 of 7"}, []string{W1, DW1, Judge}},
		{"an unscored PRE leaves W1 unscored too", unit{item: "70", condition: ND, turn: 3, pre: -1, after: steady}, []unit{base},
			map[string]string{AUC: "1 of 7", W1: "no digit", JS: "no digit"}, []string{Judge}},
		{"an unscored POST leaves W1 unscored", unit{item: "70", condition: ND, turn: 3, after: []int{0, 0, -1, 1, 2, 2}}, []unit{base},
			map[string]string{W1: "no digit", AUC: "1 of 7"}, []string{Judge}},
		{"an intervention at POST or later has no W1", unit{item: "70", condition: ND, turn: 6, after: []int{1, 1, 2}}, []unit{base, {item: "70", condition: UnmediatedAt, turn: 6, after: []int{0, 0, 0}}},
			map[string]string{W1: "not before the POST turn 6", TV: "POST turn 6"}, []string{AUC, DAUC}},
		{"the unmediated continuation from another turn does not stand in", unit{item: "70", condition: ND, turn: 5, after: []int{0, 1, 1, 2}}, []unit{base, {item: "70", condition: UnmediatedAt, turn: 6, after: []int{0, 0, 0}}},
			map[string]string{DAUC: "no unmediated continuation from turn 5", DW1: "from turn 5"}, []string{AUC, W1}},
		{"an intervention just before it has one", unit{item: "70", condition: ND, turn: 5, after: []int{0, 1, 1, 2}}, []unit{base}, nil, []string{W1, AUC}},
		{"no turn of the conflict speaker follows", unit{item: "70", condition: ND, turn: 9}, []unit{base},
			map[string]string{AUC: dmis.ErrNoTurn.Error(), AUCOwn: dmis.ErrNoTurn.Error()}, []string{DAUC, DW1}},
		{"no unmediated continuation", unit{item: "70", condition: ND, turn: 3, after: steady}, nil,
			map[string]string{DAUC: "no unmediated continuation", DW1: "no unmediated"}, []string{AUC, W1}},
		{"an unscored unmediated continuation", unit{item: "70", condition: ND, turn: 3, after: steady}, []unit{{item: "70", condition: Unmediated, turn: 3, after: []int{0, -1, 0, 0, 0, 0}}},
			map[string]string{DAUC: "unmediated: 1 of 7"}, []string{AUC, DW1}},
		{"another dialogue's does not stand in", unit{item: "70", condition: ND, turn: 3, after: steady}, []unit{{item: "71", condition: Unmediated, turn: 3, after: steady}},
			map[string]string{DAUC: "no unmediated continuation"}, []string{AUC}},
	} {
		t.Run(c.fact, func(t *testing.T) {
			o := outcomeOf(t, c.u, c.base...)
			for m, why := range c.unscored {
				if _, ok := o.Values[m]; ok || !strings.Contains(o.Unscored[m], why) {
					t.Errorf("%s is %v, unscored %q; want %q", m, o.Values[m], o.Unscored[m], why)
				}
			}
			for _, m := range c.scored {
				if _, ok := o.Values[m]; !ok {
					t.Errorf("%s is unscored: %q", m, o.Unscored[m])
				}
			}
		})
	}
}

func TestAQualifiedRun(t *testing.T) {
	m := scored(t, study(18))
	if m.PipelineCheck || m.Labeller == nil || !m.Labeller.Qualified || m.Labeller.N != 54 || math.Abs(m.Labeller.Kappa-1) > 1e-9 || len(m.Degenerate) > 0 {
		t.Fatalf("card %+v, degenerate %q", m.Labeller, m.Degenerate)
	}
	if c := m.Labeller; c.ConflictRecall != (Rate{18, 18}) || c.Consistent != (Rate{18, 18}) {
		t.Errorf("recall %v, consistent %v", c.ConflictRecall, c.Consistent)
	}
	var names []string
	for _, c := range m.Conditions {
		names = append(names, c.Condition)
		if c.N != 18 || c.AUCAll != nil || c.AUCExact != nil || c.Timing != nil {
			t.Errorf("%+v: nothing was predicted here", c)
		}
	}
	if !slices.Equal(names, []string{ND, D, Generic, Unmediated}) {
		t.Errorf("conditions %q", names)
	}
	if _, ok := conditionOf(t, m, Unmediated).Values[DAUC]; ok {
		t.Error("the unmediated condition is compared with itself")
	}
	d, nd := conditionOf(t, m, D), conditionOf(t, m, ND)
	if d.Values[DAUC].Value <= nd.Values[DAUC].Value || nd.Values[DAUC].Value <= 0 || d.DistinctLines != 18 || d.PerStage["Denial"][AUC].N != 6 {
		t.Errorf("D %+v, ND %+v", d, nd)
	}
	found := false
	for _, x := range m.Differences {
		found = found || x.A == D && x.B == ND && x.Metric == AUC && x.Value.N == 18 && x.Value.Value > 0
		if x.PHolm < x.P || x.P <= 0 || x.P > 1 {
			t.Errorf("%+v: a corrected p is not below the p", x)
		}
	}
	if !found {
		t.Errorf("D − ND is not among %+v", m.Differences)
	}
	out := text(t, m)
	for _, w := range []string{"ΔAUC", "Labeller card: as reliable as the recorded labels", "Paired differences", "By conflict stage", "A line for 95."} {
		if !strings.Contains(out, w) {
			t.Errorf("the report lacks %q", w)
		}
	}
	if strings.Contains(out, PipelineCheck) {
		t.Errorf("the report calls itself a %s", PipelineCheck)
	}
}

func TestScoreDoesNotDependOnOrder(t *testing.T) {
	us := study(12)
	us[0].after[2], us[6].turn, us[6].after = -1, 5, us[6].after[2:]
	ss := samplesOfUnits(t, us...)
	want, err := Score(ss, quick)
	if err != nil {
		t.Fatal(err)
	}
	r := rand.New(rand.NewPCG(3, 4))
	for range 4 {
		r.Shuffle(len(ss), func(i, j int) { ss[i], ss[j] = ss[j], ss[i] })
		if got, err := Score(ss, quick); err != nil || !reflect.DeepEqual(got, want) {
			t.Fatalf("in another order %+v (%v)\nwant %+v", got, err, want)
		}
	}
}

func TestPredictedTurns(t *testing.T) {
	us := study(12)
	turns := []int{0, 2, 3, 5}
	var want struct{ none, early, exact, late int }
	for i := range us {
		u := &us[i]
		if u.condition != ND {
			continue
		}
		k := i / 5
		switch u.turn = turns[k%4]; u.turn {
		case 0:
			u.after = nil
			want.none++
		case 2:
			u.after = append([]int{u.pre}, u.after...)
			want.early++
		case 3:
			want.exact++
		case 5:
			u.after = u.after[2:]
			want.late++
		}
	}
	m := scored(t, us)
	c := conditionOf(t, m, ND)
	if c.Timing["early"].N != want.early || c.Timing["exact"].N != want.exact || c.Timing["late"].N != want.late || len(c.Timing) != 3 {
		t.Errorf("timing %+v, want %+v", c.Timing, want)
	}
	if c.Mediated != 12-want.none || c.Unscored[AUC]["no turn was predicted"] != want.none {
		t.Errorf("mediated %d, unscored %v", c.Mediated, c.Unscored[AUC])
	}
	if c.AUCExact == nil || c.AUCExact.N != want.exact || c.AUCAll == nil || c.AUCAll.N != 12 {
		t.Fatalf("AUC_exact %+v, AUC over all %+v", c.AUCExact, c.AUCAll)
	}
	sum := 0.0
	for _, o := range m.Outcomes {
		for _, other := range m.Outcomes {
			if o.Condition == ND && other.Item == o.Item && (o.Turn == 0 && other.Condition == Unmediated || o.Turn > 0 && other.Condition == ND) {
				sum += other.Values[AUC]
			}
		}
	}
	if math.Abs(c.AUCAll.Value-sum/12) > 1e-9 {
		t.Errorf("AUC over all is %v, want %v with the unmediated ones standing in", c.AUCAll.Value, sum/12)
	}
	if math.Abs(c.AUCAll.Value-c.Values[AUC].Value) < 1e-9 || c.Values[AUC].N != 12-want.none {
		t.Errorf("the mean over mediated dialogues is %+v, over all %+v", c.Values[AUC], c.AUCAll)
	}
	if out := text(t, m); !strings.Contains(out, "standing in") || !strings.Contains(out, "early interventions") || !strings.Contains(out, "conditions on the model's own success") {
		t.Errorf("the report does not tell early from late:\n%s", out)
	}
}

var (
	decimal = regexp.MustCompile(`-?\d+\.\d+`)
	percent = regexp.MustCompile(`\d+\.\d % \(\d+/\d+\)`) // a rate with its counts, on the card
)

// A labeller on whom nothing rests leaves utterances and counts, and no number
// that anybody could cite.
func TestDegenerateLabellers(t *testing.T) {
	noCard := func(us []unit) []unit { return slices.DeleteFunc(us, func(u unit) bool { return u.condition == Card }) }
	constant := func(us []unit, stage int, where func(unit) bool) []unit {
		for i := range us {
			if where(us[i]) {
				us[i].pre = stage
				us[i].after = slices.Repeat([]int{stage}, len(us[i].after))
			}
		}
		return us
	}
	for _, c := range []struct {
		fact       string
		us         []unit
		word       string // in the report
		kappa      string // shown, "" where there is no card
		degenerate bool
	}{
		{"no card", noCard(study(18)), "no labeller card", "", false},
		{"fewer than 30 labels", append(noCard(study(18)), study(4)[4], study(4)[9], study(4)[14]), "only 9 labels could be compared", "not computed", false},
		{"a constant answer", constant(study(18), 2, func(unit) bool { return true }), "same stage in 100 % of", "decimal", true},
		{"a constant answer beside a varied card", constant(study(18), 2, func(u unit) bool { return u.condition != Card }), "same stage in 100 % of 504 labels (Minimization)", "decimal", true},
	} {
		t.Run(c.fact, func(t *testing.T) {
			m := scored(t, c.us)
			if !m.PipelineCheck || (len(m.Degenerate) > 0) != c.degenerate || len(m.Differences) > 0 {
				t.Errorf("pipeline check %v, degenerate %q, %d differences", m.PipelineCheck, m.Degenerate, len(m.Differences))
			}
			for _, x := range m.Conditions {
				if len(x.Values)+len(x.PerStage)+len(x.Timing) > 0 || x.AUCAll != nil || x.AUCExact != nil {
					t.Errorf("%s holds numbers: %+v", x.Condition, x)
				}
			}
			out := text(t, m)
			if !strings.Contains(out, PipelineCheck) || !strings.Contains(out, c.word) || !strings.Contains(out, "A line for 95.") {
				t.Errorf("the report lacks %q, %q or the lines:\n%s", PipelineCheck, c.word, out)
			}
			for line := range strings.Lines(out) {
				var got string
				line = percent.ReplaceAllString(line, "")
				switch {
				case strings.Contains(line, "quadratic kappa \\[95 %"):
					line = strings.Replace(line, "95", "", 1)
					if got = "decimal"; !decimal.MatchString(line) {
						got = "not computed"
					}
					if got != c.kappa || got == "not computed" && !strings.Contains(line, got) {
						t.Errorf("kappa is shown as %q, want %s", line, c.kappa)
					}
				case strings.Contains(line, "quadratic kappa"), strings.Contains(line, "kappa corrected"), strings.Contains(line, "recorded labels' own"), strings.Contains(line, "lower bound needed"), decimal.FindString(line) == "1.0": // the reason; sentences a line
				case decimal.MatchString(line):
					t.Errorf("a number to cite: %q", line)
				}
			}
			for _, w := range []string{"AUC |", "W1 |", "Judge |", "95 % intervals", "Paired differences", "By conflict stage"} {
				if strings.Contains(out, w) {
					t.Errorf("the report shows %q:\n%s", w, out)
				}
			}
		})
	}
}

// Numbers on weak labels are shown with their grade, and none is a finding.
func TestWeakLabels(t *testing.T) {
	for _, c := range []struct {
		fact, word string
		change     func(u *unit)
	}{
		{"a low kappa", "the lower bound of its quadratic kappa", func(u *unit) { u.after = []int{0, 5, 1, 4, 2, 3} }},
		{"a stage that is not recognised", "it recognises 0 of 6 conflict turns of the stage Denial", func(u *unit) {
			if u.pre == 0 {
				u.script, u.pre = 9, 2
			}
		}},
	} {
		t.Run(c.fact, func(t *testing.T) {
			us := study(18)
			for i := range us {
				if us[i].condition == Card {
					c.change(&us[i])
				}
			}
			m := scored(t, us)
			if m.Grade != Weak || !m.PipelineCheck || len(m.Differences) == 0 || m.Labeller.Qualified {
				t.Fatalf("grade %q, pipeline check %v, %d differences, card %+v", m.Grade, m.PipelineCheck, len(m.Differences), m.Labeller)
			}
			for _, d := range m.Differences {
				if (d.Weak == "") != (d.Metric == Judge) {
					t.Errorf("%+v", d)
				}
			}
			out := text(t, m)
			for _, w := range []string{WeakLabels, c.word, "| weak, ", "Labeller card: weak"} {
				if !strings.Contains(out, w) {
					t.Errorf("no %q in\n%s", w, out)
				}
			}
			for line := range strings.Lines(out) {
				if strings.Contains(line, "| significant") && !strings.Contains(line, "| Judge |") {
					t.Errorf("a finding on weak labels: %s", line)
				}
			}
		})
	}
	// One class above 80 % beside a good kappa.
	us := study(18)
	for i := range us {
		u := &us[i]
		u.pre = 0
		u.after = []int{0, 0, 0, 0, 0, 0}
		if u.condition == Card {
			u.after, u.recorded = []int{0, 0, 0, 0, 0, 4}, []int{0, 0, 0, 0, 0, 4}
		} else if u.condition == D {
			u.after = []int{0, 0, 0, 1, 2, 4}
		}
	}
	if m := scored(t, us); m.Grade != Weak || !strings.Contains(m.Labeller.Why[0], "of its answers are Denial") {
		t.Errorf("grade %q, %q", m.Grade, m.Labeller.Why)
	}
}

// A judge who always gives one score leaves the trajectories as they are.
func TestAConstantJudge(t *testing.T) {
	us := study(18)
	for i := range us {
		us[i].judge = 4
	}
	m := scored(t, us)
	c := conditionOf(t, m, D)
	if _, ok := c.Values[Judge]; ok || m.PipelineCheck || len(m.Degenerate) != 1 || !strings.Contains(m.Degenerate[0], "judge: same score in 100 % of 54 (4)") {
		t.Errorf("judge %+v, degenerate %q", c.Values[Judge], m.Degenerate)
	}
	if _, ok := c.Values[AUC]; !ok {
		t.Error("the AUC is gone too")
	}
}

func TestLabellerCountsWhatItCannotCompare(t *testing.T) {
	us := []unit{card("70", 0, []int{0, -1, 2, 2, 2, 2}, []int{0, 0, 0, 0, 0, 0}), card("71", -1, []int{0, 0, 0, 0, 0, 0}, []int{0, 0, 0, 0, 0, 0})}
	c, err := Labeller(samplesOfUnits(t, us...), recordedLabels)
	if err != nil || c.N != 5 || c.Unscored != 2 || c.ConflictRecall != (Rate{1, 1}) || c.Confusion[0] != [6]int{3, 0, 2} || c.Grade != DegenerateLabels || !c.NoKappa {
		t.Errorf("%+v, %v", c, err)
	}
	if c, err := Labeller(samplesOfUnits(t, study(1)[:4]...), recordedLabels); c != nil || err != nil {
		t.Errorf("without a card: %+v, %v", c, err)
	}
}

func TestScoreRefusesDamagedSamples(t *testing.T) {
	for _, step := range []string{StepUtterance, StepLabel, StepJudge} {
		ss := samplesOfUnits(t, study(2)...)
		for i := range ss {
			if ss[i].Step == step && ss[i].Item == "96" {
				ss[i].Data = json.RawMessage(`[1]`)
			}
		}
		if _, err := Score(ss, quick); err == nil || !strings.Contains(err.Error(), step+" of item 96") {
			t.Errorf("%s: %v", step, err)
		}
	}
}
