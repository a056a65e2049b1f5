package dialogue_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ccmed/ccmed/bench/dialogue"
)

// sampleRecord returns record 9001 (conflict turn 3 of 9) as its file holds it.
func sampleRecord(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("sample", "9001.json"))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// edit changes the decoded record.
func edit(t *testing.T, record string, change func(r map[string]any)) string {
	t.Helper()
	var r map[string]any
	if err := json.Unmarshal([]byte(record), &r); err != nil {
		t.Fatal(err)
	}
	change(r)
	b, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func meta(r map[string]any) map[string]any { return r["metadata"].(map[string]any) }
func prefix(r map[string]any) []any        { return r["shared_prefix"].([]any) }
func turn(r map[string]any, i int) map[string]any {
	return prefix(r)[i].(map[string]any)
}
func cont(r map[string]any, kind string) map[string]any {
	return r["continuations"].(map[string]any)[kind].(map[string]any)
}

func TestFaults(t *testing.T) {
	for name, c := range map[string]struct {
		change func(r map[string]any)
		want   string // what the problem says after the file's name
	}{
		"no id":             {func(r map[string]any) { delete(r, "scenario_id") }, "field scenario_id: missing"},
		"text as id":        {func(r map[string]any) { r["scenario_id"] = "x" }, "field scenario_id: a JSON string stands where a whole number is expected"},
		"unknown stage":     {func(r map[string]any) { meta(r)["conflict_stage"] = "Anger" }, `field metadata.conflict_stage: value "Anger": unknown stage`},
		"no context":        {func(r map[string]any) { meta(r)["scenario_context"] = " " }, "field metadata.scenario_context: missing"},
		"no turns":          {func(r map[string]any) { r["shared_prefix"] = []any{} }, "field shared_prefix: no turns"},
		"prefix missing":    {func(r map[string]any) { delete(r, "shared_prefix") }, "field shared_prefix: no turns"},
		"no original":       {func(r map[string]any) { delete(r["continuations"].(map[string]any), "original") }, "field continuations.original: missing"},
		"turn left out":     {func(r map[string]any) { r["shared_prefix"] = slices.Delete(prefix(r), 1, 2) }, "field shared_prefix[1].t: value 3: turns run from 1 without a gap: 2 is expected"},
		"turns swapped":     {func(r map[string]any) { p := prefix(r); p[0], p[1] = p[1], p[0] }, "field shared_prefix[0].t: value 2"},
		"turn twice":        {func(r map[string]any) { turn(r, 1)["t"] = 1 }, "field shared_prefix[1].t: value 1"},
		"text as turn":      {func(r map[string]any) { turn(r, 1)["t"] = "2" }, `field shared_prefix[1].t: value "2"`},
		"unknown speaker":   {func(r map[string]any) { turn(r, 0)["agent"] = "agent_3" }, `field shared_prefix[0].agent: value "agent_3": unknown agent`},
		"mediator too soon": {func(r map[string]any) { turn(r, 0)["agent"] = "mediator" }, `field shared_prefix[0].agent: value "mediator": unknown agent`},
		"empty message":     {func(r map[string]any) { turn(r, 2)["message"] = "\n" }, "field shared_prefix[2].message: value"},
		"conflict at 0":     {func(r map[string]any) { meta(r)["conflict_turn"] = 0 }, "field metadata.conflict_turn: value 0: outside"},
		"conflict after":    {func(r map[string]any) { meta(r)["conflict_turn"] = 4 }, "field metadata.conflict_turn: value 4: outside the shared prefix (1 to 3)"},
		"conflict before":   {func(r map[string]any) { meta(r)["conflict_turn"] = 2 }, "field metadata.conflict_turn: value 2: the shared prefix goes on to turn 3"},
		"unknown agent":     {func(r map[string]any) { meta(r)["conflict_agent"] = "Maarten" }, `field metadata.conflict_agent: value "Maarten": unknown agent`},
		"other agent":       {func(r map[string]any) { meta(r)["conflict_agent"] = "agent_2" }, `field metadata.conflict_agent: value "agent_2": turn 3 is spoken by agent_1`},
		"gap after": {func(r map[string]any) {
			cont(r, "original")["turns"] = cont(r, "original")["turns"].([]any)[1:]
		}, "field continuations.original.turns[0].t: value 5"},
		"mediated gap": {func(r map[string]any) {
			ts := cont(r, "positive")["turns"].([]any)
			cont(r, "positive")["turns"] = slices.Delete(ts, 1, 2)
		}, "field continuations.positive.turns[1].t: value 5"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			file := filepath.Join(dir, "1.json")
			write(t, file, edit(t, sampleRecord(t), c.change))
			_, _, err := dialogue.Read(context.Background(), dir, dialogue.ReadOptions{})
			var p dialogue.Problem
			if !errors.As(err, &p) {
				t.Fatalf("error %v, want a Problem", err)
			}
			if want := file + ": " + c.want; !strings.HasPrefix(err.Error(), want) {
				t.Errorf("error %q, want it to begin with %q", err, want)
			}
			if p.Remedy == "" || strings.Contains(err.Error(), "\n") {
				t.Errorf("problem %+v: want one line with a remedy", p)
			}

			write(t, filepath.Join(dir, "2.json"), strings.Replace(sampleRecord(t), "9001", "9002", 1))
			ds, rep, err := dialogue.Read(context.Background(), dir, dialogue.ReadOptions{Lenient: true})
			if err != nil || len(ds) != 1 || ds[0].ID != 9002 || rep.Read != 1 || len(rep.Problems) != 1 {
				t.Errorf("lenient: %v, %+v, %v; want the sound record and one problem", keys(ds), rep, err)
			}
		})
	}
}

func TestFaultyFiles(t *testing.T) {
	good := sampleRecord(t)
	for name, c := range map[string]struct {
		files map[string]string
		path  string
		o     dialogue.ReadOptions
		want  string
	}{
		"broken JSON":      {files: map[string]string{"1.json": good[:len(good)/2]}, want: "1.json: not JSON"},
		"empty file":       {files: map[string]string{"1.json": ""}, want: "1.json: not JSON"},
		"duplicate id":     {files: map[string]string{"1.json": good, "2.json": good}, want: "2.json: field scenario_id: value 9001: the id is that of"},
		"empty folder":     {files: map[string]string{"notes.txt": "x"}, want: "holds no record"},
		"empty JSONL":      {files: map[string]string{"d.jsonl": "\n"}, path: "d.jsonl", want: "holds no record"},
		"line of JSONL":    {files: map[string]string{"d.jsonl": "\n{}"}, path: "d.jsonl", want: "d.jsonl:2: field scenario_id: missing"},
		"other file":       {files: map[string]string{"d.csv": "a"}, path: "d.csv", want: "neither a folder nor a .jsonl file"},
		"nothing there":    {path: "missing", want: "no such file"},
		"unknown split":    {files: map[string]string{"1.json": good}, o: dialogue.ReadOptions{Split: "dev"}, want: `unknown split "dev"`},
		"no such split":    {files: map[string]string{"evaluate/1.json": good}, o: dialogue.ReadOptions{Split: "training"}, want: "has no folder training, only evaluate"},
		"no such subset":   {files: map[string]string{"1.json": good}, o: dialogue.ReadOptions{Split: "training"}, want: "holds no record of the subset training"},
		"eleven are wrong": {files: many(11, "{}"), want: "and 1 more"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			for f, text := range c.files {
				write(t, filepath.Join(dir, f), text)
			}
			_, _, err := dialogue.Read(context.Background(), filepath.Join(dir, c.path), c.o)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want %q in it", err, c.want)
			}
		})
	}
}

func many(n int, text string) map[string]string {
	files := map[string]string{}
	for i := range n {
		files[fmt.Sprintf("%d.json", i)] = text
	}
	return files
}

// Quirks of the released records that are no faults.
func TestQuirks(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "1.json"), edit(t, sampleRecord(t), func(r map[string]any) {
		agents := meta(r)["agents"].(map[string]any)
		agents["agent_1"] = map[string]any{"name": "Maarten", "age": nil, "gender": nil}
		p := cont(r, "positive")
		p["mediator_utterance"], p["turns"], p["judge_score"] = "", []any{}, nil
		cont(r, "original")["turns"] = cont(r, "original")["turns"].([]any)[:2]
		r["more"] = "kept"
	}))
	d := read(t, dir, dialogue.ReadOptions{Whole: true})[0]
	if _, ok := d.Mediation(); ok || len(d.Mediated()) > 0 || d.JudgeScore() != nil {
		t.Error("an empty mediation is usable")
	}
	if _, ok := d.StoredAUC(dialogue.Positive); ok {
		t.Error("a stored AUC was found where it is null")
	}
	if d.Who(1) != "" || d.LastTurn() != 5 {
		t.Errorf("who %q, last turn %d; want nothing known and 5", d.Who(1), d.LastTurn())
	}
	out := filepath.Join(t.TempDir(), "out")
	if err := dialogue.Write(out, []dialogue.Dialogue{d}); err != nil {
		t.Fatal(err)
	}
	a, errA := os.ReadFile(filepath.Join(dir, "1.json"))
	b, errB := os.ReadFile(filepath.Join(out, "9001.json"))
	if errA != nil || errB != nil || !bytes.Equal(a, b) {
		t.Errorf("what was written is not what was read (%v, %v)", errA, errB)
	}
}

func TestLayouts(t *testing.T) {
	dir := t.TempDir()
	record := func(id, subset string) string {
		return strings.NewReplacer("9001", id, `"sample"`, `"`+subset+`"`).Replace(sampleRecord(t))
	}
	write(t, filepath.Join(dir, "repo/data/evaluate/7.json"), record("7", "evaluate"))
	write(t, filepath.Join(dir, "repo/data/training/12.json"), record("12", "training"))
	write(t, filepath.Join(dir, "repo/data/training/9.json"), record("9", "evaluate")) // the folder decides
	lines := new(bytes.Buffer)
	for _, r := range []string{record("20", "training"), record("3", "evaluate")} {
		if err := json.Compact(lines, []byte(r)); err != nil {
			t.Fatal(err)
		}
		lines.WriteString("\n\n")
	}
	write(t, filepath.Join(dir, "d.jsonl"), lines.String())
	for _, c := range []struct {
		path, split string
		want        []string
	}{
		{"repo", "", []string{"7"}},
		{"repo/data", "evaluate", []string{"7"}},
		{"repo/data", "training", []string{"9", "12"}},
		{"repo/data/training", "", []string{"9", "12"}},
		{"repo/data/training", "training", []string{"12"}},
		{"d.jsonl", "", []string{"3", "20"}},
		{"d.jsonl", "training", []string{"20"}},
	} {
		if got := keys(read(t, filepath.Join(dir, c.path), dialogue.ReadOptions{Split: c.split})); !slices.Equal(got, c.want) {
			t.Errorf("%s with split %q: %v, want %v", c.path, c.split, got, c.want)
		}
	}
	for path, want := range map[string][]string{"repo": {"evaluate", "training"}, "repo/data/training": nil, "d.jsonl": nil} {
		if got, err := dialogue.Splits(filepath.Join(dir, path)); err != nil || !slices.Equal(got, want) {
			t.Errorf("splits of %s: %v, %v; want %v", path, got, err, want)
		}
	}
}

func TestReadStops(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, _, err := dialogue.Read(ctx, "sample", dialogue.ReadOptions{}); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v, want that the context was cancelled", err)
	}
}

func TestWriteRefusesToMix(t *testing.T) {
	dir, ds := t.TempDir(), dialogue.Sample()
	if err := dialogue.Write(dir, ds[:2]); err != nil {
		t.Fatal(err)
	}
	if err := dialogue.Write(dir, ds); err != nil {
		t.Errorf("the same records again: %v", err)
	}
	if err := dialogue.Write(dir, ds[:2]); err == nil {
		t.Error("records that are not among the written ones stayed in the folder, without an error")
	}
	if err := dialogue.Write(t.TempDir(), []dialogue.Dialogue{{ID: 1}}); err == nil {
		t.Error("a dialogue without a record was written")
	}
}

func FuzzRead(f *testing.F) {
	b, err := os.ReadFile(filepath.Join("sample", "9001.json"))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Add([]byte(`{"scenario_id":1,"shared_prefix":[{"t":1,"agent":"agent_1"}]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		path := filepath.Join(t.TempDir(), "1.jsonl")
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		ds, _, err := dialogue.Read(context.Background(), path, dialogue.ReadOptions{})
		if err != nil {
			return
		}
		for _, d := range ds {
			if d.ConflictTurn < 1 || d.ConflictTurn > d.LastTurn() || d.Unmediated()[d.ConflictTurn-1].Agent != d.ConflictAgent {
				t.Errorf("dialogue %d was read with a conflict turn %d of %d", d.ID, d.ConflictTurn, d.LastTurn())
			}
			for i, turn := range d.Unmediated() {
				if turn.T != i+1 || turn.Message == "" {
					t.Errorf("dialogue %d: turn %d is %+v", d.ID, i+1, turn)
				}
			}
			d.Who(1)
			d.Template()
			d.Countries()
		}
	})
}
