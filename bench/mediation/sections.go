package mediation

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/ccmed/ccmed/bench/dmis"
	"github.com/ccmed/ccmed/bench/published"
	"github.com/ccmed/ccmed/bench/report"
	"github.com/ccmed/ccmed/bench/stats"
)

// PipelineCheck is printed instead of numbers that nobody may cite.
const PipelineCheck = "pipeline check, not a finding"

// WeakLabels is printed beside numbers that rest on weak labels.
const WeakLabels = "weak labels: no number here is a finding"

// withoutLabeller says what is left out where nothing rests on the labels.
const withoutLabeller = "where nothing rests on the labels no AUC, W1, trajectory or flow of stages is shown"

// shown are the metrics of the main table, with their headings.
var shown = []struct{ metric, heading string }{
	{DAUC, "ΔAUC"}, {DAUCOwn, "ΔAUC_own"}, {AUC, "AUC"}, {AUCOwn, "AUC_own"}, {AUCE, "AUC_E"}, {W1, "signed W1"}, {DeltaE, "ΔE"}, {Judge, "Judge"},
}

// Sections renders metrics as report sections.
func Sections(m Metrics) []report.Section {
	main := report.Section{Title: "Mediation"}
	switch {
	case m.Withheld():
		main.Title += ": " + PipelineCheck
	case m.PipelineCheck:
		main.Title += ": " + WeakLabels
	}
	main.Notes = append(append([]string(nil), m.Degenerate...), m.Notes...)
	if m.Withheld() {
		main.Notes = append(main.Notes, withoutLabeller)
	}
	main.Tables = append(main.Tables, mainTable(m))
	if t, ok := sharedTable(m); ok {
		main.Tables = append(main.Tables, t)
	}
	if t, ok := unscoredTable(m); ok {
		main.Tables = append(main.Tables, t)
	}
	sections := []report.Section{main}
	if m.Labeller != nil {
		sections = append(sections, cardSection(*m.Labeller))
	}
	if m.Withheld() {
		return append(sections, utteranceSection(m))
	}
	if len(m.Differences) > 0 {
		sections = append(sections, differenceSection(m))
	}
	if s, ok := trajectorySection(m); ok {
		sections = append(sections, s)
	}
	if s, ok := flowSection(m); ok {
		sections = append(sections, s)
	}
	return append(sections, stageSection(m), utteranceSection(m))
}

// PublishedSection puts the run's numbers beside the published ones. ok is false
// where there are none, as in a pipeline check: what is no finding stands beside none.
func PublishedSection(m Metrics, o published.Options) (s report.Section, ok bool) {
	if m.PipelineCheck {
		return s, false
	}
	measured := func(e stats.Estimate) published.Measured {
		lo, hi := e.Bounds()
		return published.Measured{Value: e.Value, Lo: lo, Hi: hi}
	}
	ours, tuned := map[string]published.Measured{}, map[string]published.Measured{}
	for _, c := range m.Conditions {
		for _, x := range []struct{ condition, metric, id string }{
			{ND, AUC, published.AUCND}, {D, AUC, published.AUCD}, {GroundTruth, AUC, published.AUCGroundTruth},
			{ND, W1, published.W1ND}, {D, W1, published.W1D}, {ND, Judge, published.JudgeND}, {D, Judge, published.JudgeD},
		} {
			if e, ok := c.Values[x.metric]; ok && c.Condition == x.condition {
				ours[x.id] = measured(e)
			}
		}
		if c.AUCExact != nil {
			tuned[published.AUCExact] = measured(*c.AUCExact)
		}
	}
	for _, d := range m.Differences {
		if d.A == D && d.B == ND && d.Metric == AUC {
			ours[published.AUCGain] = measured(d.Value)
		}
	}
	if c := m.Labeller; c != nil && c.Qualified {
		agree := 0
		for stage := range c.Confusion {
			agree += c.Confusion[stage][stage]
		}
		ours[published.LabellerAgrees] = published.Measured{Value: float64(agree) / float64(c.N)}
	}
	s.Title = "Mediation beside the published numbers"
	for _, x := range []struct {
		topic published.Topic
		ours  map[string]published.Measured
	}{{published.Mediation, ours}, {published.FineTuning, tuned}} {
		if t, ok := published.Table(x.topic, x.ours, o); ok {
			t.Title = ""
			s.Tables = append(s.Tables, t)
		}
	}
	return s, len(s.Tables) > 0
}

func interval(e stats.Estimate) string { return report.Estimate(e, 2) }

// meanings says what the speakers or the mediator have in each condition.
var meanings = []struct{ condition, what string }{
	{ND, "the mediator sees the dialogue alone"},
	{D, "it is told the conflict's stage as well"},
	{GroundTruth, "the record's line"},
	{Generic, "one fixed line"},
	{Unmediated, "nobody steps in"},
	{UnmediatedAt, "nobody steps in, from the turn at which the mediator would speak where that is not the conflict turn"},
}

func mainTable(m Metrics) report.Table {
	t := report.Table{Title: "Conditions (95 % intervals over scenario contexts, Paige scale)",
		Columns: report.Columns("condition", "dialogues>", "lines>", "distinct>", "sentences>")}
	if m.Withheld() {
		t.Title = "Conditions"
	} else {
		t.Columns = append(t.Columns, report.Column{Name: "labels, κ"})
		for _, s := range shown {
			t.Columns = append(t.Columns, report.Column{Name: s.heading, Align: report.Right})
		}
	}
	for _, c := range m.Conditions {
		sentences := report.Text("")
		if c.Mediated > 0 {
			sentences = report.Num(c.Sentences, 1)
		}
		row := []report.Cell{report.Text(c.Condition), report.Int(c.N), report.Int(c.Mediated), report.Int(c.DistinctLines), sentences}
		if !m.Withheld() {
			row = append(row, report.Text(m.labelGrade()))
			for _, s := range shown {
				cell := report.Text("")
				if e, ok := c.Values[s.metric]; ok {
					cell = report.Text(fmt.Sprintf("%s n=%d", interval(e), e.N))
				}
				row = append(row, cell)
			}
		}
		t.Rows = append(t.Rows, row)
		for _, s := range shown {
			if b, ok := c.Bounds[s.metric]; ok {
				t.Notes = append(t.Notes, fmt.Sprintf("%s, %s: of all %d dialogues from %.2f to %.2f, the unscored at the ends of the scale", c.Condition, s.heading, b.N, b.Lo, b.Hi))
			}
		}
		if c.AUCAll != nil {
			t.Notes = append(t.Notes, fmt.Sprintf("%s: AUC over all %d dialogues, the unmediated continuation standing in where no turn was predicted: %s", c.Condition, c.AUCAll.N, interval(*c.AUCAll)))
		}
		if c.AUCExact != nil {
			t.Notes = append(t.Notes, fmt.Sprintf("%s: AUC_exact (predicted = gold, conditions on the model's own success) %s, n=%d", c.Condition, interval(*c.AUCExact), c.AUCExact.N))
		}
		for _, k := range []string{"early", "exact", "late"} {
			if s, ok := c.Timing[k]; ok {
				t.Notes = append(t.Notes, fmt.Sprintf("%s, %s interventions: AUC %.2f, n=%d", c.Condition, k, s.Mean, s.N))
			}
		}
	}
	var lines []string
	for _, x := range meanings {
		if slices.ContainsFunc(m.Conditions, func(c ConditionMetrics) bool { return c.Condition == x.condition }) {
			lines = append(lines, x.condition+": "+x.what)
		}
	}
	if len(lines) > 0 {
		t.Notes = append([]string{strings.Join(lines, "; ")}, t.Notes...)
	}
	return t
}

// sharedTable shows the metrics that conditions have of different dialogues over those
// that all have. ok is false where all rows are of the same.
func sharedTable(m Metrics) (t report.Table, ok bool) {
	t = report.Table{Title: "The same dialogues in every row", Columns: report.Columns("condition")}
	var metrics []string
	for _, s := range shown {
		if slices.ContainsFunc(m.Conditions, func(c ConditionMetrics) bool { _, ok := c.Shared[s.metric]; return ok }) {
			metrics = append(metrics, s.metric)
			t.Columns = append(t.Columns, report.Column{Name: s.heading, Align: report.Right})
		}
	}
	for _, c := range m.Conditions {
		row := []report.Cell{report.Text(c.Condition)}
		for _, metric := range metrics {
			cell := report.Text("")
			if e, ok := c.Shared[metric]; ok {
				cell = report.Text(fmt.Sprintf("%s n=%d", interval(e), e.N))
			}
			row = append(row, cell)
		}
		if len(c.Shared) > 0 {
			t.Rows = append(t.Rows, row)
		}
	}
	t.Notes = []string{"the table above has for each condition all its scored dialogues; this one those that every condition with the metric has scored"}
	return t, len(t.Rows) > 0
}

func unscoredTable(m Metrics) (report.Table, bool) {
	t := report.Table{Title: "Unscored", Columns: report.Columns("condition", "metric", "dialogues>", "reason")}
	for _, c := range m.Conditions {
		// Metrics that fail for the same reason in the same dialogues share a row.
		type key struct {
			why string
			n   int
		}
		rows := map[key][]string{}
		var keys []key
		for _, metric := range MetricNames {
			for why, n := range c.Unscored[metric] {
				k := key{why, n}
				if rows[k] == nil {
					keys = append(keys, k)
				}
				rows[k] = append(rows[k], metric)
			}
		}
		slices.SortFunc(keys, func(a, b key) int {
			if a.n != b.n {
				return b.n - a.n
			}
			return strings.Compare(a.why, b.why)
		})
		for _, k := range keys {
			names := strings.Join(rows[k], " ")
			if len(rows[k]) > 4 {
				names = fmt.Sprintf("%d metrics", len(rows[k]))
			}
			t.Add(c.Condition, names, k.n, k.why)
		}
	}
	return t, len(t.Rows) > 0
}

// labelGrade is the grade of the labels with their kappa, for a cell.
func (m Metrics) labelGrade() string {
	grade := "weak"
	if m.Grade == Reliable {
		grade = "reliable"
	}
	return fmt.Sprintf("%s, %.2f", grade, m.Labeller.Kappa)
}

func cardSection(c LabellerCard) report.Section {
	s := report.Section{Title: "Labeller card: " + c.Grade}
	s.Notes = append(s.Notes, c.Why...)
	facts := report.Table{Columns: report.Columns("check", "value>")}
	row := func(k, v string) {
		facts.Add(k, v)
	}
	row("the conflict speaker's turns, compared with recorded labels", fmt.Sprintf("%d (%d unscored)", c.N, c.Unscored))
	kappa := "not computed"
	if c.Interval != nil {
		kappa = interval(*c.Interval)
	}
	row("quadratic kappa [95 % by scenario context]", kappa)
	if r := c.Recorded; r != nil {
		row("the recorded labels' own, of turns labelled twice", fmt.Sprintf("%s, n=%d", interval(r.Kappa), r.Turns))
		row(fmt.Sprintf("lower bound needed, %g of it", ReliableShare), fmt.Sprintf("%.2f", ReliableShare*r.Kappa.Value))
	}
	if c.Corrected != nil {
		row("kappa corrected for the recorded labels' errors", fmt.Sprintf("%.2f", *c.Corrected))
	}
	recall, again := report.Pct(c.ConflictRecall.K, c.ConflictRecall.N), report.Pct(c.Consistent.K, c.Consistent.N)
	if c.MajorityShare > stats.DegenerateShare {
		// The same answer for all recognises its own stage and always agrees with itself.
		recall, again = "same answer", "same answer"
	}
	row("scripted conflict turns recognised", recall)
	if c.MajorityShare <= stats.DegenerateShare {
		for stage := dmis.Denial; stage <= dmis.Integration; stage++ {
			if r, ok := c.StageRecall[stage.String()]; ok {
				row("of these, "+stage.String(), report.Pct(r.K, r.N))
			}
		}
	}
	if a := c.AfterOther; a.N > 0 {
		row("after the other speaker's turns: the conflict speaker's stage, the other's", fmt.Sprintf("%d, %d of %d", a.Conflict, a.Other, a.N))
	}
	row("same stage with the stages listed the other way round", again)
	most := "not computed: no answer"
	if c.Answers > 0 {
		most = fmt.Sprintf("%s, %.0f %% of %d", c.Majority, 100*c.MajorityShare, c.Answers)
	}
	row("most frequent stage (at most 80 %)", most)
	conf := report.Table{Title: "Recorded (rows) against given stages", Columns: report.Columns("recorded")}
	for g := dmis.Denial; g <= dmis.Integration; g++ {
		conf.Columns = append(conf.Columns, report.Column{Name: g.String(), Align: report.Right})
	}
	for r := dmis.Denial; r <= dmis.Integration; r++ {
		cells := []report.Cell{report.Text(r.String())}
		for g := range c.Confusion[r] {
			cells = append(cells, report.Int(c.Confusion[r][g]))
		}
		conf.Rows = append(conf.Rows, cells)
	}
	s.Tables = []report.Table{facts, conf}
	return s
}

func differenceSection(m Metrics) report.Section {
	t := report.Table{Columns: report.Columns("difference", "metric", "mean [95 %]>", "n>", "p>", "p (Holm)>", "")}
	for _, d := range m.Differences {
		mark := "~"
		switch {
		case d.Weak != "":
			mark = d.Weak
		case d.PHolm < stats.Alpha:
			mark = "significant"
		}
		t.Add(d.A+" − "+d.B, heading(d.Metric), interval(d.Value), d.Value.N, report.PValue(d.P), report.PValue(d.PHolm), mark)
	}
	return report.Section{Title: "Paired differences", Tables: []report.Table{t}, Figures: []report.Figure{differenceFigure(m)},
		Notes: []string{fmt.Sprintf("one family of %d, Holm-corrected, with the intervals of ccmed compare (Student's t by scenario context); ~ means no significant difference at %.2f", len(m.Differences), stats.Alpha)}}
}

// differenceFigure shows the paired differences with their intervals.
func differenceFigure(m Metrics) report.Figure {
	most := 0
	for _, d := range m.Differences {
		most = max(most, d.Value.N)
	}
	p := &report.Points{X: report.Axis{Name: "difference"}, References: []report.Reference{{Name: "no difference", Value: 0}}}
	series := map[string]*report.Series{}
	var order []string
	for _, d := range m.Differences {
		group := d.A + " − " + d.B
		if !slices.Contains(p.Groups, group) {
			p.Groups = append(p.Groups, group)
		}
		if series[d.Metric] == nil {
			series[d.Metric] = &report.Series{Name: heading(d.Metric)}
			order = append(order, d.Metric)
		}
	}
	for _, metric := range order {
		s := series[metric]
		for _, group := range p.Groups {
			y, lo, hi := math.NaN(), math.NaN(), math.NaN()
			for _, d := range m.Differences {
				if d.Metric == metric && d.A+" − "+d.B == group {
					y = d.Value.Value
					lo, hi = d.Value.Bounds()
				}
			}
			s.Y, s.Lo, s.Hi = append(s.Y, y), append(s.Lo, lo), append(s.Hi, hi)
		}
		p.Series = append(p.Series, *s)
	}
	return report.Figure{Title: "Paired differences with 95 % intervals", Points: p, Description: fmt.Sprintf("Each mark is a mean difference of two conditions over the same dialogues, at most %d. Whiskers are 95 %% intervals by Student's t with standard errors by scenario context.", most)}
}

// leastContexts is how many scenario contexts a stage's interval needs: of fewer it
// would be far too narrow.
const leastContexts = 5

func stageSection(m Metrics) report.Section {
	t := report.Table{Columns: report.Columns("condition", "stage", "AUC>", "signed W1>", "Judge>")}
	for _, c := range m.Conditions {
		for s := dmis.Denial; s <= dmis.Minimization; s++ {
			v := c.PerStage[s.String()]
			if v == nil {
				continue
			}
			row := []report.Cell{report.Text(c.Condition), report.Text(s.String())}
			for _, metric := range []string{AUC, W1, Judge} {
				cell := report.Text("")
				if x, ok := v[metric]; ok {
					text := fmt.Sprintf("%.2f", x.Value)
					if x.Groups >= leastContexts {
						text = interval(x)
					}
					cell = report.Text(fmt.Sprintf("%s n=%d", text, x.N))
				}
				row = append(row, cell)
			}
			t.Rows = append(t.Rows, row)
		}
	}
	t.Notes = []string{fmt.Sprintf("95 %% intervals over scenario contexts, where a stage has at least %d of them", leastContexts)}
	return report.Section{Title: "By conflict stage", Tables: []report.Table{t}}
}

// utteranceSection shows a few lines as they are, for a first look.
func utteranceSection(m Metrics) report.Section {
	s := report.Section{Title: "What the mediator said"}
	t := report.Table{Columns: report.Columns("item", "condition", "stage", "line")}
	const perCondition = 3
	n := map[string]int{}
	for _, o := range m.Outcomes {
		if o.Utterance == "" || o.Condition == Generic || o.Condition == GroundTruth || n[o.Condition] == perCondition {
			continue
		}
		n[o.Condition]++
		t.Add(o.Item, o.Condition, o.Stage, report.Shorten(o.Utterance, 240))
	}
	s.Tables = []report.Table{t}
	return s
}
