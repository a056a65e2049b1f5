package socrates

import (
	"context"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/ccmed/ccmed/bench/run"
	"github.com/ccmed/ccmed/bench/task"
	"github.com/ccmed/ccmed/infer"
	"github.com/ccmed/ccmed/infer/infertest"
)

// readings are an evaluation of so many party turns: "3:2 7:5" are the readings of a topic.
func readings(turns int, topics ...string) Evaluation {
	e := Evaluation{PartyTurns: turns}
	for k, text := range topics {
		t := TopicReadings{Topic: fmt.Sprint("topic-", k+1), Readings: []Reading{}}
		for pair := range strings.FieldsSeq(text) {
			var r Reading
			if _, err := fmt.Sscanf(pair, "%d:%d", &r.Turn, &r.Agreement); err != nil {
				panic(err)
			}
			t.Readings = append(t.Readings, r)
		}
		e.Topics = append(e.Topics, t)
	}
	return e
}

// TestTrajectoryByHand: 1 before the first reading, other turns inherit, and drops are a fall
// by a tenth or more, in integers.
func TestTrajectoryByHand(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		of    Evaluation
		at    []int
		drops []int
	}{
		{readings(4, "2:3 4:5", ""), []int{0, 0, 2, 2, 4}, nil},
		{readings(3, "1:5 3:1"), []int{0, 4, 4, 0}, []int{3}},
		// Two topics: one point is an eighth, a drop. Three: a twelfth, none; two points are one.
		{readings(3, "1:3 2:2", "1:2"), []int{0, 3, 2, 2}, []int{2}},
		{readings(3, "1:3 2:2", "1:2", ""), []int{0, 3, 2, 2}, nil},
		{readings(3, "1:4 2:2", "1:2", ""), []int{0, 4, 2, 2}, []int{2}},
		// Five topics: two points are a tenth exactly.
		{readings(2, "1:4 2:2", "", "", "", ""), []int{0, 3, 1}, []int{2}},
		{readings(2, "1:4 2:3", "", "", "", ""), []int{0, 3, 2}, nil},
	} {
		x := c.of.trajectory()
		if !slices.Equal(x.at, c.at) || !slices.Equal(x.drops(), c.drops) {
			t.Errorf("%v: %v with drops %v, want %v with %v", c.of.Topics, x.at, x.drops(), c.at, c.drops)
		}
	}
}

func TestTimelinessByHand(t *testing.T) {
	t.Parallel()
	// Drops after turns 3 and 8.
	x := readings(30, "1:5 3:3 8:1").trajectory()
	for _, c := range []struct {
		interventions []int
		want          float64
	}{
		{[]int{3, 8}, 100},         // at once
		{[]int{2}, 0},              // before the drops alone
		{[]int{4, 9, 10}, 90},      // a turn later
		{[]int{13}, (0. + 50) / 2}, // ten turns after the one, five after the other
		{[]int{18}, 0},             // 15 and ten turns later
		{[]int{19}, 0},             // in no window
		{nil, 0},
	} {
		if got, drops, ok := x.timeliness(c.interventions); !ok || drops != 2 || math.Abs(got-c.want) > 1e-9 {
			t.Errorf("%v: %v of %d drops, want %v", c.interventions, got, drops, c.want)
		}
	}
	if _, _, ok := readings(5, "2:4").trajectory().timeliness([]int{1}); ok {
		t.Error("a talk without a drop has a timeliness")
	}
}

func TestEffectByHand(t *testing.T) {
	t.Parallel()
	x := readings(12, "1:2 4:3 7:4 12:5").trajectory() // 0 1 1 1 2 2 2 3 3 3 3 3 4
	for _, c := range []struct {
		k    int
		want float64
	}{{1, 100. / 3}, {2, 200. / 3}, {6, 50 * 0.5 * 2}, {9, 100}, {11, 100}} {
		if got, ok := x.effect(c.k); !ok || math.Abs(got-c.want) > 1e-9 {
			t.Errorf("after turn %d: %v, want %v", c.k, got, c.want)
		}
	}
	if _, ok := x.effect(12); ok {
		t.Error("after the last turn there is an effect")
	}
	if _, ok := readings(9, "1:5").trajectory().effect(3); ok {
		t.Error("where all is agreed there is an effect")
	}
	fall := readings(9, "1:4 5:2").trajectory()
	if got, ok := fall.effect(2); !ok || got != -200 {
		t.Errorf("a fall is an effect of %v, want -200", got)
	}
}

func TestGainByHand(t *testing.T) {
	t.Parallel()
	end := func(agreement int) trajectory { return readings(2, fmt.Sprintf("1:%d", agreement)).trajectory() }
	for _, c := range []struct {
		mediated, unmediated int
		want                 float64
	}{{5, 1, 100}, {3, 1, 50}, {1, 3, -100}, {1, 4, -300}, {5, 5, 0}, {3, 5, -50}, {4, 3, 50}} {
		if got := end(c.mediated).gainOver(end(c.unmediated)); math.Abs(got-c.want) > 1e-9 {
			t.Errorf("%d over %d: %v, want %v", c.mediated, c.unmediated, got, c.want)
		}
	}
}

// evaluatedOf is a pair with final agreements of its talks.
func evaluatedOf(item string, unmediated, mediated Evaluation, interventions ...int) evaluated {
	return evaluated{pairOf(item, talkOf(EndTurns, unmediated.PartyTurns), talkOf(EndTurns, mediated.PartyTurns, interventions...), talkOf(EndTurns, unmediated.PartyTurns)),
		map[string]Evaluation{StepUnmediated: unmediated, StepMediated: mediated, StepNull: unmediated}, map[string]string{}}
}

func TestConsensusByHand(t *testing.T) {
	t.Parallel()
	es := []evaluated{
		evaluatedOf("a", readings(8, "2:2"), readings(8, "2:2 4:4"), 3),    // gain 2/3; effect at 3: 2/3, sham 0
		evaluatedOf("b", readings(8, "2:4"), readings(8, "2:4 6:5"), 1),    // gain 1; at 1: 4/4, sham 3/4
		evaluatedOf("c", readings(4, "1:4"), readings(8, "1:4 3:2"), 6, 7), // gain −2; at 6 and 7 no change, the unmediated talk is over
		evaluatedOf("d", readings(8, "2:1"), readings(8, "2:3 3:1"), 3),    // gain 0; the drop at 3 is met at once
		evaluatedOf("e", readings(8, "2:5"), readings(8, "2:5"), 4),        // nothing left
		evaluatedOf("f", readings(8, "2:1"), readings(8, "2:5"), 2),        // unscored below
	}
	es[5].not[StepMediated] = "no mass"
	c, err := consensus(es, RoleEvaluator, FormChoose, 1)
	if err != nil {
		t.Fatal(err)
	}
	near := func(what string, got, want float64) {
		t.Helper()
		if math.Abs(got-want) > 1e-9 {
			t.Errorf("%s is %v, want %v", what, got, want)
		}
	}
	near("gain", c.Gain.Value, (200./3+100-200+0+0)/5)
	near("ΔS", c.DeltaS.Value, (0.5+0.25-0.5+0+0)/5)
	near("pooled gain", c.Pooled.Value, 100*0.25/(0.75+0.25+0.25+1+0))
	near("null gain", c.NullGain.Value, 0)
	near("null, pooled", c.NullPooled.Value, 0)
	near("timeliness", c.Timeliness.Value, (70+100.)/2) // c drops at 3 and is met at 6; d at once
	if c.Drops != 2 || c.NoDrop != 3 {
		t.Errorf("%d drops, %d talks without", c.Drops, c.NoDrop)
	}
	near("effectiveness", c.Effectiveness.Value, (200./3+100+0+0)/4)
	near("over sham", c.OverSham.Value, (200./3+25+0)/3)
	near("sham", c.Sham.Value, (0+75.+0)/3)
	if c.Interventions != 6 || c.Undefined != 1 || c.NoSham != 2 {
		t.Errorf("%d interventions, %d undefined, %d without a sham", c.Interventions, c.Undefined, c.NoSham)
	}
	if a := c.Arms[2]; a.Step != StepMediated || a.Scored != 5 || a.Unscored["no mass"] != 1 {
		t.Errorf("the mediated arm is %+v", a)
	}
	if p := c.ByDomain; len(p) != 1 || p[0].Talks != 5 || math.Abs(p[0].DeltaS-0.05) > 1e-9 {
		t.Errorf("by domain %+v", p)
	}
}

func TestAgreedInWords(t *testing.T) {
	t.Parallel()
	with := func(stances ...map[string]string) Evaluation {
		e := readings(2, "1:5", "2:5")
		for k, s := range stances {
			e.Topics[k].Readings[0].Stances = s
		}
		return e
	}
	a, b, none := map[string]string{"p": "A", "q": "A"}, map[string]string{"p": "A", "q": "B"}, map[string]string{"p": "A"}
	for _, c := range []struct {
		of          Evaluation
		same, known bool
	}{{with(a, a), true, true}, {with(a, b), false, true}, {with(none), false, true}, {with(), true, false}} {
		if same, known := c.of.sameStances([]string{"p", "q"}); same != c.same || known != c.known {
			t.Errorf("%+v: %v, %v", c.of.Topics, same, known)
		}
	}
}

// reads is an evaluator that knows the agreement after each turn: agreement says it by topic
// and turn, 0 where the turn is not about the topic.
func reads(agreement map[string]map[int]int) *infertest.Scripted {
	return &infertest.Scripted{Answer: func(p infer.Prompt, as []infer.Answer) infer.Choice {
		text := p.Messages[1].Content
		_, topic, _ := strings.Cut(text, "\nTopic: ")
		turn := strings.Count(text, "Hm.")
		want := "A"
		switch as[0].Label {
		case "yes":
			want = "no"
			if agreement[topic][turn] > 0 {
				want = "yes"
			}
		case "1":
			want = fmt.Sprint(max(1, agreement[topic][turn]))
		}
		return infertest.Always(want, 0.9)(p, as)
	}}
}

func TestEvaluatorReads(t *testing.T) {
	t.Parallel()
	of := caseOf(t, "van", "general").Scenario
	talk := talkOf(EndTurns, 4, 1)
	talk.Parties = []string{of.Parties[0].ID, of.Parties[1].ID}
	known := map[string]map[int]int{of.Topics[0].Name: {2: 3, 4: 5}, of.Topics[1].Name: {3: 2}}
	e, why, err := Evaluate(context.Background(), reads(known), of, talk, FormChoose, 0.05)
	if err != nil || why != "" {
		t.Fatal(err, why)
	}
	got := map[string]map[int]int{}
	for k, topic := range e.Topics {
		for _, r := range topic.Readings {
			if got[of.Topics[k].Name] == nil {
				got[of.Topics[k].Name] = map[int]int{}
			}
			got[of.Topics[k].Name][r.Turn] = r.Agreement
			if r.Relevant < 0.5 || r.Stances[of.Parties[1].ID] != of.Topics[k].Options[0].Letter {
				t.Errorf("the reading is %+v", r)
			}
		}
	}
	if !reflect.DeepEqual(got, known) {
		t.Errorf("%v was read, want %v", got, known)
	}
	if why := e.check(4); why != "" {
		t.Error(why)
	}

	// The order of topics does not matter.
	turned := of
	turned.Topics = slices.Clone(of.Topics)
	slices.Reverse(turned.Topics)
	f, _, err := Evaluate(context.Background(), reads(known), turned, talk, FormChoose, 0.05)
	if err != nil || !slices.Equal(e.trajectory().at, f.trajectory().at) {
		t.Errorf("in another order %v, %v, want %v", f.trajectory().at, err, e.trajectory().at)
	}

	// Every turn: a topic that the turn is not about falls back to 1.
	every, _, err := Evaluate(context.Background(), reads(known), of, talk, FormEvery, 0.05)
	if err != nil || len(every.Topics[0].Readings) != 4 {
		t.Errorf("%d readings, %v", len(every.Topics[0].Readings), err)
	}
}

// TestEvaluatorKnowsNothingThatComesLater: a question about a turn holds no later one, also
// none of the mediator's, and all begin alike.
func TestEvaluatorKnowsNothingThatComesLater(t *testing.T) {
	t.Parallel()
	of := caseOf(t, "van", "general").Scenario
	talk := Talk{Parties: []string{of.Parties[0].ID, of.Parties[1].ID}, Names: []string{"Ines", "Bo"}, Turns: []Turn{
		{By: of.Parties[0].ID, Text: "one", Thought: "private"}, {By: MediatorID, After: 1, Text: "between"}, {By: of.Parties[1].ID, After: 1, Text: "two"}}}
	b := reads(nil)
	if _, why, err := Evaluate(context.Background(), b, of, talk, FormChoose, 0.05); err != nil || why != "" {
		t.Fatal(err, why)
	}
	for i, c := range b.Calls() {
		text := c.Prompt.Messages[1].Content
		later := i >= len(of.Topics)
		if strings.Contains(text, "private") || strings.Contains(text, "between") != later || strings.Contains(text, "two") != later {
			t.Errorf("question %d reads %q", i, text)
		}
		if !strings.HasPrefix(text, soFar+"\n\nInes: one\n") {
			t.Errorf("question %d begins otherwise: %q", i, text)
		}
	}
}

func TestEvaluatorWithoutAnAnswer(t *testing.T) {
	t.Parallel()
	of := caseOf(t, "van", "general").Scenario
	talk := talkOf(EndTurns, 2)
	silent := &infertest.Scripted{Answer: func(_ infer.Prompt, as []infer.Answer) infer.Choice {
		return infertest.Choice(as, make([]float64, len(as)))
	}}
	if _, why, err := Evaluate(context.Background(), silent, of, talk, FormChoose, 0.05); err != nil || !strings.Contains(why, "after turn 1: the probability on the answers is 0") {
		t.Errorf("%q, %v", why, err)
	}
	mumbles := &infertest.Scripted{Say: func(infer.Prompt, infer.Params) infer.Reply { return infer.Reply{Text: "I think so."} }}
	if e, why, err := Evaluate(context.Background(), mumbles, of, talk, FormPass, 0.05); err != nil || !strings.Contains(why, "no JSON object") || e.Raw != "I think so." {
		t.Errorf("%q, %v", why, err)
	}
}

func TestPassesAreParsed(t *testing.T) {
	t.Parallel()
	of := caseOf(t, "van", "general").Scenario
	talk := talkOf(EndTurns, 8)
	talk.Parties = []string{of.Parties[0].ID, of.Parties[1].ID}
	x := &evaluator{of: of, talk: talk}
	for text, want := range map[string]string{
		`{"readings": "2:3:AB, 5:4:-A"}`:                  "2:3 A,B 5:4 ,A 0",
		`{"readings": "2:3:A, 5:4:AX, 6:1:ABA, 7:1:A-"}`:  "7:1 A, 3",
		`{"readings": "2:3, 5:4"}`:                        "2:3 5:4 0",
		`Sure. {"readings":"5:4;2:3"} And so on.`:         "2:3 5:4 0",
		`{"readings": "0:3, 9:1, 2:6, 2:0, 3:x, 4, 1:2"}`: "1:2 6",
		`{"readings": "2:3, 2:4"}`:                        "2:3 1",
		`{"readings": ""}`:                                "0",
	} {
		rs, dropped, ok := x.parsePass(text, of.Topics[0])
		got := ""
		for _, r := range rs {
			got += fmt.Sprintf("%d:%d ", r.Turn, r.Agreement)
			if r.Stances != nil {
				got += r.Stances[talk.Parties[0]] + "," + r.Stances[talk.Parties[1]] + " "
			}
		}
		if got += fmt.Sprint(dropped); !ok || got != want {
			t.Errorf("%s: %q, %v, want %q", text, got, ok, want)
		}
	}
	for _, text := range []string{"2:3", "{}", `{"readings": 3}`, ""} {
		if _, _, ok := x.parsePass(text, of.Topics[0]); ok {
			t.Errorf("%s is taken", text)
		}
	}
}

// TestASilentMediatorGainsNothing goes the whole way: talks, evaluation, score.
func TestASilentMediatorGainsNothing(t *testing.T) {
	t.Parallel()
	of := caseOf(t, "van", "general")
	o := Options{Seed: 3, MaxTurns: 6, MaxTokens: 50, MediatorTokens: 20, Temperature: temperature}
	p := pair{key: task.Unit{Key: run.Key{Item: "van", Condition: "general"}}, talks: map[string]Talk{}, why: map[string]string{}}
	e := evaluated{p, map[string]Evaluation{}, map[string]string{}}
	for step, arm := range map[string]Arm{StepUnmediated: {Kind: ArmNone}, StepMediated: {Kind: ArmGeneric}} {
		o.Arm = arm
		talk, why, err := Simulate(context.Background(), plays(), mediator(0.2), of, o)
		if err != nil || why != "" {
			t.Fatal(err, why)
		}
		p.talks[step] = talk
		if e.read[step], why, err = Evaluate(context.Background(), &infertest.Scripted{}, of.Scenario, talk, FormChoose, 0.05); err != nil || why != "" {
			t.Fatal(err, why)
		}
	}
	c, err := consensus([]evaluated{e}, RoleEvaluator, FormChoose, 1)
	if err != nil {
		t.Fatal(err)
	}
	if c.Gain.Value != 0 || c.DeltaS.Value != 0 || c.Effectiveness != nil || c.Interventions != 0 {
		t.Errorf("a silent mediator has %+v", c)
	}
	if !reflect.DeepEqual(e.read[StepUnmediated], e.read[StepMediated]) {
		t.Error("the evaluations of one talk differ")
	}
}

func TestEvaluatorsAreCompared(t *testing.T) {
	t.Parallel()
	var as, same, other []evaluated
	for i, final := range []int{1, 2, 3, 4, 5, 2, 4, 3} {
		item := string(rune('a' + i))
		as = append(as, evaluatedOf(item, readings(4, ""), readings(4, fmt.Sprintf("1:%d", final))))
		same = append(same, evaluatedOf(item, readings(4, ""), readings(4, fmt.Sprintf("2:%d", min(5, final+1)), "")))
		other = append(other, evaluatedOf(item, readings(4, ""), readings(4, fmt.Sprintf("1:%d", 6-final))))
	}
	cs := correlations([][]evaluated{as, same, other}, []string{"evaluator", "evaluator2", "evaluator3"}, 1)
	if len(cs) != 9 || cs[0].Rho == nil || cs[0].Rho.Value < 0.9 || cs[3].Rho.Value > -0.999 || cs[2].Rho != nil {
		t.Errorf("the correlations are %+v", cs)
	}
}
