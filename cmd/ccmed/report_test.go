package main

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ccmed/ccmed/bench/dialogue"
	"github.com/ccmed/ccmed/bench/mediation"
	"github.com/ccmed/ccmed/bench/report"
	"github.com/ccmed/ccmed/bench/run"
	"github.com/ccmed/ccmed/bench/task"
	"github.com/ccmed/ccmed/bench/timing"
	"github.com/ccmed/ccmed/cmd/ccmed/internal/cli"
	"github.com/ccmed/ccmed/sft"
)

// browserOf returns the dialogues that a report of a run shows.
func browserOf(t *testing.T, path string) report.Browser {
	t.Helper()
	sections, err := newApp().reportSections(t.Context(), []string{path}, 0)
	if err != nil {
		t.Fatal(err)
	}
	return *dialoguesOf(t, sections).Browser
}

// dialoguesOf is the section of a report that holds the dialogues.
func dialoguesOf(t *testing.T, sections []report.Section) report.Section {
	t.Helper()
	i := slices.IndexFunc(sections, func(s report.Section) bool { return s.Browser != nil })
	if i < 0 {
		t.Fatal("the report has no browser")
	}
	return sections[i]
}

func itemOf(t *testing.T, b report.Browser, title string) report.Item {
	t.Helper()
	i := slices.IndexFunc(b.Items, func(it report.Item) bool { return it.Title == title })
	if i < 0 {
		t.Fatalf("there is no dialogue %s", title)
	}
	return b.Items[i]
}

func measure(t *testing.T, b report.Browser, it report.Item, name string) float64 {
	t.Helper()
	i := slices.Index(b.Measures, name)
	if i < 0 {
		t.Fatalf("there is no measure %q in %q", name, b.Measures)
	}
	return it.Measures[i]
}

func TestReportTimingDialogues(t *testing.T) {
	data, ds := scriptedRecords(t, 15)
	path := filepath.Join(t.TempDir(), "t")
	scriptedTiming(t, path, data, ds)
	b := browserOf(t, path)
	if len(b.Items) != len(ds) {
		t.Fatalf("%d dialogues are shown, want %d", len(b.Items), len(ds))
	}
	outcomes := map[int][]string{1: {"right"}, 2: {"wrong", "early"}, 3: {"wrong", "late"}, 4: {"unscored"}, 9: {"wrong", "no turn"}}
	for _, d := range ds {
		it := itemOf(t, b, d.Key())
		want := outcomes[d.ID]
		if d.ID == 2 && d.ConflictTurn == 3 {
			want = []string{"right"}
		}
		if want != nil && !slices.Equal(it.Facets[3], want) {
			t.Errorf("dialogue %d: outcome %q, want %q", d.ID, it.Facets[3], want)
		}
		if got := measure(t, b, it, task.GoldTurn); got != float64(d.ConflictTurn) {
			t.Errorf("dialogue %d: gold turn %v, want %d", d.ID, got, d.ConflictTurn)
		}
		curve := it.Blocks[1]
		if curve.Value != "P(yes)" || len(curve.Turns) != d.LastTurn() || curve.Turns[0].Text != d.Unmediated()[0].Message || curve.Turns[0].Value == nil {
			t.Errorf("dialogue %d: the curve is %+v", d.ID, curve)
		}
		if !slices.Contains(curve.Turns[d.ConflictTurn-1].Marks, "conflict turn") {
			t.Errorf("dialogue %d: turn %d is not marked", d.ID, d.ConflictTurn)
		}
	}
	if it := itemOf(t, b, "4"); it.Note != "unscored: turn 3: the answers got 0.01 of the probability, less than 0.05" || it.Blocks[1].Turns[2].Unscored == "" {
		t.Errorf("the unscored dialogue says %q", it.Note)
	}
}

// TestReportDialoguesWithoutData: what the samples hold is shown where the records
// are gone, or are others.
func TestReportDialoguesWithoutData(t *testing.T) {
	_, ds := scriptedRecords(t, 3)
	others, _ := scriptedRecords(t, 2)
	for data, why := range map[string]string{others: "is not what the run read", "gone": "no such file"} {
		path := filepath.Join(t.TempDir(), "t")
		scriptedTiming(t, path, data, ds)
		sections, err := newApp().reportSections(t.Context(), []string{path}, 0)
		if err != nil {
			t.Fatal(err)
		}
		last := dialoguesOf(t, sections)
		if len(last.Notes) != 1 || !strings.Contains(last.Notes[0], why) {
			t.Errorf("%s: the report says %q, want %q in it", data, last.Notes, why)
		}
		turns := itemOf(t, *last.Browser, "1").Blocks[0].Turns
		if len(turns) != ds[0].LastTurn() || turns[0].Value == nil || turns[0].Text != "" {
			t.Errorf("%s: the turns are %+v", data, turns)
		}
	}
}

// TestReportHidesWhatTablesHide: values of an unqualified labeller are neither shown
// nor sorted by.
func TestReportHidesWhatTablesHide(t *testing.T) {
	data, ds := scriptedRecords(t, 24)
	for _, qualified := range []bool{true, false} {
		path := filepath.Join(t.TempDir(), "m")
		scriptedMediation(t, path, data, ds, scriptedMediator{qualified: qualified, say: func(int) string { return "a line" }})
		b := browserOf(t, path)
		if got := slices.ContainsFunc(b.Measures, func(m string) bool { return strings.HasPrefix(m, "AUC") }); got != qualified {
			t.Errorf("qualified %v: the measures are %q", qualified, b.Measures)
		}
		it := itemOf(t, b, "1")
		facts := map[string]bool{}
		var stages []string
		for _, bl := range it.Blocks {
			for _, f := range bl.Facts {
				facts[f[0]] = true
			}
			if strings.HasPrefix(bl.Title, mediation.ND+":") {
				for _, turn := range bl.Turns {
					if turn.Shares != nil {
						stages = append(stages, turn.Name)
					}
				}
			}
		}
		if facts["AUC"] != qualified || !facts["judge's answer, 1 to 5"] {
			t.Errorf("qualified %v: the facts are %v", qualified, facts)
		}
		if want := 1 + ds[0].LastTurn() - ds[0].ConflictTurn; len(stages) != want {
			t.Errorf("%d turns have stages, want %d: %q", len(stages), want, stages)
		}
		if it := itemOf(t, b, "6"); !strings.Contains(it.Note, "ND: 1 of") || !slices.Contains(it.Facets[3], "unscored") {
			t.Errorf("dialogue 6 says %q, %q", it.Note, it.Facets[3])
		}
	}
}

// TestReportPredictedTurns: a run that steps in at predicted turns says whether they
// were right.
func TestReportPredictedTurns(t *testing.T) {
	data, ds := scriptedRecords(t, 12)
	path := filepath.Join(t.TempDir(), "m")
	scriptedMediation(t, path, data, ds, scriptedMediator{qualified: true, say: func(int) string { return "a line" }, turn: func(d dialogue.Dialogue) int {
		switch d.ID % 4 {
		case 1:
			return min(d.ConflictTurn+1, d.LastTurn()-1)
		case 3:
			return 0
		}
		return d.ConflictTurn
	}})
	b := browserOf(t, path)
	for id, want := range map[string][]string{"4": {"right", "scored"}, "1": {"wrong", "late", "scored"}, "3": {"wrong", "no turn", "unscored"}} {
		it := itemOf(t, b, id)
		if !slices.Equal(it.Facets[3], want) {
			t.Errorf("dialogue %s: outcome %q, want %q (%s)", id, it.Facets[3], want, it.Note)
		}
	}
	if got := measure(t, b, itemOf(t, b, "1"), task.TurnError); got != 1 {
		t.Errorf("dialogue 1 is %v turns late, want 1", got)
	}
	if note := itemOf(t, b, "3").Note; !strings.Contains(note, "ND: no turn was predicted") {
		t.Errorf("dialogue 3 says %q", note)
	}
}

// TestReportOfHalfARun: dialogues without a sample are listed with their reason.
func TestReportOfHalfARun(t *testing.T) {
	data, ds := scriptedRecords(t, 3)
	path := filepath.Join(t.TempDir(), "half")
	id := run.Identity{Task: "timing", Options: map[string]any{"data": data, "split": ""}}
	for _, d := range ds {
		id.Items = append(id.Items, d.Key())
	}
	dir, err := run.Create(path, id, []string{"timing", "--data", data})
	if err != nil {
		t.Fatal(err)
	}
	if err := dir.Close(run.StatusInterrupted); err != nil {
		t.Fatal(err)
	}
	b := browserOf(t, path)
	if len(b.Items) != 3 || b.Items[0].Note != "no sample: it was not asked yet" || !slices.Equal(b.Items[0].Facets[3], []string{"missing"}) {
		t.Errorf("the dialogues are %+v", b.Items)
	}
}

func TestReportPromptsAndCommand(t *testing.T) {
	data, ds := scriptedRecords(t, 3)
	path := filepath.Join(t.TempDir(), "t")
	scriptedTiming(t, path, data, ds)
	sections, err := newApp().reportSections(t.Context(), []string{path}, 0)
	if err != nil {
		t.Fatal(err)
	}
	s := sections[len(sections)-1]
	if want := "ccmed timing --model scripted --data " + data; s.Passages[0].Text != want || !s.Passages[0].Open {
		t.Errorf("the command is %+v, want %q", s.Passages[0], want)
	}
	facts := s.Tables[0].CSV()
	for _, want := range []string{"Q4_1", "sha256:" + strings.Repeat("0", 63) + "7", dialogue.Hash(ds), "seed,1"} {
		if !strings.Contains(facts, want) {
			t.Errorf("%q is not among the facts:\n%s", want, facts)
		}
	}
}

func TestTrainCommand(t *testing.T) {
	c, err := sft.Preset("small")
	if err != nil {
		t.Fatal(err)
	}
	c.Base, c.Data, c.Out = "checkpoint", "export", "run"
	c.LRHead, c.MaxSteps, c.Targets = 0.00002, 1_000_000, []string{"q_proj", "o_proj"}
	c.ReuseTokens = map[string]string{sft.TurnEnd: "<a>", sft.Speak: "<b>", sft.EndSpeak: "<c>"}
	s, err := sft.Described(&sft.Manifest{Config: c, Preset: "small", Base: sft.Checkpoint{Dir: "checkpoint", From: "ollama:tiny"}, Sessions: []sft.TrainSession{{Processes: 2}}}, cli.CommandLine)
	if err != nil {
		t.Fatal(err)
	}
	want := "ccmed sft train --base ollama:tiny --data export --preset small --lr-head=0.00002 --max-steps=1000000 '--reuse-tokens=<a>,<b>,<c>' --targets=q_proj,o_proj --nproc=2"
	if got := s.Passages[0].Text; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestRunNames(t *testing.T) {
	got := runNames([]string{"/a/night/timing", "/b/night/timing", "/b/t", "/b/night/timing/../pick"})
	if want := []string{"a/night/timing", "b/night/timing", "t", "pick"}; !slices.Equal(got, want) {
		t.Errorf("the names are %q, want %q", got, want)
	}
}

// TestReportJoinsTasks: runs of several tasks share one browser.
func TestReportJoinsTasks(t *testing.T) {
	data, ds := scriptedRecords(t, 4)
	dir := t.TempDir()
	scriptedTiming(t, filepath.Join(dir, "t"), data, ds)
	scriptedMediation(t, filepath.Join(dir, "m"), data, ds, scriptedMediator{qualified: true, say: func(int) string { return "a line" }})
	b := browserOf(t, dir)
	runs := map[string]int{}
	conditions := map[string]bool{}
	for _, it := range b.Items {
		runs[it.Facets[0][0]]++
		for _, c := range it.Facets[2] {
			conditions[c] = true
		}
	}
	if runs["scripted timing"] != 4 || runs["scripted mediation"] != 4 || !conditions[string(timing.Stream)] || !conditions[mediation.ND] {
		t.Errorf("the runs are %v, the conditions %v", runs, conditions)
	}
}
