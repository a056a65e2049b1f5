package stats_test

import (
	"errors"
	"math"
	"math/rand/v2"
	"strconv"
	"testing"

	"github.com/ccmed/ccmed/bench/stats"
)

func near(t *testing.T, what string, got, want, tolerance float64) {
	t.Helper()
	if !(math.Abs(got-want) <= tolerance) {
		t.Errorf("%s = %.12g, want %.12g", what, got, want)
	}
}

// exact is for golden values computed in another order of the same additions.
const exact = 1e-12

func TestBootstrapMean(t *testing.T) {
	v := []float64{.5, -.2, 1.1, .3, .8, -.4, .6, .9, -.1, .7}
	got, err := stats.Bootstrap{Resamples: 100_000, Seed: 1}.Mean(v, nil)
	if err != nil {
		t.Fatal(err)
	}
	// scipy 1.17.1: stats.bootstrap(v, np.mean, method="percentile",
	// n_resamples=1_000_000). The means lie 0.01 apart.
	near(t, "value", got.Value, 0.42, exact)
	near(t, "lower end", got.Lo, 0.12, 0.0101)
	near(t, "upper end", got.Hi, 0.71, 0.0101)
	if got.N != 10 || got.Groups != 10 {
		t.Errorf("N %d, groups %d, want 10 of each", got.N, got.Groups)
	}
}

func clustered() (v []float64, groups []string) {
	for _, c := range []struct {
		group string
		v     []float64
	}{{"a", []float64{1, 2, 3}}, {"b", []float64{0}}, {"c", []float64{5, 4}}, {"d", []float64{2, 2, 1, 0}}, {"e", []float64{3}}} {
		for _, x := range c.v {
			v, groups = append(v, x), append(groups, c.group)
		}
	}
	return v, groups
}

func TestBootstrapDrawsClusters(t *testing.T) {
	v, groups := clustered()
	// numpy: quantiles of the mean over all 5^5 draws of five clusters.
	for confidence, want := range map[float64][2]float64{0: {1.17647059, 3.5}, 0.9: {1.28571429, 3.3}} {
		got, err := stats.Bootstrap{Resamples: 200_000, Seed: 7, Confidence: confidence}.Mean(v, groups)
		if err != nil {
			t.Fatal(err)
		}
		near(t, "lower end", got.Lo, want[0], 0.02)
		near(t, "upper end", got.Hi, want[1], 0.02)
		if got.N != 11 || got.Groups != 5 {
			t.Errorf("N %d, groups %d, want 11 and 5", got.N, got.Groups)
		}
	}
}

func TestStatisticOfTheMeanIsMean(t *testing.T) {
	v, groups := clustered()
	boot := stats.Bootstrap{Resamples: 500, Seed: 3}
	want, err := boot.Mean(v, groups)
	if err != nil {
		t.Fatal(err)
	}
	got, err := boot.Statistic(func(idx []int) float64 {
		s := 0.0
		for _, i := range idx {
			s += v[i]
		}
		return s / float64(len(idx))
	}, groups)
	if err != nil {
		t.Fatal(err)
	}
	near(t, "value", got.Value, want.Value, exact)
	near(t, "lower end", got.Lo, want.Lo, exact)
	near(t, "upper end", got.Hi, want.Hi, exact)
	if got.N != want.N || got.Groups != want.Groups {
		t.Errorf("N %d, groups %d, want %d and %d", got.N, got.Groups, want.N, want.Groups)
	}
}

func TestBootstrapRepeats(t *testing.T) {
	v, groups := clustered()
	run := func(seed uint64) stats.Estimate {
		e, err := stats.Bootstrap{Resamples: 200, Seed: seed}.Mean(v, groups)
		if err != nil {
			t.Fatal(err)
		}
		return e
	}
	if a, b := run(5), run(5); a != b {
		t.Errorf("seed 5 gives %+v and %+v", a, b)
	}
	if a, b := run(5), run(6); a == b {
		t.Errorf("seeds 5 and 6 both give %+v", a)
	}
}

func TestUndefinedResamples(t *testing.T) {
	boot := stats.Bootstrap{Resamples: 400, Seed: 1}
	groups := make([]string, 10)
	for i := range groups {
		groups[i] = strconv.Itoa(i)
	}
	// Without item 9, in about (9/10)^10 = 35 % of the resamples, undefined.
	holds := func(least int) func([]int) float64 {
		return func(idx []int) float64 {
			for _, i := range idx {
				if i >= least {
					return 1
				}
			}
			return math.NaN()
		}
	}
	if e, err := boot.Statistic(holds(9), groups); err == nil {
		t.Errorf("a statistic that is undefined in a third of the resamples gives %+v", e)
	}
	if e, err := boot.Statistic(holds(5), groups); err != nil || e.Lo != 1 || e.Hi != 1 {
		t.Errorf("a statistic that is undefined in one of a thousand gives %+v, %v", e, err)
	}
	if e, err := boot.Statistic(func([]int) float64 { return math.Inf(1) }, groups); err == nil {
		t.Errorf("an infinite statistic gives %+v", e)
	}
}

func TestBootstrapErrors(t *testing.T) {
	good := stats.Bootstrap{Resamples: 10}
	for name, c := range map[string]struct {
		b      stats.Bootstrap
		v      []float64
		groups []string
	}{
		"no resamples":            {stats.Bootstrap{}, []float64{1, 2}, nil},
		"confidence of 1":         {stats.Bootstrap{Resamples: 10, Confidence: 1}, []float64{1, 2}, nil},
		"negative confidence":     {stats.Bootstrap{Resamples: 10, Confidence: -.5}, []float64{1, 2}, nil},
		"confidence not a number": {stats.Bootstrap{Resamples: 10, Confidence: math.NaN()}, []float64{1, 2}, nil},
		"groups of other items":   {good, []float64{1, 2}, []string{"a"}},
		"not a number":            {good, []float64{1, math.NaN()}, nil},
		"infinite":                {good, []float64{1, math.Inf(-1)}, nil},
	} {
		if e, err := c.b.Mean(c.v, c.groups); err == nil {
			t.Errorf("%s: %+v, want an error", name, e)
		}
	}
	if _, err := good.Mean(nil, nil); !errors.Is(err, stats.ErrNoItems) {
		t.Errorf("no items: %v", err)
	}
	if _, err := good.Statistic(func([]int) float64 { return 0 }, nil); !errors.Is(err, stats.ErrNoItems) {
		t.Errorf("no items: %v", err)
	}
}

// Items that share a group's offset: an interval over items would cover the true
// mean in about 64 % of the samples, one over groups in about 93 % (3,000 seeds).
func TestClusterIntervalsCoverTheTruth(t *testing.T) {
	const seeds, groups, size, truth = 200, 40, 6, 0.3
	rate := func(byGroup bool) float64 {
		covered := 0
		for seed := range uint64(seeds) {
			r := rand.New(rand.NewPCG(seed, 99))
			var v []float64
			var g []string
			for k := range groups {
				offset := r.NormFloat64()
				for range size {
					v, g = append(v, truth+offset+0.7*r.NormFloat64()), append(g, strconv.Itoa(k))
				}
			}
			if !byGroup {
				g = nil
			}
			e, err := stats.Bootstrap{Resamples: 1000, Seed: seed}.Mean(v, g)
			if err != nil {
				t.Fatal(err)
			}
			if e.Lo <= truth && truth <= e.Hi {
				covered++
			}
		}
		return float64(covered) / seeds
	}
	if got := rate(true); got < 0.90 || got > 0.985 {
		t.Errorf("intervals over groups cover the mean in %.3f of the samples, want about 0.95", got)
	}
	if got := rate(false); got > 0.80 {
		t.Errorf("intervals over items cover the mean in %.3f of the samples; the test has no clusters", got)
	}
}

// Of very many clusters no more resamples are drawn than bound the work, and the interval
// is still that of the normal distribution.
func TestResamplesOfManyClusters(t *testing.T) {
	for groups, want := range map[int]int{10: 10_000, 5000: 10_000, 20_000: 2500, 100_000: 1000} {
		drawn := -1 // the first call is of all items
		if _, err := (stats.Bootstrap{Resamples: 10_000}).Counted(func([]int) float64 { drawn++; return 0 }, names(groups)); err != nil {
			t.Fatal(err)
		}
		if drawn != want {
			t.Errorf("%d resamples of %d clusters, want %d", drawn, groups, want)
		}
	}
	v := make([]float64, 100_000)
	for i := range v {
		v[i] = float64(i % 2)
	}
	e, err := stats.Bootstrap{Resamples: 10_000, Seed: 3}.Mean(v, nil)
	if half := 1.96 * 0.5 / math.Sqrt(1e5); err != nil || math.Abs(e.Hi-0.5-half) > 0.1*half || math.Abs(0.5-e.Lo-half) > 0.1*half {
		t.Errorf("%+v, %v; want 0.5 ± %.5f", e, err, half)
	}
}

// names are the names of so many groups.
func names(n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = strconv.Itoa(i)
	}
	return out
}
