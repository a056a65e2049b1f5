package report

import (
	"cmp"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// LaTeX writes a table as a floating one for a paper, its title as caption, in the style of
// the package booktabs. A table wider than the lines of a paper is set smaller, and then its
// widest columns are broken into lines, by the package tabularx.
func (t Table) LaTeX() string { return t.labelled("") }

// labelled is LaTeX with a label to refer to; "" for none.
func (t Table) labelled(label string) string {
	var b strings.Builder
	if label != "" {
		label = "\\label{" + label + "}\n"
	}
	size, environment, broken := t.fit()
	line := func(cell func(i int) string) string {
		var cells []string
		for i := range t.Columns {
			text := latex(cell(i))
			if broken[i] {
				text = breaks.ReplaceAllString(text, `$1$3\allowbreak{}$2$4`)
				text = endless.ReplaceAllStringFunc(text, func(s string) string { return eight.ReplaceAllString(s, `$0\allowbreak{}`) })
			}
			cells = append(cells, text)
		}
		return strings.Join(cells, " & ")
	}
	head := line(func(i int) string { return t.Columns[i].Name })
	fmt.Fprintf(&b, "\\begin{table}[t]\n\\centering\n\\caption{%s}\n%s%s\\begin{%s}\n\\toprule\n%s \\\\\n\\midrule\n", latex(t.Title), label, size, environment, head)
	for _, r := range t.Rows {
		fmt.Fprintf(&b, "%s \\\\\n", line(func(i int) string {
			if i >= len(r) {
				return ""
			}
			return r[i].String()
		}))
	}
	name, _, _ := strings.Cut(environment, "}")
	fmt.Fprintf(&b, "\\bottomrule\n\\end{%s}\n", name)
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

// The greatest lengths of a row, in characters, that fit the lines of the class article: in
// the size of its text, and in that of its footnotes.
const (
	fitting      = 60
	fittingSmall = 72
	columnGap    = 2.5
	narrowest    = 12 // characters of a column that is broken into lines
)

// fit returns the size of a table that it fits the lines of a paper in, its environment with
// the kinds of its columns, and which of these are broken into lines.
func (t Table) fit() (size, environment string, broken []bool) {
	widths := make([]float64, len(t.Columns))
	total := columnGap * float64(len(t.Columns)-1)
	for i, c := range t.Columns {
		widths[i] = float64(utf8.RuneCountInString(c.Name))
		for _, r := range t.Rows {
			if i < len(r) {
				widths[i] = max(widths[i], float64(utf8.RuneCountInString(r[i].String())))
			}
		}
		total += widths[i]
	}
	broken = make([]bool, len(t.Columns))
	if total > fitting {
		size = "\\footnotesize\n"
	}
	widest := make([]int, len(t.Columns))
	for i := range widest {
		widest[i] = i
	}
	slices.SortStableFunc(widest, func(i, j int) int { return cmp.Compare(widths[j], widths[i]) })
	var sum, count float64 // of the broken columns' shares
	for _, i := range widest {
		if total <= fittingSmall || widths[i] <= narrowest {
			break
		}
		broken[i] = true
		total -= widths[i] - narrowest
		sum += math.Sqrt(widths[i])
		count++
	}
	spec := ""
	for i, c := range t.Columns {
		kind, ragged := "l", "raggedright"
		if c.Align == Right {
			kind, ragged = "r", "raggedleft"
		}
		if broken[i] {
			kind = fmt.Sprintf(">{\\hsize=%.2f\\hsize\\linewidth=\\hsize\\%s\\arraybackslash}X", math.Sqrt(widths[i])*count/sum, ragged)
		}
		spec += kind
	}
	if count > 0 {
		return size, "tabularx}{\\linewidth}{" + spec, broken
	}
	return size, "tabular}{" + spec, broken
}

// The places in names and paths after which a line may end, and words that have none, which
// are broken anywhere.
var (
	breaks  = regexp.MustCompile(`([/:=]|\\_)([0-9A-Za-z])|([.,])([A-Za-z])`)
	endless = regexp.MustCompile(`[0-9A-Za-z]{24,}`)
	eight   = regexp.MustCompile(`.{8}`)
)

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
