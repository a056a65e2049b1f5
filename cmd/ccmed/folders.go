package main

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

	"github.com/ccmed/ccmed/bench/run"
	"github.com/ccmed/ccmed/bench/task"
	"github.com/ccmed/ccmed/sft"
)

// Kinds of folders that the program makes.
const (
	kindRun      = "run"
	kindStore    = "store" // of hidden states
	kindTraining = "training"
	kindExport   = "export" // of training data
	kindPackage  = "package"
	kindSuite    = "suite"
)

// statusDamaged is the status of a folder that cannot be read.
const statusDamaged = "damaged"

// folder is what a folder is, in the words of a list.
type folder struct {
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

// mark is a file by which a folder is known.
type mark struct {
	file, kind string
	read       func(path string, f *folder) error
}

// marks lists the marks, the most telling first.
func marks() []mark {
	return []mark{
		{run.ManifestFile, kindRun, readRunFolder},
		{sft.ManifestFile, kindTraining, readTrainingFolder},
		{sft.CardFile, kindPackage, readPackageFolder},
		{suiteFile, kindSuite, readSuiteFolder},
		{sft.ExportFile, kindExport, readExportFolder},
	}
}

// kindOf tells by its files what a folder is, "" for none of ours.
func kindOf(path string) string {
	for _, m := range marks() {
		if exists(filepath.Join(path, m.file)) {
			return m.kind
		}
	}
	return ""
}

// ownFile refuses to write over a file by which a run, export, training, package or
// suite is known or from which its numbers come.
func ownFile(path string) error {
	names := []string{run.SamplesFile, run.PromptsFile, run.ErrorsFile, run.MetricsFile, run.LogFile,
		sft.TrainFile, sft.ValidFile, sft.HeldOutFile, sft.ConfigFile, sft.EventsFile, sft.ModelFile, sft.HeadFile}
	for _, m := range marks() {
		names = append(names, m.file)
	}
	dir := filepath.Dir(path)
	if kind := kindOf(dir); kind != "" && slices.Contains(names, filepath.Base(path)) {
		return fmt.Errorf("%s belongs to the %s in %s and is kept; --out names another file", path, kind, dir)
	}
	return nil
}

// readFolder says what a folder is. A folder that cannot be read is described by its
// fault; ok is false where it is none of ours.
func readFolder(path string) (f folder, ok bool) {
	for _, m := range marks() {
		if !exists(filepath.Join(path, m.file)) {
			continue
		}
		f = folder{Path: path, Kind: m.kind}
		if err := m.read(path, &f); err != nil {
			f.Status, f.Fault = statusDamaged, err.Error()
		}
		return f, true
	}
	return f, false
}

// listFolders describes the folders in root, in the order of their names. A root
// that is not there has none.
func listFolders(root string) ([]folder, error) {
	entries, err := os.ReadDir(root)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list runs: %w", err)
	}
	var out []folder
	for _, e := range entries {
		if f, ok := readFolder(filepath.Join(root, e.Name())); ok {
			out = append(out, f)
		}
	}
	return out, nil
}

func readRunFolder(path string, f *folder) error {
	d, err := run.Open(path)
	if err != nil {
		// What can still be read helps to know which run it is.
		var m run.Manifest
		if readJSON(filepath.Join(path, run.ManifestFile), &m) == nil {
			describeRun(m, f)
		}
		return err
	}
	describeRun(d.Manifest(), f)
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

func describeRun(m run.Manifest, f *folder) {
	f.Task, f.Model, f.Status, f.Samples = m.Identity.Task, m.Identity.ModelNames(), m.Status, m.Samples
	f.Data = task.DataOf(m.Identity)
	f.Hash = m.Identity.DataHash
	if b, ok := benches.Of(m.Identity); ok {
		f.Kind = cmp.Or(b.About().Folder, kindRun)
	}
	if len(m.Sessions) > 0 {
		f.Started = m.Sessions[0].Start
	}
}

func readTrainingFolder(path string, f *folder) error {
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

func readPackageFolder(path string, f *folder) error {
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

func readExportFolder(path string, f *folder) error {
	x, err := sft.ReadExport(path)
	if err != nil {
		return err
	}
	f.Status, f.Hash, f.Samples = "done", x.Data, x.Counts["train"]+x.Counts["valid"]
	return f.dated(filepath.Join(path, sft.ExportFile))
}

// suiteRecord is what a suite's folder keeps of what was asked last.
type suiteRecord struct {
	Suite   string            `json:"suite"`
	Version string            `json:"version"`
	Set     map[string]string `json:"set"`
	Steps   []struct {
		Name    string   `json:"name"`
		Needs   []string `json:"needs"`
		Command []string `json:"command"`
	} `json:"steps"`
}

// readSuiteRecord reads what was asked of a suite last.
func readSuiteRecord(path string) (suiteRecord, error) {
	var r suiteRecord
	err := readJSON(filepath.Join(path, suiteFile), &r)
	return r, err
}

// state says how far the step of a suite got.
func (r suiteRecord) state(path string, step int) string {
	name := r.Steps[step].Name
	f, ok := readFolder(filepath.Join(path, name))
	switch {
	case exists(filepath.Join(path, name+doneFile)):
		return "done"
	case ok:
		return f.Status
	}
	return "to do"
}

func readSuiteFolder(path string, f *folder) error {
	r, err := readSuiteRecord(path)
	if err != nil {
		return err
	}
	done := 0
	for i := range r.Steps {
		if r.state(path, i) == run.StatusDone {
			done++
		}
	}
	f.Task, f.Status, f.Data = r.Suite, fmt.Sprintf("%d of %d steps", done, len(r.Steps)), r.Set["data"]
	if done == len(r.Steps) {
		f.Status = run.StatusDone
	}
	return f.dated(filepath.Join(path, suiteFile))
}

// dated takes the time of a folder that keeps none from its describing file.
func (f *folder) dated(file string) error {
	st, err := os.Stat(file)
	if err != nil {
		return fmt.Errorf("look at %s: %w", file, err)
	}
	f.Started = st.ModTime().UTC()
	return nil
}

// MarshalJSON cuts times to seconds, as tables show them.
func (f folder) MarshalJSON() ([]byte, error) {
	type plain folder
	p := plain(f)
	p.Started = p.Started.UTC().Truncate(time.Second)
	return json.Marshal(p)
}
