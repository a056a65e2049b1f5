package mediation

import (
	"errors"
	"fmt"

	"github.com/ccmed/ccmed/bench/dialogue"
	"github.com/ccmed/ccmed/bench/dmis"
	"github.com/ccmed/ccmed/bench/report"
	"github.com/ccmed/ccmed/bench/stats"
)

// recordedAUC is the AUC of a record's own stage labels, PRE being the stage
// that the conflict was scripted with; with own, over the turns of the conflict
// speaker alone.
func recordedAUC(d dialogue.Dialogue, after []dialogue.Turn, turn int, scale dmis.Scale, own bool) (float64, []dmis.StageAt, error) {
	var points []dmis.StageAt
	for _, t := range after {
		if t.Agent == dialogue.Mediator || own && t.Agent != d.ConflictAgent {
			continue
		}
		s, err := dmis.ParseStage(t.Label)
		if err != nil {
			return 0, nil, fmt.Errorf("turn %d carries no stage label", t.T)
		}
		points = append(points, dmis.StageAt{Turn: t.T, Stage: s})
	}
	v, err := dmis.StageAUC(d.Stage, turn, d.LastTurn(), points, scale)
	return v, points, err
}

// RecordSections scores records from the labels that they carry.
func RecordSections(ds []dialogue.Dialogue, seed uint64) ([]report.Section, error) {
	t := report.Table{Title: "AUC from the recorded labels (95 % intervals over scenario contexts)",
		Columns: []report.Column{{Name: "continuation"}, {Name: "AUC, Paige", Align: report.Right}, {Name: "AUC, index", Align: report.Right}, {Name: "n", Align: report.Right}, {Name: "unscored", Align: report.Right},
			{Name: "AUC_own, Paige", Align: report.Right}, {Name: "n", Align: report.Right}}}
	boot := stats.Bootstrap{Resamples: 10_000, Seed: seed}
	for _, kind := range []string{"original", "positive", "negative"} {
		var paige, index, own []float64
		var groups, ownGroups []string
		unscored := 0
		for _, d := range ds {
			after, turn, ok := continuation(d, kind)
			if !ok {
				continue
			}
			if v, _, err := recordedAUC(d, after, turn, dmis.Paige, true); err == nil {
				own, ownGroups = append(own, v), append(ownGroups, d.ContextKey())
			}
			p, _, err := recordedAUC(d, after, turn, dmis.Paige, false)
			i, _, err2 := recordedAUC(d, after, turn, dmis.Index, false)
			if errors.Join(err, err2) != nil {
				unscored++
				continue
			}
			paige, index, groups = append(paige, p), append(index, i), append(groups, d.ContextKey())
		}
		if len(paige)+unscored == 0 {
			continue
		}
		row := []report.Cell{report.Text(kind), report.Text(""), report.Text(""), report.Int(len(paige)), report.Int(unscored), report.Text(""), report.Int(len(own))}
		if len(paige) > 0 {
			p, err := boot.Mean(paige, groups)
			if err != nil {
				return nil, err
			}
			i, err := boot.Mean(index, groups)
			if err != nil {
				return nil, err
			}
			row[1], row[2] = report.Text(report.Estimate(p, 3)), report.Text(report.Estimate(i, 3))
		}
		if len(own) > 0 {
			o, err := boot.Mean(own, ownGroups)
			if err != nil {
				return nil, err
			}
			row[5] = report.Text(report.Estimate(o, 3))
		}
		t.Rows = append(t.Rows, row)
	}
	return []report.Section{{Title: fmt.Sprintf("Records: %d dialogues", len(ds)), Tables: []report.Table{t},
		Notes: []string{"AUC_own: turns of the conflict speaker alone. The negative continuation is counted from the conflict turn where its mediator spoke before",
			"the labels come with the records; W1 needs stage distributions, which they do not hold: give --labeller"}}}, nil
}

// continuation returns what follows the conflict in a record, and the turn that
// it follows.
func continuation(d dialogue.Dialogue, kind string) (after []dialogue.Turn, turn int, ok bool) {
	switch kind {
	case "original":
		return d.Unmediated()[d.ConflictTurn:], d.ConflictTurn, true
	case "positive":
		_, ok := d.Mediation()
		return d.Mediated(), d.ConflictTurn, ok
	}
	return d.Negative()
}
