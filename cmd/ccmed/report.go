package main

import (
	"bytes"
	"context"
	"fmt"
	"path/filepath"

	"github.com/google/renameio/v2"
	"github.com/spf13/cobra"

	"github.com/ccmed/ccmed/bench/report"
	"github.com/ccmed/ccmed/bench/run"
	"github.com/ccmed/ccmed/sft"
)

func (a *app) reportCmd() *cobra.Command {
	var out, title string
	var force bool
	var seed int64
	cmd := &cobra.Command{
		Use:   "report RUN...",
		Short: "Write what runs found into one HTML file",
		Long: `report writes one self-contained HTML file: what was run, what to know before a
number is cited, and for each run its figures and tables, each with its CSV. The file
has no script and asks for nothing over the network.`,
		Example: `  ccmed report runs/TIMING runs/MEDIATION --out report.html
  ccmed report runs/STORE --out probes.html`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if exists(out) && !force {
				return fmt.Errorf("%s exists and is kept; --force replaces it, --out names another", out)
			}
			sections, err := a.reportSections(cmd.Context(), args, seed)
			if err != nil {
				return err
			}
			var b bytes.Buffer
			if err := report.Write(&b, report.HTML, sections, report.Options{Title: title}); err != nil {
				return err
			}
			if err := renameio.WriteFile(out, b.Bytes(), 0o644); err != nil {
				return fmt.Errorf("write the report: %w", err)
			}
			a.note("%s written", out)
			return nil
		},
	}
	f := cmd.Flags()
	f.StringVar(&out, "out", "report.html", "file to write")
	f.StringVar(&title, "title", "ccmed report", "title of the page")
	f.BoolVar(&force, "force", false, "replace a file that exists")
	f.Int64Var(&seed, "seed", 0, "seed of resampling (default: each run's own)")
	return cmd
}

// reportSections puts several runs into one report: what was run first, then
// what a reader must know, then run by run.
func (a *app) reportSections(ctx context.Context, paths []string, seed int64) ([]report.Section, error) {
	head := report.Section{Title: "What was run"}
	warn := report.Section{Title: "Read this before you cite"}
	var all []report.Section
	for _, p := range paths {
		if exists(filepath.Join(p, sft.ManifestFile)) {
			sections, err := sft.TrainSections(p)
			if err != nil {
				return nil, err
			}
			all = append(all, sections...)
			warn.Notes = append(warn.Notes, filepath.Base(p)+": losses and validation of a training; whether it helped is said by its comparison with the base (ccmed sft bench)")
			continue
		}
		dir, err := run.Open(p)
		if err != nil {
			return nil, err
		}
		m := dir.Manifest()
		name := filepath.Base(m.Path)
		t := manifestTable(m)
		t.Title = name
		head.Tables = append(head.Tables, t)
		found, sections, err := a.found(ctx, dir, scoreFlags{seed: seed, dry: true})
		if err != nil {
			return nil, err
		}
		if m.Identity.Task == "extract" && exists(findingsFile(dir)) {
			f, err := readFindings(dir)
			if err != nil {
				return nil, err
			}
			found = f.value()
			sections = append(sections, f.sections(modelNames(m.Identity))...)
		}
		for _, w := range cautions(m, found) {
			warn.Notes = append(warn.Notes, name+": "+w)
		}
		for _, s := range sections {
			if len(paths) > 1 {
				s.Title = name + ": " + s.Title
			}
			all = append(all, s)
		}
	}
	if len(warn.Notes) == 0 {
		warn.Notes = []string{"nothing here speaks against citing these numbers with their intervals, n and baselines"}
	}
	if len(head.Tables) == 0 {
		return append([]report.Section{warn}, all...), nil
	}
	return append([]report.Section{head, warn}, all...), nil
}
