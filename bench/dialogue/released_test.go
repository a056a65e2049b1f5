package dialogue_test

import (
	"context"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/ccmed/ccmed/bench/dialogue"
)

// released returns the folder of the published records, which lies beside the
// repository and never in it; without it the test is skipped.
func released(t *testing.T) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			break
		}
		if dir == filepath.Dir(dir) {
			t.Skip("released records: no go.mod above the test, so their place is unknown")
		}
		dir = filepath.Dir(dir)
	}
	path := filepath.Join(dir, "..", "shared", "data", "cc-mediation")
	if _, err := os.Stat(path); err != nil {
		t.Skipf("released records: %v; fetch the CC-Mediation repository's data folder to run this test", err)
	}
	return path
}

func read(t *testing.T, path string, o dialogue.ReadOptions) []dialogue.Dialogue {
	t.Helper()
	ds, _, err := dialogue.Read(context.Background(), path, o)
	if err != nil {
		t.Fatal(err)
	}
	return ds
}

// The numbers were counted in the released files by a separate script.
func TestReleased(t *testing.T) {
	path := released(t)
	eval := read(t, path, dialogue.ReadOptions{})
	training := read(t, path, dialogue.ReadOptions{Split: dialogue.Training})
	ev, tr := dialogue.Stats(eval), dialogue.Stats(training)
	all := dialogue.Stats(append(eval, training...))
	fields := map[string]int{}
	for _, f := range all.AgentFields() {
		fields[f.Name] = f.Missing
	}
	shared, total := dialogue.SharedContexts(eval, training)
	for _, c := range []struct {
		fact      string
		got, want any
	}{
		{"evaluation dialogues", ev.N, 159},
		{"evaluation stages", ev.Stages, map[string]int{"Denial": 53, "Defense": 53, "Minimization": 53}},
		{"evaluation conflict turns", ev.ConflictTurns, map[int]int{3: 25, 4: 28, 5: 27, 6: 28, 7: 25, 8: 26}},
		{"evaluation last turns", ev.LastTurns, map[int]int{7: 11, 8: 5, 9: 69, 10: 74}},
		{"evaluation usable mediations", ev.UsableMediations, 158},
		{"evaluation stored AUCs", ev.StoredPositive.N + ev.StoredNegative.N, 0},
		{"evaluation contexts", ev.Contexts, 71},
		{"training dialogues", tr.N, 1503},
		{"training stages", tr.Stages, map[string]int{"Denial": 520, "Defense": 469, "Minimization": 514}},
		{"training conflict turns", tr.ConflictTurns, map[int]int{3: 323, 4: 292, 5: 292, 6: 289, 7: 12, 8: 295}},
		{"training contexts", tr.Contexts, 127},
		{"training stored pairs", tr.StoredPairs, 1503},
		{"value templates", all.Templates, 22},
		{"agents", all.Agents, 3324},
		{"missing fields", fields, map[string]int{"age": 177, "nationality": 177, "occupation": 177, "gender": 712}},
		{"evaluation dialogues with a context of training", [2]int{shared, total}, [2]int{153, 159}},
	} {
		if !reflect.DeepEqual(c.got, c.want) {
			t.Errorf("%s: %v, want %v", c.fact, c.got, c.want)
		}
	}
	for _, c := range []struct {
		fact      string
		got, want float64
	}{
		{"mean stored AUC, positive", tr.StoredPositive.Mean, 0.9188},
		{"mean stored AUC, negative", tr.StoredNegative.Mean, 0.2178},
		{"difference", tr.StoredPositive.Mean - tr.StoredNegative.Mean, 0.7010},
	} {
		if math.Abs(c.got-c.want) > 5e-5 {
			t.Errorf("%s: %.5f, want %.4f", c.fact, c.got, c.want)
		}
	}
	for _, d := range append(eval, training...) {
		for _, c := range d.Countries() {
			if c == "" || strings.Contains(c, " who ") {
				t.Errorf("dialogue %d: country %q", d.ID, c)
			}
		}
	}
	for _, d := range eval {
		if _, ok := d.Mediation(); ok == (d.ID == 239) {
			t.Errorf("dialogue %d: usable mediation %v; only 239 has none", d.ID, ok)
		}
		if d.ID == 239 && d.JudgeScore() != nil {
			t.Error("dialogue 239 has a judge score")
		}
	}
	for _, d := range append(eval, training...) { // so that no prompt of a released record changes
		for _, turn := range slices.Concat(d.Unmediated(), d.Mediated()) {
			if dialogue.OneTurn(turn.Speaker, turn.Message) != turn.Message {
				t.Errorf("dialogue %d, turn %d: the message reads as several turns", d.ID, turn.T)
			}
		}
	}
	for _, d := range training {
		after, turn, ok := d.Negative()
		if !ok || len(after) == 0 || turn == 0 || after[len(after)-1].T != d.LastTurn() {
			t.Errorf("dialogue %d: negative continuation %v after turn %d", d.ID, ok, turn)
		}
	}
}

func TestReleasedSplit(t *testing.T) {
	ds := read(t, released(t), dialogue.ReadOptions{Split: dialogue.Training})
	for seed := range int64(5) {
		train, eval, err := dialogue.Split(ds, 0.2, seed)
		if err != nil {
			t.Fatal(err)
		}
		checkSplit(t, ds, train, eval)
		for stage, n := range dialogue.Stats(ds).Stages {
			got := dialogue.Stats(eval).Stages[stage]
			if share := float64(got) / float64(n); math.Abs(share-0.2) > 0.03 {
				t.Errorf("seed %d: %.3f of %s in eval, want 0.2", seed, share, stage)
			}
		}
	}
}
