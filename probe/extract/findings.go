package extract

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/ccmed/ccmed/bench/checksum"
	"github.com/ccmed/ccmed/bench/disk"
	"github.com/ccmed/ccmed/bench/report"
	"github.com/ccmed/ccmed/bench/run"
	"github.com/ccmed/ccmed/bench/strictjson"
	"github.com/ccmed/ccmed/probe"
)

// Findings are those of a store of cells or of a store of turns.
type Findings struct {
	Cells *probe.Findings
	Turns *probe.TurnFindings
}

// Value is what the findings' file holds.
func (f Findings) Value() any {
	if f.Turns != nil {
		return f.Turns
	}
	return f.Cells
}

// Sections are the tables and figures.
func (f Findings) Sections(model string) []report.Section {
	if f.Turns != nil {
		return probe.TurnSections(model, f.Turns)
	}
	return probe.Sections(model, f.Cells)
}

// FindingsFile is where a store's findings are, whether there are some or not.
func FindingsFile(dir *run.Dir) string {
	if probe.HoldsTurns(dir) {
		return filepath.Join(dir.Path(), probe.TurnFindingsFile)
	}
	return filepath.Join(dir.Path(), probe.FindingsFile)
}

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
	want := probe.FindingsSchema
	if probe.HoldsTurns(dir) {
		want, f.Turns = probe.TurnFindingsSchema, &probe.TurnFindings{}
	} else {
		f.Cells = &probe.Findings{}
	}
	if head.Schema != want {
		return f, fmt.Errorf("%s was written by another version (schema %d, this one reads %d); %s", file, head.Schema, want, again)
	}
	hash, err := dir.SamplesHash()
	if err != nil {
		return f, err
	}
	if hash != head.Samples {
		return f, fmt.Errorf("%s was made from other samples than %s holds; %s", file, dir.Path(), again)
	}
	if err := json.Unmarshal(text, f.Value()); err != nil {
		return f, fmt.Errorf("%s is damaged: %w; %s", file, err, again)
	}
	if f.Turns != nil {
		f.Turns.ContentHash = ""
	} else {
		f.Cells.ContentHash = ""
	}
	return f, nil
}
