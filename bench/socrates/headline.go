package socrates

import (
	"context"
	"fmt"
	"math"
	"slices"

	"github.com/ccmed/ccmed/bench/report"
	"github.com/ccmed/ccmed/bench/stats"
	"github.com/ccmed/ccmed/bench/task"
)

// Headline is the result in a minute.
func (r *result) Headline(context.Context) (task.Headline, error) {
	m := r.Metric
	h := task.Headline{Asked: "Asked to mediate a dispute between parties that a model plays"}
	who := fmt.Sprintf("mediated %d talks", r.mediated())
	if r.mediated() == 0 {
		h.Sentence = "did not mediate a talk that can be counted; nothing is known of it."
		return h, nil
	}
	if len(m.Consensus) == 0 || m.Consensus[0].Pooled == nil {
		h.Sentence = who + "; no evaluator read how far the parties agree."
		if m.Gain != nil {
			h.Sentence = fmt.Sprintf("%s; %s", who, moved("the rate of agreement that the parties declare", *m.Gain, 2, ""))
		}
		h.Rows = r.headlineRows(nil)
		return h, nil
	}
	c := m.Consensus[0]
	reader := r.modelOf(c.Role)
	if note := c.cardNote(); note != "" {
		h.Sentence = fmt.Sprintf("%s; %s read how far the parties agree, and that is a pipeline check: %s.", who, reader, note)
	} else {
		h.Sentence = fmt.Sprintf("%s; as %s reads them, %s", who, reader, moved("the disagreement that is closed beyond talks without a mediator", *c.Pooled, 1, " %"))
		if c.NullPooled != nil && math.Abs(c.NullPooled.Value) >= math.Abs(c.Pooled.Value) {
			h.Sentence += fmt.Sprintf(" Another seed alone changes it by %s %%: it is not shown that the mediator does.", report.Estimate(*c.NullPooled, 1))
		}
	}
	h.Rows = r.headlineRows(&c)
	return h, nil
}

// moved says in a sentence whether a difference is shown.
func moved(what string, e stats.Estimate, decimals int, unit string) string {
	verb := "is not shown to change"
	if lo, hi := e.Bounds(); lo > 0 {
		verb = "rises"
	} else if hi < 0 {
		verb = "falls"
	}
	return fmt.Sprintf("%s %s: %s%s.", what, verb, report.Estimate(e, decimals), unit)
}

// mediated counts the talks with a mediator that can be counted.
func (r *result) mediated() int {
	for _, a := range r.Metric.Arms {
		if a.Step == StepMediated {
			return a.Scored
		}
	}
	return 0
}

func (r *result) headlineRows(c *Consensus) (rows []task.HeadlineRow) {
	add := func(measure string, e, base *stats.Estimate, name string, decimals int, warned bool) {
		if e == nil {
			return
		}
		row := task.HeadlineRow{Measure: measure, Value: report.Estimate(*e, decimals), Warned: warned}
		if base != nil {
			row.Baseline = report.Estimate(*base, decimals) + ", " + name
		}
		rows = append(rows, row)
	}
	m := r.Metric
	few := m.Gain != nil && m.Gain.Groups < fewScenarios
	if c != nil {
		warned := few || c.cardNote() != ""
		add("consensus gain, pooled, %", c.Pooled, c.NullPooled, "another seed", 1, warned)
		add("effectiveness, %", c.Effectiveness, c.Sham, "the same turns unmediated", 1, warned)
		add("timeliness, of 100", c.Timeliness, nil, "", 1, warned)
	}
	add("agreement rate over unmediated", m.Gain, m.NullGain, "another seed", 2, few)
	return rows
}

// Beside compares the mediators of several runs by condition.
func (r *result) Beside(self task.Neighbour, all []task.Neighbour, _ int64) ([]report.Section, []string, error) {
	heat := &report.Heat{X: "condition", Y: "mediator", Decimals: 2}
	table := report.Table{Columns: report.Columns("run", "condition", "talks>", "ΔS>")}
	type row map[string]ConsensusPart
	var rows []row
	for _, n := range all {
		other, ok := n.Result.(*result)
		if !ok || len(other.Metric.Consensus) == 0 {
			continue
		}
		if len(rows) == 0 && n.Name != self.Name {
			return nil, nil, nil // the first run tells it
		}
		x := row{}
		for _, p := range other.Metric.Consensus[0].ByCondition {
			x[p.Name] = p
		}
		rows, heat.Rows = append(rows, x), append(heat.Rows, n.Name)
	}
	if len(rows) < 2 {
		return nil, nil, nil
	}
	for _, c := range conditionNames() {
		if slices.ContainsFunc(rows, func(x row) bool { return x[c].Talks > 0 }) {
			heat.Columns = append(heat.Columns, c)
		}
	}
	for i, x := range rows {
		values := report.Values{}
		for _, c := range heat.Columns {
			v := math.NaN()
			if p := x[c]; p.Talks > 0 {
				v = p.DeltaS
				table.Add(heat.Rows[i], c, p.Talks, report.Num(v, 3))
			}
			values = append(values, v)
		}
		heat.Values = append(heat.Values, values)
	}
	return []report.Section{{Title: "Mediators by condition", Tables: []report.Table{table},
		Figures: []report.Figure{{Title: "What mediators add, by condition", Heat: heat,
			Description: "Difference of the final agreement S between talks with and without a mediator, mean over the scenarios, by run and condition, as each run's first evaluator reads it. No interval: see the tables of each run."}},
		Notes: []string{"evaluators of different runs are not the same instrument: see their cards"}}}, nil, nil
}
