package stats

import (
	"fmt"
	"math"
)

// Equivalence is the outcome of an equivalence test.
type Equivalence struct {
	Estimate         // of the mean difference, with the interval that the test looks at
	Margin   float64 `json:"margin"`
	// Equivalent is true when the interval lies within ±Margin. False is no
	// evidence of a difference: it may be that too little was measured.
	Equivalent bool `json:"equivalent"`
}

// equivalenceLevel is the level of each of the two one-sided tests.
const equivalenceLevel = 0.05

// Equivalent tests at the 5 % level whether the mean of paired differences lies
// within ±margin, a margin chosen before looking: two one-sided tests (Schuirmann
// 1987), which come to asking whether the 90 % bootstrap interval lies inside.
// b.Confidence is not used. groups is that of Mean.
func (b Bootstrap) Equivalent(d []float64, groups []string, margin float64) (Equivalence, error) {
	if !(margin > 0) || math.IsInf(margin, 0) {
		return Equivalence{}, fmt.Errorf("margin %v; it must be positive and finite", margin)
	}
	b.Confidence = 1 - 2*equivalenceLevel
	e, err := b.Mean(d, groups)
	if err != nil {
		return Equivalence{}, err
	}
	if e.Groups < 2 {
		return Equivalence{}, fmt.Errorf("%d group; an equivalence test needs at least 2", e.Groups)
	}
	lo, hi := e.Bounds() // without an interval nothing is shown
	return Equivalence{e, margin, -margin < lo && hi < margin}, nil
}

// At95 is the estimate with its 90 % interval widened to one of 95 %, each side by the ratio
// of Student's quantiles.
func (e Equivalence) At95() Estimate {
	out := e.Estimate
	if df := float64(e.Groups - 1); df > 0 && e.NoInterval == "" {
		wider := Bootstrap{}.quantileT(df) / Bootstrap{Confidence: 1 - 2*equivalenceLevel}.quantileT(df)
		out.Lo, out.Hi = e.Value-wider*(e.Value-e.Lo), e.Value+wider*(e.Hi-e.Value)
	}
	return out
}
