// Package prompt holds the prompt templates of the benchmarks: in our own
// words, embedded, replaceable by the user, and hashed so that a run says
// exactly what it asked.
//
//	set, err := prompt.Load("")              // the embedded templates
//	set, err = prompt.Load("my-prompts")     // files there replace embedded ones of the same name
//	p, err := set.Build("judge", data)       // an infer.Prompt
//
// A template file NAME.tmpl defines "system", "user" and "lead_in" in the
// syntax of text/template. It is UTF-8 without a byte order mark; however its lines
// end, they are read and hashed as if they ended in a line feed, so that a template
// asks the same on every system. What is filled in stays text, braces included.
package prompt

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"text/template"

	"github.com/ccmed/ccmed/bench/disk"
	"github.com/ccmed/ccmed/bench/strictjson"
	"github.com/ccmed/ccmed/infer"
)

//go:embed templates/*.tmpl
var embedded embed.FS

// Set is a loaded set of templates.
type Set struct {
	byName map[string]*template.Template
	hashes map[string]string
}

// Load reads the embedded templates and lets files NAME.tmpl in dir, when dir
// is not empty, replace those of the same name. A file whose name is not that of
// an embedded template is an error, since it would never be asked.
func Load(dir string) (*Set, error) {
	s := &Set{byName: map[string]*template.Template{}, hashes: map[string]string{}}
	entries, err := fs.ReadDir(embedded, "templates")
	if err != nil {
		return nil, fmt.Errorf("read embedded templates: %w", err)
	}
	for _, e := range entries {
		b, err := fs.ReadFile(embedded, "templates/"+e.Name())
		if err != nil {
			return nil, fmt.Errorf("read embedded template: %w", err)
		}
		if err := s.add(strings.TrimSuffix(e.Name(), ".tmpl"), e.Name(), string(b)); err != nil {
			return nil, err
		}
	}
	if dir == "" {
		return s, nil
	}
	// Not Glob: the folder's own name may hold one of its special characters.
	entries, err = os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("list prompt folder: %w; `ccmed data prompts DIR` writes one to start from", err)
	}
	var files []string
	for _, e := range entries {
		if strings.EqualFold(filepath.Ext(e.Name()), ".tmpl") {
			files = append(files, filepath.Join(dir, e.Name()))
		}
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("prompt folder %s holds no .tmpl file; write the embedded ones there with `ccmed data prompts %s` and change them", dir, dir)
	}
	for _, f := range files {
		name := strings.TrimSuffix(filepath.Base(f), filepath.Ext(f))
		if _, ok := s.byName[name]; !ok {
			return nil, fmt.Errorf("prompt template %s is not one that is asked; known are %s", f, strings.Join(s.Names(), ", "))
		}
		b, err := disk.ReadEntry(f, maxTemplate)
		if err != nil {
			return nil, fmt.Errorf("read prompt template: %w", err)
		}
		if err := strictjson.Text(b); err != nil {
			return nil, fmt.Errorf("prompt template %s: %w", f, err)
		}
		if err := s.add(name, f, string(b)); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// maxTemplate is the limit, in bytes, of a template.
const maxTemplate = 1 << 20

var lineFeeds = strings.NewReplacer("\r\n", "\n", "\r", "\n")

func (s *Set) add(name, file, text string) error {
	text = lineFeeds.Replace(text)
	t, err := template.New(name).Option("missingkey=error").Parse(text)
	if err != nil {
		return fmt.Errorf("prompt template %s: %w", file, err)
	}
	for _, part := range []string{"system", "user", "lead_in"} {
		if t.Lookup(part) == nil {
			return fmt.Errorf("prompt template %s does not define %q; add {{define %q}}…{{end}}", file, part, part)
		}
	}
	h := sha256.Sum256([]byte(text))
	s.byName[name], s.hashes[name] = t, hex.EncodeToString(h[:8])
	return nil
}

// maxPrompt is the limit, in bytes, of what one part of a template becomes: a
// template can write itself a thousand times over.
const maxPrompt = 16 << 20

type capped struct{ strings.Builder }

func (c *capped) Write(p []byte) (int, error) {
	if c.Len()+len(p) > maxPrompt {
		return 0, fmt.Errorf("it becomes longer than %d bytes; shorten the template, or what is filled in", maxPrompt)
	}
	return c.Builder.Write(p)
}

// Names returns the names of the templates, sorted.
func (s *Set) Names() []string {
	names := make([]string, 0, len(s.byName))
	for n := range s.byName {
		names = append(names, n)
	}
	sort.Strings(names)
	return names
}

// Hashes returns, for the named templates, the first 8 bytes of each one's
// SHA-256 in hexadecimal.
func (s *Set) Hashes(names ...string) map[string]string {
	out := make(map[string]string, len(names))
	for _, n := range names {
		out[n] = s.hashes[n]
	}
	return out
}

// Build fills the named template and returns a prompt of a system message, a
// user message where the template has one, and the lead-in.
func (s *Set) Build(name string, data any) (infer.Prompt, error) {
	t, ok := s.byName[name]
	if !ok {
		return infer.Prompt{}, fmt.Errorf("no prompt template %q", name)
	}
	part := func(p string) (string, error) {
		var b capped
		if err := t.ExecuteTemplate(&b, p, data); err != nil {
			return "", fmt.Errorf("fill prompt template %s: %w", name, err)
		}
		return b.String(), nil
	}
	system, err1 := part("system")
	user, err2 := part("user")
	lead, err3 := part("lead_in")
	if err := errors.Join(err1, err2, err3); err != nil {
		return infer.Prompt{}, err
	}
	p := infer.Prompt{LeadIn: lead}
	p.Messages = append(p.Messages, infer.Message{Role: infer.System, Content: strings.TrimSpace(system)})
	if user = strings.TrimSpace(user); user != "" {
		p.Messages = append(p.Messages, infer.Message{Role: infer.User, Content: user})
	}
	return p, nil
}

// WriteTo copies the embedded templates into dir, for a user to change. Where
// one of them exists already it is kept, nothing is written, and the error names it.
func WriteTo(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("make prompt folder: %w", err)
	}
	entries, err := fs.ReadDir(embedded, "templates")
	if err != nil {
		return fmt.Errorf("read embedded templates: %w", err)
	}
	for _, e := range entries {
		if _, err := os.Lstat(filepath.Join(dir, e.Name())); err == nil {
			return exists(dir, e.Name())
		}
	}
	for _, e := range entries {
		b, err := fs.ReadFile(embedded, "templates/"+e.Name())
		if err != nil {
			return fmt.Errorf("read embedded template: %w", err)
		}
		f, err := os.OpenFile(filepath.Join(dir, e.Name()), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
		if errors.Is(err, fs.ErrExist) {
			return exists(dir, e.Name())
		}
		if err != nil {
			return fmt.Errorf("write prompt template: %w", err)
		}
		_, err = f.Write(b)
		if err := errors.Join(err, f.Close()); err != nil {
			return fmt.Errorf("write prompt template: %w", err)
		}
	}
	return nil
}

func exists(dir, name string) error {
	return fmt.Errorf("%s exists; choose an empty folder", filepath.Join(dir, name))
}
