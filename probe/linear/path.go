package linear

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"

	"gonum.org/v1/gonum/floats"
)

// Labels are one set of labels to fit and predict.
type Labels struct {
	Y []int // one a row of the whole matrix, 0..classes-1
	// Offset holds logits that are added to the scores and not fitted, row-major, one
	// row of classes for each row of the whole matrix; nil means none. What a fit
	// gains over an offset is what the features know beyond what made it.
	Offset []float64
}

// PathOptions of a path; the zero value means the defaults.
type PathOptions struct {
	// Tol is the relative distance from the optimum at which a fit ends, 0 means
	// 1e-8: bounded as in Options, or, once a few steps have shown the curvature,
	// estimated with it (half the Newton decrement, Boyd and Vandenberghe 9.5.1).
	Tol     float64
	MaxIter int // most iterations of one fit; 0 means 2000
}

// Fitted is one fit of a path.
type Fitted struct {
	C          float64      `json:"c"`
	Objective  float64      `json:"objective"` // as Model.Objective
	Iterations int          `json:"iterations"`
	Gap        float64      `json:"gap"` // bound or estimate, see PathOptions.Tol
	Converged  bool         `json:"converged"`
	Held       *Predictions `json:"-"` // of the held-out samples, offset included

	part    *Part
	classes int
	w       [][]float32 // of standardised features
	b       []float64
}

// Model returns the classifier of raw features. It does not know the offset.
func (f *Fitted) Model() (*Model, error) {
	m, scale := f.Standardised()
	return scale.Raw(m)
}

// Standardised returns the classifier of standardised features, and what
// standardises them. It does not know the offset.
func (f *Fitted) Standardised() (*Model, *Standardiser) {
	m := &Model{Classes: f.classes, B: f.b, Objective: f.Objective, Iterations: f.Iterations, Gap: f.Gap, Converged: f.Converged}
	for _, w := range f.w {
		row := make([]float64, len(w))
		for j, v := range w {
			row[j] = float64(v)
		}
		m.W = append(m.W, row)
	}
	return m, f.part.scale
}

// Path fits every label set at every C to the training part and returns
// fits[set][k] for cs[k]. The objective is that of (*Design).Fit on standardised
// features. Every product with the Gram matrix serves all sets at once, and each
// C starts where the next smaller one ended.
//
// The optimiser is L-BFGS over sums of samples with the inner product of the
// features: a step needs one product, for the new residuals, and the search along
// a direction none, because its scores are known.
func (p *Part) Path(ctx context.Context, sets []Labels, classes int, cs []float64, opt PathOptions) ([][]*Fitted, error) {
	if opt.Tol == 0 {
		opt.Tol = 1e-8
	}
	if opt.MaxIter == 0 {
		opt.MaxIter = 2000
	}
	if !(opt.Tol > 0) || opt.MaxIter < 0 {
		return nil, fmt.Errorf("linear: Tol is %v and MaxIter %d; they must be above 0", opt.Tol, opt.MaxIter)
	}
	if len(sets) == 0 || len(cs) == 0 {
		return nil, fmt.Errorf("linear: %d label sets and %d values of C; at least one of each is needed", len(sets), len(cs))
	}
	for _, c := range cs {
		if !(c > 0) || math.IsInf(c, 0) {
			return nil, fmt.Errorf("linear: C is %v; it must be above 0 and finite", c)
		}
	}
	descents := make([]*descent, len(sets))
	columns := 0
	for s, labels := range sets {
		var err error
		if descents[s], err = p.newDescent(labels, classes); err != nil {
			return nil, fmt.Errorf("label set %d: %w", s, err)
		}
		columns += descents[s].k
	}
	order := make([]int, len(cs))
	for k := range order {
		order[k] = k
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(cs[a], cs[b]) })

	op := p.newOperator(columns)
	fits := make([][]*Fitted, len(sets))
	sums := make([][]float64, 0, columns*len(cs))
	for s := range fits {
		fits[s] = make([]*Fitted, len(cs))
	}
	for _, k := range order {
		if err := descend(ctx, op, descents, cs[k], opt); err != nil {
			return nil, fmt.Errorf("linear: fitting %d samples of %d features: %w", len(p.train), p.columns.rows, err)
		}
		for s, d := range descents {
			fits[s][k] = &Fitted{C: cs[k], Objective: d.value, Iterations: d.iterations, Gap: d.gap, Converged: d.gap <= opt.Tol,
				part: p, classes: classes, b: slices.Clone(d.at.b)}
			for c := range d.k {
				sums = append(sums, slices.Clone(d.at.a[c*d.n:(c+1)*d.n]))
			}
		}
	}
	p.finish(fits, order, sets, sums)
	return fits, nil
}

// finish computes weights and held-out predictions of all fits in two products.
func (p *Part) finish(fits [][]*Fitted, order []int, sets []Labels, sums [][]float64) {
	w := p.weights(sums)
	scores := p.heldScores(w, len(sums))
	column := 0
	for _, k := range order {
		for s := range fits {
			f := fits[s][k]
			for c := range f.b {
				v := make([]float32, p.columns.rows)
				for j := range v {
					v[j] = w.row(j)[column+c]
				}
				f.w = append(f.w, v)
			}
			f.Held = &Predictions{Classes: f.classes, P: make([]float64, len(p.test)*f.classes)}
			for i, sample := range p.test {
				row := f.Held.Row(i)
				for c, b := range f.b {
					row[c] = float64(scores.row(i)[column+c]) + b + sets[s].offset(sample, c, f.classes)
				}
				if f.classes == 2 {
					row[0], row[1] = logistic(-row[0]), logistic(row[0])
				} else {
					softmax(row)
				}
			}
			column += len(f.b)
		}
	}
}

// offset of score c of a sample: for two classes the only score is the log-odds.
func (l Labels) offset(sample, c, classes int) float64 {
	switch {
	case l.Offset == nil:
		return 0
	case classes == 2:
		return l.Offset[2*sample+1] - l.Offset[2*sample]
	}
	return l.Offset[sample*classes+c]
}

// point is a vector of the search space: k sums of n samples, their products
// with the Gram matrix, and k intercepts.
type point struct{ a, f, b []float64 }

func newPoint(n, k int) point {
	return point{make([]float64, k*n), make([]float64, k*n), make([]float64, k)}
}

// dot is the inner product of the weights and intercepts that the points stand for.
func (p point) dot(q point) float64 { return floats.Dot(p.a, q.f) + floats.Dot(p.b, q.b) }

func (p point) addScaled(s float64, q point) {
	floats.AddScaled(p.a, s, q.a)
	floats.AddScaled(p.f, s, q.f)
	floats.AddScaled(p.b, s, q.b)
}

func (p point) scale(s float64) {
	floats.Scale(s, p.a)
	floats.Scale(s, p.f)
	floats.Scale(s, p.b)
}

func (p point) copy(q point) {
	copy(p.a, q.a)
	copy(p.f, q.f)
	copy(p.b, q.b)
}

// sub sets p to q - r.
func (p point) sub(q, r point) {
	floats.SubTo(p.a, q.a, r.a)
	floats.SubTo(p.f, q.f, r.f)
	floats.SubTo(p.b, q.b, r.b)
}

// memory is the number of steps whose curvature is remembered.
const memory = 10

// descent minimises the objective of one label set.
type descent struct {
	n, k    int
	y       []int
	offset  []float64 // k rows of n
	at      point
	loss    float64
	value   float64
	gap     float64
	slope   float64   // along way
	r, rk   []float64 // residuals at the point, and their products with the Gram matrix
	z       []float64
	trial   []float64 // residuals at a trial step
	trialB  []float64
	g, last point // gradient here and at the last point
	way     point // direction
	s, d    []point
	rho     []float64
	steps   int // remembered
	oldest  int
	fresh   bool // no last gradient

	iterations int
	done       bool
	stuck      bool
}

func (p *Part) newDescent(labels Labels, classes int) (*descent, error) {
	if len(labels.Y) != p.samples {
		return nil, fmt.Errorf("linear: %d labels for %d samples", len(labels.Y), p.samples)
	}
	if labels.Offset != nil && len(labels.Offset) != p.samples*classes {
		return nil, fmt.Errorf("linear: %d offsets for %d samples of %d classes", len(labels.Offset), p.samples, classes)
	}
	y := At(labels.Y, p.train)
	n := len(y)
	weights, err := weigh(n, y, classes, nil)
	if err != nil {
		return nil, err
	}
	k := classes
	if k == 2 {
		k = 1
	}
	t := &descent{n: n, k: k, y: y, at: newPoint(n, k), g: newPoint(n, k), last: newPoint(n, k), way: newPoint(n, k),
		r: make([]float64, n*k), rk: make([]float64, n*k), trial: make([]float64, n*k), z: make([]float64, k), trialB: make([]float64, k),
		rho: make([]float64, memory), offset: make([]float64, n*k)}
	for range memory {
		t.s, t.d = append(t.s, newPoint(n, k)), append(t.d, newPoint(n, k))
	}
	for i, sample := range p.train {
		for c := range k {
			v := labels.offset(sample, c, classes)
			if !finite(v) {
				return nil, fmt.Errorf("linear: the offset of sample %d is %v; it must be finite", sample, v)
			}
			t.offset[c*n+i] = v
		}
	}
	if labels.Offset == nil {
		// Without weights the classes' log-frequencies are the optimum.
		count := make([]float64, classes)
		for i, c := range y {
			count[c] += weights[i]
		}
		mean := 0.0
		for c := range count {
			count[c] = math.Log(count[c])
			mean += count[c] / float64(classes)
		}
		for c := range k {
			if classes == 2 {
				t.at.b[c] = count[1] - count[0]
			} else {
				t.at.b[c] = count[c] - mean
			}
		}
	}
	return t, nil
}

// descend minimises for all label sets at once at one C.
func descend(ctx context.Context, op *operator, descents []*descent, c float64, opt PathOptions) error {
	for _, d := range descents {
		d.iterations, d.done = 0, false
		d.steps, d.fresh, d.stuck = 0, true, false
		d.loss, _, _ = d.along(0, d.r, false)
	}
	var in, out [][]float64
	product := func(of func(*descent) (from, to []float64)) {
		in, out = in[:0], out[:0]
		for _, d := range descents {
			if d.done {
				continue
			}
			from, to := of(d)
			for k := range d.k {
				in, out = append(in, from[k*d.n:(k+1)*d.n]), append(out, to[k*d.n:(k+1)*d.n])
			}
		}
		if len(in) > 0 {
			op.apply(in, out)
		}
	}
	for try := 0; ; try++ {
		for running := true; running; {
			if err := ctx.Err(); err != nil {
				return err
			}
			product(func(d *descent) ([]float64, []float64) { return d.r, d.rk })
			running = false
			for _, d := range descents {
				if !d.done {
					d.step(c, opt)
					running = running || !d.done
				}
			}
		}
		// Scores were carried along; before a fit counts as done they are computed
		// afresh, with what that does to the gradient.
		again := false
		for _, d := range descents {
			d.done = false
		}
		product(func(d *descent) ([]float64, []float64) { return d.at.a, d.at.f })
		for _, d := range descents {
			d.loss, _, _ = d.along(0, d.r, false)
		}
		product(func(d *descent) ([]float64, []float64) { return d.r, d.rk })
		for _, d := range descents {
			d.gradient(c)
			d.aim()
			d.fresh, d.stuck = true, false
			d.done = d.gap <= opt.Tol || d.iterations >= opt.MaxIter
			again = again || !d.done
		}
		if !again || try == restarts {
			return nil
		}
	}
}

// gradient computes it and the value, from residuals and their products.
func (d *descent) gradient(c float64) {
	floats.AddScaledTo(d.g.a, d.at.a, c, d.r)
	floats.AddScaledTo(d.g.f, d.at.f, c, d.rk)
	for k := range d.k {
		d.g.b[k] = c * floats.Sum(d.r[k*d.n:(k+1)*d.n])
	}
	d.value = 0.5*floats.Dot(d.at.a, d.at.f) + c*d.loss
}

// aim finds the direction of the next step, and from it how far the objective is
// above its minimum.
func (d *descent) aim() {
	square := math.Max(0, d.g.dot(d.g))
	d.gap = square / (2 * d.value) // the bound of gap in fit.go
	d.direction()
	d.slope = d.g.dot(d.way)
	if !(d.slope < 0) {
		d.steps = 0
		d.way.copy(d.g)
		d.way.scale(-1)
		d.slope = -square
	}
	if d.steps >= trusted {
		d.gap = math.Min(d.gap, -d.slope/(2*d.value))
	}
}

// trusted is the number of remembered steps from which the curvature that they
// show stands in for the least possible one.
const trusted = 5

// step takes one step of L-BFGS (Nocedal and Wright, Numerical Optimization,
// algorithm 7.4), or finds that none is needed.
func (d *descent) step(c float64, opt PathOptions) {
	d.gradient(c)
	if !d.fresh {
		d.remember()
	}
	d.aim()
	if d.gap <= opt.Tol || d.iterations >= opt.MaxIter || d.stuck {
		d.done = true
		return
	}
	d.last.copy(d.g)
	t := d.search(c, d.slope)
	// The step is remembered where the next difference of gradients will be.
	next := (d.oldest + d.steps) % memory
	s := d.s[next]
	s.copy(d.way)
	s.scale(t)
	d.at.addScaled(1, s)
	d.fresh = false
	d.iterations++
}

// remember completes the pair of the last step with its difference of gradients.
func (d *descent) remember() {
	next := (d.oldest + d.steps) % memory
	d.d[next].sub(d.g, d.last)
	curve := d.s[next].dot(d.d[next])
	if !(curve > 0) {
		return // rounding only: the step tells nothing
	}
	d.rho[next] = 1 / curve
	if d.steps < memory-1 {
		d.steps++
	} else {
		d.oldest = (d.oldest + 1) % memory
	}
}

func (d *descent) direction() {
	q := d.way
	q.copy(d.g)
	var alpha [memory]float64
	for j := d.steps - 1; j >= 0; j-- {
		i := (d.oldest + j) % memory
		alpha[i] = d.rho[i] * d.s[i].dot(q)
		q.addScaled(-alpha[i], d.d[i])
	}
	if d.steps > 0 {
		i := (d.oldest + d.steps - 1) % memory
		q.scale(1 / (d.rho[i] * d.d[i].dot(d.d[i])))
	}
	for j := range d.steps {
		i := (d.oldest + j) % memory
		q.addScaled(alpha[i]-d.rho[i]*d.d[i].dot(q), d.s[i])
	}
	q.scale(-1)
}

// search finds the length of the step: the objective along a line is convex, so
// Newton's method with the bracket that the slopes' signs give cannot fail. It
// leaves the residuals there.
func (d *descent) search(c, slope float64) float64 {
	quadratic := floats.Dot(d.way.a, d.way.f)
	linear := floats.Dot(d.at.a, d.way.f)
	t := 1.0
	if d.steps == 0 {
		_, _, curve := d.along(0, d.trial, true)
		t = -slope / (quadratic + c*curve)
	}
	lo, hi := 0.0, math.Inf(1)
	for range 30 {
		loss, first, second := d.along(t, d.trial, true)
		first = linear + t*quadratic + c*first
		change := t*(linear+t*quadratic/2) + c*(loss-d.loss)
		if math.Abs(first) <= 0.3*math.Abs(slope) && change <= 1e-14*d.value {
			d.loss = loss
			d.r, d.trial = d.trial, d.r
			return t
		}
		if first > 0 || change > 0 {
			hi = t
		} else {
			lo = t
		}
		next := t - first/(quadratic+c*second)
		if !(next > lo && next < hi) {
			if math.IsInf(hi, 1) {
				next = 2 * t
			} else {
				next = (lo + hi) / 2
			}
		}
		t = next
	}
	// The slope is rounding: this is what the arithmetic can do.
	d.stuck = true
	return 0
}

// along returns the loss at a step of t along the way, and leaves the residuals
// there in r; with slopes, also its first and second derivative by t.
func (d *descent) along(t float64, r []float64, slopes bool) (loss, first, second float64) {
	n := d.n
	for i, y := range d.y {
		for k := range d.k {
			d.z[k] = d.at.f[k*n+i] + d.at.b[k] + d.offset[k*n+i] + t*(d.way.f[k*n+i]+d.way.b[k])
		}
		loss += residuals(d.z, y)
		for k, v := range d.z {
			r[k*n+i] = v
		}
		if !slopes {
			continue
		}
		mean, square := 0.0, 0.0
		for k, v := range d.z {
			w := d.way.f[k*n+i] + d.way.b[k]
			first += v * w
			if v < 0 { // only the sample's own class has p-1
				v++
			}
			mean += v * w
			square += v * w * w
		}
		second += square - mean*mean
	}
	return loss, first, second
}
