package probe

import (
	"math"

	"github.com/ccmed/ccmed/bench/report"
	"github.com/ccmed/ccmed/probe/activation"
)

// publishedSection puts the published numbers beside the store's. What they can
// be compared for depends on what is known of how they were made; levels of models
// of other sizes are a trend at best.
func (f *Findings) publishedSection(at int) report.Section {
	accuracy := func(contextName, text, position string) float64 {
		for _, c := range f.Cells {
			if c.Cell == (activation.Cell{Context: contextName, Text: text, Position: position, Kind: c.Cell.Kind}) {
				return c.Layers[at].Accuracy
			}
		}
		return math.NaN()
	}
	elic := math.NaN()
	if len(f.Decomposition) > 0 && f.Decomposition[at].Elic != nil {
		elic = f.Decomposition[at].Elic.Value
	}
	cosine := math.NaN()
	if f.Content != nil && f.Content.Gap != nil {
		cosine = math.Abs(f.Content.Gap.Value)
	}
	t := report.Table{Columns: []report.Column{{Name: "figure"}, {Name: "published"}, {Name: "comparable"}, {Name: "here, at " + f.At, Align: report.Right}}}
	for _, r := range []struct {
		what, published, comparable string
		here                        float64
	}{
		{"D, end of prompt", "near ceiling, 0.95 or more", "range", accuracy(ContextD, TextPrompt, PromptEnd)},
		{"ND, end of prompt", "near ceiling, 0.95 or more", "range", accuracy(ContextND, TextPrompt, PromptEnd)},
		{"D, end of utterance", "1.00 (Gemma-2-9B)", "range, for that model at F16; else trend", accuracy(ContextD, TextOwnD, UtteranceEnd)},
		{"ND, end of utterance", "0.80 (Gemma-2-9B)", "range, for that model at F16; else trend", accuracy(ContextND, TextOwnND, UtteranceEnd)},
		{"Δelic", "+0.15", "trend", elic},
		{"content, |D − ND| in cosine", "at most 0.02", "trend: another embedder", cosine},
	} {
		if !math.IsNaN(r.here) {
			t.Rows = append(t.Rows, []report.Cell{report.Text(r.what), report.Text(r.published), report.Text(r.comparable), report.Num(r.here, 3)})
		}
	}
	s := report.Section{Title: "Beside the published numbers"}
	if len(t.Rows) > 0 {
		t.Notes = []string{"published: CC-Mediation, whose source does not say which of its layers and positions a figure is of; range and trend say what a comparison can bear"}
		s.Tables = []report.Table{t}
	}
	return s
}
