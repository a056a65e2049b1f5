package main

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"
)

// The golden files of TestFrozen are written anew by -freeze, and read by a person before
// they are committed.
var freeze = flag.Bool("freeze", false, "write the golden files of TestFrozen")

// unsteady are the parts of an output that time, place and this version make.
var unsteady = []struct {
	of *regexp.Regexp
	to string
}{
	{regexp.MustCompile(`\d{4}-\d\d-\d\dT[0-9:.]+(Z|[+-]\d\d:\d\d)`), "TIME"},
	{regexp.MustCompile(`\d{4}-\d\d-\d\d \d\d:\d\d(:\d\d)?`), "TIME"},
	{regexp.MustCompile(`("(?:seconds|server_seconds|duration|working_time|total_time)": ?)[0-9.e-]+`), "${1}0"},
	{regexp.MustCompile(`\b(\d+h)?(\d+m)?[0-9.]+(s|ms|µs)\b`), "DURATION"},
	{regexp.MustCompile(`, about DURATION left`), ""}, // where a step has taken long enough to tell
	{regexp.MustCompile(`[0-9.]+ ?tokens/s`), "RATE tokens/s"},
	{regexp.MustCompile(`http://127\.0\.0\.1:\d+`), "SERVER"},
	{regexp.MustCompile(`127\.0\.0\.1:\d+`), "HOST"},
	{regexp.MustCompile(`("(?:version|go|host|os|hostname|ccmed_version|revision|git_hash|identity_hash|samples_sha256|metrics_sha256|content_sha256|sha256|prompts_sha256|errors_sha256)": ?)"[^"]*"`), `${1}"…"`},
	{regexp.MustCompile(`("(?:pid|cpus|lock)": ?)\d+`), "${1}0"},
	{regexp.MustCompile(`(seconds +)[0-9.]+`), "${1}SECONDS"},
	{regexp.MustCompile(`\b[0-9a-f]{64}\b`), "HASH"},
	{regexp.MustCompile(`(?m)(,\d+,\d+,\d+,)[0-9.e-]+$`), "${1}SECONDS"}, // the last columns of an export
	{regexp.MustCompile(`[-.\w]+, [a-z]+/[a-z0-9]+, \d+ CPUs?`), "MACHINE"},
	{regexp.MustCompile(`TIME on [-.\w]+:`), "TIME on MACHINE:"},
	{regexp.MustCompile(`go1\.[0-9.]+`), "GO"},
	{regexp.MustCompile(`(devel|v?0\.\d+\.\d+)[-+.0-9a-z()]*`), "VERSION"},
}

// TestFrozen holds what every command prints and writes of runs against a scripted server.
// A change of a golden is part of the change that made it.
func TestFrozen(t *testing.T) {
	withoutRaces(t)
	golden, err := filepath.Abs("testdata/frozen")
	if err != nil {
		t.Fatal(err)
	}
	f := newFake()
	defer f.Close()
	dir := t.TempDir()
	t.Chdir(dir)
	env := map[string]string{"OLLAMA_HOST": f.URL, "CCMED_CACHE": filepath.Join(dir, "cache"), "HOME": dir}
	t.Setenv("CCMED_CACHE", env["CCMED_CACHE"])
	steady := func(text string) string {
		text = strings.ReplaceAll(text, dir, "DIR")
		for _, u := range unsteady {
			text = u.of.ReplaceAllString(text, u.to)
		}
		return text
	}
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	archives := map[string]*txtar.Archive{}
	add := func(archive, name, text string) {
		a := archives[archive]
		if a == nil {
			a = &txtar.Archive{}
			archives[archive] = a
		}
		if text = steady(text); text != "" && !strings.HasSuffix(text, "\n") {
			text += "\n"
		}
		a.Files = append(a.Files, txtar.File{Name: name, Data: []byte(text)})
	}
	ccmed := func(archive, line string) {
		var stdout, stderr bytes.Buffer
		a := &app{stdin: strings.NewReader(""), stdout: &stdout, stderr: &stderr, now: func() time.Time { return now }, getenv: func(k string) string { return env[k] }}
		code := a.main(strings.Fields(line))
		add(archive, "ccmed "+line, fmt.Sprintf("exit %d\n%s--\n%s", code, stdout.String(), stderr.String()))
	}
	file := func(archive, path string) {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		add(archive, path, string(text))
	}
	runs := map[string]string{
		"stream":   "timing --model fake --data sample --limit 5",
		"pick":     "timing --model fake --data sample --limit 5 --mode pick",
		"cot":      "timing --model fake --data sample --limit 3 --mode cot",
		"mediate":  "mediate --model fake --labeller other --data sample --limit 3 --card-items 4",
		"borrowed": "mediate --model other --simulator fake --judge fake --labeller other --data sample --limit 3 --card-items 4 --baselines mediate",
	}
	for _, name := range []string{"stream", "pick", "cot", "mediate", "borrowed"} {
		ccmed(name, runs[name]+" --dry-run")
		ccmed(name, runs[name]+" --concurrency 1 --out "+name)
		file(name, filepath.Join(name, "manifest.json"))
		file(name, filepath.Join(name, "metrics.json"))
		ccmed(name, "score "+name)
		ccmed(name, "runs show "+name)
		ccmed(name, "runs verify "+name)
		ccmed(name, "runs export "+name+" --format csv --out -")
	}
	for _, line := range []string{
		"runs show stream --item 9001 --prompts", "report stream --format json --out -", "runs export stream --format jsonl --out -",
		"runs ls --runs .", "runs resume stream",
		"compare stream pick --force", "compare stream pick --force --format json", "compare stream cot --unpaired --format latex", "compare mediate borrowed --force",
		"report stream mediate --format md --out -", "score mediate --format reference", "score sample", "data stats sample",
		"--help", "timing --help", "mediate --help", "score --help", "probe extract --help", "sft predict --help",
		"timing --model fake", "timing --model nobody --data sample", "mediate --model fake --data sample --turn never", "score nowhere",
	} {
		ccmed("commands", line)
	}
	for name, a := range archives {
		path := filepath.Join(golden, name+".txtar")
		if *freeze {
			if err := os.WriteFile(path, txtar.Format(a), 0o644); err != nil {
				t.Fatal(err)
			}
			continue
		}
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		want := map[string]string{}
		for _, f := range txtar.Parse(text).Files {
			want[f.Name] = string(f.Data)
		}
		for _, f := range txtar.Parse(txtar.Format(a)).Files {
			if d := cmp.Diff(strings.Split(want[f.Name], "\n"), strings.Split(string(f.Data), "\n")); d != "" {
				t.Errorf("%s of %s has changed; go test ./cmd/ccmed -run TestFrozen -freeze writes it anew (-golden +now):\n%s", f.Name, path, d)
			}
		}
	}
}
