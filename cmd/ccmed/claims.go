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

	"github.com/ccmed/ccmed/bench/dialogue"
	"github.com/ccmed/ccmed/bench/disk"
	"github.com/ccmed/ccmed/bench/report"
	"github.com/ccmed/ccmed/bench/run"
	"github.com/ccmed/ccmed/bench/study/claims"
	"github.com/ccmed/ccmed/bench/task"
	"github.com/ccmed/ccmed/cmd/ccmed/internal/cli"
)

type claimsFlags struct {
	file, data, out string
	tuned           []string
	seed            int64
	force           bool
}

func (a *app) claimsCmd() *cobra.Command {
	c := &claimsFlags{}
	cmd := &cobra.Command{
		Use:   "claims RUN...",
		Short: "Claim by claim, what runs say of a published study",
		Long: `claims holds what the CC-Mediation study claims against finished runs. Every claim
stands with the published number, with what was measured here, its 95 % interval and
n, and one of

  supported            the effect is shown, or shown to be equal
  contradicted         an effect of the smallest size of interest is shown not to be
                       there
  not testable here    and why: the labeller's grade, n, power, a run that is missing

by one-sided tests in pairs, two of them for equivalence, with Holm over all claims.
A claim about every model is tested in each run, supported if all support it, and
contradicted if one does.

A RUN is the folder of a run or a folder of them: of timing, of mediation, of hidden
states with probes trained, of pairs that were built. Claims about fine-tuning need
the runs of a tuned model and of its base, and --base-of to tell which they are.

--claims FILE reads claims of another study, written as docs/claims.md says.`,
		Example: `  ccmed claims runs/NIGHT --data CC-Mediation/data --out claims
  ccmed claims runs/TIMING runs/TUNED --base-of llama-mediator=llama3.1:8b
  ccmed claims runs/NIGHT --claims mine.yaml --json`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return a.claims(cmd.Context(), args, c) },
	}
	f := cmd.Flags()
	f.StringVar(&c.file, "claims", "", "YAML file of claims (default: those of CC-Mediation)")
	f.StringVar(&c.data, "data", "", "folder of the study's records, for the claims about them")
	f.StringArrayVar(&c.tuned, "base-of", nil, "a fine-tuned model and its base, as TUNED=BASE; repeat it for more")
	f.StringVar(&c.out, "out", "", "folder for tables.tex, claims.md, claims.html and claims.json")
	f.BoolVar(&c.force, "force", false, "replace these files")
	f.Int64Var(&c.seed, "seed", 1, "seed of resampling")
	return cmd
}

func (a *app) claims(ctx context.Context, paths []string, c *claimsFlags) error {
	set, err := claims.Published()
	if c.file != "" {
		set, err = readClaims(c.file)
	}
	if err != nil {
		return err
	}
	if c.out != "" {
		if err := vacantClaims(c.out, c.force); err != nil {
			return err
		}
	}
	ev := claims.Evidence{}
	if ev.Tuned, err = parseTuned(c.tuned); err != nil {
		return err
	}
	if ev.Records, err = a.studyRecords(ctx, c.data); err != nil {
		return err
	}
	if ev.Runs, err = a.finishedRuns(paths); err != nil {
		return err
	}
	f, err := claims.Judge(ctx, set, ev, uint64(c.seed))
	if err != nil {
		return err
	}
	if c.out != "" {
		if err := writeClaims(c.out, f); err != nil {
			return err
		}
		a.note("claims written in %s", c.out)
	}
	return a.print(f.Sections())
}

func readClaims(file string) (claims.Set, error) {
	b, err := disk.ReadFile(file, cli.MaxYAML)
	if err != nil {
		return claims.Set{}, usagef("read the claims: %w", err)
	}
	set, err := claims.Parse(file, b)
	if err != nil {
		return set, &usageError{Err: err}
	}
	return set, nil
}

func parseTuned(given []string) (map[string]string, error) {
	out := map[string]string{}
	for _, s := range given {
		name, base, ok := strings.Cut(s, "=")
		if !ok || name == "" || base == "" {
			return nil, usagef("--base-of %q is not TUNED=BASE", s)
		}
		out[name] = base
	}
	return out, nil
}

// studyRecords reads all splits of the study's records; "" are none.
func (a *app) studyRecords(ctx context.Context, path string) ([]dialogue.Dialogue, error) {
	if path == "" {
		return nil, nil
	}
	records := task.Records{Path: path}
	splits, err := records.Splits()
	if err != nil {
		return nil, err
	}
	var out []dialogue.Dialogue
	for _, split := range splits {
		ds, err := a.opened().All(ctx, task.Records{Path: path, Split: split})
		if err != nil {
			return nil, err
		}
		out = append(out, ds...)
	}
	return out, nil
}

// finishedRuns opens the finished runs that paths name. One that is not finished, or no run
// of a benchmark, is an error where it is named and left out with a note within a folder.
func (a *app) finishedRuns(paths []string) ([]claims.Run, error) {
	folders, err := runFolders(paths)
	if err != nil {
		return nil, err
	}
	var all []string
	for _, f := range folders {
		all = append(all, f.path)
	}
	names := runNames(all)
	var out []claims.Run
	for i, f := range folders {
		r, err := a.opened().Open(f.path)
		if err == nil && r.Manifest().Status != run.StatusDone {
			err = fmt.Errorf("%s is not finished; go on with: ccmed runs resume %s", f.path, f.path)
		}
		if errors.Is(err, fs.ErrNotExist) && exists(f.path) {
			err = fmt.Errorf("%s is a training, about which there is no claim", f.path)
		}
		switch {
		case err != nil && f.within:
			a.note("left out: %v", err)
		case err != nil:
			return nil, err
		default:
			out = append(out, claims.Run{Name: names[i], Run: r})
		}
	}
	return out, nil
}

// claimFiles are the files of --out.
var claimFiles = []string{"tables.tex", "claims.md", "claims.html", "claims.json"}

func vacantClaims(dir string, force bool) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("make the folder of claims: %w; choose another with --out", err)
	}
	for _, name := range claimFiles {
		if err := vacantFile(filepath.Join(dir, name), force); err != nil {
			return err
		}
	}
	return nil
}

func writeClaims(dir string, f *claims.Findings) error {
	for _, name := range claimFiles {
		var b bytes.Buffer
		if format, ok := reportFormats[strings.TrimPrefix(filepath.Ext(name), ".")]; ok {
			if err := report.Write(&b, format.format, f.Sections(), report.Options{Title: "Claims: " + f.Study}); err != nil {
				return err
			}
		} else {
			b.WriteString(f.LaTeX())
		}
		if err := disk.WriteFile(filepath.Join(dir, name), b.Bytes(), 0o644); err != nil {
			return fmt.Errorf("write %s: %w", name, err)
		}
	}
	return nil
}
