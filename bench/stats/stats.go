// Package stats holds the statistics of the benchmarks: bootstrap intervals and
// tests over clusters, agreement, association and ranking. Everything random is
// seeded, and the same input and seed give the same numbers on every machine.
// It does no input or output.
//
//	boot := stats.Bootstrap{Resamples: 10_000, Seed: 1}
//	e, err := boot.Mean(hits, contexts) // e.Value, e.Lo, e.Hi
package stats

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
)

// ErrNoItems reports an empty sample.
var ErrNoItems = errors.New("no items")

// stream separates the random numbers of this package from those of other
// users of the same seed.
const stream = 0x63636d6564

func generator(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, stream)) }

// clusters lists the items of each group, groups in order of first appearance.
// Without groups every item is its own.
func clusters(n int, groups []string) ([][]int, error) {
	if n == 0 {
		return nil, ErrNoItems
	}
	if groups == nil {
		out := make([][]int, n)
		for i := range out {
			out[i] = []int{i}
		}
		return out, nil
	}
	if len(groups) != n {
		return nil, fmt.Errorf("%d items have %d group names; each item needs one", n, len(groups))
	}
	at := map[string]int{}
	var out [][]int
	for i, g := range groups {
		k, ok := at[g]
		if !ok {
			k = len(out)
			at[g] = k
			out = append(out, nil)
		}
		out[k] = append(out[k], i)
	}
	return out, nil
}

// finite reports the first value that is not.
func finite(what string, v []float64) error {
	for i, x := range v {
		if math.IsNaN(x) || math.IsInf(x, 0) {
			return fmt.Errorf("%s %d is %v; it must be finite", what, i+1, x)
		}
	}
	return nil
}

func mean(v []float64) float64 {
	s := 0.0
	for _, x := range v {
		s += x
	}
	return s / float64(len(v))
}

// Estimate is a statistic with its interval.
type Estimate struct {
	Value float64 `json:"value"`
	Lo    float64 `json:"lo"`
	Hi    float64 `json:"hi"`
	// N items in Groups clusters went in.
	N      int `json:"n"`
	Groups int `json:"groups"`
	// NoInterval says why there is none: OneGroup, FewGroups or AllAlike. Lo and Hi are then Value.
	NoInterval string `json:"no_interval,omitempty" jsonschema:"enum=one context,enum=few contexts,enum=all alike"`
	// Exact marks an interval that was not drawn, see Within.
	Exact bool `json:"exact,omitempty"`
}

// Bootstrap computes percentile intervals (Efron and Tibshirani 1993, chapter
// 13) by drawing whole clusters with replacement: items of one group, such as
// dialogues of one scenario context, are not independent. With few clusters the
// intervals are too narrow; Estimate.Groups tells how many there were. With a single
// one, and where all are alike, there is no interval.
//
// Of very many clusters fewer resamples are drawn: no more than 50 million draws of
// clusters, but at least 1,000 resamples, of which a bound's own error is about a
// twenty-fifth of the interval's half-width, however many clusters there are.
type Bootstrap struct {
	Resamples  int     // at most so many; at least 1
	Seed       uint64  // of the draws
	Confidence float64 // between 0 and 1; 0 stands for 0.95
}

const defaultConfidence = 0.95

// Mean is the mean of v with its interval. groups names each item's cluster; nil
// makes every item its own.
func (b Bootstrap) Mean(v []float64, groups []string) (Estimate, error) {
	e, values, err := b.means(v, groups)
	if err != nil {
		return Estimate{}, err
	}
	b.interval(&e, values)
	e.fix(e.NoInterval)
	return e, nil
}

// means gives the mean of v, why it has no interval or "", and the means of the
// resamples.
func (b Bootstrap) means(v []float64, groups []string) (Estimate, []float64, error) {
	if err := finite("value", v); err != nil {
		return Estimate{}, nil, err
	}
	cs, err := clusters(len(v), groups)
	if err != nil {
		return Estimate{}, nil, err
	}
	sums, sizes := make([]float64, len(cs)), make([]int, len(cs))
	for k, c := range cs {
		for _, i := range c {
			sums[k] += v[i]
		}
		sizes[k] = len(c)
	}
	of := make([]float64, len(cs))
	for k := range cs {
		of[k] = sums[k] / float64(sizes[k])
	}
	e := Estimate{Value: mean(v), N: len(v), Groups: len(cs), NoInterval: unvaried(len(cs), of)}
	values, err := b.draw(len(cs), func(drawn []int) float64 {
		sum, n := 0.0, 0
		for _, k := range drawn {
			sum, n = sum+sums[k], n+sizes[k]
		}
		return sum / float64(n)
	})
	return e, values, err
}

// Statistic is f over all items with its interval. f gets the indices of the
// items of one resample, those of one cluster together and of a cluster drawn
// twice twice; it must not keep the slice. A resample for which f is NaN counts
// in no interval; it is an error when f of all items or of more than a tenth of
// the resamples is.
func (b Bootstrap) Statistic(f func(groupIdx []int) float64, groups []string) (Estimate, error) {
	cs, err := clusters(len(groups), groups)
	if err != nil {
		return Estimate{}, err
	}
	all := make([]int, len(groups))
	for i := range all {
		all[i] = i
	}
	value := f(all)
	if math.IsNaN(value) || math.IsInf(value, 0) {
		return Estimate{}, fmt.Errorf("the statistic of all items is %v; it must be finite", value)
	}
	var idx []int
	e := Estimate{Value: value, N: len(groups), Groups: len(cs)}
	values, err := b.draw(len(cs), func(drawn []int) float64 {
		idx = idx[:0]
		for _, k := range drawn {
			idx = append(idx, cs[k]...)
		}
		return f(idx)
	})
	if err != nil {
		return Estimate{}, err
	}
	b.interval(&e, values)
	e.fix(unvaried(len(cs), values))
	return e, nil
}

// errUndefined reports resamples without a value.
var errUndefined = errors.New("the statistic is undefined")

// maxUndefined is the largest share of resamples without a value.
const maxUndefined = 0.1

// Bounds of the work of a bootstrap: clusters drawn in all, and resamples.
const (
	mostDraws      = 50_000_000
	leastResamples = 1000
)

// draw returns f of resamples of the groups, those without a value left out.
func (b Bootstrap) draw(groups int, f func(drawn []int) float64) ([]float64, error) {
	if b.Confidence != 0 && !(b.Confidence > 0 && b.Confidence < 1) {
		return nil, fmt.Errorf("confidence %v; it must lie between 0 and 1", b.Confidence)
	}
	if b.Resamples < 1 {
		return nil, fmt.Errorf("%d resamples; at least 1 is needed, 10000 are usual", b.Resamples)
	}
	r := generator(b.Seed)
	drawn := make([]int, groups)
	resamples := min(b.Resamples, max(leastResamples, mostDraws/groups))
	values := make([]float64, 0, resamples)
	for range resamples {
		for k := range drawn {
			drawn[k] = r.IntN(groups)
		}
		if v := f(drawn); !math.IsNaN(v) {
			values = append(values, v)
		}
	}
	if undefined := resamples - len(values); float64(undefined) > maxUndefined*float64(resamples) {
		return nil, fmt.Errorf("%w in %d of %d resamples; its interval would describe the others only", errUndefined, undefined, resamples)
	}
	return values, nil
}

// interval sets the percentile interval of drawn values, which it sorts.
func (b Bootstrap) interval(e *Estimate, values []float64) {
	slices.Sort(values)
	tail := (1 - b.confidence()) / 2
	e.Lo, e.Hi = quantile(values, tail), quantile(values, 1-tail)
}

func (b Bootstrap) confidence() float64 {
	if b.Confidence == 0 {
		return defaultConfidence
	}
	return b.Confidence
}

// quantile interpolates linearly between sorted values (Hyndman and Fan 1996,
// type 7).
func quantile(sorted []float64, q float64) float64 {
	h := q * float64(len(sorted)-1)
	i := int(h)
	if i+1 >= len(sorted) || sorted[i] == sorted[i+1] {
		return sorted[i]
	}
	return sorted[i] + (h-float64(i))*(sorted[i+1]-sorted[i])
}
