package timing

import (
	"context"
	"fmt"

	"github.com/ccmed/ccmed/bench/dialogue"
	"github.com/ccmed/ccmed/bench/report"
	"github.com/ccmed/ccmed/bench/run"
	"github.com/ccmed/ccmed/bench/task"
)

// given is the mode of decisions that were made elsewhere.
const given Mode = "given"

// ScoreGiven scores turns that were predicted elsewhere, by the key of their dialogue.
// Dialogues without a prediction are left out and counted.
func ScoreGiven(ctx context.Context, name string, ds []dialogue.Dialogue, lines map[string]task.Line, seed uint64) (sections []report.Section, left int, err error) {
	var a Answers
	var eval []dialogue.Dialogue
	for _, d := range ds {
		l, ok := lines[d.Key()]
		if !ok {
			left++
			continue
		}
		eval = append(eval, d)
		x := Decided{Key: run.Key{Item: d.Key()}, Decision: Decision{Mode: given, Gold: d.ConflictTurn, Stage: d.Stage.String(), Context: d.ContextKey(), FirstTurn: 1, LastTurn: d.LastTurn()}}
		if l.Turn == nil {
			x.Unscored = "the file gives no predicted_turn"
		} else {
			x.Predicted = *l.Turn
		}
		a.Decided = append(a.Decided, x)
	}
	if len(eval) == 0 {
		return nil, left, fmt.Errorf("it has a prediction for none of the %d dialogues that --limit takes", len(ds))
	}
	m, err := Score(a, ScoreOptions{Seed: seed})
	if err != nil {
		return nil, left, err
	}
	bs, err := Baselines(ctx, eval, nil, 3, m.ScoredItems(), "")
	if err != nil {
		return nil, left, fmt.Errorf("compute the baselines: %w", err)
	}
	return Sections(name, m, bs), left, nil
}
