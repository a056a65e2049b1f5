package main

import (
	"context"
	"fmt"
	"maps"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"

	"github.com/ccmed/ccmed/bench/construct"
	"github.com/ccmed/ccmed/bench/dialogue"
	"github.com/ccmed/ccmed/bench/disk"
	"github.com/ccmed/ccmed/bench/prompt"
	"github.com/ccmed/ccmed/bench/report"
	"github.com/ccmed/ccmed/bench/task"
	"github.com/ccmed/ccmed/bench/usage"
	"github.com/ccmed/ccmed/cmd/ccmed/internal/cli"
)

func (a *app) buildCmd() *cobra.Command {
	cmd := &cobra.Command{Use: "build", Short: "Make records of your own: scenarios, dialogues, labels, pairs"}
	cmd.AddCommand(a.buildPromptsCmd(), a.buildRecordsCmd())
	return cmd
}

func (a *app) buildPromptsCmd() *cobra.Command {
	var from, out, prompts string
	var alike float64
	var perScenario int
	var seed int64
	cmd := &cobra.Command{
		Use:   "prompts",
		Short: "Script a conflict into each scenario: stage, turn and prompts",
		Long: `prompts reads scenarios and writes what the simulator is told, a line for each
dialogue. One of the two people speaks from Denial, Defense or Minimization in one of
the turns 3 to 8; stages and turns are balanced by design: of any three lines in a row
each stage has one, of any six each turn, of any 18 each pair.

--scenarios is a run of ccmed build scenarios, a file of your own (docs/build.md),
a folder of CC-Mediation records, or sample. What cannot be used, and what means the
same as an earlier scenario, is named and left out. Nothing is asked of a model.`,
		Example: `  ccmed build prompts --scenarios sample --out cases.jsonl
  ccmed build prompts --scenarios runs/SCENARIOS --per-scenario 3 --out cases.jsonl`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case from == "":
				return usage.Errorf("no --scenarios; name a run, a file, a folder of records, or sample")
			case out == "":
				return usage.Errorf("no --out; name the file to write")
			case perScenario < 1:
				return usage.Errorf("--per-scenario %d; it must be at least 1", perScenario)
			case alike <= 0 || alike > 1:
				return usage.Errorf("--alike %g; it must lie above 0 and not above 1", alike)
			}
			set, err := prompt.Load(prompts)
			if err != nil {
				return err
			}
			return a.buildPrompts(cmd.Context(), from, out, alike, perScenario, seed, set)
		},
	}
	f := cmd.Flags()
	f.StringVar(&from, "scenarios", "", "run, file or folder of scenarios; sample takes those of the embedded records")
	f.StringVar(&out, "out", "", "file to write")
	f.IntVar(&perScenario, "per-scenario", 1, "dialogues for each scenario")
	f.Int64Var(&seed, "seed", 1, "draws which stage and turn come first")
	f.StringVar(&prompts, "prompts", "", "folder of prompt templates that replace embedded ones")
	f.Float64Var(&alike, "alike", construct.Alike, "cosine of TF-IDF from which two scenarios mean the same")
	task.Reads(f, "scenarios")
	return cmd
}

func (a *app) buildPrompts(ctx context.Context, from, out string, alike float64, perScenario int, seed int64, set *prompt.Set) error {
	scenarios, rejected, err := construct.ReadScenarios(ctx, a.opened(), from, alike)
	if err != nil {
		return err
	}
	reasons := map[string]int{}
	for _, r := range rejected {
		a.note("left out: scenario %s: %s", r.ID, r.Why)
		reasons[r.Reason()]++
	}
	if len(scenarios) == 0 {
		return fmt.Errorf("%s holds no scenario that can be used; the lines above say why", from)
	}
	cases, err := construct.Design(scenarios, perScenario, seed, set)
	if err != nil {
		return err
	}
	if err := construct.WriteCases(out, cases); err != nil {
		return err
	}
	t := report.Table{Columns: report.Columns("scenarios", "n>")}
	t.Add("used", len(scenarios))
	for _, why := range slices.Sorted(maps.Keys(reasons)) {
		t.Add("left out: "+why, reasons[why])
	}
	stages, turns := map[string]int{}, map[int]int{}
	for _, c := range cases {
		stages[c.Stage]++
		turns[c.Turn]++
	}
	d := report.Table{Columns: report.Columns("dialogues", "n>")}
	for _, s := range slices.Sorted(maps.Keys(stages)) {
		d.Add("conflict from "+s, stages[s])
	}
	for _, n := range slices.Sorted(maps.Keys(turns)) {
		d.Add(fmt.Sprintf("conflict in turn %d", n), turns[n])
	}
	return a.print([]report.Section{{Title: "Prompts: " + out, Tables: []report.Table{t, d}, Notes: []string{"next: " + cli.CommandLine([]string{"build", "dialogues", "--cases", out})}}})
}

func (a *app) buildRecordsCmd() *cobra.Command {
	var out, licence string
	cmd := &cobra.Command{
		Use:   "records RUN",
		Short: "Write constructed dialogues as records, with a data card",
		Long: `records writes the admitted pairs of a build pairs run, or the dialogues of a build
label run, in the format of the released records: one file each, which ccmed data,
mediate and sft export read. README.md beside them is the data card: counts, models,
the labeller's grade, rejects, and the licence that you choose.`,
		Example: `  ccmed build records runs/PAIRS --licence CC-BY-4.0 --out my-records`,
		Args:    cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			switch {
			case out == "":
				return usage.Errorf("no --out; name the folder to write")
			case licence == "":
				return usage.Errorf("no --licence; say under which one the records may be used, such as CC-BY-4.0 or none")
			}
			ds, card, err := construct.Records(a.opened(), args[0], licence)
			if err != nil {
				return err
			}
			if err := dialogue.Write(out, ds); err != nil {
				return err
			}
			if err := disk.WriteEntry(filepath.Join(out, "README.md"), []byte(card), 0o644); err != nil {
				return err
			}
			return a.tell("%d records and README.md, their data card, are in %s\n", len(ds), out)
		},
	}
	f := cmd.Flags()
	f.StringVar(&out, "out", "", "folder to write")
	f.StringVar(&licence, "licence", "", "licence of the records, for the data card")
	return cmd
}
