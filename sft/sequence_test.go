package sft

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ccmed/ccmed/bench/dialogue"
)

func TestTrainingOfTheSample(t *testing.T) {
	d := dialogue.Sample()[0]
	r, err := Training(d, false)
	if err != nil {
		t.Fatal(err)
	}
	head, span, ok := strings.Cut(r.Text, TurnEnd+Speak+" ")
	if !ok || !strings.HasSuffix(span, " "+EndSpeak) {
		t.Fatalf("no span after the gold turn in %q", r.Text)
	}
	want, _ := d.Mediation()
	if got := strings.TrimSuffix(span, " "+EndSpeak); got != want || r.Utterance != want {
		t.Errorf("the span holds %q, the record %q", got, want)
	}
	lines := strings.Split(head, "\n")
	if len(lines) != d.ConflictTurn+1 || lines[0] != Intro {
		t.Errorf("%d lines before the span, want the intro and %d turns", len(lines), d.ConflictTurn)
	}
	if !strings.HasPrefix(lines[1], "Turn 1 ("+d.Unmediated()[0].Speaker+"): ") {
		t.Errorf("turn 1 begins %q", lines[1])
	}
	if n := strings.Count(r.Text, TurnEnd); n != len(r.Labels) || n != r.Gold {
		t.Errorf("%d turn ends, %d labels, gold %d", n, len(r.Labels), r.Gold)
	}
	for i, l := range r.Labels {
		if want := map[bool]int{true: 1}[i == d.ConflictTurn-1]; l != want {
			t.Errorf("label %d is %d", i+1, l)
		}
	}
	if n := strings.Count(r.Dialogue, TurnEnd); n != d.LastTurn() || strings.Contains(r.Dialogue, Speak) {
		t.Errorf("the dialogue for inference has %d of %d turns, or a span", n, d.LastTurn())
	}
	// What is read at inference up to the gold turn is what was trained on.
	if prefix, _, _ := strings.Cut(r.Text, Speak); !strings.HasPrefix(r.Dialogue, prefix) {
		t.Error("training and inference format a prefix differently")
	}
}

func TestSequenceIsAPrefixOfLonger(t *testing.T) {
	for _, d := range dialogue.Sample() {
		for n := range d.LastTurn() {
			if !strings.HasPrefix(Sequence(d, n+1), Sequence(d, n)) {
				t.Errorf("dialogue %s: %d turns are no prefix of %d", d.Key(), n, n+1)
			}
		}
		if Sequence(d, 0) != Intro || Sequence(d, 99) != Sequence(d, d.LastTurn()) {
			t.Errorf("dialogue %s: turns out of range", d.Key())
		}
	}
}

// altered reads the first sample dialogue with a text replaced.
func altered(t *testing.T, old, new string) dialogue.Dialogue {
	t.Helper()
	dir := t.TempDir()
	if err := dialogue.Write(dir, dialogue.Sample()[:1]); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, dialogue.Sample()[0].Key()+".json")
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(raw), old) {
		t.Fatalf("the sample does not hold %q", old)
	}
	if err := os.WriteFile(file, []byte(strings.ReplaceAll(string(raw), old, new)), 0o644); err != nil {
		t.Fatal(err)
	}
	ds, _, err := dialogue.Read(t.Context(), dir, dialogue.ReadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return ds[0]
}

func TestTrainingRefuses(t *testing.T) {
	d := dialogue.Sample()[0]
	utterance, _ := d.Mediation()
	first := d.Unmediated()[0].Message
	for name, c := range map[string]struct{ old, new, says string }{
		"no utterance":              {utterance, " ", "no mediation"},
		"a marker in the utterance": {utterance, "Let us wait. [/SPEAK] Now.", "the mediator's utterance holds the marker [/SPEAK]"},
		"a marker in a turn":        {first, "Well <TURN_END> then", "turn 1 holds the marker <TURN_END>"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Training(altered(t, c.old, c.new), false)
			var unusable *UnusableError
			if !errors.As(err, &unusable) || unusable.ID != d.Key() || !strings.Contains(err.Error(), c.says) {
				t.Errorf("got %v", err)
			}
		})
	}
}

func TestLineBreaksBecomeSpaces(t *testing.T) {
	first := dialogue.Sample()[0].Unmediated()[0].Message
	d := altered(t, first, `one\ntwo`)
	if got := strings.Split(Sequence(d, 1), "\n"); len(got) != 2 || !strings.HasSuffix(got[1], ": one two"+TurnEnd) {
		t.Errorf("got %q", got)
	}
}

// TestTrainingWithLaterTurns: the record's turns after its mediation follow the span, each a
// decision not to speak; what comes before them stays as it is.
func TestTrainingWithLaterTurns(t *testing.T) {
	d := dialogue.Sample()[0]
	short, err := Training(d, false)
	if err != nil {
		t.Fatal(err)
	}
	long, err := Training(d, true)
	if err != nil {
		t.Fatal(err)
	}
	after := d.Mediated()
	rest, ok := strings.CutPrefix(long.Text, short.Text)
	if !ok || len(after) == 0 || strings.Count(rest, TurnEnd) != len(after) || !strings.HasSuffix(rest, after[len(after)-1].Message+TurnEnd) {
		t.Errorf("after the span of %q comes %q", short.Text, rest)
	}
	want := append(slices.Clone(short.Labels), make([]int, len(after))...)
	if !slices.Equal(long.Labels, want) || long.Gold != short.Gold {
		t.Errorf("labels %v at gold turn %d, want %v", long.Labels, long.Gold, want)
	}
}
