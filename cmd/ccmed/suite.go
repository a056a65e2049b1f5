package main

import (
	"context"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/gofrs/flock"
	"github.com/spf13/cobra"

	"github.com/ccmed/ccmed/bench/disk"
	"github.com/ccmed/ccmed/bench/folder"
	"github.com/ccmed/ccmed/bench/report"
	"github.com/ccmed/ccmed/bench/run"
	"github.com/ccmed/ccmed/bench/suite"
	"github.com/ccmed/ccmed/cmd/ccmed/internal/cli"
	"github.com/ccmed/ccmed/infer"
)

//go:embed suites/*.yaml
var suites embed.FS

// Files in a suite's folder, beside the run folders of its steps.
const (
	suiteLock = "suite.lock"
	textFile  = ".txt" // after a step's name: what it printed
)

func (a *app) suiteCmd() *cobra.Command {
	cmd := &cobra.Command{Use: "suite", Short: "Run several commands that belong together, resumable"}
	var out, speed string
	var set []string
	var dry bool
	runCmd := &cobra.Command{
		Use:   "run FILE|NAME",
		Short: "Run the steps of a suite",
		Long: `run goes through the steps of a suite: a YAML file, or one of the embedded ones.
Each step is a command of this program; one that makes a run has its folder in
--out. Run it again to go on: steps that are done are skipped, one that was begun is
resumed. A step that fails keeps those from running that need it, and no others.
What a step prints is shown, and kept as STEP.txt; with --quiet or --json it is kept
only.

A suite has variables (suite show NAME lists them), each set by --set, and steps:

  about: two models, asked when to step in
  vars:
    models: [gemma2:9b, phi3.5]   # a list: --set models=a,b
    data:                         # no default: it must be set
  steps:
    - name: timing
      matrix: {model: "${models}"}
      command: [timing, --model, "${model}", --data, "${data}"]
    - name: compare
      command: [compare, "${step:timing}"]

${step:NAME} is the run folder of another step, ${out} the suite's. A step with a
matrix is one step for every combination of its values.`,
		Example: `  ccmed suite run sft --out runs/sft --set base=smollm2 --set tuned=smollm2-tuned --set package=tuned/ --set data=CC-Mediation/data
  ccmed suite run night.yaml --out runs/night --dry-run`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			vars, err := parseSet(set)
			if err != nil {
				return err
			}
			if dry {
				return a.planSuite(cmd.Context(), args[0], vars, out, speed)
			}
			return a.runSuite(cmd.Context(), args[0], vars, out)
		},
	}
	f := runCmd.Flags()
	f.StringVar(&out, "out", "", "folder of the suite: of its runs, and of what its steps print")
	f.StringArrayVar(&set, "set", nil, "value of a variable, as NAME=VALUE; repeat it for more")
	f.BoolVar(&dry, "dry-run", false, "print the commands and what they would ask, and run none")
	f.StringVar(&speed, "speed", "", "of the models, for hours in a dry run: tokens read and written in a second, as in 2000,50")
	cmd.AddCommand(runCmd, &cobra.Command{
		Use: "ls", Short: "List the embedded suites", Args: cobra.NoArgs, Example: "  ccmed suite ls",
		RunE: func(*cobra.Command, []string) error { return a.listSuites() },
	}, &cobra.Command{
		Use: "show NAME", Short: "Print an embedded suite, to start your own from", Args: cobra.ExactArgs(1), Example: "  ccmed suite show sft",
		RunE: func(_ *cobra.Command, args []string) error {
			_, source, err := readSuite(args[0])
			if err != nil {
				return err
			}
			_, err = a.exact().Write(source)
			return err
		},
	})
	return cmd
}

func parseSet(set []string) (map[string]string, error) {
	vars := map[string]string{}
	for _, s := range set {
		key, value, ok := strings.Cut(s, "=")
		if !ok || key == "" {
			return nil, usagef("--set %q is not NAME=VALUE", s)
		}
		if _, twice := vars[key]; twice {
			return nil, usagef("--set gives %s twice", key)
		}
		vars[key] = value
	}
	return vars, nil
}

func embeddedSuites() []string {
	entries, err := suites.ReadDir("suites")
	if err != nil {
		return nil // the folder is embedded above
	}
	var names []string
	for _, e := range entries {
		names = append(names, strings.TrimSuffix(e.Name(), ".yaml"))
	}
	return names
}

// readSuite reads an embedded suite or, where the name looks like a file or is
// one, that file.
func readSuite(name string) (*suite.Suite, []byte, error) {
	source, err := suites.ReadFile("suites/" + name + ".yaml")
	file := name + ".yaml"
	if err != nil {
		file = name
		source, err = disk.ReadFile(name, cli.MaxYAML)
		if errors.Is(err, fs.ErrNotExist) {
			return nil, nil, usagef("there is no suite file %s, and no embedded suite of that name; embedded are %s", name, strings.Join(embeddedSuites(), ", "))
		}
		if err != nil {
			return nil, nil, fmt.Errorf("read the suite: %w", err)
		}
	}
	s, err := suite.Parse(file, source)
	if err != nil {
		return nil, nil, &usageError{Err: err}
	}
	return s, source, nil
}

func (a *app) listSuites() error {
	t := report.Table{Columns: report.Columns("suite", "about", "to be set")}
	for _, name := range embeddedSuites() {
		s, _, err := readSuite(name)
		if err != nil {
			return err
		}
		var vars []string
		for _, v := range s.Vars {
			if v.Required {
				vars = append(vars, v.Name)
			}
		}
		t.Add(name, s.About, strings.Join(vars, ", "))
	}
	return a.print([]report.Section{{Title: "Embedded suites", Tables: []report.Table{t}}})
}

// suiteStep is a planned step and the command it calls.
type suiteStep struct {
	suite.Step
	position string
	makesRun bool // the command makes a run, in the folder that --out names
}

// loadSuite plans a suite and checks every command line before any is run. The
// folder is made absolute: runs remember it.
func (a *app) loadSuite(name string, vars map[string]string, out string) ([]suiteStep, string, error) {
	if out == "" {
		return nil, "", usagef("no --out folder given")
	}
	out, err := filepath.Abs(out)
	if err != nil {
		return nil, "", fmt.Errorf("find the folder %s: %w", out, err)
	}
	s, _, err := readSuite(name)
	if err != nil {
		return nil, "", err
	}
	planned, err := s.Plan(out, vars)
	var missing *suite.MissingError
	if errors.As(err, &missing) {
		err = fmt.Errorf("%w, as in --set %s=VALUE", err, missing.Names[0])
	}
	if err != nil {
		return nil, "", &usageError{Err: err}
	}
	steps := make([]suiteStep, len(planned))
	makesRun := map[string]bool{}
	for i, p := range planned {
		steps[i].Step = p
		if steps[i].makesRun, err = a.checkStep(p); err != nil {
			return nil, "", usagef("%s: step %s: %w", p.Where, p.Name, err)
		}
		makesRun[p.Name] = steps[i].makesRun
	}
	for _, p := range planned {
		for _, u := range p.Uses {
			if !makesRun[u] {
				return nil, "", usagef("%s: step %s names the folder of %s, which makes none; name it under needs", p.Where, p.Name, u)
			}
		}
	}
	return steps, out, nil
}

// checkStep tells whether a step's command is one of this program with flags and
// arguments that it takes, and whether it makes a run.
func (a *app) checkStep(s suite.Step) (makesRun bool, err error) {
	root := (&app{stdout: io.Discard, stderr: io.Discard, getenv: func(string) string { return "" }, benches: a.benches}).root()
	cmd, rest, err := root.Find(s.Command)
	switch {
	case err != nil || cmd == root || cmd.HasSubCommands():
		return false, fmt.Errorf("ccmed has no command %q", strings.Join(s.Command, " "))
	case cmd.Parent().Name() == "suite" || cmd.CommandPath() == "ccmed sft bench":
		return false, errors.New("a step cannot run a suite")
	}
	if err := cmd.ParseFlags(rest); err != nil {
		return false, err
	}
	if err := cmd.ValidateArgs(cmd.Flags().Args()); err != nil {
		return false, err
	}
	makesRun = cmd.Flags().Lookup("shard") != nil // the flags of runs, see runFlags
	if makesRun && cmd.Flags().Changed("out") {
		return false, errors.New("the suite gives the run its --out; leave it out")
	}
	return makesRun, nil
}

// args are the step's command line with its folder.
func (s suiteStep) args() []string {
	if !s.makesRun {
		return s.Command
	}
	return append(slices.Clone(s.Command), "--out", s.Folder)
}

// outcome is what became of a step.
type outcome struct {
	status string
	took   time.Duration
	detail string
	failed bool // it failed, or what it needs did
}

// runSuite runs the steps of an embedded suite, or of a suite file, in out, and
// goes on where an earlier call stopped.
func (a *app) runSuite(ctx context.Context, name string, vars map[string]string, out string) error {
	steps, out, err := a.loadSuite(name, vars, out)
	if err != nil {
		return err
	}
	unlock, err := claimSuite(out)
	if err != nil {
		return err
	}
	defer unlock()
	again := cli.CommandLine(a.args)
	defer a.hold(cli.Work{Again: again})()
	if err := recordSuite(out, name, vars, steps); err != nil {
		return err
	}
	outcomes := make([]outcome, len(steps))
	broken := map[string]bool{}
	interrupted, failed, left := false, 0, 0
	for i, s := range steps {
		o := &outcomes[i]
		if interrupted = interrupted || a.stopped(ctx); interrupted {
			o.status = "not begun"
			continue
		}
		if n := slices.IndexFunc(s.Needs, func(n string) bool { return broken[n] }); n >= 0 {
			*o = outcome{status: "not run", detail: s.Needs[n] + " failed or was not run", failed: true}
			broken[s.Name] = true
			left++
			continue
		}
		s.position = fmt.Sprintf("step %d of %d", i+1, len(steps))
		start := a.now()
		*o, err = a.runStep(ctx, s)
		o.took = a.now().Sub(start)
		switch {
		case err != nil && a.stopped(ctx):
			o.status, interrupted = "interrupted", true
		case err != nil:
			*o = outcome{status: "failed", took: o.took, detail: err.Error(), failed: true}
			fmt.Fprintf(a.stderr, "ccmed: step %s: %v\n", s.Name, err)
			broken[s.Name] = true
			failed++
		}
	}
	if err := a.print([]report.Section{suiteSection(name, out, steps, outcomes)}); err != nil {
		return err
	}
	switch {
	case interrupted:
		fmt.Fprintf(a.stderr, "go on with: %s\n", again)
		return context.Canceled
	case failed > 0:
		return fmt.Errorf("%d of %d steps failed and %d were not run; mend what they say, then go on with: %s", failed, len(steps), left, again)
	}
	return nil
}

// stopped tells whether the user asked to stop.
func (a *app) stopped(ctx context.Context) bool {
	select {
	case <-a.soft:
		return true
	case <-ctx.Done():
		return true
	default:
		return false
	}
}

// claimSuite makes the suite's folder this process' own until unlock. A folder that
// holds anything else is refused.
func claimSuite(out string) (unlock func(), err error) {
	if err := os.MkdirAll(out, 0o755); err != nil {
		return nil, fmt.Errorf("make the suite's folder: %w; choose another with --out", err)
	}
	entries, err := os.ReadDir(out)
	if err != nil {
		return nil, fmt.Errorf("look into the suite's folder: %w", err)
	}
	other := ""
	for _, e := range entries {
		if e.Name() == folder.SuiteFile {
			other = ""
			break
		}
		if e.Name() != suiteLock {
			other = e.Name()
		}
	}
	if other != "" {
		return nil, fmt.Errorf("%s is not empty and not a suite's (it holds %s); choose another folder with --out", out, other)
	}
	l := flock.New(filepath.Join(out, suiteLock))
	got, err := l.TryLock()
	if err != nil {
		return nil, fmt.Errorf("lock the suite's folder: %w", err)
	}
	if !got {
		return nil, fmt.Errorf("another process runs a suite in %s; wait for it, or choose another folder with --out", out)
	}
	return func() { _ = l.Unlock() }, nil // the process' end frees it in any case
}

// recordSuite keeps what was asked beside what it led to.
func recordSuite(out, name string, vars map[string]string, steps []suiteStep) error {
	type record struct {
		Name    string   `json:"name"`
		Needs   []string `json:"needs,omitempty"`
		Command []string `json:"command"`
	}
	var rs []record
	for _, s := range steps {
		rs = append(rs, record{s.Name, s.Needs, cli.Redacted(s.args())})
	}
	set := maps.Clone(vars)
	for name, v := range set {
		set[name] = infer.Redact(v)
	}
	return writeSuiteJSON(filepath.Join(out, folder.SuiteFile), map[string]any{"suite": name, "version": version(), "set": set, "steps": rs})
}

func writeSuiteJSON(path string, v any) error {
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return fmt.Errorf("encode %s: %w", path, err)
	}
	if err := disk.WriteEntry(path, append(b, '\n'), 0o644); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}

// doneMark is the file that says that a step without a run folder is done.
type doneMark struct {
	Command  []string  `json:"command"`
	Finished time.Time `json:"finished"`
}

// runStep does a step, as far as it is not done.
func (a *app) runStep(ctx context.Context, s suiteStep) (outcome, error) {
	if !s.makesRun {
		return a.runPlainStep(ctx, s)
	}
	d, err := run.Open(s.Folder)
	if errors.Is(err, fs.ErrNotExist) {
		return outcome{status: "done", detail: s.Folder}, a.call(ctx, s, s.args())
	}
	if err != nil {
		return outcome{}, err
	}
	m := d.Manifest()
	if len(m.Sessions) > 0 && !startsWith(m.Sessions[0].Command, cli.Redacted(s.args())) {
		return outcome{}, fmt.Errorf("%s was made by another command (%s); run the suite as it was, or choose another folder with --out", s.Folder, cli.CommandLine(m.Sessions[0].Command))
	}
	if m.Status != run.StatusDone {
		// By the suite's own command: nothing that the folder holds decides what is run.
		return outcome{status: "done, resumed", detail: s.Folder}, a.call(ctx, s, append(s.args(), "--resume"))
	}
	if _, err := os.Stat(filepath.Join(s.Folder, run.MetricsFile)); errors.Is(err, fs.ErrNotExist) {
		// It was stopped between its last sample and its metrics.
		return outcome{status: "done, scored", detail: s.Folder}, a.call(ctx, s, []string{"score", s.Folder})
	}
	return outcome{status: "done before", detail: s.Folder}, nil
}

// runPlainStep does a step whose command makes no run: a mark says that it is done.
func (a *app) runPlainStep(ctx context.Context, s suiteStep) (outcome, error) {
	mark, text := s.Folder+folder.DoneEnding, s.Folder+textFile
	var done doneMark
	b, err := os.ReadFile(mark)
	switch {
	case err == nil:
		if err := json.Unmarshal(b, &done); err != nil {
			return outcome{}, fmt.Errorf("%s is damaged: %w; remove it to do the step again", mark, err)
		}
		if !slices.Equal(done.Command, cli.Redacted(s.Command)) {
			return outcome{}, fmt.Errorf("%s was made by another command (%s); run the suite as it was, or choose another folder with --out", mark, cli.CommandLine(done.Command))
		}
		return outcome{status: "done before", detail: text}, nil
	case !errors.Is(err, fs.ErrNotExist):
		return outcome{}, fmt.Errorf("read %s: %w", mark, err)
	}
	if err := a.call(ctx, s, s.Command); err != nil {
		return outcome{}, err
	}
	return outcome{status: "done", detail: text}, writeSuiteJSON(mark, doneMark{cli.Redacted(s.Command), a.now().UTC().Truncate(time.Second)})
}

// call runs a command line in this process, as the user would have given it. What
// it prints is kept beside the step's folder, and shown unless the suite itself
// prints JSON.
func (a *app) call(ctx context.Context, s suiteStep, args []string) (err error) {
	a.note("%s, %s: %s", s.position, s.Name, cli.CommandLine(args))
	file, err := disk.OpenFile(s.Folder+textFile, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("keep what the step prints: %w", err)
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	inner := *a
	inner.stdout = io.MultiWriter(file, a.stdout)
	if a.json || a.quiet {
		inner.stdout = file
	}
	inner.args, inner.settingsNamed = slices.Clone(args), true
	// A new root sets common flags back; they count for the steps too.
	common := []string{fmt.Sprintf("--quiet=%t", a.quiet), fmt.Sprintf("--no-color=%t", a.noColor)}
	if a.configFile != "" {
		common = append(common, "--config", a.configFile)
	}
	root := inner.root()
	root.SetArgs(append(slices.Clone(args), common...))
	root.SetIn(strings.NewReader(""))
	root.SetOut(inner.stdout)
	root.SetErr(a.stderr)
	if err := root.ExecuteContext(ctx); err != nil {
		return err
	}
	if inner.stdout != io.Writer(file) {
		_, err = fmt.Fprintln(a.stdout) // apart from the next step's
	}
	return err
}

// suiteSection says what became of every step.
func suiteSection(name, out string, steps []suiteStep, outcomes []outcome) report.Section {
	t := report.Table{Columns: report.Columns("step", "status", "time>", "result")}
	done := 0
	for i, o := range outcomes {
		took := ""
		if o.took > 0 {
			took = o.took.Round(time.Second).String()
		}
		if strings.HasPrefix(o.status, "done") {
			done++
		}
		if rel, err := filepath.Rel(out, o.detail); err == nil && strings.HasPrefix(o.detail, out) {
			o.detail = rel
		}
		t.Add(steps[i].Name, o.status, took, o.detail)
	}
	return report.Section{Title: fmt.Sprintf("Suite %s: %d of %d steps done", name, done, len(steps)), Tables: []report.Table{t},
		Notes: []string{"results are in " + out}}
}

func startsWith(list, head []string) bool {
	return len(list) >= len(head) && slices.Equal(list[:len(head)], head)
}
