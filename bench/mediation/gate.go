package mediation

import (
	"fmt"
	"strings"

	"github.com/ccmed/ccmed/bench/dmis"
	"github.com/ccmed/ccmed/bench/run"
	"github.com/ccmed/ccmed/bench/stats"
)

// Gate decides which metrics of a run may be said. Tables, reports, comparisons and
// exports all ask it: what one of them may not say, none says.
type Gate struct {
	Labeller   *LabellerCard // nil without card samples
	Degenerate []string      // roles with a constant answer
	Notes      []string      // what else keeps metrics back
	// judge says why the judge's scores alone are kept back, labels why all metrics are.
	labels, judge string
}

// Withheld begins the reason why a metric may not be said.
const Withheld = "withheld: "

// Grades of a labeller, see Gate.Grade.
const (
	Qualified    = "qualified"
	NotQualified = "not qualified"
	NoCard       = "no card"
)

// NewGate looks at the samples of a run, baselines and card included.
func NewGate(samples []run.Sample) (*Gate, error) {
	g := &Gate{}
	var err error
	if g.Labeller, err = Labeller(samples); err != nil {
		return nil, err
	}
	switch {
	case g.Labeller == nil:
		g.note("no labeller card in this run (--card-items 0): no AUC or W1 is printed without one")
	case !g.Labeller.Qualified:
		g.note("the labeller is not qualified: " + strings.Join(g.Labeller.Why, "; "))
	}
	units, keys := group(samples)
	// The card's labels apart: varied ones there must not hide constant ones here.
	stages := map[bool][]int{}
	var scores []int
	for _, k := range keys {
		if l, unscored, ok, err := decode[Labels](units[k], StepLabel, k[0]); err == nil && ok && unscored == "" {
			card := k[1] == Card
			for _, t := range append([]TurnLabel{l.Pre}, l.After...) {
				if d, ok := t.Dist(); ok {
					stages[card] = append(stages[card], int(d.Argmax()))
				}
			}
		}
		if j, unscored, ok, err := decode[Judgement](units[k], StepJudge, k[0]); err == nil && ok && unscored == "" && j.NotApplicable == "" {
			scores = append(scores, j.Score)
		}
	}
	for _, card := range []bool{false, true} {
		if s, share := stats.MajorityShare(stages[card]); share > stats.DegenerateShare {
			of := map[bool]string{false: "labels", true: "labels of the card"}[card]
			g.constant(&g.labels, fmt.Sprintf("labeller: degenerate: constant answer (%s in %.0f %% of %d %s)", dmis.Stage(s), 100*share, len(stages[card]), of))
		}
	}
	if s, share := stats.MajorityShare(scores); share > stats.DegenerateShare {
		g.constant(&g.judge, fmt.Sprintf("judge: degenerate: constant answer (%d in %.0f %% of %d scores)", s, 100*share, len(scores)))
	}
	return g, nil
}

func (g *Gate) note(why string) {
	g.Notes = append(g.Notes, why)
	g.labels = why
}

func (g *Gate) constant(of *string, why string) {
	g.Degenerate = append(g.Degenerate, why)
	if *of == "" {
		*of = why
	}
}

// PipelineCheck is true when no number of the run is a finding.
func (g *Gate) PipelineCheck() bool { return g.labels != "" }

// Allows tells whether a metric may be said. The judge is not checked against people
// here; its scores are said only where the run is more than a pipeline check.
func (g *Gate) Allows(metric string) bool { return g.why(metric) == "" }

// why says why a metric may not be said, "" where it may.
func (g *Gate) why(metric string) string {
	if g.labels == "" && !onLabels(metric) {
		return g.judge
	}
	return g.labels
}

// Grade is what the labeller's card says of it.
func (g *Gate) Grade() string {
	switch {
	case g.Labeller == nil:
		return NoCard
	case g.Labeller.Qualified:
		return Qualified
	}
	return NotQualified
}

// Withhold takes out of outcomes what may not be said, and leaves the reasons: metrics,
// and stages of a labeller that does not qualify.
func (g *Gate) Withhold(outcomes []Outcome) {
	for i := range outcomes {
		o := &outcomes[i]
		for _, metric := range MetricNames {
			why := g.why(metric)
			if _, measured := o.Values[metric]; why == "" || !measured {
				continue
			}
			delete(o.Values, metric)
			if o.Withheld == nil {
				o.Withheld = map[string]string{}
			}
			o.Withheld[metric] = Withheld + why
		}
		if g.PipelineCheck() {
			o.PreStage, o.PostStage, o.Trajectory, o.NoDirection = nil, nil, nil, false
		}
	}
}
