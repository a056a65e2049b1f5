package stats

import (
	"math"
	"testing"
)

// The values are those of scipy.stats.spearmanr.
func TestSpearman(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		x, y []float64
		want float64
	}{
		{[]float64{1, 2, 3, 4, 5}, []float64{5, 6, 7, 8, 7}, 0.8207826816681233},
		{[]float64{1, 2, 3}, []float64{9, 4, 1}, -1},
		{[]float64{1, 1, 2, 2, 3}, []float64{2, 1, 2, 4, 4}, 0.8055555555555556},
	} {
		if got := Spearman(c.x, c.y); math.Abs(got-c.want) > 1e-12 {
			t.Errorf("%v, %v: %v, want %v", c.x, c.y, got, c.want)
		}
	}
	for _, x := range [][]float64{{2, 2, 2}, {1}, nil} {
		if got := Spearman(x, make([]float64, len(x))); !math.IsNaN(got) {
			t.Errorf("%v: %v, want none", x, got)
		}
	}
}
