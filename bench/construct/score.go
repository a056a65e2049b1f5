package construct

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/ccmed/ccmed/bench/dialogue"
	"github.com/ccmed/ccmed/bench/dmis"
	"github.com/ccmed/ccmed/bench/mediation"
	"github.com/ccmed/ccmed/bench/stats"
	"github.com/ccmed/ccmed/bench/task"
)

const resamples = 2000

// Metrics are what scoring finds. Which parts there are depends on the run.
type Metrics struct {
	Items    int            `json:"items"`
	Kept     int            `json:"kept"`
	Rejected map[string]int `json:"rejected,omitempty"` // by reason
	// Stages counts the scripted turns of dialogues, Labels is the labeller's card, Pairs
	// what the paths come to.
	Stages []StageCount  `json:"stages,omitempty"`
	Labels *LabelCard    `json:"labels,omitempty"`
	Pairs  *PairFindings `json:"pairs,omitempty"`
}

// StageCount says how often a stage was played.
type StageCount struct {
	Stage    string `json:"stage"`
	Scripted int    `json:"scripted"` // dialogues
	Spoken   int    `json:"spoken"`   // of these, with a scripted turn that its words let pass
	Played   int    `json:"played"`   // of these, whose scripted turn the labeller gives the stage
	ByWords  int    `json:"by_words"` // of those spoken, whose words show the stage
	Kept     int    `json:"kept"`
}

// Consistent is the grade of a labeller that agrees with itself; the others are
// mediation.Weak and mediation.DegenerateLabels. It says nothing about people's labels.
const Consistent = "consistent"

// What a labeller needs to be Consistent.
const (
	// leastTwice is how many turns must be labelled twice for any grade.
	leastTwice = 30
	// leastKappa is what the lower bound of the kappa of both labellings reaches: the share
	// of the recorded labels' own kappa that mediation asks for.
	leastKappa = mediation.ReliableShare * recordedKappa
	// recordedKappa is the kappa of the released records' labels where these label the same
	// turn twice.
	recordedKappa = 0.48
)

// LabelCard says how far a labeller can be trusted, as far as it can be known without people.
type LabelCard struct {
	Turns    int `json:"turns"` // of the continuations
	Unscored int `json:"unscored"`
	// Reliability is how far both labellings agree; nil where too few turns or one answer
	// leave nothing to compare. Conflict is it of the conflict speakers' own turns.
	Reliability *dialogue.Agreement `json:"reliability,omitempty"`
	Conflict    *dialogue.Agreement `json:"conflict_speaker,omitempty"`
	// Scripted are the scripted turns to which the second labelling gives their stage.
	Scripted mediation.Rate `json:"scripted"`
	Majority string         `json:"majority"`
	Share    float64        `json:"majority_share"`
	Grade    string         `json:"grade"`
	Why      []string       `json:"why,omitempty"`
}

// cardOf grades the labeller of some dialogues.
func cardOf(all []Labelled, seed uint64) (LabelCard, error) {
	var c LabelCard
	var x, y, groups, ownX, ownY, ownGroups []string
	var stages []int
	for _, l := range all {
		for _, t := range l.Labels {
			switch {
			case t.First == nil || t.Again == nil:
				continue
			case t.Phase == phaseConflict:
				c.Scripted.N++
				if t.Again.Stage == l.Case.Stage {
					c.Scripted.K++
				}
				continue
			}
			c.Turns++
			if t.First.Stage == "" || t.Again.Stage == "" {
				c.Unscored++
			}
			if s, err := dmis.ParseStage(t.First.Stage); err == nil {
				stages = append(stages, int(s))
			}
			x, y, groups = append(x, t.First.Stage), append(y, t.Again.Stage), append(groups, l.Case.Scenario.ID)
			if t.First.Own {
				ownX, ownY, ownGroups = append(ownX, t.First.Stage), append(ownY, t.Again.Stage), append(ownGroups, l.Case.Scenario.ID)
			}
		}
	}
	var err error
	if c.Reliability, err = dialogue.Agree(x, y, groups, seed); err != nil {
		return c, err
	}
	if c.Conflict, err = dialogue.Agree(ownX, ownY, ownGroups, seed); err != nil {
		return c, err
	}
	if len(stages) > 0 {
		s, share := stats.MajorityShare(stages)
		c.Majority, c.Share = dmis.Stage(s).String(), share
	}
	c.grade()
	return c, nil
}

func (c *LabelCard) grade() {
	add := func(grade, format string, args ...any) {
		if c.Grade != mediation.DegenerateLabels {
			c.Grade = grade
		}
		c.Why = append(c.Why, fmt.Sprintf(format, args...))
	}
	c.Grade = Consistent
	if twice := c.Turns - c.Unscored; twice < leastTwice {
		add(mediation.DegenerateLabels, "%d turns labelled twice, of which %d are needed", twice, leastTwice)
	}
	switch {
	case c.Share > stats.DegenerateShare:
		add(mediation.DegenerateLabels, "%s in %.0f %% of the labels", c.Majority, 100*c.Share)
	case c.Share > mediation.MaxShare:
		add(mediation.Weak, "%s in %.0f %% of the labels", c.Majority, 100*c.Share)
	}
	switch r := c.Reliability; {
	case r == nil:
		add(mediation.Weak, "both labellings cannot be compared")
	case r.Kappa.NoInterval == stats.AllAlike && r.Kappa.Value >= leastKappa: // no doubt is left
	case r.Kappa.NoInterval != "":
		add(mediation.Weak, "κ of both labellings has no interval (%s)", r.Kappa.NoInterval)
	case r.Kappa.Lo < leastKappa:
		add(mediation.Weak, "κ of both labellings is %.2f [%.2f, %.2f], whose lower bound must reach %.2f", r.Kappa.Value, r.Kappa.Lo, r.Kappa.Hi, leastKappa)
	}
}

// outcome is what became of a unit.
type outcome struct {
	unit    task.Unit
	cluster string
	stage   string
	why     string // why it is not kept
	value   *float64
	// unmeasured is why there is no value of what is kept.
	unmeasured string
	turns      []Said
	notes      []string
}

func (s *scoring) add(o outcome) {
	s.outcomes = append(s.outcomes, o)
	s.m.Items++
	if o.why == "" {
		s.m.Kept++
		return
	}
	if s.m.Rejected == nil {
		s.m.Rejected = map[string]int{}
	}
	s.m.Rejected[o.why]++
}

// scoring is a run that is being scored.
type scoring struct {
	m        Metrics
	outcomes []outcome
	seed     uint64
}

// Score counts the scenarios that are kept.
func (b Scenarios) Score(_ context.Context, in task.Input) (task.Result, error) {
	return newResult(in, b.About(), func(units []task.Unit, s *scoring) error {
		settings, err := task.Settings[writeSettings](in.Identity())
		if err != nil {
			return err
		}
		kept, _, err := writtenOf(units, cmp.Or(settings.Alike, Alike))
		if err != nil {
			return err
		}
		for _, u := range units {
			w, why, err := task.StepData[Written](u, StepWrite)
			if err != nil {
				return err
			}
			o := outcome{unit: u, why: why, cluster: cmp.Or(w.Brief.Question.Dimension, "unknown")}
			if w.Scenario != nil {
				o.notes = []string{w.Scenario.Context, w.Scenario.People[0].Value, w.Scenario.People[1].Value}
				if why == "" && !slices.ContainsFunc(kept, func(k Scenario) bool { return k.ID == w.Scenario.ID }) {
					o.why = sameAsAnother
				}
			} else if why == "" {
				o.why = unreadable
			}
			s.add(o)
		}
		return nil
	})
}

const (
	sameAs        = "means the same as "
	sameAsAnother = sameAs + "another"
)

// Score counts the dialogues that are kept.
func (b Dialogues) Score(_ context.Context, in task.Input) (task.Result, error) {
	return newResult(in, b.About(), func(units []task.Unit, s *scoring) error {
		counts := map[string]*StageCount{}
		for _, u := range units {
			open, why, err := task.StepData[Talk](u, StepOpen)
			if err != nil {
				return err
			}
			check, checked, err := task.StepData[Check](u, StepCheck)
			if err != nil {
				return err
			}
			rest, last, err := task.StepData[Talk](u, StepRest)
			if err != nil {
				return err
			}
			o := outcome{unit: u, stage: open.Case.Stage, cluster: cmp.Or(open.Case.Scenario.ID, "unknown"), turns: open.Turns}
			// The first step that failed says why.
			for _, reason := range []string{why, checked, last} {
				if o.why == "" {
					o.why = reason
				}
			}
			if len(rest.Turns) > 0 {
				o.turns = rest.Turns
			}
			s.add(o)
			if o.stage == "" {
				continue
			}
			if counts[o.stage] == nil {
				counts[o.stage] = &StageCount{Stage: o.stage}
			}
			counts[o.stage].count(o, why == "", checked == "" && check.Label.Stage == o.stage, check.Words == o.stage)
		}
		for _, stage := range slices.Sorted(maps.Keys(counts)) {
			s.m.Stages = append(s.m.Stages, *counts[stage])
		}
		return nil
	})
}

func (c *StageCount) count(o outcome, spoken, played, byWords bool) {
	c.Scripted++
	if !spoken {
		return
	}
	c.Spoken++
	if played {
		c.Played++
	}
	if byWords {
		c.ByWords++
	}
	if o.why == "" {
		c.Kept++
	}
}

// Score grades the labeller.
func (b Label) Score(_ context.Context, in task.Input) (task.Result, error) {
	return newResult(in, b.About(), func(units []task.Unit, s *scoring) error {
		labelled, err := labelledOf(units)
		if err != nil {
			return err
		}
		card, err := cardOf(labelled, s.seed)
		if err != nil {
			return err
		}
		s.m.Labels = &card
		for _, u := range units {
			l, why, err := task.StepData[Labelled](u, StepLabel)
			if err != nil {
				return err
			}
			o := outcome{unit: u, stage: l.Case.Stage, why: why, cluster: cmp.Or(l.Case.Scenario.ID, "unknown"), turns: l.Turns}
			agree, twice := 0.0, 0.0
			for _, t := range l.Labels {
				if t.Phase == phaseAfter && t.First != nil && t.Again != nil && t.First.Stage != "" && t.Again.Stage != "" {
					if twice++; t.First.Stage == t.Again.Stage {
						agree++
					}
				}
			}
			if why == "" && twice > 0 {
				share := agree / twice
				o.value = &share
			}
			s.add(o)
		}
		return nil
	})
}
