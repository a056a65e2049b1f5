package mediation

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/ccmed/ccmed/bench/report"
	"github.com/ccmed/ccmed/bench/stats"
	"github.com/ccmed/ccmed/bench/task"
)

// headlineMetrics are those of the headline, with their headings and baselines: what a
// difference from the unmediated dialogue is held against, and what a level is.
var headlineMetrics = []struct {
	metric, heading string
	baselines       []string
}{
	{DAUC, "ΔAUC", []string{Generic}},
	{DW1, "ΔW1", []string{Generic}},
	{Judge, "Judge (1 to 5)", []string{Generic}},
}

// Headline is the result in a minute.
func (r *Result) Headline(context.Context) (task.Headline, error) {
	m, models := r.Scored, r.in.Identity().Models
	name := func(role, none string) string {
		if n := models[role].Name; n != "" {
			return n
		}
		return none
	}
	n := 0
	for _, c := range m.Conditions {
		n = max(n, c.N)
	}
	h := task.Headline{Asked: "Asked for one line to both speakers where the conflict breaks out"}
	who := fmt.Sprintf("spoke in %d dialogues, simulated to their end; %s gave the conflict speaker's stages", n, name(RoleLabeller, "a labeller"))
	if name(RoleLabeller, "") == name(RoleMediator, "") {
		who = fmt.Sprintf("spoke in %d dialogues, simulated to their end, and gave the conflict speaker's stages itself", n)
	}
	switch {
	case m.Withheld():
		h.Sentence = who + "; the labels cannot carry a number, so that nothing is known of how well it mediates"
		if m.Labeller != nil && len(m.Labeller.Why) > 0 {
			h.Sentence += ": " + m.Labeller.Why[0]
		}
		h.Sentence += "."
		h.Rows = []task.HeadlineRow{{Measure: "AUC and signed W1, all conditions", Value: "withheld", Warned: true}}
		return h, nil
	case m.Grade == Weak:
		h.Sentence = who + fmt.Sprintf("; the labels are weak (kappa %.2f): no number here is a finding.", m.Labeller.Kappa)
	default:
		h.Sentence = who + "." + m.gain()
	}
	values := map[string]ConditionMetrics{}
	for _, c := range m.Conditions {
		values[c.Condition] = c
	}
	for _, c := range m.Conditions {
		if slices.Contains(Baselines, c.Condition) || unspoken(c.Condition) {
			continue
		}
		for _, x := range headlineMetrics {
			e, ok := c.Values[x.metric]
			if !ok {
				continue
			}
			row := task.HeadlineRow{Measure: x.heading + ", " + c.Condition, Value: report.Estimate(e, 2), Warned: m.PipelineCheck}
			if base, condition := best(values, x.metric, x.baselines); condition != "" {
				row.Baseline = report.Estimate(base, 2) + ", " + condition
			}
			h.Rows = append(h.Rows, row)
		}
	}
	return h, nil
}

// best is the highest mean of a metric among baseline conditions.
func best(of map[string]ConditionMetrics, metric string, conditions []string) (e stats.Estimate, condition string) {
	for _, c := range conditions {
		if v, ok := of[c].Values[metric]; ok && (condition == "" || v.Value > e.Value) {
			e, condition = v, c
		}
	}
	return e, condition
}

// gain says in words what mediation changed under each condition that the model speaks in.
func (m Metrics) gain() string {
	var parts []string
	for _, c := range m.Conditions {
		if e, ok := c.Values[DAUC]; ok && !slices.Contains(Baselines, c.Condition) && !unspoken(c.Condition) {
			verb := "rises by"
			if lo, hi := e.Bounds(); !(lo > 0 || hi < 0) {
				verb = "is not shown to change:"
			} else if e.Value < 0 {
				verb = "falls by"
			}
			parts = append(parts, fmt.Sprintf("under %s the stage %s %s", c.Condition, verb, report.Estimate(e, 2)))
		}
	}
	if len(parts) == 0 {
		return ""
	}
	return " Beyond what happens without a mediator, " + strings.Join(parts, "; ") + " (ΔAUC, Paige scale)."
}
