package mediation

import (
	"math"
	"slices"

	"github.com/ccmed/ccmed/bench/dialogue"
	"github.com/ccmed/ccmed/bench/dmis"
	"github.com/ccmed/ccmed/bench/usage"
)

// Reference is the reference repository's result format.
type Reference struct {
	// Condition is what PerSID are of; the format does not name it.
	Condition string           `json:"-"`
	Summary   referenceSummary `json:"summary"`
	PerSID    []referenceRow   `json:"per_sid"`
}

type referenceSummary struct {
	Scenarios int            `json:"n_scenarios"`
	Evaluated int            `json:"n_evaluated"`
	AUC       referenceStats `json:"auc"`
	W1        referenceStats `json:"w1"`
	Judge     referenceStats `json:"judge"`
}

type referenceStats struct {
	N      int      `json:"n"`
	Mean   *float64 `json:"mean"`
	Median *float64 `json:"median"`
	Std    *float64 `json:"std"`
}

type referenceRow struct {
	SID        string   `json:"sid"`
	PredTurn   int      `json:"pred_turn"`
	GTTurn     int      `json:"gt_turn"`
	AUC        *float64 `json:"auc"`
	W1         *float64 `json:"w1"`
	Judge      *int     `json:"judge"`
	PreIdx     *int     `json:"pre_idx"`
	PostIdx    *int     `json:"post_idx"`
	Trajectory [][2]int `json:"trajectory"`
}

func summarize(rows []referenceRow) Reference {
	var auc, w1, judge []float64
	for _, r := range rows {
		if r.AUC != nil {
			auc = append(auc, *r.AUC)
		}
		if r.W1 != nil {
			w1 = append(w1, *r.W1)
		}
		if r.Judge != nil {
			judge = append(judge, float64(*r.Judge))
		}
	}
	return Reference{Summary: referenceSummary{len(rows), len(auc), statsOf(auc), statsOf(w1), statsOf(judge)}, PerSID: rows}
}

// statsOf gives mean, median and the sample standard deviation.
func statsOf(v []float64) referenceStats {
	s := referenceStats{N: len(v)}
	if len(v) == 0 {
		return s
	}
	mean := 0.0
	for _, x := range v {
		mean += x / float64(len(v))
	}
	sorted := slices.Sorted(slices.Values(v))
	median := (sorted[(len(v)-1)/2] + sorted[len(v)/2]) / 2
	s.Mean, s.Median = &mean, &median
	if len(v) > 1 { // of one value there is none
		sd := 0.0
		for _, x := range v {
			sd += (x - mean) * (x - mean) / float64(len(v)-1)
		}
		sd = math.Sqrt(sd)
		s.Std = &sd
	}
	return s
}

// ReferenceOfRecords holds what records say of their own mediations.
func ReferenceOfRecords(ds []dialogue.Dialogue) Reference {
	var rows []referenceRow
	for _, d := range ds {
		after, turn, ok := continuation(d, "positive")
		if !ok {
			continue
		}
		pre := int(d.Stage)
		r := referenceRow{SID: d.Key(), PredTurn: turn, GTTurn: d.ConflictTurn, PreIdx: &pre}
		if v, points, err := recordedAUC(d, after, turn, dmis.Paige); err == nil {
			r.AUC = &v
			for _, p := range points {
				r.Trajectory = append(r.Trajectory, [2]int{p.Turn, int(p.Stage)})
				if i := int(p.Stage); p.Turn <= min(d.ConflictTurn+3, d.LastTurn()) {
					r.PostIdx = &i // the last one of the conflict speaker up to the POST turn
				}
			}
		}
		if j := d.JudgeScore(); j != nil {
			r.Judge = j
		}
		rows = append(rows, r)
	}
	return summarize(rows)
}

// Reference is the run under a condition, "" for its first mediated one, in the reference
// repository's format, and the reasons of what is withheld.
func (r *Result) Reference(condition string) (out Reference, withheld []string, err error) {
	os := r.Scored.Outcomes
	if condition == "" {
		for _, c := range []string{Foreign, ND, D, GroundTruth} {
			if slices.ContainsFunc(os, func(o Outcome) bool { return o.Condition == c }) {
				condition = c
				break
			}
		}
	}
	var rows []referenceRow
	for _, o := range os {
		if o.Condition != condition {
			continue
		}
		for _, why := range o.Withheld {
			if !slices.Contains(withheld, why) {
				withheld = append(withheld, why)
			}
		}
		row := referenceRow{SID: o.Item, PredTurn: o.Turn, GTTurn: o.Gold, PreIdx: o.PreStage, PostIdx: o.PostStage, Trajectory: o.Trajectory}
		if v, ok := o.Values[AUC]; ok {
			row.AUC = &v
		}
		if v, ok := o.Values[W1]; ok {
			row.W1 = &v
		}
		if v, ok := o.Values[JudgeTop]; ok {
			j := int(v)
			row.Judge = &j
		}
		rows = append(rows, row)
	}
	if len(rows) == 0 {
		return out, nil, usage.Errorf("the run has no condition %q", condition)
	}
	out = summarize(rows)
	out.Condition = condition
	return out, withheld, nil
}
