package dualhead

import (
	"testing"

	"github.com/ccmed/ccmed/bench/dialogue"
	"github.com/ccmed/ccmed/bench/run"
	"github.com/ccmed/ccmed/bench/task"
	"github.com/ccmed/ccmed/bench/task/tasktest"
	"github.com/ccmed/ccmed/bench/timing"
	"github.com/ccmed/ccmed/infer"
)

func TestConforms(t *testing.T) {
	ds := dialogue.Sample()
	var samples []run.Sample
	add := func(step, item, unscored string, data any) {
		s, err := task.Sample(data, unscored, nil)
		if err != nil {
			t.Fatal(err)
		}
		s.Key, s.Seconds = run.Key{Step: step, Item: item, Condition: string(timing.DualHead)}, 1
		samples = append(samples, s)
	}
	for i, x := range ds {
		p := make([]float64, x.LastTurn())
		for turn := range p {
			p[turn] = float64((turn*7+i*3)%10) / 10
		}
		d, err := timing.DecideAt(x, p, 3, 0.4)
		if err != nil {
			t.Fatal(err)
		}
		add(timing.StepDecide, x.Key(), map[bool]string{true: "hidden states are not finite"}[i == 5], d)
		add(timing.StepUtterance, x.Key(), map[bool]string{true: timing.NotSpoken}[d.Predicted == 0], timing.Utterance{Gold: d.Gold, Turn: d.Predicted, Text: "What matters to you?", Stop: infer.StopEnd})
	}
	id := run.Identity{Task: timing.TaskName, Seed: 1, Items: task.Keys(ds), DataHash: dialogue.Hash(ds), Models: map[string]infer.Model{timing.Role: {Name: "tuned"}},
		Options: map[string]any{"data": task.EmbeddedSample, "mode": string(timing.DualHead), "first_turn": 3, "threshold": 0.4, "threshold_validation": 0.4, "mask_markers": true}}
	tasktest.Conform(t, tasktest.Case{Bench: Bench{}, Identity: id, Samples: samples})
}
