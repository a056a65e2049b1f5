package probe

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/ccmed/ccmed/bench/run"
	"github.com/ccmed/ccmed/probe/activation"
	"github.com/ccmed/ccmed/probe/linear"
)

// storeLayers are some rows and layers of a cell's file.
type storeLayers struct {
	file  *activation.File
	names []string
	rows  []int
}

func (s storeLayers) Names() []string { return s.names }

// Layer reads one layer; rows are copied out, since a layer is read once a call.
func (s storeLayers) Layer(_ context.Context, k int) (*linear.Dense32, error) {
	all, err := s.file.Rows(s.names[k])
	if err != nil {
		return nil, err
	}
	data := make([]float32, 0, len(s.rows)*all.Width)
	for _, r := range s.rows {
		data = append(data, all.Row(r)...)
	}
	return linear.NewDense32(len(s.rows), all.Width, data)
}

// store is an opened extraction run.
type store struct {
	files  cellFiles
	states map[string]States // by item
	items  []string          // rows that every cell has, by row
	rows   []int
	left   int
}

func (s *store) close() error { return s.files.close() }

func openStore(dir *run.Dir) (s *store, err error) {
	s = &store{files: cellFiles{}, states: map[string]States{}}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.close())
		}
	}()
	index, err := activation.ReadIndex(dir.All())
	if err != nil {
		return s, err
	}
	for sample, err := range dir.All() {
		if err != nil {
			return s, err
		}
		if sample.Step != StepStates || sample.Unscored != "" {
			continue
		}
		var st States
		if err := json.Unmarshal(sample.Data, &st); err != nil {
			return s, fmt.Errorf("states of item %s: %w", sample.Item, err)
		}
		s.states[sample.Item] = st
	}
	cells := index.Cells()
	if len(cells) == 0 {
		return s, fmt.Errorf("%s holds no hidden states; make some with `ccmed probe extract`", dir.Path())
	}
	in := map[string]int{}
	row := map[string]int{}
	for _, c := range cells {
		f, err := activation.Open(filepath.Join(dir.Path(), c.File()))
		if err != nil {
			return s, err
		}
		s.files[c] = f
		entries, err := index.For(f)
		if err != nil {
			return s, err
		}
		for _, e := range entries {
			there, err := f.Holds(e.Place)
			if err != nil {
				return s, err
			}
			if there {
				in[e.Item]++
				row[e.Item] = e.Row
			}
		}
	}
	for item := range s.states {
		if in[item] == len(cells) {
			s.items = append(s.items, item)
		} else {
			s.left++
		}
	}
	slices.SortFunc(s.items, func(a, b string) int { return row[a] - row[b] })
	for _, item := range s.items {
		s.rows = append(s.rows, row[item])
	}
	return s, nil
}

// cells lists the cells at a position, sorted.
func (s *store) cells(position string) []activation.Cell {
	var out []activation.Cell
	for c := range s.files {
		if c.Position == position {
			out = append(out, c)
		}
	}
	slices.SortFunc(out, cmpCells)
	return out
}

func (s *store) layerNames(asked []string) ([]string, error) {
	for _, f := range s.files {
		return ChosenLayers(f.Spec().Layers, asked)
	}
	return asked, nil
}

// ChosenLayers returns the layers that were asked for, or all where none was.
func ChosenLayers(all, asked []string) ([]string, error) {
	if len(asked) == 0 {
		return all, nil
	}
	for _, l := range asked {
		if !slices.Contains(all, l) {
			return nil, fmt.Errorf("the store has no layer %q; it has %s to %s", l, all[0], all[len(all)-1])
		}
	}
	return asked, nil
}
