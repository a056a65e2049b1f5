package linear

import (
	"context"
	"errors"
	"fmt"
	"math"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"
)

// Erasure takes out of a state what least squares can tell of the class: x becomes
// x − U·Vᵀ(x − Mean). U and V hold a row of d values for each of at most classes−1
// directions.
type Erasure struct {
	U, V [][]float64
	Mean []float64
}

// Apply changes x, which has d values.
func (e *Erasure) Apply(x []float64) {
	centred := make([]float64, len(x))
	floats.SubTo(centred, x, e.Mean)
	along := make([]float64, len(e.V))
	for r, v := range e.V {
		along[r] = floats.Dot(v, centred)
	}
	for r, u := range e.U {
		floats.AddScaled(x, -along[r], u)
	}
}

// leastCorrelation is the share of the greatest correlation below which a direction is rounding.
const leastCorrelation = 1e-9

// Erase fits the least-squares erasure of the classes y, 0..classes-1 (LEACE, Belrose et al.
// 2023, without shrinkage): of all affine maps after which no linear classifier beats the
// class frequencies on these rows, the one that moves the rows least, distances being those
// of the whitened rows. It runs in the span of the rows, whose directions alone a map of
// them can be fitted by: n²·d/2 multiplications for n rows of d values, never d³.
//
// An error is a *ValueError for a value that is not finite, or ErrClasses for fewer than two
// classes that occur.
func Erase(ctx context.Context, x *Dense32, y []int, classes int) (*Erasure, error) {
	n, d := x.Dims()
	if len(y) != n || n < 2 || d == 0 {
		return nil, fmt.Errorf("linear: erasing %d labels from %d rows of %d values; there must be as many, two at least", len(y), n, d)
	}
	if err := x.Check(); err != nil {
		return nil, err
	}
	labels, err := centredLabels(y, classes)
	if err != nil {
		return nil, err
	}
	e := &Erasure{Mean: make([]float64, d)}
	centred := centredRows(x, e.Mean)
	s, rows, err := newSpan(ctx, centred)
	if err != nil {
		return nil, err
	}
	_, rank := rows.Dims()
	if rank == 0 {
		return nil, errors.New("linear: erasing a class from rows that are all the same; there is nothing to take out")
	}
	l := mat.NewDense(n, rank, nil)
	for i, row := range rows.rows {
		l.SetRow(i, row)
	}
	weights, err := leastSquares(l, labels)
	if err != nil {
		return nil, err
	}
	// What is fitted to the labels is B·S·Wᵀ. U = Xᵀ·B/√(n−1), V = √(n−1)·X⁺·B.
	var fitted mat.Dense
	fitted.Mul(l, weights)
	var svd mat.SVD
	if !svd.Factorize(&fitted, mat.SVDThin) {
		return nil, errors.New("linear: erasing a class: the fitted labels have no decomposition")
	}
	var b, w mat.Dense
	svd.UTo(&b)
	svd.VTo(&w)
	var preimages mat.Dense
	preimages.Mul(weights, &w)
	scale := math.Sqrt(float64(n - 1))
	for r, value := range svd.Values(nil) {
		if value <= leastCorrelation*scale {
			continue
		}
		u := make([]float64, d)
		for i := range n {
			centred.AddScaled(u, b.At(i, r)/scale, i)
		}
		v := s.features(mat.Col(nil, r, &preimages))
		floats.Scale(scale/value, v)
		e.U, e.V = append(e.U, u), append(e.V, v)
	}
	return e, nil
}

// centredRows takes the mean of the rows out of a copy of them, and puts it into mean.
func centredRows(x *Dense32, mean []float64) *Dense {
	n, d := x.Dims()
	for i := range n {
		x.AddScaled(mean, 1/float64(n), i)
	}
	out := &Dense{d: d, rows: make([][]float64, n)}
	for i := range n {
		out.rows[i] = make([]float64, d)
		for j, v := range x.rows[i] {
			out.rows[i][j] = float64(v) - mean[j]
		}
	}
	return out
}

// centredLabels are the classes as indicators, less their frequencies.
func centredLabels(y []int, classes int) (*mat.Dense, error) {
	z := mat.NewDense(len(y), max(1, classes), nil)
	occurring := map[int]float64{}
	for i, c := range y {
		if c < 0 || c >= classes {
			return nil, fmt.Errorf("linear: erasing: label %d of row %d is not in 0..%d", c, i, classes-1)
		}
		z.Set(i, c, 1)
		occurring[c]++
	}
	if len(occurring) < 2 {
		return nil, fmt.Errorf("linear: erasing: %w", ErrClasses)
	}
	z.Apply(func(_, c int, v float64) float64 { return v - occurring[c]/float64(len(y)) }, z)
	return z, nil
}

// leastSquares solves L·C = Z for the n×r matrix L of full rank. The second step takes out
// what the normal equations lose to rounding.
func leastSquares(l, z *mat.Dense) (*mat.Dense, error) {
	_, rank := l.Dims()
	normal := mat.NewSymDense(rank, nil)
	normal.SymOuterK(1, l.T())
	var factor mat.Cholesky
	if !factor.Factorize(normal) {
		return nil, fmt.Errorf("linear: erasing a class: the %d directions of the rows are not fitted apart; leave out rows that are nearly the same", rank)
	}
	n, k := z.Dims()
	solution := mat.NewDense(rank, k, nil)
	rest := mat.NewDense(n, k, nil)
	for range 2 {
		var fitted, right, step mat.Dense
		fitted.Mul(l, solution)
		rest.Sub(z, &fitted)
		right.Mul(l.T(), rest)
		if err := factor.SolveTo(&step, &right); err != nil {
			var badly mat.Condition
			if !errors.As(err, &badly) {
				return nil, fmt.Errorf("linear: erasing a class: %w", err)
			}
		}
		solution.Add(solution, &step)
	}
	return solution, nil
}
