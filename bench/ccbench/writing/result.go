package writing

import (
	"context"
	"fmt"
	"math"
	"slices"

	"github.com/ccmed/ccmed/bench/ccbench/build"
	"github.com/ccmed/ccmed/bench/report"
	"github.com/ccmed/ccmed/bench/stats"
	"github.com/ccmed/ccmed/bench/task"
	"github.com/ccmed/ccmed/infer"
)

// resamples of intervals over personas.
const resamples = 2000

// Metrics are what scoring finds.
type Metrics struct {
	Sessions int `json:"sessions"`
	Passed   int `json:"passed"`
	Never    int `json:"never"` // sessions of which no talk passed
	Talks    int `json:"talks"` // that were written
	// Rejected counts talks by filter.
	Rejected map[string]int `json:"rejected,omitempty"`
	// Rate is the share of talks that passed, its interval drawn over personas.
	Rate    *stats.Estimate `json:"rate,omitempty"`
	Signals float64         `json:"signals"` // norms that a passed talk shows, in the mean
	// Queries that some norm is relevant to, of Asked; Broad are those relevant to over 90 %
	// of norms, of a culture each.
	Asked     int `json:"asked"`
	Queries   int `json:"queries"`
	Broad     int `json:"broad"`
	Relevant  int `json:"relevant"`  // norms by query
	Pairs     int `json:"pairs"`     // of so many
	Disagrees int `json:"disagrees"` // norms of which checker and data differ on whether text can show them
	Norms     int `json:"norms"`     // that were asked so
	Unscored  int `json:"unscored"`  // answers on queries and norms that could not be used
}

type result struct {
	in     task.Input
	Metric Metrics
	units  func() ([]task.Unit, error)
}

// Score scores a run, or takes its stored metrics.
func (Bench) Score(_ context.Context, in task.Input) (task.Result, error) {
	r := &result{in: in, units: in.UnitsOnce()}
	stored, ok, err := task.Decode[Metrics](in)
	if r.Metric = stored; err != nil || ok {
		return r, err
	}
	units, err := r.units()
	if err != nil {
		return nil, err
	}
	r.Metric, err = measure(units, in.Seed)
	return r, err
}

func measure(units []task.Unit, seed uint64) (m Metrics, err error) {
	var passed []float64
	var personas []string
	signals := 0
	for _, u := range units {
		made, unscored, err := task.StepData[Made](u, StepMake)
		if err != nil {
			return m, err
		}
		switch u.Key.Condition {
		case Session:
			m.Sessions++
			for _, r := range made.Rejected {
				if m.Rejected == nil {
					m.Rejected = map[string]int{}
				}
				m.Rejected[r.Filter]++
				passed, personas = append(passed, 0), append(personas, made.Persona)
			}
			if unscored != "" {
				m.Never++
				continue
			}
			m.Passed++
			signals += len(made.Signals)
			passed, personas = append(passed, 1), append(personas, made.Persona)
		case Query:
			m.Asked++
			relevant := 0
			for _, c := range made.Checked {
				m.Pairs++
				if c.Unscored != "" {
					m.Unscored++
				} else if c.P >= 0.5 {
					relevant++
				}
			}
			m.Relevant += relevant
			if relevant > 0 {
				m.Queries++
			}
			if 10*relevant > 9*len(made.Checked) {
				m.Broad++
			}
		case Norm:
			for _, c := range made.Checked {
				if m.Norms++; c.Unscored != "" {
					m.Unscored++
				} else if (c.P >= 0.5) != c.Textual {
					m.Disagrees++
				}
			}
		}
	}
	if m.Talks = len(passed); m.Talks > 0 {
		e, err := stats.Bootstrap{Resamples: resamples, Seed: seed}.Share(passed, personas)
		if err != nil {
			return m, err
		}
		m.Rate = &e
	}
	if m.Passed > 0 {
		m.Signals = float64(signals) / float64(m.Passed)
	}
	return m, nil
}

func (r *result) Metrics() any { return r.Metric }

// Sections are the tables.
func (r *result) Sections(context.Context) ([]report.Section, error) {
	m := r.Metric
	f := report.NewFacts()
	f.Add("sessions with a talk that passed", report.Pct(m.Passed, m.Sessions))
	f.Add("talks written", fmt.Sprint(m.Talks))
	if m.Rate != nil {
		f.Add("share of talks that passed", report.Estimate(*m.Rate, 2))
	}
	f.Add("norms that a passed talk shows, mean", fmt.Sprintf("%.1f", m.Signals))
	f.Add("queries with a relevant norm, by culture", report.Pct(m.Queries, m.Asked))
	f.Add("norms relevant to a query", report.Pct(m.Relevant, m.Pairs))
	f.Add("queries relevant to over 90 % of a culture's norms", report.Pct(m.Broad, m.Asked))
	f.Add("norms of which the checker differs from the data on whether text can show them", report.Pct(m.Disagrees, m.Norms))
	t := report.Table{Title: "Rejected talks", Columns: report.Columns("filter", "talks>")}
	for _, name := range filters {
		if n := m.Rejected[name]; n > 0 {
			t.Add(name, n)
		}
	}
	s := report.Section{Title: "CCBench: talks that were written", Tables: []report.Table{f.Table}, Notes: []string{
		"filters in their order: form and repeated stances, words of origin, then the checker: culture stated, stance hidden, stance contradicted, no usable answer",
		"the people are invented, and norms are tendencies that were told of groups; they say nothing of any person"}}
	if len(t.Rows) > 0 {
		s.Tables = append(s.Tables, t)
	}
	return []report.Section{s}, nil
}

// Cautions are what a reader must know.
func (r *result) Cautions(context.Context) ([]string, error) {
	m := r.Metric
	var out []string
	models := r.in.Identity().Models
	if a, b := models[RoleWriter], models[RoleChecker]; a.Name != "" && a.Name == b.Name && a.Digest == b.Digest {
		out = append(out, "the checker is the model that wrote the talks")
	}
	if m.Never > 0 {
		out = append(out, fmt.Sprintf("%s of sessions never passed; talks were rejected by %s: there is no build", report.Pct(m.Never, m.Sessions), countsOf(m.Rejected)))
	}
	if m.Unscored > 0 {
		out = append(out, fmt.Sprintf("unscored answers on queries and norms: %d; such a norm is not relevant to the query", m.Unscored))
	}
	return out, nil
}

// Measures has none.
func (r *result) Measures(context.Context) ([]stats.Measure, []string, error) {
	return nil, nil, fmt.Errorf("%w: %s holds talks that were written, which ccmed ccbench run asks about", task.ErrNoMeasures, r.in.Name())
}

// Row is a row of the exported tables.
type Row struct {
	Run      string  `json:"run" parquet:"run" doc:"name of the run folder"`
	What     string  `json:"what" parquet:"what" doc:"session, query or norm"`
	Item     string  `json:"item" parquet:"item" doc:"persona and session, culture and query, or norm"`
	Culture  string  `json:"culture" parquet:"culture" doc:"culture"`
	Persona  *string `json:"persona" parquet:"persona" doc:"invented person; null of queries and norms"`
	Passed   *bool   `json:"passed" parquet:"passed" doc:"a talk of the session passed; null of queries and norms"`
	Rejected int     `json:"rejected" parquet:"rejected" doc:"talks of the session that did not pass"`
	Filter   *string `json:"filter" parquet:"filter" doc:"filter that rejected the last one"`
	Yes      *int    `json:"yes" parquet:"yes" doc:"norms to which the checker says yes; null of sessions"`
}

// Table gives the rows of exports.
func (r *result) Table(context.Context) (task.Table, error) {
	t := task.Table{Temperature: temperature}
	if s, err := task.Settings[settings](r.in.Identity()); err == nil {
		t.MaxTokens = s.MaxTokens
	}
	units, err := r.units()
	for _, u := range units {
		made, unscored, err := task.StepData[Made](u, StepMake)
		if err != nil {
			return t, err
		}
		row := &Row{Run: r.in.Name(), What: u.Key.Condition, Item: u.Key.Item, Culture: made.Culture, Persona: task.Known(made.Persona), Rejected: len(made.Rejected)}
		score := task.Score{Metric: "passed", Binary: true, Unscored: unscored}
		if n := len(made.Rejected); n > 0 {
			row.Filter = &made.Rejected[n-1].Filter
		}
		if u.Key.Condition == Session {
			passed := unscored == ""
			row.Passed, score.Unscored = &passed, ""
			if passed {
				score.Value = 1
			}
		} else {
			n := 0
			for _, c := range made.Checked {
				if c.Unscored == "" && c.P >= 0.5 {
					n++
				}
			}
			row.Yes = &n
			score = task.Score{Metric: "yes", Value: float64(n), Unscored: unscored}
		}
		cluster := made.Persona
		if cluster == "" {
			cluster = u.Key.Item
		}
		t.Rows = append(t.Rows, task.Row{Key: u.Key, Value: row, Cluster: cluster, Input: task.LastPrompt(u.Steps, StepMake), Stop: infer.StopEnd, Scores: []task.Score{score}, Steps: u.Costs()})
	}
	return t, err
}

// Browser lists the talks, those that were rejected among them.
func (r *result) Browser(context.Context) (report.Browser, []string, error) {
	b := report.Browser{Name: "talks", Title: "session", Facets: []report.Facet{{Name: "what", Order: []string{Session, Query, Norm}}, {Name: "culture"}, {Name: "persona"},
		{Name: "filter", Order: filters}}, Measures: []string{"rejected"}}
	units, err := r.units()
	for _, u := range units {
		made, unscored, err := task.StepData[Made](u, StepMake)
		if err != nil {
			return b, nil, err
		}
		it := report.Item{Title: u.Key.Item, Facets: [][]string{{u.Key.Condition}, nil, nil, nil}, Measures: report.Values{math.NaN()}}
		if made.Culture != "" {
			it.Facets[1] = []string{made.Culture}
		}
		if unscored != "" {
			it.Note = "unscored: " + unscored
		}
		if u.Key.Condition == Session {
			it.Measures[0] = float64(len(made.Rejected))
			if made.Persona != "" {
				it.Facets[2] = []string{made.Persona}
			}
			it.Blocks = sessionBlocks(made)
			for _, x := range made.Rejected {
				if !slices.Contains(it.Facets[3], x.Filter) {
					it.Facets[3] = append(it.Facets[3], x.Filter)
				}
			}
		} else {
			block := report.Block{Title: "Norms", Value: "P(yes)"}
			for _, c := range made.Checked {
				t := report.Turn{Name: c.Norm, Unscored: c.Unscored}
				if c.Unscored == "" {
					p := task.Rounded(c.P)
					t.Value = &p
				}
				block.Turns = append(block.Turns, t)
			}
			it.Blocks = append(it.Blocks, block)
		}
		b.Items = append(b.Items, it)
	}
	return b, nil, err
}

func sessionBlocks(m Made) (out []report.Block) {
	if len(m.Turns) > 0 {
		block := report.Block{Title: "Talk", Notes: []string{fmt.Sprintf("shows %v; it had to show %v", m.Signals, m.Assigned)}}
		for _, t := range m.Turns {
			block.Turns = append(block.Turns, report.Turn{Speaker: map[string]string{build.Person: "Person", build.Assistant: "Assistant"}[t.By], Text: t.Text})
		}
		out = append(out, block)
	}
	for i, x := range m.Rejected {
		out = append(out, report.Block{Title: fmt.Sprintf("Rejected talk %d: %s", i+1, x.Filter), Notes: []string{x.Reason}, Text: x.Text})
	}
	return out
}
