package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ccmed/ccmed/bench/mediation"
	"github.com/ccmed/ccmed/bench/report"
	"github.com/ccmed/ccmed/bench/run"
	"github.com/ccmed/ccmed/bench/timing"
)

func (a *app) compareCmd() *cobra.Command {
	var seed int64
	var force bool
	cmd := &cobra.Command{
		Use:   "compare RUN_A RUN_B",
		Short: "Paired differences of two runs with intervals",
		Long: `compare pairs two runs of one task by dialogue and prints B − A with a bootstrap
interval and a permutation p, both by scenario context. It refuses runs that
differ in data, labeller, simulator, judge, prompts or the mediator's chat template;
--force compares them all the same and says what differs.`,
		Example: "  ccmed compare runs/GEMMA runs/PHI",
		Args:    cobra.ExactArgs(2),
		RunE: func(_ *cobra.Command, args []string) error {
			var ds [2]*run.Dir
			var samples [2][]run.Sample
			for i, p := range args {
				d, err := run.Open(p)
				if err != nil {
					return err
				}
				if d.Manifest().Status != run.StatusDone {
					return fmt.Errorf("%s is not finished; go on with: ccmed runs resume %s", p, p)
				}
				if samples[i], err = samplesOf(d); err != nil {
					return err
				}
				ds[i] = d
			}
			x, y := ds[0].Manifest().Identity, ds[1].Manifest().Identity
			if x.Task != y.Task {
				return fmt.Errorf("%s is a %s run and %s a %s run: they have nothing to compare", args[0], x.Task, args[1], y.Task)
			}
			differ := incomparable(x, y)
			if len(differ) > 0 && !force {
				return fmt.Errorf("the runs differ in what must be equal: %s; --force compares them all the same", strings.Join(differ, ", "))
			}
			s, err := a.compareSections(args, x, y, samples, uint64(seed))
			if err != nil {
				return err
			}
			if len(differ) > 0 {
				s.Notes = append(s.Notes, "compared by force; the runs differ in: "+strings.Join(differ, ", "))
			}
			return a.print([]report.Section{s})
		},
	}
	cmd.Flags().Int64Var(&seed, "seed", 1, "seed of resampling")
	cmd.Flags().BoolVar(&force, "force", false, "compare runs that differ in data, labeller or prompts")
	return cmd
}

// incomparable lists what two runs must share and do not. The mediator itself
// may differ: that is the comparison. Its chat template may not, unless the
// model differs too.
func incomparable(x, y run.Identity) []string {
	var out []string
	if x.DataHash != y.DataHash {
		out = append(out, "data")
	}
	for _, role := range []string{mediation.RoleSimulator, mediation.RoleLabeller, mediation.RoleJudge} {
		if x.Models[role].Digest != y.Models[role].Digest || x.Models[role].Name != y.Models[role].Name || x.Models[role].TemplateHash != y.Models[role].TemplateHash {
			out = append(out, role)
		}
	}
	m, n := x.Models[mediation.RoleMediator], y.Models[mediation.RoleMediator]
	if m.Digest == n.Digest && m.TemplateHash != n.TemplateHash {
		out = append(out, "chat template of the mediator")
	}
	for name, h := range x.Prompts {
		if y.Prompts[name] != h {
			out = append(out, "prompt template "+name)
		}
	}
	for _, o := range append([]string{"first_turn"}, baselineOptions...) {
		if fmt.Sprint(x.Options[o]) != fmt.Sprint(y.Options[o]) {
			out = append(out, o)
		}
	}
	if x.Seed != y.Seed {
		out = append(out, "seed")
	}
	slices.Sort(out)
	return out
}

func (a *app) compareSections(args []string, x, y run.Identity, samples [2][]run.Sample, seed uint64) (report.Section, error) {
	s := report.Section{Title: fmt.Sprintf("%s (B) − %s (A)", args[1], args[0])}
	s.Notes = append(s.Notes, "A: "+modelNames(x), "B: "+modelNames(y))
	t := report.Table{Columns: []report.Column{{Name: "measure"}, {Name: "B − A [95 %]", Align: report.Right}, {Name: "n", Align: report.Right}, {Name: "p", Align: report.Right}, {Name: ""}}}
	switch x.Task {
	case "timing":
		c, err := timing.Compare(samples[0], samples[1], timing.ScoreOptions{Seed: seed})
		if err != nil {
			return s, err
		}
		t.Rows = append(t.Rows, []report.Cell{report.Text("TurnAcc, sign-flip by context"), report.Text(report.Interval(c.Difference.Value, c.Difference.Lo, c.Difference.Hi, 3)),
			report.Int(c.N), report.Text(report.PValue(c.SignFlip)), report.Text(verdict(c.SignFlip))},
			[]report.Cell{report.Text("TurnAcc, exact McNemar"), report.Text(""), report.Int(c.N), report.Text(report.PValue(c.McNemar)), report.Text(verdict(c.McNemar))})
		s.Notes = append(s.Notes, fmt.Sprintf("both right %d, only A %d, only B %d", c.BothRight, len(c.OnlyA), len(c.OnlyB)))
		if len(c.OnlyA) > 0 {
			s.Notes = append(s.Notes, "only A: "+strings.Join(c.OnlyA, " "))
		}
		if len(c.OnlyB) > 0 {
			s.Notes = append(s.Notes, "only B: "+strings.Join(c.OnlyB, " "))
		}
	case "mediation":
		ds, notes, err := mediation.Compare(samples[0], samples[1], mediation.ScoreOptions{Seed: seed})
		if err != nil {
			return s, err
		}
		s.Notes = append(s.Notes, notes...)
		for _, d := range ds {
			t.Rows = append(t.Rows, []report.Cell{report.Text(d.Metric + ", " + strings.TrimPrefix(d.A, "B, ")), report.Text(report.Interval(d.Value.Value, d.Value.Lo, d.Value.Hi, 2)),
				report.Int(d.Value.N), report.Text(report.PValue(d.PHolm)), report.Text(verdict(d.PHolm))})
		}
		if len(ds) == 0 {
			s.Notes = append(s.Notes, "no metric can be compared")
		}
	default:
		return s, errors.New("this version compares timing and mediation runs")
	}
	s.Tables = []report.Table{t}
	return s, nil
}

func verdict(p float64) string {
	if p < mediation.Alpha {
		return "significant"
	}
	return "~"
}
