package probe

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/ccmed/ccmed/bench/dialogue"
	"github.com/ccmed/ccmed/bench/run"
	"github.com/ccmed/ccmed/infer"
	"github.com/ccmed/ccmed/probe/activation"
)

// want is a state that is asked for: a token of a sequence.
type want struct{ seq, pos int }

// place is where it belongs: a row of a cell.
type place struct {
	cell activation.Cell
	row  int
}

// cellFiles are the files of an extraction.
type cellFiles map[activation.Cell]*activation.File

// createCells makes the files in the run directory, or opens those that are there
// to go on with them; s has what they share, samples their numbers of rows.
func createCells(ctx context.Context, dir *run.Dir, s activation.Spec, cells []activation.Cell, samples func(activation.Cell) int) (cellFiles, error) {
	files := cellFiles{}
	for _, c := range cells {
		s.Cell, s.Samples = c, samples(c)
		f, err := activation.Create(ctx, dir.Path(), s)
		if err != nil {
			return nil, errors.Join(err, files.close())
		}
		files[c] = f
	}
	return files, nil
}

func (files cellFiles) close() error {
	var errs []error
	for _, f := range files {
		errs = append(errs, f.Close())
	}
	return errors.Join(errs...)
}

// rowsOfTurns is what extractions with a row for every turn of a dialogue share.
type rowsOfTurns struct {
	order []dialogue.Dialogue
	first map[string]int // row of each dialogue's first turn
	total int            // turns of all dialogues
	files cellFiles
}

// use gives each dialogue its rows; count says how many it needs.
func (x *rowsOfTurns) use(ds []dialogue.Dialogue, count func(dialogue.Dialogue) (int, error)) error {
	x.order, x.first, x.total = ds, map[string]int{}, 0
	for _, d := range ds {
		n, err := count(d)
		if err != nil {
			return err
		}
		x.first[d.Key()] = x.total
		x.total += n
	}
	return nil
}

// Rows is the number of turns of all dialogues that Use got.
func (x *rowsOfTurns) Rows() int { return x.total }

// Close closes the files.
func (x *rowsOfTurns) Close() error {
	err := x.files.close()
	x.files = nil
	return err
}

// task asks do about every dialogue.
func (x *rowsOfTurns) task(do func(context.Context, infer.Backend, run.Unit[dialogue.Dialogue], run.Lookup) (run.Sample, error)) run.Task[dialogue.Dialogue] {
	t := run.Task[dialogue.Dialogue]{Name: "extract", Steps: []run.Step[dialogue.Dialogue]{{Name: StepStates, Do: do}}}
	for _, d := range x.order {
		t.Units = append(t.Units, run.Unit[dialogue.Dialogue]{Item: d.Key(), Group: d.Key(), Value: d})
	}
	return t
}

// keep stores the states of a dialogue's turns with their checksums.
func (x *rowsOfTurns) keep(ctx context.Context, r StateReader, out *TurnStates, seqs []infer.Sequence, places map[want][]place) (run.Sample, error) {
	var err error
	if out.NonFinite, err = x.files.store(ctx, r, seqs, places); err != nil {
		return run.Sample{}, fmt.Errorf("read the hidden states: %w", err)
	}
	if err := x.files.sum(out.States); err != nil {
		return run.Sample{}, fmt.Errorf("add up the hidden states: %w", err)
	}
	data, err := json.Marshal(out)
	return run.Sample{Data: data}, err
}

// sum takes the checksums of rows into their places.
func (files cellFiles) sum(places []activation.Place) error {
	for i := range places {
		p := &places[i]
		var err error
		if p.SHA256, _, err = files[p.Cell].Sum(p.Row); err != nil {
			return err
		}
	}
	return nil
}

// store reads states and puts them into their places. States that are not numbers
// are stored as such: their layers then fail by name when they are read, and the
// other layers can be used.
func (files cellFiles) store(ctx context.Context, r StateReader, seqs []infer.Sequence, places map[want][]place) ([]infer.NonFinite, error) {
	type state struct {
		want
		layer int
	}
	layers := r.Layers()
	whole := map[state]bool{}
	put := func(w want, layer int, v []float32) error {
		for _, p := range places[w] {
			if err := files[p.cell].Put(layer, p.row, v); err != nil {
				return err
			}
		}
		return nil
	}
	err := r.States(ctx, seqs, layers, func(seq, pos, layer int, v []float32) error {
		whole[state{want{seq, pos}, layer}] = true
		return put(want{seq, pos}, layer, v)
	})
	var bad *infer.NonFiniteError
	if !errors.As(err, &bad) {
		return nil, err
	}
	nan := slices.Repeat([]float32{float32(math.NaN())}, r.Width())
	for w := range places {
		for layer := range layers {
			if !whole[state{w, layer}] {
				if err := put(w, layer, nan); err != nil {
					return nil, err
				}
			}
		}
	}
	return bad.Layers, nil
}
