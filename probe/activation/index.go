package activation

import (
	"cmp"
	"encoding/json"
	"fmt"
	"iter"
	"maps"
	"path/filepath"
	"slices"

	"github.com/ccmed/ccmed/bench/run"
)

// Place says where the states of one position of a sample lie.
type Place struct {
	Cell   Cell `json:"cell"`
	Row    int  `json:"row"`    // in the cell's file, from 0
	Tokens int  `json:"tokens"` // of the sequence that was evaluated, context and text together
	Token  int  `json:"token"`  // whose states these are, 0..Tokens-1
	// SHA256 is the checksum of the row as it was stored, see File.Sum; older samples
	// have none.
	SHA256 string `json:"sha256,omitempty"`
}

// Places is what an extraction step puts into run.Sample.Data, embedded in
// whatever else it keeps there.
type Places struct {
	States []Place `json:"states"`
}

// Entry is a Place and the sample that it belongs to.
type Entry struct {
	run.Key
	Group string // as in run.Sample
	Place
}

// Index tells which sample each row of each cell belongs to.
type Index struct{ cells map[Cell][]Entry }

// ReadIndex reads the places out of a run's samples, as run.Dir.All gives them.
// Unscored samples and samples without states have none. Two samples in one row
// are an error, and so is a token that the sequence does not have.
func ReadIndex(samples iter.Seq2[run.Sample, error]) (*Index, error) {
	x := &Index{map[Cell][]Entry{}}
	for s, err := range samples {
		if err != nil {
			return nil, fmt.Errorf("read the index of hidden states: %w", err)
		}
		if s.Unscored != "" || len(s.Data) == 0 {
			continue
		}
		var p Places
		if err := json.Unmarshal(s.Data, &p); err != nil {
			return nil, fmt.Errorf("read the index of hidden states: %s: %w", s.Key, err)
		}
		for _, place := range p.States {
			place.Cell = place.Cell.canonical()
			if err := place.check(); err != nil {
				return nil, fmt.Errorf("read the index of hidden states: %s: %w", s.Key, err)
			}
			x.cells[place.Cell] = append(x.cells[place.Cell], Entry{s.Key, s.Group, place})
		}
	}
	for cell, es := range x.cells {
		slices.SortStableFunc(es, func(a, b Entry) int { return cmp.Compare(a.Row, b.Row) })
		for i := 1; i < len(es); i++ {
			if es[i].Row == es[i-1].Row {
				return nil, fmt.Errorf("row %d of %s belongs to %s and to %s; extract into a new run", es[i].Row, cell, es[i-1].Key, es[i].Key)
			}
		}
	}
	return x, nil
}

func (p Place) check() error {
	if err := p.Cell.check(); err != nil {
		return err
	}
	if p.Row < 0 {
		return fmt.Errorf("its states lie in row %d of %s", p.Row, p.Cell)
	}
	if p.Token < 0 || p.Token >= p.Tokens {
		return fmt.Errorf("its states in %s are those of token %d of %d", p.Cell, p.Token, p.Tokens)
	}
	return nil
}

// Cells returns the cells that have entries, in the order of their file names.
func (x *Index) Cells() []Cell {
	return slices.SortedFunc(maps.Keys(x.cells), func(a, b Cell) int { return cmp.Compare(a.File(), b.File()) })
}

// Entries returns a cell's entries by row. Rows without a sample are left out.
func (x *Index) Entries(c Cell) []Entry { return slices.Clone(x.cells[c.canonical()]) }

// For returns the entries of a file by row, or an error when one lies outside it or
// the file is not that of its cell.
func (x *Index) For(f *File) ([]Entry, error) {
	if name := f.spec.Cell.File(); name != filepath.Base(f.path) {
		return nil, &run.ChangedError{File: f.path, What: "its header names the cell of " + name}
	}
	es := x.Entries(f.spec.Cell)
	if n := len(es); n > 0 && es[n-1].Row >= f.spec.Samples {
		return nil, fmt.Errorf("%s has %d rows, but %s lies in row %d: the samples and the file are of different runs", f.path, f.spec.Samples, es[n-1].Key, es[n-1].Row)
	}
	return es, nil
}
