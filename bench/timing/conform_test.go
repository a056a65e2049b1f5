package timing

import (
	"encoding/json"
	"testing"

	"github.com/ccmed/ccmed/bench/dialogue"
	"github.com/ccmed/ccmed/bench/run"
	"github.com/ccmed/ccmed/bench/task"
	"github.com/ccmed/ccmed/bench/task/tasktest"
	"github.com/ccmed/ccmed/infer"
)

func TestConforms(t *testing.T) {
	ds := dialogue.Sample()
	var samples []run.Sample
	add := func(step, item, unscored string, data any) {
		b, err := json.Marshal(data)
		if err != nil {
			t.Fatal(err)
		}
		samples = append(samples, run.Sample{Key: run.Key{Step: step, Item: item, Condition: string(CoT)}, Unscored: unscored, Data: b,
			Prompts: []string{"d6c7ce48a02502e628729f054f1d5a58"}, Usage: infer.Usage{Prompt: 10, Evaluated: 10}, Seconds: 1})
	}
	for i, x := range ds {
		d := Decision{Mode: CoT, Gold: x.ConflictTurn, Stage: x.Stage.String(), Context: x.ContextKey(), FirstTurn: 3, LastTurn: x.LastTurn(), Predicted: 3 + i%4, Reasoning: "so"}
		for turn := 1; turn <= d.LastTurn; turn++ {
			d.Curve, d.Lengths = append(d.Curve, Point{Turn: turn, P: 0.1, Share: float64((turn*7+i)%10) / 10, Mass: 1}), append(d.Lengths, 10+turn)
		}
		add(StepReason, x.Key(), "", reasoning{Text: "so", Stop: infer.StopEnd})
		add(StepDecide, x.Key(), map[bool]string{true: "too little mass"}[i == 5], d)
	}
	set := settings{RecordSettings: task.RecordSettings{Data: task.EmbeddedSample}, Mode: string(CoT), FirstTurn: 3}
	b, err := json.Marshal(set)
	if err != nil {
		t.Fatal(err)
	}
	id := run.Identity{Task: TaskName, Seed: 1, Items: task.Keys(ds), DataHash: dialogue.Hash(ds), Models: map[string]infer.Model{Role: {Name: "m"}}}
	if err := json.Unmarshal(b, &id.Options); err != nil {
		t.Fatal(err)
	}
	tasktest.Conform(t, tasktest.Case{Bench: Bench{}, Identity: id, Samples: samples, Flags: []string{"--data", "sample", "--mode", "pick"}})
}
