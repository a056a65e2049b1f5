package ccbench

import (
	"context"
	"math"
	"slices"

	"github.com/ccmed/ccmed/bench/ccbench/build"
	"github.com/ccmed/ccmed/bench/ccbench/norm"
	"github.com/ccmed/ccmed/bench/run"
	"github.com/ccmed/ccmed/bench/stats"
	"github.com/ccmed/ccmed/bench/task"
)

// resamples of intervals over personas.
const resamples = 2000

// Metrics are what scoring finds.
type Metrics struct {
	Personas int     `json:"personas"`
	Queries  int     `json:"queries"`
	Settings []Score `json:"settings"`
	// Baselines are answers that no model wrote, and the judge that always says yes.
	Baselines []Score `json:"baselines"`
	// Acquiescence is of items that were asked in the negative as well.
	Acquiescence Acquiescence `json:"acquiescence"`
	Card         *JudgeCard   `json:"card,omitempty"`
	// ShortHistories counts personas of whom sessions were dropped, Dropped the sessions.
	ShortHistories int `json:"short_histories"`
	Dropped        int `json:"dropped"`
}

// Score is what answers under a setting, or of a baseline, come to.
type Score struct {
	Name     string         `json:"name"`
	Answers  int            `json:"answers"`            // that were judged
	Unscored map[string]int `json:"unscored,omitempty"` // answers by reason
	// ItemsUnscored are items of judged answers that the judge could not tell.
	ItemsUnscored int `json:"items_unscored"`
	CuesCut       int `json:"cues_cut"`
	Rates
	// The intervals are drawn over personas.
	FollowRate *stats.Estimate `json:"follow_rate,omitempty"`
	AvoidRate  *stats.Estimate `json:"avoid_rate,omitempty"`
	Overall    *stats.Estimate `json:"overall,omitempty"`
	CCS        *stats.Estimate `json:"ccs,omitempty"`      // of the aggregate rates
	MeanCCS    *stats.Estimate `json:"mean_ccs,omitempty"` // over personas
	Adaptation *stats.Estimate `json:"adaptation,omitempty"`
	// Equal are CCS and adaptation when every culture weighs the same.
	EqualCCS        *stats.Estimate `json:"equal_ccs,omitempty"`
	EqualAdaptation *stats.Estimate `json:"equal_adaptation,omitempty"`
	ByCulture       []Part          `json:"by_culture,omitempty"`
	ByTopic         []Part          `json:"by_topic,omitempty"`
	ByKind          []Part          `json:"by_kind,omitempty"`
	ByEmbeddedness  []Part          `json:"by_embeddedness,omitempty"`
	// Lost are items whose only signals lay in dropped sessions; they count nowhere else.
	Lost Rates `json:"lost"`
}

// blind says that the answers know of no persona: all get the same, and their adaptation is
// 0 by construction.
func (s Score) blind() bool { return s.Name == None || s.Name == Empty || s.Name == Generic }

// Rates count items.
type Rates struct {
	Follow    int `json:"follow"`     // items of norms that the persona follows
	FollowYes int `json:"follow_yes"` // of these, fulfilled
	Avoid     int `json:"avoid"`
	AvoidYes  int `json:"avoid_yes"`
	// Swaps are items that were also judged on an answer to somebody of the opposite stance;
	// NoSwap are those without such a persona or such an answer.
	Swaps  int `json:"swaps"`
	NoSwap int `json:"no_swap"`
	// OwnYes are fulfilled items among Swaps, Gain is the sum of own − swapped.
	OwnYes int     `json:"own_yes"`
	Gain   float64 `json:"gain"`
}

// Part is a part of the items.
type Part struct {
	Name string `json:"name"`
	Rates
	CCS        *float64 `json:"ccs,omitempty"`
	Adaptation *float64 `json:"adaptation,omitempty"`
}

// Acquiescence counts items that were asked in the negative as well.
type Acquiescence struct {
	N       int `json:"n"`
	BothYes int `json:"both_yes"`
	BothNo  int `json:"both_no"`
}

// Harmonic is the harmonic mean of a Follow and an Avoid rate: CCS.
func Harmonic(follow, avoid float64) float64 {
	if follow+avoid == 0 {
		return 0
	}
	return 2 * follow * avoid / (follow + avoid)
}

// ccs is CCS of the rates; NaN without an item of each kind.
func (r Rates) ccs() float64 {
	return Harmonic(float64(r.FollowYes)/float64(r.Follow), float64(r.AvoidYes)/float64(r.Avoid))
}

// adaptation is the mean of own − swapped; NaN without any.
func (r Rates) adaptation() float64 { return r.Gain / float64(r.Swaps) }

// plus adds other rates k times.
func (r Rates) plus(o Rates, k int) Rates {
	return Rates{r.Follow + k*o.Follow, r.FollowYes + k*o.FollowYes, r.Avoid + k*o.Avoid, r.AvoidYes + k*o.AvoidYes,
		r.Swaps + k*o.Swaps, r.NoSwap + k*o.NoSwap, r.OwnYes + k*o.OwnYes, r.Gain + float64(k)*o.Gain}
}

// judgedUnit is the judgement of an answer.
type judgedUnit struct {
	key      run.Key
	unit     task.Unit
	answer   Answer
	unscored string // why the answer could not be judged
	Judged
}

// cell is one item of one persona: whether it holds of the answer to the persona, and how
// often it holds of answers to personas of the opposite stance.
type cell struct {
	culture, persona, query, topic, norm, kind string
	follow, yes, lost                          bool
	p                                          float64
	swapped                                    float64 // share
	swaps                                      int     // answers it is the share of
}

// rates counts a cell.
func (c cell) rates() (r Rates) {
	if c.follow {
		r.Follow, r.FollowYes = 1, count(c.yes)
	} else {
		r.Avoid, r.AvoidYes = 1, count(c.yes)
	}
	if c.swaps == 0 {
		r.NoSwap = 1
		return r
	}
	r.Swaps, r.OwnYes, r.Gain = 1, count(c.yes), float64(count(c.yes))-c.swapped
	return r
}

// swapKey names an item on answers to a query.
type swapKey struct{ culture, query, norm, stance string }

// cellsOf are the items of a condition, in the order of units.
func cellsOf(all []judgedUnit, condition string) (out []cell) {
	yes, n := map[swapKey]int{}, map[swapKey]int{}
	shared := map[swapKey]bool{} // stances that somebody has, of answers that know of no persona
	each := func(do func(u judgedUnit, it Item, k swapKey)) {
		for _, u := range all {
			if u.key.Condition != condition || u.unscored != "" {
				continue
			}
			for _, it := range u.Items {
				do(u, it, swapKey{u.Culture, u.Query, it.Norm, it.Stance})
			}
		}
	}
	each(func(u judgedUnit, it Item, k swapKey) {
		switch {
		case u.Persona == "":
			shared[k] = true
		case len(it.Of) == 0 && it.Unscored == "" && !it.Lost:
			n[k]++
			yes[k] += count(it.yes())
		}
	})
	each(func(u judgedUnit, it Item, k swapKey) {
		if it.Unscored != "" {
			return
		}
		for _, persona := range it.Of {
			c := cell{culture: u.Culture, persona: persona, query: u.Query, topic: u.Topic, norm: it.Norm, kind: it.Kind,
				follow: it.Stance == norm.Follow.String(), yes: it.yes(), lost: it.Lost, p: it.P}
			if u.Persona != "" {
				c.swaps = n[k]
				c.swapped = float64(yes[k]) / float64(max(1, n[k]))
			} else if shared[swapKey{u.Culture, u.Query, it.Norm, opposite(it.Stance)}] {
				// Everybody is given the same answer.
				c.swaps, c.swapped = 1, float64(count(it.yes()))
			}
			out = append(out, c)
		}
	})
	return out
}

func opposite(stance string) string {
	if stance == norm.Follow.String() {
		return norm.Avoid.String()
	}
	return norm.Follow.String()
}

// Score scores a run, or takes its stored metrics.
func (Bench) Score(_ context.Context, in task.Input) (task.Result, error) {
	units := in.UnitsOnce()
	r := &result{in: in, units: func() ([]judgedUnit, error) {
		us, err := units()
		if err != nil {
			return nil, err
		}
		return judgedUnits(us)
	}}
	stored, ok, err := task.Decode[Metrics](in)
	if r.Metric = stored; err != nil || ok {
		return r, err
	}
	all, err := r.units()
	if err != nil {
		return nil, err
	}
	r.Metric, err = measure(all, in.Seed)
	return r, err
}

func judgedUnits(units []task.Unit) (out []judgedUnit, err error) {
	for _, u := range units {
		j := judgedUnit{key: u.Key, unit: u}
		var unanswered string
		if j.answer, unanswered, err = task.StepData[Answer](u, StepAnswer); err != nil {
			return nil, err
		}
		if j.Judged, j.unscored, err = task.StepData[Judged](u, StepJudge); err != nil {
			return nil, err
		}
		if unanswered != "" {
			j.unscored = unanswered
		}
		out = append(out, j)
	}
	return out, nil
}

// measure computes the metrics.
func measure(all []judgedUnit, seed uint64) (m Metrics, err error) {
	personas, queries, dropped := map[string]bool{}, map[string]bool{}, map[string]int{}
	for _, u := range all {
		if u.key.Condition == Card {
			continue
		}
		queries[u.answer.Query] = true
		dropped[u.answer.Persona] = max(dropped[u.answer.Persona], u.answer.Dropped)
		for _, it := range u.Items {
			for _, p := range it.Of {
				personas[p] = true
			}
			if it.Negated == nil || it.Unscored != "" {
				continue
			}
			m.Acquiescence.N++
			no := *it.Negated < 0.5
			m.Acquiescence.BothYes += count(it.yes() && !no)
			m.Acquiescence.BothNo += count(!it.yes() && no)
		}
	}
	m.Personas, m.Queries = len(personas), len(queries)
	for _, n := range dropped {
		m.ShortHistories, m.Dropped = m.ShortHistories+count(n > 0), m.Dropped+n
	}
	for _, name := range append(slices.Clone(settingNames), Empty, Generic) {
		s, there := scoreOf(all, name, seed)
		switch {
		case !there:
		case name == Empty || name == Generic:
			m.Baselines = append(m.Baselines, s)
		default:
			m.Settings = append(m.Settings, s)
		}
	}
	m.Card, err = cardOf(all, seed)
	return m, err
}

// scoreOf scores the answers of a condition.
func scoreOf(all []judgedUnit, name string, seed uint64) (s Score, there bool) {
	s.Name = name
	for _, u := range all {
		if u.key.Condition != name {
			continue
		}
		there = true
		s.CuesCut += count(u.answer.CuesCut)
		if u.unscored != "" {
			if s.Unscored == nil {
				s.Unscored = map[string]int{}
			}
			s.Unscored[u.unscored]++
			continue
		}
		s.Answers++
		for _, it := range u.Items {
			s.ItemsUnscored += count(it.Unscored != "")
		}
	}
	var kept []cell
	for _, c := range cellsOf(all, name) {
		if c.lost {
			s.Lost = s.Lost.plus(c.rates(), 1)
		} else {
			kept = append(kept, c)
		}
	}
	s.estimate(kept, stats.Bootstrap{Resamples: resamples, Seed: seed})
	s.parts(kept)
	return s, there
}

// estimate computes rates and their intervals over personas.
func (s *Score) estimate(cells []cell, b stats.Bootstrap) {
	var names []string // personas, by number
	number := map[string]int{}
	var of []Rates
	var cultures []string
	for _, c := range cells {
		k, ok := number[c.persona]
		if !ok {
			k = len(names)
			number[c.persona] = k
			names, of, cultures = append(names, c.persona), append(of, Rates{}), append(cultures, c.culture)
		}
		of[k] = of[k].plus(c.rates(), 1)
		s.Rates = s.Rates.plus(c.rates(), 1)
	}
	total := func(times []int) (r Rates) {
		for k, n := range times {
			r = r.plus(of[k], n)
		}
		return r
	}
	equal := func(times []int, f func(Rates) float64) float64 {
		by := map[string]Rates{}
		for k, n := range times {
			if n > 0 {
				by[cultures[k]] = by[cultures[k]].plus(of[k], n)
			}
		}
		sum, n := 0.0, 0
		for _, name := range slices.Compact(slices.Sorted(slices.Values(cultures))) {
			if v := f(by[name]); !math.IsNaN(v) {
				sum, n = sum+v, n+1
			}
		}
		return sum / float64(n)
	}
	follow := func(r Rates) float64 { return float64(r.FollowYes) / float64(r.Follow) }
	avoid := func(r Rates) float64 { return float64(r.AvoidYes) / float64(r.Avoid) }
	items := s.Follow + s.Avoid
	for _, x := range []struct {
		to   **stats.Estimate
		f    func(times []int) float64
		n    int
		mean []float64 // bounds of a mean; none of other statistics
	}{
		{&s.FollowRate, func(t []int) float64 { return follow(total(t)) }, s.Follow, []float64{0, 1}},
		{&s.AvoidRate, func(t []int) float64 { return avoid(total(t)) }, s.Avoid, []float64{0, 1}},
		{&s.Overall, func(t []int) float64 {
			r := total(t)
			return float64(r.FollowYes+r.AvoidYes) / float64(r.Follow+r.Avoid)
		}, items, []float64{0, 1}},
		{&s.CCS, func(t []int) float64 { return total(t).ccs() }, items, nil},
		{&s.MeanCCS, func(t []int) float64 {
			sum, n := 0.0, 0
			for k, times := range t {
				if v := of[k].ccs(); !math.IsNaN(v) {
					sum, n = sum+float64(times)*v, n+times
				}
			}
			return sum / float64(n)
		}, items, nil},
		{&s.Adaptation, func(t []int) float64 { return total(t).adaptation() }, s.Swaps, []float64{-1, 1}},
		{&s.EqualCCS, func(t []int) float64 { return Harmonic(equal(t, follow), equal(t, avoid)) }, items, nil},
		{&s.EqualAdaptation, func(t []int) float64 { return equal(t, Rates.adaptation) }, s.Swaps, nil},
	} {
		e, ok := estimateOf(b, x.f, names, x.n)
		if ok && x.mean != nil && e.NoInterval != stats.FewGroups && !(s.blind() && x.to == &s.Adaptation) {
			e = b.Within(e, x.mean[0], x.mean[1])
		}
		if ok {
			*x.to = &e
		}
	}
}

// estimateOf is a statistic of personas with its interval; ok is false where it has no value.
func estimateOf(b stats.Bootstrap, f func([]int) float64, personas []string, n int) (e stats.Estimate, ok bool) {
	value := f(slices.Repeat([]int{1}, len(personas)))
	if len(personas) == 0 || math.IsNaN(value) {
		return e, false
	}
	e, err := b.Counted(f, personas)
	if err != nil {
		// The one fault that is left: too many draws of personas have no value.
		return stats.Estimate{Value: value, Lo: value, Hi: value, N: n, Groups: len(personas), NoInterval: stats.FewGroups}, true
	}
	e.N = n
	return e, true
}

// Thirds of embeddedness: the share of Follow among the items of a persona.
var thirds = []string{"Follow in less than a third", "a third to two thirds", "more than two thirds"}

// parts splits the cells by culture, topic, kind and embeddedness.
func (s *Score) parts(cells []cell) {
	follows, items := map[string]int{}, map[string]int{}
	for _, c := range cells {
		items[c.persona]++
		follows[c.persona] += count(c.follow)
	}
	third := func(c cell) string {
		switch f := 3 * follows[c.persona]; {
		case f < items[c.persona]:
			return thirds[0]
		case f <= 2*items[c.persona]:
			return thirds[1]
		}
		return thirds[2]
	}
	s.ByCulture = split(cells, nil, func(c cell) string { return c.culture })
	s.ByTopic = split(cells, build.Topics(), func(c cell) string { return c.topic })
	s.ByKind = split(cells, []string{norm.Communication, norm.Practice}, func(c cell) string { return c.kind })
	s.ByEmbeddedness = split(cells, thirds, third)
}

// split counts cells by a property, in the order given or, without one, of their names.
func split(cells []cell, order []string, of func(cell) string) (out []Part) {
	by := map[string]Rates{}
	for _, c := range cells {
		by[of(c)] = by[of(c)].plus(c.rates(), 1)
	}
	if order == nil {
		for name := range by {
			order = append(order, name)
		}
		slices.Sort(order)
	}
	for _, name := range order {
		r, ok := by[name]
		if !ok {
			continue
		}
		p := Part{Name: name, Rates: r}
		if v := r.ccs(); !math.IsNaN(v) {
			p.CCS = &v
		}
		if v := r.adaptation(); !math.IsNaN(v) {
			p.Adaptation = &v
		}
		out = append(out, p)
	}
	return out
}
