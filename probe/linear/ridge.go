package linear

import (
	"context"
	"fmt"
	"math"

	"gonum.org/v1/gonum/mat"
)

// Regression is a ridge regression of several outputs on standardised features.
type Regression struct {
	Penalty float64
	Held    *Dense // predictions for the held-out samples, one row each

	part *Part
	w    *product // features by outputs
	mean []float64
}

// Ridge minimises Σ|yᵢ - W·zᵢ - B|² + penalty·|W|² over the training part for
// each penalty, in closed form: targets has one row for each sample of the whole
// matrix. With more features than samples the equations are solved in the span
// of the samples. The intercepts are the training means, since the features are
// centred.
func (p *Part) Ridge(ctx context.Context, targets *Dense, penalties []float64) ([]*Regression, error) {
	n, m := targets.Dims()
	if n != p.samples || m == 0 {
		return nil, fmt.Errorf("linear: ridge: %d targets of %d values for %d samples", n, m, p.samples)
	}
	train := targets.Take(p.train).(*Dense)
	if err := targets.Check(); err != nil {
		return nil, fmt.Errorf("linear: ridge: a target: %w", err)
	}
	mean := make([]float64, m)
	for _, row := range train.rows {
		for j, v := range row {
			mean[j] += v / float64(len(p.train))
		}
	}
	centred := mat.NewDense(len(p.train), m, nil)
	for i, row := range train.rows {
		for j, v := range row {
			centred.Set(i, j, v-mean[j])
		}
	}
	normal, right := p.equations(centred)
	size := normal.SymmetricDim()
	var out []*Regression
	for _, penalty := range penalties {
		if err := ctx.Err(); err != nil {
			return nil, fmt.Errorf("linear: ridge of %d samples: %w", len(p.train), err)
		}
		if !(penalty > 0) || math.IsInf(penalty, 0) {
			return nil, fmt.Errorf("linear: ridge: the penalty is %v; it must be above 0 and finite", penalty)
		}
		system := mat.NewSymDense(size, nil)
		system.CopySym(normal)
		for i := range size {
			system.SetSym(i, i, system.At(i, i)+penalty)
		}
		var cholesky mat.Cholesky
		if !cholesky.Factorize(system) {
			return nil, fmt.Errorf("linear: ridge: the penalty %v is too small for single precision; take a larger one", penalty)
		}
		var solved mat.Dense
		if err := cholesky.SolveTo(&solved, right); err != nil {
			return nil, fmt.Errorf("linear: ridge with penalty %v: %w", penalty, err)
		}
		out = append(out, p.regression(penalty, &solved, mean))
	}
	return out, nil
}

// equations returns the symmetric matrix and the right side of the normal
// equations, over samples or over features.
func (p *Part) equations(centred *mat.Dense) (*mat.SymDense, *mat.Dense) {
	if p.gram != nil {
		n := len(p.train)
		g := mat.NewSymDense(n, nil)
		row := make([]float32, n)
		for i := range n {
			p.gram.row(i, row)
			for j := i; j < n; j++ {
				g.SetSym(i, j, float64(row[j]))
			}
		}
		return g, centred
	}
	n, m := centred.Dims()
	d := p.columns.rows
	right := newPanels(d, n, panelB)
	row := make([]float32, n)
	z := mat.NewDense(d, n, nil)
	for j := range d {
		p.columns.row(j, row)
		setRow(right, j, row)
		for i, v := range row {
			z.Set(j, i, float64(v))
		}
	}
	c := newProduct(d, d)
	c.multiply(p.columns, right, true)
	g := mat.NewSymDense(d, nil)
	for i := range d {
		for j := i; j < d; j++ {
			g.SetSym(i, j, float64(c.row(i)[j]))
		}
	}
	b := mat.NewDense(d, m, nil)
	b.Mul(z, centred)
	return g, b
}

func (p *Part) regression(penalty float64, solved *mat.Dense, mean []float64) *Regression {
	m := len(mean)
	r := &Regression{Penalty: penalty, part: p, mean: mean}
	if p.gram != nil {
		sums := make([][]float64, m)
		for k := range sums {
			sums[k] = mat.Col(nil, k, solved)
		}
		r.w = p.weights(sums)
	} else {
		r.w = newProduct(p.columns.rows, m)
		for j := range p.columns.rows {
			for k := range m {
				r.w.row(j)[k] = float32(solved.At(j, k))
			}
		}
	}
	scores := p.heldScores(r.w, m)
	r.Held = &Dense{d: m, rows: make([][]float64, len(p.test))}
	for i := range r.Held.rows {
		r.Held.rows[i] = make([]float64, m)
		for k, b := range mean {
			r.Held.rows[i][k] = float64(scores.row(i)[k]) + b
		}
	}
	return r
}

// Weights returns, for raw features, one row of weights and one intercept for
// each output.
func (r *Regression) Weights() (w [][]float64, b []float64) {
	w, b = make([][]float64, len(r.mean)), make([]float64, len(r.mean))
	copy(b, r.mean)
	s := r.part.scale
	for k := range w {
		w[k] = make([]float64, len(s.Mean))
		for j := range w[k] {
			w[k][j] = float64(r.w.row(j)[k]) / s.Scale[j]
			b[k] -= w[k][j] * s.Mean[j]
		}
	}
	return w, b
}
