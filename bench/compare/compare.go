// Package compare sets runs of one benchmark side by side: paired differences of its
// measures with intervals, corrected over the whole call.
//
//	runs, err := compare.Open(archive, []string{"runs/GEMMA", "runs/PHI"}, "")
//	c, err := compare.Compare(ctx, runs, compare.Options{Seed: 1})
//	err = report.Write(w, report.Terminal, c.Sections(), report.Options{})
package compare

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/ccmed/ccmed/bench/report"
	"github.com/ccmed/ccmed/bench/run"
	"github.com/ccmed/ccmed/bench/stats"
	"github.com/ccmed/ccmed/bench/task"
	"github.com/ccmed/ccmed/bench/usage"
)

// Options steer a comparison.
type Options struct {
	// Force pairs runs that differ in what must be equal, Unpaired compares them as
	// independent samples.
	Force, Unpaired bool
	Seed            int64
}

// Run is one of the runs that are compared.
type Run struct {
	Path, Name string
	Run        *task.Run
}

func (r Run) identity() run.Identity { return r.Run.Identity() }

// Open opens finished runs of one task, the base first: the run that base names by its
// path or its name, or the first one.
func Open(a *task.Archive, paths []string, base string) ([]Run, error) {
	var runs []Run
	var seen []os.FileInfo // a run that is there twice makes the family of tests larger
	names := map[string]int{}
	for _, p := range paths {
		r, err := a.Open(p)
		if err != nil {
			return nil, err
		}
		if r.Manifest().Status != run.StatusDone {
			return nil, fmt.Errorf("%s is not finished; go on with: ccmed runs resume %s", p, p)
		}
		if st, err := os.Stat(p); err == nil {
			if i := slices.IndexFunc(seen, func(s os.FileInfo) bool { return os.SameFile(s, st) }); i >= 0 {
				return nil, usage.Errorf("%s and %s are the same run; give each run once", paths[i], p)
			}
			seen = append(seen, st)
		}
		name := filepath.Base(r.Manifest().Path)
		names[name]++
		runs = append(runs, Run{p, name, r})
	}
	at := 0
	if base != "" {
		at = slices.IndexFunc(runs, func(r Run) bool { return filepath.Clean(r.Path) == filepath.Clean(base) || r.Name == base })
		if at < 0 {
			return nil, usage.Errorf("--base %s is none of the runs that are compared", base)
		}
	}
	for i, r := range runs {
		if names[r.Name] > 1 {
			runs[i].Name = r.Path
		}
	}
	first := runs[at]
	runs = slices.Insert(slices.Delete(runs, at, at+1), 0, first)
	for _, r := range runs[1:] {
		if x, y := first.identity().Task, r.identity().Task; x != y {
			return nil, fmt.Errorf("%s is a %s run and %s a %s run: they have nothing to compare", first.Path, x, r.Path, y)
		}
	}
	return runs, nil
}

// Comparison is what comparing runs gives.
type Comparison struct {
	Schema int    `json:"schema"`
	Task   string `json:"task"`
	Paired bool   `json:"paired"`
	Seed   int64  `json:"seed"`
	// Family is the number of tests that the p values are corrected for.
	Family int    `json:"family"`
	Runs   []Name `json:"runs"` // the base first
	Pairs  []Pair `json:"pairs"`

	nouns nouns
}

// nouns are the words for what is measured, and for what is drawn: "dialogue", "scenario
// context" and, in short, "context".
type nouns struct{ item, cluster, group string }

func nounsOf(about task.About) nouns {
	return nouns{about.Item, about.Cluster, about.Cluster[strings.LastIndex(about.Cluster, " ")+1:]}
}

// Name is a run of a comparison.
type Name struct {
	Name  string   `json:"name"`
	Path  string   `json:"path"`
	Model string   `json:"model"`
	Notes []string `json:"notes,omitempty"`
}

// Pair is one run against the base.
type Pair struct {
	A      string   `json:"a"`
	B      string   `json:"b"`
	Differ []string `json:"differ,omitempty"` // what should be equal and is not
	Other  []string `json:"other,omitempty"`  // what else differs
	// Measures are B − A. A measure that a run does not have is not among them.
	Measures []*stats.Comparison `json:"measures"`
	// McNemar is the exact p of the first measure's flips, where it is binary and
	// paired, items taken as independent. It is in no family.
	McNemar *float64 `json:"p_mcnemar,omitempty"`
	Notes   []string `json:"notes,omitempty"`
}

// Schema is the version of Comparison as JSON.
const Schema = 1

// Resamples is how often groups are drawn or permuted.
const Resamples = 10_000

// Compare compares every run with the first.
func Compare(ctx context.Context, runs []Run, o Options) (*Comparison, error) {
	c := &Comparison{Schema: Schema, Task: runs[0].identity().Task, Paired: !o.Unpaired, Seed: o.Seed}
	all := make([][]stats.Measure, len(runs))
	if b := runs[0].Run.Bench; b != nil {
		c.nouns = nounsOf(b.About())
	}
	for i, r := range runs {
		if i > 0 && !o.Unpaired && !o.Force {
			if err := refuse(runs[0], r); err != nil {
				return nil, err
			}
		}
		ms, notes, err := measures(ctx, r)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", r.Path, err)
		}
		all[i] = ms
		c.Runs = append(c.Runs, Name{r.Name, r.Path, r.identity().ModelNames(), notes})
	}
	how := stats.Compare
	if o.Unpaired {
		how = stats.CompareUnpaired
	}
	var family []*stats.Comparison
	for i, r := range runs[1:] {
		p := Pair{A: runs[0].Name, B: r.Name, Measures: []*stats.Comparison{}}
		var err error
		if p.Differ, p.Other, err = incomparable(runs[0], r); err != nil {
			return nil, err
		}
		for _, x := range all[0] {
			at := slices.IndexFunc(all[i+1], func(y stats.Measure) bool { return y.Name == x.Name && y.Condition == x.Condition })
			if at < 0 {
				continue
			}
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			d, err := how(x, all[i+1][at], stats.Resampling{Resamples: Resamples, Seed: uint64(o.Seed)})
			switch {
			case errors.Is(err, stats.ErrNothingShared), errors.Is(err, stats.ErrNoItems):
				p.Notes = append(p.Notes, measureName(&d)+": no "+c.nouns.item+" that both scored")
				continue
			case errors.Is(err, stats.ErrOneGroup):
				p.Notes = append(p.Notes, fmt.Sprintf("%s: all %ss are of one %s; at least 2 are needed", measureName(&d), c.nouns.item, c.nouns.cluster))
				continue
			case err != nil:
				return nil, fmt.Errorf("compare %s with %s: %w", r.Path, runs[0].Path, err)
			}
			p.Measures = append(p.Measures, &d)
			family = append(family, &d)
		}
		if len(p.Measures) == 0 {
			p.Notes = append(p.Notes, "no measure can be compared")
		} else if d := p.Measures[0]; d.Binary && d.Paired {
			if lost, won := d.Flips(); lost+won > 0 { // without a flip there is nothing to test
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

// measures returns what a run says of each item.
func measures(ctx context.Context, r Run) ([]stats.Measure, []string, error) {
	if r.Run.Bench == nil {
		return nil, nil, fmt.Errorf("it is a %s run, and this version knows no such task", r.identity().Task)
	}
	res, err := r.Run.Result(ctx, task.ScoreOptions{})
	if err != nil {
		return nil, nil, err
	}
	return res.Measures(ctx)
}

// incomparable lists what two runs must share and do not, and what else differs.
// The model that is measured may differ: that is the comparison. Its chat template may
// not, unless the model differs too.
func incomparable(a, b Run) (differ, other []string, err error) {
	x, y, about := a.identity(), b.identity(), a.Run.Bench.About()
	fields, err := x.Differences(y)
	if err != nil {
		return nil, nil, err
	}
	m, n := x.Models[about.Subject], y.Models[about.Subject]
	for _, d := range fields {
		area, name, _ := strings.Cut(d.Field, ".")
		role, part, _ := strings.Cut(name, ".")
		values := fmt.Sprintf(" (%s, %s)", d.A, d.B)
		switch {
		case area == "data_hash":
			differ = append(differ, fmt.Sprintf("data (%d and %d %ss)", len(x.Items), len(y.Items), about.Item))
		case area == "models" && role == about.Subject:
			if part == "template_hash" && m.Digest == n.Digest {
				differ = append(differ, "chat template of the "+role)
			}
		case area == "models" && slices.Contains([]string{"name", "digest", "template_hash"}, part):
			differ = append(differ, role)
		case area == "prompts":
			differ = append(differ, "prompt template "+name)
		case area == "options" && slices.Contains(about.Scale, name), area == "seed":
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
func refuse(a, b Run) error {
	x, y := a.identity(), b.identity()
	differ, _, err := incomparable(a, b)
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
	item := a.Run.Bench.About().Item
	way := "--force pairs them all the same, and the difference is then also one of these"
	switch {
	case shared == 0:
		way = "they share no " + item + ": --unpaired compares them as independent samples"
	case x.DataHash != y.DataHash:
		way = fmt.Sprintf("--force pairs the %d %ss of the same id, --unpaired compares all as independent samples", shared, item)
	}
	return fmt.Errorf("%s and %s differ in what must be equal: %s; %s", a.Path, b.Path, strings.Join(differ, ", "), way)
}

// Alike returns the comparisons of the runs among paths that can be compared: finished ones
// of one task with equal data and instruments, whose benchmark has measures. Where a run
// cannot be compared, a note says why. names are what runs are called, by path.
func Alike(ctx context.Context, a *task.Archive, paths []string, names map[string]string) ([]report.Section, error) {
	byTask := map[string][]string{}
	var tasks []string
	for _, p := range paths {
		r, err := a.Open(p)
		if err != nil {
			continue // no run of a benchmark: a training, for example
		}
		m := r.Manifest()
		name := m.Identity.Task
		if m.Status != run.StatusDone || r.Bench == nil {
			continue
		}
		if len(byTask[name]) == 0 {
			tasks = append(tasks, name)
		}
		byTask[name] = append(byTask[name], p)
	}
	var sections []report.Section
	for _, name := range tasks {
		if len(byTask[name]) < 2 {
			continue
		}
		runs, err := Open(a, byTask[name], "")
		if err != nil {
			return nil, err
		}
		if _, _, err := measures(ctx, runs[0]); errors.Is(err, task.ErrNoMeasures) {
			continue
		}
		for i, r := range runs {
			runs[i].Name = cmp.Or(names[r.Path], r.Name)
		}
		alike := runs[:1:1]
		for _, r := range runs[1:] {
			if err := refuse(runs[0], r); err != nil {
				a.Note("not compared: %v", err)
				continue
			}
			alike = append(alike, r)
		}
		if len(alike) < 2 {
			continue
		}
		c, err := Compare(ctx, alike, Options{Seed: 1})
		if err != nil {
			return nil, err
		}
		sections = append(sections, c.Sections()...)
	}
	return sections, nil
}
