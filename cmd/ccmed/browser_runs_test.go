package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/ccmed/ccmed/bench/dialogue"
	"github.com/ccmed/ccmed/bench/dmis"
	"github.com/ccmed/ccmed/bench/mediation"
	"github.com/ccmed/ccmed/bench/run"
	"github.com/ccmed/ccmed/bench/timing"
	"github.com/ccmed/ccmed/infer"
)

// hostile are texts that a page must show and not obey, and scripts that it must
// render.
var hostile = []string{
	`</script><script>window.hit=1;alert(1)</script>`,
	`<img src=x onerror="window.hit=1;alert(1)">`,
	`<!-- --><svg onload="window.hit=1"></svg>]]>`,
	`" onfocus="window.hit=1" autofocus x="`,
	"**bold** [link](javascript:alert(1)) `code` # heading",
	"\x1b[31mred\x1b[0m\x1b]0;title\a \u009b2J \u202eback\u202c \u2028 end",
	"잠시 멈추고 서로의 이야기를 끝까지 들어 봅시다.",
	"我们先冷静一下，听听对方的想法。",
	"دعونا نتوقف قليلاً ونستمع إلى بعضنا.",
	"{{.Data}} ${window.hit=1} '); window.hit=1; ('",
}

// scriptedRecords writes n records made of the sample, with hostile messages after
// the conflict, and reads them again.
func scriptedRecords(t testing.TB, n int) (path string, ds []dialogue.Dialogue) {
	t.Helper()
	sample := t.TempDir()
	if err := dialogue.Write(sample, dialogue.Sample()); err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(sample, "*.json"))
	if err != nil {
		t.Fatal(err)
	}
	var lines bytes.Buffer
	for i := range n {
		b, err := os.ReadFile(files[i%len(files)])
		if err != nil {
			t.Fatal(err)
		}
		var r map[string]any
		if err := json.Unmarshal(b, &r); err != nil {
			t.Fatal(err)
		}
		r["scenario_id"] = i + 1
		meta := r["metadata"].(map[string]any)
		meta["scenario_context"] = fmt.Sprintf("%s (%d)", meta["scenario_context"], i)
		original := r["continuations"].(map[string]any)["original"].(map[string]any)
		for j, turn := range original["turns"].([]any) {
			turn := turn.(map[string]any)
			turn["message"] = fmt.Sprintf("%s %s", hostile[(i+j)%len(hostile)], turn["message"])
		}
		if b, err = json.Marshal(r); err != nil {
			t.Fatal(err)
		}
		lines.Write(append(b, '\n'))
	}
	path = filepath.Join(t.TempDir(), "records.jsonl")
	if err := os.WriteFile(path, lines.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
	if ds, _, err = dialogue.Read(t.Context(), path, dialogue.ReadOptions{}); err != nil {
		t.Fatal(err)
	}
	return path, ds
}

// scriptedRun writes a run whose steps need no model.
func scriptedRun[I any](t testing.TB, path, data string, ds []dialogue.Dialogue, models map[string]infer.Model, options map[string]any, task run.Task[I]) {
	t.Helper()
	options["data"], options["split"] = data, ""
	id := run.Identity{Task: task.Name, Version: "0.0.0", Models: models, Options: options, Seed: 1, DataHash: dialogue.Hash(ds)}
	for _, d := range ds {
		id.Items = append(id.Items, d.Key())
	}
	dir, err := run.Create(path, id, []string{task.Name, "--model", "scripted", "--data", data})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := run.Execute(t.Context(), dir, task, run.Options{}); err != nil {
		t.Fatal(err)
	}
}

func scripted(roles ...string) map[string]infer.Model {
	out := map[string]infer.Model{}
	for _, r := range roles {
		out[r] = infer.Model{Backend: "scripted", Name: "scripted", Digest: "sha256:" + fmt.Sprintf("%064d", 7), Quantization: "Q4_1"}
	}
	return out
}

// scriptedTiming writes a timing run whose predictions are right, early, late,
// missing or unscored in turn.
func scriptedTiming(t testing.TB, path, data string, ds []dialogue.Dialogue) {
	task := run.Task[dialogue.Dialogue]{Name: "timing"}
	for _, d := range ds {
		task.Units = append(task.Units, run.Unit[dialogue.Dialogue]{Item: d.Key(), Condition: string(timing.Stream), Value: d})
	}
	task.Steps = []run.Step[dialogue.Dialogue]{{Name: timing.StepDecide, Do: func(_ context.Context, _ infer.Backend, u run.Unit[dialogue.Dialogue], _ run.Lookup) (run.Sample, error) {
		d := u.Value
		kind := d.ID % 5
		dec := timing.Decision{Mode: timing.Stream, Gold: d.ConflictTurn, Stage: d.Stage.String(), Context: d.ContextKey(), FirstTurn: 3, LastTurn: d.LastTurn()}
		at := map[int]int{0: d.ConflictTurn, 1: d.ConflictTurn, 2: max(3, d.ConflictTurn-1), 3: min(d.LastTurn(), d.ConflictTurn+2)}[kind]
		for i, turn := range d.Unmediated() {
			p := 0.12 + 0.03*math.Sin(float64(d.ID+i))
			if turn.T >= at && at > 0 {
				p = 0.72 + 0.15*math.Sin(float64(d.ID+2*i))
			}
			dec.Lengths = append(dec.Lengths, len(turn.Message))
			dec.Curve = append(dec.Curve, timing.Point{Turn: turn.T, P: p, No: 1 - p, Share: p, Mass: 1, Bound: p})
		}
		s := run.Sample{}
		dec.Predicted = at
		if kind == 4 && d.ID%2 == 0 {
			dec.Curve[2].Unscored = "the answers got 0.01 of the probability, less than 0.05"
			s.Unscored = "turn 3: " + dec.Curve[2].Unscored
		}
		var err error
		s.Data, err = json.Marshal(dec)
		return s, err
	}}}
	scriptedRun(t, path, data, ds, scripted(timing.Role), map[string]any{"mode": "stream", "first_turn": 3}, task)
}

// scriptedMediator plays all roles of a mediation run.
type scriptedMediator struct {
	qualified bool // the labeller agrees with the card's records
	say       func(i int) string
	turn      func(dialogue.Dialogue) int // nil is the conflict turn; 0 never steps in
}

// scriptedMediation writes a mediation run in which the labeller moves towards
// integration where somebody steps in.
func scriptedMediation(t *testing.T, path, data string, ds []dialogue.Dialogue, m scriptedMediator) {
	task := run.Task[mediation.Item]{Name: "mediation"}
	for _, d := range ds {
		items := []mediation.Item{mediation.CardItem(d)}
		turn := d.ConflictTurn
		if m.turn != nil {
			turn = m.turn(d)
		}
		for _, c := range []string{mediation.ND, mediation.D} {
			items = append(items, mediation.Item{Dialogue: d, Condition: c, Turn: turn})
		}
		items = append(items, mediation.Item{Dialogue: d, Condition: mediation.Unmediated, Turn: d.ConflictTurn})
		for _, it := range items {
			task.Units = append(task.Units, run.Unit[mediation.Item]{Item: d.Key(), Condition: it.Condition, Group: d.Key(), Value: it})
		}
	}
	step := func(name string, do func(it mediation.Item) (any, string)) {
		task.Steps = append(task.Steps, run.Step[mediation.Item]{Name: name, Do: func(_ context.Context, _ infer.Backend, u run.Unit[mediation.Item], _ run.Lookup) (run.Sample, error) {
			v, unscored := do(u.Value)
			if u.Value.Turn == 0 {
				unscored = "no turn was predicted"
			}
			b, err := json.Marshal(v)
			return run.Sample{Unscored: unscored, Data: b}, err
		}})
	}
	mediated := func(it mediation.Item) bool {
		return it.Condition == mediation.ND || it.Condition == mediation.D
	}
	step(mediation.StepUtterance, func(it mediation.Item) (any, string) {
		d := it.Dialogue
		u := mediation.Utterance{Gold: d.ConflictTurn, Turn: it.Turn, LastTurn: d.LastTurn(), Stage: d.Stage.String(), Context: d.ContextKey(), Source: "none"}
		if mediated(it) {
			u.Source, u.Text, u.Sentences = "model", fmt.Sprintf("%s (%s)", m.say(d.ID), it.Condition), 1
		}
		return u, ""
	})
	step(mediation.StepSimulate, func(it mediation.Item) (any, string) {
		if it.Recorded != nil {
			return mediation.Continuation{Turns: it.Recorded}, ""
		}
		var c mediation.Continuation
		for n := it.Turn + 1; n <= it.Dialogue.LastTurn(); n++ {
			c.Turns = append(c.Turns, mediation.SimTurn{T: n, Agent: 2 - n%2, Text: m.say(it.Dialogue.ID + n)})
		}
		return c, ""
	})
	step(mediation.StepLabel, func(it mediation.Item) (any, string) {
		d := it.Dialogue
		at := func(turn int, stage int) mediation.TurnLabel {
			l := mediation.TurnLabel{Turn: turn, Own: 2-turn%2 == d.ConflictAgent, Mass: 0.9, Stage: dmis.Stage(stage).String()}
			for i := range l.P {
				l.P[i] = 0.9 * math.Exp(-math.Abs(float64(i-stage))) / 2.2
			}
			return l
		}
		labels := mediation.Labels{Pre: at(d.ConflictTurn, int(d.Stage))}
		for n := it.Turn + 1; n <= d.LastTurn(); n++ {
			stage := min(5, int(d.Stage)+(n-it.Turn)*map[string]int{mediation.ND: 2, mediation.D: 3}[it.Condition]/3)
			l := at(n, stage)
			if it.Condition == mediation.Card {
				l.Recorded = d.Unmediated()[n-1].Label
				if s, err := dmis.ParseStage(l.Recorded); err == nil && m.qualified {
					l = at(n, int(s))
					l.Recorded = s.String()
				}
			}
			labels.After = append(labels.After, l)
		}
		if it.Condition == mediation.Card {
			labels.Again = &labels.Pre
			if !m.qualified {
				labels.Pre.P = [6]float64{0.9}
				for i := range labels.After {
					labels.After[i].P = [6]float64{0.9}
				}
			}
		}
		if it.Condition == mediation.ND && d.ID%6 == 0 {
			labels.After[0].Unscored = "the digits got 0.02 of the probability, less than 0.05"
		}
		return labels, ""
	})
	step(mediation.StepJudge, func(it mediation.Item) (any, string) {
		if !mediated(it) {
			return mediation.Judgement{NotApplicable: "no mediator's line"}, ""
		}
		j := mediation.Judgement{Mass: 1, Score: 2 + it.Dialogue.ID%3}
		for i := range j.P {
			j.P[i] = 0.1
		}
		j.P[j.Score-1] = 0.6
		for i, p := range j.P {
			j.Expected += float64(i+1) * p
		}
		return j, ""
	})
	scriptedRun(t, path, data, ds, scripted(mediation.RoleMediator, mediation.RoleSimulator, mediation.RoleLabeller, mediation.RoleJudge), map[string]any{"turn": "gold"}, task)
}
