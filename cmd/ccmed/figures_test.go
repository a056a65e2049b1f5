package main

import (
	"strings"
	"testing"

	"github.com/ccmed/ccmed/bench/dialogue"
	"github.com/ccmed/ccmed/bench/report"
)

// A figure of nothing is no figure: neither 0, nor a p of 1, nor a difference from it.
func TestFiguresOfNothing(t *testing.T) {
	text := func(p, n dialogue.Mean) string {
		var b strings.Builder
		s := dialogue.Summary{StoredPositive: p, StoredNegative: n}
		if err := report.Write(&b, report.Markdown, []report.Section{statsSection("x", s)}, report.Options{}); err != nil {
			t.Fatal(err)
		}
		return b.String()
	}
	if s := text(dialogue.Mean{N: 2, Mean: 1.5}, dialogue.Mean{}); !strings.Contains(s, "| mean stored AUC, negative | none stored |") || !strings.Contains(s, "| difference | none stored |") || !strings.Contains(s, "1.5000") {
		t.Errorf("a difference from nothing:\n%s", s)
	}
	if s := text(dialogue.Mean{N: 2, Mean: 1.5}, dialogue.Mean{N: 2, Mean: 1}); !strings.Contains(s, "| difference | 0.5000 |") {
		t.Errorf("no difference of 1.5 and 1:\n%s", s)
	}
}
