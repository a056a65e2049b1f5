package socrates

import (
	"encoding/json"
	"fmt"
	"math"
	"testing"

	"github.com/spf13/pflag"

	"github.com/ccmed/ccmed/bench/run"
	"github.com/ccmed/ccmed/bench/task"
	"github.com/ccmed/ccmed/bench/task/tasktest"
	"github.com/ccmed/ccmed/infer"
)

// talkOf ends so after party turns, with interventions after some of them.
func talkOf(end string, turns int, after ...int) Talk {
	t := Talk{Scenario: "a", Domain: "legal", Axis: "general", Parties: []string{"p", "q"}, Names: []string{"P", "Q"}, End: end}
	for n := range turns {
		for _, k := range after {
			if k == n {
				t.Turns = append(t.Turns, Turn{By: MediatorID, After: n, Text: "What matters?"})
			}
		}
		t.Turns = append(t.Turns, Turn{By: t.Parties[n%2], After: n, Thought: "so", Text: "Hm."})
	}
	return t
}

func pairOf(item string, unmediated, mediated, null Talk) pair {
	return pair{key: task.Unit{Key: run.Key{Item: item, Condition: "general"}}, why: map[string]string{},
		talks: map[string]Talk{StepUnmediated: unmediated, StepMediated: mediated, StepNull: null}}
}

func TestMeasuresByHand(t *testing.T) {
	t.Parallel()
	ps := []pair{
		pairOf("a", talkOf(EndTurns, 8), talkOf(EndAgreement, 4, 1, 2), talkOf(EndTurns, 8)),      // 0 → 1; 2 of 4, first at 1/4
		pairOf("b", talkOf(EndImpasse, 2), talkOf(EndTurns, 8), talkOf(EndAgreement, 6)),          // 0 → 0; silent
		pairOf("c", talkOf(EndAgreement, 6), talkOf(EndImpasse, 5, 4), talkOf(EndAgreement, 4)),   // 1 → 0; 1 of 5, first at 4/5
		pairOf("d", talkOf(EndAgreement, 6), talkOf(EndAgreement, 10, 5), talkOf(EndImpasse, 10)), // 1 → 1; 1 of 10, first at 1/2
		pairOf("e", talkOf(EndTurns, 8), talkOf(EndAgreement, 8, 2, 4), talkOf(EndTurns, 8)),      // unscored below
	}
	ps[4].why[StepMediated] = "no JSON"
	m, err := measure(ps, nil, "", 1)
	if err != nil {
		t.Fatal(err)
	}
	near := func(what string, got, want float64) {
		t.Helper()
		if math.Abs(got-want) > 1e-12 {
			t.Errorf("%s is %v, want %v", what, got, want)
		}
	}
	near("gain", m.Gain.Value, 0)
	near("null gain", m.NullGain.Value, 0)
	near("frequency", m.Frequency.Value, (0.5+0+0.2+0.1)/4)
	near("first", m.First.Value, (0.25+0.8+0.5)/3)
	if m.Silent != 1 || m.Gain.N != 4 || m.NullGain.N != 5 || m.Talks != 5 {
		t.Errorf("silent %d, %d pairs, %d null pairs, %d talks", m.Silent, m.Gain.N, m.NullGain.N, m.Talks)
	}
	var got string
	for _, a := range m.Arms {
		got += fmt.Sprintf("%s %d %d %d %d %.1f %v; ", a.Step, a.Scored, a.Agreed, a.Impasse, a.NoEnd, a.Turns, a.Unscored)
	}
	if want := "unmediated 5 2 1 2 6.0 map[]; null 5 2 1 2 7.2 map[]; mediated 4 2 1 1 6.8 map[no JSON:1]; "; got != want {
		t.Errorf("arms are\n%s, want\n%s", got, want)
	}
	if len(m.ByAxis) != 1 || m.ByAxis[0] != (Part{"general", 4, 2, 2}) || m.ByDomain[0] != (Part{"legal", 4, 2, 2}) {
		t.Errorf("by axis %+v, by domain %+v", m.ByAxis, m.ByDomain)
	}
	better, err := measure(ps[:2], nil, "", 1)
	if err != nil {
		t.Fatal(err)
	}
	near("gain", better.Gain.Value, 0.5)
}

func TestConforms(t *testing.T) {
	var samples []run.Sample
	for i, item := range []string{"a", "b", "c", "d"} {
		for step, talk := range map[string]Talk{StepUnmediated: talkOf(EndTurns, 8), StepNull: talkOf(EndImpasse, 3), StepMediated: talkOf([]string{EndAgreement, EndTurns}[i%2], 6, i%3+1)} {
			unscored := ""
			if i == 3 && step == StepMediated {
				unscored, talk.End, talk.Raw = "the answer of a party is no JSON object of thought and utterance", "", "Hm."
			}
			if step == StepMediated {
				talk.Decisions = []Decision{{After: 1, Thought: "now", P: 0.7}}
			}
			b, err := json.Marshal(talk)
			if err != nil {
				t.Fatal(err)
			}
			samples = append(samples, run.Sample{Key: run.Key{Step: step, Item: item, Condition: "general"}, Unscored: unscored, Data: b,
				Prompts: []string{"d6c7ce48a02502e628729f054f1d5a58"}, Usage: infer.Usage{Prompt: 10, Evaluated: 10}, Seconds: 1})
		}
	}
	id := run.Identity{Task: "socrates", Seed: 1, Items: []string{"a", "b", "c", "d"}, Models: map[string]infer.Model{RoleMediator: {Name: "m"}, RoleParty: {Name: "m"}},
		Options: map[string]any{"arm": "generic", "max_tokens": 50}}
	tasktest.Conform(t, tasktest.Case{Bench: Bench{}, Identity: id, Samples: samples, Flags: []string{"--null", "--max-turns", "4", "--casino", "testdata/casino.json"}})
}

func TestFlagsOutOfRange(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"--max-turns", "1"}, {"--max-turns", "1001"}, {"--max-tokens", "0"}, {"--mediator-tokens", "0"}, {"--max-history", "-1"}, {"--limit", "-1"},
		{"--arm", "periodic"}, {"--arm", "periodic:0"}, {"--arm", "generic:2"}, {"--arm", "null"}, {"--conditions", "mood"}, {"--conditions", "parties", "--limit", "0", "--scenarios", "nowhere"}} {
		f := pflag.NewFlagSet("", pflag.ContinueOnError)
		c := Bench{}.Flags(f)
		if err := f.Parse(args); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Plan(t.Context(), task.Env{Archive: &task.Archive{Note: t.Logf}}); err == nil {
			t.Errorf("%v is taken", args)
		}
	}
}
