//go:build linux && !race

package torture

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

// plant makes one of every kind of file that the program reads, with the program
// itself, and returns the address of the server that its calls may ask.
func plant(t *testing.T, bed string) (host string) {
	t.Helper()
	s := newServer(t)
	must(t, bed, "data", "sample", "records")
	if err := os.Rename(records(t, bed, 1), filepath.Join(bed, "records.jsonl")); err != nil {
		t.Fatal(err)
	}
	must(t, bed, "data", "prompts", "templates")
	write(t, filepath.Join(bed, "predictions.json"), `{"per_sid": [{"sid": "9001", "predicted_turn": 3, "utterance": "Could each of you say more?"},
 {"sid": "9002", "predicted_turn": 4, "utterance": "What matters here?"}, {"sid": "9003", "predicted_turn": null, "utterance": ""}]}`+"\n")
	write(t, filepath.Join(bed, "asked.jsonl"), `{"pre":[0,1,0,0,0,0],"post":[0,0,0,1,0,0]}
{"pre_stage":1,"intervention_turn":3,"last_turn":5,"trajectory":[[4,5],[5,2]]}
{"top_logprobs":[{"token":"4","logprob":-0.1},{"token":"2","logprob":-3.5}]}
`)
	write(t, filepath.Join(bed, "night.yaml"), `about: two models
vars:
  models: [truth, other]
  data:
  limit: 4
steps:
  - name: timing
    matrix: {model: "${models}"}
    command: [timing, --model, "${model}", --data, "${data}", --limit, "${limit}"]
  - name: compare
    command: [compare, "${step:timing}"]
`)
	write(t, filepath.Join(bed, "package", "card.json"), `{"schema": 1, "name": "other", "digest": "sha256:00", "quantization": "F16", "base": {},
 "markers": {"<TURN_END>": 3, "[SPEAK]": 4, "[/SPEAK]": 5}, "width": 8, "threshold_default": 0.5, "proofs": []}`+"\n")
	ask := []string{"--model", model, "--host", s.URL, "--data", "sample", "--limit", "3", "--cache", "off"}
	must(t, bed, slices.Concat([]string{"timing", "--out", "timing"}, ask)...)
	must(t, bed, slices.Concat([]string{"timing", "--out", "timing2"}, ask, []string{"--model", "other"})...)
	must(t, bed, slices.Concat([]string{"mediate", "--out", "mediation", "--card-items", "2"}, ask)...)
	s.spoil = func(w http.ResponseWriter, _ *http.Request, a *answer) bool {
		if a.kind != "choose" || hash(a.prompt)%5 != 0 {
			return false
		}
		http.Error(w, `{"error":"\u001b[31mno memory for this prompt"}`, http.StatusBadRequest)
		return true
	}
	if r := call(t, bed, time.Minute, slices.Concat([]string{"timing", "--out", "failed", "--max-failures", "100"}, ask)...); r.code != 0 && r.code != 3 {
		t.Fatal(r.brief())
	}
	s.spoil = nil
	v := trainingVictim(t, bed)
	must(t, bed, slices.Concat(v.begin, []string{"--out", "training"})...)
	if err := os.CopyFS(filepath.Join(bed, "export"), os.DirFS(filepath.Join(bed, "data"))); err != nil {
		t.Fatal(err)
	}
	plantStates(t, bed)
	write(t, filepath.Join(bed, "ccmed.yaml"), "model: truth\nlimit: 2\ntiming:\n  mode: pick\nmediate:\n  rubric: [none, stage]\n")
	return s.URL
}

// plantStates makes what needs the engine and a model, where they are there.
func plantStates(t *testing.T, bed string) {
	t.Helper()
	gguf := os.Getenv("CCMED_TEST_MODEL")
	if gguf == "" {
		if require {
			t.Fatal("no test model: CCMED_TEST_MODEL names no GGUF file")
		}
		fmt.Println("torture: no test model: no stores, probes and GGUF files are damaged")
		return
	}
	if err := os.Symlink(gguf, filepath.Join(bed, "model.gguf")); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(bed, "chat.jinja"), "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}<|im_start|>assistant\n")
	run := func(args ...string) {
		if r := start(t, bed, engine(t), args...).end(12 * time.Minute); r.code != 0 {
			t.Fatalf("ccmed %s: %s", r.commandLine, r.brief())
		}
	}
	extract := []string{"probe", "extract", "--model", gguf, "--out", "store", "--cache", "off"}
	if !full { // too few for probes
		run(append(extract, "--data", "sample", "--limit", "2", "--turns")...)
		return
	}
	run(append(extract, "--data", records(t, bed, 2), "--cells", "ND:placebo")...)
	run("probe", "train", "store", "--layers", "block.1", "--folds", "2", "--seeds", "1", "--controls", "0", "--resamples", "100")
}
