package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"
	"unicode"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	"github.com/yuin/goldmark/text"
	"mvdan.cc/sh/v3/syntax"
)

// A document is a Markdown file of the project, as a tree.
type document struct {
	path   string // relative to the project's root
	source []byte
	root   ast.Node
}

const projectRoot = "../.."

// readPage parses one file, which is named relative to the project's root.
func readPage(t *testing.T, name string) document {
	t.Helper()
	source, err := os.ReadFile(filepath.Join(projectRoot, name))
	if err != nil {
		t.Fatal(err)
	}
	md := goldmark.New(goldmark.WithExtensions(extension.GFM))
	return document{path: name, source: source, root: md.Parser().Parse(text.NewReader(source))}
}

// pages reads every Markdown file of the documentation.
func pages(t *testing.T) []document {
	t.Helper()
	var all []document
	for _, name := range []string{"README.md", "CONTRIBUTING.md", "CHANGELOG.md"} {
		all = append(all, readPage(t, name))
	}
	err := fs.WalkDir(os.DirFS(projectRoot), "docs", func(name string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() && strings.HasSuffix(name, ".md") {
			all = append(all, readPage(t, name))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// A block is one piece of code on a page: a block of lines, or a span within a sentence.
type block struct {
	text     string
	language string // of a fenced block, as in ```sh
	span     bool
}

func (p document) blocks() []block {
	var all []block
	_ = ast.Walk(p.root, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		if !entering {
			return ast.WalkContinue, nil
		}
		switch n := n.(type) {
		case *ast.FencedCodeBlock:
			all = append(all, block{text: string(n.Lines().Value(p.source)), language: string(n.Language(p.source))})
		case *ast.CodeBlock:
			all = append(all, block{text: string(n.Lines().Value(p.source))})
		case *ast.CodeSpan:
			var b strings.Builder
			for c := n.FirstChild(); c != nil; c = c.NextSibling() {
				if s, ok := c.(*ast.Text); ok {
					b.Write(s.Segment.Value(p.source))
				}
			}
			all = append(all, block{text: strings.ReplaceAll(b.String(), "\n", " "), span: true})
		}
		return ast.WalkContinue, nil
	})
	return all
}

// TestDocumentedCommands: every call of ccmed in the documentation names a command
// and flags that are there, with values of the right type and the right number of
// arguments. Pages that are generated from the commands themselves are left out.
func TestDocumentedCommands(t *testing.T) {
	calls := 0
	for _, p := range pages(t) {
		if strings.HasPrefix(p.path, "docs/commands/") {
			continue
		}
		for _, b := range p.blocks() {
			found, err := callsOf(b)
			if err != nil {
				t.Errorf("%s: a block of shell cannot be read: %v\n%s", p.path, err, b.text)
			}
			for _, args := range found {
				calls++
				if err := checkCall(args, b.span); err != nil {
					t.Errorf("%s: ccmed %s: %v", p.path, strings.Join(args, " "), err)
				}
			}
		}
	}
	if calls < 100 {
		t.Errorf("only %d calls were found", calls)
	}
}

// callsOf returns the arguments of every call of ccmed in a block. A variable
// stands for 1, which is a number as well as a name. A block that is not said to be
// shell may be anything: of what is not shell, only lines that begin with the
// program's name count.
func callsOf(b block) ([][]string, error) {
	if b.span && !strings.HasPrefix(b.text, "ccmed ") {
		return nil, nil
	}
	shell := b.language == "sh" || b.language == "bash"
	if b.language != "" && !shell {
		return nil, nil
	}
	calls, err := shellCalls(b.text)
	if err == nil || shell {
		return calls, err
	}
	for line := range strings.Lines(strings.ReplaceAll(b.text, "\\\n", " ")) {
		if line = strings.TrimSpace(line); strings.HasPrefix(line, "ccmed ") || strings.HasPrefix(line, "bin/ccmed ") {
			some, err := shellCalls(line)
			if err != nil {
				return nil, err
			}
			calls = append(calls, some...)
		}
	}
	return calls, nil
}

func shellCalls(script string) ([][]string, error) {
	file, err := syntax.NewParser().Parse(strings.NewReader(script), "")
	if err != nil {
		return nil, err
	}
	var calls [][]string
	syntax.Walk(file, func(n syntax.Node) bool {
		call, ok := n.(*syntax.CallExpr)
		if !ok {
			return true
		}
		var words []string
		for _, w := range call.Args {
			words = append(words, word(w.Parts))
			if lit := w.Lit(); strings.Contains(lit, "*") { // names of several files
				words = append(words, lit)
			}
		}
		for i, w := range words { // not always the first: srun ccmed ...
			if w == "ccmed" || strings.HasSuffix(w, "bin/ccmed") {
				calls = append(calls, words[i+1:])
				break
			}
		}
		return true
	})
	return calls, nil
}

func word(parts []syntax.WordPart) string {
	var b strings.Builder
	for _, p := range parts {
		switch p := p.(type) {
		case *syntax.Lit:
			b.WriteString(p.Value)
		case *syntax.SglQuoted:
			b.WriteString(p.Value)
		case *syntax.DblQuoted:
			b.WriteString(word(p.Parts))
		default:
			b.WriteString("1")
		}
	}
	return b.String()
}

// checkCall holds a command line against the tree of commands. A span within a
// sentence often names a command, or its last flag, without what it takes.
func checkCall(args []string, span bool) error {
	root := newTestApp().root()
	root.InitDefaultCompletionCmd()
	target, rest, err := root.Find(args)
	if err != nil {
		return err
	}
	err = target.ParseFlags(rest)
	var bare *pflag.ValueRequiredError
	if errors.Is(err, pflag.ErrHelp) || span && errors.As(err, &bare) {
		return nil
	}
	if err != nil {
		return err
	}
	given := target.Flags().Args()
	if target.HasSubCommands() && len(given) > 0 {
		return fmt.Errorf("%s has no command %q", target.CommandPath(), given[0])
	}
	if target.Name() == "help" {
		return topicExists(root, given)
	}
	if span && len(given) == 0 {
		return nil
	}
	return target.ValidateArgs(given)
}

func topicExists(root *cobra.Command, name []string) error {
	about, rest, err := root.Find(name)
	if err == nil && (len(rest) > 0 || about == root) {
		err = fmt.Errorf("there is no help topic %q", strings.Join(name, " "))
	}
	return err
}

// TestDocumentedLinks: every relative link of the documentation leads to a file,
// and to a heading where it names one.
func TestDocumentedLinks(t *testing.T) {
	links := 0
	for _, p := range pages(t) {
		_ = ast.Walk(p.root, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
			link, ok := n.(*ast.Link)
			if !ok || !entering || strings.Contains(string(link.Destination), "://") {
				return ast.WalkContinue, nil
			}
			links++
			file, heading, _ := strings.Cut(string(link.Destination), "#")
			target := p
			if file != "" {
				name := path.Join(path.Dir(p.path), file)
				if _, err := os.Stat(filepath.Join(projectRoot, name)); err != nil {
					t.Errorf("%s links to %s, which is not there", p.path, link.Destination)
					return ast.WalkContinue, nil
				}
				if heading != "" {
					target = readPage(t, name)
				}
			}
			if heading != "" && !target.hasHeading(heading) {
				t.Errorf("%s links to %s, which has no such heading", p.path, link.Destination)
			}
			return ast.WalkContinue, nil
		})
	}
	if links < 20 {
		t.Errorf("only %d links were found", links)
	}
}

// hasHeading tells whether a heading has the name that repositories' pages give it
// in links: small letters, hyphens for spaces, no punctuation.
func (p document) hasHeading(name string) bool {
	found := false
	_ = ast.Walk(p.root, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		h, ok := n.(*ast.Heading)
		if !ok || !entering {
			return ast.WalkContinue, nil
		}
		title := strings.Map(func(r rune) rune {
			switch {
			case unicode.IsLetter(r) || unicode.IsDigit(r) || r == '-' || r == '_':
				return unicode.ToLower(r)
			case r == ' ':
				return '-'
			}
			return -1
		}, string(h.Lines().Value(p.source)))
		found = found || title == name
		return ast.WalkContinue, nil
	})
	return found
}
