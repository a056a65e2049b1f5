package probe

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/ccmed/ccmed/probe/linear"
)

// ControlLabels gives each type one random label, and all its samples with it
// (Hewitt and Liang 2019). Types are taken in the seed's order, each into the
// class that is furthest below its share of y, so that chance is the same for both
// tasks.
func ControlLabels(y []int, types []string, classes int, seed uint64) ([]int, error) {
	if len(y) != len(types) {
		return nil, fmt.Errorf("%w: %d labels and %d types", ErrDesign, len(y), len(types))
	}
	var names []string
	size := map[string]float64{}
	lack := make([]float64, classes)
	for i, t := range types {
		if size[t] == 0 {
			names = append(names, t)
		}
		size[t]++
		if y[i] < 0 || y[i] >= classes {
			return nil, fmt.Errorf("%w: label %d of row %d is not in 0..%d", ErrDesign, y[i], i, classes-1)
		}
		lack[y[i]]++
	}
	if len(names) < classes {
		return nil, fmt.Errorf("%w: %d types cannot carry %d control labels", ErrDesign, len(names), classes)
	}
	rng := rand.New(rand.NewPCG(seed, controlStream))
	rng.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
	of := map[string]int{}
	for _, t := range names {
		most := 0
		for c, v := range lack {
			if v > lack[most] {
				most = c
			}
		}
		of[t] = most
		lack[most] -= size[t]
	}
	out := make([]int, len(types))
	for i, t := range types {
		out[i] = of[t]
	}
	return out, nil
}

// Selectivity compares the real task with control tasks on the same folds.
type Selectivity struct {
	Real    []*LayerResult   // the real task on these folds
	Control [][]*LayerResult // [control][layer]
	Unseen  int              // held-out rows left out because training had not seen their type
}

// Selective returns the selectivity of layer k: the accuracy of the real task
// minus the mean of the controls'.
func (s *Selectivity) Selective(k int) float64 {
	mean := 0.0
	for _, c := range s.Control {
		mean += c[k].Accuracy / float64(len(s.Control))
	}
	return s.Real[k].Accuracy - mean
}

// Select runs the real task and controls that give a random label to each type.
// Folds keep dialogues, s.Groups, apart but not types: a control can only be
// learnt for types that training has seen, and rows of others are not counted.
func Select(ctx context.Context, layers Layers, s Samples, types []string, controls int, d Design) (*Selectivity, error) {
	if controls < 1 {
		return nil, fmt.Errorf("%w: %d control tasks; at least 1 is needed", ErrDesign, controls)
	}
	splits, err := d.Splits(s)
	if err != nil {
		return nil, err
	}
	d = d.withDefaults()
	sets := []labelled{{y: s.Y}}
	for k := range controls {
		y, err := ControlLabels(s.Y, types, s.Classes, d.Seeds[0]+uint64(k))
		if err != nil {
			return nil, err
		}
		sets = append(sets, labelled{y: y})
	}
	unseen := map[int]bool{}
	for k, split := range splits {
		seen := map[string]bool{}
		for _, i := range split.Train {
			seen[types[i]] = true
		}
		splits[k].Test = slices.DeleteFunc(slices.Clone(split.Test), func(i int) bool {
			if !seen[types[i]] {
				unseen[i] = true
			}
			return !seen[types[i]]
		})
	}
	if len(unseen) == len(s.Y) {
		return nil, fmt.Errorf("%w: no type has two groups; a control task cannot be learnt", ErrDesign)
	}
	results, err := d.train(ctx, layers, s, sets, splits)
	if err != nil {
		return nil, err
	}
	return &Selectivity{Real: results[0], Control: results[1:], Unseen: len(unseen)}, nil
}

// Code is the length of the online code of labels given one layer's states
// (Voita and Titov 2020).
type Code struct {
	Layer       string    `json:"layer"`
	Bits        float64   `json:"bits"`        // mean over orders
	Uniform     float64   `json:"uniform"`     // n·log₂ K
	Compression float64   `json:"compression"` // Uniform / Bits; about 1 without information
	Orders      []float64 `json:"orders"`      // bits of each order
}

// MDL is the code of the real task and, where types were given, of a control task.
type MDL struct {
	Real, Control []Code // one a layer
}

const (
	// codeStart is the number of items of each class from which a probe is trained.
	codeStart = 5
	// leastOrders is the least number of orders whose mean is a code length.
	leastOrders = 5
)

// Describe computes online codes. Groups are put in random order; the first
// block, which ends when each class of each task has five items, costs log₂ K bits
// an item, and each later block, of whole groups and about as long as all before
// it, what a probe of all before it makes of it. Scaler and C come from those
// too; where they cannot be divided to choose C, the strongest penalty is taken.
// d.Folds, Seeds but the first, Shuffles, Train and Eval are not used. types is
// nil for no control; orders below 5 count as 5.
func Describe(ctx context.Context, layers Layers, s Samples, types []string, orders int, d Design) (*MDL, error) {
	if err := s.check(); err != nil {
		return nil, err
	}
	d = d.withDefaults()
	orders = max(orders, leastOrders)
	sets := []linear.Labels{{Y: s.Y}}
	if types != nil {
		y, err := ControlLabels(s.Y, types, s.Classes, d.Seeds[0])
		if err != nil {
			return nil, err
		}
		sets = append(sets, linear.Labels{Y: y})
	}
	blocks := make([][]Split, orders)
	for o := range blocks {
		var err error
		if blocks[o], err = d.blocks(s, sets, uint64(o)); err != nil {
			return nil, err
		}
	}
	names := layers.Names()
	codes := make([][]Code, len(sets))
	uniform := float64(len(s.Y)) * math.Log2(float64(s.Classes))
	for k := range codes {
		codes[k] = make([]Code, len(names))
	}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(d.Workers)
	for k, name := range names {
		g.Go(func() error {
			x, err := layers.Layer(ctx, k)
			if err != nil {
				return fmt.Errorf("probe: layer %s: %w", name, err)
			}
			if n, _ := x.Dims(); n != len(s.Y) {
				return fmt.Errorf("probe: layer %s: %d rows of states for %d samples", name, n, len(s.Y))
			}
			bits := make([][]float64, len(sets))
			for _, order := range blocks {
				one, err := d.code(ctx, x, sets, s.Classes, order)
				if err != nil {
					return fmt.Errorf("probe: layer %s: online code: %w", name, err)
				}
				for set, b := range one {
					bits[set] = append(bits[set], b)
				}
			}
			for set, b := range bits {
				c := Code{Layer: name, Uniform: uniform, Orders: b}
				for _, v := range b {
					c.Bits += v / float64(len(b))
				}
				c.Compression = uniform / c.Bits
				codes[set][k] = c
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	out := &MDL{Real: codes[0]}
	if types != nil {
		out.Control = codes[1]
	}
	return out, nil
}

// blocks returns the splits of one order: Train is the past, Test the block. The
// first one has no past.
func (d Design) blocks(s Samples, sets []linear.Labels, order uint64) ([]Split, error) {
	var groups []string
	rows := map[string][]int{}
	for i, g := range s.Groups {
		if rows[g] == nil {
			groups = append(groups, g)
		}
		rows[g] = append(rows[g], i)
	}
	rng := rand.New(rand.NewPCG(d.Seeds[0], orderStream+order))
	rng.Shuffle(len(groups), func(i, j int) { groups[i], groups[j] = groups[j], groups[i] })

	var items []int
	var out []Split
	start := 0
	end := func() {
		out = append(out, Split{Train: slices.Clone(items[:start]), Test: slices.Clone(items[start:])})
		start = len(items)
	}
	for _, g := range groups {
		items = append(items, rows[g]...)
		if len(out) == 0 && enough(sets, items, s.Classes) || len(out) > 0 && len(items) >= 2*start {
			end()
		}
	}
	if start < len(items) {
		end()
	}
	if len(out) < 2 {
		return nil, fmt.Errorf("%w: %d samples in %d groups leave nothing to code after %d of each class", ErrDesign, len(s.Y), len(groups), codeStart)
	}
	for k := range out[1:] {
		if err := d.inner(s, &out[k+1], d.Seeds[0]); err != nil && !errors.Is(err, linear.ErrFolds) {
			return nil, err
		}
		if !enoughFor(sets, out[k+1].Fit, s.Classes, 1) {
			out[k+1].Fit, out[k+1].Tune = nil, nil
		}
	}
	return out, nil
}

// enough tells whether items have enough of each class of each task.
func enough(sets []linear.Labels, items []int, classes int) bool {
	return enoughFor(sets, items, classes, codeStart)
}

func enoughFor(sets []linear.Labels, items []int, classes, least int) bool {
	for _, set := range sets {
		count := make([]int, classes)
		for _, i := range items {
			count[set.Y[i]]++
		}
		if slices.Min(count) < least {
			return false
		}
	}
	return true
}

// code returns the bits of each label set in one order.
func (d Design) code(ctx context.Context, x *linear.Dense32, sets []linear.Labels, classes int, order []Split) ([]float64, error) {
	bits := slices.Repeat([]float64{float64(len(order[0].Test)) * math.Log2(float64(classes))}, len(sets))
	for _, block := range order[1:] {
		fits, _, err := d.trainSplit(ctx, x, sets, classes, block)
		if err != nil {
			return nil, err
		}
		for k, f := range fits {
			for j, i := range block.Test {
				bits[k] += logLoss(f.Held.Row(j)[sets[k].Y[i]]) / math.Ln2
			}
		}
	}
	return bits, nil
}

// Beyond is what states know beyond surface features.
type Beyond struct {
	Base   *LayerResult   // the surface features alone
	Layers []*LayerResult // states with the base's logits as offset
}

// Gain says by how many nats the log-loss of layer k is below that of the surface
// features alone.
func (b *Beyond) Gain(k int) (Outcomes, error) {
	return b.Base.RoundLogLosses().Minus(b.Layers[k].RoundLogLosses())
}

// Surface returns the surface features of all rows, with a vocabulary of the training rows
// alone. The error wraps linear.ErrNoTerms where these share no words.
type Surface func(train []int) (linear.Rows, error)

// OffsetGain fits a classifier of surface features, such as a bag of words with
// cues of length and position, and then the states beside its log-probabilities.
// Those of a training row come from a classifier that has not seen its group
// (Folds parts of the training part), as those of a held-out row do: otherwise
// the offset would be better in training than it is.
func OffsetGain(ctx context.Context, layers Layers, surface Surface, s Samples, d Design) (*Beyond, error) {
	splits, err := d.Splits(s)
	if err != nil {
		return nil, err
	}
	d = d.withDefaults()
	base := newLayerResult(s, splits)
	base.Layer = "surface"
	offsets := make([][]float64, len(splits))
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(d.Workers)
	for k, split := range splits {
		g.Go(func() error {
			p, err := d.surface(gctx, surface, s, split)
			if err != nil {
				return fmt.Errorf("probe: surface features: %w", err)
			}
			offsets[k] = p.P
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	for k, split := range splits {
		p := &linear.Predictions{Classes: s.Classes, P: offsets[k]}
		for _, i := range split.Test {
			copy(base.Rounds[split.Round].Row(i), p.Row(i))
		}
		offsets[k] = make([]float64, len(p.P))
		for i, v := range p.P {
			offsets[k][i] = -logLoss(v)
		}
	}
	if err := base.score(); err != nil {
		return nil, err
	}
	results, err := d.train(ctx, layers, s, []labelled{{s.Y, func(split int) []float64 { return offsets[split] }}}, splits)
	if err != nil {
		return nil, err
	}
	return &Beyond{base, results[0]}, nil
}

// surfaceC are the penalties for counts and cues, which are few a row and not
// standardised.
var surfaceC = []float64{0.01, 0.1, 1, 10}

// surface predicts every row of a split without having seen its group; rows that
// are in neither part stay 0.
func (d Design) surface(ctx context.Context, features Surface, s Samples, split Split) (*linear.Predictions, error) {
	out := &linear.Predictions{Classes: s.Classes, P: make([]float64, len(s.Y)*s.Classes)}
	// fit fits rows at each penalty and returns their predictions of other rows.
	fit := func(train, rows []int, penalties []float64) ([]*linear.Predictions, error) {
		x, err := features(train)
		if err != nil {
			return nil, err
		}
		if n, _ := x.Dims(); n != len(s.Y) {
			return nil, fmt.Errorf("%w: %d rows of surface features for %d samples", ErrDesign, n, len(s.Y))
		}
		var predictions []*linear.Predictions
		for _, c := range penalties {
			m, err := linear.Fit(ctx, x.Take(train), linear.At(s.Y, train), s.Classes, linear.Options{C: c, Tol: 1e-6})
			if err != nil {
				return nil, err
			}
			p, err := m.Predict(x.Take(rows))
			if err != nil {
				return nil, err
			}
			predictions = append(predictions, p)
		}
		return predictions, nil
	}
	c, best := surfaceC[:1], math.Inf(1)
	if len(split.Tune) > 0 {
		predictions, err := fit(split.Fit, split.Tune, surfaceC)
		if err != nil {
			return nil, err
		}
		for k, p := range predictions {
			score, err := p.Score(linear.At(s.Y, split.Tune))
			if err != nil {
				return nil, err
			}
			if score.LogLoss < best {
				best, c = score.LogLoss, surfaceC[k:k+1]
			}
		}
	}
	predict := func(train, rows []int) error {
		predictions, err := fit(train, rows, c)
		if err != nil {
			return err
		}
		for k, i := range rows {
			copy(out.Row(i), predictions[0].Row(k))
		}
		return nil
	}
	folds, err := linear.GroupKFold(linear.At(s.Y, split.Train), linear.At(s.Groups, split.Train), d.Folds, d.Seeds[0])
	if err != nil {
		return nil, err
	}
	for f := range d.Folds {
		train, test := linear.Split(folds, f)
		if err := predict(linear.At(split.Train, train), linear.At(split.Train, test)); err != nil {
			return nil, err
		}
	}
	return out, predict(split.Train, split.Test)
}
