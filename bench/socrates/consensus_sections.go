package socrates

import (
	"fmt"
	"math"

	"github.com/ccmed/ccmed/bench/report"
	"github.com/ccmed/ccmed/bench/stats"
)

// consensusSections are what the evaluators read.
func (r *result) consensusSections() (out []report.Section) {
	for _, c := range r.Metric.Consensus {
		out = append(out, r.consensusSection(c))
	}
	if s, ok := r.cardSection(); ok {
		out = append(out, s)
	}
	if len(r.Metric.Correlations) > 0 {
		t := report.Table{Columns: report.Columns("measure of a talk", "evaluators", "Spearman [95 %]>", "talks>")}
		for _, c := range r.Metric.Correlations {
			value, n := "one side is constant", ""
			if c.Rho != nil {
				value, n = report.Estimate(*c.Rho, 2), fmt.Sprint(c.Rho.N)
			}
			t.Add(c.Measure, r.modelOf(c.A)+", "+r.modelOf(c.B), value, n)
		}
		out = append(out, report.Section{Title: "Do evaluators order the talks alike", Tables: []report.Table{t},
			Notes: []string{"intervals are drawn over scenarios"}})
	}
	if len(r.Metric.Consensus) > 0 {
		out = append(out, publishedSection())
	}
	return out
}

// modelOf names the model of a role.
func (r *result) modelOf(role string) string {
	if m, ok := r.in.Identity().Models[role]; ok {
		return m.Name
	}
	return role
}

// what the forms of evaluation are, in a sentence.
var formNotes = map[string]string{
	FormChoose: "after each party turn the evaluator is asked whether the turn is about the topic, and where it is, how far the parties agree and what each holds; it knows nothing that comes later",
	FormEvery:  "after each party turn the evaluator is asked for the agreement on every topic, also on those that the turn is not about; it knows nothing that comes later",
	FormPass:   "the evaluator reads each topic in one answer over the whole talk, as the source does: it knows how the talk ends",
}

func (r *result) consensusSection(c Consensus) report.Section {
	s := report.Section{Title: "Consensus, read by " + r.modelOf(c.Role)}
	if c.cardNote() != "" {
		s.Title += ": a pipeline check, not a finding"
	}
	arms := report.Table{Columns: report.Columns("talks", "evaluated>", "not evaluated>", "final agreement S [95 %]>")}
	for _, a := range c.Arms {
		missing := 0
		for _, n := range a.Unscored {
			missing += n
		}
		arms.Add(r.armName(a.Step), a.Scored, missing, estimateOr(a.Final, 2))
	}
	t := report.Table{Columns: report.Columns("measure", "value [95 %]>", "talks>", "scenarios>")}
	for _, x := range []struct {
		name string
		e    *stats.Estimate
	}{
		{"consensus gain, %", c.Gain}, {"the same, another seed", c.NullGain}, {"final S, mediated − unmediated", c.DeltaS},
		{"pooled consensus gain, %", c.Pooled}, {"the same, another seed", c.NullPooled},
		{"timeliness, of 100", c.Timeliness},
		{"effectiveness over the same turns unmediated, points", c.OverSham}, {"effectiveness, %", c.Effectiveness}, {"the same turns unmediated (sham), %", c.Sham},
	} {
		if x.e != nil {
			t.Add(x.name, report.Estimate(*x.e, 2), x.e.N, x.e.Groups)
		}
	}
	for _, t := range []report.Table{arms, t} {
		if len(t.Rows) > 0 {
			s.Tables = append(s.Tables, t)
		}
	}
	for _, by := range []struct {
		name  string
		parts []ConsensusPart
	}{{"axis", c.ByAxis}, {"domain", c.ByDomain}} {
		if len(by.parts) < 2 {
			continue
		}
		p := report.Table{Title: "Consensus by " + by.name, Columns: report.Columns(by.name, "talks>", "ΔS>", "pooled gain, %>")}
		bars := &report.Points{X: report.Axis{Name: "final S, mediated − unmediated"}, Bars: true, Series: []report.Series{{Name: "ΔS"}}}
		for _, x := range by.parts {
			p.Add(x.Name, x.Talks, report.Num(x.DeltaS, 3), report.Num(x.Pooled, 1))
			bars.Groups, bars.Series[0].Y = append(bars.Groups, x.Name), append(bars.Series[0].Y, x.DeltaS)
		}
		s.Tables = append(s.Tables, p)
		s.Figures = append(s.Figures, report.Figure{Title: "What the mediator adds, by " + by.name, Points: bars,
			Description: "Difference of the final agreement S between the talk with and without a mediator, mean over the talks of each " + by.name + ". No interval: the parts are small."})
	}
	if f, ok := r.curves(c); ok {
		s.Figures = append([]report.Figure{f}, s.Figures...)
	}
	if note := c.cardNote(); note != "" {
		s.Notes = []string{note}
	}
	s.Notes = append(s.Notes, formNotes[c.Form],
		"S is the mean over topics of (agreement − 1)/4, 0 before a topic is spoken of; consensus gain is the share of what the unmediated talk leaves open that the mediated one closes; pooled, sums are divided, so that a talk that leaves little decides nothing",
		fmt.Sprintf("timeliness counts the first intervention within ten party turns of a fall of S by a tenth or more: %d drops; %d talks have none, and no timeliness", c.Drops, c.NoDrop),
		fmt.Sprintf("effectiveness is over the five party turns after an intervention: %d interventions, of which %d come when nothing is left to agree on or the talk is over, and %d have no such turn in the unmediated talk", c.Interventions, c.Undefined, c.NoSham),
		"intervals are drawn over scenarios")
	if c.Agreements > 0 {
		s.Notes = append(s.Notes, fmt.Sprintf("agreed in words: in %d of %d talks that end in an agreement the parties hold different options, or none, on a topic", c.AgreedInWords, c.Agreements))
	}
	if c.Form == FormPass {
		s.Notes = append(s.Notes, fmt.Sprintf("readings of turns or scores that cannot be, left out: %d", c.Dropped))
	}
	return s
}

func estimateOr(e *stats.Estimate, decimals int) string {
	if e == nil {
		return "none"
	}
	return report.Estimate(*e, decimals)
}

// curves draws the mean agreement over the talk.
func (r *result) curves(c Consensus) (report.Figure, bool) {
	l := &report.Lines{X: report.Axis{Name: "party turns"}, Y: report.Axis{Name: "agreement S", Max: 1}}
	talks := 0
	for _, a := range c.Arms {
		s := report.Series{Name: r.armName(a.Step)}
		for _, p := range a.Curve {
			lo, hi := p.S.Bounds()
			s.X, s.Y, s.Lo, s.Hi = append(s.X, float64(p.Turn)), append(s.Y, p.S.Value), append(s.Lo, lo), append(s.Hi, hi)
		}
		if len(s.Y) > 1 {
			l.Series, talks = append(l.Series, s), max(talks, a.Scored)
		}
	}
	return report.Figure{Title: "Agreement over the talk", Lines: l,
		Description: fmt.Sprintf("Mean agreement S after each party turn, of at most %d talks an arm; a talk that is over keeps its last value. Whiskers are 95 %% intervals over scenarios.", talks)}, len(l.Series) > 0
}

// published are the source's mediators: timeliness, effectiveness, consensus gain.
var published = []struct {
	model                             string
	timeliness, effectiveness, gained float64
}{
	{"GPT-5.4-mini", 79.9, 24.6, 34.4}, {"Gemini-3.1-FL", 80.9, 24.6, 33.0}, {"DeepSeek-V3.2", 75.8, 23.1, 31.9}, {"Qwen3-235B", 76.4, 24.6, 30.7},
	{"Gemma-4-26B", 79.0, 18.1, 21.0}, {"Nemotron-3-120B", 72.0, 19.2, 20.4}, {"Solar-Pro-3", 84.6, 16.7, 19.9}, {"Qwen3-30B", 84.6, 19.7, 15.7},
}

func publishedSection() report.Section {
	t := report.Table{Columns: report.Columns("mediator", "timeliness>", "effectiveness, %>", "consensus gain, %>")}
	for _, p := range published {
		t.Add(p.model, report.Num(p.timeliness, 1), report.Num(p.effectiveness, 1), report.Num(p.gained, 1))
	}
	return report.Section{Title: "What SoCRATES reports", Tables: []report.Table{t}, Notes: []string{
		"not comparable: other scenarios, other parties and another evaluator, which reads each topic over the whole talk, and a baseline out of those runs that the scenarios were chosen by",
		"there the mediator speaks before 14.6 to 32.3 % of the party turns, first when 25.3 to 45.6 % of the talk are over"}}
}

// values are S after each party turn, for the browser.
func (t trajectory) values() []float64 {
	out := make([]float64, t.turns())
	for k := range out {
		out[k] = math.Round(t.s(k+1)*1e4) / 1e4
	}
	return out
}
