package main

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/ccmed/ccmed/bench/compare"
	"github.com/ccmed/ccmed/bench/report"
)

func (a *app) compareCmd() *cobra.Command {
	var o compare.Options
	var base, format, figures string
	cmd := &cobra.Command{
		Use:   "compare RUN_A RUN_B...",
		Short: "Differences of runs, paired by dialogue, with intervals",
		Long: `compare sets runs of one task against the first of them, or against --base, and
prints B − A for each measure, paired by dialogue:

  B − A    with its 95 % interval: Student's t with standard errors from drawing
           whole scenario contexts
  p        of flipping the signs of whole contexts, corrected by Holm over
           all rows of the call
  effect   ~ where p is 0.05 or more: no difference is shown. Else in words: the
           share of dialogues in points, or by Cohen's d_z (mean over standard
           deviation of the differences): negligible below 0.2, small below 0.5,
           medium below 0.8, large (Cohen 1988)

Below stand the dialogues that flipped or changed most. Dialogues that a run could
not score are dropped from the pairs and counted.

Runs that differ in data, labeller, simulator, judge, prompts, options of the scale or
the mediator's chat template are refused. Two options compare them all the same:

  --force     still in pairs, of the dialogues that both have
  --unpaired  as independent samples: Welch's interval, and p from dealing whole
              contexts out to the runs anew. Right for other dialogues; where the
              runs share some, it sees less than pairs do

--format benchstat writes seconds and tokens/s of every sample in Go's benchmark
format, for: benchstat -col run FILE`,
		Example: `  ccmed compare runs/GEMMA runs/PHI
  ccmed compare runs/BASE runs/TUNED runs/MASKED --base BASE --format markdown
  ccmed compare runs/GEMMA runs/PHI --format benchstat`,
		Args: cobra.MinimumNArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			if o.Force && o.Unpaired {
				return usagef("--force compares in pairs and --unpaired does not; give one of them")
			}
			if a.json {
				if format != "table" && format != "json" {
					return usagef("--json and --format %s contradict each other", format)
				}
				format = "json"
			}
			return a.compare(cmd.Context(), args, base, format, figures, o)
		},
	}
	fl := cmd.Flags()
	fl.StringVar(&base, "base", "", "run to compare the others with, by its path or its last part (default: the first)")
	fl.Int64Var(&o.Seed, "seed", 1, "seed of resampling")
	fl.BoolVar(&o.Force, "force", false, "pair runs that differ in data, labeller, simulator, prompts or scale")
	fl.BoolVar(&o.Unpaired, "unpaired", false, "compare as independent samples, whatever differs")
	fl.StringVar(&figures, "figures", "", "folder for a paper: each figure as SVG and PDF, each table as LaTeX and Markdown")
	fl.StringVar(&format, "format", "table", "table, json, markdown, latex or benchstat")
	return cmd
}

func (a *app) compare(ctx context.Context, paths []string, base, format, figures string, o compare.Options) error {
	write, ok := map[string]func(*compare.Comparison) error{
		"table": func(c *compare.Comparison) error { return a.print(c.Sections()) },
		"json":  func(c *compare.Comparison) error { return a.encode(c) },
		"markdown": func(c *compare.Comparison) error {
			return report.Write(a.stdout, report.Markdown, c.Sections(), report.Options{})
		},
		"latex": func(c *compare.Comparison) error {
			if _, err := io.WriteString(a.exact(), c.LaTeX()); err != nil {
				return fmt.Errorf("write the tables: %w", err)
			}
			return nil
		},
	}[format]
	if !ok && format != "benchstat" {
		return usagef("unknown --format %q; known are table, json, markdown, latex and benchstat", format)
	}
	runs, err := compare.Open(a.opened(), paths, base)
	if err != nil {
		return err
	}
	if format == "benchstat" {
		return compare.WriteSpeed(a.exact(), runs)
	}
	c, err := compare.Compare(ctx, runs, o)
	if err != nil {
		return err
	}
	if figures != "" {
		return a.writeFigures(figures, c.Sections())
	}
	return write(c)
}
