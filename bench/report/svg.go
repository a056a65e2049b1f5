package report

import (
	"cmp"
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/olekukonko/tablewriter/pkg/twwidth"

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

func (d *drawing) lines(l *Lines) {
	d.legend(l.Series, false)
	y := newScale(l.Y, ends(l.Series, l.References, false), true, fewParts)
	left := 8 + textWidth(longest(y.labels))
	right := 14.
	for _, r := range l.References {
		right = max(right, 12+textWidth(shortLabel(r)))
	}
	d.axisName(l.Y.Name)
	top, bottom := d.Height+8, d.Height+8+plotHeight
	y.from, y.to = bottom, top

	x := scale{min: -0.5, max: float64(len(l.Categories)) - 0.5}
	if l.Categories == nil {
		var span [2]float64
		for i, s := range l.Series {
			for _, v := range s.X {
				if i == 0 && v == s.X[0] {
					span = [2]float64{v, v}
				}
				span = [2]float64{min(span[0], v), max(span[1], v)}
			}
		}
		for parts := mostParts; parts >= fewParts; parts-- {
			x = newScale(l.X, span, false, parts)
			if float64(len(x.labels))*(textWidth(longest(x.labels))+8) <= d.Width-right-left {
				break
			}
		}
	}
	x.from, x.to = left, d.Width-right

	for i, v := range y.ticks {
		d.path("grid", segment(x.from, y.at(v), x.to, y.at(v)), "")
		d.text("tick", left-6, y.at(v)+4, "end", y.labels[i])
	}
	d.path("axis", segment(x.from, bottom, x.to, bottom), "")
	name := l.X.Name
	if l.Categories != nil {
		var names []string
		names, name = shortTicks(l.Categories, name)
		room := (x.to - x.from) / float64(len(names))
		step := 1
		for float64(step)*room < textWidth(longest(names[min(1, len(names)):]))+6 && step < len(names) {
			step++
		}
		end := math.Inf(-1) // of the label before
		last := len(names) - 1
		for i := 0; i <= last; i += step {
			if last-i < step { // the last one is always named
				i = last
			}
			if half := textWidth(names[i]) / 2; x.at(float64(i))-half >= end+4 || i == last {
				x.ticks, x.labels = append(x.ticks, float64(i)), append(x.labels, names[i])
				end = x.at(float64(i)) + half
			}
		}
	}
	for i, v := range x.ticks {
		d.path("axis", segment(x.at(v), bottom, x.at(v), bottom+4), "")
		d.text("tick", x.at(v), bottom+17, "middle", x.labels[i])
	}
	d.Height = bottom + 17
	if name != "" {
		d.Height += textLine
		d.text("name", (x.from+x.to)/2, d.Height, "middle", name)
	}
	d.Height += 8

	d.references(l.References, x, y)
	position := func(s Series, i int) float64 {
		if l.Categories != nil {
			return x.at(float64(i))
		}
		return x.at(s.X[i])
	}
	shift, every := spread(l, position)
	moved := func(k int, s Series, i int) float64 {
		if shift == nil {
			return position(s, i)
		}
		return position(s, i) + shift[k]
	}
	turn := 0
	for k, s := range l.Series {
		if shift == nil {
			d.path(fmt.Sprintf("band s%d", k%hues), band(s, func(i int) float64 { return position(s, i) }, y), "")
			continue
		}
		for i := turn % every; i < len(s.Lo); i += every {
			if at := moved(k, s, i); finite(s.Lo[i]) && finite(s.Hi.at(i)) {
				from, to := y.at(s.Lo[i]), y.at(s.Hi[i])
				d.path(fmt.Sprintf("error thin s%d", k%hues), segment(at, from, at, to)+segment(at-2, from, at+2, from)+segment(at-2, to, at+2, to), "")
			}
		}
		if s.Lo != nil {
			turn++
		}
	}
	for k, s := range l.Series {
		d.path(fmt.Sprintf("line s%d d%d", k%hues, k%dashes), polyline(s, func(i int) float64 { return moved(k, s, i) }, y), "")
		every := 1 + (len(s.Y)-1)/mostMarks
		for i, v := range s.Y {
			if !finite(v) || i%every != 0 {
				continue
			}
			at := ""
			if l.Categories != nil {
				at = l.Categories[i]
			} else {
				at = strings.TrimSpace(l.X.Name + " " + number(s.X[i]).text)
			}
			d.path(fmt.Sprintf("mark s%d", k%hues), marker(k, moved(k, s, i), y.at(v)), fmt.Sprintf("%s, %s: %s", s.Name, at, shown(s, i)))
		}
	}
}

// shortTicks takes the part before the last dot from names that share it, so that more of
// them fit, and puts it beside the axis's name: "block.7" of layers becomes "7" of "layer
// (block)". Names without a dot stay.
func shortTicks(names []string, axis string) ([]string, string) {
	out := slices.Clone(names)
	shared := ""
	for i, n := range names {
		at := strings.LastIndexByte(n, '.')
		if at <= 0 {
			continue
		}
		if shared != "" && n[:at] != shared {
			return names, axis
		}
		shared, out[i] = n[:at], n[at+1:]
	}
	if shared == "" || axis == "" {
		return names, axis
	}
	return out, axis + " (" + shared + ")"
}

// spread sets several series with intervals apart: how far each is moved, and at every
// how many of its positions whiskers stand, in turns where there is no room for all. nil where at most one series has intervals, which is then a band.
func spread(l *Lines, position func(Series, int) float64) (shift []float64, every int) {
	bounded, room := 0, math.Inf(1)
	for _, s := range l.Series {
		if s.Lo == nil {
			continue
		}
		bounded++
		for i := 1; i < len(s.Y); i++ {
			room = min(room, position(s, i)-position(s, i-1))
		}
	}
	if bounded < 2 {
		return nil, 1
	}
	const apart = 5.
	every = 1
	if need := apart * float64(bounded); room < need {
		every = min(bounded, int(math.Ceil(need/max(room, 1))))
	}
	abreast := (bounded + every - 1) / every // at one position
	shift = make([]float64, len(l.Series))
	k := 0
	for i, s := range l.Series {
		if s.Lo != nil {
			shift[i] = (float64(k/every) - float64(abreast-1)/2) * min(apart, room/float64(abreast))
			k++
		}
	}
	return shift, every
}

// references draws the lines of a figure whose values run upwards, and sets
// their labels at the right, apart from each other.
func (d *drawing) references(rs []Reference, x, y scale) {
	rs = slices.Clone(rs)
	slices.SortStableFunc(rs, func(a, b Reference) int { return cmp.Compare(b.Value, a.Value) }) // from the top
	at := make([]float64, len(rs))
	for i, r := range rs {
		at[i] = y.at(r.Value) + 4
		if i > 0 {
			at[i] = max(at[i], at[i-1]+textLine-2)
		}
	}
	for i := len(rs) - 1; i >= 0; i-- {
		limit := y.from + 4
		if i < len(rs)-1 {
			limit = at[i+1] - textLine + 2
		}
		at[i] = min(at[i], limit)
		d.path("reference", segment(x.from, y.at(rs[i].Value), x.to, y.at(rs[i].Value)), "")
		d.path("leader", segment(x.to, y.at(rs[i].Value), x.to+6, at[i]-4), "")
		d.text("tick", x.to+8, at[i], "", shortLabel(rs[i]))
	}
}

func (d *drawing) points(p *Points) {
	d.legend(p.Series, p.Bars)
	span := ends(p.Series, p.References, p.Bars)
	x := newScale(p.X, span, true, fewParts)
	labels := make([][]string, len(p.Groups))
	left := 0.
	for i, g := range p.Groups {
		labels[i] = wrap(g, 30)
		left = max(left, textWidth(longest(labels[i])))
	}
	x.from, x.to = left+16, d.Width-24
	var refs []shape
	for _, r := range p.References {
		d.Height += textLine
		anchor, dx := "start", 4.
		if x.at(r.Value) > (x.from+x.to)/2 {
			anchor, dx = "end", -4.
		}
		refs = append(refs, shape{Class: "reference", X: px(x.at(r.Value)), Y: px(d.Height - 12)})
		d.text("tick", x.at(r.Value)+dx, d.Height-3, anchor, referenceLabel(r))
	}
	top := d.Height + 4
	heights := make([]float64, len(p.Groups))
	bottom := top
	for i := range p.Groups {
		heights[i] = max(float64(len(labels[i]))*textLine, float64(len(p.Series))*14) + 10
		bottom += heights[i]
	}
	for i, v := range x.ticks {
		d.path("grid", segment(x.at(v), top, x.at(v), bottom), "")
		d.text("tick", x.at(v), bottom+17, "middle", x.labels[i])
	}
	if x.min < 0 && x.max > 0 || p.Bars {
		d.path("axis", segment(x.at(0), top, x.at(0), bottom), "")
	}
	for _, r := range refs {
		d.path(r.Class, "M"+r.X+" "+r.Y+"V"+px(bottom), "")
	}
	y := top
	for i := range p.Groups {
		middle := y + heights[i]/2
		for j, line := range labels[i] {
			class := "label"
			if slices.Contains(p.Own, p.Groups[i]) {
				class = "label own"
			}
			d.text(class, x.from-10, middle+4+(float64(j)-float64(len(labels[i])-1)/2)*textLine, "end", line)
		}
		for k, s := range p.Series {
			d.point(p, s, k, i, x, middle+(float64(k)-float64(len(p.Series)-1)/2)*14)
		}
		y += heights[i]
	}
	d.path("axis", segment(x.from, bottom, x.to, bottom), "")
	d.Height = bottom + 17
	if p.X.Name != "" {
		d.Height += textLine
		d.text("name", (x.from+x.to)/2, d.Height, "middle", p.X.Name)
	}
	d.Height += 8
}

// point draws one value of a group, with its interval.
func (d *drawing) point(p *Points, s Series, k, i int, x scale, y float64) {
	v := s.Y[i]
	if !finite(v) {
		d.text("tick", x.from+4, y+4, "", "none")
		return
	}
	tip := fmt.Sprintf("%s, %s: %s", s.Name, p.Groups[i], shown(s, i))
	if s.Name == "" {
		tip = p.Groups[i] + ": " + shown(s, i)
	}
	hue := fmt.Sprintf("s%d", k%hues)
	if p.Own != nil && !slices.Contains(p.Own, p.Groups[i]) {
		hue = "other"
	}
	if p.Bars {
		d.path(fmt.Sprintf("bar %s p%d", hue, k%hues), rectangle(x.at(0), y-5, x.at(v), y+5), tip)
	}
	if lo, hi := s.Lo.at(i), s.Hi.at(i); finite(lo) && finite(hi) {
		from, to := x.at(lo), x.at(hi)
		d.path("error "+hue, segment(from, y, to, y)+segment(from, y-4, from, y+4)+segment(to, y-4, to, y+4), "")
	}
	if !p.Bars {
		d.path("mark "+hue, marker(k, x.at(v), y), tip)
	}
}

func (d *drawing) heat(h *Heat) {
	left := textWidth(h.Y)
	rows := make([][]string, len(h.Rows))
	for i, r := range h.Rows {
		rows[i] = wrap(r, 24)
		left = max(left, textWidth(longest(rows[i])))
	}
	left += 12
	widest := 36.
	for _, r := range h.Values {
		for _, v := range r {
			widest = max(widest, textWidth(fixed(v, h.Decimals))+8)
		}
	}
	for _, c := range h.Columns {
		widest = max(widest, min(textWidth(longest(strings.Fields(c)))+8, 130))
	}
	n := float64(max(1, len(h.Columns)))
	side := max(widest, min(88, (figureWidth-left-8)/n))
	d.Width = max(figureWidth, left+side*n+8)

	d.Height += textLine
	d.text("name", left+side*n/2, d.Height, "middle", h.X)
	head := 1
	columns := make([][]string, len(h.Columns))
	for i, c := range h.Columns {
		columns[i] = wrap(c, int((side-4)/textColumn))
		head = max(head, len(columns[i]))
	}
	for i := range columns {
		for j, line := range columns[i] {
			d.text("tick", left+side*(float64(i)+0.5), d.Height+textLine*float64(head-len(columns[i])+j+1), "middle", line)
		}
	}
	d.Height += textLine * float64(head)
	d.text("name", left-10, d.Height, "end", h.Y)
	y := d.Height + 8

	low, high := h.Min, h.Max
	if low == 0 && high == 0 {
		low, high = math.Inf(1), math.Inf(-1)
		for _, r := range h.Values {
			for _, v := range r {
				if finite(v) {
					low, high = min(low, v), max(high, v)
				}
			}
		}
	}
	var outlined []shape
	for i, r := range h.Values {
		height := max(30, float64(len(rows[i]))*textLine+6)
		for j, line := range rows[i] {
			d.text("label", left-10, y+height/2+4+(float64(j)-float64(len(rows[i])-1)/2)*textLine, "end", line)
		}
		for j, v := range r {
			x := left + side*float64(j)
			cell := shape{Class: "cell", D: rectangle(x, y, x+side, y+height)}
			if h.Rows[i] == h.Columns[j] {
				outlined = append(outlined, shape{Class: "same", D: rectangle(x+1, y+1, x+side-1, y+height-1)})
			}
			if !finite(v) {
				cell.Class = "cell none"
				d.Shapes = append(d.Shapes, cell)
				continue
			}
			shade := 1.
			if high/2 > low/2 {
				shade = min(1, max(0, (v/2-low/2)/(high/2-low/2)))
			}
			// Half of the full colour at most, so that the value stays readable on it.
			cell.Shade = strconv.FormatFloat(0.02+0.48*shade, 'f', 3, 64)
			cell.Tip = visible.Text(fmt.Sprintf("%s %s, %s %s: %s", h.Y, h.Rows[i], h.X, h.Columns[j], fixed(v, h.Decimals)))
			d.Shapes = append(d.Shapes, cell)
			d.text("value", x+side/2, y+height/2+4, "middle", fixed(v, h.Decimals))
		}
		y += height
	}
	d.Shapes = append(d.Shapes, outlined...)
	d.Height = y + 8
}

// legend names the series at the top, as many in a line as fit; a single series
// without a name needs none.
func (d *drawing) legend(ss []Series, bars bool) {
	x, y := 8., textLine
	used := false
	for k, s := range ss {
		if s.Name == "" {
			continue
		}
		w := 40 + textWidth(s.Name) + 16
		if used && x+w > d.Width {
			x, y = 8, y+textLine+2
		}
		used = true
		if bars {
			d.path(fmt.Sprintf("bar s%d p%d", k%hues, k%hues), rectangle(x, y-10, x+28, y), "")
		} else {
			d.path(fmt.Sprintf("line s%d d%d", k%hues, k%dashes), segment(x, y-5, x+32, y-5), "")
			d.path(fmt.Sprintf("mark s%d", k%hues), marker(k, x+16, y-5), "")
		}
		d.text("label", x+38, y, "", s.Name)
		x += w
	}
	if used {
		d.Height = y + 8
	}
}

// axisName sets the name of the upright axis above it, where it can be read
// without turning one's head.
func (d *drawing) axisName(name string) {
	if name != "" {
		d.Height += textLine
		d.text("name", 2, d.Height-2, "", name)
	}
}

func (d *drawing) path(class, path, tip string) {
	if path != "" {
		d.Shapes = append(d.Shapes, shape{Class: class, D: path, Tip: visible.Text(tip)})
	}
}

func (d *drawing) text(class string, x, y float64, anchor, text string) {
	if text = visible.Text(text); text != "" {
		d.Shapes = append(d.Shapes, shape{Class: class, X: px(x), Y: px(y), Anchor: anchor, Text: text})
	}
}

// scale maps values from [min, max] to [from, to] of the drawing.
type scale struct {
	min, max, from, to float64
	ticks              []float64
	labels             []string
}

func (s scale) at(v float64) float64 {
	return s.from + (min(max(v, s.min), s.max)-s.min)/(s.max-s.min)*(s.to-s.from)
}

// newScale fits a scale to the axis or, where that is open, to the span of the
// data, rounded out to whole ticks if so asked.
func newScale(a Axis, span [2]float64, round bool, parts int) scale {
	s := scale{min: a.Min, max: a.Max}
	if a.Min == 0 && a.Max == 0 {
		s.min, s.max = max(span[0], -1e300), min(span[1], 1e300)
	}
	// Ticks need a span that floating point can divide.
	if size := max(math.Abs(s.min), math.Abs(s.max)); s.max-s.min <= max(1e-9*size, 1e-290) {
		margin := max(size*0.1, 0.5)
		s.min, s.max = s.min-margin, s.max+margin
	}
	step := tickStep(s.max-s.min, parts)
	if round && a.Min == 0 && a.Max == 0 {
		s.min, s.max = math.Floor(s.min/step+1e-9)*step, math.Ceil(s.max/step-1e-9)*step
	}
	label := func(v float64) string { return fixed(v, max(0, int(-math.Floor(math.Log10(step)+1e-9)))) }
	if step < 1e-5 || step >= 1e7 {
		label = func(v float64) string { return strconv.FormatFloat(v, 'g', 4, 64) }
	}
	for k := math.Ceil(s.min/step - 1e-9); k*step <= s.max+step*1e-9; k++ {
		s.ticks = append(s.ticks, k*step)
		s.labels = append(s.labels, label(k*step))
	}
	return s
}

// tickStep returns 1, 2 or 5 times a power of ten that cuts the span into at most n parts.
func tickStep(span float64, n int) float64 {
	power := math.Pow(10, math.Floor(math.Log10(span/float64(n))))
	for _, m := range []float64{1, 2, 5} {
		if span/(m*power) <= float64(n)+1e-9 {
			return m * power
		}
	}
	return 10 * power
}

// ends returns the least and the greatest of values, bounds and references.
func ends(ss []Series, rs []Reference, zero bool) [2]float64 {
	lo, hi := math.Inf(1), math.Inf(-1)
	take := func(v float64) {
		if finite(v) {
			lo, hi = min(lo, v), max(hi, v)
		}
	}
	for _, s := range ss {
		for _, vs := range []Values{s.Y, s.Lo, s.Hi} {
			for _, v := range vs {
				take(v)
			}
		}
	}
	for _, r := range rs {
		take(r.Value)
	}
	if zero {
		take(0)
	}
	if lo > hi {
		return [2]float64{0, 1}
	}
	return [2]float64{lo, hi}
}

// polyline draws a curve; what is missing is a gap.
func polyline(s Series, x func(int) float64, y scale) string {
	var b strings.Builder
	pen := "M"
	for i, v := range s.Y {
		if !finite(v) {
			pen = "M"
			continue
		}
		b.WriteString(pen + px(x(i)) + " " + px(y.at(v)))
		pen = "L"
	}
	return b.String()
}

// band draws the area between the bounds, a piece for every stretch that has both.
func band(s Series, x func(int) float64, y scale) string {
	var b strings.Builder
	for i := 0; i < len(s.Lo); i++ {
		from := i
		for i < len(s.Lo) && finite(s.Lo[i]) && finite(s.Hi.at(i)) {
			i++
		}
		if i-from < 2 {
			continue
		}
		pen := "M"
		for j := from; j < i; j++ {
			b.WriteString(pen + px(x(j)) + " " + px(y.at(s.Hi[j])))
			pen = "L"
		}
		for j := i - 1; j >= from; j-- {
			b.WriteString("L" + px(x(j)) + " " + px(y.at(s.Lo[j])))
		}
		b.WriteString("Z")
	}
	return b.String()
}

// marker returns the k-th of six shapes, centred.
func marker(k int, x, y float64) string {
	const r = markSize
	at := func(dx, dy float64) string { return px(x+dx) + " " + px(y+dy) }
	switch k % hues {
	case 1:
		return rectangle(x-r+0.5, y-r+0.5, x+r-0.5, y+r-0.5)
	case 2:
		return "M" + at(0, -r-1) + "L" + at(r+0.5, r-0.5) + "L" + at(-r-0.5, r-0.5) + "Z"
	case 3:
		return "M" + at(0, -r-1) + "L" + at(r+1, 0) + "L" + at(0, r+1) + "L" + at(-r-1, 0) + "Z"
	case 4:
		return "M" + at(0, r+1) + "L" + at(r+0.5, -r+0.5) + "L" + at(-r-0.5, -r+0.5) + "Z"
	case 5:
		return rectangle(x-r-0.5, y-1.5, x+r+0.5, y+1.5) + rectangle(x-1.5, y-r-0.5, x+1.5, y+r+0.5)
	}
	return "M" + at(-r, 0) + fmt.Sprintf("a%g %g 0 1 0 %g 0a%g %g 0 1 0 %g 0Z", r, r, 2*r, r, r, -2*r)
}

func rectangle(x0, y0, x1, y1 float64) string {
	return "M" + px(x0) + " " + px(y0) + "H" + px(x1) + "V" + px(y1) + "H" + px(x0) + "Z"
}

func segment(x0, y0, x1, y1 float64) string {
	return "M" + px(x0) + " " + px(y0) + "L" + px(x1) + " " + px(y1)
}

// px writes a coordinate with a tenth of a pixel.
func px(v float64) string {
	return strings.TrimSuffix(fixed(v, 1), ".0")
}

// shown writes a value and its interval.
func shown(s Series, i int) string {
	return Interval(s.Y[i], s.Lo.at(i), s.Hi.at(i), 3)
}

func referenceLabel(r Reference) string { return r.Name + " " + number(r.Value).text }

// shortLabel fits beside a figure: a long name is cut, its value is not.
func shortLabel(r Reference) string {
	const most = 28
	value := number(r.Value).text
	return Shorten(r.Name, most-1-len(value)) + " " + value
}

func textWidth(s string) float64 { return textColumn * float64(twwidth.Width(s)) }

func longest(ss []string) string {
	if len(ss) == 0 {
		return ""
	}
	return slices.MaxFunc(ss, func(a, b string) int { return twwidth.Width(a) - twwidth.Width(b) })
}
