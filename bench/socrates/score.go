package socrates

import (
	"context"
	"slices"

	"github.com/ccmed/ccmed/bench/socrates/scenario"
	"github.com/ccmed/ccmed/bench/stats"
	"github.com/ccmed/ccmed/bench/task"
)

// resamples of intervals over scenarios.
const resamples = 2000

// Metrics are what scoring finds.
type Metrics struct {
	Talks int        `json:"talks"` // scenarios under conditions
	Arms  []ArmScore `json:"arms"`
	// Gain is the rate of agreement with the mediator minus that without, over talks that
	// both have; NullGain the same of the talks from other seeds.
	Gain     *stats.Estimate `json:"gain,omitempty"`
	NullGain *stats.Estimate `json:"null_gain,omitempty"`
	// Frequency is the mean share of party turns before which the mediator spoke, First the
	// mean share of a talk that is over when it does so first; Silent counts talks in which
	// it never did, of which there is no first.
	Frequency *stats.Estimate `json:"frequency,omitempty"`
	First     *stats.Estimate `json:"first,omitempty"`
	Silent    int             `json:"silent"`
	ByAxis    []Part          `json:"by_axis"`
	ByDomain  []Part          `json:"by_domain"`
	Repaired  int             `json:"repaired"` // turns whose second answer could be read
	Trimmed   int             `json:"trimmed"`  // turns that spoke in another's name
	Cut       int             `json:"cut"`      // mediator's turns that end at their cap
	MedTurns  int             `json:"mediator_turns"`
	// Consensus is what the evaluators read, Correlations how far they agree. Runs of older
	// versions have none.
	Consensus    []Consensus   `json:"consensus,omitempty"`
	Correlations []Correlation `json:"correlations,omitempty"`
}

// ArmScore is how the talks of a step end.
type ArmScore struct {
	Step      string          `json:"step"`
	Unscored  map[string]int  `json:"unscored,omitempty"` // by reason
	Scored    int             `json:"scored"`
	Agreed    int             `json:"agreed"`
	Impasse   int             `json:"impasse"`
	NoEnd     int             `json:"no_end"` // at the most turns
	Turns     float64         `json:"turns"`  // mean of party turns
	Agreement *stats.Estimate `json:"agreement,omitempty"`
}

// Part is a part of the talks that are scored with and without a mediator.
type Part struct {
	Name       string `json:"name"`
	Talks      int    `json:"talks"`
	Unmediated int    `json:"unmediated"` // agreements
	Mediated   int    `json:"mediated"`
}

// pair is a scenario under a condition with its talks by step.
type pair struct {
	key   task.Unit
	talks map[string]Talk
	why   map[string]string // unscored, by step
}

// scored is the talk of a step, where it can be counted.
func (p pair) scored(step string) (Talk, bool) {
	t, ok := p.talks[step]
	return t, ok && p.why[step] == ""
}

// recordedUnit says that a unit is a talk of the evaluator card.
func recordedUnit(u task.Unit) bool {
	_, ok := u.Step(StepRecorded)
	return ok
}

var steps = []string{StepUnmediated, StepNull, StepMediated}

func pairs(units []task.Unit) ([]pair, error) {
	var out []pair
	for _, u := range units {
		if recordedUnit(u) {
			continue
		}
		p := pair{key: u, talks: map[string]Talk{}, why: map[string]string{}}
		for _, step := range steps {
			if _, ok := u.Step(step); !ok {
				continue
			}
			t, unscored, err := task.StepData[Talk](u, step)
			if err != nil {
				return nil, err
			}
			if unscored == "" && !slices.Contains([]string{EndAgreement, EndImpasse, EndTurns}, t.End) {
				unscored = "the sample does not say how the talk ended"
			}
			p.talks[step], p.why[step] = t, unscored
		}
		out = append(out, p)
	}
	return out, nil
}

// evaluations are what one evaluator read. there is false of one that read nothing.
func evaluations(ps []pair, role string) (es []evaluated, there bool, err error) {
	for _, p := range ps {
		e := evaluated{p, map[string]Evaluation{}, map[string]string{}}
		for _, step := range steps {
			if _, ok := p.key.Step(stepOf(role, step)); !ok {
				continue
			}
			there = true
			x, unscored, err := task.StepData[Evaluation](p.key, stepOf(role, step))
			if err != nil {
				return nil, false, err
			}
			if unscored == "" {
				unscored = x.check(p.talks[step].PartyTurns())
			}
			e.read[step], e.not[step] = x, unscored
		}
		es = append(es, e)
	}
	return es, there, nil
}

// evaluations adds what evaluators read to the metrics.
func (m *Metrics) evaluations(ps []pair, units []task.Unit, form string, seed uint64) error {
	var by [][]evaluated
	var roles []string
	for k := range mostEvaluators {
		role := evaluatorRole(k)
		es, there, err := evaluations(ps, role)
		if err != nil {
			return err
		}
		if !there {
			continue
		}
		c, err := consensus(es, role, form, seed)
		if err != nil {
			return err
		}
		if c.Card, err = cardOf(units, role, seed); err != nil {
			return err
		}
		by, roles, m.Consensus = append(by, es), append(roles, role), append(m.Consensus, c)
	}
	m.Correlations = correlations(by, roles, seed)
	return nil
}

// any is one of the talks, for what they share.
func (p pair) any() Talk {
	for _, step := range steps {
		if t, ok := p.talks[step]; ok {
			return t
		}
	}
	return Talk{}
}

func agreed(t Talk) float64 {
	if t.End == EndAgreement {
		return 1
	}
	return 0
}

// sampled are values with their scenarios.
type sampled struct {
	v      []float64
	groups []string
}

func (s *sampled) add(v float64, scenario string) {
	s.v, s.groups = append(s.v, v), append(s.groups, scenario)
}

func (s *sampled) mean(seed uint64) (*stats.Estimate, error) {
	if len(s.v) == 0 {
		return nil, nil
	}
	e, err := stats.Bootstrap{Resamples: resamples, Seed: seed}.Mean(s.v, s.groups)
	return &e, err
}

// Score scores a run, or takes its stored metrics.
func (Bench) Score(_ context.Context, in task.Input) (task.Result, error) {
	units := in.UnitsOnce()
	r := &result{in: in, units: units, pairs: func() ([]pair, error) {
		us, err := units()
		if err != nil {
			return nil, err
		}
		return pairs(us)
	}}
	stored, ok, err := task.Decode[Metrics](in)
	if r.Metric = stored; err != nil || ok {
		return r, err
	}
	ps, err := r.pairs()
	if err != nil {
		return nil, err
	}
	form := ""
	if s, err := task.Settings[settings](in.Identity()); err == nil {
		form = s.Form
	}
	us, err := units()
	if err != nil {
		return nil, err
	}
	r.Metric, err = measure(ps, us, form, in.Seed)
	return r, err
}

// measure computes the metrics; units hold the recorded talks too.
func measure(ps []pair, units []task.Unit, form string, seed uint64) (m Metrics, err error) {
	m.Talks = len(ps)
	for _, step := range steps {
		a, there, err := armScore(ps, step, seed)
		if err != nil {
			return m, err
		}
		if there {
			m.Arms = append(m.Arms, a)
		}
	}
	if m.Gain, err = gain(ps, StepMediated, seed); err != nil {
		return m, err
	}
	if m.NullGain, err = gain(ps, StepNull, seed); err != nil {
		return m, err
	}
	var frequency, first sampled
	for _, p := range ps {
		for _, step := range steps {
			for _, t := range p.talks[step].Turns {
				m.Repaired, m.Trimmed, m.Cut = m.Repaired+count(t.Repaired), m.Trimmed+count(t.Trimmed), m.Cut+count(t.Cut)
				m.MedTurns += count(t.By == MediatorID)
			}
		}
		t, ok := p.scored(StepMediated)
		if !ok || t.PartyTurns() == 0 {
			continue
		}
		at, n := t.Interventions(), float64(t.PartyTurns())
		frequency.add(float64(len(at))/n, p.key.Key.Item)
		if len(at) == 0 {
			m.Silent++
		} else {
			first.add(float64(at[0])/n, p.key.Key.Item)
		}
	}
	if m.Frequency, err = frequency.mean(seed); err != nil {
		return m, err
	}
	if m.First, err = first.mean(seed); err != nil {
		return m, err
	}
	if err := m.evaluations(ps, units, form, seed); err != nil {
		return m, err
	}
	m.ByAxis = parts(ps, scenario.Axes(), func(t Talk) string { return t.Axis })
	m.ByDomain = parts(ps, scenario.Domains(), func(t Talk) string { return t.Domain })
	return m, nil
}

func count(b bool) int {
	if b {
		return 1
	}
	return 0
}

func armScore(ps []pair, step string, seed uint64) (a ArmScore, there bool, err error) {
	a.Step = step
	var agreements sampled
	turns := 0
	for _, p := range ps {
		if _, ok := p.talks[step]; !ok {
			continue
		}
		there = true
		t, ok := p.scored(step)
		if !ok {
			if a.Unscored == nil {
				a.Unscored = map[string]int{}
			}
			a.Unscored[p.why[step]]++
			continue
		}
		a.Scored++
		turns += t.PartyTurns()
		agreements.add(agreed(t), p.key.Key.Item)
		switch t.End {
		case EndAgreement:
			a.Agreed++
		case EndImpasse:
			a.Impasse++
		default:
			a.NoEnd++
		}
	}
	if a.Scored > 0 {
		a.Turns = float64(turns) / float64(a.Scored)
	}
	a.Agreement, err = agreements.mean(seed)
	return a, there, err
}

// gain is the mean difference of agreement between a step and the unmediated talks.
func gain(ps []pair, step string, seed uint64) (*stats.Estimate, error) {
	var d sampled
	for _, p := range ps {
		t, ok := p.scored(step)
		u, base := p.scored(StepUnmediated)
		if ok && base {
			d.add(agreed(t)-agreed(u), p.key.Key.Item)
		}
	}
	return d.mean(seed)
}

// parts counts agreements by a property of talks.
func parts(ps []pair, names []string, of func(Talk) string) (out []Part) {
	for _, name := range names {
		x := Part{Name: name}
		for _, p := range ps {
			t, ok := p.scored(StepMediated)
			u, base := p.scored(StepUnmediated)
			if !ok || !base || of(u) != name {
				continue
			}
			x.Talks++
			x.Mediated, x.Unmediated = x.Mediated+int(agreed(t)), x.Unmediated+int(agreed(u))
		}
		if x.Talks > 0 {
			out = append(out, x)
		}
	}
	return out
}
