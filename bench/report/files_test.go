package report

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

var paperFigures = []Figure{
	{Title: "Accuracy by layer", Lines: &Lines{X: Axis{Name: "layer"}, Y: Axis{Name: "accuracy"}, References: []Reference{{Name: "chance", Value: 0.33}},
		Series: []Series{{Name: "D", X: Values{1, 2, 3}, Y: Values{0.4, 0.6, 0.9}, Lo: Values{0.3, 0.5, 0.8}, Hi: Values{0.5, 0.7, 1}}, {Name: "Δ κ − ND", X: Values{1, 2, 3}, Y: Values{0.4, 0.5, 0.6}}}}},
	{Title: "Predicted against gold", Heat: &Heat{X: "predicted", Y: "gold", Rows: []string{"3", "4"}, Columns: []string{"3", "none"}, Values: []Values{{2, 0}, {1, 5}}}},
}

// TestWriteFiles: every figure and table of sections lies in the folder, named apart, and
// the same whenever it is written.
func TestWriteFiles(t *testing.T) {
	table := Table{Title: "Turn accuracy", Columns: []Column{{Name: "who"}, {Name: "n", Align: Right}}, Rows: [][]Cell{{Text("a_b"), Int(3)}}}
	sections := []Section{{Title: "Timing: m", Tables: []Table{table, table, {Columns: []Column{{Name: "empty"}}}}, Figures: paperFigures}}
	read := func() map[string][]byte {
		dir := filepath.Join(t.TempDir(), "figures")
		files, err := WriteFiles(dir, sections)
		if err != nil {
			t.Fatal(err)
		}
		out := map[string][]byte{}
		for _, f := range files {
			if out[f], err = os.ReadFile(filepath.Join(dir, f)); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := WriteFiles(dir, sections); err == nil || !strings.Contains(err.Error(), "is not empty; name a new folder") {
			t.Errorf("a folder with files: %v", err)
		}
		return out
	}
	got, again := read(), read()
	var names []string
	for n, b := range got {
		names = append(names, n)
		if !bytes.Equal(b, again[n]) {
			t.Errorf("%s differs when it is written again", n)
		}
	}
	slices.Sort(names)
	want := []string{"tables.tex", "timing-m-accuracy-by-layer.pdf", "timing-m-accuracy-by-layer.svg", "timing-m-predicted-against-gold.pdf", "timing-m-predicted-against-gold.svg",
		"timing-m-turn-accuracy-2.md", "timing-m-turn-accuracy-2.tex", "timing-m-turn-accuracy.md", "timing-m-turn-accuracy.tex"}
	if !slices.Equal(names, want) {
		t.Errorf("files %q, want %q", names, want)
	}
	if tex := string(got["timing-m-turn-accuracy.tex"]); !strings.Contains(tex, "\\caption{Turn accuracy}\n\\label{tab:timing-m-turn-accuracy}\n") || !strings.Contains(tex, `a\_b & 3 \\`) {
		t.Errorf("LaTeX: %s", tex)
	}
	if all := string(got["tables.tex"]); all != "% \\usepackage{booktabs,tabularx}\n"+string(got["timing-m-turn-accuracy.tex"])+string(got["timing-m-turn-accuracy-2.tex"]) {
		t.Errorf("all tables: %s", all)
	}
	for n, b := range got {
		if strings.HasSuffix(n, ".pdf") && (!bytes.HasPrefix(b, []byte("%PDF-")) || !bytes.Contains(b, []byte("/FontFile2")) || !bytes.HasSuffix(bytes.TrimSpace(b), []byte("%%EOF"))) {
			t.Errorf("%s is no PDF with its fonts in it", n)
		}
	}
}

// TestPenFollowsTheStyleSheet: paper has the colours and dashes of a light page.
func TestPenFollowsTheStyleSheet(t *testing.T) {
	light, _, _ := strings.Cut(figureCSS, "@media")
	colour := func(name string) rgb {
		m := regexp.MustCompile(`--` + name + `: #(..)(..)(..);`).FindStringSubmatch(light)
		if m == nil {
			t.Fatalf("figure.css has no --%s", name)
		}
		var c rgb
		for i := range c {
			v, err := strconv.ParseInt(m[i+1], 16, 32)
			if err != nil {
				t.Fatal(err)
			}
			c[i] = int(v)
		}
		return c
	}
	for name, have := range map[string]rgb{"ink": ink, "soft": soft, "grid": grid, "paper": paper} {
		if want := colour(name); have != want {
			t.Errorf("%s is %v, and %v in figure.css", name, have, want)
		}
	}
	for k, have := range series {
		if want := colour(fmt.Sprint("s", k)); have != want {
			t.Errorf("s%d is %v, and %v in figure.css", k, have, want)
		}
	}
	for _, m := range regexp.MustCompile(`\.(d\d) \{ stroke-dasharray: ([\d ]+);`).FindAllStringSubmatch(figureCSS, -1) {
		var got []string
		for _, v := range penOf(shape{Class: "line s0 " + m[1]}).dash {
			got = append(got, fmt.Sprint(v))
		}
		if strings.Join(got, " ") != m[2] {
			t.Errorf("%s has the dashes %q, and %q in figure.css", m[1], got, m[2])
		}
	}
}

// TestTraceRefusesWhatItCannotDraw: a path that figures do not make is no silent gap.
func TestTraceRefusesWhatItCannotDraw(t *testing.T) {
	for _, f := range paperFigures {
		if err := WritePDF(&bytes.Buffer{}, f); err != nil {
			t.Error(err)
		}
	}
	for _, d := range []string{"M1", "C1 2 3 4 5 6", "M1 x"} {
		if err := trace(nil, d); err == nil {
			t.Errorf("%q is drawn", d)
		}
	}
}
