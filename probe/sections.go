package probe

import (
	"encoding/csv"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"

	"github.com/ccmed/ccmed/bench/report"
	"github.com/ccmed/ccmed/bench/stats"
	"github.com/ccmed/ccmed/probe/activation"
)

func label(c activation.Cell) string {
	if c.Position == PromptEnd {
		return c.Context + " " + c.Position
	}
	return c.Context + ", " + c.Text
}

func effect(e *Effect) report.Cell {
	if e == nil {
		return report.Text("")
	}
	return report.Text(report.Estimate(e.Estimate, 3))
}

func estimate(e stats.Estimate) report.Cell {
	return report.Text(report.Estimate(e, 3))
}

// Sections renders findings as report sections.
func Sections(model string, f *Findings) []report.Section {
	at := slices.Index(f.Layers, f.At)
	sections := []report.Section{f.overview(model, at), f.byLayer()}
	if s := f.takenApart(at); len(s.Tables) > 0 {
		sections = append(sections, s)
	}
	for _, s := range []report.Section{f.directions(at), f.controlSection(at), f.contentSection(at), f.publishedSection(model, at)} {
		if len(s.Tables) > 0 {
			sections = append(sections, s)
		}
	}
	if f.Verdict != nil {
		sections = append(sections, f.verdictSection())
	}
	return sections
}

func (f *Findings) overview(model string, at int) report.Section {
	s := report.Section{Title: "Probes: " + model, Notes: append([]string{
		fmt.Sprintf("%d dialogues of %d groups (%s) in every cell, %d left out; %d folds of whole groups, %d partitions; chance is %.3f",
			f.N, f.Groups, f.Grouping, f.Left, f.Folds, f.Seeds, 1/float64(f.Classes)),
		"intervals are over groups, corrected for probes that share training rows (Nadeau and Bengio 2003)",
		"the peak layer is chosen on inner folds"}, f.Notes...)}
	t := report.Table{Title: "Accuracy of the stage, by cell", Columns: report.Columns("cell", "peak>",
		"at "+f.At+">", "log-loss>", "macro-F1>", "Brier>", "ECE>", "shuffled>", "majority>", "peak − last third>")}
	for _, c := range f.Cells {
		l := c.Layers[at]
		t.Add(label(c.Cell), report.Num(c.Peak, 3), estimate(c.Accuracy[at]), report.Num(l.LogLoss, 3),
			report.Num(l.MacroF1, 3), report.Num(l.Brier, 3), report.Num(CalibrationError(l.Reliability), 3),
			report.Num(c.Shuffled[at], 3), report.Num(c.Majority, 3), effect(&c.DeltaLate))
	}
	for _, name := range []string{TextPrompt, TextOwnD, TextOwnND} {
		if tf, ok := f.Texts[name]; ok {
			what := "the " + name + " line"
			if name == TextPrompt {
				what = "the dialogue up to its conflict"
			}
			t.Notes = append(t.Notes, fmt.Sprintf("a bag of words of %s alone: %s", what, report.Estimate(tf.Accuracy, 3)))
		}
	}
	s.Tables = []report.Table{t}
	return s
}

func (f *Findings) byLayer() report.Section {
	t := report.Table{Title: "Accuracy by layer", Columns: report.Columns("layer")}
	for _, c := range f.Cells {
		t.Columns = append(t.Columns, report.Column{Name: label(c.Cell), Align: report.Right})
	}
	for k, l := range f.Layers {
		row := []report.Cell{report.Text(l)}
		for _, c := range f.Cells {
			row = append(row, report.Num(c.Layers[k].Accuracy, 3))
		}
		t.Rows = append(t.Rows, row)
	}
	return report.Section{Title: "Layer by layer", Tables: []report.Table{t}, Figures: f.curvesFigures()}
}

// parts of the decomposition, in the order of the tables.
var parts = []struct {
	key, name string
	of        func(Decomposition) *Effect
}{
	{"elic", "Δelic", func(d Decomposition) *Effect { return d.Elic }},
	{"ctx", "= Δctx", func(d Decomposition) *Effect { return d.Ctx }},
	{"text", "+ Δtext", func(d Decomposition) *Effect { return d.Text }},
	{"ctx_own_d", "= Δctx (own-D)", func(d Decomposition) *Effect { return d.CtxOwnD }},
	{"text_nd", "+ Δtext (ND)", func(d Decomposition) *Effect { return d.TextND }},
	{"placebo", "Δplacebo", func(d Decomposition) *Effect { return d.Placebo }},
	{"excess", "excess loss", func(d Decomposition) *Effect { return d.Excess }},
}

func (f *Findings) takenApart(at int) report.Section {
	s := report.Section{Title: "The D−ND difference taken apart", Notes: []string{
		"Δctx: reading the prompt; Δtext: what the model wrote, each in both orders: with the ND line and within D first, then with the D line and within ND; Δplacebo: the difference with the same fixed line for every item; excess loss: what writing its own line lost against a fixed one"}}
	if len(f.Decomposition) == 0 || f.Decomposition[at] == (Decomposition{}) {
		return s
	}
	t := report.Table{Title: "Per layer, a separate probe for each cell", Columns: report.Columns("layer")}
	for _, p := range parts {
		t.Columns = append(t.Columns, report.Column{Name: p.name, Align: report.Right})
	}
	for k, d := range f.Decomposition {
		row := []report.Cell{report.Text(f.Layers[k])}
		for _, p := range parts {
			c := effect(p.of(d))
			if ps := f.Adjusted[p.key]; k < len(ps) && ps[k] < gateLevel {
				c = report.Text(c.String() + " *")
			}
			row = append(row, c)
		}
		t.Rows = append(t.Rows, row)
	}
	t.Notes = []string{"*: p < .05 over all layers together (largest statistic of group sign flips, Westfall and Young 1993)"}
	if l := f.Lengths; l != nil {
		t.Notes = append(t.Notes, fmt.Sprintf("excess loss: fixed lines matched in length, %.1f tokens against %.1f of the model's own", l.Fixed, l.Own))
	}
	if g := f.Gap; g != nil {
		word := "not shown to be"
		if g.Equivalent {
			word = "shown to be"
		}
		t.Notes = append(t.Notes, fmt.Sprintf("Δelic at %s is %s within ±%.2f of zero (90 %% interval %s)", f.At, word, g.Margin, report.Estimate(g.Estimate, 3)))
	}
	s.Tables = []report.Table{t}
	if at < len(f.Pooled) {
		pooled := report.Table{Title: "At " + f.At + ", one probe for all cells", Columns: report.Columns("part",
			"effect [95 %]>", "p>")}
		for _, p := range parts {
			if e := p.of(f.Pooled[at]); e != nil {
				pooled.Add(p.name, effect(e), report.PValue(e.P))
			}
		}
		s.Tables = append(s.Tables, pooled)
	}
	s.Figures = f.partsFigures()
	return s
}

func (f *Findings) directions(at int) report.Section {
	s := report.Section{Title: "Is the same direction used?"}
	if len(f.Transfers) > 0 {
		t := report.Table{Title: "Transfer at " + f.At, Columns: report.Columns("trained on", "tested on>",
			"accuracy>", "most frequent prediction>", "re-centred>", "most frequent prediction>", "its own probe>")}
		t.Columns[1].Align = report.Left
		for _, x := range f.Transfers {
			t.Add(label(x.From), label(x.To), estimate(x.Accuracy[at]), report.Num(x.TopShare[at], 3),
				estimate(x.Recentred[at]), report.Num(x.RecentredTopShare[at], 3), report.Num(x.Own[at], 3))
		}
		t.Notes = []string{"re-centred: the tested states are moved so that both have the same mean over training rows; where nearly all predictions are one class the accuracy says nothing of the direction"}
		s.Tables = append(s.Tables, t)
	}
	if len(f.Follow) > 0 {
		t := report.Table{Title: "A wrong stage in the prompt, at " + f.At, Columns: report.Columns("trained on",
			"tested on>", "follows the named stage>", "stays with the true one>")}
		t.Columns[1].Align = report.Left
		for _, x := range f.Follow {
			t.Add(label(x.From), label(x.To), estimate(x.Named[at]), estimate(x.True[at]))
		}
		s.Tables = append(s.Tables, t)
	}
	return s
}

func (f *Findings) controlSection(at int) report.Section {
	s := report.Section{Title: "Controls at " + f.At}
	if len(f.Controls) == 0 {
		return s
	}
	t := report.Table{Columns: report.Columns("cell", "stage>", "control task>", "selectivity>", "compression>",
		"control's>", "words alone>", "nats beyond words [95 %]>", "p (Holm)>")}
	var ps []float64
	for _, c := range f.Controls {
		if c.Surface != nil && at < len(c.Gain) {
			ps = append(ps, c.Gain[at].P)
		}
	}
	ps = stats.Holm(ps)
	for _, c := range f.Controls {
		row := []report.Cell{report.Text(label(c.Cell)), {}, {}, {}, {}, {}, {}, {}, {}}
		if at < len(c.Control) {
			row[1], row[2], row[3] = report.Num(c.Real[at], 3), report.Num(c.Control[at], 3), report.Num(c.Real[at]-c.Control[at], 3)
		}
		if at < len(c.Compression) {
			row[4] = report.Num(c.Compression[at], 2)
		}
		if at < len(c.ControlCompression) {
			row[5] = report.Num(c.ControlCompression[at], 2)
		}
		if c.Surface != nil && at < len(c.Gain) {
			row[6], row[7], row[8] = estimate(*c.Surface), effect(&c.Gain[at]), report.Text(report.PValue(ps[0]))
			ps = ps[1:]
		}
		t.Rows = append(t.Rows, row)
		if c.Types > 0 {
			s.Notes = []string{fmt.Sprintf("control tasks give each of %d value templates a random stage (Hewitt and Liang 2019); compression is n·log₂K over the online code (Voita and Titov 2020)", c.Types)}
		}
		if c.Unseen > 0 {
			t.Notes = append(t.Notes, fmt.Sprintf("%s: %d rows left out, their template was not in training", label(c.Cell), c.Unseen))
		}
	}
	t.Notes = append(t.Notes, "words alone: words, pairs of words, length, capitals, punctuation and position of the conflict's turn and of the line; the last column is what states take off their log-loss")
	s.Tables = []report.Table{t}
	return s
}

func (f *Findings) contentSection(at int) report.Section {
	c := f.Content
	if c == nil {
		return report.Section{}
	}
	s := report.Section{Title: "Content of the line at " + f.At, Notes: []string{"embedder: " + c.Embedder + "; skill is (cosine − cosine with other lines of the stage) / (1 − the latter)"}}
	t := report.Table{Columns: report.Columns("cell", "cosine>", "other lines>", "skill [95 %]>", "p (Holm)>")}
	var ps []float64
	for _, x := range c.Cells {
		if x.NotComputed == "" {
			ps = append(ps, x.Skill[at].P)
		}
	}
	ps = stats.Holm(ps)
	for _, x := range c.Cells {
		row := []report.Cell{report.Text(label(x.Cell)), report.Num(x.Cosine[at], 3)}
		if x.NotComputed != "" {
			t.Rows = append(t.Rows, append(row, report.Text("not computed"), report.Text("not computed: "+x.NotComputed)))
			continue
		}
		t.Rows = append(t.Rows, append(row, report.Num(x.Permuted[at], 3), effect(&x.Skill[at]), report.Text(report.PValue(ps[0]))))
		ps = ps[1:]
		if x.Compared < x.Lines {
			t.Notes = append(t.Notes, fmt.Sprintf("%s: other lines and skill are of %d of %d lines; of the rest there is %s in a fold", label(x.Cell), x.Compared, x.Lines, noOtherLine))
		}
	}
	if g := c.Gap; g != nil {
		word := "not shown to be"
		if g.Equivalent {
			word = "shown to be"
		}
		t.Notes = append(t.Notes, fmt.Sprintf("cosine D − ND is %s within ±%.2f (90 %% interval %s); it is not to be held against a gap in accuracy", word, g.Margin, report.Estimate(g.Estimate, 3)))
	}
	s.Tables = []report.Table{t}
	return s
}

func (f *Findings) verdictSection() report.Section {
	t := report.Table{Columns: report.Columns("gate", "effect [95 %]>", "p (Holm)>", "holds>")}
	for _, g := range f.Verdict.Gates {
		holds := "no"
		if g.Holds {
			holds = "yes"
		}
		p := report.PValue(g.Adjusted)
		switch {
		case g.Untestable != "":
			holds, p = "not testable", ""
		case g.Effect == nil:
			holds, p = "not measured", ""
		}
		t.Add(g.Name, effect(g.Effect), p, holds)
	}
	s := report.Section{Title: "Supported conclusion (at " + f.At + "): " + f.Verdict.Sentence, Tables: []report.Table{t}, Notes: f.Verdict.Reasons}
	if len(f.Matched) > 0 {
		m := report.Table{Title: "Matched attributes", Columns: report.Columns("attribute", "values>",
			"after fixed lines>", "majority>", "excess loss>", "lost share>", "the stage's>",
			"the stage's beyond it>", "p (Holm)>")}
		var ps []float64
		for _, a := range f.Matched {
			if a.Readable {
				ps = append(ps, a.Beyond.P)
			}
		}
		ps = stats.Holm(ps)
		for _, a := range f.Matched {
			row := []report.Cell{report.Text(a.Attribute), report.Int(a.Values), estimate(a.Fixed), report.Num(a.Majority, 3), effect(&a.Excess), {}, {}, {}, {}}
			if a.Readable {
				row[5], row[6], row[7], row[8] = effect(&a.Lost), effect(&a.Stage), effect(&a.Beyond), report.Text(report.PValue(ps[0]))
				ps = ps[1:]
			}
			m.Rows = append(m.Rows, row)
			if !a.Readable {
				m.Notes = append(m.Notes, a.Attribute+" cannot be read after the fixed lines either: it is no comparison")
			}
		}
		m.Notes = append(m.Notes, fmt.Sprintf("an attribute's values are put into %d classes with the stages' shares, %d times at random; lost shares are of what can be read above the majority after the fixed lines; gate (d) takes the attribute that the stage exceeds least", f.Classes, matchedDraws))
		s.Tables = append(s.Tables, m)
	}
	return s
}

// WriteCSV writes one line a cell and layer: context, text, position, layer,
// n, accuracy with its interval, log-loss, macro-F1, Brier score, expected
// calibration error, shuffled and majority accuracy. A figure that was not computed is
// an empty field.
func WriteCSV(w io.Writer, f *Findings) error {
	c := csv.NewWriter(w)
	lines := [][]string{{"context", "text", "position", "layer", "n", "accuracy", "lower", "upper", "log_loss", "macro_f1", "brier", "ece", "shuffled", "majority"}}
	for _, cell := range f.Cells {
		for k, l := range cell.Layers {
			lo, hi := cell.Accuracy[k].Bounds()
			lines = append(lines, []string{cell.Cell.Context, cell.Cell.Text, cell.Cell.Position, f.Layers[k], strconv.Itoa(l.N), number(l.Accuracy), number(lo), number(hi),
				number(l.LogLoss), number(l.MacroF1), number(l.Brier), number(CalibrationError(l.Reliability)), number(cell.Shuffled[k]), number(cell.Majority)})
		}
	}
	if err := c.WriteAll(lines); err != nil {
		return fmt.Errorf("write CSV: %w", err)
	}
	return nil
}

// number writes a figure of a CSV file, empty where there is none.
func number(v float64) string {
	if math.IsNaN(v) {
		return ""
	}
	return strconv.FormatFloat(v, 'g', -1, 64)
}

// AppliedSection renders what saved probes say of another store: the last block
// and the best layer, which is chosen with sight of the result.
func AppliedSection(model string, applied []Applied) report.Section {
	s := report.Section{Title: "Saved probes applied to " + model, Notes: []string{"intervals are over scenario contexts and conditional on the probes; dialogues that a probe was trained on are left out"}}
	t := report.Table{Columns: report.Columns("probe of", "applied to>", "n>", "seen, left out>", "context seen>",
		"last block>", "best layer>", "its accuracy>", "majority>")}
	t.Columns[1].Align, t.Columns[6].Align = report.Left, report.Left
	for _, a := range applied {
		best, last := 0, len(a.Layers)-1
		for k, e := range a.Accuracy {
			if e.Value > a.Accuracy[best].Value {
				best = k
			}
		}
		if a.Layers[last] == FinalNorm && last > 0 {
			last--
		}
		t.Add(label(a.Probe), label(a.Cell), a.N, a.Seen, a.SeenContexts, estimate(a.Accuracy[last]), a.Layers[best],
			report.Num(a.Accuracy[best].Value, 3), report.Num(a.Majority, 3))
	}
	s.Tables = []report.Table{t}
	return s
}
