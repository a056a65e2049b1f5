package mediation

import (
	"strings"
	"testing"

	"github.com/ccmed/ccmed/bench/dialogue"
	"github.com/ccmed/ccmed/bench/prompt"
)

// TestQuestionsAskTheTurnsOwnSpeaker: each question ends with its turn and names the one who
// speaks it, and a mediated turn is asked about after the mediator's line.
func TestQuestionsAskTheTurnsOwnSpeaker(t *testing.T) {
	set, err := prompt.Load("")
	if err != nil {
		t.Fatal(err)
	}
	asked, after := 0, 0
	for _, d := range dialogue.Sample() {
		qs, err := Questions(set, d)
		if err != nil {
			t.Fatal(err)
		}
		asked += len(qs)
		line, _ := d.Mediation()
		for _, q := range qs {
			user := q.Prompt.Messages[1].Content
			if !strings.Contains(user, "At which stage does "+d.Name(q.Turn.Agent)+" speak") || strings.Count(user, dialogue.OneLine(q.Turn.Message)) < 2 {
				t.Errorf("dialogue %s, turn %d: %s", d.Key(), q.Turn.T, user)
			}
			if line != "" && strings.Contains(user, dialogue.OneLine(line)) {
				after++
			}
			if q.Stage.String() != q.Turn.Label {
				t.Errorf("dialogue %s, turn %d: stage %s for the label %s", d.Key(), q.Turn.T, q.Stage, q.Turn.Label)
			}
		}
	}
	if asked < 20 || after == 0 || after == asked {
		t.Errorf("%d questions, %d of them after the mediator's line", asked, after)
	}
}
