package report

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/olekukonko/tablewriter/pkg/twwidth"
)

// Undefined stands where a number has no value.
const Undefined = "–"

// NoDifference marks a difference that is not significant, beside its p and n.
const NoDifference = "~"

// Text returns a cell of plain text.
func Text(s string) Cell { return Cell{Text: s} }

// Int returns a cell with a count.
func Int(n int) Cell {
	v := float64(n)
	return Cell{Text: strconv.Itoa(n), Value: &v}
}

// Num returns a cell with a number, rounded to a number of decimals in its text.
// NaN and infinities are Undefined.
func Num(v float64, decimals int) Cell {
	if !finite(v) {
		return Cell{Text: Undefined}
	}
	return Cell{Text: fixed(v, decimals), Value: &v}
}

// Estimate returns a cell with a value and its interval, as Interval writes them.
func Estimate(v, lo, hi float64, decimals int) Cell {
	c := Cell{Text: Interval(v, lo, hi, decimals)}
	if finite(v) {
		c.Value = &v
	}
	if finite(lo) && finite(hi) {
		c.Lo, c.Hi = &lo, &hi
	}
	return c
}

// Interval writes a value with its interval: "0.42 [0.31, 0.53]". Without a
// finite interval it is the value alone.
func Interval(v, lo, hi float64, decimals int) string {
	if !finite(v) {
		return Undefined
	}
	if !finite(lo) || !finite(hi) {
		return fixed(v, decimals)
	}
	return fmt.Sprintf("%s [%s, %s]", fixed(v, decimals), fixed(lo, decimals), fixed(hi, decimals))
}

// Pct writes a share with its counts: "17.6 % (28/159)". Of nothing it is
// Undefined.
func Pct(k, n int) string {
	if n == 0 {
		return Undefined
	}
	return fmt.Sprintf("%.1f %% (%d/%d)", 100*float64(k)/float64(n), k, n)
}

// PValue writes a p: two significant digits, "<0.001" below that.
func PValue(p float64) string {
	switch {
	case !finite(p) || p < 0 || p > 1:
		return Undefined
	case p < 0.001:
		return "<0.001"
	case p < 0.1:
		return strconv.FormatFloat(p, 'g', 2, 64)
	}
	return fixed(p, 2)
}

// Shorten brings text onto one line of at most width terminal columns and ends
// it with "…" when something is left out.
func Shorten(s string, width int) string {
	s = strings.Join(strings.Fields(s), " ")
	if twwidth.Width(s) <= width {
		return s
	}
	return twwidth.Truncate(s, width, "…")
}

func finite(v float64) bool { return !math.IsNaN(v) && !math.IsInf(v, 0) }

// fixed writes a number without the minus sign of a rounded zero.
func fixed(v float64, decimals int) string {
	s := strconv.FormatFloat(v, 'f', decimals, 64)
	if strings.Trim(s, "-0.") == "" {
		s = strings.TrimPrefix(s, "-")
	}
	return s
}
