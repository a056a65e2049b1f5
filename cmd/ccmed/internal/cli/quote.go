package cli

import (
	"strings"

	"github.com/ccmed/ccmed/infer"
)

// CommandLine writes a command of this program as it can be given to a shell,
// without secrets.
func CommandLine(args []string) string {
	quoted := []string{"ccmed"}
	for _, a := range args {
		quoted = append(quoted, Quote(a))
	}
	return strings.Join(quoted, " ")
}

// Quote quotes an argument for a shell where it must be, and takes secrets out of it.
func Quote(arg string) string {
	arg = infer.Redact(arg)
	if arg == "" || strings.ContainsAny(arg, " \t\n'\"\\$`!*?[]{}()<>|&;#~") {
		return "'" + strings.ReplaceAll(arg, "'", `'\''`) + "'"
	}
	return arg
}

// Redacted is a command line as it is kept, without secrets.
func Redacted(args []string) []string {
	var out []string
	for _, arg := range args {
		out = append(out, infer.Redact(arg))
	}
	return out
}
