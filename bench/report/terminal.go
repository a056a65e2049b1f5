package report

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/olekukonko/tablewriter"
	"github.com/olekukonko/tablewriter/pkg/twwidth"
	"github.com/olekukonko/tablewriter/renderer"
	"github.com/olekukonko/tablewriter/tw"
	"github.com/rivo/uniseg"
	"golang.org/x/term"

	"github.com/ccmed/ccmed/bench/visible"
)

const (
	defaultWidth = 120
	leastColumn  = 12 // columns are not made narrower than this to fit the line
	gap          = 2  // spaces between two columns
)

func lineWidth(w io.Writer, asked int) int {
	if asked > 0 {
		return asked
	}
	if f, ok := w.(*os.File); ok {
		if n, _, err := term.GetSize(int(f.Fd())); err == nil && n > 0 {
			return n
		}
	}
	return defaultWidth
}

type style string

const (
	bold  style = "\x1b[1m"
	faint style = "\x1b[2m"
	reset       = "\x1b[0m"
)

func terminal(sections []Section, color bool, width int) (string, error) {
	// The environment must not decide how wide an ambiguous character is: the
	// same report is the same text everywhere.
	twwidth.SetEastAsian(false)
	paint := func(st style, lines []string) string {
		if color {
			for i, l := range lines {
				lines[i] = string(st) + l + reset
			}
		}
		return strings.Join(lines, "\n") + "\n"
	}
	notes := func(ns []string) string {
		var b strings.Builder
		for _, n := range ns {
			b.WriteString(paint(faint, wrap(n, width)))
		}
		return b.String()
	}
	var out []string
	for _, s := range sections {
		var parts []string
		add := func(p string) {
			if p != "" {
				parts = append(parts, p)
			}
		}
		for _, l := range s.Lead {
			add(strings.Join(wrap(l, width), "\n") + "\n")
		}
		if s.Text != "" {
			add(strings.TrimRight(visible.Text(s.Text), "\n") + "\n")
		}
		for _, t := range s.shownTables() {
			var b strings.Builder
			if t.Title != "" {
				b.WriteString(paint(bold, wrap(t.Title, width)))
			}
			body, err := columns(t, width)
			if err != nil {
				return "", fmt.Errorf("section %q, table %q: %w", s.Title, t.Title, err)
			}
			add(b.String() + body + notes(t.Notes))
		}
		for _, l := range s.Lists {
			title := ""
			if l.Title != "" {
				title = paint(bold, wrap(l.Title, width))
			}
			add(title + notes(l.Items))
		}
		for _, p := range s.Passages {
			add(paint(bold, wrap(p.name(), width)) + strings.TrimRight(visible.Text(p.Text), "\n") + "\n")
		}
		add(notes(s.Notes))
		if s.Browser != nil {
			add(notes([]string{s.Browser.count()}))
		}
		head := ""
		if s.Title != "" {
			lines := wrap(s.Title, width)
			longest := 0
			for _, l := range lines {
				longest = max(longest, twwidth.Width(l))
			}
			line := "═"
			if s.Sub {
				line = "─"
			}
			head = paint(bold, append(lines, strings.Repeat(line, longest)))
		}
		if section := head + strings.Join(parts, "\n"); section != "" {
			out = append(out, section)
		}
	}
	return strings.Join(out, "\n"), nil
}

// columns renders a table whose lines have at most width columns, as far as
// leastColumn lets it.
func columns(t Table, width int) (string, error) {
	if len(t.Columns) == 0 {
		return "", nil
	}
	header := make([]string, len(t.Columns))
	align := make([]tw.Align, len(t.Columns))
	for i, c := range t.Columns {
		header[i], align[i] = visible.Text(c.Name), tw.AlignLeft
		if c.Align == Right {
			align[i] = tw.AlignRight
		}
	}
	rows := make([][]string, len(t.Rows))
	for i, r := range t.Rows {
		rows[i] = make([]string, len(t.Columns))
		for j, c := range r {
			rows[i][j] = visible.Text(c.text)
		}
	}
	widths := fit(append([][]string{header}, rows...), t.Columns, width)
	for _, r := range append([][]string{header}, rows...) {
		for j := range r {
			r[j] = strings.Join(wrap(r[j], widths[j]), "\n")
		}
	}
	cell := tw.CellConfig{Formatting: tw.CellFormatting{AutoWrap: tw.WrapNone, AutoFormat: tw.Off}, Alignment: tw.CellAlignment{PerColumn: align},
		Padding: tw.CellPadding{Global: tw.Padding{Right: strings.Repeat(" ", gap), Overwrite: true}}}
	var b bytes.Buffer
	table := tablewriter.NewTable(&b,
		tablewriter.WithRenderer(renderer.NewBlueprint(tw.Rendition{Borders: tw.BorderNone, Symbols: tw.NewSymbols(tw.StyleLight), Settings: tw.Settings{
			Separators: tw.SeparatorsNone, Lines: tw.Lines{ShowTop: tw.Off, ShowBottom: tw.Off, ShowHeaderLine: tw.On, ShowFooterLine: tw.Off}}})),
		tablewriter.WithConfig(tablewriter.Config{Header: cell, Row: cell, Behavior: tw.Behavior{TrimSpace: tw.Off, TrimLine: tw.Off}}),
		tablewriter.WithHeaderAutoFormat(tw.Off), tablewriter.WithEastAsian(tw.Off))
	table.Header(header)
	if err := table.Bulk(rows); err != nil {
		return "", err
	}
	if err := table.Render(); err != nil {
		return "", err
	}
	lines := strings.Split(b.String(), "\n")
	for i, l := range lines {
		lines[i] = strings.TrimRight(l, " ")
	}
	return strings.Join(lines, "\n"), nil
}

// fit returns the columns' widths: what their longest lines need, and where
// that is too much for the line, the widest ones made narrower until it is not;
// first those of text, and those of numbers only if that is not enough.
func fit(rows [][]string, columns []Column, width int) []int {
	widths := make([]int, len(columns))
	for _, r := range rows {
		for j, c := range r {
			for line := range strings.SplitSeq(c, "\n") {
				widths[j] = max(widths[j], twwidth.Width(line))
			}
		}
	}
	total := gap * len(widths)
	for _, n := range widths {
		total += n
	}
	for _, align := range []Align{Left, Right} {
		for ; total > width; total-- {
			widest := -1
			for j, n := range widths {
				if columns[j].Align == align && n > leastColumn && (widest < 0 || n > widths[widest]) {
					widest = j
				}
			}
			if widest < 0 {
				break
			}
			widths[widest]--
		}
	}
	return widths
}

// wrap breaks text into lines of at most width columns: where Unicode allows a
// line break (UAX #14, so between ideographs too), else between two characters.
func wrap(text string, width int) []string {
	var lines []string
	for paragraph := range strings.SplitSeq(visible.Text(text), "\n") {
		line, used := "", 0
		flush := func() {
			lines = append(lines, strings.TrimRight(line, " "))
			line, used = "", 0
		}
		for rest, state := paragraph, -1; rest != ""; {
			var word string
			word, rest, _, state = uniseg.FirstLineSegmentInString(rest, state)
			n := twwidth.Width(strings.TrimRight(word, " "))
			if used > 0 && used+n > width {
				flush()
			}
			if n <= width {
				line, used = line+word, used+twwidth.Width(word)
				continue
			}
			for g := uniseg.NewGraphemes(word); g.Next(); {
				n := twwidth.Width(g.Str())
				if used > 0 && used+n > width {
					flush()
				}
				line, used = line+g.Str(), used+n
			}
		}
		flush()
	}
	return lines
}
