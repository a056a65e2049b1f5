package reasoning

import "testing"

func TestFinder(t *testing.T) {
	for _, c := range []struct {
		name     string
		inside   bool
		tokens   []string
		want     State
		at       int // index of the token that gave want
		thinking string
	}{
		{"plain digit", false, []string{"4"}, Plain, 0, ""},
		{"mark in one token", false, []string{"<think>", "\n", "two", "</think>", "\n\n", "4", "2"}, Answer, 5, "two"},
		{"mark in pieces", false, []string{"<", "think", ">", "hm", "</", "think", ">", "4"}, Answer, 7, "hm"},
		{"no reasoning after all", false, []string{"<", "b", ">"}, Plain, 1, ""},
		{"empty reasoning", false, []string{"<think>", "</think>", "4"}, Answer, 2, ""},
		{"opened in the prompt", true, []string{"so", " it", " is", "</think>", " ", "4"}, Answer, 5, "so it is"},
		{"straddles", false, []string{"<think>", "x", "</think>4"}, Merged, 2, "x"},
		{"never closed", false, []string{"<think>", "x", "4"}, Open, 2, "x4"},
		{"harmony", false, []string{"<|channel|>", "analysis", "<|message|>", "so", "<|end|>", "<|start|>", "assistant",
			"<|channel|>", "final", "<|message|>", "4"}, Answer, 10, "so"},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := Finder{Inside: c.inside}
			state, at := Open, -1
			for i, tok := range c.tokens {
				state, at = f.Add(tok), i
				if state == Plain || state == Answer || state == Merged {
					break
				}
			}
			if state != c.want || at != c.at {
				t.Errorf("state %v at token %d, want %v at %d", state, at, c.want, c.at)
			}
			if got := f.Thinking(); got != c.thinking {
				t.Errorf("thinking %q, want %q", got, c.thinking)
			}
		})
	}
}
