// Package published holds the numbers that CC-Mediation (Lee, Zhang, Yow and Deng,
// arXiv 2609.04855) reports, and says of each how far a number measured here may
// stand beside it.
//
//	t, ok := published.Table(published.Timing, map[string]published.Measured{
//		published.TurnAcc: {Value: 0.31, Lo: 0.24, Hi: 0.38},
//	}, published.Options{Models: []string{"gemma2:9b"}})
//
// A level that another model labelled is shown beside ours and never subtracted
// from it.
package published

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"unicode"

	"github.com/ccmed/ccmed/bench/report"
	"github.com/ccmed/ccmed/bench/stats"
)

// Comparability is what a comparison with a published number can bear.
type Comparability string

// The kinds, from the most to the least that may be said.
const (
	// Same: the same quantity of the same data. The difference is shown.
	Same Comparability = "same"
	// Range: no labeller is in it, but prompts or settings are unknown. Shown is
	// whether ours lies in the published range.
	Range Comparability = "range"
	// Trend: made on other splits or with other tools. Shown is the direction of
	// a difference, and of a level nothing.
	Trend Comparability = "trend"
	// None: rests on a labeller or judge that is not ours, or on a source that is
	// not clear. Both numbers stand side by side.
	None Comparability = "none"
)

// Topic is what a number is about.
type Topic string

// The topics, in the order of the study.
const (
	Data       Topic = "data"
	Timing     Topic = "timing"
	Mediation  Topic = "mediation"
	FineTuning Topic = "fine-tuning"
	Probing    Topic = "probing"
)

// Unit says how a value is written.
type Unit string

// The units.
const (
	Share Unit = "share" // 0..1, written as a percentage
	Score Unit = "score" // a plain number: AUC, W1, Judge, V, a probe's accuracy
	Gain  Unit = "gain"  // a difference of scores, written with its sign
	Count Unit = "count"
)

// Number is one published number or range.
type Number struct {
	ID    string
	Topic Topic
	// Measure says what was measured.
	Measure string
	// Model that it was measured of; empty: of several, so that any model of their
	// kind may stand beside it.
	Model string
	// Lo and Hi are the ends of a range, equal for a single value.
	Lo, Hi float64
	// Slack widens the range on both sides when ours is looked for in it.
	Slack float64
	Unit  Unit
	// Place in the paper: a section of its text.
	Place      string
	Comparable Comparability
	// Why it is comparable so far and not further.
	Why string
	// By is who gave the number's labels: "labeller", "judge", or "" for nobody.
	By string
}

// Measured is a number measured here; Lo and Hi are its interval, both zero or NaN
// where it has none. Unscored is the range that it can be in, whatever its unscored
// dialogues are, nil where all are scored.
type Measured struct {
	Value, Lo, Hi float64
	Unscored      *stats.Range
}

// Options say what the measured numbers are of.
type Options struct {
	// Models are the names of the model that was measured: its own and, of a tuned
	// one, its base's.
	Models          []string
	Labeller, Judge string // names of the models that labelled and judged
	Dialogues       int    // number of dialogues that were measured, 0 where it is not known
}

// evaluated is the number of dialogues that the study evaluates on, of which one has
// no usable mediation.
const evaluated = 159

// Find returns the numbers of a topic, in the order of the study.
func Find(t Topic) []Number {
	return slices.DeleteFunc(slices.Clone(numbers), func(n Number) bool { return n.Topic != t })
}

// OfSameDialogues says whether so many dialogues can be those that the study evaluates on.
func OfSameDialogues(n int) bool { return n >= evaluated-1 && n <= evaluated+1 }

// Span returns the least and the greatest value of the numbers with an id: the
// range over models.
func Span(id string) (lo, hi float64) {
	lo, hi = math.Inf(1), math.Inf(-1)
	for _, n := range numbers {
		if n.ID == id {
			lo, hi = min(lo, n.Lo), max(hi, n.Hi)
		}
	}
	return lo, hi
}

// Table puts measured numbers, by id, beside the published ones of a topic.
// Numbers that were not measured here are left out; ok is false when that leaves
// nothing.
func Table(t Topic, ours map[string]Measured, o Options) (table report.Table, ok bool) {
	table = report.Table{Title: "Beside the published numbers", Columns: report.Columns("figure", "published",
		"comparable", "here>", "reading")}
	for _, n := range Find(t) {
		m, measured := ours[n.ID]
		if !measured || math.IsNaN(m.Value) {
			continue
		}
		figure := n.Measure
		if n.Model != "" {
			figure += ", " + n.Model
		}
		table.Add(figure, n.String(), string(n.Comparable), n.Unit.format(m), n.Reading(m, o))
		if note := string(n.Comparable) + ": " + n.Why; !slices.Contains(table.Notes, note) {
			table.Notes = append(table.Notes, note)
		}
	}
	if len(table.Rows) == 0 {
		return report.Table{}, false
	}
	notes := []string{"published: CC-Mediation, arXiv 2609.04855"}
	if o.Dialogues > 0 && o.Dialogues < evaluated-1 {
		notes = append(notes, fmt.Sprintf("here: %d dialogues; published: %d. Fewer dialogues, or others, can be outside a range by chance", o.Dialogues, evaluated))
	}
	table.Notes = append(notes, table.Notes...)
	return table, true
}

// String writes the value or range with its unit and its place.
func (n Number) String() string {
	s := n.Unit.value(n.Lo)
	if n.Lo != n.Hi {
		s += " to " + n.Unit.value(n.Hi)
	}
	return s + " (" + n.Place + ")"
}

// Reading says what may be said of a measured number beside the published one:
// the difference for Same, whether it lies in the range for Range, the direction
// for Trend, and for None that there is nothing to say.
func (n Number) Reading(m Measured, o Options) string {
	switch n.Comparable {
	case Same:
		if n.Unit == Count {
			return fmt.Sprintf("difference %+.0f", m.Value-n.Lo)
		}
		return "difference " + Gain.value(m.Value-n.Lo)
	case Range:
		if n.Model != "" && !slices.ContainsFunc(o.Models, n.isOf) {
			return "another model"
		}
		return n.within(m)
	case Trend:
		return n.direction(m)
	}
	by := ""
	switch {
	case n.By == "labeller" && o.Labeller != "":
		by = "labelled by " + o.Labeller + "; "
	case n.By == "judge" && o.Judge != "":
		by = "judged by " + o.Judge + "; "
	}
	return by + "levels are not comparable"
}

func (n Number) within(m Measured) string {
	lo, hi := n.Lo-n.Slack, n.Hi+n.Slack
	where := "within the range"
	reaches := false
	switch {
	case m.Value < lo:
		where, reaches = "below the range", m.hasInterval() && m.Hi >= lo
	case m.Value > hi:
		where, reaches = "above the range", m.hasInterval() && m.Lo <= hi
	}
	if reaches {
		where += "; its interval reaches into it"
	}
	place := func(v float64) int { // below, in, above
		switch {
		case v < lo:
			return -1
		case v > hi:
			return 1
		}
		return 0
	}
	if u := m.Unscored; u != nil && (place(u.Lo) != place(m.Value) || place(u.Hi) != place(m.Value)) {
		where += fmt.Sprintf("; of all %d dialogues it is %s to %s", u.N, n.Unit.value(u.Lo), n.Unit.value(u.Hi))
	}
	if n.Slack > 0 {
		where += fmt.Sprintf(" ± %s", n.Unit.value(n.Slack))
	}
	return where
}

func (n Number) direction(m Measured) string {
	switch {
	case n.Unit != Gain:
		return "levels are not compared"
	case !m.hasInterval() || m.Lo <= 0 && m.Hi >= 0:
		return "no direction is shown here"
	case (m.Value > 0) == (n.Hi > 0):
		return "same direction"
	}
	return "opposite direction"
}

func (m Measured) hasInterval() bool {
	return !math.IsNaN(m.Lo) && !math.IsNaN(m.Hi) && (m.Lo != 0 || m.Hi != 0)
}

func (n Number) isOf(name string) bool { return IsModel(name, n.Model) }

// IsModel tells whether a model's name, in whatever spelling ("gemma2:9b",
// "gemma-2-9b-it-q4.gguf"), is that of a published model.
func IsModel(name, model string) bool { return strings.Contains(letters(name), letters(model)) }

func letters(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsLetter(r) || unicode.IsDigit(r) {
			return unicode.ToLower(r)
		}
		return -1
	}, s)
}

func (u Unit) value(v float64) string {
	switch u {
	case Share:
		return fmt.Sprintf("%.1f %%", 100*v)
	case Gain:
		return fmt.Sprintf("%+.3f", v)
	case Count:
		return fmt.Sprintf("%.0f", v)
	}
	return fmt.Sprintf("%.2f", v)
}

func (u Unit) format(m Measured) string {
	s := u.value(m.Value)
	if m.hasInterval() {
		s += " [" + u.value(m.Lo) + ", " + u.value(m.Hi) + "]"
	}
	return s
}
