package dialogue

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestRelabel(t *testing.T) {
	d := Sample()[0]
	label := func(turn int, stage string) Label {
		return Label{Item: d.Key(), Turn: turn, Stage: stage, By: "a", Text: d.TextHash(turn)}
	}
	got, err := Relabel([]Dialogue{d}, []Label{label(3, "Denial"), label(5, "Defense"), {Item: "of others", Turn: 4}, label(7, "")})
	if err != nil {
		t.Fatal(err)
	}
	for _, turn := range got[0].Unmediated()[d.ConflictTurn:] {
		want := ""
		if turn.T == 5 {
			want = "Defense"
		}
		if turn.Label != want {
			t.Errorf("turn %d has the label %q, want %q", turn.T, turn.Label, want)
		}
	}
	if d.Unmediated()[4].Label == "" {
		t.Error("the records' own labels are gone")
	}
	for want, l := range map[string]Label{
		"about turn 99":     {Item: d.Key(), Turn: 99},
		"about other words": {Item: d.Key(), Turn: 5, Text: "00"},
	} {
		if _, err := Relabel([]Dialogue{d}, []Label{l}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// By hand: of four turns that both labelled two have the same stage. Both sides have Denial
// once, Defense twice and Minimization once, so that kappa is 1 − 0.5/1.
func TestCompareLabels(t *testing.T) {
	ds := Sample()[:2]
	var a, b []Label
	for i, stages := range [][2]string{{"Denial", "Denial"}, {"Defense", "Minimization"}, {"Minimization", "Defense"}, {"Defense", "Defense"}, {"Denial", ""}} {
		l := Label{Item: ds[i%2].Key(), Turn: 3 + i, By: "a", Text: ds[i%2].TextHash(3 + i)}
		l.Stage = stages[0]
		a = append(a, l)
		l.Stage = stages[1]
		b = append(b, l)
	}
	g, err := CompareLabels(a, append(b, Label{Item: "of others", Turn: 3, Stage: "Denial"}), ds, 1)
	if err != nil || g.Turns != 4 || g.Agree != 2 {
		t.Fatalf("%+v, %v; want 2 of 4", g, err)
	}

	expected := 2.0 * (1*2*1 + 2*1*1 + 1*1*4) / 16
	if want := 1 - 0.5/expected; g.Kappa.Value < want-1e-12 || g.Kappa.Value > want+1e-12 {
		t.Errorf("kappa %v, want %v", g.Kappa.Value, want)
	}
	if g, err := CompareLabels(a, nil, ds, 1); g != nil || err != nil {
		t.Errorf("without another's: %+v, %v", g, err)
	}
}

func TestReadLabels(t *testing.T) {
	path := filepath.Join(t.TempDir(), "l.jsonl")
	for _, l := range []Label{{Item: "1", Turn: 3, Stage: "Denial", By: "a"}, {Item: "1", Turn: 5, By: "a"}, {Item: "1", Turn: 3, Stage: "Defense", By: "a"}} {
		if err := AppendLabel(path, l); err != nil {
			t.Fatal(err)
		}
	}
	ls, err := ReadLabels(path)
	if err != nil || len(ls) != 2 || ls[0].Stage != "Defense" || ls[1].Stage != "" {
		t.Errorf("%+v, %v; want the last label of turn 3, and a skipped turn", ls, err)
	}
	for line, want := range map[string]string{`{"item":"1","turn":3,"stage":"Anger"}`: ":1: ", `{"item":`: ":1: ", `{"item":"1","Item":"2"}`: "case"} {
		if err := os.WriteFile(path, []byte(line+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := ReadLabels(path); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", line, err, want)
		}
	}
}
