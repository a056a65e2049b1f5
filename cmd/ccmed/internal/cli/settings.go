package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"gopkg.in/yaml.v3"

	"github.com/ccmed/ccmed/bench/disk"
	"github.com/ccmed/ccmed/bench/strictjson"
	"github.com/ccmed/ccmed/bench/usage"
)

// EnvironmentName is the variable that sets a flag.
func EnvironmentName(flag string) string {
	return "CCMED_" + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// Configurable says whether settings may set a flag. CCMED_CACHE is the folder of
// caches, and not the flag of that name.
func Configurable(f *pflag.Flag) bool {
	return f.Name != "help" && f.Name != "version" && f.Name != "config" && !f.Hidden
}

// Settings fill flags that were not given, from the environment and from a settings file.
type Settings struct {
	File   string // named by the user; "" takes ccmed.yaml of the working folder, where there is one
	Ignore bool   // leaves a file alone that is merely found in the working folder
	Getenv func(string) string
}

// Apply fills the flags of a command. Given are the values as arguments, for the command line
// that a run remembers: the run must resume the same elsewhere. Unnamed are those from a file
// that the user did not name, which must not work unseen. Commands that only help read no
// settings.
func (o Settings) Apply(cmd *cobra.Command) (given, unnamed []string, err error) {
	if !TakesSettings(cmd) {
		return nil, nil, nil
	}
	fromFile, err := o.read(cmd)
	if err != nil {
		return nil, nil, err
	}
	set := func(f *pflag.Flag, from string, values ...string) {
		for _, v := range values {
			if e := cmd.Flags().Set(f.Name, v); e != nil && err == nil {
				err = usage.Errorf("%s: %w", from, PlainFlagError(e))
			}
			given = append(given, "--"+f.Name+"="+v)
		}
	}
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if f.Changed || err != nil || !Configurable(f) {
			return
		}
		name := EnvironmentName(f.Name)
		if v := o.Getenv(name); v != "" && name != "CCMED_CACHE" {
			set(f, "environment variable "+name, v)
		} else if v, ok := fromFile[f.Name]; ok {
			from := fmt.Sprintf("%s: %s", v.where, f.Name)
			if o.File == "" {
				for _, value := range v.values {
					if e := foundMaySet(f.Name, value); e != nil && err == nil {
						err = usage.Errorf("%s: %w", from, e)
					}
					unnamed = append(unnamed, Quote("--"+f.Name+"="+value))
				}
			}
			set(f, from, v.values...)
		}
	})
	if err != nil {
		return nil, nil, err
	}
	return given, unnamed, finiteFlags(cmd)
}

// finiteFlags refuses NaN and infinities, which every comparison with a bound lets
// through or which no option has a meaning for.
func finiteFlags(cmd *cobra.Command) (failed error) {
	cmd.Flags().Visit(func(f *pflag.Flag) {
		if f.Value.Type() != "float64" {
			return
		}
		if v, err := strconv.ParseFloat(f.Value.String(), 64); err == nil && (math.IsNaN(v) || math.IsInf(v, 0)) {
			failed = usage.Errorf("--%s %s; it must be a finite number", f.Name, f.Value)
		}
	})
	return failed
}

// TakesSettings is false for help, completion and documentation.
func TakesSettings(cmd *cobra.Command) bool {
	for c := cmd; c != nil; c = c.Parent() {
		switch c.Name() {
		case "help", "completion", "docs", cobra.ShellCompRequestCmd, cobra.ShellCompNoDescRequestCmd:
			return false
		}
	}
	return true
}

// setting is what a settings file says of one flag.
type setting struct {
	values []string // more than one for a list
	where  string   // "FILE:LINE:COLUMN"
}

// settingsFile reads one settings file.
type settingsFile struct {
	file   string
	byFlag map[string]setting // by flag; those of inner sections replace those of outer ones
}

// SettingsName is the settings file that is read where it is found.
const SettingsName = "ccmed.yaml"

// MaxYAML is the limit, in bytes, of a settings or suite file.
const MaxYAML = 1 << 20

func (o Settings) read(cmd *cobra.Command) (map[string]setting, error) {
	file := o.File
	if file == "" && o.Ignore {
		return nil, nil
	}
	if file == "" {
		file = SettingsName
	}
	b, err := disk.ReadFile(file, MaxYAML)
	if errors.Is(err, fs.ErrNotExist) && o.File == "" {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read settings: %w", err)
	}
	if err := strictjson.Text(b); err != nil {
		return nil, usage.Errorf("settings file %s: %w", file, err)
	}
	var tree yaml.Node
	if err := yaml.Unmarshal(b, &tree); err != nil {
		return nil, usage.Errorf("settings file %s: %w", file, err)
	}
	if len(tree.Content) == 0 {
		return nil, nil // nothing but comments
	}
	s := settingsFile{file, map[string]setting{}}
	return s.byFlag, s.section(cmd.Root(), cmd, tree.Content[0], "")
}

// section reads the settings of a command and of those below it. They count for
// running when it is that command or one below it.
func (s *settingsFile) section(of, running *cobra.Command, n *yaml.Node, name string) error {
	n = resolved(n)
	if n.Kind != yaml.MappingNode {
		return s.wrong(n, "%s", "this is no list of \"flag: value\" lines")
	}
	counts := of == running || isBelow(running, of)
	flags := flagsBelow(of)
	seen := map[string]bool{}
	var inner []func() error
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], resolved(n.Content[i+1])
		if seen[key.Value] {
			return s.wrong(key, "%s%q is there twice", name, key.Value)
		}
		seen[key.Value] = true
		if c := subcommand(of, key.Value); c != nil && (value.Kind == yaml.MappingNode || flags[key.Value] == nil) {
			inner = append(inner, func() error { return s.section(c, running, value, name+key.Value+": ") })
			continue
		}
		f := flags[key.Value]
		if f == nil {
			return s.unknown(key, of, flags, name)
		}
		if Reaches[f.Name] == Starts {
			return s.wrong(key, "%s%s: it names a program, which settings files must not; give --%s or %s", name, f.Name, f.Name, EnvironmentName(f.Name))
		}
		values, err := s.values(f, value, name)
		if err != nil {
			return err
		}
		if counts {
			s.byFlag[key.Value] = setting{values, s.where(key)}
		}
	}
	for _, read := range inner { // after the flags: what is nearer to the command wins
		if err := read(); err != nil {
			return err
		}
	}
	return nil
}

func (s *settingsFile) wrong(n *yaml.Node, format string, args ...any) error {
	return usage.Errorf("%s: %s", s.where(n), fmt.Sprintf(format, args...))
}

func (s *settingsFile) where(n *yaml.Node) string {
	return fmt.Sprintf("settings file %s:%d:%d", s.file, n.Line, n.Column)
}

// unknown says what the key may have been meant to be.
func (s *settingsFile) unknown(key *yaml.Node, of *cobra.Command, flags map[string]*pflag.Flag, section string) error {
	if c := commandNamed(of.Root(), key.Value); c != nil && of.HasSubCommands() {
		path := strings.Fields(c.CommandPath())[1:]
		return s.wrong(key, "%s%q is a section of %s: write it below %q", section, key.Value, path[0], path[0])
	}
	names := make([]string, 0, len(flags))
	for n := range flags {
		names = append(names, n)
	}
	for _, c := range of.Commands() {
		if c.IsAvailableCommand() && TakesSettings(c) {
			names = append(names, c.Name())
		}
	}
	what := "neither a flag nor a command"
	if !of.HasSubCommands() {
		what = "not a flag of " + of.CommandPath()
	}
	return s.wrong(key, "%s%q is %s%s", section, key.Value, what, DidYouMean("", key.Value, names))
}

// values writes a YAML value the way a flag is written on the command line.
func (s *settingsFile) values(f *pflag.Flag, n *yaml.Node, section string) ([]string, error) {
	switch {
	case n.Kind == yaml.ScalarNode && n.Tag != "!!null":
		return []string{n.Value}, nil
	case n.Kind == yaml.SequenceNode && IsList(f):
		out := make([]string, len(n.Content))
		for i, e := range n.Content {
			if e = resolved(e); e.Kind != yaml.ScalarNode || e.Tag == "!!null" {
				return nil, s.wrong(e, "%s%s: an entry of the list is no single value", section, f.Name)
			}
			out[i] = e.Value
		}
		return out, nil
	case n.Kind == yaml.SequenceNode:
		return nil, s.wrong(n, "%s%s: it takes one value and no list", section, f.Name)
	case n.Kind == yaml.MappingNode:
		return nil, s.wrong(n, "%s%s: it takes a value and no section", section, f.Name)
	}
	return nil, s.wrong(n, "%s%s: there is no value", section, f.Name)
}

func resolved(n *yaml.Node) *yaml.Node {
	if n.Kind == yaml.AliasNode {
		return n.Alias
	}
	return n
}

// IsList reports whether a flag takes several values.
func IsList(f *pflag.Flag) bool {
	_, ok := f.Value.(pflag.SliceValue)
	return ok
}

// flagsBelow returns the flags that a command or one below it takes, by name.
func flagsBelow(c *cobra.Command) map[string]*pflag.Flag {
	out := map[string]*pflag.Flag{}
	add := func(f *pflag.Flag) {
		if Configurable(f) && out[f.Name] == nil {
			out[f.Name] = f
		}
	}
	Walk(c, func(c *cobra.Command) {
		if TakesSettings(c) && !c.Hidden {
			c.LocalFlags().VisitAll(add)
			c.InheritedFlags().VisitAll(add)
		}
	})
	return out
}

// Walk calls f for a command and all commands below it.
func Walk(c *cobra.Command, f func(*cobra.Command)) {
	f(c)
	for _, s := range c.Commands() {
		Walk(s, f)
	}
}

// subcommand is the command right below c with that name, or nil.
func subcommand(c *cobra.Command, name string) *cobra.Command {
	for _, s := range c.Commands() {
		if s.Name() == name && s.IsAvailableCommand() && TakesSettings(s) {
			return s
		}
	}
	return nil
}

// commandNamed is the first command anywhere below c with that name, or nil.
func commandNamed(c *cobra.Command, name string) (match *cobra.Command) {
	Walk(c, func(c *cobra.Command) {
		if match == nil && c.Name() == name && c.HasParent() && c.IsAvailableCommand() && TakesSettings(c) {
			match = c
		}
	})
	return match
}

func isBelow(c, above *cobra.Command) bool {
	for c = c.Parent(); c != nil; c = c.Parent() {
		if c == above {
			return true
		}
	}
	return false
}
