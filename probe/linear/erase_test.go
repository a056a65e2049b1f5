package linear

import (
	"encoding/json"
	"errors"
	"math"
	"math/rand/v2"
	"os"
	"testing"
)

// erasure is a problem of testdata/leace.json and what concept-erasure 0.2.4 makes of it.
type erasure struct {
	Name          string
	N, D, Classes int
	X, Other      []float64
	Y             []int
	Erased        []float64
	OtherErased   []float64 `json:"other_erased"`
}

func narrowed(values []float64) []float32 {
	out := make([]float32, len(values))
	for i, v := range values {
		out[i] = float32(v)
	}
	return out
}

func mustErase(t *testing.T, values []float64, y []int, classes int) *Erasure {
	t.Helper()
	x, err := NewDense32(len(y), len(values)/len(y), narrowed(values))
	if err != nil {
		t.Fatal(err)
	}
	e, err := Erase(t.Context(), x, y, classes)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// applied erases every row of d values.
func applied(e *Erasure, values []float64, d int) []float64 {
	out := append([]float64(nil), values...)
	for at := 0; at < len(out); at += d {
		e.Apply(out[at : at+d])
	}
	return out
}

func furthest(a, b []float64) float64 {
	most := 0.0
	for i := range a {
		most = math.Max(most, math.Abs(a[i]-b[i]))
	}
	return most
}

func TestEraseIsLEACE(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("testdata/leace.json")
	if err != nil {
		t.Fatal(err)
	}
	var problems []erasure
	if err := json.Unmarshal(text, &problems); err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		e := mustErase(t, p.X, p.Y, p.Classes)
		if len(e.U) != p.Classes-1 {
			t.Errorf("%s: rank %d, want %d", p.Name, len(e.U), p.Classes-1)
		}
		if far := furthest(applied(e, p.X, p.D), p.Erased); far > 1e-4 {
			t.Errorf("%s: %g from the package on its own rows", p.Name, far)
		}
		if far := furthest(applied(e, p.Other, p.D), p.OtherErased); far > 1e-4 {
			t.Errorf("%s: %g from the package on other rows", p.Name, far)
		}
	}
}

// drawErasure draws n rows of d values whose first values depend on the class.
func drawErasure(n, d int) (values []float64, y []int) {
	rng := rand.New(rand.NewPCG(1, 2))
	for i := range n {
		y = append(y, i%3)
		for j := range d {
			v := rng.NormFloat64() * (1 + 20*float64(j%7))
			if j < 3 {
				v += 3 * float64((i+j)%3)
			}
			values = append(values, float64(float32(v)))
		}
	}
	return values, y
}

// TestErasedClassesAreAlike: class means are equal, a classifier does no better than the
// class frequencies, and what is erased stays as it is.
func TestErasedClassesAreAlike(t *testing.T) {
	t.Parallel()
	for _, shape := range [][2]int{{90, 12}, {60, 200}} {
		n, d := shape[0], shape[1]
		values, y := drawErasure(n, d)
		e := mustErase(t, values, y, 3)
		once := applied(e, values, d)
		for class := 1; class < 3; class++ {
			if far := furthest(classMeans(once, y, d, 0), classMeans(once, y, d, class)); far > 1e-6 {
				t.Errorf("%d rows of %d: the means of classes 0 and %d differ by %g", n, d, class, far)
			}
		}
		if far := furthest(classMeans(values, y, d, 0), classMeans(values, y, d, 1)); far < 1 {
			t.Errorf("%d rows of %d: the means differ by %g before: nothing was planted", n, d, far)
		}
		if far := furthest(once, applied(e, once, d)); far > 1e-6 {
			t.Errorf("%d rows of %d: the second time moves by %g", n, d, far)
		}
		before, after := trainingLoss(t, values, y, d), trainingLoss(t, once, y, d)
		if chance := math.Log(3); math.Abs(after-chance) > 1e-3 || before > chance-0.1 {
			t.Errorf("%d rows of %d: a probe's log-loss is %g before and %g after; chance is %g", n, d, before, after, chance)
		}
	}
}

func classMeans(values []float64, y []int, d, class int) []float64 {
	out, n := make([]float64, d), 0.0
	for i, c := range y {
		if c == class {
			n++
			for j := range d {
				out[j] += values[i*d+j]
			}
		}
	}
	for j := range out {
		out[j] /= n
	}
	return out
}

// trainingLoss is the log-loss of a probe on the rows that it is fitted to.
func trainingLoss(t *testing.T, values []float64, y []int, d int) float64 {
	t.Helper()
	x, err := NewDense(len(y), d, append([]float64(nil), values...))
	if err != nil {
		t.Fatal(err)
	}
	m, err := Fit(t.Context(), x, y, 3, Options{C: 1})
	if err != nil {
		t.Fatal(err)
	}
	p, err := m.Predict(x)
	if err != nil {
		t.Fatal(err)
	}
	s, err := p.Score(y)
	if err != nil {
		t.Fatal(err)
	}
	return s.LogLoss
}

func TestEraseRefuses(t *testing.T) {
	t.Parallel()
	x, err := NewDense32(3, 2, []float32{1, 2, 3, 4, 5, float32(math.NaN())})
	if err != nil {
		t.Fatal(err)
	}
	var bad *ValueError
	if _, err := Erase(t.Context(), x, []int{0, 1, 2}, 3); !errors.As(err, &bad) || bad.Row != 2 || bad.Col != 1 {
		t.Errorf("NaN: %v", err)
	}
	x, err = NewDense32(3, 2, []float32{1, 2, 3, 4, 5, 6})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Erase(t.Context(), x, []int{1, 1, 1}, 3); !errors.Is(err, ErrClasses) {
		t.Errorf("one class: %v", err)
	}
	if _, err := Erase(t.Context(), x, []int{0, 1, 7}, 3); err == nil {
		t.Error("a label outside the classes is taken")
	}
}

// BenchmarkErase is the size of a large store; testdata/leace.py speed times the package.
func BenchmarkErase(b *testing.B) {
	const n, d = 1500, 4096
	rng := rand.New(rand.NewPCG(1, 2))
	values, y := make([]float32, n*d), make([]int, n)
	for i := range values {
		values[i] = float32(rng.NormFloat64())
	}
	for i := range y {
		y[i] = rng.IntN(3)
	}
	x, err := NewDense32(n, d, values)
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if _, err := Erase(b.Context(), x, y, 3); err != nil {
			b.Fatal(err)
		}
	}
}
