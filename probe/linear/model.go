package linear

import (
	"fmt"
	"math"
)

// Model is a fitted classifier.
type Model struct {
	Classes int `json:"classes"`
	// W holds Classes rows of d weights; for two classes a single row, for the
	// log-odds of class 1 (as scikit-learn's coef_).
	W [][]float64 `json:"w"`
	B []float64   `json:"b"` // one intercept a row of W

	Objective  float64 `json:"objective"`  // ½‖W‖² + C·Σ weight·logloss, in nats
	Iterations int     `json:"iterations"` // of L-BFGS
	Gap        float64 `json:"gap"`        // bound of (Objective − minimum)/Objective, see Options.Tol
	Converged  bool    `json:"converged"`  // Gap is at most Options.Tol
}

// fits returns an error unless the model has this shape.
func (m *Model) fits(classes, d int) error {
	k := classes
	if k == 2 {
		k = 1
	}
	if classes < 2 || m.Classes != classes || len(m.W) != k || len(m.B) != k {
		return fmt.Errorf("it tells %d classes apart with %d weight vectors and %d intercepts, not %d classes", m.Classes, len(m.W), len(m.B), classes)
	}
	for _, w := range m.W {
		if len(w) != d {
			return fmt.Errorf("it has %d weights a class for %d features", len(w), d)
		}
	}
	return nil
}

// Predict returns the probabilities of every class for every row of x.
func (m *Model) Predict(x Rows) (*Predictions, error) {
	n, d := x.Dims()
	if err := m.fits(m.Classes, d); err != nil {
		return nil, fmt.Errorf("linear: predicting with a model: %w", err)
	}
	if err := x.Check(); err != nil {
		return nil, fmt.Errorf("linear: predicting: %w", err)
	}
	p := &Predictions{Classes: m.Classes, P: make([]float64, n*m.Classes)}
	for i := range n {
		row := p.Row(i)
		for c, w := range m.W {
			row[c] = x.Dot(i, w) + m.B[c]
		}
		if m.Classes == 2 {
			row[0], row[1] = logistic(-row[0]), logistic(row[0])
		} else {
			softmax(row)
		}
	}
	return p, nil
}

func softmax(z []float64) {
	top, sum := math.Inf(-1), 0.0
	for _, v := range z {
		top = math.Max(top, v)
	}
	for c, v := range z {
		z[c] = math.Exp(v - top)
		sum += z[c]
	}
	for c := range z {
		z[c] /= sum
	}
}

// Predictions are the probabilities of Classes classes for n samples, row-major.
type Predictions struct {
	Classes int
	P       []float64
}

// Len returns the number of samples.
func (p *Predictions) Len() int { return len(p.P) / max(1, p.Classes) }

// Row returns the probabilities of sample i.
func (p *Predictions) Row(i int) []float64 { return p.P[i*p.Classes : (i+1)*p.Classes] }

// Argmax returns the most probable class of sample i, the lowest of equals.
func (p *Predictions) Argmax(i int) int {
	at := 0
	for c, v := range p.Row(i) {
		if v > p.Row(i)[at] {
			at = c
		}
	}
	return at
}

// Score says how good predictions are.
type Score struct {
	N        int     `json:"n"`
	Accuracy float64 `json:"accuracy"` // 0..1
	// MacroF1 is the mean F1 of the classes that occur as label or prediction,
	// 0..1; a class that is never hit has F1 0.
	MacroF1 float64 `json:"macro_f1"`
	// LogLoss is the mean of -ln p(label) in nats; p is held within 2⁻⁵² of 0 and
	// 1, so that one certain error does not make it infinite.
	LogLoss float64 `json:"log_loss"`
	// Brier is the mean squared distance of the probabilities from the label's
	// indicator, summed over all classes: 0..2 (Brier 1950), for two classes too.
	Brier float64 `json:"brier"`
}

// Score compares the predictions with the labels y. An error says which label
// cannot be compared.
func (p *Predictions) Score(y []int) (Score, error) {
	n := p.Len()
	if len(y) != n || n == 0 {
		return Score{}, fmt.Errorf("linear: scoring %d predictions with %d labels; there must be as many, and at least one", n, len(y))
	}
	s := Score{N: n}
	hit, guessed, meant := make([]int, p.Classes), make([]int, p.Classes), make([]int, p.Classes)
	const eps = 0x1p-52
	for i, label := range y {
		if label < 0 || label >= p.Classes {
			return Score{}, fmt.Errorf("linear: scoring: label %d of sample %d is not in 0..%d", label, i, p.Classes-1)
		}
		for c, v := range p.Row(i) {
			if c == label {
				s.LogLoss -= math.Log(math.Min(math.Max(v, eps), 1-eps))
				v--
			}
			s.Brier += v * v
		}
		guess := p.Argmax(i)
		guessed[guess]++
		meant[label]++
		if guess == label {
			hit[label]++
			s.Accuracy++
		}
	}
	occurring := 0
	for c := range hit {
		if guessed[c]+meant[c] > 0 {
			occurring++
			s.MacroF1 += 2 * float64(hit[c]) / float64(guessed[c]+meant[c])
		}
	}
	s.MacroF1 /= float64(occurring)
	s.Accuracy /= float64(n)
	s.LogLoss /= float64(n)
	s.Brier /= float64(n)
	return s, nil
}
