package main

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/perf/benchfmt"

	"github.com/ccmed/ccmed/bench/folder"
	"github.com/ccmed/ccmed/bench/run"
	"github.com/ccmed/ccmed/bench/timing"
	"github.com/ccmed/ccmed/infer"
)

// Go's own reader of benchmarks reads the lines: two runs, each sample once, its
// speed with it, what a name may not hold replaced.
func TestBenchmarkLines(t *testing.T) {
	root := t.TempDir()
	for i, name := range []string{"base run", "tuned"} {
		models := map[string]infer.Model{"mediator": {Name: "org/model 1:8b"}}
		if i == 1 {
			models = map[string]infer.Model{"mediator": {Name: "tuned"}}
		}
		d, err := run.Create(filepath.Join(root, name), run.Identity{Task: "timing", Version: "1", Models: models}, nil)
		if err != nil {
			t.Fatal(err)
		}
		var lines []string
		for _, s := range []run.Sample{
			{Key: run.Key{Step: "decide-2", Item: "1", Condition: "a/b c"}, Usage: infer.Usage{Evaluated: 90, Generated: 10}, Seconds: 0.5},
			{Key: run.Key{Step: "decide-2", Item: "2", Condition: "a/b c"}, Usage: infer.Usage{Evaluated: 300}, Seconds: 2},
			{Key: run.Key{Step: "decide-2", Item: "3", Condition: "a/b c"}, Usage: infer.Usage{Evaluated: 1, Replayed: 99}, Seconds: 0.001},
			{Key: run.Key{Step: "score", Item: "1"}, Seconds: 1},
		} {
			b, err := json.Marshal(s)
			if err != nil {
				t.Fatal(err)
			}
			lines = append(lines, string(b)+"\n")
		}
		if err := d.WriteFile(run.SamplesFile, []byte(strings.Join(lines, ""))); err != nil {
			t.Fatal(err)
		}
		if err := d.Close(run.StatusDone); err != nil {
			t.Fatal(err)
		}
	}
	code, out, errs := exits(nil, "compare", filepath.Join(root, "base run"), filepath.Join(root, "tuned"), "--format", "benchstat")
	if code != exitDone || !strings.Contains(errs, "1 samples have answers out of the response cache") {
		t.Fatalf("exit code %d, %s", code, errs)
	}
	r := benchfmt.NewReader(strings.NewReader(out), "ccmed")
	var runs []string
	for r.Scan() {
		switch rec := r.Result().(type) {
		case *benchfmt.Result:
			runs = append(runs, rec.GetConfig("run"))
			if rec.Name.String() != "Timing/step=decide_2/condition=a_b_c" || rec.Iters != 1 || rec.GetConfig("task") != "timing" {
				t.Errorf("%s of %q, %d iterations", rec.Name, rec.GetConfig("task"), rec.Iters)
			}
			// It would keep the runs from standing side by side.
			if m := rec.GetConfig("model"); m != "" {
				t.Errorf("the key model is %q", m)
			}
			sec, ok := rec.Value("sec/op")
			speed, okSpeed := rec.Value("tokens/s")
			if !ok || !okSpeed || sec == 0.5 && speed != 200 || sec == 2 && speed != 150 {
				t.Errorf("%v sec/op and %v tokens/s", sec, speed)
			}
		case *benchfmt.SyntaxError:
			t.Error(rec)
		}
	}
	if err := r.Err(); err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(runs, ", "); got != "base run, base run, tuned, tuned" {
		t.Errorf("samples of %s", got)
	}
}

// What compare prints as JSON has the form of its schema.
func TestComparisonJSON(t *testing.T) {
	root := t.TempDir()
	for i, name := range []string{"a", "b"} {
		d, err := run.Create(filepath.Join(root, name), run.Identity{Task: "timing", Version: "1", Items: []string{"1", "2", "3", "4"}}, nil)
		if err != nil {
			t.Fatal(err)
		}
		var lines []byte
		for item := range 4 {
			data, err := json.Marshal(timing.Decision{Gold: 3, Predicted: 3 + item*i%2, Context: fmt.Sprint(item)})
			if err != nil {
				t.Fatal(err)
			}
			line, err := json.Marshal(run.Sample{Key: run.Key{Step: timing.StepDecide, Item: fmt.Sprint(item + 1)}, Data: data})
			if err != nil {
				t.Fatal(err)
			}
			lines = append(append(lines, line...), '\n')
		}
		if err := d.WriteFile(run.SamplesFile, lines); err != nil {
			t.Fatal(err)
		}
		if err := d.Close(run.StatusDone); err != nil {
			t.Fatal(err)
		}
	}
	for _, more := range [][]string{nil, {"--unpaired"}} {
		code, out, errs := exits(nil, append([]string{"compare", filepath.Join(root, "a"), filepath.Join(root, "b"), "--json"}, more...)...)
		if code != exitDone {
			t.Fatal(errs)
		}
		if err := folder.Forms(benches, nil)["comparison"].Validate([]byte(out)); err != nil {
			t.Errorf("%v: %v\n%s", more, err, out)
		}
		if err := folder.Forms(benches, nil)["comparison"].Validate([]byte(strings.Replace(out, `"paired": `, `"pared": `, 1))); err == nil {
			t.Error("a misspelled field was accepted")
		}
	}
}
