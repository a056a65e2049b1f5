package probe

import (
	"fmt"
	"math/rand/v2"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// drawn are paired differences of hits as two cells of n dialogues in some contexts give
// them: the second cell reads the share base, the first one gap more. Contexts differ, half
// of what decides a hit is shared by the cells, and a refit changes one hit in twenty.
func drawn(n, contexts int, base, gap float64, seed uint64) Outcomes {
	rng := rand.New(rand.NewPCG(seed, 1))
	const rounds, folds = 5, 5
	splits := make([]Split, rounds*folds)
	for k := range splits {
		splits[k] = Split{Train: make([]int, n*(folds-1)/folds), Test: make([]int, n/folds)}
	}
	o := Outcomes{Width: refitWidth(splits, rounds), Rounds: make([][]float64, rounds)}
	effect := make([]float64, contexts)
	for c := range effect {
		effect[c] = 0.1 * rng.NormFloat64()
	}
	for i := range n {
		c := i % contexts
		o.Groups = append(o.Groups, strconv.Itoa(c))
		shared, own := rng.Float64() < 0.5, [2]float64{rng.Float64(), rng.Float64()}
		if shared {
			own[1] = own[0]
		}
		for r := range rounds {
			var hit [2]float64
			for k, p := range []float64{base + gap, base} {
				if own[k] < p+effect[c] {
					hit[k] = 1
				}
				if rng.Float64() < 0.05 {
					hit[k] = 1 - hit[k]
				}
			}
			o.Rounds[r] = append(o.Rounds[r], hit[0]-hit[1])
		}
	}
	return o
}

// power is how often a gap is found, with the p that the first of five gates needs (Holm).
func power(t *testing.T, n, contexts int, base, gap float64, draws int) float64 {
	t.Helper()
	found := 0
	for k := range draws {
		e, err := drawn(n, contexts, base, gap, uint64(k)).Test(Resampling{Resamples: 999, Seed: 1})
		if err != nil {
			t.Fatal(err)
		}
		if e.Value > 0 && e.P < gateLevel/5 {
			found++
		}
	}
	return float64(found) / float64(draws)
}

var powerRow = regexp.MustCompile(`(?m)^\| ([\d,]+) dialogues, (\d+) contexts \| (0\.\d+|none) \| (0\.\d+|none) \|$`)

// TestPowerOfTheDocs: a gap of the size that docs/probing.md prints is found in most draws,
// half of it seldom, and no gap hardly ever.
func TestPowerOfTheDocs(t *testing.T) {
	text, err := os.ReadFile("../docs/probing.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := powerRow.FindAllStringSubmatch(string(text), -1)
	if len(rows) != 3 {
		t.Fatalf("%d rows of power, want 3", len(rows))
	}
	number := func(s string) float64 {
		v, err := strconv.ParseFloat(strings.ReplaceAll(s, ",", ""), 64)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	for _, row := range rows {
		n, contexts := int(number(row[1])), int(number(row[2]))
		for k, base := range []float64{0.5, 0.8} {
			t.Run(fmt.Sprintf("%d/%g", n, base), func(t *testing.T) {
				t.Parallel()
				const draws = 60
				if row[3+k] == "none" {
					if p := power(t, n, contexts, base, 0.98-base, draws); p > 0.8 {
						t.Errorf("the largest gap is found in %.2f", p)
					}
					return
				}
				gap := number(row[3+k])
				if p := power(t, n, contexts, base, gap, draws); p < 0.7 {
					t.Errorf("a gap of %g is found in %.2f", gap, p)
				}
				if p := power(t, n, contexts, base, gap/2, draws); p > 0.5 {
					t.Errorf("a gap of %g is found in %.2f", gap/2, p)
				}
				if p := power(t, n, contexts, base, 0, draws); p > 0.05 {
					t.Errorf("no gap is found in %.2f", p)
				}
			})
		}
	}
}
