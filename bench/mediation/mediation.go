// Package mediation asks a model to mediate a cross-cultural conflict, lets the
// two speakers go on, and follows how the conflict speaker's stance changes.
//
// Four steps, each with its own model role: the mediator says something at the
// conflict turn (utterance), a simulator plays both speakers to the last turn
// (simulate), a labeller gives the DMIS stage distribution before the mediation
// and after every later turn (label), and a judge rates the mediator's line
// (judge). The steps record raw facts; Score is a pure function of them.
//
// Conditions are how the line comes about: ND and D (the model, without and
// with the conflict's stage in the prompt), and the baselines unmediated,
// generic and ground-truth, which depend on no mediator and can be shared by all
// models. The condition card labels recorded continuations, to show how far the
// labeller can be trusted.
//
//	task, err := mediation.Task(items, mediation.Options{Prompts: set, Seed: 1})
package mediation

import (
	"encoding/json"
	"fmt"

	"github.com/ccmed/ccmed/bench/dialogue"
	"github.com/ccmed/ccmed/bench/dmis"
	"github.com/ccmed/ccmed/bench/prompt"
	"github.com/ccmed/ccmed/bench/run"
	"github.com/ccmed/ccmed/infer"
)

// Conditions.
const (
	ND         = "ND"         // the model, dialogue only
	D          = "D"          // the model, with the stage's name, pattern and move
	Unmediated = "unmediated" // the speakers go on by themselves, simulated like the others
	// UnmediatedAt is Unmediated from the turn at which the mediator of the dialogue speaks,
	// where that is not the conflict turn: what AUC and W1 of that turn are held against.
	UnmediatedAt = "unmediated-at-turn"
	Generic      = "generic"      // a fixed line that fits any conflict
	GroundTruth  = "ground-truth" // the record's mediation
	Foreign      = "foreign"      // lines made elsewhere
	Card         = "card"         // recorded continuations, for the labeller card
)

// Baselines are the conditions that need no mediator.
var Baselines = []string{Unmediated, Generic, GroundTruth}

// GenericLine is what the baseline generic says in every dialogue.
const GenericLine = "Thank you both for sharing your views. It is good that you talk about this openly. Could each of you say a little more about what matters to you here?"

// Step names.
const (
	StepUtterance = "utterance"
	StepSimulate  = "simulate"
	StepLabel     = "label"
	StepJudge     = "judge"
)

// Model roles of the steps.
const (
	RoleMediator  = "mediator"
	RoleSimulator = "simulator"
	RoleLabeller  = "labeller"
	RoleJudge     = "judge"
)

// History forms that the labeller reads.
const (
	Transcript = "transcript" // numbered turns, the current one repeated
	Speaker    = "speaker"    // the conflict speaker's own view, profile included
)

// Item is one dialogue under one condition.
type Item struct {
	Dialogue  dialogue.Dialogue
	Condition string
	// Turn is the turn after which the mediator speaks; 0 when a predicted turn
	// was asked for and the model predicted none.
	Turn int
	// Given is the mediator's line where it is not generated.
	Given string
	// Recorded is the continuation where it is not simulated; nil simulates it.
	Recorded []SimTurn
}

// Options of the task.
type Options struct {
	Prompts      *prompt.Set
	Seed         int64
	Temperature  float64 // of the mediator; 0 is greedy
	MaxTokens    int     // of the mediator's line; 0 means 160
	SimTemp      float64 // of the simulator; 0 means 0.8
	SimMaxTokens int     // of one simulated turn; 0 means 120
	MinMass      float64 // minimum probability mass on the digits; 0 means 0.05
	Form         string  // history form; "" means Transcript
	NoLeadIn     bool    // ask for the stage digit without the lead-in "Stage: "
	HideMediator bool    // label without the mediator's line
}

// WithDefaults fills what was left zero and checks the rest.
func (o Options) WithDefaults() (Options, error) {
	if o.MaxTokens == 0 {
		o.MaxTokens = 160
	}
	if o.SimTemp == 0 {
		o.SimTemp = 0.8
	}
	if o.SimMaxTokens == 0 {
		o.SimMaxTokens = 120
	}
	if o.MinMass == 0 {
		o.MinMass = 0.05
	}
	if o.Form == "" {
		o.Form = Transcript
	}
	if o.Form != Transcript && o.Form != Speaker {
		return o, fmt.Errorf("unknown history form %q; known are %s and %s", o.Form, Transcript, Speaker)
	}
	if o.Prompts == nil {
		return o, fmt.Errorf("mediation: no prompt templates")
	}
	return o, nil
}

// TemplateNames are the prompt templates that the task uses.
func TemplateNames() []string { return []string{"mediate", "simulate", "label", "judge"} }

// Utterance is the data of the first step.
type Utterance struct {
	Gold      int    `json:"gold"`
	Turn      int    `json:"turn"` // the mediator speaks after it
	LastTurn  int    `json:"last_turn"`
	Stage     string `json:"stage"`
	Context   string `json:"context"`
	Text      string `json:"text"`
	Sentences int    `json:"sentences"`
	Source    string `json:"source"` // "model", "given" or "none"
	Stop      string `json:"stop,omitempty"`
}

// Continuation is the data of the second step: turns after the mediation.
type Continuation struct {
	Turns []SimTurn `json:"turns"`
}

// SimTurn is one simulated (or, for the card, recorded) turn.
type SimTurn struct {
	T     int    `json:"t"`
	Agent int    `json:"agent"` // 1 or 2
	Text  string `json:"text"`
	// Stop says why generation ended (infer.Reply); "" where the turn was not generated.
	Stop string `json:"stop,omitempty"`
	// Recorded is the record's own stage label of the turn (card only).
	Recorded string `json:"recorded,omitempty"`
}

// Labels is the data of the third step.
type Labels struct {
	// Pre is the stage at the conflict turn, before any mediation.
	Pre TurnLabel `json:"pre"`
	// After holds one label a turn after the mediation, in order.
	After []TurnLabel `json:"after"`
	// Again is Pre with the stages listed and numbered the other way round (card only); its
	// P are in the order of stages, its Top as the model answered.
	Again *TurnLabel `json:"again,omitempty"`
}

// TurnLabel is the labeller's answer about the conflict speaker after a turn.
type TurnLabel struct {
	Turn int  `json:"turn"`
	Own  bool `json:"own"` // the turn was spoken by the conflict speaker
	// P are the raw probabilities of the digits 1-6 over the whole vocabulary.
	P         [6]float64           `json:"p"`
	Mass      float64              `json:"mass"`
	Missing   []int                `json:"missing,omitempty"` // digits that were not seen
	Ambiguous bool                 `json:"ambiguous,omitempty"`
	Stage     string               `json:"stage,omitempty"`
	Recorded  string               `json:"recorded,omitempty"`
	Unscored  string               `json:"unscored,omitempty"`
	Top       []infer.TokenLogprob `json:"top,omitempty"`
}

// Dist is the label's normalised distribution; ok is false when it is unscored.
func (l TurnLabel) Dist() (d dmis.Distribution, ok bool) {
	if l.Unscored != "" {
		return d, false
	}
	return dmis.Distribution(l.P).Normalise()
}

// Judgement is the data of the fourth step.
type Judgement struct {
	P        [5]float64           `json:"p"`
	Mass     float64              `json:"mass"`
	Score    int                  `json:"score"`    // most probable, 1-5
	Expected float64              `json:"expected"` // over the renormalised digits
	Top      []infer.TokenLogprob `json:"top,omitempty"`
	// NotApplicable says why there is nothing to judge.
	NotApplicable string `json:"not_applicable,omitempty"`
}

// Task returns the mediation task over items. Items of one dialogue form a
// group, so that they meet a warm prompt cache.
func Task(items []Item, o Options) (run.Task[Item], error) {
	o, err := o.WithDefaults()
	if err != nil {
		return run.Task[Item]{}, err
	}
	t := run.Task[Item]{Name: "mediation"}
	for _, it := range items {
		if n := it.Dialogue.LastTurn(); it.Turn < 0 || it.Turn > n {
			return run.Task[Item]{}, fmt.Errorf("dialogue %s, condition %s: turn %d is not one of the dialogue (1 to %d, 0 for none)", it.Dialogue.Key(), it.Condition, it.Turn, n)
		}
		t.Units = append(t.Units, run.Unit[Item]{Item: it.Dialogue.Key(), Condition: it.Condition, Group: it.Dialogue.Key(), Value: it})
	}
	need := Roles(items)
	role := func(r string) string {
		if need[r] {
			return r
		}
		return "" // every unit brings what the step would ask for
	}
	t.Steps = []run.Step[Item]{
		{Name: StepUtterance, Role: role(RoleMediator), Do: o.utter},
		{Name: StepSimulate, Role: role(RoleSimulator), Do: o.simulate},
		{Name: StepLabel, Role: RoleLabeller, Do: o.label},
		{Name: StepJudge, Role: role(RoleJudge), Do: o.judge},
	}
	return t, nil
}

// unspoken tells whether nobody mediates under a condition.
func unspoken(condition string) bool {
	return condition == Unmediated || condition == UnmediatedAt || condition == Card
}

// Roles says which model roles the items need.
func Roles(items []Item) map[string]bool {
	need := map[string]bool{RoleLabeller: true}
	for _, it := range items {
		if it.Turn == 0 {
			continue // nobody speaks, so that nothing follows and nothing is judged
		}
		if it.Condition == ND || it.Condition == D {
			need[RoleMediator] = true
		}
		if it.Recorded == nil {
			need[RoleSimulator] = true
		}
		if !unspoken(it.Condition) {
			need[RoleJudge] = true
		}
	}
	return need
}

// CardItem returns the item by which a dialogue's recorded continuation is
// labelled for the labeller card.
func CardItem(d dialogue.Dialogue) Item {
	return Item{Dialogue: d, Condition: Card, Turn: d.ConflictTurn, Recorded: recorded(d.Unmediated()[d.ConflictTurn:])}
}

// RecordedItems returns the record's own continuations, unmediated and with its
// mediation where that is usable, to be labelled as they are.
func RecordedItems(d dialogue.Dialogue) []Item {
	items := []Item{{Dialogue: d, Condition: Unmediated, Turn: d.ConflictTurn, Recorded: recorded(d.Unmediated()[d.ConflictTurn:])}}
	if text, ok := d.Mediation(); ok {
		items = append(items, Item{Dialogue: d, Condition: GroundTruth, Turn: d.ConflictTurn, Given: text, Recorded: recorded(d.Mediated())})
	}
	return items
}

func recorded(turns []dialogue.Turn) []SimTurn {
	out := []SimTurn{} // not nil: an empty continuation is recorded too
	for _, t := range turns {
		if t.Agent != dialogue.Mediator {
			out = append(out, SimTurn{T: t.T, Agent: t.Agent, Text: t.Message, Recorded: t.Label})
		}
	}
	return out
}

func sample(data any, unscored string) (run.Sample, error) {
	b, err := json.Marshal(data)
	if err != nil {
		return run.Sample{}, fmt.Errorf("encode sample: %w", err)
	}
	return run.Sample{Unscored: unscored, Data: b}, nil
}

// earlier decodes the data of an earlier step; unscored carries that step's
// reason on.
func earlier[T any](look run.Lookup, step string) (v T, unscored string, err error) {
	s, ok := look(step)
	if !ok {
		return v, "", fmt.Errorf("the %s step has no sample", step)
	}
	if err := json.Unmarshal(s.Data, &v); err != nil {
		return v, "", fmt.Errorf("read the %s step's sample: %w", step, err)
	}
	return v, s.Unscored, nil
}

// NotSpoken is why a line is unscored where its model never stepped in.
const NotSpoken = "no turn was predicted"
