package dialogue

import (
	"fmt"

	"github.com/ccmed/ccmed/bench/dmis"
	"github.com/ccmed/ccmed/bench/stats"
)

// Agreement is how far two labels of one turn agree.
type Agreement struct {
	Turns int `json:"turns"` // labelled twice
	Agree int `json:"agree"` // with the same stage both times
	// Kappa is the quadratic-weighted one, with its interval by scenario context. A
	// labeller as good as the recorded one reaches about as much against recorded labels,
	// and one without any error about its square root.
	Kappa stats.Estimate `json:"kappa"`
}

// LabelReliability says how reliable the recorded stage labels are: the turns of the
// unmediated continuation that the rejected one repeats, word for word after the same
// words, were labelled twice. own counts the conflict speakers' turns alone. Without such
// turns, or where all have one label, an Agreement is nil.
func LabelReliability(ds []Dialogue, seed uint64) (all, own *Agreement, err error) {
	var both, theirs labelPairs
	for _, d := range ds {
		if d.negative == nil {
			continue
		}
		for i, t := range d.negative.turns {
			// From the turn on at which the mediator has spoken the histories differ.
			if i >= len(d.original) || t.T > d.negative.turn || t.Message != d.original[i].Message || t.Agent != d.original[i].Agent {
				break
			}
			x, errX := dmis.ParseStage(d.original[i].Label)
			y, errY := dmis.ParseStage(t.Label)
			if errX != nil || errY != nil {
				continue
			}
			both.add(x, y, d.ContextKey())
			if t.Agent == d.ConflictAgent {
				theirs.add(x, y, d.ContextKey())
			}
		}
	}
	if all, err = both.agreement(seed); err != nil {
		return nil, nil, err
	}
	own, err = theirs.agreement(seed)
	return all, own, err
}

// labelPairs are two labels of each of some turns, and the turns' contexts.
type labelPairs struct {
	first, second []int
	contexts      []string
}

func (p *labelPairs) add(x, y dmis.Stage, context string) {
	p.first, p.second, p.contexts = append(p.first, int(x)), append(p.second, int(y)), append(p.contexts, context)
}

func (p *labelPairs) agreement(seed uint64) (*Agreement, error) {
	if _, err := stats.QuadraticKappa(p.first, p.second, dmis.NumStages); err != nil {
		return nil, nil // nothing was labelled twice, or all alike
	}
	a := &Agreement{Turns: len(p.first)}
	for i := range p.first {
		if p.first[i] == p.second[i] {
			a.Agree++
		}
	}
	var err error
	if a.Kappa, err = (stats.Bootstrap{Resamples: 10_000, Seed: seed}).Kappa(p.first, p.second, dmis.NumStages, p.contexts); err != nil {
		return nil, fmt.Errorf("interval of the recorded labels' kappa: %w", err)
	}
	return a, nil
}
