package construct

import (
	"encoding/json"
	"fmt"
	"strconv"

	"github.com/ccmed/ccmed/bench/dialogue"
	"github.com/ccmed/ccmed/bench/mediation"
)

// record is a conversation in the format of the released records.
type record struct {
	ID            int                     `json:"scenario_id"`
	Subset        string                  `json:"subset"`
	Metadata      metadata                `json:"metadata"`
	Prefix        []turnRecord            `json:"shared_prefix"`
	Continuations map[string]continuation `json:"continuations"`
	Pair          *pairRecord             `json:"preference_pair,omitempty"`
}

type metadata struct {
	Stage    string                       `json:"conflict_stage"`
	Turn     int                          `json:"conflict_turn"`
	Agent    string                       `json:"conflict_agent"`
	Turns    int                          `json:"max_turns"`
	Agents   map[string]agentRecord       `json:"agents"`
	Context  string                       `json:"scenario_context"`
	Axis     map[string]string            `json:"cultural_axis"`
	Goals    map[string]map[string]string `json:"goals"`
	Chosen   string                       `json:"mediator_model_chosen,omitempty"`
	Rejected string                       `json:"mediator_model_rejected,omitempty"`
	// What the released records do not have.
	Scenario  string `json:"scenario,omitempty"`
	Question  string `json:"value_question,omitempty"`
	Dimension string `json:"value_dimension,omitempty"`
}

type agentRecord struct {
	Name        string `json:"name"`
	Age         int    `json:"age,omitempty"`
	Gender      string `json:"gender,omitempty"`
	Nationality string `json:"nationality"`
	Occupation  string `json:"occupation,omitempty"`
}

type turnRecord struct {
	T       any    `json:"t"` // a number, of a mediator a text
	Speaker string `json:"speaker"`
	Agent   string `json:"agent"`
	Message string `json:"message"`
	Phase   string `json:"phase"`
	Label   string `json:"label"`
}

type continuation struct {
	Path      string         `json:"path_label,omitempty"`
	Turn      int            `json:"intervention_turn,omitempty"`
	Mediator  string         `json:"mediator_model,omitempty"`
	Utterance string         `json:"mediator_utterance,omitempty"`
	Metrics   *metricsRecord `json:"metrics,omitempty"`
	Turns     []turnRecord   `json:"turns"`
}

type metricsRecord struct {
	AUC  float64 `json:"trajectory_auc"`
	W1   float64 `json:"signed_w1"`
	Turn int     `json:"intervention_turn"`
}

type pairRecord struct {
	Chosen   string             `json:"chosen"`
	Rejected string             `json:"rejected"`
	Deltas   map[string]float64 `json:"delta_metrics"`
}

// mediatedPath is a path with its labels and what it gains.
type mediatedPath struct {
	Path
	labels   PathLabels
	gain     gain
	mediator string // the model
}

func agentName(agent int) string {
	if agent == dialogue.Mediator {
		return "mediator"
	}
	return "agent_" + strconv.Itoa(agent)
}

// recordOf writes a conversation as a record, with its mediated paths where it has some.
func recordOf(l Labelled, positive, negative *mediatedPath) record {
	c := l.Case
	r := record{ID: c.ID, Subset: "constructed", Continuations: map[string]continuation{}, Metadata: metadata{Stage: c.Stage, Turn: c.Turn, Agent: agentName(c.Agent),
		Turns: lastTurn, Context: c.Scenario.Context, Agents: map[string]agentRecord{}, Axis: map[string]string{}, Goals: map[string]map[string]string{},
		Scenario: c.Scenario.ID, Question: c.Scenario.Question, Dimension: c.Scenario.Dimension}}
	for i, p := range c.Scenario.People {
		name := agentName(i + 1)
		r.Metadata.Agents[name] = agentRecord{p.Name, p.Age, p.Gender, p.Country, p.Occupation}
		r.Metadata.Axis[name+"_value"] = p.Value
		goals := map[string]string{}
		for k, g := range p.Goals {
			goals["goal_"+strconv.Itoa(k+1)] = g
		}
		r.Metadata.Goals[name] = goals
	}
	original := continuation{Turns: []turnRecord{}}
	for i, t := range l.Turns {
		label := ""
		if i < len(l.Labels) {
			label = l.Labels[i].name(c)
		}
		turn := c.turnRecord(t, phaseOf(t.T, c.Turn), label)
		if t.T <= c.Turn {
			r.Prefix = append(r.Prefix, turn)
		} else {
			original.Turns = append(original.Turns, turn)
		}
	}
	r.Continuations["original"] = original
	if positive != nil && negative != nil {
		r.Metadata.Chosen, r.Metadata.Rejected = positive.mediator, negative.mediator
		r.Continuations[Positive], r.Continuations[Negative] = positive.record("turn_gt_w_df"), negative.record("turn_random_wo_df")
		r.Pair = &pairRecord{Positive, Negative, map[string]float64{"delta_trajectory_auc": positive.gain.AUC - negative.gain.AUC,
			"delta_signed_w1": positive.gain.W1 - negative.gain.W1}}
	}
	return r
}

// name is the label of a turn as records have it: what it is there for before the conflict,
// and the stage of its own speaker from there on.
func (l Labels) name(c Case) string {
	switch {
	case l.Phase == phaseConflict:
		return c.Stage
	case l.First != nil:
		return l.First.Stage
	case l.OnTopic == nil:
		return ""
	case *l.OnTopic >= 0.5:
		return "transition"
	}
	return "unrelated_topic"
}

func (c Case) turnRecord(t Said, phase, label string) turnRecord {
	r := turnRecord{T: t.T, Agent: agentName(t.Agent), Message: t.Text, Phase: phase, Label: label}
	if t.Agent == dialogue.Mediator {
		r.T, r.Speaker = fmt.Sprintf("after_t%d_mediator", t.T), "Mediator"
		return r
	}
	r.Speaker = c.Scenario.People[t.Agent-1].Name
	return r
}

func (p *mediatedPath) record(label string) continuation {
	c := p.Of.Case
	own := map[int]string{}
	for _, l := range append(append([]mediation.TurnLabel(nil), p.labels.After...), p.labels.Other...) {
		if l.Own {
			own[l.Turn] = l.Stage
		}
	}
	out := continuation{Path: label, Turn: p.Line.Turn, Mediator: p.mediator, Utterance: p.Line.Text, Metrics: &metricsRecord{p.gain.AUC, p.gain.W1, p.Line.Turn}}
	mediator := c.turnRecord(Said{T: p.Line.Turn, Agent: dialogue.Mediator, Text: p.Line.Text}, "mediation", "mediation")
	if p.Line.Turn <= c.Turn {
		out.Turns = append(out.Turns, mediator)
	}
	for _, t := range p.Turns {
		out.Turns = append(out.Turns, c.turnRecord(t, phaseAfter, own[t.T]))
		if t.T == p.Line.Turn {
			out.Turns = append(out.Turns, mediator)
		}
	}
	return out
}

// parse reads the record as ccmed data does.
func (r record) parse() (dialogue.Dialogue, error) {
	b, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return dialogue.Dialogue{}, fmt.Errorf("encode a record: %w", err)
	}
	return dialogue.Parse("case "+strconv.Itoa(r.ID), append(b, '\n'))
}
