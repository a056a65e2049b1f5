package probe

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/ccmed/ccmed/bench/stats"
	"github.com/ccmed/ccmed/probe/linear"
)

// planted is a stack of made layers block.1, block.2, ...
type planted []*linear.Dense32

func (p planted) Names() []string {
	names := make([]string, len(p))
	for k := range names {
		names[k] = fmt.Sprintf("block.%d", k+1)
	}
	return names
}

func (p planted) Layer(_ context.Context, k int) (*linear.Dense32, error) { return p[k], nil }

// drawSamples returns n samples of three classes in groups of four.
func drawSamples(n int, seed uint64) Samples {
	rng := rand.New(rand.NewPCG(seed, 1))
	s := Samples{Classes: 3}
	for i := range n {
		s.Y = append(s.Y, rng.IntN(3))
		s.Groups = append(s.Groups, fmt.Sprint("context ", i/4))
	}
	return s
}

// plant returns a layer of d standard normal features, to which signal(i) is added.
func plant(n, d int, seed uint64, signal func(i int, row []float32)) *linear.Dense32 {
	rng := rand.New(rand.NewPCG(seed, 2))
	data := make([]float32, n*d)
	for i := range n {
		row := data[i*d : (i+1)*d]
		for j := range row {
			row[j] = float32(rng.NormFloat64())
		}
		if signal != nil {
			signal(i, row)
		}
	}
	x, err := linear.NewDense32(n, d, data)
	if err != nil {
		panic(err)
	}
	return x
}

// labelSignal puts the label into the features from first on.
func labelSignal(s Samples, strength float32, first int) func(int, []float32) {
	return func(i int, row []float32) { row[first+s.Y[i]] += strength }
}

var quick = Design{Folds: 4, Seeds: []uint64{1, 2}, CPath: []float64{1e-3, 1e-2, 1e-1}, Inner: 4}

func within(t *testing.T, what string, got, lo, hi float64) {
	t.Helper()
	if !(got >= lo && got <= hi) {
		t.Errorf("%s is %.4f, want it within [%g, %g]", what, got, lo, hi)
	}
}

func must[T any](v T, err error) func(t *testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func TestThePlantedLayerIsFound(t *testing.T) {
	s := drawSamples(240, 1)
	var layers planted
	for k, strength := range []float32{0, 0, 3, 0, 0, 0} {
		layers = append(layers, plant(240, 12, uint64(k+10), labelSignal(s, strength, 0)))
	}
	v := must(CrossValidate(t.Context(), layers, s, quick))(t)
	for k, r := range v.Layers {
		if k == 2 {
			within(t, r.Layer+": accuracy", r.Accuracy, 0.9, 1)
			within(t, r.Layer+": log-loss", r.LogLoss, 0, 0.4)
			within(t, r.Layer+": macro F1", r.MacroF1, 0.9, 1)
			within(t, r.Layer+": Brier", r.Brier, 0, 0.2)
		} else {
			within(t, r.Layer+": accuracy", r.Accuracy, 0.22, 0.45)
			within(t, r.Layer+": log-loss", r.LogLoss, 1.05, 1.25)
		}
		within(t, r.Layer+": accuracy with shuffled labels", v.Shuffled[0][k].Accuracy, 0.2, 0.47)
		within(t, r.Layer+": calibration error", CalibrationError(r.Reliability), 0, 0.15)
		binned := 0
		for _, b := range r.Reliability {
			binned += b.N
		}
		if binned != 2*240 || len(r.Rounds) != 2 || len(r.C) != 8 || r.N != 240 {
			t.Errorf("%s: %d binned predictions, %d rounds, %d choices of C, n %d", r.Layer, binned, len(r.Rounds), len(r.C), r.N)
		}
	}
	within(t, "majority", v.Majority.Accuracy, 0.25, 0.42)
	late := must(v.Late())(t)
	for _, name := range late.PeakLayers {
		if name != "block.3" {
			t.Errorf("an inner split chose the peak %s, want block.3", name)
		}
	}
	within(t, "Δlate", late.Delta.Mean(), 0.45, 0.75)
	if late.LastBlock.Layer != "block.6" {
		t.Errorf("the last block is %s", late.LastBlock.Layer)
	}
	var d []Outcomes
	for _, r := range v.Layers {
		d = append(d, must(r.RoundHits().Minus(v.Majority.RoundHits()))(t))
	}
	for k, p := range must(MaxStatistic(d, Resampling{Resamples: 999}))(t) {
		if (p < 0.05) != (k == 2) {
			t.Errorf("layer %d has the adjusted p %v", k+1, p)
		}
	}
}

// Groups are held out whole, and no row chooses the probe that predicts it.
func TestSplitsKeepGroupsApart(t *testing.T) {
	s := drawSamples(120, 2)
	held := make([]int, 120)
	for _, split := range must(quick.Splits(s))(t) {
		for _, pair := range [][2][]int{{split.Train, split.Test}, {split.Fit, split.Tune}} {
			in := map[string]bool{}
			for _, i := range pair[0] {
				in[s.Groups[i]] = true
			}
			for _, i := range pair[1] {
				if in[s.Groups[i]] {
					t.Fatalf("group %s is on both sides", s.Groups[i])
				}
			}
		}
		if got := slices.Sorted(slices.Values(slices.Concat(split.Fit, split.Tune))); !slices.Equal(got, split.Train) {
			t.Errorf("the inner split has %d rows of %d", len(got), len(split.Train))
		}
		for _, i := range split.Test {
			held[i]++
		}
	}
	for i, n := range held {
		if n != 2 {
			t.Errorf("row %d is held out %d times in 2 rounds", i, n)
		}
	}
}

func TestTrainThenEvaluate(t *testing.T) {
	s := drawSamples(160, 3)
	d := quick
	for i := range 160 {
		if i < 100 {
			d.Train = append(d.Train, i)
		} else if i >= 120 {
			d.Eval = append(d.Eval, i)
		}
	}
	v := must(CrossValidate(t.Context(), planted{plant(160, 10, 4, labelSignal(s, 3, 0))}, s, d))(t)
	r := v.Layers[0]
	if !slices.Equal(r.Tested(), d.Eval) || len(r.Hits()) != 40 || r.N != 40 {
		t.Errorf("tested rows %v", r.Tested())
	}
	within(t, "accuracy", r.Accuracy, 0.85, 1)
	if p := r.Rounds[0].Row(110)[0]; !math.IsNaN(p) {
		t.Errorf("a row that was never held out has the probability %v", p)
	}
	d.Eval = append(d.Eval, 3)
	if _, err := d.Splits(s); !errors.Is(err, ErrDesign) {
		t.Errorf("a row in both parts: %v", err)
	}
}

func TestResultsDoNotDependOnWorkers(t *testing.T) {
	s := drawSamples(100, 4)
	layers := planted{plant(100, 8, 1, labelSignal(s, 1, 0)), plant(100, 200, 2, labelSignal(s, 1, 0)), plant(100, 8, 3, nil)}
	var found []*Validation
	for _, workers := range []int{1, 3} {
		d := quick
		d.Workers = workers
		found = append(found, must(CrossValidate(t.Context(), layers, s, d))(t))
	}
	for k := range layers {
		for round := range found[0].Layers[k].Rounds {
			for i, p := range found[0].Layers[k].Rounds[round].P {
				if q := found[1].Layers[k].Rounds[round].P[i]; p != q {
					t.Fatalf("layer %d: probability %v with one worker, %v with three", k, p, q)
				}
			}
		}
	}
}

func TestWhatCannotBeTrained(t *testing.T) {
	s := drawSamples(80, 5)
	good := plant(80, 6, 1, nil)
	bad := plant(80, 6, 1, func(i int, row []float32) {
		if i == 37 {
			row[2] = float32(math.NaN())
		}
	})
	_, err := CrossValidate(t.Context(), planted{good, bad}, s, quick)
	var value *linear.ValueError
	if !errors.As(err, &value) || value.Row != 37 || !strings.Contains(err.Error(), "block.2") {
		t.Errorf("a NaN in row 37 of block.2: %v", err)
	}
	one := Samples{make([]int, 80), 3, s.Groups}
	if _, err := CrossValidate(t.Context(), planted{good}, one, quick); !errors.Is(err, ErrDesign) {
		t.Errorf("a single class: %v", err)
	}
	few := Samples{slices.Clone(s.Y), 4, s.Groups}
	few.Y[0], few.Y[9] = 3, 3
	if _, err := CrossValidate(t.Context(), planted{good}, few, quick); !errors.Is(err, linear.ErrFolds) {
		t.Errorf("two samples of a class in four folds: %v", err)
	}
	if _, err := CrossValidate(t.Context(), planted{plant(79, 6, 1, nil)}, s, quick); err == nil || !strings.Contains(err.Error(), "block.1") {
		t.Errorf("79 rows for 80 samples: %v", err)
	}
	if _, err := (Design{Inner: 1}).Splits(s); !errors.Is(err, ErrDesign) {
		t.Errorf("five values of C without an inner split: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := CrossValidate(ctx, planted{good}, s, quick); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

// A signal that comes with the context only must be found in Δctx, one that
// comes with the text only in Δtext.
func TestDecompositionSeparatesContextFromText(t *testing.T) {
	s := drawSamples(320, 6)
	cells := []Pair{{ContextD, TextOwnD}, {ContextD, TextOwnND}, {ContextND, TextOwnND},
		{ContextD, TextPlacebo + "-1"}, {ContextND, TextPlacebo + "-1"}, {ContextD, TextPlacebo + "-2"}, {ContextND, TextPlacebo + "-2"}}
	for _, tt := range []struct {
		name               string
		carries            func(Pair) bool
		ctx, text, placebo bool // whether these are far above 0; else about 0
	}{
		{"context", func(p Pair) bool { return p.Context == ContextD }, true, false, true},
		{"text", func(p Pair) bool { return p.Text == TextOwnD }, false, true, false},
		{"nothing", func(Pair) bool { return false }, false, false, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			values := map[Pair]Outcomes{}
			for k, cell := range cells {
				strength := float32(0.3)
				if tt.carries(cell) {
					strength = 3
				}
				d := quick
				d.Shuffles = -1
				// What the cells share is large beside what a cell adds.
				x := plant(320, 8, 7, labelSignal(s, strength, 0))
				rng := rand.New(rand.NewPCG(uint64(k), 3))
				for i := range 320 {
					for j := range x.Row(i) {
						x.Row(i)[j] += 0.1 * float32(rng.NormFloat64())
					}
				}
				v := must(CrossValidate(t.Context(), planted{x}, s, d))(t)
				values[cell] = v.Layers[0].RoundHits()
			}
			got := must(decomposed(values, Resampling{Resamples: 500}))(t)
			for name, part := range map[string]struct {
				e     *Effect
				large bool
			}{
				"Δelic": {got.Elic, tt.ctx || tt.text}, "Δctx": {got.Ctx, tt.ctx}, "Δtext": {got.Text, tt.text}, "Δplacebo": {got.Placebo, tt.placebo},
			} {
				if part.large {
					within(t, name, part.e.Value, 0.3, 0.7)
					within(t, name+": p", part.e.P, 0, 0.01)
				} else {
					within(t, name, part.e.Value, -0.05, 0.05)
				}
			}
			if d := got.Elic.Value - got.Ctx.Value - got.Text.Value; math.Abs(d) > 1e-12 {
				t.Errorf("Δelic − Δctx − Δtext is %v, want 0", d)
			}
			within(t, "excess loss", got.Excess.Value, -0.05, 0.05)
		})
	}
	partial := must(decomposed(map[Pair]Outcomes{cells[0]: rows(1, 0), cells[2]: rows(0, 0)}, Resampling{Resamples: 50}))(t)
	if partial.Elic == nil || partial.Ctx != nil || partial.Text != nil || partial.Excess != nil {
		t.Errorf("two cells alone give %+v", partial)
	}
}

// rows are the outcomes of one round.
func rows(values ...float64) Outcomes {
	return Outcomes{Rounds: [][]float64{values}, Groups: []string{"a", "b"}, Width: 1}
}

// Without signal, intervals cover chance and tests reject at their rates.
func TestNoSignalOverSeeds(t *testing.T) {
	const seeds = 200
	for _, tt := range []struct {
		name   string
		design Design
	}{
		{"one round of folds", Design{Folds: 4}},
		{"three rounds of folds", Design{Folds: 4, Seeds: []uint64{1, 2, 3}}},
		{"train, then evaluate", Design{Train: firstRows(0, 60), Eval: firstRows(60, 120)}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			covered, hits, losses := 0, 0, 0
			for seed := range uint64(seeds) {
				s := drawSamples(120, 1000+seed)
				for i := range s.Y { // chance is 1/3 only where the classes are equal
					s.Y[i] = i % 3
				}
				rand.New(rand.NewPCG(seed, 4)).Shuffle(120, func(i, j int) { s.Y[i], s.Y[j] = s.Y[j], s.Y[i] })
				d := tt.design
				d.CPath, d.Inner, d.Shuffles, d.Workers, d.Tol = []float64{1e-2}, 1, -1, 1, 1e-6
				if d.Seeds == nil {
					d.Seeds = []uint64{seed}
				}
				v := must(CrossValidate(t.Context(), planted{plant(120, 6, 2*seed, nil), plant(120, 6, 2*seed+1, nil)}, s, d))(t)
				a, b := v.Layers[0], v.Layers[1]
				r := Resampling{Resamples: 300, Seed: seed}
				if e := must(a.RoundHits().Interval(r))(t); e.Lo <= 1.0/3 && 1.0/3 <= e.Hi {
					covered++
				}
				if must(must(a.RoundHits().Minus(b.RoundHits()))(t).Test(r))(t).P < 0.05 {
					hits++
				}
				if must(must(a.RoundLogLosses().Minus(b.RoundLogLosses()))(t).Test(r))(t).P < 0.05 {
					losses++
				}
			}
			t.Logf("covered %d, rejected %d by hits, %d by log-loss, of %d", covered, hits, losses, seeds)
			// Three standard errors of 200 draws at 0.95 and 0.05.
			within(t, "coverage", float64(covered)/seeds, 0.904, 1)
			within(t, "rejections by hits", float64(hits)/seeds, 0, 0.096)
			within(t, "rejections by log-loss", float64(losses)/seeds, 0, 0.096)
		})
	}
}

func firstRows(from, to int) []int {
	var rows []int
	for i := from; i < to; i++ {
		rows = append(rows, i)
	}
	return rows
}

// The correction must not hide what is there.
func TestRoundsFindASignal(t *testing.T) {
	s := drawSamples(160, 14)
	v := must(CrossValidate(t.Context(), planted{plant(160, 8, 1, labelSignal(s, 1.5, 0)), plant(160, 8, 2, nil)}, s, quick))(t)
	e := must(must(v.Layers[0].RoundHits().Minus(v.Layers[1].RoundHits()))(t).Test(Resampling{Resamples: 1000}))(t)
	within(t, "p", e.P, 0, 0.01)
	within(t, "value", e.Value, v.Layers[0].Accuracy-v.Layers[1].Accuracy-1e-12, v.Layers[0].Accuracy-v.Layers[1].Accuracy+1e-12)
	within(t, "lower end", e.Lo, 0.05, e.Value)
	within(t, "correction for 2 rounds of 4 folds", v.Layers[0].RoundHits().Width, math.Sqrt(0.5+4.0/3)-0.02, math.Sqrt(0.5+4.0/3)+0.02)
	if _, err := v.Layers[0].RoundHits().Minus(Outcomes{}); !errors.Is(err, ErrDesign) {
		t.Errorf("rows that are not paired: %v", err)
	}
}

func TestTransfer(t *testing.T) {
	s := drawSamples(200, 8)
	from := planted{plant(200, 10, 1, labelSignal(s, 3, 0))}
	same := planted{plant(200, 10, 2, labelSignal(s, 3, 0))}
	other := planted{plant(200, 10, 3, labelSignal(s, 3, 5))}
	within(t, "accuracy in the same direction", must(Transfer(t.Context(), from, same, s, quick, false))(t)[0].Accuracy, 0.85, 1)
	r := must(Transfer(t.Context(), from, other, s, quick, false))(t)[0]
	within(t, "accuracy in another direction", r.Accuracy, 0.2, 0.47)
	if len(r.Tested()) != 200 || len(r.Hits()) != 200 {
		t.Errorf("%d rows tested", len(r.Tested()))
	}
	for c, found := range must(Pooled(t.Context(), []Layers{from, other}, s, quick))(t) {
		within(t, fmt.Sprintf("pooled accuracy in cell %d", c), found[0].Accuracy, 0.8, 1)
	}
	if _, err := Transfer(t.Context(), from, planted{from[0], from[0]}, s, quick, false); !errors.Is(err, ErrDesign) {
		t.Errorf("cells of one and two layers: %v", err)
	}
}

// States that know the type let a probe learn any labels of types; states that
// know the label only do not.
func TestSelectivity(t *testing.T) {
	s := drawSamples(240, 9)
	types := make([]string, 240)
	for i := range types {
		types[i] = fmt.Sprint("type ", (i/4)%6)
	}
	typed := func(i int, row []float32) { row[4+(i/4)%6] += 4 }
	d := quick
	d.CPath = []float64{1e-2, 1e-1}
	got := must(Select(t.Context(), planted{
		plant(240, 10, 1, labelSignal(s, 4, 0)),
		plant(240, 10, 2, typed),
		plant(240, 10, 3, func(i int, row []float32) { labelSignal(s, 4, 0)(i, row); typed(i, row) }),
	}, s, types, 3, d))(t)
	within(t, "selectivity where the label is", got.Selective(0), 0.4, 0.8)
	within(t, "selectivity where the type is", got.Selective(1), -0.8, -0.4)
	within(t, "selectivity where both are", got.Selective(2), -0.1, 0.1)
	if got.Unseen != 0 || len(got.Control) != 3 {
		t.Errorf("%d unseen, %d controls", got.Unseen, len(got.Control))
	}
	types[0], types[1], types[2], types[3] = "once", "once", "once", "once"
	if got := must(Select(t.Context(), planted{plant(240, 10, 1, nil)}, s, types, 1, d))(t); got.Unseen != 4 || got.Real[0].N != 236 {
		t.Errorf("a type of one dialogue: %d unseen, n %d", got.Unseen, got.Real[0].N)
	}
	labels := must(ControlLabels(s.Y, types, 3, 1))(t)
	of := map[string]int{}
	for i, name := range types {
		if c, ok := of[name]; ok && c != labels[i] {
			t.Fatalf("%s has two control labels", name)
		}
		of[name] = labels[i]
	}
	if _, err := ControlLabels(s.Y, slices.Repeat([]string{"same"}, 240), 3, 1); !errors.Is(err, ErrDesign) {
		t.Errorf("one type for three labels: %v", err)
	}
}

func TestOnlineCode(t *testing.T) {
	s := drawSamples(300, 10)
	types := make([]string, 300)
	for i := range types {
		types[i] = fmt.Sprint((i / 4) % 9)
	}
	layers := planted{plant(300, 8, 1, labelSignal(s, 5, 0)), plant(300, 8, 2, nil)}
	got := must(Describe(t.Context(), layers, s, types, 5, Design{CPath: []float64{1e-3, 1e-2, 1e-1, 1}, Inner: 4}))(t)
	within(t, "compression where the label is", got.Real[0].Compression, 2, 12)
	within(t, "compression of noise", got.Real[1].Compression, 0.85, 1.02)
	within(t, "compression of the control", got.Control[0].Compression, 0.8, 1.05)
	within(t, "uniform code", got.Real[0].Uniform, 300*math.Log2(3)-1e-9, 300*math.Log2(3)+1e-9)
	if len(got.Real[0].Orders) != 5 {
		t.Errorf("%d orders", len(got.Real[0].Orders))
	}
	blocks := must(quick.withDefaults().blocks(s, []linear.Labels{{Y: s.Y}}, 1))(t)
	var past []int
	for k, b := range blocks {
		if !slices.Equal(b.Train, past) {
			t.Fatalf("block %d is coded from other rows than all before it", k)
		}
		if k == 1 && !enough([]linear.Labels{{Y: s.Y}}, past, 3) {
			t.Errorf("the first block has fewer than %d of a class", codeStart)
		}
		for _, i := range b.Test {
			for _, j := range past {
				if s.Groups[i] == s.Groups[j] {
					t.Fatalf("group %s is in two blocks", s.Groups[i])
				}
			}
		}
		past = append(past, b.Test...)
	}
	if len(past) != 300 {
		t.Errorf("blocks have %d rows", len(past))
	}
}

// States that repeat the surface add nothing to it; states with more do.
func TestOffsetGain(t *testing.T) {
	s := drawSamples(400, 11)
	surface := plant(400, 4, 1, labelSignal(s, 1.5, 0))
	copied := plant(400, 8, 2, func(i int, row []float32) { copy(row, surface.Row(i)) })
	more := plant(400, 8, 3, labelSignal(s, 2, 0))
	got := must(OffsetGain(t.Context(), planted{copied, more}, func(train []int) (linear.Rows, error) {
		if len(train) > len(s.Y)*4/5 {
			return nil, fmt.Errorf("features are made from %d of %d rows", len(train), len(s.Y))
		}
		return surface, nil
	}, s, quick))(t)
	within(t, "accuracy of the surface", got.Base.Accuracy, 0.55, 0.85)
	within(t, "gain of a copy, nats", must(got.Gain(0))(t).Mean(), -0.03, 0.01)
	within(t, "gain of states that know more, nats", must(got.Gain(1))(t).Mean(), 0.2, 0.7)
	alone := must(CrossValidate(t.Context(), planted{more}, s, quick))(t)
	within(t, "log-loss of both below that of states alone by", alone.Layers[0].LogLoss-got.Layers[1].LogLoss, 0.02, 0.5)
}

func TestContent(t *testing.T) {
	s := drawSamples(200, 12)
	x := plant(200, 12, 1, nil)
	said := plant(200, 3, 2, func(i int, row []float32) {
		for j := range row {
			row[j] = 0.3*row[j] + x.Row(i)[j] + float32(5*s.Y[i])
		}
	})
	var data []float64
	for i := range 200 {
		for _, v := range said.Row(i) {
			data = append(data, float64(v))
		}
	}
	targets := must(linear.NewDense(200, 3, data))(t)
	fixed := func(Split) (*linear.Dense, error) { return targets, nil }
	// The second layer knows the label, and nothing of what was said beyond it.
	got := must(Content(t.Context(), planted{plant(200, 12, 1, labelSignal(s, 8, 4)), plant(200, 12, 5, labelSignal(s, 8, 4))}, fixed, s, quick))(t)
	within(t, "skill where the words are", got[0].Skill, 0.3, 1)
	within(t, "skill where only the label is", got[1].Skill, -0.1, 0.1)
	within(t, "cosine where only the label is", got[1].Cosine, 0.5, 1)
	if len(got[0].Cosines().Groups) != 200 || len(got[0].Penalty) != 8 {
		t.Errorf("%d rows, %d penalties", len(got[0].Cosines().Groups), len(got[0].Penalty))
	}
}

func TestEquivalent(t *testing.T) {
	s := drawSamples(200, 13)
	d := Outcomes{Rounds: [][]float64{make([]float64, 200), make([]float64, 200)}, Groups: s.Groups, Width: 1}
	for i := range 200 {
		d.Rounds[0][i], d.Rounds[1][i] = 0.01*float64(i%3), 0.01*float64((i+1)%3)
	}
	for _, tt := range []struct {
		margin, width float64
		want          bool
	}{{0.05, 1, true}, {0.005, 1, false}, {0.012, 1, true}, {0.012, 20, false}} {
		d.Width = tt.width
		if e := must(d.Equivalent(tt.margin, Resampling{Resamples: 200}))(t); e.Equivalent != tt.want {
			t.Errorf("a difference of 0.01 within %v, correction %v: %+v, want %v", tt.margin, tt.width, e, tt.want)
		}
	}
	if _, err := d.Equivalent(0, Resampling{}); !errors.Is(err, ErrDesign) {
		t.Errorf("no margin: %v", err)
	}
}

func TestGates(t *testing.T) {
	effect := func(value, p float64) *Effect { return &Effect{stats.Estimate{Value: value}, p} }
	some := func(value, p float64) Evidence { return Evidence{Effect: effect(value, p)} }
	untestable := Evidence{Effect: effect(0, 1), Untestable: "no room"}
	all := Gates{N: 600, Elic: effect(0.15, 0.001), TextFit: some(0.2, 0.001), Text: some(0.1, 0.004), Excess: some(0.1, 0.01), Matched: some(0.05, 0.02), Late: some(0.1, 0.001)}
	with := func(edit func(*Gates)) Gates {
		g := all
		edit(&g)
		return g
	}
	for _, tt := range []struct {
		name  string
		g     Gates
		want  string
		holds []bool
	}{
		{"all five hold", all, Collapse, []bool{true, true, true, true, true}},
		{"599 samples", with(func(g *Gates) { g.N = 599 }), NotTestable, []bool{true, true, true, true, true}},
		{"as few as are enough here", with(func(g *Gates) { g.N, g.Least = 48, 48 }), Collapse, []bool{true, true, true, true, true}},
		{"no text effect", with(func(g *Gates) { g.Text = some(0.01, 0.6) }), NotSeparable, []bool{true, false, true, true, true}},
		{"an effect below zero", with(func(g *Gates) { g.Excess = some(-0.1, 0.001) }), NotSeparable, []bool{true, true, false, true, true}},
		{"no Δlate", with(func(g *Gates) { g.Late = some(0, 0.7) }), NotSeparable, []bool{true, true, true, true, false}},
		{"significant before Holm only", with(func(g *Gates) { g.Excess, g.Matched = some(0.1, 0.04), some(0.1, 0.04) }), NotSeparable, []bool{true, true, false, false, true}},
		{"no text-only classifier", with(func(g *Gates) { g.TextFit = Evidence{} }), NotTestable, []bool{false, true, true, true, true}},
		{"no matched attribute and no text effect", with(func(g *Gates) { g.Matched, g.Text = Evidence{}, some(0, 1) }), NotTestable, []bool{true, false, true, false, true}},
		{"nothing to explain", with(func(g *Gates) { g.Elic = effect(0.01, 0.5) }), NotTestable, []bool{true, true, true, true, true}},
		{"p is not a number", with(func(g *Gates) { g.Text = some(0.1, math.NaN()) }), NotSeparable, []bool{true, false, true, true, true}},
		{"a gate without room", with(func(g *Gates) { g.Text = untestable }), NotTestable, []bool{true, false, true, true, true}},
		{"one without room, another that fails", with(func(g *Gates) { g.Text, g.Excess, g.Matched = untestable, some(0, 0.9), some(0.1, 0.001) }), NotSeparable, []bool{true, false, false, true, true}},
		{"nothing measured", Gates{}, NotTestable, []bool{false, false, false, false, false}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			v := tt.g.Judge()
			var holds []bool
			for _, g := range v.Gates {
				holds = append(holds, g.Holds)
			}
			if v.Sentence != tt.want || !reflect.DeepEqual(holds, tt.holds) {
				t.Errorf("%q with gates %v, want %q with %v; reasons %q", v.Sentence, holds, tt.want, tt.holds, v.Reasons)
			}
			if (len(v.Reasons) == 0) != (tt.want == Collapse) {
				t.Errorf("reasons %q", v.Reasons)
			}
		})
	}
}

func TestMaxStatisticIsBelowBonferroni(t *testing.T) {
	// Ten equal layers are one test.
	rng := rand.New(rand.NewPCG(1, 1))
	d, groups := make([]float64, 60), make([]string, 60)
	for i := range d {
		d[i], groups[i] = rng.NormFloat64()+0.35, fmt.Sprint(i/2)
	}
	layer := func(rows []float64) Outcomes { return Outcomes{[][]float64{rows}, groups, 1} }
	many := must(MaxStatistic(slices.Repeat([]Outcomes{layer(d)}, 10), Resampling{Resamples: 2000}))(t)
	one := must(stats.SignFlip(d, groups, 2000, 1))(t)
	within(t, "p of ten equal layers, less that of one", many[3]-one, -0.02, 0.02)
	if p := must(MaxStatistic([]Outcomes{layer(make([]float64, 60))}, Resampling{Resamples: 50}))(t); p[0] != 1 {
		t.Errorf("no difference at all has p %v", p[0])
	}
	if _, err := MaxStatistic([]Outcomes{{[][]float64{{math.NaN()}}, []string{"a"}, 1}}, Resampling{}); !errors.Is(err, ErrDesign) {
		t.Errorf("NaN: %v", err)
	}
}

// decomposed takes the outcomes of cells apart, as findings do.
func decomposed(values map[Pair]Outcomes, r Resampling) (Decomposition, error) {
	parts, err := differencesOf(values)
	if err != nil {
		return Decomposition{}, err
	}
	return testParts(parts, r)
}

// The evidence that shows least decides: an effect that is not above zero is never replaced
// by one above it, however large its p.
func TestLeastOf(t *testing.T) {
	tested := func(value, p float64) Effect { return Effect{stats.Estimate{Value: value}, p} }
	for _, c := range []struct {
		of   []Effect
		want float64
	}{
		{[]Effect{tested(-0.1, 0.2), tested(0.3, 0.9)}, -0.1},
		{[]Effect{tested(0.3, 0.9), tested(-0.1, 0.2)}, -0.1},
		{[]Effect{tested(-0.1, 0.2), tested(-0.2, 0.01)}, -0.2},
		{[]Effect{tested(0.1, 0.01), tested(0.3, 0.4)}, 0.3},
	} {
		if e := leastOf(c.of); e.Value != c.want {
			t.Errorf("of %v it is %v, want %v", c.of, e.Value, c.want)
		}
	}
	if leastOf(nil) != nil {
		t.Error("nothing has a least")
	}
}

// lostShare has the ratio as its mean, and the delta method's spread: of 400 rows whose
// losses are drawn, the ratios of resamples have the same standard deviation.
func TestLostShare(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 5))
	lost, before, groups := make([]float64, 400), make([]float64, 400), make([]string, 400)
	for i := range lost {
		groups[i] = fmt.Sprint(i)
		if r.Float64() < 0.8 {
			before[i] = 1
			if r.Float64() < 0.5 {
				lost[i] = 1
			}
		}
	}
	of := func(v []float64) Outcomes { return Outcomes{[][]float64{v}, groups, 1} }
	share, ok := lostShare(of(lost), of(before), 1.0/3)
	want := mean(lost) / (mean(before) - 1.0/3)
	if !ok || math.Abs(share.Mean()-want) > 1e-12 {
		t.Fatalf("%v %v, want %v", share.Mean(), ok, want)
	}
	spread, sum, square := 0.0, 0.0, 0.0
	for _, v := range share.Rounds[0] {
		spread += (v - want) * (v - want)
	}
	const draws = 4000
	for range draws {
		l, b := 0.0, 0.0
		for range 400 {
			i := r.IntN(400)
			l, b = l+lost[i]/400, b+before[i]/400
		}
		s := l / (b - 1.0/3)
		sum, square = sum+s/draws, square+s*s/draws
	}
	within(t, "the standard deviation over that of resamples", math.Sqrt(spread)/400/math.Sqrt(square-sum*sum), 0.93, 1.07)
	if _, ok := lostShare(of(lost), of(make([]float64, 400)), 1.0/3); ok {
		t.Error("there is a share of nothing")
	}
}
