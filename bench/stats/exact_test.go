package stats

import (
	"fmt"
	"math"
	"testing"
)

// alike returns n values v, per to a group.
func alike(v float64, n, per int) ([]float64, []string) {
	values, groups := make([]float64, n), make([]string, n)
	for i := range values {
		values[i], groups[i] = v, fmt.Sprint("g", i/per)
	}
	return values, groups
}

// The numbers are those of
//
//	statsmodels.stats.proportion.proportion_confint(k, n, 0.05, "beta")
//	scipy.stats.binomtest(k, n).proportion_ci(0.95, "exact")
//
// (statsmodels 0.15.0, scipy 1.17.1), k and n being groups.
func TestShareOfGroupsThatAgree(t *testing.T) {
	boot := Bootstrap{Resamples: 200, Seed: 1}
	for _, c := range []struct {
		v      float64
		groups int
		lo, hi float64
	}{
		{1, 5, 0.4781762498950185, 1},
		{0, 4, 0, 0.6023646356164747},
		{1, 15, 0.7819806390894659, 1},
		{1, 1, 0.025, 1},
		{0, 40, 0, 0.0880973028788024},
	} {
		for _, per := range []int{1, 7} { // more items of a group add nothing
			v, groups := alike(c.v, per*c.groups, per)
			e, err := boot.Share(v, groups)
			if err != nil || !e.Exact || e.NoInterval != "" || math.Abs(e.Lo-c.lo) > 1e-12 || math.Abs(e.Hi-c.hi) > 1e-12 || e.Groups != c.groups {
				t.Errorf("%v in %d groups of %d: %+v, %v; want [%v, %v]", c.v, c.groups, per, e, err, c.lo, c.hi)
			}
		}
	}
	// The 90 % bound: proportion_confint(0, 40, 0.1, "beta").
	v, groups := alike(0, 40, 1)
	if e, err := (Bootstrap{Resamples: 9, Confidence: 0.9}).Share(v, groups); err != nil || math.Abs(e.Hi-0.07215752450551458) > 1e-12 {
		t.Errorf("90 %%: %+v, %v", e, err)
	}
	// One group that differs, and the interval is drawn as ever.
	v[0] = 1
	e, err := boot.Share(v, groups)
	m, err2 := boot.Mean(v, groups)
	if err != nil || err2 != nil || e != m || e.Exact || e.Lo == e.Hi {
		t.Errorf("39 of 40: %+v, %+v, %v", e, m, err)
	}
}

// Groups with the same share agree too, whatever the share is: two groups with one of
// two hits each gave 0.5 [0.5, 0.5]. By hand: u = 1 − 0.025^(1/2) = 0.841886.
func TestShareOfGroupsWithEqualShares(t *testing.T) {
	e, err := Bootstrap{Resamples: 200}.Share([]float64{0, 1, 1, 0}, []string{"a", "a", "b", "b"})
	if err != nil || !e.Exact || math.Abs(e.Lo-(0.5-0.841886*0.5)) > 1e-6 || math.Abs(e.Hi-(0.5+0.841886*0.5)) > 1e-6 {
		t.Errorf("%+v, %v", e, err)
	}
}

// What has no range has no interval where drawing cannot change it, and says why.
func TestMeanWithoutInterval(t *testing.T) {
	boot := Bootstrap{Resamples: 100, Seed: 1}
	for _, c := range []struct {
		v      []float64
		groups []string
		why    string
	}{
		{[]float64{3, 5, -2}, []string{"a", "a", "a"}, OneGroup},
		{[]float64{0.1, 0.1, 0.1}, []string{"a", "b", "c"}, AllAlike},
		{[]float64{1, 3, 2, 2, 2}, []string{"a", "a", "b", "b", "b"}, AllAlike},
		{[]float64{0.1, 0.1, 0.2}, []string{"a", "b", "c"}, ""},
	} {
		e, err := boot.Mean(c.v, c.groups)
		s, err2 := boot.Statistic(func(idx []int) float64 {
			sum := 0.0
			for _, i := range idx {
				sum += c.v[i]
			}
			return sum / float64(len(idx))
		}, c.groups)
		if err != nil || err2 != nil {
			t.Fatal(err, err2)
		}
		for _, e := range []Estimate{e, s} {
			lo, hi := e.Bounds()
			if e.NoInterval != c.why || math.IsNaN(lo) != (c.why != "") || math.IsNaN(hi) != (c.why != "") || c.why != "" && (e.Lo != e.Value || e.Hi != e.Value) {
				t.Errorf("%v of %v: %+v, want %q", c.v, c.groups, e, c.why)
			}
		}
		if c.why != OneGroup {
			continue
		}
		if _, err := boot.Equivalent(c.v, c.groups, 9); err == nil {
			t.Error("one group is equivalent to something")
		}
	}
	// All alike is no proof of equivalence: nothing was drawn that could show it.
	v, groups := alike(0, 30, 3)
	if e, err := boot.Equivalent(v, groups, 0.05); err != nil || e.Equivalent {
		t.Errorf("%+v, %v", e, err)
	}
}

// A difference of shares that is 0 everywhere lies within ±(1 − 0.025^(1/k)), one that
// is 1 everywhere above 1 − 2u: each of the groups that may differ can be at −1.
func TestDifferenceOfSharesThatAgree(t *testing.T) {
	side := func(v float64) Measure {
		m := Measure{Name: "hit", Binary: true}
		for i := range 12 {
			m.Observations = append(m.Observations, Observation{Item: fmt.Sprint(i), Group: fmt.Sprint(i / 2), Value: v})
		}
		return m
	}
	r := Resampling{Resamples: 200, Seed: 1}
	const u = 0.4592581264399 // proportion_confint(0, 6, 0.05, "beta")[1]
	for _, c := range []struct{ a, b, lo, hi float64 }{{1, 1, -u, u}, {0, 1, 1 - 2*u, 1}, {1, 0, -1, 2*u - 1}} {
		d, err := Compare(side(c.a), side(c.b), r)
		if err != nil || !d.Difference.Exact || math.Abs(d.Difference.Lo-c.lo) > 1e-9 || math.Abs(d.Difference.Hi-c.hi) > 1e-9 {
			t.Errorf("%v against %v: %+v, %v; want [%v, %v]", c.b, c.a, d.Difference, err, c.lo, c.hi)
		}
		// Unpaired each side gives half of the error: proportion_confint(0, 6, 0.025, "beta").
		const half = 0.5182537580005
		d, err = CompareUnpaired(side(c.a), side(c.b), r)
		lo, hi := c.b-c.a-half, c.b-c.a+half
		if c.a != c.b {
			lo, hi = math.Max(-1, c.b-c.a-2*half), math.Min(1, c.b-c.a+2*half)
		}
		if err != nil || !d.Difference.Exact || math.Abs(d.Difference.Lo-lo) > 1e-9 || math.Abs(d.Difference.Hi-hi) > 1e-9 {
			t.Errorf("unpaired, %v against %v: %+v, %v; want [%v, %v]", c.b, c.a, d.Difference, err, lo, hi)
		}
	}
}
