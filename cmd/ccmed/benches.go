package main

import (
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/ccmed/ccmed/bench/ccbench"
	"github.com/ccmed/ccmed/bench/ccbench/writing"
	"github.com/ccmed/ccmed/bench/construct"
	"github.com/ccmed/ccmed/bench/mediation"
	"github.com/ccmed/ccmed/bench/socrates"
	"github.com/ccmed/ccmed/bench/task"
	"github.com/ccmed/ccmed/bench/timing"
	"github.com/ccmed/ccmed/cmd/ccmed/internal/cli"
	"github.com/ccmed/ccmed/probe/ask"
	"github.com/ccmed/ccmed/probe/extract"
	"github.com/ccmed/ccmed/sft/dualhead"
)

// benches lists the benchmarks.
var benches = task.Registry{
	timing.Bench{},
	mediation.Bench{},
	socrates.Bench{},
	socrates.FilterBench{},
	ccbench.Bench{},
	writing.Bench{},
	extract.Bench{},
	ask.Bench{},
	dualhead.Bench{},
	construct.Scenarios{},
	construct.Dialogues{},
	construct.Label{},
	construct.Pairs{},
}

// opened is the archive of this command.
func (a *app) opened() *task.Archive {
	if a.benches == nil {
		a.benches = benches
	}
	if a.archive == nil {
		a.archive = &task.Archive{Benches: a.benches, Version: version(), Note: a.note}
	}
	return a.archive
}

// addBenches adds the command of every benchmark to its parent.
func (a *app) addBenches(root *cobra.Command) {
	for _, b := range a.benches {
		parent := root
		words := strings.Fields(b.About().Command)
		for _, w := range words[:len(words)-1] {
			parent = child(parent, w)
		}
		parent.AddCommand(a.benchCmd(b, words[len(words)-1]))
	}
}

// child finds a command by its name, or makes a group of that name.
func child(parent *cobra.Command, name string) *cobra.Command {
	for _, c := range parent.Commands() {
		if c.Name() == name {
			return c
		}
	}
	c := &cobra.Command{Use: name}
	parent.AddCommand(c)
	return c
}

func (a *app) benchCmd(b task.Bench, name string) *cobra.Command {
	about := b.About()
	j := &job{bench: b}
	cmd := &cobra.Command{Use: name, Short: about.Short, Long: about.Long, Example: about.Example, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if t, ok := j.call.(task.Taker); ok {
				if len(args) != 1 { // a manifest's command is not checked before
					return usagef("%s takes one argument, %s", cmd.CommandPath(), about.Argument)
				}
				t.Take(args[0])
			}
			return a.do(cmd.Context(), j, a.tables)
		}}
	if about.Argument != "" {
		cmd.Use, cmd.Args = name+" "+about.Argument, cobra.ExactArgs(1)
	}
	j.models.Register(cmd.Flags())
	j.run.register(cmd)
	shared := map[string]bool{}
	cmd.Flags().VisitAll(func(f *pflag.Flag) { shared[f.Name] = true })
	j.call = b.Flags(cmd.Flags())
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if !shared[f.Name] {
			_ = cmd.Flags().SetAnnotation(f.Name, cli.AnnotationBench, []string{}) // it is registered
		}
	})
	return cmd
}
