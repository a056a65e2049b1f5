package dualhead

import (
	"fmt"
	"slices"

	"github.com/ccmed/ccmed/bench/report"
	"github.com/ccmed/ccmed/bench/stats"
	"github.com/ccmed/ccmed/bench/timing"
)

// ThresholdResult is a tuned model's turn accuracy at one threshold.
type ThresholdResult struct {
	Name      string          `json:"name"`
	Threshold float64         `json:"threshold"`
	Correct   int             `json:"correct"`
	Scored    int             `json:"scored"`
	TurnAcc   *stats.Estimate `json:"turn_acc,omitempty"` // absent where the answer is constant
	Never     int             `json:"no_prediction"`
}

// thresholds scores the curves of a run at the fixed threshold, at the one that
// was chosen on validation dialogues, where there is one, and at the run's own.
func thresholds(s settings, a timing.Answers, o timing.ScoreOptions) ([]ThresholdResult, error) {
	rs := []ThresholdResult{{Name: "fixed", Threshold: fixedThreshold}}
	if v := s.ThresholdValidation; v > 0 {
		rs = append(rs, ThresholdResult{Name: "chosen on validation dialogues", Threshold: v})
	}
	if v := s.Threshold; !slices.ContainsFunc(rs, func(r ThresholdResult) bool { return r.Threshold == v }) {
		rs = append(rs, ThresholdResult{Name: "given", Threshold: v})
	}
	for i, r := range rs {
		m, err := timing.Score(a.AtThreshold(r.Threshold), o)
		if err != nil {
			return nil, fmt.Errorf("score the run at the threshold %g: %w", r.Threshold, err)
		}
		rs[i].Correct, rs[i].Scored, rs[i].TurnAcc, rs[i].Never = m.Correct, m.Scored, m.TurnAcc, m.NoPrediction
	}
	return rs, nil
}

func thresholdSection(rs []ThresholdResult) report.Section {
	t := report.Table{Columns: report.Columns("threshold", "P(speak)>", "TurnAcc>", "95 % interval>", "no prediction>")}
	for _, r := range rs {
		iv := "degenerate"
		if r.TurnAcc != nil {
			iv = report.Estimate(*r.TurnAcc, 3)
		}
		if r.Scored == 0 {
			iv = ""
		}
		t.Add(r.Name, report.Num(r.Threshold, 3), report.Pct(r.Correct, r.Scored), iv, report.Pct(r.Never, r.Scored))
	}
	return report.Section{Title: "Turn accuracy by threshold", Tables: []report.Table{t},
		Notes: []string{"the same curves at each threshold; all other tables are at the run's own"}}
}
