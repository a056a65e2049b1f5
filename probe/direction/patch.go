package direction

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/ccmed/ccmed/bench/run"
	"github.com/ccmed/ccmed/infer"
	"github.com/ccmed/ccmed/probe"
	"github.com/ccmed/ccmed/probe/activation"
	"github.com/ccmed/ccmed/probe/linear"
)

// Own is the class of a file of the kind Patch: the D state of the same dialogue. Its
// controls are those of the next dialogue of another scenario context, of the same and of
// another stage.
const (
	Own        = "own"
	sameStage  = Own + ":same-stage"
	otherStage = Own + ":other-stage"
)

// LearnStates takes states out of a store to put them in the place of those at the end of its
// ND prompts: of Patch those at the end of the D prompts, after the same block, and of Lens
// those of the named blocks at the end of the ND prompts, after the last block. hash gives
// Prompt.Hash of a dialogue's ND prompt.
func LearnStates(ctx context.Context, dir *run.Dir, o Options, hash func(item string) (string, error)) (f *File, err error) {
	contextName := map[string]string{Patch: probe.ContextD, Lens: probe.ContextND}[o.Kind]
	if contextName == "" {
		return nil, fmt.Errorf("unknown kind of stored states %q; known are %s and %s", o.Kind, Patch, Lens)
	}
	if len(o.Layers) == 0 {
		return nil, errors.New("no layer named; name a block, such as block.15")
	}
	if len(o.Scope) > 0 && (len(o.Scope) != 1 || o.Scope[0] != infer.ScopePromptEnd) {
		return nil, fmt.Errorf("stored states are of the prompt's end; leave the scope out")
	}
	states, err := probe.OpenCell(dir, activation.Cell{Context: contextName, Text: probe.TextPrompt, Position: probe.PromptEnd, Kind: activation.Residual}, o.Layers)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, states.Close()) }()
	f = &File{tensors: newTensors(), Card: Card{Schema: schema, Kind: o.Kind, Model: states.Spec.Model, Width: states.Spec.Width, Layers: o.Layers,
		Scope: []string{string(infer.ScopePromptEnd)}, Norms: map[string][]float64{}, Cell: states.Spec.Cell, Items: len(states.Items)}}
	if f.Store, err = dir.SamplesHash(); err != nil {
		return nil, err
	}
	for _, item := range states.Items {
		h, err := hash(item)
		if err != nil {
			return nil, err
		}
		f.Prompts = append(f.Prompts, h)
	}
	if o.Kind == Lens {
		f.Layers = []string{lastBlock(states.Spec.Layers)}
	}
	for k, layer := range o.Layers {
		if _, err := block(layer); err != nil {
			return nil, err
		}
		x, err := states.Layer(ctx, k)
		if err == nil {
			err = x.Check()
		}
		if err == nil {
			err = f.keepStates(layer, x, states)
		}
		if err != nil {
			return nil, fmt.Errorf("take the states of layer %s: %w", layer, err)
		}
	}
	return f, f.check()
}

// lastBlock is the last layer that is a block.
func lastBlock(layers []string) (out string) {
	for _, l := range layers {
		if strings.HasPrefix(l, "block.") {
			out = l
		}
	}
	return out
}

// keepStates keeps the states of a layer, of Patch with those of other dialogues.
func (f *File) keepStates(layer string, x *linear.Dense32, states *probe.CellStates) error {
	if f.Kind == Lens {
		f.keepRows(f.Layers[0], layer, x, nil)
		return nil
	}
	f.keepRows(layer, Own, x, nil)
	for class, same := range map[string]bool{sameStage: true, otherStage: false} {
		donors := make([]int, len(states.Items))
		for i := range donors {
			donors[i] = next(states, i, same)
			if donors[i] < 0 {
				return fmt.Errorf("dialogue %s has no other one of another scenario context to take states from", states.Items[i])
			}
		}
		f.keepRows(layer, class, x, donors)
	}
	return nil
}

// next is the next dialogue, cyclically, of another scenario context and of the same stage or
// of another one; -1 where there is none.
func next(states *probe.CellStates, i int, same bool) int {
	n := len(states.Items)
	for step := 1; step < n; step++ {
		k := (i + step) % n
		if states.Groups[k] != states.Groups[i] && (states.Y[k] == states.Y[i]) == same {
			return k
		}
	}
	return -1
}

// keepRows keeps the rows of donors, or all in their order where there are none named.
func (f *File) keepRows(layer, class string, x *linear.Dense32, donors []int) {
	n, d := x.Dims()
	rows, sum := make([][]float64, n), 0.0
	for i := range n {
		from := i
		if donors != nil {
			from = donors[i]
		}
		rows[i] = make([]float64, d)
		square := 0.0
		for j, v := range x.Row(from) {
			rows[i][j] = float64(v)
			square += float64(v) * float64(v)
		}
		sum += math.Sqrt(square)
	}
	f.put(layer, class, partReplace, rows...)
	f.Norms[class] = append(f.Norms[class], sum/float64(n))
	if !slices.Contains(f.Classes, class) {
		f.Classes = append(f.Classes, class)
		slices.Sort(f.Classes)
	}
}
