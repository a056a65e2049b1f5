package dmis_test

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/ccmed/ccmed/bench/dmis"
)

func TestFromProbabilities(t *testing.T) {
	for name, c := range map[string]struct {
		p       [6]float64
		dist    dmis.Distribution
		mass    float64
		missing []int
		says    string
	}{
		"renormalised":            {p: [6]float64{0, 0.1, 0.3}, dist: dmis.Distribution{0, 0.25, 0.75}, mass: 0.4, missing: []int{1, 4, 5, 6}},
		"mass at the bound":       {p: [6]float64{0.05}, dist: dmis.Distribution{1}, mass: 0.05, missing: []int{2, 3, 4, 5, 6}},
		"mass under the bound":    {p: [6]float64{0.02, 0.02}, mass: 0.04, missing: []int{3, 4, 5, 6}, says: "probability of 0.040 together, less than 0.05"},
		"no digit":                {missing: []int{1, 2, 3, 4, 5, 6}, says: dmis.NoDigit},
		"negative":                {p: [6]float64{1, -0.1}, says: "digit 2 is -0.1"},
		"not a number":            {p: [6]float64{math.NaN()}, says: "digit 1 is NaN"},
		"sum beyond the numbers":  {p: [6]float64{math.MaxFloat64, math.MaxFloat64}, mass: 1, missing: []int{3, 4, 5, 6}, says: "no finite sum"},
		"probability is infinite": {p: [6]float64{0, 0, math.Inf(1)}, says: "digit 3 is +Inf"},
	} {
		l := dmis.FromProbabilities(c.p, 0.05)
		if (l.Unscored == "") != (c.says == "") || !strings.Contains(l.Unscored, c.says) {
			t.Errorf("%s: unscored %q, want one that says %q", name, l.Unscored, c.says)
		}
		near(t, name+": mass", l.Mass, c.mass)
		if !slices.Equal(l.Missing, c.missing) {
			t.Errorf("%s: missing %v, want %v", name, l.Missing, c.missing)
		}
		for i := range c.dist {
			near(t, name+": probability", l.Dist[i], c.dist[i])
		}
	}
}

func TestFromTopAddsUpVariants(t *testing.T) {
	tokens := []string{"4", " 4", "2", "44", "7", "0", "four", "\n3"}
	logprobs := []float64{math.Log(0.2), math.Log(0.1), math.Log(0.25), -1, -1, -1, -1, math.Inf(-1)}
	ours, theirs := dmis.FromTop(tokens, logprobs, 0.05), dmis.FromTopReference(tokens, logprobs)
	near(t, "mass", ours.Mass, 0.55)
	near(t, "mass by the reference rule", theirs.Mass, 0.45)
	near(t, "probability of 4", ours.Dist[dmis.Acceptance], 0.3/0.55)
	near(t, "probability of 4 by the reference rule", theirs.Dist[dmis.Acceptance], 0.2/0.45)
	if ours.Dist.Argmax() != dmis.Acceptance || theirs.Dist.Argmax() != dmis.Defense {
		t.Errorf("the rules choose %v and %v; variants should decide for Acceptance, the largest one for Defense", ours.Dist.Argmax(), theirs.Dist.Argmax())
	}
	if want := []int{1, 3, 5, 6}; !slices.Equal(ours.Missing, want) || !slices.Equal(theirs.Missing, want) {
		t.Errorf("missing %v and %v, want %v", ours.Missing, theirs.Missing, want)
	}
}

func TestNothingSeenIsUnscored(t *testing.T) {
	for name, top := range map[string][]string{"nothing": nil, "words": {"Stage", "The", "12", "7"}} {
		logprobs := make([]float64, len(top))
		for rule, l := range map[string]dmis.Label{"ours": dmis.FromTop(top, logprobs, 0), "reference": dmis.FromTopReference(top, logprobs)} {
			if l.Unscored == "" || l.Dist != (dmis.Distribution{}) || len(l.Missing) != 6 {
				t.Errorf("%s, %s rule: %+v, want unscored and no distribution", name, rule, l)
			}
		}
	}
}

func TestTokensWithoutLogprobsAreUnscored(t *testing.T) {
	for rule, l := range map[string]dmis.Label{"ours": dmis.FromTop([]string{"4", "5"}, []float64{0}, 0), "reference": dmis.FromTopReference([]string{"4"}, nil)} {
		if !strings.Contains(l.Unscored, "tokens came with") {
			t.Errorf("%s rule: unscored %q", rule, l.Unscored)
		}
	}
}

func FuzzFromTop(f *testing.F) {
	f.Add("4", -0.1, " 4", -2.0, "x", 0.0, 0.05)
	f.Add("1", math.Inf(-1), "6", math.NaN(), "2", 1e300, 0.0)
	f.Add("3", -800.0, "3", 709.0, "5", 709.7, -1.0)
	f.Fuzz(func(t *testing.T, a string, x float64, b string, y float64, c string, z, minMass float64) {
		tokens, logprobs := []string{a, b, c}, []float64{x, y, z}
		for rule, l := range map[string]dmis.Label{"ours": dmis.FromTop(tokens, logprobs, minMass), "reference": dmis.FromTopReference(tokens, logprobs)} {
			if math.IsNaN(l.Mass) || math.IsInf(l.Mass, 0) || l.Mass < 0 {
				t.Fatalf("%s rule: mass %v", rule, l.Mass)
			}
			if l.Unscored != "" {
				if l.Dist != (dmis.Distribution{}) {
					t.Fatalf("%s rule: unscored with the distribution %v", rule, l.Dist)
				}
				continue
			}
			if err := l.Dist.Validate(); err != nil {
				t.Fatalf("%s rule: %v", rule, err)
			}
			if rule == "ours" && l.Mass < minMass {
				t.Fatalf("mass %v is under %v and scored", l.Mass, minMass)
			}
		}
	})
}

func FuzzAUC(f *testing.F) {
	f.Add(3, 8, 4, 1.0, 6, 2.0)
	f.Add(8, 8, 9, 0.0, 9, 0.0)
	f.Fuzz(func(t *testing.T, tInt, last, turnA int, a float64, turnB int, b float64) {
		if math.Abs(a) > 3 || math.Abs(b) > 3 || math.Abs(float64(tInt)) > 1e6 || math.Abs(float64(last)) > 1e6 {
			t.Skip("beyond the scale or any dialogue")
		}
		v, err := dmis.AUC(0, tInt, last, []dmis.Point{{Turn: turnA, Position: a}, {Turn: turnB, Position: b}})
		if err == nil && !(v >= min(a, b)-1e-9 && v <= max(a, b)+1e-9) {
			t.Fatalf("AUC %v lies outside %v and %v", v, a, b)
		}
	})
}
