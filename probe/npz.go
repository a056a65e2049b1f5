package probe

import (
	"archive/zip"
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"gorgonia.org/tensor"

	"github.com/ccmed/ccmed/bench/dmis"
	"github.com/ccmed/ccmed/bench/run"
	"github.com/ccmed/ccmed/probe/activation"
)

// ArrayMeta says what the arrays of an exported cell are: meta.json in its file.
type ArrayMeta struct {
	Model  activation.Model `json:"model"`
	Cell   activation.Cell  `json:"cell"`
	Layers []string         `json:"layers"` // of the first axis of X
	Items  []string         `json:"items"`  // dialogue of each row
	Groups []string         `json:"groups"` // scenario contexts, by the numbers in group; the same in all cells of a store
	Stages []string         `json:"stages"` // by the numbers in y
}

// ExportArrays writes every cell of a store as a NumPy archive (.npz) into a new folder, for
// notebooks: X of shape (layers, rows, width), float32; y and group of shape (rows), int64,
// the stage and the scenario context by number; turn of shape (rows), int64, of the turn
// that a row is about; and meta.json, which names them. Rows whose states are missing are
// left out. layers chooses layers; nil takes all. It returns the files' names.
func ExportArrays(ctx context.Context, dir *run.Dir, out string, layers []string) (files []string, err error) {
	if _, err := os.Stat(out); err == nil {
		return nil, fmt.Errorf("%s exists; name a new folder", out)
	}
	rows, groups, err := readRows(dir)
	if err != nil {
		return nil, err
	}
	index, err := activation.ReadIndex(dir.All())
	if err != nil {
		return nil, err
	}
	if len(index.Cells()) == 0 {
		return nil, fmt.Errorf("%s holds no hidden states; make some with `ccmed probe extract`", dir.Path())
	}
	if err := os.MkdirAll(out, 0o755); err != nil {
		return nil, fmt.Errorf("make the folder of arrays: %w", err)
	}
	for _, c := range index.Cells() {
		if err := ctx.Err(); err != nil {
			return files, errors.Join(err, os.RemoveAll(out))
		}
		name := strings.TrimSuffix(c.File(), ".safetensors") + ".npz"
		if err := exportCell(dir, index, c, rows, groups, layers, filepath.Join(out, name)); err != nil {
			return files, errors.Join(fmt.Errorf("export %s: %w", c, err), os.RemoveAll(out))
		}
		files = append(files, name)
	}
	return files, nil
}

// rowFacts are what is known of a row beside its states.
type rowFacts struct {
	stage, context string
	turn           int
}

// readRows returns the facts of a sample's row in a cell: those of its dialogue, or in a
// store of turns or questions those of the turn. groups are the scenario contexts, sorted.
func readRows(dir *run.Dir) (of func(activation.Entry) (rowFacts, error), groups []string, err error) {
	turns := HoldsTurns(dir) || HoldsQuestions(dir)
	samples, err := readTurnStates(dir) // States has the same fields, but for the turns
	if err != nil {
		return nil, nil, err
	}
	for _, st := range samples {
		groups = append(groups, st.Context)
	}
	slices.Sort(groups)
	return func(e activation.Entry) (rowFacts, error) {
		st := samples[e.Item]
		if turns {
			if at := slices.IndexFunc(st.Turns, func(t TurnState) bool { return t.Row == e.Row }); at >= 0 && (e.Cell.Text == TextOriginal || e.Cell.Text == questionCell.Text) {
				return rowFacts{st.Turns[at].Label, st.Context, st.Turns[at].Turn}, nil
			}
		}
		if st.Stage == "" {
			return rowFacts{}, fmt.Errorf("dialogue %s has no stage; extract into a new run", e.Item)
		}
		return rowFacts{st.Stage, st.Context, st.Turn}, nil
	}, slices.Compact(groups), nil
}

func exportCell(dir *run.Dir, index *activation.Index, c activation.Cell, facts func(activation.Entry) (rowFacts, error), groups, layers []string, path string) (err error) {
	f, err := activation.Open(filepath.Join(dir.Path(), c.File()))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	entries, err := index.For(f)
	if err != nil {
		return err
	}
	meta := ArrayMeta{Model: f.Spec().Model, Cell: c, Groups: groups}
	if meta.Layers, err = chosenLayers(f.Spec().Layers, layers); err != nil {
		return err
	}
	for stage := dmis.Denial; int(stage) < dmis.NumStages; stage++ {
		meta.Stages = append(meta.Stages, stage.String())
	}
	var y, group, turn []int64
	var rows []int
	for _, e := range entries {
		there, err := f.Holds(e.Place)
		if err != nil {
			return err
		}
		if !there {
			continue
		}
		known, err := facts(e)
		if err != nil {
			return err
		}
		stage, err := dmis.ParseStage(known.stage)
		if err != nil {
			return fmt.Errorf("dialogue %s: %w", e.Item, err)
		}
		at, _ := slices.BinarySearch(groups, known.context)
		rows, meta.Items = append(rows, e.Row), append(meta.Items, e.Item)
		y, group, turn = append(y, int64(stage)), append(group, int64(at)), append(turn, int64(known.turn))
	}
	if len(rows) == 0 {
		return errors.New("none of its rows has states")
	}
	x := make([]float32, 0, len(meta.Layers)*len(rows)*f.Spec().Width)
	for _, l := range meta.Layers {
		all, err := f.Rows(l)
		if err != nil {
			return err
		}
		for _, r := range rows {
			x = append(x, all.Row(r)...)
		}
	}
	return writeArchive(path, meta, []array{{"X", []int{len(meta.Layers), len(rows), f.Spec().Width}, x}, {"y", []int{len(rows)}, y}, {"group", []int{len(rows)}, group}, {"turn", []int{len(rows)}, turn}})
}

type array struct {
	name    string
	shape   []int
	backing any
}

// writeArchive writes arrays and what they are as a NumPy archive.
func writeArchive(path string, meta ArrayMeta, arrays []array) (err error) {
	f, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("write arrays: %w", err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	buffered := bufio.NewWriterSize(f, 1<<20)
	z := zip.NewWriter(buffered)
	entry := func(name string) (w io.Writer, err error) {
		// Stored, as numpy does it, and with one date, so that the same states give the same bytes.
		return z.CreateHeader(&zip.FileHeader{Name: name, Method: zip.Store, Modified: time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)})
	}
	for _, a := range arrays {
		w, err := entry(a.name + ".npy")
		if err != nil {
			return fmt.Errorf("write arrays: %w", err)
		}
		values := bufio.NewWriterSize(w, 1<<20) // the tensor writes value by value
		err = tensor.New(tensor.WithShape(a.shape...), tensor.WithBacking(a.backing)).WriteNpy(values)
		if err := errors.Join(err, values.Flush()); err != nil {
			return fmt.Errorf("write the array %s: %w", a.name, err)
		}
	}
	text, err := json.MarshalIndent(meta, "", "  ")
	if err != nil {
		return fmt.Errorf("encode what the arrays are: %w", err)
	}
	w, err := entry("meta.json")
	if err == nil {
		_, err = bytes.NewReader(text).WriteTo(w)
	}
	if err := errors.Join(err, z.Close(), buffered.Flush()); err != nil {
		return fmt.Errorf("write arrays: %w", err)
	}
	return nil
}
