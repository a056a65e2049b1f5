package claims

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/ccmed/ccmed/bench/report"
	"github.com/ccmed/ccmed/bench/stats"
)

// Sections are the claims by topic, each with its number, ours and the verdict.
func (f *Findings) Sections() []report.Section {
	s := report.Section{Title: "Claims: " + f.Study}
	counts := map[string]int{}
	groups := f.byClaim()
	for _, fs := range groups {
		counts[Overall(fs)]++
	}
	s.Lead = []string{fmt.Sprintf("Of %d claims %d are supported, %d contradicted and %d not testable here.", len(groups), counts[Supported], counts[Contradicted], counts[NotTestable])}
	s.Notes = []string{
		fmt.Sprintf("p for and p against are one-sided tests of the claim and of its contrary, with Holm over all %d of them; a verdict needs one below %.2f", f.Tests, stats.Alpha),
		"supported: the measure is shown to be beyond the claim's bound, or equal within the smallest effect of interest (two one-sided tests); contradicted: the smallest effect of interest is shown not to be there",
		"[95 %]: Student's t with standard errors from drawing whole clusters, or as the run gives it; n: items and, in brackets, clusters",
		"levels that another labeller or judge gave are not comparable: a claim about them is tested here within one labeller"}
	for _, topic := range f.topics() {
		s.Tables = append(s.Tables, f.table(topic, groups))
	}
	return []report.Section{s}
}

// byClaim are the findings of each claim.
func (f *Findings) byClaim() (out [][]Finding) {
	for i, x := range f.All {
		if i == 0 || f.All[i-1].Claim.ID != x.Claim.ID {
			out = append(out, nil)
		}
		out[len(out)-1] = append(out[len(out)-1], x)
	}
	return out
}

func (f *Findings) topics() (out []string) {
	for _, x := range f.All {
		if !slices.Contains(out, x.Claim.Topic) {
			out = append(out, x.Claim.Topic)
		}
	}
	return out
}

func (f *Findings) table(topic string, groups [][]Finding) report.Table {
	t := report.Table{Title: topic, Columns: report.Columns("claim", "published", "model", "here [95 %]", "n", "p for, against", "verdict")}
	for _, fs := range groups {
		c := fs[0].Claim
		if c.Topic != topic {
			continue
		}
		claim, number := c.Claim, c.Published
		if c.Where != "" {
			number = strings.TrimSpace(number + " (" + c.Where + ")")
		}
		if len(fs) > 1 {
			t.Add(claim, number, fmt.Sprintf("all %d", len(fs)), "", "", "", overallText(fs))
			claim, number = "", ""
		}
		for _, x := range fs {
			t.Add(claim, number, x.Model, x.valueText(), x.nText(), x.pText(), x.verdictText())
		}
		if c.Note != "" && fs[0].Run != "" {
			t.Notes = append(t.Notes, c.Note)
		}
	}
	return t
}

func overallText(fs []Finding) string {
	var parts []string
	for _, v := range []string{Contradicted, Supported, NotTestable} {
		n := 0
		for _, f := range fs {
			if f.Verdict == v {
				n++
			}
		}
		if n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, v))
		}
	}
	return Overall(fs) + ": " + strings.Join(parts, ", ")
}

func (f *Finding) valueText() string {
	switch e := f.Value; {
	case !f.Measured:
		return ""
	case e.NoInterval != "":
		return f.Claim.value(e.Value)
	default:
		lo, hi := e.Lo, e.Hi
		if f.Claim.Unit == "share" { // Student's t goes beyond the ends of the scale
			least := 0.0
			if f.Claim.Minus != nil || f.Claim.Test == Rank {
				least = -1
			}
			lo, hi = max(least, lo), min(1, hi)
		}
		return fmt.Sprintf("%s [%s, %s]", f.Claim.value(e.Value), f.Claim.value(lo), f.Claim.value(hi))
	}
}

func (f *Finding) nText() string {
	if !f.Measured || f.Value.N == 0 {
		return ""
	}
	out := fmt.Sprintf("%d (%d)", f.Value.N, f.Value.Groups)
	if f.Dropped > 0 {
		out += fmt.Sprintf("; %d without a value", f.Dropped)
	}
	return out
}

func (f *Finding) pText() string {
	if math.IsNaN(f.Support) {
		return ""
	}
	return report.PValue(f.Support) + ", " + report.PValue(f.Against)
}

func (f *Finding) verdictText() string {
	if f.Why == "" {
		return f.Verdict
	}
	return f.Verdict + ": " + f.Why
}

// LaTeX are the tables as one file for a paper.
func (f *Findings) LaTeX() string {
	var b strings.Builder
	b.WriteString("% \\usepackage{booktabs,tabularx}\n")
	for _, s := range f.Sections() {
		for _, n := range slices.Concat(s.Lead, s.Notes) {
			fmt.Fprintf(&b, "%% %s\n", n)
		}
		for _, t := range s.Tables {
			b.WriteString(t.LaTeX())
		}
	}
	return b.String()
}
