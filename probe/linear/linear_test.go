package linear

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
)

func TestGradientIsTheSlopeOfTheObjective(t *testing.T) {
	for _, classes := range []int{2, 4} {
		x, y := drawn(t, 20, 5, classes, 3)
		weights := make([]float64, len(y))
		for i := range weights {
			weights[i] = float64(i%3) + 0.5
		}
		p := newProblem(x, y, weights, classes, 0.7)
		rng := rand.New(rand.NewPCG(1, 1))
		at := make([]float64, len(p.first))
		for i := range at {
			at[i] = rng.NormFloat64()
		}
		p.evaluate(at)
		gradient := slices.Clone(p.gradient)
		const h = 1e-6
		for i := range at {
			up, down := slices.Clone(at), slices.Clone(at)
			up[i], down[i] = at[i]+h, at[i]-h
			p.evaluate(up)
			slope := p.value
			p.evaluate(down)
			slope = (slope - p.value) / (2 * h)
			near(t, "slope", gradient[i], slope, 1e-8)
		}
	}
}

func TestEvaluationDoesNotAllocate(t *testing.T) {
	p := readGolden(t).Problems[0]
	train, _ := p.split()
	for name, rows := range map[string]Rows{"dense": denseOf(t, p.X).Take(train), "sparse": sparseOf(t, p.X).Take(train)} {
		q := newProblem(rows, At(p.Y, train), make([]float64, p.Train), p.Classes, 1)
		for i := range q.weights {
			q.weights[i] = 1 / float64(p.Train)
		}
		x := make([]float64, len(q.first))
		if n := testing.AllocsPerRun(10, func() { x[0]++; q.evaluate(x) }); n != 0 {
			t.Errorf("%s: %v allocations an evaluation", name, n)
		}
	}
}

func TestSpanIsExact(t *testing.T) {
	for _, p := range readGolden(t).Problems {
		if !strings.HasPrefix(p.Name, "wider") {
			continue
		}
		t.Run(p.Name, func(t *testing.T) {
			train, test := p.split()
			x := denseOf(t, p.X)
			wide := x.Take(train).(*Dense)
			prepared, err := Prepare(t.Context(), wide)
			if err != nil {
				t.Fatal(err)
			}
			if n, r := prepared.rows.Dims(); prepared.span == nil || r > n {
				t.Fatalf("%d samples of %d features are still %d wide", n, len(p.X[0]), r)
			}
			opt := Options{C: p.C, Weights: p.Weights, Tol: 1e-12}
			a, err := prepared.Fit(t.Context(), At(p.Y, train), p.Classes, opt)
			if err != nil {
				t.Fatal(err)
			}
			b, err := direct(wide).Fit(t.Context(), At(p.Y, train), p.Classes, opt)
			if err != nil {
				t.Fatal(err)
			}
			near(t, "objective", a.Objective/b.Objective, 1, 1e-10)
			pa, err := a.Predict(x.Take(test))
			if err != nil {
				t.Fatal(err)
			}
			pb, err := b.Predict(x.Take(test))
			if err != nil {
				t.Fatal(err)
			}
			for i := range pa.P {
				near(t, "probability", pa.P[i], pb.P[i], 1e-4)
			}
			// The weights of the features must have the objective of the coordinates.
			q := newProblem(wide, At(p.Y, train), slices.Repeat([]float64{1}, p.Train), p.Classes, p.C)
			if p.Weights != nil {
				q = newProblem(wide, At(p.Y, train), slices.Clone(p.Weights), p.Classes, p.C)
			}
			q.evaluate(slices.Concat(slices.Concat(a.W...), a.B))
			near(t, "objective over the features", q.value/q.penalty/a.Objective, 1, 1e-10)
		})
	}
}

func TestWideProblemOfLowRank(t *testing.T) {
	x, y := drawn(t, 12, 40, 3, 9)
	for _, tt := range []struct {
		name string
		rank int
		edit func(rows [][]float64)
	}{
		{"repeated rows", 6, func(r [][]float64) {
			for i := range 6 {
				copy(r[i+6], r[i])
			}
		}},
		{"all zero", 0, func(r [][]float64) {
			for _, row := range r {
				clear(row)
			}
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tt.edit(x.rows)
			d, err := Prepare(t.Context(), x)
			if err != nil {
				t.Fatal(err)
			}
			if _, r := d.rows.Dims(); r != tt.rank {
				t.Errorf("rank %d, want %d", r, tt.rank)
			}
			a, err := d.Fit(t.Context(), y, 3, Options{})
			if err != nil {
				t.Fatal(err)
			}
			b, err := direct(x).Fit(t.Context(), y, 3, Options{})
			if err != nil {
				t.Fatal(err)
			}
			near(t, "objective", a.Objective, b.Objective, 1e-6*b.Objective)
		})
	}
}

func TestWeightsCountSamples(t *testing.T) {
	x, y := drawn(t, 40, 3, 3, 5)
	fit := func(rows []int, weights []float64) *Model {
		m, err := Fit(t.Context(), x.Take(rows), At(y, rows), 3, Options{Weights: weights, Tol: 1e-12})
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	var once, twice []int
	weights := make([]float64, 40)
	for i := range 40 {
		once = append(once, i)
		weights[i] = float64(i % 3) // 0 leaves the sample out
		for range i % 3 {
			twice = append(twice, i)
		}
	}
	// i%3 is also the label: shift it, so that no class is left out.
	for i := range y {
		y[i] = i / 2 % 3
	}
	a, b := fit(once, weights), fit(twice, nil)
	near(t, "objective", a.Objective, b.Objective, 1e-9*b.Objective)
}

func TestWarmStart(t *testing.T) {
	for _, d := range []int{5, 60} {
		x, y := drawn(t, 30, d, 3, 7)
		cold, err := Fit(t.Context(), x, y, 3, Options{})
		if err != nil {
			t.Fatal(err)
		}
		warm, err := Fit(t.Context(), x, y, 3, Options{Warm: cold, Tol: 2e-8})
		if err != nil {
			t.Fatal(err)
		}
		if warm.Iterations != 0 {
			t.Errorf("d = %d: %d iterations from the optimum, want 0", d, warm.Iterations)
		}
		near(t, "objective", warm.Objective, cold.Objective, 1e-9*cold.Objective)
	}
}

// Layers and folds are fitted in parallel on one design; every fit must give
// the same bits.
func TestParallelFitsAreEqual(t *testing.T) {
	x, y := drawn(t, 30, 50, 3, 11)
	d, err := Prepare(t.Context(), x)
	if err != nil {
		t.Fatal(err)
	}
	models := make([]*Model, 8)
	var wg sync.WaitGroup
	for i := range models {
		wg.Go(func() { models[i], _ = d.Fit(t.Context(), y, 3, Options{}) })
	}
	wg.Wait()
	for i, m := range models {
		if m == nil || !slices.Equal(slices.Concat(m.W...), slices.Concat(models[0].W...)) {
			t.Errorf("fit %d differs from fit 0", i)
		}
	}
}

func TestExtremeFeaturesStayFinite(t *testing.T) {
	x, err := NewDense(4, 1, []float64{-1e8, -1e7, 1e7, 1e8})
	if err != nil {
		t.Fatal(err)
	}
	for classes, y := range map[int][]int{2: {0, 0, 1, 1}, 3: {0, 0, 1, 2}} {
		m, err := Fit(t.Context(), x, y, classes, Options{C: 1e6})
		if err != nil {
			t.Fatal(err)
		}
		p, err := m.Predict(x)
		if err != nil {
			t.Fatal(err)
		}
		for i := range p.Len() {
			sum := 0.0
			for _, v := range p.Row(i) {
				sum += v
			}
			near(t, "sum of probabilities", sum, 1, 1e-12)
		}
	}
	near(t, "loss of a certain and right score", residuals([]float64{1000}, 1), 0, 0)
	near(t, "loss of a certain and wrong score", residuals([]float64{1000}, 0), 1000, 1e-9)
	near(t, "loss among three", residuals([]float64{0, 1000, 0}, 0), 1000, 1e-9)
}

func TestFitRefuses(t *testing.T) {
	good := []float64{0, 1, 2, 3, 4, 5, 6, 7}
	with := func(at int, v float64) []float64 { b := slices.Clone(good); b[at] = v; return b }
	warm := &Model{Classes: 2, W: [][]float64{{1}}, B: []float64{0}}
	for _, tt := range []struct {
		name    string
		data    []float64
		y       []int
		classes int
		opt     Options
		want    string
	}{
		{"NaN", with(5, math.NaN()), []int{0, 1, 0, 1}, 2, Options{}, "row 2, column 1 is NaN"},
		{"Inf", with(6, math.Inf(-1)), []int{0, 1, 0, 1}, 2, Options{}, "row 3, column 0 is -Inf"},
		{"one class asked for", good, []int{0, 0, 0, 0}, 1, Options{}, "at least 2"},
		{"one class present", good, []int{1, 1, 1, 1}, 2, Options{}, "class 0 of 2 in 4 samples"},
		{"class of weight 0", good, []int{0, 1, 0, 1}, 2, Options{Weights: []float64{1, 0, 1, 0}}, "class 1 of 2"},
		{"label too large", good, []int{0, 1, 2, 1}, 2, Options{}, "label 2 of sample 2"},
		{"label below 0", good, []int{0, 1, 0, -1}, 2, Options{}, "label -1 of sample 3"},
		{"too few labels", good, []int{0, 1}, 2, Options{}, "2 labels for 4 samples"},
		{"too few weights", good, []int{0, 1, 0, 1}, 2, Options{Weights: []float64{1}}, "1 weights for 4 samples"},
		{"weight below 0", good, []int{0, 1, 0, 1}, 2, Options{Weights: []float64{1, 1, -1, 1}}, "weight of sample 2 is -1"},
		{"C below 0", good, []int{0, 1, 0, 1}, 2, Options{C: -1}, "C is -1"},
		{"C is NaN", good, []int{0, 1, 0, 1}, 2, Options{C: math.NaN()}, "C is NaN"},
		{"no samples", nil, nil, 2, Options{}, "no samples"},
		{"start of another shape", good, []int{0, 1, 0, 1}, 2, Options{Warm: warm}, "1 weights a class for 2 features"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			x, err := NewDense(len(tt.data)/2, 2, tt.data)
			if err != nil {
				t.Fatal(err)
			}
			if _, err = Fit(t.Context(), x, tt.y, tt.classes, tt.opt); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want one that says %q", err, tt.want)
			}
		})
	}
	t.Run("sparse NaN", func(t *testing.T) {
		x, err := NewSparse(9, []int{0, 1, 2}, []int{3, 7}, []float64{1, math.NaN()})
		if err != nil {
			t.Fatal(err)
		}
		var at *ValueError
		if _, err := Fit(t.Context(), x, []int{0, 1}, 2, Options{}); !errors.As(err, &at) || at.Row != 1 || at.Col != 7 {
			t.Errorf("error %v, want a ValueError at row 1, column 7", err)
		}
	})
	t.Run("cancelled", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		for _, d := range []int{5, 60} {
			x, y := drawn(t, 30, d, 3, 1)
			if _, err := Fit(ctx, x, y, 3, Options{}); !errors.Is(err, context.Canceled) {
				t.Errorf("d = %d: error %v, want context.Canceled", d, err)
			}
		}
	})
	t.Run("out of iterations", func(t *testing.T) {
		x, y := drawn(t, 60, 5, 3, 1)
		m, err := Fit(t.Context(), x, y, 3, Options{MaxIter: 1})
		if err != nil || m.Converged {
			t.Errorf("model %+v, error %v; want a model that says it has not converged", m, err)
		}
	})
}

func TestMatricesRefuse(t *testing.T) {
	if _, err := NewDense(2, 2, make([]float64, 3)); err == nil {
		t.Error("3 values made a matrix of 2 by 2")
	}
	for name, x := range map[string]struct {
		start, index []int
	}{
		"no start":         {nil, nil},
		"short start":      {[]int{0, 1}, []int{0, 1}},
		"start goes back":  {[]int{0, 2, 1, 2}, []int{0, 1}},
		"start runs ahead": {[]int{0, 5, 2}, []int{0, 1}},
		"column too large": {[]int{0, 2}, []int{0, 2}},
		"column below 0":   {[]int{0, 2}, []int{0, -1}},
	} {
		if _, err := NewSparse(2, x.start, x.index, make([]float64, len(x.index))); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func TestPredictRefusesOtherFeatures(t *testing.T) {
	x, y := drawn(t, 30, 4, 3, 1)
	m, err := Fit(t.Context(), x, y, 3, Options{})
	if err != nil {
		t.Fatal(err)
	}
	other, _ := drawn(t, 30, 5, 3, 1)
	if _, err := m.Predict(other); err == nil {
		t.Error("a model of 4 features predicted from 5")
	}
	if _, err := new(Model).Predict(x); err == nil {
		t.Error("an empty model predicted")
	}
}

func TestScoreFacts(t *testing.T) {
	p := &Predictions{Classes: 3, P: []float64{
		1, 0, 0,
		0, 1, 0,
		0.5, 0.5, 0, // a tie goes to the lowest class
	}}
	s, err := p.Score([]int{0, 0, 0})
	if err != nil {
		t.Fatal(err)
	}
	near(t, "accuracy", s.Accuracy, 2.0/3, 1e-15)
	near(t, "macro F1", s.MacroF1, (2*2.0/(2+3)+0)/2, 1e-15) // class 2 occurs nowhere
	near(t, "Brier", s.Brier, (0+2+0.5)/3, 1e-15)
	near(t, "log-loss", s.LogLoss, (0+52*math.Ln2+math.Ln2)/3, 1e-12)
	for name, y := range map[string][]int{"too few": {0}, "too large": {0, 1, 3}, "below 0": {0, 1, -1}} {
		if _, err := p.Score(y); err == nil {
			t.Errorf("labels %s: no error", name)
		}
	}
}

func TestStandardiser(t *testing.T) {
	x, err := NewDense(4, 3, []float64{
		1e9 + 1, 5, 0.1,
		1e9 + 3, 5, 0.1,
		1e9 + 5, 5, 0.1,
		-7, 9, 400, // held out
	})
	if err != nil {
		t.Fatal(err)
	}
	s, err := FitStandardiser(x, []int{0, 1, 2})
	if err != nil {
		t.Fatal(err)
	}
	z, err := s.Apply(x)
	if err != nil {
		t.Fatal(err)
	}
	near(t, "large mean, first row", z.Row(0)[0], -math.Sqrt(1.5), 1e-12)
	near(t, "large mean, second row", z.Row(1)[0], 0, 1e-12)
	near(t, "constant feature", z.Row(0)[1], 0, 0)
	near(t, "constant feature, held out", z.Row(3)[1], 4, 0)
	near(t, "scale of a constant that is not a binary fraction", s.Scale[2], 1, 0)

	narrow, err := NewDense(1, 1, []float64{1})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Apply(narrow); err == nil {
		t.Error("a standardiser of 3 features was applied to 1")
	}
	if _, err := FitStandardiser(x, nil); err == nil {
		t.Error("a standardiser was fitted on no rows")
	}
}

func TestRawModelSaysTheSame(t *testing.T) {
	for _, classes := range []int{2, 3} {
		x, y := drawn(t, 40, 6, classes, 2)
		for _, row := range x.rows {
			row[2] = 1000 + 50*row[2]
		}
		s, err := FitStandardiser(x, []int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11})
		if err != nil {
			t.Fatal(err)
		}
		z, err := s.Apply(x)
		if err != nil {
			t.Fatal(err)
		}
		m, err := Fit(t.Context(), z, y, classes, Options{})
		if err != nil {
			t.Fatal(err)
		}
		raw, err := s.Raw(m)
		if err != nil {
			t.Fatal(err)
		}
		want, err := m.Predict(z)
		if err != nil {
			t.Fatal(err)
		}
		got, err := raw.Predict(x)
		if err != nil {
			t.Fatal(err)
		}
		for i := range want.P {
			near(t, "probability", got.P[i], want.P[i], 1e-10)
		}
	}
}
