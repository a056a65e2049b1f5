package mediation

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/ccmed/ccmed/bench/dialogue"
	"github.com/ccmed/ccmed/bench/prompt"
	"github.com/ccmed/ccmed/bench/run"
	"github.com/ccmed/ccmed/infer"
	"github.com/ccmed/ccmed/infer/infertest"
)

// cast are the scripted models of a run, by role.
type cast map[string]*infertest.Scripted

func newCast() cast {
	return cast{
		RoleMediator: {Say: says("What does this mean to you?")},
		RoleSimulator: {Say: func(_ infer.Prompt, o infer.Params) infer.Reply {
			return infer.Reply{Text: fmt.Sprint("line ", o.Seed)}
		}},
		RoleLabeller: {},
		RoleJudge:    {Answer: infertest.Always("4", 0.6)},
	}
}

func says(text string) func(infer.Prompt, infer.Params) infer.Reply {
	return func(infer.Prompt, infer.Params) infer.Reply { return infer.Reply{Text: text} }
}

// play runs the task and returns its samples by unit and step, and the roles that
// were opened.
func (c cast) play(t *testing.T, o Options, items ...Item) (samples []run.Sample, opened []string) {
	t.Helper()
	set, err := prompt.Load("")
	if err != nil {
		t.Fatal(err)
	}
	o.Prompts = set
	task, err := Task(items, o)
	if err != nil {
		t.Fatal(err)
	}
	d, err := run.Create(filepath.Join(t.TempDir(), "run"), run.Identity{Task: "mediation"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	_, err = run.Execute(t.Context(), d, task, run.Options{Workers: func(_ context.Context, role string) ([]infer.Backend, error) {
		opened = append(opened, role)
		return []infer.Backend{c[role]}, nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	if d, err = run.Open(d.Path()); err != nil {
		t.Fatal(err)
	}
	if samples, err = d.Samples(); err != nil {
		t.Fatal(err)
	}
	return samples, opened
}

// of decodes the sample of a step under a condition.
func of[T any](t *testing.T, samples []run.Sample, step, condition string) (v T, unscored string) {
	t.Helper()
	for _, s := range samples {
		if s.Step == step && s.Condition == condition {
			if err := json.Unmarshal(s.Data, &v); err != nil {
				t.Fatal(err)
			}
			return v, s.Unscored
		}
	}
	t.Fatalf("no %s sample under %s", step, condition)
	return v, ""
}

// first is a dialogue of nine turns, conflict at turn 3 by agent 1.
func first() dialogue.Dialogue { return dialogue.Sample()[0] }

func at(d dialogue.Dialogue, condition string) Item {
	return Item{Dialogue: d, Condition: condition, Turn: d.ConflictTurn}
}

func TestUtterance(t *testing.T) {
	d, c := first(), newCast()
	c[RoleMediator].Say = says("Mediator: Hm. What does this mean to you?\n")
	samples, _ := c.play(t, Options{Seed: 5, Temperature: 0.7, MaxTokens: 99}, at(d, ND), at(d, D))
	calls := c[RoleMediator].Calls()
	if len(calls) != 2 {
		t.Fatalf("%d calls of the mediator, want 2", len(calls))
	}
	nd, dd := calls[0].Prompt.Messages[1].Content, calls[1].Prompt.Messages[1].Content
	told := []string{d.Stage.String(), d.Stage.Pattern(), d.Stage.Move(), "Developmental Model"}
	for _, w := range told {
		if strings.Contains(nd, w) || !strings.Contains(dd, w) {
			t.Errorf("%q is in ND: %v, in D: %v", w, strings.Contains(nd, w), strings.Contains(dd, w))
		}
	}
	if !strings.Contains(dd, d.Name(d.ConflictAgent)+" speaks from the stage") {
		t.Error("D does not say who speaks from the stage")
	}
	head := "Conversation so far:\n" + dialogue.Transcript(d.Unmediated()[:3])
	if !strings.HasPrefix(nd, head) || !strings.HasPrefix(dd, head) || calls[0].Prompt.Messages[0] != calls[1].Prompt.Messages[0] {
		t.Error("ND and D do not share the system prompt and the dialogue up to the conflict")
	}
	if strings.Contains(nd+dd, d.Unmediated()[3].Message) {
		t.Error("the mediator reads what comes after the conflict turn")
	}
	for _, cond := range []string{ND, D} {
		u, _ := of[Utterance](t, samples, StepUtterance, cond)
		want := Utterance{Gold: 3, Turn: 3, LastTurn: 9, Stage: "Denial", Context: d.ContextKey(), Text: "Hm. What does this mean to you?", Sentences: 2, Source: "model", Stop: "stop"}
		if u != want {
			t.Errorf("%s: %+v, want %+v", cond, u, want)
		}
	}
	if p := calls[0].Params; p.Temperature != 0.7 || p.MaxTokens != 99 || p.Seed != 5 {
		t.Errorf("asked with %+v", p)
	}
}

func TestUtterancesThatAreNotGenerated(t *testing.T) {
	d, c := first(), newCast()
	truth, ok := d.Mediation()
	if !ok {
		t.Fatal("the sample record has no mediation")
	}
	items := append(BaselineItems(d), Item{Dialogue: d, Condition: Foreign, Turn: 4, Given: "From elsewhere."})
	samples, opened := c.play(t, Options{}, items...)
	for _, x := range []struct{ condition, text, source string }{
		{Unmediated, "", "none"}, {Generic, GenericLine, "given"}, {GroundTruth, truth, "given"}, {Foreign, "From elsewhere.", "given"},
	} {
		u, unscored := of[Utterance](t, samples, StepUtterance, x.condition)
		if u.Text != x.text || u.Source != x.source || unscored != "" {
			t.Errorf("%s: %+v, unscored %q", x.condition, u, unscored)
		}
	}
	if slices.Contains(opened, RoleMediator) || c[RoleMediator].Count() != 0 {
		t.Errorf("a mediator was opened: %q", opened)
	}
}

func TestASilentMediatorIsUnscored(t *testing.T) {
	d, c := first(), newCast()
	c[RoleMediator].Say = says("Mediator: \n")
	samples, _ := c.play(t, Options{}, at(d, ND))
	for _, step := range []string{StepUtterance, StepSimulate, StepLabel, StepJudge} {
		if _, unscored := of[any](t, samples, step, ND); unscored != "the mediator said nothing" {
			t.Errorf("%s: unscored %q", step, unscored)
		}
	}
	for _, role := range []string{RoleSimulator, RoleLabeller, RoleJudge} {
		if n := c[role].Count(); n != 0 {
			t.Errorf("the %s was asked %d times", role, n)
		}
	}
}

func TestNoPredictedTurnIsUnscored(t *testing.T) {
	d := first()
	for _, cond := range []string{ND, D, Foreign} {
		c := newCast()
		samples, opened := c.play(t, Options{}, Item{Dialogue: d, Condition: cond, Given: "A line without a turn."})
		for _, step := range []string{StepUtterance, StepSimulate, StepLabel, StepJudge} {
			if _, unscored := of[any](t, samples, step, cond); unscored != "no turn was predicted" {
				t.Errorf("%s: %s: unscored %q", cond, step, unscored)
			}
		}
		if slices.ContainsFunc(opened, func(r string) bool { return r != RoleLabeller }) {
			t.Errorf("%s: roles %q were opened", cond, opened)
		}
		os, err := Outcomes(samples)
		if err != nil || len(os) != 1 || os[0].Turn != 0 || os[0].Utterance != "" || !reflect.DeepEqual(os[0].Values, map[string]float64{DAUC: 0, DAUCOwn: 0, DW1: 0}) || os[0].Unscored[AUC] != "no turn was predicted" {
			t.Errorf("%s: %+v, %v", cond, os, err)
		}
	}
}

func TestSimulation(t *testing.T) {
	for _, d := range []dialogue.Dialogue{dialogue.Sample()[0], dialogue.Sample()[1]} { // conflict by agent 1, by agent 2
		c := newCast()
		samples, _ := c.play(t, Options{Seed: 3, SimMaxTokens: 77}, at(d, ND), at(d, Unmediated))
		n := d.LastTurn() - d.ConflictTurn
		calls := c[RoleSimulator].Calls()
		if len(calls) != 2*n {
			t.Fatalf("%d calls of the simulator, want %d", len(calls), 2*n)
		}
		seeds := map[int64]bool{}
		for i, call := range calls {
			turn := d.ConflictTurn + 1 + i%n
			agent, mediated := 2-turn%2, i < n
			ms := call.Prompt.Messages
			if !strings.HasPrefix(ms[0].Content, "You are "+d.Name(agent)+",") || !strings.Contains(ms[0].Content, d.Value(agent)) || strings.Contains(ms[0].Content, d.Value(3-agent)) {
				t.Errorf("dialogue %d, turn %d: the system prompt is not agent %d's: %q", d.ID, turn, agent, ms[0].Content)
			}
			for j, m := range ms[1:] {
				if want := []string{infer.User, infer.Assistant}[j%2]; m.Role != want {
					t.Errorf("dialogue %d, turn %d: message %d is the %s's", d.ID, turn, j+1, m.Role)
				}
			}
			if ms[len(ms)-1].Role != infer.User {
				t.Errorf("dialogue %d, turn %d: the last message is the %s's", d.ID, turn, ms[len(ms)-1].Role)
			}
			for _, said := range d.Unmediated()[:d.ConflictTurn] {
				want := infer.User
				if said.Agent == agent {
					want = infer.Assistant
				}
				if !slices.ContainsFunc(ms, func(m infer.Message) bool { return m.Role == want && strings.Contains(m.Content, said.Message) }) {
					t.Errorf("dialogue %d, turn %d: turn %d is not the %s's", d.ID, turn, said.T, want)
				}
			}
			has := slices.ContainsFunc(ms, func(m infer.Message) bool {
				return m.Role == infer.User && strings.Contains(m.Content, "[Mediator]: What does this mean to you?")
			})
			if has != mediated {
				t.Errorf("dialogue %d, turn %d: the mediator's line is there: %v", d.ID, turn, has)
			}
			if p := call.Params; p.Temperature != 0.8 || p.MaxTokens != 77 || p.Seed != calls[i%n].Params.Seed {
				t.Errorf("dialogue %d, turn %d: asked with %+v; the seed must be that of the other condition, %d", d.ID, turn, p, calls[i%n].Params.Seed)
			}
			seeds[call.Params.Seed] = true
		}
		if len(seeds) != n {
			t.Errorf("dialogue %d: %d seeds for %d turns", d.ID, len(seeds), n)
		}
		cont, _ := of[Continuation](t, samples, StepSimulate, ND)
		for i, turn := range cont.Turns {
			if turn.T != d.ConflictTurn+1+i || turn.Agent != 2-turn.T%2 {
				t.Errorf("dialogue %d: turn %d of the continuation is %+v", d.ID, i, turn)
			}
		}
		if len(cont.Turns) != n {
			t.Errorf("dialogue %d: %d turns follow, want %d", d.ID, len(cont.Turns), n)
		}
	}
	if a, b := TurnSeed(1, "9001", 4), TurnSeed(1, "9002", 4); a == b || a == TurnSeed(2, "9001", 4) || a != TurnSeed(1, "9001", 4) {
		t.Error("the seed of a turn depends on the run's seed, the dialogue and the turn, and on nothing else")
	}
}

func TestASilentSimulatorIsUnscored(t *testing.T) {
	d, c := first(), newCast()
	c[RoleSimulator].Say = says(d.Name(2) + ": ")
	samples, _ := c.play(t, Options{}, at(d, ND))
	const want = "turn 4: the simulator said nothing"
	for _, step := range []string{StepSimulate, StepLabel} {
		if _, unscored := of[any](t, samples, step, ND); unscored != want {
			t.Errorf("%s: unscored %q, want %q", step, unscored, want)
		}
	}
	if c[RoleLabeller].Count() != 0 {
		t.Error("the labeller was asked about a broken continuation")
	}
	if j, unscored := of[Judgement](t, samples, StepJudge, ND); unscored != "" || j.Score != 4 {
		t.Errorf("the line was said and is judged: %+v, %q", j, unscored)
	}
}

func TestAnInterventionAtTheEndLeavesNothingToLabel(t *testing.T) {
	d, c := first(), newCast()
	samples, _ := c.play(t, Options{}, Item{Dialogue: d, Condition: ND, Turn: 9})
	if _, unscored := of[any](t, samples, StepLabel, ND); !strings.Contains(unscored, "no turn is left to follow") {
		t.Errorf("unscored %q", unscored)
	}
}

func TestLabels(t *testing.T) {
	d := first()
	for _, c := range []struct {
		fact string
		turn int
		own  []bool // turns after the intervention, spoken by the conflict speaker
	}{
		{"at the conflict turn", 3, []bool{false, true, false, true, false, true}},
		{"before it", 1, []bool{false, true, false, true, false, true, false, true}},
		{"after it", 6, []bool{true, false, true}},
	} {
		models := newCast()
		samples, _ := models.play(t, Options{}, Item{Dialogue: d, Condition: ND, Turn: c.turn})
		l, unscored := of[Labels](t, samples, StepLabel, ND)
		if l.Pre.Turn != 3 || !l.Pre.Own || unscored != "" || l.Again != nil {
			t.Errorf("%s: PRE is %+v, unscored %q", c.fact, l.Pre, unscored)
		}
		var own []bool
		for i, a := range l.After {
			if a.Turn != c.turn+1+i || a.Stage == "" {
				t.Errorf("%s: label %d is %+v", c.fact, i, a)
			}
			own = append(own, a.Own)
		}
		if !slices.Equal(own, c.own) {
			t.Errorf("%s: own turns %v, want %v", c.fact, own, c.own)
		}
		calls := models[RoleLabeller].Calls()
		pre := calls[0].Prompt.Messages[1].Content
		if strings.Contains(pre, "Mediator") || !strings.Contains(pre, dialogue.Transcript(d.Unmediated()[:3])) || strings.Contains(pre, d.Unmediated()[3].Message) {
			t.Errorf("%s: PRE reads %q", c.fact, pre)
		}
		for i, call := range calls[1:] {
			user := call.Prompt.Messages[1].Content
			if !strings.Contains(user, dialogue.Transcript(d.Unmediated()[:c.turn])+"Mediator: What does this mean to you?\n") {
				t.Errorf("%s: label %d does not read the record up to turn %d and the mediator's line", c.fact, i, c.turn)
			}
			marked := user[strings.LastIndex(user, "this turn:\n")+len("this turn:\n"):]
			if !strings.HasPrefix(marked, fmt.Sprintf("Turn %d (", c.turn+1+i)) || strings.Contains(user, fmt.Sprintf("Turn %d (", c.turn+2+i)) && c.turn+2+i <= 9 {
				t.Errorf("%s: label %d marks %q", c.fact, i, marked)
			}
			if !strings.Contains(user, "does "+d.Name(d.ConflictAgent)+" speak") || call.Prompt.LeadIn != "Stage: " {
				t.Errorf("%s: label %d asks %q and begins the answer with %q", c.fact, i, user, call.Prompt.LeadIn)
			}
		}
	}
}

func TestLabelForms(t *testing.T) {
	d := first()
	prompts := func(o Options) []infertest.Call {
		c := newCast()
		c.play(t, o, at(d, ND))
		return c[RoleLabeller].Calls()
	}
	plain := prompts(Options{})
	for _, call := range prompts(Options{HideMediator: true}) {
		if strings.Contains(call.Prompt.Messages[1].Content, "Mediator") {
			t.Error("--hide-mediator shows the mediator")
		}
	}
	for i, call := range prompts(Options{NoLeadIn: true}) {
		if call.Prompt.LeadIn != "" || call.Prompt.Hash() == plain[i].Prompt.Hash() {
			t.Errorf("without the lead-in, prompt %d begins the answer with %q", i, call.Prompt.LeadIn)
		}
	}
	for i, call := range prompts(Options{Form: Speaker}) {
		user := call.Prompt.Messages[1].Content
		if !strings.Contains(user, "You are "+d.Name(1)+",") || !strings.Contains(user, d.Value(1)) || strings.Contains(user, d.Value(2)) {
			t.Errorf("prompt %d lacks the conflict speaker's profile: %q", i, user)
		}
		if !strings.Contains(user, "\nMe: "+d.Unmediated()[2].Message+"\n") || !strings.Contains(user, "\n"+d.Name(2)+": "+d.Unmediated()[1].Message+"\n") {
			t.Errorf("prompt %d is not told from the conflict speaker's side: %q", i, user)
		}
	}
	if _, err := (Options{Form: "letter"}).WithDefaults(); err == nil || !strings.Contains(err.Error(), "letter") {
		t.Errorf("an unknown form: %v", err)
	}
}

func TestUnseenDigitsAreUnscored(t *testing.T) {
	d := first()
	for _, c := range []struct {
		fact   string
		choice infer.Choice
	}{
		{"none seen", infer.Choice{P: make([]float64, 6), Bound: make([]float64, 6), Unscored: infer.NoAnswerSeen}},
		{"too little mass", infer.Choice{P: []float64{0.01, 0.02, 0, 0, 0, 0}, Bound: make([]float64, 6), Mass: 0.03}},
	} {
		models := newCast()
		models[RoleLabeller].Answer = func(infer.Prompt, []infer.Answer) infer.Choice { return c.choice }
		samples, _ := models.play(t, Options{}, at(d, ND), at(d, Unmediated))
		l, _ := of[Labels](t, samples, StepLabel, ND)
		for _, x := range append([]TurnLabel{l.Pre}, l.After...) {
			if _, ok := x.Dist(); ok || x.Unscored == "" || x.Stage != "" || x.Ambiguous {
				t.Errorf("%s: %+v is taken for a label", c.fact, x)
			}
		}
		os, err := Outcomes(samples)
		if err != nil || len(os) != 2 {
			t.Fatal(os, err)
		}
		for _, o := range os {
			for _, m := range labelMetrics {
				if _, ok := o.Values[m]; ok || o.Unscored[m] == "" {
					t.Errorf("%s: %s of %s: %v, unscored %q", c.fact, m, o.Condition, o.Values[m], o.Unscored[m])
				}
			}
		}
	}
}

func TestJudge(t *testing.T) {
	d, c := first(), newCast()
	c[RoleJudge].Answer = func(_ infer.Prompt, as []infer.Answer) infer.Choice {
		return infertest.Choice(as, []float64{0, 0.2, 0, 0.6, 0})
	}
	samples, opened := c.play(t, Options{}, at(d, ND), at(d, Unmediated))
	if j, _ := of[Judgement](t, samples, StepJudge, ND); j.Score != 4 || math.Abs(j.Expected-3.5) > 1e-9 {
		t.Errorf("score %d, expected %v; want 4 and 3.5 over the renormalised digits", j.Score, j.Expected)
	}
	if j, unscored := of[Judgement](t, samples, StepJudge, Unmediated); j.NotApplicable == "" || unscored != "" || j.Score != 0 {
		t.Errorf("unmediated: %+v, %q", j, unscored)
	}
	calls := c[RoleJudge].Calls()
	if len(calls) != 1 || !slices.Contains(opened, RoleJudge) {
		t.Fatalf("%d calls; only a line that was said is judged", len(calls))
	}
	user := calls[0].Prompt.Messages[1].Content
	for _, w := range []string{d.Stage.String(), d.Stage.Pattern(), d.Stage.Move(), "What does this mean to you?", dialogue.Transcript(d.Unmediated()[:3])} {
		if !strings.Contains(user, w) {
			t.Errorf("the judge is not told %q", w)
		}
	}
	c = newCast()
	c[RoleJudge].Answer = infertest.Always("none", 0.99)
	samples, _ = c.play(t, Options{}, at(d, ND))
	if j, unscored := of[Judgement](t, samples, StepJudge, ND); unscored == "" || j.Score != 0 || j.Expected != 0 {
		t.Errorf("unseen digits: %+v, unscored %q", j, unscored)
	}
}

func TestRecordedContinuationsNeedOnlyALabeller(t *testing.T) {
	d, c := first(), newCast()
	samples, opened := c.play(t, Options{}, RecordedItems(d)[0], CardItem(d))
	if !slices.Equal(opened, []string{RoleLabeller}) {
		t.Errorf("roles %q were opened, want the labeller's alone", opened)
	}
	for _, cond := range []string{Unmediated, Card} {
		l, unscored := of[Labels](t, samples, StepLabel, cond)
		if len(l.After) != 6 || unscored != "" || (l.Again != nil) != (cond == Card) {
			t.Errorf("%s: %d labels, repeated: %v, unscored %q", cond, len(l.After), l.Again != nil, unscored)
		}
		for i, a := range l.After {
			if want := d.Unmediated()[3+i]; a.Recorded != want.Label || a.Turn != want.T {
				t.Errorf("%s: label %d is of turn %d, recorded %q; want %d, %q", cond, i, a.Turn, a.Recorded, want.T, want.Label)
			}
		}
	}
	// The card asks once more, with the stages the other way round.
	calls := c[RoleLabeller].Calls()
	if len(calls) != 15 {
		t.Fatalf("%d requests, want 15", len(calls))
	}
	reversed := 0
	for _, call := range calls {
		system := call.Prompt.Messages[0].Content
		if strings.Contains(system, "1 Integration:") && strings.Contains(system, "6 Denial:") {
			reversed++
		} else if !strings.Contains(system, "1 Denial:") || !strings.Contains(system, "6 Integration:") {
			t.Errorf("the stages are in no order: %s", system)
		}
	}
	if reversed != 1 {
		t.Errorf("%d requests list the stages the other way round, want 1", reversed)
	}

	items := RecordedItems(d)
	truth, _ := d.Mediation()
	if len(items) != 2 || items[1].Condition != GroundTruth || items[1].Given != truth || len(items[1].Recorded) != len(d.Mediated()) {
		t.Errorf("recorded items %+v", items)
	}
	if got := Roles(items); !reflect.DeepEqual(got, map[string]bool{RoleLabeller: true, RoleJudge: true}) {
		t.Errorf("the record's mediation needs %v", got)
	}
	if got := Roles([]Item{at(d, ND)}); len(got) != 4 {
		t.Errorf("a generated line needs %v", got)
	}
}

func TestTaskRefusesTurnsOutsideTheDialogue(t *testing.T) {
	set, err := prompt.Load("")
	if err != nil {
		t.Fatal(err)
	}
	for _, turn := range []int{-1, 10} {
		if _, err := Task([]Item{{Dialogue: first(), Condition: Foreign, Turn: turn, Given: "x"}}, Options{Prompts: set}); err == nil || !strings.Contains(err.Error(), "dialogue 9001") {
			t.Errorf("turn %d: %v", turn, err)
		}
	}
	if _, err := Task(nil, Options{}); err == nil {
		t.Error("no templates are accepted")
	}
}

// What is asked is never longer than what the context was fitted to.
func TestLongest(t *testing.T) {
	d := first()
	set, err := prompt.Load("")
	if err != nil {
		t.Fatal(err)
	}
	words := func(p infer.Prompt) (n int) {
		for _, m := range p.Messages {
			n += len(strings.Fields(m.Content))
		}
		return n
	}
	given := at(d, Foreign)
	given.Given = strings.Repeat("a long line ", 200)
	for _, c := range []struct {
		name string
		item Item
		o    Options
	}{
		{"generated", at(d, D), Options{}},
		{"given", given, Options{MaxTokens: 1}},
		// Recorded turns are as long as they are, whatever the caps.
		{"recorded", CardItem(d), Options{SimMaxTokens: 1}},
		{"recorded with its mediation", RecordedItems(d)[1], Options{SimMaxTokens: 1, MaxTokens: 1}},
	} {
		o := c.o
		o.Prompts = set
		longest, err := Longest(c.item, o)
		if err != nil {
			t.Fatal(err)
		}
		cast := newCast()
		cast.play(t, c.o, c.item)
		for role, b := range cast {
			for _, call := range b.Calls() {
				if got, most := words(call.Prompt), words(longest[role][0]); got > most {
					t.Errorf("%s: the %s reads %d words, fitted are %d", c.name, role, got, most)
				}
			}
		}
	}
	if ps, err := Longest(Item{Dialogue: d, Condition: ND}, Options{Prompts: set}); ps != nil || err != nil {
		t.Errorf("without a turn: %v, %v", ps, err)
	}
}

// What is planned is what is asked, prompt by prompt.
func TestPlanned(t *testing.T) {
	d := first()
	set, err := prompt.Load("")
	if err != nil {
		t.Fatal(err)
	}
	foreign := at(d, Foreign)
	foreign.Given = "What does this mean to you?"
	items := append([]Item{at(d, ND), at(d, D), foreign, CardItem(d)}, BaselineItems(d)...)
	for _, hidden := range []bool{false, true} {
		for _, it := range items {
			o := Options{HideMediator: hidden}
			cast := newCast()
			cast.play(t, o, it)
			o.Prompts = set
			planned, err := Planned(it, o)
			if err != nil {
				t.Fatal(err)
			}
			for role, b := range cast {
				calls := b.Calls()
				if len(calls) != len(planned[role]) {
					t.Errorf("%s: %d prompts of the %s, planned are %d", it.Condition, len(calls), role, len(planned[role]))
					continue
				}
				for i, call := range calls {
					if got, plan := call.Prompt.Messages[0].Content, planned[role][i].Messages[0].Content; got != plan {
						t.Errorf("%s, prompt %d of the %s begins %.80q, planned is %.80q", it.Condition, i+1, role, got, plan)
					}
				}
			}
		}
	}
	if ps, err := Planned(Item{Dialogue: d, Condition: ND}, Options{Prompts: set}); ps != nil || err != nil {
		t.Errorf("without a turn: %v, %v", ps, err)
	}
}

func TestSentences(t *testing.T) {
	for text, want := range map[string]int{"": 0, "One": 1, "One. Two": 2, "One. Two!": 2, "Really?! Yes.": 2, "3.5 is one": 1, "你好。再见。": 2, "Wait... what?": 2, "She said \"no.\" Then yes.": 2} {
		if got := sentences(text); got != want {
			t.Errorf("%q has %d sentences, want %d", text, got, want)
		}
	}
}

// Texts that end at their cap keep that, are counted, and the others are not.
func TestTextsThatAreCutSaySo(t *testing.T) {
	d, c := first(), newCast()
	c[RoleMediator].Say = func(p infer.Prompt, _ infer.Params) infer.Reply {
		if strings.Contains(p.Messages[1].Content, "Pattern:") {
			return infer.Reply{Text: "What does this", Stop: infer.StopLength}
		}
		return infer.Reply{Text: "What does this mean?", Stop: infer.StopEnd}
	}
	turn := 0
	c[RoleSimulator].Say = func(infer.Prompt, infer.Params) infer.Reply {
		turn++
		return infer.Reply{Text: fmt.Sprint("line ", turn), Stop: map[bool]string{true: infer.StopLength, false: infer.StopEnd}[turn <= 2]}
	}
	samples, _ := c.play(t, Options{Seed: 5}, at(d, ND), at(d, D))
	m, err := Score(samples, quick)
	if err != nil {
		t.Fatal(err)
	}
	cont, _ := of[Continuation](t, samples, StepSimulate, ND)
	if len(cont.Turns) != 6 || cont.Turns[1].Stop != infer.StopLength || cont.Turns[2].Stop != infer.StopEnd {
		t.Errorf("turns %+v", cont.Turns)
	}
	want := map[string]map[string]Rate{ND: {StepUtterance: {0, 1}, StepSimulate: {2, 6}}, D: {StepUtterance: {1, 1}, StepSimulate: {0, 6}}}
	for _, c := range m.Conditions {
		if !reflect.DeepEqual(c.Cut, want[c.Condition]) {
			t.Errorf("%s: %v, want %v", c.Condition, c.Cut, want[c.Condition])
		}
	}
}
