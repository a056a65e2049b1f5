package socrates

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strconv"

	"github.com/ccmed/ccmed/bench/report"
	"github.com/ccmed/ccmed/bench/socrates/scenario"
	"github.com/ccmed/ccmed/bench/stats"
	"github.com/ccmed/ccmed/bench/task"
	"github.com/ccmed/ccmed/infer"
)

// fewScenarios are so few that intervals over them are too narrow.
const fewScenarios = 20

// result is a run's result.
type result struct {
	in     task.Input
	Metric Metrics
	pairs  func() ([]pair, error)
	units  func() ([]task.Unit, error)
}

func (r *result) Metrics() any { return r.Metric }

// Sections are the tables.
func (r *result) Sections(context.Context) ([]report.Section, error) {
	m := r.Metric
	s := report.Section{Title: "Disputes: do the parties agree"}
	t := report.Table{Columns: report.Columns("talks", "scored>", "agreement>", "impasse>", "no end>", "party turns>",
		"agreement rate [95 %]>")}
	for _, a := range m.Arms {
		rate := ""
		if a.Agreement != nil {
			rate = report.Estimate(*a.Agreement, 2)
		}
		t.Add(r.armName(a.Step), a.Scored, a.Agreed, a.Impasse, a.NoEnd, report.Num(a.Turns, 1), rate)
	}
	s.Tables = append(s.Tables, t)
	d := report.Table{Columns: report.Columns("measure", "value [95 %]>", "talks>", "scenarios>")}
	for _, x := range []struct {
		name string
		e    *stats.Estimate
	}{{"agreement rate, mediated − unmediated", m.Gain}, {"the same, another seed − unmediated", m.NullGain}, {"interventions a party turn", m.Frequency},
		{"first intervention, share of the talk", m.First}} {
		if x.e != nil {
			d.Add(x.name, report.Estimate(*x.e, 2), x.e.N, x.e.Groups)
		}
	}
	if len(d.Rows) > 0 {
		s.Tables = append(s.Tables, d)
	}
	for _, by := range []struct {
		name  string
		parts []Part
	}{{"axis", m.ByAxis}, {"domain", m.ByDomain}} {
		if len(by.parts) < 2 {
			continue
		}
		p := report.Table{Title: "Agreements by " + by.name, Columns: report.Columns(by.name, "talks>", "unmediated>",
			"mediated>")}
		for _, x := range by.parts {
			p.Add(x.Name, x.Talks, report.Pct(x.Unmediated, x.Talks), report.Pct(x.Mediated, x.Talks))
		}
		s.Tables = append(s.Tables, p)
	}
	s.Notes = []string{"intervals are drawn over scenarios; agreement is what the parties declare, not what an evaluator reads in their words",
		fmt.Sprintf("talks in which the mediator was silent: %d; turns that needed a second answer: %d; turns in another's name, cut there: %d", m.Silent, m.Repaired, m.Trimmed)}
	return append([]report.Section{s}, r.consensusSections()...), nil
}

// armName says what a step's talks are.
func (r *result) armName(step string) string {
	switch step {
	case StepUnmediated:
		return "without a mediator"
	case StepNull:
		return "the same, another seed"
	}
	arm := ""
	if s, err := task.Settings[settings](r.in.Identity()); err == nil {
		arm = s.Arm
	}
	return "with a mediator (" + arm + ")"
}

// Cautions are what a reader must know.
func (r *result) Cautions(context.Context) ([]string, error) {
	m := r.Metric
	var out []string
	models := r.in.Identity().Models
	if a, b := models[RoleMediator], models[RoleParty]; a.Name != "" && a.Name == b.Name && a.Digest == b.Digest {
		out = append(out, "one model mediates and plays the parties: it may know its own ways")
	}
	for _, c := range m.Consensus {
		if note := c.cardNote(); note != "" {
			out = append(out, "what "+r.modelOf(c.Role)+" reads is a pipeline check, not a finding: "+note)
		}
		if e := models[c.Role]; e.Name != "" && e.Name == models[RoleMediator].Name && e.Digest == models[RoleMediator].Digest {
			out = append(out, "one model mediates and evaluates: it may like its own words")
		}
	}
	if g := m.Gain; g != nil && g.Groups < fewScenarios {
		out = append(out, fmt.Sprintf("%d scenarios: intervals over so few are too narrow", g.Groups))
	}
	if m.Gain != nil && m.NullGain != nil && math.Abs(m.NullGain.Value) >= math.Abs(m.Gain.Value) {
		out = append(out, "another seed changes the rate of agreement as much as the mediator does")
	}
	for _, a := range m.Arms {
		out = append(out, task.UnscoredCautions(a.Unscored, "talks "+r.armName(a.Step))...)
	}
	out = append(out, task.CutCaution(task.Cut{What: "mediator's turns", K: m.Cut, N: m.MedTurns})...)
	return out, nil
}

// Measures are, of each talk, the agreement that the parties declare and the S that the
// evaluator reads at its end, and what the mediator added to both.
func (r *result) Measures(context.Context) ([]stats.Measure, []string, error) {
	es, there, err := r.evaluated()
	if err != nil {
		return nil, nil, err
	}
	of := func(name string, binary bool, with, without func(evaluated) (float64, string)) stats.Measure {
		m := stats.Measure{Name: name, Binary: binary}
		for _, e := range es {
			o := stats.Observation{Item: e.key.Key.Item + " " + e.key.Key.Condition, Group: e.key.Key.Item}
			o.Value, o.Unscored = with(e)
			if without != nil && o.Unscored == "" {
				var base float64
				base, o.Unscored = without(e)
				o.Value -= base
			}
			m.Observations = append(m.Observations, o)
		}
		return m
	}
	declared := func(step string) func(evaluated) (float64, string) {
		return func(e evaluated) (float64, string) {
			t, _ := e.scored(step)
			return agreed(t), e.missing(step)
		}
	}
	ms := []stats.Measure{of("agreement", true, declared(StepMediated), nil), of("agreement over unmediated", false, declared(StepMediated), declared(StepUnmediated))}
	if there {
		read := func(step string) func(evaluated) (float64, string) {
			return func(e evaluated) (float64, string) {
				s, ok := e.final(step)
				switch {
				case ok:
					return s, ""
				case e.missing(step) != "":
					return 0, e.missing(step)
				case e.not[step] != "":
					return 0, e.not[step]
				}
				return 0, "the talk " + step + " was not evaluated"
			}
		}
		ms = append(ms, of("final S", false, read(StepMediated), nil), of("ΔS over unmediated", false, read(StepMediated), read(StepUnmediated)))
	}
	return ms, nil, nil
}

// evaluated are the talks with what the first evaluator read in them. there is false of a run
// without evaluations.
func (r *result) evaluated() (es []evaluated, there bool, err error) {
	ps, err := r.pairs()
	if err != nil {
		return nil, false, err
	}
	return evaluations(ps, RoleEvaluator)
}

// missing says why a step has no talk that counts, or "".
func (p pair) missing(step string) string {
	if _, ok := p.talks[step]; !ok {
		return "there is no talk " + step
	}
	return p.why[step]
}

// Row is a row of the exported tables.
type Row struct {
	Run           string   `json:"run" parquet:"run" doc:"name of the run folder"`
	Scenario      string   `json:"scenario" parquet:"scenario" doc:"id of the scenario"`
	Condition     string   `json:"condition" parquet:"condition" doc:"social condition"`
	Axis          string   `json:"axis" parquet:"axis" doc:"axis of the condition"`
	Domain        string   `json:"domain" parquet:"domain" doc:"domain of the scenario"`
	End           *string  `json:"end" parquet:"end" doc:"how the mediated talk ended: agreement, impasse or turns; null where it cannot be counted"`
	Turns         *int     `json:"turns" parquet:"turns" doc:"party turns of the mediated talk"`
	Interventions *int     `json:"interventions" parquet:"interventions" doc:"turns of the mediator"`
	First         *float64 `json:"first" parquet:"first" doc:"share of the talk that is over at the mediator's first turn; null where it is silent"`
	Unmediated    *string  `json:"unmediated_end" parquet:"unmediated_end" doc:"how the talk without a mediator ended"`
	UnmedTurns    *int     `json:"unmediated_turns" parquet:"unmediated_turns" doc:"party turns of the talk without a mediator"`
	Null          *string  `json:"null_end" parquet:"null_end" doc:"how the talk without a mediator from other seeds ended"`
	Final         *float64 `json:"final_s" parquet:"final_s" doc:"agreement S at the end of the mediated talk, 0..1, as the first evaluator reads it; null where it was not read"`
	UnmedFinal    *float64 `json:"unmediated_final_s" parquet:"unmediated_final_s" doc:"the same of the talk without a mediator"`
	NullFinal     *float64 `json:"null_final_s" parquet:"null_final_s" doc:"the same of the talk without a mediator from other seeds"`
	Timeliness    *float64 `json:"timeliness" parquet:"timeliness" doc:"timeliness of the mediator, 0..100; null in a talk without a drop"`
	Effectiveness *float64 `json:"effectiveness" parquet:"effectiveness" doc:"mean effect of its interventions in per cent; null without one that can be measured"`
	Sham          *float64 `json:"sham" parquet:"sham" doc:"the same at the same turns of the talk without a mediator"`
}

// Table gives the rows of exports.
func (r *result) Table(context.Context) (task.Table, error) {
	t := task.Table{Temperature: temperature}
	if s, err := task.Settings[settings](r.in.Identity()); err == nil {
		t.MaxTokens = s.MaxTokens
	}
	es, _, err := r.evaluated()
	for _, e := range es {
		t.Rows = append(t.Rows, e.row(r.in.Name()))
	}
	if err != nil {
		return t, err
	}
	units, err := r.units()
	for _, u := range units {
		if recordedUnit(u) {
			t.Rest = append(t.Rest, u.Costs()...)
		}
	}
	return t, err
}

// row is a pair as a row of the exported tables.
func (e evaluated) row(name string) task.Row {
	any := e.any()
	row := &Row{Run: name, Scenario: e.key.Key.Item, Condition: e.key.Key.Condition, Axis: any.Axis, Domain: any.Domain}
	score := task.Score{Metric: "agreement", Binary: true, Unscored: e.missing(StepMediated)}
	end := func(step string) (*string, *int) {
		t, ok := e.scored(step)
		if !ok {
			return nil, nil
		}
		n := t.PartyTurns()
		return &t.End, &n
	}
	number := func(v float64, ok bool) *float64 {
		if !ok {
			return nil
		}
		return &v
	}
	row.End, row.Turns = end(StepMediated)
	row.Unmediated, row.UnmedTurns = end(StepUnmediated)
	row.Null, _ = end(StepNull)
	output := ""
	if with, ok := e.scored(StepMediated); ok {
		at := with.Interventions()
		n := len(at)
		row.Interventions = &n
		if n > 0 && *row.Turns > 0 {
			share := float64(at[0]) / float64(*row.Turns)
			row.First = &share
		}
		score.Value, output = agreed(with), with.End
	}
	row.Final, row.UnmedFinal, row.NullFinal = number(e.final(StepMediated)), number(e.final(StepUnmediated)), number(e.final(StepNull))
	if t, ok := e.trajectory(StepMediated); ok {
		value, _, some := t.timeliness(e.talks[StepMediated].Interventions())
		row.Timeliness = number(value, some)
		x := e.effects()
		row.Effectiveness, row.Sham = number(average(x.with), len(x.with) > 0), number(average(x.without), len(x.without) > 0)
	}
	return task.Row{Key: e.key.Key, Value: row, Cluster: e.key.Key.Item, Input: task.LastPrompt(e.key.Steps, StepMediated, StepUnmediated), Target: EndAgreement,
		Output: output, Stop: infer.StopEnd, Scores: []task.Score{score}, Steps: e.key.Costs()}
}

// Browser lists the talks.
func (r *result) Browser(context.Context) (report.Browser, []string, error) {
	ends := []string{EndAgreement, EndImpasse, EndTurns, task.Unscored}
	b := report.Browser{Name: "talks", Title: "scenario and condition", Facets: []report.Facet{{Name: "scenario"}, {Name: "condition", Order: conditionNames()},
		{Name: "domain", Order: scenario.Domains()}, {Name: "mediated", Order: ends}, {Name: "unmediated", Order: ends}}, Measures: []string{"party turns", "interventions", "ΔS"}}
	es, _, err := r.evaluated()
	if err != nil {
		return b, nil, err
	}
	for _, p := range es {
		k := p.key.Key
		it := report.Item{Title: k.Item + " " + k.Condition, Measures: report.Values{math.NaN(), math.NaN(), math.NaN()}, Facets: [][]string{{k.Item}, {k.Condition}, nil, p.ends(StepMediated), p.ends(StepUnmediated)}}
		if d := p.any().Domain; d != "" {
			it.Facets[2] = []string{d}
		}
		if t, ok := p.talks[StepMediated]; ok {
			it.Measures[0], it.Measures[1] = float64(t.PartyTurns()), float64(len(t.Interventions()))
		}
		if s, ok := p.final(StepMediated); ok {
			if u, base := p.final(StepUnmediated); base {
				it.Measures[2] = task.Rounded(s - u)
			}
		}
		for _, step := range []string{StepMediated, StepUnmediated, StepNull} {
			if t, ok := p.talks[step]; ok {
				it.Blocks = append(it.Blocks, p.block(step, t, r.armName(step)))
			}
		}
		b.Items = append(b.Items, it)
	}
	return b, nil, err
}

// ends is the end of a step's talk as values of a facet.
func (p pair) ends(step string) []string {
	if t, ok := p.scored(step); ok {
		return []string{t.End}
	}
	if _, ok := p.talks[step]; ok {
		return []string{task.Unscored}
	}
	return nil
}

// block shows a talk, with the agreement after each turn where an evaluator read it, else
// with how likely the mediator was to speak before the turn.
func (e evaluated) block(step string, t Talk, title string) report.Block {
	b := report.Block{Title: title, Notes: []string{"end: " + t.End}}
	if why := e.why[step]; why != "" {
		b.Notes = []string{"unscored: " + why}
	} else if why := e.not[step]; why != "" {
		b.Notes = append(b.Notes, "not evaluated: "+why)
	}
	var s []float64
	var drops []int
	if x, ok := e.trajectory(step); ok {
		b.Value, s, drops = "agreement S after the turn", x.values(), x.drops()
	} else if len(t.Decisions) > 0 {
		b.Value = "P(the mediator speaks) before the turn"
	}
	names := map[string]string{MediatorID: "Mediator"}
	for i, id := range t.Parties[:min(len(t.Parties), len(t.Names))] {
		names[id] = t.Names[i]
	}
	p := map[int]float64{}
	for _, d := range t.Decisions {
		p[d.After] = d.P
	}
	n := 0
	for _, x := range t.Turns {
		turn := report.Turn{Speaker: names[x.By], Text: x.Text}
		if x.By == MediatorID {
			turn.Marks = append(turn.Marks, "mediator")
		} else {
			n++
			turn.Name = strconv.Itoa(n)
			if v, ok := p[x.After]; s != nil {
				turn.Value = &s[n-1]
			} else if ok {
				v = task.Rounded(v)
				turn.Value = &v
			}
			if slices.Contains(drops, n) {
				turn.Marks = append(turn.Marks, "drop")
			}
		}
		for mark, has := range map[string]bool{"second answer": x.Repaired, "cut: spoke for another": x.Trimmed, "cut at its cap": x.Cut} {
			if has {
				turn.Marks = append(turn.Marks, mark)
			}
		}
		slices.Sort(turn.Marks)
		b.Turns = append(b.Turns, turn)
	}
	b.Text = t.Raw
	return b
}
