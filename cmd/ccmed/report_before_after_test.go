package main

import (
	"context"
	"encoding/json"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ccmed/ccmed/bench/dialogue"
	"github.com/ccmed/ccmed/bench/report"
	"github.com/ccmed/ccmed/bench/run"
	"github.com/ccmed/ccmed/bench/stats"
	"github.com/ccmed/ccmed/bench/timing"
	"github.com/ccmed/ccmed/infer"
	"github.com/ccmed/ccmed/sft"
)

// manyDialogues are the sample's, several times over, each of its own context.
func manyDialogues(t *testing.T, rounds int) []dialogue.Dialogue {
	t.Helper()
	path := filepath.Join(t.TempDir(), "many.jsonl")
	copies(t, path, 0, rounds)
	ds, _, err := dialogue.Read(context.Background(), path, dialogue.ReadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return ds
}

// decided is a timing run over dialogues that is right where right says so, with a
// bag of words that is right where bag says so; bag may be nil.
func decided(t *testing.T, name string, mode timing.Mode, masked bool, ds []dialogue.Dialogue, right, bag func(i int) bool) scoredRun {
	t.Helper()
	r := scoredRun{name: name, manifest: run.Manifest{Status: run.StatusDone}}
	r.manifest.Identity.Options = map[string]any{"mask_markers": masked}
	r.manifest.Identity.Models = map[string]infer.Model{timing.Role: {Name: name, Digest: "sha256:" + string(mode)}}
	turn := func(d dialogue.Dialogue, right bool) int {
		if right {
			return d.ConflictTurn
		}
		return d.ConflictTurn + 1
	}
	f := timingFound{evaluated: ds}
	b := timing.BaselineResult{Name: timing.BagBaseline + ", first p ≥ 0.5", Fitted: "training"}
	for i, d := range ds {
		r.manifest.Identity.Items = append(r.manifest.Identity.Items, d.Key())
		data, err := json.Marshal(timing.Decision{Mode: mode, Gold: d.ConflictTurn, Context: d.ContextKey(), FirstTurn: 3, LastTurn: d.LastTurn(), Predicted: turn(d, right(i))})
		if err != nil {
			t.Fatal(err)
		}
		r.samples = append(r.samples, run.Sample{Key: run.Key{Step: timing.StepDecide, Item: d.Key()}, Data: data})
		if bag != nil {
			b.Predicted = append(b.Predicted, turn(d, bag(i)))
		}
	}
	f.Mode = mode
	if bag != nil {
		f.Baselines = []timing.BaselineResult{{Name: "longest turn"}, b}
	}
	r.found = f
	return r
}

func always(int) bool { return true }
func never(int) bool  { return false }

func every(n int) func(int) bool { return func(i int) bool { return i%n == 0 } }

func TestBeforeAndAfter(t *testing.T) {
	ds := manyDialogues(t, 4)
	base := decided(t, "base", timing.Stream, false, ds, every(6), always)
	for _, c := range []struct {
		fact                     string
		tuned, bag               func(int) bool
		tunedMasked, bagMasked   func(int) bool
		learned                  string
		differences, significant int
	}{
		{"better than the bag of words", always, every(2), always, every(2), "learned timing: the tuned model is right more often", 6, 3},
		{"as good, and it loses less", always, always, always, every(4), "learned timing: masking the marker phrases costs", 6, 4},
		{"as good, and it loses as much", always, always, every(4), every(4), "learned timing is not shown: no advantage over the bag of words, and no smaller loss", 6, 3},
		{"worse", every(2), always, every(2), always, "learned timing is not shown", 6, 3},
		{"nothing is masked", always, always, nil, nil, "no prediction with marker phrases masked is in this report", 2, 1},
		{"no bag of words", always, nil, nil, nil, "cannot be said", 1, 1},
	} {
		runs := []scoredRun{base, decided(t, "tuned", timing.DualHead, false, ds, c.tuned, c.bag)}
		if c.tunedMasked != nil {
			runs = append(runs, decided(t, "masked", timing.DualHead, true, ds, c.tunedMasked, c.bagMasked))
		}
		sections, err := beforeAfter(runs, 1)
		if err != nil {
			t.Fatalf("%s: %v", c.fact, err)
		}
		if len(sections) != 1 || len(sections[0].Tables) != 2 {
			t.Fatalf("%s: %+v", c.fact, sections)
		}
		s := sections[0]
		if !strings.Contains(strings.Join(s.Notes, "\n"), c.learned) {
			t.Errorf("%s: %q, want %q", c.fact, s.Notes, c.learned)
		}
		significant := 0
		for _, r := range s.Tables[1].Rows {
			if r[5] == report.Text("significant") {
				significant++
			}
		}
		if len(s.Tables[1].Rows) != c.differences || significant != c.significant {
			t.Errorf("%s: %d of %d differences are significant, want %d of %d: %v", c.fact, significant, len(s.Tables[1].Rows), c.significant, c.differences, s.Tables[1].Rows)
		}
		if err := s.Figures[0].Check(); err != nil {
			t.Error(err)
		}
		if got := s.Tables[0].Rows[1][1].String(); got != report.Pct(count(ds, c.tuned), len(ds)) {
			t.Errorf("%s: the tuned model has %s", c.fact, got)
		}
	}
}

func count(ds []dialogue.Dialogue, right func(int) bool) int {
	n := 0
	for i := range ds {
		if right(i) {
			n++
		}
	}
	return n
}

// Runs are compared over what all of them decided about, and not at all where that
// is nothing.
func TestBeforeAndAfterOfOtherDialogues(t *testing.T) {
	ds := manyDialogues(t, 4)
	tuned := decided(t, "tuned", timing.DualHead, false, ds, always, always)
	half := decided(t, "base", timing.Stream, false, ds[:24], never, always)
	sections, err := beforeAfter([]scoredRun{half, tuned}, 1)
	if err != nil || len(sections) != 1 || !strings.Contains(sections[0].Tables[0].Title, "the 24 dialogues") {
		t.Errorf("%v, %+v", err, sections)
	}
	if got := sections[0].Tables[0].Rows[0][2]; got != report.Text("0.000 [0.000, 0.142]") { // 1 − 0.025^(1/24)
		t.Errorf("a base that is always wrong has the interval %v", got)
	}
	for i := range half.samples {
		half.samples[i].Unscored = "no mass"
	}
	if sections, err = beforeAfter([]scoredRun{half, tuned}, 1); err != nil || len(sections) != 1 || len(sections[0].Tables) != 0 || len(sections[0].Notes) != 1 {
		t.Errorf("nothing was scored: %v, %+v", err, sections)
	}
	apart := decided(t, "base", timing.Stream, false, ds[:24], never, always)
	if sections, err = beforeAfter([]scoredRun{apart, decided(t, "tuned", timing.DualHead, false, ds[24:], always, always)}, 1); err != nil || len(sections) != 0 {
		t.Errorf("other dialogues: %v, %+v", err, sections)
	}
	one := decided(t, "tuned", timing.DualHead, false, ds[:1], always, always)
	if sections, err = beforeAfter([]scoredRun{apart, one}, 1); err != nil || len(sections) != 1 || !strings.Contains(strings.Join(sections[0].Notes, ""), "one scenario context") {
		t.Errorf("one context: %v, %+v", err, sections)
	}
	if sections, err = beforeAfter([]scoredRun{tuned}, 1); err != nil || len(sections) != 0 {
		t.Errorf("no base: %v, %+v", err, sections)
	}
}

func TestLeakOfARun(t *testing.T) {
	ds := dialogue.Sample()
	data := t.TempDir()
	for split, in := range map[string][]dialogue.Dialogue{"training": ds[:3], "evaluate": ds} {
		if err := dialogue.Write(filepath.Join(data, split), in); err != nil {
			t.Fatal(err)
		}
	}
	contexts := map[string]bool{}
	for _, d := range ds[:3] {
		contexts[d.ContextKey()] = true
	}
	want := 0
	var items []string
	for _, d := range ds {
		items = append(items, d.Key())
		if contexts[d.ContextKey()] {
			want++
		}
	}
	a := &app{stdout: io.Discard, stderr: io.Discard}
	task := "timing"
	of := func(options map[string]any) leak {
		t.Helper()
		dir, err := run.Create(filepath.Join(t.TempDir(), "run"), run.Identity{Task: task, Options: options, Items: items}, []string{"timing"})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = dir.Close(run.StatusDone) })
		return a.leakOf(context.Background(), dir)
	}
	if l := of(map[string]any{"data": data}); l.contexts == nil || l.contexts.Shared != want || l.contexts.Of != len(ds) || l.unknown != "" || want == 0 {
		t.Errorf("%+v, want %d of %d", l, want, len(ds))
	}
	if l := of(map[string]any{"data": "sample"}); l.contexts != nil || l.unknown != "" {
		t.Errorf("the sample has no training records: %+v", l)
	}
	if l := of(map[string]any{"data": filepath.Join(data, "gone")}); l.unknown == "" {
		t.Errorf("records that are gone: %+v", l)
	}
	if l := of(map[string]any{"data": "sample", "mode": string(timing.DualHead)}); l.noCard == "" || l.card != nil {
		t.Errorf("a prediction without a package: %+v", l)
	}
	task = "extract"
	if l := of(map[string]any{"data": data}); l.contexts != nil || l.unknown != "" {
		t.Errorf("a store, whose probes learn on folds of its own: %+v", l)
	}
}

// Records that a run was made on are not those that its baselines are fitted on.
func TestBaselinesOfARunOnTrainingRecords(t *testing.T) {
	ds := dialogue.Sample()
	data := t.TempDir()
	for split, in := range map[string][]dialogue.Dialogue{"training": ds, "evaluate": ds[:1]} {
		if err := dialogue.Write(filepath.Join(data, split), in); err != nil {
			t.Fatal(err)
		}
	}
	var items []string
	for _, d := range ds[2:] {
		items = append(items, d.Key())
	}
	dir, err := run.Create(filepath.Join(t.TempDir(), "run"), run.Identity{Task: "timing", Options: map[string]any{"data": data, "split": "training"}, Items: items}, []string{"timing"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = dir.Close(run.StatusDone) })
	a := &app{stdout: io.Discard, stderr: io.Discard}
	eval, training, err := a.baselineData(context.Background(), dir, scoreFlags{})
	if err != nil || len(eval) != len(items) {
		t.Fatalf("%d dialogues, %v; want the %d of the run", len(eval), err, len(items))
	}
	if training = without(training, eval); len(training) != 2 || training[0].Key() != ds[0].Key() || training[1].Key() != ds[1].Key() {
		t.Errorf("fitted on %d dialogues, want the two that were not evaluated", len(training))
	}
}

func TestHeldOutSections(t *testing.T) {
	ds := dialogue.Sample()
	exported := func(h sft.HeldOut) *sft.Card {
		t.Helper()
		e, err := json.Marshal(map[string]any{"description": sft.Export{Holdout: h}})
		if err != nil {
			t.Fatal(err)
		}
		return &sft.Card{Export: e}
	}
	countries := sft.HeldOut{Kind: sft.HoldoutCountry, Keys: ds[0].Countries()[:1]}
	var held, rest []dialogue.Dialogue
	for _, d := range ds {
		if slices.Contains(d.Countries(), countries.Keys[0]) {
			held = append(held, d)
		} else {
			rest = append(rest, d)
		}
	}
	if len(held) == 0 || len(rest) == 0 {
		t.Fatalf("%d dialogues of %s, %d others", len(held), countries.Keys, len(rest))
	}
	m := timing.Metrics{TurnAcc: &stats.Estimate{Value: 0.8, Lo: 0.7, Hi: 0.9}}
	s := heldOutSections(exported(countries), held, m)
	if len(s) != 1 || len(s[0].Tables[0].Rows) != 1 || s[0].Tables[0].Rows[0][4] != report.Text("levels are not compared") || !strings.Contains(s[0].Notes[0], countries.Keys[0]) {
		t.Errorf("%+v", s)
	}
	for name, got := range map[string][]report.Section{
		"seen countries":  heldOutSections(exported(countries), ds, m),
		"nothing is held": heldOutSections(exported(sft.HeldOut{Kind: sft.HoldoutRandom}), held, m),
		"no records":      heldOutSections(exported(countries), nil, m),
		"constant answer": heldOutSections(exported(countries), held, timing.Metrics{}),
		"no export":       heldOutSections(&sft.Card{}, held, m),
	} {
		if len(got) != 0 {
			t.Errorf("%s: %+v", name, got)
		}
	}
}
