package sft

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/ccmed/ccmed/bench/checksum"
	"github.com/ccmed/ccmed/bench/dialogue"
	"github.com/ccmed/ccmed/bench/disk"
)

// ExportSchema is the version of the exported files' format.
const ExportSchema = 1

// Names of the files of an export.
const (
	TrainFile   = "train.jsonl"
	ValidFile   = "valid.jsonl"
	HeldOutFile = "heldout.jsonl" // only where something is held out
	ExportFile  = "export.json"   // written last: without it an export is not complete
)

// ExportOptions says how dialogues become training data.
type ExportOptions struct {
	Holdout Holdout // "" is HoldoutRandom
	// Fraction of the dialogues that validate, and of those that are held out,
	// between 0 and 1.
	Fraction float64
	Seed     int64
	// Evaluation is the set that the tuned model will be asked about; nil where it
	// is not at hand. Leaks are counted against it.
	Evaluation []dialogue.Dialogue
	// ExcludeSeen leaves out dialogues whose scenario context is in Evaluation.
	ExcludeSeen bool
	// LaterTurns goes on after the mediation with the record's turns, as decisions not to
	// speak.
	LaterTurns bool
	// Lenient leaves out dialogues that cannot be used, instead of failing.
	Lenient bool
	// Tokens counts a text's tokens for the model at hand, without one that begins
	// it; nil where there is none.
	Tokens func(text string) (int, error)
	Model  string // names the model of Tokens
	// Context is that model's context length in tokens; 0 where it is unknown.
	Context int
	// Force replaces an export that is there.
	Force bool
}

// Export describes an export, in its file ExportFile.
type Export struct {
	Schema  int     `json:"schema"`
	Markers Markers `json:"markers"`
	// Counts of records by file: train, valid, heldout.
	Counts map[string]int `json:"counts"`
	// LeftOut counts the dialogues that are in no file, by reason.
	LeftOut map[string]int `json:"left_out,omitempty"`
	// Positives and Negatives are the decisions of the training file; PosWeight is
	// their ratio, negatives to positives.
	Positives int     `json:"positives"`
	Negatives int     `json:"negatives"`
	PosWeight float64 `json:"pos_weight"`
	// Turns counts the training records by gold turn.
	Turns map[int]int `json:"gold_turns"`
	// Longest is the length of the longest sequence that is trained on, in bytes.
	Longest int `json:"longest_bytes"`

	// ContentHash is the checksum of the description, while it is read; older ones
	// have none.
	ContentHash string `json:"content_sha256,omitempty" jsonschema:"pattern=^sha256:[0-9a-f]{64}$"`

	Hashes map[string]string `json:"hashes"`      // SHA-256 by file name, in hexadecimal
	Data   string            `json:"data_sha256"` // dialogue.Hash of what was read

	Holdout HeldOut          `json:"holdout"`
	Leaks   map[string]Leaks `json:"leaks"` // "evaluation" and "heldout", where there are such
	// Excluded says whether contexts of the evaluation were left out of training.
	Excluded bool `json:"exclude_seen_contexts"`
	// LaterTurns says whether the turns after the mediation are decisions too.
	LaterTurns bool         `json:"later_turns,omitempty"`
	Tokens     *TokenCounts `json:"tokens,omitempty"`

	// Problems are the dialogues that were left out as unusable.
	Problems []error `json:"-"`
}

// Markers are the texts that structure a sequence.
type Markers struct {
	TurnEnd  string `json:"turn_end"`
	Speak    string `json:"speak"`
	EndSpeak string `json:"end_speak"`
}

// TokenCounts are the lengths of the sequences for one model, each marker being
// one token, and those that begin and end the text counted.
type TokenCounts struct {
	Model   string             `json:"model"`
	Context int                `json:"context,omitempty"`
	Files   map[string]Lengths `json:"files"` // of "text", by file
	// Dialogue is the length of "dialogue", what is read at inference, over all.
	Dialogue Lengths `json:"dialogue"`
}

// Lengths summarises token counts.
type Lengths struct {
	Total  int `json:"total"`
	Min    int `json:"min"`
	Median int `json:"median"`
	P95    int `json:"p95"`
	Max    int `json:"max"`
}

// What a dialogue is left out for, keys of Export.LeftOut.
const (
	leftUnusable = "unusable"
	leftSeen     = "context is in evaluation"
)

// WriteExport writes dialogues as training data into a folder, which must be new,
// empty or, with o.Force, an earlier export. The same dialogues and options give
// the same bytes. Without o.Lenient dialogues that cannot be used are an error
// that lists the first ten.
func WriteExport(ctx context.Context, dir string, ds []dialogue.Dialogue, o ExportOptions) (*Export, error) {
	if o.Holdout == "" {
		o.Holdout = HoldoutRandom
	}
	switch {
	case !slices.Contains(Holdouts, o.Holdout):
		return nil, fmt.Errorf("unknown holdout %q; known are %v", o.Holdout, Holdouts)
	case !(o.Fraction > 0 && o.Fraction < 1):
		return nil, fmt.Errorf("fraction %g; it must lie between 0 and 1", o.Fraction)
	case o.ExcludeSeen && o.Evaluation == nil:
		return nil, errors.New("seen contexts cannot be left out: the data has no evaluation split to compare with; read a folder that holds evaluate and training")
	}
	if err := exportPlace(dir, o.Force); err != nil {
		return nil, err
	}
	x := &Export{Schema: ExportSchema, Markers: Markers{TurnEnd, Speak, EndSpeak}, Counts: map[string]int{}, LeftOut: map[string]int{}, Turns: map[int]int{},
		Hashes: map[string]string{}, Data: dialogue.Hash(ds), Leaks: map[string]Leaks{}, Excluded: o.ExcludeSeen, LaterTurns: o.LaterTurns}
	parts, err := x.divide(ds, o)
	if err != nil {
		return nil, err
	}
	records := map[string][]Record{}
	for file, part := range parts {
		for _, d := range part {
			r, err := Training(d, o.LaterTurns)
			if err != nil {
				return nil, err
			}
			records[file] = append(records[file], r)
		}
		x.Counts[strings.TrimSuffix(file, ".jsonl")] = len(part)
	}
	for _, r := range slices.Concat(records[TrainFile], records[ValidFile]) {
		x.Longest = max(x.Longest, len(r.Text))
	}
	for _, r := range records[TrainFile] {
		x.Positives++
		x.Negatives += len(r.Labels) - 1
		x.Turns[r.Gold]++
	}
	x.PosWeight = float64(x.Negatives) / float64(x.Positives)
	if o.Tokens != nil {
		if x.Tokens, err = countTokens(ctx, records, o); err != nil {
			return nil, err
		}
	}
	return x, x.write(ctx, dir, records)
}

// divide sorts out what cannot be used and splits the rest into files.
func (x *Export) divide(ds []dialogue.Dialogue, o ExportOptions) (map[string][]dialogue.Dialogue, error) {
	seen := map[string]bool{}
	if o.ExcludeSeen {
		for _, d := range o.Evaluation {
			seen[d.ContextKey()] = true
		}
	}
	var usable []dialogue.Dialogue
	for _, d := range ds {
		_, err := Training(d, o.LaterTurns)
		if err == nil && o.Lenient && o.Holdout != HoldoutRandom && len(o.Holdout.keys(d)) == 0 {
			err = &UnusableError{d.Key(), fmt.Sprintf("its %s is not known", o.Holdout), "choose another holdout"}
		}
		switch {
		case err != nil:
			x.Problems = append(x.Problems, err)
			x.LeftOut[leftUnusable]++
		case seen[d.ContextKey()]:
			x.LeftOut[leftSeen]++
		default:
			usable = append(usable, d)
		}
	}
	if len(x.Problems) > 0 && !o.Lenient {
		return nil, firstTen(x.Problems)
	}
	if len(usable) == 0 {
		return nil, fmt.Errorf("of %d dialogues none is left to train on (%v)", len(ds), x.LeftOut)
	}
	parts := map[string][]dialogue.Dialogue{}
	rest := usable
	x.Holdout = HeldOut{Kind: o.Holdout, Fraction: o.Fraction, Seed: o.Seed}
	if o.Holdout != HoldoutRandom {
		var held []dialogue.Dialogue
		var err error
		if rest, held, x.Holdout, err = holdOut(usable, o.Holdout, o.Fraction, o.Seed); err != nil {
			return nil, err
		}
		parts[HeldOutFile] = held
		x.Leaks["heldout"] = leaks(held, rest)
	}
	train, valid, err := dialogue.Split(rest, o.Fraction, o.Seed)
	if err != nil {
		return nil, fmt.Errorf("choose validation dialogues: %w", err)
	}
	parts[TrainFile], parts[ValidFile] = train, valid
	if o.Evaluation != nil {
		x.Leaks["evaluation"] = leaks(o.Evaluation, rest)
	}
	return parts, nil
}

func firstTen(errs []error) error {
	const most = 10
	first := slices.Clone(errs[:min(most, len(errs))])
	if n := len(errs) - most; n > 0 {
		first = append(first, fmt.Errorf("and %d more", n))
	}
	return errors.Join(first...)
}

// countTokens measures the sequences with the model's tokenizer.
func countTokens(ctx context.Context, records map[string][]Record, o ExportOptions) (*TokenCounts, error) {
	t := &TokenCounts{Model: o.Model, Context: o.Context, Files: map[string]Lengths{}}
	var dialogues []int
	for _, file := range sortedKeys(records) {
		var texts []int
		for _, r := range records[file] {
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			text, err := sequenceTokens(r.Text, o.Tokens)
			if err != nil {
				return nil, fmt.Errorf("count the tokens of dialogue %s: %w", r.ID, err)
			}
			whole, err := sequenceTokens(r.Dialogue, o.Tokens)
			if err != nil {
				return nil, fmt.Errorf("count the tokens of dialogue %s: %w", r.ID, err)
			}
			if n := max(text, whole); o.Context > 0 && n > o.Context {
				return nil, fmt.Errorf("dialogue %s has %d tokens and the context of %s is %d; shorten it, leave it out of the data, or train a model with a longer context", r.ID, n, o.Model, o.Context)
			}
			texts, dialogues = append(texts, text), append(dialogues, whole)
		}
		t.Files[file] = lengths(texts)
	}
	t.Dialogue = lengths(dialogues)
	return t, nil
}

// sequenceTokens counts a sequence's tokens as a trained model reads it: every
// marker one token, the text between them tokenised on its own, and two tokens
// that begin and end it.
func sequenceTokens(text string, count func(string) (int, error)) (int, error) {
	n := 2
	for text != "" {
		piece, marker := text, ""
		for _, m := range []string{TurnEnd, Speak, EndSpeak} {
			if i := strings.Index(piece, m); i >= 0 {
				piece, marker = piece[:i], m
			}
		}
		text = text[len(piece)+len(marker):]
		if piece != "" {
			k, err := count(piece)
			if err != nil {
				return 0, err
			}
			n += k
		}
		if marker != "" {
			n++
		}
	}
	return n, nil
}

func lengths(ns []int) Lengths {
	if len(ns) == 0 {
		return Lengths{}
	}
	slices.Sort(ns)
	l := Lengths{Min: ns[0], Median: ns[len(ns)/2], P95: ns[(len(ns)*95+99)/100-1], Max: ns[len(ns)-1]}
	for _, n := range ns {
		l.Total += n
	}
	return l
}

// oneOf reports whether a file of a folder is one of those named, or what a process
// left behind that was killed while it wrote one of them.
func oneOf(file string, names ...string) bool {
	return slices.ContainsFunc(names, func(n string) bool { return file == n || strings.HasPrefix(file, "."+n) })
}

// exportPlace makes the folder and refuses one that holds anything else than
// what may be replaced.
func exportPlace(dir string, force bool) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("make the export folder: %w", err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("look into the export folder: %w", err)
	}
	for _, e := range entries {
		if !oneOf(e.Name(), TrainFile, ValidFile, HeldOutFile, ExportFile, ReadmeFile) {
			return fmt.Errorf("%s holds other files, such as %s; choose a new folder with --out", dir, e.Name())
		}
	}
	if len(entries) > 0 && !force {
		return fmt.Errorf("%s holds an export; choose a new folder with --out, or replace it with --force", dir)
	}
	return nil
}

func (x *Export) write(ctx context.Context, dir string, records map[string][]Record) error {
	// Without its description an export cannot be mistaken for a whole one.
	for _, name := range []string{ExportFile, HeldOutFile} {
		if err := os.Remove(filepath.Join(dir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("replace the export: %w", err)
		}
	}
	for _, file := range sortedKeys(records) {
		if err := ctx.Err(); err != nil {
			return err
		}
		var b bytes.Buffer
		enc := json.NewEncoder(&b)
		enc.SetEscapeHTML(false)
		for _, r := range records[file] {
			if err := enc.Encode(r); err != nil {
				return fmt.Errorf("write dialogue %s: %w", r.ID, err)
			}
		}
		x.Hashes[file] = sum(b.Bytes())
		if err := disk.WriteEntry(filepath.Join(dir, file), b.Bytes(), 0o644); err != nil {
			return fmt.Errorf("write the export: %w", err)
		}
	}
	if err := x.writeReadme(dir); err != nil {
		return err
	}
	b, err := checksum.Seal(x)
	if err == nil {
		err = disk.WriteEntry(filepath.Join(dir, ExportFile), b, 0o644)
	}
	if err != nil {
		return fmt.Errorf("write the export: %w", err)
	}
	return nil
}

// ReadExport reads the description of an export and checks that its files are
// those that it describes.
func ReadExport(dir string) (*Export, error) {
	b, err := disk.ReadEntry(filepath.Join(dir, ExportFile), disk.MaxText)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s holds no complete export (no %s); make one with: ccmed sft export --data DIR --out %s", dir, ExportFile, dir)
	}
	if err != nil {
		return nil, fmt.Errorf("read the export: %w", err)
	}
	x := &Export{}
	const again = "put back a copy of it, or export again with `ccmed sft export --force`"
	if err := readSealed(b, x, &x.ContentHash); err != nil {
		return nil, fmt.Errorf("%s is damaged: %w; %s", filepath.Join(dir, ExportFile), err, again)
	}
	if x.Schema != ExportSchema {
		return nil, fmt.Errorf("%s has format %d, this version reads %d; %s", dir, x.Schema, ExportSchema, again)
	}
	for _, file := range []string{TrainFile, ValidFile} {
		if x.Hashes[file] == "" {
			return nil, fmt.Errorf("%s describes no %s; %s", filepath.Join(dir, ExportFile), file, again)
		}
	}
	for _, file := range sortedKeys(x.Hashes) {
		if file != filepath.Base(file) {
			return nil, fmt.Errorf("%s describes %q, which is no file of its folder; %s", filepath.Join(dir, ExportFile), file, again)
		}
		b, err := disk.ReadEntry(filepath.Join(dir, file), disk.MaxText)
		if err != nil {
			return nil, fmt.Errorf("read the export: %w", err)
		}
		if got := sum(b); got != x.Hashes[file] {
			return nil, fmt.Errorf("%s was changed after the export (SHA-256 %.12s… instead of %.12s…); %s", filepath.Join(dir, file), got, x.Hashes[file], again)
		}
	}
	return x, nil
}

// LongestTokens is about how many tokens the longest sequence has: counted where
// the export has counts, else a token for three bytes, which is above what
// tokenizers of today take on prose.
func (x *Export) LongestTokens() int {
	if x.Tokens != nil {
		return max(x.Tokens.Files[TrainFile].Max, x.Tokens.Files[ValidFile].Max)
	}
	return (x.Longest + 2) / 3
}

// Digest identifies the export by the content of its files.
func (x *Export) Digest() string {
	var b strings.Builder
	for _, file := range sortedKeys(x.Hashes) {
		fmt.Fprintf(&b, "%s %s\n", x.Hashes[file], file)
	}
	return "sha256:" + sum([]byte(b.String()))
}

func sum(b []byte) string {
	h := sha256.Sum256(b)
	return hex.EncodeToString(h[:])
}

// writeJSON replaces a file by a value's JSON.
func writeJSON(path string, v any) error {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false) // markers stay readable
	enc.SetIndent("", "  ")
	if err := enc.Encode(v); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	if err := disk.WriteEntry(path, b.Bytes(), 0o644); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}
