package construct

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/ccmed/ccmed/bench/dialogue"
	"github.com/ccmed/ccmed/bench/dmis"
	"github.com/ccmed/ccmed/bench/mediation"
	"github.com/ccmed/ccmed/bench/run"
	"github.com/ccmed/ccmed/bench/task"
	"github.com/ccmed/ccmed/infer"
)

// Conditions of a pair: the mediator speaks right after the conflict and is told the stage,
// or in another turn and is told nothing.
const (
	Positive = string(dialogue.Positive)
	Negative = string(dialogue.Negative)
)

// Line is what the mediator says, after Turn.
type Line struct {
	Turn int    `json:"turn"`
	Text string `json:"text"`
	Stop string `json:"stop,omitempty"`
}

// Path is a conversation from the conflict on with the mediator's line in it.
type Path struct {
	// Of is the conversation as it went without a mediator.
	Of   Labelled `json:"of"`
	Line Line     `json:"line"`
	// Turns follow the conflict turn, the mediator's left out.
	Turns []Said `json:"turns"`
}

// PathLabels are the conflict speaker's stages: at the conflict, and after each later turn,
// asked with the stages in their order and the other way round.
type PathLabels struct {
	Pre        mediation.TurnLabel   `json:"pre"`
	After      []mediation.TurnLabel `json:"after"`
	PreAgain   mediation.TurnLabel   `json:"pre_again"`
	AfterAgain []mediation.TurnLabel `json:"after_again"`
	// Other are the stages of the other speaker, after that speaker's own turns.
	Other []mediation.TurnLabel `json:"other,omitempty"`
}

// wrongTurn draws the turn of the negative path: any in which a conflict can lie but the
// conflict's own.
func wrongTurn(c Case, seed int64) int {
	var turns []int
	for t := firstConflict; t <= lastConflict; t++ {
		if t != c.Turn {
			turns = append(turns, t)
		}
	}
	r := rand.New(rand.NewPCG(uint64(mediation.TurnSeed(seed, "wrong turn", c.ID)), 1))
	return turns[r.IntN(len(turns))]
}

// pathUnit is a conversation on one of its paths.
type pathUnit struct {
	Labelled
	Condition string
	Turn      int // the mediator speaks after it
}

func (o options) linePrompt(u pathUnit) (infer.Prompt, error) {
	d, err := recordOf(u.Labelled, nil, nil).parse()
	if err != nil {
		return infer.Prompt{}, err
	}
	condition := mediation.ND
	if u.Condition == Positive {
		condition = mediation.D
	}
	return o.labeller().MediatePrompt(mediation.Item{Dialogue: d, Condition: condition, Turn: u.Turn})
}

func (o options) line(ctx context.Context, b infer.Backend, u run.Unit[pathUnit], _ run.Lookup) (run.Sample, error) {
	p, err := o.linePrompt(u.Value)
	if err != nil {
		return run.Sample{}, err
	}
	r, err := b.Chat(ctx, p, infer.Params{MaxTokens: o.MaxTokens, TopP: 1, Seed: o.Seed})
	if err != nil {
		return run.Sample{}, fmt.Errorf("ask the mediator: %w", err)
	}
	out, why := Line{u.Value.Turn, mediation.CleanLine(r.Text, "Mediator"), r.Stop}, ""
	if out.Text == "" {
		why = "the mediator said nothing"
	}
	return task.Sample(out, why, nil)
}

// before is a conversation up to the turn from which a path is simulated, the mediator's
// line in its place.
func (u pathUnit) before(l Line) (turns []Said, from int) {
	from = max(l.Turn, u.Case.Turn) + 1
	for _, t := range u.Turns[:from-1] {
		turns = append(turns, t)
		if t.T == l.Turn {
			turns = append(turns, Said{T: t.T, Agent: dialogue.Mediator, Text: l.Text})
		}
	}
	return turns, from
}

func (o options) path(ctx context.Context, b infer.Backend, u run.Unit[pathUnit], look run.Lookup) (run.Sample, error) {
	l, why, err := task.Earlier[Line](look, StepLine)
	out := Path{Of: u.Value.Labelled, Line: l}
	if err != nil || why != "" {
		return task.Sample(out, nothingUsable(why), err)
	}
	turns, from := u.Value.before(l)
	// Both paths have the seeds of the conversation itself, so that they differ by the line.
	all, why, err := o.speak(ctx, b, u.Value.Case, turns, from, lastTurn)
	if err != nil {
		return run.Sample{}, err
	}
	for _, t := range all {
		if t.T > u.Value.Case.Turn && t.Agent != dialogue.Mediator {
			out.Turns = append(out.Turns, t)
		}
	}
	return task.Sample(out, why, nil)
}

// pathPrompts ask for the conflict speaker's stage, at the conflict without the mediator's
// line and after each later turn, in both orders, and for the other's after their own.
func (o options) pathPrompts(c Case, turns []Said) (stages, reversed, other []infer.Prompt, err error) {
	d, err := c.dialogue()
	if err != nil {
		return nil, nil, nil, err
	}
	all := history(d, turns)
	at := slices.IndexFunc(all, func(t dialogue.Turn) bool { return t.T == c.Turn && t.Agent != dialogue.Mediator })
	shown := [][]dialogue.Turn{slices.DeleteFunc(slices.Clone(all[:at+1]), func(t dialogue.Turn) bool { return t.Agent == dialogue.Mediator })}
	for i := at + 1; i < len(all); i++ {
		if all[i].Agent != dialogue.Mediator {
			shown = append(shown, all[:i+1])
		}
	}
	for _, turns := range shown {
		p, err := o.labeller().LabelPrompt(d, turns)
		if err != nil {
			return nil, nil, nil, err
		}
		q, err := o.labeller().ReversedLabelPrompt(d, turns)
		if err != nil {
			return nil, nil, nil, err
		}
		stages, reversed = append(stages, p), append(reversed, q)
		if speaker := turns[len(turns)-1].Agent; speaker != c.Agent {
			theirs := d
			theirs.ConflictAgent = speaker // whom the question is about
			if p, err = o.labeller().LabelPrompt(theirs, turns); err != nil {
				return nil, nil, nil, err
			}
			other = append(other, p)
		}
	}
	return stages, reversed, other, nil
}

func (o options) labelPath(ctx context.Context, b infer.Backend, u run.Unit[pathUnit], look run.Lookup) (run.Sample, error) {
	p, why, err := task.Earlier[Path](look, StepPath)
	if err != nil || why != "" {
		return task.Sample(PathLabels{}, nothingUsable(why), err)
	}
	turns, from := u.Value.before(p.Line)
	for _, t := range p.Turns {
		if t.T >= from {
			turns = append(turns, t)
		}
	}
	stages, reversed, other, err := o.pathPrompts(u.Value.Case, turns)
	if err != nil {
		return run.Sample{}, err
	}
	params := infer.Params{TopP: 1, Seed: o.Seed}
	// What both ask of one labelling is one question, so that the engine reads its turns once.
	first, err := b.Choose(ctx, slices.Concat(stages, other), infer.Digits(1, 6), params)
	if err != nil {
		return run.Sample{}, fmt.Errorf("label a path: %w", err)
	}
	again, err := b.Choose(ctx, reversed, infer.Digits(1, 6), params)
	if err != nil {
		return run.Sample{}, fmt.Errorf("label a path again: %w", err)
	}
	first, theirs := first[:len(stages)], first[len(stages):]
	var out PathLabels
	for i := range first {
		t := u.Value.Case.Turn + i
		own := mediation.SpeakerOf(t) == u.Value.Case.Agent
		if !own {
			out.Other = append(out.Other, o.labeller().ReadLabel(theirs[len(out.Other)], t, true))
		}
		x, y := o.labeller().ReadLabel(first[i], t, own), o.labeller().ReadReversedLabel(again[i], t, own)
		if i == 0 {
			out.Pre, out.PreAgain = x, y
			continue
		}
		out.After, out.AfterAgain = append(out.After, x), append(out.AfterAgain, y)
	}
	return task.Sample(out, "", nil)
}

// scale is that of the published gap of AUC.
const scale = dmis.Index

// gain is how far a path leads: AUC over the turns after the conflict, and the signed W1
// from the conflict to three turns later.
type gain struct{ AUC, W1 float64 }

// gainOf measures one labelling of a path; ok is false where a stage is not known.
func gainOf(conflict int, pre mediation.TurnLabel, after []mediation.TurnLabel) (g gain, ok bool) {
	before, ok := pre.Dist()
	if !ok || len(after) == 0 {
		return g, false
	}
	post := min(conflict+3, lastTurn)
	var points []dmis.StageAt
	for _, l := range after {
		d, ok := l.Dist()
		if !ok {
			return g, false
		}
		points = append(points, dmis.StageAt{Turn: l.Turn, Stage: d.Argmax()})
		if l.Turn == post {
			g.W1 = dmis.SignedW1(before, d, scale)
		}
	}
	auc, err := dmis.StageAUC(before.Argmax(), conflict, lastTurn, points, scale)
	g.AUC = auc
	return g, err == nil
}

// admitted tells whether a pair is kept: the positive path leads further.
func admitted(positive, negative gain) bool {
	const rounding = 1e-9
	d := positive.AUC - negative.AUC
	return d > rounding || d >= -rounding && positive.W1-negative.W1 > rounding
}
