package mediation

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/ccmed/ccmed/bench/dialogue"
	"github.com/ccmed/ccmed/bench/dmis"
	"github.com/ccmed/ccmed/bench/run"
	"github.com/ccmed/ccmed/bench/stats"
)

// comparedConditions are those whose lines the mediator makes.
var comparedConditions = []string{ND, D, Foreign}

// comparedMetrics are the headline metrics, by which runs are compared.
var comparedMetrics = []string{DAUC, AUC, W1, Judge}

// Measures returns the headline metrics of a run's samples, baselines and card
// included, of each dialogue and condition, for stats.Compare. A metric that rests
// on a constant answer, or on labels of which nothing is known, is left out; one that
// rests on weak labels is marked; notes say so. recorded is the reliability of the
// recorded labels; nil where it is unknown.
func Measures(samples []run.Sample, recorded *dialogue.Agreement) (ms []stats.Measure, notes []string, err error) {
	outcomes, err := Outcomes(samples)
	if err != nil {
		return nil, nil, err
	}
	gate, err := NewGate(samples, recorded)
	if err != nil {
		return nil, nil, err
	}
	notes = append(gate.Degenerate, gate.Notes...)
	for _, cond := range comparedConditions {
		for _, metric := range comparedMetrics {
			if !gate.Allows(metric) {
				continue
			}
			x := measure(slices.DeleteFunc(slices.Clone(outcomes), func(o Outcome) bool { return o.Condition != cond }), metric)
			x.Condition, x.Weak = cond, gate.Weak(metric)
			if len(x.Observations) > 0 {
				ms = append(ms, x)
			}
		}
	}
	return ms, notes, nil
}

// measure is what outcomes of one condition say of each dialogue by a metric.
func measure(outcomes []Outcome, metric string) stats.Measure {
	x := stats.Measure{Name: metric, Heading: heading(metric)}
	for _, o := range outcomes {
		v, ok := o.Values[metric]
		obs := stats.Observation{Item: o.Item, Group: o.Context, Value: v, Said: o.path()}
		if !ok {
			obs.Unscored = cmp.Or(o.Unscored[metric], "not measured")
		}
		x.Observations = append(x.Observations, obs)
	}
	return x
}

// path says where the conflict's speaker stood before and after.
func (o Outcome) path() string {
	if o.PreStage == nil || o.PostStage == nil {
		return ""
	}
	return fmt.Sprintf("%s to %s", dmis.Stage(*o.PreStage), dmis.Stage(*o.PostStage))
}

// heading is a metric's name as tables show it.
func heading(metric string) string {
	for _, s := range shown {
		if s.metric == metric {
			return s.heading
		}
	}
	return metric
}
