package mediation

import (
	"github.com/ccmed/ccmed/bench/dialogue"
	"github.com/ccmed/ccmed/bench/run"
)

// OwnTurn is a turn of the conflict speaker after the intervention, under a condition.
type OwnTurn struct {
	Item, Condition string
	Turn            int
	// Transcript is all that was said up to the turn, the mediator's line included.
	Transcript string
	Stage      string // as the labeller gave it; "" where it is unscored
}

// OwnTurns are the simulated turns of the conflict speakers in the samples of a run over
// the dialogues, the labeller card's left out: recorded ones need no run to be labelled.
func OwnTurns(samples []run.Sample, ds []dialogue.Dialogue) ([]OwnTurn, error) {
	of := map[string]dialogue.Dialogue{}
	for _, d := range ds {
		of[d.Key()] = d
	}
	units, keys := group(samples)
	var out []OwnTurn
	for _, k := range keys {
		d, known := of[k[0]]
		if !known || k[1] == Card {
			continue
		}
		utt, unscored, ok, err := decode[Utterance](units[k], StepUtterance, k[0])
		if err != nil {
			return nil, err
		}
		cont, cut, simulated, err := decode[Continuation](units[k], StepSimulate, k[0])
		if err != nil {
			return nil, err
		}
		labels, _, _, err := decode[Labels](units[k], StepLabel, k[0])
		if err != nil {
			return nil, err
		}
		if !ok || !simulated || unscored != "" || cut != "" {
			continue
		}
		history := before(d, utt)
		for i, t := range cont.Turns {
			history = append(history, dialogue.Turn{T: t.T, Speaker: d.Name(t.Agent), Agent: t.Agent, Message: t.Text})
			if t.Agent != d.ConflictAgent {
				continue
			}
			own := OwnTurn{Item: k[0], Condition: k[1], Turn: t.T, Transcript: dialogue.Transcript(history)}
			if i < len(labels.After) {
				own.Stage = labels.After[i].Stage
			}
			out = append(out, own)
		}
	}
	return out, nil
}
