package probe

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/ccmed/ccmed/bench/stats"
	"github.com/ccmed/ccmed/probe/linear"
)

// stack puts the rows of several cells below each other.
type stack []Layers

func (s stack) Names() []string { return s[0].Names() }

func (s stack) Layer(ctx context.Context, k int) (*linear.Dense32, error) {
	var data []float32
	n, width := 0, 0
	for c, layers := range s {
		x, err := layers.Layer(ctx, k)
		if err != nil {
			return nil, err
		}
		rows, d := x.Dims()
		if c > 0 && d != width {
			return nil, fmt.Errorf("cells of %d and %d features cannot share a probe", width, d)
		}
		width = d
		n += rows
		data = slices.Grow(data, rows*d*(len(s)-c))
		for i := range rows {
			data = append(data, x.Row(i)...)
		}
	}
	return linear.NewDense32(n, width, data)
}

// repeat describes the rows of k stacked cells of the same samples.
func (s Samples) repeat(k int) Samples {
	return Samples{slices.Repeat(s.Y, k), s.Classes, slices.Repeat(s.Groups, k)}
}

func (s stack) check() error {
	for _, layers := range s[1:] {
		if !slices.Equal(layers.Names(), s[0].Names()) {
			return fmt.Errorf("%w: cells have the layers %v and %v", ErrDesign, s[0].Names(), layers.Names())
		}
	}
	return nil
}

// shift returns rows of the cell that starts at row base of a stack.
func shift(rows []int, base int) []int {
	out := make([]int, len(rows))
	for k, i := range rows {
		out[k] = base + i
	}
	return out
}

// Transfer trains on the states of one cell and evaluates on those of another,
// with the splits that both have by themselves: the rows of both are the same
// samples. Accuracy that stays says that the same direction is used. Where the cells'
// states lie apart by a constant, every row falls into one class: recentred moves the
// states of to by the difference of both cells' means over the split's training rows.
func Transfer(ctx context.Context, from, to Layers, s Samples, d Design, recentred bool) ([]*LayerResult, error) {
	splits, err := d.Splits(s)
	if err != nil {
		return nil, err
	}
	for k := range splits {
		splits[k].Test = shift(splits[k].Test, len(s.Y))
	}
	both := stack{from, to}
	if err := both.check(); err != nil {
		return nil, err
	}
	d = d.withDefaults()
	if recentred {
		d.moved = func(x *linear.Dense32, split Split) (*linear.Dense32, error) {
			return recentre(x, split.Train, len(s.Y))
		}
	}
	results, err := d.train(ctx, both, s.repeat(2), []labelled{{y: slices.Repeat(s.Y, 2)}}, splits)
	if err != nil {
		return nil, err
	}
	out := make([]*LayerResult, len(results[0]))
	for k, r := range results[0] {
		if out[k], err = r.cell(s, 1); err != nil {
			return nil, err
		}
	}
	for k := range splits {
		splits[k].Test = shift(splits[k].Test, -len(s.Y))
	}
	for _, r := range out {
		r.TopShare = r.topShare(splits)
	}
	return out, nil
}

// recentre moves the second half of the rows, n and on, so that its mean over the training
// rows is that of the first half.
func recentre(x *linear.Dense32, train []int, n int) (*linear.Dense32, error) {
	rows, width := x.Dims()
	move := make([]float64, width)
	for _, i := range train {
		from, to := x.Row(i), x.Row(n+i)
		for j := range move {
			move[j] += (float64(from[j]) - float64(to[j])) / float64(len(train))
		}
	}
	data := make([]float32, 0, rows*width)
	for i := range rows {
		for j, v := range x.Row(i) {
			if i >= n {
				v = float32(float64(v) + move[j])
			}
			data = append(data, v)
		}
	}
	return linear.NewDense32(rows, width, data)
}

// topShare is the mean over splits of the share of the most frequent prediction among the
// split's tested rows.
func (r *LayerResult) topShare(splits []Split) float64 {
	sum := 0.0
	for _, split := range splits {
		count := make([]int, r.samples.Classes)
		for _, i := range split.Test {
			count[r.Rounds[split.Round].Argmax(i)]++
		}
		sum += float64(slices.Max(count)) / float64(max(1, len(split.Test)))
	}
	return sum / float64(max(1, len(splits)))
}

// Pooled trains one probe on the training rows of all cells together and
// evaluates it in each: found[cell][layer]. The rows of all cells are the same
// samples.
func Pooled(ctx context.Context, cells []Layers, s Samples, d Design) ([][]*LayerResult, error) {
	if len(cells) == 0 {
		return nil, fmt.Errorf("%w: there are no cells", ErrDesign)
	}
	splits, err := d.Splits(s)
	if err != nil {
		return nil, err
	}
	if err := stack(cells).check(); err != nil {
		return nil, err
	}
	for k, split := range splits {
		splits[k] = Split{Round: split.Round}
		for c := range cells {
			base := c * len(s.Y)
			splits[k].Train = append(splits[k].Train, shift(split.Train, base)...)
			splits[k].Test = append(splits[k].Test, shift(split.Test, base)...)
			splits[k].Fit = append(splits[k].Fit, shift(split.Fit, base)...)
			splits[k].Tune = append(splits[k].Tune, shift(split.Tune, base)...)
		}
	}
	results, err := d.withDefaults().train(ctx, stack(cells), s.repeat(len(cells)), []labelled{{y: slices.Repeat(s.Y, len(cells))}}, splits)
	if err != nil {
		return nil, err
	}
	out := make([][]*LayerResult, len(cells))
	for c := range cells {
		for _, r := range results[0] {
			part, err := r.cell(s, c)
			if err != nil {
				return nil, err
			}
			out[c] = append(out[c], part)
		}
	}
	return out, nil
}

// cell returns the part of a result over stacked cells that belongs to one.
func (r *LayerResult) cell(s Samples, c int) (*LayerResult, error) {
	n := len(s.Y)
	out := &LayerResult{Layer: r.Layer, C: r.C, Inner: r.Inner, samples: s, width: r.width}
	for _, i := range r.tested {
		if i/n == c {
			out.tested = append(out.tested, i%n)
		}
	}
	for _, p := range r.Rounds {
		out.Rounds = append(out.Rounds, &linear.Predictions{Classes: p.Classes, P: p.P[c*n*p.Classes : (c+1)*n*p.Classes]})
	}
	return out, out.score()
}

// Late says how a finding changes towards the last layers.
type Late struct {
	// Peak joins the predictions of each split's best layer by inner log-loss, so
	// that the rows it is evaluated on did not choose it.
	Peak       *LayerResult
	PeakLayers []string // one a split
	LastBlock  *LayerResult
	LastThird  Outcomes // hits, mean over the last third of blocks
	Delta      Outcomes // Δlate: peak − last third
}

// Late compares the peak with the last third of the blocks, rounded up, and with
// the last one. Layers called block.* are the blocks; without any, all layers are.
func (v *Validation) Late() (*Late, error) {
	return late(v.Layers, v.Splits)
}

func late(layers []*LayerResult, splits []Split) (*Late, error) {
	var blocks []*LayerResult
	for _, r := range layers {
		if strings.HasPrefix(r.Layer, "block.") {
			blocks = append(blocks, r)
		}
	}
	if len(blocks) == 0 {
		blocks = layers
	}
	if len(blocks) == 0 || len(blocks[0].Inner) != len(splits) {
		return nil, fmt.Errorf("%w: the peak layer needs at least one layer and an inner split", ErrDesign)
	}
	peak := newLayerResult(blocks[0].samples, splits)
	peak.Layer = "peak"
	out := &Late{Peak: peak, LastBlock: blocks[len(blocks)-1]}
	for k, split := range splits {
		best := blocks[0]
		for _, r := range blocks[1:] {
			if r.Inner[k].LogLoss < best.Inner[k].LogLoss {
				best = r
			}
		}
		out.PeakLayers = append(out.PeakLayers, best.Layer)
		peak.C, peak.Inner = append(peak.C, best.C[k]), append(peak.Inner, best.Inner[k])
		for _, i := range split.Test {
			copy(peak.Rounds[split.Round].Row(i), best.Rounds[split.Round].Row(i))
		}
	}
	if err := peak.score(); err != nil {
		return nil, err
	}
	last := blocks[len(blocks)-(len(blocks)+2)/3:]
	var hits []Outcomes
	for _, r := range last {
		hits = append(hits, r.RoundHits())
	}
	var err error
	if out.LastThird, err = meanOf(hits); err != nil {
		return nil, err
	}
	out.Delta, err = peak.RoundHits().Minus(out.LastThird)
	return out, err
}

func difference(a, b []float64) []float64 {
	d := make([]float64, len(a))
	for i := range d {
		d[i] = a[i] - b[i]
	}
	return d
}

// Resampling of intervals and tests.
type Resampling struct {
	Resamples int // 0 means 10000
	Seed      uint64
}

func (r Resampling) withDefaults() Resampling {
	if r.Resamples == 0 {
		r.Resamples = 10_000
	}
	return r
}

func (r Resampling) bootstrap() stats.Bootstrap {
	return stats.Bootstrap{Resamples: r.withDefaults().Resamples, Seed: r.Seed}
}

// Effect is the mean of outcomes or of their paired differences, with its interval
// and the two-sided p that it is zero (Outcomes.Test).
type Effect struct {
	stats.Estimate
	P float64 `json:"p"`
}

// Decomposition takes Δelic, the published difference, apart. What lacks a cell
// is nil. A(c,t) is the mean of the values at the end of text t in context c.
type Decomposition struct {
	Elic *Effect `json:"elic"` // A(D,own-D) − A(ND,own-ND) = Ctx + Text = CtxOwnD + TextND
	Ctx  *Effect `json:"ctx"`  // A(D,own-ND) − A(ND,own-ND): reading the prompt
	Text *Effect `json:"text"` // A(D,own-D) − A(D,own-ND): what the model wrote
	// The other order: CtxOwnD is A(D,own-D) − A(ND,own-D), TextND is A(ND,own-D) −
	// A(ND,own-ND).
	CtxOwnD *Effect `json:"ctx_own_d"`
	TextND  *Effect `json:"text_nd"`
	Placebo *Effect `json:"placebo"` // A(D,fixed) − A(ND,fixed), mean over the fixed lines
	Excess  *Effect `json:"excess"`  // A(ND,fixed) − A(ND,own-ND): what writing lost, fixed lines matched in length
}

// textClosest stands, in decompositions, for the fixed line that is closest in
// length to the model's own; where it is not given the mean over fixed lines is.
const textClosest = "closest"

// differencesOf returns the paired differences of each part that has its cells.
func differencesOf(values map[Pair]Outcomes) (map[string]Outcomes, error) {
	values, err := withPlaceboMean(values)
	if err != nil {
		return nil, err
	}
	fixedD, fixedND, closest := Pair{ContextD, TextPlacebo}, Pair{ContextND, TextPlacebo}, Pair{ContextND, textClosest}
	ownD, crossed, ownND := Pair{ContextD, TextOwnD}, Pair{ContextD, TextOwnND}, Pair{ContextND, TextOwnND}
	crossedND := Pair{ContextND, TextOwnD}
	if _, ok := values[closest]; !ok {
		closest = fixedND
	}
	out := map[string]Outcomes{}
	for part, of := range map[string][2]Pair{
		"elic": {ownD, ownND}, "ctx": {crossed, ownND}, "text": {ownD, crossed}, "ctx_own_d": {ownD, crossedND}, "text_nd": {crossedND, ownND}, "placebo": {fixedD, fixedND}, "excess": {closest, ownND},
	} {
		a, okA := values[of[0]]
		b, okB := values[of[1]]
		if !okA || !okB {
			continue
		}
		if out[part], err = a.Minus(b); err != nil {
			return nil, fmt.Errorf("%v − %v: %w", of[0], of[1], err)
		}
	}
	return out, nil
}

func testParts(parts map[string]Outcomes, r Resampling) (out Decomposition, err error) {
	for part, to := range map[string]**Effect{"elic": &out.Elic, "ctx": &out.Ctx, "text": &out.Text, "ctx_own_d": &out.CtxOwnD, "text_nd": &out.TextND, "placebo": &out.Placebo, "excess": &out.Excess} {
		d, ok := parts[part]
		if !ok {
			continue
		}
		e, err := d.Test(r)
		if err != nil {
			return Decomposition{}, fmt.Errorf("%s: %w", part, err)
		}
		*to = &e
	}
	return out, nil
}

// withPlaceboMean joins the fixed lines of each context under the text placebo.
func withPlaceboMean(values map[Pair]Outcomes) (map[Pair]Outcomes, error) {
	out := map[Pair]Outcomes{}
	fixed := map[string][]Pair{}
	for cell, v := range values {
		if strings.HasPrefix(cell.Text, TextPlacebo) {
			fixed[cell.Context] = append(fixed[cell.Context], cell)
		} else {
			out[cell] = v
		}
	}
	for c, cells := range fixed {
		// In order, so that sums do not depend on that of the map.
		slices.SortFunc(cells, func(a, b Pair) int { return strings.Compare(a.Text, b.Text) })
		var each []Outcomes
		for _, cell := range cells {
			each = append(each, values[cell])
		}
		mean, err := meanOf(each)
		if err != nil {
			return nil, fmt.Errorf("mean over the fixed lines after %s: %w", c, err)
		}
		out[Pair{c, TextPlacebo}] = mean
	}
	return out, nil
}
