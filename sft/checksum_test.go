package sft

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ccmed/ccmed/bench/dialogue"
	"github.com/ccmed/ccmed/bench/disk"
)

// edited replaces a text in a file, and returns how to put the file back.
func edited(t *testing.T, path, old, now string) (undo func()) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	after := bytes.Replace(b, []byte(old), []byte(now), 1)
	if bytes.Equal(after, b) {
		t.Fatalf("the edit of %s changes nothing", path)
	}
	if err := os.WriteFile(path, after, 0o600); err != nil {
		t.Fatal(err)
	}
	return func() {
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// A package of which anything was edited is refused, and read again when the file is
// put back or the card written anew, as the messages say. Older cards are read.
func TestEditedPackageIsRefused(t *testing.T) {
	dir := t.TempDir()
	gguf := bytes.Repeat([]byte("GGUF"), 1000)
	model := fmt.Sprintf("sha256:%x", sha256.Sum256(gguf))
	if err := os.WriteFile(filepath.Join(dir, ModelFile), gguf, 0o600); err != nil {
		t.Fatal(err)
	}
	head := &Head{Weight: []float64{1, -2, 0.5}, Bias: 0.25, Model: model}
	if err := head.Write(filepath.Join(dir, HeadFile)); err != nil {
		t.Fatal(err)
	}
	card := &Card{Schema: CardSchema, Name: "tuned", Digest: model, Width: 3, HeadHash: head.Hash(), ThresholdDefault: 0.5, Proofs: []Proof{}}
	if err := card.Write(dir); err != nil {
		t.Fatal(err)
	}
	check := func() error {
		c, err := ReadCard(dir)
		if err != nil {
			return err
		}
		h, err := ReadHead(filepath.Join(dir, HeadFile))
		if err != nil {
			return err
		}
		return errors.Join(c.CheckHead(filepath.Join(dir, HeadFile), h), c.CheckModel(t.Context(), dir))
	}
	if err := check(); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ file, old, now, want string }{
		{CardFile, `"threshold_default": 0.5`, `"threshold_default": 0.6`, "was changed since it was written"},
		{CardFile, `"name": "tuned"`, `"name": "other"`, "was changed since it was written"},
		{CardFile, `"name": "tuned"`, `"name": "tuned", "Name": "other"`, "differ in case only"},
		{ModelFile, "UFGG", "UFFG", "model.gguf was changed since it was packaged"},
		{HeadFile, "\x00\x00\x80\x3f", "\x00\x00\x80\x40", "head.safetensors was changed since it was packaged"},
	} {
		undo := edited(t, filepath.Join(dir, c.file), c.old, c.now)
		if err := check(); err == nil || !strings.Contains(err.Error(), c.want) || c.file != ModelFile && !strings.Contains(err.Error(), "--force") {
			t.Errorf("%s: %v", c.file, err)
		}
		undo()
		if err := check(); err != nil {
			t.Errorf("%s put back: %v", c.file, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := card.CheckModel(ctx, dir); !errors.Is(err, context.Canceled) {
		t.Errorf("hashing that was interrupted: %v", err)
	}
	old, err := os.ReadFile(filepath.Join(dir, CardFile))
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.SplitAfter(string(old), "\n")
	if err := os.WriteFile(filepath.Join(dir, CardFile), []byte(lines[0]+strings.Join(lines[2:], "")), 0o600); err != nil {
		t.Fatal(err)
	}
	if c, err := ReadCard(dir); err != nil || c.Name != "tuned" {
		t.Errorf("an older card: %v", err)
	}
	if err := os.Remove(filepath.Join(dir, CardFile)); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("elsewhere.json", filepath.Join(dir, CardFile)); err != nil {
		t.Fatal(err)
	}
	var n *disk.NodeError
	if err := card.Write(dir); !errors.As(err, &n) {
		t.Errorf("a card was written through a link: %v", err)
	}
}

// An export of which anything was edited is refused, and the remedy that is named,
// exporting again with --force, works.
func TestEditedExportIsRefused(t *testing.T) {
	dir := t.TempDir()
	write := func(force bool) error {
		_, err := WriteExport(t.Context(), dir, dialogue.Sample(), ExportOptions{Fraction: 0.25, Seed: 1, Force: force})
		return err
	}
	if err := write(false); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ file, old, now string }{
		{ExportFile, `"positives": `, `"positives": 1`}, {ExportFile, `"train": `, `"train": 1`}, {TrainFile, `"gold":`, `"gold":1`}, {ValidFile, `"gold":`, `"gold":1`},
	} {
		undo := edited(t, filepath.Join(dir, c.file), c.old, c.now)
		if _, err := ReadExport(dir); err == nil || !strings.Contains(err.Error(), filepath.Join(dir, c.file)) || !strings.Contains(err.Error(), "export again with `ccmed sft export --force`") {
			t.Errorf("%s: %v", c.file, err)
		}
		undo()
		if _, err := ReadExport(dir); err != nil {
			t.Errorf("%s put back: %v", c.file, err)
		}
		edited(t, filepath.Join(dir, c.file), c.old, c.now)
		if err := write(true); err != nil {
			t.Error(err)
		}
		if _, err := ReadExport(dir); err != nil {
			t.Errorf("exported again: %v", err)
		}
	}
}
