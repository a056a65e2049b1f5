package timing

import (
	"strings"
	"testing"

	"github.com/ccmed/ccmed/bench/stats"
)

// TestHeadline: what may not be cited is said and marked, and a model that is better than
// every rule is not spoken down.
func TestHeadline(t *testing.T) {
	said := func(change func(*Scored)) (string, bool) {
		s := Scored{Metrics: Metrics{N: 100, Scored: 100, Correct: 60, Mode: Stream, TurnAcc: &stats.Estimate{Value: 0.6, Lo: 0.5, Hi: 0.7, N: 100, Groups: 50}},
			Baselines: []BaselineResult{{Name: "longest turn", Accuracy: 0.4, N: 100, Predicted: make([]int, 100)}}}
		change(&s)
		h := (&Result{Scored: s}).headline()
		return h.Sentence, len(h.Rows) > 0 && h.Rows[0].Warned
	}
	for name, c := range map[string]struct {
		change func(*Scored)
		want   string
		warned bool
	}{
		"better than every rule": {func(*Scored) {}, "in 60.0 % (60/100) [50.0, 70.0]; the best rule without a language model (longest turn) does in 40.0 % (40/100).", false},
		"no better than a rule":  {func(s *Scored) { s.Baselines[0].Accuracy = 0.6 }, "so that this does not show that it understands when to step in.", true},
		"hardly better":          {func(s *Scored) { s.Baselines[0].Accuracy = 0.55 }, "the model is not shown to be better than the rule.", true},
		"one answer for all":     {func(s *Scored) { s.DegenerateAnswer = "for all 100 dialogues (never steps in)" }, "same answer for all 100 dialogues (never steps in), which shows no sense of timing.", true},
		"no rule beside it":      {func(s *Scored) { s.Baselines = nil }, "nobody knows how easy these dialogues are", true},
		"nothing scored":         {func(s *Scored) { s.Scored = 0 }, "gave no answer that could be scored", false},
	} {
		got, warned := said(c.change)
		if !strings.Contains(got, c.want) || warned != c.warned {
			t.Errorf("%s: %q, warned %t", name, got, warned)
		}
		if !c.warned && strings.Contains(got, "does not show") {
			t.Errorf("%s: %q", name, got)
		}
	}
}
