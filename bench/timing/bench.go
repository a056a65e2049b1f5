package timing

import (
	"context"
	"fmt"

	"github.com/spf13/pflag"

	"github.com/ccmed/ccmed/bench/dialogue"
	"github.com/ccmed/ccmed/bench/task"
	"github.com/ccmed/ccmed/bench/usage"
	"github.com/ccmed/ccmed/infer"
)

// TaskName is the task in the manifests of timing runs, those of DualHead included.
const TaskName = "timing"

// Bench is the benchmark of timing.
type Bench struct{}

// About describes the benchmark.
func (Bench) About() task.About {
	return task.About{
		Task: TaskName, Command: "timing", Subject: Role, Item: "dialogue", Cluster: "scenario context",
		Roles: map[string]string{StepReason: Role, StepDecide: Role, StepUtterance: Role},
		Scale: []string{"first_turn"},
		Data:  map[string]any{StepReason: reasoning{}, StepDecide: Decision{}, StepUtterance: Utterance{}}, Metrics: Scored{}, Row: Row{},
		Short: "When a model steps in: asked after every turn, or for the turn",
		Long: `timing asks a model when a mediator should step into each dialogue and compares
its turn with the turn at which the conflict was scripted.

  stream  yes or no after every turn, the first yes from --first-turn on wins
  pick    the whole dialogue, choose a turn
  cot     the whole dialogue, reason, then choose a turn

Baselines stand beside every result; the bag-of-words classifier is trained on
the training records where --data holds them, else cross-validated.`,
		Example: `  ccmed timing --model gemma2:9b --data CC-Mediation/data
  ccmed timing --model model.gguf --data sample --mode pick
  ccmed timing --model gemma2:9b --data CC-Mediation/data --dry-run`,
	}
}

// call is one call of the command.
type call struct {
	records task.Records
	mode    string
	options Options
}

// Flags registers the benchmark's flags.
func (Bench) Flags(f *pflag.FlagSet) task.Call {
	c := &call{}
	c.records.Register(f)
	f.StringVar(&c.mode, "mode", string(Stream), "stream, pick or cot")
	task.Choose(f, "mode", string(Stream), string(Pick), string(CoT))
	f.IntVar(&c.options.FirstTurn, "first-turn", 3, "first turn that can be predicted")
	f.Float64Var(&c.options.MinMass, "min-mass", 0.05, "minimum probability mass on the allowed answers; below it the question is unscored")
	f.IntVar(&c.options.ReasonTokens, "reason-tokens", 256, "cap of the reasoning in mode cot")
	return c
}

// Roles names the model that decides.
func (c *call) Roles(task.Env) (map[string]string, error) { return map[string]string{Role: ""}, nil }

func (c *call) check() error {
	switch o := c.options; {
	case o.FirstTurn < 1:
		return usage.Errorf("--first-turn %d; it must be at least 1", o.FirstTurn)
	case o.MinMass < 0 || o.MinMass >= 1:
		return usage.Errorf("--min-mass %g; it must lie in 0..1", o.MinMass)
	case o.ReasonTokens < 1:
		return usage.Errorf("--reason-tokens %d; it must be at least 1", o.ReasonTokens)
	}
	return nil
}

// settings are the options of a run's identity.
type settings struct {
	task.RecordSettings
	Mode         string  `json:"mode"`
	FirstTurn    int     `json:"first_turn"`
	MinMass      float64 `json:"min_mass"`
	ReasonTokens int     `json:"reason_tokens"`
}

// Plan says what the call asks.
func (c *call) Plan(ctx context.Context, env task.Env) (task.Plan, error) {
	if err := c.check(); err != nil {
		return task.Plan{}, err
	}
	o := c.options
	o.Mode, o.Seed, o.Prompts = Mode(c.mode), env.Seed, env.Prompts
	ds, _, err := env.Dialogues(ctx, c.records)
	if err != nil {
		return task.Plan{}, err
	}
	t, err := Task(ds, o)
	if err != nil {
		return task.Plan{}, &usage.Error{Err: err}
	}
	longest, err := o.longest(ds)
	if err != nil {
		return task.Plan{}, err
	}
	answer := 1
	if o.Mode == CoT {
		answer += o.ReasonTokens
	}
	return task.Plan{Task: t, Size: len(ds), Items: task.Keys(ds), DataHash: dialogue.Hash(ds), Templates: o.Prompts.Hashes(TemplateNames(o.Mode)...),
		Settings: settings{c.records.Settings(), c.mode, o.FirstTurn, o.MinMass, o.ReasonTokens},
		Longest:  map[string][]infer.Prompt{Role: longest}, Answer: map[string]int{Role: answer},
		Preview: func(context.Context) (task.Preview, error) { return o.preview(ds) }}, nil
}

// longest returns each dialogue's longest prompt.
func (o Options) longest(ds []dialogue.Dialogue) ([]infer.Prompt, error) {
	var out []infer.Prompt
	for _, d := range ds {
		ps, err := Prompts(d, o)
		if err != nil {
			return nil, err
		}
		out = append(out, ps[len(ps)-1])
	}
	return out, nil
}

func (o Options) preview(ds []dialogue.Dialogue) (task.Preview, error) {
	var all []infer.Prompt
	var first infer.Prompt
	for i, d := range ds {
		ps, err := Prompts(d, o)
		if err != nil {
			return task.Preview{}, err
		}
		if i == 0 {
			first = ps[len(ps)-1]
		}
		all = append(all, ps...)
	}
	return task.Preview{Calls: map[string][]infer.Prompt{Role: all}, First: map[string]infer.Prompt{Role: first}}, nil
}

// Score scores a run, or takes its stored metrics.
func (Bench) Score(ctx context.Context, in task.Input) (task.Result, error) {
	return NewResult(ctx, in, nil)
}

// Lines returns the turns that a run decided, and what was said there.
func (Bench) Lines(r *task.Run) (map[string]task.Line, error) {
	a, err := Read(r.Samples())
	if err != nil {
		return nil, err
	}
	out := map[string]task.Line{}
	for _, d := range a.Decided {
		l := task.Line{}
		if d.Unscored == "" {
			turn := d.Predicted
			l.Turn = &turn
		}
		if d.Line != nil {
			l.Text, l.Written = d.Line.Text, d.Line.Turn > 0 || d.LineUnscored == NotSpoken
		}
		out[d.Key.Item] = l
	}
	return out, nil
}

// baselines computes what stands beside the run's own numbers, or notes why nothing does.
func baselines(ctx context.Context, in task.Input, s settings, m Metrics, reword func(string) string) ([]BaselineResult, error) {
	ds, err := in.Dialogues(ctx, in.At)
	if err != nil {
		in.Archive.Note("no baselines: the records of this run cannot be read again: %v", err)
		return nil, nil
	}
	training, err := in.Training(ctx, in.At)
	if err != nil {
		return nil, err
	}
	bs, err := Baselines(ctx, reworded(ds, reword), training, s.FirstTurn, m.ScoredItems(), m.Mode)
	if err != nil {
		return nil, fmt.Errorf("compute the baselines: %w", err)
	}
	return bs, nil
}

// reworded are the dialogues as the model read them.
func reworded(ds []dialogue.Dialogue, reword func(string) string) []dialogue.Dialogue {
	if reword == nil {
		return ds
	}
	out := make([]dialogue.Dialogue, len(ds))
	for i, d := range ds {
		out[i] = d.Reword(reword)
	}
	return out
}
