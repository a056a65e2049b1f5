package extract

import (
	"context"
	"path/filepath"
	"strings"

	"github.com/ccmed/ccmed/bench/dialogue"
	"github.com/ccmed/ccmed/bench/mediation"
	"github.com/ccmed/ccmed/bench/prompt"
	"github.com/ccmed/ccmed/bench/run"
	"github.com/ccmed/ccmed/bench/task"
	"github.com/ccmed/ccmed/bench/timing"
	"github.com/ccmed/ccmed/infer"
	"github.com/ccmed/ccmed/infer/llamacpp"
	"github.com/ccmed/ccmed/probe"
)

// planQuestions plans an extraction at the ends of questions. all carries what every kind of
// extraction shares.
func (c *call) planQuestions(env task.Env, models task.Models, engine *llamacpp.Engine, all *probe.Extraction, ds []dialogue.Dialogue) (task.Plan, error) {
	x := &probe.QuestionExtraction{Timing: c.task != "", Reader: all.Reader, Tokens: all.Tokens, DType: all.DType, Model: all.Model}
	template := "label"
	if x.Ask = labelQuestions(env.Prompts); x.Timing {
		x.Ask, template = timingQuestions(env.Prompts), "timing_stream"
	}
	if err := x.Use(ds); err != nil {
		return task.Plan{}, err
	}
	var ps []infer.Prompt
	for _, d := range ds {
		qs, err := x.Ask(d)
		if err != nil {
			return task.Plan{}, err
		}
		for _, q := range qs {
			ps = append(ps, q.Prompt)
		}
	}
	named := models.Named(role)
	if strings.EqualFold(filepath.Ext(named), ".gguf") {
		named = absolute(named)
	}
	return task.Plan{Task: x.Task(), Size: len(ds), Items: task.Keys(ds), DataHash: dialogue.Hash(ds), Templates: env.Prompts.Hashes(template),
		Settings: questionSettings{c.records.Settings(), c.unseen, c.questions, c.task, named, string(x.DType), engine.Layers(), engine.Width()},
		Longest:  map[string][]infer.Prompt{role: ps}, Answer: map[string]int{role: 8},
		Preview: func(context.Context) (task.Preview, error) {
			env.Note("%d questions about turns of %d dialogues, %d layers x %d values: %.1f MB on disk", x.Rows(), len(ds), len(engine.Layers()), engine.Width(),
				float64(x.Bytes())/1e6)
			return task.Preview{Calls: map[string][]infer.Prompt{role: ps}, First: map[string]infer.Prompt{role: ps[0]}, Bytes: x.Bytes()}, nil
		},
		Open: func(ctx context.Context, dir *run.Dir) (func() error, error) { return x.Close, x.Open(ctx, dir) },
	}, nil
}

// labelQuestions are the labeller's, about every turn that carries a recorded stage.
func labelQuestions(set *prompt.Set) func(dialogue.Dialogue) ([]probe.Question, error) {
	return func(d dialogue.Dialogue) (out []probe.Question, err error) {
		qs, err := mediation.Questions(set, d)
		for _, q := range qs {
			out = append(out, probe.Question{Turn: q.Turn.T, Stage: q.Stage.String(), Text: q.Turn.Message, Prompt: q.Prompt})
		}
		return out, err
	}
}

// timingQuestions are whether to speak, after every turn up to the conflict's.
func timingQuestions(set *prompt.Set) func(dialogue.Dialogue) ([]probe.Question, error) {
	return func(d dialogue.Dialogue) (out []probe.Question, err error) {
		ps, err := timing.Prompts(d, timing.Options{Mode: timing.Stream, Prompts: set})
		if err != nil {
			return nil, err
		}
		for i, t := range d.Unmediated()[:d.ConflictTurn] {
			out = append(out, probe.Question{Turn: t.T, Stage: d.Stage.String(), Text: t.Message, Prompt: ps[i]})
		}
		return out, nil
	}
}
