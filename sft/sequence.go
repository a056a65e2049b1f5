package sft

import (
	"fmt"
	"strings"

	"github.com/ccmed/ccmed/bench/dialogue"
)

// The markers of a sequence. Each is one token of a trained model.
const (
	TurnEnd  = "<TURN_END>"
	Speak    = "[SPEAK]"
	EndSpeak = "[/SPEAK]"
)

// Intro is the first line of every sequence. It says nothing about the scene, so
// that what is learnt about a turn is learnt from the turns.
const Intro = "A conversation between two people from different cultural backgrounds."

// Record is one training example, a line of the exported files.
type Record struct {
	ID string `json:"id"`
	// Text is the whole sequence, without a token that begins or ends it.
	Text string `json:"text"`
	// Labels has one decision per <TURN_END> of Text: 1 at the gold turn, which is the
	// last unless the record's later turns follow, and 0 at all others.
	Labels []int `json:"labels"`
	Gold   int   `json:"gold"` // the turn after which the mediator speaks, from 1
	// Utterance is what stands in the span, without its markers and outer spaces.
	Utterance string `json:"utterance"`

	Group     string   `json:"group"` // dialogue.Dialogue.ContextKey
	Stage     string   `json:"stage"`
	Dimension string   `json:"dimension"` // of the World Values Survey, "" where it is not known
	Template  string   `json:"template"`  // dialogue.Dialogue.Template
	Countries []string `json:"countries"`

	// Dialogue has all turns without mediation, as a model reads them at inference.
	Dialogue string `json:"dialogue"`
}

// UnusableError is why no training sequence can be made of a dialogue.
type UnusableError struct {
	ID           string
	What, Remedy string
}

// Error names the dialogue, what is wrong with it and what to do.
func (e *UnusableError) Error() string {
	return fmt.Sprintf("dialogue %s: %s; %s", e.ID, e.What, e.Remedy)
}

// Sequence writes the intro and the first turns of the unmediated dialogue, each
// closed by TurnEnd. More turns than there are mean all of them.
func Sequence(d dialogue.Dialogue, turns int) string {
	all := d.Unmediated()
	return Intro + closed(all[:max(0, min(turns, len(all)))])
}

// closed writes turns, each on a line and closed by TurnEnd.
func closed(turns []dialogue.Turn) string {
	var b strings.Builder
	for i := range turns {
		b.WriteByte('\n')
		b.WriteString(strings.TrimSuffix(dialogue.Transcript(turns[i:i+1]), "\n"))
		b.WriteString(TurnEnd)
	}
	return b.String()
}

// Training makes the training example of a dialogue: the turns up to the
// conflict, and the record's own mediation after them. With later the record's turns
// after the mediation follow, at which the mediator does not speak. The error is an
// *UnusableError where the mediation cannot be used or a text holds a marker.
func Training(d dialogue.Dialogue, later bool) (Record, error) {
	utterance, usable := d.Mediation()
	if !usable {
		return Record{}, &UnusableError{d.Key(), "it has no mediation with a text that follows the conflict turn and is itself followed by turns",
			"add one as continuations.positive, or leave the record out with --lenient"}
	}
	if err := markerFree(d, utterance); err != nil {
		return Record{}, err
	}
	var after []dialogue.Turn
	if later {
		after = d.Mediated()
	}
	labels := make([]int, d.ConflictTurn+len(after))
	labels[d.ConflictTurn-1] = 1
	return Record{
		ID:        d.Key(),
		Text:      Sequence(d, d.ConflictTurn) + Speak + " " + utterance + " " + EndSpeak + closed(after),
		Labels:    labels,
		Gold:      d.ConflictTurn,
		Utterance: utterance,
		Group:     d.ContextKey(),
		Stage:     d.Stage.String(),
		Dimension: d.Dimension(),
		Template:  d.Template(),
		Countries: d.Countries(),
		Dialogue:  Sequence(d, d.LastTurn()),
	}, nil
}

// markerFree refuses markers in what is said: they would end a turn or a span
// before its end.
func markerFree(d dialogue.Dialogue, utterance string) error {
	texts := map[string]string{"the mediator's utterance": utterance}
	for _, t := range d.Unmediated() {
		texts[fmt.Sprintf("turn %d", t.T)] = t.Speaker + " " + t.Message
	}
	for _, t := range d.Mediated() {
		texts[fmt.Sprintf("turn %d after the mediation", t.T)] = t.Speaker + " " + t.Message
	}
	for _, place := range sortedKeys(texts) {
		for _, m := range []string{TurnEnd, Speak, EndSpeak} {
			if strings.Contains(texts[place], m) {
				return &UnusableError{d.Key(), fmt.Sprintf("%s holds the marker %s", place, m),
					"reword it, or leave the record out with --lenient"}
			}
		}
	}
	return nil
}
