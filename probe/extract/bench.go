// Package extract is the benchmark that stores hidden states: at the end of the prompt
// and of the mediator's line, or at the ends of the conflict speaker's turns. What probes
// find in them stands in its result.
//
//	benches := task.Registry{extract.Bench{}}
package extract

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/ccmed/ccmed/bench/dialogue"
	"github.com/ccmed/ccmed/bench/mediation"
	"github.com/ccmed/ccmed/bench/run"
	"github.com/ccmed/ccmed/bench/task"
	"github.com/ccmed/ccmed/bench/timing"
	"github.com/ccmed/ccmed/bench/usage"
	"github.com/ccmed/ccmed/infer"
	"github.com/ccmed/ccmed/infer/llamacpp"
	"github.com/ccmed/ccmed/probe"
	"github.com/ccmed/ccmed/probe/activation"
)

// TaskName is the task in the manifests of extractions.
const TaskName = "extract"

const role = mediation.RoleMediator

// Bench is the benchmark that stores hidden states.
type Bench struct{}

// About describes the benchmark.
func (Bench) About() task.About {
	return task.About{
		Task: TaskName, Command: "probe extract", Folder: "store", Subject: role, Item: "dialogue", Cluster: "scenario context", States: true,
		Roles:   map[string]string{probe.StepUtterance: role},
		Data:    map[string]any{probe.StepUtterance: probe.Lines{}, probe.StepStates: []any{probe.States{}, probe.TurnStates{}}},
		Metrics: Audit{}, Row: Row{},
		Short: "Store hidden states at the end of prompt and utterance",
		Long: `extract reads the hidden states of the very weights that Ollama serves (--model NAME)
or of a GGUF file, after every block, and stores them as safetensors in a run
folder: at prompt_end (the last prompt token) and at utterance_end (the end-of-turn
token after the line). One evaluation gives both.

--conditions D,ND reads the model's own line under its own prompt. To tell
reading from writing, cross contexts (D, ND, wrong, none) with texts (own-D,
own-ND, placebo, other): every text is fed after every context.

--turns reads another store: the dialogue as it went without a mediator, at the
end of the conflict turn and of every later turn of the same speaker, in one
pass. --edits adds the conflict turn with its marker phrases masked, removed, or
with the phrase of another stage.

--questions reads a third: the end of the labeller's question about every turn that
carries a recorded stage. ccmed probe train fits a labeller to it, which mediate
asks with --labeller probe:STORE. --task timing reads a fourth: the end of the
question whether to speak, after every turn up to the conflict's, from which
ccmed probe direction --kind speak learns.

Lines come from a mediation run (--from), or the model writes them first. With
Ollama at hand the prompts are its own renderings, and their token counts are
held against its own.`,
		Example: `  ccmed probe extract --model gemma2:9b --data CC-Mediation/data --conditions D,ND
  ccmed probe extract --model model.gguf --data sample --contexts D,ND,wrong,none --texts own-D,own-ND,placebo,other
  ccmed probe extract --model model.gguf --data CC-Mediation/data --split training --turns --edits mask,strip,swap
  ccmed probe extract --model qwen2.5:14b --data CC-Mediation/data --split training --questions`,
	}
}

// call is one call of the command.
type call struct {
	flags                       *pflag.FlagSet
	records                     task.Records
	conditions, contexts, texts []string
	cells, edits                []string
	turns, questions, unseen    bool
	task, from, dtype           string
	maxTokens                   int
}

// Flags registers the benchmark's flags.
func (Bench) Flags(f *pflag.FlagSet) task.Call {
	c := &call{flags: f}
	c.records.Register(f)
	f.StringSliceVar(&c.conditions, "conditions", []string{"D", "ND"}, "conditions whose own lines are read: D, ND")
	f.StringSliceVar(&c.contexts, "contexts", nil, "crossed design: contexts D, ND, wrong, none (instead of --conditions)")
	f.StringSliceVar(&c.texts, "texts", []string{"own-D", "own-ND", "placebo", "other"}, "crossed design: texts own-D, own-ND, placebo, other")
	f.StringSliceVar(&c.cells, "cells", nil, "single cells, CONTEXT:TEXT, instead of a whole cross: D:own-D,ND:own-ND,wrong:own-ND")
	f.BoolVar(&c.turns, "turns", false, "read the conflict speaker's own turns instead, at the end of each")
	f.BoolVar(&c.questions, "questions", false, "read the ends of the labeller's questions about labelled turns instead")
	f.BoolVar(&c.unseen, "exclude-seen-contexts", false, "with --split training: leave out dialogues whose scenario context is in the evaluation split")
	f.StringVar(&c.task, "task", "", "timing: read the ends of the questions whether to speak instead")
	f.StringSliceVar(&c.edits, "edits", nil, "with --turns: the conflict turn edited as well: mask, strip, swap")
	f.StringVar(&c.from, "from", "", "mediation run whose lines are read; without it the model writes them first")
	f.StringVar(&c.dtype, "dtype", "f16", "f16 or f32")
	f.IntVar(&c.maxTokens, "max-tokens", 160, "cap of a line that is generated")
	task.Reads(f, "from")
	task.Choose(f, "conditions", probe.ContextD, probe.ContextND)
	task.Choose(f, "contexts", probe.ContextD, probe.ContextND, probe.ContextWrong, probe.ContextNone)
	task.Choose(f, "texts", probe.TextOwnD, probe.TextOwnND, probe.TextPlacebo, probe.TextOther)
	task.Choose(f, "edits", probe.Edits...)
	task.Choose(f, "dtype", "f16", "f32")
	task.Choose(f, "task", timing.TaskName)
	return c
}

// Roles names the model whose states are read.
func (c *call) Roles(task.Env) (map[string]string, error) { return map[string]string{role: ""}, nil }

// pairs are the contexts and texts that are read together.
func (c *call) pairs() ([]probe.Pair, error) {
	if len(c.cells) > 0 {
		if len(c.contexts) > 0 {
			return nil, errors.New("--cells and --contexts are two ways to say the same; give one")
		}
		return singlePairs(c.cells)
	}
	if len(c.contexts) > 0 {
		return probe.Pairs(c.contexts, c.texts)
	}
	var out []probe.Pair
	for _, name := range c.conditions {
		if name != probe.ContextD && name != probe.ContextND {
			return nil, fmt.Errorf("unknown condition %q; known are D and ND", name)
		}
		out = append(out, probe.Pair{Context: name, Text: "own-" + name})
	}
	if len(out) == 0 {
		return nil, errors.New("no conditions given")
	}
	return out, nil
}

func singlePairs(cells []string) ([]probe.Pair, error) {
	var out []probe.Pair
	for _, c := range cells {
		before, text, ok := strings.Cut(c, ":")
		if !ok {
			return nil, fmt.Errorf("--cells %q is not CONTEXT:TEXT, such as D:own-D", c)
		}
		ps, err := probe.Pairs([]string{before}, []string{text})
		if err != nil {
			return nil, err
		}
		for _, p := range ps {
			if slices.Contains(out, p) {
				return nil, fmt.Errorf("--cells names %s twice", c)
			}
			out = append(out, p)
		}
	}
	return out, nil
}

// check finds flags that contradict each other or are out of range.
func (c *call) check() error {
	if !c.turns && len(c.edits) > 0 {
		return usage.Errorf("--edits are edits of the conflict turn; give --turns with them")
	}
	if c.task != "" && c.task != timing.TaskName {
		return usage.Errorf("unknown --task %q; known is %s", c.task, timing.TaskName)
	}
	if c.turns && c.questions || c.task != "" && (c.turns || c.questions) {
		return usage.Errorf("--turns, --questions and --task make different stores; give one")
	}
	for _, name := range []string{"conditions", "contexts", "texts", "cells", "from", "max-tokens"} {
		if (c.turns || c.questions || c.task != "") && c.flags.Changed(name) {
			return usage.Errorf("--turns, --questions and --task read the dialogue as it went, without a line of the mediator's; leave --%s out", name)
		}
	}
	if c.unseen && c.records.Split != dialogue.Training {
		return usage.Errorf("--exclude-seen-contexts leaves out training dialogues; give --split %s", dialogue.Training)
	}
	if t := c.storedAs(); t != activation.F16 && t != activation.F32 {
		return usage.Errorf("unknown --dtype %q; known are f16 and f32", c.dtype)
	}
	if c.maxTokens < 1 {
		return usage.Errorf("--max-tokens %d; it must be at least 1", c.maxTokens)
	}
	return nil
}

func (c *call) storedAs() activation.DType { return activation.DType(strings.ToUpper(c.dtype)) }

// lineSettings are the options of the identity of an extraction at lines, turnSettings of
// one at turns, questionSettings of one at questions.
type (
	lineSettings struct {
		task.RecordSettings
		Unseen    bool         `json:"exclude_seen_contexts,omitempty"`
		Pairs     []probe.Pair `json:"pairs"`
		DType     string       `json:"dtype"`
		MaxTokens int          `json:"max_tokens"`
		From      string       `json:"from"`
		Layers    []string     `json:"layers"`
		Width     int          `json:"width"`
	}
	questionSettings struct {
		task.RecordSettings
		Unseen    bool     `json:"exclude_seen_contexts,omitempty"`
		Questions bool     `json:"questions"`
		Task      string   `json:"task,omitempty"` // timing: the questions are whether to speak
		Model     string   `json:"model"`          // a name of the server, or a file's absolute path
		DType     string   `json:"dtype"`
		Layers    []string `json:"layers"`
		Width     int      `json:"width"`
	}
	turnSettings struct {
		task.RecordSettings
		Unseen bool     `json:"exclude_seen_contexts,omitempty"`
		Turns  bool     `json:"turns"`
		Edits  []string `json:"edits"`
		DType  string   `json:"dtype"`
		Layers []string `json:"layers"`
		Width  int      `json:"width"`
	}
)

// dialogues are those that are read.
func (c *call) dialogues(ctx context.Context, env task.Env) ([]dialogue.Dialogue, error) {
	chosen, all, err := env.Dialogues(ctx, c.records)
	if err != nil || !c.unseen {
		return chosen, err
	}
	evaluation := c.records
	evaluation.Split = dialogue.Evaluate
	others, err := env.All(ctx, evaluation)
	if err != nil {
		return nil, fmt.Errorf("read the evaluation split, whose scenario contexts are left out: %w", err)
	}
	seen := map[string]bool{}
	for _, d := range others {
		seen[d.ContextKey()] = true
	}
	all = slices.DeleteFunc(slices.Clone(all), func(d dialogue.Dialogue) bool { return seen[d.ContextKey()] })
	if len(all) == 0 {
		return nil, errors.New("every training dialogue shares its scenario context with the evaluation split; leave --exclude-seen-contexts out")
	}
	return dialogue.Limit(all, c.records.Limit), nil
}

// Plan says what the call reads.
func (c *call) Plan(ctx context.Context, env task.Env) (task.Plan, error) {
	pairs, err := c.pairs()
	if err != nil {
		return task.Plan{}, &usage.Error{Err: err}
	}
	if err := c.check(); err != nil {
		return task.Plan{}, err
	}
	ds, err := c.dialogues(ctx, env)
	if err != nil {
		return task.Plan{}, err
	}
	models, err := env.Models()
	if err != nil {
		return task.Plan{}, err
	}
	id, err := models.Model(ctx, role)
	if err != nil {
		return task.Plan{}, err
	}
	engine, ok := models.Raw(role).(*llamacpp.Engine)
	if !ok {
		return task.Plan{}, fmt.Errorf("the backend of %s reads no hidden states", id.Name)
	}
	x := &probe.Extraction{Reader: engine, Render: func(ctx context.Context, p infer.Prompt) (string, error) { return engine.Render(ctx, p) },
		Tokens: engine.Tokens, EndOfTurn: engine.EndOfTurn(), Prompts: env.Prompts, Pairs: pairs, DType: c.storedAs(), Model: id, MaxTokens: c.maxTokens, Seed: env.Seed}
	switch {
	case c.turns:
		return c.planTurns(env, models, engine, x, ds)
	case c.questions, c.task != "":
		return c.planQuestions(env, models, engine, x, ds)
	}
	return c.planLines(env, models, engine, x, ds)
}

// planLines plans an extraction at the ends of prompts and lines.
func (c *call) planLines(env task.Env, models task.Models, engine *llamacpp.Engine, x *probe.Extraction, ds []dialogue.Dialogue) (task.Plan, error) {
	if x.EndOfTurn < 0 {
		return task.Plan{}, fmt.Errorf("the vocabulary of %s has no end-of-turn token: utterance_end has no place", x.Model.Name)
	}
	p := task.Plan{Templates: env.Prompts.Hashes("mediate"), Parent: absolute(c.from),
		Settings: lineSettings{c.records.Settings(), c.unseen, x.Pairs, string(x.DType), c.maxTokens, absolute(c.from), engine.Layers(), engine.Width()}}
	if c.from != "" {
		var err error
		if ds, err = c.takeLines(env, x, ds); err != nil {
			return p, err
		}
	} else {
		p.Ready = func(ctx context.Context) error { return checkServed(ctx, env, models, x, ds) }
	}
	x.Use(ds)
	p.Task, p.Size, p.Items, p.DataHash = x.Task(), len(ds), task.Keys(ds), dialogue.Hash(ds)
	var longest, shown []infer.Prompt
	for _, d := range ds {
		for _, name := range []string{probe.ContextD, probe.ContextWrong} {
			q, err := x.Prompt(d, name)
			if err != nil {
				return p, err
			}
			longest = append(longest, q)
		}
		q, err := x.Prompt(d, x.Pairs[0].Context)
		if err != nil {
			return p, err
		}
		shown = append(shown, q)
	}
	p.Longest, p.Answer = map[string][]infer.Prompt{role: longest}, map[string]int{role: max(c.maxTokens, longestText) + 8}
	p.Preview = func(context.Context) (task.Preview, error) {
		env.Note("%d cells of %d layers x %d dialogues x %d values: %.1f MB on disk", len(x.Cells()), len(engine.Layers()), len(ds), engine.Width(), float64(x.Bytes(len(ds)))/1e6)
		return task.Preview{Calls: map[string][]infer.Prompt{role: shown}, First: map[string]infer.Prompt{role: shown[0]}, Bytes: x.Bytes(len(ds))}, nil
	}
	p.Open = func(ctx context.Context, dir *run.Dir) (func() error, error) { return x.Close, x.Open(ctx, dir) }
	return p, nil
}

// longestText is more tokens than a placebo has.
const longestText = 96

// planTurns plans an extraction at the ends of the conflict speaker's own turns. all
// carries what both kinds of extraction share.
func (c *call) planTurns(env task.Env, models task.Models, engine *llamacpp.Engine, all *probe.Extraction, ds []dialogue.Dialogue) (task.Plan, error) {
	x := &probe.TurnExtraction{Reader: all.Reader, Render: all.Render, Tokens: all.Tokens, Controls: engine.Controls(), Prompts: all.Prompts, Edits: c.edits,
		DType: all.DType, Model: all.Model, Seed: all.Seed}
	if err := x.Use(ds); err != nil {
		return task.Plan{}, err
	}
	var ps []infer.Prompt
	for _, d := range ds {
		p, err := x.Prompt(d)
		if err != nil {
			return task.Plan{}, err
		}
		q, err := all.Prompt(d, probe.ContextD) // which checkServed asks
		if err != nil {
			return task.Plan{}, err
		}
		ps = append(ps, p, q)
	}
	first := ps[0]
	return task.Plan{Task: x.Task(), Size: len(ds), Items: task.Keys(ds), DataHash: dialogue.Hash(ds), Templates: env.Prompts.Hashes("mediate"),
		Settings: turnSettings{c.records.Settings(), c.unseen, true, c.edits, string(x.DType), engine.Layers(), engine.Width()},
		// An edit may be longer than the turn that it replaces.
		Longest: map[string][]infer.Prompt{role: ps}, Answer: map[string]int{role: 64},
		Preview: func(context.Context) (task.Preview, error) {
			env.Note("%d own turns of %d dialogues, %d layers x %d values, %d edits: %.1f MB on disk", x.Rows(), len(ds), len(engine.Layers()), engine.Width(),
				len(x.Edits), float64(x.Bytes())/1e6)
			return task.Preview{Calls: map[string][]infer.Prompt{role: ps}, First: map[string]infer.Prompt{role: first}, Bytes: x.Bytes()}, nil
		},
		Ready: func(ctx context.Context) error {
			markers := x.Markers()
			for _, s := range slices.Sorted(maps.Keys(markers)) {
				env.Note("%s: %d marker phrases", s, markers[s])
			}
			return checkServed(ctx, env, models, all, ds)
		},
		Open: func(ctx context.Context, dir *run.Dir) (func() error, error) { return x.Close, x.Open(ctx, dir) },
	}, nil
}
