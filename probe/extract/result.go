package extract

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/ccmed/ccmed/bench/report"
	"github.com/ccmed/ccmed/bench/run"
	"github.com/ccmed/ccmed/bench/stats"
	"github.com/ccmed/ccmed/bench/task"
	"github.com/ccmed/ccmed/probe"
	"github.com/ccmed/ccmed/probe/activation"
)

// Audit is what scoring an extraction finds: what its files hold.
type Audit struct {
	Cells []Cell `json:"cells"`
}

// Cell is a file of states.
type Cell struct {
	Cell    activation.Cell    `json:"cell"`
	Rows    int                `json:"rows"`
	Missing []int              `json:"missing,omitempty"` // rows without states
	Layers  []activation.Count `json:"layers"`
}

// Result is an extraction's result: the audit of its files, and the findings of the probes
// that were trained on them.
type Result struct {
	Audit Audit
	// Findings are nil where no probe was trained, and where unread says why they cannot
	// be read.
	Findings *Findings
	unread   error
	in       task.Input
	units    func() ([]task.Unit, error)
}

// Score audits the files of an extraction, or takes the stored audit.
func (Bench) Score(ctx context.Context, in task.Input) (task.Result, error) {
	r := &Result{in: in, units: in.UnitsOnce()}
	if _, err := os.Stat(FindingsFile(in.Dir)); err == nil {
		if f, err := ReadFindings(in.Dir); err != nil {
			r.unread = err
		} else {
			r.Findings = &f
		}
	}
	var ok bool
	var err error
	if r.Audit, ok, err = task.Decode[Audit](in); err != nil || ok {
		return r, err
	}
	index, err := activation.ReadIndex(r.samples())
	if err != nil {
		return nil, err
	}
	paths, err := activation.List(in.Path())
	if err != nil {
		return nil, err
	}
	for _, c := range index.Cells() {
		if file := filepath.Join(in.Path(), c.File()); !slices.Contains(paths, file) {
			return nil, &run.ChangedError{File: file, What: "it is gone"}
		}
	}
	for _, p := range paths {
		c, err := auditCell(ctx, p, index)
		if err != nil {
			return nil, err
		}
		r.Audit.Cells = append(r.Audit.Cells, c)
	}
	return r, nil
}

func auditCell(ctx context.Context, path string, index *activation.Index) (c Cell, err error) {
	f, err := activation.Open(path)
	if err != nil {
		return c, err
	}
	defer f.Close()
	audit, err := f.Audit(ctx)
	if err != nil {
		return c, err
	}
	entries, err := index.For(f)
	if err == nil {
		err = audit.Check(entries)
	}
	return Cell{f.Spec().Cell, f.Spec().Samples, audit.Missing, audit.Layers}, err
}

// Metrics is the content of metrics.json.
func (r *Result) Metrics() any { return r.Audit }

// Sections are the audit and the findings.
func (r *Result) Sections(context.Context) ([]report.Section, error) {
	t := report.Table{Columns: report.Columns("context", "text", "position", "layers>", "dialogues>", "missing>",
		"not finite>", "file")}
	for _, c := range r.Audit.Cells {
		bad := 0
		for _, l := range c.Layers {
			bad += l.NonFinite
		}
		t.Add(c.Cell.Context, c.Cell.Text, c.Cell.Position, len(c.Layers), c.Rows, len(c.Missing), bad, c.Cell.File())
	}
	model := r.in.Identity().ModelNames()
	s := report.Section{Title: "Hidden states: " + model, Tables: []report.Table{t},
		Notes: []string{"missing rows read as NaN; a layer with values that are not finite is refused by name when it is read"}}
	if r.unread != nil {
		s.Notes = append(s.Notes, r.unread.Error())
	}
	sections := []report.Section{s}
	if r.Findings != nil {
		sections = append(sections, r.Findings.Sections(model)...)
	}
	return sections, nil
}

// Headline is the result in a minute.
func (r *Result) Headline(context.Context) (task.Headline, error) {
	h := task.Headline{Sentence: fmt.Sprintf("had its hidden states stored over %d dialogues.", len(r.in.Identity().Items))}
	switch {
	case r.Findings == nil:
		h.Sentence += " No probe has been trained on them yet."
	case r.Findings.Cells != nil && r.Findings.Cells.Verdict != nil:
		f := r.Findings.Cells
		h.Sentence += fmt.Sprintf(" Linear probes at %s, tested on scenario contexts that they were not trained on, support this conclusion: %s.", f.At, f.Verdict.Sentence)
		h.Rows = partRows(f)
	case r.Findings.Questions != nil:
		f := r.Findings.Questions
		k := f.Kappa[slices.Index(f.Layers, f.At)]
		h.Sentence += fmt.Sprintf(" A labeller fitted to their state at the end of the question agrees with recorded stages at a quadratic kappa of %s on contexts that it was not fitted to.", report.Estimate(k, 2))
		row := task.HeadlineRow{Measure: "quadratic kappa at " + f.At, Value: report.Estimate(k, 2)}
		if f.Words != nil {
			row.Baseline, row.Warned = report.Estimate(f.Words.Kappa, 2)+", words of the turn", f.Words.Kappa.Value >= k.Value
		}
		h.Rows = append(h.Rows, row)
	}
	return h, nil
}

// partRows are the difference between the conditions and what it is made of, at the layer
// on which the conclusion rests.
func partRows(f *probe.Findings) (out []task.HeadlineRow) {
	at := slices.Index(f.Layers, f.At)
	if at < 0 || at >= len(f.Decomposition) {
		return nil
	}
	d := f.Decomposition[at]
	for _, x := range []struct {
		name     string
		effect   *probe.Effect
		baseline *probe.Effect
	}{{"Δelic, D − ND", d.Elic, d.Placebo}, {"of it Δctx, reading the prompt", d.Ctx, nil}, {"of it Δtext, what the model wrote", d.Text, nil}} {
		if x.effect == nil {
			continue
		}
		row := task.HeadlineRow{Measure: x.name, Value: report.Estimate(x.effect.Estimate, 3), Warned: f.Verdict.Sentence != probe.Collapse}
		if x.baseline != nil {
			row.Baseline = report.Estimate(x.baseline.Estimate, 3) + ", fixed lines"
		}
		out = append(out, row)
	}
	return out
}

// Cautions are what a reader must know before a finding is cited.
func (r *Result) Cautions(context.Context) ([]string, error) {
	if r.Findings == nil || r.Findings.Cells == nil {
		return nil, nil
	}
	f := r.Findings.Cells
	var out []string
	if f.Verdict != nil && f.Verdict.Sentence != probe.Collapse {
		out = append(out, "the probes allow: "+f.Verdict.Sentence)
	}
	if f.Left > 0 {
		out = append(out, fmt.Sprintf("%d dialogues are left out of the probes: a text or a state is missing", f.Left))
	}
	var cuts []task.Cut
	for _, text := range slices.Sorted(maps.Keys(f.Cut)) {
		cuts = append(cuts, task.Cut{What: text + " lines that states were read after", K: f.Cut[text], N: f.N})
	}
	out = append(out, task.CutCaution(cuts...)...)
	for _, c := range f.Cells {
		if c.Cell.Context == probe.ContextD {
			out = append(out, "under D the prompt names the stage that the probes look for")
			break
		}
	}
	return out, nil
}

// Measures says why runs of hidden states are not compared.
func (r *Result) Measures(context.Context) ([]stats.Measure, []string, error) {
	return nil, nil, fmt.Errorf("%w: findings keep accuracies by layer, not each dialogue's outcome, which pairs are made of; ccmed report shows several side by side",
		task.ErrNoMeasures)
}

// Browser is empty: no dialogue has an outcome of its own.
func (r *Result) Browser(context.Context) (report.Browser, []string, error) {
	return report.Browser{Name: "dialogues", Title: "id"}, nil, nil
}

// Merge joins the shards of an extraction and their states.
func (Bench) Merge(ctx context.Context, out string, shards []string) error {
	return probe.MergeStores(ctx, out, shards)
}

// Verify checks findings and saved probes.
func (Bench) Verify(r *task.Run, form func(schema, file string) error) error {
	var faults []error
	file, schema := FindingsFile(r.Dir), formOf(r.Dir).schema
	if _, err := os.Stat(file); err == nil {
		err := form(schema, filepath.Base(file))
		if err == nil {
			_, err = ReadFindings(r.Dir)
		}
		faults = append(faults, err)
	}
	cards, err := filepath.Glob(filepath.Join(r.Path(), probe.ProbesDir, "*.safetensors"))
	faults = append(faults, err)
	if labeller := filepath.Join(r.Path(), probe.LabellerProbe); probe.HoldsQuestions(r.Dir) {
		if _, err := os.Stat(labeller); err == nil {
			cards = append(cards, labeller)
		}
	}
	for _, p := range cards {
		_, err := activation.LoadProbe(p, nil)
		faults = append(faults, err)
	}
	return errors.Join(faults...)
}
