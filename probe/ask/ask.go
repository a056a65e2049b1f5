// Package ask is the benchmark that lets a model speak and asks it what it knows, under an
// edit of its states or without one: the line after the dialogue, the answer to a lettered
// question for the stage, and what the edit costs. Effects of edits are found in its runs.
//
//	benches := task.Registry{ask.Bench{}}
package ask

import (
	"context"
	"fmt"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/ccmed/ccmed/bench/dialogue"
	"github.com/ccmed/ccmed/bench/dmis"
	"github.com/ccmed/ccmed/bench/prompt"
	"github.com/ccmed/ccmed/bench/run"
	"github.com/ccmed/ccmed/bench/task"
	"github.com/ccmed/ccmed/infer"
	"github.com/ccmed/ccmed/probe"
)

// Steps.
const (
	StepUtterance = "utterance"
	StepAsk       = "ask"
	StepCost      = "cost"
)

// ConditionNeutral is that of the neutral paragraphs, beside probe.ContextD and ContextND.
const ConditionNeutral = "neutral"

// stages is the number of stages that conflicts are scripted with, which the question offers.
const stages = int(dmis.Minimization) + 1

// minMass is the least probability of all letters together for an answer.
const minMass = 0.05

// Utterance is the data of the step of that name: what was said in a dialogue, or the
// neutral paragraph.
type Utterance struct {
	Stage   string `json:"stage,omitempty"`
	Context string `json:"context,omitempty"` // hash of the scenario context
	Turn    int    `json:"turn,omitempty"`
	Text    string `json:"text"`
	Stop    string `json:"stop,omitempty"`
	// Names are the probabilities that the line begins with a stage's name, written with a
	// capital or without, in the order of the stages.
	Names *[stages]float64 `json:"names,omitempty"`
	// Taken says that the line comes from the run that is asked about.
	Taken bool `json:"taken,omitempty"`
}

// Answer is the data of the question.
type Answer struct {
	// Order are the stages behind the letters A, B and C.
	Order [stages]string `json:"order"`
	// P are the letters' probabilities over the whole vocabulary, Mass is their sum, Gold the
	// share of the letter of the conflict's stage.
	P    [stages]float64      `json:"p"`
	Mass float64              `json:"mass"`
	Gold float64              `json:"gold"`
	Top  []infer.TokenLogprob `json:"top,omitempty"`
	// NotAsked says that there is nothing to ask: it is a neutral paragraph.
	NotAsked bool `json:"not_asked,omitempty"`
}

// Cost is the data of the step of that name.
type Cost struct {
	// Nats is the line's negative log-probability under the plain model, Tokens its length,
	// Repeated the share of its words that it has had before within the last sixteen.
	Nats     float64 `json:"nats"`
	Tokens   int     `json:"tokens"`
	Repeated float64 `json:"repeated"`
	// KL is, of a neutral paragraph, the mean divergence of the edited model's next token from
	// the plain model's, in nats.
	KL float64 `json:"kl"`
}

// meter is an engine that says how probable texts are.
type meter interface {
	LogProbs(ctx context.Context, p infer.Prompt, text string, o infer.Params) ([]infer.TokenLogprob, error)
	// Divergence is from the plain model, by token.
	Divergence(ctx context.Context, p infer.Prompt, text string, o infer.Params) ([]float64, error)
}

// item is a dialogue, or a neutral paragraph.
type item struct {
	dialogue dialogue.Dialogue
	given    string // the line, where it is not made
	neutral  string
}

// asking is what the steps share.
type asking struct {
	prompts   *prompt.Set
	condition string
	maxTokens int
	seed      int64
	// edited is the model that is asked, nil where nothing is edited, plain the same without
	// edits. numCtx is the context length of both, once it fits.
	edited, plain meter
	numCtx        func() int
}

func (a *asking) params() infer.Params { return infer.Params{NumCtx: a.numCtx()} }

// task is the benchmark over dialogues, of which given holds lines, and the neutral
// paragraphs.
func (a *asking) task(ds []dialogue.Dialogue, given map[string]string) run.Task[item] {
	t := run.Task[item]{Name: TaskName, Steps: []run.Step[item]{
		{Name: StepUtterance, Role: role, Do: a.utter}, {Name: StepAsk, Role: role, Do: a.ask}, {Name: StepCost, Do: a.cost}}}
	for _, d := range ds {
		t.Units = append(t.Units, run.Unit[item]{Item: d.Key(), Condition: a.condition, Group: d.Key(), Value: item{dialogue: d, given: given[d.Key()]}})
	}
	for i, text := range Neutral() {
		name := fmt.Sprintf("neutral-%02d", i+1)
		t.Units = append(t.Units, run.Unit[item]{Item: name, Condition: ConditionNeutral, Group: name, Value: item{neutral: text}})
	}
	return t
}

// context is the mediator's own prompt.
func (a *asking) context(d dialogue.Dialogue) (infer.Prompt, error) {
	return (&probe.Extraction{Prompts: a.prompts}).Prompt(d, a.condition)
}

func (a *asking) utter(ctx context.Context, b infer.Backend, u run.Unit[item], _ run.Lookup) (run.Sample, error) {
	if u.Value.neutral != "" {
		return task.Sample(Utterance{Text: u.Value.neutral, Taken: true}, "", nil)
	}
	d := u.Value.dialogue
	out := Utterance{Stage: d.Stage.String(), Context: d.ContextKey(), Turn: d.ConflictTurn, Text: u.Value.given, Taken: u.Value.given != ""}
	p, err := a.context(d)
	if err != nil {
		return run.Sample{}, err
	}
	if out.Names, err = a.names(ctx, p); err != nil {
		return run.Sample{}, fmt.Errorf("measure how probable the stages' names are: %w", err)
	}
	if !out.Taken {
		r, err := b.Chat(ctx, p, infer.Params{MaxTokens: a.maxTokens, TopP: 1, Seed: a.seed})
		if err != nil {
			return run.Sample{}, fmt.Errorf("ask for a line: %w", err)
		}
		out.Text, out.Stop = strings.TrimSpace(r.Text), r.Stop
	}
	unscored := ""
	if out.Text == "" {
		unscored = "the model said nothing"
	}
	return task.Sample(out, unscored, nil)
}

// names gives how probable it is that an answer begins with each stage's name.
func (a *asking) names(ctx context.Context, p infer.Prompt) (*[stages]float64, error) {
	m := a.plain
	if a.edited != nil {
		m = a.edited
	}
	var out [stages]float64
	for i := range out {
		name := dmis.Stage(i).String()
		for _, form := range []string{name, strings.ToLower(name)} {
			logs, err := m.LogProbs(ctx, p, form, a.params())
			if err != nil {
				return nil, err
			}
			sum := 0.0
			for _, l := range logs {
				sum += l.Logprob
			}
			out[i] += math.Exp(sum)
		}
	}
	return &out, nil
}

// order is how the stages of a dialogue are lettered: it does not depend on the order of
// dialogues, nor on the condition or the edit.
func order(item string) []int {
	h := fnv.New64a()
	h.Write([]byte(item))
	return rand.New(rand.NewPCG(h.Sum64(), 1)).Perm(stages)
}

// question asks for the stage of a dialogue's conflict, after the same context as the line.
func (a *asking) question(d dialogue.Dialogue) (infer.Prompt, error) {
	type choice struct{ Letter, Text string }
	var choices []choice
	for i, s := range order(d.Key()) {
		choices = append(choices, choice{string(rune('A' + i)), dmis.Stage(s).Pattern()})
	}
	data := map[string]any{"Transcript": dialogue.Transcript(d.Unmediated()[:d.ConflictTurn]), "Speaker": d.Name(d.ConflictAgent), "Turn": d.ConflictTurn,
		"Choices": choices, "Stage": "", "Pattern": ""}
	if a.condition == probe.ContextD {
		data["Stage"], data["Pattern"] = d.Stage.String(), d.Stage.Pattern()
	}
	return a.prompts.Build("ask", data)
}

func (a *asking) ask(ctx context.Context, b infer.Backend, u run.Unit[item], _ run.Lookup) (run.Sample, error) {
	if u.Value.neutral != "" {
		return task.Sample(Answer{NotAsked: true}, "", nil)
	}
	d := u.Value.dialogue
	out := Answer{}
	gold := -1
	for i, s := range order(d.Key()) {
		if out.Order[i] = dmis.Stage(s).String(); dmis.Stage(s) == d.Stage {
			gold = i
		}
	}
	p, err := a.question(d)
	if err != nil {
		return run.Sample{}, err
	}
	cs, err := b.Choose(ctx, []infer.Prompt{p}, infer.Letters(stages), infer.Params{TopP: 1, Seed: a.seed})
	if err != nil {
		return run.Sample{}, fmt.Errorf("ask for the stage: %w", err)
	}
	c := cs[0]
	copy(out.P[:], c.P)
	out.Mass, out.Top = c.Mass, c.Top
	switch {
	case c.Unscored != "":
		return task.Sample(out, c.Unscored, nil)
	case gold < 0:
		return task.Sample(out, "the conflict's stage is none of those that are offered", nil)
	case c.Mass < minMass:
		return task.Sample(out, fmt.Sprintf("the letters have a mass of %.3f, below %.2f", c.Mass, minMass), nil)
	}
	out.Gold = c.P[gold] / c.Mass
	return task.Sample(out, "", nil)
}

// cost measures the line after the ND prompt under the plain model, whatever the line was
// told, or how far a neutral paragraph drifts.
func (a *asking) cost(ctx context.Context, _ infer.Backend, u run.Unit[item], look run.Lookup) (run.Sample, error) {
	if u.Value.neutral != "" {
		return a.neutralCost(ctx, u.Value.neutral)
	}
	line, unscored, err := task.Earlier[Utterance](look, StepUtterance)
	if err != nil || unscored != "" {
		return task.Sample(Cost{}, unscored, err)
	}
	nd := *a
	nd.condition = probe.ContextND
	p, err := nd.context(u.Value.dialogue)
	if err != nil {
		return run.Sample{}, err
	}
	logs, err := a.plain.LogProbs(ctx, p, line.Text, a.params())
	if err != nil {
		return run.Sample{}, fmt.Errorf("measure the line under the plain model: %w", err)
	}
	if len(logs) == 0 {
		return task.Sample(Cost{}, "the line has no tokens", nil)
	}
	out := Cost{Tokens: len(logs), Repeated: repeated(line.Text)}
	for _, l := range logs {
		out.Nats -= l.Logprob
	}
	return task.Sample(out, "", nil)
}

// neutralPrompt is what the neutral paragraphs answer.
var neutralPrompt = infer.Prompt{Messages: []infer.Message{{Role: infer.System, Content: "You write short, plain paragraphs about everyday matters."},
	{Role: infer.User, Content: "Write a paragraph."}}}

func (a *asking) neutralCost(ctx context.Context, text string) (run.Sample, error) {
	if a.edited == nil {
		return task.Sample(Cost{Repeated: repeated(text)}, "", nil) // a model does not diverge from itself
	}
	drifts, err := a.edited.Divergence(ctx, neutralPrompt, text, a.params())
	if err != nil {
		return run.Sample{}, fmt.Errorf("measure a neutral paragraph: %w", err)
	}
	out := Cost{Tokens: len(drifts), Repeated: repeated(text)}
	for _, kl := range drifts {
		out.KL += kl / float64(len(drifts))
	}
	return task.Sample(out, "", nil)
}

// near is how many words back a repetition is looked for.
const near = 16

// repeated is the share of words that occurred among the sixteen before them.
func repeated(text string) float64 {
	words := strings.Fields(strings.ToLower(text))
	again := 0
	for i, w := range words {
		if slices.Contains(words[max(0, i-near):i], w) {
			again++
		}
	}
	return float64(again) / float64(max(1, len(words)))
}
