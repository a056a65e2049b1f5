package llamacpp

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/ccmed/ccmed/infer"
	"github.com/hybridgroup/yzma/pkg/llama"
)

// Layers names the layers whose states can be read: infer.LayerNames of the
// model's blocks.
func (e *Engine) Layers() []string { return infer.LayerNames(e.blocks) }

// Width is the number of values of a hidden state.
func (e *Engine) Width() int { return e.width }

// States reads the residual stream of the model while it evaluates texts. It
// calls row once for every sequence, wanted token and layer, with their indices
// in seqs, in the sequence and in layers, and Width values that are valid during
// the call only. Sequences come in the order of their prefix tree, tokens in
// their own, layers as given.
//
// Every node of the prefix tree is evaluated once, and what the previous call
// left in the cache is used (but for a token before each first wanted one). On
// the CPU a state is the same to the bit whatever else is asked for. Of an edited model
// the states are those after its edits, see infer.Sequence.
//
// States and Chat use contexts of their own, and one gives way to the other, so
// that both never take memory at once: alternating between them costs the cache.
//
// A text longer than the context is an *infer.ContextError. States that are not
// finite are left out; when all others have been delivered, an
// *infer.NonFiniteError counts them. An error of row ends the call.
func (e *Engine) States(ctx context.Context, seqs []infer.Sequence, layers []string, row func(seq, pos, layer int, x []float32) error) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.model == 0 {
		return ErrClosed
	}
	if err := e.checkLayers(layers); err != nil {
		return err
	}
	r := reading{layers: layers, row: row, bad: make([]infer.NonFinite, len(layers))}
	for i, s := range seqs {
		if s.Prompt == 0 && e.edits.needPrompt() {
			return fmt.Errorf("llamacpp: text %d of %d is no prompt, and the edits are made at a prompt's end or in its answer; learn them with --scope all", i+1, len(seqs))
		}
		if err := r.add(s, e.size, e.opts.NumCtx, e.plan(s.Hash)); err != nil {
			return fmt.Errorf("sequence %d of %d: %w", i+1, len(seqs), err)
		}
	}
	if err := e.readingContext(ctx); err != nil {
		return err
	}
	err := e.checkEdited()
	if err != nil {
		return err
	}
	if e.tap.tensors, err = e.tensorsOf(layers); err != nil {
		return err
	}
	for _, v := range r.visits(e.resident) {
		if err := e.read(ctx, &r, v); err != nil {
			return err
		}
	}
	r.bad = slices.DeleteFunc(r.bad, func(l infer.NonFinite) bool { return l.Rows == 0 })
	if len(r.bad) > 0 {
		return &infer.NonFiniteError{Layers: r.bad}
	}
	return nil
}

// checkLayers wants at least one layer, each of the model's own, none twice.
func (e *Engine) checkLayers(layers []string) error {
	if len(layers) == 0 {
		return errors.New("llamacpp: no layer to read states from")
	}
	known := e.Layers()
	for i, l := range layers {
		if !slices.Contains(known, l) {
			return fmt.Errorf("llamacpp: %s has no layer %q: it has %s, %s to %s and %s", e.opts.Name, l,
				infer.LayerEmbed, infer.LayerBlock(1), infer.LayerBlock(e.blocks), infer.LayerFinalNorm)
		}
		if slices.Contains(layers[:i], l) {
			return fmt.Errorf("llamacpp: layer %q is named twice", l)
		}
	}
	return nil
}

// tapLimit is the most tokens of one evaluation in the states' context: no more
// than are computed together, so that a tensor holds just the tokens of one.
func (e *Engine) tapLimit() int { return max(e.opts.UBatch, 2*fewestRows) }

// readingContext makes the context the one that states are read in, of one slot.
func (e *Engine) readingContext(ctx context.Context) error {
	if e.reading {
		return nil
	}
	if err := e.tapContext(ctx, e.opts.NumCtx, 1); err != nil {
		return err
	}
	e.reading = true
	return nil
}

// tapContext makes the context one with a tap, of so many slots, n tokens each, and lists
// the tensors that the model's graph computes.
func (e *Engine) tapContext(ctx context.Context, n, slots int) error {
	callback, err := evalCallback(library.info.Dir)
	if err != nil {
		return err
	}
	if err := e.dropContext(); err != nil {
		return err
	}
	t := &tap{width: e.width}
	p := e.contextParams(n, slots)
	p.NBatch, p.NUbatch = uint32(e.tapLimit()), uint32(e.tapLimit())
	p.CbEval, p.CbEvalUserData = callback, uintptr(e.model)
	taps.Store(uintptr(e.model), t)
	if err := e.newContext(n, p); err != nil {
		taps.Delete(uintptr(e.model))
		return err
	}
	e.tap = t
	t.listing = true
	err = e.advance(ctx, make([]step, 2), []int{1}, func(int, []int) error { return nil })
	t.listing = false
	if err != nil {
		return errors.Join(err, e.dropContext())
	}
	return e.forget()
}

// embedTensors are names of the embeddings as the first block gets them, the
// later a step in the graph the earlier here: some models scale them.
var embedTensors = []string{"inp_scaled", "embd"}

// blockTensor names a block's output in the model's graph.
func blockTensor(block int) string { return fmt.Sprintf("l_out-%d", block-1) }

// tensorsOf returns the names of the tensors of the model's graph that hold the
// layers' states.
func (e *Engine) tensorsOf(layers []string) ([]string, error) {
	tensors := make([]string, len(layers))
	for i, l := range layers {
		var names []string
		var block int
		switch _, err := fmt.Sscanf(l, "block.%d", &block); {
		case err == nil:
			names = []string{blockTensor(block)}
		case l == infer.LayerEmbed:
			names = embedTensors
		default:
			names = []string{"result_norm"}
		}
		k := slices.IndexFunc(names, func(n string) bool { return slices.Contains(e.tap.asked, n) })
		if k < 0 {
			return nil, fmt.Errorf("llamacpp: the states of %s cannot be read: architecture %s has no tensor %s, only %s",
				l, e.id.Architecture, strings.Join(names, " or "), kinds(e.tap.asked))
		}
		tensors[i] = names[k]
	}
	return tensors, nil
}

// reading is one call of States.
type reading struct {
	layers  []string
	row     func(seq, pos, layer int, x []float32) error
	seqs    [][]step
	pending [][]int // by sequence: the wanted tokens that no visit reads yet, ascending
	bad     []infer.NonFinite
}

// add checks a sequence for a model with that many tokens and that context.
func (r *reading) add(s infer.Sequence, vocabulary, numCtx int, m plan) error {
	if len(s.Tokens) > numCtx {
		return &infer.ContextError{Need: len(s.Tokens), Have: numCtx}
	}
	tokens := make([]llama.Token, len(s.Tokens))
	for i, t := range s.Tokens {
		if t < 0 || int(t) >= vocabulary {
			return fmt.Errorf("llamacpp: token %d is %d, and the vocabulary has %d", i, t, vocabulary)
		}
		tokens[i] = llama.Token(t)
	}
	at := slices.Compact(slices.Sorted(slices.Values(s.At)))
	if len(at) > 0 && (at[0] < 0 || at[len(at)-1] >= len(tokens)) {
		return fmt.Errorf("llamacpp: states are wanted at tokens %v of a text of %d tokens", s.At, len(tokens))
	}
	if s.Prompt < 0 || s.Prompt > len(tokens) {
		return fmt.Errorf("llamacpp: %d tokens are the prompt's, of a text of %d", s.Prompt, len(tokens))
	}
	r.seqs, r.pending = append(r.seqs, m.path(tokens, s.Prompt)), append(r.pending, at)
	return nil
}

// visit is a path down the prefix tree, up to its last wanted token.
type visit struct {
	path    []step
	want    []int         // ascending
	waiting map[int][]int // by wanted token: the sequences that want it
}

// visits plans to read the prefix tree of the sequences depth first. A visit
// reads what later sequences want in their common part with its own.
func (r *reading) visits(resident []step) []visit {
	order := depthFirst(r.seqs, resident)
	shared := make([]int, len(order)+1) // by rank: tokens in common with the sequence before
	for i := 1; i < len(order); i++ {
		shared[i] = commonPrefix(r.seqs[order[i-1]], r.seqs[order[i]])
	}
	var plan []visit
	for i, k := range order {
		v := visit{waiting: map[int][]int{}}
		for j, common := i, len(r.seqs[k]); common > 0; j++ {
			s := order[j]
			n := 0
			for ; n < len(r.pending[s]) && r.pending[s][n] < common; n++ {
				at := r.pending[s][n]
				v.waiting[at] = append(v.waiting[at], s)
			}
			r.pending[s] = r.pending[s][n:]
			common = min(common, shared[j+1])
		}
		if len(v.waiting) == 0 {
			continue
		}
		v.want = slices.Sorted(maps.Keys(v.waiting))
		v.path = r.seqs[k][:v.want[len(v.want)-1]+1]
		plan = append(plan, v)
	}
	return plan
}

// read evaluates a visit's path from where the cache leaves off, and delivers
// the states.
func (e *Engine) read(ctx context.Context, r *reading, v visit) error {
	keep, err := e.resume(v.path, v.want[0]+1)
	if err != nil {
		return err
	}
	want := make([]int, len(v.want))
	for i, at := range v.want {
		want[i] = at - keep
	}
	return e.advance(ctx, v.path[keep:], want, func(done int, outputs []int) error {
		if missing := e.tap.missing(); len(outputs) > 0 && len(missing) > 0 {
			return errors.Join(fmt.Errorf("llamacpp: llama.cpp did not compute %s", strings.Join(missing, ", ")), e.forget())
		}
		for j, o := range outputs {
			at := keep + done + o
			for l := range r.layers {
				if err := r.deliver(v.waiting[at], at, l, e.tap.state(l, j)); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

// deliver hands a finite state to every sequence that wants it, and counts
// another for each.
func (r *reading) deliver(seqs []int, pos, layer int, x []float32) error {
	bad := 0
	for _, v := range x {
		if f := float64(v); math.IsNaN(f) || math.IsInf(f, 0) {
			bad++
		}
	}
	if bad > 0 {
		b := &r.bad[layer]
		b.Layer, b.Rows, b.Values = r.layers[layer], b.Rows+len(seqs), b.Values+bad*len(seqs)
		return nil
	}
	for _, s := range seqs {
		if err := r.row(s, pos, layer, x); err != nil {
			return err
		}
	}
	return nil
}
