package llamacpp

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ccmed/ccmed/bench/disk"
	"github.com/hybridgroup/yzma/pkg/llama"
)

// vocabularyFile writes a GGUF file (ggml/docs/gguf.md) with a SentencePiece
// vocabulary and no weights.
func vocabularyFile(t *testing.T, tokens []string) string {
	t.Helper()
	var b bytes.Buffer
	put := func(v any) {
		if err := binary.Write(&b, binary.LittleEndian, v); err != nil {
			t.Fatal(err)
		}
	}
	text := func(s string) { put(uint64(len(s))); b.WriteString(s) }
	const u32, i32, f32, str, array = 4, 5, 6, 8, 9
	head := func(key string, kind uint32) { text(key); put(kind) }
	list := func(key string, kind uint32) { head(key, array); put(kind); put(uint64(len(tokens))) }
	numbers := []string{"context_length", "embedding_length", "block_count", "feed_forward_length", "attention.head_count"}
	b.WriteString("GGUF")
	put(uint32(3))
	put(uint64(0))
	put(uint64(len(numbers) + 6))
	head("general.architecture", str)
	text("llama")
	for _, n := range numbers {
		head("llama."+n, u32)
		put(uint32(32))
	}
	head("llama.attention.layer_norm_rms_epsilon", f32)
	put(float32(1e-5))
	head("tokenizer.ggml.model", str)
	text("llama")
	list("tokenizer.ggml.tokens", str)
	for _, tok := range tokens {
		text(tok)
	}
	list("tokenizer.ggml.scores", f32)
	for range tokens {
		put(float32(0))
	}
	list("tokenizer.ggml.token_type", i32)
	for i, tok := range tokens {
		switch { // llama_token_type
		case i < 3:
			put([]int32{2, 3, 3}[i])
		case strings.HasPrefix(tok, "<0x"):
			put(int32(6))
		default:
			put(int32(1))
		}
	}
	path := filepath.Join(t.TempDir(), "vocabulary.gguf")
	if err := os.WriteFile(path, b.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// llama.cpp ends the process for a character that a SentencePiece vocabulary
// cannot write.
func TestVocabulariesThatCannotWrite(t *testing.T) {
	need(t)
	ctx := context.Background()
	whole := []string{"<unk>", "<s>", "</s>", "▁", "a", "</", "s>"}
	for i := range 256 {
		whole = append(whole, fmt.Sprintf("<0x%02X>", i))
	}
	v, err := OpenVocab(ctx, vocabularyFile(t, whole), "")
	if err != nil {
		t.Fatal(err)
	}
	defer v.Close()
	// "</" and "s>" merge to the token that ends a text.
	if merged, err := v.tokens("a</s>", false); err != nil || !slices.Contains(merged, 2) {
		t.Fatalf("llama.cpp tokenises the text as %v, %v", merged, err)
	}
	said, err := v.promptTokens([]part{{"a</s>é", true}})
	if err != nil || len(said) == 0 {
		t.Fatal(said, err)
	}
	for _, id := range said[1:] { // after the token that begins a text
		if id <= 2 {
			t.Errorf("a text has the control token %d: %v", id, said)
		}
	}
	for name, tokens := range map[string][]string{"no bytes": whole[:7], "half of them": whole[:7+128], "one token": whole[:1], "none": nil} {
		if _, err := OpenVocab(ctx, vocabularyFile(t, tokens), ""); err == nil || !strings.Contains(err.Error(), "the vocabulary of ") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestModelsThatAreNoFiles(t *testing.T) {
	dir := t.TempDir()
	fifo, zero := filepath.Join(dir, "fifo.gguf"), filepath.Join(dir, "zero.gguf")
	if err := errors.Join(syscall.Mkfifo(fifo, 0o600), os.Symlink("/dev/zero", zero)); err != nil {
		t.Skip(err)
	}
	for _, path := range []string{fifo, zero, dir} {
		done := make(chan error, 1)
		go func() {
			_, err := Open(context.Background(), Options{ModelPath: path})
			done <- err
		}()
		var node *disk.NodeError
		select {
		case err := <-done:
			if !errors.As(err, &node) {
				t.Errorf("%s: %v", path, err)
			}
		case <-time.After(10 * time.Second):
			t.Fatalf("%s hangs", path)
		}
	}
}

func TestLogitsThatAreNoNumbers(t *testing.T) {
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	for name, logits := range map[string][]float32{"NaN first": {nan, 1, 2}, "NaN last": {1, 2, nan}, "infinite": {1, inf, 2}, "none": {-inf, -inf}, "empty": {}} {
		if finite(logits) {
			t.Errorf("%s: a softmax is taken", name)
		}
		if len(logits) < 2 {
			continue
		}
		e := &Engine{weights: &weights{}}
		if c := e.choice(logits, [][]llama.Token{{0}, {1}}); c.Unscored != ReasonNaN || c.Argmax() != -1 || c.Bound[0] != 1 {
			t.Errorf("%s: %+v", name, c)
		}
	}
	if !finite([]float32{-inf, 0}) {
		t.Error("a token that cannot come makes the others none")
	}
}
