package prompt_test

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ccmed/ccmed/bench/prompt"
	"github.com/ccmed/ccmed/infer"
)

const whole = `{{define "system"}}S {{.Turn}}{{end}}{{define "user"}}U {{.Transcript}}{{end}}{{define "lead_in"}}L{{end}}`

// folder writes files into a new folder whose name a shell would expand.
func folder(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "my [own] prompts*")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func load(t *testing.T, dir string) *prompt.Set {
	t.Helper()
	s, err := prompt.Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestOwnTemplatesReplaceEmbeddedOnes(t *testing.T) {
	data := map[string]any{"Transcript": "  Turn 1 (Ana): Hi\n", "Turn": 1}
	embedded, own := load(t, ""), load(t, folder(t, map[string]string{"timing_stream.tmpl": whole, "notes.txt": "not a template"}))
	p, err := own.Build("timing_stream", data)
	if err != nil {
		t.Fatal(err)
	}
	want := []infer.Message{{Role: infer.System, Content: "S 1"}, {Role: infer.User, Content: "U   Turn 1 (Ana): Hi"}}
	if !slices.Equal(p.Messages, want) || p.LeadIn != "L" {
		t.Errorf("the own template gives %+v", p)
	}
	names := embedded.Names()
	if !slices.Equal(names, own.Names()) || !slices.IsSorted(names) {
		t.Errorf("names %q became %q", names, own.Names())
	}
	a, b := embedded.Hashes(names...), own.Hashes(names...)
	for _, n := range names {
		if len(a[n]) != 16 || (a[n] == b[n]) != (n != "timing_stream") {
			t.Errorf("template %s: hash %q of the embedded and %q of the own set", n, a[n], b[n])
		}
	}
	if again := load(t, "").Hashes(names...); !maps.Equal(a, again) {
		t.Errorf("hashes differ from one loading to the next: %v, %v", a, again)
	}
	space := load(t, folder(t, map[string]string{"timing_stream.tmpl": whole + "\n"}))
	if space.Hashes("timing_stream")["timing_stream"] == b["timing_stream"] {
		t.Error("a changed text has the hash of the unchanged one")
	}
}

// A template asks the same however its lines end, and has one hash.
func TestLineEnds(t *testing.T) {
	text := strings.ReplaceAll(whole, "S {{.Turn}}", "S\n{{.Turn}}\nT")
	want := load(t, folder(t, map[string]string{"judge.tmpl": text}))
	for _, end := range []string{"\r\n", "\r"} {
		got := load(t, folder(t, map[string]string{"judge.tmpl": strings.ReplaceAll(text, "\n", end)}))
		p, err := got.Build("judge", map[string]any{"Transcript": "x", "Turn": 1})
		if err != nil || p.Messages[0].Content != "S\n1\nT" {
			t.Errorf("%q: %+v, %v", end, p, err)
		}
		if a, b := got.Hashes("judge"), want.Hashes("judge"); !maps.Equal(a, b) {
			t.Errorf("%q: hash %v, want %v", end, a, b)
		}
	}
}

// What is filled in is text, whatever it looks like.
func TestATextIsNoTemplate(t *testing.T) {
	own := load(t, folder(t, map[string]string{"judge.tmpl": whole}))
	const text = `{{define "system"}}x{{end}}{{.Turn}} {{"a" | printf}} <b>&amp; ${out}`
	p, err := own.Build("judge", map[string]any{"Transcript": text, "Turn": 1})
	if err != nil || p.Messages[1].Content != "U "+text {
		t.Errorf("%+v, %v", p, err)
	}
}

func TestAPromptWithoutUserMessage(t *testing.T) {
	own := load(t, folder(t, map[string]string{"judge.tmpl": `{{define "system"}}only this{{end}}{{define "user"}} {{end}}{{define "lead_in"}}{{end}}`}))
	p, err := own.Build("judge", nil)
	if err != nil || len(p.Messages) != 1 || p.Messages[0].Content != "only this" || p.LeadIn != "" {
		t.Errorf("got %+v, %v; want one system message", p, err)
	}
}

func TestLoadRefuses(t *testing.T) {
	for _, c := range []struct {
		fact  string
		files map[string]string
		words []string // that the error must hold
	}{
		{"an empty folder", nil, []string{"holds no .tmpl file", "my [own] prompts*", "ccmed data prompts"}},
		{"a name that is never asked", map[string]string{"timing_streem.tmpl": whole}, []string{"timing_streem.tmpl", "timing_stream"}},
		{"no lead_in", map[string]string{"judge.tmpl": `{{define "system"}}a{{end}}{{define "user"}}b{{end}}`}, []string{"judge.tmpl", `does not define "lead_in"`}},
		{"no system", map[string]string{"judge.tmpl": `{{define "user"}}b{{end}}{{define "lead_in"}}{{end}}`}, []string{"judge.tmpl", `does not define "system"`}},
		{"a byte order mark", map[string]string{"judge.tmpl": "\xEF\xBB\xBF" + whole}, []string{"judge.tmpl", "byte order mark"}},
		{"Latin-1", map[string]string{"judge.tmpl": whole + "\n\xE9"}, []string{"judge.tmpl: line 2", "byte E9"}},
		{"NUL", map[string]string{"judge.tmpl": whole + "\x00"}, []string{"judge.tmpl: line 1", "NUL"}},
		{"UTF-16", map[string]string{"judge.tmpl": "\xFF\xFE{\x00"}, []string{"judge.tmpl: line 1", "UTF-16"}},
		{"too long", map[string]string{"judge.tmpl": whole + strings.Repeat(" ", 1<<20)}, []string{"judge.tmpl has", "at most"}},
		{"a syntax error", map[string]string{"judge.tmpl": `{{define "system"}}{{.Open`}, []string{"judge.tmpl", "unclosed action"}},
	} {
		t.Run(c.fact, func(t *testing.T) {
			_, err := prompt.Load(folder(t, c.files))
			if err == nil {
				t.Fatal("no error")
			}
			for _, w := range c.words {
				if !strings.Contains(err.Error(), w) {
					t.Errorf("%v does not say %q", err, w)
				}
			}
		})
	}
	linked := folder(t, nil)
	if err := os.Symlink("/dev/zero", filepath.Join(linked, "judge.tmpl")); err != nil {
		t.Fatal(err)
	}
	if _, err := prompt.Load(linked); err == nil || !strings.Contains(err.Error(), "judge.tmpl is a link to /dev/zero") {
		t.Errorf("a link: %v", err)
	}
	missing := filepath.Join(t.TempDir(), "nowhere")
	if _, err := prompt.Load(missing); err == nil || !strings.Contains(err.Error(), missing) {
		t.Errorf("a folder that is not there: %v", err)
	}
}

func TestBuildRefuses(t *testing.T) {
	s := load(t, folder(t, map[string]string{"judge.tmpl": `{{define "system"}}{{.Transcript}}{{end}}{{define "user"}}{{.Moev}}{{end}}{{define "lead_in"}}{{end}}`}))
	for _, c := range []struct {
		fact, name string
		words      string
	}{
		{"an unknown template", "jugde", `no prompt template "jugde"`},
		{"a key that the task does not give", "judge", "Moev"},
	} {
		if p, err := s.Build(c.name, map[string]any{"Transcript": "x", "Move": "y"}); err == nil || !strings.Contains(err.Error(), c.words) {
			t.Errorf("%s: %+v, %v; want an error with %q", c.fact, p, err, c.words)
		}
	}
}

// A template of a few hundred bytes cannot fill the memory.
func TestPromptsAreCapped(t *testing.T) {
	text := `{{define "user"}}{{end}}{{define "lead_in"}}{{end}}{{define "x0"}}0123456789{{end}}`
	for i := range 9 {
		text += fmt.Sprintf(`{{define "x%d"}}%s{{end}}`, i+1, strings.Repeat(fmt.Sprintf(`{{template "x%d"}}`, i), 10))
	}
	s := load(t, folder(t, map[string]string{"judge.tmpl": text + `{{define "system"}}{{template "x9"}}{{end}}`}))
	if _, err := s.Build("judge", nil); err == nil || !strings.Contains(err.Error(), "longer than") {
		t.Errorf("error %v", err)
	}
}

// What the user writes out loads unchanged, and is never written over.
func TestWriteTo(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "b")
	if err := prompt.WriteTo(dir); err != nil {
		t.Fatal(err)
	}
	names := load(t, "").Names()
	if a, b := load(t, "").Hashes(names...), load(t, dir).Hashes(names...); !maps.Equal(a, b) {
		t.Errorf("written templates hash to %v, embedded ones to %v", b, a)
	}
	file := filepath.Join(dir, "timing_stream.tmpl")
	if err := os.WriteFile(file, []byte(whole), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := prompt.WriteTo(dir); err == nil || !strings.Contains(err.Error(), "exists") {
		t.Errorf("a second writing: %v", err)
	}
	if b, err := os.ReadFile(file); err != nil || string(b) != whole {
		t.Errorf("the changed template became %q, %v", b, err)
	}
}

// A refused writing must leave nothing behind that makes the next one fail too.
func TestWriteToWritesAllOrNothing(t *testing.T) {
	dir := folder(t, map[string]string{"timing_stream.tmpl": whole}) // the last name of all
	if err := prompt.WriteTo(dir); err == nil {
		t.Fatal("an existing file was not refused")
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 {
		t.Errorf("%d files after a refused writing, want the 1 from before (%v)", len(entries), err)
	}
}
