package linear

import (
	"errors"
	"math"
	"testing"
)

// The products of embeddings, which do not depend on signs, are those of
// scikit-learn 1.9.1's TruncatedSVD(3, algorithm="arpack") after TfidfVectorizer().
func TestLatentSemanticIsScikitLearns(t *testing.T) {
	texts := []string{"we can talk about the plan", "the plan is late and the plan is long", "they talk late",
		"a long talk about plans", "nothing here of the kind", "the talk is late"}
	want := [][]float64{
		{0.696581994, 0.582362367, 0.095356787, 0.482843131, 0.362967468, 0.433231335},
		{0.582362367, 0.835849142, 0.161943834, -0.016226817, 0.484419428, 0.615079917},
		{0.095356787, 0.161943834, 0.993900221, 0.20078283, -0.002619353, 0.461784317},
		{0.482843131, -0.016226817, 0.20078283, 0.896681475, 0.010780182, 0.079337},
		{0.362967468, 0.484419428, -0.002619353, 0.010780182, 0.29235113, 0.323021276},
		{0.433231335, 0.615079917, 0.461784317, 0.079337, 0.323021276, 0.574985663},
	}
	x, err := LatentSemantic(t.Context(), texts, []int{0, 1, 2, 3}, 3)
	if err != nil {
		t.Fatal(err)
	}
	for i := range texts {
		for j := range texts {
			if got := x.Dot(i, x.Row(j)); math.Abs(got-want[i][j]) > 1e-8 {
				t.Errorf("embeddings %d and %d have the product %.9f, want %.9f", i, j, got, want[i][j])
			}
		}
	}
	// Four texts span no more than four dimensions, two equal ones no more than one.
	if x, err = LatentSemantic(t.Context(), texts, []int{0, 1, 2, 3}, 99); err != nil {
		t.Fatal(err)
	}
	if _, d := x.Dims(); d != 4 {
		t.Errorf("%d dimensions, want 4", d)
	}
	if x, err = LatentSemantic(t.Context(), []string{"the same", "the same"}, []int{0, 1}, 9); err != nil {
		t.Fatal(err)
	}
	if _, d := x.Dims(); d != 1 {
		t.Errorf("%d dimensions of equal texts, want 1", d)
	}
	if _, err := LatentSemantic(t.Context(), []string{"?", "!"}, []int{0, 1}, 2); !errors.Is(err, ErrNoTerms) {
		t.Errorf("texts without words: %v", err)
	}
}

func TestBesideAddsColumns(t *testing.T) {
	v, err := FitVectorizer([]string{"one two", "two"}, VectorizerOptions{})
	if err != nil {
		t.Fatal(err)
	}
	more, err := NewDense(2, 2, []float64{5, 0, 0, 7})
	if err != nil {
		t.Fatal(err)
	}
	x, err := v.Transform([]string{"one two", "two"}).Beside(more)
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []float64{1 + 10 + 500, 10 + 7000} {
		if got := x.Dot(i, []float64{1, 10, 100, 1000}); got != want {
			t.Errorf("row %d: %v, want %v", i, got, want)
		}
	}
	if _, err := x.Beside(&Dense{}); err == nil {
		t.Error("no rows beside two")
	}
}
