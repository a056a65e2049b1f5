package report

import (
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Figure is a figure as data. Exactly one of Lines, Points and Heat is set; HTML
// draws it and puts its table behind it, JSON carries the data. Terminal and
// Markdown show the table, and only in sections that have no tables of their own.
//
//	f := report.Figure{Title: "Accuracy by layer", Lines: &report.Lines{
//		X: report.Axis{Name: "layer"}, Y: report.Axis{Name: "accuracy"}, Categories: []string{"block.1", "block.2"},
//		Series:     []report.Series{{Name: "D", Y: []float64{0.6, 0.9}, Lo: []float64{0.5, 0.8}, Hi: []float64{0.7, 0.95}}},
//		References: []report.Reference{{Name: "chance", Value: 1. / 3}}}}
type Figure struct {
	Title string `json:"title"`
	// Description is the caption: what the figure shows, of how many, and what its
	// intervals are. Empty: the kind of figure and what it holds.
	Description string   `json:"description,omitempty"`
	Notes       []string `json:"notes,omitempty"`

	Lines  *Lines  `json:"lines,omitempty"`
	Points *Points `json:"points,omitempty"`
	Heat   *Heat   `json:"heat,omitempty"`
}

// Lines are curves with bands over named positions (layers) or over numbers
// (training steps, τ).
type Lines struct {
	X Axis `json:"x"`
	Y Axis `json:"y"`
	// Categories name the positions 0, 1, … of x. Nil: x is a number, and every
	// series has its own X.
	Categories []string    `json:"categories,omitempty"`
	Series     []Series    `json:"series"`
	References []Reference `json:"references,omitempty"` // horizontal
}

// Points are values with intervals, a row for every group and in it a mark for
// every series: differences with their zero line, shares, counts.
type Points struct {
	X      Axis     `json:"x"`
	Groups []string `json:"groups"`
	Series []Series `json:"series"` // without X; Y[i] belongs to Groups[i]
	// Own are the groups that the figure is about: they stand out from the others. Nil: all.
	Own []string `json:"own,omitempty"`
	// Bars draws bars from zero instead of marks.
	Bars       bool        `json:"bars,omitempty"`
	References []Reference `json:"references,omitempty"` // vertical
}

// Heat is a matrix whose cells are shaded by value and carry it as text. Cells
// whose row and column have the same name are outlined.
type Heat struct {
	X       string   `json:"x"` // what the columns are
	Y       string   `json:"y"` // what the rows are
	Columns []string `json:"columns"`
	Rows    []string `json:"rows"`
	// Values[row][column]; NaN leaves a cell empty.
	Values []Values `json:"values"`
	// Decimals of the values in the cells; 0 for counts.
	Decimals int `json:"decimals,omitempty"`
	// Min and Max are the values of no and of full shade. Both zero: those of the data.
	Min float64 `json:"min,omitempty"`
	Max float64 `json:"max,omitempty"`
}

// Axis says what is measured along one direction, with its unit where it has one.
type Axis struct {
	Name string `json:"name"`
	// Min and Max are the ends. Both zero: they are fitted to the data.
	Min float64 `json:"min,omitempty"`
	Max float64 `json:"max,omitempty"`
}

// Series is one named curve or one kind of mark.
type Series struct {
	Name string `json:"name"`
	// X is the position of each value, ascending; nil where positions are named.
	X Values `json:"x,omitempty"`
	// Y are the values; NaN leaves a gap.
	Y Values `json:"y"`
	// Lo and Hi bound each value (a band, an error bar). Both nil: no interval;
	// NaN: none at this point.
	Lo Values `json:"lo,omitempty"`
	Hi Values `json:"hi,omitempty"`
}

// Reference is a labelled line to compare with: chance, a baseline, zero.
type Reference struct {
	Name  string  `json:"name"`
	Value float64 `json:"value"` // finite
}

// Values are numbers of which some may be missing: NaN and infinities are null in JSON.
type Values []float64

// MarshalJSON writes null for what is not finite.
func (v Values) MarshalJSON() ([]byte, error) {
	out := make([]*float64, len(v))
	for i := range v {
		if finite(v[i]) {
			out[i] = &v[i]
		}
	}
	return json.Marshal(out)
}

// UnmarshalJSON reads null as NaN.
func (v *Values) UnmarshalJSON(b []byte) error {
	var in []*float64
	if err := json.Unmarshal(b, &in); err != nil {
		return err
	}
	*v = make(Values, len(in))
	for i, x := range in {
		if (*v)[i] = math.NaN(); x != nil {
			(*v)[i] = *x
		}
	}
	return nil
}

// at returns the i-th value, and NaN where there is none.
func (v Values) at(i int) float64 {
	if i < len(v) {
		return v[i]
	}
	return math.NaN()
}

// Check tells what keeps a figure from being drawn: no or two kinds, lists of
// different lengths, a reference or an axis that is not finite.
func (f Figure) Check() error {
	kinds := 0
	var err error
	if l := f.Lines; l != nil {
		kinds++
		err = errors.Join(l.X.check("x"), l.Y.check("y"), checkReferences(l.References))
		for _, s := range l.Series {
			n, positions := len(l.Categories), "categories"
			if l.Categories == nil {
				n, positions = len(s.X), "x values"
			} else if s.X != nil {
				err = errors.Join(err, fmt.Errorf("series %q has x values, but the positions are named", s.Name))
			}
			err = errors.Join(err, s.check(n, positions))
			for i := range s.X {
				if !finite(s.X[i]) || i > 0 && s.X[i] < s.X[i-1] {
					err = errors.Join(err, fmt.Errorf("series %q: x value %d (%v) is not finite or falls behind the one before", s.Name, i+1, s.X[i]))
				}
			}
		}
	}
	if p := f.Points; p != nil {
		kinds++
		err = errors.Join(err, p.X.check("x"), checkReferences(p.References))
		for _, s := range p.Series {
			err = errors.Join(err, s.check(len(p.Groups), "groups"))
		}
	}
	if h := f.Heat; h != nil {
		kinds++
		err = errors.Join(err, Axis{Min: h.Min, Max: h.Max}.check("shade"))
		if len(h.Values) != len(h.Rows) {
			err = errors.Join(err, fmt.Errorf("%d rows of values for %d names of rows", len(h.Values), len(h.Rows)))
		}
		for i, r := range h.Values {
			if len(r) != len(h.Columns) {
				err = errors.Join(err, fmt.Errorf("row %d has %d values for %d columns", i+1, len(r), len(h.Columns)))
			}
		}
	}
	if kinds != 1 {
		err = errors.Join(err, fmt.Errorf("%d of Lines, Points and Heat are set; it takes exactly one", kinds))
	}
	if err != nil {
		return fmt.Errorf("figure %q: %w", f.Title, err)
	}
	return nil
}

func (a Axis) check(name string) error {
	if !finite(a.Min) || !finite(a.Max) || a.Min > a.Max {
		return fmt.Errorf("axis %s goes from %v to %v", name, a.Min, a.Max)
	}
	return nil
}

func (s Series) check(n int, of string) error {
	for _, c := range []struct {
		name   string
		values Values
		may    bool // be left out
	}{{"values", s.Y, false}, {"lower bounds", s.Lo, s.Hi == nil}, {"upper bounds", s.Hi, s.Lo == nil}} {
		if len(c.values) != n && (c.values != nil || !c.may) {
			return fmt.Errorf("series %q has %d %s for %d %s", s.Name, len(c.values), c.name, n, of)
		}
	}
	return nil
}

func checkReferences(rs []Reference) error {
	for _, r := range rs {
		if !finite(r.Value) {
			return fmt.Errorf("reference %q is %v", r.Name, r.Value)
		}
	}
	return nil
}

// Table returns what the figure shows as numbers: one row a value for Lines and
// Points (references at the end), the matrix itself for Heat.
func (f Figure) Table() Table {
	t := Table{Title: f.Title}
	name := func(s, otherwise string) string {
		if s == "" {
			return otherwise
		}
		return s
	}
	switch {
	case f.Lines != nil:
		l := f.Lines
		x := Column{Name: name(l.X.Name, "x")}
		if l.Categories == nil {
			x.Align = Right
		}
		t.Columns = []Column{{Name: "series"}, x, {Name: name(l.Y.Name, "y"), Align: Right}}
		t.fill(l.Series, l.References, func(s Series, i int) []Cell {
			if l.Categories == nil {
				return []Cell{Text(s.Name), number(s.X[i])}
			}
			return []Cell{Text(s.Name), Text(l.Categories[i])}
		})
	case f.Points != nil:
		p := f.Points
		t.Columns = []Column{{Name: "series"}, {Name: "group"}, {Name: name(p.X.Name, "value"), Align: Right}}
		t.fill(p.Series, p.References, func(s Series, i int) []Cell { return []Cell{Text(s.Name), Text(p.Groups[i])} })
	case f.Heat != nil:
		h := f.Heat
		t.Columns = []Column{{Name: strings.TrimSuffix(h.Y+" \\ "+h.X, " \\ ")}}
		for _, c := range h.Columns {
			t.Columns = append(t.Columns, Column{Name: c, Align: Right})
		}
		for i, r := range h.Rows {
			row := []Cell{Text(r)}
			for _, v := range h.Values[i] {
				row = append(row, Num(v, h.Decimals))
			}
			t.Rows = append(t.Rows, row)
		}
	}
	return t
}

func (t *Table) fill(series []Series, references []Reference, head func(s Series, i int) []Cell) {
	bounds := false
	for _, s := range series {
		bounds = bounds || s.Lo != nil
	}
	if bounds {
		t.Columns = append(t.Columns, Column{Name: "lower", Align: Right}, Column{Name: "upper", Align: Right})
	}
	for _, s := range series {
		for i, y := range s.Y {
			row := append(head(s, i), number(y))
			if bounds {
				row = append(row, number(s.Lo.at(i)), number(s.Hi.at(i)))
			}
			t.Rows = append(t.Rows, row)
		}
	}
	for _, r := range references {
		t.Rows = append(t.Rows, []Cell{Text(r.Name), {}, number(r.Value)})
	}
}

// number shows a value with as many decimals as its size asks for.
func number(v float64) Cell {
	size := math.Abs(v)
	switch {
	case !finite(v):
		return Num(v, 0)
	case size >= 1e7 || size < 0.001 && v != 0:
		return Cell{text: strconv.FormatFloat(v, 'g', 3, 64), number: v}
	case v == math.Trunc(v):
		return Num(v, 0)
	case size >= 100:
		return Num(v, 1)
	}
	return Num(v, 3)
}

// CSV returns the table as RFC 4180 CSV with a header; numbers have all their
// digits and what is not finite is empty. A text that a spreadsheet would run as
// a formula is set behind an apostrophe.
func (t Table) CSV() string {
	var b strings.Builder
	w := csv.NewWriter(&b)
	record := make([]string, len(t.Columns))
	for i, c := range t.Columns {
		record[i] = inert(c.Name)
	}
	_ = w.Write(record) // a strings.Builder takes everything
	for _, r := range t.Rows {
		clear(record)
		for i, c := range r {
			switch v := c.number.(type) {
			case int:
				record[i] = strconv.Itoa(v)
			case float64:
				record[i] = strconv.FormatFloat(v, 'g', -1, 64)
			default:
				if !c.infinite {
					record[i] = inert(c.text)
				}
			}
		}
		_ = w.Write(record)
	}
	w.Flush()
	return b.String()
}

// inert returns a text that no spreadsheet takes for a formula. Signed numbers
// and intervals ("-0.02 [-0.10, 0.05]") stay as they are.
func inert(s string) string {
	formula := strings.HasPrefix(s, "=") || strings.HasPrefix(s, "@")
	signed := strings.HasPrefix(s, "+") || strings.HasPrefix(s, "-")
	if formula || signed && strings.Trim(s, "0123456789+-.,[] ∞%()/") != "" {
		return "'" + s
	}
	return s
}
