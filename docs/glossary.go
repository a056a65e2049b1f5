// Package docs holds the glossary, so that pages define terms in the words of the
// documentation.
package docs

import (
	_ "embed"
	"strings"
)

//go:embed glossary.md
var glossary string

// Term is a row of the glossary.
type Term struct {
	Names   []string // the term, and how else it is written
	Meaning string
}

// Glossary returns the terms in the order of the page.
func Glossary() []Term {
	var out []Term
	for line := range strings.Lines(glossary) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		if len(cells) != 2 || strings.HasPrefix(cells[0], "---") || strings.TrimSpace(cells[0]) == "word" {
			continue
		}
		out = append(out, Term{strings.Split(strings.TrimSpace(cells[0]), ", "), strings.ReplaceAll(strings.TrimSpace(cells[1]), "`", "")})
	}
	return out
}
