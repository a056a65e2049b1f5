package report

import (
	_ "embed"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/ccmed/ccmed/bench/visible"
)

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
