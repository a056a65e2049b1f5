// Package ccbench is a benchmark after CCBench (arXiv 2607.05405): a model that has seen a
// person's past talks answers the person's questions on health. What is measured is whether
// the answers fit what the talks showed, and fit better than answers to somebody else do.
package ccbench

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/ccmed/ccmed/bench/ccbench/build"
	"github.com/ccmed/ccmed/bench/task"
	"github.com/ccmed/ccmed/bench/usage"
	"github.com/ccmed/ccmed/infer"
)

// Settings: what a model is given beside the question.
const (
	None       = "none"        // nothing
	Norms      = "norms"       // the person's stances, in so many words
	History    = "history"     // the person's past sessions
	CultureCoT = "culture-cot" // the sessions, and a call that names the cues in them
)

// Conditions of a run beside its settings: answers that no model wrote.
const (
	Empty   = "empty"   // baseline: no answer
	Generic = "generic" // baseline: a careful answer that fits any question
	Card    = "card"    // answers that a person labelled
)

var settingNames = []string{None, History, CultureCoT, Norms}

// Steps of a run.
const (
	StepAnswer = "answer"
	StepJudge  = "judge"
)

// Roles of models.
const (
	RoleAdviser = "adviser"
	RoleJudge   = "judge"
)

const temperature = 0.7 // of all answers, as in the paper

// Bench is the benchmark.
type Bench struct{}

// About describes the benchmark.
func (Bench) About() task.About {
	return task.About{Task: "ccbench", Command: "ccbench run", Subject: RoleAdviser, Item: "answer", Cluster: "persona",
		Scale: []string{"max_tokens", "history_budget"},
		Roles: map[string]string{StepAnswer: RoleAdviser, StepJudge: RoleJudge},
		Data:  map[string]any{StepAnswer: Answer{}, StepJudge: Judged{}}, Metrics: Metrics{}, Row: Row{},
		Short: "Does an answer fit the person whose past talks the model has seen",
		Long: `ccbench run asks a model questions on health of invented people and has a judge say, item
by item, whether the answer fits a person who follows or avoids a cultural norm. Under
--setting history the model has seen the person's past talks with an assistant, from
which the stances can be inferred; none shows nothing, norms states them, culture-cot
first names the cues in the talks and then answers.

The headline is adaptation: how much more often an item holds of the answers to people
of its own stance than of answers to people of the opposite one, on the same query. A
model that ignores the talks has 0, however many items it happens to fulfil.

The talks must fit the context with the answer; otherwise the run is refused with the
tokens needed. --history-budget drops the oldest sessions instead, by words, so that
every model is shown the same ones. --labels holds the judge against people: a file of
JSON lines with item, answer, label (yes or no) and, if it is known, query.

The people are invented and their norms are tendencies that were told of groups: a
result says nothing of any person, and no answer is medical advice.`,
		Example: `  ccmed ccbench run --model gemma2:9b --judge qwen2.5:14b
  ccmed ccbench run --model gemma2:9b --setting none,history --limit 4
  ccmed ccbench run --model gemma2:9b --setting history --history-budget 400`}
}

type call struct {
	build, judge, labels string
	settings             []string
	limit, personas      int
	o                    Options
}

// Options steer answers and judgements.
type Options struct {
	Seed      int64
	MaxTokens int // of an answer
	CueTokens int // of the cues of CultureCoT
	// MinMass is the least probability that yes and no must get together.
	MinMass float64
	// Budget is the most words of sessions that a prompt holds; 0 is all.
	Budget int
}

// Flags registers the flags.
func (Bench) Flags(f *pflag.FlagSet) task.Call {
	c := &call{}
	f.StringVar(&c.build, "build", build.Sample, `build of personas and queries: its folder or file; "sample" is the embedded one`)
	f.StringVar(&c.judge, "judge", "", "model that judges the answers (default: --model)")
	f.StringSliceVar(&c.settings, "setting", settingNames, "what the model is given: none, history, culture-cot, norms, separated by commas")
	f.StringVar(&c.labels, "labels", "", "file of answers that people judged, to hold the judge against")
	f.IntVar(&c.limit, "limit", 0, "take the first N queries; 0 takes all")
	f.IntVar(&c.personas, "personas", 0, "take the first N personas of each culture; 0 takes all")
	f.IntVar(&c.o.Budget, "history-budget", 0, "most words of past sessions in a prompt, the latest ones; 0 is all")
	f.IntVar(&c.o.MaxTokens, "max-tokens", 400, "most tokens of an answer; one that is cut there is unscored")
	f.IntVar(&c.o.CueTokens, "cue-tokens", 300, "most tokens of the cues that culture-cot names")
	f.Float64Var(&c.o.MinMass, "min-mass", 0.05, "minimum probability mass on yes and no; below it the item is unscored")
	task.Reads(f, "build", "labels")
	task.Suggest(f, "build", build.Sample)
	task.Choose(f, "setting", settingNames...)
	return c
}

// Roles names the models.
func (c *call) Roles(task.Env) (map[string]string, error) {
	return map[string]string{RoleAdviser: "", RoleJudge: c.judge}, nil
}

func (c *call) check() error {
	switch o := c.o; {
	case o.MaxTokens < 1:
		return usage.Errorf("--max-tokens %d; it must be at least 1", o.MaxTokens)
	case o.CueTokens < 1:
		return usage.Errorf("--cue-tokens %d; it must be at least 1", o.CueTokens)
	case o.Budget < 0:
		return usage.Errorf("--history-budget %d; it must not be negative", o.Budget)
	case !(o.MinMass >= 0 && o.MinMass < 1):
		return usage.Errorf("--min-mass %g; it must lie in 0..1", o.MinMass)
	case c.limit < 0:
		return usage.Errorf("--limit %d; it must not be negative", c.limit)
	case c.personas < 0:
		return usage.Errorf("--personas %d; it must not be negative", c.personas)
	case len(c.settings) == 0:
		return usage.Errorf("--setting names none of %s", strings.Join(settingNames, ", "))
	}
	for i, s := range c.settings {
		if !slices.Contains(settingNames, s) {
			return usage.Errorf("--setting %q; known are %s", s, strings.Join(settingNames, ", "))
		}
		if slices.Contains(c.settings[:i], s) {
			return usage.Errorf("--setting names %s twice", s)
		}
	}
	return nil
}

// settings are the options of a run's identity.
type settings struct {
	Build       string   `json:"build"`
	Setting     []string `json:"setting"`
	Limit       int      `json:"limit"`
	Personas    int      `json:"personas"`
	Budget      int      `json:"history_budget"`
	MaxTokens   int      `json:"max_tokens"`
	CueTokens   int      `json:"cue_tokens"`
	MinMass     float64  `json:"min_mass"`
	LabelsHash  string   `json:"labels_sha256,omitempty"`
	Writer      string   `json:"writer,omitempty"` // of the build
	Temperature float64  `json:"temperature"`
}

// read reads the build, as far as the flags take it.
func (c *call) read() (*build.Build, error) {
	b, err := build.Read(c.build)
	if err != nil {
		return nil, err
	}
	if c.limit > 0 {
		b.Queries = b.Queries[:min(c.limit, len(b.Queries))]
	}
	for i := range b.Cultures {
		if of := &b.Cultures[i]; c.personas > 0 {
			of.Personas = of.Personas[:min(c.personas, len(of.Personas))]
		}
	}
	return b, nil
}

// Plan says what is asked.
func (c *call) Plan(_ context.Context, env task.Env) (task.Plan, error) {
	if err := c.check(); err != nil {
		return task.Plan{}, err
	}
	c.o.Seed = env.Seed
	b, err := c.read()
	if err != nil {
		return task.Plan{}, err
	}
	labels, hash, err := readLabels(c.labels)
	if err != nil {
		return task.Plan{}, err
	}
	o := c.o
	units, items := unitsOf(b, c.settings, o)
	if len(units) == 0 {
		return task.Plan{}, fmt.Errorf("no norm of a persona in %s is relevant to one of its first %d queries; raise --limit", c.build, len(b.Queries))
	}
	p := task.Plan{Size: len(items), Items: items, DataHash: b.Hash, Templates: templates(),
		Settings: settings{c.build, c.settings, c.limit, c.personas, o.Budget, o.MaxTokens, o.CueTokens, o.MinMass, hash, b.Writer, temperature},
		Longest:  map[string][]infer.Prompt{}, Answer: map[string]int{RoleAdviser: o.MaxTokens, RoleJudge: 1}}
	for _, u := range labelled(labels) {
		units, p.Others = append(units, u), append(p.Others, u.Item)
	}
	p.Task = Task(units, o)
	for _, u := range units {
		if q, ok := u.Value.longest(o); ok {
			p.Longest[RoleAdviser] = append(p.Longest[RoleAdviser], q)
		}
		answer := u.Value.given
		if u.Value.asks() {
			answer = filler(o.MaxTokens)
		}
		of := judgement(u.Value.query.Text, answer)
		for _, it := range u.Value.items {
			p.Longest[RoleJudge] = append(p.Longest[RoleJudge], of.item(it.Text))
		}
	}
	p.Preview = func(context.Context) (task.Preview, error) { return task.PreviewOf(p.Longest), nil }
	return p, nil
}
