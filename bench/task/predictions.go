package task

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

const (
	maxPredictions = 64 << 20 // bytes of a prediction file
	maxFaults      = 10       // that an error lists
)

// Lines reads a prediction file, or the turns and lines of a run, by dialogue. It refuses
// what is not of one of the dialogues: ids that they do not have, ids twice, turns outside.
// With lenient such entries are left out and noted.
func (a *Archive) Lines(path string, ds []dialogue.Dialogue, lenient bool) (map[string]Line, error) {
	ps, err := a.predictions(path)
	if err != nil {
		return nil, err
	}
	return a.Check(path, ps, ds, lenient)
}

func (a *Archive) predictions(path string) ([]Prediction, error) {
	if st, err := os.Stat(path); err != nil || !st.IsDir() {
		return ReadPredictions(path)
	}
	of, err := a.RunLines(path)
	if err != nil {
		return nil, err
	}
	var out []Prediction
	for _, key := range slices.Sorted(maps.Keys(of)) {
		if of[key].Written {
			out = append(out, Prediction{SID: key, Line: of[key]})
		}
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("%s holds no utterances; name a mediation run that has the condition ND, a run of `ccmed sft predict`, or a prediction file", path)
	}
	return out, nil
}

// RunLines are the turns and lines of a run, by item.
func (a *Archive) RunLines(path string) (map[string]Line, error) {
	r, err := a.Open(path)
	if err != nil {
		return nil, err
	}
	s, ok := r.Bench.(Speaker)
	if !ok {
		return nil, fmt.Errorf("%s is a %s run; it predicts no turns and holds no lines", path, r.Identity().Task)
	}
	return s.Lines(r)
}

// Check returns the predictions of a file by dialogue, see Lines.
func (a *Archive) Check(path string, ps []Prediction, ds []dialogue.Dialogue, lenient bool) (map[string]Line, error) {
	known := map[string]dialogue.Dialogue{}
	for _, d := range ds {
		known[d.Key()] = d
	}
	out := map[string]Line{}
	var faults []error
	places := map[string]string{}
	for _, p := range ps {
		if err := p.check(known, places); err != nil {
			faults = append(faults, fmt.Errorf("%s: %w", path, err))
			continue
		}
		out[p.SID], places[p.SID] = p.Line, p.place
	}
	if len(faults) > 0 && !lenient {
		return nil, firstFaults(faults)
	}
	for _, f := range faults {
		a.Note("left out: %v", f)
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

// Prediction is a line under the id that a file gives.
type Prediction struct {
	SID string
	Line
	place string // in its file; empty for that of a run
}

// check says why a prediction cannot be used beside those before it, whose places are
// given.
func (p Prediction) check(known map[string]dialogue.Dialogue, before map[string]string) error {
	at := p.place
	if at == "" {
		at = "item " + p.SID
	}
	d, ok := known[p.SID]
	if !ok {
		return fmt.Errorf("%s: sid %q is not among the dialogues of --data; name the data that it is about, and its --split", at, cut(p.SID))
	}
	if first, ok := before[p.SID]; ok {
		return fmt.Errorf("%s: sid %s occurs twice, first in %s; keep one of them", at, p.SID, first)
	}
	if p.Turn != nil && (*p.Turn < 0 || *p.Turn > d.LastTurn()) {
		return fmt.Errorf("%s: sid %s: predicted_turn %d is not a turn of the dialogue (1 to %d, 0 for none)", at, p.SID, *p.Turn, d.LastTurn())
	}
	return nil
}

const predictionForm = `it must look like {"per_sid":[{"sid":"42","predicted_turn":6,"utterance":"..."}]}`

// ReadPredictions reads the reference repository's prediction format. An id is a
// text or a whole number; both name the same dialogue.
func ReadPredictions(path string) ([]Prediction, error) {
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
	out := make([]Prediction, len(file.PerSID))
	for i, x := range file.PerSID {
		where := fmt.Sprintf("per_sid[%d]", i)
		sid, err := sidOf(x.SID)
		if err != nil {
			return nil, fmt.Errorf("%s: %s: %w", path, where, err)
		}
		if x.Turn == nil && x.Other != nil {
			return nil, fmt.Errorf("%s: %s has pred_turn, the key of results, and no predicted_turn, that of predictions; %s", path, where, predictionForm)
		}
		out[i] = Prediction{sid, Line{Turn: x.Turn, Text: x.Utterance, Written: true}, where}
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
