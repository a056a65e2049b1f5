package llamacpp

import (
	"errors"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/ccmed/ccmed/infer"
	"github.com/hybridgroup/yzma/pkg/llama"
)

// part is a stretch of a rendered prompt. Control tokens are recognised in it
// unless it is literal: then it is a control token's text in what somebody said.
type part struct {
	text    string
	literal bool
}

// joined is the prompt as it reads.
func joined(parts []part) string {
	var b strings.Builder
	for _, p := range parts {
		b.WriteString(p.text)
	}
	return b.String()
}

// controls are the control tokens of a vocabulary.
type controls struct {
	all   *infer.Controls
	own   *infer.Controls // of these, those that are not meant in literal text
	added *infer.Controls // and the tokens added for users, which llama.cpp finds in literal text too
	hides *infer.Controls // all, and the mark itself
}

// mark encloses the number of a control token's text that is hidden from a chat
// template. It is a character for private use, which no vocabulary needs.
const mark = "\U000F5AFE"

// newControls reads them off the vocabulary. Tokens that were added for users
// count where they have a part in a prompt's structure: they read like control
// tokens, end a generation or stand in the template. Others (Gemma's "<table>")
// are the vocabulary's way to write ordinary text.
func newControls(v vocabulary, template string) controls {
	var own, added []string
	for t := range llama.Token(v.size) {
		attr := llama.VocabGetAttr(v.handle, t)
		if attr&(llama.TokenAttrControl|llama.TokenAttrUnknown|llama.TokenAttrUserDef) == 0 {
			continue
		}
		text := v.text(t)
		switch {
		case attr&llama.TokenAttrUserDef == 0:
			own = append(own, text)
		case utf8.RuneCountInString(text) > 1 &&
			(infer.ReadsAsControl(text) || llama.VocabIsEOG(v.handle, t) || strings.Contains(template, text)):
			added = append(added, text)
		}
	}
	all := slices.Concat(own, added)
	return controls{infer.NewControls(all), infer.NewControls(own), infer.NewControls(added), infer.NewControls(append(all, mark))}
}

// hide puts a numbered mark in the place of every control token's text in the
// messages, and returns the texts by number.
func (c controls) hide(ms []infer.Message) ([]infer.Message, []string) {
	out := make([]infer.Message, len(ms))
	var texts []string
	for i, m := range ms {
		var b strings.Builder
		end := 0
		for _, at := range c.hides.Find(m.Content) {
			b.WriteString(m.Content[end:at[0]] + mark + strconv.Itoa(len(texts)) + mark)
			texts = append(texts, m.Content[at[0]:at[1]])
			end = at[1]
		}
		b.WriteString(m.Content[end:])
		out[i] = infer.Message{Role: m.Role, Content: b.String()}
	}
	return out, texts
}

// show is the inverse of hide in a rendered prompt.
func (c controls) show(rendered string, texts []string) ([]part, error) {
	var out []part
	stretches := strings.Split(rendered, mark)
	for i, s := range stretches {
		if i%2 == 0 {
			out = append(out, part{text: s})
			continue
		}
		n, err := strconv.Atoi(s)
		if err != nil || n < 0 || n >= len(texts) || i == len(stretches)-1 {
			return nil, errors.New("llamacpp: the chat template cuts a message within the text of a control token; " +
				"take the token out of the message, or choose another template with --chat-template")
		}
		out = append(out, c.literal(texts[n])...)
	}
	return out, nil
}

// literal returns a control token's text in parts in which llama.cpp does not
// find it: it recognises tokens added for users in literal text as well.
func (c controls) literal(text string) []part {
	if len(c.added.Find(text)) == 0 {
		return []part{{text, true}}
	}
	_, first := utf8.DecodeRuneInString(text)
	return append([]part{{text[:first], true}}, c.literal(text[first:])...)
}

// said appends a text to a prompt: the control tokens in it are text.
func (c controls) withAnswer(parts []part, text string) []part {
	end := 0
	for _, at := range c.all.Find(text) {
		parts = append(meant(parts, text[end:at[0]]), c.literal(text[at[0]:at[1]])...)
		end = at[1]
	}
	return meant(parts, text[end:])
}

// meant appends a text whose control tokens are meant. What follows such a text
// is tokenised with it, as one.
func meant(parts []part, text string) []part {
	if n := len(parts); n > 0 && !parts[n-1].literal {
		parts[n-1].text += text
		return parts
	}
	return append(parts, part{text: text})
}
