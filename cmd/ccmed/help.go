package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ccmed/ccmed/bench/export"
	"github.com/ccmed/ccmed/bench/task"
	"github.com/ccmed/ccmed/sft"
)

// topics are what `ccmed help` explains beside the commands.
func topics(benches task.Registry) []*cobra.Command {
	return []*cobra.Command{
		topic("exit-codes", "What the exit codes mean", exitCodesHelp),
		topic("environment", "Environment variables", environmentHelp),
		topic("config", "Settings in ccmed.yaml", configHelp),
		topic("formats", "Files that are read and written, and exported columns", formatsHelp(benches)),
		topic("methods", "What is measured, with formulas", methodsHelp),
	}
}

func topic(name, short, long string) *cobra.Command {
	return &cobra.Command{Use: name, Short: short, Long: long}
}

const environmentHelp = `Every flag can be set by an environment variable: CCMED_ and the flag's name in
capitals with underscores (CCMED_NUM_CTX=4096 for --num-ctx 4096); lists are
separated by commas. A flag on the command line is stronger; ccmed.yaml is weaker
(ccmed help config).

Other variables:

  OLLAMA_HOST      the Ollama server when neither --host nor CCMED_HOST is given
  OPENAI_API_KEY   sent to --backend openai servers that want one
  CCMED_CACHE      folder of the engine, models and cached responses
                   (default: ccmed in the user's cache folder)
  YZMA_LIB         folder of your own llama.cpp build, instead of the installed one
  CCMED_LLAMA_LOG  1 prints llama.cpp's own log on standard error
  NO_COLOR         any value: no colour`

const configHelp = `ccmed.yaml in the working folder, or the file named by --config, holds settings:
one "flag: value" a line, with a section for a command's own flags. Sections nest
as commands do. What stands nearer to the command wins; the environment beats the
file, and a flag on the command line beats both.

  # yaml-language-server: $schema=ccmed.schema.json
  model: gemma2:9b
  num-ctx: 4096
  timing:
    mode: pick
  sft:
    train:
      preset: llama-3.1-8b
  host:
    - 127.0.0.1:11434
    - 127.0.0.1:11435

No settings file names a program: --python and --interpreter are given on the command
line or in the environment alone. What a file in the working folder sets is printed,
for it may have come with a data set; and such a file names no server outside this
machine and no place to write (out, cache, venv, force): name it with --config to let
it. A copied run folder sets less still (ccmed help runs resume).

A key that is neither a flag nor a command is refused with its line. Editors check
and complete the file with its JSON Schema: docs/schemas/ccmed.schema.json of this
project, which ccmed docs config-schema prints. A run remembers what the file set,
so that it resumes the same elsewhere.`

// formatsHelp lists what is read and written; the tables' columns are those of
// package export.
func formatsHelp(benches task.Registry) string {
	var b strings.Builder
	b.WriteString(`Read:

  dialogues    a folder of CC-Mediation records (*.json), or one record a line (*.jsonl)
  predictions  {"per_sid": [{"sid", "predicted_turn", "utterance"}]}
  models       a name of the server, or a GGUF file

Written:

  a run folder: manifest.json, samples.jsonl, prompts.jsonl, errors.jsonl,
  metrics.json and log.txt; docs/formats.md has their fields
  a report: one HTML file, Markdown or JSON
  exports: ccmed runs export RUN --format jsonl, csv, parquet, inspect or lm-eval

Exported tables have one row for each item, condition and repeat. A column that may
be missing is marked with ?; it is then null, in CSV an empty field. CSV holds lists
as JSON.
`)
	described := map[string]bool{}
	for _, bench := range benches {
		about := bench.About()
		columns := export.Columns(about.Row)
		if len(columns) == 0 || described[about.Task] {
			continue
		}
		described[about.Task] = true
		describeColumns(&b, about.Task+" runs", columns)
	}
	describeColumns(&b, "trainings", export.Columns(sft.CurveRow{}))
	return strings.TrimSuffix(b.String(), "\n")
}

func describeColumns(b *strings.Builder, of string, columns []export.Column) {
	fmt.Fprintf(b, "\nColumns of %s:\n\n", of)
	for _, c := range columns {
		kind := c.Type
		if c.Null {
			kind += "?"
		}
		fmt.Fprintf(b, "  %-16s  %-14s  %s\n", c.Name, kind, c.Doc)
	}
}

const methodsHelp = `What is measured (docs/methods.md has formulas and sources):

  TurnAcc      share of dialogues whose predicted turn is the conflict turn; no
               prediction counts as wrong
  V            Cramér's V of predicted against gold turn, bias-corrected, with a
               permutation p; undefined for a constant prediction
  AUC          how far the conflict speaker's stage rises after the mediation:
               trapezoid of pos(argmax_t) - pos(argmax_pre) over normalised time
  dAUC         AUC minus that of the unmediated continuation, re-simulated with
               the same simulator and seeds: the headline
  AUC_own      AUC over the conflict speaker's own turns only
  AUC_E        AUC of the expected position instead of the most probable stage
  signed W1    Wasserstein-1 between the stage distributions before and after,
               with the sign of the change of the expected position
  Judge        1-5: does the line do what the conflict's stage calls for

Scales: Paige -3,-2,-1,+1,+2,+3 (headline) and index 0..5. Intervals: bootstrap
over scenario contexts. Differences: paired, sign-flip permutation by context,
Holm over the family of a run. A labeller with quadratic kappa below 0.6 against
the recorded labels, or with more than 80 % in one class, is not qualified: then
no AUC, W1 or interval is printed.`
