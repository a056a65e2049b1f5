package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/ccmed/ccmed/bench/report"
	"github.com/ccmed/ccmed/bench/socrates/scenario"
	"github.com/ccmed/ccmed/infer"
	"github.com/ccmed/ccmed/infer/fleet"
)

// completeScenarios has a model write the third parties and histories that scenarios lack
// for the conditions, and writes each scenario to a file.
func (a *app) completeScenarios(ctx context.Context, c *expandCall, all []scenario.Scenario, conditions []scenario.Condition) error {
	if c.out == "" {
		return usagef("no --out folder given, to which the scenarios of --writer are written")
	}
	axis := func(name string) bool {
		return slices.ContainsFunc(conditions, func(c scenario.Condition) bool { return c.Axis == name })
	}
	third, history := axis("parties"), axis("history")
	if !third && !history {
		return usagef("--conditions holds neither parties nor history, and --writer writes for these alone")
	}
	for _, s := range all { // before a model is asked for hours
		if err := absent(filepath.Join(c.out, s.ID+".json")); err != nil {
			return err
		}
	}
	w, done, err := a.openWriter(ctx, c, all)
	if err != nil {
		return err
	}
	full, left, err := a.completeAll(ctx, w, all, third, history)
	if err = errors.Join(err, done()); err != nil {
		return err
	}
	if err := os.MkdirAll(c.out, 0o755); err != nil {
		return fmt.Errorf("make the folder of the scenarios: %w", err)
	}
	for _, s := range full {
		if err := writeJSON(filepath.Join(c.out, s.ID+".json"), s); err != nil {
			return err
		}
	}
	if err := a.print([]report.Section{writtenSection(all, full)}); err != nil {
		return err
	}
	a.note("wrote %d scenarios to %s; read them before a run, and mend what a model has wrong", len(full), c.out)
	for _, why := range left {
		a.note("left out: %v", why)
	}
	if len(left) > 0 {
		return &partialError{fmt.Errorf("%d parts of %d scenarios could not be written; write them by hand, or take another --writer or --seed", len(left), len(all))}
	}
	return nil
}

// openWriter opens the model that writes, with a context for the longest of its prompts.
func (a *app) openWriter(ctx context.Context, c *expandCall, all []scenario.Scenario) (w scenario.Writer, done func() error, err error) {
	const role = "writer"
	f, err := fleet.New(a.fleetEnv(""), &c.models, map[string]string{role: c.writer})
	if err != nil {
		return w, nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, f.Close())
		}
	}()
	longest, answer := map[string][]infer.Prompt{}, map[string]int{}
	for _, s := range all {
		ps, n := scenario.LongestWriting(s)
		longest[role], answer[role] = append(longest[role], ps...), max(answer[role], n)
	}
	if err := f.Prepare(ctx, nil, longest, answer); err != nil {
		return w, nil, err
	}
	backends, err := f.Workers(ctx, role)
	if err != nil {
		return w, nil, err
	}
	return scenario.Writer{Backend: backends[0], Model: f.Named(role), Seed: c.seed}, f.Close, nil
}

func (a *app) completeAll(ctx context.Context, w scenario.Writer, all []scenario.Scenario, third, history bool) (full []scenario.Scenario, left []error, err error) {
	for i, s := range all {
		x, bad, err := w.Complete(ctx, s, third, history)
		if err != nil {
			return nil, nil, err
		}
		full, left = append(full, x), append(left, bad...)
		a.note("%d of %d scenarios: %s", i+1, len(all), s.ID)
	}
	return full, left, nil
}

// writtenSection says what a model added to scenarios.
func writtenSection(before, after []scenario.Scenario) report.Section {
	t := report.Table{Columns: report.Columns("scenario", "third party", "history", "times the background>")}
	by := func(there, written bool) string {
		switch {
		case there:
			return "as it was"
		case written:
			return "written"
		}
		return "none"
	}
	for i, s := range after {
		var times any = ""
		if len(s.History) > 0 {
			n := 0
			for _, e := range s.History {
				n += utf8.RuneCountInString(e.Text)
			}
			times = report.Num(float64(n)/float64(utf8.RuneCountInString(s.Background)), 1)
		}
		third := by(before[i].Third != nil, s.Third != nil)
		if s.Third != nil {
			third += ": " + strings.TrimSpace(s.Third.Name)
		}
		t.Add(s.ID, third, by(len(before[i].History) > 0, len(s.History) > 0), times)
	}
	return report.Section{Title: fmt.Sprintf("Scenarios: %d", len(after)), Tables: []report.Table{t}, Notes: []string{
		fmt.Sprintf("a history is asked to be about %d times as long as the background, in characters", scenario.HistoryTimes)}}
}

// absent is an error where a file is there already.
func absent(path string) error {
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s is there already; name another --out", path)
	}
	return nil
}
