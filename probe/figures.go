package probe

import (
	"fmt"

	"github.com/ccmed/ccmed/bench/report"
	"github.com/ccmed/ccmed/probe/activation"
)

// curvesFigures are the published figure's four curves, with their bands and what
// they must be held against.
func (f *Findings) curvesFigures() []report.Figure {
	lines := &report.Lines{X: report.Axis{Name: "layer"}, Y: report.Axis{Name: "accuracy", Min: 0, Max: 1}, Categories: f.Layers,
		References: []report.Reference{{Name: "chance", Value: 1 / float64(f.Classes)}}}
	shuffled, cells := 0.0, 0
	for _, want := range []struct {
		cell activation.Cell
		name string
	}{
		{activation.Cell{Context: ContextD, Text: TextPrompt, Position: PromptEnd}, "D, end of prompt"},
		{activation.Cell{Context: ContextND, Text: TextPrompt, Position: PromptEnd}, "ND, end of prompt"},
		{activation.Cell{Context: ContextD, Text: TextOwnD, Position: UtteranceEnd}, "D, end of utterance"},
		{activation.Cell{Context: ContextND, Text: TextOwnND, Position: UtteranceEnd}, "ND, end of utterance"},
	} {
		for _, c := range f.Cells {
			if c.Cell.Context != want.cell.Context || c.Cell.Text != want.cell.Text || c.Cell.Position != want.cell.Position {
				continue
			}
			s := report.Series{Name: want.name}
			for k := range f.Layers {
				lo, hi := c.Accuracy[k].Bounds()
				s.Y, s.Lo, s.Hi = append(s.Y, c.Accuracy[k].Value), append(s.Lo, lo), append(s.Hi, hi)
				shuffled += c.Shuffled[k] / float64(len(f.Layers))
			}
			cells++
			lines.Series = append(lines.Series, s)
		}
	}
	if cells == 0 {
		return nil
	}
	lines.References = append(lines.References, report.Reference{Name: "shuffled labels", Value: shuffled / float64(cells)})
	for _, t := range []string{TextPrompt, TextOwnD, TextOwnND} {
		if tf, ok := f.Texts[t]; ok {
			name := "bag of words, " + t
			if t == TextPrompt {
				name = "bag of words, dialogue"
			}
			lines.References = append(lines.References, report.Reference{Name: name, Value: tf.Accuracy.Value})
		}
	}
	return []report.Figure{{Title: "Accuracy of the stage by layer", Lines: lines,
		Description: fmt.Sprintf("Accuracy of linear probes for the conflict's stage in %d layers and %d dialogues, at the end of the prompt and of the model's utterance, with the stage named (D) and not named (ND). %s", len(f.Layers), f.N, f.whiskers())}}
}

// partsFigures show the decomposition by layer.
func (f *Findings) partsFigures() []report.Figure {
	lines := &report.Lines{X: report.Axis{Name: "layer"}, Y: report.Axis{Name: "difference in accuracy"}, Categories: f.Layers, References: []report.Reference{{Name: "no difference", Value: 0}}}
	for _, p := range parts {
		s := report.Series{Name: p.name}
		for _, d := range f.Decomposition {
			e := p.of(d)
			if e == nil {
				break
			}
			lo, hi := e.Bounds()
			s.Y, s.Lo, s.Hi = append(s.Y, e.Value), append(s.Lo, lo), append(s.Hi, hi)
		}
		if len(s.Y) == len(f.Layers) {
			lines.Series = append(lines.Series, s)
		}
	}
	if len(lines.Series) == 0 {
		return nil
	}
	return []report.Figure{{Title: "The D−ND difference and its parts by layer", Lines: lines,
		Description: fmt.Sprintf("Differences in probe accuracy at the end of the utterance, in %d dialogues: the whole difference between the conditions, reading the prompt, what the model wrote, the same fixed line for every item, and what writing lost. %s", f.N, f.whiskers())}}
}

// whiskers says what the intervals of figures are.
func (f *Findings) whiskers() string {
	return fmt.Sprintf("Whiskers are 95 %% intervals from resampling %d groups (%s) of held-out predictions.", f.Groups, f.Grouping)
}
