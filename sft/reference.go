package sft

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/ccmed/ccmed/bench/dialogue"
)

// Held is a dialogue that was not trained on, to prove a package by.
type Held struct {
	ID       string `json:"id"`
	Dialogue string `json:"dialogue"` // all turns, as a model reads them at inference
	At       int    `json:"at"`       // the turn after which an utterance is decoded
}

// ReadHeld reads the records of an exported file.
func ReadHeld(path string) ([]Held, error) {
	records, err := recordsOf(path)
	if err != nil {
		return nil, err
	}
	var out []Held
	for _, r := range records {
		out = append(out, Held{r.ID, r.Dialogue, r.Gold})
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("%s holds no records", path)
	}
	return out, nil
}

// HoldDialogues makes held-out dialogues of records.
func HoldDialogues(ds []dialogue.Dialogue) ([]Held, error) {
	var out []Held
	for _, d := range ds {
		if err := markerFree(d, ""); err != nil {
			return nil, err
		}
		out = append(out, Held{d.Key(), Sequence(d, d.LastTurn()), d.ConflictTurn})
	}
	return out, nil
}

// prompt is what an utterance is decoded from.
func (h Held) prompt() string {
	end := 0
	for range h.At {
		end += strings.Index(h.Dialogue[end:], TurnEnd) + len(TurnEnd)
	}
	return h.Dialogue[:end] + Speak
}

// Reference is what PyTorch says of a held-out dialogue, in single precision.
type Reference struct {
	Held
	P      []float64 `json:"p"`      // P(speak) after each turn
	Tokens []int32   `json:"tokens"` // of the dialogue
	// Greedy are the tokens of the utterance, the one that ends it included, and
	// Gap each one's lead over the second best, in logits.
	Greedy []int32   `json:"greedy"`
	Gap    []float64 `json:"gap"`
}

// Reference asks PyTorch about held-out dialogues, and for at most that many
// tokens of each utterance.
func (p *Package) Reference(ctx context.Context, held []Held, tokens int) ([]Reference, error) {
	tmp, err := os.MkdirTemp("", "ccmed-reference-")
	if err != nil {
		return nil, fmt.Errorf("ask PyTorch: %w", err)
	}
	defer os.RemoveAll(tmp)
	in, out := filepath.Join(tmp, "in.jsonl"), filepath.Join(tmp, "out.jsonl")
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	for _, h := range held {
		if err := enc.Encode(h); err != nil {
			return nil, fmt.Errorf("ask PyTorch: %w", err)
		}
	}
	if err := os.WriteFile(in, b.Bytes(), 0o600); err != nil {
		return nil, fmt.Errorf("ask PyTorch: %w", err)
	}
	if err := p.script(ctx, "reference_dual_head.py", p.Merged, filepath.Join(p.Dir, HeadFile), in, out, "--tokens", strconv.Itoa(tokens)); err != nil {
		return nil, fmt.Errorf("ask PyTorch: %w", err)
	}
	f, err := os.Open(out)
	if err != nil {
		return nil, fmt.Errorf("ask PyTorch: %w", err)
	}
	defer f.Close()
	var refs []Reference
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, maxLine)
	for lines.Scan() {
		r := Reference{}
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			return nil, fmt.Errorf("PyTorch's answer %d: %w", len(refs)+1, err)
		}
		at := slices.IndexFunc(held, func(h Held) bool { return h.ID == r.ID })
		if at < 0 || len(r.Gap) != len(r.Greedy) {
			return nil, fmt.Errorf("PyTorch's answer %d is about %q, with %d tokens and %d gaps", len(refs)+1, r.ID, len(r.Greedy), len(r.Gap))
		}
		r.Held = held[at]
		refs = append(refs, r)
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("ask PyTorch: %w", err)
	}
	if len(refs) != len(held) {
		return nil, fmt.Errorf("PyTorch answered %d of %d dialogues", len(refs), len(held))
	}
	return refs, nil
}
