package compare

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ccmed/ccmed/bench/report"
	"github.com/ccmed/ccmed/bench/stats"
)

func TestEffectWords(t *testing.T) {
	c := func(binary, paired bool, value, p float64, e *stats.Effect) *stats.Comparison {
		return &stats.Comparison{Binary: binary, Paired: paired, Difference: stats.Estimate{Value: value}, PHolm: p, Effect: e}
	}
	for want, d := range map[string]*stats.Comparison{
		"~":                                       c(false, true, 3, 0.05, &stats.Effect{D: 3, Word: "large"}),
		"B higher by 12.5 points":                 c(true, true, 0.125, 0.01, nil),
		"B lower by 12.5 points":                  c(true, false, -0.125, 0.01, nil),
		"B higher, small (d_z 0.31)":              c(false, true, 2, 0.01, &stats.Effect{D: 0.31, Word: "small"}),
		"B lower, large (d -1.20)":                c(false, false, -2, 0.01, &stats.Effect{D: -1.2, Word: "large"}),
		"B higher, by the same in every dialogue": c(false, true, 1, 0.01, nil),
	} {
		if got := effectWords(d, dialogues); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

var dialogues = nouns{"dialogue", "scenario context", "context"}

// synthetic is a measure of so many dialogues, two a context.
func synthetic(name, condition string, binary bool, n int, value func(i int) (float64, string)) stats.Measure {
	m := stats.Measure{Name: name, Condition: condition, Binary: binary}
	for i := range n {
		v, why := value(i)
		m.Observations = append(m.Observations, stats.Observation{Item: fmt.Sprint(9001 + i), Group: fmt.Sprint("context ", i/2), Value: v, Unscored: why})
	}
	return m
}

func scoredAs(value func(i int) float64) func(int) (float64, string) {
	return func(i int) (float64, string) { return value(i), "" }
}

var update = flag.Bool("update", false, "write the golden files anew")

// What a comparison of made-up runs looks like: a difference that is there, one that
// is not, dialogues that one side could not score, few contexts.
func TestComparisonTables(t *testing.T) {
	c := &Comparison{nouns: dialogues, Task: "timing", Paired: true, Seed: 1, Runs: []Name{{Name: "base", Model: "org/base"}, {Name: "tuned", Model: "org/tuned", Notes: []string{"a note"}}}}
	p := Pair{A: "base", B: "tuned", Other: []string{`mode ("stream", "pick")`}}
	for _, m := range [][2]stats.Measure{
		{synthetic("TurnAcc", "", true, 24, scoredAs(func(i int) float64 { return float64(i % 4 / 3) })),
			synthetic("TurnAcc", "", true, 24, scoredAs(func(i int) float64 { return float64(min(1, i%8)) }))},
		{synthetic("AUC", "ND", false, 24, scoredAs(func(i int) float64 { return float64(i%5) / 10 })),
			synthetic("AUC", "ND", false, 24, func(i int) (float64, string) {
				if i == 7 {
					return 0, "mass"
				}
				return float64(i%5)/10 + float64(i%3-1)/20, ""
			})},
	} {
		d, err := stats.Compare(m[0], m[1], stats.Resampling{Resamples: 10_000, Seed: 1})
		if err != nil {
			t.Fatal(err)
		}
		p.Measures = append(p.Measures, &d)
	}
	mcnemar := 0.5
	p.McNemar = &mcnemar
	stats.Adjust(p.Measures)
	c.Pairs, c.Family = []Pair{p}, len(p.Measures)
	var b strings.Builder
	if err := report.Write(&b, report.Terminal, c.Sections(), report.Options{Width: 140}); err != nil {
		t.Fatal(err)
	}
	golden := filepath.Join("testdata", "comparison.golden")
	if *update {
		if err := os.WriteFile(golden, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if b.String() != string(want) {
		t.Errorf("got\n%s\nwant\n%s", b.String(), want)
	}
}

// Fewer than six contexts cannot give a p under 0.05, and runs without any flip an
// interval without width: both are said.
func TestComparisonSaysWhatItCannot(t *testing.T) {
	alike := synthetic("TurnAcc", "", true, 8, scoredAs(func(i int) float64 { return float64(i % 2) }))
	d, err := stats.Compare(alike, alike, stats.Resampling{Resamples: 100, Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	notes := strings.Join(Pair{Measures: []*stats.Comparison{&d}}.table(true, dialogues).Notes, "; ")
	// 1 − 0.025^(1/4)
	if e := d.Difference; e.Lo < -0.6024 || e.Lo > -0.6023 || e.Hi != -e.Lo {
		t.Errorf("the interval of 4 contexts that agree is %+v", e)
	}
	if !strings.Contains(notes, "4 scenario contexts: no p can be below 0.125") || !strings.Contains(notes, "alike in all 8 dialogues") || !strings.Contains(notes, "exact (Clopper and Pearson) over the 4 contexts") {
		t.Error(notes)
	}
}
