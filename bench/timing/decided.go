package timing

import (
	"fmt"

	"github.com/ccmed/ccmed/bench/dialogue"
)

// DecideAt is the decision of the mode DualHead about a dialogue: p holds the
// head's P(speak) after each of its turns, from 0 to 1, and the first one from
// first on that reaches the threshold is predicted.
func DecideAt(d dialogue.Dialogue, p []float64, first int, threshold float64) (Decision, error) {
	turns := d.Unmediated()
	if len(p) != len(turns) {
		return Decision{}, fmt.Errorf("dialogue %s has %d turns and %d probabilities", d.Key(), len(turns), len(p))
	}
	dec := Decision{Mode: DualHead, Gold: d.ConflictTurn, Stage: d.Stage.String(), Context: d.ContextKey(), FirstTurn: first, LastTurn: len(turns), Threshold: threshold}
	for i, t := range turns {
		dec.Lengths = append(dec.Lengths, len([]rune(t.Message)))
		dec.Curve = append(dec.Curve, Point{Turn: t.T, P: p[i], No: 1 - p[i], Share: p[i], Mass: 1, Bound: p[i]})
	}
	dec.Predicted = firstAt(dec.Curve, first, threshold)
	return dec, nil
}

// firstAt returns the first turn from first on whose probability reaches the
// threshold, 0 for none.
func firstAt(curve []Point, first int, threshold float64) int {
	for _, p := range curve {
		if p.Turn >= first && p.P >= threshold {
			return p.Turn
		}
	}
	return 0
}
