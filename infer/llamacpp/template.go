package llamacpp

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/ardanlabs/jinja"
	"github.com/ccmed/ccmed/bench/disk"
	"github.com/ccmed/ccmed/infer"
)

// chatTemplate is a Jinja chat template, most often of a GGUF file. yzma's own
// renderer does not offer the templates bos_token and eos_token, which many need.
type chatTemplate struct {
	jinja    *jinja.Template
	hash     string
	bos, eos string
}

// templates are chat templates for files that hold none, as base models do. Plain
// is the text alone, for models that know no turns; one line break ends it, since
// many vocabularies write two otherwise when a text follows. The others are their models'
// own ("ChatML" is Qwen's and SmolLM's), for a system message and turns.
var templates = map[string]string{
	"plain": `{% for m in messages %}{{ (m.content | trim) + ('\n' if loop.last else '\n\n') }}{% endfor %}`,
	"chatml": `{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}{% endfor %}` +
		`{{ '<|im_start|>assistant\n' }}`,
	"gemma": `{{ bos_token }}{% if messages[0].role == 'system' %}{{ raise_exception('no system role') }}{% endif %}` +
		`{% for m in messages %}{{ '<start_of_turn>' + ('model' if m.role == 'assistant' else m.role) + '\n' + (m.content | trim) + '<end_of_turn>\n' }}` +
		`{% endfor %}{{ '<start_of_turn>model\n' }}`,
	"llama3": `{{ bos_token }}{% for m in messages %}` +
		`{{ '<|start_header_id|>' + m.role + '<|end_header_id|>\n\n' + (m.content | trim) + '<|eot_id|>' }}` +
		`{% endfor %}{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}`,
}

// TemplateNames lists the templates that ChatTemplate knows by name.
func TemplateNames() []string { return slices.Sorted(maps.Keys(templates)) }

// maxTemplate is the most bytes of a template's file; the longest of open models
// have 20,000.
const maxTemplate = 1 << 20

// ChatTemplate returns the Jinja source of a chat template: one of TemplateNames,
// or what a file holds, its lines ended as on Unix.
func ChatTemplate(nameOrFile string) (string, error) {
	if t, ok := templates[nameOrFile]; ok {
		return t, nil
	}
	b, err := disk.ReadFile(nameOrFile, maxTemplate)
	if errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("llamacpp: %q is neither a file nor a chat template known by name (%s)", nameOrFile, strings.Join(TemplateNames(), ", "))
	}
	if err != nil {
		return "", fmt.Errorf("llamacpp: reading a chat template: %w", err)
	}
	s := string(bytes.TrimPrefix(b, []byte("\uFEFF")))
	if !utf8.ValidString(s) || strings.ContainsRune(s, 0) {
		return "", fmt.Errorf("llamacpp: the chat template %s is not text in UTF-8", nameOrFile)
	}
	if strings.TrimSpace(s) == "" {
		return "", fmt.Errorf("llamacpp: the chat template %s is empty", nameOrFile)
	}
	s = strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(s)
	if _, err := newChatTemplate(s, "", ""); err != nil {
		return "", fmt.Errorf("%w (%s)", err, nameOrFile)
	}
	return s, nil
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
		return nil, fmt.Errorf("llamacpp: the chat template is not Jinja that can be read: %w", err)
	}
	return t, nil
}

// render returns the messages as the model reads them, up to the start of the
// assistant's turn, with reasoning switched off where the template knows that.
// Where the template refuses a system message (Gemma 2 does), its text is put
// before the first user message, as Ollama's templates do.
func (t *chatTemplate) render(messages []infer.Message) (string, error) {
	if t.jinja == nil {
		return "", errors.New("llamacpp: the model's file has no chat template; choose one with --chat-template (" +
			strings.Join(TemplateNames(), ", ") + " or a Jinja file)")
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
	return "", fmt.Errorf("llamacpp: the chat template cannot render the messages: %w; another can be chosen with --chat-template", err)
}

// Template says whose chat template the engine uses: "server", "file", "given", or
// "" where there is none; and the first text in what it writes that reads like a
// control token and is none of this vocabulary's, so that the model reads it as
// text.
func (e *Engine) Template() (whose, foreign string) {
	switch {
	case e.template == nil:
		return "server", ""
	case e.template.jinja == nil:
		return "", ""
	case e.given:
		whose = "given"
	default:
		whose = "file"
	}
	rendered, err := e.template.render([]infer.Message{{Role: infer.System, Content: "s"}, {Role: infer.User, Content: "u"}})
	if err != nil {
		return whose, ""
	}
	var families *infer.Controls
	for _, at := range families.Find(rendered) {
		if text := rendered[at[0]:at[1]]; len(e.all.Find(text)) == 0 {
			return whose, text
		}
	}
	return whose, ""
}

// A template comes with a model's file, from whoever made it: what it may take.
const (
	maxRange      = 10_000 // elements of one range()
	maxRenderTime = 10 * time.Second
)

// execute renders messages, or gives up on a template that does not end.
func (t *chatTemplate) execute(messages []infer.Message) (string, error) {
	list := make([]any, len(messages))
	for i, m := range messages {
		list[i] = map[string]any{"role": m.Role, "content": m.Content}
	}
	values := map[string]jinja.Value{"range": jinja.NewCallable("range", boundedRange)}
	for name, v := range map[string]any{
		"messages":              list,
		"add_generation_prompt": true,
		"enable_thinking":       false,
		"bos_token":             t.bos,
		"eos_token":             t.eos,
		// The Llama 3 templates write today's date unless they are given one; a
		// prompt must not depend on the day. This is the date in their own text.
		"date_string": "26 Jul 2024",
	} {
		values[name] = jinja.FromGoValue(v)
	}
	type rendered struct {
		text string
		err  error
	}
	done := make(chan rendered, 1)
	go func() {
		text, err := t.jinja.RenderValues(values)
		done <- rendered{text, err}
	}()
	select {
	case r := <-done:
		return r.text, r.err
	case <-time.After(maxRenderTime): // the renderer cannot be stopped; the program ends with this error
		return "", fmt.Errorf("it is not rendered within %s", maxRenderTime)
	}
}

// boundedRange is Jinja's range, of at most maxRange elements.
func boundedRange(args []jinja.Value, _ map[string]jinja.Value) (jinja.Value, error) {
	bounds := [3]int64{0, 0, 1} // start, stop, step
	for i, a := range args {
		if i > 2 || !a.IsInt() {
			return jinja.Undefined(), errors.New("range takes up to three whole numbers")
		}
		bounds[i] = a.AsInt()
	}
	if len(args) == 1 {
		bounds[0], bounds[1] = 0, bounds[0]
	}
	start, stop, step := bounds[0], bounds[1], bounds[2]
	if len(args) == 0 || step == 0 {
		return jinja.Undefined(), errors.New("range takes one to three whole numbers, and no step of 0")
	}
	var items []jinja.Value
	for i := start; step > 0 && i < stop || step < 0 && i > stop; i += step {
		if len(items) == maxRange {
			return jinja.Undefined(), fmt.Errorf("range of more than %d elements", maxRange)
		}
		items = append(items, jinja.NewInt(i))
	}
	return jinja.NewList(items), nil
}
