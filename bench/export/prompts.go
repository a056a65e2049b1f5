package export

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/ccmed/ccmed/bench/run"
)

// readPrompts reads prompts.jsonl by hash. A torn last line is left out; a run
// without the file has no prompts.
func readPrompts(dir *run.Dir) (map[string]question, error) {
	out := map[string]question{}
	file := filepath.Join(dir.Path(), run.PromptsFile)
	f, err := os.Open(file)
	if errors.Is(err, fs.ErrNotExist) {
		return out, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the prompts: %w", err)
	}
	defer f.Close()
	r := bufio.NewReader(f)
	for n := 1; ; n++ {
		line, err := r.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if err != nil {
			return nil, fmt.Errorf("read the prompts: %w", err)
		}
		if len(bytes.TrimSpace(line)) == 0 {
			continue
		}
		var q question
		if err := json.Unmarshal(line, &q); err != nil {
			return nil, fmt.Errorf("%s:%d is damaged: %w; delete that line", file, n, err)
		}
		out[q.Hash] = q
	}
}

// asked returns the prompts of a step in the order of asking; those that
// prompts.jsonl does not hold are left out.
func (x *Run) asked(u unit, step string) []question {
	var out []question
	for _, h := range u.steps[step].Prompts {
		if q, ok := x.prompts[h]; ok {
			out = append(out, q)
		}
	}
	return out
}

// lastPrompt is the text of the last prompt of a step; of a streamed decision
// it holds the whole dialogue.
func (x *Run) lastPrompt(u unit, step string) string {
	qs := x.asked(u, step)
	if len(qs) == 0 {
		return ""
	}
	return qs[len(qs)-1].text()
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
