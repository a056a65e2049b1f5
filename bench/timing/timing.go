// Package timing asks a model when a mediator should step into a conversation.
//
// Three modes ask the same question differently: stream asks yes or no after
// every turn and takes the first yes, pick shows the whole dialogue and lets the
// model choose a turn, cot lets it reason first. No answer is parsed out of
// text: all are chosen, with their probabilities (infer.Backend.Choose).
//
//	task, err := timing.Task(dialogues, timing.Options{Mode: timing.Stream, FirstTurn: 3, Prompts: set})
//	summary, err := run.Execute(ctx, dir, task, options)
//	metrics, err := timing.Score(samples, timing.ScoreOptions{Seed: 1})
//
// What is measured and which baselines stand beside it is in docs/methods.md.
package timing

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/ccmed/ccmed/bench/dialogue"
	"github.com/ccmed/ccmed/bench/prompt"
	"github.com/ccmed/ccmed/bench/run"
	"github.com/ccmed/ccmed/infer"
)

// Mode is a way to ask for the turn.
type Mode string

// The modes. Stream sees only what was said so far, as a live mediator does.
const (
	Stream Mode = "stream"
	Pick   Mode = "pick"
	CoT    Mode = "cot"
)

// DualHead is the mode of decisions that a tuned model's own decision head made;
// package sft makes them, in samples of this package's form. Their points hold the
// head's P(speak).
const DualHead Mode = "dual-head"

// Modes lists the modes in the order of the help text.
var Modes = []Mode{Stream, Pick, CoT}

// Step names of the task; "reason" exists in the mode cot only.
const (
	StepReason = "reason"
	StepDecide = "decide"
)

// Role of the model that decides.
const Role = "mediator"

// Options of the task.
type Options struct {
	Mode      Mode
	FirstTurn int     // predictions start here; 0 means 3
	MinMass   float64 // minimum probability mass on the allowed answers; 0 means 0.05
	// ReasonTokens caps the reasoning of the mode cot; 0 means 256.
	ReasonTokens int
	Seed         int64
	Prompts      *prompt.Set
}

func (o Options) withDefaults() (Options, error) {
	if o.Mode == "" {
		o.Mode = Stream
	}
	if o.FirstTurn == 0 {
		o.FirstTurn = 3
	}
	if o.MinMass == 0 {
		o.MinMass = 0.05
	}
	if o.ReasonTokens == 0 {
		o.ReasonTokens = 256
	}
	if o.Mode != Stream && o.Mode != Pick && o.Mode != CoT {
		return o, fmt.Errorf("unknown timing mode %q; known are stream, pick and cot", o.Mode)
	}
	if o.FirstTurn < 1 {
		return o, fmt.Errorf("timing: the first turn is %d; turns start at 1", o.FirstTurn)
	}
	if o.Prompts == nil {
		return o, fmt.Errorf("timing: no prompt templates")
	}
	return o, nil
}

// TemplateNames returns the prompt templates that a mode uses.
func TemplateNames(m Mode) []string { return []string{"timing_" + string(m)} }

// Decision is the data of a sample: what was asked, what the model answered
// and the turn that follows from it. Everything that scoring needs is in it.
type Decision struct {
	Mode      Mode   `json:"mode"`
	Gold      int    `json:"gold"`  // the conflict turn
	Stage     string `json:"stage"` // of the conflict
	Context   string `json:"context"`
	FirstTurn int    `json:"first_turn"`
	LastTurn  int    `json:"last_turn"`
	// Predicted is the turn, or 0 when the model never said yes.
	Predicted int `json:"predicted"`
	// Curve holds, in the order of turns, P(yes) after each turn (stream) or the
	// probability of each turn that could be chosen (pick, cot).
	Curve []Point `json:"curve"`
	// Lengths are the turns' lengths in characters, for the length baseline.
	Lengths []int `json:"lengths"`
	// Threshold is the P(speak) from which a decision head steps in (dual-head).
	Threshold float64 `json:"threshold,omitempty"`
	// Reasoning is what the model wrote before it chose (cot).
	Reasoning string `json:"reasoning,omitempty"`
}

// Point is the model's answer about one turn.
type Point struct {
	Turn     int                  `json:"turn"`
	P        float64              `json:"p"`             // probability of yes, or of this turn, over the whole vocabulary
	No       float64              `json:"no,omitempty"`  // stream: probability of no
	Share    float64              `json:"share"`         // P renormalised over the offered answers
	Mass     float64              `json:"mass"`          // of all offered answers together
	Bound    float64              `json:"bound"`         // greatest possible P where the backend saw only some alternatives
	Top      []infer.TokenLogprob `json:"top,omitempty"` // raw alternatives
	Unscored string               `json:"unscored,omitempty"`
}

// Task returns the timing task over dialogues, each read without mediation.
func Task(ds []dialogue.Dialogue, o Options) (run.Task[dialogue.Dialogue], error) {
	o, err := o.withDefaults()
	if err != nil {
		return run.Task[dialogue.Dialogue]{}, err
	}
	t := run.Task[dialogue.Dialogue]{Name: "timing"}
	for _, d := range ds {
		t.Units = append(t.Units, run.Unit[dialogue.Dialogue]{Item: d.Key(), Condition: string(o.Mode), Group: d.Key(), Value: d})
	}
	if o.Mode == CoT {
		t.Steps = append(t.Steps, run.Step[dialogue.Dialogue]{Name: StepReason, Role: Role, Do: o.reason})
	}
	t.Steps = append(t.Steps, run.Step[dialogue.Dialogue]{Name: StepDecide, Role: Role, Do: o.decide})
	return t, nil
}

// Prompts returns the prompts that the deciding step asks about one dialogue,
// for a dry run and for fitting the context. The last one is the longest.
func Prompts(d dialogue.Dialogue, o Options) ([]infer.Prompt, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	if o.Mode == Stream {
		return o.streamPrompts(d)
	}
	p, err := o.pickPrompt(d, "")
	return []infer.Prompt{p}, err
}

func (o Options) streamPrompts(d dialogue.Dialogue) ([]infer.Prompt, error) {
	turns := d.Unmediated()
	ps := make([]infer.Prompt, len(turns))
	for i, t := range turns {
		p, err := o.Prompts.Build("timing_stream", map[string]any{"Transcript": dialogue.Transcript(turns[:i+1]), "Turn": t.T})
		if err != nil {
			return nil, err
		}
		ps[i] = p
	}
	return ps, nil
}

// choosable returns the turns that pick and cot offer.
func (o Options) choosable(d dialogue.Dialogue) []dialogue.Turn {
	turns := d.Unmediated()
	return turns[min(o.FirstTurn-1, len(turns)):]
}

const letters = 26

// letter names a turn in pick and cot: numbers of two digits would share their
// first token with those of one.
func letter(turn int) string { return string(rune('A' + turn - 1)) }

func (o Options) pickPrompt(d dialogue.Dialogue, reasoning string) (infer.Prompt, error) {
	var b strings.Builder
	if n := d.LastTurn(); n > letters {
		return infer.Prompt{}, fmt.Errorf("dialogue %s has %d turns; the modes pick and cot name them with letters, at most %d: use stream", d.Key(), n, letters)
	}
	for _, t := range d.Unmediated() {
		// One line a turn: a message with line breaks could pass for several turns.
		fmt.Fprintf(&b, "%s (%s): %s\n", letter(t.T), t.Speaker, dialogue.OneLine(t.Message))
	}
	offered := o.choosable(d)
	if len(offered) == 0 {
		return infer.Prompt{}, fmt.Errorf("dialogue %s has no turn from %d on", d.Key(), o.FirstTurn)
	}
	return o.Prompts.Build("timing_"+string(o.Mode), map[string]any{"Transcript": b.String(), "Reasoning": reasoning,
		"First": letter(offered[0].T), "Last": letter(offered[len(offered)-1].T)})
}

type reasoning struct {
	Text string `json:"text"`
	Stop string `json:"stop"`
}

func (o Options) reason(ctx context.Context, b infer.Backend, u run.Unit[dialogue.Dialogue], _ run.Lookup) (run.Sample, error) {
	p, err := o.pickPrompt(u.Value, "")
	if err != nil {
		return run.Sample{}, err
	}
	r, err := b.Chat(ctx, p, infer.Params{MaxTokens: o.ReasonTokens, Seed: o.Seed, TopP: 1, Repeat: u.Repeat})
	if err != nil {
		return run.Sample{}, fmt.Errorf("ask for reasoning: %w", err)
	}
	s := run.Sample{}
	if strings.TrimSpace(r.Text) == "" {
		s.Unscored = "the model wrote no reasoning"
	}
	s.Data, err = json.Marshal(reasoning{strings.TrimSpace(r.Text), r.Stop})
	return s, err
}

func (o Options) decide(ctx context.Context, b infer.Backend, u run.Unit[dialogue.Dialogue], look run.Lookup) (run.Sample, error) {
	d := u.Value
	turns := d.Unmediated()
	dec := Decision{Mode: o.Mode, Gold: d.ConflictTurn, Stage: d.Stage.String(), Context: d.ContextKey(), FirstTurn: o.FirstTurn, LastTurn: len(turns)}
	for _, t := range turns {
		dec.Lengths = append(dec.Lengths, len([]rune(t.Message)))
	}
	params := infer.Params{Seed: o.Seed, TopP: 1, Repeat: u.Repeat}
	var unscored string
	if o.Mode == Stream {
		ps, err := o.streamPrompts(d)
		if err != nil {
			return run.Sample{}, err
		}
		cs, err := b.Choose(ctx, ps, infer.Words("yes", "no"), params)
		if err != nil {
			return run.Sample{}, fmt.Errorf("ask after every turn: %w", err)
		}
		dec.Curve = streamCurve(cs, o.MinMass)
		dec.Predicted, unscored = firstYes(dec.Curve, o.FirstTurn)
	} else {
		if o.Mode == CoT {
			prev, ok := look(StepReason)
			if !ok {
				return run.Sample{}, fmt.Errorf("the reasoning of %s is missing", u.Item)
			}
			var r reasoning
			if err := json.Unmarshal(prev.Data, &r); err != nil {
				return run.Sample{}, fmt.Errorf("read the reasoning of %s: %w", u.Item, err)
			}
			if prev.Unscored != "" {
				unscored = prev.Unscored
			}
			dec.Reasoning = r.Text
		}
		if unscored == "" {
			p, err := o.pickPrompt(d, dec.Reasoning)
			if err != nil {
				return run.Sample{}, err
			}
			offered := o.choosable(d)
			answers := infer.Letters(len(turns))[o.FirstTurn-1:]
			cs, err := b.Choose(ctx, []infer.Prompt{p}, answers, params)
			if err != nil {
				return run.Sample{}, fmt.Errorf("ask for the turn: %w", err)
			}
			c := cs[0]
			for i, t := range offered {
				pt := Point{Turn: t.T, P: c.P[i], Mass: c.Mass, Bound: c.Bound[i]}
				if c.Mass > 0 {
					pt.Share = c.P[i] / c.Mass
				}
				if i == 0 {
					pt.Top = c.Top
				}
				dec.Curve = append(dec.Curve, pt)
			}
			unscored = lowMass(c, o.MinMass)
			if unscored == "" {
				dec.Predicted = offered[c.Argmax()].T
			}
		}
	}
	data, err := json.Marshal(dec)
	return run.Sample{Unscored: unscored, Data: data}, err
}

func streamCurve(cs []infer.Choice, minMass float64) []Point {
	curve := make([]Point, len(cs))
	for i, c := range cs {
		curve[i] = Point{Turn: i + 1, P: c.P[0], No: c.P[1], Mass: c.Mass, Bound: c.Bound[0], Top: c.Top, Unscored: lowMass(c, minMass)}
		if c.Mass > 0 {
			curve[i].Share = c.P[0] / c.Mass
		}
	}
	return curve
}

// lowMass returns why a choice cannot be used, "" when it can.
func lowMass(c infer.Choice, minMass float64) string {
	if c.Unscored != "" {
		return c.Unscored
	}
	if c.Mass < minMass {
		return "the answers got " + strconv.FormatFloat(c.Mass, 'g', 3, 64) + " of the probability, less than " + strconv.FormatFloat(minMass, 'g', 3, 64)
	}
	return ""
}

// firstYes returns the first turn from first on where yes is more probable than
// no, 0 for none. A turn without a usable answer before the first yes makes the
// prediction unknown: it is unscored, neither yes nor no.
func firstYes(curve []Point, first int) (turn int, unscored string) {
	for _, p := range curve {
		if p.Turn < first {
			continue
		}
		if p.Unscored != "" {
			return 0, fmt.Sprintf("turn %d: %s", p.Turn, p.Unscored)
		}
		if p.P > p.No {
			return p.Turn, ""
		}
	}
	return 0, ""
}
