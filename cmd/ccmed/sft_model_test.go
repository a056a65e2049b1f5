package main

import (
	"context"
	"encoding/json"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ccmed/ccmed/bench/run"
	"github.com/ccmed/ccmed/bench/timing"
	"github.com/ccmed/ccmed/infer/infertest"
	"github.com/ccmed/ccmed/infer/llamacpp"
	"github.com/ccmed/ccmed/sft"
)

// randomPackage makes a package of the test model with the markers in its
// vocabulary and a decision head of random weights, which is not bound to the
// validation of anything: what it says is noise, and the same each time.
func randomPackage(t *testing.T) string {
	t.Helper()
	needEngine(t)
	dir := filepath.Dir(infertest.MarkedModel(t, sft.TurnEnd, sft.Speak, sft.EndSpeak))
	path := filepath.Join(dir, sft.ModelFile)
	if err := os.Rename(filepath.Join(dir, "marked.gguf"), path); err != nil {
		t.Fatal(err)
	}
	e, err := llamacpp.Open(context.Background(), llamacpp.Options{ModelPath: path, NumCtx: 64, Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	m, err := e.Model(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	h := &sft.Head{Weight: make([]float64, e.Width()), Model: m.Digest}
	rng := rand.New(rand.NewPCG(7, 7))
	for i := range h.Weight {
		h.Weight[i] = 0.1 * rng.NormFloat64()
	}
	if err := h.Write(filepath.Join(dir, sft.HeadFile)); err != nil {
		t.Fatal(err)
	}
	c := &sft.Card{Schema: sft.CardSchema, Name: "noise", Digest: m.Digest, Width: e.Width(), ThresholdDefault: 0.5,
		ThresholdValidation: &sft.Threshold{Value: 0.25, N: 10, TurnAcc: 0.5}}
	if err := c.Write(dir); err != nil {
		t.Fatal(err)
	}
	return dir
}

// TestRealPredict takes a package of noise through predict and what follows it.
func TestRealPredict(t *testing.T) {
	withoutRaces(t)
	pkg := randomPackage(t)
	dir := filepath.Join(t.TempDir(), "run")
	args := []string{"sft", "predict", "--model", pkg, "--data", "sample", "--limit", "2", "--threads", "1", "--max-tokens", "8", "--threshold-from", "validation"}
	out := ccmed(t, nil, append(args, "--out", dir)...)
	for _, want := range []string{"Timing: noise, dual-head", "baseline: ", "Turn accuracy by threshold", "chosen on validation dialogues"} {
		if !strings.Contains(out, want) {
			t.Errorf("the output lacks %q:\n%s", want, out)
		}
	}
	m := metricsOf(t, dir)
	if m.Metrics.N != 2 || m.Metrics.Scored != 2 {
		t.Errorf("%d of %d dialogues scored", m.Metrics.Scored, m.Metrics.N)
	}
	d, err := run.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	samples, err := d.Samples()
	if err != nil {
		t.Fatal(err)
	}
	turns := map[string]int{}
	for _, s := range samples {
		switch s.Step {
		case sft.StepDecide:
			var dec timing.Decision
			if err := json.Unmarshal(s.Data, &dec); err != nil {
				t.Fatal(err)
			}
			turns[s.Item] = dec.Predicted
			if dec.Threshold != 0.25 || len(dec.Curve) != dec.LastTurn {
				t.Errorf("item %s: %+v", s.Item, dec)
			}
		case sft.StepUtterance:
			var u timing.Utterance
			if err := json.Unmarshal(s.Data, &u); err != nil {
				t.Fatal(err)
			}
			if u.Turn != turns[s.Item] {
				t.Errorf("item %s: an utterance after turn %d, predicted %d", s.Item, u.Turn, turns[s.Item])
			}
		}
	}
	// The same package gives the same curves, whatever the threshold; masking
	// changes them.
	again := filepath.Join(t.TempDir(), "again")
	ccmed(t, nil, "sft", "predict", "--model", filepath.Join(pkg, sft.ModelFile), "--head", filepath.Join(pkg, sft.HeadFile),
		"--data", "sample", "--limit", "2", "--threads", "1", "--max-tokens", "1", "--out", again)
	masked := filepath.Join(t.TempDir(), "masked")
	ccmed(t, nil, append(args, "--mask-markers", "--out", masked)...)
	p, q, r := curves(t, dir), curves(t, again), curves(t, masked)
	if p != q {
		t.Errorf("curves\n%s\nand of the same files\n%s", p, q)
	}
	if p == r {
		t.Error("masking changes no curve")
	}
	if got := ccmed(t, nil, "compare", dir, masked); !strings.Contains(got, "TurnAcc") {
		t.Errorf("compare says\n%s", got)
	}
	said, err := newApp().opened().RunLines(dir)
	if err != nil {
		t.Fatal(err)
	}
	for item, l := range said {
		if l.Turn == nil || *l.Turn != turns[item] || !l.Written {
			t.Errorf("mediate reads item %s as %+v", item, l)
		}
	}
	if len(said) != len(turns) {
		t.Errorf("mediate reads %d lines of %d", len(said), len(turns))
	}
}

func curves(t *testing.T, path string) string {
	t.Helper()
	d, err := run.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	samples, err := d.Samples()
	if err != nil {
		t.Fatal(err)
	}
	a, err := timing.Read(run.Each(samples))
	if err != nil {
		t.Fatal(err)
	}
	var all [][]timing.Point
	for _, d := range a.Decided {
		all = append(all, d.Curve)
	}
	b, err := json.Marshal(all)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
