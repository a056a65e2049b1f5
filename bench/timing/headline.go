package timing

import (
	"context"
	"fmt"

	"github.com/ccmed/ccmed/bench/report"
	"github.com/ccmed/ccmed/bench/task"
)

// waysToAsk says how a mode asks, after "was asked".
var waysToAsk = map[Mode]string{
	Stream:   "after every turn whether a mediator should step in now",
	Pick:     "once, with the whole dialogue before it, after which turn a mediator should step in",
	CoT:      "once, after reasoning in words, after which turn a mediator should step in",
	given:    "elsewhere when a mediator should step in",
	DualHead: "through its decision head after every turn whether a mediator should step in now",
}

// Headline is the result in a minute.
func (r *Result) Headline(context.Context) (task.Headline, error) {
	return r.headline(r.in.Identity().ModelNames()), nil
}

func (r *Result) headline(model string) task.Headline {
	m := r.Scored.Metrics
	h := task.Headline{Sentence: fmt.Sprintf("%s was asked %s, in %d dialogues.", model, waysToAsk[m.Mode], m.N)}
	if m.Scored == 0 {
		h.Sentence += " No answer could be scored, so that nothing can be said of its timing."
		return h
	}
	accuracy := float64(m.Correct) / float64(m.Scored)
	value := report.Pct(m.Correct, m.Scored)
	if m.TurnAcc != nil {
		value = fmt.Sprintf("%s %s", value, percents(m.TurnAcc.Bounds()))
	}
	best := r.bestBaseline()
	h.Sentence += fmt.Sprintf(" It steps in right after the conflict breaks out in %s", value)
	if best.Accuracy > 0 {
		h.Sentence += fmt.Sprintf("; the best rule without a language model (%s) does in %s", best.Name, best.Share())
	}
	h.Sentence += "."
	warned := true
	switch {
	case m.DegenerateAnswer != "":
		h.Sentence += " It gives the same answer " + m.DegenerateAnswer + ": this shows no sense of timing."
	case best.Accuracy >= accuracy:
		h.Sentence += " That does not show that it understands when to step in."
	case m.TurnAcc != nil && best.Accuracy > 0 && m.TurnAcc.Lo <= best.Accuracy:
		h.Sentence += " The interval holds that share: the model is not shown to be better than the rule."
	case len(r.Baselines) == 0:
		h.Sentence += " No rule without a language model stands beside it, so that nobody knows how easy these dialogues are."
	default:
		warned = false
	}
	baseline := ""
	if best.Accuracy > 0 {
		baseline = best.Share() + ", " + best.Name
	}
	h.Rows = append(h.Rows, task.HeadlineRow{Measure: "turn accuracy", Value: value, Baseline: baseline, Warned: warned})
	if m.AUROC != nil {
		rule, chance := "chance", 0.5
		for name, v := range map[string]float64{"position": m.AUROC.Position, "length of the turn": m.AUROC.Length} {
			if v > chance {
				rule, chance = name, v
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
