package probe

import (
	"context"
	"errors"
	"math"
	"slices"

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
