package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/ccmed/ccmed/bench/dialogue"
	"github.com/ccmed/ccmed/bench/disk"
	"github.com/ccmed/ccmed/bench/strictjson"
)

// line is what was predicted or said of one dialogue, elsewhere or in another run.
type line struct {
	Turn      *int // 0: the mediator never speaks; nil where it is not known
	Utterance string

	where string // in its file; empty for that of a run
}

const (
	maxPredictions = 64 << 20 // bytes of a prediction file
	maxFaults      = 10       // that an error lists
)

// lines reads a prediction file, or the lines of a run, by dialogue, and refuses
// what is not of one of the dialogues: ids that they do not have, ids twice, turns
// outside. With lenient such entries are left out and told.
func (a *app) lines(path string, ds []dialogue.Dialogue, lenient bool) (map[string]line, error) {
	entries, err := readEntries(path)
	if err != nil {
		return nil, err
	}
	return a.checked(path, entries, ds, lenient)
}

func readEntries(path string) (entries []entry, err error) {
	if st, err := os.Stat(path); err != nil || !st.IsDir() {
		return readPredictions(path)
	}
	of, err := linesOfRun(path)
	for _, key := range slices.Sorted(maps.Keys(of)) {
		entries = append(entries, entry{key, of[key]})
	}
	return entries, err
}

// checked returns the entries by dialogue, see lines.
func (a *app) checked(path string, entries []entry, ds []dialogue.Dialogue, lenient bool) (map[string]line, error) {
	known := map[string]dialogue.Dialogue{}
	for _, d := range ds {
		known[d.Key()] = d
	}
	out := map[string]line{}
	var faults []error
	for _, e := range entries {
		if err := e.fault(known, out); err != nil {
			faults = append(faults, fmt.Errorf("%s: %w", path, err))
			continue
		}
		out[e.sid] = e.line
	}
	if len(faults) > 0 && !lenient {
		return nil, firstFaults(faults)
	}
	for _, f := range faults {
		a.note("left out: %v", f)
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("%s holds nothing about a dialogue of --data", path)
	}
	return out, nil
}

// firstFaults joins the first faults, one a line, and counts the rest.
func firstFaults(faults []error) error {
	if n := len(faults) - maxFaults; n > 0 {
		faults = append(faults[:maxFaults:maxFaults], fmt.Errorf("and %d more", n))
	}
	return errors.Join(faults...)
}

// entry is a line under the id that it gives.
type entry struct {
	sid string
	line
}

// fault says why an entry cannot be used beside those before it.
func (e entry) fault(known map[string]dialogue.Dialogue, before map[string]line) error {
	at := e.where
	if at == "" {
		at = "item " + e.sid
	}
	d, ok := known[e.sid]
	if !ok {
		return fmt.Errorf("%s: sid %q is not among the dialogues of --data; name the data that it is about, and its --split", at, cut(e.sid))
	}
	if first, ok := before[e.sid]; ok {
		return fmt.Errorf("%s: sid %s occurs twice, first in %s; keep one of them", at, e.sid, first.where)
	}
	if e.Turn != nil && (*e.Turn < 0 || *e.Turn > d.LastTurn()) {
		return fmt.Errorf("%s: sid %s: predicted_turn %d is not a turn of the dialogue (1 to %d, 0 for none)", at, e.sid, *e.Turn, d.LastTurn())
	}
	return nil
}

const predictionForm = `it must look like {"per_sid":[{"sid":"42","predicted_turn":6,"utterance":"..."}]}`

// readPredictions reads the reference repository's prediction format. An id is a
// text or a whole number; both name the same dialogue.
func readPredictions(path string) ([]entry, error) {
	b, err := disk.ReadFile(path, maxPredictions)
	if err != nil {
		return nil, fmt.Errorf("read predictions: %w", err)
	}
	var file struct {
		PerSID []struct {
			SID       json.RawMessage `json:"sid"`
			Turn      *int            `json:"predicted_turn"`
			Other     json.RawMessage `json:"pred_turn"` // of the format of results
			Utterance string          `json:"utterance"`
		} `json:"per_sid"`
	}
	err = strictjson.Unmarshal(b, &file, strictjson.RefuseNUL, strictjson.RefuseNullEntries)
	var e *strictjson.Error
	switch {
	case errors.As(err, &e) && e.Field == "":
		return nil, fmt.Errorf("%s is no file of predictions: %s; %s", path, e.What, predictionForm)
	case err != nil:
		return nil, fmt.Errorf("%s: %w", path, err)
	case len(file.PerSID) == 0:
		return nil, fmt.Errorf("%s holds no predictions; %s; of records name their folder or .jsonl file", path, predictionForm)
	}
	out := make([]entry, len(file.PerSID))
	for i, x := range file.PerSID {
		where := fmt.Sprintf("per_sid[%d]", i)
		sid, err := sidOf(x.SID)
		if err != nil {
			return nil, fmt.Errorf("%s: %s: %w", path, where, err)
		}
		if x.Turn == nil && x.Other != nil {
			return nil, fmt.Errorf("%s: %s has pred_turn, the key of results, and no predicted_turn, that of predictions; %s", path, where, predictionForm)
		}
		out[i] = entry{sid, line{x.Turn, x.Utterance, where}}
	}
	return out, nil
}

func sidOf(raw json.RawMessage) (string, error) {
	var text string
	var number int
	switch {
	case len(raw) == 0 || string(raw) == "null":
		return "", errors.New(`there is no "sid"; give the dialogue's scenario_id`)
	case json.Unmarshal(raw, &text) == nil:
		return text, nil
	case json.Unmarshal(raw, &number) == nil:
		return fmt.Sprint(number), nil
	}
	return "", fmt.Errorf("sid %s is neither a text nor a whole number; give the dialogue's scenario_id", cut(string(raw)))
}

// cut shortens what an error quotes.
func cut(s string) string {
	const most = 60
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "…"
}
