package sft

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ccmed/ccmed/bench/dialogue"
)

// surveyed makes n dialogues out of the sample's, with contexts, countries and
// questions of their own.
func surveyed(t *testing.T, n int) []dialogue.Dialogue {
	t.Helper()
	endings := []string{"having the army rule is bad.", "abortion is not justifiable.", "most people can be trusted.", "immigration increases unemployment.", "tea is a meal."}
	countries := []string{"Peru", "Chad", "Fiji", "Oman", "Laos", "Mali", "Cuba"}
	var lines bytes.Buffer
	dir := t.TempDir()
	sample := dialogue.Sample()
	if err := dialogue.Write(dir, sample); err != nil {
		t.Fatal(err)
	}
	for i := range n {
		b, err := os.ReadFile(filepath.Join(dir, sample[i%len(sample)].Key()+".json"))
		if err != nil {
			t.Fatal(err)
		}
		var r map[string]any
		if err := json.Unmarshal(b, &r); err != nil {
			t.Fatal(err)
		}
		r["scenario_id"] = i + 1
		m := r["metadata"].(map[string]any)
		m["scenario_context"] = fmt.Sprintf("Scene %d.", i/2)
		m["cultural_axis"] = map[string]string{
			"agent_1_value": "People from " + countries[i%7] + " strongly agree that " + endings[i%4],
			"agent_2_value": "People from " + countries[(i+1+i%3)%7] + " do not agree that " + endings[i%4],
		}
		if b, err = json.Marshal(r); err != nil {
			t.Fatal(err)
		}
		lines.Write(append(b, '\n'))
	}
	file := filepath.Join(dir, "all.jsonl")
	if err := os.WriteFile(file, lines.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	ds, _, err := dialogue.Read(t.Context(), file, dialogue.ReadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return ds
}

func readRecords(t *testing.T, file string) []Record {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var out []Record
	s := bufio.NewScanner(f)
	s.Buffer(nil, 1<<20)
	for s.Scan() {
		var r Record
		if err := json.Unmarshal(s.Bytes(), &r); err != nil {
			t.Fatal(err)
		}
		out = append(out, r)
	}
	return out
}

// keysOf collects what a holdout goes by, out of the exported records alone.
func keysOf(h Holdout, rs []Record) map[string]bool {
	out := map[string]bool{}
	for _, r := range rs {
		switch h {
		case HoldoutDimension:
			out[r.Dimension] = true
		case HoldoutTemplate:
			out[dialogue.Question(r.Template)] = true
		case HoldoutCountry:
			for _, c := range r.Countries {
				out[c] = true
			}
		}
	}
	return out
}

func TestHoldoutsShareNoKey(t *testing.T) {
	ds := surveyed(t, 120)
	for _, h := range []Holdout{HoldoutDimension, HoldoutTemplate, HoldoutCountry} {
		for seed := range int64(4) {
			dir := t.TempDir()
			x, err := WriteExport(t.Context(), dir, ds, ExportOptions{Holdout: h, Fraction: 0.15, Seed: seed})
			if err != nil {
				t.Fatal(err)
			}
			train, valid, held := readRecords(t, filepath.Join(dir, TrainFile)), readRecords(t, filepath.Join(dir, ValidFile)), readRecords(t, filepath.Join(dir, HeldOutFile))
			if n := len(train) + len(valid) + len(held); n != len(ds) || len(held)*100 < 15*len(ds) || len(valid) == 0 {
				t.Errorf("%s: %d training, %d validation, %d held out of %d", h, len(train), len(valid), len(held), len(ds))
			}
			trained := keysOf(h, slices.Concat(train, valid))
			for _, k := range x.Holdout.Keys {
				if trained[k] {
					t.Errorf("%s, seed %d: the held-out %q is trained on", h, seed, k)
				}
			}
			for _, r := range held {
				if !slices.ContainsFunc(x.Holdout.Keys, func(k string) bool { return keysOf(h, []Record{r})[k] }) {
					t.Errorf("%s: dialogue %s is held out without a held-out key", h, r.ID)
				}
			}
			contexts := map[string]bool{}
			for _, r := range train {
				contexts[r.Group] = true
			}
			for _, r := range valid {
				if contexts[r.Group] {
					t.Errorf("%s: validation dialogue %s has a context of training", h, r.ID)
				}
			}
			if l := x.Leaks["heldout"]; h == HoldoutTemplate && l.Templates.Shared != 0 || h == HoldoutCountry && l.Countries.Shared != 0 || l.Contexts.Of != len(held) {
				t.Errorf("%s: leaks %+v", h, l)
			}
		}
	}
}

func TestExportIsDeterministic(t *testing.T) {
	ds := surveyed(t, 60)
	backwards := slices.Clone(ds)
	slices.Reverse(backwards)
	one, two, other := t.TempDir(), t.TempDir(), t.TempDir()
	for dir, in := range map[string]struct {
		ds   []dialogue.Dialogue
		seed int64
	}{one: {ds, 3}, two: {backwards, 3}, other: {ds, 6}} {
		if _, err := WriteExport(t.Context(), dir, in.ds, ExportOptions{Holdout: HoldoutCountry, Fraction: 0.2, Seed: in.seed}); err != nil {
			t.Fatal(err)
		}
	}
	for _, file := range []string{TrainFile, ValidFile, HeldOutFile, ExportFile} {
		a, b, c := read(t, one, file), read(t, two, file), read(t, other, file)
		if a != b {
			t.Errorf("%s depends on the order of the dialogues", file)
		}
		if a == c {
			t.Errorf("%s does not depend on the seed", file)
		}
	}
}

func read(t *testing.T, dir, file string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, file))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestExportCounts(t *testing.T) {
	ds := dialogue.Sample()
	dir := t.TempDir()
	// Every word a token, and 2 for the ends: the longest must be that of a record.
	words := func(s string) (int, error) { return len(strings.Fields(s)), nil }
	x, err := WriteExport(t.Context(), dir, ds, ExportOptions{Fraction: 0.25, Tokens: words, Model: "words"})
	if err != nil {
		t.Fatal(err)
	}
	train := readRecords(t, filepath.Join(dir, TrainFile))
	positives, negatives := 0, 0
	for _, r := range train {
		for _, l := range r.Labels {
			positives, negatives = positives+l, negatives+1-l
		}
	}
	if x.Positives != positives || x.Negatives != negatives || x.PosWeight != float64(negatives)/float64(positives) {
		t.Errorf("%d positive and %d negative decisions, weight %g; the file has %d and %d", x.Positives, x.Negatives, x.PosWeight, positives, negatives)
	}
	if positives != len(train) || x.Counts["train"]+x.Counts["valid"] != len(ds) {
		t.Errorf("counts %v, %d positives", x.Counts, positives)
	}
	longest := 0
	for _, r := range train {
		spaced := strings.NewReplacer(TurnEnd, " X ", Speak, " X ", EndSpeak, " X ").Replace(r.Text)
		longest = max(longest, len(strings.Fields(spaced))+2)
	}
	if got := x.Tokens.Files[TrainFile].Max; got != longest {
		t.Errorf("longest sequence %d tokens, want %d", got, longest)
	}
	if _, ok := x.Leaks["evaluation"]; ok {
		t.Error("leaks are counted without an evaluation split")
	}
}

func TestLeaks(t *testing.T) {
	ds := surveyed(t, 40)
	// The first and the last dialogue of a scene of two.
	training, evaluation := ds[:39], ds[39:]
	l := leaks(evaluation, training)
	if l.Contexts != (Overlap{1, 1}) || l.Templates != (Overlap{1, 1}) || l.Values.Of != 2 {
		t.Errorf("leaks %+v", l)
	}
	if l := leaks(ds[38:], ds[:38]); l.Contexts != (Overlap{0, 2}) {
		t.Errorf("contexts %+v: the scene of both is not trained on", l.Contexts)
	}
	if l := leaks(ds[:1], nil); l != (Leaks{Overlap{0, 1}, Overlap{0, 1}, Overlap{0, 2}, Overlap{0, 1}}) {
		t.Errorf("leaks against nothing: %+v", l)
	}
}

func TestExcludeSeenContexts(t *testing.T) {
	ds := surveyed(t, 40)
	evaluation := ds[:10] // five scenes
	x, err := WriteExport(t.Context(), t.TempDir(), ds[9:], ExportOptions{Fraction: 0.2, Evaluation: evaluation, ExcludeSeen: true})
	if err != nil {
		t.Fatal(err)
	}
	if x.LeftOut[leftSeen] != 1 || x.Leaks["evaluation"].Contexts != (Overlap{0, 10}) {
		t.Errorf("left out %v, leaks %+v", x.LeftOut, x.Leaks["evaluation"])
	}
}

func TestExportRefuses(t *testing.T) {
	ds := surveyed(t, 40)
	bad := altered(t, dialogue.Sample()[0].Unmediated()[0].Message, "a [SPEAK] b")
	long := func(string) (int, error) { return 400, nil }
	full := t.TempDir()
	if _, err := WriteExport(t.Context(), full, ds, ExportOptions{Fraction: 0.1}); err != nil {
		t.Fatal(err)
	}
	foreign := t.TempDir()
	if err := os.WriteFile(filepath.Join(foreign, "thesis.tex"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		dir  string
		ds   []dialogue.Dialogue
		o    ExportOptions
		says string
	}{
		"a marker":             {"", append(slices.Clone(ds), bad), ExportOptions{Fraction: 0.1}, "dialogue 9001: turn 1 holds the marker [SPEAK]"},
		"an unknown dimension": {"", dialogue.Sample(), ExportOptions{Fraction: 0.1, Holdout: HoldoutDimension}, "its dimension is not known"},
		"too long":             {"", ds, ExportOptions{Fraction: 0.1, Tokens: long, Model: "m", Context: 512}, "and the context of m is 512"},
		"everything held out":  {"", ds, ExportOptions{Fraction: 0.999, Holdout: HoldoutTemplate}, "nothing is left to train on"},
		"an export":            {full, ds, ExportOptions{Fraction: 0.1}, "--force"},
		"other files":          {foreign, ds, ExportOptions{Fraction: 0.1, Force: true}, "thesis.tex"},
		"no evaluation":        {"", ds, ExportOptions{Fraction: 0.1, ExcludeSeen: true}, "no evaluation split"},
		"no fraction":          {"", ds, ExportOptions{}, "between 0 and 1"},
	} {
		t.Run(name, func(t *testing.T) {
			if c.dir == "" {
				c.dir = t.TempDir()
			}
			if _, err := WriteExport(t.Context(), c.dir, c.ds, c.o); err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("error %v, want %q", err, c.says)
			}
		})
	}
	x, err := WriteExport(t.Context(), t.TempDir(), append(slices.Clone(ds), bad), ExportOptions{Fraction: 0.1, Lenient: true})
	if err != nil || x.LeftOut[leftUnusable] != 1 || len(x.Problems) != 1 {
		t.Errorf("lenient: %v, left out %v", err, x.LeftOut)
	}
}

func TestReadExportChecksItsFiles(t *testing.T) {
	dir := t.TempDir()
	want, err := WriteExport(t.Context(), dir, surveyed(t, 40), ExportOptions{Fraction: 0.1, Holdout: HoldoutTemplate})
	if err != nil {
		t.Fatal(err)
	}
	got, err := ReadExport(dir)
	if err != nil || !maps.Equal(got.Hashes, want.Hashes) || got.Digest() != want.Digest() {
		t.Fatalf("read %+v, %v", got, err)
	}
	b := read(t, dir, TrainFile)
	if err := os.WriteFile(filepath.Join(dir, TrainFile), []byte(strings.Replace(b, "gold", "golf", 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadExport(dir); err == nil || !strings.Contains(err.Error(), "train.jsonl was changed") {
		t.Errorf("a changed file: %v", err)
	}
	if err := os.Remove(filepath.Join(dir, ExportFile)); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadExport(dir); err == nil || !strings.Contains(err.Error(), "ccmed sft export") {
		t.Errorf("no description: %v", err)
	}
}

// TestReleasedData exports the published records, whose numbers are known.
func TestReleasedData(t *testing.T) {
	data := filepath.Join("..", "..", "shared", "data", "cc-mediation")
	if _, err := os.Stat(data); err != nil {
		t.Skip("the published CC-Mediation records are not there: ", err)
	}
	train, _, err := dialogue.Read(t.Context(), data, dialogue.ReadOptions{Split: dialogue.Training})
	if err != nil {
		t.Fatal(err)
	}
	evaluation, _, err := dialogue.Read(t.Context(), data, dialogue.ReadOptions{Split: dialogue.Evaluate})
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range train {
		if d.Dimension() == "" {
			t.Errorf("dialogue %s: the question %q has no dimension", d.Key(), d.Template())
		}
	}
	x, err := WriteExport(t.Context(), t.TempDir(), train, ExportOptions{Fraction: 0.1, Seed: 1, Evaluation: evaluation})
	if err != nil {
		t.Fatal(err)
	}
	if l := x.Leaks["evaluation"].Contexts; l != (Overlap{153, 159}) {
		t.Errorf("contexts shared with evaluation: %+v", l)
	}
	turns := x.Turns[7]
	if n := x.Counts["train"] + x.Counts["valid"]; n != 1503 || turns > 12 {
		t.Errorf("%d dialogues, %d of them with gold turn 7", n, turns)
	}
	for _, h := range []Holdout{HoldoutDimension, HoldoutTemplate, HoldoutCountry} {
		x, err := WriteExport(t.Context(), t.TempDir(), train, ExportOptions{Fraction: 0.1, Seed: 1, Holdout: h})
		if err != nil {
			t.Errorf("%s: %v", h, err)
			continue
		}
		t.Logf("%s: %v held out of %d keys, %v", h, x.Holdout.Keys, x.Holdout.Of, x.Counts)
	}
}
