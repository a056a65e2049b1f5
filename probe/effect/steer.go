package effect

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/ccmed/ccmed/bench/dmis"
	"github.com/ccmed/ccmed/bench/stats"
)

// Steering is a direction at a block and a dose: of each dialogue the arm of its own stage
// is the right one, those of the others are wrong.
type Steering struct {
	Kind   string   `json:"kind"`
	File   string   `json:"file"`
	Layers []string `json:"layers"`
	Dose   float64  `json:"dose"`
	// Widest is how many times the mean length of the states the longest of the arms is.
	Widest float64 `json:"lengths"`
	// Training says that the dialogues are of groups that the direction was learnt from:
	// cells are chosen by them and nothing is claimed.
	Training bool `json:"training"`
	N        int  `json:"n"`
	// Gap is M of D less M of ND in these dialogues. Recovery is the share of it that the
	// right arms take; nil where the gap is not above 0.
	Gap      Difference      `json:"gap"`
	Recovery *stats.Estimate `json:"recovery,omitempty"`
	// Rise and Ask are the right arms less ND, of M and of the answer.
	Rise Difference  `json:"rise"`
	Ask  *Difference `json:"ask,omitempty"`
	// Over are the right arms less the wrong ones and less those of shuffled labels, with p
	// corrected for all of them in all steerings of the same dialogues (Holm). Random is the
	// right arms less the isotropic ones.
	Over   []Contrast      `json:"over"`
	Random *Difference     `json:"over_isotropic,omitempty"`
	Cost   *stats.Estimate `json:"nats_above,omitempty"`
	Drift  *float64        `json:"kl,omitempty"`

	Verdict string   `json:"verdict,omitempty"`
	Reasons []string `json:"reasons,omitempty"`
}

// Contrast is the right arm held against another.
type Contrast struct {
	With string `json:"with"`
	Difference
	PHolm float64 `json:"p_holm"`
}

// With what the right arm is held against.
const (
	overNext     = "wrong stage, the next"
	overLast     = "wrong stage, the one after"
	overShuffled = "shuffled labels"
)

// place is what the arms of one steering share.
type place struct {
	kind, file, layers string
	dose               float64
}

func placeOf(e Edit) place { return place{e.Kind, e.File, strings.Join(e.Layers, ","), e.Dose} }

// steers tells whether an arm adds a stage's direction to ND.
func (a Arm) steers() bool {
	return !a.Named && a.Edit.Dose != 0 && (a.Edit.Kind == "mean" || a.Edit.Kind == "weights")
}

// steer groups the arms that add a direction by place, and training groups apart.
func (f *finder) steer() error {
	arms := map[place][]Arm{}
	var order []place
	for _, a := range f.Input.Arms {
		if !a.steers() {
			continue
		}
		p := placeOf(a.Edit)
		if arms[p] == nil {
			order = append(order, p)
		}
		arms[p] = append(arms[p], a)
	}
	slices.SortFunc(order, func(x, y place) int {
		return cmp.Or(cmp.Compare(x.kind, y.kind), cmp.Compare(x.file, y.file), cmp.Compare(len(x.layers), len(y.layers)), cmp.Compare(x.layers, y.layers), cmp.Compare(x.dose, y.dose))
	})
	for _, p := range order {
		for _, training := range []bool{false, true} {
			s, err := f.steering(arms[p], training)
			if err != nil {
				return fmt.Errorf("%s at %s, dose %g: %w", p.kind, p.layers, p.dose, err)
			}
			if s != nil {
				f.Steer = append(f.Steer, *s)
			}
		}
	}
	f.correct()
	for i := range f.Steer {
		if !f.Steer[i].Training {
			f.Steer[i].judge()
		}
	}
	f.choose()
	return nil
}

// choose finds the cell on training groups that recovers most at a cost that counts.
func (f *finder) choose() {
	for i, s := range f.Steer {
		if !s.Training || s.Recovery == nil || s.Cost == nil || s.Cost.Value > costMost {
			continue
		}
		if f.Chosen == nil || s.Recovery.Value > f.Steer[*f.Chosen].Recovery.Value {
			f.Chosen = &i
		}
	}
}

// row is a dialogue under all arms of a steering.
type row struct {
	Line
	nd, d, right                 float64
	next, last, shuffled, random float64 // NaN where no arm has it
	ask, cost                    float64
}

// steering is nil where no dialogue has its right arm.
func (f *finder) steering(arms []Arm, training bool) (*Steering, error) {
	e := arms[0].Edit
	rows := f.rows(arms, training)
	if len(rows) == 0 {
		return nil, nil
	}
	s := &Steering{Kind: e.Kind, File: e.File, Layers: e.Layers, Dose: e.Dose, Training: training, N: len(rows), Drift: meanDrift(arms)}
	for _, a := range arms {
		s.Widest = max(s.Widest, a.Edit.Widest)
	}
	for _, x := range []struct {
		of func(row) float64
		to *Difference
	}{{func(r row) float64 { return r.d - r.nd }, &s.Gap}, {func(r row) float64 { return r.right - r.nd }, &s.Rise}} {
		d, err := columnOf(rows, x.of).test(f)
		if err != nil {
			return nil, err
		}
		*x.to = *d
	}
	var err error
	if s.Ask, err = columnOf(rows, func(r row) float64 { return r.ask }).test(f); err != nil {
		return nil, err
	}
	if s.Cost, err = columnOf(rows, func(r row) float64 { return r.cost }).mean(f.bootstrap()); err != nil {
		return nil, err
	}
	if s.Gap.above() {
		if s.Recovery, err = f.recovery(rows); err != nil {
			return nil, err
		}
	}
	return s, f.contrasts(s, rows)
}

// rows are the dialogues that have the plain lines and the right arm's.
func (f *finder) rows(arms []Arm, training bool) (out []row) {
	asked := map[string]map[string]Line{f.ND.Name: {}}
	for _, a := range append(slices.Clone(arms), f.ND) {
		asked[a.Name] = map[string]Line{}
		for _, l := range a.Lines {
			asked[a.Name][l.Item] = l
		}
	}
	learnt := map[string]bool{}
	for _, g := range arms[0].Edit.Groups {
		learnt[g] = true
	}
	// of is the mean over the arms of a class whose control begins so.
	of := func(item string, class int, control string, value func(Arm) (float64, bool)) float64 {
		sum, n := 0.0, 0.0
		for _, a := range arms {
			if a.Edit.Class == stageName(class) && strings.HasPrefix(a.Edit.Of, control) && (control != "" || a.Edit.Of == "") {
				if v, ok := value(a); ok {
					sum, n = sum+v, n+1
				}
			}
		}
		return sum / n // NaN without any
	}
	for _, l := range f.ND.Lines {
		if learnt[l.Group] != training {
			continue
		}
		m := func(a Arm) (float64, bool) { v, ok := f.m[a.Name][l.Item]; return v, ok }
		class := func(offset int, control string) float64 { return of(l.Item, (l.Stage+offset)%Classes, control, m) }
		nd, hasND := f.m[f.ND.Name][l.Item]
		d, hasD := f.m[f.D.Name][l.Item]
		r := row{Line: l, nd: nd, d: d, right: class(0, ""), next: class(1, ""), last: class(2, ""), shuffled: class(0, "shuffled"), random: class(0, "isotropic")}
		if !hasND || !hasD || math.IsNaN(r.right) {
			continue
		}
		with := func(value func(Line) float64) float64 {
			return of(l.Item, l.Stage, "", func(a Arm) (float64, bool) { x, ok := asked[a.Name][l.Item]; return value(x), ok }) - value(l)
		}
		r.ask, r.cost = with(func(x Line) float64 { return x.Answer }), with(func(x Line) float64 { return x.Nats })
		out = append(out, r)
	}
	return out
}

func columnOf(rows []row, of func(row) float64) *column {
	c := &column{}
	for _, r := range rows {
		c.add(of(r), r.Group)
	}
	return c
}

// recovery is (M_edit − M_ND) / (M_D − M_ND) of the means, drawn by scenario contexts.
func (f *finder) recovery(rows []row) (*stats.Estimate, error) {
	groups := make([]string, len(rows))
	for i, r := range rows {
		groups[i] = r.Group
	}
	e, err := f.bootstrap().Statistic(func(drawn []int) float64 {
		rise, gap := 0.0, 0.0
		for _, i := range drawn {
			rise += rows[i].right - rows[i].nd
			gap += rows[i].d - rows[i].nd
		}
		if gap <= 0 {
			return math.NaN() // a share of nothing
		}
		return rise / gap
	}, groups)
	if err != nil {
		return nil, fmt.Errorf("the recovery: %w", err)
	}
	return &e, nil
}

// contrasts holds the right arm against the wrong ones and the controls.
func (f *finder) contrasts(s *Steering, rows []row) (err error) {
	for _, x := range []struct {
		with string
		of   func(row) float64
	}{{overNext, func(r row) float64 { return r.right - r.next }}, {overLast, func(r row) float64 { return r.right - r.last }},
		{overShuffled, func(r row) float64 { return r.right - r.shuffled }}} {
		d, err := columnOf(rows, x.of).test(f)
		if err != nil {
			return err
		}
		if d != nil {
			s.Over = append(s.Over, Contrast{With: x.with, Difference: *d})
		}
	}
	s.Random, err = columnOf(rows, func(r row) float64 { return r.right - r.random }).test(f)
	return err
}

// correct corrects the p values of all contrasts on training groups, and of all others.
func (f *finder) correct() {
	for _, training := range []bool{false, true} {
		var family []*Contrast
		var ps []float64
		for i := range f.Steer {
			for k := range f.Steer[i].Over {
				if f.Steer[i].Training == training {
					family, ps = append(family, &f.Steer[i].Over[k]), append(ps, f.Steer[i].Over[k].P)
				}
			}
		}
		for i, p := range stats.Holm(ps) {
			family[i].PHolm = p
		}
	}
}

// meanDrift is the mean over the arms of classes; nil where none was measured.
func meanDrift(arms []Arm) *float64 {
	var c column
	for _, a := range arms {
		if a.Edit.Of == "" {
			c.add(a.Drift, "")
		}
	}
	if len(c.values) == 0 {
		return nil
	}
	sum := 0.0
	for _, v := range c.values {
		sum += v
	}
	sum /= float64(len(c.values))
	return &sum
}

// judge says what a steering on dialogues that the direction has not seen shows, and why it
// is no more.
func (s *Steering) judge() {
	fails := func(holds bool, why string, args ...any) bool {
		if !holds {
			s.Reasons = append(s.Reasons, fmt.Sprintf(why, args...))
		}
		return !holds
	}
	rises := s.Rise.above() && s.Rise.P < stats.Alpha
	costly := s.Cost != nil && s.Cost.Value > costMost
	silent := s.Ask != nil && !(s.Ask.above() && s.Ask.P < stats.Alpha)
	s.Verdict = Decodable
	if rises && (silent || costly) {
		s.Verdict = Surface
		fails(!silent, "the lines fit the stage better, and the answer to the question does not rise")
		fails(!costly, "the lines cost %.2f nats a token more than the plain ones; at most %.1f count", value(s.Cost), costMost)
		return
	}
	bad := fails(rises, "the lines do not fit the stage better than the plain ND lines")
	bad = fails(s.Gap.above(), "the plain D lines do not fit the stage better than the ND lines: there is nothing to recover") || bad
	if s.Recovery != nil {
		bad = fails(s.Recovery.Value >= usedRecovery, "the recovery is %.2f, below %.1f", s.Recovery.Value, usedRecovery) || bad
		// Where every context recovers the same share, that is the bound.
		bounded := s.Recovery.NoInterval == "" || s.Recovery.NoInterval == stats.AllAlike
		bad = fails(bounded && s.Recovery.Lo > usedLower, "the recovery's lower bound is not above %.2f", usedLower) || bad
	}
	for _, with := range []string{overNext, overLast, overShuffled} {
		i := slices.IndexFunc(s.Over, func(c Contrast) bool { return c.With == with })
		if fails(i >= 0, "there is no arm of %s", with) {
			bad = true
			continue
		}
		c := s.Over[i]
		bad = fails(c.Value > 0 && c.PHolm < stats.Alpha, "the right stage is not shown to fit better than that of %s", with) || bad
	}
	bad = fails(s.Widest <= mostNorm, "the edit is %.1f times as long as the states that it is added to; at most %.0f count", s.Widest, mostNorm) || bad
	bad = fails(s.Cost != nil, "the cost was not measured") || bad
	bad = fails(s.N >= usedN, "%d dialogues; %d are needed", s.N, usedN) || bad
	if s.Ask == nil {
		s.Reasons = append(s.Reasons, "the question was not asked, or no answer can be used: whether the answer moves as well is not known")
	}
	if !bad {
		s.Verdict = Used
	}
}

func value(e *stats.Estimate) float64 {
	if e == nil {
		return math.NaN()
	}
	return e.Value
}

func stageName(stage int) string { return dmis.Stage(stage).String() }
