package sft

import "github.com/ccmed/ccmed/bench/dialogue"

// Overlap counts how many of a set also occur in the training data.
type Overlap struct {
	Shared int `json:"shared"`
	Of     int `json:"of"`
}

// Leaks says what an evaluated set shares with the training data, training and
// validation together. A score on it is not one of unseen scenes as far as it
// shares them.
type Leaks struct {
	Contexts  Overlap `json:"contexts"`  // dialogues whose scenario context is trained on
	Templates Overlap `json:"templates"` // dialogues whose question is trained on
	Values    Overlap `json:"values"`    // distinct value statements, country and side included
	Countries Overlap `json:"countries"` // dialogues with both countries trained on, be it with others
}

// leaks compares an evaluated set with the training data.
func leaks(evaluated, training []dialogue.Dialogue) Leaks {
	var l Leaks
	l.Contexts.Shared, l.Contexts.Of = dialogue.SharedContexts(evaluated, training)
	templates, values, countries := map[string]bool{}, map[string]bool{}, map[string]bool{}
	for _, d := range training {
		templates[dialogue.Question(d.Template())] = true
		for agent := 1; agent <= 2; agent++ {
			values[d.Value(agent)] = true
		}
		for _, c := range d.Countries() {
			countries[c] = true
		}
	}
	statements := map[string]bool{}
	for _, d := range evaluated {
		if t := dialogue.Question(d.Template()); t != "" {
			l.Templates.count(templates[t])
		}
		for agent := 1; agent <= 2; agent++ {
			if v := d.Value(agent); v != "" && !statements[v] {
				statements[v] = true
				l.Values.count(values[v])
			}
		}
		if cs := d.Countries(); len(cs) > 0 {
			all := true
			for _, c := range cs {
				all = all && countries[c]
			}
			l.Countries.count(all)
		}
	}
	return l
}

func (o *Overlap) count(shared bool) {
	o.Of++
	if shared {
		o.Shared++
	}
}
