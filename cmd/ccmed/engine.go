package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ccmed/ccmed/bench/report"
	"github.com/ccmed/ccmed/infer/llamacpp"
)

func (a *app) engineCmd() *cobra.Command {
	cmd := &cobra.Command{Use: "engine", Short: "The in-process llama.cpp libraries"}
	var variant string
	install := &cobra.Command{
		Use:   "install",
		Short: "Put llama.cpp's libraries into the user cache (10 MB, by npm)",
		Long: `install fetches prebuilt llama.cpp libraries with the npm client, checks their
integrity and puts them into the user cache. Nothing is compiled. To use your
own build instead, set YZMA_LIB to its folder.`,
		Example: `  ccmed engine install
  ccmed engine install --variant cuda`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if known := []string{llamacpp.CPU, llamacpp.CUDA, llamacpp.CUDA12, llamacpp.Vulkan}; !slices.Contains(known, variant) {
				return usagef("unknown --variant %q; known are %s", variant, strings.Join(known, ", "))
			}
			dir, err := llamacpp.Install(cmd.Context(), variant, a.stderr)
			if err != nil {
				return err
			}
			fmt.Fprintln(a.stdout, dir)
			return nil
		},
	}
	install.Flags().StringVar(&variant, "variant", "cpu", "cpu, cuda (CUDA 13), cuda12 or vulkan")
	info := &cobra.Command{
		Use:     "info",
		Short:   "Say which libraries are used and what they can do",
		Example: "  ccmed engine info",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			i, err := a.engineCheck(cmd.Context(), "")
			if err != nil {
				return err
			}
			t := report.Table{Columns: report.Columns("fact", "value"), Rows: [][]report.Cell{
				{report.Text("folder"), report.Text(i.Dir)}, {report.Text("release"), report.Text(i.Release)},
				{report.Text("devices"), report.Text(strings.Join(i.Devices, ", "))}, {report.Text("system"), report.Text(i.System)}}}
			return a.print([]report.Section{{Title: "Engine", Tables: []report.Table{t}}})
		},
	}
	cmd.AddCommand(install, info)
	return cmd
}

// engineCheckCmd is what engineCheck runs in a child process: a failed
// assertion in llama.cpp kills the process it is in.
func (a *app) engineCheckCmd() *cobra.Command {
	return &cobra.Command{
		Use: "__engine-check [GGUF]", Hidden: true, Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			model := ""
			if len(args) == 1 {
				model = args[0]
			}
			i, err := llamacpp.SelfCheck(cmd.Context(), model)
			if err != nil {
				return err
			}
			return a.encode(i)
		},
	}
}

// engineCheck loads the libraries, and a model when one is named, in a child
// process and returns what the child found.
func (a *app) engineCheck(ctx context.Context, model string) (llamacpp.Info, error) {
	var info llamacpp.Info
	self, err := os.Executable()
	if err != nil {
		return info, fmt.Errorf("find the program's own file: %w", err)
	}
	// Without libraries there is nothing to try, and the child's exit code
	// would hide that it is a missing piece.
	if _, err := llamacpp.Locate(); err != nil {
		return info, err
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	args := []string{"__engine-check"}
	if model != "" {
		args = append(args, model)
	}
	cmd := exec.CommandContext(ctx, self, args...)
	cmd.WaitDelay = 100 * time.Millisecond
	cmd.Env = append(os.Environ(), "GGML_NO_BACKTRACE=1") // else it calls a debugger
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		var exit *exec.ExitError
		first, _, crashed := strings.Cut(stderr.String(), "\nSIG") // what Go says of a signal
		if errors.As(err, &exit) && (crashed || !exit.Exited()) {
			return info, fmt.Errorf("the llama.cpp libraries crashed (%v): %s; the model's file may be broken, or the libraries: install the matching ones with `ccmed engine install`",
				exit, lastLine(first))
		}
		return info, errors.New(strings.TrimPrefix(lastLine(stderr.String()), "ccmed: "))
	}
	if err := json.Unmarshal(out, &info); err != nil {
		return info, fmt.Errorf("read the engine check's answer: %w", err)
	}
	return info, nil
}

func lastLine(s string) string {
	lines := strings.Split(strings.TrimSpace(s), "\n")
	return lines[len(lines)-1]
}
