package main

import (
	"io"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// Every command that can be run shows examples, and the examples are what the
// program takes: known commands, known flags, the right number of arguments.
func TestExamples(t *testing.T) {
	walk := func() (cs []*cobra.Command) {
		var add func(c *cobra.Command)
		add = func(c *cobra.Command) {
			cs = append(cs, c)
			for _, s := range c.Commands() {
				add(s)
			}
		}
		add(newTestApp().root())
		return cs
	}
	examples := 0
	for _, c := range walk() {
		generated := c.Name() == "help" || strings.HasPrefix(c.CommandPath(), "ccmed completion")
		if c.Hidden || c.HasSubCommands() || !c.Runnable() || generated {
			continue
		}
		if c.Example == "" {
			t.Errorf("%s has no example", c.CommandPath())
		}
		for line := range strings.Lines(c.Example) {
			_, call, found := strings.Cut(line, "ccmed ")
			if !found {
				t.Errorf("%s: the example %q does not call ccmed", c.CommandPath(), line)
				continue
			}
			examples++
			root := newTestApp().root()
			target, rest, err := root.Find(strings.Fields(call))
			if err != nil {
				t.Errorf("%q: %v", call, err)
				continue
			}
			if target.CommandPath() != c.CommandPath() {
				t.Errorf("%q is an example of %s and calls %s", call, c.CommandPath(), target.CommandPath())
			}
			if err := target.ParseFlags(rest); err != nil {
				t.Errorf("%q: %v", call, err)
			} else if err := target.ValidateArgs(target.Flags().Args()); err != nil {
				t.Errorf("%q: %v", call, err)
			}
		}
	}
	if examples < 15 {
		t.Errorf("only %d examples were found", examples)
	}
}

func newTestApp() *app {
	return &app{stdin: strings.NewReader(""), stdout: io.Discard, stderr: io.Discard, getenv: func(string) string { return "" }}
}
