package probe_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/ccmed/ccmed/bench/dmis"
	"github.com/ccmed/ccmed/probe"
)

// scripted returns ten turns of each of three stages with a phrase of each stage
// amid words of their own.
func scripted() []probe.ScriptedTurn {
	phrases := map[dmis.Stage]string{dmis.Denial: "people figure it out", dmis.Defense: "our way is better", dmis.Minimization: "we're all the same"}
	var out []probe.ScriptedTurn
	for i := range 30 {
		s := dmis.Stage(i % 3)
		out = append(out, probe.ScriptedTurn{Item: fmt.Sprint(i), Stage: s, Text: fmt.Sprintf("Well, about item%d: %s. Anyway, let us go on.", i, phrases[s])})
	}
	return out
}

func TestMaskKeepsWordsAndHidesMarkers(t *testing.T) {
	turns := scripted()
	e := probe.NewEditor(turns, 1)
	for _, turn := range turns {
		got, missing := e.Edit(probe.EditMask, turn.Item)
		if missing != "" {
			t.Fatal(missing)
		}
		want := fmt.Sprintf("Well, about item%s: ___ ___ ___ ___. Anyway, let us go on.", turn.Item)
		if got.Text != want || got.Masked != 4 {
			t.Errorf("%d words of item %s are masked: %q, want %q", got.Masked, turn.Item, got.Text, want)
		}
		if len(strings.Fields(got.Text)) != len(strings.Fields(turn.Text)) {
			t.Errorf("item %s: the number of words changed", turn.Item)
		}
	}
}

func TestStageNamesAreMasked(t *testing.T) {
	e := probe.NewEditor([]probe.ScriptedTurn{{Item: "1", Stage: dmis.Denial, Text: "That’s DENIAL, not Acceptance."}}, 1)
	got, _ := e.Edit(probe.EditMask, "1")
	if want := "That’s ___, not ___."; got.Text != want {
		t.Errorf("masked %q, want %q", got.Text, want)
	}
}

func TestSwapPutsAnotherStagesPhrase(t *testing.T) {
	turns := scripted()
	phrase := map[string]string{"Denial": "people figure it out", "Defense": "our way is better", "Minimization": "we're all the same"}
	e := probe.NewEditor(turns, 1)
	to := map[string]int{}
	for _, turn := range turns {
		got, missing := e.Edit(probe.EditSwap, turn.Item)
		if missing != "" {
			t.Fatal(missing)
		}
		if got.From != turn.Stage.String() || got.To == got.From || got.Donor == turn.Item {
			t.Errorf("item %s of %s: from %s to %s, donor %s", turn.Item, turn.Stage, got.From, got.To, got.Donor)
		}
		if got.Out != phrase[got.From] || got.In != phrase[got.To] {
			t.Errorf("%q of %s gives way to %q of %s", got.Out, got.From, got.In, got.To)
		}
		if want := strings.Replace(turn.Text, phrase[got.From], phrase[got.To], 1); got.Text != want {
			t.Errorf("swapped %q, want %q", got.Text, want)
		}
		to[got.From+" "+got.To]++
	}
	if len(to) != 6 {
		t.Errorf("swaps are %v, want all six ways", to)
	}
	again := probe.NewEditor(turns, 1)
	other := probe.NewEditor(turns, 2)
	differs := 0
	for _, turn := range turns {
		a, _ := e.Edit(probe.EditSwap, turn.Item)
		b, _ := again.Edit(probe.EditSwap, turn.Item)
		if diff := cmp.Diff(a, b); diff != "" {
			t.Errorf("the same seed gives another swap:\n%s", diff)
		}
		if c, _ := other.Edit(probe.EditSwap, turn.Item); c != a {
			differs++
		}
	}
	if differs == 0 {
		t.Error("another seed gives the same swaps")
	}
}

// A word that all stages share, a phrase across sentences and one that occurs
// once are no markers.
func TestWhatIsNoMarker(t *testing.T) {
	e := probe.NewEditor([]probe.ScriptedTurn{
		{Item: "1", Stage: dmis.Denial, Text: "Shared end. Start one."},
		{Item: "2", Stage: dmis.Denial, Text: "Shared end. Start two."},
		{Item: "3", Stage: dmis.Defense, Text: "Shared end of it. We start."},
		{Item: "4", Stage: dmis.Defense, Text: "Shared end of it. We start."},
	}, 1)
	for item, want := range map[string]string{"1": "Shared end. Start one.", "2": "Shared end. Start two.", "3": "___ ___ ___ ___. ___ ___."} {
		if got, _ := e.Edit(probe.EditMask, item); got.Text != want {
			t.Errorf("masked %q, want %q", got.Text, want)
		}
	}
	if _, missing := e.Edit(probe.EditSwap, "1"); missing == "" {
		t.Error("a turn without a marker of its stage was swapped")
	}
	if got := e.Markers(); got[dmis.Denial] != 1 {
		t.Errorf("%d markers of Denial, want its name alone", got[dmis.Denial])
	}
}

// FuzzEdits: whatever the text, a mask keeps the number of words and what stands
// between them, and a swap changes one stretch.
func FuzzEdits(f *testing.F) {
	for _, s := range []string{"", "Our way. OUR WAY!", "we’re all the same—we're", "…\x80 people figure it out\n___", "ǅ our way is\u00a0better 日本 1,5"} {
		f.Add(s)
	}
	turns := scripted()
	f.Fuzz(func(t *testing.T, text string) {
		e := probe.NewEditor(append(turns, probe.ScriptedTurn{Item: "fuzz", Stage: dmis.Defense, Text: text}), 1)
		got, missing := e.Edit(probe.EditMask, "fuzz")
		if missing != "" || len(strings.Fields(got.Text)) != len(strings.Fields(text)) {
			t.Errorf("masked %q to %q (%s)", text, got.Text, missing)
		}
		if got.Masked == 0 && got.Text != text {
			t.Errorf("no word of %q is masked and it became %q", text, got.Text)
		}
		if got, missing := e.Edit(probe.EditSwap, "fuzz"); missing == "" {
			if len(got.Text)-len(got.In) != len(text)-len(got.Out) || !strings.Contains(got.Text, got.In) || !strings.Contains(text, got.Out) {
				t.Errorf("swapping %q for %q made %q of %q", got.Out, got.In, got.Text, text)
			}
		}
	})
}
