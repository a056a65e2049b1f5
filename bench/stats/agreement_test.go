package stats_test

import (
	"errors"
	"math"
	"math/rand/v2"
	"strconv"
	"testing"

	"github.com/ccmed/ccmed/bench/stats"
)

func TestMajorityShare(t *testing.T) {
	for name, c := range map[string]struct {
		v     []int
		value int
		share float64
	}{
		"one value":          {[]int{5, 5}, 5, 1},
		"most frequent":      {[]int{1, 7, 7, 2}, 7, 0.5},
		"smallest of equals": {[]int{4, 2, 4, 2, 9}, 2, 0.4},
		"negative":           {[]int{-1, 3, -1, 3}, -1, 0.5},
		"nothing":            {nil, 0, 0},
	} {
		for range 20 { // map order must not show
			if value, share := stats.MajorityShare(c.v); value != c.value || share != c.share {
				t.Fatalf("%s: %d, %v, want %d, %v", name, value, share, c.value, c.share)
			}
		}
	}
}

func TestKappa(t *testing.T) {
	a := []int{0, 1, 2, 2, 3, 5, 4, 0, 1, 3, 2, 5}
	b := []int{0, 2, 2, 1, 3, 4, 4, 1, 1, 5, 0, 5}
	// scikit-learn 1.9.1: cohen_kappa_score(a, b), and with weights="quadratic".
	k, err := stats.Kappa(a, b, 6)
	if err != nil {
		t.Fatal(err)
	}
	near(t, "kappa", k, 0.4, exact)
	q, err := stats.QuadraticKappa(a, b, 6)
	if err != nil {
		t.Fatal(err)
	}
	near(t, "quadratic kappa", q, 0.826923076923077, exact)
	if same, err := stats.QuadraticKappa(a, a, 6); err != nil || same != 1 {
		t.Errorf("kappa with itself = %v, %v", same, err)
	}
	// A constant rater agrees by chance alone.
	if zero, err := stats.QuadraticKappa(a, make([]int, len(a)), 6); err != nil || math.Abs(zero) > exact {
		t.Errorf("kappa with a constant = %v, %v", zero, err)
	}
}

func TestKappaErrors(t *testing.T) {
	if _, err := stats.QuadraticKappa([]int{2, 2}, []int{2, 2}, 6); !errors.Is(err, stats.ErrConstant) {
		t.Errorf("two equal constants: %v", err)
	}
	if _, err := stats.Kappa(nil, nil, 6); !errors.Is(err, stats.ErrNoItems) {
		t.Errorf("no items: %v", err)
	}
	for name, c := range map[string]struct {
		a, b    []int
		classes int
	}{
		"other items":     {[]int{1}, []int{1, 2}, 6},
		"class too large": {[]int{1, 6}, []int{1, 2}, 6},
		"negative class":  {[]int{1, 0}, []int{-1, 2}, 6},
		"no classes":      {[]int{0}, []int{0}, 0},
	} {
		if k, err := stats.Kappa(c.a, c.b, c.classes); err == nil {
			t.Errorf("%s: %v, want an error", name, k)
		}
	}
}

var (
	goldTurns = []int{3, 3, 4, 5, 6, 7, 8, 4, 5, 6, 3, 8, 7, 4, 5, 6, 3, 7, 8, 5}
	predTurns = []int{3, 4, 4, 5, 5, 7, 8, 4, 6, 6, 3, 7, 7, 3, 5, 6, 3, 8, 8, 4}
)

func TestCramersV(t *testing.T) {
	// scipy 1.17.1: contingency.association(table, method="cramer"); the
	// correction by Bergsma's formulas over chi2_contingency(correction=False).
	for name, c := range map[string]struct {
		gold, pred     []int
		raw, corrected float64
	}{
		"associated":  {goldTurns, predTurns, 0.6614378277661477, 0.48642280256700854},
		"independent": {[]int{3, 3, 4, 4, 5, 5, 3, 4, 5, 3, 4, 5, 3, 4}, []int{3, 4, 3, 4, 3, 4, 3, 3, 4, 4, 4, 3, 3, 4}, 0.16903085094570333, 0},
		// Association is not agreement: always one late is perfect.
		"one late":          {[]int{3, 4, 5, 3, 4, 5, 3, 4, 5}, []int{4, 5, 6, 4, 5, 6, 4, 5, 6}, 1, 1},
		"one item each row": {[]int{1, 2, 3}, []int{3, 1, 2}, 1, 0},
	} {
		v, ok := stats.CramersV(c.gold, c.pred)
		if !ok {
			t.Fatalf("%s: undefined", name)
		}
		near(t, name+": raw", v.Raw, c.raw, exact)
		near(t, name+": corrected", v.Corrected, c.corrected, exact)
	}
	for name, c := range map[string][2][]int{
		"constant predictions": {{3, 4, 5}, {3, 3, 3}},
		"constant gold":        {{3, 3, 3}, {3, 4, 5}},
		"nothing":              {},
		"other items":          {{3, 4}, {3, 4, 5}},
	} {
		if v, ok := stats.CramersV(c[0], c[1]); ok {
			t.Errorf("%s: V = %+v, want undefined", name, v)
		}
		if p, err := stats.CramersVPermutation(c[0], c[1], 10, 0); err == nil {
			t.Errorf("%s: p = %v, want an error", name, p)
		}
	}
}

func TestCramersVPermutation(t *testing.T) {
	p, err := stats.CramersVPermutation(goldTurns, predTurns, 9999, 1)
	if err != nil {
		t.Fatal(err)
	}
	if p < 1.0/10_000 || p > 0.01 {
		t.Errorf("p of associated turns = %v", p)
	}
	// Of the 4! orders of the predictions, the 8 that keep or swap the halves are
	// as strong.
	p, err = stats.CramersVPermutation([]int{0, 0, 1, 1}, []int{5, 5, 6, 6}, 50_000, 2)
	if err != nil {
		t.Fatal(err)
	}
	near(t, "p of a 2×2 table", p, 8.0/24, 0.01)
	if p, err := stats.CramersVPermutation(goldTurns, predTurns, 0, 1); err == nil {
		t.Errorf("no resamples: p = %v", p)
	}
	r := rand.New(rand.NewPCG(1, 1))
	const runs = 400
	rejected := 0
	for seed := range uint64(runs) {
		gold, pred := make([]int, 40), make([]int, 40)
		for i := range gold {
			gold[i], pred[i] = 3+r.IntN(6), 3+r.IntN(6)
		}
		p, err := stats.CramersVPermutation(gold, pred, 199, seed)
		if err != nil {
			t.Fatal(err)
		}
		if p <= 0.05 {
			rejected++
		}
	}
	if rate := float64(rejected) / runs; rate < 0.02 || rate > 0.085 {
		t.Errorf("p ≤ 0.05 in %.3f of independent tables", rate)
	}
}

func TestAUROC(t *testing.T) {
	scores := []float64{.1, .4, .4, .35, .8, .8, .2, .7, .05, .4}
	labels := []bool{false, true, false, false, true, false, false, true, false, true}
	// scikit-learn 1.9.1: roc_auc_score(labels, scores).
	got, err := stats.AUROC(scores, labels)
	if err != nil {
		t.Fatal(err)
	}
	near(t, "AUROC", got, 0.8125, exact)
	for name, c := range map[string]struct {
		scores []float64
		labels []bool
		want   float64
	}{
		"constant scores": {[]float64{1, 1, 1}, []bool{true, false, false}, 0.5},
		"infinite scores": {[]float64{math.Inf(-1), 0, math.Inf(1)}, []bool{false, false, true}, 1},
		"reversed":        {[]float64{0, 1}, []bool{true, false}, 0},
	} {
		if got, err := stats.AUROC(c.scores, c.labels); err != nil || got != c.want {
			t.Errorf("%s: %v, %v, want %v", name, got, err, c.want)
		}
	}
	for name, c := range map[string]struct {
		scores []float64
		labels []bool
	}{
		"one class":    {[]float64{1, 2}, []bool{true, true}},
		"nothing":      {nil, nil},
		"other items":  {[]float64{1, 2}, []bool{true}},
		"not a number": {[]float64{1, math.NaN()}, []bool{true, false}},
	} {
		if got, err := stats.AUROC(c.scores, c.labels); err == nil {
			t.Errorf("%s: %v, want an error", name, got)
		}
	}
}

func TestAUROCCountsPairs(t *testing.T) {
	r := rand.New(rand.NewPCG(2, 2))
	for range 300 {
		n := 2 + r.IntN(30)
		scores, labels := make([]float64, n), make([]bool, n)
		for i := range scores {
			scores[i], labels[i] = float64(r.IntN(6)), r.IntN(2) == 0
		}
		labels[0], labels[1] = true, false
		wins, pairs := 0.0, 0.0
		for i := range scores {
			for j := range scores {
				if !labels[i] || labels[j] {
					continue
				}
				pairs++
				switch {
				case scores[i] > scores[j]:
					wins++
				case scores[i] == scores[j]:
					wins += 0.5
				}
			}
		}
		got, err := stats.AUROC(scores, labels)
		if err != nil {
			t.Fatal(err)
		}
		near(t, "AUROC", got, wins/pairs, exact)
	}
}

// Of two contexts many draws hold one class alone: kappa has a value and no interval.
func TestKappaOfFewClusters(t *testing.T) {
	e, err := stats.Bootstrap{Resamples: 500, Seed: 1}.Kappa([]int{0, 0, 1, 1}, []int{0, 0, 1, 1}, 6, []string{"a", "a", "b", "b"})
	if err != nil || e.Value != 1 || e.NoInterval != stats.FewGroups || e.Lo != 1 || e.Hi != 1 || e.Groups != 2 {
		t.Errorf("%+v, %v", e, err)
	}
	var x, y []int
	var groups []string
	for i := range 90 {
		x, y, groups = append(x, i%3), append(y, (i+btoi(i%5 == 0))%3), append(groups, strconv.Itoa(i))
	}
	e, err = stats.Bootstrap{Resamples: 500, Seed: 1}.Kappa(x, y, 6, groups)
	if k, _ := stats.QuadraticKappa(x, y, 6); err != nil || e.Value != k || e.NoInterval != "" || e.Lo >= k || e.Hi <= k {
		t.Errorf("%+v, %v; want %v within its interval", e, err, k)
	}
}

func btoi(yes bool) int {
	if yes {
		return 1
	}
	return 0
}
