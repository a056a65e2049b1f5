package linear

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"gonum.org/v1/gonum/stat"
)

// ErrFolds reports samples that cannot be split into the folds asked for.
var ErrFolds = errors.New("linear: the samples cannot be split into these folds")

// GroupKFold returns the fold, 0..k-1, in which each sample is held out. Samples
// of one group are in one fold, and each class is spread over the folds as evenly
// as its groups allow: groups are taken in the seed's order, those with the most
// uneven classes first, each into the fold that makes the spread smallest (the
// greedy rule of scikit-learn's StratifiedGroupKFold). No fold is empty, and
// every fold's training part has every class. Samples without groups are split by
// giving each its own number.
//
// The error is ErrFolds, with its cause, when there are fewer than two folds or
// classes, or a class that occurs in fewer than k groups.
func GroupKFold[G comparable](y []int, groups []G, k int, seed uint64) ([]int, error) {
	if len(y) != len(groups) {
		return nil, fmt.Errorf("%w: %d labels and %d groups", ErrFolds, len(y), len(groups))
	}
	if k < 2 {
		return nil, fmt.Errorf("%w: %d folds, at least 2 are needed", ErrFolds, k)
	}
	table := newGroupTable(y, groups)
	if err := table.check(k); err != nil {
		return nil, err
	}
	foldOf := table.assign(k, rand.New(rand.NewPCG(seed, uint64(k))))
	if err := table.verify(foldOf, k); err != nil {
		return nil, err
	}
	folds := make([]int, len(y))
	for i, g := range table.groupOf {
		folds[i] = foldOf[g]
	}
	return folds, nil
}

// Split returns the samples outside and inside fold f, in order.
func Split(folds []int, f int) (train, test []int) {
	for i, g := range folds {
		if g == f {
			test = append(test, i)
		} else {
			train = append(train, i)
		}
	}
	return train, test
}

// At returns the values of the given samples, in the given order.
func At[T any](values []T, samples []int) []T {
	out := make([]T, len(samples))
	for k, i := range samples {
		out[k] = values[i]
	}
	return out
}

// groupTable counts the samples of each class in each group. Groups and classes
// are numbered as they first occur, so that nothing depends on map order.
type groupTable struct {
	labels  []int // class number → label
	groupOf []int // sample → group number
	count   [][]float64
	total   []float64 // samples of each class
}

func newGroupTable[G comparable](y []int, groups []G) groupTable {
	t := groupTable{groupOf: make([]int, len(y))}
	class, number := map[int]int{}, map[G]int{}
	for _, label := range y {
		if _, ok := class[label]; !ok {
			class[label] = len(t.labels)
			t.labels = append(t.labels, label)
		}
	}
	t.total = make([]float64, len(t.labels))
	for i, label := range y {
		g, ok := number[groups[i]]
		if !ok {
			g = len(t.count)
			number[groups[i]] = g
			t.count = append(t.count, make([]float64, len(t.labels)))
		}
		t.groupOf[i] = g
		t.count[g][class[label]]++
		t.total[class[label]]++
	}
	return t
}

func (t groupTable) check(k int) error {
	if len(t.labels) < 2 {
		return fmt.Errorf("%w: %d samples have %d class; at least 2 classes are needed", ErrFolds, len(t.groupOf), len(t.labels))
	}
	for c, label := range t.labels {
		groups := 0
		for _, count := range t.count {
			if count[c] > 0 {
				groups++
			}
		}
		if groups < k {
			return fmt.Errorf("%w: class %d has %.0f samples in %d groups, fewer than %d folds; take fewer folds or more samples",
				ErrFolds, label, t.total[c], groups, k)
		}
	}
	return nil
}

// assign returns the fold of each group.
func (t groupTable) assign(k int, rng *rand.Rand) []int {
	order := rng.Perm(len(t.count))
	uneven := make([]float64, len(t.count))
	for g, count := range t.count {
		uneven[g] = stat.PopStdDev(count, nil)
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(uneven[b], uneven[a]) })

	share := make([][]float64, len(t.labels)) // class → its share in each fold
	for c := range share {
		share[c] = make([]float64, k)
	}
	size := make([]float64, k)
	foldOf := make([]int, len(t.count))
	for _, g := range order {
		best, spread := 0, math.Inf(1)
		for f := range k {
			s := 0.0
			for c, n := range t.count[g] {
				share[c][f] += n / t.total[c]
				s += stat.PopStdDev(share[c], nil)
				share[c][f] -= n / t.total[c]
			}
			// Spreads that differ by rounding only are equal: the smaller fold wins.
			if s < spread-1e-12 || math.Abs(s-spread) <= 1e-12 && size[f] < size[best] {
				best, spread = f, s
			}
		}
		foldOf[g] = best
		for c, n := range t.count[g] {
			share[c][best] += n / t.total[c]
			size[best] += n
		}
	}
	return foldOf
}

// verify makes sure of what the greedy rule promises for all but odd groups.
func (t groupTable) verify(foldOf []int, k int) error {
	size := make([]float64, k)
	held := make([][]float64, len(t.labels))
	for c := range held {
		held[c] = make([]float64, k)
	}
	for g, f := range foldOf {
		for c, n := range t.count[g] {
			size[f] += n
			held[c][f] += n
		}
	}
	for f := range k {
		if size[f] == 0 {
			return fmt.Errorf("%w: fold %d of %d is empty; take fewer folds", ErrFolds, f, k)
		}
		for c, label := range t.labels {
			if held[c][f] == t.total[c] {
				return fmt.Errorf("%w: class %d would be in fold %d only; take another seed or fewer folds", ErrFolds, label, f)
			}
		}
	}
	return nil
}
