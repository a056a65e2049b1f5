package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"gopkg.in/yaml.v3"

	"github.com/ccmed/ccmed/cmd/ccmed/internal/cli"
)

func fileText(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// docs/commands is what the program says of itself.
func TestCommandPages(t *testing.T) {
	dir := filepath.Join("..", "..", "docs", "commands")
	pages := cli.MarkdownPages(newTestApp().root())
	for name, want := range pages {
		if got := fileText(t, filepath.Join(dir, name)); got != want {
			t.Errorf("docs/commands/%s is old; run: ccmed docs markdown docs/commands", name)
		}
	}
	there, err := filepath.Glob(filepath.Join(dir, "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range there {
		if _, ok := pages[filepath.Base(path)]; !ok {
			t.Errorf("%s is no page of a command; run: ccmed docs markdown docs/commands", path)
		}
	}
	all := strings.Builder{}
	for _, text := range pages {
		all.WriteString(text)
	}
	cli.Walk(newTestApp().root(), func(c *cobra.Command) {
		if c.HasParent() && cli.Documented(c) && cli.Documented(c.Parent()) && !strings.Contains(all.String(), "# "+c.CommandPath()+"\n") {
			t.Errorf("no page tells of %s", c.CommandPath())
		}
	})
}

// docs/schemas/ccmed.schema.json is the schema of this program's flags.
func TestConfigSchema(t *testing.T) {
	root := newTestApp().root()
	b, err := cli.ConfigSchema(root, enumerations())
	if err != nil {
		t.Fatal(err)
	}
	if fileText(t, filepath.Join("..", "..", "docs", "schemas", "ccmed.schema.json")) != string(b) {
		t.Error("docs/schemas/ccmed.schema.json is old; run: ccmed docs config-schema >docs/schemas/ccmed.schema.json")
	}
	// Every flag of every command has its place in the command's section.
	type section struct {
		Properties map[string]json.RawMessage
		AnyOf      []json.RawMessage
	}
	inside := func(raw json.RawMessage, name string) json.RawMessage {
		var s section
		if err := json.Unmarshal(raw, &s); err != nil {
			t.Fatal(err)
		}
		for _, form := range s.AnyOf {
			var inner section
			if err := json.Unmarshal(form, &inner); err == nil && len(inner.Properties) > 0 {
				s = inner
			}
		}
		return s.Properties[name]
	}
	cli.Walk(root, func(c *cobra.Command) {
		if !c.IsAvailableCommand() || !cli.TakesSettings(c) || c.IsAdditionalHelpTopicCommand() {
			return
		}
		raw := json.RawMessage(b)
		for _, name := range strings.Fields(c.CommandPath())[1:] {
			if raw = inside(raw, name); raw == nil {
				t.Fatalf("no section for %s", c.CommandPath())
			}
		}
		c.LocalFlags().VisitAll(func(f *pflag.Flag) {
			if cli.Configurable(f) && cli.Reaches[f.Name] != cli.Starts && inside(raw, f.Name) == nil {
				t.Errorf("the section of %s has no %s", c.CommandPath(), f.Name)
			}
		})
	})
}

// The schema takes what the program takes, and refuses what it refuses.
func TestConfigSchemaValidates(t *testing.T) {
	file := filepath.Join("..", "..", "docs", "schemas", "ccmed.schema.json")
	schema, err := jsonschema.NewCompiler().Compile(file)
	if err != nil {
		t.Fatal(err)
	}
	_, example, _ := strings.Cut(configHelp, "and a flag on the command line beats both.\n")
	example, _, _ = strings.Cut(example, "\nNo settings file names")
	for _, c := range []struct {
		text string
		ok   bool
	}{
		{example, true},
		{"limit: 3\ndata: 9001\ncache: off\n", true},
		{"mediate: {rubric: [none, stage], limit: 2}\nrubric: none\n", true},
		{"probe: {seed: 3, extract: {dtype: f32}, train: {groups: country}}\n", true},
		{"report: {format: md}\nquiet: true\n", true},
		{"modle: fake\n", false},
		{"timing: {moode: pick}\n", false},
		{"timing: {sim-temperature: 1}\n", false},
		{"timing: {mode: guess}\n", false},
		{"limit: many\n", false},
		{"limit: [1]\n", false},
		{"model:\n", false},
		{"extract: {dtype: f32}\n", false},
		{"config: other.yaml\n", false},
		{"sft: {train: {python: ./x}}\n", false},
	} {
		var v any
		if err := yaml.Unmarshal([]byte(c.text), &v); err != nil {
			t.Fatalf("%s: %v", c.text, err)
		}
		if err := schema.Validate(v); (err == nil) != c.ok {
			t.Errorf("the schema says %v of\n%s", err, c.text)
		}
		path := filepath.Join(t.TempDir(), "ccmed.yaml")
		if err := os.WriteFile(path, []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		code, _, errs := exits(nil, "data", "stats", "sample", "--config", path)
		if refused := code == exitUsage; refused && c.ok || !refused && !c.ok && !strings.Contains(c.text, "guess") && c.text != "limit: many\n" {
			t.Errorf("the program exits with %d of\n%s%s", code, c.text, errs)
		}
	}
}

// What the program knows of a flag's values is what the flag's help says.
func TestEnumerations(t *testing.T) {
	root := newTestApp().root()
	for _, e := range enumerations() {
		found := false
		cli.Walk(root, func(c *cobra.Command) {
			path := strings.TrimPrefix(c.CommandPath(), "ccmed ")
			f := c.LocalFlags().Lookup(e.Flag)
			if f == nil || e.Command != "" && e.Command != path {
				return
			}
			found = true
			for _, v := range e.Values {
				if !strings.Contains(f.Usage, v) {
					t.Errorf("the help of %s --%s does not name %q", path, e.Flag, v)
				}
			}
			if d := f.DefValue; !e.Open && d != "" && !cli.IsList(f) && !strings.Contains(strings.Join(e.Values, " "), d) {
				t.Errorf("the default %q of %s --%s is none of %v", d, path, e.Flag, e.Values)
			}
		})
		if !found {
			t.Errorf("there is no flag --%s of %q", e.Flag, e.Command)
		}
	}
}

func TestDidYouMean(t *testing.T) {
	known := []string{"timing", "mode", "model", "metrics", "max-tokens", "max-failures", "num-ctx"}
	for name, want := range map[string]string{"timign": "timing", "modle": "model", "modes": "mode", "max-token": "max-tokens", "num_ctx": "num-ctx",
		"metric": "metrics", "max-fail": "max-failures", "xyzzy": "", "": ""} {
		got := cli.DidYouMean("--", name, known)
		if want != "" {
			want = "; did you mean --" + want + "?"
		}
		if got != want {
			t.Errorf("%q: %q, want %q", name, got, want)
		}
	}
}
