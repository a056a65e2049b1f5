package prefix

import (
	"math/rand/v2"
	"testing"
)

// The sum over the order is the number of nodes of the prefix tree, whatever
// the order in which the sequences came.
func TestOrderVisitsEveryNodeOnce(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		seqs := make([][]int32, 1+rng.IntN(12))
		nodes := map[string]bool{}
		for i := range seqs {
			var path []byte
			for range 1 + rng.IntN(9) {
				x := rng.IntN(3)
				seqs[i] = append(seqs[i], int32(x))
				path = append(path, byte(x))
				nodes[string(path)] = true
			}
		}
		sum := 0
		var last []int32
		for _, i := range Order(seqs) {
			sum += len(seqs[i]) - Common(last, seqs[i])
			last = seqs[i]
		}
		if sum != len(nodes) {
			t.Fatalf("the order adds %d nodes, the tree has %d: %v", sum, len(nodes), seqs)
		}
	}
}

func TestPiecesCoverTheText(t *testing.T) {
	for text, want := range map[string]int{
		"":                               0,
		"Hello world":                    2,
		"<|im_end|>\n<|im_start|>user\n": 5,
		"a < b":                          4,
		"文化の違い":                          5,
		"2026":                           4,
		"misunderstanding":               2,
	} {
		if got := len(Pieces(text)); got != want {
			t.Errorf("Pieces(%q) has %d pieces, want %d", text, got, want)
		}
	}
	a, b := Pieces("one two three"), Pieces("one two four")
	if got := Common(a, b); got != 2 {
		t.Errorf("common pieces: %d, want 2", got)
	}
}
