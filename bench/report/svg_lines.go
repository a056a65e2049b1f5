package report

import (
	"cmp"
	_ "embed"
	"fmt"
	"math"
	"slices"
	"strings"
)

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
