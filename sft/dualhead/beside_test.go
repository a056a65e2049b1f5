package dualhead

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ccmed/ccmed/bench/dialogue"
	"github.com/ccmed/ccmed/bench/report"
	"github.com/ccmed/ccmed/bench/run"
	"github.com/ccmed/ccmed/bench/stats"
	"github.com/ccmed/ccmed/bench/task"
	"github.com/ccmed/ccmed/bench/timing"
	"github.com/ccmed/ccmed/infer"
	"github.com/ccmed/ccmed/sft"
)

// manyDialogues are the sample's, several times over, each of its own context.
func manyDialogues(t *testing.T, rounds int) []dialogue.Dialogue {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("..", "..", "bench", "dialogue", "sample", "*.json"))
	if err != nil {
		t.Fatal(err)
	}
	var lines bytes.Buffer
	for i := range rounds {
		for _, f := range files {
			b, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			var r map[string]any
			if err := json.Unmarshal(b, &r); err != nil {
				t.Fatal(err)
			}
			meta := r["metadata"].(map[string]any)
			r["scenario_id"] = r["scenario_id"].(float64) + float64(100*i)
			meta["scenario_context"] = fmt.Sprintf("%s (%d)", meta["scenario_context"], i)
			if b, err = json.Marshal(r); err != nil {
				t.Fatal(err)
			}
			lines.Write(append(b, '\n'))
		}
	}
	path := filepath.Join(t.TempDir(), "many.jsonl")
	if err := os.WriteFile(path, lines.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	ds, _, err := dialogue.Read(t.Context(), path, dialogue.ReadOptions{Whole: true})
	if err != nil {
		t.Fatal(err)
	}
	return ds
}

// decided is a timing run over dialogues that is right where right says so (nil: unscored),
// with a bag of words that is right where bag says so; bag may be nil.
func decided(t *testing.T, name string, mode timing.Mode, masked bool, ds []dialogue.Dialogue, right, bag func(i int) bool) task.Neighbour {
	t.Helper()
	root := t.TempDir()
	data := filepath.Join(root, "data")
	if err := dialogue.Write(data, ds); err != nil {
		t.Fatal(err)
	}
	id := run.Identity{Task: timing.TaskName, Options: map[string]any{"data": data, "mode": string(mode), "mask_markers": masked}, Items: task.Keys(ds), DataHash: dialogue.Hash(ds),
		Models: map[string]infer.Model{timing.Role: {Name: name, Digest: "sha256:" + string(mode)}}}
	d, err := run.Create(filepath.Join(root, name), id, []string{"timing"})
	if err != nil {
		t.Fatal(err)
	}
	turn := func(d dialogue.Dialogue, right bool) int {
		if right {
			return d.ConflictTurn
		}
		return d.ConflictTurn + 1
	}
	b := timing.BaselineResult{Name: timing.BagBaseline + ", first p ≥ 0.5", Fitted: "training"}
	var lines bytes.Buffer
	for i, x := range ds {
		s := run.Sample{Key: run.Key{Step: timing.StepDecide, Item: x.Key()}}
		decision := timing.Decision{Mode: mode, Gold: x.ConflictTurn, Context: x.ContextKey(), FirstTurn: 3, LastTurn: x.LastTurn()}
		if right == nil {
			s.Unscored = "no mass"
		} else {
			decision.Predicted = turn(x, right(i))
		}
		if s.Data, err = json.Marshal(decision); err != nil {
			t.Fatal(err)
		}
		if err := json.NewEncoder(&lines).Encode(s); err != nil {
			t.Fatal(err)
		}
		if bag != nil {
			b.Predicted = append(b.Predicted, turn(x, bag(i)))
		}
	}
	if err := d.WriteFile(run.SamplesFile, lines.Bytes()); err != nil {
		t.Fatal(err)
	}
	if err := d.Close(run.StatusDone); err != nil {
		t.Fatal(err)
	}
	// The metrics are stored: what the bag of words reaches is made up.
	archive := &task.Archive{Benches: task.Registry{Bench{}, timing.Bench{}}, Version: "1", Note: func(string, ...any) {}}
	scored := timing.Scored{Metrics: timing.Metrics{Mode: mode}}
	if bag != nil {
		scored.Baselines = []timing.BaselineResult{{Name: "longest turn"}, b}
	}
	r, err := archive.Open(d.Path())
	if err != nil {
		t.Fatal(err)
	}
	stored := map[string]any{"schema": run.MetricsSchema, "version": "1", "task": timing.TaskName, "samples_sha256": r.Manifest().SamplesHash, "seed": 0, "usage": run.Summary{}, "metrics": scored}
	if err := r.WriteMetrics(stored); err != nil {
		t.Fatal(err)
	}
	res, err := r.Result(t.Context(), task.ScoreOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return task.Neighbour{Name: name, Run: r, Result: res}
}

// besides are the sections on runs beside each other.
func besides(all []task.Neighbour) ([]report.Section, error) {
	var out []report.Section
	for _, n := range all {
		if b, ok := n.Result.(task.Beside); ok {
			sections, _, err := b.Beside(n, all, 1)
			if err != nil {
				return nil, err
			}
			out = append(out, sections...)
		}
	}
	return out, nil
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
		runs := []task.Neighbour{base, decided(t, "tuned", timing.DualHead, false, ds, c.tuned, c.bag)}
		if c.tunedMasked != nil {
			runs = append(runs, decided(t, "masked", timing.DualHead, true, ds, c.tunedMasked, c.bagMasked))
		}
		sections, err := besides(runs)
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
	sections, err := besides([]task.Neighbour{half, tuned})
	if err != nil || len(sections) != 1 || !strings.Contains(sections[0].Tables[0].Title, "the 24 dialogues") {
		t.Errorf("%v, %+v", err, sections)
	}
	if got := sections[0].Tables[0].Rows[0][2]; got != report.Text("0.000 [0.000, 0.142]") { // 1 − 0.025^(1/24)
		t.Errorf("a base that is always wrong has the interval %v", got)
	}
	none := decided(t, "base", timing.Stream, false, ds[:24], nil, always)
	if sections, err = besides([]task.Neighbour{none, tuned}); err != nil || len(sections) != 1 || len(sections[0].Tables) != 0 || len(sections[0].Notes) != 1 {
		t.Errorf("nothing was scored: %v, %+v", err, sections)
	}
	apart := decided(t, "base", timing.Stream, false, ds[:24], never, always)
	if sections, err = besides([]task.Neighbour{apart, decided(t, "tuned", timing.DualHead, false, ds[24:], always, always)}); err != nil || len(sections) != 0 {
		t.Errorf("other dialogues: %v, %+v", err, sections)
	}
	one := decided(t, "tuned", timing.DualHead, false, ds[:1], always, always)
	if sections, err = besides([]task.Neighbour{apart, one}); err != nil || len(sections) != 1 || !strings.Contains(strings.Join(sections[0].Notes, ""), "one scenario context") {
		t.Errorf("one context: %v, %+v", err, sections)
	}
	if sections, err = besides([]task.Neighbour{tuned}); err != nil || len(sections) != 0 {
		t.Errorf("no base: %v, %+v", err, sections)
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
	of := func(c *sft.Card, ds []dialogue.Dialogue, m timing.Metrics) []report.Section {
		return (&Result{Result: &timing.Result{Scored: timing.Scored{Metrics: m}}, card: c}).heldOut(ds)
	}
	s := of(exported(countries), held, m)
	if len(s) != 1 || len(s[0].Tables[0].Rows) != 1 || s[0].Tables[0].Rows[0][4] != report.Text("levels are not compared") || !strings.Contains(s[0].Notes[0], countries.Keys[0]) {
		t.Errorf("%+v", s)
	}
	for name, got := range map[string][]report.Section{
		"seen countries":  of(exported(countries), ds, m),
		"nothing is held": of(exported(sft.HeldOut{Kind: sft.HoldoutRandom}), held, m),
		"no records":      of(exported(countries), nil, m),
		"constant answer": of(exported(countries), held, timing.Metrics{}),
		"no export":       of(&sft.Card{}, held, m),
	} {
		if len(got) != 0 {
			t.Errorf("%s: %+v", name, got)
		}
	}
}
