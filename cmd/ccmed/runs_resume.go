package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/ccmed/ccmed/bench/run"
	"github.com/ccmed/ccmed/bench/task"
	"github.com/ccmed/ccmed/cmd/ccmed/internal/cli"
	"github.com/ccmed/ccmed/sft"
)

func (a *app) runsResumeCmd() *cobra.Command {
	var hosts []string
	var cacheFile string
	cmd := &cobra.Command{
		Use:   "resume RUN",
		Short: "Finish an interrupted run",
		Long: `resume goes on with the command that started the run, as its manifest has it, where
the identity is what its hash says and the command is one that makes such runs.

Of a run that was made elsewhere (by another user or on another machine, or whose
command was changed) only what the run is counts: its servers are shown and asked for
first, or named anew with --host; its --cache is left out, and its paths are read from
the working folder.`,
		Example: `  ccmed runs resume runs/NAME
  ccmed runs resume copied/NAME --host 127.0.0.1:11434`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return a.resume(cmd, args[0], hosts, cacheFile) },
	}
	cmd.Flags().StringArrayVar(&hosts, "host", nil, "server address instead of those that the run was started with; can be repeated")
	cmd.Flags().StringVar(&cacheFile, "cache", "", `response cache instead of that of the run's start: a file, "off" or "force"`)
	return cmd
}

// makers are the commands that make runs of a task. No other command of a manifest is ever
// run.
func (a *app) makers(taskName string) []string {
	var out []string
	for _, b := range a.benches {
		if about := b.About(); about.Task == taskName {
			out = append(append(out, about.Command), about.AlsoMadeBy...)
		}
	}
	return out
}

// resume runs the command that made a run again, on its folder.
func (a *app) resume(cmd *cobra.Command, path string, hosts []string, cacheFile string) error {
	d, err := run.Open(path)
	if err != nil {
		return err
	}
	m := d.Manifest()
	if n := len(m.Sessions); m.Status == run.StatusDone && n > 0 && m.Sessions[n-1].Summary != nil && m.Sessions[n-1].Summary.Failed == 0 {
		return a.scoreLeft(cmd.Context(), d)
	}
	session, own, err := startOf(m)
	if err != nil {
		return err
	}
	inner := *a
	inner.noSettings = true // what a settings file set when the run was started is in its command
	r, err := inner.readRecorded(m.Identity.Task, session.Command)
	if err != nil {
		return fmt.Errorf("%s: %w; put back a copy of it, or make the run again in another folder", filepath.Join(path, run.ManifestFile), err)
	}
	if len(hosts) > 0 {
		r.hosts = hosts
	} else if err := a.agreeOnHosts(path, r, own, session); err != nil {
		return err
	}
	switch {
	case cacheFile != "":
		r.cache = cacheFile
	case !own && cli.Places("cache", r.cache):
		if r.cache != "" {
			a.note("the run was made elsewhere: its cache %s is left out; --cache names one", r.cache)
		}
		r.cache = ""
	}
	// The command as it stands in the manifest is that of the new session too; common flags
	// are those of this call.
	inner.args, inner.quiet, inner.noColor, inner.json, inner.configFile = r.args(), a.quiet, a.noColor, a.json, a.configFile
	if own {
		if err := a.noteFolder(session.Dir); err != nil {
			return err
		}
		r.readFrom(session.Dir)
	} else {
		a.note("made elsewhere, on %s: relative paths are read from this folder; the command is: %s", session.Environment.Host, cli.CommandLine(inner.args))
	}
	if err := inner.configure(r.command); err != nil {
		return err
	}
	return r.call(cmd.Context(), m.Path)
}

// startOf returns the newest session whose command this user's program wrote, and
// else the first one, of a run that was made elsewhere.
func startOf(m run.Manifest) (s run.Session, own bool, err error) {
	if len(m.Sessions) == 0 || len(m.Sessions[0].Command) == 0 {
		return s, false, fmt.Errorf("%s: the manifest names no command to resume", m.Path)
	}
	if key, err := cli.SealKey(); err == nil {
		for _, s := range slices.Backward(m.Sessions) {
			if key.Holds(s.Seal, s.Command, s.Dir) {
				return s, true, nil
			}
		}
	}
	return m.Sessions[0], false, nil
}

// recorded is what of a manifest's command line counts: flags that change nothing but the
// run itself, and, apart from them, servers and the response cache.
type recorded struct {
	command *cobra.Command // of the calling app, with its flags parsed
	name    string         // as "probe extract"
	flags   []*pflag.Flag  // that were given
	files   []string       // arguments
	hosts   []string
	cache   string
}

// readRecorded reads the command line of a manifest as that of one of the commands that
// make runs of the task. The command is one of this app.
func (a *app) readRecorded(taskName string, command []string) (r recorded, err error) {
	root := a.root()
	cmd, rest, err := root.Find(command)
	r.name = strings.TrimPrefix(cmd.CommandPath(), root.Name()+" ")
	if err != nil || !slices.Contains(a.makers(taskName), r.name) {
		return r, fmt.Errorf("it describes a %s run and its command %q makes none", taskName, cli.CommandLine(command))
	}
	r.command = cmd
	if err := cmd.ParseFlags(rest); err != nil {
		return r, fmt.Errorf("its command %q is not one that this version takes: %w", cli.CommandLine(command), cli.PlainFlagError(err))
	}
	r.files = cmd.Flags().Args()
	cmd.Flags().Visit(func(f *pflag.Flag) {
		switch {
		case f.Name == "host":
			r.hosts = f.Value.(pflag.SliceValue).GetSlice()
		case f.Name == "cache":
			r.cache = f.Value.String()
		case f.Name == "resume" || f.Name == "config" || root.PersistentFlags().Lookup(f.Name) != nil:
		case cli.ReachOf(f) == cli.Plain || cli.ReachOf(f) == cli.Reads:
			r.flags = append(r.flags, f)
			return
		}
		unset(f)
	})
	return r, nil
}

// unset gives a flag its default back: what another's manifest sets it to does not count.
func unset(f *pflag.Flag) {
	if s, ok := f.Value.(pflag.SliceValue); ok {
		_ = s.Replace(nil) // it holds texts, which it takes back
	} else {
		_ = f.Value.Set(f.DefValue)
	}
	f.Changed = false
}

// readFrom makes paths absolute that are relative to a folder: those of files and folders
// that are there. A model is one where it is a GGUF file or a package.
func (r *recorded) readFrom(dir string) {
	at := func(path string) string {
		if filepath.IsAbs(path) || dir == "" {
			return path
		}
		if whole := filepath.Join(dir, path); exists(whole) {
			return whole
		}
		return path
	}
	models := []string{"model", "simulator", "labeller", "judge"}
	for _, f := range r.flags {
		if _, list := f.Value.(pflag.SliceValue); list || cli.ReachOf(f) != cli.Reads || f.Name == "data" && f.Value.String() == task.EmbeddedSample {
			continue
		}
		value := f.Value.String()
		if slices.Contains(models, f.Name) && !strings.EqualFold(filepath.Ext(value), ".gguf") && !exists(filepath.Join(dir, value, sft.CardFile)) {
			continue
		}
		whole := at(value)
		if before, path, named := strings.Cut(value, ":"); named && whole == value { // predicted:RUN, embedded:FILE
			whole = before + ":" + at(path)
		}
		_ = f.Value.Set(whole) // a text flag takes any text
	}
	for i, f := range r.files {
		r.files[i] = at(f)
	}
}

// call runs the command on the run's folder.
func (r recorded) call(ctx context.Context, folder string) error {
	set := map[string]string{"out": folder, "resume": "true"}
	if r.cache != "" {
		set["cache"] = r.cache
	}
	for name, v := range set {
		if err := r.command.Flags().Set(name, v); err != nil {
			return fmt.Errorf("resume %s: %w", folder, err)
		}
	}
	for _, h := range r.hosts {
		if err := r.command.Flags().Set("host", h); err != nil {
			return fmt.Errorf("resume %s: %w", folder, err)
		}
	}
	r.command.SetContext(ctx)
	return r.command.RunE(r.command, r.files)
}

// commandOf returns the command line that a manifest records, or says that it makes
// no such run: the identity's hash does not cover it.
func (a *app) commandOf(m run.Manifest) string {
	if len(m.Sessions) == 0 || len(m.Sessions[0].Command) == 0 {
		return ""
	}
	other := &app{stdout: io.Discard, stderr: io.Discard, getenv: a.getenv, benches: a.benches}
	if _, err := other.readRecorded(m.Identity.Task, m.Sessions[0].Command); err != nil {
		return "not trusted: " + err.Error()
	}
	return cli.CommandLine(m.Sessions[0].Command)
}

// flagTexts gives the values of a flag, each as the command line takes it.
func flagTexts(f *pflag.Flag) []string {
	if s, ok := f.Value.(pflag.SliceValue); ok {
		if strings.HasSuffix(f.Value.Type(), "Array") {
			return s.GetSlice()
		}
		return []string{strings.TrimSuffix(strings.TrimPrefix(f.Value.String(), "["), "]")}
	}
	return []string{f.Value.String()}
}

// args are the command line as a session of this run records it.
func (r recorded) args() []string {
	args := strings.Fields(r.name)
	for _, f := range r.flags {
		for _, v := range flagTexts(f) {
			args = append(args, "--"+f.Name+"="+v)
		}
	}
	for _, h := range r.hosts {
		args = append(args, "--host="+h)
	}
	if r.cache != "" {
		args = append(args, "--cache="+r.cache)
	}
	if len(r.files) > 0 {
		args = append(append(args, "--"), r.files...)
	}
	return args
}

// agreeOnHosts asks for servers that a run made elsewhere names, and for those whose
// password was not kept.
func (a *app) agreeOnHosts(path string, r recorded, own bool, s run.Session) error {
	if slices.ContainsFunc(r.hosts, func(h string) bool { return strings.Contains(h, "***@") }) {
		return fmt.Errorf("%s was started with --host %s, and passwords are not kept; give the address again with --host", path, strings.Join(r.hosts, " "))
	}
	if own || len(r.hosts) == 0 {
		return nil
	}
	question := fmt.Sprintf("%s was made elsewhere (on %s) and sends its prompts to %s", path, s.Environment.Host, strings.Join(r.hosts, ", "))
	if !isTerminal(a.stderr) || !isTerminalIn(a.stdin) {
		return fmt.Errorf("%s; say with --host where they shall go", question)
	}
	fmt.Fprintf(a.stderr, "%s. Go on? [y/N] ", question)
	answer, err := bufio.NewReader(a.stdin).ReadString('\n')
	if err == nil && slices.Contains([]string{"y", "yes"}, strings.ToLower(strings.TrimSpace(answer))) {
		return nil
	}
	return fmt.Errorf("%s is not resumed; --host says where its prompts shall go", path)
}

func isTerminalIn(r io.Reader) bool {
	f, ok := r.(*os.File)
	return ok && isTerminal(f)
}

// noteFolder says from where the relative paths of a run are read.
func (a *app) noteFolder(dir string) error {
	wd, err := os.Getwd()
	if err != nil {
		return fmt.Errorf("find the working folder: %w", err)
	}
	if dir != "" && dir != wd {
		a.note("the run was started in %s; relative paths are read from there", dir)
	}
	return nil
}

// scoreLeft scores a run that has all its samples and was killed before its metrics were
// written. Where they are those of its samples nothing is left to do.
func (a *app) scoreLeft(ctx context.Context, d *run.Dir) error {
	stored, err := d.Metrics()
	var newer *run.NewerError
	if errors.As(err, &newer) {
		return err
	}
	if err == nil {
		hash, err := d.SamplesHash()
		if err != nil {
			return err
		}
		if hash == stored.SamplesHash {
			return fmt.Errorf("%s is done; nothing is left to resume", d.Path())
		}
	}
	a.note("all samples of %s are there; its metrics are computed", d.Path())
	return a.scoreRun(ctx, d.Path(), task.ScoreOptions{}, a.print)
}
