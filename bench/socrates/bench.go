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
	"slices"
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
	RoleMediator  = "mediator"
	RoleParty     = "party"
	RoleEvaluator = "evaluator" // the second one is evaluator2, and so on
)

// mostEvaluators may read the talks of a run.
const mostEvaluators = 3

// evaluatorRole is the role of an evaluator, numbered from 0.
func evaluatorRole(k int) string {
	if k == 0 {
		return RoleEvaluator
	}
	return RoleEvaluator + strconv.Itoa(k+1)
}

// stepOf is the step in which an evaluator reads the talks of another step.
func stepOf(role, step string) string { return role + "_" + step }

const temperature = 0.6 // of all turns, as in the paper

// Bench is the benchmark.
type Bench struct{}

// About describes the benchmark.
func (Bench) About() task.About {
	roles := map[string]string{StepUnmediated: RoleParty, StepNull: RoleParty, StepMediated: RoleMediator}
	data := map[string]any{}
	for _, step := range steps {
		data[step] = Talk{}
		for k := range mostEvaluators {
			roles[stepOf(evaluatorRole(k), step)], data[stepOf(evaluatorRole(k), step)] = evaluatorRole(k), Evaluation{}
		}
	}
	return task.About{Task: "socrates", Command: "socrates run", Subject: RoleMediator, Item: "talk", Cluster: "scenario",
		Scale: []string{"max_turns", "max_tokens", "max_history"},
		Roles: roles, Data: data, Metrics: Metrics{}, Row: Row{},
		Short: "Do parties of a dispute agree when a model mediates",
		Long: `socrates run has a model play the parties of disputes, each under up to 15 social
conditions, once without and once with a mediator, and says how often they agree. A
party sees its own profile, thinks in private and speaks in turn; the mediator sees
the background, the topics and what is said. Talks without a mediator begin with the
same seeds as those with one.

--arm says when the mediator speaks: generic (it decides before each turn but the
first), periodic:K (before every K-th turn), always, or none. --null adds a second
talk without a mediator, from other seeds: what differs there is chance.

--evaluator reads, after each party turn and topic by topic, how far the parties
agree and which option each holds, without knowing what comes later. From that come
the consensus gain over the talk without a mediator, how soon the mediator speaks
after a drop, and what follows its words, beside the same turns without it.

A talk ends when the latest turn of every party holds [FINAL AGREEMENT], when one
writes [IMPASSE], or after --max-turns. The context must hold the longest talk; where
the model's is too small, lower --max-turns or --max-tokens, or give --max-history.
Parties and mediator are asked in turn: a server must hold both models at a time.`,
		Example: `  ccmed socrates run --mediator gemma2:9b --parties qwen2.5:14b --evaluator qwen2.5:14b --max-turns 10
  ccmed socrates run --model gemma2:9b --conditions general,emotion --null --max-turns 8
  ccmed socrates run --model gemma2:9b --arm periodic:4 --limit 2 --max-turns 8`}
}

type call struct {
	mediator, parties, scenarios, arm string
	conditions                        []string
	evaluators                        []string
	form                              string
	minMass                           float64
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
	f.StringSliceVar(&c.evaluators, "evaluator", nil, "models that read how far the parties agree, the first for the results, others to compare with it (default: that of the parties)")
	f.StringVar(&c.form, "form", FormChoose, "how an evaluator reads: choose (topics of each turn), every (all topics after each turn) or pass (once a topic)")
	f.Float64Var(&c.minMass, "min-mass", 0.05, "minimum probability mass on the allowed answers; below it the talk has no evaluation")
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
	roles := map[string]string{RoleParty: c.parties}
	if c.arm != "none" {
		roles[RoleMediator] = c.mediator
	}
	for k, model := range c.readers() {
		roles[evaluatorRole(k)] = model
	}
	return roles, nil
}

// readers are the models that evaluate: that of the parties where none is named.
func (c *call) readers() []string {
	if len(c.evaluators) == 0 {
		return []string{c.parties}
	}
	return c.evaluators
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
	case c.minMass < 0 || c.minMass >= 1:
		return usage.Errorf("--min-mass %g; it must lie in 0..1", c.minMass)
	case c.form != FormChoose && c.form != FormEvery && c.form != FormPass:
		return usage.Errorf("--form %q; it is choose, every or pass", c.form)
	case len(c.evaluators) > mostEvaluators:
		return usage.Errorf("--evaluator names %d models; at most %d read the talks of a run", len(c.evaluators), mostEvaluators)
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
	Evaluators     int      `json:"evaluators"`
	Form           string   `json:"form"`
	MinMass        float64  `json:"min_mass"`
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
	p := task.Plan{Task: Task(cases, o, c.null, Evaluators{len(c.readers()), c.form, c.minMass}), Size: len(cases), Items: items, DataHash: hex.EncodeToString(hash[:]), Templates: templates(),
		Settings: settings{c.scenarios, c.conditions, c.arm, c.null, c.limit, o.MaxTurns, o.MaxTokens, o.MediatorTokens, o.MaxHistory, o.PostureVisible, len(c.readers()), c.form, c.minMass},
		Longest:  map[string][]infer.Prompt{}, Answer: map[string]int{RoleParty: 2*o.MaxTokens + len(repair)/2}}
	if o.Arm.Kind != ArmNone {
		p.Answer[RoleMediator] = o.MediatorTokens
	}
	answer := 1
	if c.form == FormPass {
		answer = passTokens + passText/8
	}
	for k := range c.readers() {
		p.Answer[evaluatorRole(k)] = answer
	}
	for _, of := range cases {
		party, mediator := longestPrompts(of, o)
		for k := range c.readers() {
			p.Longest[evaluatorRole(k)] = append(p.Longest[evaluatorRole(k)], longestEvaluation(of, o))
		}
		p.Longest[RoleParty] = append(p.Longest[RoleParty], party)
		if o.Arm.Kind != ArmNone {
			p.Longest[RoleMediator] = append(p.Longest[RoleMediator], mediator)
		}
	}
	p.Preview = func(context.Context) (task.Preview, error) { return task.PreviewOf(p.Longest), nil }
	return p, nil
}

// Evaluators say how the talks are read.
type Evaluators struct {
	N       int
	Form    string
	MinMass float64
}

// evaluate reads the talks of a step.
func (x Evaluators) evaluate(role, step string) run.Step[scenario.Case] {
	return run.Step[scenario.Case]{Name: stepOf(role, step), Role: role,
		Do: func(ctx context.Context, b infer.Backend, u run.Unit[scenario.Case], look run.Lookup) (run.Sample, error) {
			talk, unscored, err := task.Earlier[Talk](look, step)
			if err != nil || unscored != "" {
				return task.Sample(Evaluation{}, unscored, err)
			}
			return task.Sample(Evaluate(ctx, b, u.Value.Scenario, talk, x.Form, x.MinMass))
		}}
}

// Task takes every case through its talks, and evaluators through the talks.
func Task(cases []scenario.Case, o Options, null bool, evaluators Evaluators) run.Task[scenario.Case] {
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
	talks := slices.Clone(t.Steps)
	for k := range evaluators.N {
		for _, s := range talks {
			t.Steps = append(t.Steps, evaluators.evaluate(evaluatorRole(k), s.Name))
		}
	}
	for _, of := range cases {
		t.Units = append(t.Units, run.Unit[scenario.Case]{Item: of.Scenario.ID, Condition: of.Condition, Group: of.Scenario.ID, Value: of})
	}
	return t
}
