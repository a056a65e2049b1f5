package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/ccmed/ccmed/bench/dialogue"
	"github.com/ccmed/ccmed/bench/disk"
	"github.com/ccmed/ccmed/bench/report"
	"github.com/ccmed/ccmed/bench/run"
	"github.com/ccmed/ccmed/bench/strictjson"
	"github.com/ccmed/ccmed/infer"
	"github.com/ccmed/ccmed/infer/llamacpp"
)

// runFlags are common to every command that writes a run.
type runFlags struct {
	out, prompts, shard string
	seed                int64
	maxFailures         int
	strict, dryRun      bool
	resume              bool
}

func (r *runFlags) register(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&r.out, "out", "", "folder of this run (default: a new one in runs/)")
	f.StringVar(&r.prompts, "prompts", "", "folder of your own prompt templates (see ccmed data prompts)")
	f.StringVar(&r.shard, "shard", "", "do part i of n, as i/n; join the parts with ccmed runs merge")
	f.Int64Var(&r.seed, "seed", 1, "seed of sampling and of resampling")
	f.IntVar(&r.maxFailures, "max-failures", 0, "failed items that are tolerated before the run stops")
	f.BoolVar(&r.strict, "strict", false, "exit with 3 when a sample is unscored")
	f.BoolVar(&r.dryRun, "dry-run", false, "print counts, tokens and the first rendered prompt, and ask nothing")
	f.BoolVar(&r.resume, "resume", false, "go on with the run in --out")
	_ = f.MarkHidden("resume")
}

// check finds values out of range before anything is read or asked.
func (r *runFlags) check() error {
	if r.maxFailures < 0 {
		return usagef("--max-failures %d; it must not be negative", r.maxFailures)
	}
	var i, n int
	if _, err := fmt.Sscanf(r.shard, "%d/%d", &i, &n); r.shard != "" &&
		(err != nil || i < 1 || i > n || r.shard != fmt.Sprintf("%d/%d", i, n)) {
		return usagef("--shard %q; it must be i/n with 1 <= i <= n, for example 2/4", r.shard)
	}
	return nil
}

// identity collects what could change a number.
func (a *app) identity(ctx context.Context, f *fleet, task string, ds []dialogue.Dialogue, r *runFlags, prompts map[string]string, options map[string]any) (run.Identity, error) {
	id := run.Identity{Task: task, Version: version(), Seed: r.seed, Prompts: prompts, Options: options, Models: map[string]infer.Model{}, NumCtx: map[string]int{},
		DataHash: dialogue.Hash(ds), Shard: r.shard}
	if t := f.flags.chatTemplate; t != "" {
		if path, err := filepath.Abs(t); err == nil && !slices.Contains(llamacpp.TemplateNames(), t) {
			t = path
		}
		options["chat_template"] = t
	}
	for _, role := range f.order() {
		m, err := f.Model(ctx, role)
		if err != nil {
			return id, err
		}
		id.Models[role], id.NumCtx[role] = m, f.numCtx[role]
	}
	seen := map[string]bool{}
	for _, d := range ds {
		if !seen[d.Key()] {
			seen[d.Key()] = true
			id.Items = append(id.Items, d.Key())
		}
	}
	return id, nil
}

// redacted is a command line as it is kept, without secrets.
func redacted(args []string) []string {
	var out []string
	for _, arg := range args {
		out = append(out, infer.Redact(arg))
	}
	return out
}

// openRun makes the run's folder, or opens it again to go on.
func (a *app) openRun(id run.Identity, r *runFlags) (*run.Dir, error) {
	path := r.out
	if path == "" {
		path = filepath.Join("runs", run.NewName(id.Task, modelNames(id), a.now()))
	}
	command := redacted(a.args) // nobody's password stays in a folder
	var seals []run.Sealer
	if key, err := sealKey(); err == nil { // without one the run is as if made elsewhere
		seals = append(seals, key.seal)
	}
	if !r.resume {
		return run.Create(path, id, command, seals...)
	}
	d, warnings, err := run.Resume(path, id, command, seals...)
	for _, w := range warnings {
		a.note("note: %s", w)
	}
	return d, err
}

// execute runs a task into a run folder.
func execute[I any](ctx context.Context, a *app, f *fleet, r *runFlags, id run.Identity, t run.Task[I]) (*run.Dir, run.Summary, error) {
	dir, err := a.openRun(id, r)
	if err != nil {
		return nil, run.Summary{}, err
	}
	sum, err := executeIn(ctx, a, f, r, dir, t)
	return dir, sum, err
}

// executeIn runs a task into an open run folder.
func executeIn[I any](ctx context.Context, a *app, f *fleet, r *runFlags, dir *run.Dir, t run.Task[I]) (run.Summary, error) {
	a.note("run folder: %s", dir.Path())
	again := commandLine([]string{"runs", "resume", dir.Path()})
	defer a.hold(work{again: again})()
	sum, err := run.Execute(ctx, dir, t, run.Options{Workers: f.Workers, Identify: f.Refresh, MaxFailures: r.maxFailures, Progress: a.progress(), Shard: r.shard, Soft: a.soft})
	var failures *run.FailuresError
	var interrupted *run.InterruptedError
	switch {
	case errors.As(err, &failures):
		a.note("what was done is kept; see %s, then go on with: %s", filepath.Join(dir.Path(), "errors.jsonl"), again)
	case err != nil && !errors.As(err, &interrupted): // of that one, explain says how to go on
		a.note("what was done is kept; go on with: %s", again)
	}
	return sum, err
}

// showRun writes what was found in the run at path to standard output.
type showRun func(path string, sections []report.Section) error

// tables is the showRun that prints the sections.
func (a *app) tables(_ string, sections []report.Section) error { return a.print(sections) }

// finish scores a run, writes its metrics and prints them.
func (a *app) finish(ctx context.Context, dir *run.Dir, sum run.Summary, r *runFlags, s scoreFlags, show showRun) error {
	err := a.scoreRun(ctx, dir.Path(), s, func(sections []report.Section) error { return show(dir.Path(), sections) })
	if err != nil {
		return err
	}
	if r.strict && sum.Unscored > 0 {
		return &partialError{fmt.Errorf("%d of %d samples are unscored (--strict)", sum.Unscored, sum.Unscored+sum.Scored)}
	}
	return nil
}

// usageSection says what a run cost.
func usageSection(s run.Summary) report.Section {
	u := s.Usage
	est := ""
	if u.Estimated {
		est = " (estimated from the order of requests)"
	}
	t := report.Table{Columns: []report.Column{{Name: "tokens"}, {Name: "count", Align: report.Right}}}
	row := func(name string, n int) { t.Rows = append(t.Rows, []report.Cell{report.Text(name), report.Int(n)}) }
	row("prompt, as sent", u.Prompt)
	row("prompt, unique within a call", u.Unique)
	row("prompt, evaluated"+est, u.Evaluated)
	row("prompt, from the prefix cache"+est, u.Cached)
	row("prompt, answers from the response cache", u.Replayed)
	row("generated", u.Generated)
	notes := []string{fmt.Sprintf("%d samples scored, %d unscored; %d failed and %d were skipped in the last session; %s",
		s.Scored, s.Unscored, s.Failed, s.Skipped, time.Duration(s.Seconds*float64(time.Second)).Round(100*time.Millisecond))}
	if u.Unique > 0 {
		notes = append(notes, fmt.Sprintf("evaluated / unique = %.3f, as sent / unique = %.2f", float64(u.Evaluated)/float64(u.Unique), float64(u.Prompt)/float64(u.Unique)))
	}
	if s.Seconds > 0 {
		notes = append(notes, fmt.Sprintf("%.0f tokens/s (evaluated and generated)", float64(u.Evaluated+u.Generated)/s.Seconds))
	}
	return report.Section{Title: "Cost", Tables: []report.Table{t}, Notes: notes}
}

// dryRun prints what a run would ask.
func (a *app) dryRun(ctx context.Context, f *fleet, items int, calls map[string][]infer.Prompt, first map[string]infer.Prompt) error {
	t := report.Table{Columns: []report.Column{{Name: "role"}, {Name: "model"}, {Name: "num_ctx", Align: report.Right}, {Name: "requests", Align: report.Right}, {Name: "prompt tokens, naive", Align: report.Right}, {Name: "rendered prompts on disk", Align: report.Right}}}
	sections := []report.Section{{Title: fmt.Sprintf("Dry run: %d dialogues, nothing was asked", items)}}
	for _, role := range slices.Sorted(maps.Keys(calls)) {
		bs, err := f.Workers(ctx, role)
		if err != nil {
			return err
		}
		// Counting every prompt exactly would cost a request each on a server:
		// a sample of them gives the tokens a byte.
		bytes, sampledBytes, sampled := 0, 0, 0
		step := max(1, len(calls[role])/8)
		for i, p := range calls[role] {
			bytes += promptBytes(p)
			if i%step != 0 {
				continue
			}
			n, _, err := countTokens(ctx, bs[0], p)
			if err != nil {
				return err
			}
			sampled += n
			sampledBytes += promptBytes(p)
		}
		tokens := int(float64(bytes) * float64(sampled) / float64(max(1, sampledBytes)))
		t.Rows = append(t.Rows, []report.Cell{report.Text(role), report.Text(f.roles[role].String()), report.Int(f.numCtx[role]), report.Int(len(calls[role])),
			report.Text(fmt.Sprintf("about %d", tokens)), report.Text(fmt.Sprintf("about %.1f MB", float64(bytes)/1e6))})
		rendered, err := bs[0].Render(ctx, first[role])
		if errors.Is(err, infer.ErrUnsupported) {
			b, _ := json.MarshalIndent(first[role], "", "  ")
			rendered = string(b) + "\n(the server does not show how it renders this)"
		} else if err != nil {
			return fmt.Errorf("render the first prompt: %w", err)
		}
		sections = append(sections, report.Section{Title: "First prompt of the " + role + ", longest of its dialogue", Text: rendered})
	}
	sections[0].Tables = []report.Table{t}
	return a.print(sections)
}

// scoreFlags steer the scoring of a run.
type scoreFlags struct {
	data dataFlags
	seed int64
	dry  bool // print only, write nothing
	// reference labels again by the public code's rule.
	reference bool
}

// scoreRun computes and prints the metrics of a run folder, and writes them to
// its metrics.json.
func (a *app) scoreRun(ctx context.Context, path string, s scoreFlags, print func([]report.Section) error) error {
	dir, err := a.reading(path)
	if err != nil {
		return err
	}
	id := dir.Manifest().Identity
	if s.seed == 0 {
		s.seed = id.Seed
	}
	result, sections, err := a.found(ctx, dir, s)
	if err != nil {
		return err
	}
	total, err := totals(dir)
	if err != nil {
		return err
	}
	sections = append(sections, usageSection(total))
	if s.reference {
		s.dry = true // the run's own metrics stay
	}
	if !s.dry {
		hash, err := dir.SamplesHash()
		if err != nil {
			return err
		}
		if err := dir.WriteMetrics(map[string]any{"schema": run.MetricsSchema, "task": id.Task, "samples_sha256": hash, "seed": s.seed, "usage": total, "metrics": result}); err != nil {
			return err
		}
	}
	if err := print(sections); err != nil {
		return err
	}
	if !s.dry {
		a.note("%s", filepath.Join(dir.Path(), "metrics.json"))
	}
	return nil
}

// found computes a run's metrics, as data and as sections.
func (a *app) found(ctx context.Context, dir *run.Dir, s scoreFlags) (any, []report.Section, error) {
	v, sections, err := a.foundBy(ctx, dir, s)
	var form *json.UnmarshalTypeError
	if errors.As(err, &form) {
		err = fmt.Errorf("%s holds a sample that has not the form of its task: %w; ccmed runs verify %s names the line and the field", dir.Path(), err, dir.Path())
	}
	return v, sections, err
}

func (a *app) foundBy(ctx context.Context, dir *run.Dir, s scoreFlags) (any, []report.Section, error) {
	switch task := dir.Manifest().Identity.Task; task {
	case "timing":
		return a.scoreTiming(ctx, dir, s)
	case "mediation":
		return a.scoreMediation(ctx, dir, s)
	case "extract":
		return a.scoreExtraction(ctx, dir)
	default:
		return nil, nil, fmt.Errorf("%s is a %s run; this version scores timing, mediation and extraction", dir.Path(), task)
	}
}

// totals adds up what all sessions of a run cost, from its samples.
func totals(dir *run.Dir) (run.Summary, error) {
	var t run.Summary
	sessions := dir.Manifest().Sessions
	if len(dir.Manifest().Merged) > 0 {
		sessions = sessions[len(sessions)-1:] // it sums up the shards'
	}
	for _, s := range sessions {
		if s.Summary != nil {
			t.Seconds += s.Summary.Seconds
			t.Failed, t.Skipped = s.Summary.Failed, s.Summary.Skipped
		}
	}
	for s, err := range dir.All() {
		if err != nil {
			return t, err
		}
		t.Usage = t.Usage.Add(s.Usage)
		if s.Unscored == "" {
			t.Scored++
		} else {
			t.Unscored++
		}
	}
	return t, nil
}

// readJSON reads a file of a folder that the program made.
func readJSON(path string, v any) error {
	b, err := disk.ReadEntry(path, disk.MaxText)
	if err != nil {
		return fmt.Errorf("read %s: %w", path, err)
	}
	if err := strictjson.Unmarshal(b, v); err != nil {
		return fmt.Errorf("%s is not the JSON that is expected here: %w", path, err)
	}
	return nil
}
