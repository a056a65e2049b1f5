package mediation

import (
	"fmt"
	"math"

	"github.com/ccmed/ccmed/bench/dialogue"
	"github.com/ccmed/ccmed/bench/dmis"
	"github.com/ccmed/ccmed/bench/run"
	"github.com/ccmed/ccmed/bench/stats"
)

// Grades of a labeller.
const (
	// Reliable labels agree with recorded ones about as well as recorded ones with each
	// other.
	Reliable = "as reliable as the recorded labels"
	// Weak labels give numbers, of which none is a finding.
	Weak = "weak"
	// DegenerateLabels are constant, or too few of them could be compared: no number rests
	// on them.
	DegenerateLabels = "degenerate"
	// NoCard: nothing is known of the labels, and no number rests on them.
	NoCard = "no card"
)

// What a labeller needs for Reliable.
const (
	// ReliableShare is the least share of the recorded labels' own kappa that the lower
	// bound of its kappa reaches.
	ReliableShare = 0.7
	// MaxShare is the largest share of one stage among its answers.
	MaxShare = 0.8
	// leastCompared is how many labels must be compared for any number.
	leastCompared = 30
	// leastAfterOther is how many turns of the other speaker tell for whom it answers.
	leastAfterOther = 20
)

// LabellerCard says how far a labeller can be trusted. It stands beside every
// AUC.
type LabellerCard struct {
	// N recorded labels were compared: those of the conflict speaker's own turns after the
	// conflict, for a record's label is about the one who speaks the turn. Unscored more
	// could not be.
	N        int `json:"n"`
	Unscored int `json:"unscored"`
	// Kappa is the quadratic-weighted agreement with the recorded labels; Why says
	// so where NoKappa is true and it was not computed.
	Kappa   float64 `json:"kappa"`
	NoKappa bool    `json:"no_kappa,omitempty"`
	// Interval is that of Kappa by scenario context; nil without Kappa.
	Interval *stats.Estimate `json:"kappa_interval,omitempty"`
	// Recorded is the reliability of the recorded labels of conflict speakers' own turns,
	// from the records at hand; nil where these hold no turns that were labelled twice.
	Recorded *dialogue.Agreement `json:"recorded_labels,omitempty"`
	// Corrected is Kappa over the square root of the recorded labels' kappa: what it would
	// be against labels without error (Spearman 1904), at most 1. nil without Recorded.
	Corrected *float64 `json:"kappa_corrected,omitempty"`
	// Confusion counts recorded (rows) against given stages, index 0..5.
	Confusion [6][6]int `json:"confusion"`
	// ConflictRecall is the share of scripted conflict turns given their stage, and
	// StageRecall the same by stage.
	ConflictRecall Rate            `json:"conflict_recall"`
	StageRecall    map[string]Rate `json:"stage_recall,omitempty"`
	// AfterOther says for whom it answers after a turn of the other speaker.
	AfterOther AfterOther `json:"after_other"`
	// Consistent are the labels that stayed when the stages were listed the other way round.
	Consistent Rate `json:"consistent"`
	// Majority is the most frequent stage and its share of all answers.
	Majority      string  `json:"majority"`
	MajorityShare float64 `json:"majority_share"`
	Answers       int     `json:"answers"`
	// Grade is Reliable, Weak or DegenerateLabels; Qualified is true of Reliable, and Why
	// says why it is not.
	Grade     string   `json:"grade"`
	Qualified bool     `json:"qualified"`
	Why       []string `json:"why,omitempty"`
}

// AfterOther counts the turns of the other speaker whose recorded label differs from the
// last one of the conflict speaker, by which of the two the labeller gave.
type AfterOther struct {
	N        int `json:"n"`
	Conflict int `json:"conflict_speaker"` // the conflict speaker's stage, as asked
	Other    int `json:"other_speaker"`    // the stage of the turn's own speaker
}

// Rate is k of n.
type Rate struct {
	K int `json:"k"`
	N int `json:"n"`
}

// Labeller computes the card from the samples of the condition card, and the
// share of the most frequent stage from all labels. Without any card sample it
// is nil. recorded is the reliability of recorded labels; nil where it is unknown.
func Labeller(samples []run.Sample, recorded *dialogue.Agreement) (*LabellerCard, error) {
	units, keys := group(samples)
	c := &LabellerCard{Recorded: recorded, StageRecall: map[string]Rate{}}
	var pairs compared
	var answers []int
	cards := 0
	for _, k := range keys {
		u := units[k]
		l, unscored, ok, err := decode[Labels](u, StepLabel, k[0])
		if err != nil {
			return nil, err
		}
		if k[1] == Card {
			cards++
		}
		if !ok || unscored != "" {
			continue
		}
		for _, t := range append([]TurnLabel{l.Pre}, l.After...) {
			if d, ok := t.Dist(); ok {
				answers = append(answers, int(d.Argmax()))
			}
		}
		if k[1] != Card {
			continue
		}
		utt, _, _, err := decode[Utterance](u, StepUtterance, k[0])
		if err != nil {
			return nil, err
		}
		c.add(l, utt, &pairs)
	}
	if cards == 0 {
		return nil, nil
	}
	c.N, c.Answers = len(pairs.recorded), len(answers)
	if len(answers) > 0 {
		stage, share := stats.MajorityShare(answers)
		c.Majority, c.MajorityShare = dmis.Stage(stage).String(), share
	}
	return c, c.grade(pairs)
}

// compared are the recorded and the given labels of the same turns.
type compared struct {
	recorded, given []int
	contexts        []string
}

// add compares the labels of a recorded continuation.
func (c *LabellerCard) add(l Labels, utt Utterance, pairs *compared) {
	if pre, ok := l.Pre.Dist(); ok {
		r := c.StageRecall[utt.Stage]
		c.ConflictRecall.N, r.N = c.ConflictRecall.N+1, r.N+1
		if pre.Argmax().String() == utt.Stage {
			c.ConflictRecall.K, r.K = c.ConflictRecall.K+1, r.K+1
		}
		c.StageRecall[utt.Stage] = r
		if l.Again != nil {
			c.Consistent.N++
			if again, ok := l.Again.Dist(); ok && again.Argmax() == pre.Argmax() {
				c.Consistent.K++
			}
		}
	} else {
		c.Unscored++
	}
	last := utt.Stage // the conflict speaker's, as recorded
	for _, t := range l.After {
		want, err := dmis.ParseStage(t.Recorded)
		if err != nil {
			continue // a turn that carries no stage label
		}
		d, ok := t.Dist()
		switch {
		case ok && t.Own:
			pairs.recorded, pairs.given = append(pairs.recorded, int(want)), append(pairs.given, int(d.Argmax()))
			pairs.contexts = append(pairs.contexts, utt.Context)
			c.Confusion[want][d.Argmax()]++
		case t.Own:
			c.Unscored++
		case ok && t.Recorded != last:
			c.AfterOther.N++
			c.AfterOther.Conflict += btoi(d.Argmax().String() == last)
			c.AfterOther.Other += btoi(d.Argmax() == want)
		}
		if t.Own {
			last = t.Recorded
		}
	}
}

// grade computes kappa and says what the labels are worth.
func (c *LabellerCard) grade(pairs compared) error {
	c.Grade = Weak
	switch k, err := (stats.Bootstrap{Resamples: 10_000, Seed: 1}).Kappa(pairs.recorded, pairs.given, dmis.NumStages, pairs.contexts); {
	case c.N < leastCompared:
		c.degenerate(fmt.Sprintf("only %d labels could be compared; at least %d are needed", c.N, leastCompared))
	case err != nil:
		c.degenerate("kappa is undefined: " + err.Error())
	default:
		c.Kappa, c.Interval = k.Value, &k
		c.judge(k)
	}
	if c.Grade == DegenerateLabels {
		return nil // what else is wrong does not matter
	}
	for stage := dmis.Denial; stage <= dmis.Integration; stage++ {
		r := c.StageRecall[stage.String()]
		if lo, _ := stats.Wilson(r.K, r.N); r.N > 0 && lo <= 1.0/dmis.NumStages {
			c.Why = append(c.Why, fmt.Sprintf("it recognises %d of %d conflict turns of the stage %s, which is not above chance (1 in %d)", r.K, r.N, stage, dmis.NumStages))
		}
	}
	if a := c.AfterOther; a.N >= leastAfterOther && a.Other > a.Conflict {
		c.Why = append(c.Why, fmt.Sprintf("it answers for whoever spoke last: after the other speaker's turns it gives that speaker's stage in %d of %d, the conflict speaker's in %d", a.Other, a.N, a.Conflict))
	}
	if c.MajorityShare > MaxShare {
		c.Why = append(c.Why, fmt.Sprintf("%.0f %% of its answers are %s", 100*c.MajorityShare, c.Majority))
	}
	if len(c.Why) == 0 {
		c.Grade, c.Qualified = Reliable, true
	}
	return nil
}

// degenerate says that nothing rests on the labels.
func (c *LabellerCard) degenerate(why string) {
	c.Grade, c.NoKappa = DegenerateLabels, true
	c.Why = append(c.Why, why)
}

// judge holds kappa against the recorded labels' own.
func (c *LabellerCard) judge(k stats.Estimate) {
	if c.Recorded == nil || c.Recorded.Kappa.Value <= 0 {
		c.Why = append(c.Why, "nobody knows how reliable the labels are that it is held against: no turn was labelled twice")
		return
	}
	corrected := min(1, k.Value/math.Sqrt(c.Recorded.Kappa.Value))
	c.Corrected = &corrected
	least := ReliableShare * c.Recorded.Kappa.Value
	switch {
	case k.NoInterval == stats.OneGroup, k.NoInterval == stats.FewGroups:
		c.Why = append(c.Why, "quadratic kappa has no interval: "+k.NoInterval)
	case k.Lo < least:
		c.Why = append(c.Why, fmt.Sprintf("the lower bound of its quadratic kappa, %.2f, is below %.2f: %g of the recorded labels' own %.2f", k.Lo, least, ReliableShare, c.Recorded.Kappa.Value))
	}
}
