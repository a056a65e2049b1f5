package timing

import (
	"context"
	"fmt"

	"github.com/ccmed/ccmed/bench/report"
	"github.com/ccmed/ccmed/bench/task"
)

// waysToAsk says how a mode asks.
var waysToAsk = map[Mode]string{
	Stream:   "Asked after every turn whether a mediator should step in now",
	Pick:     "Asked once, with the whole dialogue before it, after which turn a mediator should step in",
	CoT:      "Asked once, after reasoning in words, after which turn a mediator should step in",
	given:    "With decisions made elsewhere",
	DualHead: "Asked through its decision head after every turn whether a mediator should step in now",
}

// Headline is the result in a minute.
func (r *Result) Headline(context.Context) (task.Headline, error) {
	return r.headline(), nil
}

func (r *Result) headline() task.Headline {
	m := r.Scored.Metrics
	h := task.Headline{Asked: waysToAsk[m.Mode]}
	if m.Scored == 0 {
		h.Sentence = fmt.Sprintf("gave no answer that could be scored in %d dialogues: nothing is known of its timing.", m.N)
		return h
	}
	accuracy := float64(m.Correct) / float64(m.Scored)
	value := report.Pct(m.Correct, m.Scored)
	if m.TurnAcc != nil {
		value = fmt.Sprintf("%s %s", value, percents(m.TurnAcc.Bounds()))
	}
	best := r.bestBaseline()
	h.Sentence = "steps in right after the conflict breaks out in " + value
	if best.Accuracy > 0 {
		h.Sentence += fmt.Sprintf("; the best rule without a language model (%s) does in %s", best.Name, best.Share())
	}
	warned := true
	switch {
	case m.DegenerateAnswer != "":
		h.Sentence += ". It gives the same answer " + m.DegenerateAnswer + ", which shows no sense of timing."
	case best.Accuracy >= accuracy:
		h.Sentence += ", so that this does not show that it understands when to step in."
	case m.TurnAcc != nil && best.Accuracy > 0 && m.TurnAcc.Lo <= best.Accuracy:
		h.Sentence += ". The interval holds that share: the model is not shown to be better than the rule."
	case len(r.Baselines) == 0:
		h.Sentence += ". No rule without a language model stands beside it, so that nobody knows how easy these dialogues are."
	default:
		h.Sentence += "."
		warned = false
	}
	baseline := ""
	if best.Accuracy > 0 {
		baseline = best.Share() + ", " + best.Name
	}
	h.Rows = append(h.Rows, task.HeadlineRow{Measure: "turn accuracy", Value: value, Baseline: baseline, Warned: warned})
	if m.AUROC != nil {
		rule, chance := "chance", 0.5
		for _, x := range []struct {
			name  string
			value float64
		}{{"position", m.AUROC.Position}, {"length of the turn", m.AUROC.Length}} {
			if x.value > chance {
				rule, chance = x.name, x.value
			}
		}
		h.Rows = append(h.Rows, task.HeadlineRow{Measure: "AUROC within a dialogue", Value: interval(m.AUROC.Within), Baseline: fmt.Sprintf("%.3f, %s", chance, rule),
			Warned: m.AUROC.Within.Value <= chance})
	}
	return h
}

// percents writes bounds of a share.
func percents(lo, hi float64) string { return fmt.Sprintf("[%.1f, %.1f]", 100*lo, 100*hi) }

// bestBaseline is the one with the highest accuracy; of none it is zero.
func (r *Result) bestBaseline() (best BaselineResult) {
	for _, b := range r.Baselines {
		if b.Accuracy > best.Accuracy {
			best = b
		}
	}
	return best
}
