package mediation

import (
	"fmt"

	"github.com/ccmed/ccmed/bench/dmis"
	"github.com/ccmed/ccmed/bench/run"
	"github.com/ccmed/ccmed/bench/stats"
)

// A labeller is qualified with a quadratic kappa of at least MinKappa against
// recorded labels and with at most MaxShare of its answers in one class.
const (
	MinKappa = 0.6
	MaxShare = 0.8
)

// LabellerCard says how far a labeller can be trusted. It stands beside every
// AUC.
type LabellerCard struct {
	// N recorded labels were compared; Unscored more could not be.
	N        int `json:"n"`
	Unscored int `json:"unscored"`
	// Kappa is the quadratic-weighted agreement with the recorded labels; Why says
	// so where NoKappa is true and it was not computed.
	Kappa   float64 `json:"kappa"`
	NoKappa bool    `json:"no_kappa,omitempty"`
	// Confusion counts recorded (rows) against given stages, index 0..5.
	Confusion [6][6]int `json:"confusion"`
	// ConflictRecall is the share of scripted conflict turns given their stage.
	ConflictRecall Rate `json:"conflict_recall"`
	// Consistent repeats of a label gave the same stage.
	Consistent Rate `json:"consistent"`
	// Majority is the most frequent stage and its share of all answers.
	Majority      string   `json:"majority"`
	MajorityShare float64  `json:"majority_share"`
	Answers       int      `json:"answers"`
	Qualified     bool     `json:"qualified"`
	Why           []string `json:"why,omitempty"` // why it is not qualified
}

// Rate is k of n.
type Rate struct {
	K int `json:"k"`
	N int `json:"n"`
}

// Labeller computes the card from the samples of the condition card, and the
// share of the most frequent stage from all labels. Without any card sample it
// is nil.
func Labeller(samples []run.Sample) (*LabellerCard, error) {
	units, keys := group(samples)
	c := &LabellerCard{}
	var recorded, given, answers []int
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
		all := append([]TurnLabel{l.Pre}, l.After...)
		for _, t := range all {
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
		pre, scored := l.Pre.Dist()
		if scored {
			c.ConflictRecall.N++
			if pre.Argmax().String() == utt.Stage {
				c.ConflictRecall.K++
			}
			if l.Again != nil {
				c.Consistent.N++
				if again, ok := l.Again.Dist(); ok && again.Argmax() == pre.Argmax() {
					c.Consistent.K++
				}
			}
		} else {
			c.Unscored++
		}
		for _, t := range l.After {
			want, err := dmis.ParseStage(t.Recorded)
			if err != nil {
				continue // a turn that carries no stage label
			}
			d, ok := t.Dist()
			if !ok {
				c.Unscored++
				continue
			}
			recorded, given = append(recorded, int(want)), append(given, int(d.Argmax()))
			c.Confusion[want][d.Argmax()]++
		}
	}
	if cards == 0 {
		return nil, nil
	}
	c.N, c.Answers = len(recorded), len(answers)
	if len(answers) > 0 {
		stage, share := stats.MajorityShare(answers)
		c.Majority, c.MajorityShare = dmis.Stage(stage).String(), share
	}
	const least = 30
	switch k, err := stats.QuadraticKappa(recorded, given, 6); {
	case c.N < least:
		c.NoKappa = true
		c.Why = append(c.Why, fmt.Sprintf("only %d labels could be compared; at least %d are needed", c.N, least))
	case err != nil:
		c.NoKappa = true
		c.Why = append(c.Why, "kappa is undefined: "+err.Error())
	default:
		c.Kappa = k
		if k < MinKappa {
			c.Why = append(c.Why, fmt.Sprintf("quadratic kappa %.2f is below %.1f", k, MinKappa))
		}
	}
	if c.MajorityShare > MaxShare {
		c.Why = append(c.Why, fmt.Sprintf("%.0f %% of its answers are %s", 100*c.MajorityShare, c.Majority))
	}
	c.Qualified = len(c.Why) == 0
	return c, nil
}
