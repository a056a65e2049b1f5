package stats

import (
	"fmt"
	"math"
	"slices"
)

// Counted is Statistic for an f that needs only how often each group was drawn: that
// of all items takes every group once. Groups are numbered as GroupNumbers does. It
// draws the same resamples.
func (b Bootstrap) Counted(f func(times []int) float64, groups []string) (Estimate, error) {
	cs, err := clusters(len(groups), groups)
	if err != nil {
		return Estimate{}, err
	}
	times := slices.Repeat([]int{1}, len(cs))
	value := f(times)
	if math.IsNaN(value) || math.IsInf(value, 0) {
		return Estimate{}, fmt.Errorf("the statistic of all items is %v; it must be finite", value)
	}
	e := Estimate{Value: value, N: len(groups), Groups: len(cs)}
	values, err := b.draw(len(cs), func(drawn []int) float64 {
		clear(times)
		for _, k := range drawn {
			times[k]++
		}
		return f(times)
	})
	if err != nil {
		return Estimate{}, err
	}
	b.interval(&e, values)
	e.fix(unvaried(len(cs), values))
	return e, nil
}

// GroupNumbers numbers groups from 0 in order of first appearance.
func GroupNumbers(groups []string) []int {
	number := map[string]int{}
	out := make([]int, len(groups))
	for i, g := range groups {
		k, ok := number[g]
		if !ok {
			k = len(number)
			number[g] = k
		}
		out[i] = k
	}
	return out
}

// Ranked holds labelled scores in their order, so that AUROCs of resamples need no
// sorting.
type Ranked struct {
	positive []bool
	group    []int
	last     []bool // of those with its score
}

// NewRanked ranks scores; group is each one's number. A score that is not a number is
// an error.
func NewRanked(scores []float64, positive []bool, group []int) (*Ranked, error) {
	if len(scores) != len(positive) || len(scores) != len(group) {
		return nil, fmt.Errorf("%d scores have %d labels and %d groups; each score needs one", len(scores), len(positive), len(group))
	}
	order := make([]int, len(scores))
	for i, s := range scores {
		if math.IsNaN(s) {
			return nil, fmt.Errorf("score %d is not a number", i+1)
		}
		order[i] = i
	}
	slices.SortFunc(order, func(i, j int) int {
		switch {
		case scores[i] < scores[j]:
			return -1
		case scores[i] > scores[j]:
			return 1
		}
		return 0
	})
	r := &Ranked{make([]bool, len(order)), make([]int, len(order)), make([]bool, len(order))}
	for k, i := range order {
		r.positive[k], r.group[k] = positive[i], group[i]
		r.last[k] = k+1 == len(order) || scores[order[k+1]] != scores[i]
	}
	return r, nil
}

// AUROC is AUROC with every score taken as often as its group; NaN without a score of
// both labels.
func (r *Ranked) AUROC(times []int) float64 {
	var wins, positives, negatives, pos, neg float64
	for k, g := range r.group {
		if w := float64(times[g]); r.positive[k] {
			pos += w
		} else {
			neg += w
		}
		if r.last[k] {
			wins += pos * (negatives + neg/2)
			positives, negatives, pos, neg = positives+pos, negatives+neg, 0, 0
		}
	}
	return wins / (positives * negatives)
}
