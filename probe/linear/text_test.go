package linear

import (
	"errors"
	"regexp"
	"slices"
	"strings"
	"testing"
)

func FuzzWords(f *testing.F) {
	for _, s := range []string{"", "a bb ccc", "It's 1st-class_x", "日本 語", "é̀a \xff zz", "ǅungla İstanbul"} {
		f.Add(s)
	}
	word := regexp.MustCompile(`[\p{L}\p{N}_]+`)
	f.Fuzz(func(t *testing.T, s string) {
		var want, got []string
		for _, w := range word.FindAllString(strings.ToLower(s), -1) {
			if len([]rune(w)) >= 2 {
				want = append(want, w)
			}
		}
		eachTerm(s, false, func(b []byte) { got = append(got, string(b)) })
		if !slices.Equal(got, want) {
			t.Errorf("words of %q: %q, want %q", s, got, want)
		}
		got = nil
		eachTerm(s, true, func(b []byte) { got = append(got, string(b)) })
		for i := 1; i < len(want); i++ {
			if pair := want[i-1] + " " + want[i]; !slices.Contains(got, pair) {
				t.Errorf("no pair %q in %q", pair, got)
			}
		}
	})
}

func TestVectorizerKnowsOnlyTrainingTexts(t *testing.T) {
	v, err := FitVectorizer([]string{"red green", "red blue"}, VectorizerOptions{MinDocs: 2})
	if err != nil {
		t.Fatal(err)
	}
	x := v.Transform([]string{"Red red YELLOW", "blue"})
	if got := v.Terms(); !slices.Equal(got, []string{"red"}) {
		t.Errorf("terms %q, want only the word of both texts", got)
	}
	if got := x.Dot(0, []float64{1}); got != 2 {
		t.Errorf("the first text has red %v times, want 2", got)
	}
	if got := x.Dot(1, []float64{1}); got != 0 {
		t.Errorf("the second text has red %v times, want 0", got)
	}
	for name, texts := range map[string][]string{"none": nil, "only short words": {"a b c"}, "too rare": {"red", "green"}} {
		if _, err := FitVectorizer(texts, VectorizerOptions{MinDocs: 2}); !errors.Is(err, ErrNoTerms) {
			t.Errorf("%s: error %v, want ErrNoTerms", name, err)
		}
	}
}
