package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
	"github.com/spf13/pflag"

	"github.com/ccmed/ccmed/bench/disk"
)

// docsCmd writes what describes the program: for package makers, editors and the
// documentation of this project.
func (a *app) docsCmd() *cobra.Command {
	cmd := &cobra.Command{Use: "docs", Short: "Write man pages, Markdown pages and the schema of ccmed.yaml"}
	man := &cobra.Command{
		Use: "man DIR", Short: "Write a man page for every command", Args: cobra.ExactArgs(1), Example: "  ccmed docs man share/man/man1",
		RunE: func(cmd *cobra.Command, args []string) error { return writeMan(cmd.Root(), args[0]) },
	}
	markdown := &cobra.Command{
		Use: "markdown DIR", Short: "Write a Markdown page for every group of commands", Args: cobra.ExactArgs(1), Example: "  ccmed docs markdown docs/commands",
		RunE: func(cmd *cobra.Command, args []string) error { return writeMarkdown(cmd.Root(), args[0]) },
	}
	schema := &cobra.Command{
		Use: "config-schema", Short: "Print the JSON Schema of ccmed.yaml", Args: cobra.NoArgs, Example: "  ccmed docs config-schema",
		RunE: func(cmd *cobra.Command, _ []string) error {
			b, err := configSchema(cmd.Root())
			if err == nil {
				_, err = a.stdout.Write(b)
			}
			return err
		},
	}
	cmd.AddCommand(man, markdown, schema)
	return cmd
}

// writeMan writes the pages of section 1. Their date is the epoch of reproducible
// builds, so that the same program gives the same pages.
func writeMan(root *cobra.Command, dir string) error {
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return fmt.Errorf("make the folder of the man pages: %w", err)
	}
	date := time.Unix(0, 0).UTC()
	escaped := map[*pflag.Flag]bool{}
	walk(root, func(c *cobra.Command) {
		c.DisableAutoGenTag = true
		c.Long = manText(c.Long)
		c.LocalFlags().VisitAll(func(f *pflag.Flag) {
			if !escaped[f] { // flags of every command are met at each
				f.Usage, escaped[f] = manEscaper.Replace(f.Usage), true
			}
		})
	})
	if err := doc.GenManTree(root, &doc.GenManHeader{Section: "1", Source: "ccmed", Manual: "ccmed manual", Date: &date}, dir); err != nil {
		return fmt.Errorf("write the man pages: %w", err)
	}
	return nil
}

// manEscaper keeps what Markdown, from which man pages are made, would take for its own:
// <TURN_END> would be left out as HTML, and runs/* begin emphasis.
var manEscaper = strings.NewReplacer("<", `\<`, "*", `\*`, "_", `\_`)

// manText writes a help text as Markdown: what is indented stays as it stands.
func manText(s string) string {
	lines := strings.Split(s, "\n")
	for i, l := range lines {
		if strings.HasPrefix(l, "  ") {
			lines[i] = "  " + l
		} else {
			lines[i] = manEscaper.Replace(l)
		}
	}
	return strings.Join(lines, "\n")
}

// generated is the first line of every generated page, and says what may be
// replaced or removed.
const generated = "<!-- Written by `ccmed docs markdown`; change the help texts instead. -->"

// writeMarkdown writes one page a group of commands, one for the help topics and an
// index, and removes generated pages that are no longer among them.
func writeMarkdown(root *cobra.Command, dir string) error {
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return fmt.Errorf("make the folder of the pages: %w", err)
	}
	pages := markdownPages(root)
	for name, text := range pages {
		path := filepath.Join(dir, name)
		old, err := os.ReadFile(path)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("write the pages: %w", err)
		}
		if err == nil && !bytes.HasPrefix(old, []byte(generated)) {
			return fmt.Errorf("%s is no page of this command and is kept; name another folder", path)
		}
		if err := disk.WriteEntry(path, []byte(text), 0o644); err != nil {
			return fmt.Errorf("write the pages: %w", err)
		}
	}
	there, err := filepath.Glob(filepath.Join(dir, "*.md"))
	if err != nil {
		return fmt.Errorf("look for old pages: %w", err)
	}
	for _, path := range there {
		old, err := os.ReadFile(path)
		if _, current := pages[filepath.Base(path)]; err == nil && !current && bytes.HasPrefix(old, []byte(generated)) {
			if err := os.Remove(path); err != nil {
				return fmt.Errorf("remove an old page: %w", err)
			}
		}
	}
	return nil
}

// documented says whether a command has a page.
func documented(c *cobra.Command) bool {
	return c.IsAvailableCommand() && c.Name() != "help" && c.Name() != "completion"
}

func markdownPages(root *cobra.Command) map[string]string {
	pages := map[string]string{}
	var index, about strings.Builder
	fmt.Fprintf(&index, "%s\n\n# Commands\n\n%s\n\n| command | |\n|---|---|\n", generated, root.Long)
	fmt.Fprintf(&about, "%s\n\n# Help topics\n", generated)
	for _, c := range root.Commands() {
		switch {
		case documented(c):
			page := c.Name() + ".md"
			fmt.Fprintf(&index, "| [`%s`](%s) | %s |\n", c.CommandPath(), page, c.Short)
			for _, s := range c.Commands() {
				if documented(s) {
					fmt.Fprintf(&index, "| [`%s`](%s#%s) | %s |\n", s.CommandPath(), page, anchor(s.CommandPath()), s.Short)
				}
			}
			pages[page] = generated + "\n" + commandPage(c, "#")
		case c.IsAdditionalHelpTopicCommand() && !c.Hidden:
			fmt.Fprintf(&about, "\n## %s\n\n`%s` prints this:\n\n%s", c.Short, "ccmed help "+c.Name(), textBlock(c.Long))
		}
	}
	fmt.Fprintf(&index, "\nFlags of every command:\n\n%s\n[Help topics](topics.md): exit codes, environment, settings, formats, methods.\n", textBlock(root.PersistentFlags().FlagUsages()))
	pages["README.md"], pages["topics.md"] = index.String(), about.String()
	return pages
}

func anchor(path string) string { return strings.ReplaceAll(path, " ", "-") }

// sentence ends a short help text, most of which have no full stop, as a sentence.
func sentence(s string) string {
	if strings.HasSuffix(s, "?") {
		return s
	}
	return strings.TrimSuffix(s, ".") + "."
}

// commandPage is the page of a command and of those below it.
func commandPage(c *cobra.Command, level string) string {
	c.InitDefaultHelpFlag() // which the command that runs now has already
	var b strings.Builder
	fmt.Fprintf(&b, "\n%s %s\n\n%s\n", level, c.CommandPath(), sentence(c.Short))
	if c.Long != "" {
		fmt.Fprintf(&b, "\n%s", textBlock(c.Long))
	}
	if c.Runnable() && !c.HasAvailableSubCommands() {
		fmt.Fprintf(&b, "\n%s", textBlock(c.UseLine()))
	}
	if c.Example != "" {
		lines := strings.Split(strings.TrimSpace(c.Example), "\n")
		for i, l := range lines {
			lines[i] = strings.TrimPrefix(l, "  ")
		}
		fmt.Fprintf(&b, "\nExamples:\n\n```sh\n%s\n```\n", strings.Join(lines, "\n"))
	}
	if own := withoutHelp(c.NonInheritedFlags()); own.HasAvailableFlags() && !c.HasAvailableSubCommands() {
		fmt.Fprintf(&b, "\nFlags:\n\n%s", textBlock(own.FlagUsages()))
	}
	for _, s := range c.Commands() {
		if documented(s) {
			b.WriteString(commandPage(s, level+"#"))
		}
	}
	return b.String()
}

func textBlock(s string) string { return "```text\n" + strings.Trim(s, "\n") + "\n```\n" }

// withoutHelp leaves out the flag that every command has.
func withoutHelp(fs *pflag.FlagSet) *pflag.FlagSet {
	out := pflag.NewFlagSet("", pflag.ContinueOnError)
	fs.VisitAll(func(f *pflag.Flag) {
		if f.Name != "help" {
			out.AddFlag(f)
		}
	})
	return out
}

// configSchema returns the JSON Schema (draft 2020-12) of ccmed.yaml: every flag of
// every command, and a section for each command.
func configSchema(root *cobra.Command) ([]byte, error) {
	s := sectionSchema(root)
	s["$schema"] = "https://json-schema.org/draft/2020-12/schema"
	s["$id"], s["title"] = "ccmed.schema.json", "ccmed.yaml"
	s["description"] = "Settings of ccmed: flags, and a section for a command's own flags. Programs are not among them; servers outside this machine and places to write count only in a file that --config names. See ccmed help config."
	// YAML reads 9001 and off as something else than text.
	s["$defs"] = map[string]any{"text": map[string]any{"type": []string{"string", "number", "boolean"}}}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(s); err != nil {
		return nil, fmt.Errorf("encode the schema of ccmed.yaml: %w", err)
	}
	return b.Bytes(), nil
}

func sectionSchema(c *cobra.Command) map[string]any {
	// A flag of several commands may mean several things: each of its forms is
	// allowed above them.
	forms := map[string][]map[string]any{}
	walk(c, func(c *cobra.Command) {
		if !takesSettings(c) || c.Hidden {
			return
		}
		add := func(f *pflag.Flag) {
			if !configurable(f) || reaches[f.Name] == starts {
				return
			}
			form := flagSchema(c, f)
			if !slices.ContainsFunc(forms[f.Name], func(other map[string]any) bool { return equalJSON(form, other) }) {
				forms[f.Name] = append(forms[f.Name], form)
			}
		}
		c.LocalFlags().VisitAll(add)
		c.InheritedFlags().VisitAll(add)
	})
	properties := map[string]any{}
	for name, all := range forms {
		if len(all) == 1 {
			properties[name] = all[0]
		} else {
			properties[name] = map[string]any{"anyOf": all}
		}
	}
	for _, s := range c.Commands() {
		if !s.IsAvailableCommand() || !takesSettings(s) || s.IsAdditionalHelpTopicCommand() {
			continue
		}
		section := sectionSchema(s)
		section["description"] = s.Short
		if flag, both := properties[s.Name()]; both {
			properties[s.Name()] = map[string]any{"anyOf": []any{flag, section}}
		} else {
			properties[s.Name()] = section
		}
	}
	return map[string]any{"type": "object", "additionalProperties": false, "properties": properties}
}

func equalJSON(a, b map[string]any) bool {
	x, err := json.Marshal(a)
	if err != nil {
		return false
	}
	y, err := json.Marshal(b)
	return err == nil && bytes.Equal(x, y)
}

// flagSchema is the schema of one flag's value.
func flagSchema(c *cobra.Command, f *pflag.Flag) map[string]any {
	item := map[string]any{}
	switch kind := strings.TrimSuffix(strings.TrimSuffix(f.Value.Type(), "Slice"), "Array"); {
	case kind == "bool":
		item["type"] = "boolean"
	case strings.HasPrefix(kind, "int"), strings.HasPrefix(kind, "uint"):
		item["type"] = "integer"
	case strings.HasPrefix(kind, "float"):
		item["type"] = "number"
	case kind == "duration":
		item["type"], item["pattern"] = "string", `^[0-9]+(\.[0-9]+)?(ns|us|ms|s|m|h)([0-9.]+(ns|us|ms|s|m|h))*$`
	default:
		item["$ref"] = "#/$defs/text"
	}
	if e, ok := valuesOf(c, f.Name); ok && !e.open {
		item = map[string]any{"enum": e.values}
	}
	s := item
	if isList(f) {
		s = map[string]any{"anyOf": []any{item, map[string]any{"type": "array", "items": item}}}
	}
	s["description"] = f.Usage
	return s
}
