package report_test

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"math"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/ccmed/ccmed/bench/report"
)

var nan = math.NaN()

var (
	layers = report.Figure{Title: "Accuracy by layer", Notes: []string{"Bands are 95 % intervals."}, Lines: &report.Lines{
		X: report.Axis{Name: "layer"}, Y: report.Axis{Name: "accuracy", Max: 1}, Categories: []string{"embed", "block.1", "block.2"},
		Series: []report.Series{
			{Name: "D", Y: []float64{0.25, 0.5, 1}, Lo: []float64{0.125, 0.25, nan}, Hi: []float64{0.5, 0.75, nan}},
			{Name: "ND", Y: []float64{0.25, nan, 0.75}},
		},
		References: []report.Reference{{Name: "chance", Value: 0.5}}}}
	loss = report.Figure{Title: "Loss", Lines: &report.Lines{X: report.Axis{Name: "step"}, Y: report.Axis{Name: "loss"},
		Series: []report.Series{{Name: "training", X: []float64{0, 1, 2, 3}, Y: []float64{4, 2, 1, 0.5}}, {Name: "validation", X: []float64{1, 3}, Y: []float64{3, 1.25}}}}}
	effects = report.Figure{Title: "Parts of Δelic", Points: &report.Points{X: report.Axis{Name: "difference"}, Groups: []string{"Δctx", "Δtext"},
		Series:     []report.Series{{Name: "late layers", Y: []float64{-0.25, 0.5}, Lo: []float64{-0.5, 0.25}, Hi: []float64{0.125, 0.75}}, {Name: "peak", Y: []float64{0.125, nan}}},
		References: []report.Reference{{Name: "published", Value: 0.15}}}}
	turns = report.Figure{Title: "Turns", Points: &report.Points{Bars: true, X: report.Axis{Name: "dialogues"}, Groups: []string{"turn 3", "turn 4"},
		Series: []report.Series{{Name: "gold", Y: []float64{30, 20}}}}}
	matrix = report.Figure{Title: "Predicted against gold", Heat: &report.Heat{X: "predicted", Y: "gold", Columns: []string{"3", "4", "none"}, Rows: []string{"3", "4"},
		Values: []report.Values{{20, 3, 1}, {15, 10, nan}}}}
	allFigures = []report.Figure{layers, loss, effects, turns, matrix}
)

// element is an SVG element with what it contains.
type element struct {
	XMLName  xml.Name
	Attrs    []xml.Attr `xml:",any,attr"`
	Children []element  `xml:",any"`
	Text     string     `xml:",chardata"`
}

func (e element) attr(name string) string {
	for _, a := range e.Attrs {
		if a.Name.Local == name {
			return a.Value
		}
	}
	return ""
}

// of returns the children of a class.
func (e element) of(class string) []element {
	var found []element
	for _, c := range e.Children {
		if strings.Contains(" "+c.attr("class")+" ", " "+class+" ") {
			found = append(found, c)
		}
	}
	return found
}

func svg(t *testing.T, f report.Figure) element {
	t.Helper()
	var b bytes.Buffer
	if err := report.WriteSVG(&b, f); err != nil {
		t.Fatal(err)
	}
	var e element
	if err := xml.Unmarshal(b.Bytes(), &e); err != nil {
		t.Fatalf("%v in\n%s", err, b.String())
	}
	return e
}

func texts(es []element) []string {
	var out []string
	for _, e := range es {
		out = append(out, e.Text)
	}
	return out
}

var coordinate = regexp.MustCompile(`-?[0-9.]+`)

// start returns the first point of a path.
func start(t *testing.T, e element) (x, y float64) {
	t.Helper()
	n := coordinate.FindAllString(e.attr("d"), 2)
	if len(n) < 2 {
		t.Fatalf("%q has no point", e.attr("d"))
	}
	return float(t, n[0]), float(t, n[1])
}

func float(t *testing.T, s string) float64 {
	t.Helper()
	v, err := strconv.ParseFloat(s, 64)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// TestLinesAreWhereTheirValuesAre compares heights of marks with those of the
// axis' ticks and of the reference line.
func TestLinesAreWhereTheirValuesAre(t *testing.T) {
	e := svg(t, layers)
	grid := map[string]float64{}
	ticks := e.of("tick")
	for i, g := range e.of("grid") {
		_, y := start(t, g)
		grid[ticks[i].Text] = y
	}
	if len(e.of("line")) != 2+2 || len(e.of("band")) != 1 { // a legend entry each
		t.Fatalf("%d lines and %d bands, want 4 and 1", len(e.of("line")), len(e.of("band")))
	}
	top, bottom := grid["1.0"], grid["0.0"]
	if bottom-top < 100 {
		t.Fatalf("axis from %v to %v", bottom, top)
	}
	want := bottom - 0.5*(bottom-top)
	if _, y := start(t, e.of("reference")[0]); math.Abs(y-want) > 0.11 {
		t.Errorf("the reference 0.5 is at %v, want %v", y, want)
	}
	var tips []string
	for _, m := range e.of("mark")[2:] {
		tips = append(tips, m.Children[0].Text)
		value := float(t, strings.Fields(strings.SplitAfter(m.Children[0].Text, ": ")[1])[0])
		// The first point of a circle and of a square is not their middle: half a mark of tolerance.
		if _, y := start(t, m); math.Abs(y-(bottom-value*(bottom-top))) > 4 {
			t.Errorf("%q is at %v", m.Children[0].Text, y)
		}
	}
	if d := cmp.Diff([]string{"D, embed: 0.250 [0.125, 0.500]", "D, block.1: 0.500 [0.250, 0.750]", "D, block.2: 1.000", "ND, embed: 0.250", "ND, block.2: 0.750"}, tips); d != "" {
		t.Errorf("marks (-want +got):\n%s", d)
	}
	// The gap of ND starts a second piece.
	if d := e.of("line")[3].attr("d"); strings.Count(d, "M") != 2 || strings.Contains(d, "L") {
		t.Errorf("the missing value is no gap: %s", d)
	}
}

// TestLongReferencesKeepTheirValue: the name is cut, the number stays and does not
// run out of the drawing.
func TestLongReferencesKeepTheirValue(t *testing.T) {
	f := report.Figure{Lines: &report.Lines{Categories: []string{"a", "b"}, Series: []report.Series{{Name: "s", Y: []float64{0, 1}}},
		References: []report.Reference{{Name: "bag of words, trained on the training split alone", Value: 0.969}, {Name: "another that is about as long", Value: 0.968}}}}
	var labels []element
	for _, e := range svg(t, f).of("tick") {
		if strings.Contains(e.Text, "0.96") {
			labels = append(labels, e)
		}
	}
	if len(labels) != 2 || !strings.HasSuffix(labels[0].Text, "… 0.968") || !strings.HasSuffix(labels[1].Text, "… 0.969") {
		t.Fatalf("labels %q", texts(labels))
	}
	if gap := float(t, labels[0].attr("y")) - float(t, labels[1].attr("y")); gap < 13 {
		t.Errorf("two labels are %v apart and cover each other", gap)
	}
	for _, l := range labels {
		if end := float(t, l.attr("x")) + 7*float64(len([]rune(l.Text))); end > 640 {
			t.Errorf("%q ends at %v", l.Text, end)
		}
	}
}

func TestEffectsHaveTheirZeroAndErrorBars(t *testing.T) {
	e := svg(t, effects)
	if n := len(e.of("error")); n != 2 {
		t.Errorf("%d error bars, want 2: the series peak has none", n)
	}
	zero, _ := start(t, e.of("axis")[0])
	for _, m := range e.of("mark")[2:] {
		x, _ := start(t, m)
		if negative := strings.Contains(m.Children[0].Text, ": -"); negative != (x < zero) {
			t.Errorf("%q is at %v, zero at %v", m.Children[0].Text, x, zero)
		}
	}
	if got := strings.Join(texts(e.of("tick")), " "); !strings.Contains(got, "none") || !strings.Contains(got, "published 0.150") {
		t.Errorf("the missing value or the reference is not named: %s", got)
	}
}

func TestHeatShadesByValue(t *testing.T) {
	e := svg(t, matrix)
	if d := cmp.Diff([]string{"20", "3", "1", "15", "10"}, texts(e.of("value"))); d != "" {
		t.Errorf("values (-want +got):\n%s", d)
	}
	cells := e.of("cell")
	least, most := float(t, cells[2].attr("fill-opacity")), float(t, cells[0].attr("fill-opacity"))
	if between := float(t, cells[3].attr("fill-opacity")); !(least < between && between < most) {
		t.Errorf("shades of 1, 15 and 20 are %v, %v, %v", least, between, most)
	}
	if n := len(e.of("same")); n != 2 {
		t.Errorf("%d cells of the diagonal are outlined, want 2", n)
	}
}

// TestSeriesDifferWithoutColour: no two of many series share marker and dashes.
func TestSeriesDifferWithoutColour(t *testing.T) {
	f := report.Figure{Lines: &report.Lines{Categories: []string{"a", "b"}}}
	for i := range 12 {
		f.Lines.Series = append(f.Lines.Series, report.Series{Name: fmt.Sprint(i), Y: []float64{float64(i), 0}})
	}
	e := svg(t, f)
	seen := map[string]string{}
	relative := regexp.MustCompile(`[0-9.]+`)
	for i := range 12 {
		// The legend's marks sit at different places: their shape is what is left.
		mark, line := e.of("mark")[i], e.of("line")[i]
		key := relative.ReplaceAllString(mark.attr("d"), "") + strings.Fields(mark.attr("class"))[1] + strings.Fields(line.attr("class"))[2]
		if other, ok := seen[key]; ok {
			t.Errorf("series %d looks like series %s", i, other)
		}
		seen[key] = fmt.Sprint(i)
	}
}

func TestFigureIsNamedForThoseWhoCannotSeeIt(t *testing.T) {
	for _, f := range allFigures {
		e := svg(t, f)
		if e.attr("role") != "img" || e.attr("aria-labelledby") != e.Children[0].attr("id")+" "+e.Children[1].attr("id") {
			t.Errorf("%s: role %q, labelled by %q", f.Title, e.attr("role"), e.attr("aria-labelledby"))
		}
		if e.Children[0].Text != f.Title || e.Children[1].Text == "" {
			t.Errorf("title %q and description %q", e.Children[0].Text, e.Children[1].Text)
		}
	}
}

// TestTextStaysText: names in any script, markup and control characters.
func TestTextStaysText(t *testing.T) {
	const evil = `</title></style><script>alert(1)</script> 한국어 العربية 中文 ` + "\x1b[31m\x00"
	f := report.Figure{Title: evil, Description: evil, Lines: &report.Lines{X: report.Axis{Name: evil}, Y: report.Axis{Name: evil}, Categories: []string{evil},
		Series: []report.Series{{Name: evil, Y: []float64{1}}}, References: []report.Reference{{Name: "중국", Value: 2}}}}
	e := svg(t, f)
	const want = `</title></style><script>alert(1)</script> 한국어 العربية 中文 ␛[31m␀`
	if e.Children[0].Text != want || e.Children[1].Text != want || e.of("label")[0].Text != want || e.of("name")[0].Text != want {
		t.Errorf("text was changed: %q", texts(e.Children))
	}
	if got := texts(e.of("tick")); got[len(got)-1] != "중국 2" {
		t.Errorf("ticks %q", got)
	}
	for _, c := range e.Children {
		if c.XMLName.Local == "script" {
			t.Error("a name became a script")
		}
	}
}

func TestFigureTables(t *testing.T) {
	for _, c := range []struct {
		figure report.Figure
		csv    string
	}{
		{layers, `series,layer,accuracy,lower,upper
D,embed,0.25,0.125,0.5
D,block.1,0.5,0.25,0.75
D,block.2,1,,
ND,embed,0.25,,
ND,block.1,,,
ND,block.2,0.75,,
chance,,0.5,,
`},
		{loss, "series,step,loss\ntraining,0,4\ntraining,1,2\ntraining,2,1\ntraining,3,0.5\nvalidation,1,3\nvalidation,3,1.25\n"},
		{effects, "series,group,difference,lower,upper\nlate layers,Δctx,-0.25,-0.5,0.125\nlate layers,Δtext,0.5,0.25,0.75\npeak,Δctx,0.125,,\npeak,Δtext,,,\npublished,,0.15,,\n"},
		{matrix, "gold \\ predicted,3,4,none\n3,20,3,1\n4,15,10,\n"},
	} {
		if d := cmp.Diff(c.csv, c.figure.Table().CSV()); d != "" {
			t.Errorf("%s (-want +got):\n%s", c.figure.Title, d)
		}
	}
}

func TestCSVRunsNoFormula(t *testing.T) {
	rows := [][]report.Cell{}
	want := []string{"'=1+1", "'@SUM(A1)", "'+cmd|' /C calc'!A0", "'-2+3+cmd|x", "-0.02 [-0.10, 0.05]", "+0.701", "a,b \"c\"", "-"}
	for _, s := range want {
		rows = append(rows, []report.Cell{report.Text(strings.TrimPrefix(s, "'"))})
	}
	records, err := csv.NewReader(strings.NewReader(report.Table{Columns: []report.Column{{Name: "text"}}, Rows: rows}.CSV())).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	for i, r := range records[1:] {
		if r[0] != want[i] {
			t.Errorf("got %q, want %q", r[0], want[i])
		}
	}
}

func TestFigureJSONKeepsMissingValues(t *testing.T) {
	for _, f := range allFigures {
		b, err := json.Marshal(f)
		if err != nil {
			t.Fatal(err)
		}
		var back report.Figure
		if err := json.Unmarshal(b, &back); err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(f, back, cmpopts.EquateNaNs()); d != "" {
			t.Errorf("%s (-want +got):\n%s", f.Title, d)
		}
	}
}

func TestFiguresWithoutTablesAreShownAsTheirs(t *testing.T) {
	section := report.Section{Title: "Probing", Figures: []report.Figure{layers}}
	for _, f := range []report.Format{report.Terminal, report.Markdown} {
		got := render(t, f, report.Options{Width: 100}, section)
		if !strings.Contains(got, "block.1") || !strings.Contains(got, "Bands are") {
			t.Errorf("%s shows nothing of the figure:\n%s", f, got)
		}
		with := section
		with.Tables = []report.Table{{Columns: []report.Column{{Name: "own table"}}}}
		if got := render(t, f, report.Options{Width: 100}, with); strings.Contains(got, "block.1") {
			t.Errorf("%s repeats the figure beside the section's table:\n%s", f, got)
		}
	}
}

func TestFigureMistakes(t *testing.T) {
	y := []report.Series{{Name: "s", Y: []float64{1}}}
	for want, f := range map[string]report.Figure{
		"takes exactly one":                     {Title: "empty"},
		"2 of Lines, Points":                    {Lines: &report.Lines{}, Points: &report.Points{}},
		`series "s" has 1 values for 2 cate`:    {Lines: &report.Lines{Categories: []string{"a", "b"}, Series: y}},
		`series "s" has 1 values for 0 x`:       {Lines: &report.Lines{Series: y}},
		"the positions are named":               {Lines: &report.Lines{Categories: []string{"a"}, Series: []report.Series{{Name: "s", X: []float64{1}, Y: []float64{1}}}}},
		"x value 2 (1) is not finite or falls":  {Lines: &report.Lines{Series: []report.Series{{Name: "s", X: []float64{2, 1}, Y: []float64{1, 1}}}}},
		`series "s" has 0 upper bounds for 1 g`: {Points: &report.Points{Groups: []string{"a"}, Series: []report.Series{{Name: "s", Y: []float64{1}, Lo: []float64{1}}}}},
		`reference "r" is NaN`:                  {Points: &report.Points{References: []report.Reference{{Name: "r", Value: nan}}}},
		"axis y goes from 2 to 1":               {Lines: &report.Lines{Y: report.Axis{Min: 2, Max: 1}}},
		"row 1 has 1 values for 2 columns":      {Heat: &report.Heat{Columns: []string{"a", "b"}, Rows: []string{"a"}, Values: []report.Values{{1}}}},
		"0 rows of values for 1 names":          {Heat: &report.Heat{Rows: []string{"a"}}},
	} {
		for _, err := range []error{report.WriteSVG(io.Discard, f), report.Write(io.Discard, report.JSON, []report.Section{{Figures: []report.Figure{f}}}, report.Options{})} {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("got %v, want %q", err, want)
			}
		}
	}
	if err := report.WriteSVG(broken{}, layers); !errors.Is(err, errBroken) {
		t.Errorf("got %v", err)
	}
}

// FuzzFigure draws any numbers: the drawing stays well-formed and finite.
func FuzzFigure(f *testing.F) {
	f.Add(0.1, 0.2, 0.3)
	f.Add(1e300, -1e300, 5e-324)
	f.Add(math.MaxFloat64, -math.MaxFloat64, 0.)
	f.Add(7., 7., 7.)
	f.Add(nan, math.Inf(1), 1e9)
	f.Fuzz(func(t *testing.T, a, b, c float64) {
		ys := report.Values{a, b, c}
		for _, fig := range []report.Figure{
			{Lines: &report.Lines{Categories: []string{"a", "b", "c"}, Series: []report.Series{{Y: ys, Lo: ys, Hi: ys}}}},
			{Points: &report.Points{Groups: []string{"a", "b", "c"}, Series: []report.Series{{Y: ys, Lo: ys, Hi: ys}}}},
			{Points: &report.Points{Bars: true, Groups: []string{"a", "b", "c"}, Series: []report.Series{{Y: ys}}}},
			{Heat: &report.Heat{Columns: []string{"a", "b", "c"}, Rows: []string{"r"}, Values: []report.Values{ys}}},
		} {
			e := svg(t, fig)
			for _, s := range e.Children {
				if d := s.attr("d") + s.attr("fill-opacity"); strings.Contains(d, "none") || strings.Contains(d, "∞") || strings.Contains(d, "NaN") {
					t.Fatalf("%s in %+v", d, fig)
				}
			}
		}
	})
}

func ExampleTable_CSV() {
	f := report.Figure{Title: "Accuracy by layer", Lines: &report.Lines{
		X: report.Axis{Name: "layer"}, Y: report.Axis{Name: "accuracy"}, Categories: []string{"block.1", "block.2"},
		Series:     []report.Series{{Name: "D", Y: []float64{0.6, 0.9}, Lo: []float64{0.5, 0.8}, Hi: []float64{0.7, 0.95}}},
		References: []report.Reference{{Name: "chance", Value: 0.5}}}}
	fmt.Print(f.Table().CSV())
	// Output:
	// series,layer,accuracy,lower,upper
	// D,block.1,0.6,0.5,0.7
	// D,block.2,0.9,0.8,0.95
	// chance,,0.5,,
}

// drawnOf is a figure as SVG.
func drawnOf(t *testing.T, f report.Figure) string {
	t.Helper()
	var b bytes.Buffer
	if err := report.WriteSVG(&b, f); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// Intervals of one curve are a band, those of several are whiskers, which never lie over
// each other.
func TestIntervalsOfSeveralCurvesAreWhiskers(t *testing.T) {
	of := func(curves int) report.Figure {
		l := &report.Lines{X: report.Axis{Name: "layer"}}
		for i := range 31 {
			l.Categories = append(l.Categories, fmt.Sprint("block.", i))
		}
		for k := range curves {
			s := report.Series{Name: fmt.Sprint("curve ", k)}
			for range l.Categories {
				s.Y, s.Lo, s.Hi = append(s.Y, 0.5), append(s.Lo, 0.4), append(s.Hi, 0.6)
			}
			l.Series = append(l.Series, s)
		}
		return report.Figure{Title: "f", Lines: l}
	}
	if svg := drawnOf(t, of(1)); strings.Count(svg, `class="band`) != 1 || strings.Contains(svg, `class="error`) {
		t.Error("one curve has no band, or whiskers")
	}
	for curves := 2; curves <= 6; curves++ {
		svg := drawnOf(t, of(curves))
		at := map[string]bool{}
		hues := map[string]bool{}
		for _, m := range regexp.MustCompile(`class="error thin (s\d)" d="M([0-9.]+) `).FindAllStringSubmatch(svg, -1) {
			if at[m[2]] {
				t.Errorf("%d curves: two whiskers stand at %s", curves, m[2])
			}
			at[m[2]], hues[m[1]] = true, true
		}
		if strings.Contains(svg, `class="band`) || len(hues) != curves || len(at) < 31 {
			t.Errorf("%d curves: %d whiskers of %d curves, or a band", curves, len(at), len(hues))
		}
	}
}

func TestOwnGroupStandsOut(t *testing.T) {
	svg := drawnOf(t, report.Figure{Title: "f", Points: &report.Points{X: report.Axis{Name: "share"}, Groups: []string{"model", "rule"}, Own: []string{"model"},
		Series: []report.Series{{Y: []float64{0.5, 0.4}, Lo: []float64{0.4, 0.3}, Hi: []float64{0.6, 0.5}}}}})
	for _, want := range []string{`class="label own" x=`, `class="mark s0"`, `class="error s0"`, `class="mark other"`, `class="error other"`} {
		if strings.Count(svg, want) != 1 {
			t.Errorf("%d of %s", strings.Count(svg, want), want)
		}
	}
}

// Every tick that fits has its label: of layers the number alone, of turns each.
func TestTicksThatFitAreLabelled(t *testing.T) {
	labels := func(f report.Figure) (out []string) {
		for _, m := range regexp.MustCompile(`class="tick" x="[^"]*" y="[^"]*" text-anchor="middle">([^<]*)<`).FindAllStringSubmatch(drawnOf(t, f), -1) {
			out = append(out, m[1])
		}
		return out
	}
	l := &report.Lines{X: report.Axis{Name: "layer"}, Categories: []string{"embed"}, Series: []report.Series{{Name: "s", Y: []float64{0}}}}
	for i := range 12 {
		l.Categories, l.Series[0].Y = append(l.Categories, fmt.Sprint("block.", i)), append(l.Series[0].Y, 1)
	}
	if got := strings.Join(labels(report.Figure{Title: "f", Lines: l}), " "); got != "embed 0 1 2 3 4 5 6 7 8 9 10 11" {
		t.Errorf("layers %s", got)
	}
	turns := report.Series{Name: "s"}
	for x := -7.; x <= 6; x++ {
		turns.X, turns.Y = append(turns.X, x), append(turns.Y, 1)
	}
	if got := len(labels(report.Figure{Title: "f", Lines: &report.Lines{X: report.Axis{Name: "turns"}, Series: []report.Series{turns}}})); got != 14 {
		t.Errorf("%d of 14 turns are labelled", got)
	}
}
