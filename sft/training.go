package sft

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/ccmed/ccmed/bench/disk"
	"github.com/ccmed/ccmed/bench/strictjson"
)

// TrainSchema is the version of a training run's files.
const TrainSchema = 1

// Names in the folder of a training run.
const (
	ManifestFile = "train.json"
	ConfigFile   = "config.json"  // what the trainer is told
	EventsFile   = "events.jsonl" // what it tells, each with its time
	LossFile     = "loss.csv"
	TrainLog     = "train.log" // its standard error
	Checkpoints  = "checkpoints"
	FinalDir     = "final" // what it made
	trainLock    = "lock"
)

// Status of a training run.
const (
	TrainStarted     = "started"
	TrainDone        = "done"
	TrainInterrupted = "interrupted"
	TrainFailed      = "failed"
)

// Manifest describes a training run, in its file ManifestFile.
type Manifest struct {
	Schema  int    `json:"schema"`
	Status  string `json:"status"`
	Version string `json:"version"` // of this program
	// Scripts is the ScriptsDigest of the programs that trained.
	Scripts string     `json:"scripts_sha256"`
	Preset  string     `json:"preset,omitempty"`
	Config  Config     `json:"config"`
	Base    Checkpoint `json:"base"`
	// Export is what was trained on, and ExportDigest identifies its files.
	Export       *Export `json:"export"`
	ExportDigest string  `json:"export_digest"`
	Memory       Memory  `json:"memory_estimate"`

	Sessions []TrainSession `json:"sessions"`
	Result   *TrainResult   `json:"result,omitempty"`
}

// TrainSession is one start of the trainer.
type TrainSession struct {
	Started     time.Time   `json:"started"`
	Ended       time.Time   `json:"ended,omitzero"`
	Status      string      `json:"status"`
	Resumed     bool        `json:"resumed"` // from a checkpoint
	Processes   int         `json:"processes"`
	Environment Environment `json:"environment"`
	Error       string      `json:"error,omitempty"`
}

// TrainResult is what a finished training came to.
type TrainResult struct {
	Final   string  `json:"final"` // folder
	Steps   int     `json:"steps"`
	Seconds float64 `json:"seconds"` // of the last session
	// Validation is the last one, nil where the trainer made none.
	Validation *Validation `json:"validation,omitempty"`
	// HeldOut is how it does on the records that the export holds out, at the end;
	// its threshold is that of the validation.
	HeldOut *Validation `json:"held_out,omitempty"`
	// PeakMemory is the largest that an event told, in bytes.
	PeakMemory int64 `json:"peak_memory_bytes,omitempty"`
}

// Validation is how a model in training does on the validation dialogues.
type Validation struct {
	Step    int      `json:"step"`
	N       int      `json:"n"`               // dialogues
	TurnAcc float64  `json:"turn_acc"`        // at P(speak) of 0.5
	Right   []string `json:"right,omitempty"` // ids of the dialogues counted in TurnAcc
	LM      float64  `json:"lm"`              // mean loss of a token of the span
	BCE     float64  `json:"bce"`             // mean loss of a decision
	// Threshold is the P(speak) that gives the best accuracy on these dialogues,
	// ThresholdTurnAcc.
	Threshold        float64 `json:"threshold"`
	ThresholdTurnAcc float64 `json:"threshold_turn_acc"`
}

// TrainingRun is the folder of a training run, open for writing and locked.
type TrainingRun struct {
	dir      string
	lock     *os.File
	manifest Manifest
}

// CreateTraining makes the folder of a new run at m.Config.Out, which must not
// exist or be empty.
func CreateTraining(m Manifest) (*TrainingRun, error) {
	dir := m.Config.Out
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("make the run folder: %w; choose another with --out", err)
	}
	if err := vacant(dir); err != nil {
		return nil, err
	}
	t, err := lockTraining(dir)
	if err != nil {
		return nil, err
	}
	// Another process may have begun a run here before the lock was ours.
	if err := vacant(dir); err != nil {
		return nil, errors.Join(err, t.Close())
	}
	m.Schema, m.Status = TrainSchema, TrainStarted
	t.manifest = m
	if err := t.save(); err != nil {
		return nil, errors.Join(err, t.Close())
	}
	return t, nil
}

// vacant returns an error when a folder holds more than a lock and what a killed
// CreateTraining leaves behind.
func vacant(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("look into the run folder: %w", err)
	}
	if _, err := os.Stat(filepath.Join(dir, ManifestFile)); err == nil {
		return fmt.Errorf("%s holds a training run; go on with it with: ccmed sft train --out %s --resume, or choose another --out", dir, dir)
	}
	for _, e := range entries {
		if !oneOf(e.Name(), trainLock, ManifestFile) {
			return fmt.Errorf("%s holds other files, such as %s; choose another --out", dir, e.Name())
		}
	}
	return nil
}

// ResumeTraining opens a run to go on with it. It must not be done, and its export
// and base must be what they were.
func ResumeTraining(dir string) (*TrainingRun, error) {
	if _, err := ReadTraining(dir); err != nil { // before a lock is left where there is no run
		return nil, err
	}
	if err := linkless(dir); err != nil {
		return nil, err
	}
	t, err := lockTraining(dir)
	if err != nil {
		return nil, err
	}
	m, err := ReadTraining(dir)
	if err != nil {
		return nil, errors.Join(err, t.Close())
	}
	if m.Status == TrainDone {
		return nil, errors.Join(fmt.Errorf("%s is done: %d steps, in %s; train anew with another --out", dir, m.Result.Steps, m.Result.Final), t.Close())
	}
	t.manifest = *m
	t.manifest.Config.Out = t.dir // the folder may have moved
	return t, nil
}

// linkless refuses a folder with links. The trainer writes and removes files in it
// wherever they lead, and a folder that was copied from elsewhere may lead anywhere.
func linkless(dir string) error {
	return filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err == nil && path != dir && e.Type()&fs.ModeSymlink != 0 {
			_, err = disk.OpenEntry(path)
		}
		if err != nil {
			return fmt.Errorf("look into the run folder: %w", err)
		}
		return nil
	})
}

// ReadTraining reads what a training run is.
func ReadTraining(dir string) (*Manifest, error) {
	path := filepath.Join(dir, ManifestFile)
	b, err := disk.ReadEntry(path, disk.MaxText)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s is no training run: %w; start one with: ccmed sft train", dir, err)
	}
	if err != nil {
		return nil, fmt.Errorf("read the training run: %w", err)
	}
	m := &Manifest{}
	if err := strictjson.Unmarshal(b, m); err != nil {
		return nil, fmt.Errorf("%s is damaged: %w", path, err)
	}
	if m.Schema != TrainSchema {
		return nil, fmt.Errorf("%s has format %d and this version reads %d; use ccmed %s, which wrote it, or a newer one", path, m.Schema, TrainSchema, m.Version)
	}
	if m.Status == TrainDone && m.Result == nil {
		return nil, fmt.Errorf("%s says done and has no result: it was changed by hand", path)
	}
	return m, nil
}

func lockTraining(dir string) (*TrainingRun, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("open the run folder: %w", err)
	}
	l, err := disk.Lock(filepath.Join(dir, trainLock), 0o644)
	if errors.Is(err, disk.ErrLocked) {
		return nil, fmt.Errorf("%s is in use by another process; wait for it, or choose another --out", dir)
	}
	if err != nil {
		return nil, fmt.Errorf("lock the run folder: %w; choose one that can be written with --out", err)
	}
	return &TrainingRun{dir: dir, lock: l}, nil
}

// Manifest returns what the run is now.
func (t *TrainingRun) Manifest() Manifest { return t.manifest }

// Dir returns the run's folder.
func (t *TrainingRun) Dir() string { return t.dir }

// Same returns an error that names the settings of c which are not those that the
// run was started with, as far as they could change a weight.
func (t *TrainingRun) Same(c Config) error {
	if diff := c.changed(t.manifest.Config); len(diff) > 0 {
		return fmt.Errorf("%s was started with other settings and cannot be resumed with these: %s; leave them out, or start a new run", t.dir, strings.Join(diff, ", "))
	}
	return nil
}

// Unchanged returns an error where the base or the export are not those that the
// run was started with.
func (t *TrainingRun) Unchanged(base *Checkpoint, export *Export) error {
	m := t.manifest
	switch {
	case base.Digest != m.Base.Digest:
		return fmt.Errorf("the base model in %s is not the one that %s was started with; start a new run", base.Dir, t.dir)
	case export.Digest() != m.ExportDigest:
		return fmt.Errorf("the training data in %s is not what %s was started with; start a new run", m.Config.Data, t.dir)
	}
	return nil
}

// Continue takes settings that Same allows: where things lie, how often to save.
func (t *TrainingRun) Continue(c Config) { t.manifest.Config = c }

// Close gives the lock back.
func (t *TrainingRun) Close() error {
	if err := t.lock.Close(); err != nil {
		return fmt.Errorf("unlock the run folder: %w", err)
	}
	return nil
}

func (t *TrainingRun) save() error { return writeJSON(filepath.Join(t.dir, ManifestFile), t.manifest) }

// resumable says whether there is a checkpoint to go on from.
func (t *TrainingRun) resumable() (bool, error) {
	checkpoints, err := filepath.Glob(filepath.Join(t.dir, Checkpoints, "step-*"))
	if err != nil {
		return false, fmt.Errorf("look for checkpoints: %w", err)
	}
	return len(checkpoints) > 0, nil
}
