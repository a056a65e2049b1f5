package report_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"github.com/olekukonko/tablewriter/pkg/twwidth"

	"github.com/ccmed/ccmed/bench/report"
)

var update = flag.Bool("update", false, "write the goldens; read them before committing")

func render(t *testing.T, f report.Format, o report.Options, sections ...report.Section) string {
	t.Helper()
	var b bytes.Buffer
	if err := report.Write(&b, f, sections, o); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func table(name string, cells ...string) report.Section {
	t := report.Table{Columns: []report.Column{{Name: "text"}, {Name: name, Align: report.Right}}}
	for i, c := range cells {
		t.Rows = append(t.Rows, []report.Cell{report.Text(c), report.Int(i)})
	}
	return report.Section{Tables: []report.Table{t}}
}

var full = []report.Section{
	{Title: "Timing: small_model, joint", Lead: []string{"It was asked <once>, and stepped in at the *right* turn in a third of the dialogues; the best rule without a language model never does."}, Text: "Read as it stands:\n  indented, with | and *stars*\n",
		Tables: []report.Table{
			{Title: "Turn accuracy (159 of 160 dialogues scored)",
				Columns: []report.Column{{Name: "who_asked"}, {Name: "TurnAcc", Align: report.Right}, {Name: "95 % interval", Align: report.Right}, {Name: ""}},
				Rows: [][]report.Cell{
					{report.Text("small_model"), report.Text(report.Pct(57, 159)), report.Text(report.Interval(0.358, 0.2871, 0.43, 3)), report.Text("~")},
					{report.Text("baseline: always turn 3"), report.Text(report.Pct(0, 0))},
					{report.Text("mean turn"), report.Num(2.345678, 2), report.Num(math.NaN(), 2), report.Num(math.Inf(1), 2)},
				},
				Notes: []string{"A baseline that is fitted on the dialogues which it is scored on is a bound, not a competitor; the column says so."}},
			{Columns: []report.Column{{Name: "reason"}, {Name: "dialogues", Align: report.Right}}},
		},
		Notes: []string{"1 dialogue is unscored."}},
	{Title: "What the mediator said", Tables: []report.Table{{Columns: []report.Column{{Name: "item"}, {Name: "n", Align: report.Right}, {Name: "line"}},
		Rows: [][]report.Cell{
			{report.Text("zh"), report.Int(12), report.Text("我们先冷静一下，听听对方的想法，然后再决定下一步应该怎么做。")},
			{report.Text("ko"), report.Int(3456), report.Text("잠시 멈추고 서로의 이야기를 끝까지 들어 봅시다.")},
			{report.Text("ar"), report.Int(7), report.Text("لنتوقف قليلاً ونستمع إلى بعضنا البعض.")},
			{report.Text("en"), report.Int(8), report.Text("Let us stop here for a moment.\nWhat did you hear the other say?")},
			{report.Text("evil"), report.Int(9), report.Text("\x1b[2J\x1b]0;owned\a <b>|</b> [x](http://example.org)")},
		}}}},
}

func TestGoldens(t *testing.T) {
	for name, c := range map[string]struct {
		format  report.Format
		options report.Options
	}{
		"terminal":       {report.Terminal, report.Options{Width: 120}},
		"terminal60":     {report.Terminal, report.Options{Width: 60}},
		"terminal_color": {report.Terminal, report.Options{Width: 120, Color: true}},
		"markdown":       {report.Markdown, report.Options{}},
		"json":           {report.JSON, report.Options{}},
	} {
		got := render(t, c.format, c.options, full...)
		file := filepath.Join("testdata", name+".golden")
		if *update {
			if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(string(want), got); d != "" {
			t.Errorf("%s (-want +got):\n%s", name, d)
		}
	}
}

func TestHeadersAreNotRewritten(t *testing.T) {
	for _, f := range []report.Format{report.Terminal, report.JSON} {
		if got := render(t, f, report.Options{}, table("p (Holm), TurnAcc num_ctx W1.x")); !strings.Contains(got, "p (Holm), TurnAcc num_ctx W1.x") {
			t.Errorf("%s: the heading was rewritten:\n%s", f, got)
		}
	}
}

// TestColumnsAlign looks at where the right edge of the last column is.
func TestColumnsAlign(t *testing.T) {
	got := render(t, report.Terminal, report.Options{Width: 100}, table("n", "plain", "我们先冷静一下", "잠시 멈추고", "لنتوقف قليلاً", "e\u0301tude", "👩‍👩‍👧 family"))
	lines := strings.Split(strings.TrimRight(got, "\n"), "\n")
	if len(lines) != 8 {
		t.Fatalf("%d lines, want heading, line and 6 rows:\n%s", len(lines), got)
	}
	for _, l := range append(lines[:1:1], lines[2:]...) {
		if twwidth.Width(l) != twwidth.Width(lines[0]) {
			t.Errorf("%q is %d columns wide, the heading %d:\n%s", l, twwidth.Width(l), twwidth.Width(lines[0]), got)
		}
	}
}

func TestLongCellsAreWrapped(t *testing.T) {
	for name, text := range map[string]string{
		"words":      strings.Repeat("mediation ", 40),
		"ideographs": strings.Repeat("调解", 80),
		"one word":   strings.Repeat("x", 300),
		"paragraphs": strings.Repeat("one\ntwo three ", 30),
	} {
		got := render(t, report.Terminal, report.Options{Width: 50}, table("n", text))
		for l := range strings.SplitSeq(got, "\n") {
			if w := twwidth.Width(l); w > 50 {
				t.Errorf("%s: a line has %d columns, want at most 50: %q", name, w, l)
			}
			if name == "words" && strings.Contains(l, "med") && !strings.Contains(strings.TrimSpace(l)+" ", "mediation ") {
				t.Errorf("a word was broken: %q", l)
			}
		}
		keep := func(s string) int { return strings.Count(s, text[:1]) }
		if want := keep(text); name == "one word" && keep(got)-strings.Count("text", "x") != want {
			t.Errorf("%s: %d characters left of %d", name, keep(got)-1, want)
		}
	}
}

// TestNumbersKeepTheirLine: text gives way before numbers do.
func TestNumbersKeepTheirLine(t *testing.T) {
	s := report.Section{Tables: []report.Table{{Columns: []report.Column{{Name: "text"}, {Name: "mean [95 %]", Align: report.Right}},
		Rows: [][]report.Cell{{report.Text("a text of twenty-four.."), report.Text("0.358 [0.287, 0.430] n=159")}}}}}
	if got := render(t, report.Terminal, report.Options{Width: 45}, s); !strings.Contains(got, "0.358 [0.287, 0.430] n=159\n") {
		t.Errorf("the interval was broken although the text could be:\n%s", got)
	}
}

func TestControlsAreNeutralised(t *testing.T) {
	evil := "a\x1b[31mred\x1b[0m\a\x00\r\x7f\u009b2J\u202eabc\u2066\xff\tz"
	s := report.Section{Title: evil, Text: evil, Notes: []string{evil},
		Tables: []report.Table{{Title: evil, Columns: []report.Column{{Name: evil}}, Rows: [][]report.Cell{{report.Text(evil)}}, Notes: []string{evil}}}}
	for _, f := range []report.Format{report.Terminal, report.Markdown, report.JSON} {
		got := render(t, f, report.Options{Width: 200}, s)
		if !utf8.ValidString(got) {
			t.Errorf("%s: not UTF-8", f)
		}
		for _, r := range got {
			if r < 0x20 && r != '\n' || r >= 0x7f && r < 0xa0 {
				t.Errorf("%s: control character %U in %q", f, r, got)
				break
			}
		}
		if f != report.JSON && (strings.ContainsAny(got, "\u202e\u2066") || strings.Count(got, "␛") != 14) {
			t.Errorf("%s: ESC must be shown 14 times and the direction marks never: %q", f, got)
		}
	}
}

func TestJSON(t *testing.T) {
	got := render(t, report.JSON, report.Options{}, report.Section{Title: "<s>", Tables: []report.Table{{
		Columns: []report.Column{{Name: "a"}, {Name: "b"}, {Name: "c"}, {Name: "d"}, {Name: "e"}},
		Rows:    [][]report.Cell{{report.Text("1"), report.Int(2), report.Num(1.0/3, 1), report.Num(math.NaN(), 1), report.Num(math.Inf(-1), 1)}}}}})
	var out struct {
		Sections []struct{ Tables []struct{ Rows [][]any } }
	}
	if err := json.Unmarshal([]byte(got), &out); err != nil {
		t.Fatalf("%v in\n%s", err, got)
	}
	if d := cmp.Diff([][]any{{"1", 2.0, 1.0 / 3, nil, nil}}, out.Sections[0].Tables[0].Rows); d != "" {
		t.Errorf("cells (-want +got):\n%s", d)
	}
	if got := render(t, report.JSON, report.Options{}); !strings.Contains(got, `"sections": []`) {
		t.Errorf("no sections: %q, want an empty list", got)
	}
	if got := render(t, report.JSON, report.Options{}, report.Section{Tables: make([]report.Table, 1)}); strings.Contains(got, "null") {
		t.Errorf("a table without columns and rows: %q, want empty lists", got)
	}
}

func TestMarkdownTextCannotLeaveItsFence(t *testing.T) {
	got := render(t, report.Markdown, report.Options{}, report.Section{Text: "a\n````\n# heading"})
	if want := "`````text\na\n````\n# heading\n`````\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestWriteErrors(t *testing.T) {
	long := report.Section{Title: "S", Tables: []report.Table{{Title: "T", Columns: []report.Column{{Name: "a"}}, Rows: [][]report.Cell{{}, {{}, {}}}}}}
	err := report.Write(&bytes.Buffer{}, report.Terminal, []report.Section{long}, report.Options{})
	if err == nil || !strings.Contains(err.Error(), `"T": row 2 has 2 cells for 1 columns`) {
		t.Errorf("long row: error %v", err)
	}
	if err := report.Write(&bytes.Buffer{}, "pdf", nil, report.Options{}); err == nil || !strings.Contains(err.Error(), "markdown") {
		t.Errorf("unknown format: error %v, want one that names the formats", err)
	}
	if err := report.Write(broken{}, report.Markdown, full, report.Options{}); !errors.Is(err, errBroken) {
		t.Errorf("broken writer: error %v", err)
	}
}

var errBroken = errors.New("broken pipe")

type broken struct{}

func (broken) Write([]byte) (int, error) { return 0, errBroken }

func TestNumbers(t *testing.T) {
	nan, inf := math.NaN(), math.Inf(1)
	for _, c := range []struct{ name, got, want string }{
		{"share", report.Pct(57, 159), "35.8 % (57/159)"},
		{"share of nothing", report.Pct(0, 0), "none"},
		{"none of many", report.Pct(0, 9), "0.0 % (0/9)"},
		{"interval", report.Interval(0.42, 0.31, 0.53, 2), "0.42 [0.31, 0.53]"},
		{"interval around zero", report.Interval(-0.001, -0.2, 0.2, 2), "0.00 [-0.20, 0.20]"},
		{"interval without bounds", report.Interval(0.5, nan, nan, 1), "0.5"},
		{"interval without value", report.Interval(nan, nan, nan, 1), "none"},
		{"p", report.PValue(0.0341), "0.034"},
		{"small p", report.PValue(0.0009), "<0.001"},
		{"p of one", report.PValue(1), "1.000"},
		{"no p", report.PValue(nan), "none"},
		{"number", report.Num(1234.5, 1).String(), "1234.5"},
		{"number without decimals", report.Num(-0.3, 0).String(), "0"},
		{"negative number", report.Num(-0.35, 1).String(), "-0.3"},
		{"ten", report.Num(10, 0).String(), "10"},
		{"no number", report.Num(nan, 3).String(), "none"},
		{"infinite", report.Num(inf, 3).String(), "∞"},
		{"count", report.Int(-7).String(), "-7"},
		{"text", report.Text("x").String(), "x"},
	} {
		if c.got != c.want {
			t.Errorf("%s: %q, want %q", c.name, c.got, c.want)
		}
	}
}

func TestShorten(t *testing.T) {
	for _, c := range []struct {
		s    string
		n    int
		want string
	}{
		{"short", 10, "short"}, {"exactly", 7, "exactly"}, {"two\n lines\t here", 20, "two lines here"}, {"cut it here", 8, "cut it…"},
		{"我们先冷静一下", 4, "我们先…"}, {"x", 0, ""}, {"xy", 1, "…"}, {"xy", -3, ""}, {"", 0, ""},
	} {
		if got := report.Shorten(c.s, c.n); got != c.want {
			t.Errorf("Shorten(%q, %d) = %q, want %q", c.s, c.n, got, c.want)
		}
	}
}

func ExampleWrite() {
	t := report.Table{
		Columns: []report.Column{{Name: "model"}, {Name: "accuracy", Align: report.Right}, {Name: "turns", Align: report.Right}},
		Rows:    [][]report.Cell{{report.Text("small"), report.Text(report.Pct(57, 159)), report.Num(2.3456, 2)}},
	}
	sections := []report.Section{{Title: "Timing", Tables: []report.Table{t}}}
	if err := report.Write(os.Stdout, report.Terminal, sections, report.Options{Width: 80}); err != nil {
		fmt.Println(err)
	}
	// Output:
	// Timing
	// ══════
	// model         accuracy  turns
	// ───────────────────────────────
	// small  35.8 % (57/159)   2.35
}

func FuzzWrite(f *testing.F) {
	f.Add("a\x1b[0m\n我们", 20)
	f.Add("é\u0301👩‍👩‍👧 ", 5)
	f.Fuzz(func(t *testing.T, s string, width int) {
		width = max(40, width%200)
		got := render(t, report.Terminal, report.Options{Width: width}, table("n", s))
		for l := range strings.SplitSeq(got, "\n") {
			if w := twwidth.Width(l); w > width {
				t.Errorf("%d columns in a width of %d: %q", w, width, l)
			}
			for _, r := range l {
				if r < 0x20 || r >= 0x7f && r < 0xa0 {
					t.Errorf("control character %U in %q", r, l)
				}
			}
		}
	})
}
