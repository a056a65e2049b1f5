package claims

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/ccmed/ccmed/bench/dialogue"
	"github.com/ccmed/ccmed/bench/published"
	"github.com/ccmed/ccmed/bench/stats"
	"github.com/ccmed/ccmed/bench/task"
	"github.com/ccmed/ccmed/infer"
)

// Verdicts.
const (
	Supported    = "supported"
	Contradicted = "contradicted"
	NotTestable  = "not testable here"
)

// Evidence is what claims are held against.
type Evidence struct {
	Runs []Run
	// Records are those of the study, nil without them.
	Records []dialogue.Dialogue
	// Tuned names the base of each fine-tuned model.
	Tuned map[string]string
}

// Run is a finished run with the name that it is shown by.
type Run struct {
	Name string
	*task.Run
}

// subject is the model that is measured.
func (r Run) subject() infer.Model {
	if r.Bench == nil {
		return infer.Model{}
	}
	return r.Identity().Models[r.Bench.About().Subject]
}

// Finding is a claim with what was measured of one run.
type Finding struct {
	Claim Claim
	// Run and Model are empty where no run bears on the claim.
	Run, Model string
	// Measured says that Value is there: the measure, or the difference that is claimed.
	Measured bool
	Value    stats.Estimate
	Item     string // noun of what N counts
	Dropped  int    // items without a value
	// Support and Against are p values of the two tests, corrected over all tests; NaN where
	// there was none.
	Support, Against float64
	Verdict, Why     string
}

// Findings are the findings of a set, in its order.
type Findings struct {
	Study string
	All   []Finding
	// Tests is the number of tests that p values are corrected for.
	Tests int
}

// judge holds what the claims share.
type judge struct {
	Evidence
	*runs
	seed uint64
}

// Judge holds every claim against the evidence. All tests of the call are one family.
func Judge(ctx context.Context, set Set, ev Evidence, seed uint64) (*Findings, error) {
	j := judge{ev, &runs{map[*task.Run]table{}, map[string]any{}}, seed}
	out := &Findings{Study: set.Study}
	for _, c := range set.Claims {
		fs, err := j.claim(ctx, c)
		if err != nil {
			return nil, fmt.Errorf("claim %s: %w", c.ID, err)
		}
		out.All = append(out.All, fs...)
	}
	var ps []float64
	var at []*float64
	for i := range out.All {
		for _, p := range []*float64{&out.All[i].Support, &out.All[i].Against} {
			if finite(*p) {
				ps, at = append(ps, *p), append(at, p)
			}
		}
	}
	raw := slices.Clone(out.All)
	out.Tests = len(ps)
	for i, p := range stats.Holm(ps) {
		*at[i] = p
	}
	for i := range out.All {
		out.All[i].conclude(raw[i])
	}
	return out, nil
}

// claim measures a claim in every run that bears on it.
func (j *judge) claim(ctx context.Context, c Claim) ([]Finding, error) {
	blank := Finding{Claim: c, Support: math.NaN(), Against: math.NaN(), Item: "item"}
	refused := func(f Finding, err error) ([]Finding, error) {
		var why untestable
		if !errors.As(err, &why) {
			return nil, err
		}
		f.Why = string(why)
		return []Finding{f}, nil
	}
	switch {
	case c.Test == Untested:
		return refused(blank, untestable(c.Why))
	case c.Of.Records != "":
		f := blank
		f.Item = "pair"
		if err := j.records(&f); err != nil {
			return refused(f, err)
		}
		return []Finding{f}, nil
	case c.Test == Rank:
		f := blank
		if err := j.rank(ctx, &f); err != nil {
			return refused(f, err)
		}
		return []Finding{f}, nil
	}
	rs, err := j.matching(ctx, *c.Of, c.Model)
	if err != nil {
		return refused(blank, err)
	}
	var out []Finding
	for _, r := range rs {
		f := blank
		f.Run, f.Model, f.Item = r.Name, r.subject().Name, r.Bench.About().Item
		if err := j.measure(ctx, &f, r); err != nil {
			fs, err := refused(f, err)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", r.Name, err)
			}
			f = fs[0]
		}
		out = append(out, f)
	}
	return out, nil
}

// matching are the runs that a source chooses, of a model or of all.
func (j *judge) matching(ctx context.Context, s Source, model string) ([]Run, error) {
	var out []Run
	for _, r := range j.Runs {
		id := r.Identity()
		name := r.subject().Name
		base, tuned := j.Tuned[name]
		if r.Bench == nil || id.Task != s.Task || !s.Base && tuned != s.Tuned {
			continue
		}
		if model != "" && !published.IsModel(name, model) && !published.IsModel(base, model) {
			continue
		}
		fits := true
		for k, want := range s.Options {
			fits = fits && text(id.Options[k]) == want
		}
		if fits && s.Condition != "" {
			t := j.table(ctx, r.Run)
			fits = t.err != nil || slices.ContainsFunc(t.rows, func(x row) bool { return x.condition == s.Condition })
		}
		if fits {
			out = append(out, r)
		}
	}
	if len(out) == 0 {
		return nil, untestable("run missing: " + s.describe(model))
	}
	return out, nil
}

// describe says which run a source asks for.
func (s Source) describe(model string) string {
	what := s.Task
	for _, k := range slices.Sorted(maps.Keys(s.Options)) {
		what += fmt.Sprintf(", %s %s", k, s.Options[k])
	}
	if s.Condition != "" {
		what += " under " + s.Condition
	}
	switch {
	case s.Tuned:
		what += " of a fine-tuned model (--base-of)"
	case s.Base:
		what += " of the base"
	}
	if model != "" {
		what += " of " + model
	}
	return what
}

// measure fills in what a run says of a claim, or gives an untestable.
func (j *judge) measure(ctx context.Context, f *Finding, r Run) error {
	c := f.Claim
	for path, want := range c.Needs.Metrics {
		root, err := j.root(ctx, r.Run, "")
		if err != nil {
			return err
		}
		v, err := find(root, path)
		if err != nil {
			return err
		}
		if text(v) != want {
			return untestablef("its %s: %s, not %s", path[strings.LastIndex(path, ".")+1:], text(v), want)
		}
	}
	other := r
	if c.Minus != nil && !c.sameRun() {
		var err error
		if other, err = j.partner(ctx, c, r); err != nil {
			return err
		}
	}
	var err error
	if c.Of.Column != "" {
		f.Value, f.Dropped, err = j.rowsOf(ctx, c, r, other)
	} else {
		f.Value, err = j.pathsOf(ctx, c, r, other)
	}
	if err != nil {
		return err
	}
	f.Measured = true
	return f.test()
}

func (j *judge) rowsOf(ctx context.Context, c Claim, r, other Run) (e stats.Estimate, dropped int, err error) {
	a, err := j.observations(ctx, r.Run, *c.Of)
	if err != nil {
		return e, 0, err
	}
	if c.Minus == nil {
		return mean(a, j.seed)
	}
	b, err := j.observations(ctx, other.Run, c.minus())
	if err != nil {
		return e, 0, err
	}
	if c.Of.Among == nil {
		return difference(a, b, j.seed)
	}
	x, dropped, err := mean(a, j.seed)
	if err != nil {
		return e, 0, err
	}
	y, more, err := mean(b, j.seed)
	return x.Minus(y), dropped + more, err
}

func (j *judge) pathsOf(ctx context.Context, c Claim, r, other Run) (stats.Estimate, error) {
	e, err := j.estimate(ctx, r.Run, *c.Of)
	if err != nil || c.Minus == nil {
		return e, err
	}
	b, err := j.estimate(ctx, other.Run, c.minus())
	return e.Minus(b), err
}

// partner is the run that is taken off a run: of the same model, or of its base.
func (j *judge) partner(ctx context.Context, c Claim, r Run) (Run, error) {
	m := c.minus()
	all, err := j.matching(ctx, m, "")
	if err != nil {
		return Run{}, err
	}
	want := r.subject().Name
	if m.Base {
		want = j.Tuned[want]
	}
	all = slices.DeleteFunc(all, func(x Run) bool { return x.subject().Name != want })
	switch len(all) {
	case 0:
		return Run{}, untestablef("run missing: %s of %s", m.describe(""), want)
	case 1:
		return all[0], alike(r, all[0])
	}
	var names []string
	for _, x := range all {
		names = append(names, x.Name)
	}
	return Run{}, untestablef("several runs could be taken off %s: %s; give one", r.Name, strings.Join(names, ", "))
}

// alike is an untestable where two runs were not measured alike: on other records, or with
// other instruments.
func alike(a, b Run) error {
	x, y := a.Identity(), b.Identity()
	if x.DataHash != y.DataHash {
		return untestablef("%s and %s are of different records", a.Name, b.Name)
	}
	subject := a.Bench.About().Subject
	for role, m := range x.Models {
		if n, ok := y.Models[role]; ok && role != subject && (m.Name != n.Name || m.Digest != n.Digest) {
			return untestablef("%s and %s have different models as %s", a.Name, b.Name, role)
		}
	}
	return nil
}

// records measures a claim about the records themselves.
func (j *judge) records(f *Finding) error {
	obs := recordGaps(j.Records)
	if len(obs) == 0 {
		return untestable("records missing: --data names the study's")
	}
	var err error
	if f.Value, f.Dropped, err = mean(obs, j.seed); err != nil {
		return err
	}
	f.Measured, f.Run = true, "records"
	return f.test()
}

// rank tests whether each model of the order is above the next.
func (j *judge) rank(ctx context.Context, f *Finding) error {
	c := f.Claim
	var chosen []Run
	for _, model := range c.Order {
		rs, err := j.matching(ctx, *c.Of, model)
		if err != nil {
			return err
		}
		if len(rs) > 1 {
			return untestablef("several runs of %s: give one", model)
		}
		chosen = append(chosen, rs[0])
	}
	support, against := 0.0, 1.0
	for i, r := range chosen[:len(chosen)-1] {
		next := chosen[i+1]
		if err := alike(r, next); err != nil {
			return err
		}
		a, err := j.observations(ctx, r.Run, *c.Of)
		if err != nil {
			return err
		}
		b, err := j.observations(ctx, next.Run, *c.Of)
		if err != nil {
			return err
		}
		step := Finding{Claim: c}
		if step.Value, step.Dropped, err = difference(a, b, j.seed); err != nil {
			return err
		}
		if err := step.test(); err != nil {
			return err
		}
		support, against = max(support, step.Support), min(against, step.Against*float64(len(chosen)-1))
		// The step that decides is the one that is shown: the least sure of the order.
		if step.Support == support {
			f.Value, f.Dropped, f.Measured = step.Value, step.Dropped, true
			f.Run, f.Model, f.Item = r.Name, c.Order[i]+" − "+c.Order[i+1], r.Bench.About().Item
		}
	}
	f.Support, f.Against = support, against
	return nil
}

// test fills in the p values of both tests, uncorrected.
func (f *Finding) test() error {
	c, e := f.Claim, f.Value
	switch {
	case e.NoInterval != "":
		return untestable("no interval: " + e.NoInterval)
	case e.N < c.Needs.N:
		return untestablef("n: %d, and the claim needs %d", e.N, c.Needs.N)
	}
	low, high := c.Bound-c.Smallest, c.Bound+c.Smallest
	inside := max(e.PAbove(low), e.PBelow(high))
	switch c.Test {
	case Equivalence:
		f.Support, f.Against = inside, min(e.PBelow(low), e.PAbove(high))
	case Difference:
		f.Support, f.Against = min(1, 2*min(e.PAbove(c.Bound), e.PBelow(c.Bound))), inside
	default:
		f.Support, f.Against = e.PAbove(c.Bound), e.PBelow(high)
		if c.Direction == "less" {
			f.Support, f.Against = e.PBelow(c.Bound), e.PAbove(low)
		}
	}
	if !finite(f.Support) || !finite(f.Against) {
		return untestable("no interval")
	}
	return nil
}

// conclude gives the verdict once the p values are corrected; raw are those before.
func (f *Finding) conclude(raw Finding) {
	holds, against := f.Support < stats.Alpha, f.Against < stats.Alpha
	switch {
	case f.Why != "":
		f.Verdict = NotTestable
	case against && holds:
		f.Verdict, f.Why = Contradicted, "it is there, and smaller than the smallest effect of interest"
	case against:
		f.Verdict = Contradicted
	case holds:
		f.Verdict = Supported
	default:
		f.Verdict, f.Why = NotTestable, f.power(raw)
	}
}

// power says why neither test decided.
func (f *Finding) power(raw Finding) string {
	if p := min(raw.Support, raw.Against); p < stats.Alpha {
		return fmt.Sprintf("power: p is %.3f alone, and not below %.2f among all tests", p, stats.Alpha)
	}
	e, m := f.Value, f.Claim.Smallest
	if m == 0 || e.Exact {
		return "power: the interval does not leave the bound"
	}
	// The usual sample size of one mean, one-sided at 5 % with a power of 80 %.
	const both = 1.645 + 0.842
	se := (e.Hi - e.Lo) / 2 / 1.96
	if want := math.Ceil(float64(e.Groups) * math.Pow(both*se/m, 2)); want > float64(e.Groups) {
		return fmt.Sprintf("power: %d clusters, and about %.0f would tell an effect of %s from none", e.Groups, want, f.Claim.value(m))
	}
	return "power: it lies between no effect and the smallest of interest"
}

// Overall is the verdict on a claim in all runs: contradicted by one, supported by all.
func Overall(fs []Finding) string {
	counts := map[string]int{}
	for _, f := range fs {
		counts[f.Verdict]++
	}
	switch {
	case counts[Contradicted] > 0:
		return Contradicted
	case counts[Supported] == len(fs):
		return Supported
	}
	return NotTestable
}

// value writes a number in the claim's unit.
func (c Claim) value(v float64) string {
	switch cmp.Or(c.Unit, "score") {
	case "share":
		return fmt.Sprintf("%.1f %%", 100*v)
	case "gain":
		return fmt.Sprintf("%+.3f", v)
	}
	return fmt.Sprintf("%.3f", v)
}
