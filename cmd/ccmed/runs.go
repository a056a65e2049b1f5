package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/ccmed/ccmed/bench/run"
	"github.com/ccmed/ccmed/bench/task"
)

func (a *app) runsCmd() *cobra.Command {
	cmd := &cobra.Command{Use: "runs", Short: "List, show, resume, check, merge and export runs"}
	cmd.AddCommand(a.runsListCmd(), a.runsShowCmd(), a.runsVerifyCmd(), a.runsResumeCmd())
	var out string
	merge := &cobra.Command{
		Use: "merge RUN...", Short: "Join the shards of one run", Args: cobra.MinimumNArgs(2), Example: "  ccmed runs merge shard-1 shard-2 --out whole",
		RunE: func(cmd *cobra.Command, args []string) error {
			if out == "" {
				return usagef("no --out folder given")
			}
			if err := a.mergeRuns(cmd.Context(), out, args); err != nil {
				return err
			}
			return a.scoreRun(cmd.Context(), out, task.ScoreOptions{}, a.print)
		},
	}
	merge.Flags().StringVar(&out, "out", "", "folder of the merged run")
	cmd.AddCommand(merge, a.runsExportCmd())
	return cmd
}

// mergeRuns joins shards, with the files that they have beside their samples.
func (a *app) mergeRuns(ctx context.Context, out string, dirs []string) error {
	first, err := a.opened().Open(dirs[0])
	if err != nil {
		return err
	}
	if m, ok := first.Bench.(task.Merger); ok {
		return m.Merge(ctx, out, dirs)
	}
	return run.Merge(out, dirs, nil)
}
