package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/ccmed/ccmed/bench/dialogue"
	"github.com/ccmed/ccmed/bench/prompt"
	"github.com/ccmed/ccmed/bench/timing"
	"github.com/ccmed/ccmed/infer"
	"github.com/ccmed/ccmed/infer/infertest"
	"github.com/ccmed/ccmed/infer/llamacpp"
	"github.com/ccmed/ccmed/infer/ollama"
)

// These tests ask the real small model: in the process and through a real
// server. Without them, or the engine, they say so and are skipped, unless
// CCMED_REQUIRE=1.

func needEngine(t *testing.T) {
	t.Helper()
	if _, err := llamacpp.Locate(); err != nil {
		if os.Getenv("CCMED_REQUIRE") != "" {
			t.Fatal(err)
		}
		t.Skip("the engine is not installed: ccmed engine install")
	}
}

// ccmed runs a command line in this process and returns its output.
func ccmed(t *testing.T, env map[string]string, args ...string) string {
	t.Helper()
	var out, errs bytes.Buffer
	a := &app{stdin: strings.NewReader(""), stdout: &out, stderr: &errs, now: time.Now, getenv: func(k string) string { return env[k] }}
	if code := a.main(append(args, "--quiet")); code != exitDone {
		t.Fatalf("ccmed %s: exit code %d\n%s", strings.Join(args, " "), code, errs.String())
	}
	return out.String()
}

type realMetrics struct {
	Usage struct {
		Usage infer.Usage `json:"usage"`
	} `json:"usage"`
	Metrics struct {
		N             int            `json:"n"`
		Scored        int            `json:"scored"`
		Unscored      map[string]int `json:"unscored"`
		PipelineCheck bool           `json:"pipeline_check"`
		Conditions    []struct {
			Condition string `json:"condition"`
			N         int    `json:"n"`
			Mediated  int    `json:"mediated"`
		} `json:"conditions"`
	} `json:"metrics"`
}

func metricsOf(t *testing.T, dir string) realMetrics {
	t.Helper()
	var m realMetrics
	b, err := os.ReadFile(filepath.Join(dir, "metrics.json"))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(b, &m); err != nil {
		t.Fatal(err)
	}
	return m
}

// TestRealTiming asks both backends about two dialogues: what they read must be
// the same tokens, and each may evaluate a shared prefix once only.
func TestRealTiming(t *testing.T) {
	model := infertest.ModelPath(t)
	needEngine(t)
	host := infertest.StartOllama(t)
	env := map[string]string{"OLLAMA_HOST": host}
	runs := map[string]realMetrics{}
	for name, args := range map[string][]string{
		"embedded": {"--model", model},
		"ollama":   {"--model", infertest.TestModel, "--backend", "ollama"},
		"same":     {"--model", infertest.TestModel, "--backend", "embedded"},
	} {
		dir := filepath.Join(t.TempDir(), name)
		ccmed(t, env, append([]string{"timing", "--data", "sample", "--limit", "2", "--cache", "off", "--threads", "1", "--out", dir}, args...)...)
		m := metricsOf(t, dir)
		runs[name] = m
		if m.Metrics.N != 2 || m.Metrics.Scored != 2 {
			t.Errorf("%s: %d of %d dialogues scored (%v), want 2 of 2", name, m.Metrics.Scored, m.Metrics.N, m.Metrics.Unscored)
		}
		limit := 1.02
		if name == "ollama" {
			limit = 1.10
		}
		if u := m.Usage.Usage; float64(u.Evaluated) > limit*float64(u.Unique) || u.Unique >= u.Prompt {
			t.Errorf("%s: evaluated %d of %d unique and %d prompt tokens; evaluated / unique must be at most %.2f", name, u.Evaluated, u.Unique, u.Prompt, limit)
		}
	}
	for name, m := range runs {
		if got, want := m.Usage.Usage.Prompt, runs["ollama"].Usage.Usage.Prompt; got != want {
			t.Errorf("%s read %d prompt tokens, Ollama %d", name, got, want)
		}
	}
}

// TestRenderingsAgree compares the file's own Jinja template with Ollama's
// rendering of the same model, and the tokens of both with what Ollama counts.
func TestRenderingsAgree(t *testing.T) {
	model := infertest.ModelPath(t)
	needEngine(t)
	host := infertest.StartOllama(t)
	ctx := context.Background()
	engine, err := llamacpp.Open(ctx, llamacpp.Options{ModelPath: model, NumCtx: 1024, Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer engine.Close()
	server, err := ollama.New(host, infertest.TestModel, ollama.Options{})
	if err != nil {
		t.Fatal(err)
	}
	set, err := prompt.Load("")
	if err != nil {
		t.Fatal(err)
	}
	ps, err := timing.Prompts(dialogue.Sample()[0], timing.Options{Prompts: set})
	if err != nil {
		t.Fatal(err)
	}
	ps = append(ps, infer.Prompt{Messages: []infer.Message{{Role: infer.System, Content: "Sei kurz."}, {Role: infer.User, Content: "你好, 12 34?"},
		{Role: infer.Assistant, Content: "Hallo."}, {Role: infer.User, Content: "Noch einmal."}}})
	for i, p := range ps {
		a, err := engine.Render(ctx, p)
		if err != nil {
			t.Fatal(err)
		}
		b, err := server.Render(ctx, p)
		if err != nil {
			t.Fatal(err)
		}
		if a != b {
			t.Errorf("prompt %d: the file's template gives\n%q\nOllama\n%q", i, a, b)
		}
		if i%4 != 0 {
			continue
		}
		n, err := engine.CountTokens(ctx, a)
		if err != nil {
			t.Fatal(err)
		}
		r, err := server.Chat(ctx, infer.Prompt{Raw: b}, infer.Params{MaxTokens: 1, TopP: 1, NumCtx: 1024})
		if err != nil {
			t.Fatal(err)
		}
		if r.Usage.Prompt != n {
			t.Errorf("prompt %d: Ollama counts %d tokens, the engine %d", i, r.Usage.Prompt, n)
		}
	}
}

// TestRealMediation takes one dialogue through all four steps, and shows that
// nothing a 135M labeller says is printed as a finding.
func TestRealMediation(t *testing.T) {
	withoutRaces(t)
	model := infertest.ModelPath(t)
	needEngine(t)
	dir := filepath.Join(t.TempDir(), "run")
	out := ccmed(t, nil, "mediate", "--model", model, "--data", "sample", "--limit", "1", "--rubric", "none", "--card-items", "1", "--threads", "1",
		"--max-tokens", "24", "--sim-max-tokens", "12", "--cache", "off", "--out", dir)
	m := metricsOf(t, dir)
	if !m.Metrics.PipelineCheck || !strings.Contains(out, "pipeline check, not a finding") {
		t.Errorf("SmolLM2 as labeller must give a pipeline check:\n%s", out)
	}
	for _, word := range []string{"signed W1", "ΔAUC", "AUC_own"} {
		if strings.Contains(out, word) {
			t.Errorf("a pipeline check prints %s:\n%s", word, out)
		}
	}
	var conditions []string
	for _, c := range m.Metrics.Conditions {
		conditions = append(conditions, c.Condition+" "+strconv.Itoa(c.Mediated))
	}
	if got, want := strings.Join(conditions, ", "), "ND 1, ground-truth 1, generic 1, unmediated 0"; got != want {
		t.Errorf("conditions and lines %q, want %q", got, want)
	}
}

// TestReleasedDrift: unmediated dialogues improve by themselves, by the labels
// that the released records carry.
func TestReleasedDrift(t *testing.T) {
	withoutRaces(t)
	data := filepath.Join("..", "..", "..", "shared", "data", "cc-mediation")
	if _, err := os.Stat(data); err != nil {
		t.Skipf("the released records are not beside the project: %v", err)
	}
	for split, want := range map[string]string{"evaluate": "0.705", "training": "1.759"} {
		out := ccmed(t, nil, "score", filepath.Join(data, split))
		if !strings.Contains(out, want) {
			t.Errorf("%s: AUC_own of the original continuations is not %s:\n%s", split, want, out)
		}
	}
}

func TestContextTooSmallIsRefusedBeforeTheRun(t *testing.T) {
	model := infertest.ModelPath(t)
	needEngine(t)
	out := filepath.Join(t.TempDir(), "run")
	code, _, errs := exits(nil, "timing", "--model", model, "--data", "sample", "--limit", "1", "--num-ctx", "300", "--threads", "1", "--out", out)
	if code != exitUsage || !strings.Contains(errs, "--num-ctx is 300") {
		t.Errorf("exit code %d: %s", code, errs)
	}
	if _, err := os.Stat(out); err == nil {
		t.Error("a run folder was made")
	}
}

// TestSuitePlanHasStates: a dry run of a suite says how large the states of a step are, and
// hours as a number.
func TestSuitePlanHasStates(t *testing.T) {
	needEngine(t)
	model := infertest.ModelPath(t)
	dir := t.TempDir()
	file := filepath.Join(dir, "own.yaml")
	text := "about: states\nsteps:\n  - name: states\n    command: [probe, extract, --model, 'embedded:" + model + "', --data, sample, --limit, 2]\n"
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	env := map[string]string{}
	var plan struct {
		Sections []struct{ Tables []struct{ Rows [][]any } }
	}
	out := ccmed(t, env, "suite", "run", file, "--out", filepath.Join(dir, "s"), "--dry-run", "--speed", "100,10", "--json")
	if err := json.Unmarshal([]byte(out), &plan); err != nil {
		t.Fatal(err)
	}
	row := plan.Sections[0].Tables[1].Rows[0]
	// 6 cells of 32 layers x 2 dialogues x 576 values of 2 bytes.
	if row[6] != 442368/1e9 {
		t.Errorf("states: %v GB", row[6])
	}
	if hours, ok := row[5].(float64); !ok || hours <= 0 {
		t.Errorf("hours: %v", row[5])
	}
}
