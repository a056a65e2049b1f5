// Package export writes the samples of a run in the forms that other tools of
// the field read: tidy tables (JSON Lines, CSV, Parquet), Inspect's evaluation log
// and lm-evaluation-harness's results and samples files.
//
//	dir, err := run.Open("runs/NAME")
//	x, err := export.Read(dir)
//	err = x.Write(w, export.Parquet)
//
// Timing runs (those of a decision head included) and mediation runs can be
// exported, finished or not. A table has one row for each item, condition and
// repeat. What is missing is null or an empty field, and never NaN or 0: a sample
// without a usable answer keeps its reason in the column unscored. What no table of the
// run may say, for its labeller is not qualified or a role answers always the same, no
// export says: it is unscored with that reason.
package export

import (
	"encoding/json"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"

	"github.com/ccmed/ccmed/bench/run"
	"github.com/ccmed/ccmed/infer"
)

// Format is a way to write samples.
type Format string

// The formats. Write takes all but Harness, which is a folder, see WriteHarness.
const (
	JSONL   Format = "jsonl"
	CSV     Format = "csv"
	Parquet Format = "parquet"
	Inspect Format = "inspect"
	Harness Format = "lm-eval"
)

// Formats lists the formats in the order of the help text.
var Formats = []Format{JSONL, CSV, Parquet, Inspect, Harness}

// Run is what an export is made from: the rows of a run and what belongs to them.
type Run struct {
	name     string
	manifest run.Manifest
	all      []unit // of the run
	units    []unit // of the rows, one each
	rows     rows
	prompts  map[string]question
	cautions []string
	// constant says that an answer is: its mean has no standard error.
	constant bool
}

// unit is one item under one condition in one repeat, with its samples by step
// and what the logs of other tools say of it.
type unit struct {
	key   run.Key // without a step
	steps map[string]run.Sample

	asking  string // the step whose prompt is the unit's input
	context string // the cluster
	target  string
	output  string
	stop    string // why the output ended, in Inspect's words
	scores  []score
}

// stopReasons are Inspect's words (inspect_ai.model.StopReason) for those of
// infer.Reply. Any other, and a text that nobody generated, is "unknown", as there.
var stopReasons = map[string]string{infer.StopEnd: "stop", infer.StopLength: "max_tokens"}

// score is one metric of a unit: a value, or the reason why there is none. A
// metric that does not apply to the unit has no score.
type score struct {
	metric, unscored, explanation string
	value                         float64
}

// question is a prompt of the run.
type question run.Asked

// Read collects the rows of a run.
func Read(dir *run.Dir) (*Run, error) {
	x := &Run{name: filepath.Base(dir.Path()), manifest: dir.Manifest()}
	samples, err := dir.Samples()
	if err != nil {
		return nil, err
	}
	x.all = unitsOf(samples)
	if x.prompts, err = readPrompts(dir); err != nil {
		return nil, err
	}
	switch task := x.manifest.Identity.Task; task {
	case "timing":
		x.rows, err = x.timingRows()
	case "mediation":
		x.rows, err = x.mediationRows()
	default:
		err = fmt.Errorf("%s is a %s run; timing and mediation runs can be exported", dir.Path(), task)
	}
	if err != nil {
		return nil, err
	}
	if x.rows.len() == 0 {
		return nil, fmt.Errorf("%s holds no finished item yet; go on with: ccmed runs resume %s", dir.Path(), dir.Path())
	}
	return x, nil
}

// Cautions are what a reader must know of the rows: why metrics are withheld, and of a
// constant answer that it has no standard error.
func (x *Run) Cautions() []string { return x.cautions }

// Rows returns the number of rows.
func (x *Run) Rows() int { return x.rows.len() }

// Write writes the samples in a format that is one file.
func (x *Run) Write(w io.Writer, f Format) error {
	var err error
	switch f {
	case JSONL:
		err = x.writeJSONL(w)
	case CSV:
		err = x.rows.csv(w)
	case Parquet:
		err = x.rows.parquet(w)
	case Inspect:
		err = x.writeInspect(w)
	default:
		return fmt.Errorf("the format %q is not one file", f)
	}
	if err != nil {
		return fmt.Errorf("export %s as %s: %w", x.name, f, err)
	}
	return nil
}

// unitsOf groups samples by everything but the step, in the order of condition,
// item and repeat, whatever their own order was.
func unitsOf(samples []run.Sample) []unit {
	at := map[run.Key]int{}
	var units []unit
	for _, s := range samples {
		k := s.Key
		k.Step = ""
		i, ok := at[k]
		if !ok {
			i = len(units)
			at[k] = i
			units = append(units, unit{key: k, steps: map[string]run.Sample{}})
		}
		units[i].steps[s.Step] = s
	}
	slices.SortFunc(units, func(a, b unit) int {
		if c := strings.Compare(a.key.Condition, b.key.Condition); c != 0 {
			return c
		}
		if len(a.key.Item) != len(b.key.Item) {
			return len(a.key.Item) - len(b.key.Item) // numbers in their order
		}
		if c := strings.Compare(a.key.Item, b.key.Item); c != 0 {
			return c
		}
		return a.key.Repeat - b.key.Repeat
	})
	return units
}

// samples returns the unit's samples in the order of their steps' names.
func (u unit) samples() []run.Sample {
	out := make([]run.Sample, 0, len(u.steps))
	for _, s := range u.steps {
		out = append(out, s)
	}
	slices.SortFunc(out, func(a, b run.Sample) int { return strings.Compare(a.Step, b.Step) })
	return out
}

// cost adds up what the unit's samples cost.
func (u unit) cost() (usage infer.Usage, seconds float64) {
	for _, s := range u.samples() {
		usage = usage.Add(s.Usage)
		seconds += s.Seconds
	}
	return usage, seconds
}

// data decodes what a step found; ok is false when the step has no sample.
func data[T any](u unit, step string) (v T, unscored string, ok bool, err error) {
	s, ok := u.steps[step]
	if !ok {
		return v, "", false, nil
	}
	if len(s.Data) > 0 {
		if err := json.Unmarshal(s.Data, &v); err != nil {
			return v, "", false, fmt.Errorf("sample %s: its data cannot be read: %w", s.Key, err)
		}
	}
	return v, s.Unscored, true, nil
}
