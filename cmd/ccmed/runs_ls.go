package main

import (
	"cmp"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ccmed/ccmed/bench/folder"
	"github.com/ccmed/ccmed/bench/report"
	"github.com/ccmed/ccmed/infer"
)

// listFlags choose and order the rows of a list.
type listFlags struct {
	root, kind, task, model, status, since, data, sort string
	reverse                                            bool
}

// orders are the columns that a list can be sorted by.
var orders = map[string]func(a, b folder.Folder) int{
	"name":    func(a, b folder.Folder) int { return cmp.Compare(filepath.Base(a.Path), filepath.Base(b.Path)) },
	"kind":    func(a, b folder.Folder) int { return cmp.Compare(a.Kind, b.Kind) },
	"task":    func(a, b folder.Folder) int { return cmp.Compare(a.Task, b.Task) },
	"model":   func(a, b folder.Folder) int { return cmp.Compare(a.Model, b.Model) },
	"status":  func(a, b folder.Folder) int { return cmp.Compare(a.Status, b.Status) },
	"samples": func(a, b folder.Folder) int { return cmp.Compare(a.Samples, b.Samples) },
	"started": func(a, b folder.Folder) int { return a.Started.Compare(b.Started) },
}

func (a *app) runsListCmd() *cobra.Command {
	var f listFlags
	cmd := &cobra.Command{
		Use:   "ls [TEXT...]",
		Short: "List the runs of a folder, and what else the program made there",
		Long: `ls lists runs, stores of hidden states, trainings, exports, packages and suites,
oldest first. A folder that cannot be read is a row with its fault. TEXT keeps the
rows that hold it in any column, whatever its case; several must all be there.`,
		Example: `  ccmed runs ls
  ccmed runs ls gemma --task timing --status done
  ccmed runs ls --since 7d --sort model
  ccmed runs ls --data 4192c8d32a2a --json`,
		RunE: func(_ *cobra.Command, args []string) error {
			keep, err := f.keep(args, a.now())
			if err != nil {
				return err
			}
			order, ok := orders[f.sort]
			if !ok {
				return usagef("unknown --sort %q; known are name, kind, task, model, status, samples and started", f.sort)
			}
			all, err := folder.List(a.benches, f.root)
			if err != nil {
				return err
			}
			rows := []folder.Folder{}
			for _, x := range all {
				if keep(x) {
					rows = append(rows, x)
				}
			}
			slices.SortStableFunc(rows, order)
			if f.reverse {
				slices.Reverse(rows)
			}
			if a.json {
				return a.encode(map[string]any{"root": f.root, "found": len(all), "folders": rows})
			}
			return a.print([]report.Section{listSection(f.root, rows, len(all))})
		},
	}
	fl := cmd.Flags()
	fl.StringVar(&f.root, "runs", "runs", "folder of runs")
	fl.StringVar(&f.kind, "kind", "", "run, store, training, export, package or suite")
	fl.StringVar(&f.task, "task", "", "timing, mediation, extract, ...")
	fl.StringVar(&f.model, "model", "", "part of a model's name")
	fl.StringVar(&f.status, "status", "", "done, interrupted, failed, running, killed, damaged, ...")
	fl.StringVar(&f.since, "since", "", "started since a day or time (2026-11-30, 2026-11-30T14:00) or within 90m, 12h, 7d")
	fl.StringVar(&f.data, "data", "", "part of the data's path, or the beginning of its hash")
	fl.StringVar(&f.sort, "sort", "started", "column to sort by: name, kind, task, model, status, samples or started")
	fl.BoolVar(&f.reverse, "reverse", false, "sort the other way round")
	return cmd
}

// keep returns the choice that the flags and texts make.
func (f listFlags) keep(texts []string, now time.Time) (func(folder.Folder) bool, error) {
	since, err := parseSince(f.since, now)
	if err != nil {
		return nil, err
	}
	has := func(s, part string) bool { return strings.Contains(strings.ToLower(s), strings.ToLower(part)) }
	return func(x folder.Folder) bool {
		for _, t := range texts {
			if !slices.ContainsFunc(wordsOf(x), func(w string) bool { return has(w, t) }) {
				return false
			}
		}
		return (f.kind == "" || x.Kind == f.kind) && (f.task == "" || x.Task == f.task) && has(x.Model, f.model) && (f.status == "" || x.Status == f.status) &&
			(f.data == "" || has(x.Data, f.data) || strings.HasPrefix(strings.TrimPrefix(x.Hash, "sha256:"), f.data)) && !x.Started.Before(since)
	}, nil
}

// wordsOf are the columns of a row.
func wordsOf(f folder.Folder) []string {
	return []string{filepath.Base(f.Path), f.Kind, f.Task, f.Model, f.Status, f.Data, f.Hash, f.Fault}
}

// parseSince reads a day or time, in the local zone unless it names one, or how long
// before now.
func parseSince(s string, now time.Time) (time.Time, error) {
	if s == "" {
		return time.Time{}, nil
	}
	for _, layout := range []string{time.RFC3339, "2006-01-02T15:04:05", "2006-01-02T15:04", "2006-01-02 15:04", time.DateOnly} {
		if t, err := time.ParseInLocation(layout, s, now.Location()); err == nil {
			return t, nil
		}
	}
	if days, ok := strings.CutSuffix(s, "d"); ok {
		if n, err := strconv.Atoi(days); err == nil && n >= 0 {
			return now.AddDate(0, 0, -n), nil
		}
	}
	if d, err := time.ParseDuration(s); err == nil && d >= 0 {
		return now.Add(-d), nil
	}
	return time.Time{}, usagef("--since %q is no day, no time and no span; write 2026-11-30, 2026-11-30T14:00, 12h or 7d", s)
}

func listSection(root string, rows []folder.Folder, listed int) report.Section {
	t := report.Table{Columns: report.Columns("folder", "kind", "task", "model", "status", "samples>", "started", "data")}
	var faults []string
	for _, x := range rows {
		started, samples := "", ""
		if !x.Started.IsZero() {
			started = x.Started.UTC().Format("2006-01-02 15:04")
		}
		if x.Samples > 0 {
			samples = strconv.Itoa(x.Samples)
		}
		t.Add(filepath.Base(x.Path), x.Kind, x.Task, x.Model, x.Status, samples, started,
			strings.TrimSpace(infer.ShortDigest(x.Hash)+" "+lastPart(x.Data)))
		if x.Fault != "" {
			faults = append(faults, x.Fault)
		}
	}
	s := report.Section{Title: fmt.Sprintf("%d of %d folders in %s", len(rows), listed, root), Tables: []report.Table{t}, Notes: faults}
	if listed == 0 {
		s.Notes = []string{"nothing is there that ccmed made; --runs names another folder"}
	}
	return s
}

// lastPart is the last part of a path, "" for none.
func lastPart(path string) string {
	if path == "" {
		return ""
	}
	return filepath.Base(path)
}
