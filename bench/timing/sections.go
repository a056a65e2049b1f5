package timing

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/ccmed/ccmed/bench/report"
	"github.com/ccmed/ccmed/bench/stats"
)

func interval(e stats.Estimate) string { return report.Interval(e.Value, e.Lo, e.Hi, 3) }

// Sections renders metrics and baselines as report sections.
func Sections(model string, m Metrics, baselines []BaselineResult) []report.Section {
	main := report.Section{Title: "Timing: " + model + ", " + string(m.Mode), Notes: append([]string(nil), m.Notes...)}
	acc := report.Table{Title: fmt.Sprintf("Turn accuracy (%d of %d dialogues scored)", m.Scored, m.N),
		Columns: []report.Column{{Name: "who"}, {Name: "TurnAcc", Align: report.Right}, {Name: "95 % interval", Align: report.Right}, {Name: "fitted on"}}}
	if m.Scored > 0 {
		iv := ""
		if m.TurnAcc != nil {
			iv = interval(*m.TurnAcc)
		} else if m.DegenerateAnswer != "" {
			iv = "degenerate"
		}
		acc.Rows = append(acc.Rows, []report.Cell{report.Text(model), report.Text(report.Pct(m.Correct, m.Scored)), report.Text(iv), report.Text("")})
	}
	for _, b := range baselines {
		acc.Rows = append(acc.Rows, []report.Cell{report.Text("baseline: " + b.Name), report.Text(b.Share()), report.Text(""), report.Text(b.Fitted)})
	}
	if len(baselines) > 0 {
		acc.Notes = append(acc.Notes, "a bag of words finds the scripted turn almost always on the public records: TurnAcc there does not by itself show understanding")
	} else {
		acc.Notes = append(acc.Notes, "no baselines: the records were not at hand")
	}
	main.Tables = append(main.Tables, acc)
	if len(m.Unscored) > 0 {
		t := report.Table{Title: "Unscored", Columns: []report.Column{{Name: "reason"}, {Name: "dialogues", Align: report.Right}}}
		for _, why := range sortedKeys(m.Unscored) {
			t.Rows = append(t.Rows, []report.Cell{report.Text(why), report.Int(m.Unscored[why])})
		}
		main.Tables = append(main.Tables, t)
	}
	if m.Scored == 0 {
		return []report.Section{main}
	}
	main.Tables = append(main.Tables, facts(m))
	main.Figures = append(main.Figures, accuracyFigure(model, m, baselines))
	if f, ok := curveFigure(m); ok {
		main.Figures = append(main.Figures, f)
	}
	return []report.Section{main, {Title: "Predicted against gold turn", Tables: []report.Table{confusion(m)}, Figures: []report.Figure{heatFigure(m)}}, {Title: "Accuracy by turn and stage", Tables: []report.Table{rates(m)}}}
}

func facts(m Metrics) report.Table {
	t := report.Table{Title: "More of it", Columns: []report.Column{{Name: "measure"}, {Name: "value", Align: report.Right}}}
	row := func(k, v string) { t.Rows = append(t.Rows, []report.Cell{report.Text(k), report.Text(v)}) }
	row("within one turn", report.Pct(m.WithinOne, m.Scored))
	row("no prediction", report.Pct(m.NoPrediction, m.Scored))
	row("predicted turn 3", report.Pct(m.Predicted[3], m.Scored))
	if m.SignedError != nil {
		row("mean of predicted − gold turn", fmt.Sprintf("%s n=%d", interval(*m.SignedError), m.SignedError.N))
	}
	if m.V != nil {
		row("Cramér's V, raw", fmt.Sprintf("%.3f", m.V.Raw))
		row("Cramér's V, bias-corrected", fmt.Sprintf("%.3f (permutation p %s)", m.V.Corrected, report.PValue(m.V.P)))
	}
	if m.AUROC != nil {
		row(fmt.Sprintf("AUROC over %d turns up to the conflict", m.AUROC.Turns), interval(m.AUROC.Model))
		row("AUROC within dialogues, mean", fmt.Sprintf("%s n=%d", interval(m.AUROC.Within), m.AUROC.Within.N))
		row("AUROC of the turn's number alone", fmt.Sprintf("%.3f", m.AUROC.Position))
		row("AUROC of the turn's length alone", fmt.Sprintf("%.3f", m.AUROC.Length))
	}
	row("scenario contexts", strconv.Itoa(m.Contexts))
	return t
}

func confusion(m Metrics) report.Table {
	golds := sortedKeys(m.Confusion)
	preds := sortedKeys(m.Predicted)
	t := report.Table{Columns: []report.Column{{Name: "gold"}}}
	for _, p := range preds {
		name := "t" + strconv.Itoa(p)
		if p == 0 {
			name = "none"
		}
		t.Columns = append(t.Columns, report.Column{Name: name, Align: report.Right})
	}
	for _, g := range golds {
		cells := []report.Cell{report.Text("t" + strconv.Itoa(g))}
		for _, p := range preds {
			cells = append(cells, report.Int(m.Confusion[g][p]))
		}
		t.Rows = append(t.Rows, cells)
	}
	return t
}

func rates(m Metrics) report.Table {
	t := report.Table{Columns: []report.Column{{Name: "group"}, {Name: "correct", Align: report.Right}}}
	for _, g := range sortedKeys(m.PerTurn) {
		t.Rows = append(t.Rows, []report.Cell{report.Text("conflict at turn " + strconv.Itoa(g)), report.Text(report.Pct(m.PerTurn[g].K, m.PerTurn[g].N))})
	}
	for _, s := range stagesInOrder(m.PerStage) {
		t.Rows = append(t.Rows, []report.Cell{report.Text(s), report.Text(report.Pct(m.PerStage[s].K, m.PerStage[s].N))})
	}
	return t
}

func sortedKeys[K int | string, V any](m map[K]V) []K {
	keys := make([]K, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
