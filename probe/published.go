package probe

import (
	"math"

	"github.com/ccmed/ccmed/bench/published"
	"github.com/ccmed/ccmed/bench/report"
	"github.com/ccmed/ccmed/bench/stats"
	"github.com/ccmed/ccmed/probe/activation"
)

// publishedSection puts the published numbers beside the store's, at one layer.
func (f *Findings) publishedSection(model string, at int) report.Section {
	ours := map[string]published.Measured{}
	measured := func(id string, e stats.Estimate) {
		lo, hi := e.Bounds()
		ours[id] = published.Measured{Value: e.Value, Lo: lo, Hi: hi}
	}
	for id, want := range map[string]activation.Cell{
		published.PromptEndD:     {Context: ContextD, Text: TextPrompt, Position: PromptEnd},
		published.PromptEndND:    {Context: ContextND, Text: TextPrompt, Position: PromptEnd},
		published.UtteranceEndD:  {Context: ContextD, Text: TextOwnD, Position: UtteranceEnd},
		published.UtteranceEndND: {Context: ContextND, Text: TextOwnND, Position: UtteranceEnd},
	} {
		for _, c := range f.Cells {
			if want.Kind = c.Cell.Kind; c.Cell == want {
				measured(id, c.Accuracy[at])
			}
		}
	}
	if len(f.Decomposition) > 0 && f.Decomposition[at].Elic != nil {
		measured(published.DeltaElic, f.Decomposition[at].Elic.Estimate)
	}
	if f.Content != nil && f.Content.Gap != nil {
		ours[published.ContentGap] = published.Measured{Value: math.Abs(f.Content.Gap.Value)}
	}
	var s report.Section
	if t, ok := published.Table(published.Probing, ours, published.Options{Models: []string{model}}); ok {
		t.Title = ""
		s = report.Section{Title: "Probes beside the published numbers", Tables: []report.Table{t}, Notes: []string{"here: at " + f.At}}
	}
	return s
}
