package direction

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"gonum.org/v1/gonum/floats"

	"github.com/ccmed/ccmed/bench/dialogue"
	"github.com/ccmed/ccmed/bench/run"
	"github.com/ccmed/ccmed/infer"
	"github.com/ccmed/ccmed/probe"
	"github.com/ccmed/ccmed/probe/activation"
	"github.com/ccmed/ccmed/probe/linear"
)

// LeastGroups is how many scenario contexts a direction is learnt from at least.
const LeastGroups = 60

// Numbers of controls by kind.
const (
	shuffles   = 10
	isotropics = 5
)

// Options of Learn.
type Options struct {
	Kind   string        // Mean, Weights, LEACE or Speak
	Layers []string      // blocks
	Scope  []infer.Scope // nil means the prompt's end and, but for Speak, what is generated
	Seed   uint64        // of the controls
	Design probe.Design  // of the probe of Weights
}

// Learn learns from the states at the end of the ND prompts of a store, or of Speak at the end
// of questions whether a mediator should speak.
func Learn(ctx context.Context, dir *run.Dir, o Options) (f *File, err error) {
	if split := dir.Manifest().Identity.Options["split"]; split == dialogue.Evaluate {
		return nil, fmt.Errorf("%s holds the dialogues that effects are measured on; extract a store of --split %s to learn from", dir.Path(), dialogue.Training)
	}
	var states *probe.CellStates
	if o.Kind == Speak {
		states, err = probe.OpenTiming(dir, o.Layers)
	} else {
		states, err = probe.OpenCell(dir, activation.Cell{Context: probe.ContextND, Text: probe.TextPrompt, Position: probe.PromptEnd, Kind: activation.Residual}, o.Layers)
	}
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, states.Close()) }()
	hash, err := dir.SamplesHash()
	if err != nil {
		return nil, err
	}
	return learn(ctx, states, hash, o)
}

// learner holds what the layers share.
type learner struct {
	*File
	Options
	states *probe.CellStates
	// shuffled are the labels in other orders.
	shuffled [][]int
}

func newTensors() map[string]activation.Tensor { return map[string]activation.Tensor{} }

func learn(ctx context.Context, states *probe.CellStates, store string, o Options) (*File, error) {
	if !slices.Contains([]string{Mean, Weights, LEACE, Speak}, o.Kind) {
		return nil, fmt.Errorf("unknown kind of direction %q; known are %s, %s, %s and %s", o.Kind, Mean, Weights, LEACE, Speak)
	}
	if len(o.Layers) == 0 {
		return nil, errors.New("no layer named; name a block, such as block.15")
	}
	if o.Scope == nil {
		o.Scope = []infer.Scope{infer.ScopePromptEnd, infer.ScopeGenerated}
		if o.Kind == Speak {
			o.Scope = o.Scope[:1] // the answer is one token, which nothing follows
		}
	}
	groups := slices.Compact(slices.Sorted(slices.Values(states.Groups)))
	if len(groups) < LeastGroups {
		return nil, fmt.Errorf("the store has dialogues of %d scenario contexts; a direction is learnt from at least %d: extract more dialogues", len(groups), LeastGroups)
	}
	l := &learner{Options: o, states: states, File: &File{tensors: newTensors(), Card: Card{Schema: schema, Kind: o.Kind, Model: states.Spec.Model, Width: states.Spec.Width,
		Layers: o.Layers, Norms: map[string][]float64{}, Store: store, Cell: states.Spec.Cell, Items: len(slices.Compact(slices.Sorted(slices.Values(states.Items)))), Groups: groups, Seed: o.Seed}}}
	for _, s := range o.Scope {
		l.File.Scope = append(l.File.Scope, string(s))
	}
	for k := range shuffles {
		l.shuffled = append(l.shuffled, shuffled(states, o.Kind, rand.New(rand.NewPCG(o.Seed, uint64(k)))))
	}
	for k, layer := range o.Layers {
		if _, err := block(layer); err != nil {
			return nil, err
		}
		x, err := states.Layer(ctx, k)
		if err == nil {
			err = x.Check()
		}
		if err == nil {
			l.StateNorms = append(l.StateNorms, meanNorm(x))
			err = l.layer(ctx, layer, x)
		}
		if err != nil {
			return nil, fmt.Errorf("learn from layer %s: %w", layer, err)
		}
	}
	return l.File, l.check()
}

// shuffled are the labels in another order: of all rows, or of Speak within each dialogue.
func shuffled(states *probe.CellStates, kind string, rng *rand.Rand) []int {
	y := slices.Clone(states.Y)
	rows := map[string][]int{}
	var order []string
	for i, item := range states.Items {
		if kind != Speak {
			item = ""
		}
		if rows[item] == nil {
			order = append(order, item)
		}
		rows[item] = append(rows[item], i)
	}
	for _, item := range order {
		in := rows[item]
		rng.Shuffle(len(in), func(i, j int) { y[in[i]], y[in[j]] = y[in[j]], y[in[i]] })
	}
	return y
}

// speak keeps the gold turns' states less those of earlier turns, each dialogue's mean
// counting once.
func (l *learner) speak(layer string, x *linear.Dense32) error {
	v, err := l.goldLessEarlier(x, l.states.Y)
	if err != nil {
		return err
	}
	others := make([][]float64, len(l.shuffled))
	for k, y := range l.shuffled {
		if others[k], err = l.goldLessEarlier(x, y); err != nil {
			return err
		}
	}
	norm := floats.Norm(v, 2)
	if norm == 0 {
		return errors.New("gold and earlier turns have the same states: there is no direction")
	}
	l.vectors(layer, Speak, v, norm, 0, func(k int) []float64 { return others[k] })
	return nil
}

func (l *learner) goldLessEarlier(x *linear.Dense32, y []int) ([]float64, error) {
	earlier, gold := map[string]float64{}, map[string]float64{}
	for i, item := range l.states.Items {
		if y[i] == probe.Gold {
			gold[item]++
		} else {
			earlier[item]++
		}
	}
	dialogues := 0.0
	for item := range gold {
		if earlier[item] > 0 {
			dialogues++
		}
	}
	if dialogues == 0 {
		return nil, errors.New("no dialogue has a gold turn and one before it")
	}
	out := make([]float64, l.Width)
	for i, item := range l.states.Items {
		switch {
		case gold[item] == 0 || earlier[item] == 0:
		case y[i] == probe.Gold:
			x.AddScaled(out, 1/gold[item]/dialogues, i)
		default:
			x.AddScaled(out, -1/earlier[item]/dialogues, i)
		}
	}
	return out, nil
}

func (l *learner) layer(ctx context.Context, layer string, x *linear.Dense32) error {
	switch l.Kind {
	case LEACE:
		return l.erase(ctx, layer, x)
	case Speak:
		return l.speak(layer, x)
	}
	own, shuffled := meansOf(x, l.states.Samples), [][][]float64{}
	for _, y := range l.shuffled {
		shuffled = append(shuffled, meansOf(x, probe.Samples{Y: y, Classes: l.states.Samples.Classes}))
	}
	norms := make([]float64, len(own))
	for c, v := range own {
		norms[c] = floats.Norm(v, 2)
	}
	if l.Kind == Weights {
		models, err := l.Design.FitWhole(ctx, x, l.states.Samples, l.shuffled...)
		if err != nil {
			return err
		}
		own = models[0].W
		for k, m := range models[1:] {
			shuffled[k] = m.W
		}
	}
	for c, name := range l.states.Classes {
		if norms[c] == 0 {
			return fmt.Errorf("the mean of the class %s is that of all: there is no direction", name)
		}
		l.vectors(layer, name, own[c], norms[c], uint64(c), func(k int) []float64 { return shuffled[k][c] })
	}
	return nil
}

// vectors keeps a class's direction and its controls, all of one length.
func (l *learner) vectors(layer, class string, v []float64, norm float64, stream uint64, shuffled func(int) []float64) {
	l.keep(layer, class, v, norm)
	l.keep(layer, class+":negated", floats.ScaleTo(make([]float64, len(v)), -1, v), norm)
	for k := range shuffles {
		l.keep(layer, fmt.Sprintf("%s:shuffled-%d", class, k+1), shuffled(k), norm)
	}
	at, _ := block(layer)
	rng := rand.New(rand.NewPCG(l.Options.Seed, isotropicStream+uint64(at)<<8+stream))
	for k := range isotropics {
		l.keep(layer, fmt.Sprintf("%s:isotropic-%d", class, k+1), gaussian(rng, len(v)), norm)
	}
}

// isotropicStream keeps these random numbers apart from those of the shuffled labels.
const isotropicStream = 1 << 32

func gaussian(rng *rand.Rand, d int) []float64 {
	out := make([]float64, d)
	for j := range out {
		out[j] = rng.NormFloat64()
	}
	return out
}

// keep keeps a vector with that length.
func (l *learner) keep(layer, class string, v []float64, norm float64) {
	scaled := floats.ScaleTo(make([]float64, len(v)), norm/floats.Norm(v, 2), v)
	l.put(layer, class, partAdd, scaled)
	l.note(class, norm)
}

// note keeps a class and the norm of its edit at one more layer.
func (l *learner) note(class string, norm float64) {
	if !slices.Contains(l.Classes, class) {
		l.Classes = append(l.Classes, class)
	}
	l.Norms[class] = append(l.Norms[class], norm)
}

// meanNorm is the mean length of the rows.
func meanNorm(x *linear.Dense32) float64 {
	n, _ := x.Dims()
	sum := 0.0
	for i := range n {
		square := 0.0
		for _, v := range x.Row(i) {
			square += float64(v) * float64(v)
		}
		sum += math.Sqrt(square)
	}
	return sum / float64(n)
}

// meansOf are the class means less the mean of all rows.
func meansOf(x *linear.Dense32, s probe.Samples) [][]float64 {
	n, d := x.Dims()
	out, count := make([][]float64, s.Classes), make([]float64, s.Classes)
	grand := make([]float64, d)
	for c := range out {
		out[c] = make([]float64, d)
	}
	for i, c := range s.Y {
		count[c]++
		x.AddScaled(out[c], 1, i)
		x.AddScaled(grand, 1/float64(n), i)
	}
	for c, v := range out {
		if count[c] > 0 {
			floats.Scale(1/count[c], v)
			floats.Sub(v, grand)
		}
	}
	return out
}

// erase keeps the erasure of the class, those of shuffled labels, and random projections of
// the same rank about the same mean.
func (l *learner) erase(ctx context.Context, layer string, x *linear.Dense32) error {
	_, d := x.Dims()
	e, err := linear.Erase(ctx, x, l.states.Y, l.states.Samples.Classes)
	if err != nil {
		return err
	}
	l.keepErasure(layer, Erased, e)
	for k, y := range l.shuffled {
		shuffled, err := linear.Erase(ctx, x, y, l.states.Samples.Classes)
		if err != nil {
			return err
		}
		l.keepErasure(layer, fmt.Sprintf("%s:shuffled-%d", Erased, k+1), shuffled)
	}
	at, _ := block(layer)
	rng := rand.New(rand.NewPCG(l.Options.Seed, isotropicStream+uint64(at)<<8))
	for k := range isotropics {
		random := &linear.Erasure{Mean: e.Mean}
		for range e.U {
			v := gaussian(rng, d)
			for _, u := range random.U {
				floats.AddScaled(v, -floats.Dot(u, v), u)
			}
			floats.Scale(1/floats.Norm(v, 2), v)
			random.U, random.V = append(random.U, v), append(random.V, v)
		}
		l.keepErasure(layer, fmt.Sprintf("%s:isotropic-%d", Erased, k+1), random)
	}
	return nil
}

// keepErasure keeps an erasure with the Frobenius norm of U·Vᵀ.
func (l *learner) keepErasure(layer, class string, e *linear.Erasure) {
	l.put(layer, class, partU, e.U...)
	l.put(layer, class, partV, e.V...)
	l.put(layer, class, partMean, e.Mean)
	square := 0.0
	for i := range e.U {
		for j := range e.U {
			square += floats.Dot(e.U[i], e.U[j]) * floats.Dot(e.V[i], e.V[j])
		}
	}
	l.note(class, math.Sqrt(square))
}
