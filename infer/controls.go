package infer

import (
	"cmp"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"
)

// Controls are the texts that a model's tokenizer takes for control tokens: what
// begins and ends turns, reasoning and texts. A record, a line or a reply that
// holds one of them would write turns of its own into a prompt, so that the
// engine tokenises it as text, and Break splits it where a server tokenises.
//
// A nil *Controls knows the control tokens of common model families, for servers
// whose vocabulary cannot be read. It is safe for concurrent use.
type Controls struct {
	byFirst [256][]string // by their first byte, longest first
}

// NewControls returns Controls of exactly these texts. White space alone does not
// count as one.
func NewControls(texts []string) *Controls {
	c := &Controls{}
	for _, t := range texts {
		if strings.TrimSpace(t) != "" {
			c.byFirst[t[0]] = append(c.byFirst[t[0]], t)
		}
	}
	for i := range c.byFirst {
		slices.SortFunc(c.byFirst[i], func(a, b string) int { return cmp.Or(len(b)-len(a), strings.Compare(a, b)) })
		c.byFirst[i] = slices.Compact(c.byFirst[i])
	}
	return c
}

// Find returns the places [from, to) of control tokens in a text, in bytes: the
// first, the longest that begins there, and so on after its end.
func (c *Controls) Find(text string) [][]int {
	if c == nil {
		return families.FindAllStringIndex(text, -1)
	}
	var out [][]int
	for i := 0; i < len(text); i++ {
		for _, t := range c.byFirst[text[i]] {
			if strings.HasPrefix(text[i:], t) {
				out = append(out, []int{i, i + len(t)})
				i += len(t) - 1
				break
			}
		}
	}
	return out
}

// Break returns the text with a space after the first character of every control
// token in it ("< |im_end|>"), which no tokenizer takes for the token. The space
// can be seen wherever the text is stored or shown.
func (c *Controls) Break(text string) string {
	for range 4 { // a space may complete another token of a strange vocabulary
		at := c.Find(text)
		if len(at) == 0 {
			break
		}
		var b strings.Builder
		end := 0
		for _, span := range at {
			_, first := utf8.DecodeRuneInString(text[span[0]:])
			b.WriteString(text[end : span[0]+first])
			b.WriteByte(' ')
			end = span[0] + first
		}
		b.WriteString(text[end:])
		text = b.String()
	}
	return text
}

// BreakAll returns the messages with every content broken.
func (c *Controls) BreakAll(ms []Message) []Message {
	out := slices.Clone(ms)
	for i := range out {
		out[i].Content = c.Break(out[i].Content)
	}
	return out
}

// BreakTexts returns the texts, each broken.
func (c *Controls) BreakTexts(texts []string) []string {
	out := make([]string, len(texts))
	for i, t := range texts {
		out[i] = c.Break(t)
	}
	return out
}

// ReadsAsControl reports whether a whole text is a control token of a common
// model family.
func ReadsAsControl(text string) bool {
	at := families.FindStringIndex(text)
	return at != nil && at[0] == 0 && at[1] == len(text)
}

// families matches control tokens as the chat templates of open models write
// them.
var families = func() *regexp.Regexp {
	patterns := []string{
		`<\|[^\s<>|]{1,64}\|?>`, `<[^\s<>|]{1,64}\|>`, // ChatML, Llama 3, Phi, Command, Harmony, Gemma 4
		`<｜[^\s<>｜]{1,64}｜>`,       // DeepSeek
		`\[\|[^\s\[\]|]{1,64}\|\]`, // EXAONE
		`</?s>`, `<</?SYS>>`,       // Llama 2 and what descends from it
		`<(?:start|end)_of_[a-z_]+>`,  // Gemma
		`<(?:BOS|EOS|PAD|UNK)_TOKEN>`, // Command
		`<(?:seed:)?(?:bos|eos|pad|unk|mask|sep|cls|sop|eop)>`, `<unused\d+>`, `<reserved_\d+>`,
		`</?tool_(?:call|calls|response)>`,
		`\[/?(?:INST|SYSTEM_PROMPT|AVAILABLE_TOOLS|TOOL_CALLS|TOOL_RESULTS|TOOL_CONTENT|ARGS|CALL_ID)\]`, // Mistral
		`\[(?:BOS|EOS|SEP|CLS|PAD|UNK|MASK|gMASK|sMASK)\]`,
		`<TURN_END>`, `\[/?SPEAK\]`, // of models tuned by ccmed (package sft)
	}
	for _, m := range reasoningMarks {
		patterns = append(patterns, regexp.QuoteMeta(m.open), regexp.QuoteMeta(m.close))
	}
	re := regexp.MustCompile(strings.Join(patterns, "|"))
	re.Longest()
	return re
}()
