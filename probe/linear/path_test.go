package linear

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// states returns n samples of d features with a decaying spectrum, as hidden
// states have, and labels that a few of them carry.
func states(n, d, classes int, seed uint64) (*Dense32, []int) {
	rng := rand.New(rand.NewPCG(seed, 7))
	data, y := make([]float32, n*d), make([]int, n)
	for i := range n {
		y[i] = i % classes
		for j := range d {
			v := rng.NormFloat64() / math.Sqrt(1+float64(j)/4)
			if j%classes == y[i] && j < 4*classes {
				v += 0.5
			}
			data[i*d+j] = float32(v)
		}
	}
	x, err := NewDense32(n, d, data)
	if err != nil {
		panic(err)
	}
	return x, y
}

func firstAndRest(n, train int) (a, b []int) {
	for i := range n {
		if i < train {
			a = append(a, i)
		} else {
			b = append(b, i)
		}
	}
	return a, b
}

func shuffledLabels(y []int, seed uint64) []int {
	s := slices.Clone(y)
	rand.New(rand.NewPCG(seed, 9)).Shuffle(len(s), func(i, j int) { s[i], s[j] = s[j], s[i] })
	return s
}

// Every fit of a path must be the fit that Design makes alone in double
// precision, whichever way its products go.
func TestPathAgreesWithSingleFits(t *testing.T) {
	for _, tt := range []struct {
		n, train, d, classes int
		gram                 bool
	}{
		{90, 70, 300, 3, true}, {90, 70, 20, 3, false}, {90, 70, 300, 2, true}, {90, 70, 20, 2, false}, {60, 45, 120, 5, true},
	} {
		t.Run(fmt.Sprintf("%d by %d, %d classes", tt.train, tt.d, tt.classes), func(t *testing.T) {
			x, y := states(tt.n, tt.d, tt.classes, 3)
			train, test := firstAndRest(tt.n, tt.train)
			part, err := NewPart(t.Context(), x, train, test)
			if err != nil {
				t.Fatal(err)
			}
			if (part.gram != nil) != tt.gram {
				t.Fatalf("a Gram matrix is there: %v, want %v", part.gram != nil, tt.gram)
			}
			sets := []Labels{{Y: y}, {Y: shuffledLabels(y, 1)}}
			cs := []float64{1, 0.001, 0.03} // not in order
			fits, err := part.Path(t.Context(), sets, tt.classes, cs, PathOptions{Tol: 1e-9})
			if err != nil {
				t.Fatal(err)
			}
			wide, err := NewDense(tt.n, tt.d, float64s(x))
			if err != nil {
				t.Fatal(err)
			}
			z, err := part.Standardiser().Apply(wide)
			if err != nil {
				t.Fatal(err)
			}
			for s, labels := range sets {
				for k, c := range cs {
					got := fits[s][k]
					want, err := Fit(t.Context(), z.Take(train), At(labels.Y, train), tt.classes, Options{C: c, Tol: 1e-11})
					if err != nil {
						t.Fatal(err)
					}
					if !got.Converged || got.C != c {
						t.Errorf("set %d, C %v: C %v, converged %v, gap %g", s, c, got.C, got.Converged, got.Gap)
					}
					near(t, fmt.Sprintf("set %d, C %v: objective ratio", s, c), got.Objective/want.Objective, 1, 1e-6)
					held, err := want.Predict(z.Take(test))
					if err != nil {
						t.Fatal(err)
					}
					m, err := got.Model()
					if err != nil {
						t.Fatal(err)
					}
					raw, err := m.Predict(x.Take(test))
					if err != nil {
						t.Fatal(err)
					}
					for i := range held.P {
						near(t, "held-out probability", got.Held.P[i], held.P[i], 2e-3)
						near(t, "probability from raw features", raw.P[i], got.Held.P[i], 1e-4)
					}
				}
			}
		})
	}
}

func float64s(x *Dense32) []float64 {
	var out []float64
	for _, row := range x.rows {
		for _, v := range row {
			out = append(out, float64(v))
		}
	}
	return out
}

// An offset that already knows the answer leaves nothing to fit; without signal
// in it the fit does what it does without one.
func TestOffset(t *testing.T) {
	for _, classes := range []int{2, 3} {
		x, y := states(90, 40, classes, 5)
		train, test := firstAndRest(90, 70)
		part, err := NewPart(t.Context(), x, train, test)
		if err != nil {
			t.Fatal(err)
		}
		known, constant := make([]float64, 90*classes), make([]float64, 90*classes)
		for i, c := range y {
			known[i*classes+c] = 20
			for k := range classes {
				constant[i*classes+k] = float64(k)
			}
		}
		fits, err := part.Path(t.Context(), []Labels{{Y: y}, {y, known}, {y, constant}}, classes, []float64{0.1}, PathOptions{Tol: 1e-9})
		if err != nil {
			t.Fatal(err)
		}
		if v := fits[1][0].Objective; v > 1e-6 {
			t.Errorf("%d classes: objective %g beside an offset that knows the label, want 0", classes, v)
		}
		near(t, "objective beside a constant offset", fits[2][0].Objective, fits[0][0].Objective, 1e-5)
		for i := range fits[0][0].Held.P {
			near(t, "held-out probability beside a constant offset", fits[2][0].Held.P[i], fits[0][0].Held.P[i], 1e-3)
		}
	}
}

func TestPartNamesWhatItCannotUse(t *testing.T) {
	x, y := states(30, 10, 3, 1)
	train, test := firstAndRest(30, 20)
	for _, row := range []int{3, 25} { // in the training part, and held out
		bad, err := NewDense32(30, 10, slices.Concat(x.rows...))
		if err != nil {
			t.Fatal(err)
		}
		bad.rows[row][4] = float32(math.NaN())
		var value *ValueError
		if _, err := NewPart(t.Context(), bad, train, test); !errors.As(err, &value) || value.Row != row || value.Col != 4 {
			t.Errorf("a NaN in row %d, column 4: error %v", row, err)
		}
	}
	part, err := NewPart(t.Context(), x, train, test)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := part.Path(t.Context(), []Labels{{Y: make([]int, 30)}}, 3, []float64{1}, PathOptions{}); !errors.Is(err, ErrClasses) {
		t.Errorf("one class only: error %v, want ErrClasses", err)
	}
	for _, c := range []float64{0, -1, math.Inf(1), math.NaN()} {
		if _, err := part.Path(t.Context(), []Labels{{Y: y}}, 3, []float64{c}, PathOptions{}); err == nil {
			t.Errorf("C = %v was accepted", c)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := part.Path(ctx, []Labels{{Y: y}}, 3, []float64{1}, PathOptions{}); !errors.Is(err, context.Canceled) {
		t.Errorf("a cancelled fit: error %v", err)
	}
}

// The job of testdata/bench_sklearn.py for one layer: 5 folds, 3 values of C,
// true, shuffled and control labels; 1,503 samples of 4,096 features.
func BenchmarkPath(b *testing.B) {
	x, y := states(1503, 4096, 3, 1)
	folds := make([]int, len(y))
	for i := range folds {
		folds[i] = i / 3 % 5
	}
	sets := []Labels{{Y: y}, {Y: shuffledLabels(y, 1)}, {Y: shuffledLabels(y, 2)}}
	iterations := 0
	for b.Loop() {
		for f := range 5 {
			train, test := Split(folds, f)
			part, err := NewPart(b.Context(), x, train, test)
			if err != nil {
				b.Fatal(err)
			}
			fits, err := part.Path(b.Context(), sets, 3, []float64{0.001, 0.03, 1}, PathOptions{})
			if err != nil {
				b.Fatal(err)
			}
			for _, fits := range fits {
				for _, f := range fits {
					iterations += f.Iterations
				}
			}
		}
	}
	b.ReportMetric(float64(iterations)/45/float64(b.N), "iterations/fit")
}
