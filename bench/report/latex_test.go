package report

import (
	"strings"
	"testing"
)

func TestLaTeX(t *testing.T) {
	for in, want := range map[string]string{
		`50 % of a_b & "c" #1 {x} $5 ^ \input`: "50 \\% of a\\_b \\& \\textquotedblleft{}c\\textquotedblright{} \\#1 \\{x\\} \\$5 \\textasciicircum{} \\textbackslash{}input",
		"-0.2 [-0.5, 0.1]":                     "$-$0.2 {[}$-$0.5, 0.1]",
		"B − A, ΔAUC ± 1":                      `B $-$ A, $\Delta$AUC $\pm$ 1`,
		"~":                                    `$\sim$`,
		"<0.001":                               "$<$0.001",
		"gpt-4o-mini 2-3":                      "gpt-4o-mini 2-3",
		"a\nb\x1b[31m\x00":                     "a b{[}31m",
		"한국어":                                  "한국어",
	} {
		if got := latex(in); got != want {
			t.Errorf("latex(%q) = %s, want %s", in, got, want)
		}
	}
	got := Table{Title: "a & b", Columns: []Column{{Name: "measure"}, {Name: "n", Align: Right}},
		Rows: [][]Cell{{Text("x_1"), Int(3)}, {Text("short")}}, Notes: []string{"5 % dropped"}}.LaTeX()
	want := `\begin{table}[t]
\centering
\caption{a \& b}
\begin{tabular}{lr}
\toprule
measure & n \\
\midrule
x\_1 & 3 \\
short &  \\
\bottomrule
\end{tabular}

\smallskip
\footnotesize 5 \% dropped.
\end{table}
`
	if got != want {
		t.Errorf("got\n%s", got)
	}
}

// TestWideTables: columns of long texts are broken into lines, at numbers never; those of
// short ones keep their width.
func TestWideTables(t *testing.T) {
	long := "runs/a_model.of-long=name, " + strings.Repeat("0123456789abcdef", 4) + " 0.250 [0.125, 0.375]"
	columns := []Column{{Name: "who"}, {Name: "n", Align: Right}, {Name: "path"}}
	got := Table{Title: "wide", Columns: columns, Rows: [][]Cell{{Text("a.b"), Int(3), Text(long)}}}.LaTeX()
	for _, want := range []string{"\\footnotesize\n\\begin{tabularx}{\\linewidth}{lr>{\\hsize=1.00\\hsize\\linewidth=\\hsize\\raggedright\\arraybackslash}X}\n", "\na.b & 3 & ",
		`runs/\allowbreak{}a\_\allowbreak{}model.\allowbreak{}of-long=\allowbreak{}name, 01234567\allowbreak{}89abcdef\allowbreak{}`, "0.250 {[}0.125, 0.375]", "\\end{tabularx}\n"} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
	small := Table{Title: "small", Columns: columns, Rows: [][]Cell{{Text("a.b"), Int(3), Text(long[:60])}}}.LaTeX()
	if !strings.Contains(small, "\\footnotesize\n\\begin{tabular}{lrl}\n") || strings.Contains(small, "allowbreak") {
		t.Errorf("68 characters fit in a smaller size:\n%s", small)
	}
}
