package timing

import (
	"strings"
	"testing"
)

// cautioned is a result with cautions only for what change makes of it.
func cautioned(change func(*Scored)) string {
	r := &Result{Scored: Scored{Metrics: Metrics{Mode: Stream, N: 100, Scored: 100, Correct: 90},
		Baselines: []BaselineResult{{Name: "longest turn", N: 100, Accuracy: 0.7, Predicted: []int{3}}, {Name: MarkerBaseline, N: 100, Accuracy: 0.4, Predicted: []int{3}}}}}
	change(&r.Scored)
	return strings.Join(r.OwnCautions(), "\n")
}

// Every caution has a run that it stands beside, and one like it that it does not.
func TestCautions(t *testing.T) {
	if got := cautioned(func(*Scored) {}); got != "" {
		t.Errorf("a clean run has the cautions %q", got)
	}
	for says, c := range map[string]struct{ with, without func(*Scored) }{
		"same answer for 95 of 100 dialogues (steps in after turn 3)": {func(s *Scored) { s.DegenerateAnswer = "for 95 of 100 dialogues (steps in after turn 3)" }, func(*Scored) {}},
		"unscored dialogues: 2 (no mass)":                             {func(s *Scored) { s.Unscored = map[string]int{"no mass": 2} }, func(*Scored) {}},
		"longest turn) does as well or better: 70.0 %":                {func(s *Scored) { s.Correct = 70 }, func(s *Scored) { s.Correct = 71 }},
		"marker phrases are in the turns":                             {func(s *Scored) { s.Baselines[1].Accuracy = 0.86 }, func(s *Scored) { s.Baselines[1].Accuracy = 0.49 }},
		"of reasonings end at their cap": {func(s *Scored) { s.Cut = map[string]Rate{StepReason: {K: 3, N: 50}} },
			func(s *Scored) { s.Cut = map[string]Rate{StepReason: {K: 2, N: 50}} }},
		"of lines end at their cap": {func(s *Scored) { s.Cut = map[string]Rate{StepUtterance: {K: 1, N: 2}} }, func(*Scored) {}},
	} {
		if got := cautioned(c.with); !strings.Contains(got, says) {
			t.Errorf("no %q in %q", says, got)
		}
		if got := cautioned(c.without); strings.Contains(got, says) {
			t.Errorf("%q where it does not hold: %q", says, got)
		}
	}
}
