package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ccmed/ccmed/bench/dialogue"
	"github.com/ccmed/ccmed/bench/prompt"
	"github.com/ccmed/ccmed/bench/report"
	"github.com/ccmed/ccmed/bench/run"
	"github.com/ccmed/ccmed/bench/timing"
	"github.com/ccmed/ccmed/infer"
	"github.com/ccmed/ccmed/sft"
)

type timingFlags struct {
	models  modelFlags
	data    dataFlags
	run     runFlags
	mode    string
	first   int
	minMass float64
	reason  int
}

func (a *app) timingCmd() *cobra.Command {
	t := timingFlags{}
	cmd := &cobra.Command{
		Use:   "timing",
		Short: "When does a model step in: ask after every turn, or for the turn",
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
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.timing(cmd.Context(), &t) },
	}
	t.models.register(cmd)
	t.data.register(cmd)
	t.run.register(cmd)
	f := cmd.Flags()
	f.StringVar(&t.mode, "mode", "stream", "stream, pick or cot")
	f.IntVar(&t.first, "first-turn", 3, "first turn that can be predicted")
	f.Float64Var(&t.minMass, "min-mass", 0.05, "least probability on the answers for a scored question")
	f.IntVar(&t.reason, "reason-tokens", 256, "cap of the reasoning in mode cot")
	return cmd
}

func (a *app) timing(ctx context.Context, t *timingFlags) error {
	if err := t.run.check(); err != nil {
		return err
	}
	switch {
	case t.first < 1:
		return usagef("--first-turn %d; it must be at least 1", t.first)
	case t.minMass < 0 || t.minMass >= 1:
		return usagef("--min-mass %g; it must lie in 0..1", t.minMass)
	case t.reason < 1:
		return usagef("--reason-tokens %d; it must be at least 1", t.reason)
	}
	set, err := prompt.Load(t.run.prompts)
	if err != nil {
		return err
	}
	ds, err := t.data.load(ctx, a)
	if err != nil {
		return err
	}
	o := timing.Options{Mode: timing.Mode(t.mode), FirstTurn: t.first, MinMass: t.minMass, ReasonTokens: t.reason, Seed: t.run.seed, Prompts: set}
	task, err := timing.Task(ds, o)
	if err != nil {
		return &usageError{Err: err}
	}
	f, err := a.newFleet(&t.models, map[string]string{timing.Role: ""})
	if err != nil {
		return err
	}
	defer f.Close()
	var prompts []infer.Prompt
	for _, d := range ds {
		ps, err := timing.Prompts(d, o)
		if err != nil {
			return err
		}
		prompts = append(prompts, ps[len(ps)-1])
	}
	answer := 1
	if o.Mode == timing.CoT {
		answer += t.reason
	}
	if err := f.fit(ctx, timing.Role, prompts, answer); err != nil {
		return err
	}
	if t.run.dryRun {
		first, err := timing.Prompts(ds[0], o)
		if err != nil {
			return err
		}
		calls := map[string][]infer.Prompt{timing.Role: nil}
		for _, d := range ds {
			ps, err := timing.Prompts(d, o)
			if err != nil {
				return err
			}
			calls[timing.Role] = append(calls[timing.Role], ps...)
		}
		return a.dryRun(ctx, f, len(ds), calls, map[string]infer.Prompt{timing.Role: first[len(first)-1]})
	}
	id, err := a.identity(ctx, f, "timing", ds, &t.run, set.Hashes(timing.TemplateNames(o.Mode)...), map[string]any{
		"data": t.data.path(), "split": t.data.split, "limit": t.data.limit, "mode": t.mode, "first_turn": t.first, "min_mass": t.minMass, "reason_tokens": t.reason})
	if err != nil {
		return err
	}
	dir, sum, err := execute(ctx, a, f, &t.run, id, task)
	if err != nil {
		return err
	}
	return a.finish(ctx, dir, sum, &t.run, scoreFlags{data: t.data, seed: t.run.seed}, a.tables)
}

// scoreTiming computes the metrics of a timing run and its sections.
func (a *app) scoreTiming(ctx context.Context, dir *run.Dir, s scoreFlags) (any, []report.Section, error) {
	samples, err := dir.Samples()
	if err != nil {
		return nil, nil, err
	}
	eval, training, err := a.baselineData(ctx, dir, s)
	if err != nil {
		return nil, nil, err
	}
	dimensions := map[string]string{}
	for _, d := range eval {
		dimensions[d.Key()] = sft.Dimension(d)
	}
	m, err := timing.Score(samples, timing.ScoreOptions{Seed: uint64(s.seed), Dimensions: dimensions})
	if err != nil {
		return nil, nil, err
	}
	first := 3
	if v, ok := dir.Manifest().Identity.Options["first_turn"].(float64); ok {
		first = int(v)
	}
	if masked, _ := dir.Manifest().Identity.Options["mask_markers"].(bool); masked {
		for i, d := range eval {
			eval[i] = d.Reword(timing.MaskMarkers) // the baselines read what the model read
		}
	}
	bs, err := timing.Baselines(ctx, eval, without(training, eval), first, m.ScoredItems())
	if err != nil {
		return nil, nil, fmt.Errorf("compute the baselines: %w", err)
	}
	var base []string
	var heldOut []report.Section
	if m.Mode == timing.DualHead {
		if card, err := cardOf(dir.Manifest()); err == nil { // without its package neither base nor training of a tuned model are known
			base = append(base, card.Base.Name)
			heldOut = heldOutSections(card, eval, m)
		}
	}
	sections := append(timing.Sections(modelNames(dir.Manifest().Identity), m, bs, base...), heldOut...)
	result := timingFound{Metrics: m, Baselines: bs, evaluated: eval}
	if m.Mode == timing.DualHead {
		if result.Thresholds, err = thresholds(dir.Manifest().Identity, samples, timing.ScoreOptions{Seed: uint64(s.seed)}); err != nil {
			return nil, nil, err
		}
		sections = append(sections, thresholdSection(result.Thresholds))
	}
	return result, sections, nil
}

// without leaves out of training what is evaluated, as where a run was made on
// training records: what is fitted must not have seen it.
func without(training, eval []dialogue.Dialogue) []dialogue.Dialogue {
	evaluated := map[string]string{}
	for _, x := range eval {
		evaluated[x.Key()] = x.ContextKey()
	}
	return slices.DeleteFunc(slices.Clone(training), func(x dialogue.Dialogue) bool { return evaluated[x.Key()] == x.ContextKey() })
}

// timingFound is what scoring a timing run gives.
type timingFound struct {
	timing.Metrics
	Baselines  []timing.BaselineResult `json:"baselines"`
	Thresholds []thresholdResult       `json:"thresholds,omitempty"`
	// evaluated are the dialogues that the baselines predicted, in their order.
	evaluated []dialogue.Dialogue
}

// baselineData finds the dialogues of a run again, and training records beside
// them, for the baselines. Without the records only the run's own numbers are
// printed.
func (a *app) baselineData(ctx context.Context, dir *run.Dir, s scoreFlags) (eval, training []dialogue.Dialogue, err error) {
	path := s.data.dir
	if path == "" {
		path, _ = dir.Manifest().Identity.Options["data"].(string)
	}
	if path == "" {
		return nil, nil, nil
	}
	d := dataFlags{dir: path, lenient: true, split: s.data.split}
	if s.data.dir == "" && d.split == "" {
		d.split, _ = dir.Manifest().Identity.Options["split"].(string)
	}
	quiet := *a
	quiet.quiet = true
	all, err := d.read(ctx, &quiet, d.split)
	if err != nil {
		a.note("no baselines: the records of this run cannot be read again: %v", err)
		return nil, nil, nil
	}
	want := map[string]bool{}
	for _, k := range dir.Manifest().Identity.Items {
		want[k] = true
	}
	for _, x := range all {
		if want[x.Key()] {
			eval = append(eval, x)
		}
	}
	if len(eval) != len(want) {
		a.note("no baselines: %s holds %d of the run's %d dialogues", path, len(eval), len(want))
		return nil, nil, nil
	}
	if path == "sample" {
		return eval, nil, nil
	}
	splits, err := dialogue.Splits(path)
	if err != nil || !strings.Contains(strings.Join(splits, " "), "training") {
		return eval, nil, nil // records without a training split are cross-validated
	}
	if training, err = d.read(ctx, &quiet, "training"); err != nil {
		return nil, nil, fmt.Errorf("read the training records for the baselines: %w", err)
	}
	return eval, training, nil
}
