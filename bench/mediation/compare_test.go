package mediation

import (
	"math"
	"strings"
	"testing"

	"github.com/ccmed/ccmed/bench/run"
	"github.com/ccmed/ccmed/bench/stats"
)

func TestMeasures(t *testing.T) {
	a, b := study(18), study(18)
	for i := range b {
		if b[i].condition == ND {
			b[i].after, b[i].judge = b[i+1].after, b[i+1].judge // ND of B does as D
		}
	}
	var sides [2][]stats.Measure
	var outcomes []Outcome
	for i, s := range [][]run.Sample{samplesOfUnits(t, a...), samplesOfUnits(t, b...)} {
		ms, notes, err := Measures(s, recordedLabels)
		if err != nil || len(notes) != 0 || len(ms) != 8 {
			t.Fatalf("%d measures, notes %q, %v; want ND and D by four metrics", len(ms), notes, err)
		}
		sides[i] = ms
		if outcomes, err = Outcomes(s); err != nil {
			t.Fatal(err)
		}
	}
	for i, x := range sides[0] {
		c, err := stats.Compare(x, sides[1][i], stats.Resampling{Resamples: 200, Seed: 1})
		if err != nil {
			t.Fatal(err)
		}
		if x.Condition == ND && c.Difference.Value <= 0 || x.Condition == D && (c.Difference.Value != 0 || len(c.Changes) > 0) {
			t.Errorf("%s under %s: %+v", x.Name, x.Condition, c)
		}
	}
	// The values are those of scoring.
	for _, o := range outcomes {
		for _, m := range sides[1] {
			for _, x := range m.Observations {
				if x.Item == o.Item && m.Condition == o.Condition && math.Abs(x.Value-o.Values[m.Name]) > 1e-12 {
					t.Errorf("%s of %s under %s: %v, scored %v", m.Name, x.Item, m.Condition, x.Value, o.Values[m.Name])
				}
			}
		}
	}
}

// A difference on weak labels is never significant, whatever its p.
func TestMeasuresOfWeakLabels(t *testing.T) {
	sides := func(change func(u *unit)) (a, b []stats.Measure) {
		us := study(120)
		for i := range us {
			change(&us[i])
		}
		a, _, err := Measures(samplesOfUnits(t, us...), recordedLabels)
		if err != nil {
			t.Fatal(err)
		}
		for i := range us {
			if us[i].condition == ND {
				us[i].after = us[i+1].after // as D does
			}
		}
		b, _, err = Measures(samplesOfUnits(t, us...), recordedLabels)
		if err != nil {
			t.Fatal(err)
		}
		return a, b
	}
	significant := func(a, b []stats.Measure) (n int) {
		for i := range a {
			c, err := stats.Compare(a[i], b[i], stats.Resampling{Resamples: 200, Seed: 1})
			if err != nil {
				t.Fatal(err)
			}
			if c.Significant() {
				n++
			}
		}
		return n
	}
	if n := significant(sides(func(*unit) {})); n == 0 {
		t.Error("reliable labels give no significant difference")
	}
	a, b := sides(func(u *unit) {
		if u.condition == Card {
			u.after = []int{0, 5, 1, 4, 2, 3}
		}
	})
	if n := significant(a, b); n > 0 || len(a) != 8 {
		t.Errorf("%d of %d differences on weak labels are significant", n, len(a))
	}
	for _, m := range a {
		if weak := strings.HasPrefix(m.Weak, "weak labels, κ "); weak != (m.Name != Judge) {
			t.Errorf("%s is marked %q", m.Name, m.Weak)
		}
	}
}
