// Package page composes a report of several folders: what a reader must know first, then
// comparisons, then folder by folder what was run and what came out, then every item.
//
//	parts, err := page.Runs(ctx, runs, names, page.Options{})
//	sections := page.Compose(parts, nil)
package page

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/ccmed/ccmed/bench/report"
	"github.com/ccmed/ccmed/bench/run"
	"github.com/ccmed/ccmed/bench/task"
)

// Part is what a folder gives to a report.
type Part struct {
	Name string
	Item string // what the browser's items are: "dialogue"
	// Before are sections that stand before those of all folders.
	Before []report.Section
	// Sections are those of the folder, the first one on what it is.
	Sections []report.Section
	Cautions []string
	// Headline is the result in a minute; nil without one. Model is what it is about.
	Headline *task.Headline
	Model    string
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
		p.Headline, p.Model = &headline, r.Identity().Models[r.Bench.About().Subject].Name
	}
	p.Sections, p.Provenance = sections, &head
	p.Cautions = slices.Concat(r.Unchecked(run.SamplesFile), runCautions(r.Manifest()), cautions, fewItems(r.Manifest(), p.Item))
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

// outcome is the first section: each run in a sentence, then all headline measures in one
// table. ok is false where no part has a headline.
func outcome(parts []Part) (s report.Section, ok bool) {
	t := report.Table{Columns: []report.Column{{Name: "run"}, {Name: "model"}, {Name: "measure"}, {Name: "value [95 %]", Align: report.Right}, {Name: "best baseline", Align: report.Right}}}
	marked := false
	for _, p := range parts {
		if p.Headline == nil {
			continue
		}
		sentence := p.Headline.Sentence
		if len(parts) > 1 {
			sentence = p.Name + ": " + sentence
		}
		s.Lead = append(s.Lead, sentence)
		for _, r := range p.Headline.Rows {
			value := r.Value
			if r.Warned {
				value, marked = value+" †", true
			}
			t.Rows = append(t.Rows, []report.Cell{report.Text(p.Name), report.Text(p.Model), report.Text(r.Measure), report.Text(value), report.Text(r.Baseline)})
		}
	}
	if marked {
		t.Notes = []string{"† not better than its baseline, or a caution below is about it"}
	}
	s.Title = "What came out"
	if len(t.Rows) > 0 {
		s.Tables = []report.Table{t}
	}
	return s, len(s.Lead) > 0
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
	var before, each []report.Section
	var notes []string
	for _, p := range parts {
		before = append(before, p.Before...)
		for _, s := range p.Sections {
			if len(parts) > 1 {
				s.Title = p.Name + ": " + s.Title
			}
			each = append(each, s)
		}
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
	cautions := merged(parts)
	if len(cautions) == 0 {
		cautions = []string{"nothing here speaks against citing these numbers with their intervals, n and baselines"}
	}
	var all []report.Section
	if s, ok := outcome(parts); ok {
		all = append(all, s)
	}
	all = append(all, report.Section{Title: "Read this before you cite", Notes: cautions})
	all = slices.Concat(all, before, compared, each)
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

// merged lists cautions as sentences. One that several folders have stands once, with the
// names of all of them, where the first of them has it.
func merged(parts []Part) []string {
	names := map[string][]string{}
	var order []string
	for _, p := range parts {
		for _, text := range p.Cautions {
			if names[text] == nil {
				order = append(order, text)
			}
			names[text] = append(names[text], p.Name)
		}
	}
	for i, text := range order {
		if len(parts) == 1 {
			break
		}
		order[i] = strings.Join(names[text], ", ") + ": " + text
	}
	return order
}
