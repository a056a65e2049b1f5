package socrates

import (
	"context"
	"reflect"
	"strings"
	"testing"

	"github.com/ccmed/ccmed/bench/socrates/scenario"
	"github.com/ccmed/ccmed/infer"
	"github.com/ccmed/ccmed/infer/infertest"
)

// caseOf is an embedded scenario under a condition.
func caseOf(t *testing.T, id, condition string) scenario.Case {
	t.Helper()
	all, err := scenario.Read(scenario.Sample, false)
	if err != nil {
		t.Fatal(err)
	}
	cs, err := scenario.Choose([]string{condition})
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range all {
		if s.ID == id {
			cases, _ := scenario.Expand(s, cs)
			return cases[0]
		}
	}
	t.Fatalf("no scenario %s", id)
	return scenario.Case{}
}

// script answers with one text after the other, and goes on with the last one.
func script(texts ...string) *infertest.Scripted {
	n := 0
	return &infertest.Scripted{Say: func(infer.Prompt, infer.Params) infer.Reply {
		text := texts[min(n, len(texts)-1)]
		n++
		stop := infer.StopEnd
		if strings.HasSuffix(text, "…") {
			stop = infer.StopLength
		}
		return infer.Reply{Text: text, Stop: stop}
	}}
}

func says(utterance string) string { return spoken{"I think: " + utterance, utterance}.json() }

func alone(t *testing.T, of scenario.Case, party *infertest.Scripted, turns int) (Talk, string) {
	t.Helper()
	talk, why, err := Simulate(context.Background(), party, nil, of, Options{Arm: Arm{Kind: ArmNone}, MaxTurns: turns, MaxTokens: 50, MediatorTokens: 20})
	if err != nil {
		t.Fatal(err)
	}
	return talk, why
}

func TestHowATalkEnds(t *testing.T) {
	t.Parallel()
	const yes, no = "[FINAL AGREEMENT] on 8,600", "[impasse]"
	for name, c := range map[string]struct {
		of    scenario.Case
		says  []string
		end   string
		turns int
	}{
		"both agree":             {caseOf(t, "van", "general"), []string{"Hm.", yes, yes}, EndAgreement, 3},
		"an agreement alone":     {caseOf(t, "van", "general"), []string{yes, "Hm."}, EndTurns, 6},
		"a mark taken back":      {caseOf(t, "van", "general"), []string{yes, "Hm.", "No, wait.", yes, "Hm.", "Hm."}, EndTurns, 6},
		"given again":            {caseOf(t, "van", "general"), []string{yes, "Hm.", "No, wait.", yes, yes}, EndAgreement, 5},
		"one breaks off":         {caseOf(t, "van", "general"), []string{yes, "Never. " + no}, EndImpasse, 2},
		"an impasse comes first": {caseOf(t, "van", "general"), []string{yes, yes + no}, EndImpasse, 2},
		"two of three agree":     {caseOf(t, "river", "parties"), []string{yes, yes, "Hm."}, EndTurns, 6},
		"all three agree":        {caseOf(t, "river", "parties"), []string{"Hm.", yes, yes, yes}, EndAgreement, 4},
	} {
		var texts []string
		for _, x := range c.says {
			texts = append(texts, says(x))
		}
		talk, why := alone(t, c.of, script(texts...), 6)
		if why != "" || talk.End != c.end || talk.PartyTurns() != c.turns {
			t.Errorf("%s: ends with %q (%s) after %d turns, want %q after %d", name, talk.End, why, talk.PartyTurns(), c.end, c.turns)
		}
	}
}

func TestAnswersThatAreNotAsAsked(t *testing.T) {
	t.Parallel()
	of := caseOf(t, "van", "general")
	for name, c := range map[string]struct {
		answers  []string
		why, raw string
		first    Turn
	}{
		"words around it":     {answers: []string{"Sure:\n```json\n" + says("Hi.") + "\n```"}, first: Turn{By: "ines", Thought: "I think: Hi.", Text: "Hi."}},
		"a second answer":     {answers: []string{"Hi.", says("Hi.")}, first: Turn{By: "ines", Thought: "I think: Hi.", Text: "Hi.", Repaired: true}},
		"no JSON twice":       {answers: []string{"Hi."}, why: "the answer of a party is no JSON object of thought and utterance", raw: "Hi."},
		"cut twice":           {answers: []string{`{"thought": "a…`}, why: "the answer of a party is cut at its cap of tokens", raw: `{"thought": "a…`},
		"an empty utterance":  {answers: []string{says(" \n ")}, why: "the answer of a party holds no utterance", raw: says(" \n ")},
		"for another":         {answers: []string{says("Ines Aguiar: Fine.\n\n\nBertil Nyman: I agree."), says("Ok.")}, first: Turn{By: "ines", Thought: "I think: Ines Aguiar: Fine.\n\n\nBertil Nyman: I agree.", Text: "Fine.", Trimmed: true}},
		"for the mediator":    {answers: []string{says("Fine.\n**Mediator**: Good.")}, first: Turn{By: "ines", Thought: "I think: Fine.\n**Mediator**: Good.", Text: "Fine.", Trimmed: true}},
		"another one's alone": {answers: []string{says("Bertil Nyman: I agree.")}, why: "the answer of a party holds no utterance", raw: says("Bertil Nyman: I agree.")},
		"empty lines":         {answers: []string{says("One.\n\n \nTwo.")}, first: Turn{By: "ines", Thought: "I think: One.\n\n \nTwo.", Text: "One.\nTwo."}},
	} {
		talk, why := alone(t, of, script(c.answers...), 2)
		if why != c.why || talk.Raw != c.raw {
			t.Errorf("%s: unscored %q with %q, want %q with %q", name, why, talk.Raw, c.why, c.raw)
		}
		if c.why == "" && talk.Turns[0] != c.first {
			t.Errorf("%s: the first turn is %+v", name, talk.Turns[0])
		}
	}
}

// plays is a model whose words follow from the prompt and the seed.
func plays() *infertest.Scripted {
	return &infertest.Scripted{Say: func(p infer.Prompt, o infer.Params) infer.Reply {
		h := infer.Prompt{Raw: p.Hash(), LeadIn: string(rune('a' + o.Seed%26))}.Hash()
		return infer.Reply{Text: says(h[:6])}
	}}
}

func mediator(p float64) *infertest.Scripted {
	return &infertest.Scripted{Answer: infertest.Always("yes", p), Say: func(infer.Prompt, infer.Params) infer.Reply {
		return infer.Reply{Text: "Mediator: What matters to you?"}
	}}
}

func TestASilentMediatorChangesNothing(t *testing.T) {
	t.Parallel()
	of := caseOf(t, "van", "emotion:CR")
	o := Options{Seed: 3, MaxTurns: 6, MaxTokens: 50, MediatorTokens: 20, Temperature: temperature}
	talk := func(arm Arm, p float64) Talk {
		t.Helper()
		o := o
		o.Arm = arm
		got, why, err := Simulate(context.Background(), plays(), mediator(p), of, o)
		if err != nil || why != "" {
			t.Fatal(err, why)
		}
		return got
	}
	unmediated, silent := talk(Arm{Kind: ArmNone}, 0), talk(Arm{Kind: ArmGeneric}, 0.2)
	if len(silent.Decisions) != 5 || silent.Decisions[0].After != 1 {
		t.Errorf("the decisions are %+v", silent.Decisions)
	}
	silent.Decisions = nil
	if !reflect.DeepEqual(silent, unmediated) {
		t.Errorf("with a silent mediator\n%+v, without\n%+v", silent, unmediated)
	}
	if null := talk(Arm{Kind: ArmNull}, 0); reflect.DeepEqual(null, unmediated) {
		t.Error("another seed gives the same talk")
	}
	for arm, want := range map[Arm][]int{{Kind: ArmAlways}: {1, 2, 3, 4, 5}, {Kind: ArmPeriodic, Every: 2}: {2, 4}, {Kind: ArmGeneric}: {1, 2, 3, 4, 5}} {
		got := talk(arm, 0.9)
		if !reflect.DeepEqual(got.Interventions(), want) || got.PartyTurns() != 6 {
			t.Errorf("%+v speaks after %v", arm, got.Interventions())
		}
		if x := got.Turns[want[0]]; x.By != MediatorID || x.Text != "What matters to you?" {
			t.Errorf("%+v says %+v", arm, x)
		}
		if got.Turns[0] != unmediated.Turns[0] {
			t.Errorf("%+v changes what was said before it", arm)
		}
	}
}

func TestAMediatorThatGivesNoAnswer(t *testing.T) {
	t.Parallel()
	of := caseOf(t, "van", "general")
	o := Options{Arm: Arm{Kind: ArmGeneric}, MaxTurns: 4, MaxTokens: 50, MediatorTokens: 20}
	undecided, mute := mediator(0.9), mediator(0.9)
	undecided.Answer = func(_ infer.Prompt, as []infer.Answer) infer.Choice { return infertest.Choice(as, []float64{0, 0}) }
	mute.Say = func(infer.Prompt, infer.Params) infer.Reply { return infer.Reply{Text: " \n"} }
	for want, m := range map[string]*infertest.Scripted{"the mediator's decision: neither yes nor no is among the likely answers": undecided, "the mediator's words are empty": mute} {
		if talk, why, err := Simulate(context.Background(), plays(), m, of, o); err != nil || why != want || talk.PartyTurns() != 1 || talk.End != "" {
			t.Errorf("%q, %v after %d turns, want %q", why, err, talk.PartyTurns(), want)
		}
	}
}

func TestWhoKnowsWhat(t *testing.T) {
	t.Parallel()
	of := caseOf(t, "river", "strategy:avoiding")
	party, med := plays(), mediator(0.9)
	talk, _, err := Simulate(context.Background(), party, med, of, Options{Arm: Arm{Kind: ArmGeneric}, MaxTurns: 6, MaxTokens: 50, MediatorTokens: 20})
	if err != nil {
		t.Fatal(err)
	}
	text := func(c infertest.Call) string {
		var b strings.Builder
		for _, m := range c.Prompt.Messages {
			b.WriteString(m.Content + "\n")
		}
		return b.String()
	}
	last := map[int]infer.Prompt{}
	for turn, c := range party.Calls() {
		side := turn % 2
		all := text(c)
		own, other := of.Scenario.Parties[side], of.Scenario.Parties[1-side]
		if !strings.Contains(all, own.Role.Fallback) || strings.Contains(all, other.Role.Fallback) || !strings.Contains(all, of.Posture) {
			t.Errorf("turn %d does not know its own profile and posture alone", turn)
		}
		n := 0
		for _, x := range talk.Turns {
			if x.By == MediatorID {
				continue
			}
			if n < turn && strings.Contains(all, x.Thought) != (x.By == own.ID) {
				t.Errorf("turn %d and the thought of %s", turn, x.By)
			}
			n++
		}
		if before, ok := last[side]; ok {
			k := len(before.Messages)
			if len(c.Prompt.Messages) != k+2 || !reflect.DeepEqual(c.Prompt.Messages[:k], before.Messages) {
				t.Errorf("the prompt of turn %d does not begin with that of turn %d", turn, turn-2)
			}
		}
		last[side] = c.Prompt
	}
	for _, c := range med.Calls() {
		for _, secret := range []string{of.Scenario.Parties[0].Role.Objective, of.Scenario.Parties[1].Relation, of.Posture, talk.Turns[0].Thought} {
			if strings.Contains(text(c), secret) {
				t.Errorf("the mediator knows %q", secret)
			}
		}
	}
	open := mediator(0.9)
	if _, _, err := Simulate(context.Background(), plays(), open, of, Options{Arm: Arm{Kind: ArmAlways}, MaxTurns: 2, MaxTokens: 50, MediatorTokens: 20, PostureVisible: true}); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(text(open.Calls()[0]), of.Posture) {
		t.Error("a posture that is visible is not told")
	}
}

func TestHistoryOfAPromptIsLimited(t *testing.T) {
	t.Parallel()
	party := plays()
	_, _, err := Simulate(context.Background(), party, nil, caseOf(t, "van", "general"), Options{Arm: Arm{Kind: ArmNone}, MaxTurns: 8, MaxTokens: 50, MaxHistory: 3})
	if err != nil {
		t.Fatal(err)
	}
	ms := party.Calls()[7].Prompt.Messages
	if len(ms) != 4 || !strings.HasPrefix(ms[1].Content, leftOut+"\nInes Aguiar: ") {
		t.Errorf("the last prompt is %+v", ms[1:])
	}
}

func TestLongestPromptsAreNotExceeded(t *testing.T) {
	t.Parallel()
	of := caseOf(t, "bank", "history")
	for _, limit := range []int{0, 4} {
		o := Options{Arm: Arm{Kind: ArmAlways}, MaxTurns: 6, MaxTokens: 10, MediatorTokens: 5, MaxHistory: limit}
		size := func(p infer.Prompt) (n int) {
			for _, m := range p.Messages {
				n += len(m.Content)
			}
			return n
		}
		party := &infertest.Scripted{Say: func(infer.Prompt, infer.Params) infer.Reply {
			return infer.Reply{Text: spoken{filler(3), filler(3)}.json()}
		}}
		med := &infertest.Scripted{Say: func(infer.Prompt, infer.Params) infer.Reply { return infer.Reply{Text: filler(5)} }}
		if _, _, err := Simulate(context.Background(), party, med, of, o); err != nil {
			t.Fatal(err)
		}
		longest, longestMed := longestPrompts(of, o)
		for _, c := range party.Calls() {
			if size(c.Prompt) > size(longest) {
				t.Errorf("a party's prompt of %d bytes is longer than %d", size(c.Prompt), size(longest))
			}
		}
		for _, c := range med.Calls() {
			if size(c.Prompt) > size(longestMed) {
				t.Errorf("a mediator's prompt of %d bytes is longer than %d", size(c.Prompt), size(longestMed))
			}
		}
	}
}
