package page

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/ccmed/ccmed/bench/report"
	"github.com/ccmed/ccmed/bench/run"
	"github.com/ccmed/ccmed/bench/task"
)

// Every caution has a run that it stands beside, and one like it that it does not.
func TestRunCautions(t *testing.T) {
	said := func(change func(*run.Manifest)) string {
		m := run.Manifest{Status: run.StatusDone, Identity: run.Identity{Items: make([]string, smallSample)}}
		change(&m)
		return strings.Join(append(runCautions(m), fewItems(m, "dialogue")...), "\n")
	}
	if got := said(func(*run.Manifest) {}); got != "" {
		t.Errorf("a clean run has the cautions %q", got)
	}
	for says, got := range map[string]string{
		"not finished (interrupted)":       said(func(m *run.Manifest) { m.Status = run.StatusInterrupted }),
		"99 dialogues: intervals are wide": said(func(m *run.Manifest) { m.Identity.Items = make([]string, 99) }),
		"1 dialogue: intervals are wide":   said(func(m *run.Manifest) { m.Identity.Items = make([]string, 1) }),
	} {
		if !strings.Contains(got, says) {
			t.Errorf("no %q in %q", says, got)
		}
	}
}

func TestACautionOfSeveralRunsStandsOnce(t *testing.T) {
	parts := []Part{{Name: "a", Task: "timing", Cautions: []string{"early", "late"}, Small: []string{"few"}}, {Name: "b", Task: "timing", Cautions: []string{"early"}, Small: []string{"few"}},
		{Name: "c", Task: "mediation", Cautions: []string{"leaks"}, Small: []string{"few"}, Common: []string{"unfinished"},
			Headline: &task.Headline{Rows: []task.HeadlineRow{{Measure: "AUC, ND", Warned: true}, {Measure: "AUC, D"}}}}}
	lists := Compose(parts, nil)[1].Lists
	want := []report.List{{Title: "All measures", Items: []string{"c: unfinished"}}, {Title: "c: AUC", Items: []string{"leaks"}}, {Title: "Timing", Items: []string{"early", "a: late"}}, {Title: "All intervals", Items: []string{"few"}}}
	if !reflect.DeepEqual(lists, want) {
		t.Errorf("%q, want %q", lists, want)
	}
	if got := Compose([]Part{{Name: "a"}}, nil)[0].Lists[0].Items; len(got) != 1 || !strings.HasPrefix(got[0], "nothing here speaks against") {
		t.Errorf("without a caution: %q", got)
	}
}

// Sections of several folders are named by their folders, and dialogues can be filtered by
// them.
func TestCompose(t *testing.T) {
	browser := func(title string) report.Browser {
		return report.Browser{Name: "dialogues", Title: "id", Facets: []report.Facet{{Name: "stage"}}, Items: []report.Item{{Title: title, Facets: [][]string{{"Denial"}}}}}
	}
	one := Part{Name: "a", Task: "timing", Item: "dialogue", Sections: []report.Section{{Title: "Timing"}}, Browser: browser("1"), Notes: []string{"cut"}}
	two := Part{Name: "b", Task: "timing", Item: "dialogue", Before: []report.Section{{Title: "Before and after"}}, Sections: []report.Section{{Title: "Timing"}}, Browser: browser("2")}
	var titles []string
	sections := Compose([]Part{one, two}, []report.Section{{Title: "Comparison"}})
	for _, s := range sections {
		titles = append(titles, s.Title)
	}
	if want := []string{"Read this before you cite", "Before and after", "Comparison", "Timing: 2 runs", "a: Timing", "b: Timing", "Every dialogue"}; !slices.Equal(titles, want) {
		t.Errorf("%q, want %q", titles, want)
	}
	last := sections[len(sections)-1]
	if b := last.Browser; len(b.Items) != 2 || b.Items[1].Facets[0][0] != "b" || b.Facets[0].Name != "run" || !slices.Equal(last.Notes, []string{"a: cut"}) {
		t.Errorf("%+v, notes %q", last.Browser, last.Notes)
	}
	if alone := Compose([]Part{one}, nil); alone[1].Title != "Timing" {
		t.Errorf("the section of one folder is called %q", alone[1].Title)
	}
}

// Items of several kinds are called items.
func TestComposeOtherItems(t *testing.T) {
	of := func(item string) Part {
		return Part{Name: item, Item: item, Browser: report.Browser{Name: item + "s", Items: []report.Item{{Title: "1"}}}}
	}
	for want, parts := range map[string][]Part{"Every sentence": {of("sentence"), of("sentence")}, "Every item": {of("sentence"), of("dialogue")}} {
		sections := Compose(parts, nil)
		if got := sections[len(sections)-1]; got.Title != want || got.Browser.Name != strings.ToLower(strings.TrimPrefix(want, "Every "))+"s" {
			t.Errorf("%q over %q, want %q", got.Title, got.Browser.Name, want)
		}
	}
}

// What came out stands first, in a sentence and a table, and how to repeat it last.
func TestComposeBeginsWithTheOutcome(t *testing.T) {
	part := func(name string, warned bool) Part {
		return Part{Name: name, Model: "m", Item: "dialogue", Sections: []report.Section{{Title: "Timing"}}, Provenance: &report.Section{Title: "What was run"},
			Browser:  report.Browser{Name: "dialogues", Title: "id", Items: []report.Item{{Title: "1"}}},
			Headline: &task.Headline{Sentence: "steps in.", Rows: []task.HeadlineRow{{Measure: "accuracy", Value: "50.0 %", Baseline: "40.0 %, words", Warned: warned}}}}
	}
	sections := Compose([]Part{part("a", true), part("b", false)}, nil)
	first := sections[0]
	if want := []string{"a: steps in.", "b: steps in."}; first.Title != "What came out" || !slices.Equal(first.Lead, want) {
		t.Errorf("first comes %q: %q", first.Title, first.Lead)
	}
	rows := first.Tables[0].Rows
	if len(rows) != 2 || rows[0][2].String() != "50.0 % †" || rows[1][2].String() != "50.0 %" || len(first.Tables[0].Notes) != 1 {
		t.Errorf("rows %v, notes %q", rows, first.Tables[0].Notes)
	}
	if n := len(sections); sections[n-1].Title != "b: What was run" || sections[n-2].Title != "a: What was run" || sections[n-3].Browser == nil {
		t.Errorf("last come %q, %q and %q", sections[n-3].Title, sections[n-2].Title, sections[n-1].Title)
	}
	if alone := Compose([]Part{part("a", false)}, nil); alone[0].Lead[0] != "m steps in." || alone[0].Tables[0].Notes != nil {
		t.Errorf("of one run: %q, %q", alone[0].Lead, alone[0].Tables[0].Notes)
	}
}

// A name is short and tells a run from its neighbours; the folder is in the provenance.
func TestName(t *testing.T) {
	part := func(folder, model, of string, options map[string]any) Part {
		return Part{Name: folder, Model: model, Task: of, Options: options, Provenance: &report.Section{Tables: []report.Table{report.NewFacts().Table}}}
	}
	parts := []Part{
		part("n/t1", "Gemma-2B.Q4_1", "timing", map[string]any{"mode": "stream", "first_turn": 3}),
		part("n/t2", "Gemma-2B.Q4_1", "timing", map[string]any{"mode": "pick", "first_turn": 3}),
		part("n/m", "Gemma-2B.Q4_1", "mediation", nil),
		part("a/x", "phi", "timing", map[string]any{"seed": 1}), part("b/x", "phi", "timing", map[string]any{"seed": 1}),
		part("q4", "Llama.Q4_1", "timing", nil), part("q8", "Llama.Q8_0", "timing", nil),
	}
	Name(parts)
	var got []string
	for _, p := range parts {
		got = append(got, p.Name)
	}
	if want := []string{"Gemma-2B timing stream", "Gemma-2B timing pick", "Gemma-2B mediation", "phi timing a/x", "phi timing b/x", "Llama.Q4_1 timing", "Llama.Q8_0 timing"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if folder := parts[0].Provenance.Tables[0].Rows[0][1].String(); folder != "n/t1" {
		t.Errorf("the provenance names the folder %q", folder)
	}
}
