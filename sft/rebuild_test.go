package sft

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"

	"slices"
	"testing"
	"unicode/utf8"

	"github.com/ccmed/ccmed/infer/llamacpp"
)

func TestCorpus(t *testing.T) {
	texts := Corpus()
	if len(texts) < 400 {
		t.Errorf("%d texts", len(texts))
	}
	for i, s := range texts {
		if s == "" || !utf8.ValidString(s) {
			t.Errorf("text %d is %q", i+1, s)
		}
	}
	for _, want := range []string{"e\u0301 is not é", "line one\nline two", " leading space", "trailing space ", "C:\\Users\\name\\file.txt"} {
		if !slices.Contains(texts, want) {
			t.Errorf("%q is missing", want)
		}
	}
	if !slices.Equal(texts, Corpus()) {
		t.Error("the corpus changes from call to call")
	}
}

// TestRebuildSmolLM2 makes a checkpoint of the test model, whose digits
// transformers' own loader splits wrongly, and breaks its tokenizer that way.
func TestRebuildSmolLM2(t *testing.T) {
	model, python := os.Getenv("CCMED_TEST_MODEL"), os.Getenv("CCMED_TEST_PYTHON")
	if model == "" || python == "" {
		t.Skip("CCMED_TEST_MODEL and CCMED_TEST_PYTHON name no GGUF file and no Python with torch")
	}
	vocab, err := llamacpp.OpenVocab(t.Context(), model, "")
	if err != nil {
		t.Fatal(err)
	}
	defer vocab.Close()
	t.Setenv("CCMED_CACHE", t.TempDir())
	var said []string
	rebuild := func() (*Checkpoint, error) {
		return Rebuild(t.Context(), python, Source{Name: "ollama:test", Path: model}, vocab, func(s string) { said = append(said, s) })
	}
	c, err := rebuild()
	if err != nil {
		t.Fatal(err)
	}
	if c.Type != "llama" || c.Parameters != 134_515_008 || c.Width != 576 || c.Blocks != 30 || c.From != "ollama:test" {
		t.Errorf("checkpoint %+v", c)
	}
	said = nil
	again, err := rebuild()
	if err != nil || again.Digest != c.Digest || len(said) > 0 {
		t.Errorf("the second time: %v, it did %q", err, said)
	}

	file := filepath.Join(c.Dir, "tokenizer.json")
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var tokenizer map[string]any
	if err := json.Unmarshal(b, &tokenizer); err != nil {
		t.Fatal(err)
	}
	// What transformers makes of the file: byte-level splitting alone.
	tokenizer["pre_tokenizer"] = map[string]any{"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true}
	if err := writeJSON(file, tokenizer); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(c.Dir, provedFile)); err != nil {
		t.Fatal(err)
	}
	var differs *TokenizerError
	if _, err := rebuild(); !errors.As(err, &differs) || slices.Equal(differs.Llama, differs.Checkpoint) || !strings.Contains(err.Error(), "ollama:test") {
		t.Errorf("a tokenizer that does not split digits: %v", err)
	}
}
