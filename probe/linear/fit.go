package linear

import (
	"context"
	"errors"
	"fmt"
	"math"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/optimize"
)

// ErrClasses reports labels that cannot be told apart: fewer than two classes,
// or a class without a sample.
var ErrClasses = errors.New("linear: a class has no sample")

// Options of a fit; the zero value means the defaults.
type Options struct {
	C float64 // inverse strength of the penalty, as in scikit-learn; 0 means 1
	// Tol is the relative distance from the optimum at which the fit ends: the
	// gradient g is small enough when |g|²/2 ≤ Tol·objective, which bounds how far
	// the objective is above its minimum whatever C, n and d are, because the
	// penalty makes it strongly convex. 0 means 1e-8.
	Tol     float64
	MaxIter int       // most iterations of L-BFGS; 0 means 2000
	Weights []float64 // one a sample, at least 0; nil means 1 each
	Warm    *Model    // where to start, of the same shape; nil means zeros
}

func (o Options) withDefaults() (Options, error) {
	if o.C == 0 {
		o.C = 1
	}
	if o.Tol == 0 {
		o.Tol = 1e-8
	}
	if o.MaxIter == 0 {
		o.MaxIter = 2000
	}
	if !(o.C > 0) || math.IsInf(o.C, 0) || !(o.Tol > 0) || o.MaxIter < 0 {
		return o, fmt.Errorf("linear: C is %v, Tol %v and MaxIter %d; they must be above 0 and finite", o.C, o.Tol, o.MaxIter)
	}
	return o, nil
}

// samplesToPrepare times the classes is the number of samples above which
// rewriting them costs more than one fit: it takes as long as about n/(4·classes)
// iterations over all features, and a fit needs some forty.
const samplesToPrepare = 160

// Fit is Prepare and (*Design).Fit in one, without the rewriting in the span
// where one fit does not pay for it.
func Fit(ctx context.Context, x Rows, y []int, classes int, opt Options) (*Model, error) {
	if n, d := x.Dims(); n == 0 || d <= n || n < samplesToPrepare*classes {
		design, err := Prepare(ctx, x)
		if err != nil {
			return nil, err
		}
		return design.Fit(ctx, y, classes, opt)
	}
	if err := x.Check(); err != nil {
		return nil, err
	}
	return direct(x).Fit(ctx, y, classes, opt)
}

// Design is a matrix of samples that was checked once and made ready for any
// number of fits with different labels, weights and penalties. It is safe for
// concurrent use.
type Design struct {
	rows Rows  // what the optimiser sees
	span *span // how its weights become weights of the features; nil when they are
	d    int   // features
}

// Prepare checks x and, when it is a *Dense with more features than samples,
// rewrites its rows in an orthonormal basis of their span. The penalised optimum
// lies in that span (representer theorem), so that fits stay exact while their
// cost no longer depends on the number of features. The rewriting costs n²·d/2
// multiplications. An error is a *ValueError for a value that is not finite, or
// the context's.
func Prepare(ctx context.Context, x Rows) (*Design, error) {
	n, d := x.Dims()
	if n == 0 {
		return nil, errors.New("linear: there are no samples to fit")
	}
	if err := x.Check(); err != nil {
		return nil, err
	}
	dense, ok := x.(*Dense)
	if !ok || d <= n {
		return direct(x), nil
	}
	s, rows, err := newSpan(ctx, dense)
	if err != nil {
		return nil, err
	}
	return &Design{rows: rows, span: s, d: d}, nil
}

// direct leaves the rows as they are.
func direct(x Rows) *Design {
	_, d := x.Dims()
	return &Design{rows: x, d: d}
}

// Fit minimises ½‖W‖² + C·Σ weightᵢ·logloss(yᵢ, softmax(W·xᵢ + B)) by L-BFGS,
// or, for two classes, the same with one weight vector and the logistic function.
// Labels are 0..classes-1 and every class must occur with a positive weight, else
// ErrClasses. A fit that ran out of iterations is returned with Converged false.
func (d *Design) Fit(ctx context.Context, y []int, classes int, opt Options) (*Model, error) {
	opt, err := opt.withDefaults()
	if err != nil {
		return nil, err
	}
	n, _ := d.rows.Dims()
	weights, err := weigh(n, y, classes, opt.Weights)
	if err != nil {
		return nil, err
	}
	p := newProblem(d.rows, y, weights, classes, opt.C)
	if opt.Warm != nil {
		if err := opt.Warm.fits(classes, d.d); err != nil {
			return nil, fmt.Errorf("linear: the model to start from: %w", err)
		}
		d.start(p, opt.Warm)
	}
	m, err := p.minimise(ctx, opt)
	if err != nil {
		return nil, err
	}
	if d.span != nil {
		for k, v := range m.W {
			m.W[k] = d.span.features(v)
		}
	}
	m.Classes = classes
	return m, nil
}

// start puts a model of the features into the optimiser's first point.
func (d *Design) start(p *problem, m *Model) {
	for k, w := range m.W {
		if d.span != nil {
			w = d.span.coordinates(w)
		}
		copy(p.first[k*p.d:(k+1)*p.d], w)
	}
	copy(p.first[p.k*p.d:], m.B)
}

// weigh checks the labels of n samples and returns one weight a sample.
func weigh(n int, y []int, classes int, given []float64) ([]float64, error) {
	if len(y) != n {
		return nil, fmt.Errorf("linear: %d labels for %d samples", len(y), n)
	}
	if given != nil && len(given) != n {
		return nil, fmt.Errorf("linear: %d weights for %d samples", len(given), n)
	}
	if classes < 2 {
		return nil, fmt.Errorf("%w: %d classes, at least 2 are needed", ErrClasses, classes)
	}
	weights := make([]float64, n)
	mass := make([]float64, classes)
	for i, c := range y {
		if c < 0 || c >= classes {
			return nil, fmt.Errorf("linear: label %d of sample %d is not in 0..%d", c, i, classes-1)
		}
		weights[i] = 1
		if given != nil {
			weights[i] = given[i]
		}
		if !finite(weights[i]) || weights[i] < 0 {
			return nil, fmt.Errorf("linear: the weight of sample %d is %v; it must be finite and at least 0", i, weights[i])
		}
		mass[c] += weights[i]
	}
	for c, m := range mass {
		if m == 0 {
			return nil, fmt.Errorf("%w: class %d of %d in %d samples", ErrClasses, c, classes, n)
		}
	}
	return weights, nil
}

// problem is the objective over one vector: k weight vectors of length d, then k
// intercepts. It is divided by C·Σ weights, so that the optimiser's numbers are
// of the same size for every C and n.
type problem struct {
	rows    Rows
	y       []int
	weights []float64 // divided by their sum
	n, d, k int
	penalty float64 // 1/(C·Σ weights)

	first       []float64 // where to start
	z           []float64 // scores, then residuals of one sample
	x, gradient []float64 // the last point and the gradient there
	value       float64
	known       bool
}

func newProblem(rows Rows, y []int, weights []float64, classes int, c float64) *problem {
	k := classes
	if k == 2 {
		k = 1
	}
	n, d := rows.Dims()
	total := floats.Sum(weights)
	floats.Scale(1/total, weights)
	size := k * (d + 1)
	return &problem{rows: rows, y: y, weights: weights, n: n, d: d, k: k, penalty: 1 / (c * total),
		first: make([]float64, size), z: make([]float64, k), x: make([]float64, size), gradient: make([]float64, size)}
}

// evaluate computes value and gradient at x in one pass over the samples, while
// each row is in the processor's cache. The optimiser asks for both.
func (p *problem) evaluate(x []float64) {
	if p.known && floats.Equal(x, p.x) {
		return
	}
	copy(p.x, x)
	w, b := x[:p.k*p.d], x[p.k*p.d:]
	gw, gb := p.gradient[:p.k*p.d], p.gradient[p.k*p.d:]
	for j, v := range w {
		gw[j] = p.penalty * v
	}
	clear(gb)
	loss := 0.0
	for i, weight := range p.weights {
		if weight == 0 {
			continue
		}
		for c := range p.z {
			p.z[c] = p.rows.Dot(i, w[c*p.d:(c+1)*p.d]) + b[c]
		}
		loss += weight * residuals(p.z, p.y[i])
		for c, r := range p.z {
			p.rows.AddScaled(gw[c*p.d:(c+1)*p.d], weight*r, i)
			gb[c] += weight * r
		}
	}
	p.value = loss + 0.5*p.penalty*floats.Dot(w, w)
	p.known = true
}

// residuals replaces the scores z of a sample of class y by probability minus
// indicator, and returns its log-loss in nats.
func residuals(z []float64, y int) float64 {
	if len(z) == 1 {
		score := z[0]
		if y == 1 {
			// In terms of -score, and not by subtracting from 1: no cancellation.
			z[0] = -logistic(-score)
			return softplus(-score)
		}
		z[0] = logistic(score)
		return softplus(score)
	}
	top := floats.Max(z)
	at, sum := z[y]-top, 0.0
	for c, v := range z {
		z[c] = math.Exp(v - top)
		sum += z[c]
	}
	for c := range z {
		z[c] /= sum
	}
	z[y]--
	return math.Log(sum) - at
}

// softplus is log(1+exp(s)) without overflow.
func softplus(s float64) float64 { return math.Max(s, 0) + math.Log1p(math.Exp(-math.Abs(s))) }

func logistic(s float64) float64 {
	if s >= 0 {
		return 1 / (1 + math.Exp(-s))
	}
	e := math.Exp(s)
	return e / (1 + e)
}

// gap bounds (value − minimum)/value for a function with this gradient that
// curves upwards by at least penalty in every direction (Boyd and Vandenberghe,
// Convex Optimization, 9.1.2). The intercepts are not penalised, but curve more
// than the penalty in all but degenerate problems.
func gap(value float64, gradient []float64, penalty float64) float64 {
	return floats.Dot(gradient, gradient) / (2 * penalty * value)
}

// gapConverger ends the optimiser at a gap.
type gapConverger struct{ tol, penalty float64 }

func (gapConverger) Init(int) {}

func (c gapConverger) Converged(l *optimize.Location) optimize.Status {
	if gap(l.F, l.Gradient, c.penalty) <= c.tol {
		return optimize.GradientThreshold
	}
	return optimize.NotTerminated
}

// restarts is how often a line search that found no better point may be
// followed by a fresh start there, without the history of curvature.
const restarts = 3

// minimise returns the model in the coordinates of p.rows.
func (p *problem) minimise(ctx context.Context, opt Options) (*Model, error) {
	m := &Model{}
	x := p.first
	for try := 0; ; try++ {
		p.evaluate(x)
		if !finite(p.value) {
			return nil, fmt.Errorf("linear: the objective is %v at the start; the features or the model to start from are too large", p.value)
		}
		m.Gap = gap(p.value, p.gradient, p.penalty)
		m.Converged = m.Gap <= opt.Tol
		if m.Converged || m.Iterations >= opt.MaxIter || try > restarts {
			break
		}
		before := p.value
		result, err := optimize.Minimize(
			optimize.Problem{
				Func: func(x []float64) float64 { p.evaluate(x); return p.value },
				Grad: func(g, x []float64) { p.evaluate(x); copy(g, p.gradient) },
				Status: func() (optimize.Status, error) {
					if err := ctx.Err(); err != nil {
						return optimize.Failure, err
					}
					return optimize.NotTerminated, nil
				},
			}, x,
			&optimize.Settings{Converger: gapConverger{opt.Tol, p.penalty}, MajorIterations: opt.MaxIter - m.Iterations},
			&optimize.LBFGS{Store: 10, GradStopThreshold: math.NaN(),
				// Moré and Thuente's conditions with the constants of Nocedal and Wright, Numerical Optimization, 3.1.
				Linesearcher: &optimize.MoreThuente{DecreaseFactor: 1e-4, CurvatureFactor: 0.9}})
		if ctx.Err() != nil {
			return nil, fmt.Errorf("linear: fitting %d samples of %d features: %w", p.n, p.d, ctx.Err())
		}
		if result == nil {
			return nil, fmt.Errorf("linear: fitting %d samples of %d features: %w", p.n, p.d, err)
		}
		m.Iterations += max(1, result.MajorIterations)
		if result.F < before {
			x = result.X
		} else {
			try = restarts // no progress from a fresh start: this is what the arithmetic can do
		}
	}
	m.Objective = p.value / p.penalty
	for c := range p.k {
		m.W = append(m.W, append([]float64(nil), p.x[c*p.d:(c+1)*p.d]...))
	}
	m.B = append(m.B, p.x[p.k*p.d:]...)
	return m, nil
}
