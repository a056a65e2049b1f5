package task

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/ccmed/ccmed/bench/dialogue"
	"github.com/ccmed/ccmed/bench/report"
)

// MostCut is the share of texts cut at their cap of tokens from which a caution warns.
const MostCut = 0.05

// UnscoredCautions name how many are unscored for which reason.
func UnscoredCautions(reasons map[string]int, what string) []string {
	var out []string
	for _, why := range slices.Sorted(maps.Keys(reasons)) {
		out = append(out, fmt.Sprintf("unscored %s: %d (%s)", what, reasons[why], why))
	}
	return out
}

// Cut counts texts of a kind, of which K in N end at their cap of tokens.
type Cut struct {
	What string
	K, N int
}

// CutCaution warns in one sentence of kinds of texts of which too many end at their cap of
// tokens: what is made of them, or follows them, is about half sentences.
func CutCaution(cuts ...Cut) []string {
	var parts []string
	for _, c := range cuts {
		if c.N > 0 && float64(c.K) > MostCut*float64(c.N) {
			parts = append(parts, report.Pct(c.K, c.N)+" of "+c.What)
		}
	}
	if len(parts) == 0 {
		return nil
	}
	return []string{strings.Join(parts, ", ") + " end at their cap of tokens, not where the model ended them"}
}

// LeakCautions say what a run's dialogues share with the training records.
func (r *Run) LeakCautions(ctx context.Context) []string {
	ds, err := r.Dialogues(ctx, Records{})
	var training []dialogue.Dialogue
	if err == nil {
		training, err = r.Training(ctx, Records{})
	}
	if err != nil {
		return []string{"whether these dialogues share scenario contexts with training records is unknown: " + err.Error()}
	}
	if len(training) == 0 {
		return nil
	}
	if shared, of := dialogue.SharedContexts(ds, training); shared > 0 {
		return []string{fmt.Sprintf("the training records hold the scenario context of %s of these dialogues: to what is trained on them the scenes are not new",
			report.Pct(shared, of))}
	}
	return nil
}
