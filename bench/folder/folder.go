// Package folder says what lies in a folder of runs: runs of benchmarks, trainings, exports,
// packages and suites. It lists them, and verifies what they say about themselves.
//
//	folders, err := folder.List("runs")
//	verdicts, err := folder.Verify(ctx, archive, "runs/NAME")
package folder

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/ccmed/ccmed/bench/disk"
	"github.com/ccmed/ccmed/bench/run"
	"github.com/ccmed/ccmed/bench/strictjson"
	"github.com/ccmed/ccmed/bench/task"
	"github.com/ccmed/ccmed/sft"
)

// Kinds of folders that the program makes.
const (
	KindRun      = "run"
	KindStore    = "store" // of hidden states
	KindTraining = "training"
	KindExport   = "export" // of training data
	KindPackage  = "package"
	KindSuite    = "suite"
)

// Files of a suite's folder.
const (
	SuiteFile  = "suite.json" // what was asked, of the last start
	DoneEnding = ".done"      // after a step's name: it is done and makes no run folder
)

// Damaged is the status of a folder that cannot be read.
const Damaged = "damaged"

// Folder is what a folder is, in the words of a list.
type Folder struct {
	Path    string    `json:"path"` // as it was found
	Kind    string    `json:"kind"`
	Task    string    `json:"task,omitempty"`
	Model   string    `json:"model,omitempty"`
	Status  string    `json:"status"`
	Samples int       `json:"samples,omitempty"` // of a run; of a training its steps
	Started time.Time `json:"started,omitzero"`
	Data    string    `json:"data,omitempty"` // where it was read from
	Hash    string    `json:"data_hash,omitempty"`
	Fault   string    `json:"fault,omitempty"` // why it cannot be read
}

// sign is a file by which a folder is known.
type sign struct {
	file, kind string
	read       func(benches task.Registry, path string, f *Folder) error
}

// signs lists the signs, the most telling first.
func signs() []sign {
	return []sign{
		{run.ManifestFile, KindRun, readRunFolder},
		{sft.ManifestFile, KindTraining, readTrainingFolder},
		{sft.CardFile, KindPackage, readPackageFolder},
		{SuiteFile, KindSuite, readSuiteFolder},
		{sft.ExportFile, KindExport, readExportFolder},
	}
}

// KindOf tells by its files what a folder is, "" for none of ours.
func KindOf(path string) string {
	for _, m := range signs() {
		if exists(filepath.Join(path, m.file)) {
			return m.kind
		}
	}
	return ""
}

// CheckVacant refuses to write over a file by which a run, export, training, package or
// suite is known or from which its numbers come.
func CheckVacant(path string) error {
	names := []string{run.SamplesFile, run.PromptsFile, run.ErrorsFile, run.MetricsFile, run.LogFile,
		sft.TrainFile, sft.ValidFile, sft.HeldOutFile, sft.ConfigFile, sft.EventsFile, sft.ModelFile, sft.HeadFile}
	for _, m := range signs() {
		names = append(names, m.file)
	}
	dir := filepath.Dir(path)
	if kind := KindOf(dir); kind != "" && slices.Contains(names, filepath.Base(path)) {
		return fmt.Errorf("%s belongs to the %s in %s and is kept; --out names another file", path, kind, dir)
	}
	return nil
}

// Read says what a folder is. A folder that cannot be read is described by its
// fault; ok is false where it is none of ours.
func Read(benches task.Registry, path string) (f Folder, ok bool) {
	for _, m := range signs() {
		if !exists(filepath.Join(path, m.file)) {
			continue
		}
		f = Folder{Path: path, Kind: m.kind}
		if err := m.read(benches, path, &f); err != nil {
			f.Status, f.Fault = Damaged, err.Error()
		}
		return f, true
	}
	return f, false
}

// List describes the folders in root, in the order of their names. A root
// that is not there has none.
func List(benches task.Registry, root string) ([]Folder, error) {
	entries, err := os.ReadDir(root)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list runs: %w", err)
	}
	var out []Folder
	for _, e := range entries {
		if f, ok := Read(benches, filepath.Join(root, e.Name())); ok {
			out = append(out, f)
		}
	}
	return out, nil
}

func readRunFolder(benches task.Registry, path string, f *Folder) error {
	d, err := run.Open(path)
	if err != nil {
		// What can still be read helps to know which run it is.
		var m run.Manifest
		if readJSON(filepath.Join(path, run.ManifestFile), &m) == nil {
			describeRun(benches, m, f)
		}
		return err
	}
	describeRun(benches, d.Manifest(), f)
	if f.Status == run.StatusStarted {
		if _, held := run.Holder(path); held {
			f.Status = "running"
		} else {
			f.Status = "killed"
		}
		f.Samples, err = d.Count()
	}
	return err
}

func describeRun(benches task.Registry, m run.Manifest, f *Folder) {
	f.Task, f.Model, f.Status, f.Samples = m.Identity.Task, m.Identity.ModelNames(), m.Status, m.Samples
	f.Data = task.DataOf(m.Identity)
	f.Hash = m.Identity.DataHash
	if b, ok := benches.Of(m.Identity); ok {
		f.Kind = cmp.Or(b.About().Folder, KindRun)
	}
	if len(m.Sessions) > 0 {
		f.Started = m.Sessions[0].Start
	}
}

func readTrainingFolder(_ task.Registry, path string, f *Folder) error {
	m, err := sft.ReadTraining(path)
	if err != nil {
		return err
	}
	f.Status, f.Model, f.Data = m.Status, m.Base.From, m.Config.Data
	if f.Model == "" {
		f.Model = m.Base.Dir
	}
	f.Model = filepath.Base(f.Model)
	if m.Export != nil {
		f.Hash = m.Export.Data
	}
	if m.Result != nil {
		f.Samples = m.Result.Steps
	}
	if len(m.Sessions) > 0 {
		f.Started = m.Sessions[0].Started
	}
	return nil
}

func readPackageFolder(_ task.Registry, path string, f *Folder) error {
	c, err := sft.ReadCard(path)
	if err != nil {
		return err
	}
	f.Model, f.Status = c.Name, "proved"
	if slices.ContainsFunc(c.Proofs, func(p sft.Proof) bool { return !p.OK }) {
		f.Status = "not proved"
	}
	return f.dated(filepath.Join(path, sft.CardFile))
}

func readExportFolder(_ task.Registry, path string, f *Folder) error {
	x, err := sft.ReadExport(path)
	if err != nil {
		return err
	}
	f.Status, f.Hash, f.Samples = "done", x.Data, x.Counts["train"]+x.Counts["valid"]
	return f.dated(filepath.Join(path, sft.ExportFile))
}

// Suite is what a suite's folder keeps of what was asked last.
type Suite struct {
	Suite   string            `json:"suite"`
	Version string            `json:"version"`
	Set     map[string]string `json:"set"`
	Steps   []struct {
		Name    string   `json:"name"`
		Needs   []string `json:"needs"`
		Command []string `json:"command"`
	} `json:"steps"`
}

// ReadSuite reads what was asked of a suite last.
func ReadSuite(path string) (Suite, error) {
	var r Suite
	err := readJSON(filepath.Join(path, SuiteFile), &r)
	return r, err
}

// State says how far a step got.
func (r Suite) State(benches task.Registry, path string, step int) string {
	name := r.Steps[step].Name
	f, ok := Read(benches, filepath.Join(path, name))
	switch {
	case exists(filepath.Join(path, name+DoneEnding)):
		return "done"
	case ok:
		return f.Status
	}
	return "to do"
}

func readSuiteFolder(benches task.Registry, path string, f *Folder) error {
	r, err := ReadSuite(path)
	if err != nil {
		return err
	}
	done := 0
	for i := range r.Steps {
		if r.State(benches, path, i) == run.StatusDone {
			done++
		}
	}
	f.Task, f.Status, f.Data = r.Suite, fmt.Sprintf("%d of %d steps", done, len(r.Steps)), r.Set["data"]
	if done == len(r.Steps) {
		f.Status = run.StatusDone
	}
	return f.dated(filepath.Join(path, SuiteFile))
}

// dated takes the time of a folder that keeps none from its describing file.
func (f *Folder) dated(file string) error {
	st, err := os.Stat(file)
	if err != nil {
		return fmt.Errorf("look at %s: %w", file, err)
	}
	f.Started = st.ModTime().UTC()
	return nil
}

// MarshalJSON cuts times to seconds, as tables show them.
func (f Folder) MarshalJSON() ([]byte, error) {
	type plain Folder
	p := plain(f)
	p.Started = p.Started.UTC().Truncate(time.Second)
	return json.Marshal(p)
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// readJSON reads a file of a folder that the program made.
func readJSON(path string, v any) error {
	b, err := disk.ReadEntry(path, disk.MaxText)
	if err != nil {
		return fmt.Errorf("read %s: %w", path, err)
	}
	if err := strictjson.Unmarshal(b, v); err != nil {
		return fmt.Errorf("%s is not the JSON that is expected here: %w", path, err)
	}
	return nil
}
