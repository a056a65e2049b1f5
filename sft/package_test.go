package sft

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ccmed/ccmed/infer"
)

func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

// A vocabulary of SentencePiece is the base's own, with the markers where the
// converter looks for them; the merged checkpoint itself stays as it is.
func TestConvertibleVocabulary(t *testing.T) {
	dir := t.TempDir()
	p := &Package{Merged: filepath.Join(dir, "merged"), Card: Card{Markers: map[string]int32{TurnEnd: 7, Speak: 300, EndSpeak: 301}},
		Training: &Manifest{Base: Checkpoint{Dir: filepath.Join(dir, "base")}}}
	write(t, filepath.Join(p.Merged, "config.json"), "{}")
	write(t, filepath.Join(p.Merged, "tokenizer_config.json"), `{"tokenizer_class":"X","added_tokens_decoder":{"2":{"content":"<bos>","special":true}}}`)
	if got, err := p.convertible(); err != nil || got != p.Merged {
		t.Fatalf("without %s: %s, %v", sentencePiece, got, err)
	}
	write(t, filepath.Join(p.Training.Base.Dir, sentencePiece), "pieces")
	view, err := p.convertible()
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{sentencePiece: "pieces", "config.json": "{}"} {
		if b, err := os.ReadFile(filepath.Join(view, name)); err != nil || string(b) != want {
			t.Errorf("%s is %q (%v), want %q", name, b, err, want)
		}
	}
	var got struct {
		Class string `json:"tokenizer_class"`
		Added map[string]struct {
			Content string
			Special bool
		} `json:"added_tokens_decoder"`
	}
	b, err := os.ReadFile(filepath.Join(view, "tokenizer_config.json"))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(b, &got); err != nil {
		t.Fatal(err)
	}
	for id, want := range map[string]string{"2": "<bos>", "7": TurnEnd, "300": Speak, "301": EndSpeak} {
		if a := got.Added[id]; a.Content != want || a.Special != (id == "2") {
			t.Errorf("token %s is %+v, want %s", id, a, want)
		}
	}
	if len(got.Added) != 4 || got.Class != "X" {
		t.Errorf("tokenizer_config.json is %s", b)
	}
	if b, err := os.ReadFile(filepath.Join(p.Merged, "tokenizer_config.json")); err != nil || strings.Contains(string(b), Speak) {
		t.Errorf("the merged checkpoint's own is %s (%v)", b, err)
	}
}

func TestPackagePlace(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "p")
	if err := packagePlace(dir, false); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, CardFile), "{}")
	write(t, filepath.Join(dir, mergedDir, "config.json"), "{}")
	if err := packagePlace(dir, false); err == nil || !strings.Contains(err.Error(), "--force") {
		t.Errorf("a package is there: %v", err)
	}
	if err := packagePlace(dir, true); err != nil {
		t.Fatal(err)
	}
	if es, err := os.ReadDir(dir); err != nil || len(es) > 0 {
		t.Errorf("replaced, it holds %v (%v)", es, err)
	}
	write(t, filepath.Join(dir, "thesis.tex"), "words")
	if err := packagePlace(dir, true); err == nil || !strings.Contains(err.Error(), "thesis.tex") {
		t.Errorf("somebody else's file: %v", err)
	}
	if _, err := os.Stat(filepath.Join(dir, "thesis.tex")); err != nil {
		t.Error("it is gone")
	}
}

func TestCardComesBack(t *testing.T) {
	dir, limit := t.TempDir(), 0.02
	c := Card{Schema: CardSchema, Name: "tuned", Digest: "sha256:aa", Markers: map[string]int32{TurnEnd: 1}, Width: 3, ThresholdDefault: 0.5,
		ThresholdValidation: &Threshold{0.25, 10, 0.9}, Proofs: []Proof{measured("a", "b", 0.01, &limit), NotRun("c", "d")}}
	if err := c.Write(dir); err != nil {
		t.Fatal(err)
	}
	got, err := ReadCard(dir)
	if err != nil {
		t.Fatal(err)
	}
	a, errA := json.Marshal(c)
	b, errB := json.Marshal(got)
	if errA != nil || errB != nil || string(a) != string(b) {
		t.Errorf("read %s, wrote %s (%v %v)", b, a, errA, errB)
	}
}

// The Python that a training's folder names is never started: it may be a copied
// folder. It is named, for a user whose own it is.
func TestBuildStartsNoProgramOfTheFolder(t *testing.T) {
	t.Setenv("CCMED_CACHE", t.TempDir())
	dir := t.TempDir()
	evil, started := filepath.Join(dir, "evil.sh"), filepath.Join(dir, "started")
	if err := os.WriteFile(evil, []byte("#!/bin/sh\ntouch "+started+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	m, err := json.Marshal(Manifest{Schema: TrainSchema, Status: TrainDone, Result: &TrainResult{}, Sessions: []TrainSession{{Environment: Environment{Python: evil}}}})
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "train", ManifestFile), string(m))
	write(t, filepath.Join(dir, "train", FinalDir, trainedFile), "{}")
	if err := (&Head{Weight: []float64{1}}).Write(filepath.Join(dir, "train", FinalDir, HeadFile)); err != nil {
		t.Fatal(err)
	}
	var missing *infer.MissingError
	_, err = Build(t.Context(), PackageOptions{Train: filepath.Join(dir, "train"), Out: filepath.Join(dir, "out"), Name: "m"})
	if !errors.As(err, &missing) || !strings.Contains(err.Error(), "the training names "+evil) {
		t.Errorf("%v", err)
	}
	if _, err := os.Stat(started); err == nil {
		t.Error("the folder's program was started")
	}
}
