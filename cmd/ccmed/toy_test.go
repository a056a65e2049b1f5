package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ccmed/ccmed/bench/export"
	"github.com/ccmed/ccmed/bench/run"
	"github.com/ccmed/ccmed/bench/task/tasktest"
)

// withToy is the program with one benchmark more. This line is all that it takes.
var withToy = append(slices.Clone(benches), tasktest.Toy{})

// toyProgram returns what runs a command line of the program with the toy, and wants the
// exit code.
func toyProgram(t *testing.T, env map[string]string) func(code int, args ...string) (out, errs string) {
	return func(want int, args ...string) (string, string) {
		t.Helper()
		var stdout, stderr bytes.Buffer
		a := &app{stdin: strings.NewReader(""), stdout: &stdout, stderr: &stderr, now: time.Now, getenv: func(k string) string { return env[k] }, benches: withToy}
		if code := a.main(args); code != want {
			t.Fatalf("%s: exit code %d, want %d\n%s%s", strings.Join(args, " "), code, want, stdout.String(), stderr.String())
		}
		return stdout.String(), stderr.String()
	}
}

// A benchmark that is one folder and one line is taken by every command.
func TestToyInEveryCommand(t *testing.T) {
	f := newFake()
	defer f.Close()
	dir := t.TempDir()
	t.Chdir(dir)
	ccmed := toyProgram(t, map[string]string{"OLLAMA_HOST": f.URL})
	t.Setenv("CCMED_CACHE", filepath.Join(dir, "cache"))
	holds := func(text string, wants ...string) {
		t.Helper()
		for _, w := range wants {
			if !strings.Contains(text, w) {
				t.Errorf("no %q in:\n%s", w, text)
			}
		}
	}
	// Its command, help, dry run and usage.
	out, _ := ccmed(exitDone, "--help")
	holds(out, "toy", "Is a sentence polite")
	out, _ = ccmed(exitDone, "toy", "--help")
	holds(out, "--checker", "--shard", "--question", "ccmed toy --model gemma2:9b")
	out, _ = ccmed(exitDone, "toy", "--model", "fake", "--checker", "other", "--dry-run")
	holds(out, "6", "speaker", "checker", "Is this polite?")
	_, errs := ccmed(exitUsage, "toy", "--model", "fake", "--sentences", "99")
	holds(errs, "--sentences 99; it must be 1 to 6")
	_, errs = ccmed(exitMissing, "toy", "--model", "nobody")
	holds(errs, "nobody")
	// Runs, from the cache too, shards and their whole, a run that goes on.
	out, _ = ccmed(exitDone, "toy", "--model", "fake", "--checker", "other", "--out", "a")
	holds(out, "Toy: polite sentences", "baseline: always yes", "Cost")
	ccmed(exitDone, "toy", "--model", "other", "--checker", "other", "--out", "b")
	for _, i := range []string{"1", "2"} {
		ccmed(exitDone, "toy", "--model", "fake", "--checker", "other", "--shard", i+"/2", "--out", "shard"+i)
	}
	ccmed(exitDone, "runs", "merge", "shard1", "shard2", "--out", "whole")
	if a, b := metricsText(t, "a"), metricsText(t, "whole"); a != b {
		t.Errorf("in one go %s\nof shards %s", a, b)
	}
	breakAfter := func(answers int) {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.lives = answers
	}
	breakAfter(5)
	ccmed(exitErrors, "toy", "--model", "other", "--checker", "other", "--cache", "off", "--patience", "0", "--out", "broken")
	breakAfter(-1)
	ccmed(exitDone, "runs", "resume", "broken")
	if a, b := metricsText(t, "b"), metricsText(t, "broken"); a != b {
		t.Errorf("in one go %s\ngone on with %s", a, b)
	}
	// Scoring, looking, checking.
	out, _ = ccmed(exitDone, "score", "a")
	holds(out, "Toy: polite sentences")
	out, _ = ccmed(exitDone, "runs", "show", "a")
	holds(out, "Toy: polite sentences")
	out, _ = ccmed(exitDone, "runs", "show", "a", "--item", "1", "--prompts")
	holds(out, "Could you pass the salt", "polite")
	out, _ = ccmed(exitDone, "runs", "ls", "--runs", ".", "--task", "toy")
	holds(out, "toy", "other, fake")
	out, _ = ccmed(exitDone, "runs", "verify", "a", "b", "whole")
	holds(out, "a: manifest, samples and metrics agree")
	editText(t, filepath.Join("whole", run.MetricsFile), `"Right": `, `"Right": 1`)
	out, _ = ccmed(exitFailed, "runs", "verify", "whole")
	holds(out, "metrics.Right is stored as")
	// Comparison in every format.
	for format, want := range map[string]string{"table": "paired by sentence; 95 % intervals by place", "markdown": "| measure |", "latex": `\begin{table}`, "json": `"task": "toy"`, "benchstat": "BenchmarkToy/step=answer"} {
		out, _ = ccmed(exitDone, "compare", "a", "b", "--format", format)
		holds(out, want)
	}
	// Reports and exports in every format.
	for _, format := range []string{"html", "json", "md"} {
		out, _ = ccmed(exitDone, "report", "a", "b", "--format", format, "--out", "-")
		holds(out, "polite sentences", "Comparison: toy", "6 sentences: intervals are wide")
	}
	out, _ = ccmed(exitDone, "report", "a", "--format", "json", "--out", "-")
	holds(out, `"Every sentence"`, "Excuse me, is this the train to Basel?")
	for _, format := range export.Formats {
		ccmed(exitDone, "runs", "export", "a", "--format", string(format), "--out", "export-"+string(format))
	}
	holds(fileText(t, "export-csv"), "run,item,right", "a,1,")
	holds(fileText(t, "export-inspect"), `"task":"ccmed_toy"`, "Could you pass the salt")
	// Completion, documentation, settings and suites.
	out, _ = ccmed(exitDone, "__complete", "toy", "--c")
	holds(out, "--checker")
	out, _ = ccmed(exitDone, "help", "formats")
	holds(out, "Columns of toy runs:", "number of the sentence")
	ccmed(exitDone, "docs", "markdown", "pages")
	holds(fileText(t, filepath.Join("pages", "toy.md")), "--question")
	out, _ = ccmed(exitDone, "docs", "config-schema")
	holds(out, `"toy"`, "how many sentences are asked about")
	writeText(t, "ccmed.yaml", "toy: {sentences: 2}\n")
	out, _ = ccmed(exitDone, "toy", "--model", "fake", "--out", "two")
	holds(out, "(0/2)")
	writeText(t, "night.yaml", "steps:\n  - {name: one, command: [toy, --model, fake]}\n  - {name: page, command: [report, \"${step:one}\", --out, page.html]}\n")
	out, _ = ccmed(exitDone, "suite", "run", "night.yaml", "--out", "night")
	holds(out, "2 of 2 steps done")
}

func writeText(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// metricsText is what scoring found, without what it cost.
func metricsText(t *testing.T, path string) string {
	t.Helper()
	var m run.StoredMetrics
	if err := json.Unmarshal([]byte(fileText(t, filepath.Join(path, run.MetricsFile))), &m); err != nil {
		t.Fatal(err)
	}
	return string(m.Metrics)
}

// Outside its own folder nothing asks which benchmark made a run.
func TestNoBenchmarkIsSpecial(t *testing.T) {
	special := regexp.MustCompile(`case "(?:timing|mediation|extract)"|[tT]ask\s*[!=]=\s*"[a-z]|[mM]ode\s*[!=]=\s*\S*DualHead|Options\["`)
	for _, room := range []string{"cmd/ccmed", "bench/task", "bench/compare", "bench/page", "bench/export", "bench/report", "bench/run", "bench/suite", "bench/schema"} {
		files, err := filepath.Glob(filepath.Join(projectRoot, room, "*.go"))
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: %d files, %v", room, len(files), err)
		}
		for _, f := range files {
			if strings.HasSuffix(f, "_test.go") {
				continue
			}
			for i, line := range strings.Split(fileText(t, f), "\n") {
				if special.MatchString(line) && !strings.Contains(line, `"] = `) {
					t.Errorf("%s:%d: %s", f, i+1, strings.TrimSpace(line))
				}
			}
		}
	}
}

// TestBrowserToy opens the report of the toy: its items are there, under their own name.
func TestBrowserToy(t *testing.T) {
	c := newChromium(t)
	f := newFake()
	defer f.Close()
	dir := t.TempDir()
	ccmed := toyProgram(t, map[string]string{"OLLAMA_HOST": f.URL})
	ccmed(exitDone, "toy", "--model", "fake", "--checker", "other", "--cache", "off", "--out", filepath.Join(dir, "a"))
	page := filepath.Join(dir, "page.html")
	ccmed(exitDone, "report", filepath.Join(dir, "a"), "--out", page)
	c.open(page)
	c.quiet()
	if got := eval[string](c, statusLine); got != "6 of 6 sentences" {
		t.Errorf("the page says %q", got)
	}
	if got := eval[string](c, "document.body.textContent"); !strings.Contains(got, "Toy: polite sentences") {
		t.Error("the page lacks the section of the toy")
	}
}
