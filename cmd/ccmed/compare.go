package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ccmed/ccmed/bench/mediation"
	"github.com/ccmed/ccmed/bench/report"
	"github.com/ccmed/ccmed/bench/run"
	"github.com/ccmed/ccmed/bench/stats"
	"github.com/ccmed/ccmed/bench/timing"
)

// compareFlags steer a comparison.
type compareFlags struct {
	base            string
	force, unpaired bool
	seed            int64
	format          string
}

func (a *app) compareCmd() *cobra.Command {
	var f compareFlags
	cmd := &cobra.Command{
		Use:   "compare RUN_A RUN_B...",
		Short: "Differences of runs, paired by dialogue, with intervals",
		Long: `compare sets runs of one task against the first of them, or against --base, and
prints B − A for each measure, paired by dialogue:

  B − A    with its 95 % interval: Student's t with standard errors from drawing
           whole scenario contexts
  p        of flipping the signs of whole contexts, corrected by Holm over
           all rows of the call
  effect   ~ where p is 0.05 or more: no difference is shown. Else in words: the
           share of dialogues in points, or by Cohen's d_z (mean over standard
           deviation of the differences): negligible below 0.2, small below 0.5,
           medium below 0.8, large (Cohen 1988)

Below stand the dialogues that flipped or changed most. Dialogues that a run could
not score are dropped from the pairs and counted.

Runs that differ in data, labeller, simulator, judge, prompts, options of the scale or
the mediator's chat template are refused. Two options compare them all the same:

  --force     still in pairs, of the dialogues that both have
  --unpaired  as independent samples: Welch's interval, and p from dealing whole
              contexts out to the runs anew. Right for other dialogues; where the
              runs share some, it sees less than pairs do

--format benchstat writes seconds and tokens/s of every sample in Go's benchmark
format, for: benchstat -col run FILE`,
		Example: `  ccmed compare runs/GEMMA runs/PHI
  ccmed compare runs/BASE runs/TUNED runs/MASKED --base BASE --format markdown
  ccmed compare runs/GEMMA runs/PHI --format benchstat`,
		Args: cobra.MinimumNArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			if f.force && f.unpaired {
				return usagef("--force compares in pairs and --unpaired does not; give one of them")
			}
			write, ok := map[string]func(context.Context, []comparedRun, compareFlags) error{
				"table": a.compareTable, "json": a.compareJSON, "markdown": a.compareMarkdown, "latex": a.compareLaTeX, "benchstat": a.compareSpeed,
			}[f.format]
			if !ok {
				return usagef("unknown --format %q; known are table, json, markdown, latex and benchstat", f.format)
			}
			if a.json {
				if f.format != "table" && f.format != "json" {
					return usagef("--json and --format %s contradict each other", f.format)
				}
				write = a.compareJSON
			}
			runs, err := a.openCompared(args, f.base)
			if err != nil {
				return err
			}
			return write(cmd.Context(), runs, f)
		},
	}
	fl := cmd.Flags()
	fl.StringVar(&f.base, "base", "", "run to compare the others with, by its path or its last part (default: the first)")
	fl.Int64Var(&f.seed, "seed", 1, "seed of resampling")
	fl.BoolVar(&f.force, "force", false, "pair runs that differ in data, labeller, simulator, prompts or scale")
	fl.BoolVar(&f.unpaired, "unpaired", false, "compare as independent samples, whatever differs")
	fl.StringVar(&f.format, "format", "table", "table, json, markdown, latex or benchstat")
	return cmd
}

// comparedRun is one of the runs that are compared.
type comparedRun struct {
	path, name string
	dir        *run.Dir
}

func (r comparedRun) identity() run.Identity { return r.dir.Manifest().Identity }

// openCompared opens finished runs of one task, the base first.
func (a *app) openCompared(paths []string, base string) ([]comparedRun, error) {
	var runs []comparedRun
	var seen []os.FileInfo // a run that is there twice makes the family of tests larger
	names := map[string]int{}
	for _, p := range paths {
		d, err := a.reading(p)
		if err != nil {
			return nil, err
		}
		if d.Manifest().Status != run.StatusDone {
			return nil, fmt.Errorf("%s is not finished; go on with: ccmed runs resume %s", p, p)
		}
		if st, err := os.Stat(p); err == nil {
			if i := slices.IndexFunc(seen, func(s os.FileInfo) bool { return os.SameFile(s, st) }); i >= 0 {
				return nil, usagef("%s and %s are the same run; give each run once", paths[i], p)
			}
			seen = append(seen, st)
		}
		name := filepath.Base(d.Manifest().Path)
		names[name]++
		runs = append(runs, comparedRun{p, name, d})
	}
	at := 0
	if base != "" {
		at = slices.IndexFunc(runs, func(r comparedRun) bool { return filepath.Clean(r.path) == filepath.Clean(base) || r.name == base })
		if at < 0 {
			return nil, usagef("--base %s is none of the runs that are compared", base)
		}
	}
	for i, r := range runs {
		if names[r.name] > 1 {
			runs[i].name = r.path
		}
	}
	first := runs[at]
	runs = slices.Insert(slices.Delete(runs, at, at+1), 0, first)
	for _, r := range runs[1:] {
		if x, y := first.identity().Task, r.identity().Task; x != y {
			return nil, fmt.Errorf("%s is a %s run and %s a %s run: they have nothing to compare", first.path, x, r.path, y)
		}
	}
	return runs, nil
}

// comparison is what compare finds.
type comparison struct {
	Schema int    `json:"schema"`
	Task   string `json:"task"`
	Paired bool   `json:"paired"`
	Seed   int64  `json:"seed"`
	// Family is the number of tests that the p values are corrected for.
	Family int            `json:"family"`
	Runs   []comparedName `json:"runs"` // the base first
	Pairs  []comparedPair `json:"pairs"`
}

type comparedName struct {
	Name  string   `json:"name"`
	Path  string   `json:"path"`
	Model string   `json:"model"`
	Notes []string `json:"notes,omitempty"`
}

// comparedPair is one run against the base.
type comparedPair struct {
	A      string   `json:"a"`
	B      string   `json:"b"`
	Differ []string `json:"differ,omitempty"` // what should be equal and is not
	Other  []string `json:"other,omitempty"`  // what else differs
	// Measures are B − A. A measure that a run does not have is not among them.
	Measures []*stats.Comparison `json:"measures"`
	// McNemar is the exact p of the first measure's flips, where it is binary and
	// paired, dialogues taken as independent. It is in no family.
	McNemar *float64 `json:"p_mcnemar,omitempty"`
	Notes   []string `json:"notes,omitempty"`
}

// compareSchema is the version of comparison as JSON.
const compareSchema = 1

// compareResamples is how often groups are drawn or permuted.
const compareResamples = 10_000

// compareRuns compares every run with the first.
func compareRuns(ctx context.Context, runs []comparedRun, f compareFlags) (*comparison, error) {
	c := &comparison{Schema: compareSchema, Task: runs[0].identity().Task, Paired: !f.unpaired, Seed: f.seed}
	if c.Task == "extract" {
		return nil, errors.New("runs of hidden states are not compared: findings keep accuracies by layer, not each dialogue's outcome, which pairs are made of; ccmed report shows several side by side")
	}
	measures := make([][]stats.Measure, len(runs))
	for i, r := range runs {
		if i > 0 && !f.unpaired && !f.force {
			if err := refuse(runs[0], r); err != nil {
				return nil, err
			}
		}
		ms, notes, err := measuresOf(r)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", r.path, err)
		}
		measures[i] = ms
		c.Runs = append(c.Runs, comparedName{r.name, r.path, modelNames(r.identity()), notes})
	}
	how := stats.Compare
	if f.unpaired {
		how = stats.CompareUnpaired
	}
	var family []*stats.Comparison
	for i, r := range runs[1:] {
		p := comparedPair{A: runs[0].name, B: r.name, Measures: []*stats.Comparison{}}
		var err error
		if p.Differ, p.Other, err = incomparable(runs[0].identity(), r.identity()); err != nil {
			return nil, err
		}
		for _, x := range measures[0] {
			at := slices.IndexFunc(measures[i+1], func(y stats.Measure) bool { return y.Name == x.Name && y.Condition == x.Condition })
			if at < 0 {
				continue
			}
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			d, err := how(x, measures[i+1][at], stats.Resampling{Resamples: compareResamples, Seed: uint64(f.seed)})
			switch {
			case errors.Is(err, stats.ErrNothingShared), errors.Is(err, stats.ErrNoItems):
				p.Notes = append(p.Notes, measureName(&d)+": no dialogue that both scored")
				continue
			case errors.Is(err, stats.ErrOneGroup):
				p.Notes = append(p.Notes, measureName(&d)+": all dialogues are of one scenario context; at least 2 are needed")
				continue
			case err != nil:
				return nil, fmt.Errorf("compare %s with %s: %w", r.path, runs[0].path, err)
			}
			p.Measures = append(p.Measures, &d)
			family = append(family, &d)
		}
		if len(p.Measures) == 0 {
			p.Notes = append(p.Notes, "no measure can be compared")
		} else if d := p.Measures[0]; d.Binary && d.Paired {
			if lost, won := flips(d); lost+won > 0 { // without a flip there is nothing to test
				m := stats.McNemar(lost, won)
				p.McNemar = &m
			}
		}
		c.Pairs = append(c.Pairs, p)
	}
	stats.Adjust(family)
	c.Family = len(family)
	return c, nil
}

// measuresOf returns what a run says of each dialogue.
func measuresOf(r comparedRun) ([]stats.Measure, []string, error) {
	samples, err := samplesOf(r.dir)
	if err != nil {
		return nil, nil, err
	}
	switch task := r.identity().Task; task {
	case "timing":
		return timing.Measures(samples)
	case "mediation":
		return mediation.Measures(samples)
	default:
		return nil, nil, fmt.Errorf("it is a %s run; this version compares timing and mediation runs", task)
	}
}

// flips counts the changes of a binary measure to wrong and to right.
func flips(d *stats.Comparison) (lost, won int) {
	for _, x := range d.Changes {
		if x.B < x.A {
			lost++
		} else {
			won++
		}
	}
	return lost, won
}

// scaleOptions are those that make a number mean something else.
var scaleOptions = append([]string{"first_turn"}, baselineOptions...)

// incomparable lists what two runs must share and do not, and what else differs.
// The mediator itself may differ: that is the comparison. Its chat template may
// not, unless the model differs too.
func incomparable(x, y run.Identity) (differ, other []string, err error) {
	fields, err := x.Differences(y)
	if err != nil {
		return nil, nil, err
	}
	m, n := x.Models[mediation.RoleMediator], y.Models[mediation.RoleMediator]
	for _, d := range fields {
		area, name, _ := strings.Cut(d.Field, ".")
		role, part, _ := strings.Cut(name, ".")
		values := fmt.Sprintf(" (%s, %s)", d.A, d.B)
		switch {
		case area == "data_hash":
			differ = append(differ, fmt.Sprintf("data (%d and %d dialogues)", len(x.Items), len(y.Items)))
		case area == "models" && role == mediation.RoleMediator:
			if part == "template_hash" && m.Digest == n.Digest {
				differ = append(differ, "chat template of the mediator")
			}
		case area == "models" && slices.Contains([]string{"name", "digest", "template_hash"}, part):
			differ = append(differ, role)
		case area == "prompts":
			differ = append(differ, "prompt template "+name)
		case area == "options" && slices.Contains(scaleOptions, name), area == "seed":
			differ = append(differ, strings.TrimPrefix(d.Field, "options.")+values)
		case area == "options" && name != "data" && name != "limit" && name != "split":
			other = append(other, name+values)
		case area == "num_ctx", area == "version", area == "shard":
			other = append(other, d.Field+values)
		}
	}
	slices.Sort(differ)
	return slices.Compact(differ), other, nil
}

// refuse returns an error where two runs cannot be compared as they are, which names
// the option for doing it all the same.
func refuse(a, b comparedRun) error {
	x, y := a.identity(), b.identity()
	differ, _, err := incomparable(x, y)
	if err != nil || len(differ) == 0 {
		return err
	}
	there := map[string]bool{}
	for _, k := range x.Items {
		there[k] = true
	}
	shared := 0
	for _, k := range y.Items {
		if there[k] {
			shared++
		}
	}
	way := "--force pairs them all the same, and the difference is then also one of these"
	switch {
	case shared == 0:
		way = "they share no dialogue: --unpaired compares them as independent samples"
	case x.DataHash != y.DataHash:
		way = fmt.Sprintf("--force pairs the %d dialogues of the same id, --unpaired compares all as independent samples", shared)
	}
	return fmt.Errorf("%s and %s differ in what must be equal: %s; %s", a.path, b.path, strings.Join(differ, ", "), way)
}

// compared returns the comparisons of the runs among paths that can be compared:
// finished ones of one task with equal data and instruments. Where a run cannot
// be, a note says why.
func (a *app) compared(ctx context.Context, paths []string) ([]report.Section, error) {
	byTask := map[string][]string{}
	var tasks []string
	for _, p := range paths {
		d, err := run.Open(p)
		if err != nil {
			continue // no run of a benchmark: a training, for example
		}
		m := d.Manifest()
		task := m.Identity.Task
		if m.Status != run.StatusDone || task != "timing" && task != "mediation" {
			continue
		}
		if len(byTask[task]) == 0 {
			tasks = append(tasks, task)
		}
		byTask[task] = append(byTask[task], p)
	}
	var sections []report.Section
	for _, task := range tasks {
		if len(byTask[task]) < 2 {
			continue
		}
		runs, err := a.openCompared(byTask[task], "")
		if err != nil {
			return nil, err
		}
		alike := runs[:1:1]
		for _, r := range runs[1:] {
			if err := refuse(runs[0], r); err != nil {
				a.note("not compared: %v", err)
				continue
			}
			alike = append(alike, r)
		}
		if len(alike) < 2 {
			continue
		}
		c, err := compareRuns(ctx, alike, compareFlags{seed: 1})
		if err != nil {
			return nil, err
		}
		sections = append(sections, c.sections()...)
	}
	return sections, nil
}
