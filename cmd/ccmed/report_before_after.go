package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/ccmed/ccmed/bench/mediation"
	"github.com/ccmed/ccmed/bench/report"
	"github.com/ccmed/ccmed/bench/run"
	"github.com/ccmed/ccmed/bench/stats"
	"github.com/ccmed/ccmed/bench/timing"
)

// scoredRun puts a run and what scoring it gave together.
func (a *app) scoredRun(ctx context.Context, name string, dir *run.Dir, found any) (scoredRun, error) {
	r := scoredRun{name: name, manifest: dir.Manifest(), found: found, leak: a.leakOf(ctx, dir)}
	if _, ok := found.(timingFound); ok {
		var err error
		if r.samples, err = dir.Samples(); err != nil {
			return r, err
		}
	}
	return r, nil
}

// side is one who decided when to step in.
type side struct {
	name, fitted string
	hits         stats.Measure
}

// The sides of a comparison of before and after, in the order of its table.
const (
	sideBase = iota
	sideTuned
	sideBag
	sideMasked
	sideMaskedBag
)

// beforeAfter compares, for every tuned model's prediction among the runs, its turn
// accuracy with that of a base model's run on the same dialogues, with the bag of
// words, and with itself where the marker phrases are masked.
func beforeAfter(runs []scoredRun, seed int64) ([]report.Section, error) {
	var out []report.Section
	for _, tuned := range runs {
		if !tuned.decides(true, false) {
			continue
		}
		for _, base := range runs {
			if !base.decides(false, false) || !share(base, tuned) {
				continue
			}
			var masked *scoredRun
			for i, r := range runs {
				same := r.manifest.Identity.Models[timing.Role].Digest == tuned.manifest.Identity.Models[timing.Role].Digest
				if masked == nil && same && r.decides(true, true) && share(r, tuned) {
					masked = &runs[i]
				}
			}
			s, err := compareTuned(base, tuned, masked, uint64(seed))
			if err != nil {
				return nil, fmt.Errorf("compare %s with %s: %w", tuned.name, base.name, err)
			}
			out = append(out, s)
		}
	}
	return out, nil
}

// decides tells whether a run is of turns, decided by a tuned model's head or in
// answer to a question, and with marker phrases masked or not.
func (r scoredRun) decides(head, masked bool) bool {
	f, ok := r.found.(timingFound)
	m, _ := r.manifest.Identity.Options["mask_markers"].(bool)
	return ok && (f.Mode == timing.DualHead) == head && m == masked
}

func share(a, b scoredRun) bool {
	return slices.ContainsFunc(a.manifest.Identity.Items, func(item string) bool { return slices.Contains(b.manifest.Identity.Items, item) })
}

// compareTuned compares over the dialogues that all runs decided about.
func compareTuned(base, tuned scoredRun, masked *scoredRun, seed uint64) (report.Section, error) {
	s := report.Section{Title: "Before and after: " + modelNames(base.manifest.Identity) + " and " + modelNames(tuned.manifest.Identity)}
	var sides [sideMaskedBag + 1]*side
	for i, r := range map[int]*scoredRun{sideBase: &base, sideTuned: &tuned, sideMasked: masked} {
		if r == nil {
			continue
		}
		ms, _, err := timing.Measures(r.samples)
		if err != nil {
			return s, err
		}
		sides[i] = &side{hits: ms[0]}
	}
	sides[sideBase].name, sides[sideTuned].name = "base: "+modelNames(base.manifest.Identity), "tuned: "+modelNames(tuned.manifest.Identity)
	if b, ok := tuned.bag(); ok {
		sides[sideBag] = &b
	}
	if masked != nil {
		sides[sideMasked].name = "tuned, marker phrases masked"
		if b, ok := masked.bag(); ok {
			b.name += ", masked"
			sides[sideMaskedBag] = &b
		}
	}
	n := keepShared(sides[:])
	if n == 0 {
		s.Notes = []string{"no dialogue was scored in all of these runs"}
		return s, nil
	}
	boot := stats.Bootstrap{Resamples: compareResamples, Seed: seed}
	table := report.Table{Title: fmt.Sprintf("Turn accuracy over the %d dialogues that all of them decided about", n),
		Columns: []report.Column{{Name: "who"}, {Name: "TurnAcc", Align: report.Right}, {Name: "95 % interval", Align: report.Right}, {Name: "fitted on"}}}
	for _, x := range sides {
		if x == nil {
			continue
		}
		row, err := x.row(boot)
		if err != nil {
			return s, err
		}
		table.Rows = append(table.Rows, row)
	}
	s.Tables = append(s.Tables, table)
	d, err := differences(sides, stats.Resampling{Resamples: compareResamples, Seed: seed})
	if err != nil {
		return s, err
	}
	if len(d.all) == 0 {
		s.Notes = []string{"all dialogues are of one scenario context: no difference has an interval"}
		return s, nil
	}
	s.Tables, s.Figures = append(s.Tables, d.table()), []report.Figure{d.figure()}
	s.Notes = append(s.Notes, d.learned(), "the bag of words was trained on the training records: what it reaches, words alone give away")
	return s, nil
}

// bag returns the bag-of-words classifier of a run's baselines that takes the first
// probable turn, as a decision head does.
func (r scoredRun) bag() (side, bool) {
	f, ok := r.found.(timingFound)
	if !ok {
		return side{}, false
	}
	i := slices.IndexFunc(f.Baselines, func(b timing.BaselineResult) bool { return strings.HasPrefix(b.Name, timing.BagBaseline) })
	if i < 0 || len(f.Baselines[i].Predicted) != len(f.evaluated) {
		return side{}, false
	}
	b := f.Baselines[i]
	x := side{name: b.Name, fitted: b.Fitted, hits: stats.Measure{Name: timing.MeasureTurnAcc, Binary: true}}
	for j, d := range f.evaluated {
		o := stats.Observation{Item: d.Key(), Group: d.ContextKey()}
		if b.Predicted[j] == d.ConflictTurn {
			o.Value = 1
		}
		x.hits.Observations = append(x.hits.Observations, o)
	}
	return x, true
}

// keepShared leaves of every side the dialogues that all sides have a value of, in
// one order, and returns their number.
func keepShared(sides []*side) int {
	values := map[string]int{}
	present := 0
	for _, x := range sides {
		if x == nil {
			continue
		}
		present++
		for _, o := range x.hits.Observations {
			if o.Unscored == "" {
				values[o.Item]++
			}
		}
	}
	n := 0
	for _, x := range sides {
		if x != nil {
			x.hits.Observations = slices.DeleteFunc(slices.Clone(x.hits.Observations), func(o stats.Observation) bool { return values[o.Item] != present })
			slices.SortFunc(x.hits.Observations, func(a, b stats.Observation) int { return strings.Compare(a.Item, b.Item) })
			n = len(x.hits.Observations)
		}
	}
	return n
}

func (x side) row(boot stats.Bootstrap) ([]report.Cell, error) {
	var v []float64
	var groups []string
	k := 0
	for _, o := range x.hits.Observations {
		v, groups = append(v, o.Value), append(groups, o.Group)
		k += int(o.Value)
	}
	e, err := boot.Share(v, groups)
	if err != nil {
		return nil, fmt.Errorf("interval of TurnAcc of %s: %w", x.name, err)
	}
	return []report.Cell{report.Text(x.name), report.Text(report.Pct(k, len(v))), report.Text(report.Estimate(e, 3)), report.Text(x.fitted)}, nil
}

// pairedDifference is one line of the family.
type pairedDifference struct {
	name string
	stats.Comparison
}

// tunedDifferences are the comparisons that say whether tuning helped and what was
// learned; one family, Holm-corrected.
type tunedDifferences struct {
	all []pairedDifference
	// overBag and lossOverBag are among all, where they could be made.
	overBag, lossOverBag *pairedDifference
}

func differences(sides [sideMaskedBag + 1]*side, r stats.Resampling) (tunedDifferences, error) {
	var d tunedDifferences
	compare := func(name string, b, a *stats.Measure) error {
		if a == nil || b == nil {
			return nil
		}
		c, err := stats.Compare(*a, *b, r)
		if errors.Is(err, stats.ErrOneGroup) {
			return nil
		}
		d.all = append(d.all, pairedDifference{name, c})
		return err
	}
	hits := func(i int) *stats.Measure {
		if sides[i] == nil {
			return nil
		}
		return &sides[i].hits
	}
	const bag, loss = "tuned − bag of words", "loss by masking, tuned − bag of words"
	err := errors.Join(
		compare("tuned − base", hits(sideTuned), hits(sideBase)),
		compare(bag, hits(sideTuned), hits(sideBag)),
		compare("tuned, masked − not masked", hits(sideMasked), hits(sideTuned)),
		compare("bag of words, masked − not masked", hits(sideMaskedBag), hits(sideBag)),
		compare("masked: tuned − bag of words", hits(sideMasked), hits(sideMaskedBag)),
		compare(loss, less(hits(sideTuned), hits(sideMasked)), less(hits(sideBag), hits(sideMaskedBag))))
	family := make([]*stats.Comparison, len(d.all))
	for i := range d.all {
		family[i] = &d.all[i].Comparison
		switch d.all[i].name {
		case bag:
			d.overBag = &d.all[i]
		case loss:
			d.lossOverBag = &d.all[i]
		}
	}
	stats.Adjust(family)
	return d, err
}

// less is what is lost from a to b, dialogue by dialogue; both have the same ones in
// the same order.
func less(a, b *stats.Measure) *stats.Measure {
	if a == nil || b == nil {
		return nil
	}
	out := stats.Measure{Name: a.Name, Observations: slices.Clone(a.Observations)}
	for i := range out.Observations {
		out.Observations[i].Value -= b.Observations[i].Value
	}
	return &out
}

func (d tunedDifferences) table() report.Table {
	t := report.Table{Title: "Paired differences in TurnAcc", Columns: []report.Column{{Name: "difference"}, {Name: "mean [95 %]", Align: report.Right}, {Name: "n", Align: report.Right},
		{Name: "p", Align: report.Right}, {Name: "p (Holm)", Align: report.Right}, {Name: ""}},
		Notes: []string{fmt.Sprintf("one family of %d; intervals and sign-flip permutations by scenario context; ~ means no significant difference at %.2f", len(d.all), mediation.Alpha)}}
	for _, x := range d.all {
		mark := "~"
		if significant(&x.Comparison) {
			mark = "significant"
		}
		t.Rows = append(t.Rows, []report.Cell{report.Text(x.name), report.Text(report.Estimate(x.Difference, 3)), report.Int(x.Difference.N),
			report.Text(report.PValue(x.P)), report.Text(report.PValue(x.PHolm)), report.Text(mark)})
	}
	return t
}

func (d tunedDifferences) figure() report.Figure {
	s := report.Series{Name: "difference in TurnAcc"}
	p := &report.Points{X: report.Axis{Name: "difference in TurnAcc"}, References: []report.Reference{{Name: "no difference", Value: 0}}}
	for _, x := range d.all {
		p.Groups = append(p.Groups, x.name)
		lo, hi := x.Difference.Bounds()
		s.Y, s.Lo, s.Hi = append(s.Y, x.Difference.Value), append(s.Lo, lo), append(s.Hi, hi)
	}
	p.Series = []report.Series{s}
	return report.Figure{Title: "Before and after, in pairs", Points: p, Description: "Paired differences in turn accuracy with their 95 % intervals."}
}

// learned says whether more than marker spotting was learned: a paired advantage over
// the bag of words, or a smaller loss where the marker phrases are masked.
func (d tunedDifferences) learned() string {
	shown := func(x *pairedDifference, sign float64) bool {
		return x != nil && significant(&x.Comparison) && sign*x.Difference.Value > 0
	}
	switch {
	case shown(d.overBag, 1):
		return "learned timing: the tuned model is right more often than the bag of words"
	case shown(d.lossOverBag, -1):
		return "learned timing: masking the marker phrases costs the tuned model less than the bag of words"
	case d.overBag == nil:
		return "whether timing was learned cannot be said: there is no bag of words to compare with"
	case d.lossOverBag == nil:
		return "learned timing is not shown: no advantage over the bag of words, and no prediction with marker phrases masked is in this report"
	}
	return "learned timing is not shown: no advantage over the bag of words, and no smaller loss where the marker phrases are masked"
}
