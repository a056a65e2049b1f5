package sft

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ccmed/ccmed/bench/dialogue"
	"github.com/ccmed/ccmed/bench/run"
	"github.com/ccmed/ccmed/bench/timing"
	"github.com/ccmed/ccmed/infer"
	"github.com/ccmed/ccmed/infer/infertest"
	"github.com/ccmed/ccmed/infer/llamacpp"
)

// counting is a Reader whose tokens are bytes, the markers apart. The state at a
// token is the number of "!" before it, so that a head of weight 1 and bias -1/2
// steps in from the first one on.
type counting struct {
	bos   bool
	calls int
	nan   bool
}

const bytesEnd = 256 // markers follow, then the beginning-of-sequence token

func (c *counting) Tokenize(text string) ([]int32, error) {
	var out []int32
	for text != "" {
		marker := false
		for i, m := range []string{TurnEnd, Speak, EndSpeak} {
			if strings.HasPrefix(text, m) {
				out, text, marker = append(out, bytesEnd+int32(i)), text[len(m):], true
			}
		}
		if !marker {
			out, text = append(out, int32(text[0])), text[1:]
		}
	}
	return out, nil
}

func (c *counting) LiteralTokens(text string) ([]int32, error) {
	ts, err := c.Tokenize(text)
	if c.bos {
		ts = append([]int32{bytesEnd + 3}, ts...)
	}
	return ts, err
}

func (c *counting) States(_ context.Context, seqs []infer.Sequence, layers []string, row func(seq, pos, layer int, x []float32) error) error {
	c.calls++
	if c.nan {
		return &infer.NonFiniteError{Layers: []infer.NonFinite{{Layer: layers[0], Rows: 1, Values: 1}}}
	}
	if len(layers) != 1 || layers[0] != infer.LayerFinalNorm {
		return fmt.Errorf("asked for %v", layers)
	}
	for i, s := range seqs {
		for _, at := range s.At {
			n := 0
			for _, t := range s.Tokens[:at] {
				if t == '!' {
					n++
				}
			}
			if err := row(i, at, 0, []float32{float32(n)}); err != nil {
				return err
			}
		}
	}
	return nil
}

func countingPrediction(t *testing.T, r *counting) *Prediction {
	t.Helper()
	m, err := MarkerTokensOf(r)
	if err != nil {
		t.Fatal(err)
	}
	return &Prediction{Reader: r, Head: &Head{Weight: []float64{1}, Bias: -0.5}, Markers: m}
}

// shout ends a turn of each dialogue with "!", the same for all, and takes all
// other exclamation marks out.
func shout(ds []dialogue.Dialogue, turn int) []dialogue.Dialogue {
	var out []dialogue.Dialogue
	for _, d := range ds {
		n := 0
		out = append(out, d.Reword(func(s string) string {
			n++
			s = strings.ReplaceAll(s, "!", ".")
			if n == turn {
				s += "!"
			}
			return s
		}))
	}
	return out
}

func predicted(t *testing.T, p *Prediction, ds []dialogue.Dialogue, b infer.Backend) []run.Sample {
	t.Helper()
	task, err := p.Task(ds)
	if err != nil {
		t.Fatal(err)
	}
	dir, err := run.Create(filepath.Join(t.TempDir(), "run"), run.Identity{Task: task.Name}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := run.Execute(t.Context(), dir, task, run.Options{Workers: func(context.Context, string) ([]infer.Backend, error) { return []infer.Backend{b}, nil }}); err != nil {
		t.Fatal(err)
	}
	samples, err := dir.Samples()
	if err != nil {
		t.Fatal(err)
	}
	return samples
}

func decode[T any](t *testing.T, samples []run.Sample, step, item string) (v T, s run.Sample) {
	t.Helper()
	for _, s := range samples {
		if s.Step == step && s.Item == item {
			if err := json.Unmarshal(s.Data, &v); err != nil {
				t.Fatal(err)
			}
			return v, s
		}
	}
	t.Fatalf("no sample %s of %s", step, item)
	return v, s
}

func TestPrediction(t *testing.T) {
	const turn = 5
	for _, bos := range []bool{false, true} {
		ds := shout(dialogue.Sample()[:3], turn)
		r := &counting{bos: bos}
		b := &infertest.Scripted{Say: func(infer.Prompt, infer.Params) infer.Reply {
			return infer.Reply{Text: " What matters to you both? ", Stop: "stop"}
		}}
		samples := predicted(t, countingPrediction(t, r), ds, b)
		if r.calls != len(ds) {
			t.Errorf("%d evaluations for %d dialogues; one causal pass is enough", r.calls, len(ds))
		}
		for i, d := range ds {
			dec, _ := decode[timing.Decision](t, samples, StepDecide, d.Key())
			if dec.Mode != timing.DualHead || dec.Predicted != turn || dec.Gold != d.ConflictTurn || len(dec.Curve) != d.LastTurn() || len(dec.Lengths) != d.LastTurn() {
				t.Errorf("dialogue %s: %+v, want turn %d of %d", d.Key(), dec, turn, d.LastTurn())
			}
			for _, pt := range dec.Curve {
				want := sigmoid(-0.5)
				if pt.Turn >= turn {
					want = sigmoid(0.5)
				}
				if pt.P != want {
					t.Errorf("dialogue %s, turn %d: P(speak) %g, want %g", d.Key(), pt.Turn, pt.P, want)
				}
			}
			u, _ := decode[timing.Utterance](t, samples, StepUtterance, d.Key())
			if u.Text != "What matters to you both?" || u.Turn != turn || u.Stop != "stop" || u.Source != "model" {
				t.Errorf("dialogue %s: utterance %+v", d.Key(), u)
			}
			call := b.Calls()[i]
			if want := Sequence(d, turn) + Speak; call.Prompt.Raw != want || len(call.Prompt.Messages) > 0 {
				t.Errorf("dialogue %s is continued from\n%s\nwant\n%s", d.Key(), call.Prompt.Raw, want)
			}
			if !slices.Equal(call.Params.Stop, []string{EndSpeak}) || call.Params.Temperature != 0 || call.Params.MaxTokens != 160 {
				t.Errorf("decoded with %+v, want greedy up to %s", call.Params, EndSpeak)
			}
		}
		a, err := timing.Read(run.Each(samples))
		if err != nil {
			t.Fatal(err)
		}
		m, err := timing.Score(a, timing.ScoreOptions{Resamples: 100})
		if err != nil || m.N != len(ds) || m.Scored != len(ds) || m.Mode != timing.DualHead {
			t.Errorf("timing scores it as %+v (%v)", m, err)
		}
	}
}

func TestPredictionThresholds(t *testing.T) {
	d := shout(dialogue.Sample()[:1], 2)[0]
	low, high := sigmoid(-0.5), sigmoid(0.5)
	for _, c := range []struct {
		threshold float64
		first     int
		want      int
	}{
		{0, 0, 3},     // the mark is in turn 2, and predictions begin at 3
		{0, 2, 2},     // the turn itself counts
		{low, 1, 1},   // reaching the threshold is enough
		{high, 0, 3},  // here too
		{0.63, 0, 0},  // never
		{0.99, 1, 0},  // never
		{0.5, 6, 6},   // not before
		{0.5, 100, 0}, // after the end
	} {
		p := countingPrediction(t, &counting{})
		p.Threshold, p.FirstTurn = c.threshold, c.first
		b := &infertest.Scripted{}
		samples := predicted(t, p, []dialogue.Dialogue{d}, b)
		dec, _ := decode[timing.Decision](t, samples, StepDecide, d.Key())
		u, s := decode[timing.Utterance](t, samples, StepUtterance, d.Key())
		if dec.Predicted != c.want || u.Turn != c.want {
			t.Errorf("threshold %g from turn %d: turn %d, utterance after %d, want %d", c.threshold, c.first, dec.Predicted, u.Turn, c.want)
		}
		if never := c.want == 0; never != (s.Unscored == timing.NotSpoken) || never != (u.Source == "none") || never == (b.Count() == 1) {
			t.Errorf("threshold %g from turn %d: utterance %+v unscored %q, %d requests", c.threshold, c.first, u, s.Unscored, b.Count())
		}
	}
}

func TestPredictionWithoutNumbers(t *testing.T) {
	d := dialogue.Sample()[0]
	b := &infertest.Scripted{}
	samples := predicted(t, countingPrediction(t, &counting{nan: true}), []dialogue.Dialogue{d}, b)
	for _, s := range samples {
		if !strings.Contains(s.Unscored, "final_norm") {
			t.Errorf("%s: unscored %q, want the layer that is not finite", s.Key, s.Unscored)
		}
	}
	if len(samples) != 2 || b.Count() != 0 {
		t.Errorf("%d samples, %d requests", len(samples), b.Count())
	}
}

func TestPredictionRefuses(t *testing.T) {
	d := dialogue.Sample()[0].Reword(func(s string) string { return s + TurnEnd })
	var unusable *UnusableError
	if _, err := countingPrediction(t, &counting{}).Task([]dialogue.Dialogue{d}); !errors.As(err, &unusable) || !strings.Contains(err.Error(), d.Key()) {
		t.Errorf("a turn with a marker: %v", err)
	}
	p := countingPrediction(t, &counting{})
	p.Head = &Head{Weight: make([]float64, 2)}
	if _, err := p.Curve(t.Context(), Sequence(dialogue.Sample()[0], 3)); !errors.Is(err, ErrOtherHead) {
		t.Errorf("a head of another width: %v", err)
	}
	if _, err := MarkerTokensOf(&plain{}); err == nil || !strings.Contains(err.Error(), "ccmed sft train") {
		t.Errorf("a vocabulary without markers: %v", err)
	}
}

// plain is a vocabulary of bytes alone.
type plain struct{ counting }

func (*plain) Tokenize(text string) ([]int32, error) {
	out := make([]int32, len(text))
	for i, b := range []byte(text) {
		out[i] = int32(b)
	}
	return out, nil
}

func TestPredictionReadsMasked(t *testing.T) {
	d := dialogue.Sample()[0]
	p := countingPrediction(t, &counting{})
	p.Reword = strings.ToUpper
	got := p.Prompt(d, 2).Raw
	for _, turn := range d.Unmediated()[:2] {
		if !strings.Contains(got, strings.ToUpper(turn.Message)) || strings.Contains(got, turn.Message) {
			t.Errorf("turn %d is not reworded in\n%s", turn.T, got)
		}
	}
	p.Reword = func(string) string { return "Hm." }
	dec, _ := decode[timing.Decision](t, predicted(t, p, []dialogue.Dialogue{d}, &infertest.Scripted{}), StepDecide, d.Key())
	if want := slices.Repeat([]int{3}, d.LastTurn()); !slices.Equal(dec.Lengths, want) {
		t.Errorf("lengths %v, want those of what was read, %v", dec.Lengths, want)
	}
}

// TestPredictionOfRealModel holds the curve of one causal pass against the state
// at the end of every prefix, read on its own.
func TestPredictionOfRealModel(t *testing.T) {
	path := infertest.MarkedModel(t, TurnEnd, Speak, EndSpeak)
	if _, err := llamacpp.Locate(); err != nil {
		if os.Getenv("CCMED_REQUIRE") != "" {
			t.Fatal(err)
		}
		t.Skip("the engine is not installed: ccmed engine install")
	}
	e, err := llamacpp.Open(t.Context(), llamacpp.Options{ModelPath: path, NumCtx: 1024, Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	markers, err := MarkerTokensOf(e)
	if err != nil {
		t.Fatal(err)
	}
	if want := (MarkerTokens{3, 4, 5}); markers != want {
		t.Errorf("markers %v, want %v", markers, want)
	}
	h := &Head{Weight: make([]float64, e.Width())}
	rng := rand.New(rand.NewPCG(5, 5))
	for i := range h.Weight {
		h.Weight[i] = 0.05 * rng.NormFloat64()
	}
	p := &Prediction{Reader: e, Head: h, Markers: markers, MaxTokens: 4, FirstTurn: 1, Threshold: 1e-9}
	d := dialogue.Sample()[0]
	curve, err := p.Curve(t.Context(), Sequence(d, d.LastTurn()))
	if err != nil {
		t.Fatal(err)
	}
	spread := slices.Max(curve) - slices.Min(curve)
	if len(curve) != d.LastTurn() || spread < 1e-3 {
		t.Fatalf("curve %v of %d turns: nothing that could be confused", curve, d.LastTurn())
	}
	for turn := d.LastTurn(); turn >= 1; turn -= 3 {
		// The text alone, in a context of its own, ends with the marker.
		text := Sequence(d, turn)
		tokens, err := e.LiteralTokens(text)
		if err != nil {
			t.Fatal(err)
		}
		if tokens[len(tokens)-1] != markers.TurnEnd {
			t.Fatalf("%q ends with token %d", text, tokens[len(tokens)-1])
		}
		var state []float32
		err = e.States(t.Context(), []infer.Sequence{{Tokens: tokens, At: []int{len(tokens) - 1}}}, []string{infer.LayerFinalNorm},
			func(_, _, _ int, x []float32) error { state = slices.Clone(x); return nil })
		if err != nil {
			t.Fatal(err)
		}
		if got := h.P(state); math.Abs(got-curve[turn-1]) > 1e-6 {
			t.Errorf("turn %d: %g in one pass, %g alone", turn, curve[turn-1], got)
		}
	}
	samples := predicted(t, p, []dialogue.Dialogue{d}, e)
	u, s := decode[timing.Utterance](t, samples, StepUtterance, d.Key())
	if u.Turn != 1 || strings.Contains(u.Text, EndSpeak) || s.Usage.Generated == 0 || s.Usage.Prompt == 0 {
		t.Errorf("utterance %+v, usage %+v", u, s.Usage)
	}
}
