package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"

	"github.com/ccmed/ccmed/bench/dialogue"
	"github.com/ccmed/ccmed/bench/report"
	"github.com/ccmed/ccmed/bench/run"
	"github.com/ccmed/ccmed/bench/stats"
	"github.com/ccmed/ccmed/bench/timing"
	"github.com/ccmed/ccmed/infer"
	"github.com/ccmed/ccmed/infer/llamacpp"
	"github.com/ccmed/ccmed/sft"
)

// fixedThreshold is the P(speak) from which a tuned model steps in unless another
// is asked for.
const fixedThreshold = 0.5

type predictFlags struct {
	models        modelFlags
	data          dataFlags
	run           runFlags
	head          string
	threshold     float64
	thresholdFrom string
	first         int
	maxTokens     int
	maskMarkers   bool
}

func (a *app) sftPredictCmd() *cobra.Command {
	p := predictFlags{}
	cmd := &cobra.Command{
		Use:   "predict",
		Short: "When does a tuned model step in, and what does it say",
		Long: `predict reads a dialogue with a tuned model in one evaluation, takes the decision
head's P(speak) after every turn, and the first turn from --first-turn on that
reaches the threshold; from there the model writes its utterance. The result is a
timing run with utterances: score, compare, mediate --turn predicted:RUN and
mediate --utterances RUN take it.

The threshold is 0.5. The one that was chosen on validation dialogues is a result
of its own: --threshold-from validation decides by it, and where the model has one
its accuracy is printed beside the other's in any case.

--mask-markers takes out of every turn the phrases that the baseline of marker
phrases looks for: what is lost then was marker spotting.`,
		Example: `  ccmed sft predict --model tuned/ --data CC-Mediation/data
  ccmed sft predict --model NAME --head tuned/head.safetensors --data CC-Mediation/data --mask-markers`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.sftPredict(cmd.Context(), cmd.Flags().Changed("threshold"), &p)
		},
	}
	p.models.register(cmd)
	p.data.register(cmd)
	p.run.register(cmd)
	f := cmd.Flags()
	f.Lookup("model").Usage = "tuned model: a package's folder, or with --head a GGUF file or a name of Ollama's"
	f.StringVar(&p.head, "head", "", "decision head (default: the package's)")
	f.Float64Var(&p.threshold, "threshold", fixedThreshold, "P(speak) from which the model steps in")
	f.StringVar(&p.thresholdFrom, "threshold-from", "", `"validation": the threshold that was chosen on validation dialogues`)
	f.IntVar(&p.first, "first-turn", 3, "first turn that can be predicted")
	f.IntVar(&p.maxTokens, "max-tokens", 160, "cap of an utterance")
	f.BoolVar(&p.maskMarkers, "mask-markers", false, "take marker phrases out of the turns")
	return cmd
}

func (p *predictFlags) check(thresholdGiven bool) error {
	if err := p.run.check(); err != nil {
		return err
	}
	switch {
	case p.models.model == "":
		return usagef("no model given; name a package's folder with --model, or a GGUF file or a name of Ollama's with --head")
	case p.models.backend != "" && p.models.backend != "embedded":
		return usagef("hidden states come from the embedded engine; leave --backend out (a name of Ollama's opens the weights that Ollama serves)")
	case p.models.chatTemplate != "":
		return usagef("a tuned model reads the dialogue itself; leave --chat-template out")
	case !(p.threshold > 0 && p.threshold <= 1):
		return usagef("--threshold %g; it must lie above 0 and at most at 1", p.threshold)
	case p.thresholdFrom != "" && p.thresholdFrom != "validation":
		return usagef(`unknown --threshold-from %q; known is "validation"`, p.thresholdFrom)
	case p.thresholdFrom != "" && thresholdGiven:
		return usagef("--threshold and --threshold-from both set the threshold; give one")
	case p.first < 1:
		return usagef("--first-turn %d; it must be at least 1", p.first)
	case p.maxTokens < 1:
		return usagef("--max-tokens %d; it must be at least 1", p.maxTokens)
	}
	return nil
}

// tuned is a model with its decision head, as the user named them.
type tuned struct {
	model string // a GGUF file, or a name of Ollama's
	head  *sft.Head
	card  *sft.Card // nil where no card lies beside the head
}

// tuned finds the files of the model.
func (p *predictFlags) tuned() (tuned, error) {
	t := tuned{model: p.models.model}
	head := p.head
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
		return t, usagef("%s is not a package's folder; name its decision head with --head", t.model)
	}
	if t.head, err = sft.ReadHead(head); err != nil {
		return t, err
	}
	t.card, err = sft.ReadCard(filepath.Dir(head))
	switch {
	case errors.Is(err, os.ErrNotExist):
		return t, nil
	case err == nil:
		err = t.card.CheckHead(head, t.head)
	}
	return t, err
}

func (a *app) sftPredict(ctx context.Context, thresholdGiven bool, p *predictFlags) error {
	if err := p.check(thresholdGiven); err != nil {
		return err
	}
	t, err := p.tuned()
	if err != nil {
		return err
	}
	if t.card != nil {
		if t.card.HeadHash == "" {
			a.note("note: the package of %s was made by an older ccmed: its card and its head have no checksum", t.card.Name)
		}
		if t.model != p.models.model { // it is the package's own
			if err := t.card.CheckModel(ctx, p.models.model); err != nil {
				return err
			}
		}
	}
	threshold, validation := p.threshold, 0.0
	if t.card != nil && t.card.ThresholdValidation != nil {
		validation = t.card.ThresholdValidation.Value
	}
	if p.thresholdFrom != "" {
		if validation == 0 {
			return fmt.Errorf("no threshold was chosen on validation dialogues: no card beside the head of %s holds one; give --threshold", p.models.model)
		}
		threshold = validation
	}
	ds, err := p.data.load(ctx, a)
	if err != nil {
		return err
	}
	models := p.models
	models.model, models.backend, models.cacheFile = t.model, "embedded", "off"
	f, err := a.newFleet(&models, map[string]string{timing.Role: ""})
	if err != nil {
		return err
	}
	defer f.Close()
	m, err := f.Model(ctx, timing.Role)
	if err != nil {
		return err
	}
	engine, ok := f.raw(timing.Role).(*llamacpp.Engine)
	if !ok {
		return fmt.Errorf("the backend of %s reads no hidden states", m.Name)
	}
	if err := t.head.Check(m, engine.Width()); err != nil {
		return err
	}
	pr := &sft.Prediction{Reader: engine, Head: t.head, Threshold: threshold, FirstTurn: p.first, MaxTokens: p.maxTokens, Seed: p.run.seed}
	if p.maskMarkers {
		pr.Reword = timing.MaskMarkers
	}
	if pr.Markers, err = sft.MarkerTokensOf(engine); err != nil {
		return err
	}
	task, err := pr.Task(ds)
	if err != nil {
		return err
	}
	if err := p.fit(ctx, f, pr, m, ds); err != nil {
		return err
	}
	if p.run.dryRun {
		first := pr.Prompt(ds[0], ds[0].LastTurn())
		var ps []infer.Prompt
		for _, d := range ds {
			ps = append(ps, pr.Prompt(d, d.LastTurn()))
		}
		return a.dryRun(ctx, f, len(ds), map[string][]infer.Prompt{timing.Role: ps}, map[string]infer.Prompt{timing.Role: first})
	}
	id, err := a.identity(ctx, f, "timing", ds, &p.run, map[string]string{}, map[string]any{
		"data": p.data.path(), "split": p.data.split, "limit": p.data.limit, "mode": string(timing.DualHead), "first_turn": p.first,
		"threshold": threshold, "threshold_from": p.thresholdFrom, "threshold_validation": validation, "max_tokens": p.maxTokens,
		"mask_markers": p.maskMarkers, "head_sha256": t.head.Hash()})
	if err != nil {
		return err
	}
	if t.card != nil {
		m.Name = t.card.Name
		id.Models[timing.Role] = m
	}
	dir, sum, err := execute(ctx, a, f, &p.run, id, task)
	if err != nil {
		return err
	}
	return a.finish(ctx, dir, sum, &p.run, scoreFlags{data: p.data, seed: p.run.seed}, a.tables)
}

// engineNumCtx is the context length of an engine that is opened without one, see
// llamacpp.Options.
const engineNumCtx = 4096

// fit makes room for the longest dialogue and its utterance. The context that
// states are read in is the engine's own, which --num-ctx alone enlarges.
func (p *predictFlags) fit(ctx context.Context, f *fleet, pr *sft.Prediction, m infer.Model, ds []dialogue.Dialogue) error {
	have := p.models.numCtx
	if have == 0 {
		have = engineNumCtx
		if m.ContextTrain > 0 {
			have = min(have, m.ContextTrain)
		}
	}
	var prompts []infer.Prompt
	for _, d := range ds {
		prompt := pr.Prompt(d, d.LastTurn())
		ts, err := pr.Reader.LiteralTokens(prompt.Raw)
		if err != nil {
			return fmt.Errorf("tokenise dialogue %s: %w", d.Key(), err)
		}
		if n := len(ts) + p.maxTokens; n > have {
			remedy := "raise --num-ctx"
			if m.ContextTrain > 0 && n > m.ContextTrain {
				remedy = fmt.Sprintf("the model was trained on %d: leave the dialogue out", m.ContextTrain)
			}
			return fmt.Errorf("dialogue %s and an utterance need %d tokens of context and there are %d; %s", d.Key(), n, have, remedy)
		}
		prompts = append(prompts, prompt)
	}
	return f.fit(ctx, timing.Role, prompts, p.maxTokens)
}

// thresholdResult is a tuned model's turn accuracy at one threshold.
type thresholdResult struct {
	Name      string          `json:"name"`
	Threshold float64         `json:"threshold"`
	Correct   int             `json:"correct"`
	Scored    int             `json:"scored"`
	TurnAcc   *stats.Estimate `json:"turn_acc,omitempty"` // absent where the answer is constant
	Never     int             `json:"no_prediction"`
}

// thresholds scores the curves of a run at the fixed threshold, at the one that
// was chosen on validation dialogues, where there is one, and at the run's own.
func thresholds(id run.Identity, samples []run.Sample, o timing.ScoreOptions) ([]thresholdResult, error) {
	option := func(name string) float64 { v, _ := id.Options[name].(float64); return v }
	rs := []thresholdResult{{Name: "fixed", Threshold: fixedThreshold}}
	if v := option("threshold_validation"); v > 0 {
		rs = append(rs, thresholdResult{Name: "chosen on validation dialogues", Threshold: v})
	}
	if v := option("threshold"); !slices.ContainsFunc(rs, func(r thresholdResult) bool { return r.Threshold == v }) {
		rs = append(rs, thresholdResult{Name: "given", Threshold: v})
	}
	for i, r := range rs {
		moved, err := timing.AtThreshold(samples, r.Threshold)
		if err != nil {
			return nil, err
		}
		m, err := timing.Score(moved, o)
		if err != nil {
			return nil, fmt.Errorf("score the run at the threshold %g: %w", r.Threshold, err)
		}
		rs[i].Correct, rs[i].Scored, rs[i].TurnAcc, rs[i].Never = m.Correct, m.Scored, m.TurnAcc, m.NoPrediction
	}
	return rs, nil
}

func thresholdSection(rs []thresholdResult) report.Section {
	t := report.Table{Columns: []report.Column{{Name: "threshold"}, {Name: "P(speak)", Align: report.Right}, {Name: "TurnAcc", Align: report.Right},
		{Name: "95 % interval", Align: report.Right}, {Name: "no prediction", Align: report.Right}}}
	for _, r := range rs {
		iv := "degenerate"
		if r.TurnAcc != nil {
			iv = report.Estimate(*r.TurnAcc, 3)
		}
		if r.Scored == 0 {
			iv = ""
		}
		t.Rows = append(t.Rows, []report.Cell{report.Text(r.Name), report.Num(r.Threshold, 3), report.Text(report.Pct(r.Correct, r.Scored)), report.Text(iv), report.Text(report.Pct(r.Never, r.Scored))})
	}
	return report.Section{Title: "Turn accuracy by threshold", Tables: []report.Table{t},
		Notes: []string{"the same curves at each threshold; all other tables are at the run's own"}}
}
