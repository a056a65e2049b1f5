package mediation

import (
	"errors"
	"fmt"

	"github.com/ccmed/ccmed/bench/dialogue"
	"github.com/ccmed/ccmed/bench/dmis"
	"github.com/ccmed/ccmed/bench/report"
	"github.com/ccmed/ccmed/bench/stats"
)

// recordedAUC is the AUC of a record's own stage labels over the conflict speaker's own
// turns, PRE being the stage that the conflict was scripted with. Labels of the other
// speaker's turns are about that one.
func recordedAUC(d dialogue.Dialogue, after []dialogue.Turn, turn int, scale dmis.Scale) (float64, []dmis.StageAt, error) {
	var points []dmis.StageAt
	for _, t := range after {
		if t.Agent != d.ConflictAgent {
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
	t := report.Table{Title: "AUC_own from the recorded labels (95 % intervals over scenario contexts)",
		Columns: report.Columns("continuation", "AUC_own, Paige>", "AUC_own, index>", "n>", "unscored>")}
	boot := stats.Bootstrap{Resamples: 10_000, Seed: seed}
	for _, kind := range []string{"original", "positive", "negative"} {
		var paige, index []float64
		var groups []string
		unscored := 0
		for _, d := range ds {
			after, turn, ok := continuation(d, kind)
			if !ok {
				continue
			}
			p, _, err := recordedAUC(d, after, turn, dmis.Paige)
			i, _, err2 := recordedAUC(d, after, turn, dmis.Index)
			if errors.Join(err, err2) != nil {
				unscored++
				continue
			}
			paige, index, groups = append(paige, p), append(index, i), append(groups, d.ContextKey())
		}
		if len(paige)+unscored == 0 {
			continue
		}
		row := []report.Cell{report.Text(kind), report.Text(""), report.Text(""), report.Int(len(paige)), report.Int(unscored)}
		for i, v := range [][]float64{paige, index} {
			if len(v) == 0 {
				continue
			}
			e, err := boot.Mean(v, groups)
			if err != nil {
				return nil, fmt.Errorf("interval of the records' AUC_own: %w", err)
			}
			row[1+i] = report.Text(report.Estimate(e, 3))
		}
		t.Rows = append(t.Rows, row)
	}
	return []report.Section{{Title: fmt.Sprintf("Records: %d dialogues", len(ds)), Tables: []report.Table{t},
		Notes: []string{"AUC_own: turns of the conflict speaker alone; a recorded label is about the one who speaks the turn. The negative continuation is counted from the conflict turn where its mediator spoke before",
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
