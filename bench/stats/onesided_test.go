package stats

import (
	"math"
	"math/rand/v2"
	"testing"
)

// TestOneSided: p is 0.025 at the ends of the interval, a half at the value, and the two sides
// of a bound add up to one.
func TestOneSided(t *testing.T) {
	t.Parallel()
	e := Estimate{Value: 0.3, Lo: 0.1, Hi: 0.6, N: 40, Groups: 12}
	for _, x := range []struct{ bound, above, below float64 }{{0.1, 0.025, 0.975}, {0.6, 0.975, 0.025}, {0.3, 0.5, 0.5}} {
		if a, b := e.PAbove(x.bound), e.PBelow(x.bound); math.Abs(a-x.above) > 1e-9 || math.Abs(b-x.below) > 1e-9 {
			t.Errorf("bound %v: %v and %v, want %v and %v", x.bound, a, b, x.above, x.below)
		}
	}
	// Ten groups, all right: the probability of that is 0.8^10 where each is right at 0.8.
	exact := Bootstrap{}.Within(Estimate{Value: 1, N: 20, Groups: 10, NoInterval: AllAlike}, 0, 1)
	if p := exact.PAbove(0.8); math.Abs(p-math.Pow(0.8, 10)) > 1e-9 {
		t.Errorf("all right: p %v, want %v", p, math.Pow(0.8, 10))
	}
	if p := exact.PBelow(0.8); p != 1 {
		t.Errorf("all right, at least 0.8: p %v, want 1", p)
	}
	if p := (Estimate{Value: 1, NoInterval: AllAlike, Groups: 5}).PAbove(0); !math.IsNaN(p) {
		t.Errorf("without an interval p is %v", p)
	}
}

// TestOneSidedLevel: of samples whose mean is the bound, 5 % are called above it, and those
// of a difference taken as independent are too.
func TestOneSidedLevel(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	sample := func(k int) Estimate {
		v := make([]float64, k)
		for i := range v {
			v[i] = r.NormFloat64()
		}
		e, err := Bootstrap{Resamples: 400, Seed: r.Uint64()}.MeanT(v, nil)
		if err != nil {
			t.Fatal(err)
		}
		return e
	}
	const trials = 2000
	one, two := 0, 0
	for range trials {
		e := sample(12)
		one += count(e.PAbove(0) < 0.05)
		two += count(e.Minus(sample(12)).PAbove(0) < 0.05)
	}
	for name, k := range map[string]int{"one mean": one, "a difference": two} {
		if share := float64(k) / trials; share < 0.03 || share > 0.07 {
			t.Errorf("%s: %.3f of samples are called above their mean, want 0.05", name, share)
		}
	}
}
