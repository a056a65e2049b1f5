package cli

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ccmed/ccmed/bench/usage"
)

// FlagError makes an error of the flags' parser a usage error that names what was meant.
func FlagError(cmd *cobra.Command, err error) error {
	return &usage.Error{Err: unknownFlag(cmd, PlainFlagError(err))}
}

var parsing = regexp.MustCompile(`: strconv\.Parse(\w+): parsing ".*": (invalid syntax|value out of range)$`)

// PlainFlagError says what a flag takes, without the name of a Go function.
func PlainFlagError(err error) error {
	m := parsing.FindStringSubmatch(err.Error())
	if m == nil {
		return err
	}
	takes := map[string]string{"Int": "a whole number", "Uint": "a whole number, not negative", "Float": "a number", "Bool": "true or false"}[m[1]]
	if m[2] == "value out of range" {
		takes += " of a smaller size"
	}
	return fmt.Errorf("%s; it takes %s", strings.TrimSuffix(err.Error(), m[0]), takes)
}

// WrapArgs makes wrong arguments of any command a usage error.
func WrapArgs(cmd *cobra.Command) {
	if check := cmd.Args; check != nil {
		cmd.Args = func(c *cobra.Command, args []string) error {
			if check(c, args) == nil {
				return nil
			}
			got := "no argument"
			if len(args) > 0 {
				got = fmt.Sprintf("%q", strings.Join(args, " "))
			}
			return usage.Errorf("the call is %s; it got %s", strings.TrimSuffix(c.UseLine(), " [flags]"), got)
		}
	}
	if cmd.Name() == "help" {
		cmd.Run, cmd.RunE = nil, help
	}
	if cmd.HasSubCommands() && cmd.RunE == nil {
		cmd.RunE = func(c *cobra.Command, args []string) error {
			if len(args) > 0 {
				return unknownCommand(c, args[0])
			}
			return c.Help()
		}
	}
	for _, c := range cmd.Commands() {
		WrapArgs(c)
	}
}

// help is cobra's help command, for which an unknown topic is no error.
func help(cmd *cobra.Command, args []string) error {
	about, rest, err := cmd.Root().Find(args)
	if err != nil || len(rest) > 0 {
		var known []string
		Walk(cmd.Root(), func(c *cobra.Command) {
			if _, name, ok := strings.Cut(c.CommandPath(), " "); ok && !c.Hidden {
				known = append(known, name)
			}
		})
		topic := strings.Join(args, " ")
		meant := DidYouMean("", topic, known)
		if meant == "" {
			meant = "; ccmed help lists all"
		}
		return usage.Errorf("unknown help topic %q%s", topic, meant)
	}
	return about.Help()
}
