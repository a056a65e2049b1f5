package main

import (
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ccmed/ccmed/bench/run"
	"github.com/ccmed/ccmed/probe"
)

func (a *app) runsCmd() *cobra.Command {
	cmd := &cobra.Command{Use: "runs", Short: "List, show, resume, check, migrate, merge and export runs"}
	cmd.AddCommand(a.runsListCmd(), a.runsShowCmd(), a.runsVerifyCmd(), a.runsMigrateCmd(), a.runsResumeCmd())
	var out string
	merge := &cobra.Command{
		Use: "merge RUN...", Short: "Join the shards of one run", Args: cobra.MinimumNArgs(2), Example: "  ccmed runs merge shard-1 shard-2 --out whole",
		RunE: func(cmd *cobra.Command, args []string) error {
			if out == "" {
				return usagef("no --out folder given")
			}
			if err := mergeRuns(cmd.Context(), out, args); err != nil {
				return err
			}
			return a.scoreRun(cmd.Context(), out, scoreFlags{}, a.print)
		},
	}
	merge.Flags().StringVar(&out, "out", "", "folder of the merged run")
	cmd.AddCommand(merge, a.runsExportCmd())
	return cmd
}

// mergeRuns joins shards, and the hidden states of those that have some.
func mergeRuns(ctx context.Context, out string, dirs []string) error {
	first, err := run.Open(dirs[0])
	if err != nil {
		return err
	}
	if first.Manifest().Identity.Task == "extract" {
		return probe.MergeStores(ctx, out, dirs)
	}
	return run.Merge(out, dirs, nil)
}

func modelNames(id run.Identity) string {
	seen := map[string]bool{}
	var names []string
	for _, r := range slices.Sorted(maps.Keys(id.Models)) {
		if n := id.Models[r].Name; !seen[n] {
			seen[n] = true
			names = append(names, n)
		}
	}
	return strings.Join(names, ", ")
}
