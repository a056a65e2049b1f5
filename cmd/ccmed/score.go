package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ccmed/ccmed/bench/mediation"
	"github.com/ccmed/ccmed/bench/report"
	"github.com/ccmed/ccmed/bench/run"
	"github.com/ccmed/ccmed/bench/task"
	"github.com/ccmed/ccmed/bench/timing"
	"github.com/ccmed/ccmed/bench/visible"
)

func (a *app) scoreCmd() *cobra.Command {
	call := &mediation.Call{Turn: "gold"}
	j := &job{bench: mediation.Bench{}, call: call}
	var format, condition, rule string
	cmd := &cobra.Command{
		Use:   "score FILE...",
		Short: "Score dialogues and predictions made elsewhere, or a run again",
		Long: `score takes

  a run            and computes its metrics again from its samples
  records          (a folder or JSONL file) and scores their own continuations:
                   from the recorded labels, or with --labeller from a model's
  predictions      {"per_sid":[{"sid","predicted_turn","utterance"}]} with --data:
                   the turns alone, or with --labeller and --simulator the lines
                   too, in a run of its own

--format reference writes the reference repository's result format instead of
tables: {"summary":{...},"per_sid":[{"sid","pred_turn","gt_turn","auc","w1","judge",
"pre_idx","post_idx","trajectory"}]}. What no table may say, as of a labeller who is
not qualified, is null in it.`,
		Example: `  ccmed score runs/MEDIATION
  ccmed score runs/MEDIATION --format reference --condition ND
  ccmed score CC-Mediation/data/evaluate
  ccmed score CC-Mediation/data/evaluate --labeller qwen2.5:14b
  ccmed score predictions.json --data CC-Mediation/data`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if format != "table" && format != "reference" {
				return usagef("unknown --format %q; known are table and reference", format)
			}
			if rule != "ours" && rule != "reference" {
				return usagef("unknown --labeller-rule %q; known are ours and reference", rule)
			}
			if err := errors.Join(j.run.check(), call.Check()); err != nil {
				return err
			}
			if len(args) > 1 && j.run.out != "" {
				return usagef("--out names one run and %d files are given; score them one by one", len(args))
			}
			sc := scoring{j, call, format, condition, map[string]string{"reference": mediation.RuleReference}[rule]}
			for _, path := range args {
				if err := a.scorePath(cmd.Context(), path, sc); err != nil {
					return err
				}
			}
			return nil
		},
	}
	j.models.Register(cmd.Flags())
	j.run.register(cmd)
	f := cmd.Flags()
	call.Records.Register(f)
	call.RegisterInstruments(f)
	f.StringVar(&call.Judge, "judge", "", "model that rates the line (default: --model, else the labeller)")
	f.StringVar(&call.Baselines, "baselines", "", "a mediation run whose baselines are used")
	f.IntVar(&call.CardItems, "card-items", mediation.DefaultCardItems, "dialogues labelled for the labeller card: the scored ones, and without --limit training records beyond them")
	f.StringVar(&format, "format", "table", "table or reference")
	f.StringVar(&rule, "labeller-rule", "ours", "ours, or reference: label a run again by the public code's rule, from its raw alternatives")
	f.StringVar(&condition, "condition", "", "condition for --format reference (default: the run's first mediated one)")
	return cmd
}

// scoring is one call of score.
type scoring struct {
	*job
	call              *mediation.Call
	format, condition string
	rule              string
}

func (a *app) scorePath(ctx context.Context, path string, s scoring) error {
	st, err := os.Stat(path)
	if err != nil {
		return fmt.Errorf("score: %w; name a run folder, a folder of records, or a file of predictions (ccmed help score shows them)", err)
	}
	show := showRun(a.tables)
	if s.format == "reference" {
		show = func(path string, _ []report.Section) error { return a.printReference(ctx, path, s) }
	}
	if st.IsDir() && exists(filepath.Join(path, run.ManifestFile)) {
		at := s.call.Records
		at.Limit = 0
		return a.scoreRun(ctx, path, task.ScoreOptions{Seed: s.run.seed, Rule: s.rule, At: at}, func(sections []report.Section) error { return show(path, sections) })
	}
	modelled := s.call.Labeller != "" || s.models.Model != ""
	j, call := *s.job, *s.call
	j.call = &call
	if j.models.Model == "" {
		j.models.Model = call.Labeller // a prediction file needs no mediator
	}
	if !st.IsDir() && !strings.EqualFold(filepath.Ext(path), ".jsonl") {
		if modelled {
			call.Utterances = path
			return a.do(ctx, &j, show)
		}
		if s.format == "reference" {
			return usagef("--format reference holds AUC, W1 and judge scores, which need models: give --labeller and --simulator, or --model")
		}
		return a.scoreTurns(ctx, path, s)
	}
	call.Records.Path = path
	if modelled {
		call.Recorded = true
		return a.do(ctx, &j, show)
	}
	ds, _, err := a.opened().Dialogues(ctx, call.Records)
	if err != nil {
		return err
	}
	if s.format == "reference" {
		return a.encode(mediation.ReferenceOfRecords(ds))
	}
	sections, err := mediation.RecordSections(ds, uint64(s.run.seed))
	if err != nil {
		return err
	}
	return a.print(sections)
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// scoreTurns scores the turns of a prediction file.
func (a *app) scoreTurns(ctx context.Context, path string, s scoring) error {
	ps, err := task.ReadPredictions(path)
	if err != nil {
		return err
	}
	ds, all, err := a.opened().Dialogues(ctx, s.call.Records)
	if err != nil {
		return err
	}
	lines, err := a.opened().Check(path, ps, all, s.call.Records.Lenient)
	if err != nil {
		return err
	}
	sections, left, err := timing.ScoreGiven(ctx, filepath.Base(path), ds, lines, uint64(s.run.seed))
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if left > 0 {
		a.note("%d dialogues of the data have no prediction in %s: they are not scored", left, path)
	}
	return a.print(sections)
}

// printReference prints a run in the reference repository's result format.
func (a *app) printReference(ctx context.Context, path string, s scoring) error {
	r, err := a.opened().Open(path)
	if err != nil {
		return err
	}
	res, err := r.Result(ctx, task.ScoreOptions{Seed: s.run.seed, Rule: s.rule, Anew: s.rule != ""})
	if err != nil {
		return err
	}
	m, ok := res.(*mediation.Result)
	if !ok {
		return usagef("--format reference is for mediation runs; %s is a %s run", path, r.Identity().Task)
	}
	out, withheld, err := m.Reference(s.condition)
	if err != nil {
		return err
	}
	if len(withheld) > 0 {
		a.note("%s, condition %s: the format has null for what is %s", path, out.Condition, strings.Join(withheld, "; "))
	}
	return a.encode(out)
}

func (a *app) encode(v any) error { return encodeTo(a.stdout, v) }

func encodeTo(w io.Writer, v any) error {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	err := enc.Encode(v)
	if err == nil {
		_, err = io.WriteString(w, visible.JSON(b.String()))
	}
	if err != nil {
		return fmt.Errorf("write result: %w", err)
	}
	return nil
}
