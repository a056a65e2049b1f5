package llamacpp

import (
	"context"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/ccmed/ccmed/infer"
)

// reference holds hidden states that scripts/hf_states.py took from
// transformers.
type reference struct {
	Architecture string
	Tokens       []int32
	At           []int
	Layers       map[string][][]float64 // by layer: one state for each of At
}

// needReference returns the folder that scripts/test_states.sh fills, and skips
// the test without it; with CCMED_REQUIRE_PYTHON=1 it fails instead.
func needReference(t testing.TB) string {
	t.Helper()
	need(t) // the engine
	dir := os.Getenv("CCMED_TINY_MODELS")
	if dir != "" {
		return dir
	}
	absent := t.Skipf
	if os.Getenv("CCMED_REQUIRE_PYTHON") == "1" {
		absent = t.Fatalf
	}
	absent("CCMED_TINY_MODELS names no folder with transformers' states: scripts/test_states.sh makes one")
	return ""
}

func readReference(t testing.TB, path string) reference {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var r reference
	if err := json.Unmarshal(b, &r); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	if len(r.Tokens) == 0 || len(r.At) == 0 {
		t.Fatalf("%s holds no states", path)
	}
	return r
}

// compare reads the reference's states from the engine and calls layer with
// each layer's own and transformers' values, all tokens one after the other.
func compare(t *testing.T, e *Engine, r reference, layer func(name string, got, want []float64)) {
	t.Helper()
	layers := e.Layers()
	if len(layers) != len(r.Layers) {
		t.Fatalf("layers %v, transformers has %d", layers, len(r.Layers))
	}
	got := make([][]float64, len(layers))
	var order []int
	err := e.States(context.Background(), []infer.Sequence{{Tokens: r.Tokens, At: r.At}}, layers,
		func(_, pos, layer int, x []float32) error {
			if layer == 0 {
				order = append(order, pos)
			}
			for _, v := range x {
				got[layer] = append(got[layer], float64(v))
			}
			return nil
		})
	if err != nil {
		t.Fatal(err)
	}
	if at := slices.Compact(slices.Sorted(slices.Values(r.At))); !slices.Equal(order, at) {
		t.Fatalf("states at tokens %v, want %v", order, at)
	}
	for i, name := range layers {
		layer(name, got[i], slices.Concat(r.Layers[name]...))
	}
}

// relativeError returns |got-want| / |want|, Euclidean.
func relativeError(got, want []float64) float64 {
	if len(got) != len(want) {
		return math.NaN()
	}
	var difference, size float64
	for i := range got {
		difference += (got[i] - want[i]) * (got[i] - want[i])
		size += want[i] * want[i]
	}
	return math.Sqrt(difference / size)
}

func cosine(a, b []float64) float64 {
	var ab, aa, bb float64
	for i := range a {
		ab, aa, bb = ab+a[i]*b[i], aa+a[i]*a[i], bb+b[i]*b[i]
	}
	return ab / math.Sqrt(aa*bb)
}

// Every layer of a random model is what transformers computes from the same
// weights. Keys and values are stored as 16-bit floats, which alone costs some
// 1e-4. The micro-batch is smaller than the text, which therefore comes in pieces.
func TestStatesAgainstTransformers(t *testing.T) {
	dir := needReference(t)
	for _, arch := range []string{"llama", "gemma2", "phi3", "qwen2"} {
		t.Run(arch, func(t *testing.T) {
			r := readReference(t, filepath.Join(dir, arch+".json"))
			if r.Architecture != arch {
				t.Fatalf("states of %s", r.Architecture)
			}
			e, err := Open(context.Background(), Options{ModelPath: filepath.Join(dir, arch+".gguf"), NumCtx: 256, UBatch: 40, Threads: 1})
			if err != nil {
				t.Fatal(err)
			}
			defer e.Close()
			compare(t, e, r, func(name string, got, want []float64) {
				d := relativeError(got, want)
				t.Logf("%-10s relative error %.1e", name, d)
				if !(d <= 1e-3) {
					t.Errorf("%s: relative error %.2g, want ≤ 1e-3", name, d)
				}
			})
		})
	}
}

// A real, quantised model: transformers dequantises the weights to 32 bits, and
// llama.cpp multiplies with activations quantised to 8, so that only the
// direction is held to account, token by token.
func TestStatesOfSmolLM2AgainstTransformers(t *testing.T) {
	dir := needReference(t)
	r := readReference(t, filepath.Join(dir, "smollm2.json"))
	e := open(t, 256)
	compare(t, e, r, func(name string, got, want []float64) {
		least := 1.0
		w := e.Width()
		if len(got) != len(want) || len(got)%w != 0 {
			t.Fatalf("%s: %d values, transformers has %d", name, len(got), len(want))
		}
		for i := 0; i < len(got); i += w {
			least = min(least, cosine(got[i:i+w], want[i:i+w]))
		}
		t.Logf("%-10s least cosine %.5f, relative error %.1e", name, least, relativeError(got, want))
		if !(least >= 0.999) {
			t.Errorf("%s: least cosine %.5f, want ≥ 0.999", name, least)
		}
	})
}

// editReference holds logits that scripts/hf_edits.py took from transformers under forward
// hooks: those at the prompt's end, after it, and at the end, one entry of the vocabulary
// of Every.
type editReference struct {
	Tokens        []int32
	Prompt, Every int
	Plain         [][]float64
	Cases         []struct {
		Edits []struct {
			Block   int
			Scope   infer.Scope
			Add     []float32
			Replace []float32
			Erase   *infer.Erase
		}
		Logits [][]float64
	}
}

// Logits under additions, replacements and erasures of every block and scope are those that
// transformers computes with forward hooks. The micro-batch is smaller than the text.
func TestEditsAgainstTransformers(t *testing.T) {
	dir := needReference(t)
	for _, arch := range []string{"llama", "gemma2", "phi3", "qwen2"} {
		t.Run(arch, func(t *testing.T) {
			b, err := os.ReadFile(filepath.Join(dir, arch+".edits.json"))
			if err != nil {
				t.Fatal(err)
			}
			var r editReference
			if err := json.Unmarshal(b, &r); err != nil {
				t.Fatal(err)
			}
			e, err := Open(context.Background(), Options{ModelPath: filepath.Join(dir, arch+".gguf"), NumCtx: 256, UBatch: 40, Threads: 1})
			if err != nil {
				t.Fatal(err)
			}
			defer e.Close()
			worst, least := 0.0, math.Inf(1)
			for i, c := range r.Cases {
				var edits []infer.Edit
				for _, x := range c.Edits {
					edit := infer.Edit{Block: x.Block, Scope: x.Scope, Add: x.Add, Erase: x.Erase}
					if x.Replace != nil {
						edit.Replace = map[string][]float32{"the prompt": x.Replace}
					}
					edits = append(edits, edit)
				}
				got, want := editedLogits(t, edited(t, e, edits...), r), slices.Concat(c.Logits...)
				d := relativeError(got, want)
				if worst = max(worst, d); !(d <= 1e-3) {
					t.Errorf("case %d, %s after block %d: relative error %.2g, want ≤ 1e-3", i, c.Edits[0].Scope, c.Edits[0].Block, d)
				}
				least = min(least, relativeError(slices.Concat(r.Plain...), want))
			}
			plain := relativeError(editedLogits(t, e, r), slices.Concat(r.Plain...))
			t.Logf("%d cases, greatest relative error %.1e; without edits %.1e; the edits move the logits by at least %.2g", len(r.Cases), worst, plain, least)
			if len(r.Cases) != 28 || !(least > 1e-2) || !(plain <= 1e-3) {
				t.Errorf("%d cases that move the logits by at least %.2g, without edits %.2g", len(r.Cases), least, plain)
			}
			if !e.changes.hooked[2] {
				t.Error("no control vector is used")
			}
		})
	}
}

// editedLogits returns those that the reference holds.
func editedLogits(t *testing.T, e *Engine, r editReference) (out []float64) {
	t.Helper()
	ctx := context.Background()
	if err := e.ready(ctx, infer.Params{}, true); err != nil {
		t.Fatal(err)
	}
	path := e.plan("the prompt").path(toTokens(r.Tokens), r.Prompt)
	err := e.logits(ctx, path, r.Prompt, func(i int, logits []float32) error {
		if at := r.Prompt - 1 + i; at <= r.Prompt || at == len(r.Tokens)-1 {
			for k := 0; k < len(logits); k += r.Every {
				out = append(out, float64(logits[k]))
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}
