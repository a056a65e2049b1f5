package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/ccmed/ccmed/bench/report"
	"github.com/ccmed/ccmed/bench/run"
)

func (a *app) runsMigrateCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "migrate RUN...",
		Short: "Bring older folders to the form of this version",
		Long: `migrate writes manifest.json and metrics.json of older runs in the form of this
version. What was there stays beside it, as manifest.schema-1.json and
metrics.schema-1.json. Metrics are computed anew from the samples, which stay as they
are. A run with faults (ccmed runs verify) is not touched, nor is one of a newer
version.

  manifest  1 to 2: the hash of the identity, by which changes by hand show
  metrics   1 to 2: calibration, the curve around the conflict, mean trajectories

Findings of probes are made again, with: ccmed probe train RUN`,
		Example: `  ccmed runs migrate runs/NAME
  ccmed runs migrate runs/*`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			var errs []error
			for _, path := range args {
				did, err := a.migrate(cmd.Context(), path)
				if err != nil {
					errs = append(errs, err)
					continue
				}
				if err := a.tell("%s: %s\n", path, did); err != nil {
					return err
				}
			}
			return errors.Join(errs...)
		},
	}
}

// migrate brings a folder up to date and says what was done.
func (a *app) migrate(ctx context.Context, path string) (string, error) {
	switch kindOf(path) {
	case kindRun:
	case "":
		return "", notOurs(path)
	default:
		if f, _ := readFolder(path); f.Fault != "" {
			return "", errors.New(f.Fault)
		}
		return "nothing to do, there is one form only of " + describeKind(kindOf(path)), nil
	}
	d, err := run.Open(path)
	if err != nil {
		return "", err
	}
	if err := run.Verify(path, run.VerifyOptions{}); err != nil {
		return "", fmt.Errorf("%s has faults and is left as it is: %w", path, err)
	}
	metrics, err := d.Metrics()
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	scored := err == nil && metrics.Schema < run.MetricsSchema
	from, err := run.Migrate(path, version(), a.now())
	if err != nil {
		return "", err
	}
	did := ""
	if from > 0 {
		did = fmt.Sprintf("manifest from schema %d to %d", from, run.Schema)
	}
	if scored {
		if err := d.Keep(run.MetricsFile, metrics.Schema); err != nil {
			return "", err
		}
		quiet := *a
		quiet.quiet = true
		if err := quiet.scoreRun(ctx, path, scoreFlags{seed: metrics.Seed}, func([]report.Section) error { return nil }); err != nil {
			return "", fmt.Errorf("%s: the metrics cannot be computed anew and stay as they were: %w", filepath.Join(path, run.MetricsFile), err)
		}
		if did != "" {
			did += ", "
		}
		did += fmt.Sprintf("metrics from schema %d to %d", metrics.Schema, run.MetricsSchema)
	}
	if d.Manifest().Identity.Task == "extract" && exists(findingsFile(d)) {
		if _, err := readFindings(d); err != nil {
			a.note("%v", err)
		}
	}
	if did == "" {
		return "nothing to do", nil
	}
	return did + "; what was there is kept beside it", nil
}
