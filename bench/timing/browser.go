package timing

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"

	"github.com/ccmed/ccmed/bench/report"
	"github.com/ccmed/ccmed/bench/task"
	"github.com/ccmed/ccmed/infer"
)

// Browser holds every dialogue with the model's answers.
func (r *Result) Browser(ctx context.Context) (report.Browser, []string, error) {
	a, err := r.answers()
	if err != nil {
		return report.Browser{}, nil, err
	}
	b := task.NewDialogues(ctx, r.in.Run, nil, []string{task.GoldTurn, task.PredictedTurn, task.TurnError}, r.Reword)
	for _, d := range a.Decided {
		it := report.Item{Title: d.Key.Item}
		measures := map[string]float64{task.GoldTurn: float64(d.Gold)}
		outcome := []string{task.Unscored}
		predicted := "unknown"
		if d.Unscored != "" {
			it.Note = "unscored: " + d.Unscored
		} else {
			outcome = task.CompareTurns(d.Predicted, d.Gold, measures)
			predicted = "none"
			if d.Predicted > 0 {
				predicted = strconv.Itoa(d.Predicted)
			}
		}
		facts := [][2]string{{"conflict", fmt.Sprintf("%s, turn %d", d.Stage, d.Gold)}, {"predicted turn", predicted}, {"predictions start at turn", strconv.Itoa(d.FirstTurn)}}
		if d.Key.Repeat > 0 {
			facts = append(facts, [2]string{"repeat", strconv.Itoa(d.Key.Repeat)})
		}
		if x, ok := b.Records[d.Key.Item]; ok {
			it.Blocks = append(it.Blocks, task.Scene(x))
		}
		curve := d.curve(b)
		curve.Facts = facts
		it.Blocks = append(it.Blocks, curve)
		if d.Reasoning != "" {
			reasoning := report.Block{Title: "What the model wrote before it chose", Text: d.Reasoning}
			if d.Line == nil && d.Stop == infer.StopLength {
				reasoning.Notes = []string{task.CutMark}
			}
			it.Blocks = append(it.Blocks, reasoning)
		}
		if d.Line != nil {
			it.Blocks = append(it.Blocks, d.spoken())
		}
		b.Add(it, d.Stage, []string{string(d.Mode)}, outcome, measures)
	}
	return b.Browser, b.Notes, b.Complete()
}

// curve shows a dialogue with the model's answer after each turn. Where the text is not
// at hand the turns have numbers alone.
func (d Decided) curve(all *task.Dialogues) report.Block {
	b := report.Block{Title: "The dialogue, and the model's answer after each turn"}
	switch d.Mode {
	case Stream:
		b.Value, b.Notes = "P(yes)", []string{"P(yes) of yes and no together, after each turn; the first one above 0.5 is the predicted turn"}
	case DualHead:
		b.Value, b.Notes = "P(speak)", []string{fmt.Sprintf("the decision head's probability after each turn; the first one from %g on is the predicted turn", d.Threshold)}
	default:
		b.Value, b.Notes = "P(turn)", []string{"the probability of each turn among those that could be chosen; the most probable one is the predicted turn"}
	}
	if x, ok := all.Records[d.Key.Item]; ok {
		b.Turns = task.Turns(x, d.LastTurn, d.Gold)
	} else {
		b.Turns = d.numberedTurns()
	}
	for _, p := range d.Curve {
		i := slices.IndexFunc(b.Turns, func(t report.Turn) bool { return t.Name == strconv.Itoa(p.Turn) })
		if i < 0 {
			continue
		}
		v := task.Rounded(p.Share)
		b.Turns[i].Value, b.Turns[i].Unscored = &v, p.Unscored
		if p.Turn == d.Predicted {
			b.Turns[i].Marks = append(b.Turns[i].Marks, "predicted turn")
		}
	}
	return b
}

// numberedTurns stand for turns whose text is not at hand.
func (d Decided) numberedTurns() []report.Turn {
	var out []report.Turn
	for t := 1; t <= d.LastTurn; t++ {
		turn := report.Turn{Name: strconv.Itoa(t), Speaker: "turn"}
		if t <= len(d.Lengths) {
			turn.Speaker = fmt.Sprintf("%d characters", d.Lengths[t-1])
		}
		if t == d.Gold {
			turn.Marks = []string{"conflict turn"}
		}
		out = append(out, turn)
	}
	return out
}

// spoken is what a tuned model says where it steps in.
func (d Decided) spoken() report.Block {
	b := report.Block{Title: "What the model says"}
	if d.Line.Turn == 0 || d.LineUnscored != "" {
		b.Notes = []string{cmp.Or(d.LineUnscored, "it never steps in")}
	}
	if d.Line.Text != "" {
		b.Turns = []report.Turn{{Name: fmt.Sprintf("after %d", d.Line.Turn), Speaker: "Mediator", Text: d.Line.Text}}
		if d.Stop == infer.StopLength {
			b.Turns[0].Marks = []string{task.CutMark}
		}
	}
	return b
}
