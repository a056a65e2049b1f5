package main

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/ccmed/ccmed/cmd/ccmed/internal/cli"
)

// notRun are examples that need more than a server that answers, by what is in
// them, with the reason. Their words are checked by TestExamples.
var notRun = map[string]string{
	".gguf":          "an engine and weights",
	"engine install": "the network",
	"engine info":    "an engine",
	"probe extract":  "an engine that reads hidden states",
	"probe train":    "a store of hidden states",
	"probe export":   "a store of hidden states",
	"probe import":   "arrays made elsewhere; scripts/tests_exports imports some",
	"probe effect":   "runs of an edited engine",
	"probe report":   "a store of hidden states",
	"runs/STORE":     "a store of hidden states",
	"runs/TRAINING":  "a training",
	"sft setup":      "Python packages",
	"sft train":      "Python packages",
	"sft package":    "a trained model",
	"sft predict":    "a trained model",
	"sft bench":      "a trained model",
	"suite run":      "a trained model",
	"build pairs --labelled runs/LABELS --labeller": "a labeller that agrees with itself",
	"ccbench build": "a writer whose talks pass",
}

// Examples of the help do what they say: those that need no model, and those that
// need one with a stand-in for the server.
func TestExamplesRun(t *testing.T) {
	withoutRaces(t)
	f := newFake()
	defer f.Close()
	f.more = []string{"gemma2:9b", "phi3.5", "qwen2.5:14b"}
	t.Setenv("CCMED_CACHE", t.TempDir()) // without an engine, which the test's own process could not try
	t.Setenv("YZMA_LIB", "")
	env := map[string]string{"OLLAMA_HOST": f.URL}
	home := exampleHome(t, env)
	used := map[string]bool{}
	ran := 0
	cli.Walk(newTestApp().root(), func(c *cobra.Command) {
		for line := range strings.Lines(c.Example) {
			_, call, found := strings.Cut(line, "ccmed ")
			if !found || exampleNeeds(call, used) {
				continue
			}
			ran++
			t.Run(strings.TrimSpace(call), func(t *testing.T) {
				dir := t.TempDir()
				if err := os.CopyFS(dir, os.DirFS(home)); err != nil {
					t.Fatal(err)
				}
				t.Chdir(dir)
				if strings.HasPrefix(call, "runs resume ") {
					// The one that has something left to do, and the server that is there.
					call = strings.NewReplacer("runs/NAME", "torn", "copied/NAME", "torn", "127.0.0.1:11434", f.URL).Replace(call)
				}
				call, _, _ = strings.Cut(call, " | ")
				if code, out, errs := exits(env, words(call)...); code != exitDone {
					t.Errorf("exit code %d\n%s%s", code, out, errs)
				}
			})
		}
	})
	for what := range notRun {
		if !used[what] {
			t.Errorf("no example has %q any more", what)
		}
	}
	if ran < 30 {
		t.Errorf("only %d examples were run", ran)
	}
}

func exampleNeeds(call string, used map[string]bool) (needs bool) {
	for what := range notRun {
		if strings.Contains(call, what) {
			used[what], needs = true, true
		}
	}
	return needs
}

// words splits a call as a shell does: with patterns of file names, and with
// quotes around whole words at most.
func words(call string) []string {
	var out []string
	for _, f := range strings.Fields(call) {
		if found, err := filepath.Glob(f); err == nil && strings.Contains(f, "*") {
			out = append(out, found...)
		} else {
			out = append(out, strings.Trim(f, "'\""))
		}
	}
	return out
}

// exampleHome makes a folder that holds what the examples name.
func exampleHome(t *testing.T, env map[string]string) string {
	t.Helper()
	home := t.TempDir()
	t.Chdir(home)
	must := func(call string) {
		t.Helper()
		if code, out, errs := exits(env, strings.Fields(call)...); code != exitDone {
			t.Fatalf("%s: exit code %d\n%s%s", call, code, out, errs)
		}
	}
	must("data sample all")
	records, err := filepath.Glob("all/*.json")
	if err != nil || len(records) < 4 {
		t.Fatalf("%d records of the sample, %v", len(records), err)
	}
	for _, part := range []string{"evaluate", "training"} {
		if err := os.MkdirAll(filepath.Join("CC-Mediation", "data", part), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(records[0])
	if err != nil {
		t.Fatal(err)
	}
	write := func(path, text string) {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(records[0], strings.Replace(string(text), "9001", "42", 1))
	write("mine.yaml", "study: mine\nclaims:\n- {id: a, topic: t, claim: It is so., test: none, why: nobody measures it}\n")
	for _, name := range []string{"predictions.json", "lines.json"} {
		write(name, `{"per_sid": [{"sid": "42", "predicted_turn": 4, "utterance": "What matters to you both?"}]}`)
	}
	for i, path := range records {
		part := []string{"evaluate", "training"}[i%2]
		if err := os.Rename(path, filepath.Join("CC-Mediation", "data", part, filepath.Base(path))); err != nil {
			t.Fatal(err)
		}
	}
	for name, digits := range map[string]string{"anna": "1\n2\n3\n4\n", "ben": "1\n2\n4\n4\n"} {
		a := &app{stdin: strings.NewReader(digits), stdout: io.Discard, stderr: io.Discard, now: time.Now, getenv: func(k string) string { return env[k] }}
		if code := a.main([]string{"label", "turns", "CC-Mediation/data", "--split", "evaluate", "--out", name + ".jsonl", "--by", name}); code != exitDone {
			t.Fatalf("labels of %s: exit code %d", name, code)
		}
	}
	must("socrates scenarios import sample --out my-disputes")
	must("socrates filter --model qwen2.5:14b --scenarios my-disputes --max-turns 2 --cache off --out runs/KEPT")
	write("casino_test.json", `[{"dialogue_id": 1, "chat_logs": [{"text": "Hello.", "id": "a"}, {"text": "I need food.", "id": "b"}, {"text": "Take it.", "id": "a"}, {"text": "Thanks.", "id": "b"},
		{"text": "Submit-Deal", "id": "a", "task_data": {"issue2youget": {"Food": "0", "Water": "3", "Firewood": "2"}, "issue2theyget": {"Food": "3", "Water": "0", "Firewood": "1"}}},
		{"text": "Accept-Deal", "id": "b", "task_data": {"data": "accept_deal"}}]}]`)
	must("ccbench norms --culture nepali --out my-culture.json")
	if err := os.Mkdir("promediate", 0o755); err != nil {
		t.Fatal(err)
	}
	write("promediate/hmo.json", `{"instruction": "A firm is late.\n## Key Issues", "issues": "1. Price: How much?\n2. Term: How long?",
		"options": "1. Price\n(a) 7\n(b) 8\n2. Term\n(a) One year (b) Two", "names": {"Ann": "You sell.", "Bo": "You buy."}}`)
	const data = " --data CC-Mediation/data --split evaluate --cache off"
	must("timing --model gemma2:9b --out runs/NAME" + data)
	must("timing --model phi3.5 --out runs/PHI" + data)
	must("timing --model gemma2:9b --out shard-1 --shard 1/2" + data)
	must("timing --model gemma2:9b --out shard-2 --shard 2/2" + data)
	must("mediate --model gemma2:9b --labeller qwen2.5:14b --out runs/MEDIATION" + data)
	for from, names := range map[string][]string{"runs/NAME": {"TIMING", "GEMMA", "NIGHT", "BASE"}, "runs/PHI": {"TUNED", "MASKED"}, "runs/MEDIATION": {"FIRST"}} {
		for _, name := range names {
			if err := os.CopyFS(filepath.Join("runs", name), os.DirFS(from)); err != nil {
				t.Fatal(err)
			}
		}
	}
	{
		a := &app{stdin: strings.NewReader(strings.Repeat("1\n3\n", 20)), stdout: io.Discard, stderr: io.Discard, now: time.Now, getenv: func(k string) string { return env[k] }}
		if code := a.main([]string{"label", "turns", "runs/MEDIATION", "--out", "anna-run.jsonl", "--by", "anna"}); code != exitDone {
			t.Fatalf("labels of a run: exit code %d", code)
		}
	}
	must("build scenarios --model gemma2:9b --n 12 --out runs/SCENARIOS")
	must("build prompts --scenarios sample --per-scenario 4 --out cases.jsonl")
	must("build dialogues --cases cases.jsonl --model gemma2:9b --out runs/DIALOGUES")
	must("build label --dialogues runs/DIALOGUES --model gemma2:9b --out runs/LABELS")
	must("build pairs --labelled runs/LABELS --model gemma2:9b --weak --out runs/PAIRS")
	// A run that was stopped before its last item.
	if err := os.CopyFS("torn", os.DirFS("runs/NAME")); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join("torn", "samples.jsonl")
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	write(path, string(b[:strings.LastIndex(strings.TrimSuffix(string(b), "\n"), "\n")+1]))
	if err := vouchFor("torn", true); err != nil {
		t.Fatal(err)
	}
	return home
}
