package llamacpp

import (
	"cmp"
	"slices"

	"github.com/hybridgroup/yzma/pkg/llama"
)

// step is a token of a path through the model, with the edit that is made at it: keys and
// values serve the paths that are equal in both.
type step struct {
	token llama.Token
	edit  editID
}

// steps is a path on which one edit is made throughout.
func steps(tokens []llama.Token, edit editID) []step {
	out := make([]step, len(tokens))
	for i, t := range tokens {
		out[i] = step{t, edit}
	}
	return out
}

// depthFirst returns the order in which to evaluate token sequences so that the
// nodes of their prefix tree are visited depth first: a sequence comes before
// those that extend it, and what one shares with the next is on the current
// path. Branches that begin like the resident path come first, so that what is
// already evaluated is used before it is dropped.
func depthFirst(seqs [][]step, resident []step) []int {
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
			return cmp.Or(cmp.Compare(a[n].token, b[n].token), cmp.Compare(a[n].edit, b[n].edit))
		}
	})
	return order
}

// commonPrefix returns how many steps a and b begin with in common.
func commonPrefix(a, b []step) int {
	n := min(len(a), len(b))
	for i := range n {
		if a[i] != b[i] {
			return i
		}
	}
	return n
}
