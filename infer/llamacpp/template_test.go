package llamacpp

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ccmed/ccmed/bench/disk"
	"github.com/ccmed/ccmed/infer"
	"github.com/ccmed/ccmed/infer/infertest"
)

func TestChatTemplate(t *testing.T) {
	messages := []infer.Message{{Role: infer.System, Content: "S"}, {Role: infer.User, Content: "U"}}
	for _, c := range []struct{ name, source, want, fault string }{
		{"bos and eos are offered", "{{ bos_token }}{% for m in messages %}{{ m.role }}={{ m['content'] }}{{ eos_token }}{% endfor %}",
			"<s>system=S</s>user=U</s>", ""},
		{"reasoning is off", "{% if enable_thinking %}on{% else %}off{% endif %}", "off", ""},
		{"the date does not move", "{{ date_string }}", "26 Jul 2024", ""},
		{"a refused system message goes to the user",
			"{% if messages[0].role == 'system' %}{{ raise_exception('no system role') }}{% endif %}{% for m in messages %}{{ m.role }}={{ m.content }};{% endfor %}",
			"user=S\n\nU;", ""},
		{"a refusal", "{{ raise_exception('never') }}", "", "never"},
		{"none", "", "", "no chat template"},
	} {
		tpl, err := newChatTemplate(c.source, "<s>", "</s>")
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		got, err := tpl.render(messages)
		if got != c.want || (err != nil) != (c.fault != "") || err != nil && !strings.Contains(err.Error(), c.fault) {
			t.Errorf("%s: %q, %v; want %q, %q", c.name, got, err, c.want, c.fault)
		}
	}
	if _, err := newChatTemplate("{% for %}", "", ""); err == nil {
		t.Error("a template that is not Jinja compiled")
	}
}

func TestTemplatesByName(t *testing.T) {
	messages := []infer.Message{{Role: infer.System, Content: "S"}, {Role: infer.User, Content: "U"}, {Role: infer.Assistant, Content: "A"}, {Role: infer.User, Content: " V\n"}}
	for name, want := range map[string]string{
		"plain":  "S\n\nU\n\nA\n\nV\n",
		"chatml": "<|im_start|>system\nS<|im_end|>\n<|im_start|>user\nU<|im_end|>\n<|im_start|>assistant\nA<|im_end|>\n<|im_start|>user\n V\n<|im_end|>\n<|im_start|>assistant\n",
		"gemma": "<s><start_of_turn>user\nS\n\nU<end_of_turn>\n<start_of_turn>model\nA<end_of_turn>\n<start_of_turn>user\nV<end_of_turn>\n" +
			"<start_of_turn>model\n",
		"llama3": "<s><|start_header_id|>system<|end_header_id|>\n\nS<|eot_id|><|start_header_id|>user<|end_header_id|>\n\nU<|eot_id|>" +
			"<|start_header_id|>assistant<|end_header_id|>\n\nA<|eot_id|><|start_header_id|>user<|end_header_id|>\n\nV<|eot_id|>" +
			"<|start_header_id|>assistant<|end_header_id|>\n\n",
	} {
		source, err := ChatTemplate(name)
		if err != nil {
			t.Fatal(err)
		}
		tpl, err := newChatTemplate(source, "<s>", "</s>")
		if err != nil {
			t.Fatal(err)
		}
		if got, err := tpl.render(messages); err != nil || got != want {
			t.Errorf("%s: %q, %v\nwant %q", name, got, err, want)
		}
	}
	if names := TemplateNames(); !slices.Equal(names, []string{"chatml", "gemma", "llama3", "plain"}) {
		t.Errorf("the names are %v", names)
	}
}

func TestTemplateFile(t *testing.T) {
	dir := t.TempDir()
	write := func(content string) string {
		path := filepath.Join(dir, "t.jinja")
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	if got, err := ChatTemplate(write("\uFEFFa\r\nb\rc\n")); err != nil || got != "a\nb\nc\n" {
		t.Errorf("read %q, %v", got, err)
	}
	for content, want := range map[string]string{"": "is empty", " \n": "is empty", "a\xff": "not text in UTF-8", "a\x00b": "not text in UTF-8",
		"{% for %}": "t.jinja", strings.Repeat("x", maxTemplate+1): "t.jinja"} {
		if _, err := ChatTemplate(write(content)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.10q: %v, want %q", content, err, want)
		}
	}
	if _, err := ChatTemplate("vicuna"); err == nil || !strings.Contains(err.Error(), "chatml, gemma, llama3, plain") {
		t.Errorf("an unknown name: %v", err)
	}
	var node *disk.NodeError
	if _, err := ChatTemplate(os.DevNull); !errors.As(err, &node) {
		t.Errorf("a device: %v", err)
	}
}

// A file without a template is asked with the one that is given, and otherwise
// not at all.
func TestModelWithoutTemplate(t *testing.T) {
	bare := infertest.BareModel(t)
	ctx := context.Background()
	p := asking("Is ice hot?")
	tokens := func(o Options) (ids []int32, hash string) {
		t.Helper()
		o.NumCtx, o.Threads = 256, 1
		e, err := Open(ctx, o)
		if err != nil {
			t.Fatal(err)
		}
		defer e.Close()
		if ids, err = e.Tokens(ctx, p, ""); err != nil {
			t.Fatal(err)
		}
		m, err := e.Model(ctx)
		if err != nil {
			t.Fatal(err)
		}
		return ids, m.TemplateHash
	}
	own, ownHash := tokens(Options{ModelPath: need(t)})
	chatml, err := ChatTemplate("chatml")
	if err != nil {
		t.Fatal(err)
	}
	plain, err := ChatTemplate("plain")
	if err != nil {
		t.Fatal(err)
	}
	given, hash := tokens(Options{ModelPath: bare, ChatTemplate: chatml, KeepTemplate: true})
	if !slices.Equal(own, given) || hash == ownHash || hash == "" {
		t.Errorf("with chatml %v (%s), by the file's own template %v (%s)", given, hash, own, ownHash)
	}
	if kept, h := tokens(Options{ModelPath: need(t), ChatTemplate: plain, KeepTemplate: true}); !slices.Equal(kept, own) || h != ownHash {
		t.Error("a template that is only to fill a gap took the place of the file's own")
	}
	if other, h := tokens(Options{ModelPath: need(t), ChatTemplate: plain}); slices.Equal(other, own) || h == ownHash {
		t.Error("a template did not take the place of the file's own")
	}
	e, err := Open(ctx, Options{ModelPath: bare, NumCtx: 256, Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	if _, err := e.Choose(ctx, []infer.Prompt{p}, infer.Words("yes", "no"), infer.Params{}); err == nil || !strings.Contains(err.Error(), "--chat-template") {
		t.Errorf("without a template: %v", err)
	}
	if whose, _ := e.Template(); whose != "" {
		t.Errorf("the template of a bare file is %q", whose)
	}
	gemma, err := ChatTemplate("gemma")
	if err != nil {
		t.Fatal(err)
	}
	g, err := Open(ctx, Options{ModelPath: bare, NumCtx: 256, Threads: 1, ChatTemplate: gemma})
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	if whose, foreign := g.Template(); whose != "given" || foreign != "<start_of_turn>" {
		t.Errorf("gemma's template in another model: %q, %q", whose, foreign)
	}
}

// A model's file can come from anyone: its template ends.
func TestTemplateEnds(t *testing.T) {
	for source, want := range map[string]string{
		"{% for i in range(3) %}{{ i }}{% endfor %}":        "012",
		"{% for i in range(7, 1, -2) %}{{ i }}{% endfor %}": "753",
		"{% for i in range(999999999) %}x{% endfor %}":      "range of more than 10000 elements",
		"{% for i in range(0, 9, 0) %}x{% endfor %}":        "no step of 0",
		"{% for i in range('x') %}x{% endfor %}":            "whole numbers",
		"{% for i in range(1, 2, 3, 4) %}x{% endfor %}":     "whole numbers",
	} {
		c, err := newChatTemplate(source, "", "")
		if err != nil {
			t.Fatal(err)
		}
		got, err := c.render([]infer.Message{{Role: infer.User, Content: "u"}})
		if err != nil {
			got = err.Error()
		}
		if !strings.Contains(got, want) {
			t.Errorf("%s: %q, want %q", source, got, want)
		}
	}
}
