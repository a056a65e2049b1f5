package activation

import (
	"context"
	"encoding/json"
	"errors"
	"iter"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/ccmed/ccmed/bench/run"
	"github.com/ccmed/ccmed/infer"
)

func sequence(samples []run.Sample, err error) iter.Seq2[run.Sample, error] {
	return func(yield func(run.Sample, error) bool) {
		for _, s := range samples {
			if !yield(s, nil) {
				return
			}
		}
		if err != nil {
			yield(run.Sample{}, err)
		}
	}
}

func sampleOf(t *testing.T, item string, data any) run.Sample {
	t.Helper()
	b, err := json.Marshal(data)
	if err != nil {
		t.Fatal(err)
	}
	return run.Sample{Key: run.Key{Step: "extract", Item: item, Condition: "D"}, Group: "context of " + item, Data: b}
}

var (
	prompt    = Cell{Context: "D", Text: "own-D", Position: "prompt_end"}
	utterance = Cell{Context: "D", Text: "own-D", Position: "utterance_end"}
)

func TestIndexIsInTheOrderOfRows(t *testing.T) {
	// As an extraction step keeps it: places beside other data.
	type extracted struct {
		Places
		Utterance string `json:"utterance"`
	}
	x, err := ReadIndex(sequence([]run.Sample{
		sampleOf(t, "8", extracted{Places{[]Place{{prompt, 1, 600, 580, ""}, {utterance, 3, 600, 599, ""}}}, "Let us listen."}),
		sampleOf(t, "7", extracted{Places{[]Place{{prompt, 0, 500, 480, ""}}}, "?"}),
		{Key: run.Key{Step: "extract", Item: "9"}, Unscored: "the model said nothing", Data: json.RawMessage(`{"states":[{"row":0}]}`)},
		{Key: run.Key{Step: "generate", Item: "7"}, Data: json.RawMessage(`{"utterance":"?"}`)},
		{Key: run.Key{Step: "prepare", Item: "7"}},
	}, nil))
	if err != nil {
		t.Fatal(err)
	}
	canonical := func(c Cell) Cell { c.Kind = Residual; return c }
	if diff := cmp.Diff([]Cell{canonical(prompt), canonical(utterance)}, x.Cells()); diff != "" {
		t.Error(diff)
	}
	key := func(item string) run.Key { return run.Key{Step: "extract", Item: item, Condition: "D"} }
	want := []Entry{
		{key("7"), "context of 7", Place{canonical(prompt), 0, 500, 480, ""}},
		{key("8"), "context of 8", Place{canonical(prompt), 1, 600, 580, ""}},
	}
	if diff := cmp.Diff(want, x.Entries(prompt)); diff != "" {
		t.Error(diff)
	}
	if got := x.Entries(Cell{Context: "ND", Text: "own-D", Position: "prompt_end"}); len(got) != 0 {
		t.Errorf("a cell without samples has %v", got)
	}

	s := spec(F32)
	s.Samples = 3
	f := mustCreate(t, t.TempDir(), s)
	if es, err := x.For(f); err != nil || len(es) != 2 {
		t.Errorf("got %v, %v", es, err)
	}
	s.Cell = utterance
	if _, err := x.For(mustCreate(t, t.TempDir(), s)); err == nil || !strings.Contains(err.Error(), "3 rows") || !strings.Contains(err.Error(), "item 8") {
		t.Errorf("row 3 of 3 rows gave %v", err)
	}
}

func TestIndexIsChecked(t *testing.T) {
	torn := errors.New("line 7 is damaged")
	for _, c := range []struct {
		name   string
		places []Place
		err    error
		want   string
	}{
		{"two samples in one row", []Place{{prompt, 4, 10, 9, ""}, {prompt, 4, 10, 8, ""}}, nil, "row 4 of context D, text own-D, prompt_end, residual belongs to extract of item 7"},
		{"no row", []Place{{prompt, -1, 10, 9, ""}}, nil, "row -1"},
		{"a token behind the end", []Place{{prompt, 0, 10, 10, ""}}, nil, "token 10 of 10"},
		{"a token before the start", []Place{{prompt, 0, 10, -1, ""}}, nil, "token -1 of 10"},
		{"no cell", []Place{{Cell{}, 0, 10, 9, ""}}, nil, "the cell's context"},
		{"samples that cannot be read", nil, torn, "line 7"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := ReadIndex(sequence([]run.Sample{sampleOf(t, "7", Places{c.places})}, c.err))
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want it to say %q", err, c.want)
			}
			if c.err != nil && !errors.Is(err, c.err) {
				t.Errorf("%v does not wrap its cause", err)
			}
		})
	}
	s := sampleOf(t, "7", "just a string")
	if _, err := ReadIndex(sequence([]run.Sample{s}, nil)); err == nil || !strings.Contains(err.Error(), "extract of item 7") {
		t.Errorf("data that are no object gave %v", err)
	}
}

// Through a real run directory, as extraction and training meet.
func TestIndexOfARun(t *testing.T) {
	d, err := run.Create(t.TempDir()+"/r", run.Identity{Task: "extract"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	f := mustCreate(t, d.Path(), spec(F32))
	units := []run.Unit[int]{{Item: "7", Condition: "D", Value: 0}, {Item: "8", Condition: "D", Value: 1}}
	task := run.Task[int]{Name: "extract", Units: units, Steps: []run.Step[int]{{Name: "extract", Do: extractStep(f)}}}
	if _, err := run.Execute(t.Context(), d, task, run.Options{}); err != nil {
		t.Fatal(err)
	}
	mustClose(t, f)
	if d, err = run.Open(d.Path()); err != nil {
		t.Fatal(err)
	}
	x, err := ReadIndex(d.All())
	if err != nil {
		t.Fatal(err)
	}
	es, err := x.For(mustOpen(t, f.Path()))
	if err != nil || len(es) != 2 || es[1].Item != "8" || es[1].Row != 1 || es[1].Token != 480 {
		t.Errorf("got %v, %v", es, err)
	}
}

// extractStep is the least that an extraction step does with a file: every
// layer's state, then the disk, then where it lies.
func extractStep(f *File) func(context.Context, infer.Backend, run.Unit[int], run.Lookup) (run.Sample, error) {
	return func(_ context.Context, _ infer.Backend, u run.Unit[int], _ run.Lookup) (run.Sample, error) {
		for l := range f.spec.Layers {
			if err := f.Put(l, u.Value, state(l, u.Value, f.spec.Width)); err != nil {
				return run.Sample{}, err
			}
		}
		if err := f.Sync(); err != nil {
			return run.Sample{}, err
		}
		b, err := json.Marshal(Places{[]Place{{f.spec.Cell, u.Value, 500, 480, ""}}})
		return run.Sample{Data: b}, err
	}
}
