package probe_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ccmed/ccmed/bench/dialogue"
	"github.com/ccmed/ccmed/infer"
	"github.com/ccmed/ccmed/probe"
	"github.com/ccmed/ccmed/probe/activation"
)

// files reads the files of hidden states of a store, by name.
func files(t *testing.T, dir string) map[string][]byte {
	t.Helper()
	out := map[string][]byte{}
	paths, err := activation.List(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range paths {
		b, err := os.ReadFile(p)
		if err != nil {
			t.Fatal(err)
		}
		out[filepath.Base(p)] = b
	}
	return out
}

// odd gives states of which some are no numbers, and one is too large for 16 bits.
type odd struct{ reader }

func (r *odd) States(ctx context.Context, seqs []infer.Sequence, layers []string, row func(seq, pos, layer int, x []float32) error) error {
	return r.reader.States(ctx, seqs, layers, func(seq, pos, layer int, x []float32) error {
		switch layer {
		case 1:
			x[0] = float32(math.NaN())
		case 2:
			x[0] = 1e6
		}
		return row(seq, pos, layer, x)
	})
}

// TestMergedShardsAreTheWhole: the files of merged shards are byte for byte those
// of a run that was never divided, whatever the states are. Three dialogues of
// one stage cannot be swapped: those rows are missing.
func TestMergedShardsAreTheWhole(t *testing.T) {
	for dtype, ds := range map[activation.DType][]dialogue.Dialogue{activation.F16: dialogue.Sample(), activation.F32: dialogue.Sample()[:3]} {
		tmp := t.TempDir()
		extract := func(name, shard string) string {
			x := turnExtraction(t, &odd{}, probe.Edits...)
			x.DType = dtype
			if _, err := extractTurns(t, x, filepath.Join(tmp, name), shard, ds); err != nil {
				t.Fatal(err)
			}
			return filepath.Join(tmp, name)
		}
		whole := extract("whole", "")
		var shards []string
		for i := range 3 {
			shards = append(shards, extract(fmt.Sprint("shard", i), fmt.Sprintf("%d/3", i+1)))
		}
		out := filepath.Join(tmp, "merged")
		if err := probe.MergeStores(t.Context(), out, shards); err != nil {
			t.Fatal(err)
		}
		want := files(t, whole)
		if len(want) != 4 {
			t.Fatalf("%d files, want those of the turns and three edits", len(want))
		}
		for name, b := range files(t, out) {
			if !bytes.Equal(b, want[name]) {
				t.Errorf("%s: %s differs from that of the whole run", dtype, name)
			}
			delete(want, name)
		}
		if len(want) > 0 {
			t.Errorf("%d files are not merged", len(want))
		}
	}
}

// TestOnlyRowsOfSamplesAreMerged: states that a shard holds without a sample, of
// an item that it never finished, are not copied.
func TestOnlyRowsOfSamplesAreMerged(t *testing.T) {
	ds, tmp := dialogue.Sample(), t.TempDir()
	var shards []string
	for i := range 2 {
		x := turnExtraction(t, &reader{}, probe.EditStrip)
		path := filepath.Join(tmp, fmt.Sprint(i))
		if _, err := extractTurns(t, x, path, fmt.Sprintf("%d/2", i+1), ds); err != nil {
			t.Fatal(err)
		}
		shards = append(shards, path)
	}
	// Row 0 of strip belongs to the first dialogue, which one of the shards has; the
	// other one is given numbers there.
	for i, path := range shards {
		f := must(t, activation.Open, filepath.Join(path, activation.Cell{Context: probe.ContextTranscript, Text: probe.EditStrip, Position: probe.TurnEnd}.File()))
		spec := f.Spec()
		has, err := f.Has(0)
		if err := errors.Join(err, f.Close()); err != nil {
			t.Fatal(err)
		}
		if has {
			continue
		}
		f, err = activation.Create(t.Context(), path, spec)
		if err != nil {
			t.Fatal(err)
		}
		for layer := range spec.Layers {
			if err := f.Put(layer, 0, []float32{-1, -1, -1}); err != nil {
				t.Fatal(err)
			}
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
		out := filepath.Join(tmp, "merged")
		if err := probe.MergeStores(t.Context(), out, []string{shards[1-i], path}); err != nil {
			t.Fatal(err)
		}
		merged := must(t, activation.Open, filepath.Join(out, spec.Cell.File()))
		defer merged.Close()
		rows, err := merged.Rows("block.1")
		if err != nil {
			t.Fatal(err)
		}
		if len(rows.Missing) > 0 || rows.Row(0)[0] == -1 {
			t.Errorf("row 0 is %v, missing rows %v: it must be the state of its own sample", rows.Row(0), rows.Missing)
		}
		return
	}
	t.Fatal("both shards have row 0")
}

func must[T any](t *testing.T, f func(string) (T, error), path string) T {
	t.Helper()
	v, err := f(path)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func TestShardsThatDoNotFit(t *testing.T) {
	ds := dialogue.Sample()
	store := func(shard string, change func(*probe.TurnExtraction)) string {
		x := turnExtraction(t, &reader{}, probe.EditStrip)
		change(x)
		path := filepath.Join(t.TempDir(), "run")
		if _, err := extractTurns(t, x, path, shard, ds); err != nil {
			t.Fatal(err)
		}
		return path
	}
	first := store("1/2", func(*probe.TurnExtraction) {})
	for what, change := range map[string]func(*probe.TurnExtraction){
		"sha256:01": func(x *probe.TurnExtraction) { x.Model.Digest = "sha256:01" },
		"F16":       func(x *probe.TurnExtraction) { x.DType = activation.F16 },
		"cells":     func(x *probe.TurnExtraction) { x.Edits = nil },
	} {
		out := filepath.Join(t.TempDir(), "merged")
		err := probe.MergeStores(t.Context(), out, []string{first, store("2/2", change)})
		if err == nil || !strings.Contains(err.Error(), what) {
			t.Errorf("%s: error %v, want one that names it", what, err)
		}
		if _, err := os.Stat(out); !os.IsNotExist(err) {
			t.Errorf("%s: shards that do not fit left %s", what, out)
		}
	}
	second := store("2/2", func(*probe.TurnExtraction) {})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := probe.MergeStores(ctx, filepath.Join(t.TempDir(), "merged"), []string{first, second}); !errors.Is(err, context.Canceled) {
		t.Errorf("a cancelled merge: %v", err)
	}
	if probe.MergeStores(t.Context(), filepath.Join(t.TempDir(), "merged"), []string{first, t.TempDir()}) == nil {
		t.Error("a folder that is no run was merged")
	}
}
