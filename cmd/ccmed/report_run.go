package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/ccmed/ccmed/bench/report"
	"github.com/ccmed/ccmed/bench/run"
	"github.com/ccmed/ccmed/infer"
	"github.com/ccmed/ccmed/sft"
)

// facts is a table of names and values under construction.
type facts struct{ report.Table }

func newFacts() *facts {
	return &facts{report.Table{Columns: []report.Column{{Name: "fact"}, {Name: "value"}}}}
}

// add adds a fact unless it is empty.
func (f *facts) add(name, value string) {
	if value != "" {
		f.Rows = append(f.Rows, []report.Cell{report.Text(name), report.Text(value)})
	}
}

// whatWasRun says everything that it takes to repeat a run: models, data, settings,
// the command, and the prompts as the models read them.
func whatWasRun(dir *run.Dir) (report.Section, error) {
	m := dir.Manifest()
	id := m.Identity
	t := newFacts()
	t.add("task", id.Task)
	t.add("status", m.Status)
	t.add("ccmed", id.Version)
	roles := map[string][]string{} // by what they are played by
	var models []string
	for _, role := range slices.Sorted(maps.Keys(id.Models)) {
		m := modelFacts(id.Models[role], id.NumCtx[role])
		if roles[m] == nil {
			models = append(models, m)
		}
		roles[m] = append(roles[m], role)
	}
	for _, m := range models {
		t.add(strings.Join(roles[m], ", "), m)
	}
	if data, _ := id.Options["data"].(string); data != "" {
		t.add("data", data)
	}
	t.add("data hash", id.DataHash)
	t.add("dialogues", fmt.Sprintf("%d, %s", len(id.Items), id.ItemsHash))
	t.add("seed", fmt.Sprint(id.Seed))
	var templates []string
	for _, p := range slices.Sorted(maps.Keys(id.Prompts)) {
		templates = append(templates, p+" "+id.Prompts[p])
	}
	t.add("prompt templates", strings.Join(templates, "\n"))
	t.add("made from", id.Parent)
	t.add("shard", id.Shard)
	t.add("merged from", strings.Join(m.Merged, "\n"))
	t.add("samples", strings.TrimSuffix(fmt.Sprintf("%d, %s", m.Samples, m.SamplesHash), ", "))
	for _, s := range m.Sessions {
		t.add("session", sessionFacts(s))
	}
	var passages []report.Passage
	if command := commandOf(m); command != "" {
		passages = append(passages, report.Passage{Title: "Command to repeat it, given in " + m.Sessions[0].Dir, Text: command, Open: true})
	}
	options, err := json.MarshalIndent(id.Options, "", "  ")
	if err != nil {
		return report.Section{}, fmt.Errorf("show the options of %s: %w", m.Path, err)
	}
	if len(id.Options) > 0 {
		passages = append(passages, report.Passage{Title: "Every option", Text: string(options)})
	}
	prompts, err := firstPrompts(dir)
	return report.Section{Title: "What was run", Tables: []report.Table{t.Table}, Passages: append(passages, prompts...)}, err
}

func modelFacts(x infer.Model, numCtx int) string {
	lines := []string{strings.Join(nonempty(x.Name, x.Quantization, x.Parameters, x.Architecture), ", "), strings.Join(nonempty(x.Digest, x.Backend), ", ")}
	if x.TemplateHash != "" {
		lines = append(lines, "chat template "+x.TemplateHash)
	}
	if numCtx > 0 {
		lines = append(lines, fmt.Sprintf("context of %d tokens", numCtx))
	}
	return strings.Join(nonempty(lines...), "\n")
}

func nonempty(ss ...string) []string {
	return slices.DeleteFunc(ss, func(s string) bool { return s == "" })
}

func sessionFacts(s run.Session) string {
	e := s.Environment
	what := s.Start.Format("2006-01-02 15:04") + " UTC, " + s.Status
	if !s.End.IsZero() {
		what += " after " + s.End.Sub(s.Start).Round(time.Second).String()
	}
	servers := map[string]bool{}
	for _, v := range e.Servers {
		servers["server "+v] = true
	}
	where := append([]string{e.Host, e.OS, fmt.Sprintf("%d CPUs", e.CPUs)}, e.GPUs...)
	if e.Driver != "" {
		where = append(where, "driver "+e.Driver)
	}
	where = append(where, slices.Sorted(maps.Keys(servers))...)
	return what + "\n" + strings.Join(nonempty(append(where, e.Go)...), ", ")
}

// firstPrompts shows, for every step and condition of a run, the first prompt that
// a model read. All of them can be many times as large as the rest of a report.
func firstPrompts(dir *run.Dir) ([]report.Passage, error) {
	type place struct{ step, condition string }
	first := map[place]string{} // hashes
	var places []place
	items := map[place]string{}
	for s, err := range dir.All() {
		if err != nil {
			return nil, err
		}
		p := place{s.Step, s.Condition}
		if _, seen := first[p]; seen || len(s.Prompts) == 0 {
			continue
		}
		first[p], items[p] = s.Prompts[0], s.Item
		places = append(places, p)
	}
	if len(places) == 0 {
		return nil, nil
	}
	texts, total, err := promptTexts(dir, slices.Collect(maps.Values(first)))
	if err != nil {
		return nil, err
	}
	group := fmt.Sprintf("Prompts as the models read them: the first of each step and condition, %d of %d", len(places), total)
	var out []report.Passage
	for _, p := range places {
		text, ok := texts[first[p]]
		if !ok {
			text = "This prompt is not in " + run.PromptsFile + "."
		}
		out = append(out, report.Passage{Group: group, Title: fmt.Sprintf("%s, dialogue %s", strings.TrimSpace(p.step+" "+p.condition), items[p]), Text: text})
	}
	return out, nil
}

// promptTexts reads those prompts of a run that have the wanted hashes, as the
// models read them, and counts all.
func promptTexts(dir *run.Dir, hashes []string) (texts map[string]string, total int, err error) {
	texts = map[string]string{}
	for p, err := range dir.Prompts() {
		if err != nil {
			return nil, 0, err
		}
		total++
		if !slices.Contains(hashes, p.Hash) {
			continue
		}
		texts[p.Hash] = p.Rendered
		if p.Rendered == "" && p.Prompt != nil {
			texts[p.Hash] = plainPrompt(*p.Prompt)
		}
	}
	return texts, total, nil
}

// plainPrompt writes a prompt whose rendering the server did not show.
func plainPrompt(p infer.Prompt) string {
	var b strings.Builder
	for _, m := range p.Messages {
		fmt.Fprintf(&b, "[%s]\n%s\n\n", m.Role, m.Content)
	}
	return b.String() + p.Raw
}

// whatWasTrained says everything that it takes to repeat a training.
func whatWasTrained(m *sft.Manifest) (report.Section, error) {
	t := newFacts()
	t.add("task", "training")
	t.add("status", m.Status)
	t.add("ccmed", m.Version)
	t.add("training scripts", m.Scripts)
	t.add("base", strings.Join(nonempty(base(m), m.Base.Source, "checkpoint "+m.Base.Digest, fmt.Sprintf("%s, %d parameters", m.Base.Type, m.Base.Parameters)), "\n"))
	if x := m.Export; x != nil {
		t.add("data", m.Config.Data)
		t.add("data hash", strings.Join(nonempty(x.Data, "export "+m.ExportDigest), "\n"))
		t.add("dialogues", fmt.Sprintf("%d for training, %d for validation", x.Counts["train"], x.Counts["valid"]))
	}
	t.add("seed", fmt.Sprint(m.Config.Seed))
	for _, s := range m.Sessions {
		e := s.Environment
		var packages []string
		for _, p := range slices.Sorted(maps.Keys(e.Packages)) {
			packages = append(packages, p+" "+e.Packages[p])
		}
		t.add("session", fmt.Sprintf("%s UTC, %s\nPython %s, %s", s.Started.UTC().Format("2006-01-02 15:04"), s.Status, e.Version, strings.Join(packages, ", ")))
	}
	command, err := trainCommand(m)
	if err != nil {
		return report.Section{}, err
	}
	settings, err := json.MarshalIndent(m.Config, "", "  ")
	if err != nil {
		return report.Section{}, fmt.Errorf("show the settings of the training: %w", err)
	}
	return report.Section{Title: "What was trained", Tables: []report.Table{t.Table},
		Passages: []report.Passage{{Title: "Command to repeat it, rebuilt from its settings", Text: command, Open: true}, {Title: "Every setting", Text: string(settings)}}}, nil
}

func base(m *sft.Manifest) string {
	if m.Base.From != "" {
		return m.Base.From
	}
	return m.Base.Dir
}

// trainCommand rebuilds the command line of a training from what differs from its
// preset.
func trainCommand(m *sft.Manifest) (string, error) {
	args := []string{"sft", "train", "--base", base(m), "--data", m.Config.Data}
	preset, err := sft.Preset(m.Preset)
	if err != nil {
		preset = sft.Config{} // every setting is told
	} else {
		args = append(args, "--preset", m.Preset)
	}
	now, err := settings(m.Config)
	if err != nil {
		return "", err
	}
	then, err := settings(preset)
	if err != nil {
		return "", err
	}
	for _, name := range slices.Sorted(maps.Keys(now)) {
		v := now[name]
		if slices.Contains([]string{"base", "data", "out", "resume"}, name) || v == nil || reflect.DeepEqual(v, then[name]) {
			continue
		}
		value := fmt.Sprint(v)
		switch v := v.(type) {
		case []any:
			value = strings.Trim(strings.Join(strings.Fields(fmt.Sprint(v)), ","), "[]")
		case map[string]any:
			value = fmt.Sprintf("%v,%v,%v", v[sft.TurnEnd], v[sft.Speak], v[sft.EndSpeak])
		}
		args = append(args, "--"+strings.ReplaceAll(name, "_", "-")+"="+value)
	}
	if n := len(m.Sessions); n > 0 && m.Sessions[n-1].Processes > 1 {
		args = append(args, fmt.Sprintf("--nproc=%d", m.Sessions[n-1].Processes))
	}
	return commandLine(args), nil
}

// settings are a configuration's fields by their names in JSON.
func settings(c sft.Config) (map[string]any, error) {
	b, err := json.Marshal(c)
	if err != nil {
		return nil, fmt.Errorf("encode the settings: %w", err)
	}
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.UseNumber() // a flag takes 1000000, not 1e+06
	var out map[string]any
	return out, dec.Decode(&out)
}
