package report

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"html/template"
	"io"
	"slices"
	"strings"

	"github.com/ccmed/ccmed/bench/visible"
)

// MarshalJSON gives a number where the cell has one, null where that is not
// finite, and else its text.
func (c Cell) MarshalJSON() ([]byte, error) {
	switch {
	case c.infinite:
		return []byte("null"), nil
	case c.number != nil:
		return json.Marshal(c.number)
	}
	return marshal(c.text)
}

// MarshalJSON gives empty lists, not null, where there are no columns or rows.
func (t Table) MarshalJSON() ([]byte, error) {
	type plain Table
	p := plain(t)
	if p.Columns == nil {
		p.Columns = []Column{}
	}
	if p.Rows == nil {
		p.Rows = [][]Cell{}
	}
	return marshal(p)
}

// marshal is json.Marshal without its escapes for HTML: "<0.001" stays readable.
func marshal(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(v)
	return b.Bytes(), err
}

// document is what a report is in JSON.
type document struct {
	Sections []Section `json:"sections"`
}

func newDocument(sections []Section) document {
	if sections == nil {
		sections = []Section{}
	}
	return document{sections}
}

func encode(sections []Section) (string, error) {
	plain, err := marshal(newDocument(sections))
	if err != nil {
		return "", fmt.Errorf("encode the report: %w", err)
	}
	var b bytes.Buffer
	if err := json.Indent(&b, plain, "", "  "); err != nil {
		return "", fmt.Errorf("indent the report: %w", err)
	}
	return visible.JSON(b.String()), nil
}

// pack is a part of a long list's blocks: JSON, compressed by gzip, as base64.
type pack struct {
	Section int // counted from 0
	Items   int // of a pack; the last one may have fewer
	Text    template.HTML
}

// packItems is the number of items of a pack, and of those that a page holds as they are.
const packItems = 2000

// embed is the same document for a script element: <, > and & are escaped, so that
// no text in it can end the element or begin another. The blocks of longer lists than
// packItems lie in packs: a page of 100,000 dialogues would be too large to open.
func embed(sections []Section) (string, []pack, error) {
	sections = slices.Clone(sections)
	var packs []pack
	for i, s := range sections {
		if s.Browser == nil || len(s.Browser.Items) <= packItems {
			continue
		}
		b := *s.Browser
		b.Items = slices.Clone(b.Items)
		for part := range slices.Chunk(b.Items, packItems) {
			text, err := packBlocks(part)
			if err != nil {
				return "", nil, err
			}
			packs = append(packs, pack{i, packItems, text})
		}
		sections[i].Browser = &b
	}
	b, err := json.Marshal(newDocument(sections))
	if err != nil {
		return "", nil, fmt.Errorf("encode the report: %w", err)
	}
	return visible.JSON(string(b)), packs, nil
}

// packBlocks compresses the blocks of items and takes them away from these.
func packBlocks(items []Item) (template.HTML, error) {
	blocks := make([][]Block, len(items))
	for i := range items {
		blocks[i], items[i].Blocks = items[i].Blocks, nil
	}
	plain, err := json.Marshal(blocks)
	if err != nil {
		return "", fmt.Errorf("encode the report: %w", err)
	}
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	if _, err := io.WriteString(z, visible.JSON(string(plain))); err != nil {
		return "", fmt.Errorf("compress the report: %w", err)
	}
	if err := z.Close(); err != nil {
		return "", fmt.Errorf("compress the report: %w", err)
	}
	return template.HTML(base64.StdEncoding.EncodeToString(b.Bytes())), nil
}

func markdown(sections []Section) string {
	var blocks []string
	add := func(b string) { blocks = append(blocks, b) }
	notes := func(ns []string) {
		var items []string
		for _, n := range ns {
			items = append(items, "- "+inline(n))
		}
		if len(items) > 0 {
			add(strings.Join(items, "\n"))
		}
	}
	for _, s := range sections {
		switch {
		case s.Title != "" && s.Sub:
			add("### " + inline(s.Title))
		case s.Title != "":
			add("## " + inline(s.Title))
		}
		for _, l := range s.Lead {
			add(inline(l))
		}
		if s.Text != "" {
			add(fenced(s.Text))
		}
		for _, t := range s.shownTables() {
			if t.Title != "" {
				add("### " + inline(t.Title))
			}
			if len(t.Columns) > 0 {
				add(markdownTable(t))
			}
			notes(t.Notes)
		}
		for _, l := range s.Lists {
			if l.Title != "" {
				add("### " + inline(l.Title))
			}
			notes(l.Items)
		}
		for _, p := range s.Passages {
			add("### " + inline(p.name()))
			add(fenced(p.Text))
		}
		notes(s.Notes)
		if s.Browser != nil {
			add(inline(s.Browser.count()))
		}
	}
	if len(blocks) == 0 {
		return ""
	}
	return strings.Join(blocks, "\n\n") + "\n"
}

// fenced shows a text as it is.
func fenced(text string) string {
	fence := "```"
	for strings.Contains(text, fence) {
		fence += "`"
	}
	return fence + "text\n" + strings.TrimRight(visible.Text(text), "\n") + "\n" + fence
}

func markdownTable(t Table) string {
	var b strings.Builder
	for _, c := range t.Columns {
		b.WriteString("| " + inline(c.Name) + " ")
	}
	b.WriteString("|\n")
	for _, c := range t.Columns {
		if c.Align == Right {
			b.WriteString("| ---: ")
		} else {
			b.WriteString("| --- ")
		}
	}
	b.WriteString("|")
	for _, r := range t.Rows {
		b.WriteString("\n")
		for i := range t.Columns {
			text := ""
			if i < len(r) {
				text = r[i].text
			}
			b.WriteString("| " + inline(text) + " ")
		}
		b.WriteString("|")
	}
	return b.String()
}

// A bracket is only escaped where it could end a link's text, so that intervals
// stay readable in the source.
var markdownEscaper = strings.NewReplacer("](", `\](`, "][", `\][`, "]:", `\]:`, `\`, `\\`, "`", "\\`", "*", `\*`, "_", `\_`, "<", `\<`, ">", `\>`,
	"|", `\|`, "&", `\&`, "~", `\~`, "#", `\#`, "$", `\$`)

// inline returns s for one line of Markdown, without any meaning of its own.
func inline(s string) string {
	return markdownEscaper.Replace(strings.Join(strings.Fields(visible.Text(s)), " "))
}
