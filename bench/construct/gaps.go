package construct

import (
	"cmp"
	"context"
	"fmt"

	"github.com/ccmed/ccmed/bench/dmis"
	"github.com/ccmed/ccmed/bench/mediation"
	"github.com/ccmed/ccmed/bench/stats"
	"github.com/ccmed/ccmed/bench/task"
)

// PairFindings are what the paths come to. Of the admitted, AUC and W1 of the second
// labelling were not used to choose them.
type PairFindings struct {
	Pairs    int             `json:"pairs"` // of which both paths are labelled
	Admitted int             `json:"admitted"`
	Share    *stats.Estimate `json:"share_admitted,omitempty"`
	All      Gaps            `json:"all"`
	Chosen   Gaps            `json:"chosen"`
	// Curse is the mean gap of AUC of the admitted pairs, first minus second labelling: what
	// the choice by a noisy label adds. CurseN of the admitted have a second labelling.
	Curse  *stats.Estimate `json:"winners_curse,omitempty"`
	CurseN int             `json:"winners_curse_n"`
	// Grade is that of the labeller that the pairs were planned with.
	Grade string `json:"labeller_grade"`
	// Withheld says why nothing may be said of AUC and W1: the labels cannot bear it.
	Withheld string `json:"withheld,omitempty"`
}

// Gaps are means of positive minus negative, on the index scale.
type Gaps struct {
	AUC      *stats.Estimate `json:"auc,omitempty"`
	W1       *stats.Estimate `json:"w1,omitempty"`
	AUCAgain *stats.Estimate `json:"auc_again,omitempty"`
	W1Again  *stats.Estimate `json:"w1_again,omitempty"`
}

// pair is a dialogue with both paths, as far as they can be measured.
type pair struct {
	item               string
	positive, negative *mediatedPath
	first, again       *[2]gain // positive, negative
	why                string
}

// pairsOf joins the paths of dialogues.
func pairsOf(units []task.Unit) ([]pair, error) {
	var out []pair
	at := map[string]int{}
	for _, u := range units {
		i, ok := at[u.Key.Item]
		if !ok {
			i = len(out)
			at[u.Key.Item], out = i, append(out, pair{item: u.Key.Item})
		}
		p := &out[i]
		path, why, err := task.StepData[Path](u, StepPath)
		if err != nil {
			return nil, err
		}
		_, lineWhy, err := task.StepData[Line](u, StepLine)
		if err != nil {
			return nil, err
		}
		labels, unscored, err := task.StepData[PathLabels](u, StepStages)
		if err != nil {
			return nil, err
		}
		for _, reason := range []string{lineWhy, why, unscored} {
			if p.why == "" {
				p.why = reason
			}
		}
		m := &mediatedPath{Path: path, labels: labels}
		if u.Key.Condition == Positive {
			p.positive = m
		} else {
			p.negative = m
		}
	}
	for i := range out {
		out[i].measure()
	}
	return out, nil
}

func (p *pair) measure() {
	switch {
	case p.why != "":
		return
	case p.positive == nil || p.negative == nil:
		p.why = "one of the paths is missing"
		return
	}
	var first, again [2]gain
	ok, okAgain := true, true
	for i, m := range []*mediatedPath{p.positive, p.negative} {
		conflict := m.Of.Case.Turn
		g, known := gainOf(conflict, m.labels.Pre, m.labels.After)
		h, knownAgain := gainOf(conflict, m.labels.PreAgain, m.labels.AfterAgain)
		first[i], again[i], m.gain = g, h, g
		ok, okAgain = ok && known, okAgain && knownAgain
	}
	if !ok {
		p.why = unlabelled
		return
	}
	p.first = &first
	if okAgain {
		p.again = &again
	}
	if !admitted(first[0], first[1]) {
		p.why = notAdmitted
	}
}

const notAdmitted = "the positive path leads no further than the negative one"

// sampled are values with their clusters.
type sampled struct {
	v      []float64
	groups []string
}

func (s *sampled) add(v float64, group string) {
	s.v, s.groups = append(s.v, v), append(s.groups, group)
}

func (s sampled) mean(seed uint64) (*stats.Estimate, error) {
	if len(s.v) == 0 {
		return nil, nil
	}
	e, err := stats.Bootstrap{Resamples: resamples, Seed: seed}.Mean(s.v, s.groups)
	return &e, err
}

// Score admits pairs and measures what they gain.
func (b Pairs) Score(_ context.Context, in task.Input) (task.Result, error) {
	return newResult(in, b.About(), func(units []task.Unit, s *scoring) error {
		settings, err := task.Settings[pairsSettings](in.Identity())
		if err != nil {
			return err
		}
		pairs, err := pairsOf(units)
		if err != nil {
			return err
		}
		if s.m.Pairs, err = findings(pairs, settings.Grade, s.seed); err != nil {
			return err
		}
		byItem := map[string]pair{}
		for _, p := range pairs {
			byItem[p.item] = p
		}
		for _, u := range units {
			path, _, err := task.StepData[Path](u, StepPath)
			if err != nil {
				return err
			}
			p := byItem[u.Key.Item]
			o := outcome{unit: u, stage: path.Of.Case.Stage, why: p.why, cluster: cmp.Or(path.Of.Case.Scenario.ID, "unknown"), turns: path.Turns}
			if path.Line.Text != "" {
				o.notes = []string{fmt.Sprintf("the mediator, after turn %d: %s", path.Line.Turn, path.Line.Text)}
			}
			switch {
			case p.first == nil:
			case s.m.Pairs.Withheld != "":
				o.unmeasured = mediation.Withheld + s.m.Pairs.Withheld
			default:
				auc := p.first[1].AUC
				if u.Key.Condition == Positive {
					auc = p.first[0].AUC
				}
				o.value = &auc
			}
			s.add(o)
		}
		return nil
	})
}

// withheld says why the labels of paths cannot bear a number, "" where they can.
func withheld(pairs []pair, grade string) string {
	if grade == mediation.DegenerateLabels {
		return "the labeller is " + grade
	}
	var stages []int
	for _, p := range pairs {
		if p.first == nil {
			continue
		}
		for _, m := range []*mediatedPath{p.positive, p.negative} {
			for _, l := range m.labels.After { // before them the stage is scripted
				if s, err := dmis.ParseStage(l.Stage); err == nil {
					stages = append(stages, int(s))
				}
			}
		}
	}
	if s, share := stats.MajorityShare(stages); share > stats.DegenerateShare {
		return fmt.Sprintf("the labeller gives %s in %.0f %% of the paths' turns", dmis.Stage(s), 100*share)
	}
	return ""
}

// findings measures the pairs of which both paths are labelled, by a labeller of a grade.
func findings(pairs []pair, grade string, seed uint64) (*PairFindings, error) {
	f := &PairFindings{Grade: grade, Withheld: withheld(pairs, grade)}
	var share, curse sampled
	var all, chosen [4]sampled // AUC, W1, and both again
	for _, p := range pairs {
		if p.first == nil {
			continue
		}
		cluster := p.positive.Of.Case.Scenario.ID
		f.Pairs++
		in := p.why == ""
		hit := 0.0
		if in {
			hit = 1
			f.Admitted++
		}
		share.add(hit, cluster)
		gaps := func(g *[2]gain, of *[4]sampled, at int) {
			of[at].add(g[0].AUC-g[1].AUC, cluster)
			of[at+1].add(g[0].W1-g[1].W1, cluster)
		}
		gaps(p.first, &all, 0)
		if in {
			gaps(p.first, &chosen, 0)
		}
		if p.again == nil {
			continue
		}
		gaps(p.again, &all, 2)
		if in {
			gaps(p.again, &chosen, 2)
			curse.add((p.first[0].AUC-p.first[1].AUC)-(p.again[0].AUC-p.again[1].AUC), cluster)
		}
	}
	f.CurseN = len(curse.v)
	var err error
	if f.Share, err = share.mean(seed); err != nil || f.Withheld != "" {
		return f, err
	}
	for _, x := range []struct {
		to *(*stats.Estimate)
		of sampled
	}{{&f.Curse, curse}, {&f.All.AUC, all[0]}, {&f.All.W1, all[1]}, {&f.All.AUCAgain, all[2]}, {&f.All.W1Again, all[3]},
		{&f.Chosen.AUC, chosen[0]}, {&f.Chosen.W1, chosen[1]}, {&f.Chosen.AUCAgain, chosen[2]}, {&f.Chosen.W1Again, chosen[3]}} {
		if *x.to, err = x.of.mean(seed); err != nil {
			return nil, err
		}
	}
	return f, nil
}
