package cli

import (
	"fmt"
	"slices"
	"strings"

	"github.com/agnivade/levenshtein"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/ccmed/ccmed/bench/usage"
)

// DidYouMean ends an error about an unknown name with the nearest known one,
// prefixed, and is empty when none is near.
func DidYouMean(prefix, name string, known []string) string {
	slices.Sort(known) // of equals the first one, always the same
	best, distance := "", len(name)/3+2
	for _, k := range known {
		d := levenshtein.ComputeDistance(name, k)
		switch { // letters that changed places and names cut short are small mistakes
		case letters(k) == letters(name):
			d = 0
		case len(name) > 2 && strings.HasPrefix(k, name):
			d = min(d, 1)
		}
		if d < distance {
			best, distance = k, d
		}
	}
	if best == "" {
		return ""
	}
	return fmt.Sprintf("; did you mean %s%s?", prefix, best)
}

func letters(s string) string {
	b := []byte(s)
	slices.Sort(b)
	return string(b)
}

// unknownFlag adds the flag that was meant to an error about an unknown one.
func unknownFlag(cmd *cobra.Command, err error) error {
	name, ok := strings.CutPrefix(err.Error(), "unknown flag: --")
	if !ok {
		return err
	}
	var known []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			known = append(known, f.Name)
		}
	})
	return fmt.Errorf("%w%s", err, DidYouMean("--", name, known))
}

// unknownCommand names the command that was meant.
func unknownCommand(parent *cobra.Command, name string) error {
	var known []string
	for _, c := range parent.Commands() {
		if c.IsAvailableCommand() || c.IsAdditionalHelpTopicCommand() && !c.Hidden {
			known = append(known, c.Name())
		}
	}
	return usage.Errorf("unknown command %q for %q%s", name, parent.CommandPath(), DidYouMean("", name, known))
}
