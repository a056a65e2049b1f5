package probe

import (
	"encoding/csv"
	"fmt"
	"io"
	"strconv"

	"github.com/ccmed/ccmed/bench/report"
	"github.com/ccmed/ccmed/probe/activation"
)

func label(c activation.Cell) string {
	if c.Position == PromptEnd {
		return c.Context + " " + c.Position
	}
	return c.Context + ", " + c.Text
}

func effect(e *Effect) report.Cell {
	if e == nil {
		return report.Text("")
	}
	return report.Text(report.Interval(e.Value, e.Lo, e.Hi, 3))
}

// Sections renders findings as report sections.
func Sections(model string, f *Findings) []report.Section {
	head := report.Section{Title: "Probes: " + model, Notes: append([]string{
		fmt.Sprintf("%d dialogues of %d scenario contexts in every cell, %d left out; %d folds of whole contexts, %d partitions; chance is %.3f",
			f.N, f.Contexts, f.Left, f.Folds, f.Seeds, 1/float64(f.Classes)),
		"intervals are over scenario contexts, corrected for probes that share training rows (Nadeau and Bengio 2003)"}, f.Notes...)}
	overview := report.Table{Title: "Accuracy of the stage, by cell", Columns: []report.Column{{Name: "cell"}, {Name: "peak", Align: report.Right}, {Name: "at " + f.At, Align: report.Right},
		{Name: "shuffled", Align: report.Right}, {Name: "majority", Align: report.Right}, {Name: "peak − last third", Align: report.Right}}}
	at := len(f.Layers) - 1
	for i, l := range f.Layers {
		if l == f.At {
			at = i
		}
	}
	for _, c := range f.Cells {
		overview.Rows = append(overview.Rows, []report.Cell{report.Text(label(c.Cell)), report.Num(c.Peak, 3), report.Num(c.Layers[at].Accuracy, 3),
			report.Num(c.Shuffled[at], 3), report.Num(c.Majority, 3), report.Num(c.DeltaLate, 3)})
	}
	for _, t := range []string{TextOwnD, TextOwnND} {
		if tf, ok := f.Texts[t]; ok {
			overview.Notes = append(overview.Notes, fmt.Sprintf("a bag of words of the %s text alone: %.3f", t, tf.Accuracy))
		}
	}
	head.Tables = []report.Table{overview}
	curves := report.Table{Title: "Accuracy by layer", Columns: []report.Column{{Name: "layer"}}}
	for _, c := range f.Cells {
		curves.Columns = append(curves.Columns, report.Column{Name: label(c.Cell), Align: report.Right})
	}
	for k, l := range f.Layers {
		row := []report.Cell{report.Text(l)}
		for _, c := range f.Cells {
			row = append(row, report.Num(c.Layers[k].Accuracy, 3))
		}
		curves.Rows = append(curves.Rows, row)
	}
	parts := report.Table{Columns: []report.Column{{Name: "layer"}, {Name: "Δelic", Align: report.Right}, {Name: "= Δctx", Align: report.Right}, {Name: "+ Δtext", Align: report.Right},
		{Name: "Δplacebo", Align: report.Right}, {Name: "excess loss", Align: report.Right}}}
	for k, d := range f.Decomposition {
		parts.Rows = append(parts.Rows, []report.Cell{report.Text(f.Layers[k]), effect(d.Elic), effect(d.Ctx), effect(d.Text), effect(d.Placebo), effect(d.Excess)})
	}
	sections := []report.Section{head, {Title: "Layer by layer", Tables: []report.Table{curves}},
		{Title: "The D−ND difference taken apart", Tables: []report.Table{parts},
			Notes: []string{"Δctx: reading the prompt; Δtext: what the model wrote; Δplacebo: the difference with the same fixed line for every item"}}}
	if len(f.Transfers) > 0 {
		t := report.Table{Columns: []report.Column{{Name: "trained on"}, {Name: "tested on"}, {Name: "accuracy at " + f.At, Align: report.Right}, {Name: "its own probe", Align: report.Right}}}
		for _, x := range f.Transfers {
			t.Rows = append(t.Rows, []report.Cell{report.Text(label(x.From)), report.Text(label(x.To)), report.Num(x.Accuracy[at], 3), report.Num(x.Own[at], 3)})
		}
		sections = append(sections, report.Section{Title: "Is the same direction used?", Tables: []report.Table{t}})
	}
	if f.Verdict != nil {
		t := report.Table{Columns: []report.Column{{Name: "gate"}, {Name: "effect [95 %]", Align: report.Right}, {Name: "p (Holm)", Align: report.Right}, {Name: "holds"}}}
		for _, g := range f.Verdict.Gates {
			holds := "no"
			if g.Holds {
				holds = "yes"
			}
			p := report.PValue(g.Adjusted)
			if g.Effect == nil {
				holds, p = "not measured", ""
			}
			t.Rows = append(t.Rows, []report.Cell{report.Text(g.Name), effect(g.Effect), report.Text(p), report.Text(holds)})
		}
		sections = append(sections, report.Section{Title: "What may be said (at " + f.At + "): " + f.Verdict.Sentence, Tables: []report.Table{t}, Notes: f.Verdict.Reasons})
	}
	return sections
}

// WriteCSV writes one line a cell and layer: context, text, position, layer,
// n, accuracy, log-loss, macro-F1, Brier score, shuffled and majority accuracy.
func WriteCSV(w io.Writer, f *Findings) error {
	c := csv.NewWriter(w)
	lines := [][]string{{"context", "text", "position", "layer", "n", "accuracy", "log_loss", "macro_f1", "brier", "shuffled", "majority"}}
	num := func(v float64) string { return strconv.FormatFloat(v, 'g', -1, 64) }
	for _, cell := range f.Cells {
		for k, l := range cell.Layers {
			lines = append(lines, []string{cell.Cell.Context, cell.Cell.Text, cell.Cell.Position, f.Layers[k], strconv.Itoa(l.N), num(l.Accuracy), num(l.LogLoss),
				num(l.MacroF1), num(l.Brier), num(cell.Shuffled[k]), num(cell.Majority)})
		}
	}
	if err := c.WriteAll(lines); err != nil {
		return fmt.Errorf("write CSV: %w", err)
	}
	return nil
}
