package effect

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/ccmed/ccmed/bench/report"
	"github.com/ccmed/ccmed/bench/stats"
)

// Known is the accuracy of a probe at the end of the ND prompts, by layer.
type Known struct {
	Layers   []string
	Accuracy []stats.Estimate
}

// Sections renders findings. known may be empty.
func (f *Findings) Sections(model string, known Known) []report.Section {
	out := []report.Section{f.overview(model)}
	if len(f.Steer) > 0 {
		out = append(out, f.steerSection(known), f.verdictSection())
	}
	if len(f.Other) > 0 {
		out = append(out, f.otherSection())
	}
	if len(f.Ends) > 0 {
		out = append(out, f.endSection())
	}
	return append(out, f.blockSections(known)...)
}

// Cautions are what a reader must know before a number is cited.
func (f *Findings) Cautions() []string {
	out := []string{"M is learnt on lines that were told the stage: it measures likeness to D lines, not how well a line mediates",
		"under D the prompt names the stage"}
	if a := f.Words.Accuracy; a.NoInterval != "" || a.Lo <= f.Words.Majority {
		out = append(out, fmt.Sprintf("the bag of words is not shown to tell the stage of D lines: %s, the most frequent stage %.3f", report.Estimate(a, 3), f.Words.Majority))
	}
	if !f.Gap.above() {
		out = append(out, "the plain D lines do not fit the stage better than the ND lines: no recovery is computed")
	}
	widest := 0.0
	for _, a := range f.Arms {
		widest = max(widest, a.Widest)
	}
	if widest > mostNorm {
		out = append(out, fmt.Sprintf("an edit of %.1f times the norm of the states that it is added to takes them where the model has never been; beyond %.0f times the stage is not called used", widest, mostNorm))
	}
	evaluated := 0
	for _, s := range f.Steer {
		if !s.Training {
			evaluated++
		}
	}
	if evaluated > 1 {
		out = append(out, fmt.Sprintf("%d cells were measured on dialogues of other groups than the direction's: a verdict of one of them is one of %d looks", evaluated, evaluated))
	}
	return out
}

// Place says what an arm changes.
func (e Edit) Place() string {
	if e.Kind == "" {
		return "nothing"
	}
	return fmt.Sprintf("%s at %s, dose %g", e.Kind, strings.Join(e.Layers, ", "), e.Dose)
}

// What names an arm's class with its control.
func (e Edit) What() string {
	if e.Of == "" {
		return e.Class
	}
	return e.Class + ":" + e.Of
}

func estimate(e *stats.Estimate, digits int) string {
	if e == nil {
		return ""
	}
	return report.Estimate(*e, digits)
}

func difference(d *Difference) string {
	if d == nil {
		return ""
	}
	return fmt.Sprintf("%s, p = %.3g", report.Estimate(d.Estimate, 3), d.P)
}

func (f *Findings) overview(model string) report.Section {
	t := report.Table{Columns: report.Columns("unchanged model", "n>", "unscored>", "M>", "P(gold) of the answer>")}
	for i, a := range f.Plain {
		t.Add([]string{"ND", "D"}[i], a.N, a.Unscored, estimate(&a.M, 3), estimate(a.Answer, 3))
	}
	return report.Section{Title: "Elicitation: " + model, Tables: []report.Table{t}, Notes: []string{
		"M is P(gold stage | line) of a bag of words that was fitted to D lines of training groups, the stages' names masked",
		fmt.Sprintf("the bag of words knows %d terms of %d lines; it tells the stage of D lines of groups that it was not fitted to in %s, the most frequent stage is %.3f",
			f.Words.Terms, f.Words.Lines, report.Estimate(f.Words.Accuracy, 3), f.Words.Majority),
		"M of D less M of ND is " + difference(&f.Gap), "intervals are over scenario contexts"}}
}

// groupsName says on which dialogues a steering was measured.
func (s *Steering) groupsName() string {
	if s.Training {
		return "training"
	}
	return "other"
}

func (s *Steering) place() string {
	return Edit{Kind: s.Kind, Layers: s.Layers, Dose: s.Dose}.Place()
}

func (f *Findings) steerSection(known Known) report.Section {
	t := report.Table{Title: "The arm of each dialogue's own stage", Columns: report.Columns("edit", "groups", "n>", "recovery>", "M − ND>", "answer − ND>", "nats a token above ND>", "KL>"),
		Notes: []string{"recovery is (M − M of ND) / (M of D − M of ND), where the denominator is above 0"}}
	for i, s := range f.Steer {
		name := s.place()
		if f.Chosen != nil && *f.Chosen == i {
			name += " (chosen)"
		}
		recovery, kl := "no gap", ""
		if s.Recovery != nil {
			recovery = report.Estimate(*s.Recovery, 2)
		}
		if s.Drift != nil {
			kl = fmt.Sprintf("%.4f", *s.Drift)
		}
		answer := difference(s.Ask)
		if s.Ask != nil && s.Ask.N != s.N {
			answer += fmt.Sprintf(", n = %d", s.Ask.N)
		}
		t.Add(name, s.groupsName(), s.N, recovery, difference(&s.Rise), answer, estimate(s.Cost, 3), kl)
	}
	return report.Section{Title: "Steering", Tables: []report.Table{t}, Figures: f.doseFigures()}
}

func (f *Findings) verdictSection() report.Section {
	s := report.Section{Title: "What the edits show", Notes: []string{
		fmt.Sprintf("%q needs a recovery of at least %.1f with a lower bound above %.2f, the right stage above each wrong one and above shuffled labels (Holm, p < %.2f), a cost of at most %.1f nats a token, and %d dialogues",
			Used, usedRecovery, usedLower, stats.Alpha, costMost, usedN),
		fmt.Sprintf("%q: M rises, and the answer does not or the cost is higher", Surface)}}
	verdicts := report.Table{Columns: report.Columns("edit", "verdict", "why it is no more")}
	over := report.Table{Title: "The right stage less", Columns: report.Columns("edit", "groups", "less", "difference of M>", "p, Holm>")}
	for _, x := range f.Steer {
		if x.Verdict != "" {
			verdicts.Add(x.place(), x.Verdict, strings.Join(x.Reasons, "; "))
		}
		for _, c := range x.Over {
			over.Add(x.place(), x.groupsName(), c.With, report.Estimate(c.Estimate, 3), fmt.Sprintf("%.3g", c.PHolm))
		}
		if x.Random != nil {
			over.Add(x.place(), x.groupsName(), "isotropic", report.Estimate(x.Random.Estimate, 3), fmt.Sprintf("%.3g, alone", x.Random.P))
		}
	}
	if len(verdicts.Rows) == 0 {
		s.Notes = append(s.Notes, "all dialogues are of groups that the direction was learnt from: they choose a cell, and nothing is claimed; to claim something, learn from other scenario contexts (probe extract --split training --exclude-seen-contexts)")
	} else {
		s.Tables = append(s.Tables, verdicts)
	}
	if len(over.Rows) > 0 {
		s.Tables = append(s.Tables, over)
	}
	return s
}

func (f *Findings) otherSection() report.Section {
	t := report.Table{Title: "Less the unchanged model under the same condition", Columns: report.Columns("edit", "class", "condition", "n>", "recovery>", "M>", "answer>", "M − controls>", "controls>")}
	lens := report.Table{Title: "Through the last block", Columns: report.Columns("state", "n>", "P(gold stage's name)>", "P(a stage's name)>"),
		Notes: []string{"how probable it is that the line begins with a stage's name where a block's state stands in the last one's place"}}
	for _, c := range f.Other {
		t.Add(c.Edit.Place(), c.Edit.What(), conditionName(c.Named), c.M.N, estimate(c.Recovery, 2), difference(&c.M), difference(c.Ask), difference(c.Over), c.Controls)
	}
	for _, a := range slices.Concat(f.Plain[:1], f.Arms) {
		if a.Kind == "lens" || a.Kind == "" {
			name := a.Class
			if a.Kind == "" {
				name = "unchanged"
			}
			lens.Add(name, a.N, estimate(a.GoldName, 4), estimate(a.AnyName, 4))
		}
	}
	s := report.Section{Title: "Erased and replaced states", Tables: []report.Table{t}}
	if len(lens.Rows) > 1 {
		s.Tables = append(s.Tables, lens)
	}
	return s
}

// endSection shows what probes read at the end of lines said under edits.
func (f *Findings) endSection() report.Section {
	t := report.Table{Columns: report.Columns("store", "model", "condition", "n>", "accuracy at its best layer>", "layer"),
		Notes: []string{"probes of the unchanged model, trained on the store of --lines, at the end of the model's own lines; the best layer is chosen by what is shown"}}
	lines := &report.Lines{X: report.Axis{Name: "layer"}, Y: report.Axis{Name: "accuracy"}, References: []report.Reference{{Name: "chance", Value: 1 / float64(Classes)}}}
	for _, e := range f.Ends {
		series, best := report.Series{Name: e.Name + ", " + conditionName(e.Named)}, 0
		for i := range e.Shares {
			addPoint(&series, 0, &e.Shares[i])
			if e.Shares[i].Value > e.Shares[best].Value {
				best = i
			}
		}
		series.X, lines.Categories = nil, e.Layers
		lines.Series = append(lines.Series, series)
		model := "unchanged"
		if e.Edited {
			model = "edited"
		}
		t.Add(e.Name, model, conditionName(e.Named), e.N, report.Estimate(e.Shares[best], 3), e.Layers[best])
	}
	return report.Section{Title: "Is the stage still read at the end of the line?", Tables: []report.Table{t},
		Figures: []report.Figure{{Title: "Probes at the end of the line", Lines: lines, Description: "How often probes of the unchanged model read the stage at the end of the model's own lines, by layer."}}}
}

func conditionName(named bool) string {
	if named {
		return "D"
	}
	return "ND"
}

func (f *Findings) armSection() report.Section {
	t := report.Table{Columns: report.Columns("run", "edit", "class", "condition", "n>", "unscored>", "M>", "answer>", "nats above ND>", "repeated>", "KL>")}
	for _, a := range slices.Concat(f.Plain, f.Arms) {
		kl := ""
		if a.Drift != nil {
			kl = fmt.Sprintf("%.4f", *a.Drift)
		}
		t.Add(a.Name, a.Edit.Place(), a.Edit.What(), conditionName(a.Named), a.N, a.Unscored, estimate(&a.M, 3), estimate(a.Answer, 3), estimate(a.Nats, 3), estimate(a.Repeated, 3), kl)
	}
	return report.Section{Title: "Every arm", Tables: []report.Table{t}, Notes: []string{"over all dialogues, whatever their stage"}}
}

// doseFigures show recovery and cost by dose, one figure for each group of dialogues.
func (f *Findings) doseFigures() (out []report.Figure) {
	for _, training := range []bool{true, false} {
		by := map[string][]Steering{}
		var order []string
		for _, s := range f.Steer {
			key := s.Kind + " at " + strings.Join(s.Layers, ", ")
			if s.Training == training {
				if by[key] == nil {
					order = append(order, key)
				}
				by[key] = append(by[key], s)
			}
		}
		lines := &report.Lines{X: report.Axis{Name: "dose"}, Y: report.Axis{Name: "recovery; nats a token above ND"},
			References: []report.Reference{{Name: "D", Value: 1}, {Name: "ND", Value: 0}, {Name: "most that a token may cost", Value: costMost}}}
		for _, key := range order {
			if len(by[key]) < 2 {
				continue
			}
			recovery, cost := report.Series{Name: key + ", recovery"}, report.Series{Name: key + ", cost"}
			for _, s := range by[key] {
				addPoint(&recovery, s.Dose, s.Recovery)
				addPoint(&cost, s.Dose, s.Cost)
			}
			lines.Series = append(lines.Series, recovery, cost)
		}
		if len(lines.Series) > 0 {
			groups := map[bool]string{true: "training groups", false: "groups that the direction has not seen"}[training]
			out = append(out, report.Figure{Title: "Dose, recovery and cost on " + groups, Lines: lines,
				Description: "How much of the way from the ND to the D lines an edit takes the line, and what a token of the line costs under the plain model. Whiskers are 95 % intervals from resampling scenario contexts."})
		}
	}
	return out
}

func addPoint(s *report.Series, x float64, e *stats.Estimate) {
	y, lo, hi := math.NaN(), math.NaN(), math.NaN()
	if e != nil {
		y = e.Value
		lo, hi = e.Bounds()
	}
	s.X, s.Y, s.Lo, s.Hi = append(s.X, x), append(s.Y, y), append(s.Lo, lo), append(s.Hi, hi)
}

// blockSections show recovery by block, of steering at the dose that recovers most there, and
// of the D prompt's state, beside the accuracy of a probe; then every arm.
func (f *Findings) blockSections(known Known) []report.Section {
	var training *bool // dialogues that the direction has not seen, where there are any
	for _, s := range f.Steer {
		if training == nil || !s.Training {
			training = &s.Training
		}
	}
	var layers []string
	steered, patched := map[string]*stats.Estimate{}, map[string]*stats.Estimate{}
	put := func(to map[string]*stats.Estimate, in []string, e *stats.Estimate) {
		if len(in) != 1 || e == nil {
			return
		}
		if !slices.Contains(layers, in[0]) {
			layers = append(layers, in[0])
		}
		if to[in[0]] == nil || e.Value > to[in[0]].Value {
			to[in[0]] = e
		}
	}
	for _, s := range f.Steer {
		if s.Training == *training {
			put(steered, s.Layers, s.Recovery)
		}
	}
	for _, c := range f.Other {
		if c.Edit.Kind == "patch" && c.Edit.Of == "" {
			put(patched, c.Edit.Layers, c.Recovery)
		}
	}
	out := []report.Section{f.armSection()}
	if len(known.Layers) > 0 {
		layers = known.Layers
	}
	if len(steered)+len(patched) == 0 || len(layers) < 2 {
		return out
	}
	lines := &report.Lines{X: report.Axis{Name: "block"}, Y: report.Axis{Name: "recovery; accuracy"}, Categories: layers,
		References: []report.Reference{{Name: "chance of a probe", Value: 1 / float64(Classes)}}}
	accuracy := map[string]*stats.Estimate{}
	for i := range known.Accuracy {
		accuracy[known.Layers[i]] = &known.Accuracy[i]
	}
	for _, x := range []struct {
		name string
		of   map[string]*stats.Estimate
	}{{"recovery of steering, at its best dose", steered}, {"recovery of the D prompt's state", patched}, {"probe at the end of the ND prompt", accuracy}} {
		if len(x.of) == 0 {
			continue
		}
		series := report.Series{Name: x.name}
		for _, l := range layers {
			addPoint(&series, 0, x.of[l])
		}
		series.X = nil
		lines.Series = append(lines.Series, series)
	}
	figure := report.Figure{Title: "Recovery by block", Lines: lines,
		Description: "How much of the way from the ND to the D lines an edit of each block takes the line, beside how well a probe reads the stage there."}
	return append([]report.Section{{Title: "Read and used, by block", Figures: []report.Figure{figure}}}, out...)
}

// Browser sets the lines of all arms side by side, by dialogue.
func Browser(in Input) report.Browser {
	b := report.Browser{Name: "dialogues", Title: "id", Facets: []report.Facet{{Name: "stage"}}}
	arms := slices.Concat([]Arm{in.ND, in.D}, in.Arms)
	for _, l := range in.ND.Lines {
		it := report.Item{Title: l.Item, Facets: [][]string{{stageName(l.Stage)}}}
		for i, a := range arms {
			at := slices.IndexFunc(a.Lines, func(x Line) bool { return x.Item == l.Item })
			if at < 0 {
				continue
			}
			title := a.Edit.What() + ", " + a.Edit.Place()
			if i < 2 {
				title = conditionName(i == 1) + ", unchanged"
			}
			text := a.Lines[at].Text
			if text == "" {
				text = "no line"
			}
			it.Blocks = append(it.Blocks, report.Block{Title: title, Text: text})
		}
		b.Items = append(b.Items, it)
	}
	return b
}
