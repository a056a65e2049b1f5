package probe

import (
	"context"
	"fmt"
	"math"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/ccmed/ccmed/probe/linear"
)

// ContentResult is how well one layer's states give away what was said.
type ContentResult struct {
	Layer  string  `json:"layer"`
	Cosine float64 `json:"cosine"` // mean of centred predictions and embeddings
	// Compared is the number of rows beside which other rows of their label were held
	// out in every round. Permuted is the mean cosine with the embeddings of those
	// others, Skill (cosine − Permuted) / (1 − Permuted), both over the Compared rows;
	// of none they are not computed and NaN.
	Compared int       `json:"compared"`
	Permuted float64   `json:"permuted"`
	Skill    float64   `json:"skill"`
	Penalty  []float64 `json:"penalty"` // chosen, one a split
	own      Outcomes
	beyond   Outcomes
}

// Cosines returns the cosine of each row.
func (r *ContentResult) Cosines() Outcomes { return r.own }

// Beyond returns the cosine of each of the Compared rows minus its mean cosine with
// the embeddings of other rows of its label.
func (r *ContentResult) Beyond() Outcomes { return r.beyond }

// contentPenalties are the ridge penalties to choose from, as multiples of the
// number of features, which is the mean eigenvalue of a standardised Gram matrix.
var contentPenalties = []float64{0.01, 0.1, 1, 10, 100}

// Content predicts an embedding of the utterance from the states by ridge
// regression. targets gives the embeddings of all rows for a split, so that an
// embedder that is fitted can be fitted on the split's training part; predictions
// and embeddings are centred on the training part's mean. The penalty is the one
// with the highest cosine on the inner part. Every held-out row is compared with
// the embeddings of all other held-out rows of its label and split, which is the
// mean over permutations within labels.
func Content(ctx context.Context, layers Layers, targets func(Split) (*linear.Dense, error), s Samples, d Design) ([]*ContentResult, error) {
	splits, err := d.Splits(s)
	if err != nil {
		return nil, err
	}
	d = d.withDefaults()
	if d.Inner < 2 {
		return nil, fmt.Errorf("%w: a content probe needs an inner split to choose its penalty", ErrDesign)
	}
	embeddings := make([]*linear.Dense, len(splits))
	for k, split := range splits {
		if embeddings[k], err = targets(split); err != nil {
			return nil, fmt.Errorf("probe: embeddings: %w", err)
		}
		if n, _ := embeddings[k].Dims(); n != len(s.Y) {
			return nil, fmt.Errorf("%w: %d embeddings for %d samples", ErrDesign, n, len(s.Y))
		}
	}
	names := layers.Names()
	out := make([]*ContentResult, len(names))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(d.Workers)
	for k, name := range names {
		g.Go(func() error {
			x, err := layers.Layer(ctx, k)
			if err == nil {
				out[k], err = content(ctx, x, embeddings, s, splits)
			}
			if err != nil {
				return fmt.Errorf("probe: layer %s: content: %w", name, err)
			}
			out[k].Layer = name
			return nil
		})
	}
	return out, g.Wait()
}

func content(ctx context.Context, x *linear.Dense32, embeddings []*linear.Dense, s Samples, splits []Split) (*ContentResult, error) {
	n, width := x.Dims()
	if n != len(s.Y) {
		return nil, fmt.Errorf("%d rows of states for %d samples", n, len(s.Y))
	}
	shape := newLayerResult(s, splits)
	r := &ContentResult{}
	own, others := make([][]float64, len(shape.Rounds)), make([][]float64, len(shape.Rounds))
	for k := range own {
		own[k], others[k] = make([]float64, n), make([]float64, n)
	}
	penalties := make([]float64, len(contentPenalties))
	for k, v := range contentPenalties {
		penalties[k] = v * float64(width)
	}
	for k, split := range splits {
		inner, err := linear.NewPart(ctx, x, split.Fit, split.Tune)
		if err != nil {
			return nil, err
		}
		fits, err := inner.Ridge(ctx, embeddings[k], penalties)
		if err != nil {
			return nil, err
		}
		best, penalty := math.Inf(-1), 0.0
		for _, f := range fits {
			if c := mean(newCosines(f.Held, embeddings[k], split.Fit, split.Tune).own()); c > best {
				best, penalty = c, f.Penalty
			}
		}
		r.Penalty = append(r.Penalty, penalty)
		part, err := linear.NewPart(ctx, x, split.Train, split.Test)
		if err != nil {
			return nil, err
		}
		if fits, err = part.Ridge(ctx, embeddings[k], []float64{penalty}); err != nil {
			return nil, err
		}
		c := newCosines(fits[0].Held, embeddings[k], split.Train, split.Test)
		besides := c.others(linear.At(s.Y, split.Test))
		for j, v := range c.own() {
			own[split.Round][split.Test[j]], others[split.Round][split.Test[j]] = v, besides[j]
		}
	}
	compared := slices.DeleteFunc(slices.Clone(shape.tested), func(i int) bool {
		return slices.ContainsFunc(others, func(round []float64) bool { return math.IsNaN(round[i]) })
	})
	r.Compared = len(compared)
	at := func(values [][]float64, rows []int) Outcomes {
		o := Outcomes{Groups: linear.At(s.Groups, rows), Width: shape.width}
		for _, round := range values {
			o.Rounds = append(o.Rounds, linear.At(round, rows))
		}
		return o
	}
	r.own = at(own, shape.tested)
	r.Cosine, r.Permuted, r.Skill = r.own.Mean(), math.NaN(), math.NaN()
	if r.Compared == 0 {
		return r, nil
	}
	besides := at(others, compared)
	var err error
	if r.beyond, err = at(own, compared).Minus(besides); err != nil {
		return nil, err
	}
	r.Permuted = besides.Mean()
	r.Skill = r.beyond.Mean() / (1 - r.Permuted)
	return r, nil
}

func mean(v []float64) float64 {
	sum := 0.0
	for _, x := range v {
		sum += x
	}
	return sum / float64(max(1, len(v)))
}

// cosines holds centred predictions and embeddings of length 1, or 0.
type cosines struct{ guess, truth [][]float64 }

func newCosines(held, all *linear.Dense, train, test []int) cosines {
	_, m := all.Dims()
	centre := make([]float64, m)
	for _, i := range train {
		all.AddScaled(centre, 1/float64(len(train)), i)
	}
	unit := func(row []float64) []float64 {
		u, square := slices.Clone(row), 0.0
		for j := range u {
			u[j] -= centre[j]
			square += u[j] * u[j]
		}
		for j := range u {
			if square > 0 {
				u[j] /= math.Sqrt(square)
			}
		}
		return u
	}
	var c cosines
	for k, i := range test {
		c.guess, c.truth = append(c.guess, unit(held.Row(k))), append(c.truth, unit(all.Row(i)))
	}
	return c
}

func (c cosines) own() []float64 {
	out := make([]float64, len(c.guess))
	for k, g := range c.guess {
		out[k] = max(-1, min(1, dot(g, c.truth[k]))) // lengths are 1 but for rounding
	}
	return out
}

// others returns each row's mean cosine with the other rows of its label, NaN
// where there is none.
func (c cosines) others(y []int) []float64 {
	sum, count := map[int][]float64{}, map[int]int{}
	for k, t := range c.truth {
		if sum[y[k]] == nil {
			sum[y[k]] = make([]float64, len(t))
		}
		for j, v := range t {
			sum[y[k]][j] += v
		}
		count[y[k]]++
	}
	var out []float64
	for k, g := range c.guess {
		v := math.NaN()
		if n := count[y[k]]; n > 1 {
			v = (dot(g, sum[y[k]]) - dot(g, c.truth[k])) / float64(n-1)
		}
		out = append(out, v)
	}
	return out
}

func dot(a, b []float64) float64 {
	sum := 0.0
	for j, v := range a {
		sum += v * b[j]
	}
	return sum
}
