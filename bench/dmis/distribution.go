package dmis

import (
	"fmt"
	"math"
)

// A stage distribution is ambiguous when its greatest probability is below
// AmbiguousMax or its entropy in nats is at least AmbiguousEntropy (the uniform
// distribution has ln 6 = 1.79).
const (
	AmbiguousMax     = 0.30
	AmbiguousEntropy = 1.65
)

// SumTolerance is how far from 1 a distribution's sum may be.
const SumTolerance = 1e-6

// Distribution holds the probability of each stage, in their order.
type Distribution [NumStages]float64

// Argmax returns the most probable stage, the first one of equals.
func (d Distribution) Argmax() Stage {
	best := 0
	for i, p := range d {
		if p > d[best] {
			best = i
		}
	}
	return Stage(best)
}

// Entropy returns the Shannon entropy in nats, 0..ln 6.
func (d Distribution) Entropy() float64 {
	h := 0.0
	for _, p := range d {
		if p > 0 {
			h -= p * math.Log(p)
		}
	}
	return max(0, h)
}

// Expected returns the mean position on a scale.
func (d Distribution) Expected(c Scale) float64 {
	e := 0.0
	for i, p := range d {
		e += p * c.Position(Stage(i))
	}
	return e
}

// Ambiguous reports a distribution that names no stage clearly, by
// AmbiguousMax and AmbiguousEntropy.
func (d Distribution) Ambiguous() bool {
	return d[d.Argmax()] < AmbiguousMax || d.Entropy() >= AmbiguousEntropy
}

// Validate returns an error, naming the stage and the value, unless all
// probabilities are finite and not negative and add up to 1 within
// SumTolerance.
func (d Distribution) Validate() error {
	sum := 0.0
	for i, p := range d {
		if math.IsNaN(p) || math.IsInf(p, 0) || p < 0 {
			return fmt.Errorf("dmis: the probability of %s is %v; it must be finite and not negative", Stage(i), p)
		}
		sum += p
	}
	if math.Abs(sum-1) > SumTolerance {
		return fmt.Errorf("dmis: the probabilities add up to %v; they must add up to 1", sum)
	}
	return nil
}

// Normalise returns d divided by its sum. ok is false, and d unchanged, when d
// holds a negative or not finite value, or when its sum is zero or not finite.
func (d Distribution) Normalise() (n Distribution, ok bool) {
	sum := 0.0
	for _, p := range d {
		if !(p >= 0) {
			return d, false
		}
		sum += p
	}
	if sum == 0 || math.IsInf(sum, 0) {
		return d, false
	}
	for i, p := range d {
		n[i] = p / sum
	}
	return n, true
}
