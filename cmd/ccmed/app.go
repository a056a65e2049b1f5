package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/mattn/go-isatty"
	"github.com/spf13/cobra"

	"github.com/ccmed/ccmed/bench/disk"
	"github.com/ccmed/ccmed/bench/report"
	"github.com/ccmed/ccmed/bench/run"
	"github.com/ccmed/ccmed/bench/task"
	"github.com/ccmed/ccmed/bench/visible"
	"github.com/ccmed/ccmed/cmd/ccmed/internal/cli"
	"github.com/ccmed/ccmed/infer"
	"github.com/ccmed/ccmed/sft"
)

// app is the one place that touches the process: streams, environment, clock.
type app struct {
	stdin          io.Reader
	stdout, stderr io.Writer
	getenv         func(string) string
	now            func() time.Time
	exit           func(code int) // ends the process; nil where a test is the process

	soft       <-chan struct{} // closed by the first interrupt
	interrupts *cli.Interrupts // nil where none are listened to
	args       []string        // as given, for the manifest and the resume command
	benches    task.Registry
	archive    *task.Archive // of this command
	cost       *cost         // adds up what a dry run would ask, which then prints nothing; nil prints

	noSettings    bool // a settings file in the working folder is left alone
	settingsNamed bool // what it sets was named already

	quiet, noColor, json bool
	configFile           string
}

// standardOutput remembers the first write that failed, for a command whose results went
// nowhere is not done, whether or not it looked.
type standardOutput struct {
	io.Writer
	failed error
}

func (o *standardOutput) Write(p []byte) (int, error) {
	n, err := o.Writer.Write(p)
	if err != nil && o.failed == nil {
		o.failed = &outputError{err}
	}
	return n, err
}

// main runs one command line and returns its exit code.
func (a *app) main(args []string) int {
	out := &standardOutput{Writer: a.stdout}
	a.stdout = out
	a.stderr = visible.Writer(a.stderr) // servers, models and foreign files have a say in it
	a.interrupts = &cli.Interrupts{Say: func() { a.note("stopping: what is in hand has a moment; what was answered is kept") }, Leave: a.leave}
	ctx, soft, stop := a.interrupts.Listen(context.Background())
	defer stop()
	a.soft, a.args = soft, args
	root := a.root()
	root.SetArgs(args)
	root.SetIn(a.stdin)
	root.SetOut(a.stdout)
	root.SetErr(a.stderr)
	cmd, err := root.ExecuteContextC(ctx)
	if code := exitCode(err); out.failed != nil && (code == exitDone || code == exitErrors) {
		err = out.failed
	}
	if err != nil {
		a.explain(cmd, err)
	}
	return exitCode(err)
}

// hold announces work that listens to soft, until release is called.
func (a *app) hold(w cli.Work) (release func()) {
	if a.interrupts == nil {
		return func() {}
	}
	return a.interrupts.Begin(w)
}

// leave ends the process after an interrupt that a command does not heed, such as
// one that computes.
func (a *app) leave(again string) {
	if a.exit == nil {
		return
	}
	if again != "" {
		fmt.Fprintf(a.stderr, "interrupted; go on with: %s\n", again)
	} else {
		fmt.Fprintln(a.stderr, "interrupted")
	}
	disk.RemovePending()
	a.exit(exitInterrupted)
}

// explain prints an error in one sentence, and after a usage error how to go on.
func (a *app) explain(cmd *cobra.Command, err error) {
	var interrupted *run.InterruptedError
	if errors.As(err, &interrupted) {
		fmt.Fprintf(a.stderr, "interrupted; go on with: %s\n", cli.CommandLine([]string{"runs", "resume", interrupted.Path}))
		return
	}
	var training *sft.InterruptedError
	if errors.As(err, &training) {
		fmt.Fprintf(a.stderr, "interrupted; go on with: %s\n", cli.CommandLine([]string{"sft", "train", "--out", training.Dir, "--resume"}))
		return
	}
	if errors.Is(err, context.Canceled) {
		fmt.Fprintln(a.stderr, "interrupted")
		return
	}
	fmt.Fprintf(a.stderr, "ccmed: %s\n", infer.Redact(err.Error()))
	var usage *usageError
	if errors.As(err, &usage) && cmd != nil {
		fmt.Fprintf(a.stderr, "Try: %s --help\n", cmd.CommandPath())
	}
}

func (a *app) root() *cobra.Command {
	if a.benches == nil {
		a.benches = benches
	}
	root := &cobra.Command{
		Use:   "ccmed",
		Short: "When and how well local language models mediate cross-cultural conflict",
		Long: `ccmed runs open models on this machine and measures when they step into a
cross-cultural conflict (timing), how well they mediate it (mediate), and scores
dialogues made elsewhere (score). No API key, no network.

Start with: ccmed doctor`,
		Args:          cobra.ArbitraryArgs, // an unknown command is refused by WrapArgs, as a usage error
		SilenceErrors: true,
		SilenceUsage:  true,
		Version:       version(),
	}
	root.SetVersionTemplate("ccmed {{.Version}}\n")
	root.SetFlagErrorFunc(cli.FlagError)
	f := root.PersistentFlags()
	f.BoolVar(&a.quiet, "quiet", false, "no progress on standard error")
	f.BoolVar(&a.noColor, "no-color", false, "no colour, even on a terminal")
	f.BoolVar(&a.json, "json", false, "print results as JSON")
	f.StringVar(&a.configFile, "config", "", "settings file (default ccmed.yaml in the working folder, when there)")
	root.PersistentPreRunE = func(cmd *cobra.Command, _ []string) error { return a.configure(cmd) }
	root.AddCommand(a.doctorCmd(), a.engineCmd(), a.dataCmd(), a.buildCmd(), a.labelCmd(), a.scoreCmd(),
		a.metricsCmd(), a.suiteCmd(), a.socratesCmd(), a.ccbenchCmd(), a.probeCmd(), a.sftCmd(), a.runsCmd(), a.compareCmd(), a.claimsCmd(), a.reportCmd(), a.docsCmd(), a.engineCheckCmd())
	a.addBenches(root)
	root.AddCommand(topics(a.benches)...)
	root.SetUsageTemplate(strings.NewReplacer(".FlagUsages", ".FlagUsagesWrapped "+strconv.Itoa(cli.HelpWidth), // and three words must leave room for a command
		" for more information about a command", " for more").Replace(root.UsageTemplate()))
	root.InitDefaultHelpCmd()
	groupCommands(root)
	cli.FitHelp(root)
	cli.WrapArgs(root)
	a.complete(root)
	return root
}

// configure fills the flags that were not given from the environment and from settings, and
// names what a settings file that was merely found has set: not even its own quiet: true
// hides it.
func (a *app) configure(cmd *cobra.Command) error {
	wasQuiet := cmd.Flags().Changed("quiet") || a.getenv(cli.EnvironmentName("quiet")) != ""
	given, discovered, err := cli.Settings{File: a.configFile, Ignore: a.noSettings, Getenv: a.getenv}.Apply(cmd)
	if err != nil {
		return err
	}
	a.args = append(slices.Clip(a.args), given...)
	if len(discovered) > 0 && !a.settingsNamed && !(wasQuiet && a.quiet) {
		fmt.Fprintf(a.stderr, "settings from %s in this folder: %s\n", cli.SettingsName, strings.Join(discovered, " "))
	}
	return nil
}

// groups are the purposes of commands, in the order of a study. A benchmark's command that
// is none of these measures.
var groups = []struct{ id, title, commands string }{
	{"prepare", "Prepare:", "doctor engine data build label"},
	{"measure", "Measure:", "score metrics suite"},
	{"understand", "Look inside and fine-tune:", "probe sft"},
	{"read", "Read the results:", "runs compare claims report"},
	{"tool", "The tool itself:", "docs"},
}

// groupCommands sorts the commands by purpose, so that help lists them so.
func groupCommands(root *cobra.Command) {
	of := map[string]string{}
	for _, g := range groups {
		root.AddGroup(&cobra.Group{ID: g.id, Title: g.title})
		for _, name := range strings.Fields(g.commands) {
			of[name] = g.id
		}
	}
	root.SetHelpCommandGroupID("tool")
	root.SetCompletionCommandGroupID("tool")
	for _, c := range root.Commands() {
		if c.IsAvailableCommand() {
			c.GroupID = cmp.Or(of[c.Name()], "measure")
		}
	}
}

// print renders sections to standard output in the asked format.
func (a *app) print(sections []report.Section) error {
	format := report.Terminal
	if a.json {
		format = report.JSON
	}
	return report.Write(a.stdout, format, sections, report.Options{Color: a.color(a.stdout), Width: 0})
}

func (a *app) color(w io.Writer) bool {
	return !a.noColor && a.getenv("NO_COLOR") == "" && isTerminal(w)
}

func (a *app) progress() run.Progress {
	switch {
	case a.quiet:
		return run.Silent()
	case isTerminal(a.stderr):
		return run.Bar(visible.Under(a.stderr))
	}
	return run.Lines(a.stderr)
}

// note prints a line for the user that is not data.
func (a *app) note(format string, args ...any) {
	if !a.quiet {
		fmt.Fprintln(a.stderr, infer.Redact(fmt.Sprintf(format, args...)))
	}
}

// tell prints what is no table to standard output, for people.
func (a *app) tell(format string, args ...any) error {
	if _, err := fmt.Fprintf(visible.Writer(a.stdout), format, args...); err != nil {
		return fmt.Errorf("write to standard output: %w", err)
	}
	return nil
}

// exact is standard output for what programs read: as it is, unless a terminal would
// obey it.
func (a *app) exact() io.Writer {
	if isTerminal(a.stdout) {
		return visible.Writer(a.stdout)
	}
	return a.stdout
}

func isTerminal(w io.Writer) bool {
	w = visible.Under(w)
	if o, ok := w.(*standardOutput); ok {
		w = o.Writer
	}
	f, ok := w.(*os.File)
	return ok && isatty.IsTerminal(f.Fd())
}

// release is set by the Makefile; a plain go build has the commit alone, and go install
// PACKAGE@VERSION the version that was asked for.
var release = "dev"

// version returns the release and the commit it was built from.
func version() string {
	info, _ := debug.ReadBuildInfo()
	return versionOf(release, info)
}

func versionOf(release string, info *debug.BuildInfo) string {
	if info == nil {
		return release
	}
	commit, modified := "", ""
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision" && len(s.Value) >= 12:
			commit = " " + s.Value[:12]
		case s.Key == "vcs.modified" && s.Value == "true":
			modified = "+"
		}
	}
	// Outside a checkout the module's version stands for the commit, which the version of an
	// untagged one ends in.
	if v := info.Main.Version; commit == "" && release == "dev" && v != "" && v != "(devel)" {
		return strings.TrimPrefix(v, "v")
	}
	return release + commit + modified
}
