package linear

import (
	"context"
	"errors"
	"fmt"
	"math"
)

// Part is a training part and the samples held out from it, standardised by the
// training part and reduced once, for any number of label sets and penalties.
//
//	part, err := linear.NewPart(ctx, x, train, test)
//	fits, err := part.Path(ctx, []linear.Labels{{Y: y}, {Y: shuffled}}, classes, []float64{0.01, 0.1, 1}, linear.PathOptions{})
//	score, err := fits[0][2].Held.Score(linear.At(y, test)) // of y at C = 1
//
// Fits run in the span of the training samples, which holds the optimum
// (representer theorem): a weight vector is a sum of samples, and all that a fit
// needs is their Gram matrix. It is computed once, n²·d/2 multiplications; where
// samples are more than features, products with the samples themselves are
// cheaper and take its place. Products are in single precision, sums of fits and
// losses in double. A Part is safe for concurrent use.
type Part struct {
	scale       *Standardiser
	train, test []int
	samples     int // of the whole matrix

	z, columns *panels // training samples by row (nil where the Gram matrix stands in), and by feature
	gram       *panels
	held       *panels
	norms      []float64 // squared, one a training sample
}

// gramPays tells whether a Gram matrix of n samples of d features costs less
// than what it saves; a path of a few penalties takes about this many products
// with 16 columns each.
func gramPays(n, d int) bool {
	const products = 75 * panelB
	return n*(d/2+products) < 2*d*products
}

// NewPart standardises the rows train and test of x by the former and reduces
// them. An error is a *ValueError for a value that is not finite, with its row in
// x, or the context's.
func NewPart(ctx context.Context, x *Dense32, train, test []int) (*Part, error) {
	samples, d := x.Dims()
	n := len(train)
	if n == 0 || d == 0 {
		return nil, fmt.Errorf("linear: there are %d samples of %d features to fit", n, d)
	}
	scale, err := standardiser32(x, train)
	if err != nil {
		return nil, err
	}
	p := &Part{scale: scale, train: train, test: test, samples: samples, norms: make([]float64, n)}
	p.z, p.columns = newPanels(n, d, panelA), newPanels(d, n, panelA)
	p.held = newPanels(len(test), d, panelA)
	pays := gramPays(n, d)
	var right *panels
	if pays {
		right = newPanels(n, d, panelB)
	}
	// Room beyond d lets a panel of features end anywhere.
	row := make([]float32, roundUp(d, panelA))
	inverse := make([]float64, d)
	for j, s := range scale.Scale {
		inverse[j] = 1 / s
	}
	standardise := func(i int) {
		for j, v := range x.rows[i] {
			row[j] = float32((float64(v) - scale.Mean[j]) * inverse[j])
		}
	}
	for k, i := range train {
		standardise(i)
		setRow(p.z, k, row[:d])
		p.columns.setColumn(k, row)
		if pays {
			setRow(right, k, row[:d])
		}
		for _, v := range row[:d] {
			p.norms[k] += float64(v) * float64(v)
		}
	}
	for k, i := range test {
		for j, v := range x.rows[i] {
			if v-v != 0 {
				return nil, &ValueError{i, j, float64(v)}
			}
		}
		standardise(i)
		setRow(p.held, k, row[:d])
	}
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("linear: preparing %d samples of %d features: %w", n, d, err)
	}
	if pays {
		g := newProduct(n, n)
		g.multiply(p.z, right, true)
		g.mirror(n)
		p.gram, p.z = newPanels(n, n, panelA), nil
		for i := range n {
			setRow(p.gram, i, g.row(i)[:n])
		}
	}
	return p, nil
}

// Standardiser returns what the samples were standardised by.
func (p *Part) Standardiser() *Standardiser { return p.scale }

// standardiser32 is FitStandardiser for single precision. Two passes in double
// precision do not cancel either.
func standardiser32(x *Dense32, train []int) (*Standardiser, error) {
	if len(train) == 0 {
		return nil, errors.New("linear: there are no samples to standardise by")
	}
	s := &Standardiser{Mean: make([]float64, x.d), Scale: make([]float64, x.d)}
	for _, i := range train {
		mean := s.Mean
		for j, v := range x.rows[i] {
			mean[j] += float64(v)
		}
	}
	n := float64(len(train))
	for j := range s.Mean {
		s.Mean[j] /= n
	}
	for j, v := range s.Mean {
		if finite(v) {
			continue
		}
		for _, i := range train {
			if w := float64(x.rows[i][j]); !finite(w) {
				return nil, &ValueError{i, j, w}
			}
		}
	}
	for _, i := range train {
		mean, scale := s.Mean, s.Scale
		for j, v := range x.rows[i] {
			delta := float64(v) - mean[j]
			scale[j] += delta * delta
		}
	}
	for j, v := range s.Scale {
		s.Scale[j] = math.Sqrt(v / n)
		if s.Scale[j] <= 10*0x1p-52*math.Abs(s.Mean[j]) {
			s.Scale[j] = 1
		}
	}
	return s, nil
}

// operator computes products of the Gram matrix with several vectors.
type operator struct {
	p                *Part
	in, middle       *panels
	features, scores *product
}

// newOperator makes room for m vectors.
func (p *Part) newOperator(m int) *operator {
	n := len(p.train)
	o := &operator{p: p, in: newPanels(m, n, panelB), scores: newProduct(n, m)}
	if p.gram == nil {
		d := p.columns.rows
		o.middle, o.features = newPanels(m, d, panelB), newProduct(d, m)
	}
	return o
}

// apply sets out[k] to the Gram matrix times in[k], for at most m vectors.
func (o *operator) apply(in, out [][]float64) {
	p := o.p
	clear(o.in.data)
	for k, v := range in {
		setRow(o.in, k, v)
	}
	if p.gram != nil {
		o.scores.multiply(p.gram, o.in, false)
	} else {
		o.features.multiply(p.columns, o.in, false)
		for j := range p.columns.rows {
			o.middle.setColumn(j, o.features.row(j))
		}
		o.scores.multiply(p.z, o.middle, false)
	}
	for i := range len(p.train) {
		row := o.scores.row(i)
		for k := range out {
			out[k][i] = float64(row[k])
		}
	}
}

// weights returns the feature weights of the given sums of samples, one column
// each.
func (p *Part) weights(sums [][]float64) *product {
	in := newPanels(len(sums), len(p.train), panelB)
	for k, v := range sums {
		setRow(in, k, v)
	}
	w := newProduct(p.columns.rows, len(sums))
	w.multiply(p.columns, in, false)
	return w
}

// heldScores returns the inner products of the held-out samples with w.
func (p *Part) heldScores(w *product, columns int) *product {
	in := newPanels(columns, p.columns.rows, panelB)
	for j := range p.columns.rows {
		in.setColumn(j, w.row(j))
	}
	s := newProduct(len(p.test), columns)
	if len(p.test) > 0 {
		s.multiply(p.held, in, false)
	}
	return s
}
