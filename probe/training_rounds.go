package probe

import (
	"fmt"
	"math"
	"slices"

	"gonum.org/v1/gonum/floats"

	"github.com/ccmed/ccmed/bench/stats"
)

// Outcomes are one value for each tested row in each round. Intervals and tests
// of them hold without signal, which those of values averaged over rounds do not
// (80 % coverage instead of 95 % in simulations of this package): held-out rows
// of one fold share a fitted probe, and training parts overlap, so that rows vary
// together. The remedy is Nadeau and Bengio's (2003) corrected variance: widths
// of single rounds, by √(1/R + k·m/n) for R rounds of k folds with m rows held out
// from n. A train→evaluate design needs none; its interval is conditional on the
// probe.
type Outcomes struct {
	Rounds [][]float64
	Groups []string // of each row
	Width  float64  // the correction, 1 for none
}

// refitWidth is the correction for the splits.
func refitWidth(splits []Split, rounds int) float64 {
	if rounds == 0 || len(splits) <= rounds {
		return 1
	}
	ratio := 0.0
	for _, s := range splits {
		ratio += float64(len(s.Test)) / float64(len(s.Train)) / float64(rounds)
	}
	return math.Sqrt(1/float64(rounds) + ratio)
}

// RoundHits returns 1 for each row that a round predicted right, else 0.
func (r *LayerResult) RoundHits() Outcomes { return r.outcomes((*LayerResult).Hits) }

// RoundLogLosses returns each row's log-loss in nats.
func (r *LayerResult) RoundLogLosses() Outcomes { return r.outcomes((*LayerResult).LogLosses) }

func (r *LayerResult) outcomes(values func(*LayerResult) []float64) Outcomes {
	o := Outcomes{Groups: r.TestedGroups(), Width: r.width}
	for k := range r.Rounds {
		one := *r
		one.Rounds = r.Rounds[k : k+1]
		o.Rounds = append(o.Rounds, values(&one))
	}
	return o
}

// Minus returns the paired differences of the same rows and rounds.
func (o Outcomes) Minus(p Outcomes) (Outcomes, error) {
	if len(o.Rounds) != len(p.Rounds) || !slices.Equal(o.Groups, p.Groups) {
		return Outcomes{}, fmt.Errorf("%w: %d rounds of %d rows are not paired with %d of %d", ErrDesign, len(o.Rounds), len(o.Groups), len(p.Rounds), len(p.Groups))
	}
	d := Outcomes{Groups: o.Groups, Width: math.Max(o.Width, p.Width)}
	for k := range o.Rounds {
		d.Rounds = append(d.Rounds, difference(o.Rounds[k], p.Rounds[k]))
	}
	return d, nil
}

// meanOf averages outcomes of the same rows and rounds.
func meanOf(of []Outcomes) (Outcomes, error) {
	if len(of) == 0 {
		return Outcomes{}, fmt.Errorf("%w: a mean of no outcomes", ErrDesign)
	}
	out := Outcomes{Groups: of[0].Groups}
	for range of[0].Rounds {
		out.Rounds = append(out.Rounds, make([]float64, len(out.Groups)))
	}
	for _, o := range of {
		if len(o.Rounds) != len(out.Rounds) || !slices.Equal(o.Groups, out.Groups) {
			return Outcomes{}, fmt.Errorf("%w: %d rounds of %d rows are not paired with %d of %d", ErrDesign, len(o.Rounds), len(o.Groups), len(out.Rounds), len(out.Groups))
		}
		out.Width = math.Max(out.Width, o.Width)
		for k, rows := range o.Rounds {
			floats.AddScaled(out.Rounds[k], 1/float64(len(of)), rows)
		}
	}
	return out, nil
}

// Mean is the mean over rows and rounds.
func (o Outcomes) Mean() float64 {
	sum := 0.0
	for _, rows := range o.Rounds {
		sum += mean(rows)
	}
	return sum / float64(max(1, len(o.Rounds)))
}

// Interval is the mean over rows and rounds with its corrected group bootstrap
// interval.
func (o Outcomes) Interval(r Resampling) (stats.Estimate, error) {
	return o.joined(r.bootstrap().Mean)
}

// joined is the mean over rounds of what of gives for each, with its interval.
func (o Outcomes) joined(of func(v []float64, groups []string) (stats.Estimate, error)) (stats.Estimate, error) {
	var each []stats.Estimate
	for _, v := range o.Rounds {
		e, err := of(v, o.Groups)
		if err != nil {
			return stats.Estimate{}, fmt.Errorf("probe: interval over rounds: %w", err)
		}
		each = append(each, e)
	}
	return overRounds(each, o.Width)
}

// overRounds joins the estimates of rounds: widths are those of the rounds that have an
// interval, corrected. Without any there is none, and of exact ones the interval is
// exact: nothing was drawn that could be too narrow.
func overRounds(each []stats.Estimate, width float64) (stats.Estimate, error) {
	if len(each) == 0 {
		return stats.Estimate{}, fmt.Errorf("%w: no rounds", ErrDesign)
	}
	out := stats.Estimate{N: each[0].N, Groups: each[0].Groups, NoInterval: each[0].NoInterval, Exact: true}
	below, above, n := 0.0, 0.0, 0.0
	for _, e := range each {
		out.Value += e.Value
		out.Exact = out.Exact && e.Exact
		if e.NoInterval == "" {
			out.NoInterval = ""
			below, above, n = below+e.Value-e.Lo, above+e.Hi-e.Value, n+1
		}
	}
	out.Value /= float64(len(each))
	out.Lo, out.Hi = out.Value, out.Value
	if out.Exact {
		width = 1
	}
	if n > 0 {
		out.Lo, out.Hi = out.Value-below/n*width, out.Value+above/n*width
	}
	return out, nil
}

// Test is Interval with a two-sided p that the mean is zero: the median over
// rounds of the group sign-flip's, for a mean that is smaller by the correction.
func (o Outcomes) Test(r Resampling) (Effect, error) {
	e, err := o.Interval(r)
	if err != nil {
		return Effect{}, err
	}
	ps := make([]float64, len(o.Rounds))
	for k := range o.Rounds {
		if ps[k], err = stats.SignFlip(o.moved(k, e.Value), o.Groups, r.withDefaults().Resamples, r.Seed); err != nil {
			return Effect{}, fmt.Errorf("probe: test over rounds: %w", err)
		}
	}
	slices.Sort(ps)
	return Effect{e, ps[len(ps)/2]}, nil
}

// moved returns a round's values with the mean over rounds, made smaller by the
// correction.
func (o Outcomes) moved(round int, value float64) []float64 {
	out := slices.Clone(o.Rounds[round])
	floats.AddConst(value/o.Width-mean(out), out)
	return out
}

// Equivalent asks whether the mean lies within ±margin, which is chosen before
// looking: two one-sided tests (Schuirmann 1987), as in stats.Bootstrap.Equivalent,
// with the corrected interval.
func (o Outcomes) Equivalent(margin float64, r Resampling) (stats.Equivalence, error) {
	if !(margin > 0) || math.IsInf(margin, 0) {
		return stats.Equivalence{}, fmt.Errorf("%w: equivalence margin %v; it must be positive and finite", ErrDesign, margin)
	}
	b := r.bootstrap()
	b.Confidence = 0.90
	e, err := o.joined(b.Mean)
	if err != nil {
		return stats.Equivalence{}, err
	}
	lo, hi := e.Bounds() // without an interval nothing is shown
	return stats.Equivalence{Estimate: e, Margin: margin, Equivalent: -margin < lo && hi < margin}, nil
}
