package report

import (
	"fmt"
	"regexp"
	"strings"
	"unicode"
)

// LaTeX writes a table as a floating one for a paper, its title as caption, in the style of
// the package booktabs.
func (t Table) LaTeX() string { return t.labelled("") }

// labelled is LaTeX with a label to refer to; "" for none.
func (t Table) labelled(label string) string {
	var b strings.Builder
	if label != "" {
		label = "\\label{" + label + "}\n"
	}
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
	fmt.Fprintf(&b, "\\begin{table}[t]\n\\centering\n\\caption{%s}\n%s\\begin{tabular}{%s}\n\\toprule\n%s \\\\\n\\midrule\n", latex(t.Title), label, spec, strings.Join(head, " & "))
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
	"^", `\textasciicircum{}`, "`", `\textasciigrave{}`, "~", `$\sim$`, "<", "$<$", ">", "$>$", "|", "$|$", "−", "$-$", "Δ", `$\Delta$`, "±", `$\pm$`, "≤", `$\le$`, "≥", `$\ge$`, "→", `$\to$`, "…", `\ldots{}`,
	"κ", `$\kappa$`, "λ", `$\lambda$`, "τ", `$\tau$`, "ρ", `$\rho$`, "α", `$\alpha$`, "×", `$\times$`, "†", `\textdagger{}`, "√", `$\surd$`, "₂", `$_2$`)

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
	// Quotation marks come in pairs: the first opens.
	for k := 0; strings.Contains(s, `"`); k++ {
		s = strings.Replace(s, `"`, []string{"\x00", "\x01"}[k%2], 1)
	}
	s = minus.ReplaceAllString(latexMarks.Replace(strings.Join(strings.Fields(s), " ")), "$1$$-$$$2")
	s = strings.NewReplacer("\x00", `\textquotedblleft{}`, "\x01", `\textquotedblright{}`).Replace(s)
	if strings.HasPrefix(s, "*") || strings.HasPrefix(s, "(") {
		s = "{" + s[:1] + "}" + s[1:] // as the first of a row it would be read as an argument of the command before
	}
	for strings.Contains(s, "--") {
		s = strings.ReplaceAll(s, "--", "-{}-") // two would be set as one dash
	}
	return strings.ReplaceAll(s, "[", "{[}")
}
