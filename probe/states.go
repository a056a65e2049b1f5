// Package probe reads a model's hidden states and asks, layer by layer, what a
// linear probe can find in them.
package probe

import (
	"context"

	"github.com/ccmed/ccmed/infer"
)

// Names of the layers at the ends of the residual stream.
const (
	Embed     = infer.LayerEmbed
	FinalNorm = infer.LayerFinalNorm
)

// StateReader is a model whose hidden states can be read. *llamacpp.Engine is one.
type StateReader interface {
	// Tokenize returns a text's token ids, special tokens recognised. It adds no
	// beginning-of-sequence token.
	Tokenize(text string) ([]int32, error)

	// Layers names all layers, from Embed over Block(1) up to FinalNorm.
	Layers() []string

	// Width is the number of values of a state, the same in every layer.
	Width() int

	// States calls row once for every sequence, wanted token and layer: seq
	// indexes seqs, pos is the token's index in that sequence, layer indexes
	// layers, and x holds Width values that are valid during the call only. What
	// several sequences begin with in common is evaluated once. An error of row
	// ends the call. States that are not finite are left out and reported by an
	// *infer.NonFiniteError when all others have been delivered.
	States(ctx context.Context, seqs []infer.Sequence, layers []string, row func(seq, pos, layer int, x []float32) error) error
}
