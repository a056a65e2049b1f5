package llamacpp

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"

	"github.com/ardanlabs/jinja"
	"github.com/ccmed/ccmed/infer"
)

// chatTemplate is the Jinja chat template of a GGUF file. yzma's own renderer
// does not offer the templates bos_token and eos_token, which many need.
type chatTemplate struct {
	jinja    *jinja.Template
	hash     string
	bos, eos string
}

// newChatTemplate compiles a template; source may be empty, in which case
// rendering is an error.
func newChatTemplate(source, bos, eos string) (*chatTemplate, error) {
	t := &chatTemplate{bos: bos, eos: eos}
	if source == "" {
		return t, nil
	}
	sum := sha256.Sum256([]byte(source))
	t.hash = hex.EncodeToString(sum[:16])
	var err error
	if t.jinja, err = jinja.Compile(source); err != nil {
		return nil, fmt.Errorf("llamacpp: the file's chat template cannot be read: %w", err)
	}
	return t, nil
}

// render returns the messages as the model reads them, up to the start of the
// assistant's turn, with reasoning switched off where the template knows that.
// Where the template refuses a system message (Gemma 2 does), its text is put
// before the first user message, as Ollama's templates do.
func (t *chatTemplate) render(messages []infer.Message) (string, error) {
	if t.jinja == nil {
		return "", errors.New("llamacpp: the file has no chat template; ask it with raw prompts, or let Ollama render")
	}
	s, err := t.execute(messages)
	if err == nil {
		return s, nil
	}
	if len(messages) > 1 && messages[0].Role == infer.System && messages[1].Role == infer.User {
		folded := append([]infer.Message{{Role: infer.User, Content: messages[0].Content + "\n\n" + messages[1].Content}}, messages[2:]...)
		if s, err := t.execute(folded); err == nil {
			return s, nil
		}
	}
	return "", fmt.Errorf("llamacpp: the file's chat template cannot render the messages: %w", err)
}

func (t *chatTemplate) execute(messages []infer.Message) (string, error) {
	list := make([]any, len(messages))
	for i, m := range messages {
		list[i] = map[string]any{"role": m.Role, "content": m.Content}
	}
	return t.jinja.Render(map[string]any{
		"messages":              list,
		"add_generation_prompt": true,
		"enable_thinking":       false,
		"bos_token":             t.bos,
		"eos_token":             t.eos,
		// The Llama 3 templates write today's date unless they are given one; a
		// prompt must not depend on the day. This is the date in their own text.
		"date_string": "26 Jul 2024",
	})
}
