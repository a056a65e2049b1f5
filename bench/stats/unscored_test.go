package stats

import (
	"fmt"
	"math"
	"testing"
)

// Ten items: B is right in 6, wrong in 3 and unscored in one that A has right; A is
// right in 5, unscored in one that B has right. By hand, over 8 pairs with both:
// B − A = 5/8 − 4/8. The two counted against B: (1 + 0 − 1)/10, for B: (1 + 1 + 0)/10.
func TestUnscoredCountedEitherWay(t *testing.T) {
	a, b := Measure{Binary: true}, Measure{Binary: true}
	va := []float64{1, 1, 1, 1, 0, 0, 0, 0, 0, 1}
	vb := []float64{1, 1, 1, 0, 1, 1, 0, 0, 1, 0}
	for i := range va {
		x, y := Observation{Item: fmt.Sprint(i), Group: fmt.Sprint(i), Value: va[i]}, Observation{Item: fmt.Sprint(i), Group: fmt.Sprint(i), Value: vb[i]}
		if i == 8 {
			x.Unscored = "no mass"
		}
		if i == 9 {
			y.Unscored = "no mass"
		}
		a.Observations, b.Observations = append(a.Observations, x), append(b.Observations, y)
	}
	c, err := Compare(a, b, Resampling{Resamples: 100})
	if err != nil || math.Abs(c.Difference.Value-1.0/8) > 1e-12 || c.WithUnscored == nil {
		t.Fatalf("%+v, %v", c, err)
	}
	if u := *c.WithUnscored; u.N != 10 || math.Abs(u.Lo-0) > 1e-12 || math.Abs(u.Hi-0.2) > 1e-12 {
		t.Errorf("paired: %+v, want 0 to 0.2 of 10", u)
	}
	// Unpaired A is 5 to 6 of 10, B 6 to 7.
	c, err = CompareUnpaired(a, b, Resampling{Resamples: 100})
	if u := c.WithUnscored; err != nil || u == nil || math.Abs(u.Lo) > 1e-12 || math.Abs(u.Hi-0.2) > 1e-12 || u.N != 20 {
		t.Errorf("unpaired: %+v, %v", u, err)
	}
	if c, err := Compare(a, a, Resampling{Resamples: 100}); err != nil || c.WithUnscored == nil || c.WithUnscored.Hi != 0.1 {
		t.Errorf("with itself: %+v, %v", c.WithUnscored, err)
	}
	a.Observations[8].Unscored = ""
	if c, err := Compare(a, a, Resampling{Resamples: 100}); err != nil || c.WithUnscored != nil {
		t.Errorf("nothing is unscored: %+v, %v", c.WithUnscored, err)
	}
}
