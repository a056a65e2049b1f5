package socrates

import (
	"fmt"
	"maps"
	"slices"

	"github.com/ccmed/ccmed/bench/report"
	"github.com/ccmed/ccmed/bench/stats"
	"github.com/ccmed/ccmed/bench/task"
)

// What an evaluator needs for its readings to be more than a pipeline check.
const (
	// LeastStances is the least share of its final options that are those of the deal.
	LeastStances = 0.7
	// LeastAUROC is the least probability that S of a talk up to its deal is above S of the
	// first half of a talk.
	LeastAUROC = 0.8
	// leastCardTalks are needed for either.
	leastCardTalks = 20
)

// Card says how far an evaluator can be believed: what it reads in talks of people whose deal
// is known (CaSiNo). The talk up to the deal is read, without the deal, and its first half,
// which has none yet.
type Card struct {
	Talks    int            `json:"talks"`              // read both whole and to the half
	Unscored map[string]int `json:"unscored,omitempty"` // by reason, of both readings
	// Stances is the share of options, over topics and parties, that the evaluator gives at
	// the end as the deal does; an option that it does not know is wrong. Guess is the share
	// that the most frequent option of each topic would have.
	Stances *stats.Estimate `json:"stances,omitempty"`
	Guess   float64         `json:"stances_guess"`
	// AUROC is the probability that S of a whole talk is above S of a half one, ties one half.
	AUROC *stats.Estimate `json:"auroc,omitempty"`
	Whole float64         `json:"whole_s"` // mean of S
	Half  float64         `json:"half_s"`
	// Qualified says that both are high enough; Why says why they are not.
	Qualified bool     `json:"qualified"`
	Why       []string `json:"why,omitempty"`
}

// cardTalk is what an evaluator reads in one talk of the card.
type cardTalk struct {
	deal        map[string]string
	parties     []string
	whole, half *Evaluation
}

// cardOf scores the card of an evaluator; nil where it read no recorded talk.
func cardOf(units []task.Unit, role string, seed uint64) (*Card, error) {
	c := &Card{}
	talks := map[string]*cardTalk{}
	for _, u := range units {
		if _, ok := u.Step(stepOf(role, StepRecorded)); !ok {
			continue
		}
		talk, unscored, err := task.StepData[Talk](u, StepRecorded)
		if err != nil {
			return nil, err
		}
		e, not, err := task.StepData[Evaluation](u, stepOf(role, StepRecorded))
		if err != nil {
			return nil, err
		}
		if unscored == "" {
			unscored = not
		}
		if unscored == "" {
			unscored = e.check(talk.PartyTurns())
		}
		t := talks[u.Key.Item]
		if t == nil {
			t = &cardTalk{}
			talks[u.Key.Item] = t
		}
		switch {
		case unscored != "":
			if c.Unscored == nil {
				c.Unscored = map[string]int{}
			}
			c.Unscored[unscored]++
		case u.Key.Condition == CardWhole:
			t.whole, t.deal, t.parties = &e, talk.Deal, talk.Parties
		case u.Key.Condition == CardHalf:
			t.half = &e
		}
	}
	if len(talks) == 0 {
		return nil, nil
	}
	return c, c.grade(talks, seed)
}

// grade computes the measures over talks that were read twice.
func (c *Card) grade(talks map[string]*cardTalk, seed uint64) (err error) {
	var right sampled
	var scores []float64
	var whole []bool
	var groups []string
	deals := map[string]map[string]int{}
	for _, item := range slices.Sorted(maps.Keys(talks)) {
		t := talks[item]
		if t.whole == nil || t.half == nil || len(t.deal) == 0 {
			continue
		}
		c.Talks++
		right.add(t.whole.rightStances(t.deal, t.parties), item)
		for _, e := range []*Evaluation{t.whole, t.half} {
			x := e.trajectory()
			scores, whole, groups = append(scores, x.s(x.turns())), append(whole, e == t.whole), append(groups, item)
			if e == t.whole {
				c.Whole += x.s(x.turns())
			} else {
				c.Half += x.s(x.turns())
			}
		}
		for topic, letter := range t.deal {
			if deals[topic] == nil {
				deals[topic] = map[string]int{}
			}
			deals[topic][letter]++
		}
	}
	if c.Talks > 0 {
		c.Whole, c.Half = c.Whole/float64(c.Talks), c.Half/float64(c.Talks)
		for _, letters := range deals {
			most := 0
			for _, n := range letters {
				most = max(most, n)
			}
			c.Guess += float64(most) / float64(c.Talks) / float64(len(deals))
		}
		ranked, err := stats.NewRanked(scores, whole, stats.GroupNumbers(groups))
		if err != nil {
			return err
		}
		e, err := stats.Bootstrap{Resamples: resamples, Seed: seed}.Counted(ranked.AUROC, groups)
		if err != nil {
			return err
		}
		e.N = c.Talks
		c.AUROC = &e
	}
	if c.Stances, err = right.mean(seed); err != nil {
		return err
	}
	c.judge()
	return nil
}

// judge says whether the evaluator qualifies.
func (c *Card) judge() {
	switch {
	case c.Talks < leastCardTalks:
		c.Why = append(c.Why, fmt.Sprintf("%d recorded talks were read, and the card needs %d", c.Talks, leastCardTalks))
	default:
		if c.Stances.Value < LeastStances {
			c.Why = append(c.Why, fmt.Sprintf("it gives %.0f %% of the options as the deals of people do, and %.0f %% are needed", 100*c.Stances.Value, 100*LeastStances))
		}
		if c.AUROC.Value < LeastAUROC {
			c.Why = append(c.Why, fmt.Sprintf("its S tells talks up to their deal from their first halves with an AUROC of %.2f, and %.2f is needed", c.AUROC.Value, LeastAUROC))
		}
	}
	c.Qualified = len(c.Why) == 0
}

// rightStances is the share of final options that are those of a deal.
func (e Evaluation) rightStances(deal map[string]string, parties []string) float64 {
	n, right := 0, 0
	for _, t := range e.Topics {
		letter, ok := deal[t.Topic]
		if !ok {
			continue
		}
		for _, p := range parties {
			n++
			if k := len(t.Readings); k > 0 && t.Readings[k-1].Stances[p] == letter {
				right++
			}
		}
	}
	if n == 0 {
		return 0
	}
	return float64(right) / float64(n)
}

// cardNote says what an evaluator's readings are worth; "" of one that qualifies.
func (c Consensus) cardNote() string {
	switch {
	case c.Card == nil:
		return "there is no evaluator card (--casino FILE makes one): nobody knows whether its readings are right"
	case !c.Card.Qualified:
		return "the evaluator card: " + c.Card.Why[0]
	}
	return ""
}

// cardSection shows the cards of evaluators.
func (r *result) cardSection() (s report.Section, ok bool) {
	t := report.Table{Columns: report.Columns("evaluator", "talks>", "unscored>", "options right [95 %]>", "guess>", "AUROC [95 %]>", "grade")}
	for _, c := range r.Metric.Consensus {
		if c.Card == nil {
			continue
		}
		unscored, grade := 0, "pipeline check"
		for _, n := range c.Card.Unscored {
			unscored += n
		}
		if c.Card.Qualified {
			grade = "qualified"
		}
		t.Add(r.modelOf(c.Role), c.Card.Talks, unscored, estimateOr(c.Card.Stances, 2), report.Num(c.Card.Guess, 2), estimateOr(c.Card.AUROC, 2), grade)
	}
	return report.Section{Title: "Can the evaluator be believed", Tables: []report.Table{t}, Notes: []string{
		fmt.Sprintf("talks of people who bargain over camping supplies (CaSiNo, Chawla et al. 2021, CC BY 4.0): options right is the share of final options that are those of the deal, which the evaluator does not see; AUROC is how well S tells the talks from their first halves; qualified: at least %.0f %% and %.1f, over at least %d talks",
			100*LeastStances, LeastAUROC, leastCardTalks),
		"guess is the share that is right where every answer is the most frequent option of each topic; intervals are drawn over talks"}}, len(t.Rows) > 0
}
