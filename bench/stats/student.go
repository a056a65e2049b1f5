package stats

import (
	"math"

	"gonum.org/v1/gonum/stat/distuv"
)

// MeanT is the mean of v with the interval value ± t·se: se is the standard
// deviation of the means of b.Resamples draws of whole groups, times √(k/(k−1)) for
// k groups, and t Student's quantile with k−1 degrees of freedom (Efron and
// Tibshirani 1993, section 12.5; the factor undoes that a resample's variance is
// that of k values over k, Hesterberg 2015, section 4.3). With few groups the
// percentiles of Mean are too narrow: of 95 they hold 84 to 90 with 5 groups of
// unequal size, where these hold 93 to 96. It is an error where there is one group.
func (b Bootstrap) MeanT(v []float64, groups []string) (Estimate, error) {
	se, e, err := b.standardError(v, groups)
	if err != nil {
		return Estimate{}, err
	}
	half := b.quantileT(float64(e.Groups-1)) * se
	e.Lo, e.Hi = e.Value-half, e.Value+half
	e.fix(e.NoInterval)
	return e, nil
}

// DifferenceT is the mean of y minus the mean of x, of independent samples, with
// the interval of MeanT: standard errors add in squares, and the degrees of freedom
// are those of Welch (1947). N and Groups count both samples.
func (b Bootstrap) DifferenceT(x []float64, xGroups []string, y []float64, yGroups []string) (Estimate, error) {
	sx, ex, err := b.standardError(x, xGroups)
	if err != nil {
		return Estimate{}, err
	}
	b.Seed ^= otherSample
	sy, ey, err := b.standardError(y, yGroups)
	if err != nil {
		return Estimate{}, err
	}
	vx, vy := sx*sx, sy*sy
	e := Estimate{Value: ey.Value - ex.Value, N: ex.N + ey.N, Groups: ex.Groups + ey.Groups}
	if ex.NoInterval != "" && ey.NoInterval != "" {
		e.fix(AllAlike)
		return e, nil
	}
	df := (vx + vy) * (vx + vy) / (vx*vx/float64(ex.Groups-1) + vy*vy/float64(ey.Groups-1))
	half := b.quantileT(df) * math.Sqrt(vx+vy)
	e.Lo, e.Hi = e.Value-half, e.Value+half
	return e, nil
}

// otherSample separates the draws of the second sample from those of the first.
const otherSample = 0x9e3779b97f4a7c15

func (b Bootstrap) quantileT(df float64) float64 {
	return distuv.StudentsT{Mu: 0, Sigma: 1, Nu: df}.Quantile(0.5 + b.confidence()/2)
}

// standardError is that of the mean, from draws of whole groups.
func (b Bootstrap) standardError(v []float64, groups []string) (float64, Estimate, error) {
	e, means, err := b.means(v, groups)
	if err != nil {
		return 0, e, err
	}
	if e.Groups < 2 {
		return 0, e, ErrOneGroup
	}
	k := float64(e.Groups)
	return math.Sqrt(variance(means) * k / (k - 1)), e, nil
}
