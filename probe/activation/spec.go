package activation

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/ccmed/ccmed/infer"
)

// Schema is the version of the files' metadata.
const Schema = 1

// DType is how a value is stored: F32, or F16 for half the space. F16 keeps 11
// significant bits and nothing beyond ±65,504.
type DType string

// The types of hidden states.
const (
	F32 DType = "F32"
	F16 DType = "F16"
)

// Residual is the kind of a residual stream: the embeddings, the state after
// each block, the state after the final norm.
const Residual = "residual"

// Model says whose states these are. Two models are the same if their weights
// have the same digest; the rest is for people.
type Model struct {
	Name         string `json:"name"`
	Digest       string `json:"digest"` // of the weights, "sha256:…"
	Quantization string `json:"quantization,omitempty"`
	Architecture string `json:"architecture,omitempty"`
	Edits        string `json:"edits,omitempty"` // hash of those under which the states were read
}

// ModelOf returns the part of a model's identity that hidden states depend on.
func ModelOf(m infer.Model) Model {
	return Model{Name: m.Name, Digest: m.Digest, Quantization: m.Quantization, Architecture: m.Architecture, Edits: m.Edits}
}

func (m Model) String() string {
	switch {
	case m.Name == "":
		return m.Digest
	case m.Digest == "":
		return m.Name
	}
	return m.Name + " (" + m.Digest + ")"
}

// Cell names what was read: after which context, of which text, at which
// position. The parts are made of letters, digits, "_" and "-".
type Cell struct {
	Context  string `json:"context"`        // what the model was told before: "D", "ND", "wrong", "none"
	Text     string `json:"text"`           // what it read or wrote then: "own-D", "placebo-1"
	Position string `json:"position"`       // "prompt_end", "utterance_end"
	Kind     string `json:"kind,omitempty"` // of state; "" is Residual
}

func (c Cell) String() string {
	return fmt.Sprintf("context %s, text %s, %s, %s", c.Context, c.Text, c.Position, c.canonical().Kind)
}

// File returns the name of the cell's file in a run directory.
func (c Cell) File() string {
	c = c.canonical()
	return strings.Join([]string{c.Context, c.Text, c.Position, c.Kind}, ".") + extension
}

const extension = ".safetensors"

func (c Cell) canonical() Cell {
	if c.Kind == "" {
		c.Kind = Residual
	}
	return c
}

var cellPart = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)

func (c Cell) check() error {
	c = c.canonical()
	for _, p := range []struct{ what, value string }{
		{"context", c.Context}, {"text", c.Text}, {"position", c.Position}, {"kind", c.Kind},
	} {
		if !cellPart.MatchString(p.value) {
			return fmt.Errorf("the cell's %s is %q; use 1 to 64 letters, digits, _ and -", p.what, p.value)
		}
	}
	return nil
}

// Spec is what a file of hidden states holds.
type Spec struct {
	Model   Model
	Cell    Cell
	Layers  []string // names, in the order of the file: "embed", "block.1", …, "final_norm"
	Samples int      // rows a layer
	Width   int      // values a row
	DType   DType
}

// Limits of a Spec. They are far above every real model and keep a damaged file
// from asking for more memory than there is.
const (
	maxLayers = 4096
	maxName   = 128
	maxMeta   = 512
	maxValues = math.MaxInt32 // a layer: 8 GiB as float32
)

func (s Spec) check() error {
	if err := s.Cell.check(); err != nil {
		return err
	}
	if s.Model.Digest == "" {
		return fmt.Errorf("the model %q has no digest, so that nobody could tell whose states these are; name a model whose weights can be read", s.Model.Name)
	}
	for _, m := range []string{s.Model.Name, s.Model.Digest, s.Model.Quantization, s.Model.Architecture} {
		if len(m) > maxMeta || !utf8.ValidString(m) {
			return fmt.Errorf("%.40q… is %d bytes long; a model's name and digest are UTF-8 of at most %d", m, len(m), maxMeta)
		}
	}
	if err := checkLayers(s.Layers); err != nil {
		return err
	}
	if s.Samples < 1 || s.Width < 1 || s.Samples > maxValues/s.Width {
		return fmt.Errorf("%d samples of width %d; both are at least 1 and their product is at most %d", s.Samples, s.Width, maxValues)
	}
	if s.DType.size() == 0 {
		return fmt.Errorf("hidden states of type %q; there are %s and %s", s.DType, F32, F16)
	}
	return nil
}

func checkLayers(layers []string) error {
	if len(layers) == 0 || len(layers) > maxLayers {
		return fmt.Errorf("%d layers; there are 1 to %d", len(layers), maxLayers)
	}
	seen := map[string]bool{}
	for _, l := range layers {
		if l == "" || len(l) > maxName || !utf8.ValidString(l) {
			return fmt.Errorf("a layer is named %.40q; a name is UTF-8 of 1 to %d bytes", l, maxName)
		}
		if seen[l] {
			return fmt.Errorf("two layers are named %q", l)
		}
		seen[l] = true
	}
	return nil
}

// bytes returns the size of the states. Where int64 would overflow it is -1.
func (s Spec) bytes() int64 {
	n, ok := product([]int64{int64(len(s.Layers)), int64(s.Samples), int64(s.Width), int64(s.DType.size())})
	if !ok {
		return -1
	}
	return n
}

func (s Spec) clone() Spec {
	s.Cell = s.Cell.canonical()
	s.Layers = slices.Clone(s.Layers)
	return s
}

// MismatchError reports states that are not those that were asked for: of
// another model, cell or shape.
type MismatchError struct {
	Path   string
	Fields []string // each with what the file holds and what was asked for
}

func (e *MismatchError) Error() string {
	return fmt.Sprintf("%s does not hold the hidden states that are needed: %s; name the run that has them, or extract them into a new one",
		e.Path, strings.Join(e.Fields, ", "))
}

// differences names the fields that differ; zero fields of want are not compared.
func (s Spec) differences(want Spec) (fields []string) {
	differ := func(what string, asked bool, have, need any) {
		if asked && have != need {
			fields = append(fields, fmt.Sprintf("%s is %v, not %v", what, have, need))
		}
	}
	if d := want.Model.Digest; d != "" && d != s.Model.Digest {
		fields = append(fields, fmt.Sprintf("the model is %v, not %v", s.Model, want.Model))
	}
	have, need := s.Cell.canonical(), want.Cell.canonical()
	differ("the context", need.Context != "", have.Context, need.Context)
	differ("the text", need.Text != "", have.Text, need.Text)
	differ("the position", need.Position != "", have.Position, need.Position)
	differ("the kind", want.Cell != Cell{}, have.Kind, need.Kind)
	if len(want.Layers) > 0 {
		fields = append(fields, layerDifferences(s.Layers, want.Layers)...)
	}
	differ("the number of samples", want.Samples != 0, s.Samples, want.Samples)
	differ("the width", want.Width != 0, s.Width, want.Width)
	differ("the type", want.DType != "", s.DType, want.DType)
	return fields
}

func layerDifferences(have, need []string) []string {
	if len(have) != len(need) {
		return []string{fmt.Sprintf("there are %d layers (%s), not %d (%s)", len(have), ends(have), len(need), ends(need))}
	}
	for i := range have {
		if have[i] != need[i] {
			return []string{fmt.Sprintf("layer %d is %s, not %s", i, have[i], need[i])}
		}
	}
	return nil
}

func ends(names []string) string {
	if len(names) < 2 {
		return strings.Join(names, "")
	}
	return names[0] + " to " + names[len(names)-1]
}

// metadata is how a Spec lies in the header; shape and type are the tensor's.
func (s Spec) metadata() (map[string]string, error) {
	layers, err := json.Marshal(s.Layers)
	if err != nil {
		return nil, fmt.Errorf("encode the names of the layers: %w", err)
	}
	m := s.Model.metadata()
	c := s.Cell.canonical()
	m["content"], m["schema"] = "hidden states", fmt.Sprint(Schema)
	m["context"], m["text"], m["position"], m["kind"] = c.Context, c.Text, c.Position, c.Kind
	m["layers"] = string(layers)
	return m, nil
}

func (m Model) metadata() map[string]string {
	out := map[string]string{"model": m.Name, "digest": m.Digest, "quantization": m.Quantization, "architecture": m.Architecture}
	if m.Edits != "" {
		out["edits"] = m.Edits
	}
	return out
}

func modelFrom(m map[string]string) Model {
	return Model{Name: m["model"], Digest: m["digest"], Quantization: m["quantization"], Architecture: m["architecture"], Edits: m["edits"]}
}

// checkContent tells our files from others and from those of later versions.
func checkContent(m map[string]string, content string) error {
	if m["content"] != content {
		return fmt.Errorf("it holds %q, not %q", m["content"], content)
	}
	if m["schema"] != fmt.Sprint(Schema) {
		return fmt.Errorf("its schema is %q and this version reads %d; use a newer ccmed", m["schema"], Schema)
	}
	return nil
}

// specFrom reads a Spec back and checks it.
func specFrom(h *header) (Spec, error) {
	m := h.meta
	if err := checkContent(m, "hidden states"); err != nil {
		return Spec{}, err
	}
	s := Spec{
		Model: modelFrom(m),
		Cell:  Cell{Context: m["context"], Text: m["text"], Position: m["position"], Kind: m["kind"]}.canonical(),
	}
	if err := json.Unmarshal([]byte(m["layers"]), &s.Layers); err != nil {
		return Spec{}, fmt.Errorf("the names of its layers: %w", err)
	}
	t, ok := h.tensors[statesTensor]
	if !ok || len(h.tensors) != 1 {
		return Spec{}, fmt.Errorf("it holds %d tensors; there must be one, named %q", len(h.tensors), statesTensor)
	}
	if len(t.Shape) != 3 {
		return Spec{}, fmt.Errorf("the states have shape %v, not (layers, samples, width)", t.Shape)
	}
	if t.Shape[0] != int64(len(s.Layers)) {
		return Spec{}, fmt.Errorf("the states have shape %v for %d named layers", t.Shape, len(s.Layers))
	}
	if t.Shape[1] > maxValues || t.Shape[2] > maxValues {
		return Spec{}, fmt.Errorf("the states have shape %v; a layer has at most %d values", t.Shape, maxValues)
	}
	s.Samples, s.Width, s.DType = int(t.Shape[1]), int(t.Shape[2]), DType(t.DType)
	if err := s.check(); err != nil {
		return Spec{}, err
	}
	return s, nil
}

// ErrDamaged reports a file that is not, or no longer, what this package writes:
// truncated, with a header that contradicts itself, or of other content.
var ErrDamaged = errors.New("not a readable safetensors file of ccmed")

// damaged wraps what is wrong with a file, and shortens it, because it quotes
// the file.
func damaged(path string, err error, remedy string) error {
	const most = 400
	if s := err.Error(); len(s) > most {
		err = errors.New(strings.ToValidUTF8(s[:most], "") + "…")
	}
	return fmt.Errorf("%s: %w: %w; %s", path, ErrDamaged, err, remedy)
}
