// Package dualhead is the benchmark of tuned models: a decision head says after every turn
// whether to step in, and the model writes its line where it does. Its runs are timing
// runs, with the same metrics and baselines; beside them stand the accuracies at other
// thresholds, and in a report the comparison with the model before tuning.
//
//	benches := task.Registry{dualhead.Bench{}, timing.Bench{}}
package dualhead

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/pflag"

	"github.com/ccmed/ccmed/bench/dialogue"
	"github.com/ccmed/ccmed/bench/run"
	"github.com/ccmed/ccmed/bench/task"
	"github.com/ccmed/ccmed/bench/timing"
	"github.com/ccmed/ccmed/bench/usage"
	"github.com/ccmed/ccmed/infer"
	"github.com/ccmed/ccmed/infer/llamacpp"
	"github.com/ccmed/ccmed/sft"
)

// fixedThreshold is the P(speak) from which a tuned model steps in unless another
// is asked for.
const fixedThreshold = 0.5

// Bench is the benchmark of tuned models.
type Bench struct{}

// Owns tells the runs of a decision head from other timing runs.
func (Bench) Owns(id run.Identity) bool {
	return id.Task == timing.TaskName && id.Options["mode"] == string(timing.DualHead)
}

// About describes the benchmark.
func (Bench) About() task.About {
	a := timing.Bench{}.About()
	a.Command, a.Metrics, a.States = "sft predict", Scored{}, true
	a.Short = "When does a tuned model step in, and what does it say"
	a.Long = `predict reads a dialogue with a tuned model in one evaluation, takes the decision
head's P(speak) after every turn, and the first turn from --first-turn on that
reaches the threshold; from there the model writes its utterance. The result is a
timing run with utterances: score, compare, mediate --turn predicted:RUN and
mediate --utterances RUN take it.

The threshold is 0.5. The one that was chosen on validation dialogues is a result
of its own: --threshold-from validation decides by it, and where the model has one
its accuracy is printed beside the other's in any case.

--mask-markers takes out of every turn the phrases that the baseline of marker
phrases looks for: what is lost then was marker spotting.`
	a.Example = `  ccmed sft predict --model tuned/ --data CC-Mediation/data
  ccmed sft predict --model NAME --head tuned/head.safetensors --data CC-Mediation/data --mask-markers`
	return a
}

// call is one call of the command.
type call struct {
	flags         *pflag.FlagSet
	records       task.Records
	head          string
	threshold     float64
	thresholdFrom string
	first         int
	maxTokens     int
	maskMarkers   bool
}

// Flags registers the benchmark's flags.
func (Bench) Flags(f *pflag.FlagSet) task.Call {
	c := &call{flags: f}
	c.records.Register(f)
	if model := f.Lookup("model"); model != nil {
		model.Usage = "tuned model: a package's folder, or with --head a GGUF file or a name of Ollama's"
	}
	f.StringVar(&c.head, "head", "", "decision head (default: the package's)")
	f.Float64Var(&c.threshold, "threshold", fixedThreshold, "P(speak) from which the model steps in")
	f.StringVar(&c.thresholdFrom, "threshold-from", "", `"validation": the threshold that was chosen on validation dialogues`)
	f.IntVar(&c.first, "first-turn", 3, "first turn that can be predicted")
	f.IntVar(&c.maxTokens, "max-tokens", 160, "cap of an utterance")
	f.BoolVar(&c.maskMarkers, "mask-markers", false, "take marker phrases out of the turns")
	task.Reads(f, "head")
	task.Choose(f, "threshold-from", "validation")
	return c
}

func (c *call) check(env task.Env) error {
	switch {
	case env.Model == "":
		return usage.Errorf("no model given; name a package's folder with --model, or a GGUF file or a name of Ollama's with --head")
	case env.ChatTemplate != "":
		return usage.Errorf("a tuned model reads the dialogue itself; leave --chat-template out")
	case !(c.threshold > 0 && c.threshold <= 1):
		return usage.Errorf("--threshold %g; it must lie above 0 and at most at 1", c.threshold)
	case c.thresholdFrom != "" && c.thresholdFrom != "validation":
		return usage.Errorf(`unknown --threshold-from %q; known is "validation"`, c.thresholdFrom)
	case c.thresholdFrom != "" && c.flags.Changed("threshold"):
		return usage.Errorf("--threshold and --threshold-from both set the threshold; give one")
	case c.first < 1:
		return usage.Errorf("--first-turn %d; it must be at least 1", c.first)
	case c.maxTokens < 1:
		return usage.Errorf("--max-tokens %d; it must be at least 1", c.maxTokens)
	}
	return nil
}

// tuned is a model with its decision head, as the user named them.
type tuned struct {
	model string // a GGUF file, or a name of Ollama's
	head  *sft.Head
	card  *sft.Card // nil where no card lies beside the head
	dir   string    // of the card
}

// tuned finds the files of the model.
func (c *call) tuned(env task.Env) (tuned, error) {
	t := tuned{model: env.Model}
	head := c.head
	_, err := sft.ReadCard(t.model)
	st, noFolder := os.Stat(t.model)
	switch {
	case err == nil:
		if head == "" {
			head = filepath.Join(t.model, sft.HeadFile)
		}
		t.model = filepath.Join(t.model, sft.ModelFile)
	case noFolder == nil && st.IsDir() && (head == "" || !errors.Is(err, os.ErrNotExist)):
		return t, err // with a head it may be a name of Ollama's all the same
	}
	if head == "" {
		return t, usage.Errorf("%s is not a package's folder; name its decision head with --head", t.model)
	}
	if t.head, err = sft.ReadHead(head); err != nil {
		return t, err
	}
	t.dir = filepath.Dir(head)
	t.card, err = sft.ReadCard(t.dir)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return t, nil
	case err == nil:
		err = t.card.CheckHead(head, t.head)
	}
	return t, err
}

// settings are the options of a run's identity.
type settings struct {
	task.RecordSettings
	Mode                string  `json:"mode"`
	FirstTurn           int     `json:"first_turn"`
	Threshold           float64 `json:"threshold"`
	ThresholdFrom       string  `json:"threshold_from"`
	ThresholdValidation float64 `json:"threshold_validation"` // 0 where none was chosen
	MaxTokens           int     `json:"max_tokens"`
	MaskMarkers         bool    `json:"mask_markers"`
	HeadHash            string  `json:"head_sha256"`
	// Package is the folder with the card of the tuned model, "" where there is none.
	Package string `json:"package"`
}

// reword changes the records as the model read them; nil changes nothing.
func (s settings) reword() func(string) string {
	if s.MaskMarkers {
		return timing.MaskMarkers
	}
	return nil
}

// Roles names the tuned model.
func (c *call) Roles(env task.Env) (map[string]string, error) {
	t, err := c.tuned(env)
	return map[string]string{timing.Role: t.model}, err
}

// choose returns the threshold to decide by, and the one chosen on validation dialogues.
func (c *call) choose(t tuned, model string) (threshold, validation float64, err error) {
	if t.card != nil && t.card.ThresholdValidation != nil {
		validation = t.card.ThresholdValidation.Value
	}
	switch {
	case c.thresholdFrom == "":
		return c.threshold, validation, nil
	case validation == 0:
		return 0, 0, fmt.Errorf("no threshold was chosen on validation dialogues: no card beside the head of %s holds one; give --threshold", model)
	}
	return validation, validation, nil
}

// checkFiles holds the files of a package against its card.
func (t tuned) checkFiles(ctx context.Context, env task.Env) error {
	if t.card == nil {
		return nil
	}
	if t.card.HeadHash == "" {
		env.Note("note: the package of %s was made by an older ccmed: its card and its head have no checksum", t.card.Name)
	}
	if t.model != env.Model { // it is the package's own
		return t.card.CheckModel(ctx, env.Model)
	}
	return nil
}

// Plan says what the call asks.
func (c *call) Plan(ctx context.Context, env task.Env) (task.Plan, error) {
	if err := c.check(env); err != nil {
		return task.Plan{}, err
	}
	t, err := c.tuned(env)
	if err != nil {
		return task.Plan{}, err
	}
	if err := t.checkFiles(ctx, env); err != nil {
		return task.Plan{}, err
	}
	threshold, validation, err := c.choose(t, env.Model)
	if err != nil {
		return task.Plan{}, err
	}
	ds, _, err := env.Dialogues(ctx, c.records)
	if err != nil {
		return task.Plan{}, err
	}
	models, err := env.Models()
	if err != nil {
		return task.Plan{}, err
	}
	m, err := models.Model(ctx, timing.Role)
	if err != nil {
		return task.Plan{}, err
	}
	engine, ok := models.Raw(timing.Role).(*llamacpp.Engine)
	if !ok {
		return task.Plan{}, fmt.Errorf("the backend of %s reads no hidden states", m.Name)
	}
	if err := t.head.Check(m, engine.Width()); err != nil {
		return task.Plan{}, err
	}
	s := settings{c.records.Settings(), string(timing.DualHead), c.first, threshold, c.thresholdFrom, validation, c.maxTokens, c.maskMarkers, t.head.Hash(), ""}
	p := &sft.Prediction{Reader: engine, Head: t.head, Threshold: threshold, FirstTurn: c.first, MaxTokens: c.maxTokens, Seed: env.Seed, Reword: s.reword()}
	if p.Markers, err = sft.MarkerTokensOf(engine); err != nil {
		return task.Plan{}, err
	}
	tk, err := p.Task(ds)
	if err != nil {
		return task.Plan{}, err
	}
	prompts, err := c.prompts(p, m, env.NumCtx, ds)
	if err != nil {
		return task.Plan{}, err
	}
	plan := task.Plan{Task: tk, Size: len(ds), Items: task.Keys(ds), DataHash: dialogue.Hash(ds), Templates: map[string]string{},
		Longest: map[string][]infer.Prompt{timing.Role: prompts}, Answer: map[string]int{timing.Role: c.maxTokens},
		Preview: func(context.Context) (task.Preview, error) {
			first := p.Prompt(ds[0], ds[0].LastTurn())
			return task.Preview{Calls: map[string][]infer.Prompt{timing.Role: prompts}, First: map[string]infer.Prompt{timing.Role: first}}, nil
		}}
	if t.card != nil {
		plan.Names = map[string]string{timing.Role: t.card.Name}
		if s.Package, err = filepath.Abs(t.dir); err != nil {
			return plan, fmt.Errorf("find the package: %w", err)
		}
	}
	plan.Settings = s
	return plan, nil
}

// engineNumCtx is the context length of an engine that is opened without one, see
// llamacpp.Options.
const engineNumCtx = 4096

// prompts are the prompts of utterances at the ends of the dialogues. It refuses a dialogue
// for which the context has no room: the one that states are read in is the engine's own,
// which --num-ctx alone enlarges.
func (c *call) prompts(p *sft.Prediction, m infer.Model, numCtx int, ds []dialogue.Dialogue) ([]infer.Prompt, error) {
	have := numCtx
	if have == 0 {
		have = engineNumCtx
		if m.ContextTrain > 0 {
			have = min(have, m.ContextTrain)
		}
	}
	var out []infer.Prompt
	for _, d := range ds {
		prompt := p.Prompt(d, d.LastTurn())
		ts, err := p.Reader.LiteralTokens(prompt.Raw)
		if err != nil {
			return nil, fmt.Errorf("tokenise dialogue %s: %w", d.Key(), err)
		}
		if n := len(ts) + c.maxTokens; n > have {
			remedy := "raise --num-ctx"
			if m.ContextTrain > 0 && n > m.ContextTrain {
				remedy = fmt.Sprintf("the model was trained on %d: leave the dialogue out", m.ContextTrain)
			}
			return nil, fmt.Errorf("dialogue %s and an utterance need %d tokens of context and there are %d; %s", d.Key(), n, have, remedy)
		}
		out = append(out, prompt)
	}
	return out, nil
}

// Lines returns the turns that a run decided, and what was said there.
func (Bench) Lines(r *task.Run) (map[string]task.Line, error) { return timing.Bench{}.Lines(r) }
