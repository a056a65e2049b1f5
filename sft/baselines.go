package sft

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/ccmed/ccmed/bench/report"
	"github.com/ccmed/ccmed/bench/timing"
)

// turnHead is what dialogue.Transcript puts before a message. It holds the turn's
// number, which a baseline of words must not see.
var turnHead = regexp.MustCompile(`^\s*Turn \d+ \([^\n]*?\): `)

// messages returns what is said in a record's dialogue, turn by turn.
func (r Record) messages() []string {
	turns := strings.Split(strings.TrimPrefix(r.Dialogue, Intro), TurnEnd)
	turns = turns[:len(turns)-1]
	for i, t := range turns {
		turns[i] = turnHead.ReplaceAllString(t, "")
	}
	return turns
}

// ValidationBaselines are timing's baselines on the validation dialogues of a
// training run, fitted on the very dialogues that it was trained on. The error says
// so where its export is gone or has changed.
func ValidationBaselines(ctx context.Context, m *Manifest) ([]timing.BaselineResult, error) {
	x, err := ReadExport(m.Config.Data)
	if err != nil {
		return nil, err
	}
	if x.Digest() != m.ExportDigest {
		return nil, fmt.Errorf("%s now holds another export than the one that was trained on", m.Config.Data)
	}
	train, err := baselineDialogues(filepath.Join(m.Config.Data, TrainFile))
	if err != nil {
		return nil, err
	}
	valid, err := baselineDialogues(filepath.Join(m.Config.Data, ValidFile))
	if err != nil || len(valid) == 0 {
		return nil, err
	}
	return timing.BaselineInput{Eval: valid, Train: train}.Results(ctx)
}

func baselineDialogues(path string) ([]timing.BaselineDialogue, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read the records for the baselines: %w", err)
	}
	var out []timing.BaselineDialogue
	dec := json.NewDecoder(bytes.NewReader(b))
	for {
		var r Record
		err := dec.Decode(&r)
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if err != nil {
			return nil, fmt.Errorf("%s, record %d: %w", path, len(out)+1, err)
		}
		out = append(out, timing.BaselineDialogue{ID: r.ID, Group: r.Group, Gold: r.Gold, Turns: r.messages()})
	}
}

// baselineTable puts the last validation and the baselines side by side.
func baselineTable(v *Validation, baselines []timing.BaselineResult) report.Table {
	t := report.Table{Title: "Validation beside the baselines", Columns: []report.Column{{Name: "who"}, {Name: "TurnAcc", Align: report.Right}, {Name: "fitted on"}},
		Rows: [][]report.Cell{{report.Text("the tuned model, threshold 0.5"), report.Text(report.Pct(hits(v.TurnAcc, v.N), v.N)), report.Text("the training file")}}}
	for _, b := range baselines {
		t.Rows = append(t.Rows, []report.Cell{report.Text("baseline: " + b.Name), report.Text(b.Share()), report.Text(b.Fitted)})
	}
	return t
}
