package linear

import (
	"errors"
	"fmt"
	"math"
)

// Standardiser centres features and divides them by their standard deviation.
// It is fitted on the training part only and applied to both, since the mean of
// a held-out sample must not help to predict it.
type Standardiser struct {
	Mean, Scale []float64 // one a feature; Scale is 1 for a feature that never changes
}

// FitStandardiser takes mean and population standard deviation (divided by n)
// from the given rows of x: the training part.
func FitStandardiser(x *Dense, train []int) (*Standardiser, error) {
	x = x.Take(train).(*Dense)
	n, d := x.Dims()
	if n == 0 {
		return nil, errors.New("linear: there are no samples to standardise by")
	}
	if err := x.Check(); err != nil {
		return nil, err
	}
	s := &Standardiser{Mean: make([]float64, d), Scale: make([]float64, d)}
	// Welford's update: one pass, and no cancellation when the mean is large.
	for i, row := range x.rows {
		for j, v := range row {
			delta := v - s.Mean[j]
			s.Mean[j] += delta / float64(i+1)
			s.Scale[j] += delta * (v - s.Mean[j])
		}
	}
	for j, v := range s.Scale {
		s.Scale[j] = math.Sqrt(v / float64(n))
		// A constant feature keeps a spread of some rounding errors of its mean.
		if s.Scale[j] <= 10*0x1p-52*math.Abs(s.Mean[j]) {
			s.Scale[j] = 1
		}
	}
	return s, nil
}

// Apply returns a standardised copy of x, or an error when x has other features.
func (s *Standardiser) Apply(x *Dense) (*Dense, error) {
	n, d := x.Dims()
	if d != len(s.Mean) {
		return nil, fmt.Errorf("linear: standardising %d features with a standardiser of %d", d, len(s.Mean))
	}
	data := make([]float64, n*d)
	for i, row := range x.rows {
		out := data[i*d : (i+1)*d]
		for j, v := range row {
			out[j] = (v - s.Mean[j]) / s.Scale[j]
		}
	}
	return NewDense(n, d, data)
}

// Raw returns the model that says of raw features what m says of standardised
// ones, so that held-out samples need no copy. Its penalty is no longer that of
// the fit: it is not a model to start from.
func (s *Standardiser) Raw(m *Model) (*Model, error) {
	if err := m.fits(m.Classes, len(s.Mean)); err != nil {
		return nil, fmt.Errorf("linear: taking a model out of standardised features: %w", err)
	}
	raw := *m
	raw.W = make([][]float64, len(m.W))
	raw.B = append([]float64(nil), m.B...)
	for c, w := range m.W {
		raw.W[c] = make([]float64, len(w))
		for j, v := range w {
			raw.W[c][j] = v / s.Scale[j]
			raw.B[c] -= raw.W[c][j] * s.Mean[j]
		}
	}
	return &raw, nil
}
