package stats

import (
	"math"

	"gonum.org/v1/gonum/stat/distuv"
)

// PAbove is the one-sided p of the hypothesis that what e estimates is at most bound, PBelow
// that it is at least bound. They turn the 95 % interval around: Student's t with Groups − 1
// degrees of freedom, scaled so that p is 0.025 where bound is an end of the interval, each
// side by its own half. Of an exact interval (see Bootstrap.Within) p is that of k groups
// among which none differs. Both are NaN where there is no interval. Two of them are the two
// one-sided tests of equivalence (Schuirmann 1987).
func (e Estimate) PAbove(bound float64) float64 {
	return e.oneSided(e.Value-bound, e.Value-e.Lo, bound-e.Value, e.Hi-e.Value)
}

// PBelow is the other side of PAbove.
func (e Estimate) PBelow(bound float64) float64 {
	return e.oneSided(bound-e.Value, e.Hi-e.Value, e.Value-bound, e.Value-e.Lo)
}

// tail is the part of a 95 % interval's error on either side.
const tail = (1 - defaultConfidence) / 2

// oneSided is p of a bound that lies so far beyond on the side whose half of the interval is
// half; where it lies on the other side, against is its distance and other that half.
func (e Estimate) oneSided(beyond, half, against, other float64) float64 {
	switch {
	case e.NoInterval != "" || e.Groups < 2 || math.IsNaN(beyond):
		return math.NaN()
	case e.Exact:
		k := float64(e.Groups)
		if beyond <= 0 {
			return 1
		}
		// half is u times the way to the end of the scale, see Within.
		u := 1 - math.Pow(tail, 1/k)
		return math.Pow(1-min(1, beyond*u/half), k)
	}
	t := distuv.StudentsT{Mu: 0, Sigma: 1, Nu: float64(e.Groups - 1)}
	scaled := func(distance, half float64) float64 {
		if half <= 0 {
			return math.Inf(1)
		}
		return distance / half * t.Quantile(1-tail)
	}
	if beyond > 0 {
		return t.Survival(scaled(beyond, half))
	}
	if against == 0 {
		return 0.5
	}
	return t.CDF(scaled(against, other))
}

// Minus is e minus o of two estimates that are taken as independent, its interval recovered
// from theirs (Zou and Donner 2008). Where they are of the same items and rise together it is
// too wide.
func (e Estimate) Minus(o Estimate) Estimate {
	out := Estimate{Value: e.Value - o.Value, N: min(e.N, o.N), Groups: min(e.Groups, o.Groups)}
	for _, x := range []Estimate{e, o} {
		if x.NoInterval != "" {
			out.fix(x.NoInterval)
			return out
		}
	}
	out.Lo = out.Value - math.Hypot(e.Value-e.Lo, o.Hi-o.Value)
	out.Hi = out.Value + math.Hypot(e.Hi-e.Value, o.Value-o.Lo)
	return out
}
