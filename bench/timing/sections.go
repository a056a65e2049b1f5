package timing

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/ccmed/ccmed/bench/published"
	"github.com/ccmed/ccmed/bench/report"
	"github.com/ccmed/ccmed/bench/stats"
)

func interval(e stats.Estimate) string { return report.Estimate(e, 3) }

// shareInterval writes a share with its interval in percent.
func shareInterval(e stats.Estimate) string {
	lo, hi := e.Bounds()
	e.Value, e.Lo, e.Hi = 100*e.Value, 100*lo, 100*hi
	return report.Estimate(e, 1) + " %"
}

// Sections renders metrics and baselines as report sections. Published numbers of
// one model stand beside those of a model that has its name, or one of alsoNamed: a
// tuned model's base.
func Sections(model string, m Metrics, baselines []BaselineResult, alsoNamed ...string) []report.Section {
	main := report.Section{Title: "Timing: " + model + ", " + string(m.Mode), Notes: append([]string(nil), m.Notes...)}
	acc := report.Table{Title: fmt.Sprintf("Turn accuracy (%d of %d dialogues scored)", m.Scored, m.N),
		Columns: report.Columns("who", "TurnAcc>", "95 % interval>", "fitted on")}
	all := m.Scored > 0 && m.Bounds != nil
	if all {
		acc.Columns = slices.Insert(acc.Columns, 3, report.Column{Name: fmt.Sprintf("of all %d", m.N), Align: report.Right})
	}
	row := func(who, share, interval, ofAll, fitted string) {
		cells := []report.Cell{report.Text(who), report.Text(share), report.Text(interval), report.Text(ofAll), report.Text(fitted)}
		if !all {
			cells = slices.Delete(cells, 3, 4)
		}
		acc.Rows = append(acc.Rows, cells)
	}
	if m.Scored > 0 {
		iv, bounds := "", ""
		if all {
			bounds = fmt.Sprintf("%.1f to %.1f %%", 100*m.Bounds.Lo, 100*m.Bounds.Hi)
		}
		if m.TurnAcc != nil {
			iv = shareInterval(*m.TurnAcc)
		} else if m.DegenerateAnswer != "" {
			iv = Degenerate
		}
		row(model, report.Pct(m.Correct, m.Scored), iv, bounds, "")
	}
	for _, b := range baselines {
		row("baseline: "+b.Name, b.Share(), b.interval(), b.ShareOfAll(), b.Fitted)
	}
	if len(baselines) > 0 {
		acc.Notes = append(acc.Notes, "a bag of words finds the scripted turn almost always on the public records: TurnAcc there does not by itself show understanding")
	} else {
		acc.Notes = append(acc.Notes, "no baselines: the records were not at hand")
	}
	if all {
		acc.Notes = append(acc.Notes, fmt.Sprintf("every row is of the %d scored dialogues; of all %d the model's share is from the unscored counted as wrong to counted as right", m.Scored, m.N))
	}
	exact := m.TurnAcc != nil && m.TurnAcc.Exact
	for _, b := range baselines {
		exact = exact || b.Interval != nil && b.Interval.Exact
	}
	if exact {
		acc.Notes = append(acc.Notes, exactNote)
	}
	main.Tables = append(main.Tables, acc)
	if len(m.Unscored) > 0 {
		t := report.Table{Title: "Unscored", Columns: report.Columns("reason", "dialogues>")}
		for _, why := range sortedKeys(m.Unscored) {
			t.Add(why, m.Unscored[why])
		}
		main.Tables = append(main.Tables, t)
	}
	if m.Scored == 0 {
		return []report.Section{main}
	}
	main.Tables = append(main.Tables, facts(m))
	if t, ok := publishedTable(append(alsoNamed, model), m); ok {
		main.Tables = append(main.Tables, t)
	}
	main.Figures = append(main.Figures, accuracyFigure(model, m, baselines))
	if f, ok := curveFigure(m); ok {
		main.Figures = append(main.Figures, f)
	}
	sections := []report.Section{main,
		{Title: "Predicted against gold turn", Tables: []report.Table{confusion(m)}, Figures: []report.Figure{heatFigure(m)}},
		{Title: "Accuracy by group", Tables: groupTables(m)}}
	if m.Calibration != nil {
		sections = append(sections, calibrationSection(*m.Calibration))
	}
	return sections
}

// exactNote says what the intervals of turn accuracies are.
const exactNote = "where all contexts agree, an interval is exact (Clopper and Pearson) over contexts"

// interval writes the interval of a baseline's accuracy, or why there is none.
func (r BaselineResult) interval() string {
	switch {
	case r.Predicted == nil:
		return ""
	case r.Interval != nil:
		return shareInterval(*r.Interval)
	}
	return "few contexts"
}

func facts(m Metrics) report.Table {
	t := report.Table{Title: "Further measures", Columns: report.Columns("measure", "value>")}
	row := func(k, v string) { t.Add(k, v) }
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

// Kinds of models that numbers are published of.
const (
	untuned = "untuned"
	tuned   = "tuned"
)

// kind is the kind of model that decided, "" for decisions made elsewhere.
func (m Metrics) kind() string {
	switch m.Mode {
	case DualHead:
		return tuned
	case Stream, Pick, CoT:
		return untuned
	}
	return ""
}

// Measured is TurnAcc as published numbers are held against it.
func (m Metrics) Measured() published.Measured {
	acc := published.Measured{Value: float64(m.Correct) / float64(m.Scored), Unscored: m.Bounds}
	if m.TurnAcc != nil {
		acc.Value = m.TurnAcc.Value
		acc.Lo, acc.Hi = m.TurnAcc.Bounds()
	}
	return acc
}

// publishedTable puts the run's numbers beside the published ones of its kind. Of a
// constant answer only its counts are measured.
func publishedTable(names []string, m Metrics) (report.Table, bool) {
	acc := m.Measured()
	o := published.Options{Models: names, Dialogues: m.Scored}
	switch m.kind() {
	case tuned:
		return published.Table(published.FineTuning, map[string]published.Measured{published.TunedTurnAcc: acc}, o)
	case "":
		return report.Table{}, false
	}
	ours := map[string]published.Measured{published.TurnAcc: acc, published.Turn3: {Value: float64(m.Predicted[3]) / float64(m.Scored), Unscored: m.bounds(m.Predicted[3])}}
	if m.V != nil {
		ours[published.RawV] = published.Measured{Value: m.V.Raw}
	}
	return published.Table(published.Timing, ours, o)
}

// Turns that a confusion grid always has: those that conflicts are scripted at.
const firstGridTurn, lastGridTurn = 3, 8

// grid are the gold turns and the predicted turns of a confusion grid, 0 for none: the same
// in every run, and what else occurs.
func grid(m Metrics) (golds, predicted []int) {
	for t := firstGridTurn; t <= lastGridTurn; t++ {
		golds = append(golds, t)
	}
	predicted = append(golds[:len(golds):len(golds)], sortedKeys(m.Predicted)...)
	golds = append(golds, sortedKeys(m.Confusion)...)
	slices.Sort(golds)
	slices.Sort(predicted)
	golds, predicted = slices.Compact(golds), slices.Compact(predicted)
	if predicted[0] == 0 {
		predicted = predicted[1:]
	}
	return golds, append(predicted, 0)
}

func gridName(turn int) string {
	if turn == 0 {
		return "none"
	}
	return "t" + strconv.Itoa(turn)
}

func confusion(m Metrics) report.Table {
	golds, predicted := grid(m)
	t := report.Table{Columns: report.Columns("gold")}
	for _, p := range predicted {
		t.Columns = append(t.Columns, report.Column{Name: gridName(p), Align: report.Right})
	}
	for _, g := range golds {
		cells := []report.Cell{report.Text(gridName(g))}
		for _, p := range predicted {
			cells = append(cells, report.Int(m.Confusion[g][p]))
		}
		t.Rows = append(t.Rows, cells)
	}
	return t
}

// groupTables show the accuracy by conflict turn, by stage and by value dimension.
func groupTables(m Metrics) []report.Table {
	table := func(title string) *report.Table {
		return &report.Table{Title: title, Columns: report.Columns("group", "TurnAcc>", "95 % interval>", "contexts>")}
	}
	add := func(t *report.Table, name string, r Rate) {
		row := []report.Cell{report.Text(name), report.Text(report.Pct(r.K, r.N)), report.Text("few contexts")}
		switch {
		case r.Acc != nil:
			row = append(row[:2], report.Text(shareInterval(*r.Acc)), report.Int(r.Acc.Groups))
		}
		if m.DegenerateAnswer != "" {
			row[2] = report.Text(Degenerate)
		}
		t.Rows = append(t.Rows, row)
	}
	turns, stages, dimensions := table("By conflict turn"), table("By stage of the conflict"), table("By value dimension")
	for _, g := range sortedKeys(m.PerTurn) {
		add(turns, "conflict at turn "+strconv.Itoa(g), m.PerTurn[g])
	}
	for _, s := range stagesInOrder(m.PerStage) {
		add(stages, s, m.PerStage[s])
	}
	for _, d := range sortedKeys(m.PerDimension) {
		add(dimensions, d, m.PerDimension[d])
	}
	tables := []report.Table{*turns, *stages}
	if len(dimensions.Rows) > 0 {
		dimensions.Notes = []string{"dimensions are the sections of the World Values Survey's questionnaire that the speakers' values are of"}
		tables = append(tables, *dimensions)
	}
	return tables
}

func sortedKeys[K int | string, V any](m map[K]V) []K {
	keys := make([]K, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
