package sft

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/ccmed/ccmed/bench/disk"
	"github.com/ccmed/ccmed/infer"
)

// Checkpoint is a model to train: weights, configuration and tokenizer as Hugging
// Face keeps them in a folder.
type Checkpoint struct {
	Dir string `json:"dir"`
	// Digest is the SHA-256 of its weights, configuration and tokenizer.
	Digest string `json:"digest"`
	// From says what a rebuilt checkpoint was made of: "ollama:NAME" or a file,
	// and Source that GGUF file's digest.
	From   string `json:"from,omitempty"`
	Source string `json:"source_digest,omitempty"`

	Type       string `json:"model_type"` // "llama", "gemma2", "phi3"
	Parameters int64  `json:"parameters"`
	Width      int    `json:"width"`
	Blocks     int    `json:"blocks"`
	Vocabulary int    `json:"vocabulary"`
	Context    int    `json:"context"` // in tokens
}

// maxHeader caps the header of a safetensors file; the format's own limit.
const maxHeader = 100_000_000

// ReadCheckpoint looks at a Hugging Face checkpoint and hashes it, which takes some
// seconds a gigabyte. It must have safetensors weights, a tokenizer and a chat
// template: without one the tuned model could not be asked to mediate.
func ReadCheckpoint(dir string) (*Checkpoint, error) {
	var config struct {
		Type       string `json:"model_type"`
		Width      int    `json:"hidden_size"`
		Blocks     int    `json:"num_hidden_layers"`
		Vocabulary int    `json:"vocab_size"`
		Context    int    `json:"max_position_embeddings"`
	}
	b, err := disk.ReadFile(filepath.Join(dir, "config.json"), disk.MaxText)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, &infer.MissingError{What: fmt.Sprintf("%s is no Hugging Face checkpoint", dir), Err: errors.New("it has no config.json"),
			Fix: "name a folder with config.json, tokenizer.json and *.safetensors, or ollama:MODEL, or a GGUF file"}
	case err != nil:
		return nil, fmt.Errorf("read the base model: %w", err)
	}
	if err := json.Unmarshal(b, &config); err != nil {
		return nil, fmt.Errorf("read the base model: %s: %w", filepath.Join(dir, "config.json"), err)
	}
	if config.Width < 1 || config.Blocks < 1 || config.Vocabulary < 1 {
		return nil, fmt.Errorf("%s tells no hidden_size, num_hidden_layers and vocab_size: it is not the configuration of a language model that can be trained here", filepath.Join(dir, "config.json"))
	}
	base := &Checkpoint{Dir: dir, Type: config.Type, Width: config.Width, Blocks: config.Blocks, Vocabulary: config.Vocabulary, Context: config.Context}
	weights, err := filepath.Glob(filepath.Join(dir, "*.safetensors"))
	if err != nil {
		return nil, fmt.Errorf("read the base model: %w", err)
	}
	if len(weights) == 0 {
		return nil, fmt.Errorf("%s has no *.safetensors weights; save the model again with save_pretrained", dir)
	}
	for _, f := range weights {
		n, err := parameters(f)
		if err != nil {
			return nil, err
		}
		base.Parameters += n
	}
	if err := checkTokenizer(dir); err != nil {
		return nil, err
	}
	base.Digest, err = digestFiles(dir, weights)
	return base, err
}

// parameters counts the values of a safetensors file from its header: eight bytes
// of length, then JSON (the format of github.com/huggingface/safetensors).
func parameters(file string) (int64, error) {
	f, err := disk.Open(file)
	if err != nil {
		return 0, fmt.Errorf("read the base model: %w", err)
	}
	defer f.Close()
	var size uint64
	if err := binary.Read(f, binary.LittleEndian, &size); err != nil || size > maxHeader {
		return 0, fmt.Errorf("%s is no safetensors file; it may be a download that broke off or a pointer of Git LFS", file)
	}
	b := make([]byte, size)
	var tensors map[string]struct {
		Shape []int64 `json:"shape"`
	}
	if _, err := io.ReadFull(f, b); err != nil {
		return 0, fmt.Errorf("%s ends within its header; it may be a download that broke off", file)
	}
	if err := json.Unmarshal(b, &tensors); err != nil {
		return 0, fmt.Errorf("read the header of %s: %w", file, err)
	}
	var n int64
	for name, t := range tensors {
		if name == "__metadata__" {
			continue
		}
		values := int64(1)
		for _, d := range t.Shape {
			values *= d
		}
		n += values
	}
	return n, nil
}

func checkTokenizer(dir string) error {
	if _, err := os.Stat(filepath.Join(dir, "tokenizer.json")); err != nil {
		return fmt.Errorf("%s has no tokenizer.json; save the model's fast tokenizer there with save_pretrained", dir)
	}
	for _, name := range []string{"chat_template.jinja", "chat_template.json"} {
		if _, err := os.Stat(filepath.Join(dir, name)); err == nil {
			return nil
		}
	}
	var config struct {
		Template any `json:"chat_template"`
	}
	b, err := disk.ReadFile(filepath.Join(dir, "tokenizer_config.json"), disk.MaxText)
	if err == nil {
		err = json.Unmarshal(b, &config)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("read the base model's tokenizer: %w", err)
	}
	if config.Template == nil {
		return fmt.Errorf("the base model in %s has no chat template, so that it could not be asked to mediate; choose an instruction-tuned model", dir)
	}
	return nil
}

// digestFiles hashes what a checkpoint computes with.
func digestFiles(dir string, weights []string) (string, error) {
	names := slices.Clone(weights)
	for _, n := range []string{"config.json", "tokenizer.json", "tokenizer_config.json"} {
		names = append(names, filepath.Join(dir, n))
	}
	slices.Sort(names)
	var all strings.Builder
	for _, n := range names {
		h, err := FileSum(n)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return "", fmt.Errorf("hash the base model: %w", err)
		}
		fmt.Fprintf(&all, "%s %s\n", h, filepath.Base(n))
	}
	return "sha256:" + sum([]byte(all.String())), nil
}

// FileSum returns the SHA-256 of a file as hexadecimal digits.
func FileSum(path string) (string, error) { return fileSum(context.Background(), path) }

// fileSum is FileSum until the context ends.
func fileSum(ctx context.Context, path string) (string, error) {
	f, err := disk.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	for {
		if err := context.Cause(ctx); err != nil {
			return "", err
		}
		switch _, err := io.CopyN(h, f, 64<<20); {
		case err == io.EOF:
			return hex.EncodeToString(h.Sum(nil)), nil
		case err != nil:
			return "", err
		}
	}
}
