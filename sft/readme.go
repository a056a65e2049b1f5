package sft

import (
	"bytes"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/ccmed/ccmed/bench/disk"
	"github.com/ccmed/ccmed/bench/report"
	"github.com/ccmed/ccmed/infer"
)

// ReadmeFile is the card of an export or a package for people, with the header that Hugging
// Face reads of data sets and models.
const ReadmeFile = "README.md"

// unknownLicence is Hugging Face's word for a licence that nobody has stated.
const unknownLicence = "unknown"

// writeReadme writes a card: its header, a title, what is to be known, and sections.
func writeReadme(dir string, header any, title, text string, sections []report.Section) error {
	head, err := yaml.Marshal(header)
	if err != nil {
		return fmt.Errorf("write the header of %s: %w", ReadmeFile, err)
	}
	var b bytes.Buffer
	fmt.Fprintf(&b, "---\n%s---\n\n# %s\n\n%s\n", head, title, text)
	if err := report.Write(&b, report.Markdown, sections, report.Options{}); err != nil {
		return err
	}
	if err := disk.WriteEntry(filepath.Join(dir, ReadmeFile), b.Bytes(), 0o644); err != nil {
		return fmt.Errorf("write %s: %w", ReadmeFile, err)
	}
	return nil
}

// dataFile is a file of a data set for Hugging Face's header.
type dataFile struct {
	Split string `yaml:"split"`
	Path  string `yaml:"path"`
}

type dataConfig struct {
	Name  string     `yaml:"config_name"`
	Files []dataFile `yaml:"data_files"`
}

type dataHeader struct {
	Licence string       `yaml:"license"`
	Tasks   []string     `yaml:"task_categories"`
	Tags    []string     `yaml:"tags"`
	Sizes   []string     `yaml:"size_categories"`
	Configs []dataConfig `yaml:"configs"`
}

// writeReadme writes the data set's card into the folder of an export.
func (e *Export) writeReadme(dir string) error {
	c, total := dataConfig{Name: "default"}, 0
	for _, f := range []struct{ count, split, path string }{{"train", "train", TrainFile}, {"valid", "validation", ValidFile}, {"heldout", "test", HeldOutFile}} {
		if n := e.Counts[f.count]; n > 0 {
			c.Files, total = append(c.Files, dataFile{f.split, f.path}), total+n
		}
	}
	size := "n<1K"
	switch {
	case total >= 100_000:
		size = "100K<n<1M"
	case total >= 10_000:
		size = "10K<n<100K"
	case total >= 1000:
		size = "1K<n<10K"
	}
	text := fmt.Sprintf(`Sequences made by ccmed sft export of %d mediation dialogues, for a model that decides when to step in and says the line.
Made from records whose contents come to %s.

A line holds text, the sequence in which %s ends a turn and the line stands between %s and %s; labels, one decision at each
turn up to the gold turn, which is the last; and the dialogue's stage, dimension, countries and a hash of its scenario context.

## Limits

- The licence is that of the records, which ccmed does not know: put it into the header before you publish this folder.
- The gold turns and lines are those of the records; whether another turn or line would be as good is not in the data.
- Validation dialogues share no scenario context with training ones. What is shared with the evaluation split stands below, where there was one.
`, total, e.Data, code(e.Markers.TurnEnd), code(e.Markers.Speak), code(e.Markers.EndSpeak))
	if e.LaterTurns {
		text = strings.Replace(text, "turn up to the gold turn, which is the last;", "turn, also after the gold one;", 1)
	}
	return writeReadme(dir, dataHeader{unknownLicence, []string{"text-generation", "text-classification"}, []string{"mediation", "ccmed"}, []string{size}, []dataConfig{c}},
		"Training data for mediation", text, e.Sections())
}

func code(s string) string { return "`" + s + "`" }

type modelHeader struct {
	Licence  string   `yaml:"license"`
	Base     string   `yaml:"base_model"`
	Pipeline string   `yaml:"pipeline_tag"`
	Tags     []string `yaml:"tags"`
}

// writeReadme writes the model's card into the package.
func (p *Package) writeReadme() error {
	licence := baseLicence(p.Training.Base.Dir)
	stated := "The base states the licence " + licence + "; the tuned weights are under it too."
	if licence == unknownLicence {
		stated = "The base's folder states no licence. That of the base holds for the tuned weights: look it up where the base is from, before you pass them on."
	}
	c, base := p.Card, p.Card.Base.Name
	if filepath.IsAbs(base) {
		base = filepath.Base(base) // where it lay is nobody else's business
	}
	text := fmt.Sprintf(`A dual-head model for mediation: %s, tuned from %s by ccmed sft. %s holds the weights with the markers
that structure a dialogue, %s the linear head that decides at each turn whether to speak. %s says all of this for programs.

    ccmed sft predict --model FOLDER --data DATA

%s

## Limits

- TurnAcc below is of validation dialogues from the same source. It says nothing of other conflicts, languages or people.
- Where it is no better than the baselines beside it, the model has learnt what they know.
- What the line does to the people is not measured by training: ccmed mediate measures it on simulated ones, not on people.
- Do not let it speak in a conflict between people unless a person checks what it says.
`, code(ModelFile), base, code(ModelFile), code(HeadFile), code(CardFile), stated)
	sections := slices.Concat([]report.Section{c.Section()}, p.sections)
	if p.Training.Export != nil {
		sections = append(sections, p.Training.Export.Sections()...)
	}
	return writeReadme(p.Dir, modelHeader{licence, base, "text-generation", []string{"mediation", "ccmed", "gguf"}}, c.Name, text, sections)
}

// licenceLine is where the card of a Hugging Face checkpoint states the licence.
var licenceLine = regexp.MustCompile(`(?m)^license: *["']?([\w.-]+)`)

// baseLicence is what the card in a checkpoint's folder states.
func baseLicence(dir string) string {
	b, err := disk.ReadEntry(filepath.Join(dir, ReadmeFile), disk.MaxText)
	if err != nil {
		return unknownLicence // a checkpoint need not have a card
	}
	parts := strings.SplitN(string(b), "---\n", 3)
	if len(parts) < 3 || parts[0] != "" {
		return unknownLicence
	}
	if m := licenceLine.FindStringSubmatch(parts[1]); m != nil {
		return m[1]
	}
	return unknownLicence
}

// Sections says what an export holds.
func (e *Export) Sections() []report.Section {
	counts := report.Table{Columns: report.Columns("records", "count>")}
	row := func(t *report.Table, cells ...report.Cell) { t.Rows = append(t.Rows, cells) }
	for _, k := range []string{"train", "valid", "heldout"} {
		if n, ok := e.Counts[k]; ok {
			row(&counts, report.Text(k), report.Int(n))
		}
	}
	for reason, n := range e.LeftOut {
		row(&counts, report.Text("left out: "+reason), report.Int(n))
	}
	slices.SortStableFunc(counts.Rows[len(e.Counts):], func(x, y []report.Cell) int { return strings.Compare(x[0].String(), y[0].String()) })
	row(&counts, report.Text("decisions, positive"), report.Int(e.Positives))
	row(&counts, report.Text("decisions, negative"), report.Int(e.Negatives))
	row(&counts, report.Text("positive weight"), report.Num(e.PosWeight, 3))
	turns := report.Table{Title: "Gold turn, training", Columns: report.Columns("turn>", "records>")}
	for t := range 64 {
		if e.Turns[t] > 0 {
			row(&turns, report.Text(strconv.Itoa(t)), report.Int(e.Turns[t]))
		}
	}
	sections := []report.Section{{Title: "Training data", Tables: []report.Table{counts, turns}}}
	if len(e.Holdout.Keys) > 0 {
		sections[0].Notes = append(sections[0].Notes, fmt.Sprintf("held out: %d of %d %s keys: %s", len(e.Holdout.Keys), e.Holdout.Of, e.Holdout.Kind, strings.Join(e.Holdout.Keys, "; ")))
	}
	leaks := report.Table{Columns: report.Columns("shared with training")}
	var sets []Leaks
	for _, name := range []string{"evaluation", "heldout"} {
		if l, ok := e.Leaks[name]; ok {
			leaks.Columns = append(leaks.Columns, report.Column{Name: name, Align: report.Right})
			sets = append(sets, l)
		}
	}
	for _, r := range []struct {
		name string
		of   func(Leaks) Overlap
	}{
		{"dialogues whose scenario context is trained on", func(l Leaks) Overlap { return l.Contexts }},
		{"dialogues whose question is trained on", func(l Leaks) Overlap { return l.Templates }},
		{"value statements trained on", func(l Leaks) Overlap { return l.Values }},
		{"dialogues whose countries are trained on", func(l Leaks) Overlap { return l.Countries }},
	} {
		cells := []report.Cell{report.Text(r.name)}
		for _, l := range sets {
			cells = append(cells, report.Text(report.Pct(r.of(l).Shared, r.of(l).Of)))
		}
		row(&leaks, cells...)
	}
	if len(sets) > 0 {
		sections = append(sections, report.Section{Title: "Leaks", Tables: []report.Table{leaks},
			Notes: []string{"training here is train.jsonl and valid.jsonl together"}})
	} else {
		sections[0].Notes = append(sections[0].Notes, "the data has no evaluation split beside it: leaks are not counted")
	}
	if t := e.Tokens; t != nil {
		table := report.Table{Columns: report.Columns("tokens of " + t.Model)}
		for _, c := range []string{"total", "min", "median", "95 %", "max"} {
			table.Columns = append(table.Columns, report.Column{Name: c, Align: report.Right})
		}
		add := func(name string, l Lengths) {
			row(&table, report.Text(name), report.Int(l.Total), report.Int(l.Min), report.Int(l.Median), report.Int(l.P95), report.Int(l.Max))
		}
		for _, file := range []string{TrainFile, ValidFile, HeldOutFile} {
			if l, ok := t.Files[file]; ok {
				add(file, l)
			}
		}
		add("dialogues at inference", t.Dialogue)
		s := report.Section{Title: "Tokens", Tables: []report.Table{table}}
		if t.Context > 0 {
			s.Notes = []string{fmt.Sprintf("the model's context is %d tokens", t.Context)}
		}
		sections = append(sections, s)
	}
	return sections
}

// Section says what a package is and what was proved of it.
func (c *Card) Section() report.Section {
	t := report.Table{Columns: report.Columns("proof", "result", "value>", "limit>", "detail")}
	for _, p := range c.Proofs {
		result, detail := "FAILED", p.Detail
		switch {
		case p.NotRun != "":
			result, detail = "not run", p.NotRun
		case p.OK && p.Value != nil && p.Limit == nil:
			result = "reported"
		case p.OK:
			result = "ok"
		}
		cells := []report.Cell{report.Text(p.Name), report.Text(result), report.Text(""), report.Text(""), report.Text(detail)}
		for i, v := range []*float64{p.Value, p.Limit} {
			if v != nil {
				cells[2+i] = report.Text(fmt.Sprintf("%.4g", *v))
			}
		}
		t.Rows = append(t.Rows, cells)
	}
	return report.Section{Title: fmt.Sprintf("Package %s: %s, %s, width %d", c.Name, c.Quantization, infer.ShortDigest(c.Digest), c.Width), Tables: []report.Table{t}}
}
