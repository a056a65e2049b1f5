package timing

import (
	"fmt"

	"github.com/ccmed/ccmed/bench/stats"
)

// Names of the measures by which timing runs are compared.
const (
	MeasureTurnAcc   = "TurnAcc"
	MeasureWithinOne = "within one turn"
	MeasureAUROC     = "AUROC within the dialogue"
)

// Measures returns what a run says of each dialogue, for stats.Compare: the turn hit,
// missed by one at most, and how well the model's probability tells the conflict turn
// from those before it. Notes say what was left out.
func (a Answers) Measures() (ms []stats.Measure, notes []string) {
	hit := stats.Measure{Name: MeasureTurnAcc, Binary: true}
	near := stats.Measure{Name: MeasureWithinOne, Binary: true}
	auroc := stats.Measure{Name: MeasureAUROC}
	var predicted []int
	for _, d := range a.Decided {
		if d.Key.Repeat != 0 {
			continue
		}
		o := stats.Observation{Item: d.Key.Item, Group: d.Context, Unscored: d.Unscored, Said: fmt.Sprintf("turn %d, gold %d", d.Predicted, d.Gold)}
		if d.Predicted == 0 {
			o.Said = fmt.Sprintf("no turn, gold %d", d.Gold)
		}
		if d.Unscored == "" {
			predicted = append(predicted, d.Predicted)
		}
		o.Value = indicator(d.Predicted == d.Gold)
		hit.Observations = append(hit.Observations, o)
		o.Value = indicator(d.Predicted != 0 && d.Predicted >= d.Gold-1 && d.Predicted <= d.Gold+1)
		near.Observations = append(near.Observations, o)
		if o.Unscored == "" {
			o.Value, o.Unscored = d.auroc()
		}
		o.Said = ""
		auroc.Observations = append(auroc.Observations, o)
	}
	ms = []stats.Measure{hit, near}
	if answer := Constant(predicted); answer != "" {
		return ms, []string{fmt.Sprintf("%s %s: no AUROC is compared", Degenerate, answer)}
	}
	return append(ms, auroc), nil
}

func indicator(yes bool) float64 {
	if yes {
		return 1
	}
	return 0
}

// auroc is how often the conflict turn has a higher probability than a turn before
// it, or says why there is none.
func (d Decision) auroc() (v float64, unscored string) {
	var scores []float64
	var labels []bool
	for _, p := range d.Curve {
		if p.Turn > d.Gold {
			break // what comes later is conflict too
		}
		if p.Unscored != "" {
			return 0, fmt.Sprintf("turn %d: %s", p.Turn, p.Unscored)
		}
		scores, labels = append(scores, p.Share), append(labels, p.Turn == d.Gold)
	}
	v, err := stats.AUROC(scores, labels)
	if err != nil {
		return 0, "no answer both at the conflict turn and before it"
	}
	return v, ""
}
