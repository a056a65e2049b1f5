package mediation

import (
	"errors"
	"slices"
	"strings"

	"github.com/ccmed/ccmed/bench/dialogue"
	"github.com/ccmed/ccmed/infer"
)

// Longest returns, for every role, the prompt of an item that needs the most
// context, with generated turns at their caps, for fitting the context.
func Longest(it Item, o Options) (map[string][]infer.Prompt, error) {
	o, err := o.WithDefaults()
	if err != nil {
		return nil, err
	}
	if it.Turn == 0 {
		return nil, nil
	}
	d := it.Dialogue
	utt, start, after := o.imagined(it)
	history := append(start, after...)
	med, err := o.MediatePrompt(it)
	if err != nil {
		return nil, err
	}
	sim, err := o.simulatePrompt(d, SpeakerOf(d.LastTurn()), history[:max(1, len(history)-1)])
	if err != nil {
		return nil, err
	}
	lab, err := o.LabelPrompt(d, history)
	if err != nil {
		return nil, err
	}
	jud, err := o.judgePrompt(d, utt)
	if err != nil {
		return nil, err
	}
	return map[string][]infer.Prompt{RoleMediator: {med}, RoleSimulator: {sim}, RoleLabeller: {lab}, RoleJudge: {jud}}, nil
}

// Planned returns every prompt that an item will be asked, by role, with generated
// turns at their caps: what a run costs at most. An item whose turns are unscored on
// the way asks fewer.
func Planned(it Item, o Options) (map[string][]infer.Prompt, error) {
	o, err := o.WithDefaults()
	if err != nil {
		return nil, err
	}
	if it.Turn == 0 {
		return nil, nil // nobody speaks, so that nothing follows and nothing is judged
	}
	out := map[string][]infer.Prompt{}
	add := func(role string, p infer.Prompt, failed error) {
		out[role], err = append(out[role], p), errors.Join(err, failed)
	}
	d := it.Dialogue
	utt, start, after := o.imagined(it)
	if it.Condition == ND || it.Condition == D {
		p, failed := o.MediatePrompt(it)
		add(RoleMediator, p, failed)
	}
	if it.Recorded == nil {
		for i, t := range after {
			p, failed := o.simulatePrompt(d, t.Agent, slices.Concat(start, after[:i]))
			add(RoleSimulator, p, failed)
		}
	}
	pre, failed := o.LabelPrompt(d, d.Unmediated()[:d.ConflictTurn])
	add(RoleLabeller, pre, failed)
	if o.HideMediator || it.Condition == Card {
		start = d.Unmediated()[:it.Turn]
	}
	for i := range after {
		p, failed := o.LabelPrompt(d, slices.Concat(start, after[:i+1]))
		add(RoleLabeller, p, failed)
	}
	if it.Condition == Card {
		p, failed := o.ReversedLabelPrompt(d, d.Unmediated()[:d.ConflictTurn])
		add(RoleLabeller, p, failed)
	}
	if utt.Text != "" && !unspoken(it.Condition) {
		p, failed := o.judgePrompt(d, utt)
		add(RoleJudge, p, failed)
	}
	return out, err
}

// imagined is an item before it is run: the mediator's line, the dialogue up to it,
// and the turns after it. What is given or recorded is as long as it is; what will be
// generated is its cap as text: a token is seldom more than five letters.
func (o Options) imagined(it Item) (utt Utterance, start, after []dialogue.Turn) {
	d := it.Dialogue
	utt = Utterance{Turn: it.Turn, Text: it.Given}
	switch it.Condition {
	case ND, D:
		utt.Text = strings.Repeat("word ", o.MaxTokens)
	case Generic:
		utt.Text = GenericLine
	}
	add := func(t, agent int, text string) {
		after = append(after, dialogue.Turn{T: t, Speaker: d.Name(agent), Agent: agent, Message: text})
	}
	if it.Recorded != nil {
		for _, t := range it.Recorded {
			add(t.T, t.Agent, t.Text)
		}
	} else {
		for t := it.Turn + 1; t <= d.LastTurn(); t++ {
			add(t, SpeakerOf(t), strings.Repeat("word ", o.SimMaxTokens))
		}
	}
	return utt, before(d, utt), after
}
