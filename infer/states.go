package infer

import (
	"fmt"
	"strconv"
	"strings"
)

// Sequence is one text to read hidden states from: its tokens as the model is to
// see them (with the beginning-of-sequence token where the model wants one), and
// the token indices, from 0, whose states are wanted.
type Sequence struct {
	Tokens []int32
	At     []int
	// Prompt is how many of the tokens are the prompt's, the others being the answer's; 0
	// for a text that is no prompt, which only edits of every token can change. Hash is the prompt's. Both say what an edited model
	// changes, and a plain one needs neither.
	Prompt int
	Hash   string
}

// Names of the places where a model's residual stream can be read, beside
// LayerBlock's.
const (
	LayerEmbed     = "embed"      // the token embeddings as they enter the first block, scaled where the model scales them
	LayerFinalNorm = "final_norm" // the last block's output after the model's final normalisation: what the vocabulary head reads
)

// LayerBlock names the residual stream after block k, counted from 1, its
// attention and feed-forward parts added.
func LayerBlock(k int) string { return "block." + strconv.Itoa(k) }

// LayerNames returns the names of all layers of a model with that many blocks,
// from the embeddings up: blocks+2 names.
func LayerNames(blocks int) []string {
	names := []string{LayerEmbed}
	for k := range blocks {
		names = append(names, LayerBlock(k+1))
	}
	return append(names, LayerFinalNorm)
}

// NonFinite counts the states of a layer that hold a NaN or an infinity.
type NonFinite struct {
	Layer  string
	Rows   int // states with at least one such value
	Values int // such values in all
}

// NonFiniteError reports states that were left out because they are not
// numbers: most often 16-bit floats that overflowed. All other states were
// delivered before it is returned.
type NonFiniteError struct{ Layers []NonFinite }

func (e *NonFiniteError) Error() string {
	var parts []string
	for _, l := range e.Layers {
		parts = append(parts, fmt.Sprintf("%s (%d values in %d states)", l.Layer, l.Values, l.Rows))
	}
	return "hidden states are not finite in " + strings.Join(parts, ", ") +
		"; leave these layers out, or use a file with another quantisation"
}
