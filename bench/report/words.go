package report

import (
	"cmp"
	"html/template"
	"regexp"
	"slices"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"

	"github.com/ccmed/ccmed/bench/visible"
	"github.com/ccmed/ccmed/docs"
)

// words defines the terms of the glossary where a page uses them.
type words struct {
	used map[string]bool // by the first name of a term
}

// glossary finds the names of terms, the longest first.
var glossary = sync.OnceValues(func() (*regexp.Regexp, map[string]docs.Term) {
	terms := map[string]docs.Term{}
	var names []string
	for _, t := range docs.Glossary() {
		for _, n := range t.Names {
			names = append(names, regexp.QuoteMeta(n))
			terms[n] = t
		}
	}
	slices.SortFunc(names, func(a, b string) int { return cmp.Compare(len(b), len(a)) })
	return regexp.MustCompile(strings.Join(names, "|")), terms
})

// mark returns a text as HTML in which the names that a reader cannot know, those with a
// capital, are defined at hover where they come first.
func (w words) mark(text string) template.HTML {
	text = visible.Text(text)
	var b strings.Builder
	at := 0
	here := map[string]bool{}
	names, terms := glossary()
	for _, m := range names.FindAllStringIndex(text, -1) {
		name := text[m[0]:m[1]]
		before, _ := utf8.DecodeLastRuneInString(text[:m[0]])
		after, _ := utf8.DecodeRuneInString(text[m[1]:])
		if inWord(before) || inWord(after) {
			continue
		}
		t := terms[name]
		w.used[t.Names[0]] = true
		if here[name] || !strings.ContainsFunc(name, func(r rune) bool { return unicode.IsUpper(r) || r == 'κ' }) {
			continue
		}
		here[name] = true
		b.WriteString(template.HTMLEscapeString(text[at:m[0]]) + `<abbr title="` + template.HTMLEscapeString(t.Meaning) + `">` + template.HTMLEscapeString(name) + "</abbr>")
		at = m[1]
	}
	b.WriteString(template.HTMLEscapeString(text[at:]))
	return template.HTML(b.String())
}

func (w words) markAll(texts []string) []template.HTML {
	out := make([]template.HTML, len(texts))
	for i, s := range texts {
		out[i] = w.mark(s)
	}
	return out
}

// inWord says whether a character beside a name makes it a part of a longer one.
func inWord(r rune) bool {
	return unicode.IsLetter(r) || unicode.IsDigit(r) || r == '-' || r == '_'
}

// list is a table of the terms that were used.
func (w words) list() Table {
	t := Table{Columns: []Column{{Name: "word"}, {Name: "meaning"}}}
	for _, x := range docs.Glossary() {
		if w.used[x.Names[0]] {
			t.Rows = append(t.Rows, []Cell{Text(strings.Join(x.Names, ", ")), Text(x.Meaning)})
		}
	}
	return t
}
