// Package report renders what tasks found: sections of notes and tables, to a
// terminal, Markdown or JSON. It knows no task; tasks build their own sections.
//
//	t := report.Table{Columns: []report.Column{{Name: "who"}, {Name: "TurnAcc", Align: report.Right}}}
//	t.Rows = append(t.Rows, []report.Cell{report.Text("longest turn"), report.Text(report.Pct(124, 159))})
//	err := report.Write(os.Stdout, report.Terminal, []report.Section{{Title: "Timing", Tables: []report.Table{t}}}, report.Options{})
package report

import (
	"fmt"
	"io"
	"strings"
)

// Section is one part of a report: its tables, then its text, then its notes.
type Section struct {
	Title  string   `json:"title"`
	Tables []Table  `json:"tables,omitempty"`
	Text   string   `json:"text,omitempty"` // printed as it is, for prompts and the like
	Notes  []string `json:"notes,omitempty"`
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
type Align int

// Alignments of a column.
const (
	Left Align = iota
	Right
	Center
)

// MarshalText writes the alignment by name.
func (a Align) MarshalText() ([]byte, error) {
	switch a {
	case Left:
		return []byte("left"), nil
	case Right:
		return []byte("right"), nil
	case Center:
		return []byte("center"), nil
	}
	return nil, fmt.Errorf("report: %d is not an alignment", int(a))
}

// Column heads a column. The unit is shown after the name.
type Column struct {
	Name  string `json:"name"`
	Align Align  `json:"align"`
	Unit  string `json:"unit,omitempty"`
}

func (c Column) heading() string {
	if c.Unit == "" {
		return c.Name
	}
	return c.Name + " (" + c.Unit + ")"
}

// Cell is one cell: its text, and the number and the interval behind it where
// there are any, for formats that are read by programs.
type Cell struct {
	Text  string   `json:"text"`
	Value *float64 `json:"value,omitempty"`
	Lo    *float64 `json:"lo,omitempty"`
	Hi    *float64 `json:"hi,omitempty"`
}

// Options steer Write.
type Options struct {
	// Color sets titles off with terminal colours.
	Color bool
	// Width is the greatest width of a line in terminal columns; wider tables are
	// wrapped within their cells. 0 means the width of the terminal that is
	// written to, 120 where it is none. Markdown and JSON are not wrapped.
	Width int
}

// Formats of Write.
const (
	Terminal = "terminal"
	Markdown = "markdown"
	JSON     = "json"
)

// Write renders sections in one of the formats.
func Write(w io.Writer, format string, sections []Section, o Options) error {
	for _, s := range sections {
		for _, t := range s.Tables {
			for i, r := range t.Rows {
				if len(r) > len(t.Columns) {
					return fmt.Errorf("report: table %q of section %q has %d cells in row %d and %d columns", t.Title, s.Title, len(r), i+1, len(t.Columns))
				}
			}
		}
	}
	var b strings.Builder
	var err error
	switch format {
	case Terminal:
		err = writeTerminal(&b, sections, o.Color, lineWidth(w, o.Width))
	case Markdown:
		writeMarkdown(&b, sections)
	case JSON:
		err = writeJSON(&b, sections)
	default:
		return fmt.Errorf("report: unknown format %q; known are %s, %s and %s", format, Terminal, Markdown, JSON)
	}
	if err != nil {
		return fmt.Errorf("report: %w", err)
	}
	if _, err := io.WriteString(w, b.String()); err != nil {
		return fmt.Errorf("print the report: %w", err)
	}
	return nil
}
