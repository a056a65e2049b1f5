package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/ccmed/ccmed/bench/report"
	"github.com/ccmed/ccmed/bench/run"
	"github.com/ccmed/ccmed/probe"
)

func (a *app) runsCmd() *cobra.Command {
	cmd := &cobra.Command{Use: "runs", Short: "List, show, resume, check and merge runs"}
	var root string
	ls := &cobra.Command{
		Use: "ls", Short: "List the runs of a folder", Args: cobra.NoArgs, Example: "  ccmed runs ls --runs runs",
		RunE: func(*cobra.Command, []string) error {
			ms, err := run.List(root)
			if err != nil {
				return err
			}
			t := report.Table{Columns: []report.Column{{Name: "run"}, {Name: "task"}, {Name: "model"}, {Name: "status"}, {Name: "samples", Align: report.Right}, {Name: "started"}}}
			for _, m := range ms {
				started := ""
				if len(m.Sessions) > 0 {
					started = m.Sessions[0].Start.Format("2006-01-02 15:04")
				}
				t.Rows = append(t.Rows, []report.Cell{report.Text(m.Path), report.Text(m.Identity.Task), report.Text(modelNames(m.Identity)), report.Text(m.Status),
					report.Int(m.Samples), report.Text(started)})
			}
			return a.print([]report.Section{{Title: fmt.Sprintf("%d runs in %s", len(ms), root), Tables: []report.Table{t}}})
		},
	}
	ls.Flags().StringVar(&root, "runs", "runs", "folder of runs")
	cmd.AddCommand(ls, &cobra.Command{
		Use: "show RUN", Short: "Show what a run was and what it found", Args: cobra.ExactArgs(1), Example: "  ccmed runs show runs/NAME",
		RunE: func(cmd *cobra.Command, args []string) error { return a.showRun(cmd.Context(), args[0]) },
	}, &cobra.Command{
		Use: "resume RUN", Short: "Finish an interrupted run", Args: cobra.ExactArgs(1), Example: "  ccmed runs resume runs/NAME",
		RunE: func(cmd *cobra.Command, args []string) error { return a.resume(cmd, args[0]) },
	}, &cobra.Command{
		Use: "verify RUN", Short: "Recompute what the manifest says of the samples, and tell what differs", Args: cobra.ExactArgs(1), Example: "  ccmed runs verify runs/NAME",
		RunE: func(_ *cobra.Command, args []string) error {
			if err := run.Verify(args[0], run.VerifyOptions{}); err != nil {
				return err
			}
			fmt.Fprintf(a.stdout, "%s: manifest and samples agree\n", args[0])
			return nil
		},
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

func (a *app) showRun(ctx context.Context, path string) error {
	d, err := run.Open(path)
	if err != nil {
		return err
	}
	m := d.Manifest()
	if a.json {
		enc := json.NewEncoder(a.stdout)
		enc.SetIndent("", "  ")
		return enc.Encode(m)
	}
	if err := a.print([]report.Section{{Title: path, Tables: []report.Table{manifestTable(m)}}}); err != nil {
		return err
	}
	if m.Status == run.StatusDone {
		return a.scoreRun(ctx, path, scoreFlags{dry: true}, a.print)
	}
	a.note("not finished; go on with: ccmed runs resume %s", path)
	return nil
}

// manifestTable says what was run.
func manifestTable(m run.Manifest) report.Table {
	t := report.Table{Columns: []report.Column{{Name: "fact"}, {Name: "value"}}}
	row := func(k, v string) { t.Rows = append(t.Rows, []report.Cell{report.Text(k), report.Text(v)}) }
	row("status", m.Status)
	row("task", m.Identity.Task)
	for _, r := range slices.Sorted(maps.Keys(m.Identity.Models)) {
		x := m.Identity.Models[r]
		row(r, strings.TrimSpace(fmt.Sprintf("%s %s %s, num_ctx %d", x.Name, x.Quantization, short(x.Digest), m.Identity.NumCtx[r])))
	}
	row("data", fmt.Sprintf("%s, %d items", short(m.Identity.DataHash), len(m.Identity.Items)))
	row("samples", fmt.Sprint(m.Samples))
	for _, s := range m.Sessions {
		row("session", fmt.Sprintf("%s on %s: %s", s.Start.Format("2006-01-02 15:04"), s.Environment.Host, s.Status))
	}
	if len(m.Sessions) > 0 {
		row("command", "ccmed "+strings.Join(m.Sessions[0].Command, " "))
	}
	return t
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
