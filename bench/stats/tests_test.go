package stats_test

import (
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"

	"github.com/ccmed/ccmed/bench/stats"
)

func TestSignFlipEnumerates(t *testing.T) {
	d := []float64{.5, -.2, 1.1, .3, .8, -.4, .6, .9, -.1, .7}
	for name, c := range map[string]struct {
		d      []float64
		groups []string
		want   float64
	}{
		// scipy 1.17.1: stats.permutation_test((d, 0), mean difference,
		// permutation_type="samples", n_resamples=inf).
		"ten items":               {d, nil, 0.037109375},
		"all alike, two patterns": {[]float64{1, 1, 1, 1, 1}, nil, 2.0 / 32},
		"one group":               {[]float64{1, 2, 3}, []string{"a", "a", "a"}, 1},
		"whole groups flip":       {[]float64{1, 1, 1, 1, 1, 1}, []string{"a", "a", "b", "b", "c", "c"}, 2.0 / 8},
		"no difference":           {[]float64{0, 0, 0}, nil, 1},
		"few of many differ":      {append(make([]float64, 60), 1, 1, 1, 1, 1, 1, 1), nil, 2.0 / 128},
		"they cancel":             {[]float64{0.1, 0.2, -0.3}, nil, 1}, // 0.1+0.2−0.3 is not 0 in floating point
	} {
		got, err := stats.SignFlip(c.d, c.groups, 0, 0)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		near(t, name, got, c.want, exact)
	}
}

func TestSignFlipSamplesWhatItWouldEnumerate(t *testing.T) {
	// Sixteen groups are sampled; one that hardly differs changes no pattern's
	// place, so the other fifteen have the same p, enumerated.
	r := rand.New(rand.NewPCG(8, 8))
	var d []float64
	for range 15 {
		d = append(d, 0.4+r.NormFloat64())
	}
	want, err := stats.SignFlip(d, nil, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	const m = 100_000
	got, err := stats.SignFlip(append(d, 1e-12), nil, m, 1)
	if err != nil {
		t.Fatal(err)
	}
	near(t, "sampled p", got, want, 5*math.Sqrt(want*(1-want)/m))
	again, err := stats.SignFlip(append(d, 1e-12), nil, m, 1)
	if err != nil || again != got {
		t.Errorf("the same seed gives %v and %v (%v)", got, again, err)
	}
}

func TestSignFlipIsNeverZero(t *testing.T) {
	d := slices.Repeat([]float64{1}, 100)
	got, err := stats.SignFlip(d, nil, 999, 1)
	if err != nil {
		t.Fatal(err)
	}
	near(t, "p", got, 1.0/1000, exact)
}

func TestSignFlipHoldsItsLevel(t *testing.T) {
	const runs = 1000
	rejected := 0
	for seed := range uint64(runs) {
		r := rand.New(rand.NewPCG(seed, 5))
		var d []float64
		var groups []string
		for g := range 10 {
			offset := r.NormFloat64()
			for range 3 {
				d, groups = append(d, offset+0.3*r.NormFloat64()), append(groups, strconv.Itoa(g))
			}
		}
		p, err := stats.SignFlip(d, groups, 0, 0)
		if err != nil {
			t.Fatal(err)
		}
		if p <= 0.05 {
			rejected++
		}
	}
	if rate := float64(rejected) / runs; rate < 0.03 || rate > 0.07 {
		t.Errorf("p ≤ 0.05 in %.3f of runs without a difference", rate)
	}
}

func TestSignFlipErrors(t *testing.T) {
	if _, err := stats.SignFlip(nil, nil, 10, 0); !errors.Is(err, stats.ErrNoItems) {
		t.Errorf("no items: %v", err)
	}
	if p, err := stats.SignFlip(slices.Repeat([]float64{1}, 16), nil, 0, 0); err == nil {
		t.Errorf("no resamples: %v", p)
	}
	if p, err := stats.SignFlip([]float64{math.NaN()}, nil, 10, 0); err == nil {
		t.Errorf("not a number: %v", p)
	}
	if p, err := stats.SignFlip([]float64{1, 2}, []string{"a"}, 10, 0); err == nil {
		t.Errorf("one group name for two items: %v", p)
	}
}

func TestMcNemar(t *testing.T) {
	// statsmodels 0.15.0: mcnemar([[0, b], [c, 0]], exact=True).pvalue.
	for _, c := range []struct {
		b, c int
		want float64
	}{
		{3, 9, 0.14599609375}, {9, 3, 0.14599609375}, {1, 12, 0.00341796875},
		{20, 41, 0.009853448195259268}, {400, 470, 0.019267052848609047},
		{0, 0, 1}, {5, 5, 1}, {0, 1, 1}, {0, 6, 2.0 / 64},
	} {
		near(t, "McNemar("+strconv.Itoa(c.b)+", "+strconv.Itoa(c.c)+")", stats.McNemar(c.b, c.c), c.want, 1e-11)
	}
	if got := stats.McNemar(0, 5000); got < 0 || got > 1e-300 {
		t.Errorf("McNemar(0, 5000) = %v", got)
	}
}

func TestWilson(t *testing.T) {
	// statsmodels 0.15.0: proportion_confint(k, n, method="wilson").
	for _, c := range []struct {
		k, n   int
		lo, hi float64
	}{
		{0, 10, 0, 0.27753279986288926}, {10, 10, 0.7224672001371106, 1},
		{28, 159, 0.12474094423724527, 0.2427420005488609},
		{158, 159, 0.9652390199332368, 0.9988889185966787},
		{1, 3, 0.06149194472039626, 0.7923403991979523},
		{0, 0, 0, 1},
	} {
		lo, hi := stats.Wilson(c.k, c.n)
		near(t, "lower end", lo, c.lo, exact)
		near(t, "upper end", hi, c.hi, exact)
	}
}

func TestHolm(t *testing.T) {
	// statsmodels 0.15.0: multipletests(p, method="holm")[1].
	in := []float64{0.01, 0.04, 0.03, 0.005, 0.5, 0.04}
	want := []float64{0.05, 0.12, 0.12, 0.03, 0.5, 0.12}
	for i, p := range stats.Holm(in) {
		near(t, "p "+strconv.Itoa(i), p, want[i], exact)
	}
	if !slices.Equal(in, []float64{0.01, 0.04, 0.03, 0.005, 0.5, 0.04}) {
		t.Errorf("Holm changed its input to %v", in)
	}
	if got := stats.Holm(nil); len(got) != 0 {
		t.Errorf("Holm of no test = %v", got)
	}
}

func FuzzHolm(f *testing.F) {
	f.Add(0.01, 0.02, 0.9)
	f.Fuzz(func(t *testing.T, a, b, c float64) {
		in := []float64{a, b, c}
		for _, p := range in {
			if !(p >= 0 && p <= 1) {
				t.Skip("not probabilities")
			}
		}
		out := stats.Holm(in)
		for i := range in {
			if out[i] < in[i] || out[i] > 1 {
				t.Fatalf("Holm(%v) = %v", in, out)
			}
			for j := range in {
				if in[i] < in[j] && out[i] > out[j] || in[i] == in[j] && out[i] != out[j] {
					t.Fatalf("Holm(%v) = %v is not in their order", in, out)
				}
			}
		}
	})
}
