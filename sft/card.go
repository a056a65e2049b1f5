package sft

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/ccmed/ccmed/bench/checksum"
	"github.com/ccmed/ccmed/bench/disk"
	"github.com/ccmed/ccmed/bench/strictjson"
)

// Files of a package: a tuned model as it is served, its decision head, and what
// both are.
const (
	ModelFile = "model.gguf"
	HeadFile  = "head.safetensors"
	CardFile  = "card.json"
)

// CardSchema is the version of a card.
const CardSchema = 1

// Card says what a package holds, where it comes from and what was proved of it.
type Card struct {
	// ContentHash is the checksum of the file, while it is read; older ones have none.
	ContentHash string `json:"content_sha256,omitempty" jsonschema:"pattern=^sha256:[0-9a-f]{64}$"`

	Schema int    `json:"schema"`
	Name   string `json:"name"` // of the model in Ollama
	// Digest is that of model.gguf, "sha256:…", which is the blob's in Ollama; the
	// head names the same.
	Digest       string           `json:"digest"`
	Quantization string           `json:"quantization"`
	Base         Base             `json:"base"`
	Markers      map[string]int32 `json:"markers"` // tokens
	Width        int              `json:"width"`   // values of a state that the head reads
	// HeadHash is that of the decision head's values; older cards have none.
	HeadHash string `json:"head_sha256,omitempty"`
	// ThresholdDefault is the P(speak) from which a model steps in unless another
	// is asked for; ThresholdValidation was chosen on validation data.
	ThresholdDefault    float64         `json:"threshold_default"`
	ThresholdValidation *Threshold      `json:"threshold_validation,omitempty"`
	Training            json.RawMessage `json:"training,omitempty"` // the trainer's configuration
	Export              json.RawMessage `json:"export,omitempty"`   // what it was trained on
	Proofs              []Proof         `json:"proofs"`
}

// Base is the model that was tuned.
type Base struct {
	Name   string `json:"name"`
	Digest string `json:"digest,omitempty"` // of its weights in Ollama, where they are from there
}

// Threshold is a P(speak) and the turn accuracy it reached on the validation
// dialogues that it was chosen on.
type Threshold struct {
	Value   float64 `json:"value"`
	N       int     `json:"n"`
	TurnAcc float64 `json:"turn_acc"`
}

// Write writes the card to its place in a package.
func (c *Card) Write(dir string) error {
	b, err := checksum.Seal(c)
	if err != nil {
		return fmt.Errorf("encode the card: %w", err)
	}
	if err := disk.WriteEntry(filepath.Join(dir, CardFile), b, 0o644); err != nil {
		return fmt.Errorf("write the card: %w", err)
	}
	return nil
}

// ReadCard reads the card of a package. A folder without one is fs.ErrNotExist.
func ReadCard(dir string) (*Card, error) {
	path := filepath.Join(dir, CardFile)
	b, err := disk.ReadEntry(path, disk.MaxText)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s is no package of a tuned model: %w; make one with `ccmed sft package`", dir, err)
	}
	if err != nil {
		return nil, fmt.Errorf("read the card: %w", err)
	}
	var c Card
	if err := readSealed(b, &c, &c.ContentHash); err != nil {
		return nil, fmt.Errorf("%s is damaged: %w; %s", path, err, remakePackage)
	}
	if c.Schema != CardSchema {
		return nil, fmt.Errorf("%s has schema %d and this version reads %d; use a newer ccmed, or %s", path, c.Schema, CardSchema, remakePackage)
	}
	return &c, nil
}

// readSealed decodes what checksum.Seal made, whose checksum hash points at, and what
// older versions wrote without one.
func readSealed(b []byte, v any, hash *string) error {
	if err := strictjson.Unmarshal(b, v); err != nil {
		return err
	}
	*hash = ""
	if err := checksum.Check(b); err != nil && !errors.Is(err, checksum.ErrNone) {
		return err
	}
	return nil
}

// remakePackage is what can be done about a package that is not what it was.
const remakePackage = "put back a copy of it, or package the model again with `ccmed sft package --force`"

// CheckModel returns an error unless the model file of the package in dir is the one
// that the card describes. It reads the whole file.
func (c *Card) CheckModel(ctx context.Context, dir string) error {
	path := filepath.Join(dir, ModelFile)
	got, err := fileSum(ctx, path)
	if err != nil {
		return fmt.Errorf("hash the model: %w", err)
	}
	if got = "sha256:" + got; got != c.Digest {
		return fmt.Errorf("%s was changed since it was packaged: it comes to %.19s… and digest of its card is %.19s…; %s", path, got, c.Digest, remakePackage)
	}
	return nil
}

// CheckHead returns an error unless the head is the one that the card describes.
func (c *Card) CheckHead(path string, h *Head) error {
	switch {
	case c.Digest != h.Model:
		return fmt.Errorf("%s: %w: its card is of the model %s, and it was trained with %q", path, ErrOtherHead, c.Digest, h.Model)
	case len(h.Weight) != c.Width:
		return fmt.Errorf("%s: %w: its card says that it reads %d values, and it reads %d", path, ErrOtherHead, c.Width, len(h.Weight))
	case c.HeadHash != "" && c.HeadHash != h.Hash():
		return fmt.Errorf("%s was changed since it was packaged: its values come to %.19s… and head_sha256 of its card is %.19s…; %s", path, h.Hash(), c.HeadHash, remakePackage)
	}
	return nil
}

// Proof is one check of a package. A check that could not be made has OK false
// and says why in NotRun.
type Proof struct {
	Name   string `json:"name"`
	OK     bool   `json:"ok"`
	NotRun string `json:"not_run,omitempty"`
	Detail string `json:"detail"`
	// Value is what was measured and Limit what it may be at most, where the
	// check has a measure; a measure without a limit is a report.
	Value *float64 `json:"value,omitempty"`
	Limit *float64 `json:"limit,omitempty"`
}
