package llamacpp

import (
	"strings"
	"testing"

	"github.com/ccmed/ccmed/infer"
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
