package extract

import (
	"context"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ccmed/ccmed/bench/dialogue"
	"github.com/ccmed/ccmed/bench/prompt"
	"github.com/ccmed/ccmed/bench/run"
	"github.com/ccmed/ccmed/bench/task"
	"github.com/ccmed/ccmed/infer"
	"github.com/ccmed/ccmed/probe"
	"github.com/ccmed/ccmed/probe/activation"
)

// TestTimingQuestions: a store of questions whether to speak has a row for every turn up to
// the conflict's, which alone is the gold one.
func TestTimingQuestions(t *testing.T) {
	t.Parallel()
	set, err := prompt.Load("")
	if err != nil {
		t.Fatal(err)
	}
	x := &probe.QuestionExtraction{Timing: true, Reader: reader{}, DType: activation.F32, Ask: timingQuestions(set), Model: infer.Model{Name: "bytes", Digest: "sha256:00"},
		Tokens: func(_ context.Context, p infer.Prompt, _ string) ([]int32, error) {
			return reader{}.Tokenize(p.Messages[1].Content)
		}}
	ds := dialogue.Sample()
	if err := x.Use(ds); err != nil {
		t.Fatal(err)
	}
	dir, err := run.Create(filepath.Join(t.TempDir(), "run"), run.Identity{Task: TaskName}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := x.Open(t.Context(), dir); err != nil {
		t.Fatal(err)
	}
	defer x.Close()
	if _, err := run.Execute(t.Context(), dir, x.Task(), run.Options{}); err != nil {
		t.Fatal(err)
	}
	states, err := probe.OpenTiming(dir, []string{"block.1"})
	if err != nil {
		t.Fatal(err)
	}
	defer states.Close()
	want, golds := 0, map[string]int{}
	for _, d := range ds {
		want += d.ConflictTurn
	}
	for i, item := range states.Items {
		golds[item] += states.Y[i]
	}
	rows, err := states.Layer(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	if n, _ := rows.Dims(); n != want || len(states.Items) != want || len(golds) != len(ds) {
		t.Errorf("%d rows, %d items of %d dialogues, want %d", n, len(states.Items), len(golds), want)
	}
	for item, n := range golds {
		if n != 1 {
			t.Errorf("dialogue %s has %d gold turns", item, n)
		}
	}
	if probe.HoldsQuestions(dir) || !probe.HoldsTiming(dir) {
		t.Error("the store passes for one of the labeller's questions")
	}
}

// TestSeenContextsAreLeftOut: of the training dialogues one is of the scenario context of
// an evaluation dialogue; the limit counts the others.
func TestSeenContextsAreLeftOut(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	ds := dialogue.Sample()
	for split, of := range map[string][]dialogue.Dialogue{dialogue.Evaluate: ds[:2], dialogue.Training: ds[1:]} {
		if err := dialogue.Write(filepath.Join(dir, split), of); err != nil {
			t.Fatal(err)
		}
	}
	c := &call{unseen: true, records: task.Records{Path: dir, Split: dialogue.Training}}
	for limit, want := range map[int]int{0: len(ds) - 2, 3: 3} {
		c.records.Limit = limit
		got, err := c.dialogues(t.Context(), task.Env{Archive: &task.Archive{}})
		if err != nil || len(got) != want || slices.Contains(task.Keys(got), ds[1].Key()) {
			t.Errorf("--limit %d: %d dialogues, %v; want %d without %s", limit, len(got), err, want, ds[1].Key())
		}
	}
	c.records.Split = dialogue.Evaluate
	c.dtype, c.maxTokens = "f16", 1
	if err := c.check(); err == nil || !strings.Contains(err.Error(), "--split training") {
		t.Errorf("of the evaluation split: %v", err)
	}
}
