package ccbench

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"

	"github.com/ccmed/ccmed/bench/ccbench/build"
	"github.com/ccmed/ccmed/bench/ccbench/norm"
	"github.com/ccmed/ccmed/bench/run"
	"github.com/ccmed/ccmed/bench/task"
	"github.com/ccmed/ccmed/infer"
)

// Answer is the data of the step "answer".
type Answer struct {
	Culture  string `json:"culture,omitempty"`
	Persona  string `json:"persona,omitempty"` // "" where the answer knows of none
	Query    string `json:"query,omitempty"`
	Topic    string `json:"topic,omitempty"`
	Question string `json:"question,omitempty"`
	Cues     string `json:"cues,omitempty"`
	CuesCut  bool   `json:"cues_cut,omitempty"` // the cues end at their cap of tokens
	Text     string `json:"text"`
	// Dropped counts the oldest sessions that the prompt does not hold.
	Dropped int `json:"dropped,omitempty"`
}

// Judged is the data of the step "judge".
type Judged struct {
	Culture string `json:"culture,omitempty"`
	Persona string `json:"persona,omitempty"`
	Query   string `json:"query,omitempty"`
	Topic   string `json:"topic,omitempty"`
	Items   []Item `json:"items"`
}

// Item is a statement about an answer, and what the judge says of it.
type Item struct {
	Norm   string `json:"norm,omitempty"`
	Kind   string `json:"kind,omitempty"`
	Stance string `json:"stance,omitempty"` // follow or avoid: whom the statement fits
	Text   string `json:"text"`
	// Of are the personas whose stance it is. Of an answer to a persona of the opposite
	// stance there are none: the item is judged for the others.
	Of []string `json:"of,omitempty"`
	// Lost says that the sessions that showed the persona's stance were dropped.
	Lost bool `json:"lost,omitempty"`
	// P is the probability of yes, of yes and no together.
	P        float64 `json:"p"`
	Unscored string  `json:"unscored,omitempty"`
	// Negated is P of the statement's opposite, of every tenth item.
	Negated *float64 `json:"negated,omitempty"`
	// Label is what a person said of the item, yes or no, on the card.
	Label string `json:"label,omitempty"`
}

// yes says whether the item is fulfilled.
func (it Item) yes() bool { return it.P >= 0.5 }

// unit is an answer that is to be had and judged.
type unit struct {
	setting, culture, persona string
	query                     build.Query
	kept                      []build.Session
	dropped                   int
	stances                   []build.Stance
	items                     []Item
	given                     string // of conditions that ask no model
}

// asks says whether a model writes the answer.
func (u unit) asks() bool { return slices.Contains(settingNames, u.setting) }

// longest is the longest prompt of the unit, but for its answer.
func (u unit) longest(o Options) (infer.Prompt, bool) {
	if !u.asks() {
		return infer.Prompt{}, false
	}
	p := adviserPrompt(u.setting, u.kept, u.stances, u.query.Text)
	if u.setting == CultureCoT {
		p = withCues(p, filler(o.CueTokens), u.query.Text)
	}
	return p, true
}

// unitsOf lists the answers of a run, those of a persona together, and their items' names.
// What does not depend on the persona is asked once a culture.
func unitsOf(b *build.Build, settings []string, o Options) (units []run.Unit[unit], items []string) {
	add := func(name, group string, u unit) {
		if len(u.items) == 0 {
			return
		}
		if !slices.Contains(items, name) {
			items = append(items, name)
		}
		units = append(units, run.Unit[unit]{Item: name, Condition: u.setting, Group: group, Value: u})
	}
	for _, c := range b.Cultures {
		for _, setting := range []string{None, Empty, Generic} {
			if setting == None && !slices.Contains(settings, None) {
				continue
			}
			for _, q := range b.Queries {
				u := unit{setting: setting, culture: c.Culture.ID, query: q, items: itemsOfAll(c, q)}
				if setting == Generic {
					u.given = generic
				}
				add(c.Culture.ID+" "+q.ID, c.Culture.ID, u)
			}
		}
		for _, p := range c.Personas {
			kept, dropped := p.Within(o.Budget)
			lost := p.Lost(dropped)
			for _, setting := range []string{Norms, History, CultureCoT} {
				if !slices.Contains(settings, setting) {
					continue
				}
				for _, q := range b.Queries {
					u := unit{setting: setting, culture: c.Culture.ID, persona: p.ID, query: q, stances: c.Stances(p.Persona), items: itemsOf(c, p.Persona, q)}
					if setting != Norms {
						u.kept, u.dropped = kept, dropped
						for i := range u.items {
							u.items[i].Lost = slices.Contains(lost, u.items[i].Norm)
						}
					}
					add(p.ID+" "+q.ID, p.ID, u)
				}
			}
		}
	}
	return units, items
}

// itemOf is the item of a norm for those who have a stance towards it.
func itemOf(n norm.Norm, s norm.State, of ...string) Item {
	text := n.Follow
	if s == norm.Avoid {
		text = n.Avoid
	}
	return Item{Norm: n.ID, Kind: n.Kind, Stance: s.String(), Text: text, Of: of}
}

// itemsOf are the persona's items and, where another persona has the opposite stance, that
// one's, by which the answer is a swapped one.
func itemsOf(c build.Culture, p norm.Persona, q build.Query) (out []Item) {
	for _, s := range c.Items(p, q) {
		out = append(out, itemOf(s.Norm, s.State, p.ID))
		if len(holders(c, s.Norm, -s.State)) > 0 {
			out = append(out, itemOf(s.Norm, -s.State))
		}
	}
	return out
}

// itemsOfAll are the items of all personas of a culture.
func itemsOfAll(c build.Culture, q build.Query) (out []Item) {
	for _, n := range c.Culture.Norms {
		if !n.Textual || !slices.Contains(q.Norms, n.ID) {
			continue
		}
		for _, s := range []norm.State{norm.Follow, norm.Avoid} {
			if of := holders(c, n, s); len(of) > 0 {
				out = append(out, itemOf(n, s, of...))
			}
		}
	}
	return out
}

// holders are the personas of a culture that have a stance towards a norm.
func holders(c build.Culture, n norm.Norm, s norm.State) (out []string) {
	for _, p := range c.Personas {
		if n.AppliesTo(p.Persona) && p.State(n) == s {
			out = append(out, p.ID)
		}
	}
	return out
}

// Task has every unit answered and every answer judged.
func Task(units []run.Unit[unit], o Options) run.Task[unit] {
	return run.Task[unit]{Name: "ccbench", Units: units, Steps: []run.Step[unit]{
		{Name: StepAnswer, Role: RoleAdviser, Do: func(ctx context.Context, b infer.Backend, u run.Unit[unit], _ run.Lookup) (run.Sample, error) {
			return task.Sample(answer(ctx, b, u.Value, o))
		}},
		{Name: StepJudge, Role: RoleJudge, Do: func(ctx context.Context, b infer.Backend, u run.Unit[unit], look run.Lookup) (run.Sample, error) {
			a, unscored, err := task.Earlier[Answer](look, StepAnswer)
			if err != nil || unscored != "" {
				return task.Sample(u.Value.judged(), unscored, err)
			}
			return task.Sample(judge(ctx, b, u.Value, a, o))
		}}}}
}

// params are those of an answer. The seed depends on the query alone, so that answers differ
// by what the model is shown.
func (u unit) params(o Options, tokens int, what string) infer.Params {
	h := sha256.Sum256(fmt.Appendf(nil, "%d\x00%s\x00%s", o.Seed, u.query.ID, what))
	return infer.Params{MaxTokens: tokens, Temperature: temperature, TopP: 1, Seed: int64(binary.BigEndian.Uint32(h[:]) >> 1)}
}

const answerCut = "the answer is cut at its cap of tokens"

// answer has the adviser answer a query. why is not empty where the answer cannot be judged.
func answer(ctx context.Context, b infer.Backend, u unit, o Options) (a Answer, why string, err error) {
	a = Answer{Culture: u.culture, Persona: u.persona, Query: u.query.ID, Topic: u.query.Topic, Question: u.query.Text, Text: u.given, Dropped: u.dropped}
	if !u.asks() {
		return a, "", nil
	}
	p := adviserPrompt(u.setting, u.kept, u.stances, u.query.Text)
	if u.setting == CultureCoT {
		r, err := b.Chat(ctx, p, u.params(o, o.CueTokens, "cues"))
		if err != nil {
			return a, "", err
		}
		if a.Cues, a.CuesCut = strings.TrimSpace(r.Text), r.Stop == infer.StopLength; a.Cues == "" {
			return a, "the model names no cues: its reply is empty", nil
		}
		p = withCues(p, a.Cues, u.query.Text)
	}
	r, err := b.Chat(ctx, p, u.params(o, o.MaxTokens, "answer"))
	if err != nil {
		return a, "", err
	}
	switch a.Text = strings.TrimSpace(r.Text); {
	case r.Stop == infer.StopLength:
		why = answerCut
	case a.Text == "":
		why = "the answer is empty"
	}
	return a, why, nil
}

func (u unit) judged() Judged {
	return Judged{Culture: u.culture, Persona: u.persona, Query: u.query.ID, Topic: u.query.Topic, Items: []Item{}}
}

// askedTwice says whether an item is asked in the negative as well: a tenth are, the same
// ones in every setting.
func askedTwice(it Item, query string) bool {
	h := sha256.Sum256(fmt.Appendf(nil, "%s\x00%s\x00%s", it.Norm, it.Stance, query))
	return binary.BigEndian.Uint32(h[:])%10 == 0
}

// judge asks for every item of an answer whether it is fulfilled.
func judge(ctx context.Context, b infer.Backend, u unit, a Answer, o Options) (j Judged, why string, err error) {
	j = u.judged()
	j.Items = slices.Clone(u.items)
	of := judgement(u.query.Text, a.Text)
	var prompts []infer.Prompt
	var twice []int
	for i, it := range j.Items {
		prompts = append(prompts, of.item(it.Text))
		if u.setting != Card && askedTwice(it, u.query.ID) {
			twice = append(twice, i)
		}
	}
	for _, i := range twice {
		prompts = append(prompts, of.item(negated(j.Items[i].Text)))
	}
	cs, err := b.Choose(ctx, prompts, infer.Words("yes", "no"), infer.Params{Seed: o.Seed, TopP: 1})
	if err != nil {
		return j, "", err
	}
	for k, c := range cs {
		p, unscored := share(c, o.MinMass)
		if k < len(j.Items) {
			j.Items[k].P, j.Items[k].Unscored = p, unscored
		} else if unscored == "" {
			j.Items[twice[k-len(j.Items)]].Negated = &p
		}
	}
	return j, "", nil
}

// share is the probability of yes, of yes and no together.
func share(c infer.Choice, least float64) (p float64, unscored string) {
	switch {
	case c.Unscored != "":
		return 0, c.Unscored
	case c.Mass < least || c.Mass <= 0:
		return 0, fmt.Sprintf("yes and no got %.3g of the probability, less than %g", c.Mass, least)
	}
	return c.P[0] / c.Mass, ""
}
