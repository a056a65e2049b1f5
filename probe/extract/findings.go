package extract

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/ccmed/ccmed/bench/checksum"
	"github.com/ccmed/ccmed/bench/disk"
	"github.com/ccmed/ccmed/bench/report"
	"github.com/ccmed/ccmed/bench/run"
	"github.com/ccmed/ccmed/bench/strictjson"
	"github.com/ccmed/ccmed/bench/task"
	"github.com/ccmed/ccmed/probe"
)

// Findings are those of a store of cells, of turns or of questions.
type Findings struct {
	Cells     *probe.Findings
	Turns     *probe.TurnFindings
	Questions *probe.LabellerFindings
}

// Value is what the findings' file holds.
func (f Findings) Value() any {
	switch {
	case f.Turns != nil:
		return f.Turns
	case f.Questions != nil:
		return f.Questions
	}
	return f.Cells
}

// Sections are the tables and figures.
func (f Findings) Sections(model string) []report.Section {
	switch {
	case f.Turns != nil:
		return probe.TurnSections(model, f.Turns)
	case f.Questions != nil:
		return probe.LabellerSections(model, f.Questions)
	}
	return probe.Sections(model, f.Cells)
}

// Named is how an extraction of questions was told its model.
func Named(id run.Identity) (string, error) {
	s, err := task.Settings[questionSettings](id)
	return s.Model, err
}

// WriteCSV writes the findings as rows of figures by layer.
func (f Findings) WriteCSV(w io.Writer) error {
	switch {
	case f.Turns != nil:
		return probe.WriteTurnsCSV(w, f.Turns)
	case f.Questions != nil:
		return probe.WriteLabellerCSV(w, f.Questions)
	}
	return probe.WriteCSV(w, f.Cells)
}

// form is how a store keeps its findings: the file's name, its schema by name and version,
// and an empty value to read it into.
type form struct {
	file, schema string
	version      int
	empty        Findings
}

func formOf(dir *run.Dir) form {
	switch {
	case probe.HoldsTurns(dir):
		return form{probe.TurnFindingsFile, "turns", probe.TurnFindingsSchema, Findings{Turns: &probe.TurnFindings{}}}
	case probe.HoldsQuestions(dir):
		return form{probe.LabellerFindingsFile, "labeller", probe.LabellerFindingsSchema, Findings{Questions: &probe.LabellerFindings{}}}
	}
	return form{probe.FindingsFile, "findings", probe.FindingsSchema, Findings{Cells: &probe.Findings{}}}
}

// FindingsFile is where a store's findings are, whether there are some or not.
func FindingsFile(dir *run.Dir) string { return filepath.Join(dir.Path(), formOf(dir).file) }

// ReadFindings reads a store's findings and checks that they are of its samples.
func ReadFindings(dir *run.Dir) (f Findings, err error) {
	file := FindingsFile(dir)
	again := "run `ccmed probe train " + dir.Path() + "` again"
	if _, err := os.Stat(file); err != nil {
		return f, fmt.Errorf("%s has no findings yet; make them with `ccmed probe train %s`", dir.Path(), dir.Path())
	}
	var head struct {
		Schema  int    `json:"schema"`
		Samples string `json:"samples_sha256"`
	}
	text, err := disk.ReadEntry(file, disk.MaxText)
	if err != nil {
		return f, fmt.Errorf("read the findings: %w", err)
	}
	if err := strictjson.Unmarshal(text, &head); err != nil {
		return f, fmt.Errorf("%s is damaged: %w; %s", file, err, again)
	}
	if err := checksum.Check(text); err != nil && !errors.Is(err, checksum.ErrNone) {
		return f, fmt.Errorf("%s: %w; %s", file, err, again)
	}
	of := formOf(dir)
	if head.Schema != of.version {
		return f, fmt.Errorf("%s was written by another version (schema %d, this one reads %d); %s", file, head.Schema, of.version, again)
	}
	hash, err := dir.SamplesHash()
	if err != nil {
		return f, err
	}
	if hash != head.Samples {
		return f, fmt.Errorf("%s was made from other samples than %s holds; %s", file, dir.Path(), again)
	}
	if err := json.Unmarshal(text, of.empty.Value()); err != nil {
		return f, fmt.Errorf("%s is damaged: %w; %s", file, err, again)
	}
	f = of.empty
	switch {
	case f.Turns != nil:
		f.Turns.ContentHash = ""
	case f.Questions != nil:
		f.Questions.ContentHash = ""
	default:
		f.Cells.ContentHash = ""
	}
	return f, nil
}
