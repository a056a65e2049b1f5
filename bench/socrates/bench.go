// Package socrates is a benchmark after SoCRATES (arXiv 2606.05563): models play the
// parties of a dispute, with and without a mediator, under social conditions. What is
// measured is whether the mediator brings them to an agreement, and when it speaks.
package socrates

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/pflag"

	"github.com/ccmed/ccmed/bench/run"
	"github.com/ccmed/ccmed/bench/socrates/scenario"
	"github.com/ccmed/ccmed/bench/task"
	"github.com/ccmed/ccmed/bench/usage"
	"github.com/ccmed/ccmed/infer"
)

// Steps of a run: the same talk without a mediator, with it, and without it from other
// seeds.
const (
	StepUnmediated = "unmediated"
	StepMediated   = "mediated"
	StepNull       = "null"
)

// Roles of models.
const (
	RoleMediator = "mediator"
	RoleParty    = "party"
)

const temperature = 0.6 // of all turns, as in the paper

// Bench is the benchmark.
type Bench struct{}

// About describes the benchmark.
func (Bench) About() task.About {
	return task.About{Task: "socrates", Command: "socrates run", Subject: RoleMediator, Item: "talk", Cluster: "scenario",
		Scale: []string{"max_turns", "max_tokens", "max_history"},
		Roles: map[string]string{StepUnmediated: RoleParty, StepNull: RoleParty, StepMediated: RoleMediator},
		Data:  map[string]any{StepUnmediated: Talk{}, StepNull: Talk{}, StepMediated: Talk{}}, Metrics: Metrics{}, Row: Row{},
		Short: "Do parties of a dispute agree when a model mediates",
		Long: `socrates run has a model play the parties of disputes, each under up to 15 social
conditions, once without and once with a mediator, and says how often they agree. A
party sees its own profile, thinks in private and speaks in turn; the mediator sees
the background, the topics and what is said. Talks without a mediator begin with the
same seeds as those with one.

--arm says when the mediator speaks: generic (it decides before each turn but the
first), periodic:K (before every K-th turn), always, or none. --null adds a second
talk without a mediator, from other seeds: what differs there is chance.

A talk ends when the latest turn of every party holds [FINAL AGREEMENT], when one
writes [IMPASSE], or after --max-turns. The context must hold the longest talk; where
the model's is too small, lower --max-turns or --max-tokens, or give --max-history.
Parties and mediator are asked in turn: a server must hold both models at a time.`,
		Example: `  ccmed socrates run --mediator gemma2:9b --parties qwen2.5:14b --max-turns 10
  ccmed socrates run --model gemma2:9b --conditions general,emotion --null --max-turns 8
  ccmed socrates run --model gemma2:9b --arm periodic:4 --limit 2 --max-turns 8`}
}

type call struct {
	mediator, parties, scenarios, arm string
	conditions                        []string
	null, lenient                     bool
	limit                             int
	o                                 Options
}

// Flags registers the flags.
func (Bench) Flags(f *pflag.FlagSet) task.Call {
	c := &call{}
	f.StringVar(&c.mediator, "mediator", "", "model that mediates (default: --model)")
	f.StringVar(&c.parties, "parties", "", "model that plays all parties (default: --model)")
	f.StringVar(&c.scenarios, "scenarios", scenario.Sample, `file or folder of scenarios; "sample" is the embedded eight`)
	f.StringSliceVar(&c.conditions, "conditions", []string{"general"}, "names or axes of conditions, separated by commas; all for all 15")
	f.StringVar(&c.arm, "arm", ArmGeneric, "when the mediator speaks: generic, periodic:K, always or none")
	f.BoolVar(&c.null, "null", false, "add a talk without a mediator from other seeds")
	f.IntVar(&c.limit, "limit", 0, "take the first N scenarios; 0 takes all")
	f.BoolVar(&c.lenient, "lenient", false, "understand other names of fields in scenarios, and pass over those that are not known")
	f.IntVar(&c.o.MaxTurns, "max-turns", 100, "party turns after which a talk ends without an agreement")
	f.IntVar(&c.o.MaxTokens, "max-tokens", 200, "most tokens of a party's turn, its thought included")
	f.IntVar(&c.o.MediatorTokens, "mediator-tokens", 120, "most tokens of a mediator's thought, and of its words")
	f.IntVar(&c.o.MaxHistory, "max-history", 0, "latest turns that a prompt holds; 0 is all")
	f.BoolVar(&c.o.PostureVisible, "posture-visible", false, "tell the mediator too which strategy the parties were told")
	task.Reads(f, "scenarios")
	task.Suggest(f, "scenarios", scenario.Sample)
	task.Suggest(f, "arm", ArmGeneric, ArmPeriodic+":4", ArmAlways, "none")
	return c
}

// Roles names the models: no mediator where none speaks.
func (c *call) Roles(task.Env) (map[string]string, error) {
	if c.arm == "none" {
		return map[string]string{RoleParty: c.parties}, nil
	}
	return map[string]string{RoleParty: c.parties, RoleMediator: c.mediator}, nil
}

func (c *call) check() (err error) {
	switch o := c.o; {
	case o.MaxTurns < 2:
		return usage.Errorf("--max-turns %d; it must be at least 2", o.MaxTurns)
	case o.MaxTurns > 1000:
		return usage.Errorf("--max-turns %d; it must be at most 1000", o.MaxTurns)
	case o.MaxTokens < 1:
		return usage.Errorf("--max-tokens %d; it must be at least 1", o.MaxTokens)
	case o.MediatorTokens < 1:
		return usage.Errorf("--mediator-tokens %d; it must be at least 1", o.MediatorTokens)
	case o.MaxHistory < 0:
		return usage.Errorf("--max-history %d; it must not be negative", o.MaxHistory)
	case c.limit < 0:
		return usage.Errorf("--limit %d; it must not be negative", c.limit)
	}
	c.o.Temperature = temperature
	c.o.Arm, err = parseArm(c.arm)
	return err
}

func parseArm(s string) (Arm, error) {
	kind, every, counted := strings.Cut(s, ":")
	switch {
	case !counted && s == "none":
		return Arm{Kind: ArmNone}, nil
	case !counted && (s == ArmGeneric || s == ArmAlways):
		return Arm{Kind: s}, nil
	case counted && kind == ArmPeriodic:
		if k, err := strconv.Atoi(every); err == nil && k >= 1 {
			return Arm{kind, k}, nil
		}
	}
	return Arm{}, usage.Errorf("--arm %q; it is generic, periodic:K with K of at least 1, always or none", s)
}

// settings are the options of a run's identity.
type settings struct {
	Scenarios      string   `json:"scenarios"`
	Conditions     []string `json:"conditions"`
	Arm            string   `json:"arm"`
	Null           bool     `json:"null"`
	Limit          int      `json:"limit"`
	MaxTurns       int      `json:"max_turns"`
	MaxTokens      int      `json:"max_tokens"`
	MediatorTokens int      `json:"mediator_tokens"`
	MaxHistory     int      `json:"max_history"`
	PostureVisible bool     `json:"posture_visible"`
}

// cases reads the scenarios and puts them under the conditions.
func (c *call) cases(env task.Env) (cases []scenario.Case, items []string, err error) {
	names := c.conditions
	if len(names) == 1 && names[0] == "all" {
		names = nil
	}
	conditions, err := scenario.Choose(names)
	if err != nil {
		return nil, nil, usage.Errorf("--conditions: %v", err)
	}
	all, err := scenario.Read(c.scenarios, c.lenient)
	if err != nil {
		return nil, nil, err
	}
	if c.limit > 0 {
		all = all[:min(c.limit, len(all))]
	}
	for _, s := range all {
		some, left := scenario.Expand(s, conditions)
		for _, m := range left {
			env.Note("left out: %s", m)
		}
		if len(some) > 0 {
			cases, items = append(cases, some...), append(items, s.ID)
		}
	}
	if len(cases) == 0 {
		return nil, nil, usage.Errorf("no scenario of %s can be put under --conditions %s", c.scenarios, strings.Join(c.conditions, ","))
	}
	return cases, items, nil
}

// Plan says what is asked.
func (c *call) Plan(_ context.Context, env task.Env) (task.Plan, error) {
	if err := c.check(); err != nil {
		return task.Plan{}, err
	}
	c.o.Seed = env.Seed
	cases, items, err := c.cases(env)
	if err != nil {
		return task.Plan{}, err
	}
	b, err := json.Marshal(cases)
	if err != nil {
		return task.Plan{}, fmt.Errorf("encode the scenarios: %w", err)
	}
	hash := sha256.Sum256(b)
	o := c.o
	p := task.Plan{Task: Task(cases, o, c.null), Size: len(cases), Items: items, DataHash: hex.EncodeToString(hash[:]), Templates: templates(),
		Settings: settings{c.scenarios, c.conditions, c.arm, c.null, c.limit, o.MaxTurns, o.MaxTokens, o.MediatorTokens, o.MaxHistory, o.PostureVisible},
		Longest:  map[string][]infer.Prompt{}, Answer: map[string]int{RoleParty: 2*o.MaxTokens + len(repair)/2}}
	if o.Arm.Kind != ArmNone {
		p.Answer[RoleMediator] = o.MediatorTokens
	}
	for _, of := range cases {
		party, mediator := longestPrompts(of, o)
		p.Longest[RoleParty] = append(p.Longest[RoleParty], party)
		if o.Arm.Kind != ArmNone {
			p.Longest[RoleMediator] = append(p.Longest[RoleMediator], mediator)
		}
	}
	p.Preview = func(context.Context) (task.Preview, error) { return task.PreviewOf(p.Longest), nil }
	return p, nil
}

// Task takes every case through its talks.
func Task(cases []scenario.Case, o Options, null bool) run.Task[scenario.Case] {
	t := run.Task[scenario.Case]{Name: "socrates"}
	alone := func(step string, arm Arm) run.Step[scenario.Case] {
		o := o
		o.Arm = arm
		return run.Step[scenario.Case]{Name: step, Role: RoleParty, Do: func(ctx context.Context, b infer.Backend, u run.Unit[scenario.Case], _ run.Lookup) (run.Sample, error) {
			return task.Sample(Simulate(ctx, b, nil, u.Value, o))
		}}
	}
	t.Steps = append(t.Steps, alone(StepUnmediated, Arm{Kind: ArmNone}))
	if null {
		t.Steps = append(t.Steps, alone(StepNull, Arm{Kind: ArmNull}))
	}
	if o.Arm.Kind != ArmNone {
		t.Steps = append(t.Steps, run.Step[scenario.Case]{Name: StepMediated, Roles: []string{RoleParty, RoleMediator},
			DoAll: func(ctx context.Context, bs map[string]infer.Backend, u run.Unit[scenario.Case], _ run.Lookup) (run.Sample, error) {
				return task.Sample(Simulate(ctx, bs[RoleParty], bs[RoleMediator], u.Value, o))
			}})
	}
	for _, of := range cases {
		t.Units = append(t.Units, run.Unit[scenario.Case]{Item: of.Scenario.ID, Condition: of.Condition, Group: of.Scenario.ID, Value: of})
	}
	return t
}
