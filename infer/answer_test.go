package infer_test

import (
	"encoding/json"
	"errors"
	"math"
	"testing"

	"github.com/ccmed/ccmed/infer"
)

func lp(p float64) float64 { return math.Log(p) }

func TestMerge(t *testing.T) {
	inf := math.Inf(-1)
	for _, c := range []struct {
		name     string
		top      []infer.TokenLogprob
		p        []float64 // of "1", "2", "3"
		bound    []float64
		unscored string
	}{
		{"variants are added, not the larger one taken",
			[]infer.TokenLogprob{{"2", lp(0.5)}, {" 2", lp(0.25)}, {"1", lp(0.05)}},
			[]float64{0.05, 0.75, 0}, []float64{0.1, 0.75, 0.1}, ""},
		{"an answer not seen is bounded by the smallest probability seen, a variant each",
			[]infer.TokenLogprob{{"1", lp(0.4)}, {"x", lp(0.01)}},
			[]float64{0.4, 0, 0}, []float64{0.41, 0.02, 0.02}, ""},
		{"and by the mass that is left",
			[]infer.TokenLogprob{{"1", lp(0.6)}, {"x", lp(0.399)}},
			[]float64{0.6, 0, 0}, []float64{0.601, 0.001, 0.001}, ""},
		{"a probability of 0 is dropped", []infer.TokenLogprob{{"1", lp(0.5)}, {"2", inf}}, []float64{0.5, 0, 0}, []float64{1, 0.5, 0.5}, ""},
		{"a missing one leaves nothing to rely on", []infer.TokenLogprob{{"1", lp(0.5)}, {" 2", math.NaN()}},
			[]float64{0, 0, 0}, []float64{1, 1, 1}, `the log-probability of " 2" is missing`},
		{"all missing", []infer.TokenLogprob{{"1", math.NaN()}, {"2", math.NaN()}}, []float64{0, 0, 0}, []float64{1, 1, 1}, `the log-probability of "1" is missing`},
		{"infinitely probable", []infer.TokenLogprob{{"1", lp(0.5)}, {"3", math.Inf(1)}}, []float64{0, 0, 0}, []float64{1, 1, 1},
			`the log-probability of "3" is +Inf, above 0`},
		{"logits", []infer.TokenLogprob{{"1", 14.2}, {"2", 13.9}}, []float64{0, 0, 0}, []float64{1, 1, 1}, `the log-probability of "1" is 14.2, above 0`},
		{"negative logits", []infer.TokenLogprob{{"1", -0.1}, {"2", -0.2}}, []float64{0, 0, 0}, []float64{1, 1, 1},
			"the probabilities of the alternatives add up to 1.724"},
		{"a little above 0 by rounding", []infer.TokenLogprob{{"1", 1e-6}, {"2", -16}}, []float64{1, math.Exp(-16), 0}, []float64{1, math.Exp(-16), 0}, ""},
		{"an entry twice counts once", []infer.TokenLogprob{{"1", -0.92}, {"1", -0.92}, {"2", -0.69}},
			[]float64{math.Exp(-0.92), math.Exp(-0.69), 0}, []float64{math.Exp(-0.92) + 1 - math.Exp(-0.92) - math.Exp(-0.69), 1 - math.Exp(-0.92), 1 - math.Exp(-0.69) - math.Exp(-0.92)}, ""},
		{"two tokens of one text add up", []infer.TokenLogprob{{"1", lp(0.5)}, {"1", lp(0.25)}}, []float64{0.75, 0, 0}, []float64{1, 0.25, 0.25}, ""},
		{"halves of characters are different tokens", []infer.TokenLogprob{{"1", lp(0.5)}, {"\uFFFD", lp(0.2)}, {"\uFFFD", lp(0.2)}},
			[]float64{0.5, 0, 0}, []float64{0.6, 0.1, 0.1}, ""},
		{"nothing came back", nil, []float64{0, 0, 0}, []float64{1, 1, 1}, "no log-probabilities were returned"},
		{"only infinite ones", []infer.TokenLogprob{{"1", inf}}, []float64{0, 0, 0}, []float64{1, 1, 1}, "no log-probabilities were returned"},
		{"no answer among them", []infer.TokenLogprob{{"The", lp(0.9)}}, []float64{0, 0, 0}, []float64{0.1, 0.1, 0.1}, infer.NoAnswerSeen},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := infer.Merge(c.top, infer.Digits(1, 3))
			if err != nil {
				t.Fatal(err)
			}
			for i := range c.p {
				if math.Abs(got.P[i]-c.p[i]) > 1e-12 || math.Abs(got.Bound[i]-c.bound[i]) > 1e-12 {
					t.Errorf("answer %d: P %v bound %v, want %v and %v", i+1, got.P[i], got.Bound[i], c.p[i], c.bound[i])
				}
			}
			if got.Unscored != c.unscored {
				t.Errorf("unscored %q, want %q", got.Unscored, c.unscored)
			}
			if _, err := json.Marshal(got); err != nil {
				t.Errorf("the choice does not go into JSON: %v", err)
			}
			if c.unscored != "" && got.Argmax() != -1 {
				t.Errorf("an unscored choice has the argmax %d", got.Argmax())
			}
		})
	}
}

// Whatever comes back: probabilities are in 0..1, bounds are not below them, the
// mass is their sum, and everything fits into JSON.
func FuzzMerge(f *testing.F) {
	f.Add(-0.5, -1.5, math.Inf(-1))
	f.Add(0.0, 0.0, 0.0)
	f.Add(math.NaN(), -700.0, 5.0)
	f.Fuzz(func(t *testing.T, a, b, c float64) {
		got, err := infer.Merge([]infer.TokenLogprob{{"1", a}, {" 1", b}, {"2", c}}, infer.Digits(1, 3))
		if err != nil {
			t.Fatal(err)
		}
		sum := 0.0
		for i, p := range got.P {
			if !(p >= 0 && p <= 1) || !(got.Bound[i] >= p && got.Bound[i] <= 1) {
				t.Errorf("P %v, bound %v", p, got.Bound[i])
			}
			sum += p
		}
		if got.Unscored == "" && (math.IsNaN(a+b) || a > 0.01 || math.Exp(a)+math.Exp(b) > 1.01 && a != b) {
			t.Errorf("scored %v %v %v", a, b, c)
		}
		if math.Abs(math.Min(1, sum)-got.Mass) > 1e-9 {
			t.Errorf("mass %v of a sum of %v", got.Mass, sum)
		}
		if _, err := json.Marshal(got); err != nil {
			t.Error(err)
		}
	})
}

func TestAnswersMustDifferInTheirFirstToken(t *testing.T) {
	same := []infer.Answer{{Label: "turn 1", Variants: []string{"Turn"}}, {Label: "turn 2", Variants: []string{"Turn"}}}
	if _, err := infer.Merge(nil, same); !errors.Is(err, infer.ErrAmbiguous) {
		t.Errorf("got %v, want ErrAmbiguous", err)
	}
	if err := infer.CheckAnswers([]infer.Answer{{Label: "x"}}); err == nil {
		t.Error("an answer without variants was accepted")
	}
	for name, as := range map[string][]infer.Answer{
		"digits": infer.Digits(0, 9), "words": infer.Words("yes", "no"), "letters": infer.Letters(26),
	} {
		if err := infer.CheckAnswers(as); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestArgmax(t *testing.T) {
	for _, c := range []struct {
		choice infer.Choice
		want   int
	}{
		{infer.Choice{P: []float64{0.1, 0.3, 0.3}}, 1},
		{infer.Choice{P: []float64{0, 0}}, -1},
		{infer.Choice{P: []float64{0.9}, Unscored: "x"}, -1},
	} {
		if got := c.choice.Argmax(); got != c.want {
			t.Errorf("%+v: %d, want %d", c.choice, got, c.want)
		}
	}
}

// What a server did not give stays apart from a certainty, in files as well.
func TestMissingLogprobsInJSON(t *testing.T) {
	for text, want := range map[string]float64{
		`{"token":"4"}`: math.NaN(), `{"token":"4","logprob":null}`: math.NaN(), `{"token":"4","logprob":0}`: 0, `{"token":"4","logprob":-1.5,"bytes":[52]}`: -1.5,
	} {
		var got infer.TokenLogprob
		if err := json.Unmarshal([]byte(text), &got); err != nil || got.Token != "4" || got.Logprob != want && !(math.IsNaN(want) && math.IsNaN(got.Logprob)) {
			t.Errorf("%s: %+v, %v", text, got, err)
		}
		b, err := json.Marshal(got)
		var again infer.TokenLogprob
		if e := json.Unmarshal(b, &again); err != nil || e != nil || math.IsNaN(again.Logprob) != math.IsNaN(want) {
			t.Errorf("%s: written as %s (%v, %v)", text, b, err, e)
		}
	}
	if err := json.Unmarshal([]byte(`{"token":"4","logprob":"high"}`), new(infer.TokenLogprob)); err == nil {
		t.Error("a word was read as a log-probability")
	}
}
