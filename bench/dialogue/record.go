package dialogue

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode"

	"github.com/ccmed/ccmed/bench/dmis"
	"github.com/ccmed/ccmed/bench/strictjson"
)

// The record as it is written. A turn's t is a number or, for mediators, a text.
type record struct {
	ID       *int   `json:"scenario_id"`
	Subset   string `json:"subset"`
	Metadata struct {
		Stage   string `json:"conflict_stage"`
		Turn    int    `json:"conflict_turn"`
		Agent   string `json:"conflict_agent"`
		Context string `json:"scenario_context"`
		Agents  map[string]struct {
			Name        string `json:"name"`
			Age         int    `json:"age"`
			Gender      string `json:"gender"`
			Nationality string `json:"nationality"`
			Occupation  string `json:"occupation"`
		} `json:"agents"`
		Values struct {
			One string `json:"agent_1_value"`
			Two string `json:"agent_2_value"`
		} `json:"cultural_axis"`
		Goals map[string]map[string]string `json:"goals"`
	} `json:"metadata"`
	Prefix        []turnRecord                   `json:"shared_prefix"`
	Continuations map[string]*continuationRecord `json:"continuations"`
}

type turnRecord struct {
	T       json.RawMessage `json:"t"`
	Speaker string          `json:"speaker"`
	Agent   string          `json:"agent"`
	Message string          `json:"message"`
	Phase   string          `json:"phase"`
	Label   string          `json:"label"`
}

type continuationRecord struct {
	Turn      int          `json:"intervention_turn"`
	Utterance string       `json:"mediator_utterance"`
	Judge     *int         `json:"judge_score"`
	Turns     []turnRecord `json:"turns"`
	Metrics   struct {
		AUC *float64 `json:"trajectory_auc"`
	} `json:"metrics"`
}

var agentNumber = map[string]int{"agent_1": 1, "agent_2": 2, "mediator": Mediator}

// checker collects what is wrong with one record.
type checker struct {
	file     string
	problems []Problem
}

func (c *checker) add(field string, value any, what, remedy string) {
	v := ""
	if value != nil {
		b, err := json.Marshal(value)
		if err != nil {
			b = fmt.Append(nil, value)
		}
		if v = string(b); len(v) > 60 {
			v = strings.ToValidUTF8(v[:60], "") + "…"
		}
	}
	c.problems = append(c.problems, Problem{c.file, field, v, what, remedy})
}

const maxAge = 150 // in years

// name refuses names that would not stay the name of one speaker in a transcript.
func (c *checker) name(field, name string) {
	switch {
	case strings.ContainsFunc(name, unicode.IsControl) || OneLine(name) != name:
		c.add(field, name, "a name with a control character or a line break", "write the name in one line of letters")
	case strings.EqualFold(strings.TrimSpace(name), "mediator"), strings.EqualFold(strings.TrimSpace(name), "me"):
		c.add(field, name, "prompts use this name for somebody else", "give the speaker another name")
	}
}

// Parse reads and checks one record and keeps it whole, for Write. name is the file that the
// problem, if there is one, names.
func Parse(name string, raw []byte) (Dialogue, error) {
	d, problems := parse(name, raw)
	if len(problems) > 0 {
		return Dialogue{}, problems[0]
	}
	return d, nil
}

// parse reads and checks one record.
func parse(file string, raw []byte) (Dialogue, []Problem) {
	c := &checker{file: file}
	var r record
	if len(bytes.TrimSpace(raw)) == 0 {
		c.add("", nil, "not JSON: there is nothing", "mend or remove it; it may be a download that broke off")
		return Dialogue{}, c.problems
	}
	if err := strictjson.Unmarshal(raw, &r, strictjson.RefuseNUL, strictjson.RefuseNullEntries); err != nil {
		var e *strictjson.Error
		switch {
		case !errors.As(err, &e):
			c.add("", nil, "not JSON: "+err.Error(), "mend or remove it")
		case strings.HasPrefix(e.What, "not JSON") && e.Field != "":
			c.add("", nil, fmt.Sprintf("%s (byte %d, in the field %s)", e.What, e.Offset, e.Field), e.Remedy)
		case e.Field == "" && e.Unwrap() != nil:
			c.add("", nil, e.What, "write one record a file, or one a line of a .jsonl file")
		case e.Field == "" && e.Offset > 0:
			c.add("", nil, fmt.Sprintf("%s (byte %d)", e.What, e.Offset), e.Remedy)
		default:
			c.add(e.Field, nil, e.What, e.Remedy)
		}
		return Dialogue{}, c.problems
	}
	m := r.Metadata
	d := Dialogue{Subset: r.Subset, ConflictTurn: m.Turn, ConflictAgent: agentNumber[m.Agent], Context: OneLine(m.Context),
		values: [2]string{OneLine(m.Values.One), OneLine(m.Values.Two)}, raw: slices.Clone(raw)}
	var compact bytes.Buffer
	if err := json.Compact(&compact, raw); err == nil {
		d.sum = sha256.Sum256(compact.Bytes())
	}
	if r.ID == nil {
		c.add("scenario_id", nil, "missing", "give the record a number")
	} else {
		d.ID = *r.ID
	}
	if strings.TrimSpace(m.Context) == "" {
		c.add("metadata.scenario_context", nil, "missing", "write the scene in a sentence; dialogues are grouped by it")
	}
	for i, name := range []string{"agent_1", "agent_2"} {
		a := m.Agents[name]
		d.agents[i] = agent{a.Name, OneLine(a.Gender), OneLine(a.Nationality), OneLine(a.Occupation), a.Age}
		c.name("metadata.agents."+name+".name", a.Name)
		if a.Age < 0 || a.Age > maxAge {
			c.add("metadata.agents."+name+".age", a.Age, fmt.Sprintf("outside 0 to %d years", maxAge), "give the age, or leave it out where it is not known")
		}
		for _, k := range slices.Sorted(maps.Keys(m.Goals[name])) {
			if strings.TrimSpace(m.Goals[name][k]) == "" {
				c.add("metadata.goals."+name+"."+k, m.Goals[name][k], "empty", "write the goal, or take it out")
			}
			d.goals[i] = append(d.goals[i], OneLine(m.Goals[name][k]))
		}
	}
	var err error
	if d.Stage, err = dmis.ParseStage(m.Stage); err != nil {
		c.add("metadata.conflict_stage", m.Stage, "unknown stage", "use a DMIS stage, such as Denial, Defense or Minimization")
	}
	if len(r.Prefix) == 0 {
		c.add("shared_prefix", nil, "no turns", "the conversation up to the conflict belongs here")
	}
	original := r.Continuations["original"]
	if original == nil {
		original = &continuationRecord{}
		c.add("continuations.original", nil, "missing", "the conversation after the conflict belongs here; its turns may be empty")
	}
	d.prefix = c.turns("shared_prefix", r.Prefix, 1, &d)
	d.original = c.turns("continuations.original.turns", original.Turns, len(r.Prefix)+1, &d)
	d.positive = c.continuation("positive", r, &d)
	d.negative = c.continuation("negative", r, &d)
	switch agent := d.ConflictAgent; {
	case agent != 1 && agent != 2:
		c.add("metadata.conflict_agent", m.Agent, "unknown agent", "use agent_1 or agent_2")
	case len(r.Prefix) == 0:
	case m.Turn < 1 || m.Turn > len(r.Prefix):
		c.add("metadata.conflict_turn", m.Turn, fmt.Sprintf("outside the shared prefix (1 to %d)", len(r.Prefix)), "give the turn in which the conflict breaks out")
	case m.Turn < len(r.Prefix):
		c.add("metadata.conflict_turn", m.Turn, fmt.Sprintf("the shared prefix goes on to turn %d", len(r.Prefix)), "end the prefix with the conflict; what follows belongs to the continuations")
	case len(c.problems) == 0 && d.prefix[m.Turn-1].Agent != agent:
		c.add("metadata.conflict_agent", m.Agent, fmt.Sprintf("turn %d is spoken by agent_%d", m.Turn, d.prefix[m.Turn-1].Agent), "make both agree")
	}
	return d, c.problems
}

func (c *checker) continuation(kind string, r record, d *Dialogue) *continuation {
	in := r.Continuations[kind]
	if in == nil {
		return nil
	}
	if last := len(r.Prefix) + len(in.Turns); in.Turn < 0 || in.Turn > last {
		c.add("continuations."+kind+".intervention_turn", in.Turn, fmt.Sprintf("not a turn of the dialogue (1 to %d)", last), "give the turn after which the mediator speaks")
	}
	if in.Judge != nil && (*in.Judge < 1 || *in.Judge > 5) {
		c.add("continuations."+kind+".judge_score", *in.Judge, "outside 1 to 5", "give the judge's score, or null where there is none")
	}
	return &continuation{utterance: in.Utterance, turn: in.Turn, judge: in.Judge, auc: in.Metrics.AUC,
		turns: c.turns("continuations."+kind+".turns", in.Turns, len(r.Prefix)+1, d)}
}

// turns checks turns that must run from first without a gap, mediators' left
// out, and resolves who speaks.
func (c *checker) turns(field string, in []turnRecord, first int, d *Dialogue) []Turn {
	out := make([]Turn, 0, len(in))
	for i, t := range in {
		at := func(name string) string { return fmt.Sprintf("%s[%d].%s", field, i, name) }
		agent, known := agentNumber[t.Agent]
		switch {
		case !known || agent == Mediator && field == "shared_prefix":
			c.add(at("agent"), t.Agent, "unknown agent", "use agent_1 or agent_2")
			return nil
		case agent == Mediator:
			continue
		}
		want := first + len(out)
		if strings.TrimSpace(string(t.T)) != fmt.Sprint(want) {
			c.add(at("t"), t.T, fmt.Sprintf("turns run from %d without a gap: %d is expected here", first, want), "number and order the turns")
			return nil
		}
		if agent != 2-want%2 {
			c.add(at("agent"), t.Agent, fmt.Sprintf("turn %d is agent_%d's: agent_1 speaks the odd turns", want, 2-want%2), "let the speakers take turns, agent_1 first")
			return nil
		}
		if strings.TrimSpace(t.Message) == "" {
			c.add(at("message"), t.Message, "empty", "every turn needs its text")
			return nil
		}
		speaker := d.Name(agent)
		if speaker == "" {
			speaker = t.Speaker
			c.name(at("speaker"), speaker)
		}
		out = append(out, Turn{T: want, Speaker: speaker, Agent: agent, Message: t.Message, Label: t.Label, Phase: t.Phase})
	}
	return out
}
