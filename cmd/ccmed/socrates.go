package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/ccmed/ccmed/bench/disk"
	"github.com/ccmed/ccmed/bench/report"
	"github.com/ccmed/ccmed/bench/socrates/scenario"
	"github.com/ccmed/ccmed/infer/fleet"
)

func (a *app) socratesCmd() *cobra.Command {
	cmd := &cobra.Command{Use: "socrates", Short: "Disputes of several parties about several topics"}
	scenarios := &cobra.Command{Use: "scenarios", Short: "Check scenarios, put them under conditions, and import others"}
	scenarios.AddCommand(a.scenariosValidateCmd(), a.scenariosExpandCmd(), a.scenariosImportCmd())
	cmd.AddCommand(scenarios)
	return cmd
}

func (a *app) scenariosValidateCmd() *cobra.Command {
	var lenient bool
	cmd := &cobra.Command{
		Use:   "validate PATH...",
		Short: "Check scenarios: fields, topics, letters, weights, names, dates",
		Long: `validate reads files, folders of *.json files, or "sample", the embedded scenarios. It
prints every fault with its file and field, and counts what each usable scenario
holds. With --lenient other names and forms of fields are understood, and fields that
are not known are named and passed over.`,
		Example: `  ccmed socrates scenarios validate sample
  ccmed socrates scenarios validate my-disputes --lenient`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			var usable []scenario.Scenario
			bad := map[string]bool{}
			for _, path := range args {
				good, faults, notes, err := scenario.Survey(path, lenient)
				if err != nil {
					return err
				}
				for _, n := range notes {
					a.note("passed over: %v", n)
				}
				for _, f := range faults {
					bad[f.File] = true
					if err := a.tell("%v\n", f); err != nil {
						return err
					}
				}
				usable = append(usable, good...)
			}
			if len(usable) > 0 {
				if err := a.print([]report.Section{scenarioSection(usable)}); err != nil {
					return err
				}
			}
			if len(bad) > 0 {
				return &partialError{fmt.Errorf("%d of %d scenarios cannot be used; mend the fields that are named", len(bad), len(bad)+len(usable))}
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&lenient, "lenient", false, "understand other names of fields, and pass over those that are not known")
	return cmd
}

// scenarioSection says what scenarios hold.
func scenarioSection(all []scenario.Scenario) report.Section {
	t := report.Table{Columns: report.Columns("scenario", "domain", "parties>", "topics>", "options", "third party",
		"history", "weights")}
	for _, s := range all {
		var options []string
		for _, topic := range s.Topics {
			options = append(options, fmt.Sprint(len(topic.Options)))
		}
		third := ""
		if s.Third != nil {
			third = s.Third.Name
		}
		t.Add(s.ID, s.Domain, len(s.Parties), len(s.Topics), strings.Join(options, " "), third,
			yesNo(len(s.History) > 0), yesNo(s.Parties[0].Weights != nil))
	}
	return report.Section{Title: fmt.Sprintf("Scenarios: %d", len(all)), Tables: []report.Table{t}}
}

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

// expandCall is a call of socrates scenarios expand.
type expandCall struct {
	lenient bool
	out     string
	names   []string
	writer  string
	seed    int64
	models  fleet.Flags
}

func (a *app) scenariosExpandCmd() *cobra.Command {
	c := &expandCall{}
	cmd := &cobra.Command{
		Use:   "expand PATH",
		Short: "Put scenarios under the 15 social conditions",
		Long: `expand lists what each scenario becomes under the conditions: general; a strategy that
all parties are told (competing, avoiding, accommodating); a third party; a history
before the background; emotion (C composed, R reactive) and culture (US, CN, KR), one
kind a party. Which party is dealt which kind of an unequal pair follows from the
scenario and the condition, and is the same every time. A scenario without a third
party or a history is left out of that condition.

With --out each case is written to a file SCENARIO.CONDITION.json.

With --writer a model writes the third parties and histories that scenarios lack, and
--out gets the scenarios themselves, SCENARIO.json, to read, edit and give to
socrates run. An answer that cannot be used is asked for again from other seeds; after
the third one the part is left out, and named with what was wrong.`,
		Example: `  ccmed socrates scenarios expand sample
  ccmed socrates scenarios expand sample --conditions emotion,culture:US-KR --out cases
  ccmed socrates scenarios expand my-disputes --writer qwen2.5:14b --out complete`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			conditions, err := scenario.Choose(c.names)
			if err != nil {
				return usagef("--conditions: %v", err)
			}
			all, err := scenario.Read(args[0], c.lenient)
			if err != nil {
				return err
			}
			if c.writer != "" {
				return a.completeScenarios(cmd.Context(), c, all, conditions)
			}
			return a.writeCases(c.out, all, conditions)
		},
	}
	f := cmd.Flags()
	f.StringVar(&c.out, "out", "", "folder to write the cases to, or with --writer the scenarios")
	f.StringSliceVar(&c.names, "conditions", nil, "names or axes of conditions, separated by commas (default: all 15)")
	f.BoolVar(&c.lenient, "lenient", false, "understand other names of fields, and pass over those that are not known")
	f.StringVar(&c.writer, "writer", "", "model that writes the third parties and histories that scenarios lack")
	f.Int64Var(&c.seed, "seed", 1, "seed of the writer")
	models := pflag.NewFlagSet("", pflag.ContinueOnError)
	c.models.Register(models)
	for _, name := range []string{"backend", "host", "num-ctx", "gpu-layers", "threads", "cache", "patience", "request-timeout", "chat-template", "continue-final"} {
		f.AddFlag(models.Lookup(name))
	}
	return cmd
}

// writeCases shows scenarios under conditions, or writes them to a folder.
func (a *app) writeCases(out string, all []scenario.Scenario, conditions []scenario.Condition) error {
	section, cases := expandScenarios(all, conditions)
	if out == "" {
		return a.print([]report.Section{section})
	}
	if err := os.MkdirAll(out, 0o755); err != nil {
		return fmt.Errorf("make the folder of the cases: %w", err)
	}
	for _, c := range cases {
		name := c.Scenario.ID + "." + strings.ReplaceAll(c.Condition, ":", "-") + ".json"
		if err := writeJSON(filepath.Join(out, name), c); err != nil {
			return err
		}
	}
	a.note("wrote %d cases to %s", len(cases), out)
	return nil
}

// expandScenarios shows scenarios under conditions, and what they lack for some.
func expandScenarios(all []scenario.Scenario, conditions []scenario.Condition) (report.Section, []scenario.Case) {
	t := report.Table{Columns: report.Columns("scenario", "condition", "parties>", "dealt")}
	s := report.Section{}
	var out []scenario.Case
	for _, sc := range all {
		cases, left := scenario.Expand(sc, conditions)
		for _, c := range cases {
			var dealt []string
			for _, p := range c.Scenario.Parties {
				if kind := c.Kinds[p.ID]; kind != "" {
					dealt = append(dealt, p.ID+" "+kind)
				}
			}
			t.Add(sc.ID, c.Condition, len(c.Scenario.Parties), strings.Join(dealt, ", "))
		}
		for _, m := range left {
			s.Notes = append(s.Notes, "left out: "+m.String())
		}
		out = append(out, cases...)
	}
	s.Title, s.Tables = fmt.Sprintf("Cases: %d of %d scenarios", len(out), len(all)), []report.Table{t}
	return s, out
}

// writeJSON writes a value to a new file.
func writeJSON(path string, v any) error {
	b, err := scenario.Encode(v)
	if err != nil {
		return fmt.Errorf("encode %s: %w", path, err)
	}
	if err := absent(path); err != nil {
		return err
	}
	return disk.WriteFile(path, b, 0o644)
}

func (a *app) scenariosImportCmd() *cobra.Command {
	var out, domain string
	cmd := &cobra.Command{
		Use:   "import FILE|DIR...",
		Short: "Make files of the cases of ProMediate or of the embedded ones",
		Long: `import reads cases of ProMediate (MIT licence; their repository's six *.json files) and
writes a scenario of each. Topics and their options are taken from the case; a party
keeps its instructions as its profile. The cases give no weights, and parties speak in
the order of their names. Domains of the released cases are known; name that of
another one with --domain.

"sample" writes the embedded scenarios, as a pattern for your own.`,
		Example: `  ccmed socrates scenarios import promediate --out disputes
  ccmed socrates scenarios import sample --out disputes`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			if out == "" {
				return usagef("no --out folder given")
			}
			if domain != "" && !slices.Contains(scenario.Domains(), domain) {
				return usagef("--domain %q; known are %s", domain, strings.Join(scenario.Domains(), ", "))
			}
			var all []scenario.Scenario
			for _, path := range args {
				some, err := importScenarios(path, domain)
				if err != nil {
					return err
				}
				all = append(all, some...)
			}
			if err := os.MkdirAll(out, 0o755); err != nil {
				return fmt.Errorf("make the folder of the scenarios: %w", err)
			}
			for _, s := range all {
				if err := writeJSON(filepath.Join(out, s.ID+".json"), s); err != nil {
					return err
				}
			}
			if err := a.print([]report.Section{scenarioSection(all)}); err != nil {
				return err
			}
			a.note("wrote %d scenarios to %s", len(all), out)
			return nil
		},
	}
	f := cmd.Flags()
	f.StringVar(&out, "out", "", "folder to write to")
	f.StringVar(&domain, "domain", "", "domain of the cases, where it is not known")
	return cmd
}

func importScenarios(path, domain string) ([]scenario.Scenario, error) {
	if path == scenario.Sample {
		return scenario.Read(path, false)
	}
	files, err := scenario.Files(path)
	if err != nil {
		return nil, err
	}
	var out []scenario.Scenario
	var faults []error
	for _, name := range files {
		s, err := scenario.ImportProMediate(name, domain)
		if err != nil {
			faults = append(faults, err)
			continue
		}
		out = append(out, s)
	}
	return out, errors.Join(faults...)
}
