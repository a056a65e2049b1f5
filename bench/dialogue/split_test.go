package dialogue_test

import (
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"github.com/ccmed/ccmed/bench/dialogue"
)

func keys(ds []dialogue.Dialogue) []string {
	var ks []string
	for _, d := range ds {
		ks = append(ks, d.Key())
	}
	return ks
}

// checkSplit checks that every dialogue is in one part and no context in both.
func checkSplit(t *testing.T, all, train, eval []dialogue.Dialogue) {
	t.Helper()
	if len(train) == 0 || len(eval) == 0 {
		t.Fatalf("%d training and %d evaluation dialogues; no part may be empty", len(train), len(eval))
	}
	both, want := append(keys(train), keys(eval)...), keys(all)
	slices.Sort(both)
	slices.Sort(want)
	if !slices.Equal(both, want) {
		t.Error("the parts together are not the whole")
	}
	if n, _ := dialogue.SharedContexts(eval, train); n > 0 {
		t.Errorf("%d evaluation dialogues have a context of training", n)
	}
}

func shuffled(ds []dialogue.Dialogue) []dialogue.Dialogue {
	ds = slices.Clone(ds)
	rand.New(rand.NewPCG(7, 7)).Shuffle(len(ds), func(i, j int) { ds[i], ds[j] = ds[j], ds[i] })
	return ds
}

func TestSplit(t *testing.T) {
	ds := dialogue.Sample()
	for _, fraction := range []float64{0.001, 0.25, 0.5, 0.999} {
		train, eval, err := dialogue.Split(ds, fraction, 1)
		if err != nil {
			t.Fatal(err)
		}
		checkSplit(t, ds, train, eval)
		again, _, err := dialogue.Split(shuffled(ds), fraction, 1)
		if err != nil || !slices.Equal(keys(again), keys(train)) {
			t.Errorf("fraction %v: the order of the dialogues changes the split (%v)", fraction, err)
		}
	}
	_, eval, err := dialogue.Split(ds, 0.25, 1)
	if err != nil {
		t.Fatal(err)
	}
	// A quarter of four a stage; every context occurs once, so it can be exact.
	if got, want := dialogue.Stats(eval).Stages, map[string]int{"Denial": 1, "Defense": 1, "Minimization": 1}; !reflect.DeepEqual(got, want) {
		t.Errorf("a quarter has stages %v, want %v", got, want)
	}
	differ := false
	for seed := range int64(8) {
		_, other, err := dialogue.Split(ds, 0.25, seed)
		differ = differ || err == nil && !slices.Equal(keys(other), keys(eval))
	}
	if !differ {
		t.Error("eight seeds give the same split")
	}
}

func TestSplitRefuses(t *testing.T) {
	ds := dialogue.Sample()
	for name, c := range map[string]struct {
		ds       []dialogue.Dialogue
		fraction float64
	}{
		"fraction 0":  {ds, 0},
		"fraction 1":  {ds, 1},
		"one context": {ds[:1], 0.5},
		"nothing":     {nil, 0.5},
	} {
		if _, _, err := dialogue.Split(c.ds, c.fraction, 1); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func TestLimit(t *testing.T) {
	ds := dialogue.Sample()
	for n := range len(ds) + 2 {
		got := dialogue.Limit(shuffled(ds), n)
		want := n
		if n == 0 || n > len(ds) {
			want = len(ds)
		}
		if len(got) != want || !slices.IsSortedFunc(got, func(a, b dialogue.Dialogue) int { return a.ID - b.ID }) {
			t.Errorf("limit %d gives %v", n, keys(got))
		}
		if !slices.Equal(keys(got), keys(dialogue.Limit(ds, n))) {
			t.Errorf("limit %d depends on the order", n)
		}
	}
	s := dialogue.Stats(dialogue.Limit(ds, 3))
	if len(s.Stages) != 3 || len(s.ConflictTurns) != 3 {
		t.Errorf("three dialogues have stages %v and conflict turns %v, want three of each", s.Stages, s.ConflictTurns)
	}
	s = dialogue.Stats(dialogue.Limit(ds, 6))
	if want := map[string]int{"Denial": 2, "Defense": 2, "Minimization": 2}; !reflect.DeepEqual(s.Stages, want) {
		t.Errorf("six dialogues have stages %v, want %v", s.Stages, want)
	}
}

func TestHash(t *testing.T) {
	ds := dialogue.Sample()
	h := dialogue.Hash(ds)
	if len(h) != 64 || h != dialogue.Hash(shuffled(ds)) {
		t.Errorf("hash %q depends on the order or is not SHA-256", h)
	}
	if h == dialogue.Hash(ds[1:]) {
		t.Error("the hash does not change with the dialogues")
	}
}
