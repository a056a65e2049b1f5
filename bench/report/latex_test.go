package report

import "testing"

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
