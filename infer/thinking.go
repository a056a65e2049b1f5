package infer

import "strings"

// reasoningMarks are the texts that open and close reasoning, as the chat
// templates of open models write them: Qwen, DeepSeek and most others; variants
// of it; Magistral; Command; Gemma 4; gpt-oss (Harmony), whose last channel is
// the answer.
var reasoningMarks = []struct{ open, close string }{
	{"<think>", "</think>"},
	{"<thinking>", "</thinking>"},
	{"<thought>", "</thought>"},
	{"<reasoning>", "</reasoning>"},
	{"<seed:think>", "</seed:think>"},
	{"[THINK]", "[/THINK]"},
	{"<|START_THINKING|>", "<|END_THINKING|>"},
	{"<|begin_of_thought|>", "<|end_of_thought|>"},
	{"<|channel>thought", "<channel|>"},
	{harmonyOpen, harmonyFinal},
}

const (
	harmonyOpen    = "<|channel|>"
	harmonyFinal   = "<|channel|>final<|message|>"
	harmonyMessage = "<|message|>"
	harmonyEnd     = "<|end|>"
)

// OpensThinking reports whether a generated text that begins like this is
// reasoning or may become it: it starts with an opening mark, or is the start
// of one ("<", "<|channel|>"). White space before it does not count. Ask
// SplitThinking once more of the text is known.
func OpensThinking(text string) bool {
	text = strings.TrimSpace(text)
	if text == "" {
		return false
	}
	for _, m := range reasoningMarks {
		if strings.HasPrefix(text, m.open) || strings.HasPrefix(m.open, text) {
			return true
		}
	}
	return false
}

// SplitThinking separates reasoning at the start of a generated text from the
// answer after it; both come without surrounding white space when there is
// reasoning, and the answer is the text itself when there is none. complete is
// false when reasoning was opened and not closed, so that there is no answer
// yet. A closing mark without an opening one counts too: some templates open
// the reasoning in the prompt.
func SplitThinking(text string) (thinking, answer string, complete bool) {
	t := strings.TrimSpace(text)
	for _, m := range reasoningMarks {
		if !strings.HasPrefix(t, m.open) {
			continue
		}
		body := t[len(m.open):]
		if m.open == harmonyOpen {
			body = t // the opening mark is also the start of the closing one
		}
		before, after, closed := strings.Cut(body, m.close)
		if m.open == harmonyOpen {
			before, after = harmonyAnalysis(before), strings.TrimSuffix(strings.TrimSpace(after), "<|return|>")
		}
		return strings.TrimSpace(before), strings.TrimSpace(after), closed
	}
	for _, m := range reasoningMarks {
		if m.open == harmonyOpen {
			continue
		}
		if before, after, closed := strings.Cut(t, m.close); closed {
			return strings.TrimSpace(before), strings.TrimSpace(after), true
		}
	}
	return "", text, true
}

// harmonyAnalysis takes the channel's name and the end marks off the analysis
// channel of a Harmony text.
func harmonyAnalysis(s string) string {
	if _, body, ok := strings.Cut(s, harmonyMessage); ok {
		s = body
	}
	s, _, _ = strings.Cut(s, harmonyEnd)
	return s
}
