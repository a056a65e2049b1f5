package cli

import (
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/ccmed/ccmed/bench/task"
)

// Values are the values that a flag takes.
type Values struct {
	Command string // its path without "ccmed"; empty: every command with the flag
	Flag    string
	Values  []string
	Open    bool // other values are taken as well
}

// ValueTable lists the flags whose values can be named, beside those of benchmarks, which
// say it themselves (task.AnnotationChoices). Shells complete them, and the schema of
// ccmed.yaml allows no others where they are not open.
type ValueTable []Values

// Of returns what is known of a flag's values.
func (t ValueTable) Of(cmd *cobra.Command, flag string) (Values, bool) {
	path := strings.TrimPrefix(cmd.CommandPath(), cmd.Root().Name()+" ")
	if f := cmd.Flags().Lookup(flag); f != nil && f.Annotations[task.AnnotationChoices] != nil {
		_, open := f.Annotations[task.AnnotationOpen]
		return Values{path, flag, f.Annotations[task.AnnotationChoices], open}, true
	}
	for _, e := range t {
		if e.Flag == flag && (e.Command == path || e.Command == "") {
			return e, true
		}
	}
	return Values{}, false
}

// Complete teaches the shells the values of the flags of a command and of those below it.
func (t ValueTable) Complete(root *cobra.Command) {
	Walk(root, func(c *cobra.Command) {
		c.LocalFlags().VisitAll(func(f *pflag.Flag) {
			if e, ok := t.Of(c, f.Name); ok {
				directive := cobra.ShellCompDirectiveNoFileComp
				if e.Open {
					directive = cobra.ShellCompDirectiveDefault
				}
				CompleteFlag(c, f.Name, func(_ *cobra.Command, _ []string, begun string) ([]string, cobra.ShellCompDirective) {
					return completeList(begun, e.Values), directive
				})
			}
		})
	})
}

// CompleteFlag gives a flag its completion, unless it has one of its own.
func CompleteFlag(c *cobra.Command, flag string, f cobra.CompletionFunc) {
	if _, ok := c.GetFlagCompletionFunc(flag); !ok {
		// It fails for unknown flags and for known functions, and neither is here.
		_ = c.RegisterFlagCompletionFunc(flag, f)
	}
}

// completeList completes the last one of values with commas between them.
func completeList(begun string, values []string) []string {
	before := begun[:strings.LastIndex(begun, ",")+1]
	out := make([]string, 0, len(values))
	for _, v := range values {
		if strings.HasPrefix(before+v, begun) {
			out = append(out, before+v)
		}
	}
	return out
}
