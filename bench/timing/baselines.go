package timing

import (
	"context"

	"github.com/ccmed/ccmed/bench/dialogue"
)

// Baselines computes every baseline on the evaluated dialogues: fitted on the
// training dialogues where there are any, else cross-validated by context.
// Without dialogues there are none. scored names those that a model was scored on, by
// Dialogue.Key: the baselines count these alone, so that every row of a table is of the
// same dialogues (Metrics.ScoredItems); nil counts all. mode is how the model was asked;
// "" where it is not known.
func Baselines(ctx context.Context, eval, training []dialogue.Dialogue, first int, scored map[string]bool, mode Mode) ([]BaselineResult, error) {
	if len(eval) == 0 {
		return nil, nil
	}
	return BaselineInput{Eval: baselineInput(eval), Train: baselineInput(training), First: first, Scored: scored, Offered: mode == Pick || mode == CoT}.Results(ctx)
}

func baselineInput(ds []dialogue.Dialogue) []BaselineDialogue {
	var out []BaselineDialogue
	for _, d := range ds {
		b := BaselineDialogue{ID: d.Key(), Group: d.ContextKey(), Gold: d.ConflictTurn}
		for _, t := range d.Unmediated() {
			b.Turns = append(b.Turns, t.Message)
		}
		out = append(out, b)
	}
	return out
}
