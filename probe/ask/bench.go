package ask

import (
	"context"
	"fmt"
	"path/filepath"

	"github.com/spf13/pflag"

	"github.com/ccmed/ccmed/bench/dialogue"
	"github.com/ccmed/ccmed/bench/mediation"
	"github.com/ccmed/ccmed/bench/run"
	"github.com/ccmed/ccmed/bench/task"
	"github.com/ccmed/ccmed/bench/usage"
	"github.com/ccmed/ccmed/infer"
	"github.com/ccmed/ccmed/infer/fleet"
	"github.com/ccmed/ccmed/infer/llamacpp"
	"github.com/ccmed/ccmed/probe"
	"github.com/ccmed/ccmed/probe/direction"
)

// TaskName is the task in the manifests of these runs.
const TaskName = "ask"

const role = mediation.RoleMediator

// Bench is the benchmark.
type Bench struct{}

// About describes the benchmark.
func (Bench) About() task.About {
	return task.About{
		Task: TaskName, Command: "probe ask", Argument: "RUN", Subject: role, Item: "dialogue", Cluster: "scenario context", States: true,
		Roles:   map[string]string{StepUtterance: role, StepAsk: role, StepCost: ""},
		Scale:   []string{"condition", "max_tokens"},
		Data:    map[string]any{StepUtterance: Utterance{}, StepAsk: Answer{}, StepCost: Cost{}},
		Metrics: Scored{}, Row: Row{},
		Short: "Hear a model's line and ask it for the stage, edited or not",
		Long: `ask goes through the dialogues of RUN, a store or a mediation run of the same
model, at the conflict turn. In each the model says its line, and answers with a
letter which of three patterns the conflict's speaker shows; letters are dealt anew
for every dialogue. The line is then measured under the unchanged model, and twenty
neutral paragraphs say how far an edit drifts from it.

Without --edit the lines of RUN are taken, and only the questions are asked. With
--edit FILE,CLASS,DOSE the model is edited while it speaks and answers: one run is
one arm, which ccmed probe effect holds against the unchanged one.`,
		Example: `  ccmed probe ask runs/STORE --model gemma2:9b
  ccmed probe ask runs/STORE --model gemma2:9b --edit stage.edit,Denial,2`,
	}
}

// call is one call of the command.
type call struct {
	path, data, condition string
	limit                 int
}

// Flags registers the benchmark's flags.
func (Bench) Flags(f *pflag.FlagSet) task.Call {
	c := &call{}
	f.StringVar(&c.data, "data", "", "the dialogues of RUN (default: where RUN had them from)")
	f.StringVar(&c.condition, "condition", probe.ContextND, "what the model reads: ND, the dialogue alone, or D, the stage named as well")
	f.IntVar(&c.limit, "limit", 0, "take the first N dialogues of RUN, spread over stages; 0 takes all")
	task.Choose(f, "condition", probe.ContextND, probe.ContextD)
	task.Reads(f, "data")
	return c
}

// Take takes the run that the command names.
func (c *call) Take(path string) { c.path = path }

// Roles names the model that speaks.
func (c *call) Roles(task.Env) (map[string]string, error) { return map[string]string{role: ""}, nil }

// Settings are the options of a run's identity.
type Settings struct {
	task.RecordSettings
	From      string `json:"from"`
	Condition string `json:"condition"`
	MaxTokens int    `json:"max_tokens"`
	Taken     bool   `json:"taken"` // lines are those of From
	// Edits are those of the model, in the order in which they are made.
	Edits []Edit `json:"edits,omitempty"`
}

// Edit says what an edit file was asked for, and what it was learnt from.
type Edit struct {
	File   string   `json:"file"`
	Kind   string   `json:"kind"`
	Layers []string `json:"layers"`
	Class  string   `json:"class"` // with its control
	Dose   float64  `json:"dose"`
	// Widest is how many times the mean length of the states the edit is long; Groups are the
	// scenario contexts that it was learnt from.
	Widest float64  `json:"widest"`
	Groups []string `json:"groups"`
}

// edits describes the values of --edit.
func edits(values []string) (out []Edit, err error) {
	for _, v := range values {
		path, class, dose, err := fleet.ParseEdit(v)
		if err != nil {
			return nil, err
		}
		f, err := direction.Load(path)
		if err != nil {
			return nil, err
		}
		at, err := filepath.Abs(path)
		if err != nil {
			return nil, fmt.Errorf("find %s: %w", path, err)
		}
		out = append(out, Edit{at, f.Kind, f.Layers, class, dose, f.Widest(class, dose), f.Groups})
	}
	return out, nil
}

// Plan says what the call asks.
func (c *call) Plan(ctx context.Context, env task.Env) (task.Plan, error) {
	if c.condition != probe.ContextND && c.condition != probe.ContextD {
		return task.Plan{}, usage.Errorf("unknown --condition %q; known are %s and %s", c.condition, probe.ContextND, probe.ContextD)
	}
	if c.limit < 0 {
		return task.Plan{}, usage.Errorf("--limit %d; it must not be negative", c.limit)
	}
	r, err := env.Open(c.path)
	if err != nil {
		return task.Plan{}, err
	}
	lines, err := Lines(r)
	if err != nil {
		return task.Plan{}, err
	}
	ds, err := r.Dialogues(ctx, task.Records{Path: c.data})
	if err != nil {
		return task.Plan{}, fmt.Errorf("read the dialogues of %s: %w; name their folder with --data", c.path, err)
	}
	ds = dialogue.Limit(ds, c.limit)
	models, err := env.Models()
	if err != nil {
		return task.Plan{}, err
	}
	a := &asking{prompts: env.Prompts, condition: c.condition, seed: env.Seed}
	taken, err := c.measure(ctx, models, r, a)
	if err != nil {
		return task.Plan{}, err
	}
	given := map[string]string{}
	for _, l := range lines {
		if taken && l.Condition == c.condition {
			given[l.Item] = l.Text
		}
	}
	s, err := task.Settings[Settings](r.Identity())
	if err != nil {
		return task.Plan{}, err
	}
	a.maxTokens, s.Condition, s.Taken = s.MaxTokens, c.condition, taken
	if s.Edits, err = edits(env.Edits); err != nil {
		return task.Plan{}, err
	}
	if s.From, err = filepath.Abs(c.path); err != nil {
		return task.Plan{}, fmt.Errorf("find %s: %w", c.path, err)
	}
	p := task.Plan{Task: a.task(ds, given), Size: len(ds), Items: task.Keys(ds), DataHash: dialogue.Hash(ds), Templates: env.Prompts.Hashes("mediate", "ask"),
		Settings: s, Parent: s.From, Answer: map[string]int{role: a.maxTokens}}
	var ps []infer.Prompt
	for _, d := range ds {
		for _, build := range []func(dialogue.Dialogue) (infer.Prompt, error){a.context, a.question} {
			q, err := build(d)
			if err != nil {
				return p, err
			}
			ps = append(ps, q)
		}
	}
	p.Longest = map[string][]infer.Prompt{role: ps}
	p.Open = func(context.Context, *run.Dir) (func() error, error) {
		plain, err := models.Raw(role).(*llamacpp.Engine).Edited(nil)
		if err != nil {
			return nil, fmt.Errorf("open the model without its edits: %w", err)
		}
		a.plain = plain
		return plain.Close, nil
	}
	p.Preview = func(context.Context) (task.Preview, error) { return task.PreviewOf(p.Longest), nil }
	return p, nil
}

// measure finds what measures the costs, and whether the lines of the run can be taken: they
// are those of a model that is edited as this one is.
func (c *call) measure(ctx context.Context, models task.Models, r *task.Run, a *asking) (taken bool, err error) {
	id, err := models.Model(ctx, role)
	if err != nil {
		return false, err
	}
	was := r.Identity().Models[role]
	if was.Digest != id.Digest || was.TemplateHash != id.TemplateHash {
		return false, fmt.Errorf("%s was made with %s (%s) and %s (%s) would be asked: not the same model, or another chat template",
			c.path, was.Name, infer.ShortDigest(was.Digest), id.Name, infer.ShortDigest(id.Digest))
	}
	e, ok := models.Raw(role).(*llamacpp.Engine)
	if !ok {
		return false, fmt.Errorf("the backend of %s measures no costs; leave --backend out", id.Name)
	}
	a.numCtx = func() int { return models.NumCtx(role) }
	if id.Edits != "" {
		a.edited = e
	}
	return was.Edits == id.Edits, nil
}
