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
		ms, notes, err := Measures(s)
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

func TestMeasuresWithoutAQualifiedLabeller(t *testing.T) {
	c := study(18)
	for i := range c {
		if c[i].condition == Card {
			c[i].after = []int{0, 5, 1, 4, 2, 3}
		}
	}
	ms, notes, err := Measures(samplesOfUnits(t, c...))
	if err != nil || len(ms) != 0 || len(notes) != 1 || !strings.HasPrefix(notes[0], "the labeller is not qualified") {
		t.Errorf("%+v, %q, %v", ms, notes, err)
	}
}
