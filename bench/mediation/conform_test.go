package mediation

import (
	"testing"

	"github.com/ccmed/ccmed/bench/run"
	"github.com/ccmed/ccmed/bench/task/tasktest"
	"github.com/ccmed/ccmed/infer"
)

func TestConforms(t *testing.T) {
	samples := samplesOfUnits(t, study(14)...)
	for i := range samples {
		samples[i].Prompts, samples[i].Seconds = []string{"d6c7ce48a02502e628729f054f1d5a58"}, 1
	}
	samples[2].Unscored = "too little mass"
	items := map[string]bool{}
	id := run.Identity{Task: TaskName, Seed: 1, Options: map[string]any{"rubric": []string{"none", "stage"}, "turn": "gold", "sim_temperature": 0.8},
		Models: map[string]infer.Model{RoleMediator: {Name: "m", Digest: "sha256:1"}, RoleLabeller: {Name: "l", Digest: "sha256:2"}}}
	for _, s := range samples {
		if !items[s.Item] {
			items[s.Item] = true
			id.Items = append(id.Items, s.Item)
		}
	}
	tasktest.Conform(t, tasktest.Case{Bench: Bench{}, Identity: id, Samples: samples, Flags: []string{"--data", "sample", "--limit", "4", "--card-items", "2"}})
}
