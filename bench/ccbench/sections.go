package ccbench

import (
	"context"
	"fmt"
	"math"

	"github.com/ccmed/ccmed/bench/ccbench/build"
	"github.com/ccmed/ccmed/bench/report"
	"github.com/ccmed/ccmed/bench/stats"
	"github.com/ccmed/ccmed/bench/task"
)

// Sections are the tables and figures.
func (r *result) Sections(context.Context) ([]report.Section, error) {
	m := r.Metric
	s := report.Section{Title: "CCBench: do answers fit the person who asks"}
	swaps := report.Table{Title: "Adaptation", Columns: report.Columns("given", "answers>", "own>", "swapped>", "own − swapped [95 %]>")}
	rates := report.Table{Title: "Rates", Columns: report.Columns("given", "Follow>", "Avoid>", "overall>", "CCS [95 %]>", "mean CCS>")}
	for _, x := range m.Settings {
		gain := estimate(x.Adaptation)
		if x.blind() {
			gain = "0, one answer for all"
		}
		own, swapped := report.Pct(x.OwnYes, x.Swaps), "none"
		if x.Swaps > 0 {
			swapped = fmt.Sprintf("%.1f %%", 100*x.swapped())
		}
		swaps.Add(x.Name, x.Answers, own, swapped, gain)
		rates.Add(x.cells(x.Name)...)
	}
	for _, x := range m.Baselines {
		rates.Add(x.cells("baseline: " + baselineName(x.Name))...)
	}
	if len(rates.Rows) > 0 {
		swaps.Add("baseline: a judge that always says yes", "", "100.0 %", "100.0 %", "0")
		rates.Add("baseline: always yes", "100.0 %", "100.0 %", "100.0 %", "1.00", "1.00")
	}
	s.Tables = []report.Table{swaps, rates}
	s.Notes = []string{
		"adaptation is own − swapped: how much more often an item holds of answers to people of its stance than to people of the opposite one, on the same query; an answer that ignores the person has 0",
		"intervals are drawn over personas; Follow and Avoid are shares of fulfilled items of norms that the persona follows and avoids, CCS is the harmonic mean of both",
		"the people are invented, norms are tendencies that were told of groups and say nothing of any person, and no answer is medical advice",
	}
	for _, x := range m.Settings {
		if x.NoSwap > 0 {
			s.Notes = append(s.Notes, fmt.Sprintf("under %s %d items have no judged answer to somebody of the opposite stance", x.Name, x.NoSwap))
		}
		if l := x.Lost; l.Follow+l.Avoid > 0 {
			s.Notes = append(s.Notes, fmt.Sprintf("under %s the only signals of these items were dropped, so that they count nowhere else: Follow %s, Avoid %s",
				x.Name, report.Pct(l.FollowYes, l.Follow), report.Pct(l.AvoidYes, l.Avoid)))
		}
	}
	if f, ok := m.swapFigure(); ok {
		s.Figures = append(s.Figures, f)
	}
	out := []report.Section{s}
	if x := r.main(); x != nil && x.Answers > 0 {
		out = append(out, x.section())
	}
	out = append(out, m.judgeSection(), publishedSection())
	return out, nil
}

// swapFigure draws the adaptation under each setting that shows something of the person.
func (m Metrics) swapFigure() (report.Figure, bool) {
	p := &report.Points{X: report.Axis{Name: "own − swapped"}, Series: []report.Series{{Name: "adaptation"}},
		References: []report.Reference{{Name: "an answer that ignores the person", Value: 0}}}
	y := &p.Series[0]
	for _, x := range m.Settings {
		if x.blind() || x.Adaptation == nil {
			continue
		}
		lo, hi := x.Adaptation.Bounds()
		p.Groups, y.Y, y.Lo, y.Hi = append(p.Groups, x.Name), append(y.Y, x.Adaptation.Value), append(y.Lo, lo), append(y.Hi, hi)
	}
	return report.Figure{Title: "Adaptation by setting", Points: p,
		Description: fmt.Sprintf("How much more often an item holds of answers to people of its stance than of answers to people of the opposite one, by what the model was given. %d personas, %d queries; 95 %% intervals over personas.", m.Personas, m.Queries)}, len(p.Groups) > 0
}

func estimate(e *stats.Estimate) string {
	if e == nil {
		return "none"
	}
	return report.Estimate(*e, 2)
}

// cells are those of a row of rates.
func (s Score) cells(name string) []any {
	mean := "none"
	if s.MeanCCS != nil {
		mean = fmt.Sprintf("%.2f", s.MeanCCS.Value)
	}
	return []any{name, report.Pct(s.FollowYes, s.Follow), report.Pct(s.AvoidYes, s.Avoid), report.Pct(s.FollowYes+s.AvoidYes, s.Follow+s.Avoid), estimate(s.CCS), mean}
}

// section shows a setting by culture, topic, kind and embeddedness.
func (s Score) section() report.Section {
	out := report.Section{Title: "By part, under " + s.Name, Sub: true}
	t := report.Table{Columns: report.Columns("part", "of", "Follow>", "Avoid>", "CCS>", "adaptation>", "items swapped>")}
	add := func(what string, ps []Part) {
		for _, p := range ps {
			t.Add(what, p.Name, report.Pct(p.FollowYes, p.Follow), report.Pct(p.AvoidYes, p.Avoid), value(p.CCS), value(p.Adaptation), p.Swaps)
		}
	}
	add("culture", s.ByCulture)
	if len(s.ByCulture) > 1 && s.EqualCCS != nil {
		t.Add("culture", "all, each weighing the same", "", "", estimate(s.EqualCCS), estimate(s.EqualAdaptation), "")
	}
	add("kind of norm", s.ByKind)
	add("embeddedness", s.ByEmbeddedness)
	add("topic", s.ByTopic)
	out.Tables = []report.Table{t}
	out.Notes = []string{"embeddedness is the share of Follow among the items of a persona"}
	out.Figures = append(out.Figures, points("Follow against Avoid by culture", "share of fulfilled items", s.ByCulture, map[string]func(Part) float64{
		"Follow": func(p Part) float64 { return float64(p.FollowYes) / float64(p.Follow) },
		"Avoid":  func(p Part) float64 { return float64(p.AvoidYes) / float64(p.Avoid) }}, "Follow", "Avoid"))
	out.Figures = append(out.Figures, points("Adaptation by embeddedness", "own − swapped", s.ByEmbeddedness, map[string]func(Part) float64{
		"own − swapped": func(p Part) float64 { return p.adaptation() }}, "own − swapped"))
	return out
}

// points draws measures of parts. They have no intervals: a part holds few personas.
func points(title, axis string, ps []Part, of map[string]func(Part) float64, names ...string) report.Figure {
	p := &report.Points{X: report.Axis{Name: axis}, References: []report.Reference{{Name: "0", Value: 0}}}
	for _, x := range ps {
		p.Groups = append(p.Groups, x.Name)
	}
	for _, name := range names {
		series := report.Series{Name: name}
		for _, x := range ps {
			series.Y = append(series.Y, of[name](x))
		}
		p.Series = append(p.Series, series)
	}
	return report.Figure{Title: title, Description: title + "; without intervals, for a part holds few personas.", Points: p}
}

func value(v *float64) report.Cell {
	if v == nil {
		return report.Text("none")
	}
	return report.Num(*v, 2)
}

// judgeSection says how far the judge can be relied on.
func (m Metrics) judgeSection() report.Section {
	s := report.Section{Title: "The judge", Sub: true}
	f := report.NewFacts()
	switch c := m.Card; {
	case c == nil:
		f.Add("agreement with people", "unknown")
	case c.Agreement == nil:
		f.Add("agreement with people", fmt.Sprintf("unknown: none of %d labels is scored", c.N))
	default:
		f.Add("agreement with people", fmt.Sprintf("%s, of %d labels; %d unscored", report.Estimate(*c.Agreement, 2), c.N, c.Unscored))
		kappa := "undefined: judge or person always says the same"
		if c.Kappa != nil {
			kappa = report.Estimate(*c.Kappa, 2)
		}
		f.Add("Cohen's κ", kappa)
		f.Add("says yes", fmt.Sprintf("judge %s, person %s", report.Pct(c.JudgeYes, c.N-c.Unscored), report.Pct(c.PersonYes, c.N-c.Unscored)))
	}
	a := m.Acquiescence
	f.Add("yes to an item and to its opposite", report.Pct(a.BothYes, a.N))
	f.Add("no to an item and to its opposite", report.Pct(a.BothNo, a.N))
	s.Tables = []report.Table{f.Table}
	return s
}

// Browser lists the answers with their items, and the past sessions of every persona.
func (r *result) Browser(context.Context) (report.Browser, []string, error) {
	names := append(append([]string{}, settingNames...), Empty, Generic, Card)
	b := report.Browser{Name: "answers", Title: "persona and query", Facets: []report.Facet{{Name: "setting", Order: append([]string{"past sessions"}, names...)}, {Name: "culture"},
		{Name: "persona"}, {Name: "topic", Order: build.Topics()}}, Measures: []string{"fulfilled items", "own − swapped"}}
	all, err := r.units()
	if err != nil {
		return b, nil, err
	}
	gains := map[string]map[[2]string]Rates{}
	for _, name := range names {
		gains[name] = map[[2]string]Rates{}
		for _, c := range cellsOf(all, name) {
			k := [2]string{c.persona, c.query}
			gains[name][k] = gains[name][k].plus(c.rates(), 1)
		}
	}
	sessions, notes := r.sessions()
	b.Items = append(b.Items, sessions...)
	for _, u := range all {
		it := report.Item{Title: u.key.Item, Facets: [][]string{{u.key.Condition}, known(u.answer.Culture), known(u.answer.Persona), known(u.answer.Topic)},
			Measures: report.Values{math.NaN(), math.NaN()}}
		if u.unscored != "" {
			it.Note = "unscored: " + u.unscored
		}
		if x, ok := gains[u.key.Condition][[2]string{u.Persona, u.Query}]; ok && u.unscored == "" {
			it.Measures[0] = task.Rounded(float64(x.FollowYes+x.AvoidYes) / float64(x.Follow+x.Avoid))
			if x.Swaps > 0 {
				it.Measures[1] = task.Rounded(x.adaptation())
			}
		}
		it.Blocks = u.blocks()
		b.Items = append(b.Items, it)
	}
	return b, notes, nil
}

func known(s string) []string {
	if s == "" {
		return nil
	}
	return []string{s}
}

// blocks show an answer, and what the judge says of its items.
func (u judgedUnit) blocks() (out []report.Block) {
	if u.answer.Question != "" {
		out = append(out, report.Block{Title: "Question", Text: u.answer.Question})
	}
	if u.answer.Cues != "" {
		b := report.Block{Title: "Cues that the model names", Text: u.answer.Cues}
		if u.answer.CuesCut {
			b.Notes = []string{task.CutMark}
		}
		out = append(out, b)
	}
	a := report.Block{Title: "Answer", Text: u.answer.Text}
	if u.answer.Dropped > 0 {
		a.Notes = append(a.Notes, fmt.Sprintf("the %d oldest sessions were not shown", u.answer.Dropped))
	}
	out = append(out, a)
	items := report.Block{Title: "Items", Value: "P(yes)"}
	for _, it := range u.Items {
		t := report.Turn{Name: it.Norm, Text: it.Text, Unscored: it.Unscored}
		if it.Stance != "" {
			t.Speaker = it.Stance
		}
		if it.Unscored == "" {
			p := task.Rounded(it.P)
			t.Value = &p
		}
		switch {
		case it.Label != "":
			t.Marks = append(t.Marks, "a person says "+it.Label)
		case len(it.Of) == 0:
			t.Marks = append(t.Marks, "of the opposite stance")
		}
		if it.Lost {
			t.Marks = append(t.Marks, "its signals were dropped")
		}
		if it.Negated != nil {
			t.Marks = append(t.Marks, fmt.Sprintf("opposite %.2f", *it.Negated))
		}
		items.Turns = append(items.Turns, t)
	}
	if len(items.Turns) > 0 {
		out = append(out, items)
	}
	return out
}

// sessions are the past talks of the run's personas, where the build can be read again.
func (r *result) sessions() (out []report.Item, notes []string) {
	set, err := task.Settings[settings](r.in.Identity())
	var b *build.Build
	if err == nil && set.Build != "" {
		if b, err = build.Read(set.Build); err == nil && b.Hash != r.in.Identity().DataHash {
			err = fmt.Errorf("%s is another build than the run's", set.Build)
		}
	}
	if err != nil {
		return nil, []string{fmt.Sprintf("the past sessions are left out: %v", err)}
	}
	if b == nil {
		return nil, []string{"the past sessions are left out: the run does not name its build"}
	}
	for _, c := range b.Cultures {
		for i, p := range c.Personas {
			if set.Personas > 0 && i >= set.Personas {
				break
			}
			it := report.Item{Title: p.ID, Note: "past sessions", Facets: [][]string{{"past sessions"}, {c.Culture.ID}, {p.ID}, nil}, Measures: report.Values{math.NaN(), math.NaN()}}
			facts := report.Block{Title: "Persona", Facts: [][2]string{{"sex", p.Sex}, {"age", fmt.Sprint(p.Age)}}}
			for _, s := range c.Stances(p.Persona) {
				facts.Facts = append(facts.Facts, [2]string{s.State.String() + " " + s.Norm.ID, s.Norm.Statement})
			}
			it.Blocks = append(it.Blocks, facts)
			for k, s := range p.Sessions {
				block := report.Block{Title: fmt.Sprintf("Session %d, %s", k+1, s.Kind)}
				for _, t := range s.Turns {
					block.Turns = append(block.Turns, report.Turn{Speaker: t.By, Text: t.Text})
				}
				it.Blocks = append(it.Blocks, block)
			}
			out = append(out, it)
		}
	}
	return out, nil
}
