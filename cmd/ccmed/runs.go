package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/ccmed/ccmed/bench/run"
	"github.com/ccmed/ccmed/probe"
)

func (a *app) runsCmd() *cobra.Command {
	cmd := &cobra.Command{Use: "runs", Short: "List, show, resume, check, migrate, merge and export runs"}
	cmd.AddCommand(a.runsListCmd(), a.runsShowCmd(), a.runsVerifyCmd(), a.runsMigrateCmd(), &cobra.Command{
		Use: "resume RUN", Short: "Finish an interrupted run", Args: cobra.ExactArgs(1), Example: "  ccmed runs resume runs/NAME",
		RunE: func(cmd *cobra.Command, args []string) error { return a.resume(cmd, args[0]) },
	})
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
	return run.Merge(out, dirs...)
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

// resume runs the command line that started the run again, on its folder.
func (a *app) resume(cmd *cobra.Command, path string) error {
	d, err := run.Open(path)
	if err != nil {
		return err
	}
	m := d.Manifest()
	if n := len(m.Sessions); m.Status == run.StatusDone && n > 0 && m.Sessions[n-1].Summary != nil && m.Sessions[n-1].Summary.Failed == 0 {
		return fmt.Errorf("%s is done; nothing is left to resume", path)
	}
	if len(m.Sessions) == 0 || len(m.Sessions[0].Command) == 0 {
		return errors.New(path + ": the manifest names no command to resume")
	}
	args := m.Sessions[0].Command
	wd, err := os.Getwd()
	if err != nil {
		return fmt.Errorf("find the working folder: %w", err)
	}
	if dir := m.Sessions[0].Dir; dir != "" && dir != wd {
		a.note("the run was started in %s; relative paths are read from there", dir)
		if err := os.Chdir(dir); err != nil {
			return fmt.Errorf("go to the folder where the run was started: %w", err)
		}
	}
	again := append(slices.Clone(args), "--out", m.Path, "--resume")
	// Common flags of this call count; a new root sets them back.
	cmd.Root().PersistentFlags().VisitAll(func(f *pflag.Flag) {
		if f.Changed {
			again = append(again, "--"+f.Name+"="+f.Value.String())
		}
	})
	root := a.root()
	root.SetArgs(again)
	root.SetOut(a.stdout)
	root.SetErr(a.stderr)
	a.args = args
	_, err = root.ExecuteContextC(cmd.Context())
	return err
}
