package main

import (
	"archive/zip"
	"bytes"
	"context"
	"encoding/csv"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/ccmed/ccmed/bench/report"
	"github.com/ccmed/ccmed/bench/run"
	"github.com/ccmed/ccmed/bench/timing"
	"github.com/ccmed/ccmed/infer"
)

// hostileTexts are texts that mean something to one of the program's outputs.
var hostileTexts = map[string]string{
	"cursor":        "a\x1b[2J\x1b[1;1Hb",
	"title":         "\x1b]0;owned\x07",
	"clipboard":     "\x1b]52;c;cm0gLXJmIH4=\x1b\\",
	"C1":            "\u009b2Jx\u0085y",
	"overrides":     "a\u202eb\u202c",
	"isolates":      "a\u2066b\u2069",
	"NUL":           "a\x00b",
	"line ends":     "a\rb\nc\r\nd\te",
	"separators":    "a\u2028b\u2029c",
	"script":        `</script><script>alert(1)</script>`,
	"handler":       `<img src=x onerror=alert(1)>"'>`,
	"TeX":           `\input{/etc/passwd}\write18{id} $x$ 50% a&b_c^d~e #1 {`,
	"TeX arguments": `*[99pt]--?`,
	"formula":       `=cmd|' /C calc'!A1`,
	"plus":          `+1+cmd`, "minus": `-1-cmd`, "at": `@SUM(1)`,
	"Markdown": "|a|`b`[x](javascript:alert(1))\n# h",
	"up":       "..", "path": "../../../x", "absolute": "/etc/x", "drive": `C:\x`, "hidden": ".x", "option": "-rf",
	"long":       strings.Repeat("long ", 2000),
	"no UTF-8":   "a\xff\xfeb",
	"zero width": "a\u200b\ufeff\u200db",
	"quotes":     `"; DROP 'x', "" \`,
	"template":   `{{.}}${out}%s%d`,
	"empty":      "",
}

// obeys reports what a terminal would obey. Line feeds are ours.
var obeys = regexp.MustCompile(`[\x00-\x09\x0b-\x1f\x7f-\x{9f}\x{2028}-\x{202e}\x{2066}-\x{2069}]`)

// hostileRun makes a run in which everything that others decide is the text.
func hostileRun(t *testing.T, text string) (path string, told string) {
	t.Helper()
	m := infer.Model{Backend: text, Name: text, Digest: text, Quantization: text}
	path = filepath.Join(t.TempDir(), "run")
	d, err := run.Create(path, run.Identity{Task: "timing", Version: text, Models: map[string]infer.Model{timing.Role: m}, Options: map[string]any{"data": text, "mode": text}, DataHash: text,
		Prompts: map[string]string{"timing_stream": text}}, []string{"timing", text})
	if err != nil {
		t.Fatal(err)
	}
	task := run.Task[int]{Name: "timing", Units: []run.Unit[int]{{Item: text, Condition: text}, {Item: "1", Condition: text, Value: 1}, {Item: "2", Condition: text, Value: 2}},
		Steps: []run.Step[int]{{Name: timing.StepDecide, Do: func(_ context.Context, _ infer.Backend, u run.Unit[int], _ run.Lookup) (s run.Sample, err error) {
			if u.Value == 2 {
				return s, errors.New(text)
			}
			dec := timing.Decision{Mode: timing.CoT, Gold: 4, Stage: "Denial", Context: text, FirstTurn: 3, LastTurn: 6, Predicted: 4, Reasoning: text, Lengths: []int{1, 2, 3, 4, 5, 6},
				Curve: []timing.Point{{Turn: 3, P: 0.1, Share: 1, Mass: 0.1, Top: []infer.TokenLogprob{{Token: text, Logprob: -1}}}}}
			if u.Value == 1 {
				s.Unscored = "because " + text
			}
			s.Data, err = json.Marshal(dec)
			return s, err
		}}}}
	var bar, lines bytes.Buffer
	for _, p := range []run.Progress{run.Bar(&bar), run.Lines(&lines)} {
		p.Step("decide", 1, 0)
		p.Done(run.Key{Item: text}, run.Sample{}, errors.New(text))
		p.End()
	}
	if _, err := run.Execute(t.Context(), d, task, run.Options{MaxFailures: 1}); err != nil {
		t.Fatal(err)
	}
	_, bad, _ := strings.Cut(bar.String(), "failed: ")
	bad, _, _ = strings.Cut(bad, "\n")
	return path, bad
}

// TestNoSinkObeysAText puts every hostile text in the place of every name, line and
// message of a run, and looks at all that the program then writes.
func TestNoSinkObeysAText(t *testing.T) {
	for name, text := range hostileTexts {
		t.Run(name, func(t *testing.T) {
			t.Chdir(t.TempDir())
			path, told := hostileRun(t, text)
			if obeys.MatchString(told) {
				t.Errorf("the bar of progress writes %q", told)
			}
			log, err := os.ReadFile(filepath.Join(path, run.LogFile))
			if err != nil || obeys.Match(log) || bytes.Count(log, []byte("\n")) != bytes.Count(log, []byte("\n20"))+1 {
				t.Errorf("log.txt holds %q (%v)", log, err)
			}
			page := filepath.Join(t.TempDir(), "page.html")
			for _, args := range [][]string{{"score", path}, {"runs", "show", path}, {"runs", "show", path, "--json"}, {"runs", "ls", filepath.Dir(path)}, {"runs", "verify", path}, {"compare", path, path},
				{"compare", path, path, "--format", "latex"}, {"compare", path, path, "--format", "markdown"}, {"report", path, "--out", page}, {"timing", "--model", text, "--data", text}, {"score", text},
				{"data", "validate", text}, {"metrics", text}, {text}, {"runs", "show", text}, {"suite", "run", text, "--out", "x"}, {"timing", "--mode", text}, {"data", "stats", "sample", "--" + text}} {
				_, stdout, stderr := ccmedOn(t, args...)
				if out := stdout + stderr; obeys.MatchString(out) {
					at := obeys.FindStringIndex(out)[0]
					t.Errorf("ccmed %q writes %q", args, out[max(0, at-60):min(len(out), at+30)])
				}
				if len(stderr) > 12_000 {
					t.Errorf("ccmed %.60q writes %d bytes to standard error", args, len(stderr))
				}
			}
			checkPage(t, page)
			checkExports(t, path, text)
			checkLaTeX(t, text)
		})
	}
}

// checkPage finds elements that the page's own code does not write.
func checkPage(t *testing.T, path string) {
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if n := bytes.Count(b, []byte("<script")); n != 2 || bytes.Contains(b, []byte("<img")) || obeys.Match(b) {
		t.Errorf("the page has %d scripts, or a text became a part of it", n)
	}
}

// checkExports reads what is exported: the text as it was, in files that lie where
// they should.
func checkExports(t *testing.T, path, text string) {
	stored := string([]rune(text)) // as the run's own files hold it: U+FFFD for a byte that is no UTF-8
	out := t.TempDir()
	file := func(name string) string {
		b, err := os.ReadFile(filepath.Join(out, name))
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	for _, f := range []string{"csv", "jsonl", "parquet", "inspect"} {
		if code, _, stderr := ccmedOn(t, "runs", "export", path, "--format", f, "--out", filepath.Join(out, f)); code != exitDone {
			t.Fatalf("%s: %s", f, stderr)
		}
	}
	records, err := csv.NewReader(strings.NewReader(file("csv"))).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	column := slices.Index(records[0], "model")
	if got := records[1][column]; got != strings.ReplaceAll(stored, "\r\n", "\n") { // encoding/csv reads this of CRLF
		t.Errorf("CSV gives %q back", got)
	}
	var row map[string]any
	if err := json.NewDecoder(strings.NewReader(file("jsonl"))).Decode(&row); err != nil || row["model"] != stored {
		t.Errorf("JSON Lines give %q back (%v)", row["model"], err)
	}
	eval, harness := filepath.Join(out, "x.eval"), filepath.Join(out, "harness")
	for _, args := range [][]string{{"--format", "inspect", "--out", eval}, {"--format", "lm-eval", "--out", harness}} {
		if code, _, stderr := ccmedOn(t, append([]string{"runs", "export", path}, args...)...); code != exitDone {
			t.Fatalf("%q: %s", args, stderr)
		}
	}
	z, err := zip.OpenReader(eval)
	if err != nil {
		t.Fatal(err)
	}
	defer z.Close()
	for _, f := range z.File {
		if !regexp.MustCompile(`^(samples/)?[^/\\\x00-\x1f]+\.json$|^_journal/start\.json$`).MatchString(f.Name) || strings.Contains(f.Name, "..") || len(f.Name) > 200 {
			t.Errorf("the archive holds %q", f.Name)
		}
	}
	files := 0
	err = filepath.WalkDir(harness, func(p string, e fs.DirEntry, err error) error {
		if err == nil && !e.IsDir() {
			files++
			if rel, err := filepath.Rel(harness, p); err != nil || strings.Count(rel, "/") != 1 || obeys.MatchString(rel) || strings.HasPrefix(rel, ".") {
				t.Errorf("lm-eval has the file %q", rel)
			}
			if b, err := os.ReadFile(p); err != nil || filepath.Ext(p) == ".txt" && obeys.Match(b) {
				t.Errorf("%s holds %q (%v)", filepath.Base(p), b, err)
			}
		}
		return err
	})
	if outside, _ := os.ReadDir(out); err != nil || files != 3 || len(outside) != 6 { // results, samples and cautions
		t.Errorf("lm-eval wrote %d files, and the folder has %d (%v)", files, len(outside), err)
	}
}

// plainLaTeX matches what LaTeX sets as it is, and the commands that stand for marks.
var plainLaTeX = regexp.MustCompile("^(?:[^\\\\{}$&#%_^~`\\[]|\\\\[{}$&#%_]|\\\\text[a-z]+\\{\\}|\\\\ldots\\{\\}|\\{[*(\\[]\\}|-\\{\\}|\\$(?:[<>|-]|\\\\[a-zA-Z]+)\\$)*$")

// smallLaTeX is where a wide table is set smaller.
var smallLaTeX = regexp.MustCompile(`\}\n\\[a-z]+size\n\\begin\{tabular`)

func checkLaTeX(t *testing.T, text string) {
	table := report.Table{Title: text, Columns: []report.Column{{Name: text}, {Name: text}}, Rows: [][]report.Cell{{report.Text(text), report.Text(text)}}, Notes: []string{text}}.LaTeX()
	table = smallLaTeX.ReplaceAllString(table, "}\n\\begin{tabular") // of wide tables
	_, rest, _ := strings.Cut(table, "\\caption{")
	got, _, _ := strings.Cut(rest, "}\n\\begin{tabular")
	if !plainLaTeX.MatchString(got) || strings.ContainsAny(got, "\r\n\x00\x1b") || strings.HasPrefix(got, "*") || strings.HasPrefix(got, "[") || strings.Contains(got, "--") {
		t.Errorf("LaTeX reads %q", got)
	}
	if n := strings.Count(table, `\\`); n != 2 || strings.Count(table, "\n") != 14 {
		t.Errorf("the table has %d rows: %s", n, table)
	}
}
