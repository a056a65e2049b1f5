package report

import (
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"fmt"
	"html/template"
	"strings"

	"github.com/olekukonko/tablewriter/pkg/twwidth"

	"github.com/ccmed/ccmed/bench/visible"
)

// longText is the width in terminal columns from which on a cell keeps room for
// itself on a narrow screen, where its table scrolls.
const longText = 40

//go:embed page.html.tmpl
var pageSource string

//go:embed page.css
var pageCSS string

//go:embed page.js
var pageScript string

var pageTemplate = template.Must(template.Must(figureTemplate.Clone()).New("page").Parse(pageSource))

type (
	pageView struct {
		Title    string
		Style    template.CSS
		Sections []sectionView
		Contents bool // a list of the sections is worth its place
		// Data is the report as JSON, escaped for a script element.
		Data   template.JS
		Packs  []pack
		Words  *tableView
		Script template.JS
		// ScriptHash is the script's source expression for the page's policy.
		ScriptHash string
	}
	sectionView struct {
		Index           int
		ID, Title, Text string
		Sub             bool
		Lead, Notes     []template.HTML
		Lists           []listView
		Passages        []passagesView
		Browser         string // what it holds; empty without one
		Tables          []tableView
		Figures         []figureView
	}
	listView struct {
		Title template.HTML
		Items []template.HTML
	}
	passagesView struct {
		Group    string
		Passages []Passage
	}
	tableView struct {
		Name    string // for those who cannot see where the table stands
		Caption template.HTML
		Columns []columnView
		Rows    [][]cellView
		Notes   []template.HTML
		CSV     string
		// Stack: on a narrow screen each row is a block of its own.
		Stack bool
	}
	columnView struct {
		Name  template.HTML
		Align Align
	}
	cellView struct {
		Text  template.HTML
		Class string
		Name  string // of the column
		// Header: the cell names its row.
		Header bool
	}
	figureView struct {
		Title   string
		Caption template.HTML
		Drawing *drawing
		Notes   []template.HTML
		Table   tableView
	}
)

// page renders one HTML file. Everything in it is text to the template, which
// escapes it for where it stands.
func page(sections []Section, title string) (string, error) {
	if title == "" {
		title = "ccmed report"
	}
	data, packs, err := embed(sections)
	if err != nil {
		return "", err
	}
	hash := sha256.Sum256([]byte(pageScript))
	v := pageView{Title: visible.Text(title), Style: template.CSS(figureCSS + pageCSS), Data: template.JS(data), Packs: packs, Script: template.JS(pageScript),
		ScriptHash: "sha256-" + base64.StdEncoding.EncodeToString(hash[:])}
	w := words{map[string]bool{}}
	titled := 0
	for i, s := range sections {
		id := fmt.Sprintf("section-%d", i+1)
		sv := sectionView{Index: i, ID: id, Title: visible.Text(s.Title), Text: visible.Text(s.Text), Sub: s.Sub, Lead: w.markAll(s.Lead), Notes: w.markAll(s.Notes)}
		for _, l := range s.Lists {
			sv.Lists = append(sv.Lists, listView{w.mark(l.Title), w.markAll(l.Items)})
		}
		if s.Title != "" && !s.Sub {
			titled++
		}
		for j, t := range s.Tables {
			if len(t.Columns) > 0 {
				sv.Tables = append(sv.Tables, w.table(t, fmt.Sprintf("%s, table %d", sv.Title, j+1)))
			}
		}
		for j, f := range s.Figures {
			t := f.Table()
			t.Title = ""
			sv.Figures = append(sv.Figures, figureView{Title: visible.Text(f.Title), Caption: w.mark(f.Description), Notes: w.markAll(f.Notes),
				Drawing: draw(f, fmt.Sprintf("%s-figure-%d", id, j+1)), Table: w.table(t, visible.Text(f.Title)+", as a table")})
		}
		for _, p := range s.Passages {
			n := len(sv.Passages)
			if p.Group = visible.Text(p.Group); n == 0 || p.Group == "" || sv.Passages[n-1].Group != p.Group {
				sv.Passages = append(sv.Passages, passagesView{Group: p.Group})
				n++
			}
			in := &sv.Passages[n-1]
			in.Passages = append(in.Passages, Passage{p.Group, visible.Text(p.Title), visible.Text(p.Text), p.Open})
		}
		if b := s.Browser; b != nil {
			sv.Browser = visible.Text(fmt.Sprintf("%d %s", len(b.Items), b.Name))
		}
		v.Sections = append(v.Sections, sv)
	}
	v.Contents = titled > 2
	if list := w.list(); len(list.Rows) > 0 {
		t := words{map[string]bool{}}.table(list, "Words")
		v.Words = &t
	}
	var b strings.Builder
	if err := pageTemplate.ExecuteTemplate(&b, "page", v); err != nil {
		return "", fmt.Errorf("render the page: %w", err)
	}
	return b.String(), nil
}

// mostStacked is the number of columns up to which a table's rows can be blocks.
const mostStacked = 5

func (w words) table(t Table, name string) tableView {
	v := tableView{Name: name, Caption: w.mark(t.Title), Notes: w.markAll(t.Notes), CSV: visible.Text(t.CSV())}
	if t.Title != "" {
		v.Name = visible.Text(t.Title)
	}
	for _, c := range t.Columns {
		v.Columns = append(v.Columns, columnView{w.mark(c.Name), c.Align})
	}
	for _, r := range t.Rows {
		row := make([]cellView, len(t.Columns))
		for i, c := range t.Columns {
			text := ""
			row[i].Class = string(c.Align)
			if i < len(r) {
				text = visible.Text(r[i].text)
			}
			row[i].Text = template.HTML(template.HTMLEscapeString(text))
			if c.Align == Left && twwidth.Width(text) > longText {
				row[i].Class = "long"
			}
			v.Stack = v.Stack || len(t.Columns) > 2 && len(t.Columns) <= mostStacked && twwidth.Width(text) > longText/2
		}
		if row[0].Header = t.Columns[0].Align == Left && row[0].Text != ""; row[0].Header {
			row[0].Text = w.mark(r[0].text)
		}
		v.Rows = append(v.Rows, row)
	}
	for _, row := range v.Rows {
		for i := range row {
			if v.Stack {
				row[i].Name = visible.Text(t.Columns[i].Name)
			}
		}
	}
	return v
}
