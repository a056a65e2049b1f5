package arrays

import (
	"archive/zip"
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/ccmed/ccmed/bench/disk"
	"github.com/ccmed/ccmed/bench/run"
	"github.com/ccmed/ccmed/infer"
	"github.com/ccmed/ccmed/probe"
	"github.com/ccmed/ccmed/probe/activation"
)

// Backend is what runs name as the backend of states that were made elsewhere.
const Backend = "imported"

// Settings are the options of a store that was imported.
type Settings struct {
	Card   string   `json:"card"` // its path
	DType  string   `json:"dtype"`
	Layers []string `json:"layers"`
	Width  int      `json:"width"`
}

// source is an array that is read from its file, one row after the other.
type source struct {
	Array
	kind  numberKind
	shape []int64
	r     io.Reader // at the values
	close func() error
}

// open finds an array in its file.
func (a Array) open(folder string) (*source, error) {
	path := filepath.Join(folder, a.File)
	f, err := disk.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read the array of %s: %w", a.cell(), err)
	}
	s := &source{Array: a, close: f.Close}
	switch name := a.name(); strings.ToLower(filepath.Ext(path)) {
	case ".npy":
		var info os.FileInfo
		s.r = bufio.NewReaderSize(f, 1<<20)
		if info, err = f.Stat(); err == nil {
			s.kind, s.shape, err = readNPYHeader(s.r, info.Size())
		}
	case ".npz":
		err = s.openArchive(f, name)
	case ".safetensors":
		err = s.openTensor(f, name)
	default:
		err = errors.New("arrays lie in .npz, .npy or .safetensors files")
	}
	if err == nil && len(s.shape) != 3 {
		err = fmt.Errorf("the array has the shape %v; it needs three axes, layers, rows and width", s.shape)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", path, err), f.Close())
	}
	return s, nil
}

func (a Array) name() string {
	if a.Name == "" {
		return "X"
	}
	return a.Name
}

func (s *source) openArchive(f *os.File, name string) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	z, err := zip.NewReader(f, info.Size())
	if err != nil {
		return fmt.Errorf("it is no NumPy archive: %w", err)
	}
	var names []string
	for _, e := range z.File {
		names = append(names, strings.TrimSuffix(e.Name, ".npy"))
	}
	at := slices.Index(names, name)
	if at < 0 {
		return fmt.Errorf("there is no array %q; it has %s", name, strings.Join(names, ", "))
	}
	entry, err := z.File[at].Open()
	if err != nil {
		return fmt.Errorf("read the array %q: %w", name, err)
	}
	s.close = func() error { return errors.Join(entry.Close(), f.Close()) }
	s.r = bufio.NewReaderSize(entry, 1<<20)
	s.kind, s.shape, err = readNPYHeader(s.r, int64(z.File[at].UncompressedSize64))
	return err
}

func (s *source) openTensor(f *os.File, name string) error {
	t, err := activation.FindTensor(f, name)
	if err != nil {
		return err
	}
	switch s.kind = numberKind(t.DType); s.kind {
	case kindF16, kindBF16, kindF32, kindF64:
	default:
		return fmt.Errorf("the tensor %q has type %s; F16, BF16, F32 and F64 are read", name, t.DType)
	}
	s.shape, s.r = t.Shape, bufio.NewReaderSize(io.NewSectionReader(f, t.At, t.Bytes), 1<<20)
	return nil
}

// copyInto puts the values into the file of the array's cell, a row at a time.
func (s *source) copyInto(ctx context.Context, to *activation.File, rows []int) error {
	spec := to.Spec()
	b, x := make([]byte, spec.Width*s.kind.size()), make([]float32, spec.Width)
	for k, layer := range spec.Layers {
		if err := ctx.Err(); err != nil {
			return err
		}
		for i, row := range rows {
			if _, err := io.ReadFull(s.r, b); err != nil {
				return fmt.Errorf("%s ends within layer %s, row %d: %w", s.File, layer, i, err)
			}
			s.kind.decode(x, b)
			for at, v := range x {
				if math.IsNaN(float64(v)) || math.IsInf(float64(v), 0) || spec.DType == activation.F16 && math.Abs(float64(v)) > maxF16 {
					return fmt.Errorf("%s, layer %s, row %d (item of number %d): value %d is %v, which %s does not hold; leave the row out with rows, or store dtype F32",
						s.File, layer, i, row, at, v, spec.DType)
				}
			}
			if err := to.Put(k, row, x); err != nil {
				return err
			}
		}
	}
	return nil
}

// maxF16 is the largest finite float16.
const maxF16 = 65504

// Target is where a card's states go.
type Target struct {
	Identity run.Identity // Items and Options are filled in
	Command  []string
	Settings any // of the records, beside Settings; may be nil
}

// Import makes a store of a card's arrays at out: a run folder of a finished extraction, on
// which probes, gates and reports work as on any other. Whatever does not fit is an error
// that names file and place, and leaves nothing at out.
func Import(ctx context.Context, out string, c *Card, to Target) (err error) {
	sources, width, err := c.openAll()
	defer func() {
		for _, s := range sources {
			err = errors.Join(err, s.close())
		}
	}()
	if err != nil {
		return err
	}
	id := to.Identity
	id.Items = c.Items
	if id.Options, err = options(to.Settings, Settings{c.path, string(c.DType), c.Layers, width}); err != nil {
		return err
	}
	return run.Whole(out, "importing", func(part string) error {
		dir, err := run.Create(part, id, to.Command)
		if err != nil {
			return err
		}
		if err := c.fill(ctx, dir, sources, width); err != nil {
			return errors.Join(err, dir.Close(run.StatusFailed))
		}
		return nil
	})
}

// openAll opens the arrays and holds their shapes against the card.
func (c *Card) openAll() (out []*source, width int, err error) {
	for i, a := range c.Arrays {
		s, err := a.open(filepath.Dir(c.path))
		if err != nil {
			return out, 0, fmt.Errorf("%s: arrays[%d]: %w", c.path, i, err)
		}
		out = append(out, s)
		rows := a.rows(len(c.Items))
		if i == 0 {
			width = int(s.shape[2])
		}
		what := ""
		switch {
		case s.shape[0] != int64(len(c.Layers)):
			what = fmt.Sprintf("for the %d layers of the card", len(c.Layers))
		case s.shape[1] != int64(len(rows)):
			what = fmt.Sprintf("for %d rows on the card", len(rows))
		case s.shape[2] != int64(width):
			what = fmt.Sprintf("and the first array has the width %d", width)
		}
		if what != "" {
			return out, 0, fmt.Errorf("%s: arrays[%d]: %s has the shape %v %s", c.path, i, filepath.Join(filepath.Dir(c.path), a.File), s.shape, what)
		}
	}
	return out, width, nil
}

// fill copies the states and writes the samples; it closes the folder.
func (c *Card) fill(ctx context.Context, dir *run.Dir, sources []*source, width int) (err error) {
	files := make([]*activation.File, len(sources))
	defer func() {
		for _, f := range files {
			if f != nil {
				err = errors.Join(err, f.Close())
			}
		}
	}()
	model := activation.Model(c.Model)
	for i, s := range sources {
		spec := activation.Spec{Model: model, Cell: s.cell(), Layers: c.Layers, Samples: len(c.Items), Width: width, DType: c.DType}
		if files[i], err = activation.Create(ctx, dir.Path(), spec); err != nil {
			return err
		}
		if err := s.copyInto(ctx, files[i], s.rows(len(c.Items))); err != nil {
			return fmt.Errorf("%s: arrays[%d]: %w", c.path, i, err)
		}
		if err := files[i].Sync(); err != nil {
			return err
		}
	}
	places, err := c.places(files)
	if err != nil {
		return err
	}
	task := run.Task[int]{Name: dir.Manifest().Identity.Task}
	for i, item := range c.Items {
		task.Units = append(task.Units, run.Unit[int]{Item: item, Group: item, Value: i})
	}
	task.Steps = []run.Step[int]{{Name: probe.StepStates, Do: func(_ context.Context, _ infer.Backend, u run.Unit[int], _ run.Lookup) (run.Sample, error) {
		data, err := json.Marshal(c.sample(u.Value, places[u.Value]))
		return run.Sample{Data: data}, err
	}}}
	_, err = run.Execute(ctx, dir, task, run.Options{})
	return err
}

// places says where the states of each item lie.
func (c *Card) places(files []*activation.File) ([][]activation.Place, error) {
	out := make([][]activation.Place, len(c.Items))
	for k, a := range c.Arrays {
		for i, row := range a.rows(len(c.Items)) {
			p := activation.Place{Cell: a.cell(), Row: row, Tokens: 1}
			if a.Tokens != nil {
				p.Tokens, p.Token = a.Tokens[i], a.Token[i]
			}
			var err error
			if p.SHA256, _, err = files[k].Sum(row); err != nil {
				return nil, err
			}
			out[row] = append(out[row], p)
		}
	}
	return out, nil
}

// sample is what the store says of an item.
func (c *Card) sample(i int, places []activation.Place) probe.States {
	st := probe.States{Places: activation.Places{States: places}, Stage: c.Labels[i], Context: c.Groups[i], Texts: map[string]string{}, Missing: map[string]string{}, Stop: map[string]string{}}
	if c.Turns != nil {
		st.Turn = c.Turns[i]
	}
	for text, lines := range c.Texts {
		if lines[i] != "" {
			st.Texts[text] = lines[i]
		}
	}
	for text, stops := range c.Stops {
		if stops[i] != "" {
			st.Stop[text] = stops[i]
		}
	}
	for _, a := range c.Arrays {
		if !slices.ContainsFunc(places, func(p activation.Place) bool { return p.Cell == a.cell() }) {
			st.Missing[a.Text] = "not among the imported rows"
		}
	}
	return st
}

// options joins settings into the options of a run.
func options(all ...any) (map[string]any, error) {
	out := map[string]any{}
	for _, s := range all {
		if s == nil {
			continue
		}
		b, err := json.Marshal(s)
		if err == nil {
			err = json.Unmarshal(b, &out)
		}
		if err != nil {
			return nil, fmt.Errorf("encode the options of the import: %w", err)
		}
	}
	return out, nil
}
