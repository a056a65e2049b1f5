package dmis

import "math"

// Answers of Dominance.
const (
	Neither       = "neither"
	PreDominates  = "pre_dominates"
	PostDominates = "post_dominates"
)

// NoDirectionBelow is the change of the expected position under which a shift
// has no direction.
const NoDirectionBelow = 0.05

// rounding is what is taken for equal: far above the rounding of six additions,
// far below any probability that matters.
const rounding = 1e-12

// W1 returns the 1-Wasserstein distance of two distributions on a scale:
// Σ_k |F_pre(k) − F_post(k)|·gap_k over the five gaps, F the cumulative
// distribution. It is a metric; its range is 0..5 on Index and 0..6 on Paige.
func W1(pre, post Distribution, c Scale) float64 {
	w, f := 0.0, 0.0 // f is F_pre − F_post
	for k, gap := range c.Gaps() {
		f += pre[k] - post[k]
		w += math.Abs(f) * gap
	}
	return w
}

// SignedW1 returns W1 with the sign of DeltaE on the same scale: positive for a
// move towards Integration and where the expected positions are equal. Its range
// is -5..5 on Index and -6..6 on Paige.
func SignedW1(pre, post Distribution, c Scale) float64 {
	if DeltaE(pre, post, c) < -rounding {
		return -W1(pre, post, c)
	}
	return W1(pre, post, c)
}

// DeltaE returns the change of the expected position, post minus pre.
func DeltaE(pre, post Distribution, c Scale) float64 { return post.Expected(c) - pre.Expected(c) }

// NoDirection reports that |DeltaE| is below NoDirectionBelow, so that the sign
// of SignedW1 should not be read.
func NoDirection(pre, post Distribution, c Scale) bool {
	return math.Abs(DeltaE(pre, post, c)) < NoDirectionBelow
}

// JS returns the Jensen–Shannon divergence in nats, 0..ln 2.
func JS(pre, post Distribution) float64 {
	js := 0.0
	for i, p := range pre {
		q := post[i]
		m := (p + q) / 2
		if p > 0 {
			js += p * math.Log(p/m) / 2
		}
		if q > 0 {
			js += q * math.Log(q/m) / 2
		}
	}
	return min(max(0, js), math.Ln2)
}

// TV returns the total variation distance, half the sum of absolute
// differences, 0..1.
func TV(pre, post Distribution) float64 {
	d := 0.0
	for i, p := range pre {
		d += math.Abs(p - post[i])
	}
	return d / 2
}

// Dominance says which distribution lies higher in the sense of first-order
// stochastic dominance: PreDominates when F_pre ≤ F_post at every stage and the
// two differ, PostDominates for the reverse, else Neither. It does not depend on
// the scale.
func Dominance(pre, post Distribution) string {
	below, above := false, false // F_pre somewhere below or above F_post
	f := 0.0
	for k := range NumStages - 1 {
		f += pre[k] - post[k]
		below = below || f < -rounding
		above = above || f > rounding
	}
	switch {
	case below && !above:
		return PreDominates
	case above && !below:
		return PostDominates
	}
	return Neither
}
