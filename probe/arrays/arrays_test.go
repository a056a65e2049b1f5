package arrays_test

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/parquet-go/parquet-go"

	"github.com/ccmed/ccmed/bench/dialogue"
	"github.com/ccmed/ccmed/bench/run"
	"github.com/ccmed/ccmed/infer"
	"github.com/ccmed/ccmed/probe"
	"github.com/ccmed/ccmed/probe/activation"
	"github.com/ccmed/ccmed/probe/arrays"
)

const (
	planted = 36 // items
	width   = 5
)

var layers = []string{"embed", "block.1", "final_norm"}

// text is a card as a person writes it.
func text(change func(card map[string]any)) []byte {
	var items, labels, groups, lines []string
	for i := range planted {
		items, labels = append(items, fmt.Sprint(100+i)), append(labels, []string{"Denial", "Defense", "Minimization"}[i%3])
		groups, lines = append(groups, fmt.Sprint("scene ", i/2)), append(lines, fmt.Sprint("line ", i))
	}
	array := func(context, text, position string) map[string]any {
		return map[string]any{"file": "states.npy", "context": context, "text": text, "position": position}
	}
	card := map[string]any{"model": map[string]any{"name": "small", "digest": "commit 1"}, "layers": layers, "items": items, "labels": labels, "groups": groups,
		"texts":  map[string]any{"own-ND": lines},
		"arrays": []map[string]any{array("ND", "prompt", "prompt_end"), array("ND", "own-ND", "utterance_end")}}
	if change != nil {
		change(card)
	}
	b, err := json.Marshal(card)
	if err != nil {
		panic(err)
	}
	return b
}

// npy is an array as NumPy writes it; plant puts every label into a value of its own.
func npy(rows int) []byte {
	header := fmt.Sprintf("{'descr': '<f4', 'fortran_order': False, 'shape': (%d, %d, %d), }", len(layers), rows, width)
	header += strings.Repeat(" ", 117-len(header)) + "\n"
	b := append([]byte("\x93NUMPY\x01\x00\x76\x00"), header...)
	rng := rand.New(rand.NewPCG(1, 2))
	for range layers {
		for i := range rows {
			for k := range width {
				v := rng.NormFloat64()
				if k == i%3 {
					v += 2
				}
				b = binary.LittleEndian.AppendUint32(b, math.Float32bits(float32(v)))
			}
		}
	}
	return b
}

func write(t *testing.T, path string, b []byte) string {
	t.Helper()
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// importInto makes a store of a card.
func importInto(t *testing.T, out, path string) error {
	t.Helper()
	c, err := arrays.ReadCard(path, nil)
	if err != nil {
		return err
	}
	id := run.Identity{Task: "extract", Models: map[string]infer.Model{"mediator": c.Model.Identity()}}
	return arrays.Import(t.Context(), out, c, arrays.Target{Identity: id})
}

// store is the store of the planted card.
func store(t *testing.T, change func(card map[string]any)) *run.Dir {
	t.Helper()
	dir := t.TempDir()
	write(t, filepath.Join(dir, "states.npy"), npy(planted))
	out := filepath.Join(dir, "store")
	if err := importInto(t, out, write(t, filepath.Join(dir, "card.json"), text(change))); err != nil {
		t.Fatal(err)
	}
	d, err := run.Open(out)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

var design = probe.Design{Folds: 3, Seeds: []uint64{1, 2}, CPath: []float64{0.1, 1}}

func find(t *testing.T, d *run.Dir) *probe.Findings {
	t.Helper()
	f, err := probe.Find(t.Context(), d, probe.FindOptions{Design: design, Controls: -1, Resampling: probe.Resampling{Resamples: 200, Seed: 1}})
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// Exported and imported again, a store gives the same findings; and the planted labels are
// found, those of no plan are not.
func TestExportedStoreGivesEqualFindings(t *testing.T) {
	t.Parallel()
	for _, dtype := range []string{"F32", "F16"} {
		d := store(t, func(card map[string]any) { card["dtype"] = dtype })
		out := filepath.Join(t.TempDir(), "arrays")
		files, err := arrays.Export(t.Context(), d, out, arrays.Options{Design: design})
		if err != nil || len(files) != 3 {
			t.Fatalf("%v, %v", files, err)
		}
		again := filepath.Join(t.TempDir(), "again")
		if err := importInto(t, again, out); err != nil {
			t.Fatal(err)
		}
		b, err := run.Open(again)
		if err != nil {
			t.Fatal(err)
		}
		first, second := find(t, d), find(t, b)
		if diff := cmp.Diff(first, second, cmpopts.IgnoreFields(probe.Findings{}, "Samples"), cmpopts.IgnoreUnexported(probe.LayerResult{}), cmpopts.EquateNaNs()); diff != "" {
			t.Errorf("%s:\n%s", dtype, diff)
		}
		for _, c := range first.Cells {
			if c.Accuracy[1].Lo < 0.4 || c.Shuffled[1] > 0.6 {
				t.Errorf("%s: %v, shuffled %v", c.Cell, c.Accuracy[1], c.Shuffled[1])
			}
		}
		if _, ok := first.Texts["own-ND"]; !ok {
			t.Error("the imported lines were not read")
		}
	}
}

// Folds of the export are those by which probes hold rows out.
func TestFoldsAreThoseOfTheProbe(t *testing.T) {
	t.Parallel()
	d := store(t, nil)
	o, err := probe.ReadFolds(d, design)
	if err != nil {
		t.Fatal(err)
	}
	var s probe.Samples
	s.Classes = 3
	for i := range planted {
		s.Y, s.Groups = append(s.Y, i%3), append(s.Groups, fmt.Sprint("scene ", i/2))
	}
	splits, err := design.Splits(s)
	if err != nil {
		t.Fatal(err)
	}
	for k, split := range splits {
		for _, i := range split.Test {
			if fold := o.Of(fmt.Sprint(100+i), s.Groups[i])[split.Round]; int(fold) != k%design.Folds {
				t.Fatalf("row %d is in fold %d of partition %d; split %d holds it out", i, fold, split.Round, k)
			}
		}
	}
	if got := o.Of("strange", "scene 1"); got[0] != -1 {
		t.Errorf("an item without states is in fold %d", got[0])
	}
}

// A Parquet table has a row for each layer and row, with the values of the store.
func TestParquet(t *testing.T) {
	t.Parallel()
	d := store(t, nil)
	out := filepath.Join(t.TempDir(), "tables")
	files, err := arrays.Export(t.Context(), d, out, arrays.Options{Format: arrays.Parquet, Layers: []string{"block.1", "embed"}, Design: design})
	if err != nil || len(files) != 2 {
		t.Fatalf("%v, %v", files, err)
	}
	rows, err := parquet.ReadFile[struct {
		Layer     string    `parquet:"layer"`
		Item      string    `parquet:"item"`
		Condition string    `parquet:"condition"`
		Stage     string    `parquet:"stage"`
		Group     string    `parquet:"group"`
		Fold      []int32   `parquet:"fold,list"`
		X         []float32 `parquet:"x,list"`
	}](filepath.Join(out, "ND.own-ND.utterance_end.residual.parquet"))
	if err != nil || len(rows) != 2*planted {
		t.Fatalf("%d rows, %v", len(rows), err)
	}
	f, err := activation.Open(filepath.Join(d.Path(), "ND.own-ND.utterance_end.residual.safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	x, err := f.Rows("embed")
	if err != nil {
		t.Fatal(err)
	}
	last := rows[planted+7] // of the second layer that was asked for
	if last.Layer != "embed" || last.Item != "107" || last.Condition != "ND" || last.Stage != "Defense" || last.Group != "scene 3" || len(last.Fold) != 2 || !cmp.Equal(last.X, x.Row(7)) {
		t.Errorf("%+v", last)
	}
}

// Where a stage has fewer groups than folds there is no fold, and a note says so.
func TestNoFoldsAreNoted(t *testing.T) {
	t.Parallel()
	d := store(t, func(card map[string]any) {
		groups := card["groups"].([]string)
		for i := range groups {
			groups[i] = fmt.Sprint("scene ", i%2)
		}
	})
	var notes []string
	files, err := arrays.Export(t.Context(), d, filepath.Join(t.TempDir(), "arrays"), arrays.Options{Design: design, Note: func(format string, args ...any) { notes = append(notes, fmt.Sprintf(format, args...)) }})
	if err != nil || len(files) != 3 || len(notes) != 1 || !strings.Contains(notes[0], "the arrays have no folds") {
		t.Errorf("%v, %q, %v", files, notes, err)
	}
}

// What does not fit is refused with its place, and leaves no folder.
func TestRefusals(t *testing.T) {
	t.Parallel()
	set := func(key string, value any) func(map[string]any) {
		return func(card map[string]any) { card[key] = value }
	}
	array := func(key string, value any) func(map[string]any) {
		return func(card map[string]any) { card["arrays"].([]map[string]any)[1][key] = value }
	}
	label := func(i int, to string) func(map[string]any) {
		return func(card map[string]any) { card["labels"].([]string)[i] = to }
	}
	fortran := []byte(strings.Replace(string(npy(planted)), "False,", "True, ", 1))
	short, nan := npy(planted), npy(planted)
	short = short[:len(short)-4]
	copy(nan[128+4*width*planted:], "\x00\x00\xc0\x7f")
	for says, c := range map[string]struct {
		card   func(map[string]any)
		states []byte
	}{
		"card.json: model needs a name and a digest":                                     {card: set("model", map[string]any{"name": "small"})},
		"card.json: 36 items and 35 labels; each item has one":                           {card: func(c map[string]any) { c["labels"] = c["labels"].([]string)[1:] }},
		"card.json: 36 items and 2 groups":                                               {card: set("groups", []string{"a", "b"})},
		`card.json: labels[4], of item 104, is "Angry"; probes tell Denial, Defense and`: {card: label(4, "Angry")},
		`labels[0], of item 100, is "Adaptation"`:                                        {card: label(0, "Adaptation")},
		"groups[3], of item 103, is empty":                                               {card: func(c map[string]any) { c["groups"].([]string)[3] = "" }},
		`items[0] and items[2] are both "100"`:                                           {card: func(c map[string]any) { c["items"].([]string)[2] = "100" }},
		"36 items and 1 lines in texts of own-ND":                                        {card: set("texts", map[string]any{"own-ND": []string{"a"}})},
		"card.json: line 1: field color not found; ":                                     {card: set("color", "blue")},
		"arrays[1]: position is \"middle\"":                                              {card: array("position", "middle")},
		"arrays[1]: file is \"../states.npy\"":                                           {card: array("file", "../states.npy")},
		"arrays[1]: rows[1] is 36; there are items 0 to 35":                              {card: array("rows", []int{0, 36})},
		"arrays[0] and arrays[1] are both of context ND":                                 {card: func(c map[string]any) { a := c["arrays"].([]map[string]any); a[1] = a[0] }},
		"arrays[0], of context ND, text prompt, prompt_end, residual, has no tokens":     {card: array("text", "placebo-1")},
		"states.npy has the shape [3 36 5] for the 2 layers of the card":                 {card: set("layers", layers[:2])},
		"arrays[1]: ": {card: array("rows", []int{0, 1})},
		"states.npy has the shape [3 35 5] for 36 rows on the card":                        {states: npy(35)},
		"the array lies in Fortran order":                                                  {states: fortran},
		"states.npy: the array has the shape [3 36 5] of F32, and 2156 bytes of values":    {states: short},
		"layer block.1, row 0 (item of number 0): value 0 is NaN, which F32 does not hold": {states: nan},
		"it does not begin as a NumPy array does":                                          {states: []byte("PK")},
		`dtype is "F8"`: {card: set("dtype", "F8")},
		`it names 3 layers, 36 items and 0 arrays`: {card: set("arrays", []any{})},
		"no such file": {card: array("file", "gone.npz")},
	} {
		dir := t.TempDir()
		states := c.states
		if states == nil {
			states = npy(planted)
		}
		write(t, filepath.Join(dir, "states.npy"), states)
		err := importInto(t, filepath.Join(dir, "store"), write(t, filepath.Join(dir, "card.json"), text(c.card)))
		if err == nil || !strings.Contains(err.Error(), says) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%v, not: %s", err, says)
		}
		if left, _ := filepath.Glob(filepath.Join(dir, "*store*")); len(left) > 0 {
			t.Errorf("%s: %v is left", says, left)
		}
	}
}

// With records, labels and groups come from there, and those of the card must be theirs.
func TestCardsOfRecords(t *testing.T) {
	t.Parallel()
	ds := dialogue.Sample()
	card := func(change func(map[string]any)) (*arrays.Card, error) {
		path := write(t, filepath.Join(t.TempDir(), "card.yaml"), text(func(c map[string]any) {
			var items, labels, groups []string
			for i, d := range ds {
				items, labels, groups = append(items, d.Key()), append(labels, d.Stage.String()), append(groups, fmt.Sprint("mine ", i))
			}
			delete(c, "texts")
			c["items"], c["labels"], c["groups"] = items, labels, groups
			change(c)
		}))
		return arrays.ReadCard(path, ds)
	}
	c, err := card(func(c map[string]any) { delete(c, "labels"); delete(c, "groups") })
	if err != nil {
		t.Fatal(err)
	}
	for i, d := range ds {
		if c.Labels[i] != d.Stage.String() || c.Groups[i] != d.ContextKey() || c.Turns[i] != d.ConflictTurn {
			t.Fatalf("item %s: %s, %s, %d", d.Key(), c.Labels[i], c.Groups[i], c.Turns[i])
		}
	}
	if c, err := card(func(map[string]any) {}); err != nil || c.Groups[0] != ds[0].ContextKey() {
		t.Errorf("the records' own labels are refused: %v", err)
	}
	for says, change := range map[string]func(map[string]any){
		"which the data given do not have":                           func(c map[string]any) { c["items"].([]string)[1] = "7" },
		"of the data given has the stage":                            func(c map[string]any) { l := c["labels"].([]string); l[0], l[len(l)-1] = l[len(l)-1], l[0] },
		"with a dialogue of another scenario context":                func(c map[string]any) { g := c["groups"].([]string); g[1] = g[0] },
		fmt.Sprintf("%d items and 1 labels", len(dialogue.Sample())): func(c map[string]any) { c["labels"] = c["labels"].([]string)[:1] },
	} {
		if _, err := card(change); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%v, not: %s", err, says)
		}
	}
}

// A header of an array that lies does not end the program.
func FuzzHeader(f *testing.F) {
	f.Add(npy(planted)[:128])
	f.Fuzz(func(t *testing.T, header []byte) {
		dir := t.TempDir()
		write(t, filepath.Join(dir, "states.npy"), header)
		err := importInto(t, filepath.Join(dir, "store"), write(t, filepath.Join(dir, "card.json"), text(nil)))
		if err == nil {
			t.Error("a header alone was imported")
		}
		if _, err := os.Stat(filepath.Join(dir, "store")); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("a folder is left: %v", err)
		}
	})
}
