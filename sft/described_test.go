package sft

import (
	"strings"
	"testing"
)

func TestTrainingCautions(t *testing.T) {
	leaking := &Export{Leaks: map[string]Leaks{"evaluation": {Contexts: Overlap{Shared: 151, Of: 159}}}}
	whole := strings.Join((&Manifest{Status: TrainDone, Export: &Export{}, Config: Config{Seed: 7}}).Cautions(), "\n")
	broken := strings.Join((&Manifest{Status: TrainInterrupted, Export: leaking}).Cautions(), "\n")
	for _, w := range []string{"not finished (interrupted)", "95.0 % (151/159)"} {
		if !strings.Contains(broken, w) || strings.Contains(whole, w) {
			t.Errorf("%q: with it %q, without it %q", w, broken, whole)
		}
	}
	if !strings.Contains(whole, "one seed (7)") {
		t.Errorf("%q", whole)
	}
}
