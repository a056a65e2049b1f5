package mediation

import (
	"fmt"
	"slices"

	"github.com/ccmed/ccmed/bench/dmis"
	"github.com/ccmed/ccmed/bench/report"
	"github.com/ccmed/ccmed/bench/stats"
)

// trajectorySteps is the number of equal steps of normalised time.
const trajectorySteps = 10

// Trajectory is the mean position (Paige scale, −3..3) of the conflict speaker over
// normalised time τ = (t − t_int)/(N − t_int), from the mediation at 0 to the last
// turn at 1. A dialogue's curve is that of its AUC: straight between turns, the
// first value carried back to τ = 0.
type Trajectory struct {
	// Pre is the mean position before any mediation.
	Pre    stats.Estimate    `json:"pre"`
	Points []TrajectoryPoint `json:"points"`
}

// TrajectoryPoint is the mean position at one time.
type TrajectoryPoint struct {
	Tau            float64 `json:"tau"`
	stats.Estimate         // over the dialogues whose every label is scored
}

// trajectory averages the dialogues whose every label is scored; nil without any.
func trajectory(os []Outcome, boot stats.Bootstrap) (*Trajectory, error) {
	var curves []Outcome
	var groups []string
	var pre []float64
	for _, o := range os {
		if _, ok := o.Values[AUC]; ok {
			curves, groups = append(curves, o), append(groups, o.Context)
			pre = append(pre, dmis.Paige.Position(dmis.Stage(*o.PreStage)))
		}
	}
	if len(curves) == 0 {
		return nil, nil
	}
	var t Trajectory
	var err error
	if t.Pre, err = boot.Mean(pre, groups); err != nil {
		return nil, fmt.Errorf("interval of the mean stage before mediation: %w", err)
	}
	for step := range trajectorySteps + 1 {
		tau := float64(step) / trajectorySteps
		at := make([]float64, len(curves))
		for i, o := range curves {
			at[i] = o.position(tau)
		}
		e, err := boot.Mean(at, groups)
		if err != nil {
			return nil, fmt.Errorf("interval of the mean stage at τ = %g: %w", tau, err)
		}
		t.Points = append(t.Points, TrajectoryPoint{tau, e})
	}
	return &t, nil
}

// position is where the conflict speaker stands at normalised time τ, on the Paige
// scale. The outcome has a trajectory.
func (o Outcome) position(tau float64) float64 {
	turn := float64(o.Turn) + tau*float64(o.LastTurn-o.Turn)
	at := func(p [2]int) float64 { return dmis.Paige.Position(dmis.Stage(p[1])) }
	next := slices.IndexFunc(o.Trajectory, func(p [2]int) bool { return float64(p[0]) >= turn })
	switch next {
	case -1: // the last value is carried to the end
		return at(o.Trajectory[len(o.Trajectory)-1])
	case 0:
		return at(o.Trajectory[0])
	}
	a, b := o.Trajectory[next-1], o.Trajectory[next]
	share := (turn - float64(a[0])) / float64(b[0]-a[0])
	return at(a) + share*(at(b)-at(a))
}

// Flow counts dialogues by the conflict speaker's most probable stage before the
// mediation (rows, index 0..5) and at the POST turn (columns).
type Flow struct {
	Counts [6][6]int `json:"counts"`
	Scored int       `json:"scored"`
	// Unscored dialogues lack one of the two stages.
	Unscored int `json:"unscored"`
}

func flow(os []Outcome) *Flow {
	f := &Flow{}
	for _, o := range os {
		if o.PreStage == nil || o.PostStage == nil {
			f.Unscored++
			continue
		}
		f.Counts[*o.PreStage][*o.PostStage]++
		f.Scored++
	}
	return f
}

// trajectorySection shows how the stance goes on after the mediation. ok is false
// where no condition has a trajectory.
func trajectorySection(m Metrics) (s report.Section, ok bool) {
	lines := &report.Lines{X: report.Axis{Name: "τ, from the mediation to the last turn", Max: 1}, Y: report.Axis{Name: "mean position, Paige scale"}}
	table := report.Table{Title: "Mean position on the Paige scale", Columns: report.Columns("condition", "n>", "before>")}
	shown := []int{0, trajectorySteps / 2, trajectorySteps}
	for _, step := range shown {
		table.Columns = append(table.Columns, report.Column{Name: fmt.Sprintf("τ = %g", float64(step)/trajectorySteps), Align: report.Right})
	}
	for _, c := range m.Conditions {
		t := c.Trajectory
		if t == nil {
			continue
		}
		series := report.Series{Name: fmt.Sprintf("%s (n=%d)", c.Condition, t.Pre.N)}
		for _, p := range t.Points {
			series.X, series.Y = append(series.X, p.Tau), append(series.Y, p.Value)
			lo, hi := p.Bounds()
			series.Lo, series.Hi = append(series.Lo, lo), append(series.Hi, hi)
		}
		lines.Series = append(lines.Series, series)
		row := []report.Cell{report.Text(c.Condition), report.Int(t.Pre.N), report.Text(interval(t.Pre))}
		for _, step := range shown {
			row = append(row, report.Text(interval(t.Points[step].Estimate)))
		}
		table.Rows = append(table.Rows, row)
		if c.Condition == Unmediated {
			lines.References = append(lines.References, report.Reference{Name: "before mediation", Value: t.Pre.Value})
		}
	}
	s = report.Section{Title: "How the stance goes on", Tables: []report.Table{table},
		Figures: []report.Figure{{Title: "Mean trajectory of stages", Lines: lines,
			Description: "Mean position of the conflict speaker's most probable stage by normalised time, for each condition, with its number of dialogues n. Whiskers are 95 % intervals from resampling scenario contexts."}},
		Notes: []string{"dialogues whose every label is scored; straight between turns, the first value carried back to τ = 0, as in the AUC"}}
	return s, len(lines.Series) > 0
}

// flowSection shows from which stage to which the conflict speakers went.
func flowSection(m Metrics) (s report.Section, ok bool) {
	s = report.Section{Title: "From which stage to which"}
	for _, c := range m.Conditions {
		f := c.Flow
		if f == nil || f.Scored == 0 {
			continue
		}
		h := &report.Heat{X: "at the POST turn", Y: "before the mediation"}
		for stage := dmis.Denial; stage <= dmis.Integration; stage++ {
			h.Columns, h.Rows = append(h.Columns, stage.String()), append(h.Rows, stage.String())
			row := make(report.Values, len(f.Counts[stage]))
			for to, n := range f.Counts[stage] {
				row[to] = float64(n)
			}
			h.Values = append(h.Values, row)
		}
		s.Figures = append(s.Figures, report.Figure{Title: "From which stage to which, " + c.Condition, Heat: h,
			Description: fmt.Sprintf("Numbers of dialogues under %s by the conflict speaker's stage before the mediation and three turns after the conflict; those on the outlined diagonal stayed where they were.", c.Condition),
			Notes:       []string{fmt.Sprintf("%d dialogues, %d more are unscored", f.Scored, f.Unscored)}})
	}
	return s, len(s.Figures) > 0
}
