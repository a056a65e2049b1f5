package construct

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/pflag"

	"github.com/ccmed/ccmed/bench/mediation"
	"github.com/ccmed/ccmed/bench/run"
	"github.com/ccmed/ccmed/bench/task"
	"github.com/ccmed/ccmed/infer"
)

// Labelled is a conversation with its labels.
type Labelled struct {
	Talk
	Labels []Labels `json:"labels"` // one a turn
}

// Labels are those of a turn.
type Labels struct {
	T     int    `json:"t"`
	Phase string `json:"phase" jsonschema:"enum=pre_conflict,enum=conflict,enum=continuation"`
	// OnTopic is the probability, of yes and no together, that the turn is about the value
	// question; nil where it was not asked or cannot be told. It is asked before the conflict.
	OnTopic *float64 `json:"on_topic,omitempty"`
	// First and Again are the stage of the turn's own speaker, asked with the stages in
	// their order and the other way round; nil before the conflict.
	First *mediation.TurnLabel `json:"first,omitempty"`
	Again *mediation.TurnLabel `json:"again,omitempty"`
}

// Phases of a conversation.
const (
	phaseBefore   = "pre_conflict"
	phaseConflict = "conflict"
	phaseAfter    = "continuation"
)

// label asks for the labels of a conversation.
func (o options) label(ctx context.Context, b infer.Backend, u run.Unit[Talk], _ run.Lookup) (run.Sample, error) {
	talk := u.Value
	out := Labelled{Talk: talk}
	stages, reversed, topics, err := o.labelPrompts(talk)
	if err != nil {
		return run.Sample{}, err
	}
	params := infer.Params{TopP: 1, Seed: o.Seed}
	first, err := b.Choose(ctx, stages, infer.Digits(1, 6), params)
	if err != nil {
		return run.Sample{}, fmt.Errorf("label the turns: %w", err)
	}
	again, err := b.Choose(ctx, reversed, infer.Digits(1, 6), params)
	if err != nil {
		return run.Sample{}, fmt.Errorf("label the turns again: %w", err)
	}
	on, err := b.Choose(ctx, topics, infer.Words("yes", "no"), params)
	if err != nil {
		return run.Sample{}, fmt.Errorf("ask what the turns are about: %w", err)
	}
	for i, t := range talk.Turns {
		l := Labels{T: t.T, Phase: phaseOf(t.T, talk.Case.Turn)}
		if l.Phase == phaseBefore {
			if on[i].Unscored == "" && on[i].P[0]+on[i].P[1] > 0 {
				p := on[i].P[0] / (on[i].P[0] + on[i].P[1])
				l.OnTopic = &p
			}
		} else {
			k, own := i-talk.Case.Turn+1, t.Agent == talk.Case.Agent
			x, y := o.labeller().ReadLabel(first[k], t.T, own), o.labeller().ReadReversedLabel(again[k], t.T, own)
			l.First, l.Again = &x, &y
		}
		out.Labels = append(out.Labels, l)
	}
	return task.Sample(out, "", nil)
}

func phaseOf(t, conflict int) string {
	switch {
	case t < conflict:
		return phaseBefore
	case t == conflict:
		return phaseConflict
	}
	return phaseAfter
}

// labelPrompts ask for the stage of each turn's own speaker from the conflict on, in both
// orders, and what each turn before the conflict is about.
func (o options) labelPrompts(talk Talk) (stages, reversed, topics []infer.Prompt, err error) {
	d, err := talk.Case.dialogue()
	if err != nil {
		return nil, nil, nil, err
	}
	turns := history(d, talk.Turns)
	for i, t := range turns {
		if t.T < talk.Case.Turn {
			var lines strings.Builder
			for _, x := range turns[:i+1] {
				fmt.Fprintf(&lines, "%s: %s\n", x.Speaker, strings.Join(strings.Fields(x.Message), " "))
			}
			p, err := o.Prompts.Build("topic", map[string]any{"Transcript": lines.String(), "Matter": talk.Case.Scenario.matter()})
			if err != nil {
				return nil, nil, nil, err
			}
			topics = append(topics, p)
			continue
		}
		d.ConflictAgent = t.Agent // whom the question is about
		p, err := o.labeller().LabelPrompt(d, turns[:i+1])
		if err != nil {
			return nil, nil, nil, err
		}
		q, err := o.labeller().ReversedLabelPrompt(d, turns[:i+1])
		if err != nil {
			return nil, nil, nil, err
		}
		stages, reversed = append(stages, p), append(reversed, q)
	}
	return stages, reversed, topics, nil
}

// matter is what the people see differently.
func (s Scenario) matter() string {
	if s.Question != "" {
		return "whether " + s.Question
	}
	return s.People[0].Value + " " + s.People[1].Value
}

// Label is the benchmark of labels.
type Label struct{}

// About describes the benchmark.
func (Label) About() task.About {
	return task.About{Task: taskLabel, Command: "build label", Subject: RoleLabeller, Item: "dialogue", Cluster: "scenario", Scale: []string{"min_mass"},
		Roles: map[string]string{StepLabel: RoleLabeller}, Data: map[string]any{StepLabel: Labelled{}}, Metrics: Metrics{}, Row: Row{},
		Short: "Label the turns of constructed dialogues, twice",
		Long: `build label takes the dialogues of a build dialogues run that were not rejected. From
the conflict on it asks for the DMIS stage of each turn's own speaker, once with the
stages in their order and once the other way round: how far both agree is the
labels' reliability. Before the conflict it asks whether a turn is about the matter.`,
		Example: `  ccmed build label --dialogues runs/DIALOGUES --model qwen2.5:14b`}
}

type labelCall struct {
	instruments
	dialogues string
}

// Flags registers the flags.
func (Label) Flags(f *pflag.FlagSet) task.Call {
	c := &labelCall{}
	f.StringVar(&c.dialogues, "dialogues", "", "run of ccmed build dialogues")
	task.Reads(f, "dialogues")
	c.registerLabeller(f)
	return c
}

func (c *labelCall) Roles(task.Env) (map[string]string, error) {
	return map[string]string{RoleLabeller: c.labeller}, nil
}

type labelSettings struct {
	Dialogues string  `json:"dialogues"`
	Limit     int     `json:"limit"`
	MinMass   float64 `json:"min_mass"`
}

// Plan says what is asked.
func (c *labelCall) Plan(_ context.Context, env task.Env) (task.Plan, error) {
	if err := c.check(false); err != nil {
		return task.Plan{}, err
	}
	c.o.Prompts, c.o.Seed = env.Prompts, env.Seed
	_, units, err := earlierRun(env, "dialogues", c.dialogues, taskDialogues, "build dialogues")
	if err != nil {
		return task.Plan{}, err
	}
	var talks []Talk
	for _, u := range units {
		talk, why, err := task.StepData[Talk](u, StepRest)
		if err != nil {
			return task.Plan{}, err
		}
		if why == "" {
			talks = append(talks, talk)
		}
	}
	if talks = first(talks, c.limit); len(talks) == 0 {
		return task.Plan{}, fmt.Errorf("%s holds no dialogue that was not rejected; `ccmed runs show %s` counts the reasons", c.dialogues, c.dialogues)
	}
	o := c.o
	t := run.Task[Talk]{Name: taskLabel, Steps: []run.Step[Talk]{{Name: StepLabel, Role: RoleLabeller, Do: o.label}}}
	p := task.Plan{Size: len(talks), Templates: env.Prompts.Hashes("label", "topic"), Longest: map[string][]infer.Prompt{}, Answer: map[string]int{RoleLabeller: 1},
		Parent: absolute(c.dialogues), Settings: labelSettings{absolute(c.dialogues), c.limit, o.MinMass}}
	for _, talk := range talks {
		item := strconv.Itoa(talk.Case.ID)
		t.Units, p.Items = append(t.Units, run.Unit[Talk]{Item: item, Group: item, Value: talk}), append(p.Items, item)
		stages, reversed, topics, err := o.labelPrompts(talk)
		if err != nil {
			return p, err
		}
		for _, ps := range [][]infer.Prompt{stages, reversed, topics} {
			p.Longest[RoleLabeller] = append(p.Longest[RoleLabeller], ps...)
		}
	}
	p.Task, p.Preview = t, func(context.Context) (task.Preview, error) { return task.PreviewOf(p.Longest), nil }
	p.DataHash, err = hashOf(talks)
	return p, err
}

// labelledOf are the labelled dialogues of a run.
func labelledOf(units []task.Unit) ([]Labelled, error) {
	var out []Labelled
	for _, u := range units {
		l, why, err := task.StepData[Labelled](u, StepLabel)
		if err != nil {
			return nil, err
		}
		if why == "" {
			out = append(out, l)
		}
	}
	return out, nil
}
