package probe

import (
	"encoding/csv"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/ccmed/ccmed/bench/dmis"
	"github.com/ccmed/ccmed/bench/report"
	"github.com/ccmed/ccmed/bench/stats"
)

// TurnSections renders the findings of a store of turns as report sections.
func TurnSections(model string, f *TurnFindings) []report.Section {
	at := slices.Index(f.Layers, f.At)
	out := []report.Section{f.overview(model, at)}
	if f.Unscripted != nil {
		out = append(out, f.unscriptedSection(at))
	}
	if f.Swap != nil {
		out = append(out, f.swapSection())
	}
	if len(f.Edits) > 0 {
		out = append(out, f.editSection())
	}
	return out
}

func estimateOrNone(e *stats.Estimate) report.Cell {
	if e == nil {
		return report.Text("")
	}
	return estimate(*e)
}

func (f *TurnFindings) overview(model string, at int) report.Section {
	t := report.Table{Title: "At " + f.At + ", by probes of scripted turns", Columns: report.Columns("what", "n>",
		"probe [95 %]>", "bag of words [95 %]>", "without information>")}
	row := func(what string, e stats.Estimate, words *stats.Estimate, chance string) {
		t.Add(what, e.N, estimate(e), estimateOrNone(words), chance)
	}
	row("scripted turns, accuracy", f.Scripted[at], f.Words, fmt.Sprintf("%.3f (majority)", f.Majority))
	if u := f.Unscripted; u != nil {
		var words *stats.Estimate
		if u.Words != nil {
			words = &u.Words.Balanced
		}
		row("unscripted turns, balanced accuracy", u.Balanced[at], words, fmt.Sprintf("%.3f", u.Chance))
	}
	for _, e := range f.Edits {
		row(editName(e.Edit)+", accuracy", e.Applied[at], e.AppliedWords, fmt.Sprintf("%.3f (majority)", f.Majority))
	}
	if s := f.Swap; s != nil {
		var words *stats.Estimate
		if s.Words != nil {
			words = &s.Words.Follow
		}
		row("another stage's phrase put in, share that follows it", s.Follow[at], words, "")
	}
	return report.Section{Title: "Probes of turns: " + model, Tables: []report.Table{t}, Notes: append([]string{
		fmt.Sprintf("states at the line break that ends a turn, in the mediator's prompt as far as its transcript goes; trained on %d scripted conflict turns of %d scenario contexts, %d left out",
			f.N, f.Contexts, f.Left),
		fmt.Sprintf("%d folds of whole contexts, %d partitions: no probe is tested on a context that it was trained on; intervals are over contexts, corrected for probes that share training rows", f.Folds, f.Seeds)},
		f.Notes...)}
}

func editName(edit string) string {
	switch edit {
	case EditMask:
		return "marker phrases masked"
	case EditStrip:
		return "conflict turn removed"
	}
	return edit
}

// star marks a p value below the level of gates.
func star(c report.Cell, ps []float64, k int) report.Cell {
	if k < len(ps) && ps[k] < gateLevel {
		return report.Text(c.String() + " *")
	}
	return c
}

const starNote = "*: p < .05 over all layers together (largest statistic of group sign flips, Westfall and Young 1993)"

func (f *TurnFindings) unscriptedSection(at int) report.Section {
	u := f.Unscripted
	s := report.Section{Title: "From scripted turns to unscripted ones", Notes: []string{
		fmt.Sprintf("%d later turns of the conflict's speaker in %d contexts, by the stage that was released with them: %s", u.N, u.Contexts, counts(u.PerClass)),
		fmt.Sprintf("majority %.3f (accuracy); the highest balanced accuracy without information is %.3f", u.Majority, u.Chance),
		fmt.Sprintf("repeats: predictions that name the stage of the conflict turn, which was read before; %.3f of the labels do", u.RepeatedLabels)}}
	if len(u.Outside) > 0 {
		s.Notes = append(s.Notes, "left out, because no conflict is scripted with their stage: "+counts(u.Outside))
	}
	t := report.Table{Title: "By layer", Columns: report.Columns("layer", "balanced accuracy>", "macro-F1>",
		"accuracy>", "beyond words>", "shuffled>", "repeats>")}
	for k, l := range f.Layers {
		row := []report.Cell{report.Text(l), estimate(u.Balanced[k]), estimate(u.MacroF1[k]), report.Num(u.Accuracy[k], 3), {}, {}, estimate(u.Repeats[k])}
		// Guesses that differ between folds alone can fall below chance: a fold that has
		// more of a class leaves less of it to train on.
		if u.Balanced[k].Value > u.Chance {
			row[1] = star(row[1], u.ChanceAdjusted, k)
		}
		if k < len(u.Beyond) {
			row[4] = star(effect(&u.Beyond[k]), u.BeyondAdjusted, k)
		}
		if k < len(u.Shuffled) {
			row[5] = report.Num(u.Shuffled[k], 3)
		}
		t.Rows = append(t.Rows, row)
	}
	t.Notes = []string{starNote + "; balanced accuracy above chance, beyond words against zero",
		"without information, probes fall to or below chance: compare with those of shuffled labels"}
	recall := report.Table{Title: "Recall at " + f.At, Columns: report.Columns("stage", "n>", "probe>", "bag of words>")}
	for _, stage := range stageNames(u.PerClass) {
		row := []report.Cell{report.Text(stage), report.Int(u.PerClass[stage]), report.Num(u.Recall[at][stage], 3)}
		if u.Words != nil {
			row = append(row, report.Num(u.Words.Recall[stage], 3))
		}
		recall.Rows = append(recall.Rows, row)
	}
	s.Tables = []report.Table{t, recall}
	lines := f.lines("balanced accuracy", series("unscripted turns", u.Balanced))
	lines.References = []report.Reference{{Name: "chance", Value: u.Chance}}
	if w := u.Words; w != nil {
		t := &s.Tables[0]
		t.Notes = append(t.Notes, fmt.Sprintf("a bag of words of the turn alone: balanced accuracy %s, macro-F1 %s, accuracy %.3f",
			report.Estimate(w.Balanced, 3), report.Estimate(w.MacroF1, 3), w.Accuracy))
		lines.References = append(lines.References, report.Reference{Name: "bag of words", Value: w.Balanced.Value})
	}
	s.Figures = []report.Figure{{Title: "Transfer to unscripted turns by layer", Lines: lines,
		Description: fmt.Sprintf("Balanced accuracy of probes trained on scripted conflict turns for the stage of %d later, unscripted turns of the same speakers. %s", u.N, whiskers(u.Contexts))}}
	return s
}

// whiskers says what the intervals of figures are.
func whiskers(contexts int) string {
	return fmt.Sprintf("Intervals are of 95 %%, from resampling scenario contexts (%d).", contexts)
}

// stageNames lists the stages of a count in developmental order.
func stageNames(of map[string]int) []string {
	var out []string
	for s := dmis.Denial; s <= dmis.Integration; s++ {
		if of[s.String()] > 0 {
			out = append(out, s.String())
		}
	}
	return out
}

func counts(of map[string]int) string {
	var parts []string
	for _, s := range stageNames(of) {
		parts = append(parts, fmt.Sprintf("%s %d", s, of[s]))
	}
	return strings.Join(parts, ", ")
}

func series(name string, es []stats.Estimate) report.Series {
	s := report.Series{Name: name}
	for _, e := range es {
		lo, hi := e.Bounds()
		s.Y, s.Lo, s.Hi = append(s.Y, e.Value), append(s.Lo, lo), append(s.Hi, hi)
	}
	return s
}

func (f *TurnFindings) lines(what string, of ...report.Series) *report.Lines {
	return &report.Lines{X: report.Axis{Name: "layer"}, Y: report.Axis{Name: what, Min: 0, Max: 1}, Categories: f.Layers, Series: of}
}

func (f *TurnFindings) swapSection() report.Section {
	w := f.Swap
	t := report.Table{Title: "By layer", Columns: report.Columns("layer", "follow b>", "stay at a>",
		"go to the third>", "moved to b>")}
	for k, l := range f.Layers {
		t.Add(l, estimate(w.Follow[k]), estimate(w.Stay[k]), estimate(w.Third[k]), star(effect(&w.Moved[k]),
			w.MovedAdjusted, k))
	}
	t.Notes = []string{starNote}
	if s := w.Words; s != nil {
		t.Notes = append(t.Notes, fmt.Sprintf("a bag of words: follows %s, stays %s, third %s", report.Estimate(s.Follow, 3),
			report.Estimate(s.Stay, 3), report.Estimate(s.Third, 3)))
	}
	return report.Section{Title: "Marker swap", Tables: []report.Table{t}, Notes: []string{
		fmt.Sprintf("%d conflict turns of a stage a, in which the longest run of its marker phrases gives way to that of a turn of stage b, while shorter ones stay; shares of the predictions of probes of unedited turns", w.N),
		"moved to b: the share predicted as b minus that of the same turns as they were"},
		Figures: []report.Figure{{Title: "What a swapped phrase does, by layer", Lines: f.lines("share of predictions", series("follow b", w.Follow), series("stay at a", w.Stay), series("go to the third", w.Third)),
			Description: fmt.Sprintf("Shares of probe predictions on %d conflict turns whose most indicative phrase was replaced by another stage's: those that follow the phrase, stay, or go to the third stage. %s", w.N, whiskers(f.Contexts))}}}
}

func (f *TurnFindings) editSection() report.Section {
	s := report.Section{Title: "Without the marker phrases, without the turn", Notes: []string{
		"diagnostics, no controls: what is left of a turn still gives its stage away by its length and punctuation",
		"the bag of words has the edited turn; where it was removed, the turn before"}}
	t := report.Table{Title: "Accuracy by layer", Columns: report.Columns("layer", "scripted turns>")}
	lines := f.lines("accuracy", series("scripted turns", f.Scripted))
	lines.References = []report.Reference{{Name: "majority", Value: f.Majority}}
	for k, l := range f.Layers {
		t.Add(l, estimate(f.Scripted[k]))
	}
	short := map[string]string{EditMask: "masked", EditStrip: "removed"}
	for _, e := range f.Edits {
		t.Columns = append(t.Columns, report.Columns(short[e.Edit]+">", short[e.Edit]+", retrained>")...)
		for k := range f.Layers {
			t.Rows[k] = append(t.Rows[k], estimate(e.Applied[k]), estimate(e.Retrained[k]))
		}
		lines.Series = append(lines.Series, series(editName(e.Edit), e.Applied), series(editName(e.Edit)+", retrained", e.Retrained))
		if a, r := e.AppliedWords, e.RetrainedWords; a != nil && r != nil {
			t.Notes = append(t.Notes, fmt.Sprintf("a bag of words, %s (%d turns): %s, retrained %s", editName(e.Edit), e.N, report.Estimate(*a, 3), report.Estimate(*r, 3)))
		}
	}
	s.Tables = []report.Table{t}
	s.Figures = []report.Figure{{Title: "Accuracy with the conflict turn edited, by layer", Lines: lines,
		Description: fmt.Sprintf("Accuracy of probes for the scripted stage in %d dialogues, with the conflict turn as it is, with its marker phrases masked, and removed. %s", f.N, whiskers(f.Contexts))}}
	return s
}

// WriteTurnsCSV writes one line a layer and measure: layer, measure, n, value,
// lower, upper. A bag of words has no layer; bounds are empty where there is no
// interval.
func WriteTurnsCSV(w io.Writer, f *TurnFindings) error {
	c := csv.NewWriter(w)
	lines := [][]string{{"layer", "measure", "n", "value", "lower", "upper"}}
	one := func(layer, measure string, e stats.Estimate) {
		lo, hi := e.Bounds()
		lines = append(lines, []string{layer, measure, strconv.Itoa(e.N), number(e.Value), number(lo), number(hi)})
	}
	all := func(measure string, es []stats.Estimate) {
		for k, e := range es {
			one(f.Layers[k], measure, e)
		}
	}
	effects := func(measure string, es []Effect) {
		for k, e := range es {
			one(f.Layers[k], measure, e.Estimate)
		}
	}
	words := func(measure string, e *stats.Estimate) {
		if e != nil {
			one("", measure, *e)
		}
	}
	all("scripted accuracy", f.Scripted)
	words("scripted accuracy of words", f.Words)
	if u := f.Unscripted; u != nil {
		all("unscripted balanced accuracy", u.Balanced)
		all("unscripted macro-F1", u.MacroF1)
		all("unscripted repeats", u.Repeats)
		effects("unscripted beyond words", u.Beyond)
		if u.Words != nil {
			words("unscripted balanced accuracy of words", &u.Words.Balanced)
			words("unscripted macro-F1 of words", &u.Words.MacroF1)
		}
	}
	if s := f.Swap; s != nil {
		all("swap follow", s.Follow)
		all("swap stay", s.Stay)
		all("swap third", s.Third)
		effects("swap moved", s.Moved)
		if s.Words != nil {
			words("swap follow of words", &s.Words.Follow)
			words("swap stay of words", &s.Words.Stay)
			words("swap third of words", &s.Words.Third)
		}
	}
	for _, e := range f.Edits {
		all(e.Edit+" accuracy", e.Applied)
		all(e.Edit+" accuracy, retrained", e.Retrained)
		words(e.Edit+" accuracy of words", e.AppliedWords)
		words(e.Edit+" accuracy of words, retrained", e.RetrainedWords)
	}
	if err := c.WriteAll(lines); err != nil {
		return fmt.Errorf("write CSV: %w", err)
	}
	return nil
}
