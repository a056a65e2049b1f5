package report

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"math"
	"strings"

	"github.com/ccmed/ccmed/bench/visible"
)

// The drawing is our own: gonum/plot's vgsvg measures text with a Latin font
// (Korean and Arabic get no width), writes fixed colours and sizes into every
// element, and knows neither classes, titles nor patterns, so that its figures
// cannot follow a dark page or be told apart without colour.

//go:embed figure.css
var figureCSS string

var figureTemplate = template.Must(template.New("figure").Parse(`{{define "figure" -}}
<svg class="ccmed-figure" role="img" viewBox="0 0 {{.Width}} {{.Height}}" aria-labelledby="{{.ID}}-title {{.ID}}-desc"
{{- if .Style}} xmlns="http://www.w3.org/2000/svg" width="{{.Width}}" height="{{.Height}}"{{else}} style="min-width: {{.Least}}px"{{end}}>
<title id="{{.ID}}-title">{{.Title}}</title><desc id="{{.ID}}-desc">{{.Desc}}</desc>
{{if .Style}}<style>{{.Style}}</style>
{{end}}{{range .Shapes -}}
{{if .Text}}<text class="{{.Class}}" x="{{.X}}" y="{{.Y}}"{{if .Anchor}} text-anchor="{{.Anchor}}"{{end}}>{{.Text}}</text>
{{- else}}<path class="{{.Class}}" d="{{.D}}"{{if .Shade}} fill-opacity="{{.Shade}}"{{end}}>{{if .Tip}}<title>{{.Tip}}</title>{{end}}</path>{{end}}
{{end}}</svg>
{{end}}`))

// Measures in the units of the viewBox, which are CSS pixels at full width.
const (
	figureWidth = 640.
	plotHeight  = 260.
	textColumn  = 7.8 // width of a terminal column at the figures' font size, on the wide side
	textLine    = 17. // from one line of text to the next
	markSize    = 4.
	hues        = 6 // colours and markers in figure.css and marker
	dashes      = 5 // dash patterns in figure.css
	mostMarks   = 48
	fewParts    = 6  // of an axis between ticks, where room is not asked for
	mostParts   = 20 // of an axis whose ticks fit
)

// drawing is a figure laid out: paths and texts, in the order in which they are drawn.
type drawing struct {
	ID, Title, Desc string
	Width, Height   float64
	Least           float64 // width below which text gets too small to read
	Shapes          []shape
	Style           template.CSS // in a file of its own only
}

// shape is a text where it has one, and else a path.
type shape struct {
	Class, D, Tip, Shade string
	X, Y, Anchor, Text   string
}

// WriteSVG writes the figure as an SVG file of its own, light or dark as the
// reader's system asks; HTML reports carry the same drawing inline.
func WriteSVG(w io.Writer, f Figure) error {
	if err := f.Check(); err != nil {
		return fmt.Errorf("report: %w", err)
	}
	d := draw(f, "figure")
	d.Style = template.CSS(figureCSS)
	if err := figureTemplate.ExecuteTemplate(w, "figure", d); err != nil {
		return fmt.Errorf("write the figure %q: %w", f.Title, err)
	}
	return nil
}

// draw lays a checked figure out; id must be the page's only one.
func draw(f Figure, id string) *drawing {
	d := &drawing{ID: id, Title: visible.Text(f.Title), Desc: visible.Text(f.Description), Width: figureWidth}
	if d.Desc == "" {
		d.Desc = visible.Text(f.describe())
	}
	switch {
	case f.Lines != nil:
		d.lines(f.Lines)
	case f.Points != nil:
		d.points(f.Points)
	case f.Heat != nil:
		d.heat(f.Heat)
	}
	d.Height = math.Ceil(d.Height)
	d.Width = math.Ceil(d.Width)
	d.Least = math.Ceil(0.85 * d.Width)
	return d
}

// describe says what kind of figure it is and what it holds.
func (f Figure) describe() string {
	names := func(ss []Series, rs []Reference) string {
		var list []string
		for _, s := range ss {
			list = append(list, s.Name)
		}
		for _, r := range rs {
			list = append(list, r.Name+" at "+number(r.Value).text)
		}
		return strings.Join(list, ", ")
	}
	switch {
	case f.Lines != nil:
		return fmt.Sprintf("Line chart of %s against %s: %s.", f.Lines.Y.Name, f.Lines.X.Name, names(f.Lines.Series, f.Lines.References))
	case f.Points != nil:
		return fmt.Sprintf("%s of %d groups: %s.", f.Points.X.Name, len(f.Points.Groups), names(f.Points.Series, f.Points.References))
	}
	return fmt.Sprintf("Matrix of %d rows (%s) and %d columns (%s).", len(f.Heat.Rows), f.Heat.Y, len(f.Heat.Columns), f.Heat.X)
}
