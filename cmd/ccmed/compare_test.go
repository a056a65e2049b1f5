package main

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/perf/benchfmt"

	"github.com/ccmed/ccmed/bench/report"
	"github.com/ccmed/ccmed/bench/run"
	"github.com/ccmed/ccmed/bench/stats"
	"github.com/ccmed/ccmed/bench/timing"
	"github.com/ccmed/ccmed/docs/schemas"
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

func TestLaTeX(t *testing.T) {
	for in, want := range map[string]string{
		`50 % of a_b & "c" #1 {x} $5 ^ \input`: `50 \% of a\_b \& ''c'' \#1 \{x\} \$5 \textasciicircum{} \textbackslash{}input`,
		"-0.2 [-0.5, 0.1]":                     "$-$0.2 {[}$-$0.5, 0.1]",
		"B − A, ΔAUC ± 1":                      `B $-$ A, $\Delta$AUC $\pm$ 1`,
		"~":                                    `$\sim$`,
		"<0.001":                               "$<$0.001",
		"gpt-4o-mini 2-3":                      "gpt-4o-mini 2-3",
		"a\nb\x1b[31m\x00":                     "a b{[}31m",
		"한국어":                                  "한국어",
	} {
		if got := latex(in); got != want {
			t.Errorf("latex(%q) = %s, want %s", in, got, want)
		}
	}
	var b strings.Builder
	writeLaTeX(&b, report.Table{Title: "a & b", Columns: []report.Column{{Name: "measure"}, {Name: "n", Align: report.Right}},
		Rows: [][]report.Cell{{report.Text("x_1"), report.Int(3)}, {report.Text("short")}}, Notes: []string{"5 % dropped"}})
	want := `\begin{table}[t]
\centering
\caption{a \& b}
\begin{tabular}{lr}
\toprule
measure & n \\
\midrule
x\_1 & 3 \\
short &  \\
\bottomrule
\end{tabular}

\smallskip
\footnotesize 5 \% dropped.
\end{table}
`
	if b.String() != want {
		t.Errorf("got\n%s", b.String())
	}
}

func TestEffectWords(t *testing.T) {
	c := func(binary, paired bool, value, p float64, e *stats.Effect) *stats.Comparison {
		return &stats.Comparison{Binary: binary, Paired: paired, Difference: stats.Estimate{Value: value}, PHolm: p, Effect: e}
	}
	for want, d := range map[string]*stats.Comparison{
		"~":                                       c(false, true, 3, 0.05, &stats.Effect{D: 3, Word: "large"}),
		"B higher by 12.5 points":                 c(true, true, 0.125, 0.01, nil),
		"B lower by 12.5 points":                  c(true, false, -0.125, 0.01, nil),
		"B higher, small (d_z 0.31)":              c(false, true, 2, 0.01, &stats.Effect{D: 0.31, Word: "small"}),
		"B lower, large (d -1.20)":                c(false, false, -2, 0.01, &stats.Effect{D: -1.2, Word: "large"}),
		"B higher, by the same in every dialogue": c(false, true, 1, 0.01, nil),
	} {
		if got := effectWords(d); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// The report gets a comparison of the runs that can be compared, and a note on
// those that cannot.
func TestComparedForReport(t *testing.T) {
	var errs bytes.Buffer
	a := newTestApp()
	a.stderr = &errs
	root := t.TempDir()
	for _, name := range []string{"one", "two"} {
		if code, _, errs := exits(map[string]string{}, "data", "sample", filepath.Join(root, name)); code != exitDone {
			t.Fatal(errs)
		}
	}
	if s, err := a.compared(t.Context(), []string{filepath.Join(root, "one"), filepath.Join(root, "two")}); err != nil || len(s) != 0 {
		t.Errorf("folders without runs: %+v, %v", s, err)
	}
}

// synthetic is a measure of so many dialogues, two a context.
func synthetic(name, condition string, binary bool, n int, value func(i int) (float64, string)) stats.Measure {
	m := stats.Measure{Name: name, Condition: condition, Binary: binary}
	for i := range n {
		v, why := value(i)
		m.Observations = append(m.Observations, stats.Observation{Item: fmt.Sprint(9001 + i), Group: fmt.Sprint("context ", i/2), Value: v, Unscored: why})
	}
	return m
}

func scoredAs(value func(i int) float64) func(int) (float64, string) {
	return func(i int) (float64, string) { return value(i), "" }
}

var update = flag.Bool("update", false, "write the golden files anew")

// What a comparison of made-up runs looks like: a difference that is there, one that
// is not, dialogues that one side could not score, few contexts.
func TestComparisonTables(t *testing.T) {
	c := &comparison{Task: "timing", Paired: true, Seed: 1, Runs: []comparedName{{Name: "base", Model: "org/base"}, {Name: "tuned", Model: "org/tuned", Notes: []string{"a note"}}}}
	p := comparedPair{A: "base", B: "tuned", Other: []string{`mode ("stream", "pick")`}}
	for _, m := range [][2]stats.Measure{
		{synthetic("TurnAcc", "", true, 24, scoredAs(func(i int) float64 { return float64(i % 4 / 3) })),
			synthetic("TurnAcc", "", true, 24, scoredAs(func(i int) float64 { return float64(min(1, i%8)) }))},
		{synthetic("auc_paige", "ND", false, 24, scoredAs(func(i int) float64 { return float64(i%5) / 10 })),
			synthetic("auc_paige", "ND", false, 24, func(i int) (float64, string) {
				if i == 7 {
					return 0, "mass"
				}
				return float64(i%5)/10 + float64(i%3-1)/20, ""
			})},
	} {
		d, err := stats.Compare(m[0], m[1], stats.Resampling{Resamples: 10_000, Seed: 1})
		if err != nil {
			t.Fatal(err)
		}
		p.Measures = append(p.Measures, &d)
	}
	mcnemar := 0.5
	p.McNemar = &mcnemar
	stats.Adjust(p.Measures)
	c.Pairs, c.Family = []comparedPair{p}, len(p.Measures)
	var b strings.Builder
	if err := report.Write(&b, report.Terminal, c.sections(), report.Options{Width: 140}); err != nil {
		t.Fatal(err)
	}
	golden := filepath.Join("testdata", "comparison.golden")
	if *update {
		if err := os.WriteFile(golden, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if b.String() != string(want) {
		t.Errorf("got\n%s\nwant\n%s", b.String(), want)
	}
}

// Fewer than six contexts cannot give a p under 0.05, and runs without any flip an
// interval without width: both are said.
func TestComparisonSaysWhatItCannot(t *testing.T) {
	alike := synthetic("TurnAcc", "", true, 8, scoredAs(func(i int) float64 { return float64(i % 2) }))
	d, err := stats.Compare(alike, alike, stats.Resampling{Resamples: 100, Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	notes := strings.Join(comparedPair{Measures: []*stats.Comparison{&d}}.table(true).Notes, "; ")
	// 1 − 0.025^(1/4)
	if e := d.Difference; e.Lo < -0.6024 || e.Lo > -0.6023 || e.Hi != -e.Lo {
		t.Errorf("the interval of 4 contexts that agree is %+v", e)
	}
	if !strings.Contains(notes, "4 scenario contexts: no p can be below 0.125") || !strings.Contains(notes, "alike in all 8 dialogues") || !strings.Contains(notes, "exact (Clopper and Pearson) over the 4 contexts") {
		t.Error(notes)
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
		if err := schemas.Validate("comparison", []byte(out)); err != nil {
			t.Errorf("%v: %v\n%s", more, err, out)
		}
		if err := schemas.Validate("comparison", []byte(strings.Replace(out, `"paired": `, `"pared": `, 1))); err == nil {
			t.Error("a misspelled field was accepted")
		}
	}
}
