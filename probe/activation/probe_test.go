package activation

import (
	"bytes"
	"encoding/json"
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/ccmed/ccmed/probe/linear"
)

func probeOf(classes ...string) *Probe {
	p := &Probe{Model: Model{Name: "tiny", Digest: "sha256:01"}, Cell: Cell{Context: "D", Text: "own-D", Position: "prompt_end", Kind: Residual}, Classes: classes}
	for l, name := range []string{"embed", "block.1"} {
		lp := LayerProbe{Layer: name, Mean: make([]float64, 5), Scale: make([]float64, 5)}
		for j := range lp.Mean {
			lp.Mean[j], lp.Scale[j] = 1/float64(3+l+j), math.Pi*float64(j+1)
		}
		for r := range p.rows() {
			w := make([]float64, 5)
			for j := range w {
				w[j] = math.Sqrt(float64(2 + l + 7*r + 13*j))
			}
			lp.W, lp.B = append(lp.W, w), append(lp.B, -math.E*float64(r+1))
		}
		p.Layers = append(p.Layers, lp)
	}
	return p
}

type aboutProbe struct {
	Accuracy float64 `json:"accuracy"`
	Design   string  `json:"design"`
}

// anyFile compares probes whatever file they were loaded from.
var anyFile = cmpopts.IgnoreFields(Probe{}, "Weights")

func TestProbeComesBackExactly(t *testing.T) {
	for _, classes := range [][]string{{"denial", "defence", "minimisation"}, {"D", "ND"}} {
		path := filepath.Join(t.TempDir(), "probe.safetensors")
		p, about := probeOf(classes...), aboutProbe{0.83, "pooled"}
		if err := SaveProbe(path, p, about); err != nil {
			t.Fatal(err)
		}
		var said aboutProbe
		got, err := LoadProbe(path, &said)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(p, got, anyFile); diff != "" {
			t.Error(diff)
		}
		if said != about {
			t.Errorf("the card says %v", said)
		}
		if _, err := LoadProbe(path, nil); err != nil {
			t.Errorf("without the card's content: %v", err)
		}
		// Written over, by another one.
		if err := SaveProbe(path, probeOf("a", "b", "c", "d"), about); err != nil {
			t.Fatal(err)
		}
		if got, err = LoadProbe(path, nil); err != nil || len(got.Classes) != 4 {
			t.Errorf("after saving again: %v, %v", got, err)
		}
	}
}

// A fitted model goes through the file and predicts the same to the last bit.
func TestProbeOfLinearModel(t *testing.T) {
	data := make([]float64, 60)
	y := make([]int, 20)
	for i := range y {
		y[i] = i % 3
		for j := range 3 {
			data[3*i+j] = math.Sin(float64(7*i+j)) + float64(y[i]*j)
		}
	}
	x, err := linear.NewDense(20, 3, data)
	if err != nil {
		t.Fatal(err)
	}
	all := make([]int, 20)
	for i := range all {
		all[i] = i
	}
	scale, err := linear.FitStandardiser(x, all)
	if err != nil {
		t.Fatal(err)
	}
	z, err := scale.Apply(x)
	if err != nil {
		t.Fatal(err)
	}
	m, err := linear.Fit(t.Context(), z, y, 3, linear.Options{C: 1})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "probe.safetensors")
	saved := &Probe{Model: Model{Digest: "sha256:01"}, Classes: []string{"a", "b", "c"},
		Layers: []LayerProbe{{Layer: "block.1", W: m.W, B: m.B, Mean: scale.Mean, Scale: scale.Scale}}}
	if err := SaveProbe(path, saved, nil); err != nil {
		t.Fatal(err)
	}
	p, err := LoadProbe(path, nil)
	if err != nil {
		t.Fatal(err)
	}
	l := p.Layers[0]
	again, err := (&linear.Standardiser{Mean: l.Mean, Scale: l.Scale}).Apply(x)
	if err != nil {
		t.Fatal(err)
	}
	want, err := m.Predict(z)
	if err != nil {
		t.Fatal(err)
	}
	got, err := (&linear.Model{Classes: len(p.Classes), W: l.W, B: l.B}).Predict(again)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got, anyFile); diff != "" {
		t.Error(diff)
	}
}

func TestProbeFitsTheStates(t *testing.T) {
	f := mustCreate(t, t.TempDir(), spec(F32))
	for _, c := range []struct {
		name   string
		change func(*Probe)
		want   string
	}{
		{"the same model", func(*Probe) {}, ""},
		{"another cell of the same model", func(p *Probe) { p.Cell.Context = "ND" }, ""},
		{"another model", func(p *Probe) { p.Model.Digest = "sha256:02" }, "tiny (sha256:01), not tiny (sha256:02)"},
		{"another layer", func(p *Probe) { p.Layers[1].Layer = "block.30" }, "no layer block.30"},
		{"another width", func(p *Probe) {
			p.Layers = p.Layers[:1]
			l := &p.Layers[0]
			l.Mean, l.Scale = l.Mean[:4], l.Scale[:4]
			for r := range l.W {
				l.W[r] = l.W[r][:4]
			}
		}, "the width is 5, not 4"},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := probeOf("a", "b", "c")
			c.change(p)
			err := p.Check(f)
			if c.want == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			var m *MismatchError
			if !errors.As(err, &m) || !strings.Contains(err.Error(), c.want) || m.Path != f.Path() {
				t.Errorf("got %v, want it to say %q", err, c.want)
			}
		})
	}
}

func TestSaveProbeIsChecked(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*Probe)
		want   string
	}{
		{"no model", func(p *Probe) { p.Model.Digest = "" }, "no digest"},
		{"one class", func(p *Probe) { p.Classes = p.Classes[:1] }, "1 classes"},
		{"no layers", func(p *Probe) { p.Layers = nil }, "0 layers"},
		{"a layer twice", func(p *Probe) { p.Layers[1].Layer = "embed" }, `two layers are named "embed"`},
		{"fewer rows than classes", func(p *Probe) { p.Layers[1].W = p.Layers[1].W[:2] }, "layer block.1: it has 2 rows"},
		{"no intercept", func(p *Probe) { p.Layers[0].B = nil }, "0 intercepts"},
		{"one weight less", func(p *Probe) { p.Layers[0].W[1] = p.Layers[0].W[1][:4] }, "a row of 4 weights for states of width 5"},
		{"a narrower layer", func(p *Probe) { p.Layers[1].Mean = p.Layers[1].Mean[:4] }, "layer block.1"},
		{"NaN", func(p *Probe) { p.Layers[0].W[1][2] = math.NaN() }, "layer embed: value 2 is NaN"},
		{"infinite mean", func(p *Probe) { p.Layers[0].Mean[1] = math.Inf(1) }, "value 1 is +Inf"},
		{"scale 0", func(p *Probe) { p.Layers[0].Scale[3] = 0 }, "scale of value 3 is 0"},
		{"a bad cell", func(p *Probe) { p.Cell.Text = "a/b" }, "the cell's text"},
		{"names that run together", func(p *Probe) {
			p.Layers[0].Layer, p.Layers[1].Layer = "a", "a.w" // "a.w" + ".w" is none of a's
		}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := probeOf("a", "b", "c")
			c.change(p)
			path := filepath.Join(t.TempDir(), "probe.safetensors")
			err := SaveProbe(path, p, nil)
			if c.want == "" {
				if err != nil {
					t.Fatal(err)
				}
				if got, err := LoadProbe(path, nil); err != nil || cmp.Diff(p, got, anyFile) != "" {
					t.Errorf("%v, %s", err, cmp.Diff(p, got, anyFile))
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want it to say %q", err, c.want)
			}
			if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
				t.Error("a file was written")
			}
		})
	}
	if err := SaveProbe(filepath.Join(t.TempDir(), "probe"), probeOf("a", "b"), nil); err == nil || !strings.Contains(err.Error(), "must end in .safetensors") {
		t.Errorf("got %v", err)
	}
	if err := SaveProbe(filepath.Join(t.TempDir(), "probe.safetensors"), probeOf("a", "b"), math.NaN()); err == nil || !strings.Contains(err.Error(), "card") {
		t.Errorf("a card that JSON cannot hold gave %v", err)
	}
}

func TestLoadProbeDamaged(t *testing.T) {
	dir := t.TempDir()
	other := filepath.Join(dir, "other.safetensors")
	if err := SaveProbe(other, probeOf("a", "b"), nil); err != nil {
		t.Fatal(err)
	}
	otherWeights, err := os.ReadFile(other)
	if err != nil {
		t.Fatal(err)
	}
	// card changes the card, and the hash with the weights.
	for _, c := range []struct {
		name    string
		weights func([]byte) []byte
		card    func(*card)
		want    string
	}{
		{"weights of another training", func([]byte) []byte { return otherWeights }, nil, "its card was written for weights sha256:"},
		{"one bit", func(b []byte) []byte { b[len(b)-1] ^= 1; return b }, nil, "its card was written for"},
		{"truncated", func(b []byte) []byte { return b[:len(b)-8] }, func(*card) {}, "truncated"},
		{"NaN", func(b []byte) []byte { copy(b[len(b)-8:], "\xff\xff\xff\xff\xff\xff\xff\xff"); return b }, func(*card) {}, "is NaN"},
		{"hidden states instead", func([]byte) []byte { return whole(t, F32) }, func(*card) {}, `holds "hidden states"`},
		{"a card of two classes", nil, func(c *card) { c.Classes = c.Classes[:2] }, "shape [3 5] for 2 classes"},
		{"a card of one class", nil, func(c *card) { c.Classes = c.Classes[:1] }, "for 1 classes"},
		{"a card without a layer", nil, func(c *card) { c.Layers = c.Layers[:1] }, "8 tensors for 1 layers"},
		{"a card with another layer", nil, func(c *card) { c.Layers[0] = "x" }, `no tensor "x.w"`},
		{"a card that names a layer twice", nil, func(c *card) { c.Layers[0] = "block.1" }, "two layers"},
		{"a card of another model", nil, func(c *card) { c.Model.Digest = "sha256:02" }, "its card names the model"},
		{"a later card", nil, func(c *card) { c.Schema = 2 }, "use a newer ccmed"},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "probe.safetensors")
			if err := SaveProbe(path, probeOf("a", "b", "c"), nil); err != nil {
				t.Fatal(err)
			}
			b, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if c.weights != nil {
				b = c.weights(b)
			}
			if err := os.WriteFile(path, b, 0o644); err != nil {
				t.Fatal(err)
			}
			if c.card != nil {
				text, err := os.ReadFile(CardPath(path))
				if err != nil {
					t.Fatal(err)
				}
				var on card
				if err := json.Unmarshal(text, &on); err != nil {
					t.Fatal(err)
				}
				c.card(&on)
				on.Weights = digest(b)
				if text, err = json.Marshal(on); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(CardPath(path), text, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			_, err = LoadProbe(path, nil)
			if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), filepath.Dir(path)) {
				t.Errorf("got %v, want it to say %q", err, c.want)
			}
			if later := strings.Contains(c.want, "newer"); errors.Is(err, ErrDamaged) == later {
				t.Errorf("%v is ErrDamaged: %t", err, !later)
			}
		})
	}
	path := filepath.Join(dir, "third.safetensors")
	if _, err := LoadProbe(path, nil); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a probe that is not there gave %v", err)
	}
	if err := os.WriteFile(CardPath(path), []byte("{"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := LoadProbe(path, nil); !errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), "third.json") {
		t.Errorf("a broken card gave %v", err)
	}
	var wrong struct{ Design int }
	if err := SaveProbe(path, probeOf("a", "b"), aboutProbe{Design: "pooled"}); err != nil {
		t.Fatal(err)
	}
	if _, err := LoadProbe(path, &wrong); !errors.Is(err, ErrDamaged) {
		t.Errorf("a card of another shape gave %v", err)
	}
}

// Whatever the bytes of weights and card: an error or a probe that is sound.
func FuzzDecodeProbe(f *testing.F) {
	for _, classes := range [][]string{{"a", "b"}, {"a", "b", "c"}} {
		b, err := probeOf(classes...).encode()
		if err != nil {
			f.Fatal(err)
		}
		text, err := json.Marshal(card{Schema: Schema, Model: Model{Name: "tiny", Digest: "sha256:01"}, Classes: classes, Layers: []string{"embed", "block.1"}})
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b, text)
		f.Add(b[:len(b)-8], text)
		f.Add(b, bytes.ReplaceAll(text, []byte("block.1"), []byte("embed")))
	}
	f.Fuzz(func(t *testing.T, b, text []byte) {
		var c card
		if json.Unmarshal(text, &c) != nil {
			return
		}
		p, err := decodeProbe(b, c)
		if err != nil {
			return
		}
		if err := p.check(); err != nil {
			t.Fatalf("accepted %v", err)
		}
		again, err := p.encode()
		if err != nil {
			t.Fatal(err)
		}
		if q, err := decodeProbe(again, c); err != nil || cmp.Diff(p, q, anyFile) != "" {
			t.Fatalf("%v %s", err, cmp.Diff(p, q, anyFile))
		}
	})
}
