package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
)

// TestPaper: pdflatex sets every table of a folder for a paper and embeds every
// figure, without an error, a missing reference or character, or a table wider than the page; Poppler finds the
// figures' fonts in them and the texts of the SVG beside each.
func TestPaper(t *testing.T) {
	pdflatex := tool(t, "CCMED_TEST_LATEX", "scripts/install_latex.sh")
	f := newFake()
	defer f.Close()
	dir := t.TempDir()
	t.Chdir(dir)
	env := map[string]string{"OLLAMA_HOST": f.URL, "CCMED_CACHE": filepath.Join(dir, "cache"), "HOME": dir}
	for _, line := range []string{
		"timing --model fake --data sample --out stream", "timing --model fake --data sample --limit 6 --mode pick --out pick",
		"mediate --model fake --labeller other --judge other --data sample --limit 3 --card-items 4 --out mediate",
		"report stream pick mediate --figures paper/a", "compare stream pick --force --figures paper/b",
	} {
		var stdout, stderr bytes.Buffer
		a := &app{stdin: strings.NewReader(""), stdout: &stdout, stderr: &stderr, now: time.Now, getenv: func(k string) string { return env[k] }}
		if code := a.main(strings.Fields(line)); code != 0 {
			t.Fatalf("ccmed %s: exit %d\n%s", line, code, &stderr)
		}
	}
	figures, err := filepath.Glob("paper/*/*.pdf")
	if err != nil || len(figures) < 5 {
		t.Fatalf("%d figures: %v", len(figures), err)
	}
	var b strings.Builder
	b.WriteString("\\documentclass{article}\n\\usepackage{booktabs,tabularx,graphicx}\n\\begin{document}\n")
	for folder, least := range map[string]int{"paper/a": 20, "paper/b": 3} {
		text, err := os.ReadFile(folder + "/tables.tex")
		if err != nil {
			t.Fatal(err)
		}
		labels := regexp.MustCompile(`\\label\{(.+)\}`).FindAllSubmatch(text, -1)
		if n := strings.Count(string(text), "\\begin{table}"); n < least || len(labels) != n {
			t.Fatalf("%s has %d tables with %d labels", folder, n, len(labels))
		}
		fmt.Fprintf(&b, "\\input{%s/tables}\n", folder)
		for _, label := range labels {
			fmt.Fprintf(&b, "Table~\\ref{%s}.\n", label[1])
		}
	}
	for _, figure := range figures {
		fmt.Fprintf(&b, "\\clearpage\\noindent\\includegraphics[width=\\linewidth]{%s}\n", figure)
	}
	b.WriteString("\\end{document}\n")
	if err := os.WriteFile("paper.tex", []byte(b.String()), 0o644); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second time references are known
		if out, err := exec.Command(pdflatex, "-interaction=nonstopmode", "-halt-on-error", "-no-shell-escape", "paper.tex").CombinedOutput(); err != nil {
			t.Fatalf("pdflatex: %v\n%s", err, out)
		}
	}
	log, err := os.ReadFile("paper.log")
	if err != nil {
		t.Fatal(err)
	}
	// Three characters beyond the line are within the margin.
	for _, m := range regexp.MustCompile(`Overfull .hbox .(\d+)[.].*`).FindAllStringSubmatch(string(log), -1) {
		if n, err := strconv.Atoi(m[1]); err != nil || n > 15 {
			t.Error(m[0])
		}
	}
	for _, m := range regexp.MustCompile(`(?m)^(LaTeX Warning: (Reference|Label).*|Missing character.*|.*Undefined.*)$`).FindAllString(string(log), -1) {
		t.Error(m)
	}
	for _, figure := range figures {
		checkFigure(t, figure)
	}
}

// checkFigure compares a figure's PDF with the SVG beside it, as Poppler reads it.
func checkFigure(t *testing.T, pdf string) {
	t.Helper()
	read := func(name string, args ...string) string {
		out, err := exec.Command(name, args...).Output()
		if err != nil {
			t.Fatalf("%s %q: %v", name, args, err)
		}
		return string(out)
	}
	fonts := strings.Split(strings.TrimSpace(read("pdffonts", pdf)), "\n")[2:]
	for _, line := range fonts {
		if f := strings.Fields(line); len(f) < 5 || f[len(f)-5] != "yes" {
			t.Errorf("%s: a font is not embedded: %s", pdf, line)
		}
	}
	if len(fonts) == 0 {
		t.Errorf("%s has no font", pdf)
	}
	text, err := os.ReadFile(strings.TrimSuffix(pdf, ".pdf") + ".svg")
	if err != nil {
		t.Fatal(err)
	}
	svg := strings.NewReplacer("&lt;", "<", "&gt;", ">", "&amp;", "&", "&#34;", `"`, "&#39;", "'").Replace(string(text))
	got := strings.Join(strings.Fields(read("pdftotext", "-layout", pdf, "-")), "")
	for _, m := range regexp.MustCompile(`<text[^>]*>([^<]+)</text>`).FindAllStringSubmatch(svg, -1) {
		if want := strings.Join(strings.Fields(m[1]), ""); !strings.Contains(got, want) {
			t.Errorf("%s lacks the text %q", pdf, m[1])
		}
	}
}
