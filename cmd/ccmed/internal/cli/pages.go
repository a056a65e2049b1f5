package cli

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
	"github.com/spf13/pflag"

	"github.com/ccmed/ccmed/bench/disk"
)

// WriteMan writes the pages of section 1. Their date is the epoch of reproducible
// builds, so that the same program gives the same pages.
func WriteMan(root *cobra.Command, dir string) error {
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return fmt.Errorf("make the folder of the man pages: %w", err)
	}
	date := time.Unix(0, 0).UTC()
	escaped := map[*pflag.Flag]bool{}
	Walk(root, func(c *cobra.Command) {
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

// WriteMarkdown writes one page a group of commands, one for the help topics and an
// index, and removes generated pages that are no longer among them.
func WriteMarkdown(root *cobra.Command, dir string) error {
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return fmt.Errorf("make the folder of the pages: %w", err)
	}
	pages := MarkdownPages(root)
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

// Documented says whether a command has a page.
func Documented(c *cobra.Command) bool {
	return c.IsAvailableCommand() && c.Name() != "help" && c.Name() != "completion"
}

func MarkdownPages(root *cobra.Command) map[string]string {
	pages := map[string]string{}
	var index, about strings.Builder
	fmt.Fprintf(&index, "%s\n\n# Commands\n\n%s\n\n| command | |\n|---|---|\n", generated, root.Long)
	fmt.Fprintf(&about, "%s\n\n# Help topics\n", generated)
	for _, c := range root.Commands() {
		switch {
		case Documented(c):
			page := c.Name() + ".md"
			fmt.Fprintf(&index, "| [`%s`](%s) | %s |\n", c.CommandPath(), page, c.Short)
			for _, s := range c.Commands() {
				if Documented(s) {
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
		if Documented(s) {
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
