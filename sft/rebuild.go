package sft

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/gofrs/flock"

	"github.com/ccmed/ccmed/infer/llamacpp"
)

// Tokenizer is llama.cpp's own, for a GGUF file; *llamacpp.Vocab is one.
type Tokenizer interface {
	// Tokenize returns the tokens of a text, after one that begins it where the
	// model wants one.
	Tokenize(text string) ([]int32, error)
}

// Source is a GGUF file to make a checkpoint of.
type Source struct {
	Name   string // "ollama:NAME", or the file
	Path   string
	Digest string // "sha256:…" of the file; hashed when empty
}

// provedFile lies in a checkpoint whose tokenizer was proved equal.
const provedFile = "tokenizer-proved.json"

// Rebuild makes a Hugging Face checkpoint of a GGUF file, in the cache folder,
// and proves that its tokenizer gives llama.cpp's tokens on every text of Corpus.
// What was made and proved before is used again. note is told what takes time.
func Rebuild(ctx context.Context, python string, s Source, llama Tokenizer, note func(string)) (*Checkpoint, error) {
	if s.Digest == "" {
		h, err := FileSum(s.Path)
		if err != nil {
			return nil, fmt.Errorf("hash %s: %w", s.Path, err)
		}
		s.Digest = "sha256:" + h
	}
	cache, err := llamacpp.CacheDir()
	if err != nil {
		return nil, fmt.Errorf("find the cache folder: %w", err)
	}
	scripts, err := UnpackScripts()
	if err != nil {
		return nil, err
	}
	program := filepath.Join(scripts, "gguf_checkpoint.py")
	version, err := FileSum(program)
	if err != nil {
		return nil, fmt.Errorf("find the converter: %w", err)
	}
	root := filepath.Join(cache, "checkpoints")
	if err := os.MkdirAll(root, 0o755); err != nil {
		return nil, fmt.Errorf("make the folder of checkpoints: %w", err)
	}
	dir := filepath.Join(root, strings.TrimPrefix(s.Digest, "sha256:")[:16]+"-"+version[:8])
	lock := flock.New(dir + ".lock")
	if ok, err := lock.TryLock(); err != nil {
		return nil, fmt.Errorf("lock the checkpoint: %w", err)
	} else if !ok {
		return nil, fmt.Errorf("another process is making %s; wait for it", dir)
	}
	defer func() { _ = lock.Unlock() }() // closing the file frees it in any case
	if err := rebuilt(ctx, python, program, s, dir, note); err != nil {
		return nil, err
	}
	if _, err := os.Stat(filepath.Join(dir, provedFile)); errors.Is(err, fs.ErrNotExist) {
		note("comparing its tokenizer with llama.cpp's")
		n, err := proveTokenizer(ctx, python, program, dir, llama)
		if err != nil {
			return nil, fmt.Errorf("the checkpoint rebuilt from %s: %w", s.Name, err)
		}
		if err := writeJSON(filepath.Join(dir, provedFile), map[string]any{"texts": n, "engine": llamacpp.Release}); err != nil {
			return nil, err
		}
		note(fmt.Sprintf("its tokens equal llama.cpp's on %d texts", n))
	} else if err != nil {
		return nil, fmt.Errorf("read the checkpoint: %w", err)
	}
	c, err := ReadCheckpoint(dir)
	if err != nil {
		return nil, err
	}
	c.From, c.Source = s.Name, s.Digest
	return c, nil
}

// rebuilt makes the checkpoint where it is not there, under another name first:
// one that broke off is never taken for whole.
func rebuilt(ctx context.Context, python, program string, s Source, dir string, note func(string)) error {
	if _, err := os.Stat(dir); err == nil {
		return nil
	}
	note(fmt.Sprintf("rebuilding a checkpoint from %s in %s", s.Name, dir))
	part := dir + ".part"
	if err := os.RemoveAll(part); err != nil {
		return fmt.Errorf("remove an unfinished checkpoint: %w", err)
	}
	if err := runGroup(ctx, exec.Command(python, program, s.Path, part)); err != nil {
		if ctx.Err() != nil {
			return errors.Join(ctx.Err(), os.RemoveAll(part))
		}
		return errors.Join(fmt.Errorf("rebuild a checkpoint from %s: %w", s.Name, err), os.RemoveAll(part))
	}
	if err := os.Rename(part, dir); err != nil {
		return fmt.Errorf("keep the checkpoint: %w", err)
	}
	return nil
}

// proveTokenizer compares a checkpoint's tokenizer with llama.cpp's on every text
// of Corpus, and returns how many there are.
func proveTokenizer(ctx context.Context, python, program, dir string, llama Tokenizer) (int, error) {
	texts := Corpus()
	tmp, err := os.MkdirTemp("", "ccmed-tokenizer-")
	if err != nil {
		return 0, fmt.Errorf("prove the tokenizer: %w", err)
	}
	defer os.RemoveAll(tmp)
	in, out := filepath.Join(tmp, "corpus.jsonl"), filepath.Join(tmp, "tokens.jsonl")
	var b strings.Builder
	for _, t := range texts {
		line, err := json.Marshal(map[string]string{"text": t})
		if err != nil {
			return 0, fmt.Errorf("prove the tokenizer: %w", err)
		}
		b.Write(append(line, '\n'))
	}
	if err := os.WriteFile(in, []byte(b.String()), 0o600); err != nil {
		return 0, fmt.Errorf("prove the tokenizer: %w", err)
	}
	if err := runGroup(ctx, exec.Command(python, program, dir, "--tokenize", in, out)); err != nil {
		if ctx.Err() != nil {
			return 0, ctx.Err()
		}
		return 0, fmt.Errorf("tokenise the test corpus: %w", err)
	}
	f, err := os.Open(out)
	if err != nil {
		return 0, fmt.Errorf("prove the tokenizer: %w", err)
	}
	defer f.Close()
	head, err := llama.Tokenize("")
	if err != nil {
		return 0, fmt.Errorf("prove the tokenizer: %w", err)
	}
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<24)
	for i, text := range texts {
		var theirs struct {
			IDs []int32 `json:"ids"`
		}
		if !lines.Scan() {
			return 0, fmt.Errorf("prove the tokenizer: the converter answered %d of %d texts", i, len(texts))
		}
		if err := json.Unmarshal(lines.Bytes(), &theirs); err != nil {
			return 0, fmt.Errorf("prove the tokenizer: answer %d: %w", i+1, err)
		}
		ours, err := llama.Tokenize(text)
		if err != nil {
			return 0, fmt.Errorf("prove the tokenizer: text %d: %w", i+1, err)
		}
		if ours = ours[min(len(head), len(ours)):]; !slices.Equal(ours, theirs.IDs) {
			return 0, &TokenizerError{Line: i + 1, Text: text, Llama: ours, Checkpoint: theirs.IDs}
		}
	}
	return len(texts), lines.Err()
}

// TokenizerError reports a checkpoint whose tokenizer is not that of the GGUF
// file: trained with it, the model would read other tokens than it is served with.
type TokenizerError struct {
	Line              int // of Corpus, from 1
	Text              string
	Llama, Checkpoint []int32
}

// Error names the first text that differs.
func (e *TokenizerError) Error() string {
	return fmt.Sprintf("its tokenizer is not llama.cpp's: text %d of the test corpus, %.80q, has the tokens %v there and %v here; name the model's own Hugging Face folder with --base",
		e.Line, e.Text, few(e.Llama), few(e.Checkpoint))
}

func few(ids []int32) string {
	s := strings.Trim(fmt.Sprint(ids[:min(12, len(ids))]), "[]")
	if len(ids) > 12 {
		s += " …"
	}
	return "[" + s + "]"
}
