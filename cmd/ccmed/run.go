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

	"github.com/ccmed/ccmed/bench/prompt"
	"github.com/ccmed/ccmed/bench/report"
	"github.com/ccmed/ccmed/bench/run"
	"github.com/ccmed/ccmed/bench/task"
	"github.com/ccmed/ccmed/cmd/ccmed/internal/cli"
	"github.com/ccmed/ccmed/infer"
	"github.com/ccmed/ccmed/infer/fleet"
	"github.com/ccmed/ccmed/infer/llamacpp"
	"github.com/ccmed/ccmed/probe"
	"github.com/ccmed/ccmed/probe/direction"
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

// job is one call of a benchmark's command.
type job struct {
	bench  task.Bench
	call   task.Call
	models fleet.Flags
	run    runFlags
}

// fleetEnv is what models take of the program; subject is the role whose model is measured.
func (a *app) fleetEnv(subject string) fleet.Env {
	return fleet.Env{Note: a.note, Getenv: a.getenv, Readout: openLabeller, Subject: subject, Edits: readEdits}
}

// readEdits reads an edit file that probe direction made.
func readEdits(path, class string, dose float64) (*fleet.Edits, error) {
	f, err := direction.Load(path)
	if err != nil {
		return nil, err
	}
	edits, err := f.Edits(class, dose)
	return &fleet.Edits{Model: f.Model.Name, Weights: f.Model.Digest, Edits: edits}, err
}

// openLabeller opens a labeller that probe train fitted: a store of questions, or its file.
func openLabeller(path string) (*fleet.Readout, error) {
	l, err := probe.LoadLabeller(path)
	if err != nil {
		return nil, err
	}
	return &fleet.Readout{Model: l.Named, Weights: l.Model.Digest, Digest: l.Digest, Layer: l.Layer, Answers: l.Answers(), Predict: l.Predict}, nil
}

// env is what the job's plan is made from. The fleet is opened when the plan or, later, the
// run needs it.
func (a *app) env(j *job, set *prompt.Set) (env task.Env, opened func() *fleet.Fleet) {
	var f *fleet.Fleet
	env = task.Env{Archive: a.opened(), Seed: j.run.seed, Prompts: set, Model: j.models.Model, NumCtx: j.models.NumCtx, ChatTemplate: j.models.ChatTemplate,
		Edits: j.models.Edits}
	env.Models = func() (task.Models, error) {
		roles, err := j.call.Roles(env)
		if err != nil {
			return nil, err
		}
		f, err = fleet.New(a.fleetEnv(j.bench.About().Subject), &j.models, roles)
		return f, err
	}
	return env, func() *fleet.Fleet { return f }
}

// plan plans a job and opens the fleet of the roles that it asks, with contexts that fit.
// The caller closes the fleet.
func (a *app) plan(ctx context.Context, j *job) (p task.Plan, f *fleet.Fleet, err error) {
	if err := j.run.check(); err != nil {
		return p, nil, err
	}
	if j.bench.About().States {
		if b := j.models.Backend; b != "" && b != "embedded" {
			return p, nil, usagef("hidden states come from the embedded engine; leave --backend out (a name of Ollama's opens the weights that Ollama serves)")
		}
		j.models.Backend, j.models.Cache = "embedded", "off"
	}
	set, err := prompt.Load(j.run.prompts)
	if err != nil {
		return p, nil, err
	}
	env, opened := a.env(j, set)
	defer func() {
		if f = opened(); err != nil && f != nil {
			err = errors.Join(err, f.Close())
		}
	}()
	if p, err = j.call.Plan(ctx, env); err != nil {
		return p, nil, err
	}
	if opened() == nil {
		if _, err := env.Models(); err != nil {
			return p, nil, err
		}
	}
	opened().SetPaths(p.Paths)
	return p, nil, opened().Prepare(ctx, p.Roles, p.Longest, p.Answer)
}

// do runs a job into its run folder, scores the run and shows it.
func (a *app) do(ctx context.Context, j *job, show showRun) error {
	p, f, err := a.plan(ctx, j)
	if err != nil {
		return err
	}
	defer f.Close()
	if j.run.dryRun {
		preview, err := p.Preview(ctx)
		if err != nil {
			return err
		}
		return a.dryRun(ctx, f, j.bench.About().Item, p, preview)
	}
	if p.Ready != nil {
		if err := p.Ready(ctx); err != nil {
			return err
		}
	}
	id, err := a.identity(ctx, f, j, p)
	if err != nil {
		return err
	}
	if p.Check != nil {
		if err := p.Check(id); err != nil {
			return err
		}
	}
	dir, sum, err := a.execute(ctx, f, &j.run, id, p)
	if err != nil {
		return err
	}
	return a.finish(ctx, dir.Path(), sum, j, show)
}

// identity collects what could change a number.
func (a *app) identity(ctx context.Context, f *fleet.Fleet, j *job, p task.Plan) (run.Identity, error) {
	id := run.Identity{Task: j.bench.About().Task, Version: version(), Seed: j.run.seed, Prompts: p.Templates, Models: map[string]infer.Model{}, NumCtx: map[string]int{},
		DataHash: p.DataHash, Items: p.Items, Others: p.Others, Shard: j.run.shard, Parent: p.Parent}
	b, err := json.Marshal(p.Settings)
	if err == nil {
		err = json.Unmarshal(b, &id.Options)
	}
	if err != nil {
		return id, fmt.Errorf("encode the options of the run: %w", err)
	}
	if t := j.models.ChatTemplate; t != "" {
		if path, err := filepath.Abs(t); err == nil && !slices.Contains(llamacpp.TemplateNames(), t) {
			t = path
		}
		id.Options["chat_template"] = t
	}
	for _, role := range f.Order() {
		m, err := f.Model(ctx, role)
		if err != nil {
			return id, err
		}
		if name := p.Names[role]; name != "" {
			m.Name = name
		}
		id.Models[role], id.NumCtx[role] = m, f.NumCtx(role)
	}
	return id, nil
}

// openRun makes the run's folder, or opens it again to go on.
func (a *app) openRun(id run.Identity, r *runFlags) (*run.Dir, error) {
	path := r.out
	if path == "" {
		path = filepath.Join("runs", run.NewName(id.Task, id.ModelNames(), a.now()))
	}
	command := cli.Redacted(a.args) // nobody's password stays in a folder
	var seals []run.Sealer
	if key, err := cli.SealKey(); err == nil { // without one the run is as if made elsewhere
		seals = append(seals, key.Seal)
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

// execute runs a plan into its run folder.
func (a *app) execute(ctx context.Context, f *fleet.Fleet, r *runFlags, id run.Identity, p task.Plan) (dir *run.Dir, sum run.Summary, err error) {
	if dir, err = a.openRun(id, r); err != nil {
		return nil, sum, err
	}
	if p.Open != nil {
		done, err := p.Open(ctx, dir)
		if err != nil {
			return dir, sum, errors.Join(err, dir.Close(run.StatusFailed))
		}
		sum, err = a.executeIn(ctx, f, r, dir, p.Task)
		return dir, sum, errors.Join(err, done())
	}
	sum, err = a.executeIn(ctx, f, r, dir, p.Task)
	return dir, sum, err
}

// executeIn runs a task into an open run folder.
func (a *app) executeIn(ctx context.Context, f *fleet.Fleet, r *runFlags, dir *run.Dir, t task.Executor) (run.Summary, error) {
	a.note("run folder: %s", dir.Path())
	again := cli.CommandLine([]string{"runs", "resume", dir.Path()})
	defer a.hold(cli.Work{Again: again})()
	sum, err := t.Execute(ctx, dir, run.Options{Workers: f.Workers, Together: f.Together, Identify: f.Refresh, MaxFailures: r.maxFailures, Progress: a.progress(), Shard: r.shard, Soft: a.soft})
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
func (a *app) tables(path string, sections []report.Section) error {
	if err := a.print(sections); err != nil {
		return err
	}
	a.note("next: %s", cli.CommandLine([]string{"report", path}))
	return nil
}

// finish scores a run that was made, writes its metrics and shows them.
func (a *app) finish(ctx context.Context, path string, sum run.Summary, j *job, show showRun) error {
	a.opened().Forget(path)
	if err := a.scoreRun(ctx, path, task.ScoreOptions{Seed: j.run.seed}, func(sections []report.Section) error { return show(path, sections) }); err != nil {
		return err
	}
	if j.run.strict && sum.Unscored > 0 {
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
	t := report.Table{Columns: report.Columns("tokens", "count>")}
	row := func(name string, n int) { t.Add(name, n) }
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
func (a *app) dryRun(ctx context.Context, f *fleet.Fleet, item string, plan task.Plan, preview task.Preview) error {
	calls, first := preview.Calls, preview.First
	t := report.Table{Columns: report.Columns("role", "model", "num_ctx>", "requests>", "prompt tokens, naive>",
		"evaluated>", "generated, at most>", "rendered on disk>")}
	sections := []report.Section{{Title: fmt.Sprintf("Dry run: %d %ss, nothing was asked", plan.Size, item)}}
	for _, role := range slices.Sorted(maps.Keys(calls)) {
		size, err := f.Estimate(ctx, role, calls[role])
		if err != nil {
			return err
		}
		if a.cost != nil {
			a.cost.add(cost{len(calls[role]), size.Tokens, size.Evaluated, len(calls[role]) * plan.Answer[role], 0})
			continue
		}
		t.Add(role, f.Spec(role), f.NumCtx(role), len(calls[role]), fmt.Sprintf("about %d", size.Tokens),
			fmt.Sprintf("about %d", size.Evaluated), len(calls[role])*plan.Answer[role], fmt.Sprintf("about %.1f MB", float64(size.Bytes)/1e6))
		bs, err := f.Workers(ctx, role)
		if err != nil {
			return err
		}
		rendered, err := bs[0].Render(ctx, first[role])
		if errors.Is(err, infer.ErrUnsupported) {
			b, _ := json.MarshalIndent(first[role], "", "  ")
			rendered = string(b) + "\n(the server does not show how it renders this)"
		} else if err != nil {
			return fmt.Errorf("render the first prompt: %w", err)
		}
		sections = append(sections, report.Section{Title: "First prompt of the " + role + ", longest of its dialogue", Text: rendered})
	}
	if a.cost != nil {
		a.cost.bytes += preview.Bytes
		return nil
	}
	sections[0].Tables = []report.Table{t}
	sections[0].Notes = []string{"evaluated: by a server with one slot, which keeps the prompt before"}
	return a.print(sections)
}

// scoreRun computes and prints the metrics of a run folder, and writes them to its
// metrics.json, unless another rule than the run's own was asked for.
func (a *app) scoreRun(ctx context.Context, path string, o task.ScoreOptions, print func([]report.Section) error) error {
	r, err := a.opened().Open(path)
	if err != nil {
		return err
	}
	o.Anew = true
	res, sections, err := a.resultOf(ctx, r, o)
	if err != nil {
		return err
	}
	if o.Rule == "" {
		m, err := r.Metrics(res, o.Seed)
		if err != nil {
			return err
		}
		if err := r.WriteMetrics(m); err != nil {
			return err
		}
	}
	if err := print(sections); err != nil {
		return err
	}
	if o.Rule == "" {
		a.note("%s", filepath.Join(r.Path(), run.MetricsFile))
	}
	return nil
}

// resultOf returns a run's result with its sections, what it cost among them.
func (a *app) resultOf(ctx context.Context, r *task.Run, o task.ScoreOptions) (task.Result, []report.Section, error) {
	res, err := r.Result(ctx, o)
	var form *json.UnmarshalTypeError
	if errors.As(err, &form) {
		if changed := r.Check(run.SamplesFile); changed != nil { // which explains the form
			return nil, nil, changed
		}
		err = fmt.Errorf("%s holds a sample that has not the form of its task: %w; ccmed runs verify %s names the line and the field", r.Path(), err, r.Path())
	}
	if err != nil {
		return nil, nil, err
	}
	sections, err := res.Sections(ctx)
	if err != nil {
		return nil, nil, err
	}
	total, err := r.Totals()
	if err != nil {
		return nil, nil, err
	}
	return res, append(sections, usageSection(total)), nil
}
