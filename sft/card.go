package sft

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/ccmed/ccmed/bench/disk"
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
	Schema int    `json:"schema"`
	Name   string `json:"name"` // of the model in Ollama
	// Digest is that of model.gguf, "sha256:…", which is the blob's in Ollama; the
	// head names the same.
	Digest       string           `json:"digest"`
	Quantization string           `json:"quantization"`
	Base         Base             `json:"base"`
	Markers      map[string]int32 `json:"markers"` // tokens
	Width        int              `json:"width"`   // values of a state that the head reads
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
	b, err := json.MarshalIndent(c, "", "  ")
	if err != nil {
		return fmt.Errorf("encode the card: %w", err)
	}
	if err := disk.WriteFile(filepath.Join(dir, CardFile), append(b, '\n'), 0o644); err != nil {
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
	if err := json.Unmarshal(b, &c); err != nil {
		return nil, fmt.Errorf("%s is no card: %w; package the model again", path, err)
	}
	if c.Schema != CardSchema {
		return nil, fmt.Errorf("%s has schema %d and this version reads %d; use a newer ccmed, or package the model again", path, c.Schema, CardSchema)
	}
	return &c, nil
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
