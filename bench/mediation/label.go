package mediation

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/ccmed/ccmed/bench/dialogue"
	"github.com/ccmed/ccmed/bench/dmis"
	"github.com/ccmed/ccmed/bench/run"
	"github.com/ccmed/ccmed/infer"
)

// LabelPrompt asks for the conflict speaker's stage after the last of turns.
func (o Options) LabelPrompt(d dialogue.Dialogue, turns []dialogue.Turn) (infer.Prompt, error) {
	return o.labelPromptOf(dmis.Definitions(), d, turns)
}

// ReversedLabelPrompt is LabelPrompt with the stages listed and numbered the other way round:
// digit k stands for the stage that 7 − k is in LabelPrompt.
func (o Options) ReversedLabelPrompt(d dialogue.Dialogue, turns []dialogue.Turn) (infer.Prompt, error) {
	stages := dmis.Definitions()
	slices.Reverse(stages)
	for i := range stages {
		stages[i].Number = i + 1
	}
	return o.labelPromptOf(stages, d, turns)
}

func (o Options) labelPromptOf(stages []dmis.Definition, d dialogue.Dialogue, turns []dialogue.Turn) (infer.Prompt, error) {
	data := map[string]any{"Stages": stages, "Profile": "", "Speaker": d.Name(d.ConflictAgent), "LeadIn": !o.NoLeadIn}
	last := turns[len(turns)-1]
	if o.Form == Speaker {
		profile, err := o.Profile(d, d.ConflictAgent)
		if err != nil {
			return infer.Prompt{}, err
		}
		var b strings.Builder
		line := func(t dialogue.Turn) string {
			// One line a turn: a message with line breaks could pass for several turns.
			message := dialogue.OneLine(t.Message)
			if t.Agent == d.ConflictAgent {
				return "Me: " + message
			}
			return t.Speaker + ": " + message
		}
		for _, t := range turns {
			b.WriteString(line(t) + "\n")
		}
		data["Profile"], data["Transcript"], data["Marked"] = profile, b.String(), line(last)
	} else {
		data["Transcript"], data["Marked"] = dialogue.Transcript(turns), strings.TrimSpace(dialogue.Transcript(turns[len(turns)-1:]))
	}
	return o.Prompts.Build("label", data)
}

func (o Options) label(ctx context.Context, b infer.Backend, u run.Unit[Item], look run.Lookup) (run.Sample, error) {
	utt, _, err := earlier[Utterance](look, StepUtterance)
	if err != nil {
		return run.Sample{}, err
	}
	cont, unscored, err := earlier[Continuation](look, StepSimulate)
	if err != nil {
		return run.Sample{}, err
	}
	if unscored != "" {
		return sample(Labels{}, unscored)
	}
	d := u.Value.Dialogue
	pre, err := o.LabelPrompt(d, d.Unmediated()[:d.ConflictTurn])
	if err != nil {
		return run.Sample{}, err
	}
	prompts := []infer.Prompt{pre}
	history := before(d, utt)
	if o.HideMediator || u.Value.Condition == Card {
		history = append([]dialogue.Turn(nil), d.Unmediated()[:utt.Turn]...)
	}
	for _, t := range cont.Turns {
		history = append(history, dialogue.Turn{T: t.T, Speaker: d.Name(t.Agent), Agent: t.Agent, Message: t.Text})
		p, err := o.LabelPrompt(d, history)
		if err != nil {
			return run.Sample{}, err
		}
		prompts = append(prompts, p)
	}
	params := infer.Params{TopP: 1, Seed: o.Seed, Repeat: u.Repeat}
	cs, err := b.Choose(ctx, prompts, infer.Digits(1, 6), params)
	if err != nil {
		return run.Sample{}, fmt.Errorf("label the turns: %w", err)
	}
	out := Labels{Pre: o.ReadLabel(cs[0], d.ConflictTurn, true)}
	for i, t := range cont.Turns {
		l := o.ReadLabel(cs[i+1], t.T, t.Agent == d.ConflictAgent)
		l.Recorded = t.Recorded
		out.After = append(out.After, l)
	}
	m, err := b.Model(ctx)
	if err != nil {
		return run.Sample{}, fmt.Errorf("identify the labeller: %w", err)
	}
	// A classifier is fitted to the stages in one order and knows no other.
	if u.Value.Condition == Card && m.Backend != infer.ReadoutBackend {
		p, err := o.ReversedLabelPrompt(d, d.Unmediated()[:d.ConflictTurn])
		if err != nil {
			return run.Sample{}, err
		}
		again, err := b.Choose(ctx, []infer.Prompt{p}, infer.Digits(1, 6), params)
		if err != nil {
			return run.Sample{}, fmt.Errorf("repeat a label: %w", err)
		}
		l := o.ReadReversedLabel(again[0], d.ConflictTurn, true)
		out.Again = &l
	}
	return sample(out, "")
}

// ReadReversedLabel is ReadLabel of an answer to ReversedLabelPrompt, by stages as ReadLabel
// has them; Top stays as the model answered.
func (o Options) ReadReversedLabel(c infer.Choice, turn int, own bool) TurnLabel {
	c.P = slices.Clone(c.P) // a cache may hold it too
	slices.Reverse(c.P)
	return o.ReadLabel(c, turn, own)
}

// ReadLabel reads the labeller's answer about a turn; own says that the speaker whom the
// question is about speaks it.
func (o Options) ReadLabel(c infer.Choice, turn int, own bool) TurnLabel {
	l := TurnLabel{Turn: turn, Own: own, P: [6]float64(c.P), Mass: c.Mass, Top: c.Top, Unscored: c.Unscored}
	lab := dmis.FromProbabilities(l.P, o.MinMass)
	l.Missing = lab.Missing
	if l.Unscored == "" {
		l.Unscored = lab.Unscored
	}
	if l.Unscored == "" {
		l.Ambiguous, l.Stage = lab.Ambiguous, lab.Dist.Argmax().String()
	}
	return l
}
