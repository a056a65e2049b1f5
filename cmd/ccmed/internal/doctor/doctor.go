// Package doctor looks at what works on a machine: each check with what was found and one
// fix.
//
//	d := doctor.Diagnose(doctor.CheckMachine(ctx, env, &flags), "1.2.3")
//	err := d.Err()
package doctor

import (
	"fmt"

	"github.com/ccmed/ccmed/bench/report"
	"github.com/ccmed/ccmed/infer"
)

// Finding is one check with its one fix.
type Finding struct {
	Check  string `json:"check"`
	Result string `json:"result"`
	Detail string `json:"detail"`
	Fix    string `json:"fix"` // empty where nothing is to be done
}

// Results of a check.
const (
	OK     = "ok"
	Absent = "absent" // not there, and not needed for everything
	Faulty = "FAULT"
)

// Diagnosis is what doctor prints as JSON.
type Diagnosis struct {
	Schema  int       `json:"schema"`
	Version string    `json:"version"` // of the program
	Faults  int       `json:"faults"`
	Checks  []Finding `json:"checks"`
}

// Diagnose counts the faults among findings.
func Diagnose(fs []Finding, version string) Diagnosis {
	d := Diagnosis{Schema: 1, Version: version, Checks: fs}
	for _, f := range fs {
		if f.Result == Faulty {
			d.Faults++
		}
	}
	return d
}

// Section shows the findings.
func (d Diagnosis) Section() report.Section {
	t := report.Table{Columns: report.Columns("check", "result", "detail", "fix")}
	for _, f := range d.Checks {
		t.Add(f.Check, f.Result, f.Detail, f.Fix)
	}
	return report.Section{Title: "ccmed " + d.Version, Tables: []report.Table{t}}
}

// Err is an error where there are faults: something that is needed is missing.
func (d Diagnosis) Err() error {
	if d.Faults == 0 {
		return nil
	}
	return &infer.MissingError{What: fmt.Sprintf("faults found: %d", d.Faults)}
}
