package linear

import (
	"errors"
	"math/rand/v2"
	"slices"
	"testing"
)

func FuzzGroupKFold(f *testing.F) {
	f.Add(uint64(1), uint8(60), uint8(12), uint8(3), uint8(5))
	f.Add(uint64(2), uint8(8), uint8(4), uint8(2), uint8(4))
	f.Add(uint64(3), uint8(200), uint8(200), uint8(6), uint8(2))
	f.Fuzz(func(t *testing.T, seed uint64, n, groups, classes, k uint8) {
		rng := rand.New(rand.NewPCG(seed, 1))
		y, g := make([]int, n), make([]int, n)
		for i := range y {
			y[i] = rng.IntN(int(classes) + 1)
			g[i] = rng.IntN(int(groups) + 1)
		}
		folds, err := GroupKFold(y, g, int(k), seed)
		if err != nil {
			if !errors.Is(err, ErrFolds) {
				t.Fatalf("error %v is not ErrFolds", err)
			}
			return
		}
		again, err := GroupKFold(y, g, int(k), seed)
		if err != nil || !slices.Equal(folds, again) {
			t.Fatal("the same seed gives other folds")
		}
		of := map[int]int{}
		for i, fold := range folds {
			if at, ok := of[g[i]]; ok && at != fold {
				t.Fatalf("group %d is in folds %d and %d", g[i], at, fold)
			}
			of[g[i]] = fold
		}
		for fold := range int(k) {
			train, test := Split(folds, fold)
			if len(test) == 0 || len(train)+len(test) != int(n) {
				t.Fatalf("fold %d holds out %d and keeps %d of %d", fold, len(test), len(train), n)
			}
			for c := range int(classes) + 1 {
				if slices.Contains(y, c) && !slices.Contains(At(y, train), c) {
					t.Fatalf("class %d is not in the training part of fold %d", c, fold)
				}
			}
		}
	})
}

func TestGroupKFoldBalancesClasses(t *testing.T) {
	// 71 contexts of one to four dialogues, three stages: as in the evaluation data.
	rng := rand.New(rand.NewPCG(4, 4))
	var y, groups []int
	for g := range 71 {
		for range 1 + rng.IntN(4) {
			y, groups = append(y, rng.IntN(3)), append(groups, g)
		}
	}
	total := [3]int{}
	for _, c := range y {
		total[c]++
	}
	var first []int
	for seed := range uint64(5) {
		folds, err := GroupKFold(y, groups, 5, seed)
		if err != nil {
			t.Fatal(err)
		}
		for f := range 5 {
			_, test := Split(folds, f)
			for c := range 3 {
				n := 0
				for _, label := range At(y, test) {
					if label == c {
						n++
					}
				}
				if want := float64(total[c]) / 5; float64(n) < want-3 || float64(n) > want+3 {
					t.Errorf("seed %d, fold %d holds %d of class %d, want about %.1f", seed, f, n, c, want)
				}
			}
		}
		if seed == 0 {
			first = folds
		} else if slices.Equal(first, folds) {
			t.Errorf("seed %d gives the folds of seed 0", seed)
		}
	}
}

func TestGroupKFoldRefuses(t *testing.T) {
	for _, tt := range []struct {
		name   string
		y      []int
		groups []string
		k      int
	}{
		{"one class", []int{0, 0, 0, 0}, []string{"a", "b", "c", "d"}, 2},
		{"one fold", []int{0, 1, 0, 1}, []string{"a", "b", "c", "d"}, 1},
		{"class with fewer samples than folds", []int{0, 0, 0, 1, 1}, []string{"a", "b", "c", "d", "e"}, 3},
		{"class with fewer groups than folds", []int{0, 0, 0, 1, 1, 1}, []string{"a", "b", "c", "d", "d", "d"}, 3},
		{"no samples", nil, nil, 2},
		{"a label without a group", []int{0, 1}, []string{"a"}, 2},
	} {
		if _, err := GroupKFold(tt.y, tt.groups, tt.k, 1); !errors.Is(err, ErrFolds) {
			t.Errorf("%s: error %v, want ErrFolds", tt.name, err)
		}
	}
}
