// Package export writes the samples of a run as other tools read them: JSON Lines, CSV
// and Parquet tables, logs of inspect_ai and results of lm-evaluation-harness. It knows
// the formats alone; a benchmark gives the rows (task.Table).
//
//	x, err := export.Read(r, table)
//	err = x.Write(file, export.Parquet)
//
// An unscored sample stays unscored in every format, with its reason.
package export

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"

	"github.com/ccmed/ccmed/bench/run"
	"github.com/ccmed/ccmed/bench/task"
	"github.com/ccmed/ccmed/infer"
)

// Format is a format of export.
type Format string

// The formats. Harness is a folder, the others are one file each.
const (
	JSONL   Format = "jsonl"
	CSV     Format = "csv"
	Parquet Format = "parquet"
	Inspect Format = "inspect"
	Harness Format = "lm-eval"
)

// Formats lists the formats in the order of the help text.
var Formats = []Format{JSONL, CSV, Parquet, Inspect, Harness}

// Run is a run that is exported.
type Run struct {
	name     string
	manifest run.Manifest
	about    task.About
	table    task.Table
	prompts  map[string]question // the inputs of rows, by hash
	single   bool                // all rows are of one condition
}

// stopReasons are why an output ended, in the words of Inspect.
var stopReasons = map[string]string{infer.StopEnd: "stop", infer.StopLength: "max_tokens"}

// Read takes a run's rows and reads their prompts. A run without a row is an error.
func Read(r *task.Run, t task.Table) (*Run, error) {
	x := &Run{name: filepath.Base(r.Path()), manifest: r.Manifest(), about: r.Bench.About(), table: t, prompts: map[string]question{}}
	if len(t.Rows) == 0 {
		return nil, fmt.Errorf("%s holds no finished item yet; go on with: ccmed runs resume %s", r.Path(), r.Path())
	}
	slices.SortStableFunc(t.Rows, func(a, b task.Row) int {
		return cmp.Or(strings.Compare(a.Key.Condition, b.Key.Condition), run.CompareUnits(a.Key, b.Key))
	})
	x.single = t.Rows[0].Key.Condition == t.Rows[len(t.Rows)-1].Key.Condition
	wanted := map[string]bool{}
	for _, row := range t.Rows {
		wanted[row.Input] = true
		for _, q := range row.Asked {
			wanted[q.Prompt] = true
		}
	}
	for p, err := range r.Prompts() {
		if err != nil {
			return nil, err
		}
		if wanted[p.Hash] {
			x.prompts[p.Hash] = question(p)
		}
	}
	for _, row := range t.Rows {
		if row.Prompt != nil {
			*row.Prompt = task.Known(x.prompts[row.Input].text())
		}
	}
	return x, nil
}

// Cautions are what a reader of the export must know.
func (x *Run) Cautions() []string { return x.table.Cautions }

// Rows counts the rows.
func (x *Run) Rows() int { return len(x.table.Rows) }

// Write writes the run in one of the formats that are one file.
func (x *Run) Write(w io.Writer, f Format) error {
	var err error
	if f == Inspect {
		if err = x.scored(f); err == nil {
			err = x.writeInspect(w)
		}
	} else {
		rows := make([]any, len(x.table.Rows))
		for i, r := range x.table.Rows {
			rows[i] = r.Value
		}
		err = WriteRows(w, f, rows)
	}
	if err != nil {
		return fmt.Errorf("export %s as %s: %w", x.name, f, err)
	}
	return nil
}

// scored refuses runs without a score for the formats that are made of scores.
func (x *Run) scored(f Format) error {
	for _, r := range x.table.Rows {
		if len(r.Scores) > 0 {
			return nil
		}
	}
	return fmt.Errorf("nothing in a run of %s is scored, and %s is made of scores; use %s, %s or %s", x.about.Task, f, JSONL, CSV, Parquet)
}

// question is a prompt as it was asked.
type question run.Asked

// text is the prompt in one string.
func (q question) text() string {
	if q.Prompt == nil {
		return q.Rendered
	}
	if q.Prompt.Raw != "" {
		return q.Prompt.Raw
	}
	var b bytes.Buffer
	for _, m := range q.Prompt.Messages {
		fmt.Fprintf(&b, "%s: %s\n", m.Role, m.Content)
	}
	b.WriteString(q.Prompt.LeadIn)
	return b.String()
}
