package report_test

import (
	"io"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/ccmed/ccmed/bench/report"
)

func TestBrowserJoin(t *testing.T) {
	a := report.Browser{Name: "dialogues", Facets: []report.Facet{{Name: "run"}, {Name: "stage", Order: []string{"Denial"}}}, Measures: []string{"gold"},
		Items: []report.Item{{Title: "1", Facets: [][]string{{"a"}, {"Denial"}}, Measures: report.Values{3}}}}
	a.Join(report.Browser{Facets: []report.Facet{{Name: "stage", Order: []string{"Denial", "Defense"}}, {Name: "condition"}}, Measures: []string{"AUC", "gold"},
		Items: []report.Item{{Title: "2", Facets: [][]string{{"Defense"}, {"ND", "D"}}, Measures: report.Values{0.5, 4}}}})
	want := report.Browser{Name: "dialogues", Facets: []report.Facet{{Name: "run"}, {Name: "stage", Order: []string{"Denial", "Defense"}}, {Name: "condition"}}, Measures: []string{"gold", "AUC"},
		Items: []report.Item{
			{Title: "1", Facets: [][]string{{"a"}, {"Denial"}, nil}, Measures: report.Values{3, math.NaN()}},
			{Title: "2", Facets: [][]string{nil, {"Defense"}, {"ND", "D"}}, Measures: report.Values{4, 0.5}}}}
	if d := cmp.Diff(want, a, cmp.Comparer(func(x, y float64) bool { return x == y || math.IsNaN(x) && math.IsNaN(y) })); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

func TestBrowserMistakes(t *testing.T) {
	half, none := 0.5, math.NaN()
	for want, b := range map[string]report.Browser{
		"1 facets and 0 measures": {Items: []report.Item{{Title: "9", Facets: [][]string{{"x"}}}}},
		"2 shares for 1 names":    {Items: []report.Item{{Blocks: []report.Block{{Shares: []string{"a"}, Turns: []report.Turn{{Value: &half, Shares: report.Values{0.5, 0.5}}}}}}}},
		"the value is NaN":        {Items: []report.Item{{Blocks: []report.Block{{Turns: []report.Turn{{Value: &none}}}}}}},
	} {
		err := report.Write(io.Discard, report.HTML, []report.Section{{Title: "s", Browser: &b}}, report.Options{})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the error is %v, want %q in it", err, want)
		}
	}
}

func TestBrowserAndPassagesAsText(t *testing.T) {
	s := report.Section{Title: "s", Passages: []report.Passage{{Title: "command", Text: "ccmed timing\x1b[2J"}}, Browser: &report.Browser{Name: "dialogues", Items: make([]report.Item, 2)}}
	for _, f := range []report.Format{report.Terminal, report.Markdown} {
		got := render(t, f, report.Options{Width: 80}, s)
		for _, want := range []string{"ccmed timing␛", "2 dialogues, one by one in the HTML and the JSON report"} {
			if !strings.Contains(got, want) {
				t.Errorf("%s: %q is not in\n%s", f, want, got)
			}
		}
	}
}
