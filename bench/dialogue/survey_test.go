package dialogue

import "testing"

func TestSurvey(t *testing.T) {
	for template, want := range map[string]item{
		"that having the army rule is bad.":  {dimension: "political culture and political regimes", name: "army rule"},
		"that having the army rule is good.": {dimension: "political culture and political regimes", name: "army rule"},
		"in the press.":                      {dimension: "social capital, trust and organizational membership", name: "confidence in the press"},
		"confidence in the press at all.":    {dimension: "social capital, trust and organizational membership", name: "confidence in the press"},
		"that tea is better than coffee.":    {name: "that tea is better than coffee."},
	} {
		if it, _ := lookup(template); it.dimension != want.dimension || Question(template) != want.name {
			t.Errorf("%q: dimension %q, question %q", template, it.dimension, Question(template))
		}
	}
}
