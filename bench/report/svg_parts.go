package report

import (
	_ "embed"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/olekukonko/tablewriter/pkg/twwidth"

	"github.com/ccmed/ccmed/bench/visible"
)

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
