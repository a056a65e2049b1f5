// Package report renders what tasks found: sections of notes, text, tables, figures
// and lists of items to browse, to a terminal, Markdown, JSON or one self-contained HTML page. It knows
// no task; tasks build their own sections.
//
//	t := report.Table{Columns: report.Columns("who", "TurnAcc>")}
//	t.Add("longest turn", report.Pct(124, 159))
//	err := report.Write(os.Stdout, report.Terminal, []report.Section{{Title: "Timing", Tables: []report.Table{t}}}, report.Options{})
package report

import (
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"

	"github.com/ccmed/ccmed/bench/stats"
)

// Section is one part of a report.
type Section struct {
	Title string `json:"title"`
	// Sub says that the section is a part of the one before.
	Sub bool `json:"sub,omitempty"`
	// Lead are sentences that stand before all else.
	Lead    []string `json:"lead,omitempty"`
	Notes   []string `json:"notes,omitempty"`
	Lists   []List   `json:"lists,omitempty"`
	Text    string   `json:"text,omitempty"` // printed as it is, for prompts and the like
	Tables  []Table  `json:"tables,omitempty"`
	Figures []Figure `json:"figures,omitempty"`
	// Passages are long texts shown as they are.
	Passages []Passage `json:"passages,omitempty"`
	Browser  *Browser  `json:"browser,omitempty"`
}

// List is a titled list of sentences.
type List struct {
	Title string   `json:"title"`
	Items []string `json:"items"`
}

// Passage is a text that is shown as it is, such as a prompt or a command line. A
// page folds it away unless it is Open; neighbours with one Group are folded
// together under it.
type Passage struct {
	Group string `json:"group,omitempty"`
	Title string `json:"title"`
	Text  string `json:"text"`
	Open  bool   `json:"-"`
}

// name is the title where groups are not folded.
func (p Passage) name() string {
	if p.Group == "" {
		return p.Title
	}
	return p.Group + ": " + p.Title
}

// Table is a table with named columns. A row may be shorter than the columns and
// not longer.
type Table struct {
	Title   string   `json:"title,omitempty"`
	Columns []Column `json:"columns"`
	Rows    [][]Cell `json:"rows"`
	Notes   []string `json:"notes,omitempty"`
}

// Align is how a column is set.
type Align string

// Alignments of a column; the zero value is Left.
const (
	Left  Align = ""
	Right Align = "right"
)

// Column heads a column.
type Column struct {
	Name  string `json:"name"`
	Align Align  `json:"align,omitempty"`
}

// Columns returns columns with these names. A name that ends in ">" heads a column that is
// set right.
func Columns(names ...string) []Column {
	columns := make([]Column, len(names))
	for i, name := range names {
		if plain, right := strings.CutSuffix(name, ">"); right {
			columns[i] = Column{plain, Right}
		} else {
			columns[i] = Column{Name: name}
		}
	}
	return columns
}

// Add adds a row. A cell is a Cell, an int, or anything else that is shown as its text.
func (t *Table) Add(cells ...any) {
	row := make([]Cell, len(cells))
	for i, c := range cells {
		switch c := c.(type) {
		case Cell:
			row[i] = c
		case int:
			row[i] = Int(c)
		default:
			row[i] = Text(fmt.Sprint(c))
		}
	}
	t.Rows = append(t.Rows, row)
}

// Cell is one cell: a text, and the number behind it where it is one, for
// formats that are read by programs. The zero value is empty.
type Cell struct {
	text     string
	number   any // int or a finite float64
	infinite bool
}

// Text returns a cell with a text.
func Text(s string) Cell { return Cell{text: s} }

// Int returns a cell with a count.
func Int(n int) Cell { return Cell{text: strconv.Itoa(n), number: n} }

// Num returns a cell with a number, shown with so many decimals. NaN is shown as
// "none"; JSON has null for it and for infinities.
func Num(v float64, decimals int) Cell {
	c := Cell{text: fixed(v, decimals)}
	if finite(v) {
		c.number = v
	} else {
		c.infinite = true
	}
	return c
}

// String returns the cell's text.
func (c Cell) String() string { return c.text }

// Options steer Write.
type Options struct {
	// Color sets titles off with terminal colours.
	Color bool
	// Width is the greatest width of a line in terminal columns; wider tables are
	// wrapped within their cells. 0 means the width of the terminal that is
	// written to, 120 where it is none. The other formats are not wrapped.
	Width int
	// Title heads an HTML page; empty: "ccmed report".
	Title string
}

// Format is an output format of Write.
type Format string

// The formats.
const (
	Terminal Format = "terminal"
	Markdown Format = "markdown"
	JSON     Format = "json"
	// HTML is one file that asks for nothing over the network. It carries what JSON
	// would hold, and one script of this package for the browser of items, for copying
	// and for saving that JSON; its policy lets no other script run.
	HTML Format = "html"
)

// Write renders sections in one of the formats.
func Write(w io.Writer, f Format, sections []Section, o Options) error {
	for _, s := range sections {
		for _, t := range s.Tables {
			for i, r := range t.Rows {
				if len(r) > len(t.Columns) {
					return fmt.Errorf("report: section %q, table %q: row %d has %d cells for %d columns", s.Title, t.Title, i+1, len(r), len(t.Columns))
				}
			}
		}
		for _, f := range s.Figures {
			if err := f.Check(); err != nil {
				return fmt.Errorf("report: section %q: %w", s.Title, err)
			}
		}
		if s.Browser != nil {
			if err := s.Browser.check(); err != nil {
				return fmt.Errorf("report: section %q: %w", s.Title, err)
			}
		}
	}
	var text string
	var err error
	switch f {
	case Terminal:
		text, err = terminal(sections, o.Color, lineWidth(w, o.Width))
	case Markdown:
		text = markdown(sections)
	case JSON:
		text, err = encode(sections)
	case HTML:
		text, err = page(sections, o.Title)
	default:
		return fmt.Errorf("report: unknown format %q; known are %s, %s, %s and %s", f, Terminal, Markdown, JSON, HTML)
	}
	if err != nil {
		return fmt.Errorf("report: %w", err)
	}
	if _, err := io.WriteString(w, text); err != nil {
		return fmt.Errorf("write the report: %w", err)
	}
	return nil
}

// shownTables are the tables of a section where figures cannot be drawn: its own,
// or else those of its figures.
func (s Section) shownTables() []Table {
	if len(s.Tables) > 0 {
		return s.Tables
	}
	var ts []Table
	for _, f := range s.Figures {
		t := f.Table()
		t.Notes = f.Notes
		ts = append(ts, t)
	}
	return ts
}

func finite(v float64) bool { return !math.IsNaN(v) && !math.IsInf(v, 0) }

// fixed writes a number with so many decimals; what rounds to zero has no sign.
func fixed(v float64, decimals int) string {
	switch {
	case math.IsNaN(v):
		return "none"
	case math.IsInf(v, 1):
		return "∞"
	case math.IsInf(v, -1):
		return "-∞"
	}
	s := strconv.FormatFloat(v, 'f', decimals, 64)
	if strings.Trim(s, "-0.") == "" {
		return strings.TrimPrefix(s, "-")
	}
	return s
}

// Interval writes a value and its interval, as in "0.42 [0.31, 0.53]". Bounds
// that are not finite are left out; NaN itself is "none".
func Interval(v, lo, hi float64, decimals int) string {
	if math.IsNaN(v) || !finite(lo) || !finite(hi) {
		return fixed(v, decimals)
	}
	return fmt.Sprintf("%s [%s, %s]", fixed(v, decimals), fixed(lo, decimals), fixed(hi, decimals))
}

// Estimate writes a value with its interval as Interval does, or with the reason why
// there is none, as in "0.42 (one context)".
func Estimate(e stats.Estimate, decimals int) string {
	if e.NoInterval != "" {
		return fixed(e.Value, decimals) + " (" + e.NoInterval + ")"
	}
	return Interval(e.Value, e.Lo, e.Hi, decimals)
}

// Pct writes k of n as a share with its counts, as in "35.8 % (57/159)", and
// "none" when n is 0.
func Pct(k, n int) string {
	if n == 0 {
		return "none"
	}
	return fmt.Sprintf("%.1f %% (%d/%d)", 100*float64(k)/float64(n), k, n)
}

// PValue writes a p value, small ones as "<0.001".
func PValue(p float64) string {
	if p < 0.001 {
		return "<0.001"
	}
	return fixed(p, 3)
}

// Shorten puts a text on one line and cuts it to n characters, with "…" for
// what is left out.
func Shorten(s string, n int) string {
	s = strings.Join(strings.Fields(s), " ")
	rs := []rune(s)
	switch {
	case len(rs) <= n:
		return s
	case n < 1:
		return ""
	}
	return strings.TrimRight(string(rs[:n-1]), " ") + "…"
}
