package construct

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"

	"github.com/ccmed/ccmed/bench/report"
	"github.com/ccmed/ccmed/bench/run"
	"github.com/ccmed/ccmed/bench/stats"
	"github.com/ccmed/ccmed/bench/task"
	"github.com/ccmed/ccmed/infer"
)

// result is the result of any of the benchmarks' runs.
type result struct {
	Metric   Metrics
	in       task.Input
	about    task.About
	outcomes func() ([]outcome, error)
}

// newResult scores a run, or takes its stored metrics.
func newResult(in task.Input, about task.About, score func([]task.Unit, *scoring) error) (task.Result, error) {
	units := in.UnitsOnce()
	s := &scoring{seed: in.Seed}
	scored := false
	all := func() error {
		if scored {
			return nil
		}
		us, err := units()
		if err != nil {
			return err
		}
		scored = true
		return score(us, s)
	}
	r := &result{in: in, about: about, outcomes: func() ([]outcome, error) {
		err := all()
		return s.outcomes, err
	}}
	stored, ok, err := task.Decode[Metrics](in)
	if err != nil || ok {
		r.Metric = stored
		return r, err
	}
	if err := all(); err != nil {
		return nil, err
	}
	r.Metric = s.m
	return r, nil
}

func (r *result) Metrics() any { return r.Metric }

// Sections are the tables.
func (r *result) Sections(context.Context) ([]report.Section, error) {
	m := r.Metric
	t := report.Table{Columns: report.Columns(r.about.Item+"s", "n>", "share>")}
	t.Add("asked for", m.Items, "")
	t.Add("kept", m.Kept, report.Pct(m.Kept, m.Items))
	for _, why := range slices.Sorted(maps.Keys(m.Rejected)) {
		t.Add("rejected: "+why, m.Rejected[why], report.Pct(m.Rejected[why], m.Items))
	}
	s := report.Section{Title: "Construction: " + r.about.Item + "s", Tables: []report.Table{t}}
	if len(m.Stages) > 0 {
		s.Tables = append(s.Tables, stagesTable(m.Stages))
		s.Notes = append(s.Notes, "a scripted turn whose words show no stage is neither refused nor counted as shown by words; chance of the labeller's agreement is one in six")
	}
	if c := m.Labels; c != nil {
		s.Tables = append(s.Tables, c.table())
		s.Notes = append(s.Notes, "the grade says that the labeller agrees with itself, and nothing about people's labels: ccmed mediate --card-items and ccmed label say that")
	}
	if f := m.Pairs; f != nil {
		if f.Grade != Consistent {
			s.Title += ", a pipeline check, not a finding"
		}
		s.Tables = append(s.Tables, f.tables()...)
		if f.Withheld != "" {
			s.Notes = append(s.Notes, "AUC and W1 are withheld: "+f.Withheld)
		}
		s.Notes = append(s.Notes, "index scale, both paths over the turns after the conflict; published gaps of admitted pairs: AUC +0.701, W1 +0.507, by another labeller, so that levels are not comparable",
			"labeller: "+f.Grade)
	}
	return []report.Section{s}, nil
}

func stagesTable(counts []StageCount) report.Table {
	t := report.Table{Title: "Scripted turns", Columns: report.Columns("stage", "dialogues>", "spoken>", "played, by the labeller>", "shown by words>", "kept>")}
	for _, c := range counts {
		t.Add(c.Stage, c.Scripted, c.Spoken, report.Pct(c.Played, c.Spoken), report.Pct(c.ByWords, c.Spoken), c.Kept)
	}
	return t
}

func (c *LabelCard) table() report.Table {
	t := report.Table{Title: "The labeller", Columns: report.Columns("measure", "value>")}
	t.Add("turns after the conflict", c.Turns)
	t.Add("of these unscored in one labelling", c.Unscored)
	if a := c.Reliability; a != nil {
		t.Add("the same stage in both labellings", report.Pct(a.Agree, a.Turns))
		t.Add("κ of both labellings, quadratic [95 %]", report.Estimate(a.Kappa, 2))
	}
	if a := c.Conflict; a != nil {
		t.Add("κ, turns of the conflict speaker [95 %]", report.Estimate(a.Kappa, 2))
	}
	t.Add("scripted turns given their stage by the second", report.Pct(c.Scripted.K, c.Scripted.N))
	if c.Majority != "" {
		t.Add("most frequent stage", fmt.Sprintf("%s, %.0f %%", c.Majority, 100*c.Share))
	}
	t.Add("grade", c.Grade)
	return t
}

func (f *PairFindings) tables() []report.Table {
	t := report.Table{Title: "Positive minus negative", Columns: report.Columns("pairs", "n>", "AUC [95 %]>", "W1 [95 %]>", "AUC, second labelling>", "W1, second labelling>")}
	show := func(e *stats.Estimate) string {
		if e == nil {
			return ""
		}
		return report.Estimate(*e, 2)
	}
	for _, x := range []struct {
		name string
		n    int
		g    Gaps
	}{{"all", f.Pairs, f.All}, {"admitted", f.Admitted, f.Chosen}} {
		t.Add(x.name, x.n, show(x.g.AUC), show(x.g.W1), show(x.g.AUCAgain), show(x.g.W1Again))
	}
	d := report.Table{Columns: report.Columns("measure", "value [95 %]>", "n>")}
	d.Add("share admitted", show(f.Share), f.Pairs)
	d.Add("winner's curse: AUC gap of the admitted, first − second labelling", show(f.Curse), f.CurseN)
	return []report.Table{t, d}
}

// Cautions are what a reader must know.
func (r *result) Cautions(context.Context) ([]string, error) {
	m := r.Metric
	var out []string
	if m.Items > 0 && m.Kept == 0 {
		out = append(out, fmt.Sprintf("nothing is kept of %d %ss", m.Items, r.about.Item))
	}
	for _, c := range m.Stages {
		if c.Spoken > 0 && c.Played == 0 {
			out = append(out, fmt.Sprintf("no scripted turn of %s is one in the labeller's eyes (0 of %d)", c.Stage, c.Spoken))
		}
	}
	if c := m.Labels; c != nil && c.Grade != Consistent {
		for _, why := range c.Why {
			out = append(out, "the labeller is "+c.Grade+": "+why)
		}
	}
	if f := m.Pairs; f != nil {
		if f.Withheld != "" {
			out = append(out, "AUC and W1 are withheld: "+f.Withheld)
		}
		if f.Grade != Consistent {
			out = append(out, "the labeller is "+f.Grade+": a pipeline check, not a finding")
		}
		if c := f.Curse; c != nil && c.NoInterval == "" && c.Lo > 0 {
			out = append(out, fmt.Sprintf("of the admitted pairs' gap of AUC %.2f remain %.2f on a second labelling: the choice by noisy labels made the rest", f.Chosen.AUC.Value, f.Chosen.AUCAgain.Value))
		}
	}
	return out, nil
}

// measureName is what Measures and rows hold of a unit.
func (r *result) measureName() string {
	switch r.about.Task {
	case taskLabel:
		return "agreement of both labellings"
	case taskPairs:
		return "AUC"
	}
	return "kept"
}

// score is the measure of an outcome.
func (r *result) score(o outcome) task.Score {
	s := task.Score{Metric: r.measureName(), Binary: r.measureName() == "kept"}
	switch {
	case s.Binary && o.why == "":
		s.Value = 1
	case s.Binary:
	case o.value != nil:
		s.Value = *o.value
	default:
		s.Unscored = cmp.Or(o.unmeasured, o.why, "nothing could be measured")
	}
	return s
}

// Measures are those of each unit.
func (r *result) Measures(context.Context) ([]stats.Measure, []string, error) {
	os, err := r.outcomes()
	m := stats.Measure{Name: r.measureName(), Binary: r.measureName() == "kept"}
	for _, o := range os {
		s := r.score(o)
		m.Observations = append(m.Observations, stats.Observation{Item: itemName(o.unit.Key), Group: o.cluster, Value: s.Value, Unscored: s.Unscored})
	}
	return []stats.Measure{m}, nil, err
}

func itemName(k run.Key) string {
	if k.Condition == "" {
		return k.Item
	}
	return k.Item + " " + k.Condition
}

// Row is a row of the exported tables.
type Row struct {
	Run       string   `json:"run" parquet:"run" doc:"name of the run folder"`
	Item      string   `json:"item" parquet:"item" doc:"number of the scenario or dialogue"`
	Condition string   `json:"condition" parquet:"condition" doc:"path of a pair: positive or negative; empty elsewhere"`
	Cluster   string   `json:"cluster" parquet:"cluster" doc:"scenario of a dialogue, dimension of a scenario"`
	Stage     string   `json:"stage" parquet:"stage" doc:"stage of the scripted conflict; empty of scenarios"`
	Kept      bool     `json:"kept" parquet:"kept" doc:"whether it is kept; of a path, whether its pair is admitted"`
	Why       string   `json:"why" parquet:"why" doc:"why it is not kept"`
	Value     *float64 `json:"value" parquet:"value" doc:"of labels the share of turns with one stage in both labellings, of paths the AUC on the index scale; null elsewhere and where it is not known"`
}

// Table gives the rows of exports.
func (r *result) Table(context.Context) (task.Table, error) {
	var t task.Table
	os, err := r.outcomes()
	for _, o := range os {
		k := o.unit.Key
		steps := o.unit.Costs()
		output := "kept"
		if o.why != "" {
			output = o.why
		}
		t.Rows = append(t.Rows, task.Row{Key: k, Value: &Row{r.in.Name(), k.Item, k.Condition, o.cluster, o.stage, o.why == "", o.why, o.value}, Cluster: o.cluster,
			Input: task.LastPrompt(o.unit.Steps, StepWrite, StepOpen, StepLabel, StepLine), Output: output, Stop: infer.StopEnd, Scores: []task.Score{r.score(o)}, Steps: steps})
	}
	return t, err
}

// Browser lists the units.
func (r *result) Browser(context.Context) (report.Browser, []string, error) {
	b := report.Browser{Name: r.about.Item + "s", Title: "number", Facets: []report.Facet{{Name: r.about.Cluster}, {Name: "stage"}, {Name: "outcome"}}, Measures: []string{r.measureName()}}
	os, err := r.outcomes()
	for _, o := range os {
		it := report.Item{Title: itemName(o.unit.Key), Facets: [][]string{{o.cluster}, nil, {"kept"}}, Measures: report.Values{math.NaN()}}
		if o.stage != "" {
			it.Facets[1] = []string{o.stage}
		}
		if o.why != "" {
			it.Facets[2], it.Note = []string{o.why}, "rejected: "+o.why
		}
		if s := r.score(o); s.Unscored == "" {
			it.Measures[0] = task.Rounded(s.Value)
		}
		block := report.Block{Title: r.about.Item, Notes: o.notes}
		for _, t := range o.turns {
			block.Turns = append(block.Turns, report.Turn{Name: strconv.Itoa(t.T), Speaker: agentName(t.Agent), Text: t.Text})
		}
		it.Blocks = append(it.Blocks, block)
		b.Items = append(b.Items, it)
	}
	return b, nil, err
}
