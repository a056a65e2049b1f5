package sft

import (
	"context"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"time"

	"github.com/ccmed/ccmed/bench/report"
)

// TrainSections says what the training run in a folder came to: losses, validation
// and the baselines beside it as tables, the loss curve as a figure.
func TrainSections(ctx context.Context, dir string) ([]report.Section, error) {
	m, err := ReadTraining(dir)
	if err != nil {
		return nil, err
	}
	if m.Export == nil {
		return nil, fmt.Errorf("%s does not say what was trained on: it was changed by hand", filepath.Join(dir, ManifestFile))
	}
	points, err := ReadCurve(dir)
	if err != nil {
		return nil, err
	}
	s := report.Section{Title: "Training", Tables: []report.Table{lossTable(points), validationTable(points)}}
	if len(points) > 0 {
		s.Figures = []report.Figure{lossFigure(points)}
	}
	if r := m.Result; r != nil {
		validated := r.Validation == nil || slices.ContainsFunc(points, func(p Point) bool { return p.Valid != nil })
		if n := len(points); n == 0 || points[n-1].Step != r.Steps || !validated {
			s.Notes = append(s.Notes, fmt.Sprintf("%s does not tell of all %d steps and their validation: the curve is not whole", EventsFile, r.Steps))
		}
		note := fmt.Sprintf("%d steps, %s in the last of %d sessions; positive weight %.3g", r.Steps, time.Duration(r.Seconds*float64(time.Second)).Round(time.Second), len(m.Sessions), posWeight(m))
		if r.PeakMemory > 0 {
			note += fmt.Sprintf("; %.1f GB of memory at most, %.1f estimated", float64(r.PeakMemory)/1e9, float64(m.Memory.Total())/1e9)
		}
		s.Notes = append(s.Notes, note)
		if v := r.Validation; v != nil {
			s.Notes = append(s.Notes, fmt.Sprintf("with the threshold %.3g, chosen on these dialogues: TurnAcc %s", v.Threshold, report.Pct(hits(v.ThresholdTurnAcc, v.N), v.N)))
		}
		baselines, err := Baselines(ctx, m)
		switch {
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case err != nil:
			s.Notes = append(s.Notes, "no baselines beside the validation: "+err.Error())
		}
		s.Tables = append(s.Tables, besideTables(r, m.Export.Holdout, baselines)...)
	} else {
		s.Notes = append(s.Notes, "the training is not finished: "+m.Status)
	}
	s.Notes = append(s.Notes, "validation dialogues have scenario contexts of their own; the interval (Wilson) takes the dialogues for independent")
	if l, ok := m.Export.Leaks["evaluation"]; ok {
		s.Notes = append(s.Notes, fmt.Sprintf("the scenario context of %s of the evaluation dialogues is trained on; sft export --exclude-seen-contexts leaves those out", report.Pct(l.Contexts.Shared, l.Contexts.Of)))
	}
	return []report.Section{s}, nil
}

// hits is the count behind a share of n.
func hits(share float64, n int) int { return int(math.Round(share * float64(n))) }

func posWeight(m *Manifest) float64 {
	if m.Config.PosWeight > 0 {
		return m.Config.PosWeight
	}
	return m.Export.PosWeight
}

func lossTable(points []Point) report.Table {
	t := report.Table{Title: "Losses", Columns: report.Columns("steps", "loss>", "LM>", "BCE>")}
	first, last, n := Ends(points)
	if n == 0 {
		return t
	}
	for _, l := range []struct {
		name string
		Losses
	}{{fmt.Sprintf("mean of the first %d", n), first}, {fmt.Sprintf("mean of the last %d", n), last}} {
		t.Add(l.name, report.Num(l.Loss, 4), report.Num(l.LM, 4), report.Num(l.BCE, 4))
	}
	return t
}

func validationTable(points []Point) report.Table {
	t := report.Table{Title: "Validation", Columns: report.Columns("step>", "TurnAcc at 0.5", "LM>", "BCE>")}
	for _, p := range points {
		if v := p.Valid; v != nil && v.N > 0 {
			t.Add(p.Step, report.Pct(hits(v.TurnAcc, v.N), v.N), report.Num(v.LM, 4), report.Num(v.BCE, 4))
		}
	}
	return t
}

// drawn is the greatest number of points of a curve: more could not be told apart.
const drawn = 200

func lossFigure(points []Point) report.Figure {
	lm, bce := report.Series{Name: "LM, training"}, report.Series{Name: "BCE, training"}
	validLM, validBCE := report.Series{Name: "LM, validation"}, report.Series{Name: "BCE, validation"}
	var train []Point
	for _, p := range points {
		if p.Train != nil {
			train = append(train, p)
		}
		if p.Valid != nil {
			validLM.X, validLM.Y = append(validLM.X, float64(p.Step)), append(validLM.Y, p.Valid.LM)
			validBCE.X, validBCE.Y = append(validBCE.X, float64(p.Step)), append(validBCE.Y, p.Valid.BCE)
		}
	}
	width := max(1, (len(train)+drawn-1)/drawn)
	for i := 0; i < len(train); i += width {
		window := train[i:min(i+width, len(train))]
		l := mean(window)
		x := float64(window[len(window)-1].Step)
		lm.X, lm.Y = append(lm.X, x), append(lm.Y, l.LM)
		bce.X, bce.Y = append(bce.X, x), append(bce.Y, l.BCE)
	}
	f := report.Figure{Title: "Loss curve", Description: "The language-model loss of the mediators' words and the loss of the decisions, by training step.",
		Lines: &report.Lines{X: report.Axis{Name: "step"}, Y: report.Axis{Name: "loss"}}}
	if width > 1 {
		f.Notes = []string{fmt.Sprintf("Training losses are means over %d steps.", width)}
	}
	for _, s := range []report.Series{lm, bce, validLM, validBCE} {
		if len(s.X) > 0 {
			f.Lines.Series = append(f.Lines.Series, s)
		}
	}
	return f
}
