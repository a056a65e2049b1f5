package activation

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"

	"github.com/ccmed/ccmed/bench/checksum"
	"github.com/ccmed/ccmed/bench/disk"
	"github.com/ccmed/ccmed/bench/strictjson"
)

// Probe is a set of fitted linear probes, one a layer, that can be applied to
// states of the same model. SaveProbe writes a safetensors file and a JSON card.
//
// The file holds, for each layer, four tensors of F64, so that what is read back
// predicts the same to the last bit: "block.12.w" (rows, d), "block.12.b" (rows),
// "block.12.mean" (d) and "block.12.scale" (d). The log-odds of the classes are
// w·((x − mean)/scale) + b. There is one row a class, or for two classes a single
// one, for class 1, as in scikit-learn and probe/linear.
type Probe struct {
	Model   Model    // whose states it reads
	Cell    Cell     // that it was fitted on; empty when it was several pooled
	Classes []string // at least 2, in the order of the rows
	Layers  []LayerProbe
	Weights string // digest of the file that it was loaded from; SaveProbe ignores it
}

// LayerProbe is the probe of one layer. All values are finite, Scale is not 0.
type LayerProbe struct {
	Layer       string
	W           [][]float64 // one row a class, one for two classes; d values each
	B           []float64   // one a row of W
	Mean, Scale []float64   // d values: the standardisation of the training part
}

// Check returns a *MismatchError unless f holds states of the probe's model and
// width, and an error when it lacks one of the probe's layers.
func (p *Probe) Check(f *File) error {
	if err := p.check(); err != nil {
		return fmt.Errorf("apply a probe: %w", err)
	}
	if err := f.Check(Spec{Model: p.Model, Width: p.width()}); err != nil {
		return err
	}
	for _, l := range p.Layers {
		if _, ok := f.number[l.Layer]; !ok {
			return &MismatchError{f.path, []string{fmt.Sprintf("it has no layer %s, which the probe reads", l.Layer)}}
		}
	}
	return nil
}

// width is that of every layer, after check.
func (p *Probe) width() int { return len(p.Layers[0].Mean) }

// rows is the number of rows of W.
func (p *Probe) rows() int {
	if len(p.Classes) == 2 {
		return 1
	}
	return len(p.Classes)
}

func (p *Probe) check() error {
	if p.Model.Digest == "" {
		return errors.New("the probe's model has no digest")
	}
	if p.Cell != (Cell{}) {
		if err := p.Cell.check(); err != nil {
			return err
		}
	}
	if len(p.Classes) < 2 || len(p.Classes) > maxLayers {
		return fmt.Errorf("the probe has %d classes; there are 2 to %d", len(p.Classes), maxLayers)
	}
	names := make([]string, len(p.Layers))
	for i, l := range p.Layers {
		names[i] = l.Layer
	}
	if err := checkLayers(names); err != nil {
		return err
	}
	for _, l := range p.Layers {
		if err := l.check(p.rows(), p.width()); err != nil {
			return fmt.Errorf("the probe of layer %s: %w", l.Layer, err)
		}
	}
	return nil
}

func (l LayerProbe) check(rows, d int) error {
	if d == 0 || len(l.W) != rows || len(l.B) != rows || len(l.Mean) != d || len(l.Scale) != d {
		return fmt.Errorf("it has %d rows of weights, %d intercepts, %d means and %d scales; there should be %d rows of one width, equal in all layers",
			len(l.W), len(l.B), len(l.Mean), len(l.Scale), rows)
	}
	for _, w := range l.W {
		if len(w) != d {
			return fmt.Errorf("it has a row of %d weights for states of width %d", len(w), d)
		}
	}
	for _, part := range append([][]float64{l.B, l.Mean, l.Scale}, l.W...) {
		for j, v := range part {
			if math.IsNaN(v) || math.IsInf(v, 0) {
				return fmt.Errorf("value %d is %v", j, v)
			}
		}
	}
	for j, v := range l.Scale {
		if v == 0 {
			return fmt.Errorf("the scale of value %d is 0", j)
		}
	}
	return nil
}

// parts returns the tensors of a layer in the order of the file.
func (l LayerProbe) parts() []part {
	rows, d := int64(len(l.B)), int64(len(l.Mean))
	var w []float64
	for _, row := range l.W {
		w = append(w, row...)
	}
	return []part{
		{l.Layer + ".w", []int64{rows, d}, w},
		{l.Layer + ".b", []int64{rows}, l.B},
		{l.Layer + ".mean", []int64{d}, l.Mean},
		{l.Layer + ".scale", []int64{d}, l.Scale},
	}
}

type part struct {
	name   string
	shape  []int64
	values []float64
}

// card is the JSON file beside the weights. The hash ties the two together.
type card struct {
	Schema  int             `json:"schema"`
	Weights string          `json:"weights"` // "sha256:…" of the safetensors file
	Model   Model           `json:"model"`
	Cell    *Cell           `json:"cell,omitempty"`
	Classes []string        `json:"classes"`
	Layers  []string        `json:"layers"`
	Card    json.RawMessage `json:"card"`
}

const maxCard = 16 << 20

// CardPath returns the path of the card that belongs to a file of weights:
// probe.safetensors has probe.json.
func CardPath(path string) string { return strings.TrimSuffix(path, extension) + ".json" }

// SaveProbe writes a probe to path, which ends in .safetensors, and what the
// caller wants to say about it (design, scores, seeds), as JSON, to CardPath.
// Each file is replaced atomically, the card last.
func SaveProbe(path string, p *Probe, about any) error {
	if !strings.HasSuffix(path, extension) {
		return fmt.Errorf("save a probe to %s: the name must end in %s", path, extension)
	}
	if err := p.check(); err != nil {
		return fmt.Errorf("save a probe to %s: %w", path, err)
	}
	encoded, err := json.Marshal(about)
	if err != nil {
		return fmt.Errorf("save a probe to %s: encode the card: %w", path, err)
	}
	b, err := p.encode()
	if err != nil {
		return fmt.Errorf("save a probe to %s: %w", path, err)
	}
	c := card{Schema: Schema, Weights: digest(b), Model: p.Model, Classes: p.Classes, Card: encoded}
	if p.Cell != (Cell{}) {
		cell := p.Cell.canonical()
		c.Cell = &cell
	}
	for _, l := range p.Layers {
		c.Layers = append(c.Layers, l.Layer)
	}
	text, err := checksum.Seal(c)
	if err != nil {
		return fmt.Errorf("save a probe to %s: encode the card: %w", path, err)
	}
	if len(text) > maxCard {
		return fmt.Errorf("save a probe to %s: the card has %d bytes; at most %d are read back", path, len(text), maxCard)
	}
	if err := disk.WriteEntry(path, b, 0o644); err != nil {
		return fmt.Errorf("save a probe: %w", err)
	}
	if err := disk.WriteEntry(CardPath(path), text, 0o644); err != nil {
		return fmt.Errorf("save a probe's card: %w", err)
	}
	return nil
}

func digest(b []byte) string {
	sum := sha256.Sum256(b)
	return "sha256:" + hex.EncodeToString(sum[:])
}

func (p *Probe) encode() ([]byte, error) {
	h := &header{meta: p.Model.metadata(), tensors: map[string]tensorInfo{}}
	h.meta["content"], h.meta["schema"] = "linear probes", fmt.Sprint(Schema)
	at := int64(0)
	for _, l := range p.Layers {
		for _, t := range l.parts() {
			end := at + 8*int64(len(t.values))
			h.tensors[t.name] = tensorInfo{"F64", t.shape, [2]int64{at, end}}
			at = end
		}
	}
	b, err := h.encode()
	if err != nil {
		return nil, err
	}
	for _, l := range p.Layers {
		for _, t := range l.parts() {
			for _, v := range t.values {
				b = binary.LittleEndian.AppendUint64(b, math.Float64bits(v))
			}
		}
	}
	return b, nil
}

// LoadProbe reads what SaveProbe wrote. about, unless nil, is a pointer that the
// caller's part of the card is decoded into. Weights and card that do not belong
// together, and files that are damaged, are ErrDamaged.
func LoadProbe(path string, about any) (*Probe, error) {
	text, err := disk.ReadEntry(CardPath(path), maxCard)
	if err != nil {
		return nil, fmt.Errorf("load a probe's card: %w", err)
	}
	broken := func(path string, err error) error { return damaged(path, err, "train the probe again") }
	var c card
	if err := strictjson.Unmarshal(text, &c); err != nil {
		return nil, broken(CardPath(path), err)
	}
	if err := checksum.Check(text); err != nil && !errors.Is(err, checksum.ErrNone) {
		return nil, broken(CardPath(path), err)
	}
	if c.Schema != Schema {
		return nil, fmt.Errorf("%s has schema %d and this version reads %d; use a newer ccmed", CardPath(path), c.Schema, Schema)
	}
	b, err := disk.ReadEntry(path, maxWeights)
	if err != nil {
		return nil, fmt.Errorf("load a probe: %w", err)
	}
	if got := digest(b); got != c.Weights {
		return nil, broken(path, fmt.Errorf("its card was written for weights %s and these are %s", c.Weights, got))
	}
	p, err := decodeProbe(b, c)
	if err != nil {
		return nil, broken(path, err)
	}
	if about != nil {
		if err := json.Unmarshal(c.Card, about); err != nil {
			return nil, broken(CardPath(path), err)
		}
	}
	p.Weights = c.Weights
	return p, nil
}

// maxWeights is far above every probe: 200 layers of 10 classes and width 16,384
// take 315 MB.
const maxWeights = 1 << 30

func decodeProbe(b []byte, c card) (*Probe, error) {
	h, err := readHeader(bytes.NewReader(b), int64(len(b)))
	if err != nil {
		return nil, err
	}
	if err := checkContent(h.meta, "linear probes"); err != nil {
		return nil, err
	}
	p := &Probe{Model: modelFrom(h.meta), Classes: c.Classes}
	if c.Cell != nil {
		p.Cell = c.Cell.canonical()
	}
	if p.Model != c.Model {
		return nil, fmt.Errorf("its card names the model %v and it holds %v", c.Model, p.Model)
	}
	read := func(name string, dims int) (tensorInfo, []float64, error) {
		t, ok := h.tensors[name]
		if !ok || t.DType != "F64" || len(t.Shape) != dims {
			return t, nil, fmt.Errorf("it has no tensor %q of F64 with %d dimensions", name, dims)
		}
		raw := b[h.data+t.Offsets[0] : h.data+t.Offsets[1]]
		v := make([]float64, len(raw)/8)
		for i := range v {
			v[i] = math.Float64frombits(binary.LittleEndian.Uint64(raw[8*i:]))
		}
		return t, v, nil
	}
	for _, name := range c.Layers {
		l := LayerProbe{Layer: name}
		t, w, err := read(name+".w", 2)
		if err != nil {
			return nil, err
		}
		if t.Shape[0] != int64(p.rows()) || t.Shape[1] < 1 {
			return nil, fmt.Errorf("the weights of layer %s have shape %v for %d classes", name, t.Shape, len(p.Classes))
		}
		for d := int(t.Shape[1]); len(w) > 0; w = w[d:] {
			l.W = append(l.W, w[:d:d])
		}
		for part, to := range map[string]*[]float64{".b": &l.B, ".mean": &l.Mean, ".scale": &l.Scale} {
			if _, *to, err = read(name+part, 1); err != nil {
				return nil, err
			}
		}
		p.Layers = append(p.Layers, l)
	}
	if len(h.tensors) != 4*len(p.Layers) {
		return nil, fmt.Errorf("it holds %d tensors for %d layers of 4", len(h.tensors), len(p.Layers))
	}
	return p, p.check()
}
