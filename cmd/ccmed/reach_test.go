package main

import (
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/ccmed/ccmed/cmd/ccmed/internal/cli"
)

func quietRoot() *cobra.Command {
	return (&app{stdout: io.Discard, stderr: io.Discard, getenv: func(string) string { return "" }}).root()
}

// Every flag says what it can touch, and nothing else does.
func TestReaches(t *testing.T) {
	there := map[string]bool{"help": true, "version": true}
	cli.Walk(quietRoot(), func(c *cobra.Command) {
		c.LocalFlags().VisitAll(func(f *pflag.Flag) {
			there[f.Name] = true
			if cli.ReachOf(f) == 0 {
				t.Errorf("--%s of %s is not classified in internal/cli/reach.go: what can its value touch?", f.Name, c.CommandPath())
			}
		})
	})
	for name := range cli.Reaches {
		if !there[name] {
			t.Errorf("internal/cli/reach.go classifies --%s, which no command has", name)
		}
	}
}

// What a manifest's command line can set: nothing that starts a program or says
// where to write, for any command that makes runs.
func TestRecordedFlags(t *testing.T) {
	for _, task := range benches.Tasks() {
		a := &app{stdout: io.Discard, stderr: io.Discard, getenv: func(string) string { return "" }, benches: benches}
		for _, name := range a.makers(task) {
			command := strings.Fields(name)
			cmd, _, err := quietRoot().Find(command)
			if err != nil {
				t.Fatal(err)
			}
			cmd.Flags().VisitAll(func(f *pflag.Flag) {
				value := "x"
				switch f.Value.Type() {
				case "bool":
					value = "true"
				case "int", "int64", "float64":
					value = "1"
				case "duration":
					value = "1s"
				}
				command = append(command, "--"+f.Name+"="+value)
			})
			r, err := a.readRecorded(task, command)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			for _, f := range r.flags {
				if k := cli.ReachOf(f); k != cli.Plain && k != cli.Reads {
					t.Errorf("%s takes --%s from a manifest", name, f.Name)
				}
			}
			if len(r.flags) < 10 || !slices.Equal(r.hosts, []string{"x"}) || r.cache != "x" {
				t.Errorf("%s: %d flags, hosts %q, cache %q", name, len(r.flags), r.hosts, r.cache)
			}
		}
	}
}
