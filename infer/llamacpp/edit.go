package llamacpp

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/ccmed/ccmed/infer"
	"github.com/hybridgroup/yzma/pkg/llama"
)

// Edited returns an engine on the same weights that changes the residual stream. Its Model
// carries the edits' hash. The two answer in turns and use one cache: keys and values are
// found again by their tokens and by the edits under which they were made, so that what
// comes before the first edited token is evaluated once for both. The weights are freed
// when both are closed.
//
// The edits take the place of this engine's own.
func (e *Engine) Edited(edits []infer.Edit) (*Engine, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.model == 0 || e.closed {
		return nil, ErrClosed
	}
	for i, x := range edits {
		if err := x.Check(e.blocks, e.width); err != nil {
			return nil, fmt.Errorf("edit %d of %d: %w", i+1, len(edits), err)
		}
	}
	e.users++
	if len(edits) == 0 {
		return &Engine{weights: e.weights}, nil
	}
	return &Engine{weights: e.weights, edits: &editing{edits: edits, hash: infer.HashEdits(edits)}}, nil
}

// editing is what an engine changes.
type editing struct {
	edits []infer.Edit
	hash  string
	plan  *plan // where they are the same for all prompts
}

// needPrompt reports whether the edits depend on where a prompt ends.
func (x *editing) needPrompt() bool {
	return x != nil && slices.ContainsFunc(x.edits, func(e infer.Edit) bool { return e.Scope != infer.ScopeAll })
}

// change is an edit at one token.
type change struct {
	block        int
	add, replace []float32
	erase        *infer.Erase
}

// apply changes a state.
func (c change) apply(x []float32) {
	switch {
	case c.replace != nil:
		copy(x, c.replace)
	case c.erase != nil:
		var along [infer.MaxRank]float64
		for r, v := range c.erase.V {
			for j := range x {
				along[r] += float64(v[j]) * (float64(x[j]) - float64(c.erase.Mean[j]))
			}
		}
		for j := range x {
			y := float64(x[j])
			for r, u := range c.erase.U {
				y -= float64(u[j]) * along[r]
			}
			x[j] = float32(y)
		}
	default:
		for j, a := range c.add {
			x[j] += a
		}
	}
}

// editID numbers what is changed at a token; 0 is nothing. The number is the same for the
// same changes, whatever engine makes them.
type editID int32

// changes are those of the engines of some weights, by number.
type changes struct {
	numbers map[string]editID // by the hash of infer.HashEdits
	made    []tokenEdit       // by number-1
	hooked  map[int]bool      // by block: whether control vectors move the logits
	vector  editID            // whose control vector is set in the context
}

// tokenEdit is what changes at a token.
type tokenEdit struct {
	changes []change
	// vector are the blocks where all that changes is one addition, which a control vector
	// can make.
	vector []int
}

// plan says what is changed where: at the prompt's tokens, at its last, and at the answer's.
type plan struct{ prompt, end, answer editID }

// plan resolves the edits for a prompt with that hash.
func (e *Engine) plan(hash string) plan {
	if e.edits == nil {
		return plan{}
	}
	if e.edits.plan != nil {
		return *e.edits.plan
	}
	at := func(scopes ...infer.Scope) editID {
		var in []infer.Edit
		for _, x := range e.edits.edits {
			if !slices.Contains(scopes, x.Scope) {
				continue
			}
			if x.Replace != nil {
				row, ok := x.Replace[hash]
				if !ok {
					continue
				}
				x.Replace = map[string][]float32{"": row}
			}
			x.Scope = infer.ScopeAll // the same change has one number in every scope
			in = append(in, x)
		}
		return e.changes.number(in)
	}
	m := plan{at(infer.ScopeAll), at(infer.ScopeAll, infer.ScopePromptEnd), at(infer.ScopeAll, infer.ScopeGenerated)}
	if !slices.ContainsFunc(e.edits.edits, func(x infer.Edit) bool { return x.Replace != nil }) {
		e.edits.plan = &m
	}
	return m
}

// number returns the number of the edits at a token.
func (c *changes) number(edits []infer.Edit) editID {
	hash := infer.HashEdits(edits)
	if id, ok := c.numbers[hash]; ok || hash == "" {
		return id
	}
	var t tokenEdit
	here := map[int]int{} // edits by block
	for _, x := range edits {
		t.changes = append(t.changes, change{x.Block, x.Add, x.Replace[""], x.Erase})
		here[x.Block]++
	}
	for _, x := range edits {
		if x.Add != nil && here[x.Block] == 1 && x.Block > 1 { // the vector of llama.cpp begins after block 1
			t.vector = append(t.vector, x.Block)
		}
	}
	c.made = append(c.made, t)
	c.numbers[hash] = editID(len(c.made))
	return c.numbers[hash]
}

// of returns what a number stands for.
func (c *changes) of(id editID) tokenEdit {
	if id == 0 {
		return tokenEdit{}
	}
	return c.made[id-1]
}

// path is that of a text of which so many tokens are the prompt's.
func (m plan) path(tokens []llama.Token, prompt int) []step {
	out := steps(tokens, m.prompt)
	for i := prompt; i < len(out) && prompt > 0; i++ {
		out[i].edit = m.answer
	}
	if prompt > 0 {
		out[prompt-1].edit = m.end
	}
	return out
}

// vectored reports whether control vectors make all of what changes at a token.
func (c *changes) vectored(id editID) bool {
	t := c.of(id)
	return len(t.changes) == len(t.vector) && !slices.ContainsFunc(t.vector, func(block int) bool { return !c.hooked[block] })
}

// readyToEdit gives the context a tap where edits need one. They need none where every
// token of an evaluation gets the same additions: generated tokens do, one at a time.
func (e *Engine) readyToEdit(ctx context.Context, given bool) error {
	m := e.plan("")
	if err := e.tryHooks(ctx, slices.Concat(e.changes.of(m.prompt).vector, e.changes.of(m.answer).vector)); err != nil {
		return err
	}
	uniform := e.edits.plan != nil && m.prompt == m.end && (!given || m.prompt == m.answer)
	if uniform && e.changes.vectored(m.prompt) && e.changes.vectored(m.answer) {
		return nil
	}
	if e.tap == nil {
		if err := e.tapContext(ctx, e.numCtx, e.opts.Paths); err != nil {
			return err
		}
	}
	return e.checkEdited()
}

// checkEdited looks whether the blocks' outputs are tensors of the model's graph.
func (e *Engine) checkEdited() error {
	if e.edits == nil {
		return nil
	}
	for _, x := range e.edits.edits {
		if _, err := e.tensorsOf([]string{infer.LayerBlock(x.Block)}); err != nil {
			return err
		}
	}
	return nil
}

// tryHooks finds out whether the model's graph adds control vectors after the blocks: that
// of some architectures does not.
func (e *Engine) tryHooks(ctx context.Context, blocks []int) error {
	// Signs alternate: some norms take out what all values have in common.
	alternating := make([]float32, e.width)
	for j := range alternating {
		alternating[j] = float32(1 - 2*(j%2))
	}
	for _, b := range blocks {
		if _, known := e.changes.hooked[b]; known {
			continue
		}
		id := e.changes.number([]infer.Edit{{Block: b, Scope: infer.ScopeAll, Add: alternating}})
		var logits [2][]float32
		for i, edit := range []editID{0, id} {
			e.changes.hooked[b] = true // else the vector is not used
			err := errors.Join(e.forget(), e.push(ctx, steps(make([]llama.Token, fewestRows), edit), []int{fewestRows - 1}, func(_ int, row []float32) error {
				logits[i] = slices.Clone(row)
				return nil
			}), e.forget())
			if err != nil {
				delete(e.changes.hooked, b)
				return err
			}
		}
		e.changes.hooked[b] = !slices.Equal(logits[0], logits[1])
	}
	return nil
}

// edit prepares for an evaluation of a path's next tokens, of which those at outputs have
// outputs.
func (e *Engine) edit(path []step, outputs []int) error {
	uniform := !slices.ContainsFunc(path, func(s step) bool { return s.edit != path[0].edit })
	var vectored []int
	if uniform {
		vectored = slices.DeleteFunc(slices.Clone(e.changes.of(path[0].edit).vector), func(b int) bool { return !e.changes.hooked[b] })
	}
	if err := e.setVector(path[0].edit, vectored); err != nil {
		return err
	}
	edits := map[string][]rowEdit{}
	for i, s := range path {
		for _, c := range e.changes.of(s.edit).changes {
			// What the last block puts out for a token without output is read by nothing.
			if slices.Contains(vectored, c.block) || c.block == e.blocks && !slices.Contains(outputs, i) {
				continue
			}
			name := blockTensor(c.block)
			edits[name] = append(edits[name], rowEdit{i, c})
		}
	}
	if e.tap != nil {
		e.tap.edits = edits
	} else if len(edits) > 0 {
		return errors.New("llamacpp: edits are made in a context without an evaluation callback")
	}
	return nil
}

// setVector makes additions after blocks by llama.cpp's control vector, which acts on every
// token of an evaluation; none takes it away.
func (e *Engine) setVector(id editID, blocks []int) error {
	if len(blocks) == 0 {
		id = 0
	}
	if e.changes.vector == id {
		return nil
	}
	var data []float32
	if id != 0 {
		data = make([]float32, (e.blocks-1)*e.width)
	}
	for _, c := range e.changes.of(id).changes {
		if slices.Contains(blocks, c.block) {
			copy(data[(c.block-2)*e.width:], c.add)
		}
	}
	if code := llama.SetAdapterCvec(e.llama, data, int32(e.width), 1, int32(e.blocks-1)); code != 0 {
		return fmt.Errorf("llamacpp: setting a control vector failed with code %d", code)
	}
	e.changes.vector = id
	return nil
}
