package socrates

import (
	"fmt"
	"math"

	"github.com/ccmed/ccmed/bench/socrates/scenario"
	"github.com/ccmed/ccmed/bench/stats"
)

// Windows of the measures, in party turns, and the fall of S that is a drop, in tenths.
const (
	dropWindow   = 10
	effectWindow = 5
	dropTenths   = 1
)

// trajectory is the agreement S over a talk, in integers: at[k], after k party turns, is the
// sum over topics of agreement − 1, of most that it can be. S is at[k]/most, in 0..1.
type trajectory struct {
	at   []int
	most int
}

// trajectory adds up the topics.
func (e Evaluation) trajectory() trajectory {
	t := trajectory{make([]int, e.PartyTurns+1), (mostAgreement - 1) * len(e.Topics)}
	for _, topic := range e.Topics {
		now, next := 0, 0
		for k := 1; k <= e.PartyTurns; k++ {
			for next < len(topic.Readings) && topic.Readings[next].Turn <= k {
				now = topic.Readings[next].Agreement - 1
				next++
			}
			t.at[k] += now
		}
	}
	return t
}

// check says why an evaluation cannot be that of a talk of so many party turns, or "".
func (e Evaluation) check(partyTurns int) string {
	if e.PartyTurns != partyTurns {
		return fmt.Sprintf("the evaluation is of %d party turns, and the talk has %d", e.PartyTurns, partyTurns)
	}
	if len(e.Topics) == 0 {
		return "the evaluation holds no topic"
	}
	for _, t := range e.Topics {
		last := 0
		for _, r := range t.Readings {
			if r.Turn <= last || r.Turn > e.PartyTurns || r.Agreement < 1 || r.Agreement > mostAgreement {
				return fmt.Sprintf("the reading of %s at turn %d cannot be", t.Topic, r.Turn)
			}
			last = r.Turn
		}
	}
	return ""
}

func (t trajectory) turns() int      { return len(t.at) - 1 }
func (t trajectory) final() int      { return t.at[t.turns()] }
func (t trajectory) s(k int) float64 { return float64(t.at[k]) / float64(t.most) }

// drops are the party turns after which S is lower by at least a tenth than before.
func (t trajectory) drops() (out []int) {
	for k := 1; k <= t.turns(); k++ {
		if 10*(t.at[k-1]-t.at[k]) >= dropTenths*t.most {
			out = append(out, k)
		}
	}
	return out
}

// timeliness is, of a talk, the mean over drops of 100 for an intervention right after the
// drop, less by 10 for every party turn that it comes later, and 0 from the tenth on or for
// none. ok is false of a talk without a drop.
func (t trajectory) timeliness(interventions []int) (value float64, drops int, ok bool) {
	ds := t.drops()
	for _, d := range ds {
		for _, k := range interventions {
			if k >= d && k <= d+dropWindow {
				value += (1 - float64(k-d)/dropWindow) * 100
				break
			}
		}
	}
	if len(ds) == 0 {
		return 0, 0, false
	}
	return value / float64(len(ds)), len(ds), true
}

// effect is how much of the disagreement that is left after k party turns the next five turns
// take away, in per cent; at most to the talk's end. ok is false where nothing is left, or
// where the talk is over.
func (t trajectory) effect(k int) (value float64, ok bool) {
	if k >= t.turns() || t.at[k] == t.most {
		return 0, false
	}
	return 100 * float64(t.at[min(k+effectWindow, t.turns())]-t.at[k]) / float64(t.most-t.at[k]), true
}

// gainOver is the consensus gain over an unmediated talk, in per cent of the disagreement that
// it leaves; of one that leaves none, the difference in points.
func (t trajectory) gainOver(u trajectory) float64 {
	d := t.final() - u.final() // of one scenario: most is equal
	if u.final() == u.most {
		return 100 * float64(d) / float64(u.most)
	}
	return 100 * float64(d) / float64(u.most-u.final())
}

// Consensus is what an evaluator finds of the talks.
type Consensus struct {
	Role string         `json:"role"`
	Form string         `json:"form"`
	Arms []ConsensusArm `json:"arms"`
	// Card is nil of a run without recorded talks.
	Card *Card `json:"card,omitempty"`
	// Gain is the mean consensus gain in per cent, DeltaS the mean difference of final S, and
	// Pooled the sum of the differences over the sum of what unmediated talks leave, in per
	// cent: one talk that leaves little cannot decide it. NullGain and NullPooled are those of
	// talks from other seeds.
	Gain       *stats.Estimate `json:"gain,omitempty"`
	DeltaS     *stats.Estimate `json:"delta_s,omitempty"`
	Pooled     *stats.Estimate `json:"pooled,omitempty"`
	NullGain   *stats.Estimate `json:"null_gain,omitempty"`
	NullPooled *stats.Estimate `json:"null_pooled,omitempty"`
	Timeliness *stats.Estimate `json:"timeliness,omitempty"` // over talks with a drop
	Drops      int             `json:"drops"`
	NoDrop     int             `json:"no_drop"` // talks without one
	// Effectiveness is the mean over talks of the mean effect of their interventions; Sham is
	// the same at the same turns of the unmediated talk, and OverSham the difference.
	Effectiveness *stats.Estimate `json:"effectiveness,omitempty"`
	Sham          *stats.Estimate `json:"sham,omitempty"`
	OverSham      *stats.Estimate `json:"over_sham,omitempty"`
	Interventions int             `json:"interventions"`
	Undefined     int             `json:"undefined"` // at S = 1: there is nothing left to move
	NoSham        int             `json:"no_sham"`   // the unmediated talk was over, or at S = 1
	ByAxis        []ConsensusPart `json:"by_axis"`
	ByDomain      []ConsensusPart `json:"by_domain"`
	ByCondition   []ConsensusPart `json:"by_condition,omitempty"`
	// AgreedInWords counts the agreements of talks whose parties hold different options on a
	// topic at the end, of those whose options were read.
	AgreedInWords int `json:"agreed_in_words"`
	Agreements    int `json:"agreements"`
	Dropped       int `json:"dropped,omitempty"` // impossible readings of FormPass
}

// ConsensusArm is the final agreement of a step's talks.
type ConsensusArm struct {
	Step     string          `json:"step"`
	Scored   int             `json:"scored"`
	Unscored map[string]int  `json:"unscored,omitempty"` // by reason, talks that are no talk themselves left out
	Final    *stats.Estimate `json:"final_s,omitempty"`
	// Curve is the mean of S over the talk; a talk that is over keeps its last value.
	Curve []CurvePoint `json:"curve,omitempty"`
}

// CurvePoint is the mean of S after so many party turns.
type CurvePoint struct {
	Turn  int            `json:"turn"`
	S     stats.Estimate `json:"s"`
	Going int            `json:"going"` // talks that have so many turns
}

// curvePoints is about how many points a curve has.
const curvePoints = 20

// ConsensusPart is the part of the talks of an axis, a domain or a condition.
type ConsensusPart struct {
	Name   string  `json:"name"`
	Talks  int     `json:"talks"`
	DeltaS float64 `json:"delta_s"`
	Pooled float64 `json:"pooled"` // per cent; 0 where nothing is left to gain
}

// evaluated is a pair with what one evaluator read in its talks.
type evaluated struct {
	pair
	read map[string]Evaluation
	not  map[string]string // why a step has no evaluation that counts
}

func (e evaluated) trajectory(step string) (trajectory, bool) {
	if _, ok := e.read[step]; !ok || e.not[step] != "" {
		return trajectory{}, false
	}
	return e.read[step].trajectory(), true
}

// final is S at the end of a step's talk.
func (e evaluated) final(step string) (float64, bool) {
	t, ok := e.trajectory(step)
	if !ok {
		return 0, false
	}
	return t.s(t.turns()), true
}

// consensus computes what an evaluator finds.
func consensus(es []evaluated, role, form string, seed uint64) (c Consensus, err error) {
	c = Consensus{Role: role, Form: form, ByAxis: []ConsensusPart{}, ByDomain: []ConsensusPart{}}
	for _, step := range steps {
		if a, there, err := consensusArm(es, step, seed); err != nil {
			return c, err
		} else if there {
			c.Arms = append(c.Arms, a)
		}
	}
	if c.Gain, c.DeltaS, c.Pooled, err = gains(es, StepMediated, seed); err != nil {
		return c, err
	}
	if c.NullGain, _, c.NullPooled, err = gains(es, StepNull, seed); err != nil {
		return c, err
	}
	if err := c.interventions(es, seed); err != nil {
		return c, err
	}
	c.ByAxis = consensusParts(es, scenario.Axes(), func(e evaluated) string { return e.talks[StepMediated].Axis })
	c.ByDomain = consensusParts(es, scenario.Domains(), func(e evaluated) string { return e.talks[StepMediated].Domain })
	c.ByCondition = consensusParts(es, conditionNames(), func(e evaluated) string { return e.key.Key.Condition })
	for _, e := range es {
		for _, step := range steps {
			if t, ok := e.scored(step); ok && t.End == EndAgreement && e.not[step] == "" {
				if same, known := e.read[step].sameStances(t.Parties); known {
					c.Agreements++
					c.AgreedInWords += count(!same)
				}
			}
			c.Dropped += e.read[step].Dropped
		}
	}
	return c, nil
}

func consensusArm(es []evaluated, step string, seed uint64) (a ConsensusArm, there bool, err error) {
	a.Step = step
	var final sampled
	var talks []trajectory
	for _, e := range es {
		if _, ok := e.scored(step); !ok {
			continue
		}
		there = true
		t, ok := e.trajectory(step)
		if !ok {
			if a.Unscored == nil {
				a.Unscored = map[string]int{}
			}
			a.Unscored[e.not[step]]++
			continue
		}
		a.Scored++
		final.add(t.s(t.turns()), e.key.Key.Item)
		talks = append(talks, t)
	}
	if a.Final, err = final.mean(seed); err != nil {
		return a, there, err
	}
	a.Curve, err = curve(talks, final.groups, seed)
	return a, there, err
}

// curve averages talks turn by turn.
func curve(talks []trajectory, groups []string, seed uint64) (out []CurvePoint, err error) {
	if len(talks) == 0 {
		return nil, nil
	}
	longest := 0
	for _, t := range talks {
		longest = max(longest, t.turns())
	}
	for k := 0; k <= longest; k += max(1, longest/curvePoints) {
		p, at := CurvePoint{Turn: k}, sampled{groups: groups}
		for _, t := range talks {
			at.v = append(at.v, t.s(min(k, t.turns())))
			p.Going += count(k <= t.turns())
		}
		e, err := at.mean(seed)
		if err != nil {
			return nil, err
		}
		p.S = *e
		out = append(out, p)
	}
	return out, nil
}

// gains compares a step's final agreement with that of the unmediated talks.
func gains(es []evaluated, step string, seed uint64) (gain, delta, pooled *stats.Estimate, err error) {
	var g, d sampled
	var left []float64
	for _, e := range es {
		t, ok := e.trajectory(step)
		u, base := e.trajectory(StepUnmediated)
		if !ok || !base {
			continue
		}
		g.add(t.gainOver(u), e.key.Key.Item)
		d.add(t.s(t.turns())-u.s(u.turns()), e.key.Key.Item)
		left = append(left, 1-u.s(u.turns()))
	}
	if gain, err = g.mean(seed); err != nil {
		return nil, nil, nil, err
	}
	if delta, err = d.mean(seed); err != nil {
		return nil, nil, nil, err
	}
	ratio := func(rows []int) float64 {
		up, down := 0.0, 0.0
		for _, i := range rows {
			up, down = up+d.v[i], down+left[i]
		}
		return 100 * up / down // NaN or infinite where nothing is left
	}
	all := make([]int, len(left))
	for i := range all {
		all[i] = i
	}
	if v := ratio(all); math.IsNaN(v) || math.IsInf(v, 0) {
		return gain, delta, nil, nil
	}
	e, err := stats.Bootstrap{Resamples: resamples, Seed: seed}.Statistic(func(rows []int) float64 {
		if v := ratio(rows); !math.IsInf(v, 0) {
			return v
		}
		return math.NaN()
	}, d.groups)
	return gain, delta, &e, err
}

// interventions measures when the mediator speaks, and what follows.
func (c *Consensus) interventions(es []evaluated, seed uint64) (err error) {
	var timeliness, effects, shams, over sampled
	for _, e := range es {
		t, ok := e.trajectory(StepMediated)
		if !ok {
			continue
		}
		talk, item := e.talks[StepMediated], e.key.Key.Item
		v, drops, ok := t.timeliness(talk.Interventions())
		if c.Drops += drops; ok {
			timeliness.add(v, item)
		} else {
			c.NoDrop++
		}
		x := e.effects()
		c.Interventions, c.Undefined, c.NoSham = c.Interventions+len(talk.Interventions()), c.Undefined+x.undefined, c.NoSham+x.noSham
		if len(x.with) > 0 {
			effects.add(average(x.with), item)
		}
		if len(x.paired) > 0 {
			shams.add(average(x.without), item)
			over.add(average(x.paired)-average(x.without), item)
		}
	}
	for _, x := range []struct {
		to   **stats.Estimate
		from *sampled
	}{{&c.Timeliness, &timeliness}, {&c.Effectiveness, &effects}, {&c.Sham, &shams}, {&c.OverSham, &over}} {
		if *x.to, err = x.from.mean(seed); err != nil {
			return err
		}
	}
	return nil
}

// effects are those of the interventions of a talk: with them, and of those that have a sham,
// with them and without.
type effects struct {
	with, paired, without []float64
	undefined, noSham     int
}

func (e evaluated) effects() (x effects) {
	t, ok := e.trajectory(StepMediated)
	u, base := e.trajectory(StepUnmediated)
	if !ok {
		return x
	}
	for _, k := range e.talks[StepMediated].Interventions() {
		v, ok := t.effect(k)
		if !ok {
			x.undefined++
			continue
		}
		x.with = append(x.with, v)
		if !base {
			continue
		}
		if s, ok := u.effect(k); ok {
			x.paired, x.without = append(x.paired, v), append(x.without, s)
		} else {
			x.noSham++
		}
	}
	return x
}

func average(v []float64) float64 {
	sum := 0.0
	for _, x := range v {
		sum += x
	}
	return sum / float64(len(v))
}

// conditionNames are the conditions in their order.
func conditionNames() (names []string) {
	for _, c := range scenario.Conditions() {
		names = append(names, c.Name)
	}
	return names
}

func consensusParts(es []evaluated, names []string, of func(evaluated) string) []ConsensusPart {
	out := []ConsensusPart{}
	for _, name := range names {
		x, left := ConsensusPart{Name: name}, 0.0
		for _, e := range es {
			t, ok := e.trajectory(StepMediated)
			u, base := e.trajectory(StepUnmediated)
			if !ok || !base || of(e) != name {
				continue
			}
			x.Talks++
			x.DeltaS += t.s(t.turns()) - u.s(u.turns())
			left += 1 - u.s(u.turns())
		}
		if x.Talks == 0 {
			continue
		}
		if left > 0 {
			x.Pooled = 100 * x.DeltaS / left
		}
		x.DeltaS /= float64(x.Talks)
		out = append(out, x)
	}
	return out
}

// sameStances says whether, on each topic, all parties hold one option at the end. known is
// false where no options were read.
func (e Evaluation) sameStances(parties []string) (same, known bool) {
	same = true
	for _, t := range e.Topics {
		if len(t.Readings) == 0 || t.Readings[len(t.Readings)-1].Stances == nil {
			continue
		}
		known = true
		held := t.Readings[len(t.Readings)-1].Stances
		for _, p := range parties {
			same = same && held[p] != "" && held[p] == held[parties[0]]
		}
	}
	return same, known
}
