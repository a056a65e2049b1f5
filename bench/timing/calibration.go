package timing

import (
	"fmt"
	"math/rand/v2"
	"slices"

	"gonum.org/v1/gonum/floats"

	"github.com/ccmed/ccmed/bench/report"
	"github.com/ccmed/ccmed/bench/stats"
)

// Calibration says whether a probability of stepping in is the share of times
// that the turn is the conflict turn.
//
// The modes stream and dual-head are asked one turn at a time: theirs are the
// turns from the first that can be predicted up to the conflict turn, as a live
// mediator meets them. The modes pick and cot share one probability out over all
// turns that they offer: theirs are all of these (one turn against the rest).
type Calibration struct {
	Turns     int     `json:"turns"`
	Dialogues int     `json:"dialogues"`
	BaseRate  float64 `json:"base_rate"` // share of conflict turns among Turns
	// Bins hold equal shares of the turns as far as equal probabilities allow:
	// their edges are quantiles, so that none is empty (Nixon et al. 2019).
	Bins []Bin `json:"bins"`
	// ECE is the expected calibration error: the bins' mean distance of probability
	// and share, weighted by their turns (Naeini et al. 2015; Guo et al. 2017).
	ECE stats.Estimate `json:"ece"`
	// ECEIfCalibrated is the mean ECE of a model with the same probabilities that
	// is right as often as they say: few turns keep it above zero (Bröcker and
	// Smith 2007).
	ECEIfCalibrated float64 `json:"ece_if_calibrated"`
	// Brier is the mean squared distance of probability and truth (Brier 1950),
	// BrierBase that of always saying the base rate.
	Brier     stats.Estimate `json:"brier"`
	BrierBase float64        `json:"brier_base"`
	// Skill is 1 − Brier/BrierBase: 0 is no better than the base rate.
	Skill stats.Estimate `json:"skill"`
}

// Bin is one group of turns with similar probabilities.
type Bin struct {
	N     int     `json:"n"`
	Mean  float64 `json:"mean"`  // probability
	Share float64 `json:"share"` // of conflict turns
	Lo    float64 `json:"lo"`    // Wilson interval of Share, turns taken for independent
	Hi    float64 `json:"hi"`
}

// calibrationBins is the usual number of bins (Guo et al. 2017 use 15 for
// thousands of samples); fewer where there are few turns.
const (
	calibrationBins = 10
	leastInBin      = 5
)

// asked is one turn that a model gave a probability for.
type asked struct {
	p       float64
	gold    bool
	context string
}

// askedTurns lists the turns that Calibration is about. Answers that could not be
// scored are left out.
func askedTurns(d Decision) []asked {
	var out []asked
	for _, p := range d.Curve {
		oneByOne := d.Mode == Stream || d.Mode == DualHead
		if p.Unscored == "" && p.Turn >= d.FirstTurn && (p.Turn <= d.Gold || !oneByOne) {
			out = append(out, asked{p.Share, p.Turn == d.Gold, d.Context})
		}
	}
	return out
}

// calibration is nil where the turns are all alike, conflict turns or others, or
// where there are too few of them for two bins.
func calibration(ds []Decision, boot stats.Bootstrap) (*Calibration, error) {
	c := &Calibration{}
	var turns []asked
	for _, d := range ds {
		if of := askedTurns(d); len(of) > 0 {
			turns = append(turns, of...)
			c.Dialogues++
		}
	}
	c.Turns = len(turns)
	p, y, groups := make([]float64, len(turns)), make([]float64, len(turns)), make([]string, len(turns))
	for i, t := range turns {
		if p[i], groups[i] = t.p, t.context; t.gold {
			y[i] = 1
		}
	}
	c.BaseRate = baseRate(y)
	bins := min(calibrationBins, len(turns)/leastInBin)
	if bins < 2 || c.BaseRate == 0 || c.BaseRate == 1 {
		return nil, nil
	}
	c.Bins = reliability(p, y, bins)
	var err error
	estimate := func(what string, f func(times []int) float64) stats.Estimate {
		e, e2 := boot.Counted(f, groups)
		if e2 != nil && err == nil {
			err = fmt.Errorf("interval of the %s: %w", what, e2)
		}
		return e
	}
	r := newResampled(p, y, stats.GroupNumbers(groups), bins)
	c.ECE = estimate("calibration error", r.calibrationError)
	c.Brier = boot.Within(estimate("Brier score", func(times []int) float64 {
		n, squares, _ := r.sums(times)
		return squares / n
	}), 0, 1)
	c.Skill = estimate("Brier skill", func(times []int) float64 {
		n, squares, conflicts := r.sums(times)
		base := conflicts / n
		return 1 - squares/n/(base*(1-base)) // NaN where a resample has turns of one kind only
	})
	c.BrierBase = c.BaseRate * (1 - c.BaseRate)
	c.ECEIfCalibrated = errorIfCalibrated(p, bins, boot.Seed)
	return c, err
}

// reliability puts turns into bins whose edges are quantiles of p. A bin takes
// its upper edge, so that equal probabilities stay together; bins that this
// leaves empty are left out. y is 1 for a conflict turn, else 0.
func reliability(p, y []float64, bins int) []Bin {
	edges := quantiles(p, bins)
	n, sumP, sumY := make([]int, bins), make([]float64, bins), make([]float64, bins)
	for i, v := range p {
		b, _ := slices.BinarySearch(edges, v)
		n[b]++
		sumP[b], sumY[b] = sumP[b]+v, sumY[b]+y[i]
	}
	var out []Bin
	for b := range n {
		if n[b] == 0 {
			continue
		}
		bin := Bin{N: n[b], Mean: sumP[b] / float64(n[b]), Share: sumY[b] / float64(n[b])}
		bin.Lo, bin.Hi = stats.Wilson(int(sumY[b]), n[b])
		out = append(out, bin)
	}
	return out
}

// quantiles returns the inner edges of equal-mass bins, interpolated linearly
// (Hyndman and Fan 1996, type 7).
func quantiles(p []float64, bins int) []float64 {
	sorted := slices.Clone(p)
	slices.Sort(sorted)
	edges := make([]float64, bins-1)
	for b := range edges {
		h := float64(b+1) / float64(bins) * float64(len(sorted)-1)
		i := int(h)
		edges[b] = sorted[i] + (h-float64(i))*(sorted[min(i+1, len(sorted)-1)]-sorted[i])
	}
	return edges
}

func baseRate(y []float64) float64 { return floats.Sum(y) / float64(max(1, len(y))) }

// errorIfCalibrated draws every turn's truth by its probability, many times.
func errorIfCalibrated(p []float64, bins int, seed uint64) float64 {
	const draws = 200
	r := rand.New(rand.NewPCG(seed, 0))
	edges := quantiles(p, bins)
	in := make([]int, len(p)) // bins stay, as the probabilities do
	meant, drawn := make([]float64, bins), make([]float64, bins)
	for i, v := range p {
		in[i], _ = slices.BinarySearch(edges, v)
		meant[in[i]] += v
	}
	sum := 0.0
	for range draws {
		clear(drawn)
		for i, b := range in {
			if r.Float64() < p[i] {
				drawn[b]++
			}
		}
		for b := range drawn {
			sum += max(meant[b]-drawn[b], drawn[b]-meant[b])
		}
	}
	return sum / draws / float64(len(p))
}

// calibrationSection shows the reliability diagram and its numbers.
func calibrationSection(c Calibration) report.Section {
	numbers := report.Table{Columns: report.Columns("measure", "value>", "reference")}
	row := func(name, value, reference string) {
		numbers.Add(name, value, reference)
	}
	row("expected calibration error", interval(c.ECE), fmt.Sprintf("%.3f if the probabilities were right", c.ECEIfCalibrated))
	row("Brier score", interval(c.Brier), fmt.Sprintf("%.3f for always saying the base rate, %.3f", c.BrierBase, c.BaseRate))
	row("Brier skill", interval(c.Skill), "0 is no better than the base rate, 1 is perfect")
	bins := report.Table{Title: "Bins", Columns: report.Columns("turns>", "mean probability>", "conflict turns>",
		"95 % (Wilson)>")}
	s := report.Series{Name: "share of conflict turns"}
	for _, b := range c.Bins {
		bins.Add(b.N, report.Num(b.Mean, 3), report.Num(b.Share, 3), fmt.Sprintf("[%.3f, %.3f]", b.Lo, b.Hi))
		s.X, s.Y = append(s.X, b.Mean), append(s.Y, b.Share)
		s.Lo, s.Hi = append(s.Lo, b.Lo), append(s.Hi, b.Hi)
	}
	f := report.Figure{Title: "Reliability", Description: fmt.Sprintf("Share of %d turns of %d dialogues that are the conflict turn, by the probability that the model gave them, in bins of equal size; a calibrated model lies on the diagonal. Intervals are Wilson's at 95 %%, which take turns for independent.", c.Turns, c.Dialogues),
		Lines: &report.Lines{X: report.Axis{Name: "probability of stepping in", Max: 1}, Y: report.Axis{Name: "share of conflict turns", Max: 1},
			Series: []report.Series{s, {Name: "calibrated", X: report.Values{0, 1}, Y: report.Values{0, 1}}}}}
	return report.Section{Title: "Calibration", Tables: []report.Table{numbers, bins}, Figures: []report.Figure{f},
		Notes: []string{fmt.Sprintf("%d turns of %d dialogues, in bins of equal size; intervals of the measures by scenario context, those of the bins take turns for independent", c.Turns, c.Dialogues),
			"a calibration error is never below zero and its interval leans upwards: read it beside what right probabilities would show"}}
}
