// Package arrays takes hidden states out of a store for notebooks, and takes states that
// were made elsewhere into one.
//
//	files, err := arrays.Export(ctx, dir, "arrays", arrays.Options{})
//	err = arrays.Import(ctx, "runs/STORE", card, arrays.Target{Identity: id})
//
// An exported folder can be imported as it is: its card.json is the card.
package arrays

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/ccmed/ccmed/bench/dmis"
	"github.com/ccmed/ccmed/bench/run"
	"github.com/ccmed/ccmed/probe"
	"github.com/ccmed/ccmed/probe/activation"
	"github.com/ccmed/ccmed/probe/linear"
)

// Formats of an export, one file a cell.
const (
	NPZ     = "npz"
	Parquet = "parquet"
)

// Options steer Export.
type Options struct {
	Format string       // NPZ (also "") or Parquet
	Layers []string     // nil takes all
	Design probe.Design // whose outer folds are written
	Note   func(format string, args ...any)
}

// Meta says what the arrays of an exported cell are: meta.json in its file.
type Meta struct {
	Model  activation.Model `json:"model"`
	Cell   activation.Cell  `json:"cell"`
	Layers []string         `json:"layers"` // of the first axis of X
	Items  []string         `json:"items"`  // dialogue of each row
	Groups []string         `json:"groups"` // scenario contexts, by the numbers in group; the same in all cells of a store
	Stages []string         `json:"stages"` // by the numbers in y
	Folds  int              `json:"folds,omitempty"`
	Seeds  []uint64         `json:"seeds,omitempty"` // of the partitions, the first axis of fold
}

// part is a cell that is written.
type part struct {
	Meta
	file     *activation.File
	entries  []activation.Entry // of its rows
	y, group []int64
	turn     []int64
	fold     [][]int64 // by partition; nil without
}

// Export writes every cell of a store into a new folder and returns the files' names:
// NumPy archives, or Parquet tables with a row for each layer and row. Rows whose states
// are missing are left out. One layer is in memory at a time. Beside the archives of a
// store of lines stands card.json, by which Import takes them in again.
func Export(ctx context.Context, dir *run.Dir, out string, o Options) (files []string, err error) {
	if _, err := os.Stat(out); err == nil {
		return nil, fmt.Errorf("%s exists; name a new folder", out)
	}
	store, err := openStore(dir, o)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(out, 0o755); err != nil {
		return nil, fmt.Errorf("make the folder of arrays: %w", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.RemoveAll(out))
		}
	}()
	card := store.newCard()
	for _, c := range store.index.Cells() {
		name, err := store.export(ctx, c, out, o, card)
		if err != nil {
			return files, fmt.Errorf("export %s: %w", c, err)
		}
		files = append(files, name)
	}
	if card == nil || o.Format == Parquet {
		return files, nil
	}
	return append(files, CardFile), writeCard(filepath.Join(out, CardFile), card)
}

// store is a store that is exported.
type store struct {
	dir    *run.Dir
	index  *activation.Index
	states map[string]states // by item
	lines  bool              // it has a row for each dialogue
	groups []string          // sorted
	folds  *probe.OuterFolds // nil where there are none
}

// states is the data of a sample of any store.
type states struct {
	probe.States
	Turns []probe.TurnState `json:"turns"`
}

func openStore(dir *run.Dir, o Options) (*store, error) {
	index, err := activation.ReadIndex(dir.All())
	if err != nil {
		return nil, err
	}
	if len(index.Cells()) == 0 {
		return nil, fmt.Errorf("%s holds no hidden states; make some with `ccmed probe extract`", dir.Path())
	}
	s := &store{dir: dir, index: index, lines: !probe.HoldsTurns(dir) && !probe.HoldsQuestions(dir) && !probe.HoldsTiming(dir), states: map[string]states{}}
	for sample, err := range dir.All() {
		if err != nil {
			return nil, err
		}
		if sample.Step != probe.StepStates || sample.Unscored != "" {
			continue
		}
		var st states
		if err := json.Unmarshal(sample.Data, &st); err != nil {
			return nil, fmt.Errorf("states of item %s: %w", sample.Item, err)
		}
		s.states[sample.Item], s.groups = st, append(s.groups, st.Context)
	}
	slices.Sort(s.groups)
	s.groups = slices.Compact(s.groups)
	s.folds, err = probe.ReadFolds(dir, o.Design)
	if errors.Is(err, linear.ErrFolds) || errors.Is(err, linear.ErrClasses) || errors.Is(err, probe.ErrDesign) {
		o.Note("note: the arrays have no folds: %v; ask for fewer with --folds", err)
		err = nil
	}
	return s, err
}

// export writes one cell, and adds it to the card, and returns its file's name.
func (s *store) export(ctx context.Context, c activation.Cell, out string, o Options, card *Card) (name string, err error) {
	f, err := activation.Open(filepath.Join(s.dir.Path(), c.File()))
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	p, err := s.part(f, o.Layers)
	if err != nil {
		return "", err
	}
	name = strings.TrimSuffix(c.File(), ".safetensors")
	if o.Format == Parquet {
		name += ".parquet"
		return name, writeParquet(ctx, filepath.Join(out, name), p)
	}
	name += ".npz"
	if card != nil {
		card.add(name, p)
	}
	return name, writeArchive(ctx, filepath.Join(out, name), p)
}

// part collects what the rows of a cell are.
func (s *store) part(f *activation.File, layers []string) (*part, error) {
	entries, err := s.index.For(f)
	if err != nil {
		return nil, err
	}
	p := &part{file: f, Meta: Meta{Model: f.Spec().Model, Cell: f.Spec().Cell, Groups: s.groups}}
	if p.Layers, err = probe.ChosenLayers(f.Spec().Layers, layers); err != nil {
		return nil, err
	}
	for stage := dmis.Denial; int(stage) < dmis.NumStages; stage++ {
		p.Stages = append(p.Stages, stage.String())
	}
	if s.folds != nil {
		p.Folds, p.Seeds, p.fold = s.folds.Folds, s.folds.Seeds, make([][]int64, len(s.folds.Seeds))
	}
	for _, e := range entries {
		there, err := f.Holds(e.Place)
		if err != nil {
			return nil, err
		}
		if !there {
			continue
		}
		if err := s.addRow(p, e); err != nil {
			return nil, err
		}
	}
	if len(p.entries) == 0 {
		return nil, errors.New("none of its rows has states")
	}
	return p, nil
}

// addRow adds what a row is: of its dialogue, or in a store of turns or questions of the turn.
func (s *store) addRow(p *part, e activation.Entry) error {
	st := s.states[e.Item]
	stage, turn := st.Stage, st.Turn
	if at := slices.IndexFunc(st.Turns, func(t probe.TurnState) bool { return t.Row == e.Row }); at >= 0 && probe.HasRowsOfTurns(e.Cell) {
		stage, turn = st.Turns[at].Label, st.Turns[at].Turn
	}
	if stage == "" {
		return fmt.Errorf("dialogue %s has no stage; extract into a new run", e.Item)
	}
	y, err := dmis.ParseStage(stage)
	if err != nil {
		return fmt.Errorf("dialogue %s: %w", e.Item, err)
	}
	group, _ := slices.BinarySearch(s.groups, st.Context)
	p.entries, p.Items = append(p.entries, e), append(p.Items, e.Item)
	p.y, p.group, p.turn = append(p.y, int64(y)), append(p.group, int64(group)), append(p.turn, int64(turn))
	if s.folds != nil {
		for k, fold := range s.folds.Of(e.Item, st.Context) {
			p.fold[k] = append(p.fold[k], fold)
		}
	}
	return nil
}

// layer gives the rows of one layer, one after the other.
func (p *part) layer(ctx context.Context, name string, each func(row int, x []float32) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	all, err := p.file.Rows(name)
	if err != nil {
		return err
	}
	for i, e := range p.entries {
		if err := each(i, all.Row(e.Row)); err != nil {
			return err
		}
	}
	return nil
}

func writeCard(path string, card *Card) error {
	text, err := json.MarshalIndent(card, "", "  ")
	if err == nil {
		err = os.WriteFile(path, append(text, '\n'), 0o644)
	}
	if err != nil {
		return fmt.Errorf("write the card of the arrays: %w", err)
	}
	return nil
}
