package llamacpp

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ccmed/ccmed/infer"
)

func TestModel(t *testing.T) {
	e := open(t, 256)
	m, err := e.Model(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(need(t))
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(b)
	want := infer.Model{Backend: "embedded", Name: "SmolLM2-135M-Instruct.Q4_1", Digest: "sha256:" + hex.EncodeToString(sum[:]),
		Quantization: "Q4_1", TemplateHash: m.TemplateHash, Architecture: "llama", Family: "llama", Parameters: "135M",
		ContextTrain: 8192, Path: need(t), Server: "llama.cpp " + Release}
	if m != want {
		t.Errorf("got %+v\nwant %+v", m, want)
	}
	if len(m.TemplateHash) != 32 {
		t.Errorf("template hash %q", m.TemplateHash)
	}
}

// SmolLM2's own template inserts a system turn where there is none; with one it
// must give what Ollama's template gives.
func TestRenderSmolLM2(t *testing.T) {
	e := open(t, 256)
	p := infer.Prompt{Messages: []infer.Message{
		{Role: infer.System, Content: "Be brief."}, {Role: infer.User, Content: "Hi"},
		{Role: infer.Assistant, Content: "Hello"}, {Role: infer.User, Content: "Stage?"},
	}, LeadIn: "Stage: "}
	const want = "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\nHello<|im_end|>\n" +
		"<|im_start|>user\nStage?<|im_end|>\n<|im_start|>assistant\nStage: "
	got, err := e.Render(context.Background(), p)
	if err != nil {
		t.Fatal(err)
	}
	if got != want {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	got, err = e.Render(context.Background(), infer.Prompt{Messages: []infer.Message{{Role: infer.User, Content: "Hi"}}})
	if err != nil || !strings.HasPrefix(got, "<|im_start|>system\nYou are a helpful AI assistant named SmolLM") {
		t.Errorf("without a system message: %q, %v", got, err)
	}
}

func TestTokenize(t *testing.T) {
	e := open(t, 256)
	v, err := OpenVocab(context.Background(), need(t), "")
	if err != nil {
		t.Fatal(err)
	}
	defer v.Close()
	for _, text := range []string{"", "Hello", "<|im_start|>user\nHi<|im_end|>\n", "文化 😀 ünï", "Stage: "} {
		a, err := e.PromptTokens(text)
		if err != nil {
			t.Fatal(err)
		}
		b, err := v.Tokenize(text)
		if err != nil {
			t.Fatal(err)
		}
		n, err := v.CountTokens(context.Background(), text)
		if err != nil || n != len(b) || !slices.Equal(a, b) {
			t.Errorf("%q: engine %v, vocabulary %v, count %d (%v)", text, a, b, n, err)
		}
	}
	ts, err := e.Tokenize("<|im_start|>Hello")
	if err != nil || len(ts) != 2 || ts[0] != 1 {
		t.Errorf("special tokens are not recognised: %v, %v", ts, err)
	}
	// SmolLM2 wants no beginning-of-sequence token. A model that does gets one,
	// and only one when its template has written it (<|im_start|> here).
	bos := e.vocabulary
	bos.addBOS = true
	for text, want := range map[string]int{"": 1, "Hello": 2, "<|im_start|>Hello": 2} {
		if ts, err := bos.promptTokens([]part{{text: text}}); err != nil || len(ts) != want || ts[0] != bos.bos {
			t.Errorf("%q with a beginning-of-sequence token: %v, %v; want %d tokens", text, ts, err, want)
		}
	}
	if err := v.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := v.Tokenize("x"); !errors.Is(err, ErrClosed) {
		t.Errorf("a closed vocabulary: %v", err)
	}
}

func TestRenderHook(t *testing.T) {
	e, err := Open(context.Background(), Options{ModelPath: need(t), NumCtx: 256, Name: "smol", Digest: "sha256:known", TemplateHash: "server's",
		Render: func(_ context.Context, ms []infer.Message) (string, error) { return "[" + ms[0].Content + "]", nil }})
	if err != nil {
		t.Fatal(err)
	}
	s, err := e.Render(context.Background(), infer.Prompt{Messages: []infer.Message{{Role: infer.User, Content: "Hi"}}, LeadIn: " so"})
	if err != nil || s != "[Hi] so" {
		t.Errorf("rendered %q, %v", s, err)
	}
	m, err := e.Model(context.Background())
	if err != nil || m.Name != "smol" || m.Digest != "sha256:known" || m.TemplateHash != "server's" {
		t.Errorf("model %+v, %v", m, err)
	}
	if err := errors.Join(e.Close(), e.Close()); err != nil {
		t.Fatal(err)
	}
	if _, err := e.Choose(context.Background(), []infer.Prompt{{Raw: "x"}}, infer.Digits(1, 2), infer.Params{}); !errors.Is(err, ErrClosed) {
		t.Errorf("a closed engine: %v", err)
	}
}

func TestOpenBadFiles(t *testing.T) {
	dir := t.TempDir()
	write := func(name string, b []byte) string {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	var missing *infer.MissingError
	if _, err := Open(context.Background(), Options{ModelPath: filepath.Join(dir, "none.gguf")}); !errors.As(err, &missing) {
		t.Errorf("a missing file: %v", err)
	}
	for _, c := range []struct{ name, content, want string }{
		{"empty.gguf", "", "too short"},
		{"short.gguf", "GGUF", "too short"},
		{"page.gguf", "<!DOCTYPE html>", `begins with "<!DO"`},
		{"old.gguf", "GGUF\x01\x00\x00\x00", "version 1"},
		{"bigendian.gguf", "GGUF\x00\x00\x00\x03", "version 50331648"},
	} {
		path := write(c.name, []byte(c.content))
		if _, err := Open(context.Background(), Options{ModelPath: path}); err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v, want the path and %q", c.name, err, c.want)
		}
	}
	whole, err := os.ReadFile(need(t))
	if err != nil {
		t.Fatal(err)
	}
	for name, b := range map[string][]byte{
		"header only":     whole[:24],
		"first megabyte":  whole[:1<<20],
		"half":            whole[:len(whole)/2],
		"last byte short": whole[:len(whole)-1],
		"no keys at all":  append([]byte("GGUF\x03\x00\x00\x00"), make([]byte, 64)...),
	} {
		path := write("cut.gguf", b)
		_, err := Open(context.Background(), Options{ModelPath: path})
		if err == nil || !strings.Contains(err.Error(), "cannot load "+path+": ") {
			t.Errorf("%s: %v, want llama.cpp's reason", name, err)
		}
		if _, err := OpenVocab(context.Background(), path, ""); err == nil && len(b) < 1<<20 {
			t.Errorf("%s: a vocabulary was read", name)
		}
	}
}

func TestFileDigest(t *testing.T) {
	cache := t.TempDir()
	t.Setenv("CCMED_CACHE", cache)
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, []byte("abc"), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx := context.Background()
	// The SHA-256 of "abc" is the first example of FIPS 180-2, appendix B.1.
	const abc = "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
	if d, err := fileDigest(ctx, path); err != nil || d != abc {
		t.Fatalf("digest %q, %v", d, err)
	}
	store := filepath.Join(cache, "digests.json")
	known := readDigests(store)
	k := known[path]
	k.Digest = "sha256:remembered"
	known[path] = k
	if err := writeDigests(store, known); err != nil {
		t.Fatal(err)
	}
	if d, err := fileDigest(ctx, path); err != nil || d != "sha256:remembered" {
		t.Errorf("the store was not used: %q, %v", d, err)
	}
	if err := os.WriteFile(path, []byte("abcd"), 0o600); err != nil {
		t.Fatal(err)
	}
	if d, err := fileDigest(ctx, path); err != nil || d == abc || d == "sha256:remembered" {
		t.Errorf("a changed file kept its digest: %q, %v", d, err)
	}
	if err := os.WriteFile(store, []byte("null"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := fileDigest(ctx, path); err != nil {
		t.Errorf("a broken store: %v", err)
	}
	cancelled, cancel := context.WithCancel(ctx)
	cancel()
	if err := os.Remove(store); err != nil {
		t.Fatal(err)
	}
	if _, err := fileDigest(cancelled, path); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

func TestNames(t *testing.T) {
	for in, want := range map[string]string{"Q4_K - Medium": "Q4_K_M", "Q3_K - Small": "Q3_K_S", "Q4_1": "Q4_1", "F16": "F16"} {
		if got := quantization(in); got != want {
			t.Errorf("quantization(%q) = %q, want %q", in, got, want)
		}
	}
	for in, want := range map[uint64]string{134515008: "135M", 9241705984: "9.2B", 1e9: "1.0B"} {
		if got := parameters(in); got != want {
			t.Errorf("parameters(%d) = %q, want %q", in, got, want)
		}
	}
}
