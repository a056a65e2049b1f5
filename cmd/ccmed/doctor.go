package main

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/ccmed/ccmed/bench/report"
	"github.com/ccmed/ccmed/infer"
)

// finding is one check of doctor with its one fix.
type finding struct {
	Check  string `json:"check"`
	Result string `json:"result"`
	Detail string `json:"detail"`
	Fix    string `json:"fix"` // empty where nothing is to be done
}

// Results of a check.
const (
	ok     = "ok"
	absent = "absent" // not there, and not needed for everything
	faulty = "FAULT"
)

// diagnosis is what doctor prints with --json.
type diagnosis struct {
	Schema  int       `json:"schema"`
	Version string    `json:"version"`
	Faults  int       `json:"faults"`
	Checks  []finding `json:"checks"`
}

func (a *app) doctorCmd() *cobra.Command {
	m := modelFlags{}
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "What works on this machine, and one fix for each fault",
		Long: `doctor checks the Ollama server and its models, the in-process engine, Python and its
packages of training, the GPU, the disks of runs and caches, and limits of this
process; with --model also that model: its context, its log-probabilities, and
whether a repeated call gives the same answer. Same seed and temperature 0 do not
promise that; doctor measures it.

A check is ok, absent (not there, and not needed for everything) or a FAULT; with a
fault doctor exits with 4. --json prints {"schema": 1, "version", "faults", "checks":
[{"check", "result", "detail", "fix"}]}, the fix empty where nothing is to be done.

The engine needs the system's libffi (libffi.so.8), and everything else works without it:
install the package libffi8.`,
		Example: `  ccmed doctor
  ccmed doctor --json
  ccmed doctor --model gemma2:9b
  ccmed doctor --model model.gguf`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			fs := a.checkMachine(cmd.Context(), &m)
			if m.model != "" {
				more, err := a.checkModel(cmd.Context(), &m)
				if err != nil {
					return err
				}
				fs = append(fs, more...)
			}
			if err := cmd.Context().Err(); err != nil {
				return err
			}
			return a.diagnose(fs)
		},
	}
	m.register(cmd)
	// Who asks what works wants to know it now.
	m.patience = 15 * time.Second
	cmd.Flags().Lookup("patience").DefValue = m.patience.String()
	return cmd
}

// diagnose prints what was found; faults are an error.
func (a *app) diagnose(fs []finding) error {
	d := diagnosis{Schema: 1, Version: version(), Checks: fs}
	t := report.Table{Columns: []report.Column{{Name: "check"}, {Name: "result"}, {Name: "detail"}, {Name: "fix"}}}
	for _, f := range fs {
		if f.Result == faulty {
			d.Faults++
		}
		t.Rows = append(t.Rows, []report.Cell{report.Text(f.Check), report.Text(f.Result), report.Text(f.Detail), report.Text(f.Fix)})
	}
	if a.json {
		if err := a.encode(d); err != nil {
			return err
		}
	} else if err := a.print([]report.Section{{Title: "ccmed " + version(), Tables: []report.Table{t}}}); err != nil {
		return err
	}
	if d.Faults > 0 {
		return &infer.MissingError{What: fmt.Sprintf("faults found: %d", d.Faults)}
	}
	return nil
}
