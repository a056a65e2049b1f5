package timing

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/ccmed/ccmed/bench/run"
	"github.com/ccmed/ccmed/bench/stats"
)

// Comparison is the paired difference of two timing runs on the same dialogues.
type Comparison struct {
	N int `json:"n"` // dialogues that both runs scored
	// OnlyA and OnlyB list the dialogues that one run alone got right.
	OnlyA     []string `json:"only_a"`
	OnlyB     []string `json:"only_b"`
	BothRight int      `json:"both_right"`
	// Difference is TurnAcc of B minus that of A.
	Difference stats.Estimate `json:"difference"`
	McNemar    float64        `json:"p_mcnemar"`   // exact, dialogues taken as independent
	SignFlip   float64        `json:"p_sign_flip"` // by scenario context
}

// ErrNothingShared reports runs without a dialogue that both scored.
var ErrNothingShared = errors.New("the runs share no scored dialogue")

// Compare pairs two runs' samples by dialogue. Comparing B with A gives the same
// with the signs and lists swapped, and the samples' order does not matter.
func Compare(a, b []run.Sample, o ScoreOptions) (Comparison, error) {
	if o.Resamples == 0 {
		o.Resamples = 10_000
	}
	type hit struct {
		right   bool
		context string
	}
	read := func(samples []run.Sample) (map[string]hit, []string, error) {
		hits := map[string]hit{}
		var order []string
		for _, s := range samples {
			if s.Step != StepDecide || s.Unscored != "" || s.Repeat != 0 {
				continue
			}
			ds, _, err := Decisions([]run.Sample{s})
			if err != nil {
				return nil, nil, err
			}
			hits[s.Item] = hit{ds[0].Predicted == ds[0].Gold, ds[0].Context}
			order = append(order, s.Item)
		}
		return hits, order, nil
	}
	ha, order, err := read(a)
	if err != nil {
		return Comparison{}, err
	}
	hb, _, err := read(b)
	if err != nil {
		return Comparison{}, err
	}
	var c Comparison
	var d []float64
	var groups []string
	slices.SortFunc(order, func(x, y string) int { return cmp.Or(cmp.Compare(len(x), len(y)), cmp.Compare(x, y)) })
	for _, item := range order {
		x := ha[item]
		y, ok := hb[item]
		if !ok {
			continue
		}
		v := 0.0
		switch {
		case x.right && y.right:
			c.BothRight++
		case x.right:
			c.OnlyA, v = append(c.OnlyA, item), -1
		case y.right:
			c.OnlyB, v = append(c.OnlyB, item), 1
		}
		d, groups = append(d, v), append(groups, x.context)
	}
	c.N = len(d)
	if c.N == 0 {
		return c, ErrNothingShared
	}
	if c.Difference, err = (stats.Bootstrap{Resamples: o.Resamples, Seed: o.Seed}).Mean(d, groups); err != nil {
		return c, fmt.Errorf("interval of the difference: %w", err)
	}
	c.McNemar = stats.McNemar(len(c.OnlyA), len(c.OnlyB))
	if c.SignFlip, err = stats.SignFlip(d, groups, o.Resamples, o.Seed); err != nil {
		return c, fmt.Errorf("permutation test of the difference: %w", err)
	}
	return c, nil
}
