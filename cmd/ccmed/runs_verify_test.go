package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ccmed/ccmed/bench/folder"
	"github.com/ccmed/ccmed/sft"
)

// verdict runs verify on a folder and returns what it says.
func verdict(t *testing.T, path string) (faults, notes []string) {
	t.Helper()
	code, out, errs := exits(nil, "runs", "verify", path, "--json")
	var vs []folder.Verdict
	if err := json.Unmarshal([]byte(out), &vs); err != nil || len(vs) != 1 {
		t.Fatalf("verify %s: %v, %s", path, err, errs)
	}
	if (code == exitDone) != (len(vs[0].Faults) == 0) {
		t.Errorf("exit code %d with the faults %q", code, vs[0].Faults)
	}
	return vs[0].Faults, vs[0].Notes
}

// one of the sentences holds the text.
func one(sentences []string, text string) bool {
	return slices.ContainsFunc(sentences, func(s string) bool { return strings.Contains(s, text) })
}

// editText replaces a text in a file.
func editText(t *testing.T, path, old, now string) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	after := strings.Replace(string(b), old, now, 1)
	if after == string(b) {
		t.Fatalf("%s has no %q", path, old)
	}
	if err := os.WriteFile(path, []byte(after), 0o644); err != nil {
		t.Fatal(err)
	}
}

// madeTraining is the folder of a training that ended, with what a trainer writes.
func madeTraining(t *testing.T) (dir, export string) {
	t.Helper()
	root := t.TempDir()
	data := filepath.Join(root, "data")
	for _, args := range [][]string{{"data", "sample", data}, {"sft", "export", "--data", data, "--out", filepath.Join(root, "export")}} {
		if code, _, errs := exits(nil, args...); code != exitDone {
			t.Fatalf("%v: %s", args, errs)
		}
	}
	export = filepath.Join(root, "export")
	x, err := sft.ReadExport(export)
	if err != nil {
		t.Fatal(err)
	}
	config, err := sft.Preset("small")
	if err != nil {
		t.Fatal(err)
	}
	dir = filepath.Join(root, "train")
	config.Base, config.Data, config.Out = filepath.Join(root, "base"), export, dir
	r, err := sft.CreateTraining(sft.Manifest{Version: "1", Config: config, Base: sft.Checkpoint{Dir: config.Base, Digest: "sha256:00", Type: "llama"}, Export: x, ExportDigest: x.Digest()})
	if err != nil {
		t.Fatal(err)
	}
	m := r.Manifest()
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	now := time.Date(2026, 11, 30, 1, 2, 3, 0, time.UTC)
	m.Status = sft.TrainDone
	m.Sessions = []sft.TrainSession{{Started: now, Ended: now, Status: sft.TrainDone, Processes: 1}}
	m.Result = &sft.TrainResult{Final: filepath.Join(dir, sft.FinalDir), Steps: 2, Seconds: 1, Validation: &sft.Validation{Step: 2, N: 3, TurnAcc: 0.5, LM: 2, BCE: 0.25, Threshold: 0.5, ThresholdTurnAcc: 0.5}}
	write := func(name string, v any) {
		b, err := json.MarshalIndent(v, "", "  ")
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write(sft.ManifestFile, m)
	write(sft.ConfigFile, m.Config)
	for name, text := range map[string]string{
		sft.EventsFile: `{"event":"step","step":1,"loss":3.5,"lm":3,"bce":0.5}
{"event":"step","step":2,"loss":2.25,"lm":2,"bce":0.25}
{"event":"eval","step":2,"n":3,"turn_acc":0.5,"lm":2,"bce":0.25,"threshold":0.5,"threshold_turn_acc":0.5}
`,
		sft.LossFile: "step,loss,lm,bce\n1,3.5,3,0.5\n2,2.25,2,0.25\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(dir, sft.FinalDir), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := (&sft.Head{Weight: []float64{1}}).Write(filepath.Join(dir, sft.FinalDir, sft.HeadFile)); err != nil {
		t.Fatal(err)
	}
	return dir, export
}

func TestVerifyTraining(t *testing.T) {
	for _, c := range []struct{ name, file, old, now, want string }{
		{"as it is", "", "", "", ""},
		{"a better accuracy", "train/train.json", `"turn_acc": 0.5`, `"turn_acc": 0.9`, "result.validation is stored as TurnAcc 0.9"},
		{"more steps", "train/train.json", `"steps": 2`, `"steps": 20`, "result.steps is stored as 20, and events.jsonl ends at step 2"},
		{"another learning rate", "train/train.json", `"lr_head": `, `"lr_head": 1`, "config.lr_head is stored as"},
		{"another export", "train/train.json", `"hashes": {`, `"hashes": {"x.jsonl": "00",`, "export_digest is stored as"},
		{"a misspelled field", "train/train.json", `"version"`, `"vershun"`, "additional properties 'vershun' not allowed"},
		{"a smoother curve", "train/loss.csv", "3.5", "2.5", "loss.csv:2: step 1 with loss 2.5, and events.jsonl says step 1 with loss 3.5"},
		{"a shorter curve", "train/loss.csv", "1,3.5,3,0.5\n", "", "loss.csv has 1 steps and events.jsonl 2"},
		{"changed training data", "export/train.jsonl", `"`, ` "`, "train.jsonl was changed after the export"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir, _ := madeTraining(t)
			if c.file != "" {
				editText(t, filepath.Join(filepath.Dir(dir), c.file), c.old, c.now)
			}
			faults, _ := verdict(t, dir)
			if c.want == "" && len(faults) > 0 || c.want != "" && !one(faults, c.want) {
				t.Errorf("faults %q, want one with %q", faults, c.want)
			}
		})
	}
	dir, export := madeTraining(t)
	if faults, _ := verdict(t, export); len(faults) > 0 {
		t.Errorf("the export: %q", faults)
	}
	if err := os.RemoveAll(export); err != nil {
		t.Fatal(err)
	}
	if faults, notes := verdict(t, dir); len(faults) > 0 || !one(notes, "it is not there") {
		t.Errorf("without the export: %q, %q", faults, notes)
	}
	if err := os.Remove(filepath.Join(dir, sft.FinalDir, sft.HeadFile)); err != nil {
		t.Fatal(err)
	}
	if faults, _ := verdict(t, dir); !one(faults, "head.safetensors is missing") {
		t.Errorf("without the head: %q", faults)
	}
}

func TestVerifyPackage(t *testing.T) {
	made := func(t *testing.T) string {
		t.Helper()
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, sft.ModelFile), []byte("weights"), 0o644); err != nil {
			t.Fatal(err)
		}
		sum, err := sft.FileSum(filepath.Join(dir, sft.ModelFile))
		if err != nil {
			t.Fatal(err)
		}
		digest := "sha256:" + sum
		if err := (&sft.Head{Weight: []float64{1, 2, 3}, Model: digest}).Write(filepath.Join(dir, sft.HeadFile)); err != nil {
			t.Fatal(err)
		}
		c := sft.Card{Schema: sft.CardSchema, Name: "tuned", Digest: digest, Quantization: "F16", Width: 3, ThresholdDefault: 0.5, Markers: map[string]int32{sft.TurnEnd: 1}, Proofs: []sft.Proof{{Name: "tokens", OK: true}}}
		if err := c.Write(dir); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	for _, c := range []struct{ name, file, old, now, want string }{
		{"as it is", "", "", "", ""},
		{"other weights", sft.ModelFile, "weights", "weight", "model.gguf was changed since it was packaged"},
		{"another model's head", sft.CardFile, `"digest": "sha256:`, `"digest": "sha256:0`, "its card is of the model sha256:0"},
		{"a wrong width", sft.CardFile, `"width": 3`, `"width": 4`, "its card says that it reads 4 values, and it reads 3"},
		{"a proof that fails", sft.CardFile, `"ok": true`, `"ok": false`, "tokens"},
		{"a field of the wrong kind", sft.CardFile, `"quantization": "F16"`, `"quantization": 16`, "quantization"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := made(t)
			if c.file != "" {
				editText(t, filepath.Join(dir, c.file), c.old, c.now)
			}
			if c.file == sft.CardFile {
				if faults, _ := verdict(t, dir); !one(faults, "card.json is damaged: it was changed since it was written") && !one(faults, c.want) {
					t.Errorf("faults %q of an edited card", faults)
				}
				// The same said by a card that has no checksum.
				b, err := os.ReadFile(filepath.Join(dir, c.file))
				if err != nil {
					t.Fatal(err)
				}
				lines := strings.SplitAfter(string(b), "\n")
				if err := os.WriteFile(filepath.Join(dir, c.file), []byte(lines[0]+strings.Join(lines[2:], "")), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			faults, _ := verdict(t, dir)
			if c.want == "" && len(faults) > 0 || c.want != "" && !one(faults, c.want) {
				t.Errorf("faults %q, want one with %q", faults, c.want)
			}
		})
	}
	dir := made(t)
	if err := os.Remove(filepath.Join(dir, sft.ModelFile)); err != nil {
		t.Fatal(err)
	}
	if faults, notes := verdict(t, dir); len(faults) > 0 || !one(notes, "Ollama has them") {
		t.Errorf("weights that only Ollama has: %q, %q", faults, notes)
	}
}

func TestListOfTrainings(t *testing.T) {
	dir, export := madeTraining(t)
	for path, want := range map[string]folder.Folder{
		dir:    {Kind: folder.KindTraining, Status: sft.TrainDone, Model: "base", Samples: 2},
		export: {Kind: folder.KindExport, Status: "done"},
	} {
		f, ok := folder.Read(benches, path)
		if !ok || f.Kind != want.Kind || f.Status != want.Status || f.Fault != "" || want.Model != "" && f.Model != want.Model || want.Samples > 0 && f.Samples != want.Samples {
			t.Errorf("%s is %+v", path, f)
		}
		if code, out, errs := exits(nil, "runs", "show", path); code != exitDone || out == "" {
			t.Errorf("show %s: %s", path, errs)
		}
	}
	editText(t, filepath.Join(dir, sft.ManifestFile), `"schema": 1`, `"schema": 5`)
	if f, ok := folder.Read(benches, dir); !ok || f.Status != folder.Damaged || !strings.Contains(f.Fault, "5") {
		t.Errorf("a training of another version is %+v", f)
	}
}

func TestParseSince(t *testing.T) {
	now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.FixedZone("", 3600))
	for s, want := range map[string]string{
		"": "0001-01-01T00:00:00Z", "7d": "2026-11-23T12:00:00+01:00", "0d": "2026-11-30T12:00:00+01:00", "90m": "2026-11-30T10:30:00+01:00",
		"2026-11-01": "2026-11-01T00:00:00+01:00", "2026-11-30T08:15": "2026-11-30T08:15:00+01:00", "2026-11-30T08:15:00Z": "2026-11-30T08:15:00Z",
	} {
		got, err := parseSince(s, now)
		if err != nil || got.Format(time.RFC3339) != want {
			t.Errorf("%q is %s, %v; want %s", s, got.Format(time.RFC3339), err, want)
		}
	}
	for _, s := range []string{"yesterday", "-3d", "-1h", "d", "2026-13-01"} {
		if _, err := parseSince(s, now); err == nil || exitCode(err) != exitUsage {
			t.Errorf("%q: %v", s, err)
		}
	}
}
