package stats

import (
	"cmp"
	"slices"

	"gonum.org/v1/gonum/stat"
)

// Spearman is the rank correlation of x and y, which are equally long: Pearson's of their
// ranks, those of equals being their mean. It lies in -1..1, and is NaN where one side is
// constant or there are fewer than two pairs.
func Spearman(x, y []float64) float64 { return stat.Correlation(ranks(x), ranks(y), nil) }

func ranks(v []float64) []float64 {
	order := make([]int, len(v))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return cmp.Compare(v[a], v[b]) })
	out := make([]float64, len(v))
	for i := 0; i < len(order); {
		j := i
		for j < len(order) && v[order[j]] == v[order[i]] {
			j++
		}
		for k := i; k < j; k++ {
			out[order[k]] = float64(i+j+1) / 2
		}
		i = j
	}
	return out
}
