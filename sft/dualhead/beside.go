package dualhead

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/ccmed/ccmed/bench/compare"
	"github.com/ccmed/ccmed/bench/report"
	"github.com/ccmed/ccmed/bench/stats"
	"github.com/ccmed/ccmed/bench/task"
	"github.com/ccmed/ccmed/bench/timing"
)

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

// Beside compares the tuned model's turn accuracy with that of each base model's run on
// the same dialogues, with the bag of words, and with itself where the marker phrases are
// masked.
func (r *Result) Beside(self task.Neighbour, all []task.Neighbour, seed int64) ([]report.Section, []string, error) {
	if r.settings.MaskMarkers {
		return nil, nil, nil
	}
	var out []report.Section
	for _, x := range all {
		base, ok := x.Result.(*timing.Result)
		if !ok || !share(self, x) {
			continue
		}
		s, err := compareTuned(base, r, r.masked(self, all), uint64(seed))
		if err != nil {
			return nil, nil, fmt.Errorf("compare %s with %s: %w", self.Name, x.Name, err)
		}
		out = append(out, s)
	}
	return out, nil, nil
}

// masked finds the run of the same model on the same dialogues with marker phrases masked.
func (r *Result) masked(self task.Neighbour, all []task.Neighbour) *Result {
	for _, x := range all {
		o, ok := x.Result.(*Result)
		if ok && o.settings.MaskMarkers && o.digest() == r.digest() && share(self, x) {
			return o
		}
	}
	return nil
}

func (r *Result) digest() string { return r.Input().Identity().Models[timing.Role].Digest }

func share(a, b task.Neighbour) bool {
	return slices.ContainsFunc(a.Run.Identity().Items, func(item string) bool { return slices.Contains(b.Run.Identity().Items, item) })
}

// compareTuned compares over the dialogues that all runs decided about.
func compareTuned(base *timing.Result, tuned, masked *Result, seed uint64) (report.Section, error) {
	name := func(r *timing.Result) string { return r.Input().Identity().ModelNames() }
	s := report.Section{Title: "Before and after: " + name(base) + " and " + name(tuned.Result)}
	var sides [sideMaskedBag + 1]*side
	runs := map[int]*timing.Result{sideBase: base, sideTuned: tuned.Result}
	if masked != nil {
		runs[sideMasked] = masked.Result
	}
	for i, r := range runs {
		a, err := r.Answers()
		if err != nil {
			return s, err
		}
		ms, _ := a.Measures()
		sides[i] = &side{hits: ms[0]}
	}
	sides[sideBase].name, sides[sideTuned].name = "base: "+name(base), "tuned: "+name(tuned.Result)
	sides[sideBag] = bag(tuned)
	if masked != nil {
		sides[sideMasked].name = "tuned, marker phrases masked"
		if sides[sideMaskedBag] = bag(masked); sides[sideMaskedBag] != nil {
			sides[sideMaskedBag].name += ", masked"
		}
	}
	n := keepShared(sides[:])
	if n == 0 {
		s.Notes = []string{"no dialogue was scored in all of these runs"}
		return s, nil
	}
	boot := stats.Bootstrap{Resamples: compare.Resamples, Seed: seed}
	table := report.Table{Title: fmt.Sprintf("Turn accuracy over the %d dialogues that all of them decided about", n),
		Columns: report.Columns("who", "TurnAcc>", "95 % interval>", "fitted on")}
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
	d, err := differences(sides, stats.Resampling{Resamples: compare.Resamples, Seed: seed})
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
// probable turn, as a decision head does; nil without the run's records.
func bag(r *Result) *side {
	ds, err := r.Input().Dialogues(context.Background(), r.Input().At)
	i := slices.IndexFunc(r.Baselines, func(b timing.BaselineResult) bool { return strings.HasPrefix(b.Name, timing.BagBaseline) })
	if err != nil || i < 0 || len(r.Baselines[i].Predicted) != len(ds) {
		return nil
	}
	b := r.Baselines[i]
	x := side{name: b.Name, fitted: b.Fitted, hits: stats.Measure{Name: timing.MeasureTurnAcc, Binary: true}}
	for j, d := range ds {
		o := stats.Observation{Item: d.Key(), Group: d.ContextKey()}
		if b.Predicted[j] == d.ConflictTurn {
			o.Value = 1
		}
		x.hits.Observations = append(x.hits.Observations, o)
	}
	return &x
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
	t := report.Table{Title: "Paired differences in TurnAcc", Columns: report.Columns("difference", "mean [95 %]>",
		"n>", "p>", "p (Holm)>", ""),
		Notes: []string{fmt.Sprintf("one family of %d; intervals and sign-flip permutations by scenario context; ~ means no significant difference at %.2f", len(d.all), stats.Alpha)}}
	for _, x := range d.all {
		mark := "~"
		if x.Significant() {
			mark = "significant"
		}
		t.Add(x.name, report.Estimate(x.Difference, 3), x.Difference.N, report.PValue(x.P), report.PValue(x.PHolm), mark)
	}
	return t
}

func (d tunedDifferences) figure() report.Figure {
	s := report.Series{Name: "difference in TurnAcc"}
	n := 0
	p := &report.Points{X: report.Axis{Name: "difference in TurnAcc"}, References: []report.Reference{{Name: "no difference", Value: 0}}}
	for _, x := range d.all {
		p.Groups, n = append(p.Groups, x.name), max(n, x.Difference.N)
		lo, hi := x.Difference.Bounds()
		s.Y, s.Lo, s.Hi = append(s.Y, x.Difference.Value), append(s.Lo, lo), append(s.Hi, hi)
	}
	p.Series = []report.Series{s}
	return report.Figure{Title: "Before and after, in pairs", Points: p, Description: fmt.Sprintf("Paired differences in turn accuracy over %d dialogues. Whiskers are 95 %% intervals by Student's t with standard errors by scenario context.", n)}
}

// learned says whether more than marker spotting was learned: a paired advantage over
// the bag of words, or a smaller loss where the marker phrases are masked.
func (d tunedDifferences) learned() string {
	shown := func(x *pairedDifference, sign float64) bool {
		return x != nil && x.Significant() && sign*x.Difference.Value > 0
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
