package mediation

import (
	"github.com/ccmed/ccmed/bench/dialogue"
	"github.com/ccmed/ccmed/bench/dmis"
	"github.com/ccmed/ccmed/bench/prompt"
	"github.com/ccmed/ccmed/infer"
)

// Question asks the labeller for the stage of a recorded turn's own speaker.
type Question struct {
	Turn   dialogue.Turn
	Stage  dmis.Stage // as recorded
	Prompt infer.Prompt
}

// Questions asks about every turn of the dialogue, as it went without a mediator and with
// the record's, that carries the name of a stage, whoever speaks it: each is the question
// that the labeller gets when that speaker is the conflict's, so that a classifier fitted
// to them can answer it.
func Questions(set *prompt.Set, d dialogue.Dialogue) ([]Question, error) {
	o, err := Options{Prompts: set}.WithDefaults()
	if err != nil {
		return nil, err
	}
	out, err := o.questions(d, nil, d.Unmediated())
	text, usable := d.Mediation()
	if err != nil || !usable {
		return out, err
	}
	mediated, err := o.questions(d, before(d, Utterance{Turn: d.ConflictTurn, Text: text}), d.Mediated())
	return append(out, mediated...), err
}

// questions asks about turns that follow a history.
func (o Options) questions(d dialogue.Dialogue, history, turns []dialogue.Turn) (out []Question, err error) {
	for _, t := range turns {
		history = append(history, t)
		stage, err := dmis.ParseStage(t.Label)
		if err != nil || t.Agent == dialogue.Mediator {
			continue
		}
		d.ConflictAgent = t.Agent
		p, err := o.LabelPrompt(d, history)
		if err != nil {
			return nil, err
		}
		out = append(out, Question{t, stage, p})
	}
	return out, nil
}
