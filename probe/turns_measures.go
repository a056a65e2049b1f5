package probe

import (
	"fmt"
	"math"
	"slices"

	"gonum.org/v1/gonum/floats"

	"github.com/ccmed/ccmed/bench/dmis"
	"github.com/ccmed/ccmed/bench/stats"
	"github.com/ccmed/ccmed/probe/linear"
)

// named returns 1 for each row that a round predicted as the class of that row.
func (r *LayerResult) named(class func(row int) int) Outcomes {
	return r.outcomes(func(one *LayerResult) []float64 {
		return one.perRow(func(p *linear.Predictions, i int) float64 {
			if p.Argmax(i) == class(i) {
				return 1
			}
			return 0
		})
	})
}

// balancedHits returns outcomes whose mean is the balanced accuracy minus chance:
// hits minus chance, weighted so that all labels that occur count the same.
func (r *LayerResult) balancedHits(chance float64) Outcomes {
	count := map[int]float64{}
	for _, i := range r.tested {
		count[r.samples.Y[i]]++
	}
	return r.outcomes(func(one *LayerResult) []float64 {
		out := one.Hits()
		for k, i := range one.tested {
			out[k] = (out[k] - chance) * float64(len(one.tested)) / float64(len(count)) / count[r.samples.Y[i]]
		}
		return out
	})
}

// confusion counts rows by label (major) and prediction.
type confusion []float64

func (c confusion) classes() int { return int(math.Sqrt(float64(len(c)))) }

// sums returns how often class k is label, prediction, and both.
func (c confusion) sums(k int) (label, predicted, both float64) {
	n := c.classes()
	for j := range n {
		label += c[k*n+j]
		predicted += c[j*n+k]
	}
	return label, predicted, c[k*n+k]
}

// balanced is the mean recall of the labels that occur, in a resample too.
func balanced(c confusion) float64 {
	sum, occurring := 0.0, 0.0
	for k := range c.classes() {
		if label, _, both := c.sums(k); label > 0 {
			sum += both / label
			occurring++
		}
	}
	return sum / occurring
}

// macroF1 is the mean F1 of the classes that occur as label or prediction.
func macroF1(c confusion) float64 {
	sum, occurring := 0.0, 0.0
	for k := range c.classes() {
		if label, predicted, both := c.sums(k); label+predicted > 0 {
			sum += 2 * both / (label + predicted)
			occurring++
		}
	}
	return sum / occurring
}

// confusions returns the counts of each group in each round.
func (r *LayerResult) confusions() (groups []string, rounds [][]confusion) {
	number := map[string]int{}
	for _, i := range r.tested {
		if g := r.samples.Groups[i]; !slices.Contains(groups, g) {
			number[g] = len(groups)
			groups = append(groups, g)
		}
	}
	n := r.samples.Classes
	for _, p := range r.Rounds {
		cs := make([]confusion, len(groups))
		for g := range cs {
			cs[g] = make(confusion, n*n)
		}
		for _, i := range r.tested {
			cs[number[r.samples.Groups[i]]][r.samples.Y[i]*n+p.Argmax(i)]++
		}
		rounds = append(rounds, cs)
	}
	return groups, rounds
}

// statistic is a function of the counts with values 0..1, mean over rounds, with
// its group bootstrap interval, corrected as that of Outcomes.
func (r *LayerResult) statistic(of func(confusion) float64, rs Resampling) (stats.Estimate, error) {
	groups, rounds := r.confusions()
	var each []stats.Estimate
	total := make(confusion, r.samples.Classes*r.samples.Classes)
	for _, cs := range rounds {
		e, err := rs.bootstrap().Statistic(func(drawn []int) float64 {
			clear(total)
			for _, g := range drawn {
				floats.Add(total, cs[g])
			}
			return of(total)
		}, groups)
		if err != nil {
			return stats.Estimate{}, fmt.Errorf("probe: interval over rounds: %w", err)
		}
		each = append(each, e)
	}
	out, err := overRounds(each, r.width)
	out.N, out.Groups = len(r.tested), len(groups)
	return bounded(out), err
}

// recalls returns the share of each label's rows that were predicted right.
func (r *LayerResult) recalls() map[string]float64 {
	count, hits := map[int]float64{}, map[int]float64{}
	for k, h := range r.Hits() {
		y := r.samples.Y[r.tested[k]]
		count[y]++
		hits[y] += h
	}
	out := map[string]float64{}
	for y, n := range count {
		out[dmis.Stage(y).String()] = hits[y] / n
	}
	return out
}
