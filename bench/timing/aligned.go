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
	s := report.Series{Name: "TurnAcc"}
	p := &report.Points{X: report.Axis{Name: "TurnAcc", Max: 1}}
	add := func(group string, value, lo, hi float64) {
		p.Groups = append(p.Groups, group)
		s.Y, s.Lo, s.Hi = append(s.Y, value), append(s.Lo, lo), append(s.Hi, hi)
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
		Description: "Share of dialogues in which the conflict's turn was predicted, by the model first and then by each baseline."}
	if kind := m.kind(); kind != "" {
		lo, hi := published.Span(map[string]string{untuned: published.TurnAcc, tuned: published.TunedTurnAcc}[kind])
		p.References = []report.Reference{{Name: "published, " + kind + ": lowest", Value: lo}, {Name: "published, " + kind + ": highest", Value: hi}}
		f.Description += " The lines are the lowest and the highest that CC-Mediation reports of " + kind + " models."
	}
	return f
}

// heatFigure shows which turn was predicted for which gold turn.
func heatFigure(m Metrics) report.Figure {
	h := &report.Heat{X: "predicted turn", Y: "gold turn"}
	predicted := sortedKeys(m.Predicted)
	for _, p := range predicted {
		name := fmt.Sprint("t", p)
		if p == 0 {
			name = "none"
		}
		h.Columns = append(h.Columns, name)
	}
	for _, g := range sortedKeys(m.Confusion) {
		h.Rows = append(h.Rows, fmt.Sprint("t", g))
		var row report.Values
		for _, p := range predicted {
			row = append(row, float64(m.Confusion[g][p]))
		}
		h.Values = append(h.Values, row)
	}
	return report.Figure{Title: "Predicted against gold turn", Heat: h, Description: "Numbers of dialogues; those on the outlined diagonal are right."}
}

// curveFigure shows the mean probability around the conflict.
func curveFigure(m Metrics) (report.Figure, bool) {
	s := report.Series{Name: "mean probability of stepping in"}
	for _, a := range m.Aligned {
		s.X, s.Y = append(s.X, float64(a.Offset)), append(s.Y, a.Value)
		lo, hi := a.Bounds()
		s.Lo, s.Hi = append(s.Lo, lo), append(s.Hi, hi)
	}
	f := report.Figure{Title: "Around the conflict", Description: "Mean probability of stepping in by the distance from the conflict turn, with 95 % intervals over scenario contexts.",
		Lines: &report.Lines{X: report.Axis{Name: "turns from the conflict"}, Y: report.Axis{Name: "probability"}, Series: []report.Series{s}}}
	return f, len(s.X) > 1
}
