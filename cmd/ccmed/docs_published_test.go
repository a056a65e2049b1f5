package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/ccmed/ccmed/bench/published"
)

// TestPublishedPage: docs/published.md has a row for every published number of the
// program, with its value, its place and what a comparison can bear.
func TestPublishedPage(t *testing.T) {
	var rows [][]string
	for line := range strings.Lines(string(readPage(t, "docs/published.md").source)) {
		if cells := strings.Split(line, " | "); len(cells) >= 4 {
			rows = append(rows, cells)
		}
	}
	numbers := 0
	for _, topic := range []published.Topic{published.Data, published.Timing, published.Mediation, published.FineTuning, published.Probing} {
		for _, n := range published.Find(topic) {
			numbers++
			if !slices.ContainsFunc(rows, func(cells []string) bool { return shows(cells, n) }) {
				t.Errorf("no row shows %s %s: %s, %s", n.Measure, n.Model, n, n.Comparable)
			}
		}
	}
	if numbers < 40 {
		t.Errorf("only %d numbers were looked for", numbers)
	}
}

// shows tells whether a row, of measure, value, place and comparability, is that of
// a number.
func shows(cells []string, n published.Number) bool {
	if !strings.Contains(cells[0], n.Model) || !strings.HasPrefix(cells[2], n.Place) || !strings.HasPrefix(cells[3], string(n.Comparable)) {
		return false
	}
	for _, v := range []float64{n.Lo, n.Hi} {
		if v == 0 || v == 1 {
			continue // an end that is the scale's is not written
		}
		if !slices.ContainsFunc(written(v, n.Unit), func(s string) bool { return strings.Contains(cells[1], s) }) {
			return false
		}
	}
	return true
}

func written(v float64, u published.Unit) []string {
	switch u {
	case published.Count:
		return []string{fmt.Sprintf("%d,%03d", int(v)/1000, int(v)%1000)}
	case published.Share:
		return []string{strings.TrimSuffix(strconv.FormatFloat(100*v, 'f', 1, 64), ".0")}
	}
	return []string{strconv.FormatFloat(v, 'f', 2, 64), strconv.FormatFloat(v, 'f', 3, 64)}
}
