package task

import (
	"context"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/ccmed/ccmed/bench/dialogue"
	"github.com/ccmed/ccmed/bench/report"
)

// MostCut is the share of texts cut at their cap of tokens from which a caution warns.
const MostCut = 0.05

// decimal is a number that can be another in every dialogue.
var decimal = regexp.MustCompile(`\d+\.\d+`)

// UnscoredCautions name how many are unscored for which reason. Reasons that differ in
// their first decimal number alone are one, with its range.
func UnscoredCautions(reasons map[string]int, what string) []string {
	type kind struct{ before, from, to, after string }
	counts := map[[2]string]int{}
	kinds := map[[2]string]kind{}
	var order [][2]string
	for _, why := range slices.Sorted(maps.Keys(reasons)) {
		k := kind{before: why}
		if at := decimal.FindStringIndex(why); at != nil {
			k = kind{why[:at[0]], why[at[0]:at[1]], why[at[0]:at[1]], why[at[1]:]}
		}
		id := [2]string{k.before, k.after}
		if had, ok := kinds[id]; ok {
			k.from = had.from // reasons are sorted
		} else {
			order = append(order, id)
		}
		kinds[id] = k
		counts[id] += reasons[why]
	}
	var out []string
	for _, id := range order {
		k := kinds[id]
		if k.from != k.to {
			k.from += " to " + k.to
		}
		out = append(out, fmt.Sprintf("unscored %s: %d (%s)", what, counts[id], k.before+k.from+k.after))
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
