package main

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/ccmed/ccmed/bench/run"
	"github.com/ccmed/ccmed/bench/timing"
	"github.com/ccmed/ccmed/infer/infertest"
	"github.com/ccmed/ccmed/infer/llamacpp"
	"github.com/ccmed/ccmed/sft"
)

// exits runs a command line in this process and returns its exit code, output
// and what it says beside.
func exits(env map[string]string, args ...string) (code int, out, errs string) {
	var stdout, stderr bytes.Buffer
	a := &app{stdin: strings.NewReader(""), stdout: &stdout, stderr: &stderr, now: time.Now, getenv: func(k string) string { return env[k] }}
	code = a.main(args)
	return code, stdout.String(), stderr.String()
}

// trainingPython returns CCMED_TEST_PYTHON, a Python with the packages of training.
func trainingPython(t *testing.T) string {
	t.Helper()
	python := os.Getenv("CCMED_TEST_PYTHON")
	if python == "" || exec.Command(python, "-c", "import importlib.util as u, sys; sys.exit(not (u.find_spec('torch') and u.find_spec('peft')))").Run() != nil {
		if os.Getenv("CCMED_REQUIRE_PYTHON") == "1" {
			t.Fatal("CCMED_TEST_PYTHON names no Python with torch and peft")
		}
		t.Skip("CCMED_TEST_PYTHON names no Python with torch and peft")
	}
	return python
}

// TestTinyLine takes a model of two layers from records to a model that Ollama
// serves, and asks it again.
func TestTinyLine(t *testing.T) {
	python := trainingPython(t)
	model := infertest.ModelPath(t)
	needEngine(t)
	env := map[string]string{"OLLAMA_HOST": infertest.StartOllama(t)}
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	cmd := exec.Command(python, filepath.Join("testdata", "tiny_base.py"), filepath.Join("..", "..", "scripts"), model, at("base"))
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	ccmed(t, env, "sft", "export", "--data", "sample", "--fraction", "0.25", "--out", at("data"))
	ccmed(t, env, "sft", "train", "--base", at("base"), "--data", at("data"), "--out", at("train"), "--python", python, "--threads", "1",
		"--max-steps", "6", "--grad-accum", "1", "--warmup-steps", "0", "--lr-adapter", "0.01", "--lr-head", "0.2")

	args := []string{"sft", "package", "--train", at("train"), "--python", python, "--base-model", infertest.TestModel, "--threads", "1", "--gpu-layers", "0",
		"--prove-n", "2", "--prove-tokens", "12"}
	ccmed(t, env, append(args, "--name", "tiny", "--out", at("tiny"))...)
	card, err := sft.ReadCard(at("tiny"))
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]sft.Proof{}
	for _, p := range card.Proofs {
		seen[p.Name] = p
		// Six steps teach no model to end its utterances.
		if !p.OK && !(p.NotRun != "" && strings.HasPrefix(p.Name, sft.ProofEnds)) {
			t.Errorf("not proved: %+v", p)
		}
	}
	for _, name := range []string{sft.ProofHead, sft.ProofMarkers, sft.ProofTokens, sft.ProofP, sft.ProofGreedy + ", embedded engine", sft.ProofGreedy + ", Ollama",
		sft.ProofEnds + ", embedded engine", sft.ProofEnds + ", Ollama", sft.ProofRendered} {
		if _, ok := seen[name]; !ok {
			t.Errorf("no proof %q", name)
		}
	}
	if p := seen[sft.ProofP]; p.Value == nil || p.Limit == nil || *p.Limit != sft.MaxPDifference || *p.Value > 0.01 {
		t.Errorf("P(speak) of a model in F16: %+v", p)
	}
	if _, err := os.Stat(filepath.Join(at("tiny"), "merged")); err == nil {
		t.Error("what the package was made of is left behind")
	}
	if got := ccmed(t, env, "runs", "verify", at("data"), at("train"), at("tiny")); strings.Count(got, " agree\n") != 3 {
		t.Errorf("verify says\n%s", got)
	}

	// The package's folder and the name in Ollama are one model.
	predict := []string{"sft", "predict", "--data", "sample", "--limit", "3", "--threads", "1", "--max-tokens", "4"}
	ccmed(t, env, append(predict, "--model", at("tiny"), "--out", at("folder"))...)
	ccmed(t, env, append(predict, "--model", "tiny", "--head", filepath.Join(at("tiny"), sft.HeadFile), "--out", at("name"))...)
	if a, b := curves(t, at("folder")), curves(t, at("name")); a != b {
		t.Errorf("the folder gives\n%s\nthe name in Ollama\n%s", a, b)
	}
	if low, high := spread(t, at("folder")); high-low < 0.05 {
		t.Errorf("P(speak) from %g to %g: nothing that could be confused", low, high)
	}

	// What exists is kept, and a head of another model refused: the same one with
	// other weights.
	for _, name := range []string{"tiny", "tiny:latest"} {
		if code, _, errs := exits(env, append(args, "--name", name, "--out", at("again"))...); code != exitFailed || !strings.Contains(errs, "--force") {
			t.Errorf("a model %s that exists: %d %s", name, code, errs)
		}
	}
	if code, _, errs := exits(env, append(args, "--name", "other", "--out", at("tiny"))...); code != exitFailed || !strings.Contains(errs, "holds a package") {
		t.Errorf("a package that exists: %d %s", code, errs)
	}
	if err := llamacpp.Quantize(filepath.Join(at("tiny"), sft.ModelFile), at("tiny8.gguf"), "q8_0"); err != nil {
		t.Fatal(err)
	}
	code, _, errs := exits(env, append(predict, "--model", at("tiny8.gguf"), "--head", filepath.Join(at("tiny"), sft.HeadFile), "--out", at("wrong"))...)
	if code != exitFailed || !strings.Contains(errs, "belongs to another model") || !strings.Contains(errs, card.Digest) {
		t.Errorf("a head of another model: %d %s", code, errs)
	}
}

// spread returns the least and greatest P(speak) of a run.
func spread(t *testing.T, path string) (low, high float64) {
	t.Helper()
	d, err := run.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	low = 1
	for s, err := range d.All() {
		if err != nil {
			t.Fatal(err)
		}
		if s.Step != timing.StepDecide {
			continue
		}
		var dec timing.Decision
		if err := json.Unmarshal(s.Data, &dec); err != nil {
			t.Fatal(err)
		}
		for _, p := range dec.Curve {
			low, high = min(low, p.P), max(high, p.P)
		}
	}
	return low, high
}

// TestSmolLM2Line trains SmolLM2 itself for a few steps, from the GGUF file alone,
// with new marker tokens and the preset's learning rates: interrupted, resumed,
// packaged, proved and asked again.
func TestSmolLM2Line(t *testing.T) {
	python := trainingPython(t)
	model := infertest.ModelPath(t)
	needEngine(t)
	env := map[string]string{"OLLAMA_HOST": infertest.StartOllama(t)}
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	ccmed(t, env, "sft", "export", "--data", "sample", "--fraction", "0.25", "--out", at("data"))

	const interruptAt, steps = 6, 24
	soft := make(chan struct{})
	go func() {
		defer close(soft)
		for range 3000 {
			if points, err := sft.ReadCurve(at("train")); err == nil && len(points) >= interruptAt {
				return
			}
			time.Sleep(100 * time.Millisecond)
		}
	}()
	train := []string{"sft", "train", "--out", at("train"), "--python", python}
	var errs bytes.Buffer
	a := &app{stdin: strings.NewReader(""), stdout: io.Discard, stderr: &errs, now: time.Now, getenv: func(k string) string { return env[k] }, soft: soft}
	root := a.root()
	root.SetArgs(append(train, "--base", model, "--data", at("data"), "--max-steps", strconv.Itoa(steps), "--epochs", "4",
		"--grad-accum", "1", "--warmup-steps", "2", "--threads", "1"))
	if code := exitCode(root.ExecuteContext(t.Context())); code != exitInterrupted {
		t.Fatalf("an interrupted training ends with %d:\n%s", code, errs.String())
	}
	before, err := sft.ReadCurve(at("train"))
	if err != nil {
		t.Fatal(err)
	}
	if n := len(before); n < interruptAt || n >= steps {
		t.Fatalf("%d steps before the interrupt", n)
	}
	ccmed(t, env, append(train, "--resume")...)
	curve, err := sft.ReadCurve(at("train"))
	if err != nil {
		t.Fatal(err)
	}
	if len(curve) != steps {
		t.Fatalf("%d steps, want %d", len(curve), steps)
	}
	for i, p := range before {
		if curve[i].Train.BCE != p.Train.BCE {
			t.Errorf("step %d was done again after the interrupt: its loss was %g and is %g", p.Step, p.Train.BCE, curve[i].Train.BCE)
		}
	}
	mean := func(points []sft.Point) (lm, bce float64) {
		for _, p := range points {
			lm += p.Train.LM / float64(len(points))
			bce += p.Train.BCE / float64(len(points))
		}
		return lm, bce
	}
	lm0, bce0 := mean(curve[:4])
	lm1, bce1 := mean(curve[steps-4:])
	t.Logf("LM %.3f to %.3f, BCE %.3f to %.3f", lm0, lm1, bce0, bce1)
	if bce1 > bce0/2 || lm1 >= lm0 {
		t.Errorf("LM %.3f to %.3f, BCE %.3f to %.3f: nothing was learned", lm0, lm1, bce0, bce1)
	}

	ccmed(t, env, "sft", "package", "--train", at("train"), "--python", python, "--base-model", infertest.TestModel, "--threads", "1", "--gpu-layers", "0",
		"--prove-n", "1", "--prove-tokens", "8", "--name", "smollm2-line", "--out", at("package"))
	card, err := sft.ReadCard(at("package"))
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range card.Proofs {
		if !p.OK && !(p.NotRun != "" && strings.HasPrefix(p.Name, sft.ProofEnds)) {
			t.Errorf("not proved: %+v", p)
		}
	}
	ccmed(t, env, "sft", "predict", "--model", at("package"), "--data", "sample", "--limit", "2", "--threads", "1", "--max-tokens", "4", "--out", at("predicted"))
	if low, high := spread(t, at("predicted")); high-low < 0.2 {
		t.Errorf("P(speak) from %g to %g after training", low, high)
	}
}
