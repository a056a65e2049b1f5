package probe

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/ccmed/ccmed/bench/stats"
)

// turnSet describes n dialogues of four to a context, each with a scripted turn,
// an unscripted one with a label of its own, and the edits mask and swap.
func turnSet(n int, seed uint64) []TurnRow {
	marker := []string{"figure it out", "our way", "all the same"}
	var rows []TurnRow
	for _, kind := range []string{KindScripted, KindUnscripted, EditMask, EditSwap} {
		rng := rand.New(rand.NewPCG(seed, 8))
		for i := range n {
			script := rng.IntN(3)
			row := TurnRow{Item: fmt.Sprint(i), Kind: kind, Group: fmt.Sprint("context ", i/4), Label: script, Script: script, To: (script + 1 + rng.IntN(2)) % 3,
				Text: "so " + marker[script] + " then"}
			switch kind {
			case KindUnscripted:
				row.Label = (script + rng.IntN(3)) % 3
				row.Text = "so we go on"
			case EditMask:
				row.Text = "so ___ then"
			case EditSwap:
				row.Text = "so " + marker[row.To] + " then"
			}
			rows = append(rows, row)
		}
	}
	return rows
}

// turnLayers plants, in the rows' features, what class says of a row: 0..2 along
// the scripted turns' direction, 3..5 along another, below 0 nothing.
func turnLayers(rows []TurnRow, seed uint64, class ...func(TurnRow) int) planted {
	var out planted
	for k, of := range class {
		out = append(out, plant(len(rows), 10, seed+uint64(k), func(i int, row []float32) {
			if c := of(rows[i]); c >= 0 {
				row[c] += 5
			}
		}))
	}
	return out
}

func TestPlantedTurnsAreFound(t *testing.T) {
	rows := turnSet(240, 1)
	// In block.1 the direction is the same everywhere and a swap changes it; in
	// block.2 later turns and swapped ones hold the conflict's stage and masked ones
	// theirs in another direction; block.3 holds nothing.
	layers := turnLayers(rows, 3,
		func(r TurnRow) int {
			if r.Kind == EditSwap {
				return r.To
			}
			return r.Label
		},
		func(r TurnRow) int {
			if r.Kind == EditMask {
				return 3 + r.Label
			}
			return r.Script
		},
		func(TurnRow) int { return -1 })
	f := must(FindTurnsIn(t.Context(), layers, rows, quick, Resampling{Resamples: 500}))(t)
	if f.N != 240 || f.Contexts != 60 || f.At != "block.3" {
		t.Errorf("%d turns of %d contexts at %s", f.N, f.Contexts, f.At)
	}
	within(t, "scripted, block.1", f.Scripted[0].Value, 0.95, 1)
	within(t, "scripted, block.2", f.Scripted[1].Value, 0.95, 1)
	within(t, "scripted, block.3", f.Scripted[2].Value, 0.2, 0.47)
	within(t, "shuffled labels, block.1", f.Shuffled[0], 0.2, 0.47)
	within(t, "bag of words", f.Words.Value, 0.99, 1)

	u := f.Unscripted
	if u == nil || u.N != 240 || u.PerClass["Denial"]+u.PerClass["Defense"]+u.PerClass["Minimization"] != 240 {
		t.Fatalf("unscripted turns %+v", u)
	}
	within(t, "transfer, block.1", u.Balanced[0].Value, 0.95, 1)
	within(t, "transfer, macro F1, block.1", u.MacroF1[0].Value, 0.95, 1)
	within(t, "transfer, block.2", u.Balanced[1].Value, 0.24, 0.43)
	within(t, "the conflict's stage is repeated, block.1", u.Repeats[0].Value, 0.24, 0.43)
	within(t, "the conflict's stage is repeated, block.2", u.Repeats[1].Value, 0.95, 1)
	within(t, "labels that repeat it", u.RepeatedLabels, 0.24, 0.43)
	within(t, "transfer of shuffled labels", u.Shuffled[0], 0.15, 0.52)
	within(t, "transfer of words", u.Words.Balanced.Value, 0.33, 0.34) // one text: one class
	within(t, "beyond words, block.1", u.Beyond[0].Value, 0.6, 0.67)
	for k, want := range []bool{true, false, false} {
		if got := u.ChanceAdjusted[k] < 0.05; got != want {
			t.Errorf("transfer in block.%d has the adjusted p %v", k+1, u.ChanceAdjusted[k])
		}
		if got := u.BeyondAdjusted[k] < 0.05; got != want {
			t.Errorf("beyond words in block.%d the adjusted p is %v", k+1, u.BeyondAdjusted[k])
		}
	}

	within(t, "swaps that are followed, block.1", f.Swap.Follow[0].Value, 0.95, 1)
	within(t, "moved, block.1", f.Swap.Moved[0].Value, 0.95, 1)
	within(t, "swaps that are followed, block.2", f.Swap.Follow[1].Value, 0, 0.05)
	within(t, "swaps that stay, block.2", f.Swap.Stay[1].Value, 0.95, 1)
	within(t, "moved, block.2", f.Swap.Moved[1].Value, -0.05, 0.05)
	within(t, "third, block.3", f.Swap.Third[2].Value, 0.2, 0.47)
	within(t, "swaps that words follow", f.Swap.Words.Follow.Value, 0.99, 1)
	if f.Swap.MovedAdjusted[0] > 0.05 || f.Swap.MovedAdjusted[1] < 0.05 {
		t.Errorf("adjusted p of moved predictions are %v", f.Swap.MovedAdjusted)
	}
	for k := range f.Layers {
		within(t, "shares of a swap", f.Swap.Follow[k].Value+f.Swap.Stay[k].Value+f.Swap.Third[k].Value, 1-1e-9, 1+1e-9)
	}

	if len(f.Edits) != 1 || f.Edits[0].Edit != EditMask {
		t.Fatalf("edits %+v, want mask alone", f.Edits)
	}
	e := f.Edits[0]
	within(t, "masked, block.1", e.Applied[0].Value, 0.95, 1)
	within(t, "masked, block.2, probes of unedited turns", e.Applied[1].Value, 0.15, 0.5)
	within(t, "masked, block.2, retrained", e.Retrained[1].Value, 0.95, 1)
	within(t, "masked words", e.AppliedWords.Value, 0.2, 0.5)
	within(t, "masked words, retrained", e.RetrainedWords.Value, 0.2, 0.5)
}

// Without signal the interval of the balanced accuracy must cover chance about as
// often as it says.
func TestTransferIntervalsHoldWithoutSignal(t *testing.T) {
	covered, trials := 0, 40
	for seed := range uint64(trials) {
		rows := turnSet(160, seed)
		f := must(FindTurnsIn(t.Context(), turnLayers(rows, 100*seed, func(TurnRow) int { return -1 }), rows,
			Design{Folds: 4, Seeds: []uint64{1, 2}, CPath: []float64{1e-2}, Inner: 1}, Resampling{Resamples: 200, Seed: seed}))(t)
		if e := f.Unscripted.Balanced[0]; e.Lo <= 1.0/3 && 1.0/3 <= e.Hi {
			covered++
		}
	}
	// 33 or fewer of 40 have a probability of 0.5 % at 95 %.
	if covered < 34 {
		t.Errorf("%d of %d intervals cover chance", covered, trials)
	}
}

// A probe never sees the context that it is tested on.
func TestHeldOutContextsAreHeldOut(t *testing.T) {
	rows := turnSet(80, 3)
	// Each context has a direction of its own, by which training rows of it would
	// give the label of the context's other turns away.
	of := map[string]int{}
	for i := range rows {
		g := rows[i].Group
		if _, ok := of[g]; !ok {
			of[g] = len(of)
		}
		rows[i].Label, rows[i].Script = of[g]*7%3, of[g]*7%3
	}
	x := plant(len(rows), 24, 5, func(i int, row []float32) { row[of[rows[i].Group]] += 8 })
	d := quick
	d.Folds, d.Inner, d.CPath = 3, 1, []float64{0.1}
	f := must(FindTurnsIn(t.Context(), planted{x}, rows, d, Resampling{Resamples: 100}))(t)
	within(t, "unscripted turns of unseen contexts", f.Unscripted.Accuracy[0], 0, 0.6)
	within(t, "edited turns of unseen contexts", f.Edits[0].Retrained[0].Value, 0, 0.6)
}

func TestBalancedAndMacroF1(t *testing.T) {
	// Rows are labels: 8 of 10 right, 1 of 2, class 2 never a label but predicted once.
	c := confusion{8, 1, 1, 1, 1, 0, 0, 0, 0}
	within(t, "balanced accuracy", balanced(c), 0.65-1e-12, 0.65+1e-12)
	want := (2*8.0/(10+9) + 2*1.0/(2+2) + 0) / 3
	within(t, "macro F1", macroF1(c), want-1e-12, want+1e-12)
}

func TestTurnsThatCannotBeProbed(t *testing.T) {
	rows := turnSet(40, 1)
	for i := range rows {
		rows[i].Label = 1
	}
	if _, err := FindTurnsIn(t.Context(), turnLayers(rows, 1, func(TurnRow) int { return -1 }), rows, quick, Resampling{Resamples: 100}); err == nil {
		t.Error("a single stage is accepted")
	}
	rows = turnSet(40, 1)
	if _, err := FindTurnsIn(t.Context(), planted{}, rows, quick, Resampling{}); err == nil {
		t.Error("no layers are accepted")
	}
	rows[50].Label = 4
	if _, err := FindTurnsIn(t.Context(), turnLayers(rows, 1, func(TurnRow) int { return -1 }), rows, quick, Resampling{}); err == nil || !strings.Contains(err.Error(), "row 50") {
		t.Errorf("a label that probes do not know: error %v", err)
	}
	if _, err := FindTurnsIn(t.Context(), turnLayers(rows, 1, func(TurnRow) int { return -1 }), slices.DeleteFunc(turnSet(40, 1), func(r TurnRow) bool { return r.Kind == KindScripted }), quick, Resampling{}); err == nil {
		t.Error("turns without a scripted one are accepted")
	}
}

// A layer below chance is no finding, whatever its p.
func TestBelowChanceHasNoStar(t *testing.T) {
	one := []stats.Estimate{{Value: 0.2, N: 9}}
	f := &TurnFindings{Layers: []string{"block.1"}, At: "block.1", Scripted: one, Unscripted: &UnscriptedFindings{PerClass: map[string]int{"Denial": 9}, Chance: 1. / 3, Balanced: one, MacroF1: one,
		Accuracy: []float64{0.2}, Recall: []map[string]float64{{"Denial": 0.2}}, Repeats: one, ChanceAdjusted: []float64{0.001}}}
	starred := func() bool { return strings.HasSuffix(TurnSections("m", f)[1].Tables[0].Rows[0][1].String(), "*") }
	if starred() {
		t.Error("a balanced accuracy below chance is starred")
	}
	one[0].Value = 0.5
	if !starred() {
		t.Error("one above chance is not")
	}
}
