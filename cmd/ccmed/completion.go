package main

import (
	"context"
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ccmed/ccmed/bench/ccbench/norm"
	"github.com/ccmed/ccmed/bench/export"
	"github.com/ccmed/ccmed/bench/run"
	"github.com/ccmed/ccmed/bench/visible"
	"github.com/ccmed/ccmed/cmd/ccmed/internal/cli"
	"github.com/ccmed/ccmed/infer/fleet"
	"github.com/ccmed/ccmed/infer/llamacpp"
	"github.com/ccmed/ccmed/infer/ollama"
	"github.com/ccmed/ccmed/sft"
)

// enumerations lists the flags whose values can be named.
func enumerations() cli.ValueTable {
	formats := make([]string, len(export.Formats))
	for i, f := range export.Formats {
		formats[i] = string(f)
	}
	of := func(command, flag string, values ...string) cli.Values {
		return cli.Values{Command: command, Flag: flag, Values: values}
	}
	return cli.ValueTable{
		of("", "backend", "ollama", "embedded", "openai"),
		{Flag: "cache", Values: []string{"off", "force"}, Open: true},
		{Flag: "chat-template", Values: llamacpp.TemplateNames(), Open: true},
		of("score", "format", "table", "reference"),
		of("score", "labeller-rule", "ours", "reference"),
		of("metrics", "labeller-rule", "ours", "reference"),
		of("compare", "format", "table", "json", "markdown", "latex", "benchstat"),
		of("report", "format", "html", "json", "md"),
		of("runs export", "format", formats...),
		of("ccbench norms", "culture", norm.Names()...),
		of("engine install", "variant", llamacpp.CPU, llamacpp.CUDA, llamacpp.CUDA12, llamacpp.Vulkan),
		of("probe train", "groups", "context", "template", "country"),
		of("probe report", "format", "table", "markdown", "html", "json", "csv"),
		of("sft export", "holdout", "random", "dimension", "template", "country"),
		of("sft train", "preset", sft.Presets...),
		of("sft train", "method", "lora", "full"),
		of("sft train", "dtype", "f32", "bf16"),
		of("sft package", "quantize", append([]string{sft.Unquantized}, llamacpp.Quantizations()...)...),
	}
}

// modelFlagNames are the flags whose value is a model of the server.
var modelFlagNames = []string{"model", "writer", "mediator", "simulator", "labeller", "judge", "embedder", "tuned"}

// complete teaches the shells what follows: values of flags, models of the server,
// folders of runs.
func (a *app) complete(root *cobra.Command) {
	enumerations().Complete(root)
	cli.Walk(root, func(c *cobra.Command) {
		for _, name := range modelFlagNames {
			if c.Flags().Lookup(name) != nil {
				cli.CompleteFlag(c, name, a.completeModels)
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
