package extract

import (
	"context"
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ccmed/ccmed/bench/dialogue"
	"github.com/ccmed/ccmed/bench/prompt"
	"github.com/ccmed/ccmed/bench/run"
	"github.com/ccmed/ccmed/bench/task"
	"github.com/ccmed/ccmed/bench/timing"
	"github.com/ccmed/ccmed/infer"
	"github.com/ccmed/ccmed/probe"
	"github.com/ccmed/ccmed/sft/dualhead"
)

// TestLinesOfTunedModel: mediate takes every line of a run of predict, extract
// those at the conflict.
func TestLinesOfTunedModel(t *testing.T) {
	ds := dialogue.Sample()[:4]
	gold := ds[0].ConflictTurn
	said := map[string]struct {
		turn     int
		text     string
		unscored string
	}{
		ds[0].Key(): {gold, "At the conflict.", ""},
		ds[1].Key(): {ds[1].ConflictTurn - 1, "Too early.", ""},
		ds[2].Key(): {0, "", timing.NotSpoken},
		ds[3].Key(): {0, "", "hidden states are not finite"},
	}
	sampled := func(data any, unscored string) (run.Sample, error) {
		b, err := json.Marshal(data)
		return run.Sample{Data: b, Unscored: unscored}, err
	}
	decide := func(_ context.Context, _ infer.Backend, u run.Unit[dialogue.Dialogue], _ run.Lookup) (run.Sample, error) {
		s := said[u.Item]
		why := s.unscored
		if why == timing.NotSpoken {
			why = "" // which is a decision
		}
		return sampled(timing.Decision{Mode: timing.DualHead, Gold: u.Value.ConflictTurn, Predicted: s.turn}, why)
	}
	speak := func(_ context.Context, _ infer.Backend, u run.Unit[dialogue.Dialogue], _ run.Lookup) (run.Sample, error) {
		s := said[u.Item]
		return sampled(timing.Utterance{Gold: u.Value.ConflictTurn, Turn: s.turn, Text: s.text}, s.unscored)
	}
	tuned := run.Task[dialogue.Dialogue]{Name: "timing", Steps: []run.Step[dialogue.Dialogue]{{Name: timing.StepDecide, Do: decide}, {Name: timing.StepUtterance, Do: speak}}}
	for _, d := range ds {
		tuned.Units = append(tuned.Units, run.Unit[dialogue.Dialogue]{Item: d.Key(), Condition: string(timing.DualHead), Value: d})
	}
	m := infer.Model{Name: "tuned", Digest: "sha256:aa"}
	path := filepath.Join(t.TempDir(), "run")
	dir, err := run.Create(path, run.Identity{Task: "timing", Models: map[string]infer.Model{timing.Role: m},
		Options: map[string]any{"mode": string(timing.DualHead)}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := run.Execute(t.Context(), dir, tuned, run.Options{}); err != nil {
		t.Fatal(err)
	}

	archive := &task.Archive{Benches: task.Registry{dualhead.Bench{}, timing.Bench{}}, Note: func(string, ...any) {}}
	env := task.Env{Archive: archive}
	lines, err := archive.RunLines(path)
	if err != nil {
		t.Fatal(err)
	}
	for item, s := range said {
		l := lines[item]
		if known := item != ds[3].Key(); l.Written != known || known && (*l.Turn != s.turn || l.Text != s.text) {
			t.Errorf("item %s is read as %+v, want %+v", item, l, s)
		}
	}

	set, err := prompt.Load("")
	if err != nil {
		t.Fatal(err)
	}
	nd := []probe.Pair{{Context: probe.ContextND, Text: probe.TextOwnND}}
	c := &call{from: path}
	of := func(m infer.Model, pairs []probe.Pair) *probe.Extraction {
		return &probe.Extraction{Pairs: pairs, Model: m, Prompts: set}
	}
	ex := of(m, nd)
	kept, err := c.takeLines(env, ex, ds)
	if err != nil {
		t.Fatal(err)
	}
	if len(kept) != 1 || kept[0].Key() != ds[0].Key() || ex.Given[ds[0].Key()][probe.TextOwnND] != "At the conflict." {
		t.Errorf("extract keeps %d dialogues with the lines %v", len(kept), ex.Given)
	}
	d := append(nd, probe.Pair{Context: probe.ContextD, Text: probe.TextOwnD})
	if _, err := c.takeLines(env, of(m, d), ds); err == nil || !strings.Contains(err.Error(), "--conditions ND") {
		t.Errorf("lines that were told a stage: %v", err)
	}
	if _, err := c.takeLines(env, of(infer.Model{Name: "base", Digest: "sha256:bb"}, nd), ds); err == nil || !strings.Contains(err.Error(), "not the same model") {
		t.Errorf("states of another model: %v", err)
	}
}
