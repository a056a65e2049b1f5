package linear

import (
	"encoding/json"
	"math"
	"os"
	"slices"
	"testing"
)

// golden is testdata/golden.json: problems and what scikit-learn 1.9.1 finds.
type golden struct {
	Problems []goldenProblem `json:"problems"`
	Paths    []goldenPath    `json:"paths"`
	Texts    []string        `json:"texts"`
	Bags     []struct {
		Bigrams bool        `json:"bigrams"`
		MinDocs int         `json:"min_docs"`
		Binary  bool        `json:"binary"`
		Terms   []string    `json:"terms"`
		Counts  [][]float64 `json:"counts"`
	} `json:"bags"`
}

type goldenProblem struct {
	Name      string      `json:"name"`
	Sparse    bool        `json:"sparse"`
	Classes   int         `json:"classes"`
	C         float64     `json:"c"`
	Train     int         `json:"train"` // the first rows; the others are held out
	X         [][]float64 `json:"x"`
	Y         []int       `json:"y"`
	Weights   []float64   `json:"weights"`
	Objective float64     `json:"objective"`
	Coef      [][]float64 `json:"coef"`
	P         [][]float64 `json:"p"` // of the held-out rows
	Accuracy  float64     `json:"accuracy"`
	MacroF1   float64     `json:"macro_f1"`
	LogLoss   float64     `json:"log_loss"`
	Brier     float64     `json:"brier"`
}

// goldenPath has label sets fitted along a path of C, and a ridge regression.
type goldenPath struct {
	Name    string      `json:"name"`
	Classes int         `json:"classes"`
	Train   int         `json:"train"`
	X       [][]float64 `json:"x"`
	Sets    [][]int     `json:"sets"`
	Fits    []struct {  // by set, then by C
		C         float64     `json:"c"`
		Objective float64     `json:"objective"`
		P         [][]float64 `json:"p"`
	} `json:"fits"`
	Targets [][]float64 `json:"targets"`
	Penalty float64     `json:"penalty"`
	Ridge   [][]float64 `json:"ridge"` // predictions of the held-out rows
}

func (p goldenPath) part(t *testing.T) *Part {
	t.Helper()
	var data []float32
	for _, row := range p.X {
		for _, v := range row {
			data = append(data, float32(v))
		}
	}
	x, err := NewDense32(len(p.X), len(p.X[0]), data)
	if err != nil {
		t.Fatal(err)
	}
	train, test := firstAndRest(len(p.X), p.Train)
	part, err := NewPart(t.Context(), x, train, test)
	if err != nil {
		t.Fatal(err)
	}
	return part
}

func TestPathAgreesWithScikitLearn(t *testing.T) {
	agree, all := 0, 0
	for _, p := range readGolden(t).Paths {
		t.Run(p.Name, func(t *testing.T) {
			var sets []Labels
			for _, y := range p.Sets {
				sets = append(sets, Labels{Y: y})
			}
			per := len(p.Fits) / len(sets)
			var cs []float64
			for _, f := range p.Fits[:per] {
				cs = append(cs, f.C)
			}
			fits, err := p.part(t).Path(t.Context(), sets, p.Classes, cs, PathOptions{})
			if err != nil {
				t.Fatal(err)
			}
			for i, want := range p.Fits {
				got := fits[i/per][i%per]
				if !got.Converged {
					t.Errorf("C = %v: not converged, gap %g", want.C, got.Gap)
				}
				near(t, "objective ratio", got.Objective/want.Objective, 1, 1e-6)
				for k, row := range want.P {
					all++
					if got.Held.Argmax(k) == (&Predictions{Classes: p.Classes, P: row}).Argmax(0) {
						agree++
					}
					for c, v := range row {
						near(t, "held-out probability", got.Held.Row(k)[c], v, 2e-3)
					}
				}
			}
		})
	}
	if float64(agree) < 0.995*float64(all) || all == 0 {
		t.Errorf("%d of %d held-out rows get scikit-learn's class, fewer than 99.5 %%", agree, all)
	}
}

func TestRidgeAgreesWithScikitLearn(t *testing.T) {
	for _, p := range readGolden(t).Paths {
		t.Run(p.Name, func(t *testing.T) {
			fits, err := p.part(t).Ridge(t.Context(), denseOf(t, p.Targets), []float64{1e4, p.Penalty})
			if err != nil {
				t.Fatal(err)
			}
			w, b := fits[1].Weights()
			for i, row := range p.Ridge {
				for k, want := range row {
					near(t, "held-out prediction", fits[1].Held.Row(i)[k], want, 1e-4)
					raw := b[k]
					for j, v := range p.X[p.Train+i] {
						raw += w[k][j] * v
					}
					near(t, "prediction from raw features", raw, want, 1e-3)
				}
			}
		})
	}
}

func readGolden(t testing.TB) golden {
	t.Helper()
	b, err := os.ReadFile("testdata/golden.json")
	if err != nil {
		t.Fatal(err)
	}
	var g golden
	if err := json.Unmarshal(b, &g); err != nil {
		t.Fatal(err)
	}
	return g
}

func denseOf(t testing.TB, x [][]float64) *Dense {
	t.Helper()
	m, err := NewDense(len(x), len(x[0]), slices.Concat(x...))
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func sparseOf(t testing.TB, x [][]float64) *Sparse {
	t.Helper()
	start, index, value := []int{0}, []int{}, []float64{}
	for _, row := range x {
		for j, v := range row {
			if v != 0 {
				index, value = append(index, j), append(value, v)
			}
		}
		start = append(start, len(index))
	}
	m, err := NewSparse(len(x[0]), start, index, value)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func (p goldenProblem) rows(t testing.TB) Rows {
	if p.Sparse {
		return sparseOf(t, p.X)
	}
	return denseOf(t, p.X)
}

// split returns the numbers of the training and of the held-out rows.
func (p goldenProblem) split() (train, test []int) {
	for i := range p.X {
		if i < p.Train {
			train = append(train, i)
		} else {
			test = append(test, i)
		}
	}
	return train, test
}

func (p goldenProblem) fit(t testing.TB, opt Options) *Model {
	t.Helper()
	train, _ := p.split()
	opt.C, opt.Weights = p.C, p.Weights
	m, err := Fit(t.Context(), p.rows(t).Take(train), At(p.Y, train), p.Classes, opt)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func TestFitAgreesWithScikitLearn(t *testing.T) {
	agree, all := 0, 0
	for _, p := range readGolden(t).Problems {
		t.Run(p.Name, func(t *testing.T) {
			m := p.fit(t, Options{})
			if !m.Converged {
				t.Errorf("not converged: gap %g after %d iterations", m.Gap, m.Iterations)
			}
			if diff := math.Abs(m.Objective-p.Objective) / p.Objective; diff > 1e-6 {
				t.Errorf("objective %.12g, scikit-learn has %.12g: relative difference %g", m.Objective, p.Objective, diff)
			}
			for c := range p.Coef {
				for j, want := range p.Coef[c] {
					if math.Abs(m.W[c][j]-want) > 1e-2*math.Max(0.1, math.Abs(want)) {
						t.Errorf("weight %d of class %d is %g, scikit-learn has %g", j, c, m.W[c][j], want)
					}
				}
			}
			_, test := p.split()
			got, err := m.Predict(p.rows(t).Take(test))
			if err != nil {
				t.Fatal(err)
			}
			for i, want := range p.P {
				all++
				best := 0
				for c := range want {
					if want[c] > want[best] {
						best = c
					}
				}
				if got.Argmax(i) == best {
					agree++
				}
			}
			s, err := got.Score(At(p.Y, test))
			if err != nil {
				t.Fatal(err)
			}
			near(t, "accuracy", s.Accuracy, p.Accuracy, 1.0/float64(s.N)+1e-9)
			near(t, "log-loss", s.LogLoss, p.LogLoss, 1e-3)
			near(t, "Brier", s.Brier, p.Brier, 1e-3)
		})
	}
	if float64(agree) < 0.995*float64(all) {
		t.Errorf("%d of %d held-out rows get scikit-learn's class, fewer than 99.5 %%", agree, all)
	}
}

// The scores of scikit-learn's own probabilities must be scikit-learn's.
func TestScoreAgreesWithScikitLearn(t *testing.T) {
	for _, p := range readGolden(t).Problems {
		t.Run(p.Name, func(t *testing.T) {
			_, test := p.split()
			s, err := (&Predictions{Classes: p.Classes, P: slices.Concat(p.P...)}).Score(At(p.Y, test))
			if err != nil {
				t.Fatal(err)
			}
			near(t, "accuracy", s.Accuracy, p.Accuracy, 1e-12)
			near(t, "macro F1", s.MacroF1, p.MacroF1, 1e-12)
			near(t, "log-loss", s.LogLoss, p.LogLoss, 1e-5)
			near(t, "Brier", s.Brier, p.Brier, 1e-6)
		})
	}
}

func TestVectorizerAgreesWithScikitLearn(t *testing.T) {
	g := readGolden(t)
	for _, want := range g.Bags {
		v, err := FitVectorizer(g.Texts, VectorizerOptions{Bigrams: want.Bigrams, MinDocs: want.MinDocs, Binary: want.Binary})
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(v.Terms(), want.Terms) {
			t.Errorf("bigrams %v, at least %d texts: terms\n%q, scikit-learn has\n%q", want.Bigrams, want.MinDocs, v.Terms(), want.Terms)
			continue
		}
		x := v.Transform(g.Texts)
		for i, counts := range want.Counts {
			got := make([]float64, len(counts))
			x.AddScaled(got, 1, i)
			if !slices.Equal(got, counts) {
				t.Errorf("bigrams %v, text %q: counts %v, scikit-learn has %v", want.Bigrams, g.Texts[i], got, counts)
			}
		}
	}
}

func near(t *testing.T, what string, got, want, within float64) {
	t.Helper()
	if !(math.Abs(got-want) <= within) {
		t.Errorf("%s is %.10g, want %.10g within %g", what, got, want, within)
	}
}
