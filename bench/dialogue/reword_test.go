package dialogue

import (
	"strings"
	"testing"
)

func TestReword(t *testing.T) {
	d := Sample()[0]
	before := Transcript(d.Unmediated())
	got := d.Reword(strings.ToUpper)
	if Transcript(d.Unmediated()) != before {
		t.Error("the dialogue itself changed")
	}
	for i, turn := range d.Unmediated() {
		want := turn
		want.Message = strings.ToUpper(turn.Message)
		if got.Unmediated()[i] != want {
			t.Errorf("turn %d is %+v, want %+v", turn.T, got.Unmediated()[i], want)
		}
	}
	if len(got.Mediated()) != len(d.Mediated()) || got.Mediated()[0] != d.Mediated()[0] || got.Key() != d.Key() || got.ContextKey() != d.ContextKey() {
		t.Error("more than the unmediated messages changed")
	}
}
