// Package prefix orders prompts so that what they have in common is evaluated
// once, and counts what that saves.
package prefix

import (
	"hash/fnv"
	"regexp"
	"slices"
)

// piece matches about what a byte-pair tokenizer makes one token of: a special
// token, a character of a script without spaces, up to eight letters with the
// space before them, a digit, a run of punctuation, a run of white space.
var piece = regexp.MustCompile(`<\|[^|>\s]+\|>|</?[a-z_]+>|[\p{Han}\p{Hiragana}\p{Katakana}\p{Hangul}\p{Thai}]` +
	`| ?\pL[\pL\pM]{0,7}|\pN| ?[^\s\pL\pN<]{1,3}|<|\s+`)

// Pieces stands in for a tokenizer: it splits a text into pieces of about a
// token each, as hashes that are equal where the pieces are.
func Pieces(text string) []int32 {
	spans := piece.FindAllStringIndex(text, -1)
	out := make([]int32, len(spans))
	for i, s := range spans {
		h := fnv.New32a()
		_, _ = h.Write([]byte(text[s[0]:s[1]])) // a hash does not fail
		out[i] = int32(h.Sum32())
	}
	return out
}

// Common returns the length of the longest common prefix.
func Common(a, b []int32) int {
	n := min(len(a), len(b))
	for i := range n {
		if a[i] != b[i] {
			return i
		}
	}
	return n
}

// Order returns the indices of the sequences in the depth-first order of their
// prefix tree. Visited in this order, each sequence adds the nodes after its
// common prefix with the one before it, and all of them add up to the tree.
func Order(seqs [][]int32) []int {
	at := make([]int, len(seqs))
	for i := range at {
		at[i] = i
	}
	slices.SortStableFunc(at, func(i, j int) int { return slices.Compare(seqs[i], seqs[j]) })
	return at
}
