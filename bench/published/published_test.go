package published

import (
	"math"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/ccmed/ccmed/bench/report"
)

func TestNumbersAreWhole(t *testing.T) {
	seen := map[string]bool{}
	for _, n := range numbers {
		if n.Measure == "" || n.Place == "" || n.Why == "" || n.Lo > n.Hi || n.Slack < 0 {
			t.Errorf("%+v", n)
		}
		if k := n.ID + "|" + n.Measure + "|" + n.Model; seen[k] {
			t.Errorf("%s stands there twice", k)
		} else {
			seen[k] = true
		}
		if !slices.Contains([]Topic{Data, Timing, Mediation, FineTuning, Probing}, n.Topic) || !slices.Contains([]Unit{Share, Score, Gain, Count}, n.Unit) ||
			!slices.Contains([]Comparability{Same, Range, Trend, None}, n.Comparable) {
			t.Errorf("%s: topic %q, unit %q, comparable %q", n.ID, n.Topic, n.Unit, n.Comparable)
		}
		if n.Unit == Share && (n.Lo < 0 || n.Hi > 1) {
			t.Errorf("%s is a share of %v to %v", n.ID, n.Lo, n.Hi)
		}
		// What a model labelled or judged is never more than beside the other.
		if n.By != "" && n.Comparable != None {
			t.Errorf("%s was labelled by the %s and is comparable as %s", n.ID, n.By, n.Comparable)
		}
		for _, metric := range []string{"AUC", "W1", "Judge"} {
			if strings.Contains(n.Measure, metric) && n.Comparable != None && n.Comparable != Same {
				t.Errorf("%s (%s) is comparable as %s", n.ID, n.Measure, n.Comparable)
			}
		}
	}
}

var digits = regexp.MustCompile(`[0-9]`)

// No reading of a number that is not comparable holds any number: whatever was
// measured here and whoever labelled it.
func TestNoDifferenceForNone(t *testing.T) {
	n := 0
	for _, x := range numbers {
		if x.Comparable != None {
			continue
		}
		n++
		for _, m := range []Measured{{Value: x.Lo}, {Value: 17, Lo: 15, Hi: 19}, {Value: -3}, {Value: x.Hi + 0.1, Lo: math.NaN(), Hi: math.NaN()}} {
			for _, o := range []Options{{}, {Labeller: "M", Judge: "J", Models: []string{x.Model}}} {
				got := x.Reading(m, o)
				if digits.MatchString(got) || !strings.Contains(got, "not comparable") || strings.Contains(got, "direction") || strings.Contains(got, "range") {
					t.Errorf("%s: %q", x.ID, got)
				}
				if o.Labeller != "" && x.By == "labeller" && !strings.Contains(got, "labelled by M") || x.By == "judge" && o.Judge != "" && !strings.Contains(got, "judged by J") {
					t.Errorf("%s: %q names nobody", x.ID, got)
				}
			}
		}
	}
	if n < 20 {
		t.Errorf("%d numbers without comparability; AUC, W1 and Judge are more", n)
	}
}

func find(t *testing.T, id, model string) Number {
	t.Helper()
	for _, n := range numbers {
		if n.ID == id && n.Model == model {
			return n
		}
	}
	t.Fatalf("no number %s of %q", id, model)
	return Number{}
}

func TestReadings(t *testing.T) {
	for _, c := range []struct {
		name, id, model string
		m               Measured
		o               Options
		want            string
	}{
		{"equal", UtilityGap, "", Measured{Value: 0.701}, Options{}, "difference +0.000"},
		{"less", UtilityGap, "", Measured{Value: 0.6}, Options{}, "difference -0.101"},
		{"fewer dialogues", Dialogues, "", Measured{Value: 1503}, Options{}, "difference -158"},
		{"within", TurnAcc, "", Measured{Value: 0.3, Lo: 0.2, Hi: 0.4}, Options{}, "within the range"},
		{"edge", TurnAcc, "", Measured{Value: 0.358}, Options{}, "within the range"},
		{"above", TurnAcc, "", Measured{Value: 0.9, Lo: 0.8, Hi: 0.95}, Options{}, "above the range"},
		{"below, reaching in", TurnAcc, "", Measured{Value: 0.08, Lo: 0.03, Hi: 0.15}, Options{}, "below the range; its interval reaches into it"},
		{"below without an interval", TurnAcc, "", Measured{Value: 0.08}, Options{}, "below the range"},
		{"another model", TunedTurnAcc, gemma, Measured{Value: 0.97}, Options{Models: []string{"SmolLM2-135M"}}, "another model"},
		{"that model, other spelling", TunedTurnAcc, gemma, Measured{Value: 0.94}, Options{Models: []string{"tuned", "gemma2:9b-instruct-q4"}}, "within the range ± 4.0 %"},
		{"that model", TunedTurnAcc, gemma, Measured{Value: 0.94}, Options{Models: []string{"gemma-2-9b-it"}}, "within the range ± 4.0 %"},
		{"same direction", DeltaElic, "", Measured{Value: 0.1, Lo: 0.05, Hi: 0.15}, Options{}, "same direction"},
		{"opposite direction", DeltaElic, "", Measured{Value: -0.1, Lo: -0.15, Hi: -0.05}, Options{}, "opposite direction"},
		{"no direction", DeltaElic, "", Measured{Value: 0.1, Lo: -0.05, Hi: 0.25}, Options{}, "no direction is shown here"},
		{"direction of a value alone", DeltaElic, "", Measured{Value: 0.1}, Options{}, "no direction is shown here"},
		{"a trend's level", HoldoutCountry, "", Measured{Value: 0.8, Lo: 0.7, Hi: 0.9}, Options{}, "levels are not compared"},
	} {
		if got := find(t, c.id, c.model).Reading(c.m, c.o); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

func TestSpan(t *testing.T) {
	if lo, hi := Span(TunedTurnAcc); lo != 0.918 || hi != 0.981 {
		t.Errorf("TurnAcc after tuning goes from %v to %v", lo, hi)
	}
}

func TestTable(t *testing.T) {
	table, ok := Table(Mediation, map[string]Measured{AUCND: {Value: 1.1, Lo: 0.9, Hi: 1.3}, JudgeND: {Value: math.NaN()}, TurnAcc: {Value: 0.3}}, Options{Labeller: "qwen2.5:14b"})
	if !ok || len(table.Rows) != 2 {
		t.Fatalf("%v, %d rows; the range over six models and Gemma's are two", ok, len(table.Rows))
	}
	want := []string{"AUC, ND, six models", "0.68 to 1.44 (section 4.2)", "none", "1.10 [0.90, 1.30]", "labelled by qwen2.5:14b; levels are not comparable"}
	for i, c := range table.Rows[0] {
		if c.String() != want[i] {
			t.Errorf("column %d: %q, want %q", i, c, want[i])
		}
	}
	if err := report.Write(&strings.Builder{}, report.Markdown, []report.Section{{Tables: []report.Table{table}}}, report.Options{}); err != nil {
		t.Error(err)
	}
	if _, ok := Table(Probing, map[string]Measured{TurnAcc: {Value: 0.3}}, Options{}); ok {
		t.Error("a table of a topic that was not measured")
	}
}

// A range over all dialogues is no measure for a few of them without their number.
func TestTableTellsOfFewDialogues(t *testing.T) {
	note := func(n int) string {
		table, _ := Table(Timing, map[string]Measured{TurnAcc: {Value: 0}}, Options{Dialogues: n})
		return strings.Join(table.Notes, "\n")
	}
	if got := note(12); !strings.Contains(got, "here: 12 dialogues; published: 159") {
		t.Errorf("12 dialogues: %q", got)
	}
	for _, n := range []int{0, 158, 159} {
		if got := note(n); strings.Contains(got, "here:") {
			t.Errorf("%d dialogues: %q", n, got)
		}
	}
}
