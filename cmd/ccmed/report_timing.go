package main

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"

	"github.com/ccmed/ccmed/bench/report"
	"github.com/ccmed/ccmed/bench/run"
	"github.com/ccmed/ccmed/bench/timing"
	"github.com/ccmed/ccmed/sft"
)

// timing adds the dialogues of a timing run or of a dual-head prediction.
func (r *items) timing() error {
	samples, err := r.dir.Samples()
	if err != nil {
		return err
	}
	type key struct {
		item   string
		repeat int
	}
	spoken := map[key]run.Sample{}
	for _, s := range samples {
		if s.Step == sft.StepUtterance {
			spoken[key{s.Item, s.Repeat}] = s
		}
	}
	for _, s := range samples {
		if s.Step != timing.StepDecide {
			continue
		}
		d, unscored, err := timing.ReadDecision(s)
		if err != nil {
			return err
		}
		it := report.Item{Title: s.Item}
		measures := map[string]float64{goldTurn: float64(d.Gold)}
		outcome := []string{"unscored"}
		predicted := "unknown"
		if unscored != "" {
			it.Note = "unscored: " + unscored
		} else {
			outcome = prediction(d.Predicted, d.Gold, measures)
			predicted = "none"
			if d.Predicted > 0 {
				predicted = strconv.Itoa(d.Predicted)
			}
		}
		facts := [][2]string{{"conflict", fmt.Sprintf("%s, turn %d", d.Stage, d.Gold)}, {"predicted turn", predicted}, {"predictions start at turn", strconv.Itoa(d.FirstTurn)}}
		if s.Repeat > 0 {
			facts = append(facts, [2]string{"repeat", strconv.Itoa(s.Repeat)})
		}
		if x, ok := r.dialogues[s.Item]; ok {
			b := scene(x)
			it.Blocks = append(it.Blocks, b)
		}
		curve := r.curve(s.Item, d)
		curve.Facts = facts
		it.Blocks = append(it.Blocks, curve)
		if d.Reasoning != "" {
			it.Blocks = append(it.Blocks, report.Block{Title: "What the model wrote before it chose", Text: d.Reasoning})
		}
		if u, ok := spoken[key{s.Item, s.Repeat}]; ok {
			b, err := utterance(u)
			if err != nil {
				return err
			}
			it.Blocks = append(it.Blocks, b)
		}
		r.add(it, d.Stage, []string{string(d.Mode)}, outcome, measures, []string{goldTurn, predictedTurn, turnError})
	}
	return nil
}

// curve shows a dialogue with the model's answer after each turn. Where the text is
// not at hand the turns have numbers alone.
func (r *items) curve(item string, d timing.Decision) report.Block {
	b := report.Block{Title: "The dialogue, and the model's answer after each turn"}
	switch d.Mode {
	case timing.Stream:
		b.Value, b.Notes = "P(yes)", []string{"P(yes) of yes and no together, after each turn; the first one above 0.5 is the predicted turn"}
	case timing.DualHead:
		b.Value, b.Notes = "P(speak)", []string{fmt.Sprintf("the decision head's probability after each turn; the first one from %g on is the predicted turn", d.Threshold)}
	default:
		b.Value, b.Notes = "P(turn)", []string{"the probability of each turn among those that could be chosen; the most probable one is the predicted turn"}
	}
	if x, ok := r.dialogues[item]; ok {
		b.Turns = said(x, d.LastTurn, d.Gold)
	} else {
		for t := 1; t <= d.LastTurn; t++ {
			turn := report.Turn{Name: strconv.Itoa(t), Speaker: "turn"}
			if t <= len(d.Lengths) {
				turn.Speaker = fmt.Sprintf("%d characters", d.Lengths[t-1])
			}
			if t == d.Gold {
				turn.Marks = []string{"conflict turn"}
			}
			b.Turns = append(b.Turns, turn)
		}
	}
	for _, p := range d.Curve {
		i := slices.IndexFunc(b.Turns, func(t report.Turn) bool { return t.Name == strconv.Itoa(p.Turn) })
		if i < 0 {
			continue
		}
		v := rounded(p.Share)
		b.Turns[i].Value, b.Turns[i].Unscored = &v, p.Unscored
		if p.Turn == d.Predicted {
			b.Turns[i].Marks = append(b.Turns[i].Marks, "predicted turn")
		}
	}
	return b
}

// utterance is what a tuned model says where it steps in.
func utterance(s run.Sample) (report.Block, error) {
	u, err := decodeData[sft.Utterance](s)
	if err != nil {
		return report.Block{}, err
	}
	b := report.Block{Title: "What the model says"}
	if u.Turn == 0 || s.Unscored != "" {
		b.Notes = []string{cmp.Or(s.Unscored, "it never steps in")}
	}
	if u.Text != "" {
		b.Turns = []report.Turn{{Name: fmt.Sprintf("after %d", u.Turn), Speaker: "Mediator", Text: u.Text}}
	}
	return b, nil
}
