package main

import (
	"context"
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/ccmed/ccmed/bench/ccbench/norm"
	"github.com/ccmed/ccmed/bench/export"
	"github.com/ccmed/ccmed/bench/run"
	"github.com/ccmed/ccmed/bench/task"
	"github.com/ccmed/ccmed/bench/visible"
	"github.com/ccmed/ccmed/infer/fleet"
	"github.com/ccmed/ccmed/infer/llamacpp"
	"github.com/ccmed/ccmed/infer/ollama"
	"github.com/ccmed/ccmed/sft"
)

// flagValues are the values that a flag takes.
type flagValues struct {
	command string // its path without "ccmed"; empty: every command with the flag
	flag    string
	values  []string
	open    bool // other values are taken as well
}

// enumerations lists the flags whose values can be named. Shells complete them, and
// the schema of ccmed.yaml allows no others where they are not open.
func enumerations() []flagValues {
	formats := make([]string, len(export.Formats))
	for i, f := range export.Formats {
		formats[i] = string(f)
	}
	return []flagValues{
		{"", "backend", []string{"ollama", "embedded", "openai"}, false},
		{"", "cache", []string{"off", "force"}, true},
		{"", "chat-template", llamacpp.TemplateNames(), true},
		{"score", "format", []string{"table", "reference"}, false},
		{"score", "labeller-rule", []string{"ours", "reference"}, false},
		{"metrics", "labeller-rule", []string{"ours", "reference"}, false},
		{"compare", "format", []string{"table", "json", "markdown", "latex", "benchstat"}, false},
		{"report", "format", []string{"html", "json", "md"}, false},
		{"runs export", "format", formats, false},
		{"ccbench norms", "culture", norm.Names(), false},
		{"engine install", "variant", []string{llamacpp.CPU, llamacpp.CUDA, llamacpp.CUDA12, llamacpp.Vulkan}, false},
		{"probe train", "groups", []string{"context", "template", "country"}, false},
		{"probe report", "format", []string{"table", "markdown", "html", "json", "csv"}, false},
		{"sft export", "holdout", []string{"random", "dimension", "template", "country"}, false},
		{"sft train", "preset", sft.Presets, false},
		{"sft train", "method", []string{"lora", "full"}, false},
		{"sft train", "dtype", []string{"f32", "bf16"}, false},
		{"sft package", "quantize", append([]string{sft.Unquantized}, llamacpp.Quantizations()...), false},
	}
}

// valuesOf returns what is known of a flag's values.
func valuesOf(cmd *cobra.Command, flag string) (flagValues, bool) {
	path := strings.TrimPrefix(cmd.CommandPath(), cmd.Root().Name()+" ")
	if f := cmd.Flags().Lookup(flag); f != nil && f.Annotations[task.AnnotationChoices] != nil {
		_, open := f.Annotations[task.AnnotationOpen]
		return flagValues{path, flag, f.Annotations[task.AnnotationChoices], open}, true
	}
	for _, e := range enumerations() {
		if e.flag == flag && (e.command == path || e.command == "") {
			return e, true
		}
	}
	return flagValues{}, false
}

// modelFlagNames are the flags whose value is a model of the server.
var modelFlagNames = []string{"model", "simulator", "labeller", "judge", "embedder", "tuned"}

// complete teaches the shells what follows: values of flags, models of the server,
// folders of runs.
func (a *app) complete(root *cobra.Command) {
	walk(root, func(c *cobra.Command) {
		c.LocalFlags().VisitAll(func(f *pflag.Flag) {
			if e, ok := valuesOf(c, f.Name); ok {
				directive := cobra.ShellCompDirectiveNoFileComp
				if e.open {
					directive = cobra.ShellCompDirectiveDefault
				}
				register(c, f.Name, func(_ *cobra.Command, _ []string, begun string) ([]string, cobra.ShellCompDirective) {
					return completeList(begun, e.values), directive
				})
			}
		})
		for _, name := range modelFlagNames {
			if c.Flags().Lookup(name) != nil {
				register(c, name, a.completeModels)
			}
		}
		// A name in capitals that ends in RUN, STORE or RUN... is a run's folder.
		if _, argument, ok := strings.Cut(c.Use, " "); ok && c.ValidArgsFunction == nil {
			if word := strings.Trim(strings.Fields(argument)[0], "[]."); strings.HasPrefix(word, "RUN") || word == "STORE" {
				c.ValidArgsFunction = completeRuns
			}
		}
	})
}

// register ignores flags that have their own completion.
func register(c *cobra.Command, flag string, f cobra.CompletionFunc) {
	if _, ok := c.GetFlagCompletionFunc(flag); !ok {
		// It fails for unknown flags and for known functions, and neither is here.
		_ = c.RegisterFlagCompletionFunc(flag, f)
	}
}

// completeList completes the last one of values with commas between them.
func completeList(begun string, values []string) []string {
	before := begun[:strings.LastIndex(begun, ",")+1]
	out := make([]string, 0, len(values))
	for _, v := range values {
		if strings.HasPrefix(before+v, begun) {
			out = append(out, before+v)
		}
	}
	return out
}

// shellWord matches what a shell takes for itself when it stands in a command line: a
// server's or folder's name must not become a command.
var shellWord = regexp.MustCompile(`^[\pL\pN._:/@+=,-]+$`)

// completionPatience is how long a user who presses the tab key waits for a server.
const completionPatience = 700 * time.Millisecond

// completeModels names the models of the servers; files are completed as well, for
// a model may be one.
func (a *app) completeModels(cmd *cobra.Command, _ []string, begun string) ([]string, cobra.ShellCompDirective) {
	ctx, cancel := context.WithTimeout(context.Background(), completionPatience)
	defer cancel()
	hosts, err := cmd.Flags().GetStringArray("host")
	if err != nil {
		hosts = nil // a command without --host asks the default one
	}
	var out []string
	for _, h := range (&fleet.Flags{Hosts: hosts}).OllamaHosts(a.getenv) {
		models, err := ollama.Models(ctx, h)
		if err != nil {
			continue
		}
		for _, m := range models {
			if strings.HasPrefix(m.Name, begun) && shellWord.MatchString(m.Name) {
				out = append(out, m.Name)
			}
		}
	}
	return out, cobra.ShellCompDirectiveDefault
}

// completeRuns names the runs in the folder runs, with what they are, and leaves
// other folders to the shell.
func completeRuns(_ *cobra.Command, _ []string, begun string) ([]string, cobra.ShellCompDirective) {
	manifests, err := filepath.Glob(filepath.Join("runs", "*", run.ManifestFile))
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	var out []string
	for _, m := range manifests {
		path := filepath.Dir(m)
		if !strings.HasPrefix(path, begun) || !shellWord.MatchString(path) {
			continue
		}
		about := ""
		if d, err := run.Open(path); err == nil {
			about = visible.Line(fmt.Sprintf("%s, %s", d.Manifest().Identity.Task, d.Manifest().Status))
		}
		out = append(out, cobra.CompletionWithDesc(path, about))
	}
	return out, cobra.ShellCompDirectiveDefault
}
