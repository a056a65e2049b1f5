package stats

import (
	"errors"
	"fmt"
	"math"
	"slices"
)

// DegenerateShare is the share of identical answers above which an answer is
// constant, and nothing but the share is computed from it.
const DegenerateShare = 0.90

// MajorityShare is the most frequent value, the smallest of equals, and its
// share. Without values both are 0.
func MajorityShare(v []int) (value int, share float64) {
	count := map[int]int{}
	for _, x := range v {
		count[x]++
	}
	most := 0
	for x, n := range count {
		if n > most || n == most && x < value {
			value, most = x, n
		}
	}
	if most == 0 {
		return 0, 0
	}
	return value, float64(most) / float64(len(v))
}

// ErrConstant reports that both raters give one and the same class, so that
// chance alone agrees perfectly.
var ErrConstant = errors.New("both ratings are constant and equal")

// Kappa is Cohen's κ (1960) of two ratings with classes 0..classes-1; at most 1,
// 0 for agreement by chance.
func Kappa(a, b []int, classes int) (float64, error) {
	return kappa(a, b, classes, func(i, j int) float64 {
		if i == j {
			return 0
		}
		return 1
	})
}

// QuadraticKappa is Cohen's weighted κ (1968) with the weight (i−j)², for
// ordered classes 0..classes-1.
func QuadraticKappa(a, b []int, classes int) (float64, error) {
	return kappa(a, b, classes, func(i, j int) float64 { return float64((i - j) * (i - j)) })
}

// Kappa is QuadraticKappa with its interval over clusters; resamples of one class alone
// count in none. Where these are more than a tenth there is no interval: FewGroups.
func (b Bootstrap) Kappa(x, y []int, classes int, groups []string) (Estimate, error) {
	if _, err := QuadraticKappa(x, y, classes); err != nil {
		return Estimate{}, err
	}
	var cx, cy []int
	e, err := b.Statistic(func(drawn []int) float64 {
		cx, cy = cx[:0], cy[:0]
		for _, i := range drawn {
			cx, cy = append(cx, x[i]), append(cy, y[i])
		}
		k, err := QuadraticKappa(cx, cy, classes)
		if err != nil {
			return math.NaN()
		}
		return k
	}, groups)
	if errors.Is(err, errUndefined) {
		k, _ := QuadraticKappa(x, y, classes)
		names := map[string]bool{}
		for _, g := range groups {
			names[g] = true
		}
		return Estimate{Value: k, Lo: k, Hi: k, N: len(x), Groups: len(names), NoInterval: FewGroups}, nil
	}
	return e, err
}

func kappa(a, b []int, classes int, disagreement func(i, j int) float64) (float64, error) {
	if len(a) != len(b) {
		return 0, fmt.Errorf("%d ratings against %d; they must be of the same items", len(a), len(b))
	}
	if len(a) == 0 {
		return 0, ErrNoItems
	}
	if classes < 1 {
		return 0, fmt.Errorf("%d classes; at least 1 is needed", classes)
	}
	countA, countB := make([]float64, classes), make([]float64, classes)
	observed := 0.0
	for k := range a {
		for _, c := range [2]int{a[k], b[k]} {
			if c < 0 || c >= classes {
				return 0, fmt.Errorf("item %d is rated %d; classes are 0 to %d", k+1, c, classes-1)
			}
		}
		countA[a[k]]++
		countB[b[k]]++
		observed += disagreement(a[k], b[k])
	}
	expected := 0.0
	for i := range classes {
		for j := range classes {
			expected += disagreement(i, j) * countA[i] * countB[j]
		}
	}
	if expected == 0 {
		return 0, ErrConstant
	}
	return 1 - observed*float64(len(a))/expected, nil
}

// V is Cramér's V.
type V struct {
	// Raw is √(χ²/n / min(r−1, c−1)), 0 to 1.
	Raw float64
	// Corrected removes Raw's upward bias in small samples (Bergsma 2013); 0 to 1.
	Corrected float64
}

// CramersV is the association of two ratings of the same items, over the values
// that occur. ok is false when it is undefined: a rating is constant, there are
// no items, or the lengths differ. V measures association, not agreement.
func CramersV(gold, pred []int) (V, bool) {
	t, ok := newTable(gold, pred)
	if !ok {
		return V{}, false
	}
	phi2 := t.chi2(t.pred) / float64(len(gold))
	n, r, c := float64(len(gold)), float64(len(t.rows)), float64(len(t.columns))
	var v V
	v.Raw = min(1, math.Sqrt(phi2/min(r-1, c-1)))
	// A table with one item a row leaves no degree of freedom to correct with.
	rr, cc := r-(r-1)*(r-1)/(n-1), c-(c-1)*(c-1)/(n-1)
	if least := min(rr-1, cc-1); least > rounding {
		v.Corrected = min(1, math.Sqrt(max(0, phi2-(r-1)*(c-1)/(n-1))/least))
	}
	return v, true
}

// table is a contingency table in terms of each item's row and column.
type table struct {
	gold, pred    []int // row and column of each item
	rows, columns []float64
	cells         []float64 // scratch
}

func newTable(gold, pred []int) (*table, bool) {
	if len(gold) != len(pred) || len(gold) == 0 {
		return nil, false
	}
	t := &table{}
	t.gold, t.rows = ranked(gold)
	t.pred, t.columns = ranked(pred)
	t.cells = make([]float64, len(t.rows)*len(t.columns))
	return t, len(t.rows) > 1 && len(t.columns) > 1
}

// ranked numbers the values that occur, and counts each.
func ranked(v []int) (rank []int, counts []float64) {
	values := slices.Clone(v)
	slices.Sort(values)
	values = slices.Compact(values)
	rank, counts = make([]int, len(v)), make([]float64, len(values))
	for i, x := range v {
		rank[i], _ = slices.BinarySearch(values, x)
		counts[rank[i]]++
	}
	return rank, counts
}

// chi2 is Pearson's χ² of the rows against columns, which must be a permutation
// of pred.
func (t *table) chi2(columns []int) float64 {
	clear(t.cells)
	for i, r := range t.gold {
		t.cells[r*len(t.columns)+columns[i]]++
	}
	n := float64(len(t.gold))
	sum := 0.0
	for r, nr := range t.rows {
		for c, nc := range t.columns {
			x := t.cells[r*len(t.columns)+c]
			sum += x * x / (nr * nc)
		}
	}
	return max(0, n*(sum-1))
}

// CramersVPermutation is the p that predictions drawn in random order are
// associated with gold as strongly, (b+1)/(m+1) with b of m permutations at
// least as strong as the observed one. It is an error where CramersV is
// undefined.
func CramersVPermutation(gold, pred []int, resamples int, seed uint64) (float64, error) {
	if len(gold) != len(pred) {
		return 0, fmt.Errorf("%d gold values against %d predictions; they must be of the same items", len(gold), len(pred))
	}
	if len(gold) == 0 {
		return 0, ErrNoItems
	}
	if resamples < 1 {
		return 0, fmt.Errorf("%d resamples; at least 1 is needed, 10000 are usual", resamples)
	}
	t, ok := newTable(gold, pred)
	if !ok {
		return 0, errors.New("gold values or predictions are constant; V is undefined")
	}
	// The margins are the same in every permutation, so χ² orders them as V does.
	least := t.chi2(t.pred) - rounding*float64(len(gold))
	r := generator(seed)
	shuffled := slices.Clone(t.pred)
	extreme := 0
	for range resamples {
		r.Shuffle(len(shuffled), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
		if t.chi2(shuffled) >= least {
			extreme++
		}
	}
	return permutationP(extreme, resamples), nil
}

// AUROC is the probability that a positive item scores higher than a negative
// one, ties counting half (Hanley and McNeil 1982). It takes O(n log n).
func AUROC(scores []float64, labels []bool) (float64, error) {
	if len(scores) != len(labels) {
		return 0, fmt.Errorf("%d scores have %d labels; each score needs one", len(scores), len(labels))
	}
	r, err := NewRanked(scores, labels, make([]int, len(scores)))
	if err != nil {
		return 0, err
	}
	a := r.AUROC([]int{1})
	if math.IsNaN(a) {
		positives := 0
		for _, yes := range labels {
			positives += count(yes)
		}
		return 0, fmt.Errorf("%d positive and %d negative items; AUROC needs both", positives, len(labels)-positives)
	}
	return a, nil
}
