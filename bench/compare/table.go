package compare

import (
	"fmt"
	"math"
	"strings"

	"github.com/ccmed/ccmed/bench/report"
	"github.com/ccmed/ccmed/bench/stats"
)

// Most rows of a table of changed items, by measure.
const (
	mostFlips   = 40
	mostChanges = 5
)

// measureName is a measure as tables show it.
func measureName(d *stats.Comparison) string {
	name := d.Heading
	if d.Condition != "" {
		name += ", " + d.Condition
	}
	return name
}

// Sections renders a comparison: a table for each pair, then its changed items.
func (c *Comparison) Sections() []report.Section {
	n := c.nouns
	s := report.Section{Title: "Comparison: " + c.Task}
	for _, r := range c.Runs {
		s.Notes = append(s.Notes, fmt.Sprintf("%s: %s", r.Name, r.Model))
		for _, n := range r.Notes {
			s.Notes = append(s.Notes, r.Name+": "+n)
		}
	}
	if c.Paired {
		s.Notes = append(s.Notes, fmt.Sprintf("paired by %s; 95 %% intervals by %s (Student's t), p from flipping the signs of whole %ss", n.item, n.cluster, n.group))
	} else {
		s.Notes = append(s.Notes,
			fmt.Sprintf("independent samples: 95 %% intervals are Welch's, with standard errors by %s; p from dealing whole %ss out to the runs anew", n.cluster, n.group),
			fmt.Sprintf("unpaired, %ss that both runs have are not set against each other: what makes one easy or hard for both stays in as noise, and %ss count as drawn twice", n.item, n.group))
	}
	s.Notes = append(s.Notes, fmt.Sprintf("p is Holm's over the %d tests of this comparison; ~ is no significant difference at %.2f", c.Family, stats.Alpha))
	for _, p := range c.Pairs {
		s.Tables = append(s.Tables, p.table(c.Paired, n))
		if c.Paired {
			s.Tables = append(s.Tables, p.changes(n)...)
		}
	}
	return []report.Section{s}
}

func (p Pair) table(paired bool, n nouns) report.Table {
	counted := "pairs"
	if !paired {
		counted = n.item + "s"
	}
	t := report.Table{Title: fmt.Sprintf("%s (B) − %s (A)", p.B, p.A), Columns: report.Columns("measure", "A>", "B>",
		"B − A [95 %]>", counted+">", n.group+"s>", "dropped>", "p>", "effect")}
	few := math.MaxInt
	for _, d := range p.Measures {
		few = min(few, d.Difference.Groups)
		t.Add(measureName(d), levelText(d, d.A), levelText(d, d.B), differenceText(d), d.Difference.N,
			d.Difference.Groups, d.UnscoredA+d.UnscoredB+d.OnlyA+d.OnlyB, report.PValue(d.PHolm), effectWords(d, n))
	}
	for _, d := range p.Measures {
		var alike []string
		if d.Paired && len(d.Changes) == 0 {
			alike = append(alike, fmt.Sprintf("alike in all %d %ss", d.Difference.N, n.item))
		}
		if d.Difference.Exact {
			alike = append(alike, fmt.Sprintf("the interval is exact (Clopper and Pearson) over the %d %ss, which all agree", d.Difference.Groups, n.group))
		}
		if len(alike) > 0 {
			t.Notes = append(t.Notes, measureName(d)+": "+strings.Join(alike, "; "))
		}
		if note := droppedText(d); note != "" {
			if u := d.WithUnscored; u != nil {
				note += fmt.Sprintf("; with the unscored counted as wrong or as right B − A is %.1f to %.1f over %d", 100*u.Lo, 100*u.Hi, u.N)
			}
			t.Notes = append(t.Notes, measureName(d)+": "+note)
		}
	}
	if len(p.Measures) > 0 && p.Measures[0].Binary && p.Measures[0].Paired {
		d := p.Measures[0]
		lost, won := d.Flips()
		test := "no McNemar p, for none tells the two apart"
		if p.McNemar != nil {
			test = "exact McNemar p " + report.PValue(*p.McNemar) + ", " + n.item + "s taken as independent"
		}
		t.Notes = append(t.Notes, fmt.Sprintf("%s: only A right %d, only B right %d, alike %d; %s", measureName(d), lost, won, d.Difference.N-lost-won, test))
	}
	if few < fewContexts {
		t.Notes = append(t.Notes, fmt.Sprintf("%d %ss: no p can be below %.3f", few, n.cluster, math.Pow(2, float64(1-few))))
	}
	if len(p.Differ) > 0 {
		t.Notes = append(t.Notes, "the runs differ in what should be equal: "+strings.Join(p.Differ, ", "))
	}
	if len(p.Other) > 0 {
		t.Notes = append(t.Notes, "they also differ in: "+strings.Join(p.Other, ", "))
	}
	t.Notes = append(t.Notes, p.Notes...)
	return t
}

// fewContexts is the number of contexts below which flipping their signs cannot give
// a p under 0.05.
const fewContexts = 6

// levelText writes one side's mean.
func levelText(d *stats.Comparison, v float64) string {
	if d.Binary {
		return fmt.Sprintf("%.1f %%", 100*v)
	}
	return fmt.Sprintf("%.3f", v)
}

// differenceText writes B − A, shares in points.
func differenceText(d *stats.Comparison) string {
	e := d.Difference
	if d.Binary {
		e.Value, e.Lo, e.Hi = 100*e.Value, 100*e.Lo, 100*e.Hi
		return report.Estimate(e, 1)
	}
	return report.Estimate(e, 3)
}

// effectWords says how large a significant difference is, and "~" for any other.
func effectWords(d *stats.Comparison, n nouns) string {
	switch {
	case d.Weak != "":
		return d.Weak
	case !d.Significant():
		return "~"
	}
	way := "higher"
	if d.Difference.Value < 0 {
		way = "lower"
	}
	if d.Binary {
		return fmt.Sprintf("B %s by %.1f points", way, 100*math.Abs(d.Difference.Value))
	}
	name := "d"
	if d.Paired {
		name = "d_z"
	}
	if d.Effect == nil {
		return fmt.Sprintf("B %s, by the same in every %s", way, n.item)
	}
	return fmt.Sprintf("B %s, %s (%s %.2f)", way, d.Effect.Word, name, d.Effect.D)
}

// droppedText says why items are in no pair.
func droppedText(d *stats.Comparison) string {
	var parts []string
	for _, x := range []struct {
		n    int
		what string
	}{{d.UnscoredA, "unscored in A"}, {d.UnscoredB, "unscored in B"}, {d.OnlyA, "only in A"}, {d.OnlyB, "only in B"}} {
		if x.n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", x.n, x.what))
		}
	}
	return strings.Join(parts, ", ")
}

// changes are the items that flipped, of binary measures, or changed most.
func (p Pair) changes(n nouns) []report.Table {
	var tables []report.Table
	columns := report.Columns(n.item, "change", "A", "B")
	largest := report.Table{Title: fmt.Sprintf("Largest changes, %s − %s", p.B, p.A),
		Columns: append(report.Columns("measure"), columns...)}
	for _, d := range p.Measures {
		if d.Binary {
			if t := (report.Table{Title: fmt.Sprintf("Flipped: %s, %s − %s", measureName(d), p.B, p.A), Columns: columns}); len(d.Changes) > 0 && d == p.Measures[0] {
				for _, x := range d.Changes[:min(len(d.Changes), mostFlips)] {
					way := "wrong to right"
					if x.B < x.A {
						way = "right to wrong"
					}
					t.Add(x.Item, way, x.SaidA, x.SaidB)
				}
				t.Notes = moreNote(len(d.Changes) - mostFlips)
				tables = append(tables, t)
			}
			continue
		}
		for _, x := range d.Changes[:min(len(d.Changes), mostChanges)] {
			largest.Add(measureName(d), x.Item, fmt.Sprintf("%+.3f", x.B-x.A), valueSaid(x.A, x.SaidA), valueSaid(x.B, x.SaidB))
		}
	}
	if len(largest.Rows) > 0 {
		largest.Notes = []string{fmt.Sprintf("at most %d by measure; --format json has all", mostChanges)}
		tables = append(tables, largest)
	}
	return tables
}

func moreNote(n int) []string {
	if n <= 0 {
		return nil
	}
	return []string{fmt.Sprintf("%d more; --format json has all", n)}
}

func valueSaid(v float64, label string) string {
	if label == "" {
		return fmt.Sprintf("%.3f", v)
	}
	return fmt.Sprintf("%.3f (%s)", v, label)
}

// LaTeX renders the tables of measures for a paper.
func (c *Comparison) LaTeX() string {
	var b strings.Builder
	b.WriteString("% \\usepackage{booktabs,tabularx}\n")
	for _, p := range c.Pairs {
		b.WriteString(p.table(c.Paired, c.nouns).LaTeX())
	}
	how := "paired by " + c.nouns.item
	if !c.Paired {
		how = "independent samples"
	}
	fmt.Fprintf(&b, "%% %s; 95 %% intervals and p by %s; p: Holm over %d tests; ccmed compare --seed %d\n", how, c.nouns.cluster, c.Family, c.Seed)
	return b.String()
}
