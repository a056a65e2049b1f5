package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ccmed/ccmed/bench/disk"
	"github.com/ccmed/ccmed/bench/export"
	"github.com/ccmed/ccmed/bench/folder"
	"github.com/ccmed/ccmed/bench/run"
	"github.com/ccmed/ccmed/bench/task"
	"github.com/ccmed/ccmed/sft"
)

func (a *app) runsExportCmd() *cobra.Command {
	var format, out string
	var force bool
	cmd := &cobra.Command{
		Use:   "export RUN",
		Short: "Write a run's samples as other tools read them",
		Long: `export writes the samples of a run, finished or not. Of a store of hidden states it
writes what each state is and where it lies (probe export writes the states), of a
training (sft train) its steps.

  jsonl, csv, parquet  one row for each item, condition and repeat; what is missing
                       is null or an empty field (ccmed help formats)
  inspect              a log of inspect_ai: JSON, or its zip archive when the file
                       ends in .eval; in a folder that exists under Inspect's own
                       name, as inspect view lists it. System, user and assistant
                       messages apart, and an event for each question with its
                       probabilities; the assistant says what the model wrote, and
                       nothing where it was asked for probabilities alone
  lm-eval              a folder with the results and samples files of
                       lm-evaluation-harness, one task a condition

An unscored sample stays unscored in every format, with its reason. So does what no
table may say: metrics of a labeller who is not qualified, or of a constant judge.
Standard errors that no variation backs are left out. A warning says so, and the
metadata of inspect and lm-eval repeat it.

Values are exact: texts of models and names go into CSV as they are, and a
spreadsheet takes one that begins with =, +, - or @ for a formula. Import such a
file with its columns as text. Names of files are made of plain characters.`,
		Example: `  ccmed runs export runs/NAME --format parquet --out samples.parquet
  ccmed runs export runs/NAME --format csv --out -
  ccmed runs export runs/NAME --format inspect --out logs/NAME.eval
  ccmed runs export runs/NAME --format lm-eval --out results
  ccmed runs export runs/STORE --format csv --out states.csv
  ccmed runs export runs/TRAINING --format parquet --out steps.parquet`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.export(cmd.Context(), args[0], export.Format(format), out, force)
		},
	}
	f := cmd.Flags()
	f.StringVar(&format, "format", "jsonl", formatNames())
	f.StringVar(&out, "out", "", "file to write, or folder for lm-eval; - is standard output")
	f.BoolVar(&force, "force", false, "replace a file that exists")
	return cmd
}

func formatNames() string {
	names := make([]string, len(export.Formats))
	for i, f := range export.Formats {
		names[i] = string(f)
	}
	return strings.Join(names[:len(names)-1], ", ") + " or " + names[len(names)-1]
}

func (a *app) export(ctx context.Context, path string, format export.Format, out string, force bool) error {
	switch {
	case !slices.Contains(export.Formats, format):
		return usagef("unknown --format %q; it is %s", format, formatNames())
	case out == "":
		return usagef("no --out given; name a file, or - for standard output")
	case out == "-" && format == export.Harness:
		return usagef("--format lm-eval writes several files; name a folder with --out")
	case out == "-" && format == export.Parquet && isTerminal(a.stdout):
		return usagef("--format parquet is binary; name a file with --out")
	}
	if folder.KindOf(path) == folder.KindTraining {
		return a.exportTraining(path, format, out, force)
	}
	dir, err := a.opened().Open(path, run.PromptsFile)
	if err != nil {
		return err
	}
	res, err := dir.Result(ctx, task.ScoreOptions{})
	if err != nil {
		return err
	}
	table, err := res.Table(ctx)
	if err != nil {
		return err
	}
	x, err := export.Read(dir, table)
	if err != nil {
		return err
	}
	if status := dir.Manifest().Status; status != run.StatusDone {
		a.note("note: the run is not finished (%s); what is there is exported", status)
	}
	if format == export.Harness {
		if out, err = x.WriteHarness(out, force); errors.Is(err, fs.ErrExist) {
			return fmt.Errorf("%w and is kept; --force replaces it, --out names another folder", err)
		}
	} else {
		if format == export.Inspect && isDir(out) {
			out = filepath.Join(out, x.LogName(".eval"))
		}
		err = a.exportTo(out, force, func(w io.Writer) error {
			if format == export.Inspect && strings.EqualFold(filepath.Ext(out), ".eval") {
				return x.WriteEval(w)
			}
			return x.Write(w, format)
		})
	}
	if err != nil {
		return err
	}
	for _, c := range x.Cautions() {
		a.note("caution: %s", c)
	}
	if out != "-" {
		a.note("%s: %d rows", out, x.Rows())
	}
	return err
}

// exportTraining writes the steps of a training as a table.
func (a *app) exportTraining(path string, format export.Format, out string, force bool) error {
	if format == export.Inspect || format == export.Harness {
		return fmt.Errorf("nothing in a training is scored, and %s is made of scores; use jsonl, csv or parquet", format)
	}
	m, err := sft.ReadTraining(path)
	if err != nil {
		return err
	}
	points, err := sft.ReadCurve(path)
	if err != nil {
		return err
	}
	if len(points) == 0 {
		return fmt.Errorf("%s has no step yet", path)
	}
	if m.Status != run.StatusDone {
		a.note("note: the training is not finished (%s); what is there is exported", m.Status)
	}
	rows := sft.CurveRows(filepath.Base(path), points)
	if err := a.exportTo(out, force, func(w io.Writer) error { return export.WriteRows(w, format, rows) }); err != nil {
		return err
	}
	if out != "-" {
		a.note("%s: %d rows", out, len(rows))
	}
	return nil
}

// exportTo writes an export to a file, or to standard output for "-".
func (a *app) exportTo(out string, force bool, write func(io.Writer) error) error {
	if out == "-" {
		return write(a.exact())
	}
	if err := os.MkdirAll(filepath.Dir(out), 0o777); err != nil {
		return fmt.Errorf("write the export: %w", err)
	}
	if err := vacantFile(out, force); err != nil {
		return err
	}
	var b bytes.Buffer
	if err := write(&b); err != nil {
		return err
	}
	if err := disk.WriteFile(out, b.Bytes(), 0o644); err != nil {
		return fmt.Errorf("write the export: %w", err)
	}
	return nil
}

func isDir(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}
