package report

import (
	"strings"
	"testing"

	"github.com/ccmed/ccmed/docs"
)

// A name with a capital is defined where it first stands; a part of a longer name is not, and
// no text becomes an element.
func TestWordsAreDefined(t *testing.T) {
	w := words{map[string]bool{}}
	for text, want := range map[string]string{
		"ΔAUC, ND": `<abbr title="AUC minus that of the same dialogue without a mediator">ΔAUC</abbr>, <abbr title="a condition: the mediator reads the dialogue alone, the stage is not named">ND</abbr>`,
		"<b>turn":  "&lt;b&gt;turn", "WINDOWS AUCS 3D": "WINDOWS AUCS 3D",
	} {
		if got := string(w.mark(text)); got != want {
			t.Errorf("%q becomes %q, want %q", text, got, want)
		}
	}
	var used []string
	for _, r := range w.list().Rows {
		used = append(used, r[0].String())
	}
	if got := strings.Join(used, " "); got != "turn ND ΔAUC" {
		t.Errorf("the words used are %q", got)
	}
}

func TestEveryTermHasOneMeaning(t *testing.T) {
	seen := map[string]bool{}
	for _, x := range docs.Glossary() {
		for _, n := range x.Names {
			if seen[n] || n == "" || x.Meaning == "" {
				t.Errorf("%q is defined twice, or not at all: %q", n, x.Meaning)
			}
			seen[n] = true
		}
	}
	if len(seen) < 60 {
		t.Errorf("only %d words are defined", len(seen))
	}
}
