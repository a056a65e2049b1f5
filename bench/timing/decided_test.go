package timing

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/ccmed/ccmed/bench/dialogue"
	"github.com/ccmed/ccmed/bench/run"
)

func TestDecideAt(t *testing.T) {
	d := dialogue.Sample()[0]
	p := make([]float64, d.LastTurn())
	p[1], p[4], p[6] = 0.9, 0.4, 0.7
	for _, c := range []struct {
		first     int
		threshold float64
		want      int
	}{{3, 0.5, 7}, {3, 0.4, 5}, {1, 0.5, 2}, {3, 0.71, 0}, {7, 0.7, 7}, {8, 0.5, 0}} {
		dec, err := DecideAt(d, p, c.first, c.threshold)
		if err != nil {
			t.Fatal(err)
		}
		if dec.Predicted != c.want || dec.Mode != DualHead || dec.Threshold != c.threshold {
			t.Errorf("from turn %d at %g: %d, want %d", c.first, c.threshold, dec.Predicted, c.want)
		}
	}
	if _, err := DecideAt(d, p[1:], 3, 0.5); err == nil || !strings.Contains(err.Error(), d.Key()) {
		t.Errorf("a probability too few: %v", err)
	}
}

func TestAtThreshold(t *testing.T) {
	d := dialogue.Sample()[0]
	p := make([]float64, d.LastTurn())
	p[3], p[5] = 0.3, 0.8
	dec, err := DecideAt(d, p, 3, 0.5)
	if err != nil {
		t.Fatal(err)
	}
	encode := func(v any) json.RawMessage {
		b, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	there := []run.Sample{
		{Key: run.Key{Step: StepDecide, Item: d.Key()}, Data: encode(dec)},
		{Key: run.Key{Step: StepUtterance, Item: d.Key()}, Data: encode(Utterance{Text: "text"})},
	}
	a := answers(t, there)
	for threshold, want := range map[float64]int{0.5: 6, 0.3: 4, 0.9: 0} {
		ds := a.AtThreshold(threshold).Decided
		if len(ds) != 1 || ds[0].Predicted != want || ds[0].Threshold != threshold || !slices.EqualFunc(ds[0].Curve, dec.Curve, func(a, b Point) bool { return a.P == b.P }) {
			t.Errorf("at %g: %+v, want turn %d", threshold, ds, want)
		}
	}
	if got := a.Decided[0].Predicted; got != 6 {
		t.Errorf("the answers themselves changed: turn %d", got)
	}
}

func TestMaskMarkers(t *testing.T) {
	for turn, want := range map[string]string{
		"":                            "",
		"I brought some tea for us.":  "I brought some tea for us.",
		"Deep down, we’re all alike.": "…, … alike.",
		"YOUR people are naïve, ok?":  "… are naïve, ok?",
		"We have NO tea, said UNESCO": "We have NO tea, said unesco",
		"Whatever. I DON'T care":      "…. I don'T care",
		"UNİVERSAL":                   "…",
	} {
		if got := MaskMarkers(turn); got != want {
			t.Errorf("%q becomes %q, want %q", turn, got, want)
		}
	}
	for _, d := range dialogue.Sample() {
		marks := 0
		for _, turn := range d.Unmediated() {
			marks += markerScore(turn.Message)
			once := MaskMarkers(turn.Message)
			if n := markerScore(once); n != 0 {
				t.Errorf("%q still gives %d points", once, n)
			}
			if again := MaskMarkers(once); again != once {
				t.Errorf("masking %q again gives %q", once, again)
			}
		}
		if masked := d.Reword(MaskMarkers); marks > 0 && dialogue.Transcript(masked.Unmediated()) == dialogue.Transcript(d.Unmediated()) {
			t.Errorf("dialogue %s has %d marks and masking leaves it alone", d.Key(), marks)
		}
	}
}

func FuzzMaskMarkers(f *testing.F) {
	f.Add("Our WAY, everyone is THE SAME; don't see it")
	f.Add("İſ\xffK everywhere")
	f.Fuzz(func(t *testing.T, turn string) {
		if got := MaskMarkers(turn); markerScore(got) != 0 {
			t.Errorf("%q becomes %q, which still gives points", turn, got)
		}
	})
}
