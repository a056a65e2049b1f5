package mediation

import (
	"errors"
	"fmt"

	"github.com/ccmed/ccmed/bench/run"
	"github.com/ccmed/ccmed/bench/stats"
)

// ErrNothingShared reports runs without a dialogue that both scored.
var ErrNothingShared = errors.New("the runs share no scored dialogue")

// Compare pairs two mediation runs by dialogue and condition, and returns B − A
// for the headline metrics, Holm-corrected as one family. A metric that rests on
// a labeller who is not qualified in both runs is left out; notes say so.
func Compare(a, b []run.Sample, o ScoreOptions) (ds []Difference, notes []string, err error) {
	if o.Resamples == 0 {
		o.Resamples = 10_000
	}
	boot := stats.Bootstrap{Resamples: o.Resamples, Seed: o.Seed}
	var ms [2]Metrics
	var can [2]map[string]bool
	for i, s := range [][]run.Sample{a, b} {
		if ms[i].Outcomes, err = Outcomes(s); err != nil {
			return nil, nil, err
		}
		if ms[i].Labeller, err = Labeller(s); err != nil {
			return nil, nil, err
		}
		can[i] = ms[i].usable(s)
		for _, n := range append(ms[i].Degenerate, ms[i].Notes...) {
			notes = append(notes, fmt.Sprintf("run %c: %s", 'A'+i, n))
		}
	}
	type key struct{ item, condition string }
	other := map[key]Outcome{}
	for _, x := range ms[0].Outcomes {
		other[key{x.Item, x.Condition}] = x
	}
	shared := false
	var ps []float64
	for _, cond := range []string{ND, D, Foreign} {
		for _, metric := range []string{DAUC, AUC, W1, Judge} {
			var d []float64
			var g []string
			for _, y := range ms[1].Outcomes {
				x, ok := other[key{y.Item, cond}]
				if !ok || y.Condition != cond {
					continue
				}
				shared = true
				v, okX := x.Values[metric]
				w, okY := y.Values[metric]
				if okX && okY {
					d, g = append(d, w-v), append(g, y.Context)
				}
			}
			if len(d) < 2 || !can[0][metric] || !can[1][metric] {
				continue
			}
			e, err := boot.Mean(d, g)
			if err != nil {
				return nil, nil, fmt.Errorf("interval of the difference: %w", err)
			}
			p, err := stats.SignFlip(d, g, o.Resamples, o.Seed)
			if err != nil {
				return nil, nil, fmt.Errorf("permutation test of the difference: %w", err)
			}
			ds = append(ds, Difference{A: "B, " + cond, B: "A, " + cond, Metric: metric, Value: e, P: p})
			ps = append(ps, p)
		}
	}
	if !shared {
		return nil, notes, ErrNothingShared
	}
	for i, p := range stats.Holm(ps) {
		ds[i].PHolm = p
	}
	return ds, notes, nil
}
