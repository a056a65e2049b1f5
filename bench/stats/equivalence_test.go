package stats_test

import (
	"math"
	"testing"

	"github.com/ccmed/ccmed/bench/stats"
)

// ramp is 200 differences between -0.05 and 0.05 with mean 4.5e-5.
func ramp() []float64 {
	d := make([]float64, 200)
	for i := range d {
		d[i] = float64((i*37)%101-50) / 1000
	}
	return d
}

// statsmodels 0.15.0: DescrStatsW(ramp).ttost_mean(-margin, margin)[0] is 0.173,
// 0.0778, 0.0289 and 0.0023 for these margins, so that 5 % lies between the
// second and the third. scipy 1.17.1's 90 % percentile interval of the mean with
// 200,000 resamples is -0.00338 to 0.00344.
func TestEquivalent(t *testing.T) {
	b := stats.Bootstrap{Resamples: 10_000, Seed: 1, Confidence: 0.5}
	for margin, want := range map[float64]bool{0.002: false, 0.003: false, 0.004: true, 0.006: true} {
		e, err := b.Equivalent(ramp(), nil, margin)
		if err != nil {
			t.Fatal(err)
		}
		if e.Equivalent != want || e.Margin != margin || e.N != 200 {
			t.Errorf("margin %v: %+v, want equivalent %v", margin, e, want)
		}
		// Three standard errors of a 5 % quantile over 10,000 resamples.
		near(t, "lower end", e.Lo, -0.00338, 1.4e-4)
		near(t, "upper end", e.Hi, 0.00344, 1.4e-4)
	}
}

// A mean outside the margin is never equivalent, on either side.
func TestDifferentIsNotEquivalent(t *testing.T) {
	for _, shift := range []float64{-0.02, 0.02} {
		d := ramp()
		for i := range d {
			d[i] += shift
		}
		e, err := stats.Bootstrap{Resamples: 1000, Seed: 1}.Equivalent(d, nil, 0.01)
		if err != nil || e.Equivalent {
			t.Errorf("mean %v is equivalent within 0.01 (%v)", e.Value, err)
		}
	}
}

func TestEquivalentErrors(t *testing.T) {
	b := stats.Bootstrap{Resamples: 100, Seed: 1}
	for name, c := range map[string]struct {
		d      []float64
		groups []string
		margin float64
	}{
		"no margin":       {[]float64{1, 2}, nil, 0},
		"negative margin": {[]float64{1, 2}, nil, -1},
		"margin is NaN":   {[]float64{1, 2}, nil, math.NaN()},
		"endless margin":  {[]float64{1, 2}, nil, math.Inf(1)},
		"nothing":         {nil, nil, 1},
		"one group":       {[]float64{1, 2}, []string{"a", "a"}, 10},
	} {
		if e, err := b.Equivalent(c.d, c.groups, c.margin); err == nil {
			t.Errorf("%s: %+v and no error", name, e)
		}
	}
}
