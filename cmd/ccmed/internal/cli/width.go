package cli

import (
	"regexp"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"
)

// HelpWidth is how wide help is: what every terminal has.
const HelpWidth = 80

// FitHelp wraps the help of a command and of those below it.
func FitHelp(cmd *cobra.Command) {
	for _, c := range cmd.Commands() {
		FitHelp(c)
	}
	if cmd.Runnable() || cmd.HasSubCommands() {
		cmd.Long = fit(cmd.Long, HelpWidth)
	}
}

// listed is the beginning of a line in a list: its indentation, and a first column where
// there is one.
var listed = regexp.MustCompile(`^ +(?:\S+(?: \S+)*  +)?`)

// fit wraps paragraphs; the lines of lists, which are indented, are wrapped one by one
// below their second column.
func fit(text string, width int) string {
	var out, paragraph []string
	flush := func() {
		out = append(out, wrapWords(strings.Join(paragraph, " "), "", width)...)
		paragraph = nil
	}
	for line := range strings.SplitSeq(text, "\n") {
		if line != "" && line[0] != ' ' {
			paragraph = append(paragraph, line)
			continue
		}
		flush()
		if utf8.RuneCountInString(line) <= width {
			out = append(out, line)
			continue
		}
		head := listed.FindString(line)
		lines := wrapWords(line[len(head):], strings.Repeat(" ", utf8.RuneCountInString(head)), width)
		lines[0] = head + strings.TrimLeft(lines[0], " ")
		out = append(out, lines...)
	}
	flush()
	return strings.Join(out, "\n")
}

// wrapWords puts words into indented lines; of none there is no line.
func wrapWords(text, indent string, width int) (lines []string) {
	line := ""
	for word := range strings.FieldsSeq(text) {
		switch {
		case line == "":
			line = indent + word
		case utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) > width:
			lines, line = append(lines, line), indent+word
		default:
			line += " " + word
		}
	}
	if line != "" {
		lines = append(lines, line)
	}
	return lines
}
