package infer

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"hash"
	"io"
	"maps"
	"math"
	"slices"
)

// Scope says which tokens an Edit changes.
type Scope string

// Scopes.
const (
	ScopePromptEnd Scope = "prompt_end" // the prompt's last token, after which the answer comes
	ScopeGenerated Scope = "generated"  // tokens of the answer
	ScopeAll       Scope = "all"        // every token
)

// Edit is a change of a model's residual stream after a block: one of Add, Replace and
// Erase. Edits after one block are made one after the other.
type Edit struct {
	Block int // counted from 1, as in LayerBlock
	Scope Scope
	// Add is added to the state.
	Add []float32
	// Replace holds the states that stand in the state's place, by Prompt.Hash; the prompts
	// that it lacks are left as they are.
	Replace map[string][]float32
	Erase   *Erase
}

// Erase takes a state x to x − U·Vᵀ(x − Mean). U and V hold a row of the state's width for
// each direction, of which there are at most MaxRank.
type Erase struct {
	U, V [][]float32
	Mean []float32
}

// MaxRank is the most directions that an Erase takes out.
const MaxRank = 2

// Check looks whether a model with that many blocks and states of that width can be edited
// so.
func (e Edit) Check(blocks, width int) error {
	if e.Block < 1 || e.Block > blocks {
		return fmt.Errorf("an edit after block %d, and the model has the blocks 1 to %d", e.Block, blocks)
	}
	if !slices.Contains([]Scope{ScopePromptEnd, ScopeGenerated, ScopeAll}, e.Scope) {
		return fmt.Errorf("an edit of the unknown scope %q; known are %s, %s and %s", e.Scope, ScopePromptEnd, ScopeGenerated, ScopeAll)
	}
	kinds := 0
	for _, given := range []bool{e.Add != nil, e.Replace != nil, e.Erase != nil} {
		if given {
			kinds++
		}
	}
	if kinds != 1 {
		return fmt.Errorf("the edit after block %d is %d of add, replace and erase, want one", e.Block, kinds)
	}
	rows := slices.Collect(maps.Values(e.Replace))
	if e.Add != nil {
		rows = append(rows, e.Add)
	}
	if e.Erase != nil {
		if n := len(e.Erase.U); n < 1 || n > MaxRank || n != len(e.Erase.V) {
			return fmt.Errorf("the erasure after block %d has the ranks %d and %d, want one rank of 1 to %d", e.Block, n, len(e.Erase.V), MaxRank)
		}
		rows = append(rows, slices.Concat(e.Erase.U, e.Erase.V, [][]float32{e.Erase.Mean})...)
	}
	for _, row := range rows {
		if len(row) != width {
			return fmt.Errorf("an edit after block %d has %d values, and the model's states have %d", e.Block, len(row), width)
		}
		if i := slices.IndexFunc(row, func(v float32) bool { return math.IsNaN(float64(v)) || math.IsInf(float64(v), 0) }); i >= 0 {
			return fmt.Errorf("value %d of an edit after block %d is %v", i, e.Block, row[i])
		}
	}
	return nil
}

// HashEdits identifies what edits do to a model, as "sha256:…"; edits in another order are
// others. It is empty for none.
func HashEdits(edits []Edit) string {
	if len(edits) == 0 {
		return ""
	}
	h := sha256.New()
	for _, e := range edits {
		e.Hash(h)
	}
	return "sha256:" + hex.EncodeToString(h.Sum(nil))
}

// Hash writes an unambiguous form of the edit.
func (e Edit) Hash(h hash.Hash) {
	fmt.Fprintf(h, "%d %q %t %t %t\n", e.Block, e.Scope, e.Add != nil, e.Replace != nil, e.Erase != nil)
	writeRow(h, e.Add)
	for _, prompt := range slices.Sorted(maps.Keys(e.Replace)) {
		fmt.Fprintf(h, "%q\n", prompt)
		writeRow(h, e.Replace[prompt])
	}
	if e.Erase != nil {
		fmt.Fprintf(h, "%d %d\n", len(e.Erase.U), len(e.Erase.V))
		for _, row := range slices.Concat(e.Erase.U, e.Erase.V, [][]float32{e.Erase.Mean}) {
			writeRow(h, row)
		}
	}
}

func writeRow(w io.Writer, row []float32) {
	b := binary.LittleEndian.AppendUint64(nil, uint64(len(row)))
	for _, v := range row {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(v))
	}
	w.Write(b)
}
