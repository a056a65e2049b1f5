package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// TestExportsLoad makes runs with a stand-in for Ollama, one of them with unscored
// samples each, exports them with every format and has pytest load the files with
// inspect_ai, lm-eval, pyarrow, pandas and datasets, and the runs with ccmed_runs.
// scripts/test_exports.sh installs them; CCMED_EXPORTS_RUNS names a folder of further runs to check.
func TestExportsLoad(t *testing.T) {
	python := os.Getenv("CCMED_EXPORTS_PYTHON")
	if python == "" {
		if os.Getenv("CCMED_REQUIRE_PYTHON") == "1" {
			t.Fatal("CCMED_EXPORTS_PYTHON is not set; run scripts/test_exports.sh")
		}
		t.Skip("CCMED_EXPORTS_PYTHON is not set; run scripts/test_exports.sh")
	}
	f := newFake()
	defer f.Close()
	all := t.TempDir()
	env := map[string]string{"OLLAMA_HOST": f.URL}
	runs := map[string]string{}
	for name, args := range map[string][]string{
		"timing":     {"timing", "--model", "fake"},
		"pick":       {"timing", "--model", "fake", "--mode", "pick"},
		"lost":       {"timing", "--model", "mute", "--limit", "6"},
		"mediation":  {"mediate", "--model", "fake", "--limit", "8"},
		"unlabelled": {"mediate", "--model", "fake", "--labeller", "prose", "--limit", "6"},
	} {
		runs[name] = filepath.Join(t.TempDir(), name)
		ccmed(t, env, append(args, "--data", "sample", "--cache", "off", "--out", runs[name])...)
	}
	if more := os.Getenv("CCMED_EXPORTS_RUNS"); more != "" {
		found, err := filepath.Glob(filepath.Join(more, "*", "metrics.json"))
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range found {
			runs[filepath.Base(filepath.Dir(m))] = filepath.Dir(m)
		}
	}
	for name, path := range runs {
		dir := filepath.Join(all, name)
		if err := os.CopyFS(filepath.Join(dir, "run"), os.DirFS(path)); err != nil {
			t.Fatal(err)
		}
		for file, format := range map[string]string{"samples.jsonl": "jsonl", "samples.csv": "csv", "samples.parquet": "parquet", "log.eval": "inspect",
			"2026-01-01T00-00-00_log.json": "inspect", "lm-eval": "lm-eval"} {
			ccmed(t, env, "runs", "export", filepath.Join(dir, "run"), "--format", format, "--out", filepath.Join(dir, file))
		}
	}
	cmd := exec.Command(python, "-m", "pytest", "tests_exports")
	if os.Getenv("PYTHONPATH") == "" {
		cmd.Env = append(cmd.Env, "PYTHONPATH=python")
	}
	cmd.Dir = filepath.Join("..", "..", "scripts")
	cmd.Env = append(append(os.Environ(), cmd.Env...), "CCMED_EXPORTS="+all)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}
