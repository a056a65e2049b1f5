package mediation

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/ccmed/ccmed/bench/dialogue"
	"github.com/ccmed/ccmed/bench/dmis"
	"github.com/ccmed/ccmed/infer"
	"github.com/ccmed/ccmed/infer/infertest"
)

// world writes records in which every turn says its speaker's true stage, "[3]", and is
// labelled with it, but for three in twenty labels that are drawn. Half of the turns after
// the conflict are labelled twice: the rejected path repeats them.
func world(t *testing.T, n int) []dialogue.Dialogue {
	t.Helper()
	r := rand.New(rand.NewPCG(7, 7))
	label := func(stage int) string {
		if r.Float64() < 0.15 {
			stage = r.IntN(6)
		}
		return dmis.Stage(stage).String()
	}
	dir := t.TempDir()
	for i := range n {
		scripted, other := i%3, 3
		stage := map[int]int{1: scripted, 2: other} // by agent; agent 1 speaks the conflict
		turn := func(k int) map[string]any {
			agent := 2 - k%2
			if agent == 1 && k > 3 {
				stage[1] = min(5, stage[1]+r.IntN(2))
			}
			return map[string]any{"t": k, "agent": fmt.Sprint("agent_", agent), "speaker": []string{"Ana", "Bo"}[agent-1],
				"message": fmt.Sprintf("Words of %d-%d [%d].", i, k, stage[agent]), "label": label(stage[agent])}
		}
		var prefix, after, again []map[string]any
		for k := 1; k <= 9; k++ {
			x := turn(k)
			switch {
			case k < 3:
				x["label"] = "transition"
				fallthrough
			case k == 3:
				prefix = append(prefix, x)
			default:
				after = append(after, x)
				twice := map[string]any{}
				for key, v := range x {
					twice[key] = v
				}
				if k <= 6 {
					twice["label"] = label(stage[2-k%2])
				} else {
					twice["message"] = "Other words."
				}
				again = append(again, twice)
			}
		}
		record := map[string]any{"scenario_id": 1000 + i, "metadata": map[string]any{"conflict_stage": dmis.Stage(scripted).String(), "conflict_turn": 3, "conflict_agent": "agent_1",
			"scenario_context": fmt.Sprint("scene ", i/3), "agents": map[string]any{"agent_1": map[string]any{"name": "Ana"}, "agent_2": map[string]any{"name": "Bo"}}},
			"shared_prefix": prefix, "continuations": map[string]any{"original": map[string]any{"turns": after},
				"negative": map[string]any{"intervention_turn": 6, "mediator_utterance": "Hm.", "turns": again}}}
		text, err := json.Marshal(record)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("%d.json", i)), text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	ds, _, err := dialogue.Read(t.Context(), dir, dialogue.ReadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return ds
}

var (
	spokenStage = regexp.MustCompile(`(Ana|Bo)\W+Words of [-\d]+ \[(\d)\]`)
	listed      = regexp.MustCompile(`(?m)^(\d) (\w+):`)
)

// TestOraclesGetTheirGrades serves labellers that know the truth, or do not, as models.
func TestOraclesGetTheirGrades(t *testing.T) {
	ds := world(t, 120)
	_, recorded, err := dialogue.LabelReliability(ds, 1)
	if err != nil || recorded == nil || recorded.Kappa.Value < 0.3 || recorded.Kappa.Value > 0.7 {
		t.Fatalf("the recorded labels' reliability is %+v, %v", recorded, err)
	}
	r := rand.New(rand.NewPCG(1, 2))
	// lastOf is the last stage that a speaker shows, of anybody where the name is "".
	lastOf := func(transcript, name string) int {
		stage := 0
		for _, m := range spokenStage.FindAllStringSubmatch(transcript, -1) {
			if name == "" || m[1] == name {
				stage, _ = strconv.Atoi(m[2])
			}
		}
		return stage
	}
	for _, c := range []struct {
		name   string
		answer func(transcript string) int
		grade  string
		why    string
	}{
		{"the right one", func(s string) int { return lastOf(s, "Ana") }, Reliable, ""},
		{"the right one with noise", func(s string) int {
			if r.Float64() < 0.3 {
				return r.IntN(6)
			}
			return lastOf(s, "Ana")
		}, Reliable, ""},
		{"one that answers for the last speaker", func(s string) int { return lastOf(s, "") }, Weak, "it answers for whoever spoke last"},
		{"a constant one", func(string) int { return 2 }, DegenerateLabels, "same stage in 100 %"},
		{"a random one", func(string) int { return r.IntN(6) }, Weak, "quadratic kappa"},
	} {
		cast := newCast()
		cast[RoleLabeller].Answer = func(p infer.Prompt, as []infer.Answer) infer.Choice {
			name := dmis.Stage(c.answer(p.Messages[1].Content)).String()
			digit := ""
			for _, m := range listed.FindAllStringSubmatch(p.Messages[0].Content, -1) {
				if m[2] == name {
					digit = m[1]
				}
			}
			return infertest.Always(digit, 0.9)(p, as)
		}
		var items []Item
		for _, d := range ds {
			items = append(items, CardItem(d))
		}
		samples, _ := cast.play(t, Options{}, items...)
		gate, err := NewGate(samples, recorded)
		if err != nil {
			t.Fatal(err)
		}
		why := strings.Join(append(append([]string{}, gate.Labeller.Why...), gate.Degenerate...), "; ")
		t.Logf("%s: %s, κ %.2f of %d (recorded %.2f), after the other %+v: %s", c.name, gate.Grade(), gate.Labeller.Kappa, gate.Labeller.N, recorded.Kappa.Value, gate.Labeller.AfterOther, why)
		if gate.Grade() != c.grade || !strings.Contains(why, c.why) || c.why == "" && why != "" {
			t.Errorf("%s is %q: %s; want %q, %q", c.name, gate.Grade(), why, c.grade, c.why)
		}
		if c.grade == Reliable && c.name == "the right one" && gate.Labeller.Consistent != (Rate{120, 120}) {
			t.Errorf("the right one answers otherwise when the stages are listed the other way round: %+v", gate.Labeller.Consistent)
		}
	}
}

// ΔAUC is about the mediator and not about its timing: of a labeller that knows the turn's
// number alone it is 0 for every pattern of predictions, over all dialogues.
func TestDeltaAUCOfTheTurnAloneIsZero(t *testing.T) {
	stands := regexp.MustCompile(`stands at this turn:\nTurn (\d+) `)
	for name, turn := range map[string]func(i, gold int) int{
		"all early":    func(_, gold int) int { return gold - 1 },
		"all late":     func(_, gold int) int { return gold + 2 },
		"exact":        func(_, gold int) int { return gold },
		"of all kinds": func(i, gold int) int { return []int{0, gold - 1, gold, gold + 1, gold + 4, 9}[i%6] },
	} {
		t.Run(name, func(t *testing.T) {
			ds := world(t, 36)
			cast := newCast()
			cast[RoleLabeller].Answer = func(p infer.Prompt, as []infer.Answer) infer.Choice {
				k, err := strconv.Atoi(stands.FindStringSubmatch(p.Messages[1].Content)[1])
				if err != nil {
					t.Error(err)
				}
				return infertest.Always(strconv.Itoa(1+k*5/9), 0.9)(p, as)
			}
			of := map[string]int{}
			for i, d := range ds {
				of[d.Key()] = turn(i, d.ConflictTurn)
			}
			c := &Call{Rubric: []string{"none", "stage"}, Turn: "gold", CardItems: 36}
			items, err := c.itemsOf(ds, func(d dialogue.Dialogue) []Item {
				return []Item{{Dialogue: d, Condition: ND, Turn: of[d.Key()]}, {Dialogue: d, Condition: D, Turn: of[d.Key()]}}
			}, func(string, ...any) {})
			if err != nil {
				t.Fatal(err)
			}
			samples, _ := cast.play(t, Options{}, items...)
			outcomes, err := Outcomes(samples)
			if err != nil {
				t.Fatal(err)
			}
			n, levels := 0, 0.0
			for _, o := range outcomes {
				if o.Condition != ND && o.Condition != D {
					continue
				}
				v, ok := o.Values[DAUC]
				own, okOwn := o.Values[DAUCOwn]
				if !ok || v != 0 || !okOwn || own != 0 {
					t.Errorf("dialogue %s, mediated after %d of %d (gold %d): ΔAUC %v %v, ΔAUC_own %v %v: %q", o.Item, o.Turn, o.LastTurn, o.Gold, v, ok, own, okOwn, o.Unscored)
				}
				n++
				levels += o.Values[AUC]
			}
			if n != 72 || levels == 0 {
				t.Errorf("%d outcomes whose AUCs sum up to %v; the labels must move", n, levels)
			}
			m, err := Score(samples, quick)
			if err != nil {
				t.Fatal(err)
			}
			if len(m.Differences) == 0 {
				t.Error("no differences")
			}
			for _, x := range m.Differences {
				if x.B == Unmediated && x.Metric == AUC && (x.Value.Value != 0 || x.P < 1 || x.Value.N != 36) {
					t.Errorf("%+v", x)
				}
			}
		})
	}
}
