package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"gopkg.in/yaml.v3"
)

const environmentHelp = `Settings, strongest first:

  1. flags on the command line
  2. environment: CCMED_ and the flag's name in capitals with underscores
     (CCMED_NUM_CTX=4096 for --num-ctx 4096); lists are separated by commas
  3. ccmed.yaml in the working folder, or the file named by --config: one
     "flag: value" a line, with a section for a command's own flags

       model: gemma2:9b
       num-ctx: 4096
       timing:
         mode: pick

Other variables:

  OLLAMA_HOST      the Ollama server when neither --host nor CCMED_HOST is given
  OPENAI_API_KEY   sent to --backend openai servers that want one
  CCMED_CACHE      folder of the engine, models and cached responses
                   (default: ccmed in the user's cache folder)
  YZMA_LIB         folder of your own llama.cpp build, instead of the installed one
  CCMED_LLAMA_LOG  1 prints llama.cpp's own log on standard error
  NO_COLOR         any value: no colour`

// configure fills flags that were not given from the environment and from
// ccmed.yaml, and writes them into the command line that a run remembers: it must
// resume the same elsewhere.
func (a *app) configure(cmd *cobra.Command) error {
	fromFile, file, err := a.readConfig(cmd)
	if err != nil {
		return err
	}
	var failed error
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if f.Changed || failed != nil || f.Name == "help" || f.Name == "config" {
			return
		}
		name := "CCMED_" + strings.ToUpper(strings.ReplaceAll(f.Name, "-", "_"))
		if v := a.getenv(name); v != "" && name != "CCMED_CACHE" {
			if err := cmd.Flags().Set(f.Name, v); err != nil {
				failed = usagef("environment variable %s: %w", name, err)
			}
			a.args = append(slices.Clip(a.args), "--"+f.Name+"="+v)
			return
		}
		if v, ok := fromFile[f.Name]; ok {
			if err := cmd.Flags().Set(f.Name, v); err != nil {
				failed = usagef("%s: %s: %w", file, f.Name, err)
			}
			a.args = append(slices.Clip(a.args), "--"+f.Name+"="+v)
		}
	})
	return failed
}

func (a *app) readConfig(cmd *cobra.Command) (map[string]string, string, error) {
	file := a.configFile
	if file == "" {
		file = "ccmed.yaml"
	}
	b, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) && a.configFile == "" {
		return nil, file, nil
	}
	if err != nil {
		return nil, file, fmt.Errorf("read settings: %w", err)
	}
	var raw map[string]any
	if err := yaml.Unmarshal(b, &raw); err != nil {
		return nil, file, usagef("settings file %s: %w", file, err)
	}
	known := map[string]bool{}
	var learn func(c *cobra.Command)
	learn = func(c *cobra.Command) {
		known[c.Name()] = true
		c.Flags().VisitAll(func(f *pflag.Flag) { known[f.Name] = true })
		c.PersistentFlags().VisitAll(func(f *pflag.Flag) { known[f.Name] = true })
		for _, s := range c.Commands() {
			learn(s)
		}
	}
	learn(cmd.Root())
	out := map[string]string{}
	own := map[string]string{}
	for k, v := range raw {
		if !known[k] {
			return nil, file, usagef("settings file %s: %q is neither a flag nor a command", file, k)
		}
		section, isSection := v.(map[string]any)
		if !isSection {
			out[k] = flagText(v)
			continue
		}
		for n, sv := range section {
			if !known[n] {
				return nil, file, usagef("settings file %s: %s: %q is not a flag", file, k, n)
			}
			if k == cmd.Name() {
				own[n] = flagText(sv)
			}
		}
	}
	for n, v := range own {
		out[n] = v
	}
	return out, file, nil
}

// flagText writes a YAML value the way a flag is written on the command line.
func flagText(v any) string {
	if list, ok := v.([]any); ok {
		parts := make([]string, len(list))
		for i, e := range list {
			parts[i] = fmt.Sprint(e)
		}
		return strings.Join(parts, ",")
	}
	return fmt.Sprint(v)
}
