package report

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"codeberg.org/go-pdf/fpdf"
	"golang.org/x/image/font/gofont/gobold"
	"golang.org/x/image/font/gofont/goregular"
)

// rgb is a colour.
type rgb [3]int

// The colours of a light page, as figure.css has them.
var (
	ink    = rgb{0x1b, 0x1f, 0x24}
	soft   = rgb{0x4b, 0x53, 0x5d}
	grid   = rgb{0xe1, 0xe4, 0xe8}
	paper  = rgb{0xff, 0xff, 0xff}
	series = [hues]rgb{{0x1d, 0x1d, 0xde}, {0x82, 0x19, 0x1d}, {0x00, 0x96, 0x81}, {0x63, 0x00, 0x83}, {0x9a, 0x85, 0x00}, {0x00, 0x00, 0x1e}}
)

// pen is how a shape is drawn on paper: what its classes say in figure.css.
type pen struct {
	stroke, fill *rgb
	width        float64
	dash         []float64
	opacity      float64 // of the fill
	size         float64 // of text
	bold         bool
	text         rgb
	hue          rgb
}

// penOf reads the classes of a shape.
func penOf(s shape) pen {
	p := pen{width: 1, opacity: 1, size: 13, text: ink}
	classes := strings.Fields(s.Class)
	for _, c := range classes {
		if k, err := strconv.Atoi(strings.TrimPrefix(c, "s")); err == nil && c[0] == 's' && k >= 0 && k < hues {
			p.hue = series[k]
		}
	}
	for _, c := range classes {
		switch c {
		case "tick":
			p.text, p.size = soft, 12
		case "name":
			p.text, p.bold = soft, true
		case "value":
			p.size = 12
		case "grid", "none":
			p.stroke = &grid
		case "axis", "leader":
			p.stroke = &soft
		case "reference":
			p.stroke, p.dash = &ink, []float64{2, 3}
		case "line":
			p.stroke, p.width = &p.hue, 2
		case "error":
			p.stroke, p.width = &p.hue, 1.5
		case "thin":
			p.width = 1
		case "own":
			p.bold = true
		case "other":
			p.hue = soft
		case "band":
			p.fill, p.opacity = &p.hue, 0.15
		case "mark":
			p.fill, p.stroke = &p.hue, &paper
		case "bar":
			p.fill, p.stroke, p.opacity = &p.hue, &p.hue, 0.75
		case "cell":
			p.fill, p.stroke = &series[0], &paper
		case "same":
			p.stroke, p.width = &ink, 1.5
		}
	}
	for _, c := range classes {
		switch c {
		case "d1":
			p.dash = []float64{7, 3}
		case "d2":
			p.dash = []float64{2, 3}
		case "d3":
			p.dash = []float64{9, 3, 2, 3}
		case "d4":
			p.dash = []float64{12, 5}
		case "p1":
			p.opacity = 0.1
		case "p2":
			p.opacity, p.dash = 0.4, []float64{3, 2}
		case "p3":
			p.opacity = 0.9
		case "p4":
			p.opacity, p.dash = 0.25, []float64{1, 2}
		case "p5":
			p.opacity = 0.55
		}
	}
	if slices.Contains(classes, "mark") && slices.Contains(classes, "other") {
		p.fill, p.stroke, p.width = &paper, &soft, 1.5
	}
	if v, err := strconv.ParseFloat(s.Shade, 64); err == nil {
		p.opacity = v
	}
	return p
}

// WritePDF writes the figure as a PDF file of one page of its size, in the colours of a
// light page and with its fonts in it: Go's, which have Latin, Greek and Cyrillic letters.
func WritePDF(w io.Writer, f Figure) error {
	if err := f.Check(); err != nil {
		return fmt.Errorf("report: %w", err)
	}
	d := draw(f, "figure")
	pdf := fpdf.NewCustom(&fpdf.InitType{UnitStr: "pt", Size: fpdf.SizeType{Wd: d.Width, Ht: d.Height}})
	pdf.SetCreationDate(epoch)
	pdf.SetModificationDate(epoch)
	pdf.SetCatalogSort(true)
	pdf.SetTitle(d.Title, true)
	pdf.SetSubject(d.Desc, true)
	pdf.SetMargins(0, 0, 0)
	pdf.SetAutoPageBreak(false, 0)
	pdf.AddUTF8FontFromBytes("go", "", goregular.TTF)
	pdf.AddUTF8FontFromBytes("go", "B", gobold.TTF)
	pdf.AddPage()
	for _, s := range d.Shapes {
		if s.Text != "" {
			writeText(pdf, s)
		} else if err := writePath(pdf, s); err != nil {
			return fmt.Errorf("write the figure %q: %w", f.Title, err)
		}
	}
	if err := pdf.Output(w); err != nil {
		return fmt.Errorf("write the figure %q: %w", f.Title, err)
	}
	return nil
}

// textShare is the width of the fonts beside that of a screen's, which the layout is for.
const textShare = 0.92

func writeText(pdf *fpdf.Fpdf, s shape) {
	p := penOf(s)
	style := ""
	if p.bold {
		style = "B"
	}
	pdf.SetFont("go", style, p.size*textShare)
	pdf.SetTextColor(p.text[0], p.text[1], p.text[2])
	pdf.SetAlpha(1, "Normal")
	x, y := coordinate(s.X), coordinate(s.Y)
	switch width := pdf.GetStringWidth(s.Text); s.Anchor {
	case "middle":
		x -= width / 2
	case "end":
		x -= width
	}
	pdf.Text(x, y, s.Text)
}

// coordinate reads what px wrote.
func coordinate(s string) float64 {
	v, err := strconv.ParseFloat(s, 64)
	if err != nil {
		return 0 // an attribute that is left out is 0
	}
	return v
}

// writePath draws the commands that figures use: M, L, H, V and Z, and the half circles of
// the first marker.
func writePath(pdf *fpdf.Fpdf, s shape) error {
	p := penOf(s)
	draw := func(how string, opacity float64) error {
		pdf.SetAlpha(opacity, "Normal")
		if err := trace(pdf, s.D); err != nil {
			return err
		}
		pdf.DrawPath(how)
		return nil
	}
	if p.fill != nil {
		pdf.SetFillColor(p.fill[0], p.fill[1], p.fill[2])
		if err := draw("F", p.opacity); err != nil {
			return err
		}
	}
	if p.stroke == nil {
		return nil
	}
	pdf.SetDrawColor(p.stroke[0], p.stroke[1], p.stroke[2])
	pdf.SetLineWidth(p.width)
	pdf.SetDashPattern(p.dash, 0)
	return draw("D", 1)
}

// trace follows the commands of a path.
func trace(pdf *fpdf.Fpdf, d string) error {
	x, y := 0., 0.
	for d != "" {
		command := d[0]
		end := strings.IndexAny(d[1:], "MLHVZa") + 1
		if end == 0 {
			end = len(d)
		}
		var v []float64
		for _, word := range strings.Fields(d[1:end]) {
			n, err := strconv.ParseFloat(word, 64)
			if err != nil {
				return fmt.Errorf("the path has the number %q", word)
			}
			v = append(v, n)
		}
		d = d[end:]
		switch {
		case command == 'M' && len(v) == 2:
			x, y = v[0], v[1]
			pdf.MoveTo(x, y)
		case command == 'L' && len(v) == 2:
			x, y = v[0], v[1]
			pdf.LineTo(x, y)
		case command == 'H' && len(v) == 1:
			x = v[0]
			pdf.LineTo(x, y)
		case command == 'V' && len(v) == 1:
			y = v[0]
			pdf.LineTo(x, y)
		case command == 'a' && len(v) == 7:
			// Half a circle from here to x + v[5], by two curves; 0.5523 makes a quarter.
			r, to := v[0], x+v[5]
			middle, way := x+v[5]/2, 1.
			if v[5] < 0 {
				way = -1
			}
			bend := 0.5523 * r * way
			top := y + r*way
			pdf.CurveBezierCubicTo(x, y+bend, middle-bend, top, middle, top)
			pdf.CurveBezierCubicTo(middle+bend, top, to, y+bend, to, y)
			x = to
		case command == 'Z' && len(v) == 0:
			pdf.ClosePath()
		default:
			return fmt.Errorf("the path has the command %q with %d numbers", command, len(v))
		}
	}
	return nil
}
