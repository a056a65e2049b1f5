package main

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/google/renameio/v2"
	"github.com/spf13/cobra"

	"github.com/ccmed/ccmed/bench/mediation"
	"github.com/ccmed/ccmed/bench/report"
	"github.com/ccmed/ccmed/bench/run"
	"github.com/ccmed/ccmed/probe"
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

// smallSample is the number of items below which a report warns.
const smallSample = 100

// cautions are what a reader must know of a run, from its data.
func cautions(m run.Manifest, found any) []string {
	var out []string
	if m.Status != run.StatusDone {
		out = append(out, "the run is not finished ("+m.Status+")")
	}
	if n := len(m.Identity.Items); n < smallSample {
		out = append(out, fmt.Sprintf("%d dialogues: intervals are wide, and an interval of a group even more so", n))
	}
	unscored := func(reasons map[string]int, what string) {
		for _, why := range slices.Sorted(maps.Keys(reasons)) {
			out = append(out, fmt.Sprintf("%d %s unscored: %s", reasons[why], what, why))
		}
	}
	switch f := found.(type) {
	case timingFound:
		if f.DegenerateAnswer != "" {
			out = append(out, "degenerate: constant answer ("+f.DegenerateAnswer+")")
		}
		unscored(f.Unscored, "dialogues")
		best := 0.0
		name := ""
		for _, b := range f.Baselines {
			if b.Accuracy > best {
				best, name = b.Accuracy, b.Name
			}
		}
		if f.Scored > 0 && best >= float64(f.Correct)/float64(f.Scored) && best > 0 {
			out = append(out, fmt.Sprintf("a baseline without any language model (%s) does as well or better: %.1f %%", name, 100*best))
		}
	case mediation.Metrics:
		if f.PipelineCheck {
			out = append(out, mediation.PipelineCheck)
		}
		if f.Labeller == nil {
			out = append(out, "there is no labeller card: nobody knows what the stage labels are worth")
		} else if !f.Labeller.Qualified {
			out = append(out, "the labeller is not qualified: "+strings.Join(f.Labeller.Why, "; "))
		}
		out = append(out, f.Degenerate...)
		for _, c := range f.Conditions {
			if c.Condition == mediation.D {
				out = append(out, "under D the prompt names the conflict's stage")
			}
			unscored(c.Unscored[mediation.AUC], c.Condition+" dialogues")
		}
	case *probe.Findings:
		if f.Verdict != nil && f.Verdict.Sentence != probe.Collapse {
			out = append(out, "the probes allow: "+f.Verdict.Sentence)
		}
		if f.Left > 0 {
			out = append(out, fmt.Sprintf("%d dialogues are left out of the probes: a text or a state is missing", f.Left))
		}
	}
	return out
}
