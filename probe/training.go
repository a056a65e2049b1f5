package probe

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"

	"golang.org/x/sync/errgroup"
	"gonum.org/v1/gonum/floats"

	"github.com/ccmed/ccmed/probe/linear"
)

// Layers gives the states of one cell, layer by layer, each when it is needed:
// all of them rarely fit into memory. It is safe for concurrent use.
type Layers interface {
	// Names returns the layers in the model's order.
	Names() []string
	// Layer returns the states of layer k, one row a sample. They are not changed.
	Layer(ctx context.Context, k int) (*linear.Dense32, error)
}

// Samples says what the rows of a layer are.
type Samples struct {
	Y       []int    // labels, 0..Classes-1
	Classes int      // at least 2
	Groups  []string // rows of one group are never in training and held out at once
}

// Design says how probes are trained and evaluated. The zero value means the
// defaults.
type Design struct {
	Folds int       // of whole groups, stratified; 0 means 5
	Seeds []uint64  // one partition into folds each; nil means 1 to 5
	CPath []float64 // penalties to choose from; nil means 1e-4 to 1 in five steps
	// Inner is the number of parts of whole groups into which a training part is
	// divided, fewer where it has too few groups; one of them chooses C, and the peak
	// layer. 0 means 5; 1 means no choice, for a single C.
	Inner    int
	Shuffles int // shuffled-label baselines; 0 means 1, negative none
	// Train and Eval, when not empty, are the rows of a train→evaluate design, which
	// takes the place of the folds.
	Train, Eval []int
	Tol         float64 // of linear.PathOptions
	Workers     int     // layers at the same time; 0 means one a processor

	// moved changes the states for a split; nil leaves them.
	moved func(x *linear.Dense32, split Split) (*linear.Dense32, error)
}

func (d Design) withDefaults() Design {
	if d.Folds == 0 {
		d.Folds = 5
	}
	if d.Seeds == nil {
		d.Seeds = []uint64{1, 2, 3, 4, 5}
	}
	if d.CPath == nil {
		d.CPath = []float64{1e-4, 1e-3, 1e-2, 1e-1, 1}
	}
	if d.Inner == 0 {
		d.Inner = 5
	}
	if d.Shuffles == 0 {
		d.Shuffles = 1
	}
	if d.Workers <= 0 {
		d.Workers = runtime.GOMAXPROCS(0)
	}
	return d
}

// Split is one training part and the rows held out from it. Cells that are
// compared share their splits.
type Split struct {
	Round       int // which seed's partition it belongs to
	Train, Test []int
	Fit, Tune   []int // the inner split of Train; empty without one
}

// ErrDesign reports samples that a design cannot be used on.
var ErrDesign = errors.New("probe: the design does not fit the samples")

// Splits returns the splits of the samples: Folds for each seed, or the one of
// Train and Eval. An error wraps linear.ErrFolds where a class has too few groups.
func (d Design) Splits(s Samples) ([]Split, error) {
	d = d.withDefaults()
	if err := s.check(); err != nil {
		return nil, err
	}
	if d.Inner < 2 && len(d.CPath) > 1 {
		return nil, fmt.Errorf("%w: %d values of C and no inner split to choose by; give one value, or at least 2 inner parts", ErrDesign, len(d.CPath))
	}
	if len(d.Train)+len(d.Eval) > 0 {
		return d.trainEval(s)
	}
	var out []Split
	for round, seed := range d.Seeds {
		folds, err := linear.GroupKFold(s.Y, s.Groups, d.Folds, seed)
		if err != nil {
			return nil, fmt.Errorf("probe: %d folds: %w", d.Folds, err)
		}
		for f := range d.Folds {
			train, test := linear.Split(folds, f)
			split := Split{Round: round, Train: train, Test: test}
			if err := d.inner(s, &split, seed); err != nil {
				return nil, err
			}
			out = append(out, split)
		}
	}
	return out, nil
}

func (d Design) trainEval(s Samples) ([]Split, error) {
	seen := map[int]bool{}
	for _, i := range slices.Concat(d.Train, d.Eval) {
		if i < 0 || i >= len(s.Y) || seen[i] {
			return nil, fmt.Errorf("%w: row %d is named twice, or is not among the %d samples", ErrDesign, i, len(s.Y))
		}
		seen[i] = true
	}
	if len(d.Train) == 0 || len(d.Eval) == 0 {
		return nil, fmt.Errorf("%w: %d rows to train on and %d to evaluate; both are needed", ErrDesign, len(d.Train), len(d.Eval))
	}
	split := Split{Train: d.Train, Test: d.Eval}
	if err := d.inner(s, &split, d.Seeds[0]); err != nil {
		return nil, err
	}
	return []Split{split}, nil
}

// inner divides the training part of a split.
func (d Design) inner(s Samples, split *Split, seed uint64) error {
	if d.Inner < 2 {
		return nil
	}
	var folds []int
	err := linear.ErrFolds
	// Small training parts have too few groups for so many: fewer will do.
	for parts := d.Inner; parts >= 2 && errors.Is(err, linear.ErrFolds); parts-- {
		folds, err = linear.GroupKFold(linear.At(s.Y, split.Train), linear.At(s.Groups, split.Train), parts, seed)
	}
	if err != nil {
		return fmt.Errorf("probe: choosing C on a part of %d training samples: %w", len(split.Train), err)
	}
	fit, tune := linear.Split(folds, 0)
	split.Fit, split.Tune = linear.At(split.Train, fit), linear.At(split.Train, tune)
	return nil
}

func (s Samples) check() error {
	if len(s.Y) != len(s.Groups) {
		return fmt.Errorf("%w: %d labels and %d groups", ErrDesign, len(s.Y), len(s.Groups))
	}
	count := make([]int, max(0, s.Classes))
	for i, y := range s.Y {
		if y < 0 || y >= s.Classes {
			return fmt.Errorf("%w: label %d of row %d is not in 0..%d", ErrDesign, y, i, s.Classes-1)
		}
		count[y]++
	}
	occurring := 0
	for _, n := range count {
		if n > 0 {
			occurring++
		}
	}
	if occurring < 2 {
		return fmt.Errorf("%w: %d samples have %d class; there is nothing to tell apart", ErrDesign, len(s.Y), occurring)
	}
	return nil
}

// Validation is the outcome of CrossValidate.
type Validation struct {
	Layers   []*LayerResult   // in the order of Layers.Names
	Shuffled [][]*LayerResult // the same with shuffled labels: [shuffle][layer]
	Majority *LayerResult     // the training part's class frequencies
	Splits   []Split
}

// CrossValidate trains and evaluates a probe of every layer on the design's
// splits. True and shuffled labels are solved together; labels are shuffled over
// all samples, seeded by the design's first seed.
//
// An error names layer and row of a value that is not finite, and wraps
// linear.ErrFolds for a class with fewer groups than folds or ErrDesign for a
// single class.
func CrossValidate(ctx context.Context, layers Layers, s Samples, d Design) (*Validation, error) {
	splits, err := d.Splits(s)
	if err != nil {
		return nil, err
	}
	d = d.withDefaults()
	sets := []labelled{{y: s.Y}}
	for k := range max(0, d.Shuffles) {
		y := slices.Clone(s.Y)
		rng := rand.New(rand.NewPCG(d.Seeds[0], shuffleStream+uint64(k)))
		rng.Shuffle(len(y), func(i, j int) { y[i], y[j] = y[j], y[i] })
		sets = append(sets, labelled{y: y})
	}
	results, err := d.train(ctx, layers, s, sets, splits)
	if err != nil {
		return nil, err
	}
	majority, err := majority(s, splits)
	if err != nil {
		return nil, err
	}
	return &Validation{Layers: results[0], Shuffled: results[1:], Majority: majority, Splits: splits}, nil
}

// Streams of random numbers of this package, apart from those of folds.
const (
	shuffleStream = 0x73687566 << 8
	controlStream = 0x636f6e74 << 8
	orderStream   = 0x6f726472 << 8
)

// labelled is a label set, with logits beside it that depend on the split.
type labelled struct {
	y      []int
	offset func(split int) []float64
}

// train fits every label set on every split of every layer: found[set][layer].
func (d Design) train(ctx context.Context, layers Layers, s Samples, sets []labelled, splits []Split) ([][]*LayerResult, error) {
	names := layers.Names()
	results := make([][]*LayerResult, len(sets))
	for k := range results {
		results[k] = make([]*LayerResult, len(names))
	}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(d.Workers)
	for k, name := range names {
		g.Go(func() error {
			x, err := layers.Layer(ctx, k)
			if err == nil {
				err = d.trainLayer(ctx, x, s, sets, splits, func(set int, r *LayerResult) {
					r.Layer = name
					results[set][k] = r
				})
			}
			if err != nil {
				return fmt.Errorf("probe: layer %s: %w", name, err)
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	return results, nil
}

func (d Design) trainLayer(ctx context.Context, x *linear.Dense32, s Samples, sets []labelled, splits []Split, done func(int, *LayerResult)) error {
	if n, _ := x.Dims(); n != len(s.Y) {
		return fmt.Errorf("%d rows of states for %d samples", n, len(s.Y))
	}
	results := make([]*LayerResult, len(sets))
	for k, set := range sets {
		results[k] = newLayerResult(Samples{set.y, s.Classes, s.Groups}, splits)
	}
	for number, split := range splits {
		labels := make([]linear.Labels, len(sets))
		for k, set := range sets {
			labels[k].Y = set.y
			if set.offset != nil {
				labels[k].Offset = set.offset(number)
			}
		}
		states := x
		if d.moved != nil {
			var err error
			if states, err = d.moved(x, split); err != nil {
				return err
			}
		}
		fits, inner, err := d.trainSplit(ctx, states, labels, s.Classes, split)
		if err != nil {
			return err
		}
		for k, f := range fits {
			results[k].C = append(results[k].C, f.C)
			results[k].keep(split, f.Held)
			if inner != nil {
				results[k].Inner = append(results[k].Inner, inner[k])
			}
		}
	}
	for k, r := range results {
		if err := r.score(); err != nil {
			return err
		}
		done(k, r)
	}
	return nil
}

// trainSplit returns the fit of each label set at the C that its inner part
// chooses, with the score there; without an inner part the scores are nil.
func (d Design) trainSplit(ctx context.Context, x *linear.Dense32, labels []linear.Labels, classes int, split Split) ([]*linear.Fitted, []linear.Score, error) {
	chosen, inner, err := d.choose(ctx, x, labels, classes, split)
	if err != nil {
		return nil, nil, err
	}
	part, err := linear.NewPart(ctx, x, split.Train, split.Test)
	if err != nil {
		return nil, nil, err
	}
	// Penalties weaker than every choice are not needed.
	var path []float64
	for _, c := range d.CPath {
		if c <= slices.Max(chosen) {
			path = append(path, c)
		}
	}
	fits, err := part.Path(ctx, labels, classes, path, linear.PathOptions{Tol: d.Tol})
	if err != nil {
		return nil, nil, err
	}
	out := make([]*linear.Fitted, len(labels))
	for k, c := range chosen {
		out[k] = fits[k][slices.Index(path, c)]
	}
	return out, inner, nil
}

// choose returns C for each label set: the least log-loss on the inner part, the
// stronger penalty of equals. Without an inner part it is the strongest penalty.
func (d Design) choose(ctx context.Context, x *linear.Dense32, labels []linear.Labels, classes int, split Split) ([]float64, []linear.Score, error) {
	if len(split.Tune) == 0 {
		return slices.Repeat([]float64{slices.Min(d.CPath)}, len(labels)), nil, nil
	}
	part, err := linear.NewPart(ctx, x, split.Fit, split.Tune)
	if err != nil {
		return nil, nil, err
	}
	cs := slices.Sorted(slices.Values(d.CPath))
	fits, err := part.Path(ctx, labels, classes, cs, linear.PathOptions{Tol: d.Tol})
	if err != nil {
		return nil, nil, err
	}
	chosen, inner := make([]float64, len(labels)), make([]linear.Score, len(labels))
	for k := range labels {
		inner[k].LogLoss = math.Inf(1)
		for _, f := range fits[k] {
			score, err := f.Held.Score(linear.At(labels[k].Y, split.Tune))
			if err != nil {
				return nil, nil, err
			}
			if score.LogLoss < inner[k].LogLoss {
				inner[k], chosen[k] = score, f.C
			}
		}
	}
	return chosen, inner, nil
}

// majority predicts the class frequencies of the training part.
func majority(s Samples, splits []Split) (*LayerResult, error) {
	r := newLayerResult(s, splits)
	r.Layer = "majority"
	for _, split := range splits {
		p := make([]float64, s.Classes)
		for _, i := range split.Train {
			p[s.Y[i]]++
		}
		floats.Scale(1/float64(len(split.Train)), p)
		held := &linear.Predictions{Classes: s.Classes}
		for range split.Test {
			held.P = append(held.P, p...)
		}
		r.keep(split, held)
	}
	return r, r.score()
}
