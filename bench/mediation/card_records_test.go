package mediation

import (
	"path/filepath"
	"testing"

	"github.com/ccmed/ccmed/bench/dialogue"
	"github.com/ccmed/ccmed/bench/task"
)

// TestCardTakesTrainingRecords: a card that the run's own dialogues cannot fill takes
// training records, unless the run is limited, borrows its card or is held against other
// labels.
func TestCardTakesTrainingRecords(t *testing.T) {
	dir := t.TempDir()
	all := dialogue.Sample()
	for split, ds := range map[string][]dialogue.Dialogue{dialogue.Evaluate: all[:4], dialogue.Training: all[4:]} {
		if err := dialogue.Write(filepath.Join(dir, split), ds); err != nil {
			t.Fatal(err)
		}
	}
	for name, x := range map[string]struct {
		change func(*Call)
		want   int
	}{
		"too few":        {func(*Call) {}, 3},
		"more than all":  {func(c *Call) { c.CardItems = 100 }, len(all) - 4},
		"enough":         {func(c *Call) { c.CardItems = 4 }, 0},
		"limited":        {func(c *Call) { c.Records.Limit = 2 }, 0},
		"borrowed":       {func(c *Call) { c.Baselines = "base" }, 0},
		"other labels":   {func(c *Call) { c.Labels = []string{"anna.jsonl"} }, 0},
		"training split": {func(c *Call) { c.Records.Split = dialogue.Training }, 0},
	} {
		c := &Call{Records: task.Records{Path: dir}, CardItems: 7}
		x.change(c)
		env := task.Env{Archive: &task.Archive{Note: func(string, ...any) {}}}
		got, err := c.trainingCard(t.Context(), env, all[:4])
		if err != nil || len(got) != x.want {
			t.Errorf("%s: %d training records, %v; want %d", name, len(got), err, x.want)
		}
	}
}
