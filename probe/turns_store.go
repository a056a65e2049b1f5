package probe

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"

	"github.com/ccmed/ccmed/bench/dmis"
	"github.com/ccmed/ccmed/bench/run"
	"github.com/ccmed/ccmed/probe/activation"
)

// FindTurns trains probes on the scripted turns of a store of turns and puts
// together what they make of unscripted and of edited ones. Of the options it
// takes Design, Resampling, Layers and Progress.
func FindTurns(ctx context.Context, dir *run.Dir, o FindOptions) (out *TurnFindings, err error) {
	o = o.withDefaults()
	if o.Grouping != GroupContext {
		return nil, fmt.Errorf("folds of turns are of whole scenario contexts; %q is for the states of prompts and utterances", o.Grouping)
	}
	s, err := openTurns(dir)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	names, err := ChosenLayers(s.names, o.Layers)
	if err != nil {
		return nil, err
	}
	if len(s.rows) == 0 {
		return nil, fmt.Errorf("%s holds no state of a conflict turn; extract again with `ccmed probe extract --turns`", dir.Path())
	}
	o.Progress(fmt.Sprintf("probing %d turns in %d layers", len(s.rows), len(names)))
	out, err = FindTurnsIn(ctx, s.layers(names), s.rows, o.Design, o.Resampling)
	if err != nil {
		return nil, err
	}
	out.Left = s.left
	if out.Unscripted != nil {
		out.Unscripted.Outside = s.outside
	}
	for _, e := range slices.Sorted(maps.Keys(s.missing)) {
		out.Notes = append(out.Notes, fmt.Sprintf("edit %s: %d turns could not be edited", e, s.missing[e]))
	}
	out.Samples, err = dir.SamplesHash()
	return out, err
}

// turnStore is an opened store of turns.
type turnStore struct {
	names   []string
	files   []*activation.File // of the cells that have rows, in the order of rows
	in      [][]int            // rows of each file
	rows    []TurnRow          // of all files, one after the other
	left    int
	outside map[string]int // unscripted turns by a label that no conflict is scripted with
	missing map[string]int // turns without an edit
}

func (s *turnStore) close() error {
	var errs []error
	for _, f := range s.files {
		errs = append(errs, f.Close())
	}
	return errors.Join(errs...)
}

func (s *turnStore) layers(names []string) Layers {
	var out stack
	for i, f := range s.files {
		if len(s.in[i]) > 0 {
			out = append(out, storeLayers{f, names, s.in[i]})
		}
	}
	return out
}

func openTurns(dir *run.Dir) (s *turnStore, err error) {
	s = &turnStore{outside: map[string]int{}, missing: map[string]int{}}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.close())
		}
	}()
	if !HoldsTurns(dir) {
		return s, fmt.Errorf("%s holds no states at the ends of turns; make some with `ccmed probe extract --turns`", dir.Path())
	}
	index, err := activation.ReadIndex(dir.All())
	if err != nil {
		return s, err
	}
	states, err := readTurnStates(dir)
	if err != nil {
		return s, err
	}
	for _, c := range index.Cells() {
		if c.Position != TurnEnd {
			continue
		}
		f, err := activation.Open(filepath.Join(dir.Path(), c.File()))
		if err != nil {
			return s, err
		}
		s.files, s.in = append(s.files, f), append(s.in, nil)
		s.names = f.Spec().Layers
		entries, err := index.For(f)
		if err != nil {
			return s, err
		}
		for _, e := range entries {
			if err := s.add(f, states[e.Item], e); err != nil {
				return s, fmt.Errorf("item %s: %w", e.Item, err)
			}
		}
	}
	scripted := map[string]bool{}
	for _, r := range s.rows {
		if r.Kind == KindScripted {
			scripted[r.Item] = true
		}
	}
	s.left = len(states) - len(scripted)
	for _, st := range states {
		for e := range st.Missing {
			s.missing[e]++
		}
	}
	return s, nil
}

func readTurnStates(dir *run.Dir) (map[string]TurnStates, error) {
	out := map[string]TurnStates{}
	for sample, err := range dir.All() {
		if err != nil {
			return nil, err
		}
		if sample.Step != StepStates || sample.Unscored != "" {
			continue
		}
		var st TurnStates
		if err := json.Unmarshal(sample.Data, &st); err != nil {
			return nil, fmt.Errorf("states of item %s: %w", sample.Item, err)
		}
		out[sample.Item] = st
	}
	return out, nil
}

// add takes a row of a file, unless its states are missing or its label is none
// that probes can give.
func (s *turnStore) add(f *activation.File, st TurnStates, e activation.Entry) error {
	script, err := dmis.ParseStage(st.Stage)
	if err != nil {
		return err
	}
	if !script.Ethnocentric() {
		return nil // no class of the probes: counted as left out
	}
	row := TurnRow{Item: e.Item, Kind: e.Cell.Text, Group: st.Context, Label: int(script), Script: int(script)}
	if e.Cell.Text == TextOriginal {
		at := slices.IndexFunc(st.Turns, func(t TurnState) bool { return t.Row == e.Row })
		if at < 0 {
			return fmt.Errorf("row %d of %s is none of its turns; extract into a new run", e.Row, f.Path())
		}
		row.Kind, row.Text = KindScripted, st.Turns[at].Text
		if !st.Turns[at].Scripted {
			label, err := dmis.ParseStage(st.Turns[at].Label)
			if err != nil {
				return err
			}
			if !label.Ethnocentric() {
				s.outside[label.String()]++
				return nil
			}
			row.Kind, row.Label = KindUnscripted, int(label)
		}
	} else {
		edited := st.Edits[e.Cell.Text]
		row.Text = edited.Text
		if e.Cell.Text == EditSwap {
			to, err := dmis.ParseStage(edited.To)
			if err != nil {
				return err
			}
			row.To = int(to)
		}
	}
	there, err := f.Holds(e.Place)
	if err != nil || !there {
		return err
	}
	last := len(s.files) - 1
	s.in[last], s.rows = append(s.in[last], e.Row), append(s.rows, row)
	return nil
}
