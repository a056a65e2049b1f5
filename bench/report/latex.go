package report

import (
	"fmt"
	"regexp"
	"strings"
	"unicode"
)

// LaTeX writes a table as a floating one for a paper, its title as caption, in the style of
// the package booktabs.
func (t Table) LaTeX() string {
	var b strings.Builder
	spec := ""
	var head []string
	for _, c := range t.Columns {
		if c.Align == Right {
			spec += "r"
		} else {
			spec += "l"
		}
		head = append(head, latex(c.Name))
	}
	fmt.Fprintf(&b, "\\begin{table}[t]\n\\centering\n\\caption{%s}\n\\begin{tabular}{%s}\n\\toprule\n%s \\\\\n\\midrule\n", latex(t.Title), spec, strings.Join(head, " & "))
	for _, r := range t.Rows {
		var cells []string
		for i := range t.Columns {
			text := ""
			if i < len(r) {
				text = latex(r[i].String())
			}
			cells = append(cells, text)
		}
		fmt.Fprintf(&b, "%s \\\\\n", strings.Join(cells, " & "))
	}
	b.WriteString("\\bottomrule\n\\end{tabular}\n")
	if len(t.Notes) > 0 {
		var notes []string
		for _, n := range t.Notes {
			notes = append(notes, latex(n))
		}
		fmt.Fprintf(&b, "\n\\smallskip\n\\footnotesize %s.\n", strings.Join(notes, ". "))
	}
	b.WriteString("\\end{table}\n")
	return b.String()
}

// latexMarks are the characters that TeX reads as commands, and those of our tables
// that the fonts of pdfTeX do not have.
var latexMarks = strings.NewReplacer(`\`, `\textbackslash{}`, "{", `\{`, "}", `\}`, "$", `\$`, "&", `\&`, "#", `\#`, "%", `\%`, "_", `\_`,
	"^", `\textasciicircum{}`, "`", `\textasciigrave{}`, "~", `$\sim$`, "<", "$<$", ">", "$>$", "|", "$|$", `"`, "''", "−", "$-$", "Δ", `$\Delta$`, "±", `$\pm$`, "≤", `$\le$`, "≥", `$\ge$`, "→", `$\to$`, "…", `\ldots{}`)

// minus finds the sign of a number, for which a hyphen stands.
var minus = regexp.MustCompile(`(^|[\s\[(])-(\d)`)

// latex returns s as text of a LaTeX table, on one line and without commands.
func latex(s string) string {
	s = strings.Map(func(r rune) rune {
		if unicode.In(r, unicode.Cc, unicode.Cf) && !unicode.IsSpace(r) || r == unicode.ReplacementChar {
			return -1
		}
		return r
	}, s)
	s = minus.ReplaceAllString(latexMarks.Replace(strings.Join(strings.Fields(s), " ")), "$1$$-$$$2")
	if strings.HasPrefix(s, "*") || strings.HasPrefix(s, "(") {
		s = "{" + s[:1] + "}" + s[1:] // as the first of a row it would be read as an argument of the command before
	}
	for strings.Contains(s, "--") {
		s = strings.ReplaceAll(s, "--", "-{}-") // two would be set as one dash
	}
	return strings.ReplaceAll(s, "[", "{[}")
}
