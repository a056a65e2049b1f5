package dialogue

import (
	"fmt"
	"regexp"
	"strings"
)

// Transcript writes turns one a line, "Turn 3 (Mina): ..."; a mediator's turn
// has no number: "Mediator: ...". Line breaks within a message become a space.
func Transcript(turns []Turn) string {
	var b strings.Builder
	for _, t := range turns {
		text := strings.Join(strings.FieldsFunc(t.Message, lineBreak), " ")
		if t.Agent == Mediator {
			fmt.Fprintf(&b, "Mediator: %s\n", text)
			continue
		}
		fmt.Fprintf(&b, "Turn %d (%s): %s\n", t.T, t.Speaker, text)
	}
	return b.String()
}

// lineBreak tells whether a character begins a new line: those of Unicode's
// mandatory breaks (UAX #14).
func lineBreak(r rune) bool {
	return r >= '\n' && r <= '\r' || r == '\u0085' || r == '\u2028' || r == '\u2029'
}

// OneLine returns text with a space for every line break, so that it stays one
// turn, or one line of a prompt.
func OneLine(text string) string {
	return strings.Map(func(r rune) rune {
		if lineBreak(r) {
			return ' '
		}
		return r
	}, strings.ReplaceAll(text, "\r\n", "\n"))
}

// head is how a line begins that reads as a turn: up to three words and a colon.
var head = regexp.MustCompile(`(?m)^[^\p{L}\n]{0,6}\p{L}[^\s:：]*(?:[ \t]+[^\s:：]+){0,2}\s*[:：]`)

// OneTurn returns a message for a chat, in which nobody but the role says who
// speaks. It returns text as it is, paragraphs included, unless a line of it
// begins as a turn does ("[Mediator]: ..."): then it is one line after the name of
// its speaker, where that is given.
func OneTurn(speaker, text string) string {
	lines := strings.Map(func(r rune) rune {
		if lineBreak(r) {
			return '\n'
		}
		return r
	}, text)
	switch {
	case !head.MatchString(lines):
		return text
	case speaker == "":
		return OneLine(text)
	}
	return speaker + ": " + OneLine(text)
}
