package construct

import (
	"context"
	"errors"
	"math"

	"github.com/ccmed/ccmed/probe/linear"
)

// Alike is the cosine of two scenarios' TF-IDF vectors from which they mean the same.
const Alike = 0.8

// duplicates gives, for each scenario, the first one before it that means the same, or -1.
// Vectors are TF-IDF of words, in all dimensions that the scenarios span.
func duplicates(all []Scenario, alike float64) ([]int, error) {
	twin := make([]int, len(all))
	texts, rows := make([]string, len(all)), make([]int, len(all))
	for i, s := range all {
		texts[i], rows[i], twin[i] = s.text(), i, -1
	}
	if len(all) < 2 {
		return twin, nil
	}
	x, err := linear.LatentSemantic(context.Background(), texts, rows, len(all))
	if errors.Is(err, linear.ErrNoTerms) {
		return twin, nil
	}
	if err != nil {
		return nil, err
	}
	for i := range all {
		for j := range i {
			if twin[j] < 0 && cosine(x.Row(i), x.Row(j)) >= alike {
				twin[i] = j
				break
			}
		}
	}
	return twin, nil
}

func cosine(a, b []float64) float64 {
	var ab, aa, bb float64
	for k := range a {
		ab, aa, bb = ab+a[k]*b[k], aa+a[k]*a[k], bb+b[k]*b[k]
	}
	if aa == 0 || bb == 0 {
		return 0
	}
	return ab / math.Sqrt(aa*bb)
}
