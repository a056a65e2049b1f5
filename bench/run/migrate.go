package run

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"time"

	"github.com/ccmed/ccmed/bench/checksum"
	"github.com/ccmed/ccmed/bench/strictjson"
)

// Migration is a change of the manifest's form.
type Migration struct {
	From    int       `json:"from"` // schemas
	To      int       `json:"to"`
	Time    time.Time `json:"time"`
	Version string    `json:"version"` // of the tool that did it
}

// Migrate brings a run's manifest to the present Schema and returns what it was
// before, 0 where nothing was to do. The manifest as it was stays beside it, as
// manifest.schema-N.json. The run must not be in use; a form that is too new is a
// *NewerError.
//
// From 1 to 2 the identity, prompts.jsonl and errors.jsonl get their hashes. They tell
// of changes from then on: what was changed by hand before is not seen.
func Migrate(path, version string, now time.Time) (from int, err error) {
	if _, err := readManifest(path); err != nil {
		return 0, err
	}
	d := &Dir{path: path}
	if err := d.acquire(); err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, d.release()) }()
	if d.manifest, err = readManifest(path); err != nil {
		return 0, err
	}
	m := &d.manifest
	if m.Schema == Schema {
		return 0, nil
	}
	from = m.Schema
	if from < 1 {
		return 0, fmt.Errorf("%s has schema %d; the first one is 1", filepath.Join(path, ManifestFile), from)
	}
	if err := d.Keep(ManifestFile, from); err != nil {
		return 0, err
	}
	if m.IdentityHash, err = m.Identity.hash(); err != nil {
		return 0, err
	}
	if m.Files == nil && m.Status != StatusStarted {
		// As they are now, like the identity.
		sums, err := d.sums()
		if err != nil {
			return 0, err
		}
		delete(sums, SamplesFile) // which had its hash before
		m.record(sums)
	}
	m.Schema = Schema
	m.Migrations = append(m.Migrations, Migration{from, Schema, now.UTC().Truncate(time.Second), version})
	return from, d.writeManifest()
}

// Keep copies a file of the run to where it stays in its old form, NAME.schema-N.json
// for NAME.json. A copy that is there already must be the same.
func (d *Dir) Keep(name string, schema int) error {
	text, err := d.readEntry(name)
	if err != nil {
		return err
	}
	ext := filepath.Ext(name)
	kept := fmt.Sprintf("%s.schema-%d%s", name[:len(name)-len(ext)], schema, ext)
	switch there, err := d.readEntry(kept); {
	case errors.Is(err, fs.ErrNotExist):
		return d.WriteFile(kept, text)
	case err != nil:
		return fmt.Errorf("look for an earlier copy: %w", err)
	case string(there) != string(text):
		return fmt.Errorf("%s holds another %s of schema %d; move it away first", filepath.Join(d.path, kept), name, schema)
	}
	return nil
}

// StoredMetrics is what metrics.json holds. Task, Usage and Metrics are those of the
// scoring that wrote it.
type StoredMetrics struct {
	ContentHash string          `json:"content_sha256,omitempty"` // older files have none
	Schema      int             `json:"schema"`
	Task        string          `json:"task"`
	SamplesHash string          `json:"samples_sha256"`
	Seed        int64           `json:"seed"`
	Usage       Summary         `json:"usage"`
	Metrics     json.RawMessage `json:"metrics"`
}

// Metrics reads metrics.json. A run that was not scored has none: fs.ErrNotExist.
func (d *Dir) Metrics() (StoredMetrics, error) {
	var m StoredMetrics
	file := filepath.Join(d.path, MetricsFile)
	text, err := d.readEntry(MetricsFile)
	if err != nil {
		return m, err
	}
	if err := strictjson.Unmarshal(text, &m); err != nil {
		return m, fmt.Errorf("%s is damaged: %w; score the run again: ccmed score %s", file, plain(err), d.path)
	}
	if err := checksum.Check(text); err != nil && !errors.Is(err, checksum.ErrNone) {
		return m, fmt.Errorf("%s: %w; score the run again: ccmed score %s", file, err, d.path)
	}
	if m.Schema > MetricsSchema {
		return m, &NewerError{File: file, Schema: m.Schema, Reads: MetricsSchema}
	}
	return m, nil
}
