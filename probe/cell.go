package probe

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/ccmed/ccmed/bench/dmis"
	"github.com/ccmed/ccmed/bench/run"
	"github.com/ccmed/ccmed/probe/activation"
	"github.com/ccmed/ccmed/probe/linear"
)

// CellStates are the states of one cell of a store, with what their rows are.
type CellStates struct {
	Layers
	Samples
	Items   []string // dialogues, by row
	Spec    activation.Spec
	Classes []string // names of the labels
	close   func() error
}

// ErrNoCell is wrapped where a store lacks the cell that is asked for.
var ErrNoCell = errors.New("the store has no such cell")

// OpenCell opens the states of a cell of an extraction run, of the layers that are named
// or of all, in the dialogues that every cell of the store has. The caller closes them.
func OpenCell(dir *run.Dir, c activation.Cell, layers []string) (out *CellStates, err error) {
	if HoldsTurns(dir) || HoldsQuestions(dir) || HoldsTiming(dir) {
		return nil, fmt.Errorf("%w: %s holds states of turns or questions, not of %s", ErrNoCell, dir.Path(), c)
	}
	s, err := openStore(dir)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.close())
		}
	}()
	file, ok := s.files[c]
	if !ok {
		return nil, fmt.Errorf("%w: %s has no %s; extract one with --conditions %s", ErrNoCell, dir.Path(), c, c.Context)
	}
	names, err := s.layerNames(layers)
	if err != nil {
		return nil, err
	}
	out = &CellStates{Layers: storeLayers{file, names, s.rows}, Items: s.items, Spec: file.Spec(), close: s.close}
	for st := range dmis.Minimization + 1 {
		out.Classes = append(out.Classes, st.String())
	}
	out.Samples.Classes = len(out.Classes)
	for _, item := range s.items {
		st := s.states[item]
		stage, err := dmis.ParseStage(st.Stage)
		if err != nil || int(stage) >= len(out.Classes) {
			return nil, fmt.Errorf("dialogue %s has the stage %q; directions are those of %v", item, st.Stage, out.Classes)
		}
		out.Y, out.Groups = append(out.Y, int(stage)), append(out.Groups, st.Context)
	}
	return out, nil
}

// Close closes the store.
func (c *CellStates) Close() error { return c.close() }

// Labels of OpenTiming.
const (
	Earlier = 0 // a turn before the gold turn
	Gold    = 1
)

// OpenTiming opens the states at the ends of questions whether a mediator should speak, one
// row a turn up to the gold turn; Items are the turns' dialogues. The caller closes them.
func OpenTiming(dir *run.Dir, layers []string) (out *CellStates, err error) {
	if !HoldsTiming(dir) {
		return nil, fmt.Errorf("%w: %s has no questions whether to speak; extract them with --task timing", ErrNoCell, dir.Path())
	}
	samples, err := readTurnStates(dir)
	if err != nil {
		return nil, err
	}
	index, err := activation.ReadIndex(dir.All())
	if err != nil {
		return nil, err
	}
	file, err := activation.Open(filepath.Join(dir.Path(), timingCell.File()))
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, file.Close())
		}
	}()
	out = &CellStates{Spec: file.Spec(), Classes: []string{"earlier", "gold"}, Samples: Samples{Classes: 2}, close: file.Close}
	entries, err := index.For(file)
	if err != nil {
		return nil, err
	}
	var rows []int
	for _, e := range entries {
		st := samples[e.Item]
		at := slices.IndexFunc(st.Turns, func(t TurnState) bool { return t.Row == e.Row })
		there, err := file.Holds(e.Place)
		switch {
		case err != nil:
			return nil, err
		case at < 0:
			return nil, fmt.Errorf("row %d of %s is none of dialogue %s; extract into a new run", e.Row, file.Path(), e.Item)
		case !there:
			continue
		}
		y := Earlier
		if st.Turns[at].Scripted {
			y = Gold
		}
		rows, out.Y, out.Groups, out.Items = append(rows, e.Row), append(out.Y, y), append(out.Groups, st.Context), append(out.Items, e.Item)
	}
	names, err := ChosenLayers(file.Spec().Layers, layers)
	if err != nil {
		return nil, err
	}
	out.Layers = storeLayers{file, names, rows}
	return out, nil
}

// FitWhole fits a probe of states x to all rows, for the samples' labels and for others
// beside them, and returns what each says of raw states. Penalties are chosen on an inner
// part, as in cross-validation.
func (d Design) FitWhole(ctx context.Context, x *linear.Dense32, s Samples, others ...[]int) ([]*linear.Model, error) {
	sets := []linear.Labels{{Y: s.Y}}
	for _, y := range others {
		sets = append(sets, linear.Labels{Y: y})
	}
	fits, err := d.withDefaults().fitWhole(ctx, x, s, sets)
	if err != nil {
		return nil, err
	}
	out := make([]*linear.Model, len(fits))
	for k, f := range fits {
		if out[k], err = f.Model(); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// fitWhole fits every label set to all rows.
func (d Design) fitWhole(ctx context.Context, x *linear.Dense32, s Samples, sets []linear.Labels) ([]*linear.Fitted, error) {
	if err := s.check(); err != nil {
		return nil, err
	}
	all := make([]int, len(s.Y))
	for i := range all {
		all[i] = i
	}
	split := Split{Train: all, Test: all[:1]} // nothing is held out; a part wants a row
	if err := d.inner(s, &split, d.Seeds[0]); err != nil {
		return nil, err
	}
	fits, _, err := d.trainSplit(ctx, x, sets, s.Classes, split)
	return fits, err
}
