package mediation

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/ccmed/ccmed/bench/dialogue"
	"github.com/ccmed/ccmed/bench/dmis"
	"github.com/ccmed/ccmed/bench/run"
	"github.com/ccmed/ccmed/bench/stats"
	"github.com/ccmed/ccmed/infer"
)

// ScoreOptions set the resampling of Score.
type ScoreOptions struct {
	Seed      uint64
	Resamples int // of bootstrap and permutation; 0 means 10,000
	// ReferenceRule labels again by the public code's rule, from the raw
	// alternatives that the samples keep.
	ReferenceRule bool
	// Recorded is the reliability of the recorded labels; nil where it is unknown.
	Recorded *dialogue.Agreement
}

// Metrics is what a mediation run measured. Where a role is degenerate the numbers
// that would rest on it are left out and Notes say so: what stays are utterances and
// counts. Numbers on weak labels are there, and no finding.
type Metrics struct {
	Conditions []ConditionMetrics `json:"conditions"`
	// Differences are paired by dialogue; one family, Holm-corrected.
	Differences []Difference  `json:"differences,omitempty"`
	Labeller    *LabellerCard `json:"labeller,omitempty"`
	// Grade is what the labels are worth: Reliable, Weak, DegenerateLabels or NoCard.
	Grade string `json:"labels"`
	// PipelineCheck is true when no number of this run is a finding.
	PipelineCheck bool      `json:"pipeline_check"`
	Degenerate    []string  `json:"degenerate,omitempty"` // roles with a constant answer
	Outcomes      []Outcome `json:"outcomes"`
	Notes         []string  `json:"notes,omitempty"`
}

// ConditionMetrics is what one condition came to.
type ConditionMetrics struct {
	Condition string `json:"condition"`
	N         int    `json:"n"`        // dialogues
	Mediated  int    `json:"mediated"` // with a mediator's line
	// DistinctLines counts different utterances.
	DistinctLines int     `json:"distinct_lines"`
	Sentences     float64 `json:"mean_sentences"`
	// Cut counts, by step, the generated texts that end at their cap of tokens, of all
	// whose end is known.
	Cut map[string]Rate `json:"cut,omitempty"`
	// Values holds, by metric, the mean with its interval; Unscored the reasons
	// and counts of dialogues without it.
	Values   map[string]stats.Estimate `json:"values,omitempty"`
	Unscored map[string]map[string]int `json:"unscored,omitempty"`
	// Bounds are what a mean of all N dialogues can be, the unscored ones taken to be at
	// the ends of the scale; of metrics with unscored dialogues.
	Bounds map[string]stats.Range `json:"bounds,omitempty"`
	// Shared is Values over the dialogues that every condition with the metric has it of,
	// where these are not the same in all: rows can then be held against each other.
	Shared map[string]stats.Estimate `json:"shared,omitempty"`
	// PerStage holds the metrics' means by conflict stage.
	PerStage map[string]map[string]stats.Estimate `json:"per_stage,omitempty"`
	// Trajectory and Flow rest on labels; nil where nothing does.
	Trajectory *Trajectory `json:"trajectory,omitempty"`
	Flow       *Flow       `json:"flow,omitempty"`
	// Timing splits AUC by early, exact and late interventions, where a
	// predicted turn was used.
	Timing map[string]StageMean `json:"timing,omitempty"`
	// AUCAll is the AUC over all dialogues, the unmediated continuation standing
	// in where no turn was predicted.
	AUCAll *stats.Estimate `json:"auc_all,omitempty"`
	// AUCExact is over dialogues whose predicted turn is the gold turn: it
	// conditions on the model's own success and is no headline.
	AUCExact *stats.Estimate `json:"auc_exact,omitempty"`
}

// StageMean is a mean over N dialogues.
type StageMean struct {
	Mean float64 `json:"mean"`
	N    int     `json:"n"`
}

// Difference is a paired difference A − B of a metric.
type Difference struct {
	A      string         `json:"a"`
	B      string         `json:"b"`
	Metric string         `json:"metric"`
	Value  stats.Estimate `json:"value"`
	P      float64        `json:"p"`      // sign-flip permutation by context
	PHolm  float64        `json:"p_holm"` // corrected over this run's family
	// Weak says why the difference is not significant whatever its p; "" of reliable labels.
	Weak string `json:"weak,omitempty"`
}

// Withheld is true where nothing that rests on labels may be said.
func (m Metrics) Withheld() bool { return m.Grade == NoCard || m.Grade == DegenerateLabels }

// onLabels says whether a metric rests on the labeller.
func onLabels(metric string) bool { return metric != Judge && metric != JudgeTop }

// Score computes the metrics of a mediation run from its samples, baselines and
// card included. It asks no model and does not depend on the samples' order.
func Score(samples []run.Sample, o ScoreOptions) (Metrics, error) {
	if o.Resamples == 0 {
		o.Resamples = 10_000
	}
	var m Metrics
	var err error
	if o.ReferenceRule {
		if samples, err = relabel(samples); err != nil {
			return m, err
		}
		m.Notes = append(m.Notes, "stages by the reference rule: the largest variant of a digit, not their sum")
	}
	if m.Outcomes, err = Outcomes(samples); err != nil {
		return m, err
	}
	gate, err := NewGate(samples, o.Recorded)
	if err != nil {
		return m, err
	}
	m.Grade = gate.Grade()
	m.Labeller, m.PipelineCheck, m.Degenerate, m.Notes = gate.Labeller, gate.PipelineCheck(), gate.Degenerate, append(m.Notes, gate.Notes...)
	byCondition := map[string][]Outcome{}
	for _, x := range m.Outcomes {
		byCondition[x.Condition] = append(byCondition[x.Condition], x)
	}
	boot := stats.Bootstrap{Resamples: o.Resamples, Seed: o.Seed}
	for _, cond := range conditionOrder(byCondition) {
		c, err := condition(cond, byCondition[cond], byCondition[Unmediated], gate, boot)
		if err != nil {
			return m, err
		}
		m.Conditions = append(m.Conditions, c)
	}
	if err := m.shared(byCondition, gate, boot); err != nil {
		return m, err
	}
	if err := m.differences(byCondition, gate, o); err != nil {
		return m, err
	}
	gate.Withhold(m.Outcomes)
	return m, nil
}

// relabel applies the public code's rule to the raw alternatives of every label.
// Where that rule sees no digit it calls the turn Denial; here the label is
// unscored.
func relabel(samples []run.Sample) ([]run.Sample, error) {
	out := slices.Clone(samples)
	for i, s := range out {
		if s.Step != StepLabel || s.Unscored != "" {
			continue
		}
		var l Labels
		if err := json.Unmarshal(s.Data, &l); err != nil {
			return nil, fmt.Errorf("mediation sample %s of item %s: %w", s.Step, s.Item, err)
		}
		again := func(t *TurnLabel) {
			tokens, logprobs := make([]string, len(t.Top)), make([]float64, len(t.Top))
			for j, x := range t.Top {
				tokens[j], logprobs[j] = x.Token, x.Logprob
			}
			r := dmis.FromTopReference(tokens, logprobs)
			t.P, t.Mass, t.Missing, t.Ambiguous, t.Unscored, t.Stage = r.Dist, r.Mass, r.Missing, r.Ambiguous, r.Unscored, ""
			if r.Unscored == "" {
				t.Stage = r.Dist.Argmax().String()
			}
		}
		again(&l.Pre)
		if l.Again != nil {
			again(l.Again)
			slices.Reverse(l.Again.P[:])
			if d, ok := l.Again.Dist(); ok {
				l.Again.Stage = d.Argmax().String()
			}
		}
		for j := range l.After {
			again(&l.After[j])
		}
		data, err := json.Marshal(l)
		if err != nil {
			return nil, fmt.Errorf("encode a label: %w", err)
		}
		out[i].Data = data
	}
	return out, nil
}

func conditionOrder(m map[string][]Outcome) []string {
	var out []string
	for _, c := range []string{ND, D, Foreign, GroundTruth, Generic, Unmediated, UnmediatedAt} {
		if len(m[c]) > 0 {
			out = append(out, c)
		}
	}
	return out
}

func condition(name string, os, unmediated []Outcome, gate *Gate, boot stats.Bootstrap) (ConditionMetrics, error) {
	c := ConditionMetrics{Condition: name, N: len(os), Unscored: map[string]map[string]int{}}
	lines := map[string]bool{}
	total := 0
	for _, o := range os {
		if o.Utterance != "" {
			c.Mediated++
			lines[o.Utterance] = true
			total += sentences(o.Utterance)
		}
		for metric, why := range o.Unscored {
			if c.Unscored[metric] == nil {
				c.Unscored[metric] = map[string]int{}
			}
			c.Unscored[metric][why]++
		}
	}
	for _, o := range os {
		c.cut(StepSimulate, o.CutTurns, o.Turns)
		c.cut(StepUtterance, btoi(o.Stop == infer.StopLength), btoi(o.Stop != ""))
	}
	c.DistinctLines = len(lines)
	if c.Mediated > 0 {
		c.Sentences = float64(total) / float64(c.Mediated)
	}
	c.Values, c.PerStage = map[string]stats.Estimate{}, map[string]map[string]stats.Estimate{}
	for _, metric := range MetricNames {
		if !gate.Allows(metric) {
			continue
		}
		v, g := values(os, metric, func(Outcome) bool { return true })
		if len(v) == 0 {
			continue
		}
		e, err := boot.Mean(v, g)
		if err != nil {
			return c, fmt.Errorf("interval of %s under %s: %w", metric, name, err)
		}
		c.Values[metric] = e
		missing := 0
		for _, n := range c.Unscored[metric] {
			missing += n
		}
		if scale, ok := scales[metric]; ok && missing > 0 {
			n := float64(e.N + missing)
			if c.Bounds == nil {
				c.Bounds = map[string]stats.Range{}
			}
			c.Bounds[metric] = stats.Range{Lo: (e.Value*float64(e.N) + scale[0]*float64(missing)) / n, Hi: (e.Value*float64(e.N) + scale[1]*float64(missing)) / n, N: e.N + missing}
		}
		for s := dmis.Denial; s <= dmis.Minimization; s++ {
			v, g := values(os, metric, func(o Outcome) bool { return o.Stage == s.String() })
			if len(v) == 0 {
				continue
			}
			if c.PerStage[s.String()] == nil {
				c.PerStage[s.String()] = map[string]stats.Estimate{}
			}
			if c.PerStage[s.String()][metric], err = boot.Mean(v, g); err != nil {
				return c, fmt.Errorf("interval of %s under %s at %s: %w", metric, name, s, err)
			}
		}
	}
	if !gate.Allows(AUC) {
		return c, nil
	}
	c.Flow = flow(os)
	var err error
	if c.Trajectory, err = trajectory(os, boot); err != nil {
		return c, fmt.Errorf("trajectory under %s: %w", name, err)
	}
	if slices.ContainsFunc(os, func(o Outcome) bool { return o.Turn != o.Gold }) {
		err = c.predictedTurns(os, unmediated, boot) // before c is copied into the result
	}
	return c, err
}

// cut adds k of n texts of a step that were cut.
func (c *ConditionMetrics) cut(step string, k, n int) {
	if n == 0 {
		return
	}
	if c.Cut == nil {
		c.Cut = map[string]Rate{}
	}
	r := c.Cut[step]
	c.Cut[step] = Rate{r.K + k, r.N + n}
}

func btoi(yes bool) int {
	if yes {
		return 1
	}
	return 0
}

// scales are the least and the greatest value of the metrics of the main table: a
// position lies within ±3 on the Paige scale, a change within ±6, a difference of
// changes within ±12.
var scales = map[string][2]float64{DAUC: {-12, 12}, DAUCOwn: {-12, 12}, AUC: {-6, 6}, AUCOwn: {-6, 6}, AUCE: {-6, 6}, W1: {-6, 6}, DeltaE: {-6, 6}, Judge: {1, 5}}

// shared computes ConditionMetrics.Shared.
func (m *Metrics) shared(by map[string][]Outcome, gate *Gate, boot stats.Bootstrap) error {
	for _, s := range shown {
		if !gate.Allows(s.metric) {
			continue
		}
		have := map[string]int{} // conditions by item
		most, rows := 0, 0
		for _, c := range m.Conditions {
			if n := c.Values[s.metric].N; n > 0 {
				most, rows = max(most, n), rows+1
				for _, o := range by[c.Condition] {
					if _, ok := o.Values[s.metric]; ok {
						have[o.Item]++
					}
				}
			}
		}
		in := func(o Outcome) bool { return have[o.Item] == rows }
		if rows > 1 && !slices.Contains(slices.Collect(maps.Values(have)), rows) {
			m.Notes = append(m.Notes, fmt.Sprintf("no dialogue has %s under every condition: its rows are of different dialogues", s.heading))
		}
		for i := range m.Conditions {
			c := &m.Conditions[i]
			v, groups := values(by[c.Condition], s.metric, in)
			if len(v) == 0 || len(v) == most {
				continue
			}
			e, err := boot.Mean(v, groups)
			if err != nil {
				return fmt.Errorf("interval of %s under %s over shared dialogues: %w", s.metric, c.Condition, err)
			}
			if c.Shared == nil {
				c.Shared = map[string]stats.Estimate{}
			}
			c.Shared[s.metric] = e
		}
	}
	return nil
}

// predictedTurns adds what only makes sense where turns were predicted.
func (c *ConditionMetrics) predictedTurns(os, unmediated []Outcome, boot stats.Bootstrap) error {
	c.Timing = map[string]StageMean{}
	for name, in := range map[string]func(Outcome) bool{
		"early": func(o Outcome) bool { return o.Turn > 0 && o.Turn < o.Gold },
		"exact": func(o Outcome) bool { return o.Turn == o.Gold },
		"late":  func(o Outcome) bool { return o.Turn > o.Gold },
	} {
		if v, _ := values(os, AUC, in); len(v) > 0 {
			c.Timing[name] = StageMean{meanOf(v), len(v)}
		}
	}
	if v, g := values(os, AUC, func(o Outcome) bool { return o.Turn == o.Gold }); len(v) > 0 {
		e, err := boot.Mean(v, g)
		if err != nil {
			return fmt.Errorf("interval of AUC_exact: %w", err)
		}
		c.AUCExact = &e
	}
	stand := map[string]float64{}
	for _, o := range unmediated {
		if v, ok := o.Values[AUC]; ok {
			stand[o.Item] = v
		}
	}
	var v []float64
	var g []string
	for _, o := range os {
		x, ok := o.Values[AUC]
		if o.Turn == 0 {
			x, ok = stand[o.Item]
		}
		if ok {
			v, g = append(v, x), append(g, o.Context)
		}
	}
	if len(v) > 0 {
		e, err := boot.Mean(v, g)
		if err != nil {
			return fmt.Errorf("interval of AUC over all: %w", err)
		}
		c.AUCAll = &e
	}
	return nil
}

func values(os []Outcome, metric string, in func(Outcome) bool) (v []float64, groups []string) {
	for _, o := range os {
		if x, ok := o.Values[metric]; ok && in(o) {
			v, groups = append(v, x), append(groups, o.Context)
		}
	}
	return v, groups
}

func meanOf(v []float64) float64 {
	s := 0.0
	for _, x := range v {
		s += x
	}
	return s / math.Max(1, float64(len(v)))
}

// sides are the two sides of a comparison of conditions. With the unmediated baseline a
// dialogue is compared over the turns that its mediator could change; with others, where
// both mediators speak after the same turn.
func sides(a, b []Outcome, name, metric string) (of, with stats.Measure) {
	if name == Unmediated {
		for _, d := range deltas {
			if d.of == metric {
				of = measure(a, d.delta)
				with = of
				with.Observations = slices.Clone(of.Observations)
				for i := range with.Observations {
					with.Observations[i].Value = 0
				}
				return of, with
			}
		}
	}
	turn := map[string]int{}
	for _, o := range b {
		turn[o.Item] = o.Turn
	}
	same := slices.DeleteFunc(slices.Clone(a), func(o Outcome) bool { t, ok := turn[o.Item]; return ok && t != o.Turn })
	return measure(same, metric), measure(b, metric)
}

// differences compares, paired by dialogue: D with ND, and every mediated
// condition with the unmediated and the generic baseline.
func (m *Metrics) differences(by map[string][]Outcome, gate *Gate, so ScoreOptions) error {
	type pair struct{ a, b, metric string }
	var pairs []pair
	for _, metric := range []string{AUC, W1, Judge} {
		pairs = append(pairs, pair{D, ND, metric})
		for _, c := range []string{ND, D, Foreign, GroundTruth} {
			if metric != Judge {
				pairs = append(pairs, pair{c, Unmediated, metric})
			}
			pairs = append(pairs, pair{c, Generic, metric})
		}
	}
	var family []*stats.Comparison
	var compared []pair
	for _, p := range pairs {
		if !gate.Allows(p.metric) {
			continue
		}
		a, b := sides(by[p.a], by[p.b], p.b, p.metric)
		c, err := stats.Compare(b, a, stats.Resampling{Resamples: so.Resamples, Seed: so.Seed})
		switch {
		case errors.Is(err, stats.ErrNothingShared), errors.Is(err, stats.ErrNoItems), errors.Is(err, stats.ErrOneGroup):
			continue // there is no difference, or none whose interval is known
		case err != nil:
			return fmt.Errorf("%s − %s: %w", p.a, p.b, err)
		}
		family, compared = append(family, &c), append(compared, p)
	}
	stats.Adjust(family)
	for i, c := range family {
		m.Differences = append(m.Differences, Difference{A: compared[i].a, B: compared[i].b, Metric: compared[i].metric, Value: c.Difference, P: c.P, PHolm: c.PHolm, Weak: gate.Weak(compared[i].metric)})
	}
	return nil
}
