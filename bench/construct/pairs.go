package construct

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/pflag"

	"github.com/ccmed/ccmed/bench/mediation"
	"github.com/ccmed/ccmed/bench/run"
	"github.com/ccmed/ccmed/bench/task"
	"github.com/ccmed/ccmed/bench/usage"
	"github.com/ccmed/ccmed/infer"
)

// Pairs is the benchmark of mediated paths.
type Pairs struct{}

// About describes the benchmark.
func (Pairs) About() task.About {
	return task.About{Task: taskPairs, Command: "build pairs", Subject: RoleMediator, Item: "path", Cluster: "scenario",
		Scale: []string{"sim_temperature", "sim_max_tokens", "attempts", "min_mass"},
		Roles: map[string]string{StepLine: RoleMediator, StepPath: RoleSimulator, StepStages: RoleLabeller},
		Data:  map[string]any{StepLine: Line{}, StepPath: Path{}, StepStages: PathLabels{}}, Metrics: Metrics{}, Row: Row{},
		Short: "Mediate constructed dialogues well and less well, and keep pairs",
		Long: `build pairs lets a mediator speak into each labelled dialogue twice: right after the
conflict and told its stage (positive), and after another turn and told nothing
(negative). What follows is simulated again, with the same seeds. A pair is admitted
where the positive path has the larger AUC, or the same AUC and the larger signed
W1, by one labeller. A second labelling, with the stages the other way round, says
how much of the gap the choice of pairs by noisy labels has made.

A labeller that does not agree with itself is refused, unless --weak is given.`,
		Example: `  ccmed build pairs --labelled runs/LABELS --labeller qwen2.5:14b --model gemma2:9b
  ccmed build pairs --labelled runs/LABELS --mediator phi3.5 --model gemma2:9b --weak`}
}

type pairsCall struct {
	instruments
	labelled, mediator string
	weak               bool
}

// Flags registers the flags.
func (Pairs) Flags(f *pflag.FlagSet) task.Call {
	c := &pairsCall{}
	f.StringVar(&c.labelled, "labelled", "", "run of ccmed build label")
	f.StringVar(&c.mediator, "mediator", "", "model that mediates (default: --model)")
	f.BoolVar(&c.weak, "weak", false, "go on with a labeller below grade; the pairs are then a pipeline check")
	task.Reads(f, "labelled", "mediator")
	c.registerSimulator(f)
	c.registerLabeller(f)
	return c
}

func (c *pairsCall) Roles(task.Env) (map[string]string, error) {
	return map[string]string{RoleMediator: c.mediator, RoleSimulator: c.simulator, RoleLabeller: c.labeller}, nil
}

type pairsSettings struct {
	Labelled    string  `json:"labelled"`
	Weak        bool    `json:"weak"`
	Grade       string  `json:"labeller_grade"`
	Limit       int     `json:"limit"`
	Temperature float64 `json:"sim_temperature"`
	MaxTokens   int     `json:"sim_max_tokens"`
	Attempts    int     `json:"attempts"`
	MinMass     float64 `json:"min_mass"`
}

// Plan says what is asked.
func (c *pairsCall) Plan(_ context.Context, env task.Env) (task.Plan, error) {
	if err := c.check(true); err != nil {
		return task.Plan{}, err
	}
	c.o.Prompts, c.o.Seed = env.Prompts, env.Seed
	from, units, err := earlierRun(env, "labelled", c.labelled, taskLabel, "build label")
	if err != nil {
		return task.Plan{}, err
	}
	labelled, err := labelledOf(units)
	if err != nil {
		return task.Plan{}, err
	}
	card, err := cardOf(labelled, uint64(from.Identity().Seed))
	if err != nil {
		return task.Plan{}, err
	}
	if card.Grade != Consistent && !c.weak {
		return task.Plan{}, usage.Errorf("the labeller of %s is %s: %s; label with a better model, or give --weak for a pipeline check", c.labelled, card.Grade, strings.Join(card.Why, "; "))
	}
	o := c.o
	t := run.Task[pathUnit]{Name: taskPairs, Steps: []run.Step[pathUnit]{{Name: StepLine, Role: RoleMediator, Do: o.line}, {Name: StepPath, Role: RoleSimulator, Do: o.path},
		{Name: StepStages, Role: RoleLabeller, Do: o.labelPath}}}
	p := task.Plan{Templates: env.Prompts.Hashes("turn", "label", "mediate"), Longest: map[string][]infer.Prompt{}, Parent: absolute(c.labelled),
		Answer:   map[string]int{RoleMediator: o.MaxTokens, RoleSimulator: o.MaxTokens, RoleLabeller: 1},
		Settings: pairsSettings{absolute(c.labelled), c.weak, card.Grade, c.limit, o.Temperature, o.MaxTokens, o.Attempts, o.MinMass}}
	calls := map[string][]infer.Prompt{}
	labelled = first(labelled, c.limit)
	for _, l := range labelled {
		item := strconv.Itoa(l.Case.ID)
		p.Items = append(p.Items, item)
		for _, u := range []pathUnit{{l, Positive, l.Case.Turn}, {l, Negative, wrongTurn(l.Case, o.Seed)}} {
			t.Units = append(t.Units, run.Unit[pathUnit]{Item: item, Condition: u.Condition, Group: item, Value: u})
			if err := o.addPathPrompts(u, calls, p.Longest); err != nil {
				return p, err
			}
		}
	}
	p.Size, p.Task = len(t.Units), t
	p.Preview = func(context.Context) (task.Preview, error) { return task.PreviewOf(calls), nil }
	p.Check = func(id run.Identity) error {
		graded, used := from.Identity().Models[RoleLabeller], id.Models[RoleLabeller]
		if graded.Digest != used.Digest && !c.weak {
			return usage.Errorf("the grade is that of the labeller %s, and --labeller is %s; use one for both, or give --weak for a pipeline check", graded.Name, used.Name)
		}
		return nil
	}
	p.DataHash, err = hashOf(labelled)
	return p, err
}

// addPathPrompts adds the prompts of a path in which every text is as long as it may be.
func (o options) addPathPrompts(u pathUnit, calls, longest map[string][]infer.Prompt) error {
	add := func(role string, ps ...infer.Prompt) {
		calls[role] = append(calls[role], ps...)
		longest[role] = append(longest[role], ps[len(ps)-1])
	}
	line, err := o.linePrompt(u)
	if err != nil {
		return err
	}
	add(RoleMediator, line)
	d, err := u.Case.dialogue()
	if err != nil {
		return err
	}
	turns, from := u.before(Line{Turn: u.Turn, Text: filler(o.MaxTokens)})
	for t := from; t <= lastTurn; t++ {
		p, err := o.turnPrompt(u.Case, d, turns, t)
		if err != nil {
			return err
		}
		add(RoleSimulator, p)
		turns = append(turns, Said{T: t, Agent: mediation.SpeakerOf(t), Text: filler(o.MaxTokens)})
	}
	stages, reversed, other, err := o.pathPrompts(u.Case, turns)
	if err != nil {
		return err
	}
	// Backends ask prompts of one call in the order of their words.
	first := slices.Concat(stages, other)
	slices.SortFunc(first, func(a, b infer.Prompt) int { return cmp.Compare(a.Messages[1].Content, b.Messages[1].Content) })
	add(RoleLabeller, first...)
	add(RoleLabeller, reversed...)
	return nil
}
