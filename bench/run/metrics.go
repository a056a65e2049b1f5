package run

import (
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/ccmed/ccmed/bench/checksum"
	"github.com/ccmed/ccmed/bench/strictjson"
)

// StoredMetrics is what metrics.json holds. Task, Usage and Metrics are those of the
// scoring that wrote it.
type StoredMetrics struct {
	ContentHash string `json:"content_sha256,omitempty" jsonschema:"pattern=^sha256:[0-9a-f]{64}$"` // older files have none
	Schema      int    `json:"schema"`
	// Version is that of the program that scored; older files have none.
	Version string `json:"version,omitempty"`
	Task    string `json:"task"`
	// Inputs are hashes of what the metrics depend on beside the samples, by name.
	Inputs      map[string]string `json:"inputs,omitempty"`
	SamplesHash string            `json:"samples_sha256" jsonschema:"pattern=^sha256:[0-9a-f]{64}$"`
	Seed        int64             `json:"seed"`
	Usage       Summary           `json:"usage"`
	Metrics     json.RawMessage   `json:"metrics"`
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
