package report

import (
	_ "embed"
	"fmt"
	"slices"
)

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
