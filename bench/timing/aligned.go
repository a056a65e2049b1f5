package timing

import (
	"fmt"
	"math"

	"github.com/ccmed/ccmed/bench/published"
	"github.com/ccmed/ccmed/bench/report"
	"github.com/ccmed/ccmed/bench/stats"
)

// Aligned is the mean probability of stepping in at a distance from the conflict.
type Aligned struct {
	Offset         int `json:"offset"` // turns after the conflict turn; below 0 before it
	stats.Estimate     // of the share, with its context bootstrap interval
}

// leastAligned is how many dialogues a point of the aligned curve needs.
const leastAligned = 5

// aligned returns the mean curve of P(yes), dialogues laid over each other at the
// conflict turn. Offsets that fewer than five dialogues have are left out, and so
// are answers that could not be scored.
func aligned(ds []Decision, boot stats.Bootstrap) ([]Aligned, error) {
	values, groups := map[int][]float64{}, map[int][]string{}
	for _, d := range ds {
		for _, p := range d.Curve {
			if p.Unscored == "" {
				at := p.Turn - d.Gold
				values[at], groups[at] = append(values[at], p.Share), append(groups[at], d.Context)
			}
		}
	}
	var out []Aligned
	for _, at := range sortedKeys(values) {
		if len(values[at]) < leastAligned {
			continue
		}
		e, err := boot.Share(values[at], groups[at])
		if err != nil {
			return nil, fmt.Errorf("interval of the mean probability %+d turns from the conflict: %w", at, err)
		}
		out = append(out, Aligned{at, e})
	}
	return out, nil
}

// accuracyFigure shows the model's accuracy beside the baselines'.
func accuracyFigure(model string, m Metrics, baselines []BaselineResult) report.Figure {
	var s report.Series
	p := &report.Points{X: report.Axis{Name: "turn accuracy, %", Max: 100}, Own: []string{model}}
	add := func(group string, value, lo, hi float64) {
		p.Groups = append(p.Groups, group)
		s.Y, s.Lo, s.Hi = append(s.Y, 100*value), append(s.Lo, 100*lo), append(s.Hi, 100*hi)
	}
	if m.TurnAcc != nil {
		add(model, m.TurnAcc.Value, m.TurnAcc.Lo, m.TurnAcc.Hi)
	} else {
		add(model, float64(m.Correct)/float64(m.Scored), math.NaN(), math.NaN())
	}
	for _, b := range baselines {
		lo, hi := math.NaN(), math.NaN()
		if b.Interval != nil {
			lo, hi = b.Interval.Lo, b.Interval.Hi
		}
		add(b.Name, b.Accuracy, lo, hi)
	}
	p.Series = []report.Series{s}
	f := report.Figure{Title: "Turn accuracy beside the baselines", Points: p,
		Description: fmt.Sprintf("Share of %d dialogues in which the predicted turn is the conflict turn: the model, coloured, and rules without a language model, grey. Whiskers are 95 %% intervals from resampling scenario contexts (%d).", m.Scored, m.Contexts)}
	if kind := m.kind(); kind != "" {
		if !published.OfSameDialogues(m.N) {
			f.Description += " Published numbers are not drawn: they are of other dialogues."
			return f
		}
		lo, hi := published.Span(map[string]string{untuned: published.TurnAcc, tuned: published.TunedTurnAcc}[kind])
		p.References = []report.Reference{{Name: "published, " + kind + ": lowest", Value: 100 * lo}, {Name: "published, " + kind + ": highest", Value: 100 * hi}}
		f.Description += " The lines are the lowest and the highest that CC-Mediation reports of " + kind + " models."
	}
	return f
}

// heatFigure shows which turn was predicted for which gold turn.
func heatFigure(m Metrics) report.Figure {
	golds, predicted := grid(m)
	h := &report.Heat{X: "predicted turn", Y: "gold turn"}
	for _, p := range predicted {
		h.Columns = append(h.Columns, gridName(p))
	}
	for _, g := range golds {
		h.Rows = append(h.Rows, gridName(g))
		var row report.Values
		for _, p := range predicted {
			row = append(row, float64(m.Confusion[g][p]))
		}
		h.Values = append(h.Values, row)
	}
	return report.Figure{Title: "Predicted against gold turn", Heat: h,
		Description: fmt.Sprintf("Numbers of dialogues, %d in all, by the turn at which the conflict breaks out and the turn that was predicted; those on the outlined diagonal are right.", m.Scored)}
}

// curveFigure shows the mean probability around the conflict.
func curveFigure(m Metrics) (report.Figure, bool) {
	s := report.Series{Name: "mean probability of stepping in"}
	for _, a := range m.Aligned {
		s.X, s.Y = append(s.X, float64(a.Offset)), append(s.Y, a.Value)
		lo, hi := a.Bounds()
		s.Lo, s.Hi = append(s.Lo, lo), append(s.Hi, hi)
	}
	f := report.Figure{Title: "Around the conflict", Description: fmt.Sprintf("Mean probability of stepping in by the distance from the conflict turn, in %d dialogues. The band is the 95 %% interval from resampling scenario contexts (%d).", m.Scored, m.Contexts),
		Lines: &report.Lines{X: report.Axis{Name: "turns from the conflict"}, Y: report.Axis{Name: "probability"}, Series: []report.Series{s}}}
	return f, len(s.X) > 1
}
