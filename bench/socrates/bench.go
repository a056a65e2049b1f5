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
	"maps"
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
	// StepRecorded holds recorded talks of people, for the evaluator card.
	StepRecorded = "recorded"
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
	roles := map[string]string{StepUnmediated: RoleParty, StepNull: RoleParty, StepMediated: RoleMediator, StepRecorded: ""}
	data := map[string]any{}
	for _, step := range append(slices.Clone(steps), StepRecorded) {
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
after a drop, and what follows its words, beside the same turns without it. --casino
takes talks of people that end in a deal (kushalchawla/CaSiNo, CC BY 4.0): the
evaluator reads them too, and its card says whether its readings can be believed.
Without a card, or with a bad one, what it reads is a pipeline check, not a finding.

A talk ends when the latest turn of every party holds [FINAL AGREEMENT], when one
writes [IMPASSE], or after --max-turns. The context must hold the longest talk; where
the model's is too small, lower --max-turns or --max-tokens, or give --max-history.
Parties and mediator are asked in turn: a server must hold both models at a time.`,
		Example: `  ccmed socrates run --mediator gemma2:9b --parties qwen2.5:14b --evaluator qwen2.5:14b --max-turns 10
  ccmed socrates run --mediator gemma2:9b --parties qwen2.5:14b --casino casino_test.json --max-turns 10
  ccmed socrates run --mediator gemma2:9b --parties qwen2.5:14b --scenarios my-disputes --kept runs/KEPT --max-turns 8
  ccmed socrates run --model gemma2:9b --conditions general,emotion --null --max-turns 8
  ccmed socrates run --model gemma2:9b --arm periodic:4 --limit 2 --max-turns 8`}
}

type call struct {
	mediator, parties, scenarios, arm string
	baselines, kept                   string
	conditions                        []string
	evaluators                        []string
	form                              string
	minMass                           float64
	casino                            string
	cardItems                         int
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
	f.StringVar(&c.casino, "casino", "", "file of CaSiNo talks, for the evaluator card")
	f.IntVar(&c.cardItems, "card-items", 50, "talks that the evaluator card takes; 0 takes all")
	f.StringVar(&c.baselines, "baselines", "", "socrates run whose talks without a mediator are used; parties, scenarios and seed must be the same")
	f.StringVar(&c.kept, "kept", "", "run of socrates filter: take the scenarios that it keeps")
	f.BoolVar(&c.null, "null", false, "add a talk without a mediator from other seeds")
	f.IntVar(&c.limit, "limit", 0, "take the first N scenarios; 0 takes all")
	f.BoolVar(&c.lenient, "lenient", false, "understand other names of fields in scenarios, and pass over those that are not known")
	f.IntVar(&c.o.MaxTurns, "max-turns", 100, "party turns after which a talk ends without an agreement")
	f.IntVar(&c.o.MaxTokens, "max-tokens", 200, "most tokens of a party's turn, its thought included")
	f.IntVar(&c.o.MediatorTokens, "mediator-tokens", 120, "most tokens of a mediator's thought, and of its words")
	f.IntVar(&c.o.MaxHistory, "max-history", 0, "latest turns that a prompt holds; 0 is all")
	f.BoolVar(&c.o.PostureVisible, "posture-visible", false, "tell the mediator too which strategy the parties were told")
	task.Reads(f, "scenarios", "casino", "baselines", "kept")
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
	case c.cardItems < 0:
		return usage.Errorf("--card-items %d; it must not be negative", c.cardItems)
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
	CasinoHash     string   `json:"casino_sha256,omitempty"`
	CardItems      int      `json:"card_items,omitempty"`
	Kept           []string `json:"kept,omitempty"`      // by socrates filter
	Baselines      string   `json:"baselines,omitempty"` // hash of the samples of the run that they are from
}

// cases reads the scenarios, all or only some, and puts them under the conditions.
func (c *call) cases(env task.Env, only ...string) (cases []scenario.Case, items []string, err error) {
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
	if len(only) > 0 {
		all = slices.DeleteFunc(all, func(s scenario.Scenario) bool { return !slices.Contains(only, s.ID) })
		if len(all) < len(only) {
			return nil, nil, usage.Errorf("--kept names %d scenarios, of which %s holds %d; take the scenarios that were filtered", len(only), c.scenarios, len(all))
		}
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

// card reads the talks of the evaluator card.
func (c *call) card(env task.Env, s *settings) ([]recorded, error) {
	if c.casino == "" {
		return nil, nil
	}
	talks, left, hash, err := readCasino(c.casino, c.cardItems)
	if err != nil {
		return nil, err
	}
	for _, why := range slices.Sorted(maps.Keys(left)) {
		env.Note("%s: %d talks left out: %s", c.casino, left[why], why)
	}
	if len(talks) == 0 {
		return nil, usage.Errorf("%s holds no talk that ends in a deal; the evaluator card needs some", c.casino)
	}
	s.CasinoHash, s.CardItems = hash, len(talks)
	return talks, nil
}

// hashOf identifies the cases.
func hashOf(cases []scenario.Case) (string, error) {
	b, err := json.Marshal(cases)
	if err != nil {
		return "", fmt.Errorf("encode the scenarios: %w", err)
	}
	h := sha256.Sum256(b)
	return hex.EncodeToString(h[:]), nil
}

// partyAnswer is the most tokens that a party's answers add to a prompt: two, and the request
// for the second.
func partyAnswer(o Options) int { return 2*o.MaxTokens + len(repair)/2 }

// paths are those along which prompts grow in a talk: one for each party, for each sees the
// talk from its side, and one for the mediator.
func paths(cases []scenario.Case, o Options) map[string]int {
	n := map[string]int{}
	for _, of := range cases {
		n[RoleParty] = max(n[RoleParty], len(of.Scenario.Parties))
	}
	if o.Arm.Kind != ArmNone {
		n[RoleMediator] = 1
	}
	return n
}

// Plan says what is asked.
func (c *call) Plan(ctx context.Context, env task.Env) (task.Plan, error) {
	if err := c.check(); err != nil {
		return task.Plan{}, err
	}
	c.o.Seed = env.Seed
	var kept []string
	if c.kept != "" {
		var err error
		if kept, err = keptBy(ctx, env, c.kept); err != nil {
			return task.Plan{}, err
		}
	}
	cases, items, err := c.cases(env, kept...)
	if err != nil {
		return task.Plan{}, err
	}
	hash, err := hashOf(cases)
	if err != nil {
		return task.Plan{}, err
	}
	o := c.o
	set := settings{Scenarios: c.scenarios, Conditions: c.conditions, Arm: c.arm, Null: c.null, Limit: c.limit, MaxTurns: o.MaxTurns, MaxTokens: o.MaxTokens, MediatorTokens: o.MediatorTokens,
		MaxHistory: o.MaxHistory, PostureVisible: o.PostureVisible, Evaluators: len(c.readers()), Form: c.form, MinMass: c.minMass, Kept: kept}
	card, err := c.card(env, &set)
	if err != nil {
		return task.Plan{}, err
	}
	talks := tasks(cases, o, c.null, Evaluators{len(c.readers()), c.form, c.minMass}, card)
	p := task.Plan{Size: len(cases), Items: items, DataHash: hash, Templates: templates(), Longest: map[string][]infer.Prompt{}, Answer: map[string]int{RoleParty: partyAnswer(o)}}
	if c.baselines != "" {
		e, err := earlierTalks(env, c.baselines, cases)
		if err != nil {
			return task.Plan{}, err
		}
		talks.Steps[0], set.Baselines, p.Check = e.step(), e.manifest.SamplesHash, e.fits
	}
	p.Task, p.Settings = talks, set
	for _, r := range card {
		p.Others = append(p.Others, r.ID)
	}
	if o.Arm.Kind != ArmNone {
		p.Answer[RoleMediator] = o.MediatorTokens
	}
	p.Paths = paths(cases, o)
	answer := 1
	if c.form == FormPass {
		answer = passTokens + passText/8
	}
	for k := range c.readers() {
		p.Answer[evaluatorRole(k)] = answer
		for _, r := range card {
			p.Longest[evaluatorRole(k)] = append(p.Longest[evaluatorRole(k)], longestQuestion(campsite(), r.Talk))
		}
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
func (x Evaluators) evaluate(role string, of run.Step[unit]) run.Step[unit] {
	return run.Step[unit]{Name: stepOf(role, of.Name), Role: role, Only: of.Only,
		Do: func(ctx context.Context, b infer.Backend, u run.Unit[unit], look run.Lookup) (run.Sample, error) {
			talk, unscored, err := task.Earlier[Talk](look, of.Name)
			if err != nil || unscored != "" {
				return task.Sample(Evaluation{}, unscored, err)
			}
			return task.Sample(Evaluate(ctx, b, u.Value.Scenario, talk, x.Form, x.MinMass))
		}}
}

// unit is a scenario under a condition, or a recorded talk.
type unit struct {
	scenario.Case
	recorded *Talk
}

func simulated(u run.Unit[unit]) bool { return u.Value.recorded == nil }
func ofTheCard(u run.Unit[unit]) bool { return u.Value.recorded != nil }

// tasks takes every case through its talks, and evaluators through these and the recorded ones.
func tasks(cases []scenario.Case, o Options, null bool, evaluators Evaluators, card []recorded) run.Task[unit] {
	t := run.Task[unit]{Name: "socrates"}
	alone := func(step string, arm Arm) run.Step[unit] {
		o := o
		o.Arm = arm
		return run.Step[unit]{Name: step, Role: RoleParty, Only: simulated, Do: func(ctx context.Context, b infer.Backend, u run.Unit[unit], _ run.Lookup) (run.Sample, error) {
			return task.Sample(Simulate(ctx, b, nil, u.Value.Case, o))
		}}
	}
	t.Steps = append(t.Steps, alone(StepUnmediated, Arm{Kind: ArmNone}))
	if null {
		t.Steps = append(t.Steps, alone(StepNull, Arm{Kind: ArmNull}))
	}
	if o.Arm.Kind != ArmNone {
		t.Steps = append(t.Steps, run.Step[unit]{Name: StepMediated, Roles: []string{RoleParty, RoleMediator}, Only: simulated,
			DoAll: func(ctx context.Context, bs map[string]infer.Backend, u run.Unit[unit], _ run.Lookup) (run.Sample, error) {
				return task.Sample(Simulate(ctx, bs[RoleParty], bs[RoleMediator], u.Value.Case, o))
			}})
	}
	if len(card) > 0 {
		t.Steps = append(t.Steps, run.Step[unit]{Name: StepRecorded, Only: ofTheCard,
			Do: func(_ context.Context, _ infer.Backend, u run.Unit[unit], _ run.Lookup) (run.Sample, error) {
				return task.Sample(u.Value.recorded, "", nil)
			}})
	}
	talks := slices.Clone(t.Steps)
	for k := range evaluators.N {
		for _, s := range talks {
			t.Steps = append(t.Steps, evaluators.evaluate(evaluatorRole(k), s))
		}
	}
	for _, of := range cases {
		t.Units = append(t.Units, run.Unit[unit]{Item: of.Scenario.ID, Condition: of.Condition, Group: of.Scenario.ID, Value: unit{Case: of}})
	}
	for _, r := range card {
		first := half(r.Talk)
		add := func(condition string, talk *Talk) {
			t.Units = append(t.Units, run.Unit[unit]{Item: r.ID, Condition: condition, Group: r.ID,
				Value: unit{scenario.Case{Scenario: campsite(), Condition: condition}, talk}})
		}
		add(CardWhole, &r.Talk)
		add(CardHalf, &first)
	}
	return t
}
