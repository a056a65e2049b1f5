// Package direction learns from stored hidden states how to change a model's: which
// direction stands for a stage, and which map takes the stage out. An edit file holds what
// was learnt, with controls of equal norm.
//
//	f, err := direction.Learn(ctx, dir, direction.Options{Kind: direction.Mean, Layers: []string{"block.15"}})
//	err = f.Save("stage.edit")
//	edits, err := f.Edits("Denial", 2)
//
// The file is a safetensors file of F32 tensors, one for each layer, class and part, and a
// JSON card in its metadata. In Python:
//
//	f = safetensors.safe_open("stage.edit", "numpy")
//	card, v = json.loads(f.metadata()["card"]), f.get_tensor("block.15/Denial/add")
package direction

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/ccmed/ccmed/bench/strictjson"
	"github.com/ccmed/ccmed/infer"
	"github.com/ccmed/ccmed/probe/activation"
)

// Kinds of edit files.
const (
	Mean    = "mean"    // class mean − grand mean
	Weights = "weights" // of a linear probe, in raw space, as long as the mean's
	LEACE   = "leace"   // least-squares erasure of the class
	Speak   = "speak"   // the gold turn − earlier turns, where it is asked whether to speak
	Patch   = "patch"   // states at the end of D prompts, by ND prompt
	Lens    = "lens"    // states of a block in the last one's place, by ND prompt
)

// Erased is the class of a file of the kind LEACE: all stages at once.
const Erased = "stage"

// content tells edit files from others of the same format.
const content = "edits"

// schema is the version of the card.
const schema = 1

// File is an edit file.
type File struct {
	Card
	tensors map[string]activation.Tensor
}

// Card says what an edit file holds.
type Card struct {
	Schema int              `json:"schema"`
	Kind   string           `json:"kind"`
	Model  activation.Model `json:"model"` // whose states are changed
	Width  int              `json:"width"`
	Layers []string         `json:"layers"` // blocks, all of which an edit changes
	Scope  []string         `json:"scope"`  // tokens that are changed
	// Classes are the names that Edits takes: those of stages, and their controls behind a
	// colon.
	Classes []string `json:"classes"`
	// Norms are the lengths at dose 1 by class, one a layer; of an erasure the Frobenius
	// norm of what is taken out.
	Norms map[string][]float64 `json:"norms"`
	// StateNorms are the mean lengths of the states that were learnt from, one a layer: an edit
	// of several times as much leaves nothing of them.
	StateNorms []float64 `json:"state_norms"`
	// Store is the checksum of the samples of the store that the file was learnt from, Cell
	// what was read, Items how many dialogues, and Groups their scenario contexts.
	Store  string          `json:"store_samples_sha256"`
	Cell   activation.Cell `json:"cell"`
	Items  int             `json:"items"`
	Groups []string        `json:"groups"`
	Seed   uint64          `json:"seed"` // of the controls
	// Prompts are, of the kinds Patch and Lens, the hashes of the prompts whose states are replaced.
	Prompts []string `json:"prompts,omitempty"`
	// From is the file that this one was chosen from, at the dose by which it is scaled.
	From string  `json:"from,omitempty"`
	Dose float64 `json:"dose,omitempty"`
}

// replaces tells whether the file holds states that stand in the place of others.
func (f *File) replaces() bool { return f.Kind == Patch || f.Kind == Lens }

// tensor is the name of a part of a class's edit at a layer.
func tensor(layer, class, part string) string { return layer + "/" + class + "/" + part }

// Parts of an edit.
const (
	partAdd     = "add"
	partU       = "u"
	partV       = "v"
	partMean    = "mean"
	partReplace = "replace"
)

// put keeps a tensor of rows of equal width.
func (f *File) put(layer, class, part string, rows ...[]float64) {
	t := activation.Tensor{Shape: []int64{int64(f.Width)}}
	if part != partAdd && part != partMean {
		t.Shape = []int64{int64(len(rows)), int64(f.Width)}
	}
	for _, r := range rows {
		t.Values = append(t.Values, r...)
	}
	f.tensors[tensor(layer, class, part)] = t
}

// Save writes the file, in the place of one that is there.
func (f *File) Save(path string) error {
	if err := f.check(); err != nil {
		return fmt.Errorf("save the edit file %s: %w", path, err)
	}
	card, err := json.Marshal(f.Card)
	if err != nil {
		return fmt.Errorf("save the edit file %s: %w", path, err)
	}
	return activation.WriteTensors(path, f.tensors, map[string]string{"content": content, "card": string(card)})
}

// Load reads an edit file.
func Load(path string) (*File, error) {
	tensors, meta, err := activation.ReadTensors(path)
	if err != nil {
		return nil, err
	}
	if meta["content"] != content {
		return nil, fmt.Errorf("%s is not an edit file; ccmed probe direction makes one", path)
	}
	f := &File{tensors: tensors}
	var version struct {
		Schema int `json:"schema"`
	}
	if err := json.Unmarshal([]byte(meta["card"]), &version); err != nil {
		return nil, fmt.Errorf("%s: its card cannot be read: %w; make the file again with ccmed probe direction", path, err)
	}
	if version.Schema != schema {
		return nil, fmt.Errorf("%s has schema %d and this version reads %d; use the ccmed that wrote it, or make it again", path, version.Schema, schema)
	}
	err = strictjson.Unmarshal([]byte(meta["card"]), &f.Card)
	if err == nil {
		err = f.check()
	}
	if err != nil {
		return nil, fmt.Errorf("%s is damaged: %w; make it again with ccmed probe direction", path, err)
	}
	return f, nil
}

// check looks whether the tensors are those of the card, and finite.
func (f *File) check() error {
	if f.Model.Digest == "" || f.Width < 1 || len(f.Layers) == 0 || len(f.Classes) == 0 {
		return errors.New("it names no model, width, layer or class")
	}
	for _, l := range f.Layers {
		if _, err := block(l); err != nil {
			return err
		}
	}
	if !f.replaces() && len(f.StateNorms) != len(f.Layers) {
		return fmt.Errorf("it has %d lengths of states for %d layers", len(f.StateNorms), len(f.Layers))
	}
	parts, ok := map[string][]string{Mean: {partAdd}, Weights: {partAdd}, Speak: {partAdd}, LEACE: {partU, partV, partMean}, Patch: {partReplace}, Lens: {partReplace}}[f.Kind]
	if !ok {
		return fmt.Errorf("it is of the unknown kind %q", f.Kind)
	}
	if n := len(f.Layers) * len(f.Classes) * len(parts); n != len(f.tensors) {
		return fmt.Errorf("it holds %d tensors for %d layers of %d classes", len(f.tensors), len(f.Layers), len(f.Classes))
	}
	for _, l := range f.Layers {
		for _, c := range f.Classes {
			for _, p := range parts {
				if err := f.checkTensor(tensor(l, c, p), p); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

func (f *File) checkTensor(name, part string) error {
	t, ok := f.tensors[name]
	rows := 1
	switch part {
	case partU, partV:
		rows = len(t.Values) / f.Width
	case partReplace:
		rows = len(f.Prompts)
	}
	if !ok || rows == 0 || len(t.Values) != rows*f.Width {
		return fmt.Errorf("its tensor %s has %d values, not rows of %d", name, len(t.Values), f.Width)
	}
	if i := slices.IndexFunc(t.Values, func(v float64) bool { return math.IsNaN(v) || math.IsInf(v, 0) }); i >= 0 {
		return fmt.Errorf("value %d of its tensor %s is %v", i, name, t.Values[i])
	}
	return nil
}

// block is the number of a layer that is a block.
func block(layer string) (int, error) {
	digits, ok := strings.CutPrefix(layer, "block.")
	k, err := strconv.Atoi(digits)
	if !ok || err != nil || k < 1 || layer != infer.LayerBlock(k) {
		return 0, fmt.Errorf("the layer %q is no block; edits are made after a block, such as block.15", layer)
	}
	return k, nil
}

// UnknownClassError reports a class that a file does not hold.
type UnknownClassError struct {
	Class string
	Known []string
}

func (e *UnknownClassError) Error() string {
	return fmt.Sprintf("the edit file has no class %q; it has %s", e.Class, strings.Join(e.Known, ", "))
}

// row32 is row k of a tensor, times a.
func (f *File) row32(name string, k int, a float64) []float32 {
	out := make([]float32, f.Width)
	for j, v := range f.tensors[name].Values[k*f.Width : (k+1)*f.Width] {
		out[j] = float32(a * v)
	}
	return out
}

func (f *File) rows32(name string, a float64) (out [][]float32) {
	for k := range len(f.tensors[name].Values) / f.Width {
		out = append(out, f.row32(name, k, a))
	}
	return out
}
