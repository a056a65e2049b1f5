package extract

import (
	"context"
	"path/filepath"
	"testing"

	"github.com/ccmed/ccmed/bench/dialogue"
	"github.com/ccmed/ccmed/bench/prompt"
	"github.com/ccmed/ccmed/bench/run"
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
