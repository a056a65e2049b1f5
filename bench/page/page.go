// Package page composes a report of several folders: what a reader must know first, then
// comparisons, then folder by folder what was run and what came out, then every item.
//
//	parts, err := page.Runs(ctx, runs, names, page.Options{})
//	sections := page.Compose(parts, nil)
package page

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/ccmed/ccmed/bench/report"
	"github.com/ccmed/ccmed/bench/run"
	"github.com/ccmed/ccmed/bench/task"
)

// Part is what a folder gives to a report.
type Part struct {
	Name string // of the folder, until Name gives a short one
	Task string
	// Options are the settings that parts are told apart by.
	Options map[string]any
	Item    string // what the browser's items are: "dialogue"
	// Before are sections that stand before those of all folders.
	Before   []report.Section
	Sections []report.Section
	// Cautions are about the measures of the headline, Common about all that the part holds:
	// the last ones, Small, are the least.
	Cautions, Common, Small []string
	// Headline is the result in a minute; nil without one.
	Headline *task.Headline
	Model    string // that is measured
	// Provenance says what was run and how to repeat it.
	Provenance *report.Section
	// Browser holds the items, Notes what is to be said of them.
	Browser report.Browser
	Notes   []string
}

// Options steer the composition.
type Options struct {
	Seed int64 // of resampling; 0 is each run's own
	// Command is the command line that made a run, as it may be shown.
	Command func(run.Manifest) string
}

// smallSample is the number of items below which a report warns.
const smallSample = 100

// OfRun makes the part of a run of a benchmark.
func OfRun(ctx context.Context, name string, r *task.Run, o Options) (Part, task.Result, error) {
	if r.Bench == nil {
		return Part{}, nil, fmt.Errorf("%s is a %s run, and this version knows no such task", r.Path(), r.Identity().Task)
	}
	p := Part{Name: name, Item: r.Bench.About().Item}
	res, err := r.Result(ctx, task.ScoreOptions{Seed: o.Seed})
	if err != nil {
		return p, nil, err
	}
	sections, err := res.Sections(ctx)
	if err != nil {
		return p, nil, err
	}
	if p.Browser, p.Notes, err = res.Browser(ctx); err != nil {
		return p, nil, err
	}
	cautions, err := res.Cautions(ctx)
	if err != nil {
		return p, nil, err
	}
	head, err := whatWasRun(r, o.Command)
	if err != nil {
		return p, nil, err
	}
	if h, ok := res.(task.Headlined); ok {
		headline, err := h.Headline(ctx)
		if err != nil {
			return p, nil, err
		}
		p.Headline = &headline
	}
	id := r.Identity()
	p.Task, p.Model, p.Options = id.Task, id.Models[r.Bench.About().Subject].Name, maps.Clone(id.Options)
	if p.Options == nil {
		p.Options = map[string]any{}
	}
	p.Options["seed"] = id.Seed
	p.Sections, p.Provenance, p.Cautions = sections, &head, cautions
	p.Common, p.Small = slices.Concat(r.Unchecked(run.SamplesFile), runCautions(r.Manifest())), fewItems(r.Manifest(), p.Item)
	return p, res, nil
}

// runCautions are those of any run.
func runCautions(m run.Manifest) []string {
	var out []string
	if m.Status != run.StatusDone {
		out = append(out, "the run is not finished ("+m.Status+")")
	}
	for _, c := range m.ModelChanges() {
		out = append(out, c.String()+": the samples may be of two models")
	}
	return out
}

// fewItems warns of a small run.
func fewItems(m run.Manifest, item string) []string {
	n := len(m.Identity.Items)
	if n >= smallSample {
		return nil
	}
	few := fmt.Sprintf("%d %ss", n, item)
	if n == 1 {
		few = "1 " + item
	}
	return []string{few + ": intervals are wide, and an interval of a group even more so"}
}

// mostSentences is the number of runs up to which a page begins with a sentence on each.
const mostSentences = 3

// outcome is the first section: each run in a sentence, then all headline measures in one
// table. ok is false where no part has a headline.
func outcome(parts []Part) (s report.Section, ok bool) {
	t := report.Table{Columns: report.Columns("run", "measure", "value [95 %]>", "best baseline>")}
	var sentences []string
	marked := 0
	for _, p := range parts {
		h := p.Headline
		if h == nil {
			continue
		}
		sentence := cmp.Or(p.Model, "the model") + " " + h.Sentence
		switch asked := h.Asked; {
		case len(parts) > 1 && asked == "":
			sentence = p.Name + ": " + h.Sentence
		case len(parts) > 1:
			sentence = p.Name + " (" + strings.ToLower(asked[:1]) + asked[1:] + "): " + h.Sentence
		case asked != "":
			sentence = asked + ", " + sentence
		}
		sentences = append(sentences, sentence)
		for _, r := range h.Rows {
			value := r.Value
			if r.Warned {
				value += " †"
				marked++
			}
			t.Add(p.Name, r.Measure, value, r.Baseline)
		}
	}
	if marked > 0 {
		t.Notes = []string{"† not better than its baseline, or a caution below is about it"}
	}
	if len(parts) == 1 {
		t.Columns = t.Columns[1:]
		for i := range t.Rows {
			t.Rows[i] = t.Rows[i][1:]
		}
	}
	s.Title = "What came out"
	if s.Lead = sentences; len(sentences) > mostSentences {
		s.Lead = []string{fmt.Sprintf("Of %d measures of %d runs, %d are better than their baseline and without a caution.", len(t.Rows), len(sentences), len(t.Rows)-marked)}
		s.Notes = sentences
	}
	if len(t.Rows) > 0 {
		s.Tables = []report.Table{t}
	}
	return s, len(sentences) > 0
}

// capital sets the first letter of a task's name.
func capital(s string) string {
	if s == "" {
		return s
	}
	return strings.ToUpper(s[:1]) + s[1:]
}

// detailed are the sections of the parts: those of one task stand together, as parts of one
// section, each kind beside the same of the other runs.
func detailed(parts []Part) (out []report.Section) {
	byTask := map[string][]Part{}
	var tasks []string
	for _, p := range parts {
		if len(p.Sections) == 0 {
			continue
		}
		if byTask[p.Task] == nil {
			tasks = append(tasks, p.Task)
		}
		byTask[p.Task] = append(byTask[p.Task], p)
	}
	for _, name := range tasks {
		group := byTask[name]
		if len(group) > 1 {
			out = append(out, report.Section{Title: fmt.Sprintf("%s: %d runs", capital(name), len(group))})
		}
		kinds := 0
		for _, p := range group {
			kinds = max(kinds, len(p.Sections))
		}
		for kind := range kinds {
			for _, p := range group {
				if kind >= len(p.Sections) {
					continue
				}
				s := p.Sections[kind]
				s.Sub = kind > 0 || len(group) > 1
				if len(parts) > 1 {
					s.Title = p.Name + ": " + strings.TrimPrefix(s.Title, capital(name)+": ")
				}
				out = append(out, s)
			}
		}
	}
	return out
}

// AddBeside adds to each run's part what its result says beside the other runs. The parts
// and the runs are in the same order; a part of another folder has a run without a result.
func AddBeside(parts []Part, runs []task.Neighbour, seed int64) error {
	var all []task.Neighbour
	for _, n := range runs {
		if n.Result != nil {
			all = append(all, n)
		}
	}
	for i, n := range runs {
		b, ok := n.Result.(task.Beside)
		if !ok {
			continue
		}
		sections, cautions, err := b.Beside(n, all, seed)
		if err != nil {
			return err
		}
		parts[i].Before = append(parts[i].Before, sections...)
		parts[i].Cautions = append(parts[i].Cautions, cautions...)
	}
	return nil
}

// Compose puts parts and the comparisons between them into one report.
func Compose(parts []Part, compared []report.Section) []report.Section {
	var browser report.Browser
	item := ""
	var before []report.Section
	var notes []string
	for _, p := range parts {
		before = append(before, p.Before...)
		for _, n := range p.Notes {
			if len(parts) > 1 {
				n = p.Name + ": " + n
			}
			notes = append(notes, n)
		}
		if len(p.Browser.Items) == 0 {
			continue
		}
		switch {
		case item == "":
			item, browser.Name, browser.Title = p.Item, p.Browser.Name, p.Browser.Title
		case item != p.Item:
			item, browser.Name = "item", "items"
		}
		browser.Join(ofRun(p.Name, p.Browser))
	}
	cautions := cautionLists(parts)
	if len(cautions) == 0 {
		cautions = []report.List{{Items: []string{"nothing here speaks against citing these numbers with their intervals, n and baselines"}}}
	}
	var all []report.Section
	if s, ok := outcome(parts); ok {
		all = append(all, s)
	}
	all = append(all, report.Section{Title: "Read this before you cite", Lists: cautions})
	all = slices.Concat(all, before, compared, detailed(parts))
	if len(browser.Items) > 0 {
		all = append(all, report.Section{Title: "Every " + item, Notes: notes, Browser: &browser})
	}
	for _, p := range parts {
		if p.Provenance == nil {
			continue
		}
		s := *p.Provenance
		if len(parts) > 1 {
			s.Title = p.Name + ": " + s.Title
		}
		all = append(all, s)
	}
	return all
}

// ofRun adds the run to what items can be filtered by.
func ofRun(name string, b report.Browser) report.Browser {
	b.Facets = append([]report.Facet{{Name: "run"}}, b.Facets...)
	items := make([]report.Item, len(b.Items))
	for i, it := range b.Items {
		it.Facets = append([][]string{{name}}, it.Facets...)
		items[i] = it
	}
	b.Items = items
	return b
}

// cautionLists groups cautions by the measures that they are about, worst first.
func cautionLists(parts []Part) (out []report.List) {
	add := func(title string, of []Part, cautions func(Part) []string) {
		if items := merged(of, cautions); len(items) > 0 {
			out = append(out, report.List{Title: title, Items: items})
		}
	}
	add("All measures", parts, func(p Part) []string { return p.Common })
	byMeasure := map[string][]Part{}
	var order []string
	for _, p := range parts {
		name := p.measures()
		if byMeasure[name] == nil {
			order = append(order, name)
		}
		byMeasure[name] = append(byMeasure[name], p)
	}
	warned := func(name string) int {
		for _, p := range byMeasure[name] {
			if h := p.Headline; h != nil && slices.ContainsFunc(h.Rows, func(r task.HeadlineRow) bool { return r.Warned }) {
				return 0
			}
		}
		return 1
	}
	slices.SortStableFunc(order, func(a, b string) int { return warned(a) - warned(b) })
	for _, name := range order {
		title, of := name, byMeasure[name]
		if len(of) == 1 && len(parts) > 1 {
			title = of[0].Name + strings.TrimPrefix(name, capital(of[0].Task))
		}
		add(title, of, func(p Part) []string { return p.Cautions })
	}
	add("All intervals", parts, func(p Part) []string { return p.Small })
	return out
}

// measures names what a part's cautions are about.
func (p Part) measures() string {
	name := capital(p.Task)
	if p.Headline == nil || len(p.Headline.Rows) == 0 {
		return cmp.Or(name, p.Name)
	}
	var measures []string
	for _, r := range p.Headline.Rows {
		if m, _, _ := strings.Cut(r.Measure, ", "); !slices.Contains(measures, m) {
			measures = append(measures, m)
		}
	}
	return name + ": " + strings.Join(measures, ", ")
}

// merged lists cautions as sentences, each once, with the names of the parts that have it
// unless that is every part.
func merged(of []Part, cautions func(Part) []string) []string {
	names := map[string][]string{}
	var order []string
	for _, p := range of {
		for _, text := range cautions(p) {
			if names[text] == nil {
				order = append(order, text)
			}
			names[text] = append(names[text], p.Name)
		}
	}
	for i, text := range order {
		if len(names[text]) < len(of) {
			order[i] = strings.Join(names[text], ", ") + ": " + text
		}
	}
	return order
}
