package sft

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/ccmed/ccmed/bench/report"
	"github.com/ccmed/ccmed/bench/stats"
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

// Baseline is one of timing's baselines, fitted on the very dialogues that a model
// was trained on and asked about others.
type Baseline struct {
	timing.BaselineResult
	// Compared is the trained model's TurnAcc at 0.5 minus this one's, in pairs and by
	// scenario context. It is nil where the baseline predicts no turns, where all
	// dialogues have one context, and where the trainer did not tell which it got right.
	Compared *stats.Comparison
	// Tuned is the trained model's TurnAcc at 0.5 on the same dialogues, with its interval by
	// scenario context; nil where the trainer did not tell which it got right.
	Tuned *stats.Estimate
}

// Baselines returns the baselines of a finished training by exported file: on the
// dialogues that validate, and on those held out. The error says so where its export
// is gone or has changed.
func Baselines(ctx context.Context, m *Manifest) (map[string][]Baseline, error) {
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
	out := map[string][]Baseline{}
	for file, v := range map[string]*Validation{ValidFile: m.Result.Validation, HeldOutFile: m.Result.HeldOut} {
		eval, err := baselineDialogues(filepath.Join(m.Config.Data, file))
		if errors.Is(err, fs.ErrNotExist) || err == nil && (v == nil || len(eval) == 0) {
			continue
		}
		if err != nil {
			return nil, err
		}
		results, err := timing.BaselineInput{Eval: eval, Train: train}.Results(ctx)
		if err != nil {
			return nil, err
		}
		tuned, err := tunedShare(eval, v, uint64(m.Config.Seed))
		if err != nil {
			return nil, err
		}
		for _, r := range results {
			b := Baseline{BaselineResult: r, Tuned: tuned}
			if r.Predicted != nil && v.Right != nil && v.N == len(eval) {
				b.Compared, err = compareHits(eval, r.Predicted, v.Right, uint64(m.Config.Seed))
				if err != nil && !errors.Is(err, stats.ErrOneGroup) {
					return nil, fmt.Errorf("compare with the baseline %s: %w", r.Name, err)
				}
			}
			out[file] = append(out[file], b)
		}
	}
	return out, nil
}

// resamples of an interval and of a p.
const resamples = 10000

// tunedShare is the share of dialogues that a model got right.
func tunedShare(ds []timing.BaselineDialogue, v *Validation, seed uint64) (*stats.Estimate, error) {
	if v.Right == nil || v.N != len(ds) {
		return nil, nil
	}
	hits, groups := make([]float64, len(ds)), make([]string, len(ds))
	for i, d := range ds {
		groups[i] = d.Group
		if slices.Contains(v.Right, d.ID) {
			hits[i] = 1
		}
	}
	e, err := stats.Bootstrap{Resamples: resamples, Seed: seed}.Share(hits, groups)
	if err != nil {
		return nil, fmt.Errorf("the tuned model's TurnAcc: %w", err)
	}
	return &e, nil
}

// compareHits pairs what a baseline predicted with the dialogues that a model got
// right.
func compareHits(ds []timing.BaselineDialogue, predicted []int, right []string, seed uint64) (*stats.Comparison, error) {
	a, b := stats.Measure{Name: "baseline", Binary: true}, stats.Measure{Name: timing.MeasureTurnAcc, Binary: true}
	observe := func(m *stats.Measure, d timing.BaselineDialogue, hit bool) {
		o := stats.Observation{Item: d.ID, Group: d.Group}
		if hit {
			o.Value = 1
		}
		m.Observations = append(m.Observations, o)
	}
	for i, d := range ds {
		observe(&a, d, predicted[i] == d.Gold)
		observe(&b, d, slices.Contains(right, d.ID))
	}
	c, err := stats.Compare(a, b, stats.Resampling{Resamples: resamples, Seed: seed})
	if err != nil {
		return nil, err
	}
	return &c, nil
}

func baselineDialogues(path string) ([]timing.BaselineDialogue, error) {
	records, err := recordsOf(path)
	if err != nil {
		return nil, err
	}
	var out []timing.BaselineDialogue
	for _, r := range records {
		out = append(out, timing.BaselineDialogue{ID: r.ID, Group: r.Group, Gold: r.Gold, Turns: r.messages()})
	}
	return out, nil
}

// besideTables puts the trained model and the baselines side by side.
func besideTables(r *TrainResult, holdout HeldOut, baselines map[string][]Baseline) []report.Table {
	var out []report.Table
	for _, x := range []struct {
		file, title string
		measured    *Validation
	}{
		{ValidFile, "Validation beside the baselines", r.Validation},
		{HeldOutFile, fmt.Sprintf("Held out by %s (%s) beside the baselines", holdout.Kind, strings.Join(holdout.Keys, "; ")), r.HeldOut},
	} {
		if x.measured == nil {
			continue
		}
		t := report.Table{Title: x.title, Columns: report.Columns("who", "TurnAcc>", "95 % interval",
			"tuned − it, points", "p>", "fitted on")}
		tuned := func(name string, share float64, interval report.Cell) {
			if x.measured.N > 0 { // else there is no dialogue that a share could be of
				t.Add(name, report.Pct(hits(share, x.measured.N), x.measured.N), interval, "", "", "the training file")
			}
		}
		var interval report.Cell
		for _, b := range baselines[x.file] {
			if b.Tuned != nil {
				interval = report.Text(bounds(*b.Tuned))
			}
		}
		tuned("the tuned model, threshold 0.5", x.measured.TurnAcc, interval)
		if x.file == HeldOutFile { // on the validation it was chosen to be right
			tuned(fmt.Sprintf("the tuned model, threshold %.3g of the validation", x.measured.Threshold), x.measured.ThresholdTurnAcc, report.Cell{})
		}
		for _, b := range baselines[x.file] {
			row := []report.Cell{report.Text("baseline: " + b.Name), report.Text(b.Share()), {}, {}, {}, report.Text(b.Fitted)}
			if c := b.Compared; c != nil {
				d := c.Difference
				row[3] = report.Text(fmt.Sprintf("%+.1f [%+.1f, %+.1f]", 100*d.Value, 100*d.Lo, 100*d.Hi))
				row[4] = report.Text(report.PValue(c.P))
			}
			t.Rows = append(t.Rows, row)
		}
		t.Notes = []string{"intervals are by scenario context; differences are paired at threshold 0.5, each with its own p (not corrected for the number of rows)"}
		out = append(out, t)
	}
	return out
}

// bounds writes an interval of a share in percent, or why there is none.
func bounds(e stats.Estimate) string {
	if e.NoInterval != "" {
		return "(" + e.NoInterval + ")"
	}
	return fmt.Sprintf("[%.1f, %.1f]", 100*e.Lo, 100*e.Hi)
}
