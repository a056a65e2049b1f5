package construct

import (
	"context"
	"strconv"

	"github.com/spf13/pflag"

	"github.com/ccmed/ccmed/bench/mediation"
	"github.com/ccmed/ccmed/bench/run"
	"github.com/ccmed/ccmed/bench/task"
	"github.com/ccmed/ccmed/bench/usage"
	"github.com/ccmed/ccmed/infer"
)

// Dialogues is the benchmark of conversations with a scripted conflict.
type Dialogues struct{}

// About describes the benchmark.
func (Dialogues) About() task.About {
	return task.About{Task: taskDialogues, Command: "build dialogues", Subject: RoleSimulator, Item: "dialogue", Cluster: "scenario",
		Scale: []string{"sim_temperature", "sim_max_tokens", "attempts", "min_mass"},
		Roles: map[string]string{StepOpen: RoleSimulator, StepCheck: RoleLabeller, StepRest: RoleSimulator},
		Data:  map[string]any{StepOpen: Talk{}, StepCheck: Check{}, StepRest: Talk{}}, Metrics: Metrics{}, Row: Row{},
		Short: "Let a model speak dialogues with a scripted conflict",
		Long: `build dialogues takes the cases that build prompts wrote and has a model speak ten
turns of each, alternately. In the conflict turn the conflict speaker is told how the
case's stage shows. The turn is checked by its words and by a labeller; where either
gives another stage, the dialogue ends there and is rejected. So is one with an empty
or a repeated turn. Every reject is a sample with its reason.`,
		Example: `  ccmed build dialogues --cases cases.jsonl --model gemma2:9b
  ccmed build dialogues --cases cases.jsonl --model gemma2:9b --labeller qwen2.5:14b`}
}

type dialoguesCall struct {
	instruments
	cases string
}

// Flags registers the flags.
func (Dialogues) Flags(f *pflag.FlagSet) task.Call {
	c := &dialoguesCall{}
	f.StringVar(&c.cases, "cases", "", "file of ccmed build prompts")
	task.Reads(f, "cases")
	c.registerSimulator(f)
	c.registerLabeller(f)
	return c
}

func (c *dialoguesCall) Roles(task.Env) (map[string]string, error) {
	return map[string]string{RoleSimulator: c.simulator, RoleLabeller: c.labeller}, nil
}

type dialoguesSettings struct {
	Cases       string  `json:"cases"`
	Limit       int     `json:"limit"`
	Temperature float64 `json:"sim_temperature"`
	MaxTokens   int     `json:"sim_max_tokens"`
	Attempts    int     `json:"attempts"`
	MinMass     float64 `json:"min_mass"`
}

// Plan says what is asked.
func (c *dialoguesCall) Plan(_ context.Context, env task.Env) (task.Plan, error) {
	if err := c.check(true); err != nil {
		return task.Plan{}, err
	}
	if c.cases == "" {
		return task.Plan{}, usage.Errorf("no --cases; make the file with ccmed build prompts")
	}
	c.o.Prompts, c.o.Seed = env.Prompts, env.Seed
	cases, err := ReadCases(c.cases)
	if err != nil {
		return task.Plan{}, err
	}
	cases = first(cases, c.limit)
	o := c.o
	t := run.Task[Case]{Name: taskDialogues, Steps: []run.Step[Case]{{Name: StepOpen, Role: RoleSimulator, Do: o.open}, {Name: StepCheck, Role: RoleLabeller, Do: o.check},
		{Name: StepRest, Role: RoleSimulator, Do: o.goOn}}}
	p := task.Plan{Size: len(cases), Templates: env.Prompts.Hashes("turn", "label"), Longest: map[string][]infer.Prompt{},
		Answer: map[string]int{RoleSimulator: o.MaxTokens, RoleLabeller: 1}, Settings: dialoguesSettings{absolute(c.cases), c.limit, o.Temperature, o.MaxTokens, o.Attempts, o.MinMass}}
	calls := map[string][]infer.Prompt{}
	for _, of := range cases {
		item := strconv.Itoa(of.ID)
		t.Units, p.Items = append(t.Units, run.Unit[Case]{Item: item, Group: item, Value: of}), append(p.Items, item)
		d, err := of.dialogue()
		if err != nil {
			return p, err
		}
		full := o.fullTalk(of)
		for n := 1; n <= lastTurn; n++ {
			x, err := o.turnPrompt(of, d, full.Turns[:n-1], n)
			if err != nil {
				return p, err
			}
			calls[RoleSimulator] = append(calls[RoleSimulator], x)
			if n >= lastTurn-1 { // each speaker's last
				p.Longest[RoleSimulator] = append(p.Longest[RoleSimulator], x)
			}
		}
		x, err := o.labeller().LabelPrompt(d, history(d, full.Turns[:of.Turn]))
		if err != nil {
			return p, err
		}
		calls[RoleLabeller], p.Longest[RoleLabeller] = append(calls[RoleLabeller], x), append(p.Longest[RoleLabeller], x)
	}
	p.Task, p.Preview = t, func(context.Context) (task.Preview, error) { return task.PreviewOf(calls), nil }
	p.DataHash, err = hashOf(cases)
	return p, err
}

// fullTalk is the case as a conversation in which every turn is as long as it may be.
func (o options) fullTalk(c Case) Talk {
	t := Talk{Case: c}
	for n := 1; n <= lastTurn; n++ {
		t.Turns = append(t.Turns, Said{T: n, Agent: mediation.SpeakerOf(n), Text: filler(o.MaxTokens)})
	}
	return t
}
