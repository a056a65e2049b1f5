package probe

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/ccmed/ccmed/bench/dialogue"
	"github.com/ccmed/ccmed/bench/report"
	"github.com/ccmed/ccmed/bench/stats"
	"github.com/ccmed/ccmed/probe/activation"
)

// Lengths compares the fixed lines of the excess loss with the model's own.
type Lengths struct {
	Own   float64 `json:"own"`   // mean tokens of the model's ND lines, end-of-turn token included
	Fixed float64 `json:"fixed"` // of the fixed line that is closest in length, dialogue by dialogue
}

// decompose takes Δelic apart in every layer for which the cells are there, with
// a separate probe for each cell and with one for all.
func (f *finder) decompose(ctx context.Context) error {
	var cells []activation.Cell
	for _, c := range f.store.cells(UtteranceEnd) {
		if c.Context == ContextD || c.Context == ContextND {
			cells = append(cells, c)
		}
	}
	apart := make([][]*LayerResult, len(cells))
	var layers []Layers
	for i, c := range cells {
		apart[i] = f.results[c].Layers
		layers = append(layers, f.at(c))
	}
	var differences map[string][]Outcomes
	var err error
	if f.Decomposition, differences, err = f.decomposed(cells, apart); err != nil {
		return err
	}
	f.Adjusted = map[string][]float64{}
	for part, of := range differences {
		if f.Adjusted[part], err = MaxStatistic(of, f.Resampling); err != nil {
			return fmt.Errorf("test %s over all layers: %w", part, err)
		}
	}
	if elic := differences["elic"]; len(elic) > 0 {
		gap, err := elic[f.last()].Equivalent(f.Margin, f.Resampling)
		if err != nil {
			return fmt.Errorf("test Δelic for equivalence: %w", err)
		}
		f.Gap = &gap
	}
	if len(cells) < 2 {
		return nil
	}
	f.Progress(fmt.Sprintf("one probe for %d cells", len(cells)))
	pooled, err := Pooled(ctx, layers, f.samples, f.design)
	if err != nil {
		return fmt.Errorf("one probe for all cells: %w", err)
	}
	f.Findings.Pooled, _, err = f.decomposed(cells, pooled)
	return err
}

// decomposed is the decomposition by layer, and its paired differences by part.
func (f *finder) decomposed(cells []activation.Cell, results [][]*LayerResult) ([]Decomposition, map[string][]Outcomes, error) {
	var out []Decomposition
	all := map[string][]Outcomes{}
	for k := range f.names {
		values := map[Pair]Outcomes{}
		for i, c := range cells {
			values[Pair{c.Context, c.Text}] = results[i][k].RoundHits()
		}
		if closest, ok := f.closest(values, results[0][k].Tested()); ok {
			values[Pair{ContextND, textClosest}] = closest
		}
		parts, err := differencesOf(values)
		if err != nil {
			return nil, nil, fmt.Errorf("decompose the difference in %s: %w", f.names[k], err)
		}
		for part, d := range parts {
			all[part] = append(all[part], d)
		}
		d, err := testParts(parts, f.Resampling)
		if err != nil {
			return nil, nil, fmt.Errorf("decompose the difference in %s: %w", f.names[k], err)
		}
		out = append(out, d)
	}
	return out, all, nil
}

// closest picks, for each row, the outcome of the fixed line after ND whose
// length is closest to the model's own line: what is lost by writing must not be
// what is lost by length.
func (f *finder) closest(values map[Pair]Outcomes, tested []int) (Outcomes, bool) {
	if _, ok := values[Pair{ContextND, TextOwnND}]; !ok {
		return Outcomes{}, false
	}
	var fixed []string
	for i := range Placebos {
		if _, ok := values[Pair{ContextND, placebo(i)}]; ok {
			fixed = append(fixed, placebo(i))
		}
	}
	if len(fixed) == 0 {
		return Outcomes{}, false
	}
	first := values[Pair{ContextND, fixed[0]}]
	out := Outcomes{Groups: first.Groups, Width: first.Width}
	for range first.Rounds {
		out.Rounds = append(out.Rounds, make([]float64, len(tested)))
	}
	lengths := Lengths{}
	for i, row := range tested {
		own := f.tokens(row, TextOwnND)
		best, least := fixed[0], math.MaxInt
		for _, t := range fixed {
			if gap := abs(f.tokens(row, t) - own); gap < least {
				best, least = t, gap
			}
		}
		lengths.Own += float64(own) / float64(len(tested))
		lengths.Fixed += float64(f.tokens(row, best)) / float64(len(tested))
		for round := range out.Rounds {
			out.Rounds[round][i] = values[Pair{ContextND, best}].Rounds[round][i]
		}
	}
	f.Findings.Lengths = &lengths
	return out, true
}

func abs(n int) int { return max(n, -n) }

// tokens is the length of a text after ND, its end-of-turn token included.
func (f *finder) tokens(row int, text string) int {
	before, whole := 0, 0
	for _, p := range f.store.states[f.store.items[row]].States {
		if p.Cell.Context != ContextND {
			continue
		}
		switch {
		case p.Cell.Position == PromptEnd:
			before = p.Tokens
		case p.Cell.Text == text && p.Cell.Position == UtteranceEnd:
			whole = p.Tokens
		}
	}
	return whole - before
}

// MatchedFindings is the excess loss of an attribute of the dialogue that is not
// the stage: gate (d). Its values are put into as many classes as there are
// stages, with the stages' shares, at random and several times over, so that
// chance is the same; the splits are the stage's.
type MatchedFindings struct {
	Attribute string         `json:"attribute"`
	Values    int            `json:"values"`   // distinct ones
	Fixed     stats.Estimate `json:"fixed"`    // accuracy after the fixed lines under ND
	Majority  float64        `json:"majority"` // share of the most frequent class
	Excess    Effect         `json:"excess"`   // the attribute's own excess loss
	// Lost is Excess as a share of what can be read above the majority after the fixed
	// lines, Stage the same of the stage, and Beyond the stage's minus the attribute's.
	Lost   Effect `json:"lost_share"`
	Stage  Effect `json:"stage_lost_share"`
	Beyond Effect `json:"beyond"`
	// Readable is false where the attribute cannot be read after the fixed lines
	// either: it then has nothing to lose and is no comparison.
	Readable bool `json:"readable"`
}

// matchedDraws is how often an attribute's values are put into classes.
const matchedDraws = 5

// matched measures the attributes at the layer of the verdict.
func (f *finder) matched(ctx context.Context) error {
	own, ok := f.cell(ContextND, TextOwnND, UtteranceEnd)
	if !ok || f.of == nil {
		return nil
	}
	var cells []activation.Cell
	for i := range Placebos {
		if c, ok := f.cell(ContextND, placebo(i), UtteranceEnd); ok {
			cells = append(cells, c)
		}
	}
	if len(cells) == 0 {
		return nil
	}
	cells = append(cells, own)
	at := f.last()
	stage, before, err := f.excess(cells, func(c activation.Cell) *LayerResult { return f.results[c].Layers[at] })
	if err != nil {
		return err
	}
	ofStage, ok := lostShare(stage, before, share(f.samples.Y, f.Classes))
	if !ok {
		return nil // the stage has nothing to lose: gate (c) says so
	}
	splits := f.results[own].Splits
	for _, a := range []struct {
		name string
		of   func(dialogue.Dialogue) string
	}{
		{"what the speakers disagree about", dialogue.Dialogue.Template},
		{"country of the conflict's speaker", func(d dialogue.Dialogue) string { return d.Country(d.ConflictAgent) }},
	} {
		f.Progress("matched attribute: " + a.name)
		types, distinct := f.types(a.of)
		sets := []labelled{}
		majority := 0.0
		for draw := range matchedDraws {
			y, err := ControlLabels(f.samples.Y, types, f.Classes, f.design.Seeds[0]+uint64(100+draw))
			if err != nil {
				f.Notes = append(f.Notes, fmt.Sprintf("%s is no matched attribute here: %v", a.name, err))
				sets = nil
				break
			}
			sets = append(sets, labelled{y: y})
			majority += share(y, f.Classes) / matchedDraws
		}
		if sets == nil {
			continue
		}
		results := map[activation.Cell][][]*LayerResult{}
		for _, c := range cells {
			if results[c], err = f.design.train(ctx, f.only(c, at), f.samples, sets, splits); err != nil {
				return fmt.Errorf("matched attribute %q in %s: %w", a.name, c, err)
			}
		}
		var excess, before []Outcomes
		for draw := range sets {
			e, b, err := f.excess(cells, func(c activation.Cell) *LayerResult { return results[c][draw][0] })
			if err != nil {
				return err
			}
			excess, before = append(excess, e), append(before, b)
		}
		m, err := f.compare(ofStage, excess, before, majority)
		if err != nil {
			return fmt.Errorf("matched attribute %q: %w", a.name, err)
		}
		m.Attribute, m.Values = a.name, distinct
		f.Matched = append(f.Matched, m)
	}
	return nil
}

// compare holds the stage's lost share against an attribute's.
func (f *finder) compare(stage Outcomes, excess, before []Outcomes, majority float64) (MatchedFindings, error) {
	m := MatchedFindings{Majority: majority}
	lost, err := meanOf(excess)
	if err != nil {
		return m, err
	}
	read, err := meanOf(before)
	if err != nil {
		return m, err
	}
	if m.Excess, err = lost.Test(f.Resampling); err != nil {
		return m, err
	}
	if m.Fixed, err = shareOf(read, f.Resampling); err != nil {
		return m, err
	}
	share, ok := lostShare(lost, read, majority)
	if m.Readable = ok && m.Fixed.Lo > majority; !m.Readable {
		return m, nil
	}
	beyond, err := stage.Minus(share)
	if err != nil {
		return m, err
	}
	for _, x := range []struct {
		of Outcomes
		to *Effect
	}{{share, &m.Lost}, {stage, &m.Stage}, {beyond, &m.Beyond}} {
		if *x.to, err = x.of.Test(f.Resampling); err != nil {
			return m, err
		}
	}
	return m, nil
}

// excess is what writing lost, length-matched, at one layer, and what could be read before:
// cells are the fixed lines after ND and, last, the model's own.
func (f *finder) excess(cells []activation.Cell, of func(activation.Cell) *LayerResult) (lost, before Outcomes, err error) {
	values := map[Pair]Outcomes{}
	for _, c := range cells {
		values[Pair{c.Context, c.Text}] = of(c).RoundHits()
	}
	before, _ = f.closest(values, of(cells[0]).Tested())
	lost, err = before.Minus(values[Pair{ContextND, TextOwnND}])
	return lost, before, err
}

// types gives every row its value of an attribute, and how many there are.
func (f *finder) types(of func(dialogue.Dialogue) string) (types []string, distinct int) {
	seen := map[string]bool{}
	for _, item := range f.store.items {
		t := strings.TrimSpace(of(f.of[item]))
		types = append(types, t)
		seen[t] = true
	}
	return types, len(seen)
}

// share is that of the most frequent class.
func share(y []int, classes int) float64 {
	count := make([]int, classes)
	most := 0
	for _, c := range y {
		count[c]++
		most = max(most, count[c])
	}
	return float64(most) / float64(max(1, len(y)))
}

// judge fills the gates from the last block and says what they allow.
func (f *finder) judge(ctx context.Context) error {
	if err := f.matched(ctx); err != nil {
		return err
	}
	g := Gates{N: f.N, Least: f.Least, TextFit: f.textFit}
	if len(f.Decomposition) > 0 {
		d := f.Decomposition[f.last()]
		g.Elic, g.Text, g.Excess = d.Elic, f.textEvidence(d), f.excessEvidence(d)
	}
	// The stage must lose more than each attribute.
	var beyond []Effect
	for _, m := range f.Matched {
		if m.Readable {
			beyond = append(beyond, m.Beyond)
		}
	}
	if g.Matched.Effect = leastOf(beyond); g.Matched.Effect == nil && (len(f.Matched) > 0 || g.Excess.Untestable != "") {
		g.Matched.Untestable = "nothing can be read after the fixed lines that the stage could be held against"
	}
	if c, ok := f.cellAt(ContextND, TextOwnND); ok {
		g.Late.Effect = &c.DeltaLate
	}
	v := g.Judge()
	f.Verdict = &v
	return nil
}

// cellAt returns the findings at the end of a text after a context.
func (f *finder) cellAt(contextName, text string) (CellFindings, bool) {
	i := slices.IndexFunc(f.Cells, func(c CellFindings) bool {
		return c.Cell.Context == contextName && c.Cell.Text == text && c.Cell.Position == UtteranceEnd
	})
	if i < 0 {
		return CellFindings{}, false
	}
	return f.Cells[i], true
}

// textEvidence is Δtext of the order that shows least: within D and within ND. An order in
// which the worse text leaves no room above it, or the better one is not above chance,
// cannot be tested.
func (f *finder) textEvidence(d Decomposition) Evidence {
	var of []Effect
	var why []string
	measured := false
	for _, x := range []struct {
		contextName string
		effect      *Effect
	}{{ContextD, d.Text}, {ContextND, d.TextND}} {
		worse, ok := f.cellAt(x.contextName, TextOwnND)
		better, okB := f.cellAt(x.contextName, TextOwnD)
		if x.effect == nil || !ok || !okB {
			continue
		}
		measured = true
		at := f.last()
		switch low, high := worse.Accuracy[at], better.Accuracy[at]; {
		case low.Hi >= ceiling:
			why = append(why, fmt.Sprintf("after %s the stage is read at %s from the ND line already", x.contextName, report.Estimate(low, 3)))
		case high.Lo <= better.Majority && low.Lo <= worse.Majority:
			why = append(why, fmt.Sprintf("after %s neither line reads above chance", x.contextName))
		default:
			of = append(of, *x.effect)
		}
	}
	e := Evidence{Effect: leastOf(of)}
	if e.Effect == nil && measured {
		e.Untestable = strings.Join(why, "; ")
	}
	return e
}

// excessEvidence is the excess loss, which cannot be tested where nothing is read after
// the fixed lines.
func (f *finder) excessEvidence(d Decomposition) Evidence {
	e := Evidence{Effect: d.Excess}
	if d.Excess == nil {
		return e
	}
	for i := range Placebos {
		if c, ok := f.cellAt(ContextND, placebo(i)); ok && c.Accuracy[f.last()].Lo > c.Majority {
			return e
		}
	}
	e.Untestable = "the stage is not read above chance after the fixed lines: there is nothing to lose"
	return e
}
