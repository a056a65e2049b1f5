package main

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ccmed/ccmed/bench/folder"
	"github.com/ccmed/ccmed/bench/page"
	"github.com/ccmed/ccmed/bench/report"
	"github.com/ccmed/ccmed/bench/run"
	"github.com/ccmed/ccmed/bench/task"
	"github.com/ccmed/ccmed/cmd/ccmed/internal/cli"
	"github.com/ccmed/ccmed/infer"
	"github.com/ccmed/ccmed/sft"
)

// showFlags choose what is shown of a folder.
type showFlags struct {
	section                        string
	samples, unscored, prompts     bool
	item, step, condition          string
	itemSet, stepSet, conditionSet bool
	choosing                       bool // among samples, by any of the options for that
}

func (a *app) runsShowCmd() *cobra.Command {
	var f showFlags
	cmd := &cobra.Command{
		Use:   "show RUN",
		Short: "Show what a run was and what it found, or its samples",
		Long: `show says what a folder is and what was found: of a run, a store of hidden states, a
training, an export, a package or a suite. --section keeps the parts whose title holds
the text.

--samples lists a run's samples instead; --item, --step, --condition and --unscored
choose among them. With --item each one is shown whole, with --prompts also what the
model read.`,
		Example: `  ccmed runs show runs/NAME
  ccmed runs show runs/NAME --section cost
  ccmed runs show runs/NAME --item 42 --prompts
  ccmed runs show runs/NAME --samples --unscored`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			fl := cmd.Flags()
			f.itemSet, f.stepSet, f.conditionSet = fl.Changed("item"), fl.Changed("step"), fl.Changed("condition")
			f.choosing = f.samples || f.itemSet || f.stepSet || f.conditionSet || f.unscored || f.prompts
			if f.choosing && f.section != "" {
				return usagef("--section chooses among findings and the other options among samples; give one of them")
			}
			return a.showFolder(cmd.Context(), args[0], f)
		},
	}
	fl := cmd.Flags()
	fl.StringVar(&f.section, "section", "", "only parts whose title holds this text")
	fl.BoolVar(&f.samples, "samples", false, "list the samples")
	fl.StringVar(&f.item, "item", "", "only samples of this dialogue, each whole")
	fl.StringVar(&f.step, "step", "", "only samples of this step")
	fl.StringVar(&f.condition, "condition", "", "only samples of this condition")
	fl.BoolVar(&f.unscored, "unscored", false, "only samples without a usable answer")
	fl.BoolVar(&f.prompts, "prompts", false, "with what the model read")
	return cmd
}

func (a *app) showFolder(ctx context.Context, path string, f showFlags) error {
	kind := folder.KindOf(path)
	if f.choosing && kind != folder.KindRun {
		return usagef("%s has no samples to choose among; it is %s", path, describeKind(kind))
	}
	if f.choosing {
		return a.showSamples(path, f)
	}
	if kind == folder.KindRun {
		return a.showRun(ctx, path, f.section)
	}
	sections, value, err := readSections(ctx, path, kind)
	if err != nil {
		return err
	}
	if a.json {
		return a.encode(value)
	}
	return a.printChosen(sections, f.section)
}

// describeKind says what a folder is in a sentence.
func describeKind(kind string) string {
	switch kind {
	case "":
		return "no folder that ccmed made"
	case folder.KindExport:
		return "an export of training data"
	case folder.KindPackage:
		return "a package of a tuned model"
	}
	return "a " + kind
}

// printChosen prints the sections whose title holds a text.
func (a *app) printChosen(sections []report.Section, text string) error {
	var chosen, titles []string
	var out []report.Section
	for _, s := range sections {
		titles = append(titles, s.Title)
		if strings.Contains(strings.ToLower(s.Title), strings.ToLower(text)) {
			chosen, out = append(chosen, s.Title), append(out, s)
		}
	}
	if len(chosen) == 0 {
		return usagef("no section's title holds %q; there are: %s", text, strings.Join(titles, "; "))
	}
	return a.print(out)
}

// showRun prints what a run was and, once it is finished, what came out.
func (a *app) showRun(ctx context.Context, path, section string) error {
	r, err := a.opened().Open(path)
	if err != nil {
		return err
	}
	m := r.Manifest()
	if a.json {
		return a.encode(m)
	}
	sections := []report.Section{{Title: path, Tables: []report.Table{a.manifestTable(m)}}}
	if m.Status == run.StatusDone {
		_, results, err := a.resultOf(ctx, r, task.ScoreOptions{})
		if err != nil {
			return err
		}
		if err := r.CheckSamples(); err != nil {
			return err
		}
		sections = append(sections, results...)
	} else {
		a.note("not finished; go on with: ccmed runs resume %s", path)
	}
	return a.printChosen(sections, section)
}

// manifestTable says what was run.
func (a *app) manifestTable(m run.Manifest) report.Table {
	t := report.NewFacts()
	t.Add("status", m.Status)
	t.Add("task", m.Identity.Task)
	t.Add("ccmed", m.Identity.Version)
	for _, r := range slices.Sorted(maps.Keys(m.Identity.Models)) {
		x := m.Identity.Models[r]
		t.Add(r, strings.TrimSpace(fmt.Sprintf("%s %s %s, num_ctx %d", x.Name, x.Quantization, infer.ShortDigest(x.Digest), m.Identity.NumCtx[r])))
	}
	t.Add("data", fmt.Sprintf("%s, %d items", infer.ShortDigest(m.Identity.DataHash), len(m.Identity.Items)))
	t.Add("samples", fmt.Sprint(m.Samples))
	for _, s := range m.Sessions {
		t.Add("session", fmt.Sprintf("%s on %s: %s", s.Start.Format("2006-01-02 15:04"), s.Environment.Host, s.Status))
	}
	t.Add("command", a.commandOf(m))
	return t.Table
}

// readSections describes a folder that is no run, as sections and as what it holds.
func readSections(ctx context.Context, path, kind string) ([]report.Section, any, error) {
	t := report.NewFacts()
	switch kind {
	case folder.KindTraining:
		m, err := sft.ReadTraining(path)
		if err != nil {
			return nil, nil, err
		}
		what, err := sft.Described(m, cli.CommandLine)
		if err != nil {
			return nil, nil, err
		}
		sections, err := sft.TrainSections(ctx, path)
		return append([]report.Section{what}, sections...), m, err
	case folder.KindPackage:
		c, err := sft.ReadCard(path)
		if err != nil {
			return nil, nil, err
		}
		t.Add("model in Ollama", c.Name)
		t.Add("digest", c.Digest)
		t.Add("quantization", c.Quantization)
		t.Add("base", strings.TrimSpace(c.Base.Name+" "+infer.ShortDigest(c.Base.Digest)))
		t.Add("threshold", fmt.Sprint(c.ThresholdDefault))
		if v := c.ThresholdValidation; v != nil {
			t.Add("threshold of validation", fmt.Sprintf("%.3f: TurnAcc %.3f on %d dialogues", v.Value, v.TurnAcc, v.N))
		}
		proofs := report.Table{Columns: report.Columns("proof", "holds", "detail")}
		for _, p := range c.Proofs {
			holds, detail := "yes", p.Detail
			if !p.OK {
				holds = "no"
			}
			if p.NotRun != "" {
				holds, detail = "not run", p.NotRun
			}
			proofs.Add(p.Name, holds, detail)
		}
		return []report.Section{{Title: "Package: " + path, Tables: []report.Table{t.Table}}, {Title: "Proofs", Tables: []report.Table{proofs}}}, c, nil
	case folder.KindExport:
		x, err := sft.ReadExport(path)
		if err != nil {
			return nil, nil, err
		}
		for _, name := range slices.Sorted(maps.Keys(x.Counts)) {
			t.Add(name, fmt.Sprintf("%d dialogues", x.Counts[name]))
		}
		for _, why := range slices.Sorted(maps.Keys(x.LeftOut)) {
			t.Add("left out", fmt.Sprintf("%d: %s", x.LeftOut[why], why))
		}
		t.Add("data", infer.ShortDigest(x.Data))
		return []report.Section{{Title: "Export of training data: " + path, Tables: []report.Table{t.Table}}}, x, nil
	case folder.KindSuite:
		r, err := folder.ReadSuite(path)
		if err != nil {
			return nil, nil, err
		}
		steps := report.Table{Columns: report.Columns("step", "status", "command")}
		for i, s := range r.Steps {
			steps.Add(s.Name, r.State(benches, path, i), cli.CommandLine(s.Command))
		}
		return []report.Section{{Title: fmt.Sprintf("Suite %s: %s", r.Suite, path), Tables: []report.Table{steps}}}, r, nil
	}
	return nil, nil, fmt.Errorf("%s is no folder that ccmed made: it has no %s, %s, %s, %s or %s (ccmed runs ls lists runs)", path,
		run.ManifestFile, sft.ManifestFile, sft.CardFile, folder.SuiteFile, sft.ExportFile)
}

// showSamples lists samples, or shows those of one item whole.
func (a *app) showSamples(path string, f showFlags) error {
	var more []string
	if f.prompts {
		more = []string{run.PromptsFile}
	}
	d, err := a.opened().Open(path, more...)
	if err != nil {
		return err
	}
	var chosen []run.Sample
	known := map[string]map[string]bool{"items": {}, "steps": {}, "conditions": {}}
	for s, err := range d.Samples() {
		if err != nil {
			return err
		}
		known["items"][s.Item], known["steps"][s.Step], known["conditions"][s.Condition] = true, true, true
		if (!f.itemSet || s.Item == f.item) && (!f.stepSet || s.Step == f.step) && (!f.conditionSet || s.Condition == f.condition) && (!f.unscored || s.Unscored != "") {
			chosen = append(chosen, s)
		}
	}
	for _, x := range []struct {
		set         bool
		value, what string
	}{{f.itemSet, f.item, "items"}, {f.stepSet, f.step, "steps"}, {f.conditionSet, f.condition, "conditions"}} {
		if x.set && !known[x.what][x.value] {
			return usagef("%s has no sample of %q; its %s are: %s", path, x.value, x.what, someOf(slices.Sorted(maps.Keys(known[x.what]))))
		}
	}
	if a.json {
		if chosen == nil {
			chosen = []run.Sample{}
		}
		return a.encode(chosen)
	}
	if !f.itemSet && !f.prompts {
		return a.print([]report.Section{sampleList(path, chosen)})
	}
	var hashes []string
	if f.prompts {
		for _, s := range chosen {
			hashes = append(hashes, s.Prompts...)
		}
	}
	texts, _, err := page.PromptTexts(d.Dir, hashes)
	if err != nil {
		return err
	}
	var sections []report.Section
	for _, s := range chosen {
		section, err := sampleSection(s)
		if err != nil {
			return fmt.Errorf("%s: sample of %s: %w", path, s.Key, err)
		}
		sections = append(sections, section)
		if f.prompts {
			for i, h := range s.Prompts {
				sections = append(sections, report.Section{Title: fmt.Sprintf("Prompt %d of %d", i+1, len(s.Prompts)), Text: texts[h]})
			}
		}
	}
	if len(sections) == 0 {
		sections = []report.Section{{Title: "No sample is left", Notes: []string{"no sample meets all that was asked for"}}}
	}
	return a.print(sections)
}

// someOf names the first few.
func someOf(names []string) string {
	const most = 20
	if len(names) > most {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
	}
	return strings.Join(names, ", ")
}

func sampleList(path string, samples []run.Sample) report.Section {
	t := report.Table{Columns: report.Columns("step", "item", "condition", "answer", "prompts>", "tokens>", "seconds>")}
	for _, s := range samples {
		answer := "scored"
		if s.Unscored != "" {
			answer = "unscored: " + s.Unscored
		}
		t.Add(s.Step, s.Item, s.Condition, answer, len(s.Prompts), s.Usage.Evaluated+s.Usage.Generated,
			report.Num(s.Seconds, 2))
	}
	return report.Section{Title: fmt.Sprintf("%d samples of %s", len(samples), path), Tables: []report.Table{t}}
}

// sampleSection shows a sample whole, whatever its form: single values as facts,
// lists of records as tables. Raw alternatives of tokens are left to the JSON.
func sampleSection(s run.Sample) (report.Section, error) {
	section := report.Section{Title: strings.ToUpper(s.Key.String()[:1]) + s.Key.String()[1:]}
	if s.Unscored != "" {
		section.Notes = []string{"unscored: " + s.Unscored}
	}
	var data map[string]any
	if len(s.Data) > 0 {
		if err := json.Unmarshal(s.Data, &data); err != nil {
			return section, fmt.Errorf("its data are no record: %w", err)
		}
	}
	t := report.NewFacts()
	var tables []report.Table
	for _, name := range slices.Sorted(maps.Keys(data)) {
		switch v := data[name].(type) {
		case map[string]any:
			tables = append(tables, recordTable(name, []any{v}))
		case []any:
			if len(v) > 0 {
				if _, ok := v[0].(map[string]any); ok {
					if name != rawAlternatives {
						tables = append(tables, recordTable(name, v))
					}
					continue
				}
			}
			t.Add(name, plainValue(v))
		default:
			t.Add(name, plainValue(v))
		}
	}
	t.Add("seconds", fmt.Sprintf("%.2f", s.Seconds))
	section.Tables = append([]report.Table{t.Table}, tables...)
	return section, nil
}

// rawAlternatives is the field of the tokens that a model could have said instead.
const rawAlternatives = "top"

// recordTable shows records with a column for each field that any of them has.
func recordTable(title string, records []any) report.Table {
	t := report.Table{Title: title}
	names := map[string]bool{}
	for _, r := range records {
		if m, ok := r.(map[string]any); ok {
			for name := range m {
				names[name] = name != rawAlternatives
			}
		}
	}
	var columns []string
	for _, name := range slices.SortedFunc(maps.Keys(names), byRecordOrder) {
		if names[name] {
			columns = append(columns, name)
			t.Columns = append(t.Columns, report.Column{Name: name})
		}
	}
	for _, r := range records {
		m, _ := r.(map[string]any)
		var row []report.Cell
		for _, name := range columns {
			row = append(row, report.Text(plainValue(m[name])))
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}

// byRecordOrder puts what a record is of before what it says.
func byRecordOrder(a, b string) int {
	rank := func(s string) int {
		if i := slices.Index([]string{"t", "turn", "agent", "stage"}, s); i >= 0 {
			return i
		}
		return len(s) + 10 // the shorter names are the plainer ones
	}
	if d := rank(a) - rank(b); d != 0 {
		return d
	}
	return strings.Compare(a, b)
}

// plainValue writes a JSON value for a reader.
func plainValue(v any) string {
	switch x := v.(type) {
	case nil:
		return ""
	case string:
		return x
	case bool:
		return strconv.FormatBool(x)
	case float64:
		return strconv.FormatFloat(x, 'g', 4, 64)
	case []any:
		var parts []string
		for _, y := range x {
			parts = append(parts, plainValue(y))
		}
		return strings.Join(parts, " ")
	}
	b, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprint(v)
	}
	return string(b)
}
