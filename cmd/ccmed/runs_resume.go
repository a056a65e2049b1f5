package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/ccmed/ccmed/bench/run"
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

// makers are the commands that make runs of a task. No other command of a manifest
// is ever run.
var makers = map[string][]string{
	"timing":    {"timing", "sft predict"},
	"mediation": {"mediate", "score"},
	"extract":   {"probe extract"},
}

// resume calls the command that made a run again, on its folder.
func (a *app) resume(cmd *cobra.Command, path string, hosts []string, cacheFile string) error {
	d, err := run.Open(path)
	if err != nil {
		return err
	}
	m := d.Manifest()
	manifest := filepath.Join(path, run.ManifestFile)
	if n := len(m.Sessions); m.Status == run.StatusDone && n > 0 && m.Sessions[n-1].Summary != nil && m.Sessions[n-1].Summary.Failed == 0 {
		return a.scoreLeft(cmd.Context(), d)
	}
	session, own, err := startOf(m)
	if err != nil {
		return err
	}
	r, err := readRecorded(m.Identity.Task, session.Command)
	if err != nil {
		return fmt.Errorf("%s: %w; put back a copy of it, or make the run again in another folder", manifest, err)
	}
	if len(hosts) > 0 {
		r.hosts = hosts
	} else if err := a.agreeOnHosts(path, r, own, session); err != nil {
		return err
	}
	switch {
	case cacheFile != "":
		r.cache = cacheFile
	case !own && places("cache", r.cache):
		if r.cache != "" {
			a.note("the run was made elsewhere: its cache %s is left out; --cache names one", r.cache)
		}
		r.cache = ""
	}
	args := r.args()
	if a.configFile != "" { // given with this call, in this folder
		if a.configFile, err = filepath.Abs(a.configFile); err != nil {
			return fmt.Errorf("find the settings file: %w", err)
		}
	}
	if own {
		err = a.enter(session.Dir)
	} else {
		a.note("made elsewhere, on %s: relative paths are read from this folder; the command is: %s", session.Environment.Host, commandLine(args))
	}
	if err != nil {
		return err
	}
	again := append(slices.Clone(args), "--out="+m.Path, "--resume")
	// Common flags of this call count; a new root sets them back.
	cmd.Root().PersistentFlags().VisitAll(func(f *pflag.Flag) {
		if f.Changed {
			again = append(again, "--"+f.Name+"="+f.Value.String())
		}
	})
	inner := *a
	// What a settings file set when the run was started is in its command.
	inner.args, inner.noSettings = args, true
	root := inner.root()
	root.SetArgs(again)
	root.SetOut(a.stdout)
	root.SetErr(a.stderr)
	_, err = root.ExecuteContextC(cmd.Context())
	return err
}

// startOf returns the newest session whose command this user's program wrote, and
// else the first one, of a run that was made elsewhere.
func startOf(m run.Manifest) (s run.Session, own bool, err error) {
	if len(m.Sessions) == 0 || len(m.Sessions[0].Command) == 0 {
		return s, false, fmt.Errorf("%s: the manifest names no command to resume", m.Path)
	}
	if key, err := sealKey(); err == nil {
		for _, s := range slices.Backward(m.Sessions) {
			if key.holds(s.Seal, s.Command, s.Dir) {
				return s, true, nil
			}
		}
	}
	return m.Sessions[0], false, nil
}

// recorded is what of a manifest's command line counts: flags that change nothing
// but the run itself, and, apart from them, servers and the response cache.
type recorded struct {
	command []string // as "probe", "extract"
	flags   []string
	files   []string // arguments
	hosts   []string
	cache   string
}

// readRecorded reads the command line of a manifest as that of one of the commands
// that make runs of the task.
func readRecorded(task string, command []string) (r recorded, err error) {
	root := (&app{stdout: io.Discard, stderr: io.Discard, getenv: func(string) string { return "" }}).root()
	cmd, rest, err := root.Find(command)
	name := strings.TrimPrefix(cmd.CommandPath(), root.Name()+" ")
	if err != nil || !slices.Contains(makers[task], name) {
		return r, fmt.Errorf("it describes a %s run and its command %q makes none", task, commandLine(command))
	}
	r.command = strings.Fields(name)
	if err := cmd.ParseFlags(rest); err != nil {
		return r, fmt.Errorf("its command %q is not one that this version takes: %w", commandLine(command), plainFlagError(err))
	}
	r.files = cmd.Flags().Args()
	cmd.Flags().Visit(func(f *pflag.Flag) {
		switch {
		case f.Name == "host":
			r.hosts = f.Value.(pflag.SliceValue).GetSlice()
		case f.Name == "cache":
			r.cache = f.Value.String()
		case f.Name == "resume" || f.Name == "config" || root.PersistentFlags().Lookup(f.Name) != nil:
		case reaches[f.Name] == plain || reaches[f.Name] == reads:
			for _, v := range flagTexts(f) {
				r.flags = append(r.flags, "--"+f.Name+"="+v)
			}
		}
	})
	return r, nil
}

// commandOf returns the command line that a manifest records, or says that it makes
// no such run: the identity's hash does not cover it.
func commandOf(m run.Manifest) string {
	if len(m.Sessions) == 0 || len(m.Sessions[0].Command) == 0 {
		return ""
	}
	if _, err := readRecorded(m.Identity.Task, m.Sessions[0].Command); err != nil {
		return "not trusted: " + err.Error()
	}
	return commandLine(m.Sessions[0].Command)
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

func (r recorded) args() []string {
	args := slices.Concat(r.command, r.flags)
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

// enter goes to the folder that a run of this user's was started in, from which its
// relative paths are read.
func (a *app) enter(dir string) error {
	wd, err := os.Getwd()
	if err != nil {
		return fmt.Errorf("find the working folder: %w", err)
	}
	if dir == "" || dir == wd {
		return nil
	}
	a.note("the run was started in %s; relative paths are read from there", dir)
	if err := os.Chdir(dir); err != nil {
		return fmt.Errorf("go to the folder where the run was started: %w", err)
	}
	return nil
}
