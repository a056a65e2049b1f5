package socrates

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/ccmed/ccmed/bench/run"
	"github.com/ccmed/ccmed/bench/task"
	"github.com/ccmed/ccmed/bench/task/tasktest"
	"github.com/ccmed/ccmed/infer"
)

// replay is the sample of a talk of socrates filter.
func replay(t *testing.T, item string, k int, end, unscored string) run.Sample {
	t.Helper()
	talk := talkOf(end, 4)
	talk.Scenario, talk.Domain = item, "legal"
	b, err := json.Marshal(talk)
	if err != nil {
		t.Fatal(err)
	}
	return run.Sample{Key: run.Key{Step: StepUnmediated, Item: item, Condition: "general", Repeat: k}, Unscored: unscored, Data: b,
		Prompts: []string{"d6c7ce48a02502e628729f054f1d5a58"}, Usage: infer.Usage{Prompt: 10, Evaluated: 10}, Seconds: 1}
}

func TestScenariosWithoutAnAgreementAreKept(t *testing.T) {
	t.Parallel()
	var samples []run.Sample
	for item, ends := range map[string][]string{
		"all-impasse": {EndImpasse, EndImpasse, EndImpasse}, "no-end": {EndTurns, EndImpasse, EndTurns}, "one-agreement": {EndImpasse, EndAgreement, EndImpasse},
		"unscored": {EndImpasse, "", EndImpasse}, "too-few": {EndImpasse, EndImpasse},
	} {
		for k, end := range ends {
			why := ""
			if end == "" {
				why = "no JSON"
			}
			samples = append(samples, replay(t, item, k, end, why))
		}
	}
	ps, err := pairs(task.Units(samples))
	if err != nil {
		t.Fatal(err)
	}
	m := filtered(ps, 3)
	if got := slices.Sorted(slices.Values(m.kept())); fmt.Sprint(got) != "[all-impasse no-end]" || m.Kept != 2 || m.Unscored["no JSON"] != 1 {
		t.Errorf("kept are %v: %+v", got, m)
	}
}

func TestFilterConforms(t *testing.T) {
	var samples []run.Sample
	for i, item := range []string{"a", "b", "c", "d"} {
		for k := range 3 {
			end, why := EndImpasse, ""
			if i == k {
				end = EndAgreement
			}
			if i == 3 && k == 2 {
				end, why = "", "no JSON"
			}
			samples = append(samples, replay(t, item, k, end, why))
		}
	}
	id := run.Identity{Task: FilterTask, Seed: 1, Items: []string{"a", "b", "c", "d"}, Models: map[string]infer.Model{RoleParty: {Name: "m"}},
		Options: map[string]any{"replays": 3, "max_tokens": 50}}
	tasktest.Conform(t, tasktest.Case{Bench: FilterBench{}, Identity: id, Samples: samples, Flags: []string{"--max-turns", "4"}})
}

// TestReplaysHaveTheirOwnSeeds: three talks of a filter, the talk without a mediator and the
// one from other seeds are five.
func TestReplaysHaveTheirOwnSeeds(t *testing.T) {
	t.Parallel()
	of := caseOf(t, "van", "general")
	seeds := map[int64]string{}
	for _, arm := range []Arm{{Kind: ArmNone}, {Kind: ArmNull}, {ArmReplay, 1}, {ArmReplay, 2}, {ArmReplay, 3}} {
		s := &speaking{of: of, o: Options{Seed: 5, Arm: arm}}
		name := fmt.Sprint(arm)
		if other, there := seeds[s.params(2, 10, "party").Seed]; there {
			t.Errorf("%s has the seed of %s", name, other)
		}
		seeds[s.params(2, 10, "party").Seed] = name
	}
}

func TestSharedTalksFitTheRun(t *testing.T) {
	t.Parallel()
	id := func(change func(*run.Identity)) run.Identity {
		x := run.Identity{Task: "socrates", Seed: 1, Models: map[string]infer.Model{RoleParty: {Name: "p", Digest: "1"}, RoleMediator: {Name: "m"}},
			Prompts: map[string]string{"socrates_party": "h", "socrates_mediator": "k"}, Options: map[string]any{"max_turns": 8, "max_tokens": 50, "max_history": 0, "arm": "generic"}}
		if change != nil {
			change(&x)
		}
		return x
	}
	e := &earlier{manifest: run.Manifest{Path: "earlier", Status: run.StatusDone, Identity: id(nil)}}
	for want, change := range map[string]func(*run.Identity){
		"": func(x *run.Identity) {
			x.Models[RoleMediator] = infer.Model{Name: "another"}
			x.Options["arm"] = "always"
		},
		"model of the parties": func(x *run.Identity) { x.Models[RoleParty] = infer.Model{Name: "p", Digest: "2"} },
		"seed":                 func(x *run.Identity) { x.Seed = 2 },
		"--max-turns":          func(x *run.Identity) { x.Options["max_turns"] = 9 },
		"prompts":              func(x *run.Identity) { x.Prompts["socrates_party"] = "other" },
	} {
		err := e.fits(id(change))
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", want, err)
		}
	}
	e.manifest.Status = run.StatusInterrupted
	if err := e.fits(id(nil)); err == nil || !strings.Contains(err.Error(), "runs resume") {
		t.Errorf("talks of a run that is not finished: %v", err)
	}
}
