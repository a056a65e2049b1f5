// Package reasoning finds the first token of an answer that comes after
// reasoning, token by token as they are generated.
package reasoning

import (
	"strings"

	"github.com/ccmed/ccmed/infer"
)

// The Unscored reasons for reasoning that leads to no answer token.
const (
	NoAnswer = "reasoning without an answer"
	Mixed    = "the answer shares a token with the end of the reasoning"
)

// State says what the tokens so far amount to.
type State int

const (
	Open   State = iota // reasoning, or the start of its opening mark
	Plain               // no reasoning: the first token was the answer
	Closed              // the reasoning has ended and no answer has begun
	Answer              // the token just added begins the answer
	Merged              // the token just added closes the reasoning and begins the answer
)

// Finder follows a generated text. Set Inside when the prompt, or a server that
// strips the marks, has opened the reasoning already.
type Finder struct {
	Inside bool

	text   strings.Builder
	opened bool
	closed bool
	think  string
}

// Thinking returns the reasoning so far, without its marks.
func (f *Finder) Thinking() string {
	if f.closed {
		return f.think
	}
	t, rest, complete := infer.SplitThinking(f.text.String())
	switch {
	case !complete:
		return t
	case f.Inside:
		return strings.TrimSpace(rest)
	}
	return ""
}

// Add takes the next token's text.
func (f *Finder) Add(token string) State {
	if f.closed {
		if strings.TrimSpace(token) == "" {
			return Closed
		}
		return Answer
	}
	f.text.WriteString(token)
	text := f.text.String()
	think, answer, complete := infer.SplitThinking(text)
	switch {
	case !complete:
		f.opened = true
		return Open
	case !f.opened && think == "" && (f.Inside || infer.OpensThinking(text)):
		return Open
	case !f.opened && think == "":
		return Plain
	}
	f.closed, f.think = true, think
	if strings.TrimSpace(answer) != "" {
		return Merged
	}
	return Closed
}
