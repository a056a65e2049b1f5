package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/yuin/goldmark/ast"

	"github.com/ccmed/ccmed/infer/infertest"
	"github.com/ccmed/ccmed/infer/llamacpp"
)

// A lesson is a step of the tutorial: a block of shell, and what it must print.
type lesson struct {
	script string
	setup  bool   // makes what the test has already: it is not run
	exit   int    // the exit status that it must have
	output string // pattern of what it prints; empty for anything
	varies bool   // numbers with a decimal point differ between machines
}

// lessons reads the tutorial's blocks. What a block of shell must print stands in the
// next block, as text:
//
//	```sh              run it; it must exit with 0
//	```sh setup        do not run it
//	```sh exit=1       it must exit with 1
//	```text            it prints this
//	```text varies     the same, but numbers with a decimal point may be others
//
// In a block of text a line of three dots stands for any lines, and three dots
// within a line for anything. The width of gaps between words does not matter.
func lessons(p document) ([]lesson, error) {
	var all []lesson
	for n := p.root.FirstChild(); n != nil; n = n.NextSibling() {
		b, ok := n.(*ast.FencedCodeBlock)
		if !ok || b.Info == nil {
			continue
		}
		text := string(b.Lines().Value(p.source))
		info := strings.Fields(string(b.Info.Segment.Value(p.source)))
		switch info[0] {
		case "sh":
			l := lesson{script: text}
			for _, word := range info[1:] {
				exit, isExit := strings.CutPrefix(word, "exit=")
				var err error
				switch {
				case isExit:
					l.exit, err = strconv.Atoi(exit)
				case word == "setup":
					l.setup = true
				default:
					err = fmt.Errorf("%q is no mark of a block of shell", word)
				}
				if err != nil {
					return nil, err
				}
			}
			all = append(all, l)
		case "text":
			if len(all) == 0 || all[len(all)-1].output != "" {
				return nil, fmt.Errorf("no block of shell prints this:\n%s", text)
			}
			all[len(all)-1].output = text
			all[len(all)-1].varies = slices.Contains(info, "varies")
		}
	}
	return all, nil
}

var (
	decimal = regexp.MustCompile(`\d+\\\.\d+`)
	gaps    = regexp.MustCompile(`[ \t]+`)
)

// pattern turns what a step must print into a regular expression for all of it.
func (l lesson) pattern() *regexp.Regexp {
	var b strings.Builder
	b.WriteString(`\A`)
	for line := range strings.Lines(l.output) {
		if line = squeeze(line); line == "..." {
			b.WriteString(`(?:.*\n)*?`)
			continue
		}
		line = strings.ReplaceAll(regexp.QuoteMeta(line), `\.\.\.`, `.*?`)
		if l.varies {
			line = decimal.ReplaceAllString(line, `\d+\.\d+`)
		}
		b.WriteString(line + `\n`)
	}
	b.WriteString(`\z`)
	return regexp.MustCompile(b.String())
}

func squeeze(line string) string {
	return strings.TrimSpace(gaps.ReplaceAllString(line, " "))
}

// check runs a step as a reader would, and says what is not as the tutorial has it.
func (l lesson) check(t *testing.T, dir string, env []string) error {
	t.Helper()
	bash := exec.CommandContext(t.Context(), "bash", "-euo", "pipefail", "-c", l.script)
	bash.Dir, bash.Env = dir, env
	printed, err := bash.CombinedOutput()
	var exited *exec.ExitError
	if err != nil && !errors.As(err, &exited) {
		return err
	}
	if got := bash.ProcessState.ExitCode(); got != l.exit {
		return fmt.Errorf("exit status %d, want %d; it printed\n%s", got, l.exit, printed)
	}
	var lines strings.Builder
	for line := range strings.Lines(string(printed)) {
		lines.WriteString(squeeze(line) + "\n")
	}
	if l.output != "" && !l.pattern().MatchString(lines.String()) {
		return fmt.Errorf("it does not print\n%s\nbut\n%s", l.output, printed)
	}
	return nil
}

// TestTutorial does what docs/tutorial.md says, with the real model, and holds
// what is printed against what is shown there.
func TestTutorial(t *testing.T) {
	withoutRaces(t)
	model := infertest.ModelPath(t)
	needEngine(t)
	model, err := filepath.Abs(model)
	if err != nil {
		t.Fatal(err)
	}
	engine, err := llamacpp.Locate()
	if err != nil {
		t.Fatal(err)
	}
	all, err := lessons(readPage(t, "docs/tutorial.md"))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	env := append(os.Environ(), "MODEL="+model, "YZMA_LIB="+engine, "CCMED_CACHE="+filepath.Join(dir, ".cache"), "OLLAMA_HOST=127.0.0.1:1")
	ran := 0
	for _, l := range all {
		if l.setup {
			continue
		}
		ran++
		if err := l.check(t, dir, env); err != nil {
			t.Fatalf("%s%v", l.script, err) // the steps that follow need this one
		}
	}
	if ran < 10 {
		t.Errorf("only %d steps were run", ran)
	}
	for _, name := range []string{"layers.html", "first-steps.html"} {
		b, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		for _, curve := range []string{"D, end of prompt", "ND, end of prompt", "D, end of utterance", "ND, end of utterance"} {
			for _, layer := range []string{"embed", "block.6", "block.12", "block.18", "block.24", "block.30"} {
				if point := fmt.Sprintf("<title>%s, %s: ", curve, layer); !strings.Contains(string(b), point) {
					t.Errorf("the layer figure of %s has no point %q", name, point)
				}
			}
		}
	}
}

// TestLessons: a page that does not do what it says is found out.
func TestLessons(t *testing.T) {
	env := os.Environ()
	for _, c := range []struct {
		name   string
		lesson lesson
		passes bool
	}{
		{"prints it", lesson{script: "echo one; echo two", output: "one\ntwo\n"}, true},
		{"prints on standard error", lesson{script: "echo one >&2", output: "one\n"}, true},
		{"prints more", lesson{script: "echo one; echo two", output: "one\n"}, false},
		{"prints more where it may", lesson{script: "echo one; echo two", output: "one\n...\n"}, true},
		{"prints nothing where anything may be", lesson{script: "echo one", output: "one\n...\n"}, true},
		{"prints another line", lesson{script: "echo one; echo two; echo three", output: "one\nthree\n"}, false},
		{"lines between", lesson{script: "seq 9", output: "1\n...\n9\n"}, true},
		{"anything in a line", lesson{script: "echo run in 3.1s", output: "run in ...\n"}, true},
		{"gaps", lesson{script: "echo 'a    b  '", output: "a b\n"}, true},
		{"other figures", lesson{script: "echo 0.125 of 3", output: "0.250 of 3\n", varies: true}, true},
		{"other figures that may not differ", lesson{script: "echo 0.125 of 3", output: "0.250 of 3\n"}, false},
		{"other counts", lesson{script: "echo 0.125 of 4", output: "0.250 of 3\n", varies: true}, false},
		{"a dot is a dot", lesson{script: "echo 1x5", output: "1.5\n"}, false},
		{"fails", lesson{script: "exit 1"}, false},
		{"fails midway", lesson{script: "false\necho on"}, false},
		{"must fail", lesson{script: "exit 3", exit: 3}, true},
		{"must fail and does not", lesson{script: "true", exit: 3}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			if err := c.lesson.check(t, t.TempDir(), env); (err == nil) != c.passes {
				t.Errorf("passes = %v, want %v: %v", err == nil, c.passes, err)
			}
		})
	}
}
