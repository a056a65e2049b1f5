package main

import (
	"time"

	"github.com/spf13/cobra"

	"github.com/ccmed/ccmed/bench/report"
	"github.com/ccmed/ccmed/cmd/ccmed/internal/doctor"
	"github.com/ccmed/ccmed/infer/fleet"
)

func (a *app) doctorCmd() *cobra.Command {
	m := fleet.Flags{}
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "What works on this machine, and a remedy for each fault",
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
			env := doctor.Env{Env: a.fleetEnv(doctor.Role), Engine: a.engineCheck}
			fs := doctor.CheckMachine(cmd.Context(), env, &m)
			if m.Model != "" {
				more, err := doctor.CheckModel(cmd.Context(), env, &m)
				if err != nil {
					return err
				}
				fs = append(fs, more...)
			}
			if err := cmd.Context().Err(); err != nil {
				return err
			}
			d := doctor.Diagnose(fs, version())
			if a.json {
				if err := a.encode(d); err != nil {
					return err
				}
			} else if err := a.print([]report.Section{d.Section()}); err != nil {
				return err
			}
			return d.Err()
		},
	}
	m.Register(cmd.Flags())
	// Who asks what works wants to know it now.
	m.Patience = 15 * time.Second
	cmd.Flags().Lookup("patience").DefValue = m.Patience.String()
	return cmd
}
