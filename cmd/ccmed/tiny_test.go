package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/ccmed/ccmed/bench/dialogue"
)

// copies writes the sample several times over, with other ids, scenario contexts
// and first words, so that there are enough dialogues for folds.
func copies(t *testing.T, path string, from, to int) {
	t.Helper()
	dir := t.TempDir()
	if err := dialogue.Write(dir, dialogue.Sample()); err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(dir, "*.json"))
	if err != nil {
		t.Fatal(err)
	}
	var lines bytes.Buffer
	for i := from; i < to; i++ {
		for _, f := range files {
			b, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			var r map[string]any
			if err := json.Unmarshal(b, &r); err != nil {
				t.Fatal(err)
			}
			meta, first := r["metadata"].(map[string]any), r["shared_prefix"].([]any)[0].(map[string]any)
			r["scenario_id"] = r["scenario_id"].(float64) + float64(100*i)
			meta["scenario_context"] = fmt.Sprintf("%s (%d)", meta["scenario_context"], i)
			first["message"] = fmt.Sprintf("%d: %s", i, first["message"])
			if b, err = json.Marshal(r); err != nil {
				t.Fatal(err)
			}
			lines.Write(append(b, '\n'))
		}
	}
	if err := os.WriteFile(path, lines.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
}

// TestTinyProbes goes from dialogues to findings with a tiny random model: its
// states know nothing of stages but what its weights make of words, and every
// command must take them all the same.
func TestTinyProbes(t *testing.T) {
	models := os.Getenv("CCMED_TINY_MODELS")
	if models == "" {
		t.Skip("CCMED_TINY_MODELS names no folder of tiny models; scripts/test_states.sh makes them")
	}
	needEngine(t)
	model := filepath.Join(models, "llama.gguf")
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	copies(t, at("some.jsonl"), 0, 4)
	copies(t, at("others.jsonl"), 4, 6)
	quick := []string{"--folds", "2", "--seeds", "2", "--controls", "1", "--resamples", "200"}
	contains := func(where, text string, wants ...string) {
		t.Helper()
		for _, w := range wants {
			if !strings.Contains(text, w) {
				t.Errorf("%s does not say %q:\n%s", where, w, text)
			}
		}
	}

	extract := []string{"probe", "extract", "--model", model, "--num-ctx", "1024", "--threads", "1", "--max-tokens", "3", "--cells", "D:own-D,D:own-ND,ND:own-ND,D:placebo,ND:placebo,wrong:own-ND"}
	ccmed(t, nil, append(extract, "--data", at("some.jsonl"), "--out", at("store"))...)
	found := ccmed(t, nil, append([]string{"probe", "train", at("store")}, quick...)...)
	contains("train", found, "48 dialogues of 48 groups", "A wrong stage in the prompt", "not testable on this model", "48 paired samples, fewer than 600", "Matched attributes", "control task")
	for format, want := range map[string]string{"table": "Δplacebo", "markdown": "| layer |", "json": `"schema": 4`, "csv": "context,text,position", "html": "<svg"} {
		contains("report --format "+format, ccmed(t, nil, "probe", "report", at("store"), "--format", format), want)
	}
	contains("report", readFile(t, at("page.html"), func() { ccmed(t, nil, "report", at("store"), "--out", at("page.html")) }), "the probes allow: not testable on this model")

	// Two shards make the same store.
	for _, shard := range []string{"1/2", "2/2"} {
		ccmed(t, nil, append(extract, "--data", at("others.jsonl"), "--shard", shard, "--out", at("part"+shard[:1]))...)
	}
	ccmed(t, nil, "runs", "merge", at("part1"), at("part2"), "--out", at("other"))
	contains("apply", ccmed(t, nil, "probe", "train", at("other"), "--apply", filepath.Join(at("store"), "probes")), "Saved probes applied", "24")

	ccmed(t, nil, "probe", "extract", "--model", model, "--num-ctx", "1024", "--threads", "1", "--data", at("some.jsonl"), "--turns", "--edits", "mask,strip,swap", "--out", at("turns"))
	contains("train on turns", ccmed(t, nil, append([]string{"probe", "train", at("turns")}, quick...)...), "swap", "bag of words")
	contains("report of turns", ccmed(t, nil, "probe", "report", at("turns"), "--format", "html"), "<svg")

	// NumPy and safetensors read the same states.
	ccmed(t, nil, "probe", "export", at("store"), "--out", at("arrays"))
	ccmed(t, nil, "probe", "export", at("turns"), "--layers", "block.1", "--out", at("turn-arrays"))
	check := exec.Command(trainingPython(t), "-c", arraysAgree, at("store"), at("arrays"), at("turns"), at("turn-arrays"))
	if out, err := check.CombinedOutput(); err != nil {
		t.Errorf("exported arrays: %v\n%s", err, out)
	}

	// Exported and imported again, the store has the same findings.
	findings := func(store string) string {
		text := ccmed(t, nil, "probe", "report", store, "--format", "json")
		return regexp.MustCompile(`"samples_sha256": "[^"]*"`).ReplaceAllString(text, "")
	}
	ccmed(t, nil, "probe", "import", at("arrays"), "--data", at("some.jsonl"), "--out", at("imported"))
	ccmed(t, nil, append([]string{"probe", "train", at("imported")}, quick...)...)
	if a, b := findings(at("store")), findings(at("imported")); a != b {
		t.Errorf("findings differ after export and import:\n%s", cmp.Diff(a, b))
	}

	// A labeller is fitted to the recorded stages and asked in the labeller's place.
	ccmed(t, nil, "probe", "extract", "--model", model, "--num-ctx", "1024", "--threads", "1", "--data", at("some.jsonl"), "--questions", "--out", at("questions"))
	contains("train on questions", ccmed(t, nil, append([]string{"probe", "train", at("questions")}, quick...)...), "A labeller fitted to recorded stages", "words of the turn", "(chosen)")
	contains("CSV of questions", ccmed(t, nil, "probe", "report", at("questions"), "--format", "csv"), "block.1,quadratic kappa,")
	ccmed(t, nil, "mediate", "--model", model, "--num-ctx", "1024", "--threads", "1", "--data", at("some.jsonl"), "--limit", "4", "--card-items", "2", "--max-tokens", "3", "--sim-max-tokens", "3",
		"--rubric", "none", "--cache", "off", "--labeller", "probe:"+at("questions"), "--judge", model, "--out", at("mediated"))
	contains("show", ccmed(t, nil, "runs", "show", at("mediated")), "labelled by probe of llama")
	for _, flag := range []string{"--judge", "--simulator", "--model"} {
		if code, _, errs := exits(nil, "mediate", "--model", model, "--data", "sample", flag, "probe:"+at("questions")); code != exitUsage ||
			!strings.Contains(errs, flag+" probe:"+at("questions")+": a classifier of hidden states") {
			t.Errorf("a labeller as the model of %s: %d\n%s", flag, code, errs)
		}
	}
	if code, _, errs := exits(nil, "mediate", "--model", model, "--num-ctx", "2048", "--data", "sample", "--limit", "1", "--labeller", "probe:"+at("store"), "--out", at("unfitted")); code != exitFailed ||
		!strings.Contains(errs, "`ccmed probe train` makes one of a store of `ccmed probe extract --questions`") {
		t.Errorf("a store without a labeller: %d\n%s", code, errs)
	}

	// All that was written has the form that the schemas say, and agrees with itself.
	contains("verify", ccmed(t, nil, "runs", "verify", at("store"), at("part1"), at("other"), at("turns"), at("questions"), at("mediated"), at("imported")),
		"store: manifest, samples and metrics agree", "turns: manifest, samples and metrics agree", "questions: manifest, samples and metrics agree", "mediated: manifest, samples and metrics agree")
	for _, file := range []string{"probe.json", filepath.Join("probes", "D.own-D.utterance_end.residual.probe.json")} {
		text := readFile(t, filepath.Join(at("store"), file), func() {})
		change := strings.NewReplacer(`"folds": 2`, `"folds": "2"`, `"weights": "sha256:`, `"weights": "sha256:0`)
		if err := os.WriteFile(filepath.Join(at("store"), file), []byte(change.Replace(text)), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if code, out, _ := exits(nil, "runs", "verify", at("store")); code != exitFailed || !strings.Contains(out, "folds: got string, want integer") || !strings.Contains(out, "it was changed since it was written") {
		t.Errorf("verify of changed findings: %d\n%s", code, out)
	}
}

// arraysAgree compares exported arrays with the store, by readers that are not ours.
const arraysAgree = `
import glob, json, os, sys
import numpy as np
from safetensors import safe_open
for store, arrays in ((sys.argv[1], sys.argv[2]), (sys.argv[3], sys.argv[4])):
    samples = {}
    for line in open(os.path.join(store, "samples.jsonl")):
        s = json.loads(line)
        if s["step"] == "states":
            samples[s["item"]] = s["data"]
    files = sorted(glob.glob(os.path.join(arrays, "*.npz")))
    assert len(files) == len(glob.glob(os.path.join(store, "*.safetensors"))) > 0, files
    assert len({tuple(json.loads(np.load(f)["meta.json"])["groups"]) for f in files}) == 1  # a number is one context in all cells
    for file in files:
        z = np.load(file)
        meta = json.loads(z["meta.json"])
        path = os.path.join(store, os.path.basename(file)[:-4] + ".safetensors")
        with safe_open(path, "np") as f:
            states, names = f.get_tensor("states"), json.loads(f.metadata()["layers"])
        X, y, group = z["X"], z["y"], z["group"]
        assert X.dtype == np.float32 and y.dtype == np.int64, (X.dtype, y.dtype)
        assert X.shape[0] == len(meta["layers"]) and X.shape[1] == len(y) == len(group) == len(meta["items"]), X.shape
        cell = {k: v for k, v in meta["cell"].items() if k != "kind"}
        for i, item in enumerate(meta["items"]):
            d = samples[item]
            places = [p for p in d["states"] if {k: v for k, v in p["cell"].items() if k != "kind"} == cell]
            labels = {t["row"]: t["label"] for t in d.get("turns", [])}
            matching = [p for p in places if all(np.array_equal(states[names.index(l)][p["row"]].astype(np.float32), X[k][i]) for k, l in enumerate(meta["layers"]))]
            assert matching, (file, item)
            if cell["text"] == "original":
                assert meta["stages"][y[i]] in [labels[p["row"]] for p in matching], (file, item)
            else:
                assert meta["stages"][y[i]] == d["stage"], (file, item)
            assert meta["groups"][group[i]] == d["context"]
`

func readFile(t *testing.T, path string, after func()) string {
	t.Helper()
	after()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
