package task_test

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ccmed/ccmed/bench/dialogue"
	"github.com/ccmed/ccmed/bench/run"
	"github.com/ccmed/ccmed/bench/task"
)

// The scenes of evaluated dialogues can be those of training records; whether they are can
// be unknown.
func TestLeakCautions(t *testing.T) {
	all := dialogue.Sample()
	archive := &task.Archive{Note: func(string, ...any) {}}
	of := func(training []dialogue.Dialogue, hash string) string {
		data := t.TempDir()
		for split, ds := range map[string][]dialogue.Dialogue{dialogue.Evaluate: all[:4], dialogue.Training: training} {
			if len(ds) > 0 {
				if err := dialogue.Write(filepath.Join(data, split), ds); err != nil {
					t.Fatal(err)
				}
			}
		}
		id := run.Identity{Task: "timing", Options: map[string]any{"data": data}, Items: task.Keys(all[:4]), DataHash: hash}
		d, err := run.Create(filepath.Join(t.TempDir(), "run"), id, []string{"timing"})
		if err != nil {
			t.Fatal(err)
		}
		if err := d.Close(run.StatusDone); err != nil {
			t.Fatal(err)
		}
		r, err := archive.Open(d.Path())
		if err != nil {
			t.Fatal(err)
		}
		return strings.Join(r.LeakCautions(t.Context()), "\n")
	}
	hash := dialogue.Hash(all[:4])
	if got := of(all[4:], hash); got != "" {
		t.Errorf("scenes of their own: %q", got)
	}
	if got := of(nil, hash); got != "" {
		t.Errorf("without training records: %q", got)
	}
	shared := append(all[4:len(all):len(all)], sameScene(t))
	if got := of(shared, hash); !strings.Contains(got, "hold the scenario context of 25.0 % (1/4)") {
		t.Errorf("a scene of both: %q", got)
	}
	if got := of(all[4:], "another"); !strings.Contains(got, "is unknown: ") || !strings.Contains(got, "is not what the run read") {
		t.Errorf("other records: %q", got)
	}
}

// sameScene is a dialogue of another id in the scene of the first one of the sample.
func sameScene(t *testing.T) dialogue.Dialogue {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("..", "dialogue", "sample", "9001.json"))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "8001.json"), bytes.ReplaceAll(b, []byte("9001"), []byte("8001")), 0o600); err != nil {
		t.Fatal(err)
	}
	ds, _, err := dialogue.Read(t.Context(), dir, dialogue.ReadOptions{Whole: true})
	if err != nil || len(ds) != 1 {
		t.Fatalf("%d dialogues, %v", len(ds), err)
	}
	return ds[0]
}

// Reasons that differ in a measured number alone are told once.
func TestUnscoredCautions(t *testing.T) {
	got := task.UnscoredCautions(map[string]int{"the answers got 0.004 of the probability, less than 0.05": 2, "the answers got 0.010 of the probability, less than 0.05": 1, "no turn was predicted": 4}, "dialogues")
	want := []string{"unscored dialogues: 4 (no turn was predicted)", "unscored dialogues: 3 (the answers got 0.004 to 0.010 of the probability, less than 0.05)"}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
