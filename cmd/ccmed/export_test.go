package main

import (
	"cmp"
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
	states := plantStates(t, python, runs)
	script(t, python, []string{"CCMED_EXPORTS=" + all, "CCMED_STATES=" + states}, "-m", "pytest", "tests_exports")
}

// script runs Python in the folder of scripts, with the program on the path.
func script(t *testing.T, python string, env []string, args ...string) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	bin := t.TempDir()
	if err := os.Symlink(self, filepath.Join(bin, "ccmed")); err != nil { // TestMain is the program under this name
		t.Fatal(err)
	}
	cmd := exec.Command(python, args...)
	cmd.Dir = filepath.Join("..", "..", "scripts")
	cmd.Env = append(append(os.Environ(), "PATH="+bin+string(os.PathListSeparator)+os.Getenv("PATH"), "PYTHONPATH="+cmp.Or(os.Getenv("PYTHONPATH"), "python")), env...)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

// plantStates imports states that numpy made, probes and exports them, and returns the
// folder that tests_exports/test_states.py reads; runs are for the notebook.
func plantStates(t *testing.T, python string, runs map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	at := func(name ...string) string { return filepath.Join(append([]string{dir}, name...)...) }
	script(t, python, nil, filepath.Join("tests_exports", "plant_states.py"), at("planted"))
	ccmed(t, nil, "probe", "import", at("planted", "card.yaml"), "--out", at("runs", "store"))
	design := []string{"--folds", "3", "--seeds", "2"}
	ccmed(t, nil, append([]string{"probe", "train", at("runs", "store"), "--controls", "0", "--resamples", "200"}, design...)...)
	ccmed(t, nil, append([]string{"probe", "export", at("runs", "store"), "--out", at("arrays")}, design...)...)
	ccmed(t, nil, append([]string{"probe", "export", at("runs", "store"), "--format", "parquet", "--out", at("tables")}, design...)...)
	ccmed(t, nil, "probe", "report", at("runs", "store"), "--format", "csv", "--out", at("findings.csv"))
	ccmed(t, nil, "runs", "export", at("runs", "store"), "--format", "parquet", "--out", at("places.parquet"))
	ccmed(t, nil, "runs", "verify", at("runs", "store"))
	for _, name := range []string{"timing", "mediation"} {
		if err := os.CopyFS(at("runs", name), os.DirFS(runs[name])); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}
