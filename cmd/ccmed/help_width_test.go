package main

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/spf13/cobra"
)

// TestHelpFitsATerminal: no line of any help is wider than 80 columns, but for examples,
// which are commands to copy.
func TestHelpFitsATerminal(t *testing.T) {
	const width = 80
	seen := 0
	var walk func(cmd *cobra.Command)
	walk = func(cmd *cobra.Command) {
		for _, c := range cmd.Commands() {
			walk(c)
		}
		if !cmd.IsAvailableCommand() || cmd.Name() == "completion" || cmd.HasParent() && cmd.Parent().Name() == "completion" {
			return // cobra's own words
		}
		seen++
		code, out, errs := exits(nil, append(strings.Fields(cmd.CommandPath())[1:], "--help")...)
		if code != exitDone {
			t.Fatalf("%s: %s", cmd.CommandPath(), errs)
		}
		for line := range strings.SplitSeq(out, "\n") {
			if utf8.RuneCountInString(line) > width && !strings.HasPrefix(line, "  ccmed ") {
				t.Errorf("%s: %q", cmd.CommandPath(), line)
			}
		}
	}
	walk(newApp().root())
	if seen < 30 {
		t.Errorf("only %d commands were looked at", seen)
	}
}

// TestCommandsAreGrouped: every command that help lists stands under a purpose.
func TestCommandsAreGrouped(t *testing.T) {
	root := newApp().root()
	for _, c := range root.Commands() {
		if c.IsAvailableCommand() && c.GroupID == "" {
			t.Errorf("%s has no group", c.Name())
		}
	}
	for _, g := range groups {
		for name := range strings.FieldsSeq(g.commands) {
			if c, _, err := root.Find([]string{name}); err != nil || c.GroupID != g.id {
				t.Errorf("the group %s names %s, which is no command of it", g.id, name)
			}
		}
	}
}
