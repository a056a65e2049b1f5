package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ccmed/ccmed/bench/compare"
	"github.com/ccmed/ccmed/bench/disk"
	"github.com/ccmed/ccmed/bench/folder"
	"github.com/ccmed/ccmed/bench/page"
	"github.com/ccmed/ccmed/bench/report"
	"github.com/ccmed/ccmed/bench/run"
	"github.com/ccmed/ccmed/bench/task"
	"github.com/ccmed/ccmed/cmd/ccmed/internal/cli"
	"github.com/ccmed/ccmed/sft"
)

// reportFormats are the formats that a report is written in, with the ends of their
// files' names.
var reportFormats = map[string]struct {
	format report.Format
	end    string
}{"html": {report.HTML, ".html"}, "json": {report.JSON, ".json"}, "md": {report.Markdown, ".md"}}

type reportFlags struct {
	out, title, format string
	figures            string
	force              bool
	seed               int64
}

func (a *app) reportCmd() *cobra.Command {
	r := &reportFlags{}
	cmd := &cobra.Command{
		Use:   "report RUN...",
		Short: "Write what runs found, and every dialogue, into one HTML file",
		Long: `report writes one self-contained HTML file: what was run and how to repeat it, what
to know before a number is cited, for each run its figures and tables with their CSV,
and every dialogue, to be filtered, sorted and opened. The file asks for nothing over
the network. Its one script shows the dialogues, copies, and saves everything as JSON;
without scripts all else can be read.

A RUN is the folder of a run or of a training, or a folder of them: of a suite, of all
runs; what cannot be read in there is left out and named. --format json writes
everything as data, --format md what a page has without its figures and dialogues;
--out - writes to standard output.`,
		Example: `  ccmed report runs/TIMING runs/MEDIATION --out report.html
  ccmed report runs/STORE --out probes.html
  ccmed report runs/NIGHT --format json --out night.json
  ccmed report runs/NIGHT --figures paper`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if a.json && !cmd.Flags().Changed("format") {
				r.format = "json"
				if !cmd.Flags().Changed("out") {
					r.out = "-"
				}
			}
			return a.report(cmd.Context(), args, r)
		},
	}
	f := cmd.Flags()
	f.StringVar(&r.out, "out", "", "file to write, - for standard output (default report.html, report.json or report.md)")
	f.StringVar(&r.format, "format", "html", "html, json or md")
	f.StringVar(&r.figures, "figures", "", "folder for a paper instead of a page: each figure as SVG and PDF, each table as LaTeX and Markdown")
	f.StringVar(&r.title, "title", "ccmed report", "title of the page")
	f.BoolVar(&r.force, "force", false, "replace a file that exists")
	f.Int64Var(&r.seed, "seed", 0, "seed of resampling (default: each run's own)")
	return cmd
}

func (a *app) report(ctx context.Context, paths []string, r *reportFlags) error {
	format, ok := reportFormats[r.format]
	if !ok {
		return usagef("unknown --format %q; known are html, json and md", r.format)
	}
	if r.figures != "" {
		if r.out != "" {
			return usagef("--figures writes a folder and no page; leave --out out")
		}
		sections, err := a.reportSections(ctx, paths, r.seed)
		if err != nil {
			return err
		}
		return a.writeFigures(r.figures, sections)
	}
	out := r.out
	if out == "" {
		out = "report" + format.end
	}
	if out != "-" {
		if err := vacantFile(out, r.force); err != nil {
			return err
		}
	}
	sections, err := a.reportSections(ctx, paths, r.seed)
	if err != nil {
		return err
	}
	if out == "-" {
		return report.Write(a.stdout, format.format, sections, report.Options{Title: r.title})
	}
	var b bytes.Buffer
	if err := report.Write(&b, format.format, sections, report.Options{Title: r.title}); err != nil {
		return err
	}
	if err := disk.WriteFile(out, b.Bytes(), 0o644); err != nil {
		return fmt.Errorf("write the report: %w", err)
	}
	a.note("%s written", out)
	return nil
}

// writeFigures writes the figures and tables of sections as files for a paper.
func (a *app) writeFigures(dir string, sections []report.Section) error {
	files, err := report.WriteFiles(dir, sections)
	if err != nil {
		return err
	}
	a.note("%d files written in %s", len(files), dir)
	return nil
}

// vacantFile tells what keeps a file from being written, before the work for it is
// done.
func vacantFile(path string, force bool) error {
	if isDir(path) {
		return fmt.Errorf("%s is a folder; --out names the file to write", path)
	}
	switch to, err := disk.Look(path); {
	case err != nil:
		return err
	case to == disk.Stream:
		return nil
	case to == disk.File && !force:
		return fmt.Errorf("%s exists and is kept; --force replaces it, --out names another", path)
	case to == disk.File:
		return folder.CheckVacant(path)
	}
	if st, err := os.Stat(filepath.Dir(path)); err != nil || !st.IsDir() {
		return fmt.Errorf("the folder %s is not there; make it, or choose another --out", filepath.Dir(path))
	}
	return nil
}

// reportSections puts several runs into one report: what a reader must know first,
// then run by run what it was and what came out, then every dialogue.
func (a *app) reportSections(ctx context.Context, paths []string, seed int64) ([]report.Section, error) {
	folders, err := runFolders(paths)
	if err != nil {
		return nil, err
	}
	paths = make([]string, len(folders))
	for i, f := range folders {
		paths[i] = f.path
	}
	names := runNames(paths)
	o := page.Options{Seed: seed, Command: a.commandOf}
	parts := make([]page.Part, len(folders))
	runs := make([]task.Neighbour, len(folders))
	var shown []string
	for i, f := range folders {
		parts[i], runs[i], err = a.reportPart(ctx, names[i], f.path, o)
		switch {
		case err == nil:
			shown = append(shown, f.path)
		case f.within && ctx.Err() == nil:
			// One run among many that nobody named must not cost the others' report.
			parts[i] = page.Part{Name: names[i], Cautions: []string{"left out: " + err.Error()}}
			a.note("left out: %v", err)
		default:
			return nil, err
		}
	}
	if len(shown) == 0 {
		return nil, errors.New("none of these runs can be reported")
	}
	page.Name(parts)
	shownAs := map[string]string{}
	for i, f := range folders {
		runs[i].Name, shownAs[f.path] = parts[i].Name, parts[i].Name
	}
	if err := page.AddBeside(parts, runs, seed); err != nil {
		return nil, err
	}
	compared, err := compare.Alike(ctx, a.opened(), shown, shownAs)
	if err != nil {
		return nil, err
	}
	return page.Compose(parts, compared), nil
}

// reportPart makes the part of a folder.
func (a *app) reportPart(ctx context.Context, name, path string, o page.Options) (page.Part, task.Neighbour, error) {
	if exists(filepath.Join(path, sft.ManifestFile)) {
		p, err := trainingPart(ctx, name, path)
		return p, task.Neighbour{}, err
	}
	r, err := a.opened().Open(path, run.PromptsFile, run.ErrorsFile)
	if err != nil {
		return page.Part{}, task.Neighbour{}, err
	}
	p, res, err := page.OfRun(ctx, name, r, o)
	return p, task.Neighbour{Name: name, Run: r, Result: res}, err
}

// trainingPart makes the part of a training.
func trainingPart(ctx context.Context, name, path string) (page.Part, error) {
	m, err := sft.ReadTraining(path)
	if err != nil {
		return page.Part{}, err
	}
	sections, err := sft.TrainSections(ctx, path)
	if err != nil {
		return page.Part{}, err
	}
	head, err := sft.Described(m, cli.CommandLine)
	return page.Part{Name: name, Task: "training", Sections: sections, Provenance: &head, Cautions: m.Cautions()}, err
}

// runFolder is a run to report; within says that only a folder above it was named.
type runFolder struct {
	path   string
	within bool
}

// runFolders lists the runs that paths name: a run itself, or the runs in a folder,
// such as a suite's. Each is listed once.
func runFolders(paths []string) ([]runFolder, error) {
	var out []runFolder
	seen := map[string]bool{}
	add := func(p string, within bool) {
		if abs, err := filepath.Abs(p); err == nil && !seen[abs] {
			seen[abs] = true
			out = append(out, runFolder{p, within})
		}
	}
	for _, p := range paths {
		if isRun(p) {
			add(p, false)
			continue
		}
		entries, err := os.ReadDir(p)
		if errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("%s is not a run: there is no such folder (ccmed runs ls lists runs)", p)
		}
		if st, statErr := os.Stat(p); statErr == nil && !st.IsDir() {
			return nil, fmt.Errorf("%s is a file; name the folder of a run, or of several", p)
		}
		if err != nil {
			return nil, fmt.Errorf("look for runs in %s: %w", p, err)
		}
		n := 0
		for _, e := range entries {
			if in := filepath.Join(p, e.Name()); isRun(in) {
				add(in, true)
				n++
			}
		}
		if n == 0 {
			return nil, fmt.Errorf("%s is not a run and holds none: neither it nor a folder in it has a %s or %s", p, run.ManifestFile, sft.ManifestFile)
		}
	}
	return out, nil
}

func isRun(path string) bool {
	return exists(filepath.Join(path, run.ManifestFile)) || exists(filepath.Join(path, sft.ManifestFile))
}

// runNames names runs by their folders, with as many of the folders above as it takes
// to tell them apart.
func runNames(paths []string) []string {
	parts := make([][]string, len(paths))
	for i, p := range paths {
		if abs, err := filepath.Abs(p); err == nil {
			p = abs
		}
		parts[i] = strings.Split(filepath.ToSlash(p), "/")
	}
	name := func(i, n int) string { return strings.Join(parts[i][max(0, len(parts[i])-n):], "/") }
	out := make([]string, len(paths))
	for i := range paths {
		n := 1
		for j := 0; j < len(paths); j++ {
			if j != i && name(j, n) == name(i, n) && n < len(parts[i]) {
				n, j = n+1, -1
			}
		}
		out[i] = name(i, n)
	}
	return out
}
