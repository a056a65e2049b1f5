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
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
	"strings"

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

func (o Options) mediatePrompt(it Item) (infer.Prompt, error) {
	d := it.Dialogue
	data := map[string]any{"Transcript": dialogue.Transcript(d.Unmediated()[:it.Turn]), "Turn": it.Turn, "Stage": "", "Speaker": "", "Pattern": "", "Move": ""}
	if it.Condition == D {
		o.stage(data, d)
	}
	return o.Prompts.Build("mediate", data)
}

// stage adds what the D prompt and the judge are told about the conflict.
func (o Options) stage(data map[string]any, d dialogue.Dialogue) {
	data["Stage"], data["Speaker"] = d.Stage.String(), d.Name(d.ConflictAgent)
	data["Pattern"], data["Move"] = d.Stage.Pattern(), d.Stage.Move()
}

func (o Options) utter(ctx context.Context, b infer.Backend, u run.Unit[Item], _ run.Lookup) (run.Sample, error) {
	it := u.Value
	d := it.Dialogue
	out := Utterance{Gold: d.ConflictTurn, Turn: it.Turn, LastTurn: d.LastTurn(), Stage: d.Stage.String(), Context: d.ContextKey(), Source: "given", Text: it.Given}
	if unspoken(it.Condition) {
		out.Source = "none"
		return sample(out, "")
	}
	if it.Turn == 0 {
		out.Source, out.Text = "none", ""
		return sample(out, NotSpoken)
	}
	switch it.Condition {
	case Generic:
		out.Text = GenericLine
	case ND, D:
		p, err := o.mediatePrompt(it)
		if err != nil {
			return run.Sample{}, err
		}
		r, err := b.Chat(ctx, p, infer.Params{MaxTokens: o.MaxTokens, Temperature: o.Temperature, TopP: 1, Seed: o.Seed, Repeat: u.Repeat})
		if err != nil {
			return run.Sample{}, fmt.Errorf("ask the mediator: %w", err)
		}
		out.Source, out.Stop = "model", r.Stop
		out.Text = clean(r.Text, "Mediator")
	}
	out.Sentences = sentences(out.Text)
	if out.Text == "" {
		return sample(out, "the mediator said nothing")
	}
	return sample(out, "")
}

// clean removes a name that the model put before its own line.
func clean(text, name string) string {
	text = strings.TrimSpace(text)
	for _, n := range []string{name + ":", "[" + name + "]:", "**" + name + ":**"} {
		if len(text) >= len(n) && strings.EqualFold(text[:len(n)], n) {
			text = strings.TrimSpace(text[len(n):])
		}
	}
	return text
}

// sentences counts sentence ends that are followed by a space, a quotation mark or the
// end; the full-width ones need nothing after them.
func sentences(s string) int {
	n, rs := 0, []rune(strings.TrimSpace(s))
	for i, r := range rs {
		switch {
		case i+1 == len(rs),
			strings.ContainsRune(".!?؟", r) && strings.ContainsRune(" \n\"", rs[i+1]),
			strings.ContainsRune("。！？", r) && !strings.ContainsRune("。！？", rs[i+1]):
			n++
		}
	}
	return n
}

// profile is the simulator's system prompt for an agent.
func (o Options) profile(d dialogue.Dialogue, agent int) (string, error) {
	p, err := o.Prompts.Build("simulate", map[string]any{"Name": d.Name(agent), "Who": d.Who(agent), "Other": d.Name(3 - agent),
		"Context": d.Context, "Value": d.Value(agent), "Goals": d.GoalsOf(agent)})
	if err != nil {
		return "", err
	}
	return p.Messages[0].Content, nil
}

// simulatePrompt shows an agent the dialogue from its own side: its turns as
// the assistant's, everybody else's as the user's. Neighbouring lines of one side
// are joined, because chat templates want the roles to alternate.
func (o Options) simulatePrompt(d dialogue.Dialogue, agent int, history []dialogue.Turn) (infer.Prompt, error) {
	system, err := o.profile(d, agent)
	if err != nil {
		return infer.Prompt{}, err
	}
	ms := []infer.Message{{Role: infer.System, Content: system}}
	add := func(role, text string) {
		if last := &ms[len(ms)-1]; last.Role == role {
			last.Content += "\n\n" + text
			return
		}
		ms = append(ms, infer.Message{Role: role, Content: text})
	}
	for _, t := range history {
		switch t.Agent {
		case agent:
			if len(ms) == 1 {
				add(infer.User, "The conversation begins; you speak first.")
			}
			add(infer.Assistant, dialogue.OneTurn("", t.Message))
		case dialogue.Mediator:
			add(infer.User, "[Mediator]: "+dialogue.OneLine(t.Message))
		default:
			add(infer.User, dialogue.OneTurn(t.Speaker, t.Message))
		}
	}
	return infer.Prompt{Messages: ms}, nil
}

// speakerOf returns who speaks a turn: odd turns are agent 1's.
func speakerOf(turn int) int { return 2 - turn%2 }

// turnSeed gives every simulated turn its own seed, equal in all conditions, so
// that mediated and unmediated continuations are matched.
func turnSeed(seed int64, item string, turn int) int64 {
	h := fnv.New64a()
	fmt.Fprintf(h, "%d|%s|%d", seed, item, turn)
	return int64(h.Sum64() & 0x7fffffff)
}

// before returns the dialogue up to the intervention, with the mediator's line
// as its last turn where there is one.
func before(d dialogue.Dialogue, u Utterance) []dialogue.Turn {
	turns := append([]dialogue.Turn(nil), d.Unmediated()[:u.Turn]...)
	if u.Text != "" {
		turns = append(turns, dialogue.Turn{T: u.Turn, Speaker: "Mediator", Agent: dialogue.Mediator, Message: u.Text})
	}
	return turns
}

func (o Options) simulate(ctx context.Context, b infer.Backend, u run.Unit[Item], look run.Lookup) (run.Sample, error) {
	utt, unscored, err := earlier[Utterance](look, StepUtterance)
	if err != nil {
		return run.Sample{}, err
	}
	d := u.Value.Dialogue
	out := Continuation{}
	if u.Value.Recorded != nil {
		return sample(Continuation{u.Value.Recorded}, "")
	}
	if unscored != "" {
		return sample(out, unscored)
	}
	if utt.Turn >= d.LastTurn() {
		return sample(out, fmt.Sprintf("the mediator speaks after turn %d and the dialogue has %d: no turn is left to follow", utt.Turn, d.LastTurn()))
	}
	history := before(d, utt)
	for t := utt.Turn + 1; t <= d.LastTurn(); t++ {
		agent := speakerOf(t)
		p, err := o.simulatePrompt(d, agent, history)
		if err != nil {
			return run.Sample{}, err
		}
		r, err := b.Chat(ctx, p, infer.Params{MaxTokens: o.SimMaxTokens, Temperature: o.SimTemp, TopP: 1, Seed: turnSeed(o.Seed, u.Item, t), Repeat: u.Repeat})
		if err != nil {
			return run.Sample{}, fmt.Errorf("simulate turn %d: %w", t, err)
		}
		text := clean(r.Text, d.Name(agent))
		if text == "" {
			return sample(out, fmt.Sprintf("turn %d: the simulator said nothing", t))
		}
		out.Turns = append(out.Turns, SimTurn{T: t, Agent: agent, Text: text, Stop: r.Stop})
		history = append(history, dialogue.Turn{T: t, Speaker: d.Name(agent), Agent: agent, Message: text})
	}
	return sample(out, "")
}

// labelPrompt asks for the conflict speaker's stage after the last of turns.
func (o Options) labelPrompt(d dialogue.Dialogue, turns []dialogue.Turn) (infer.Prompt, error) {
	return o.labelPromptOf(dmis.Definitions(), d, turns)
}

// reversedPrompt is labelPrompt with the stages listed and numbered the other way round:
// digit k stands for the stage that 7 − k is in labelPrompt.
func (o Options) reversedPrompt(d dialogue.Dialogue, turns []dialogue.Turn) (infer.Prompt, error) {
	stages := dmis.Definitions()
	slices.Reverse(stages)
	for i := range stages {
		stages[i].Number = i + 1
	}
	return o.labelPromptOf(stages, d, turns)
}

func (o Options) labelPromptOf(stages []dmis.Definition, d dialogue.Dialogue, turns []dialogue.Turn) (infer.Prompt, error) {
	data := map[string]any{"Stages": stages, "Profile": "", "Speaker": d.Name(d.ConflictAgent), "LeadIn": !o.NoLeadIn}
	last := turns[len(turns)-1]
	if o.Form == Speaker {
		profile, err := o.profile(d, d.ConflictAgent)
		if err != nil {
			return infer.Prompt{}, err
		}
		var b strings.Builder
		line := func(t dialogue.Turn) string {
			// One line a turn: a message with line breaks could pass for several turns.
			message := dialogue.OneLine(t.Message)
			if t.Agent == d.ConflictAgent {
				return "Me: " + message
			}
			return t.Speaker + ": " + message
		}
		for _, t := range turns {
			b.WriteString(line(t) + "\n")
		}
		data["Profile"], data["Transcript"], data["Marked"] = profile, b.String(), line(last)
	} else {
		data["Transcript"], data["Marked"] = dialogue.Transcript(turns), strings.TrimSpace(dialogue.Transcript(turns[len(turns)-1:]))
	}
	return o.Prompts.Build("label", data)
}

func (o Options) label(ctx context.Context, b infer.Backend, u run.Unit[Item], look run.Lookup) (run.Sample, error) {
	utt, _, err := earlier[Utterance](look, StepUtterance)
	if err != nil {
		return run.Sample{}, err
	}
	cont, unscored, err := earlier[Continuation](look, StepSimulate)
	if err != nil {
		return run.Sample{}, err
	}
	if unscored != "" {
		return sample(Labels{}, unscored)
	}
	d := u.Value.Dialogue
	pre, err := o.labelPrompt(d, d.Unmediated()[:d.ConflictTurn])
	if err != nil {
		return run.Sample{}, err
	}
	prompts := []infer.Prompt{pre}
	history := before(d, utt)
	if o.HideMediator || u.Value.Condition == Card {
		history = append([]dialogue.Turn(nil), d.Unmediated()[:utt.Turn]...)
	}
	for _, t := range cont.Turns {
		history = append(history, dialogue.Turn{T: t.T, Speaker: d.Name(t.Agent), Agent: t.Agent, Message: t.Text})
		p, err := o.labelPrompt(d, history)
		if err != nil {
			return run.Sample{}, err
		}
		prompts = append(prompts, p)
	}
	params := infer.Params{TopP: 1, Seed: o.Seed, Repeat: u.Repeat}
	cs, err := b.Choose(ctx, prompts, infer.Digits(1, 6), params)
	if err != nil {
		return run.Sample{}, fmt.Errorf("label the turns: %w", err)
	}
	out := Labels{Pre: o.turnLabel(cs[0], d.ConflictTurn, true)}
	for i, t := range cont.Turns {
		l := o.turnLabel(cs[i+1], t.T, t.Agent == d.ConflictAgent)
		l.Recorded = t.Recorded
		out.After = append(out.After, l)
	}
	m, err := b.Model(ctx)
	if err != nil {
		return run.Sample{}, fmt.Errorf("identify the labeller: %w", err)
	}
	// A classifier is fitted to the stages in one order and knows no other.
	if u.Value.Condition == Card && m.Backend != infer.ReadoutBackend {
		p, err := o.reversedPrompt(d, d.Unmediated()[:d.ConflictTurn])
		if err != nil {
			return run.Sample{}, err
		}
		again, err := b.Choose(ctx, []infer.Prompt{p}, infer.Digits(1, 6), params)
		if err != nil {
			return run.Sample{}, fmt.Errorf("repeat a label: %w", err)
		}
		again[0].P = slices.Clone(again[0].P) // a cache may hold it too
		slices.Reverse(again[0].P)
		l := o.turnLabel(again[0], d.ConflictTurn, true)
		out.Again = &l
	}
	return sample(out, "")
}

func (o Options) turnLabel(c infer.Choice, turn int, own bool) TurnLabel {
	l := TurnLabel{Turn: turn, Own: own, P: [6]float64(c.P), Mass: c.Mass, Top: c.Top, Unscored: c.Unscored}
	lab := dmis.FromProbabilities(l.P, o.MinMass)
	l.Missing = lab.Missing
	if l.Unscored == "" {
		l.Unscored = lab.Unscored
	}
	if l.Unscored == "" {
		l.Ambiguous, l.Stage = lab.Ambiguous, lab.Dist.Argmax().String()
	}
	return l
}

func (o Options) judgePrompt(d dialogue.Dialogue, u Utterance) (infer.Prompt, error) {
	data := map[string]any{"Transcript": dialogue.Transcript(d.Unmediated()[:u.Turn]), "Utterance": dialogue.OneLine(u.Text)}
	o.stage(data, d)
	return o.Prompts.Build("judge", data)
}

func (o Options) judge(ctx context.Context, b infer.Backend, u run.Unit[Item], look run.Lookup) (run.Sample, error) {
	utt, unscored, err := earlier[Utterance](look, StepUtterance)
	if err != nil {
		return run.Sample{}, err
	}
	if unscored != "" {
		return sample(Judgement{}, unscored)
	}
	if utt.Text == "" {
		return sample(Judgement{NotApplicable: "no mediator's line"}, "")
	}
	p, err := o.judgePrompt(u.Value.Dialogue, utt)
	if err != nil {
		return run.Sample{}, err
	}
	cs, err := b.Choose(ctx, []infer.Prompt{p}, infer.Digits(1, 5), infer.Params{TopP: 1, Seed: o.Seed, Repeat: u.Repeat})
	if err != nil {
		return run.Sample{}, fmt.Errorf("ask the judge: %w", err)
	}
	c := cs[0]
	j := Judgement{P: [5]float64(c.P), Mass: c.Mass, Top: c.Top}
	if c.Unscored == "" && c.Mass < o.MinMass {
		c.Unscored = fmt.Sprintf("the scores got %.3g of the probability, less than %g", c.Mass, o.MinMass)
	}
	if c.Unscored == "" {
		j.Score = c.Argmax() + 1
		for i, p := range c.P {
			j.Expected += float64(i+1) * (p / c.Mass)
		}
		j.Expected = min(5, max(1, j.Expected)) // shares add up to 1 but for rounding
	}
	return sample(j, c.Unscored)
}

// NotSpoken is why a line is unscored where its model never stepped in.
const NotSpoken = "no turn was predicted"

// Longest returns, for every role, the prompt of an item that needs the most
// context, with generated turns at their caps, for fitting the context.
func Longest(it Item, o Options) (map[string][]infer.Prompt, error) {
	o, err := o.WithDefaults()
	if err != nil {
		return nil, err
	}
	if it.Turn == 0 {
		return nil, nil
	}
	d := it.Dialogue
	utt, start, after := o.imagined(it)
	history := append(start, after...)
	med, err := o.mediatePrompt(it)
	if err != nil {
		return nil, err
	}
	sim, err := o.simulatePrompt(d, speakerOf(d.LastTurn()), history[:max(1, len(history)-1)])
	if err != nil {
		return nil, err
	}
	lab, err := o.labelPrompt(d, history)
	if err != nil {
		return nil, err
	}
	jud, err := o.judgePrompt(d, utt)
	if err != nil {
		return nil, err
	}
	return map[string][]infer.Prompt{RoleMediator: {med}, RoleSimulator: {sim}, RoleLabeller: {lab}, RoleJudge: {jud}}, nil
}

// Planned returns every prompt that an item will be asked, by role, with generated
// turns at their caps: what a run costs at most. An item whose turns are unscored on
// the way asks fewer.
func Planned(it Item, o Options) (map[string][]infer.Prompt, error) {
	o, err := o.WithDefaults()
	if err != nil {
		return nil, err
	}
	if it.Turn == 0 {
		return nil, nil // nobody speaks, so that nothing follows and nothing is judged
	}
	out := map[string][]infer.Prompt{}
	add := func(role string, p infer.Prompt, failed error) {
		out[role], err = append(out[role], p), errors.Join(err, failed)
	}
	d := it.Dialogue
	utt, start, after := o.imagined(it)
	if it.Condition == ND || it.Condition == D {
		p, failed := o.mediatePrompt(it)
		add(RoleMediator, p, failed)
	}
	if it.Recorded == nil {
		for i, t := range after {
			p, failed := o.simulatePrompt(d, t.Agent, slices.Concat(start, after[:i]))
			add(RoleSimulator, p, failed)
		}
	}
	pre, failed := o.labelPrompt(d, d.Unmediated()[:d.ConflictTurn])
	add(RoleLabeller, pre, failed)
	if o.HideMediator || it.Condition == Card {
		start = d.Unmediated()[:it.Turn]
	}
	for i := range after {
		p, failed := o.labelPrompt(d, slices.Concat(start, after[:i+1]))
		add(RoleLabeller, p, failed)
	}
	if it.Condition == Card {
		p, failed := o.reversedPrompt(d, d.Unmediated()[:d.ConflictTurn])
		add(RoleLabeller, p, failed)
	}
	if utt.Text != "" && !unspoken(it.Condition) {
		p, failed := o.judgePrompt(d, utt)
		add(RoleJudge, p, failed)
	}
	return out, err
}

// imagined is an item before it is run: the mediator's line, the dialogue up to it,
// and the turns after it. What is given or recorded is as long as it is; what will be
// generated is its cap as text: a token is seldom more than five letters.
func (o Options) imagined(it Item) (utt Utterance, start, after []dialogue.Turn) {
	d := it.Dialogue
	utt = Utterance{Turn: it.Turn, Text: it.Given}
	switch it.Condition {
	case ND, D:
		utt.Text = strings.Repeat("word ", o.MaxTokens)
	case Generic:
		utt.Text = GenericLine
	}
	add := func(t, agent int, text string) {
		after = append(after, dialogue.Turn{T: t, Speaker: d.Name(agent), Agent: agent, Message: text})
	}
	if it.Recorded != nil {
		for _, t := range it.Recorded {
			add(t.T, t.Agent, t.Text)
		}
	} else {
		for t := it.Turn + 1; t <= d.LastTurn(); t++ {
			add(t, speakerOf(t), strings.Repeat("word ", o.SimMaxTokens))
		}
	}
	return utt, before(d, utt), after
}
