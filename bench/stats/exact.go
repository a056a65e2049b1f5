package stats

import "math"

// Why an estimate has no interval.
const (
	OneGroup  = "one context"  // how groups differ cannot be told from one
	FewGroups = "few contexts" // too many of their draws have no value
	AllAlike  = "all alike"    // drawing groups again cannot change the value
)

// Range is from the least to the greatest value that something of N items can have,
// whatever the unscored ones among them are.
type Range struct {
	Lo float64 `json:"lo"`
	Hi float64 `json:"hi"`
	N  int     `json:"n"`
}

// Bounds are Lo and Hi, NaN where there is no interval.
func (e Estimate) Bounds() (lo, hi float64) {
	if e.NoInterval != "" {
		return math.NaN(), math.NaN()
	}
	return e.Lo, e.Hi
}

// Within is for the mean of values that lie within least..most, such as a share of
// hits within 0..1: its interval stays there, and where drawing groups cannot change
// the mean it becomes exact instead of having no width. Of k groups none differs, so
// that at most u = 1 − α^(1/k) of all such groups do, α being one tail (Clopper and
// Pearson 1934, the bound behind the rule of three, Hanley and Lippman-Hand 1983), each
// by as much as it can: the interval is value − u·(value − least) to
// value + u·(most − value). It counts groups, not items: items of one group may agree
// because they are of one group (Korn and Graubard 1998 divide by the design effect for
// the same reason, which is not known here).
func (b Bootstrap) Within(e Estimate, least, most float64) Estimate {
	e.Value = min(most, max(least, e.Value))
	if e.NoInterval == "" {
		e.Lo, e.Hi = max(least, e.Lo), min(most, e.Hi)
		return e
	}
	u := 1 - math.Pow((1-b.confidence())/2, 1/float64(e.Groups))
	e.Lo, e.Hi = e.Value-u*(e.Value-least), e.Value+u*(most-e.Value)
	e.NoInterval, e.Exact = "", true
	return e
}

// Share is Mean for values within 0..1, see Within.
func (b Bootstrap) Share(v []float64, groups []string) (Estimate, error) {
	e, err := b.Mean(v, groups)
	if err != nil {
		return e, err
	}
	return b.Within(e, 0, 1), nil
}

// fix leaves an estimate without an interval.
func (e *Estimate) fix(why string) {
	if why != "" {
		e.Lo, e.Hi, e.NoInterval = e.Value, e.Value, why
	}
}

// unvaried says why values drawn from so many groups cannot differ, "" where they can.
func unvaried(groups int, values []float64) string {
	if groups == 1 {
		return OneGroup
	}
	for _, v := range values {
		if math.Abs(v-values[0]) > rounding*(1+math.Abs(values[0])) {
			return ""
		}
	}
	return AllAlike
}
