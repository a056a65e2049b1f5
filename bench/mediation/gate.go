package mediation

import (
	"fmt"
	"strings"

	"github.com/ccmed/ccmed/bench/dialogue"
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
	grade         string
}

// Withheld begins the reason why a metric may not be said.
const Withheld = "withheld: "

// NewGate looks at the samples of a run, baselines and card included. recorded is the
// reliability of the recorded labels; nil where it is unknown.
func NewGate(samples []run.Sample, recorded *dialogue.Agreement) (*Gate, error) {
	g := &Gate{}
	var err error
	if g.Labeller, err = Labeller(samples, recorded); err != nil {
		return nil, err
	}
	switch c := g.Labeller; {
	case c == nil:
		g.grade = NoCard
		g.withholdAll("no labeller card in this run (--card-items 0): no AUC or W1 is printed without one")
	case c.Grade == DegenerateLabels:
		g.grade = DegenerateLabels
		g.withholdAll("nothing rests on the labeller: " + strings.Join(c.Why, "; "))
	case c.Grade == Weak:
		g.grade = Weak
		g.Notes = append(g.Notes, "the labels are weak: "+strings.Join(c.Why, "; "))
	default:
		g.grade = Reliable
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
			g.grade = DegenerateLabels
			g.constant(&g.labels, fmt.Sprintf("labeller: same stage in %.0f %% of %d %s (%s)", 100*share, len(stages[card]), of, dmis.Stage(s)))
		}
	}
	if s, share := stats.MajorityShare(scores); share > stats.DegenerateShare {
		g.constant(&g.judge, fmt.Sprintf("judge: same score in %.0f %% of %d (%d)", 100*share, len(scores), s))
	}
	return g, nil
}

// withholdAll notes why nothing that rests on labels may be said.
func (g *Gate) withholdAll(why string) {
	g.Notes = append(g.Notes, why)
	g.labels = why
}

func (g *Gate) constant(of *string, why string) {
	g.Degenerate = append(g.Degenerate, why)
	if *of == "" {
		*of = why
	}
}

// PipelineCheck is true when no number of the run is a finding: of weak labels none is,
// of others none may be said.
func (g *Gate) PipelineCheck() bool { return g.grade != Reliable }

// Weak says why no difference on the labels is significant: "" of reliable labels.
func (g *Gate) Weak(metric string) string {
	if g.grade != Weak || !onLabels(metric) {
		return ""
	}
	return fmt.Sprintf("weak labels, κ %.2f", g.Labeller.Kappa)
}

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

// Grade is Reliable, Weak, DegenerateLabels or NoCard. Constant labels are degenerate
// whatever the card says.
func (g *Gate) Grade() string { return g.grade }

// Withhold takes out of outcomes what may not be said, and leaves the reasons: metrics,
// and stages where nothing rests on the labels.
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
		if g.labels != "" {
			o.PreStage, o.PostStage, o.Trajectory, o.NoDirection = nil, nil, nil, false
		}
	}
}
