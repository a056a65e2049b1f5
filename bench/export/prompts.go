package export

import (
	"bytes"
	"fmt"
	"slices"

	"github.com/ccmed/ccmed/bench/run"
)

// readPrompts reads prompts.jsonl by hash.
func readPrompts(dir *run.Dir) (map[string]question, error) {
	out := map[string]question{}
	for p, err := range dir.Prompts() {
		if err != nil {
			return nil, err
		}
		out[p.Hash] = question(p)
	}
	return out, nil
}

// input is the last prompt of a step; of a streamed decision it holds the whole
// dialogue. A decision head is asked for no text: what it decided about is then
// the prompt of the line that it speaks.
func (x *Run) input(u unit, step string) (question, bool) {
	for _, step := range []string{step, stepUtterance} {
		for _, hash := range slices.Backward(u.steps[step].Prompts) {
			if q, ok := x.prompts[hash]; ok {
				return q, true
			}
		}
	}
	return question{}, false
}

// lastPrompt is the text of the input, or empty.
func (x *Run) lastPrompt(u unit, step string) string {
	q, _ := x.input(u, step)
	return q.text()
}

// text is the prompt in one string.
func (q question) text() string {
	if q.Prompt == nil {
		return q.Rendered
	}
	if q.Prompt.Raw != "" {
		return q.Prompt.Raw
	}
	var b bytes.Buffer
	for _, m := range q.Prompt.Messages {
		fmt.Fprintf(&b, "%s: %s\n", m.Role, m.Content)
	}
	b.WriteString(q.Prompt.LeadIn)
	return b.String()
}
