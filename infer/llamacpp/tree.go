package llamacpp

import (
	"slices"

	"github.com/hybridgroup/yzma/pkg/llama"
)

// depthFirst returns the order in which to evaluate token sequences so that the
// nodes of their prefix tree are visited depth first: a sequence comes before
// those that extend it, and what one shares with the next is on the current
// path. Branches that begin like the resident path come first, so that what is
// already evaluated is used before it is dropped.
func depthFirst(seqs [][]llama.Token, resident []llama.Token) []int {
	order := make([]int, len(seqs))
	shared := make([]int, len(seqs))
	for i, s := range seqs {
		order[i], shared[i] = i, commonPrefix(s, resident)
	}
	slices.SortStableFunc(order, func(i, j int) int {
		a, b := seqs[i], seqs[j]
		switch n := commonPrefix(a, b); {
		case n == len(a) || n == len(b):
			return len(a) - len(b)
		case shared[i] != shared[j]:
			return shared[j] - shared[i]
		default:
			return int(a[n]) - int(b[n])
		}
	})
	return order
}

// commonPrefix returns how many tokens a and b begin with in common.
func commonPrefix(a, b []llama.Token) int {
	n := min(len(a), len(b))
	for i := range n {
		if a[i] != b[i] {
			return i
		}
	}
	return n
}
