package page

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/ccmed/ccmed/bench/report"
	"github.com/ccmed/ccmed/bench/run"
	"github.com/ccmed/ccmed/bench/task"
	"github.com/ccmed/ccmed/infer"
)

// whatWasRun says everything that it takes to repeat a run: models, data, settings,
// the command, and the prompts as the models read them.
func whatWasRun(r *task.Run, command func(run.Manifest) string) (report.Section, error) {
	m := r.Manifest()
	id := m.Identity
	t := report.NewFacts()
	t.Add("task", id.Task)
	t.Add("status", m.Status)
	t.Add("ccmed", id.Version)
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
		t.Add(strings.Join(roles[m], ", "), m)
	}
	t.Add("data", task.DataOf(id))
	t.Add("data hash", id.DataHash)
	t.Add(r.Bench.About().Item+"s", fmt.Sprintf("%d, %s", len(id.Items), id.ItemsHash))
	t.Add("seed", fmt.Sprint(id.Seed))
	var templates []string
	for _, p := range slices.Sorted(maps.Keys(id.Prompts)) {
		templates = append(templates, p+" "+id.Prompts[p])
	}
	t.Add("prompt templates", strings.Join(templates, "\n"))
	t.Add("made from", id.Parent)
	t.Add("shard", id.Shard)
	t.Add("merged from", strings.Join(m.Merged, "\n"))
	t.Add("samples", strings.TrimSuffix(fmt.Sprintf("%d, %s", m.Samples, m.SamplesHash), ", "))
	for _, s := range m.Sessions {
		t.Add("session", sessionFacts(s))
	}
	var passages []report.Passage
	if text := command(m); text != "" {
		passages = append(passages, report.Passage{Title: "Command to repeat it, given in " + m.Sessions[0].Dir, Text: text, Open: true})
	}
	options, err := json.MarshalIndent(id.Options, "", "  ")
	if err != nil {
		return report.Section{}, fmt.Errorf("show the options of %s: %w", m.Path, err)
	}
	if len(id.Options) > 0 {
		passages = append(passages, report.Passage{Title: "Every option", Text: string(options)})
	}
	prompts, err := firstPrompts(r)
	return report.Section{Title: "What was run, and how to repeat it", Tables: []report.Table{t.Table}, Passages: append(passages, prompts...)}, err
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
func firstPrompts(r *task.Run) ([]report.Passage, error) {
	first, err := r.FirstPrompts()
	if err != nil || len(first) == 0 {
		return nil, err
	}
	var hashes []string
	for _, p := range first {
		hashes = append(hashes, p.Hash)
	}
	texts, total, err := PromptTexts(r.Dir, hashes)
	if err != nil {
		return nil, err
	}
	group := fmt.Sprintf("Prompts as the models read them: the first of each step and condition, %d of %d", len(first), total)
	var out []report.Passage
	for _, p := range first {
		text, ok := texts[p.Hash]
		if !ok {
			text = "This prompt is not in " + run.PromptsFile + "."
		}
		out = append(out, report.Passage{Group: group, Title: fmt.Sprintf("%s, %s %s", strings.TrimSpace(p.Step+" "+p.Condition), r.Bench.About().Item, p.Item), Text: text})
	}
	return out, nil
}

// PromptTexts reads those prompts of a run that have the wanted hashes, as the
// models read them, and counts all.
func PromptTexts(dir *run.Dir, hashes []string) (texts map[string]string, total int, err error) {
	texts = map[string]string{}
	wanted := map[string]bool{}
	for _, h := range hashes {
		wanted[h] = true
	}
	for p, err := range dir.Prompts() {
		if err != nil {
			return nil, 0, err
		}
		total++
		if !wanted[p.Hash] {
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
