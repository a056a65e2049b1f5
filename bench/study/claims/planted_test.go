package claims_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/ccmed/ccmed/bench/report"
	"github.com/ccmed/ccmed/bench/run"
	"github.com/ccmed/ccmed/bench/stats"
	"github.com/ccmed/ccmed/bench/study/claims"
	"github.com/ccmed/ccmed/bench/task"
	"github.com/ccmed/ccmed/infer"
)

// planted is a benchmark of any task whose samples are rows and whose metrics lie in the
// run's options: what is measured is what was planted.
type planted struct{ name string }

func (p planted) About() task.About {
	return task.About{Task: p.name, Command: p.name, Subject: "model", Item: "dialogue", Cluster: "context"}
}

func (planted) Flags(*pflag.FlagSet) task.Call { return nil }

func (planted) Score(_ context.Context, in task.Input) (task.Result, error) {
	return plantedResult{in}, nil
}

type plantedResult struct{ in task.Input }

func (r plantedResult) Metrics() any { return r.in.Identity().Options["metrics"] }

func (r plantedResult) Table(context.Context) (t task.Table, err error) {
	t.Constant = r.in.Identity().Options["constant"] == true
	for s, failed := range r.in.Samples() {
		row, unreadable := task.Data[map[string]any](s)
		err = errors.Join(err, failed, unreadable)
		t.Rows = append(t.Rows, task.Row{Key: s.Key, Cluster: fmt.Sprint(row["context"]), Value: row})
	}
	return t, err
}

func (plantedResult) Sections(context.Context) ([]report.Section, error) { return nil, nil }
func (plantedResult) Cautions(context.Context) ([]string, error)         { return nil, nil }
func (plantedResult) Measures(context.Context) ([]stats.Measure, []string, error) {
	return nil, nil, task.ErrNoMeasures
}
func (plantedResult) Browser(context.Context) (report.Browser, []string, error) {
	return report.Browser{}, nil, nil
}

// column gives the value of a column in the row of an item.
type column func(item int) any

// share is true in so large a share of items, spread over them.
func share(p float64) column { return func(i int) any { return float64(i*37%100) < 100*p } }

// third is turn 3 in so large a share of items, and turn 5 in the others.
func third(p float64) column {
	return func(i int) any {
		if float64(i*37%100) < 100*p {
			return 3
		}
		return 5
	}
}

// about varies around a mean, by a quarter of a unit.
func about(mean float64, salt uint64) column {
	return func(i int) any { return mean + rand.New(rand.NewPCG(uint64(i), salt)).NormFloat64()/4 }
}

// estimate is a number of n items with a half-width of 0.02.
func estimate(v float64) map[string]any {
	return map[string]any{"value": v, "lo": v - 0.02, "hi": v + 0.02, "n": 700, "groups": 120}
}

// made is a run to be made.
type made struct {
	task, model string
	n           int // items, two a context; 0 is 200
	options     map[string]any
	metrics     map[string]any
	rows        map[string]map[string]column // by condition
	file        string                       // with the JSON tree in
	tree        map[string]any
}

// plant makes run folders and opens them.
func plant(t *testing.T, runs ...made) []claims.Run {
	t.Helper()
	var out []claims.Run
	registry := task.Registry{planted{"timing"}, planted{"mediation"}, planted{"extract"}, planted{"construct-pairs"}}
	archive := &task.Archive{Benches: registry, Version: "1", Note: func(string, ...any) {}}
	for k, m := range runs {
		path := filepath.Join(t.TempDir(), fmt.Sprintf("run-%d", k))
		id := run.Identity{Task: m.task, Seed: 1, DataHash: "d", Options: map[string]any{"metrics": m.metrics}, Models: map[string]infer.Model{"model": {Name: m.model}}}
		for name, v := range m.options {
			id.Options[name] = v
		}
		var lines strings.Builder
		if m.n == 0 {
			m.n = 200
		}
		for i := range m.n {
			for condition, columns := range m.rows {
				row := map[string]any{"context": fmt.Sprint("context ", i/2), "scored": true}
				for name, value := range columns {
					row[name] = value(i)
				}
				data, err := json.Marshal(row)
				if err != nil {
					t.Fatal(err)
				}
				s := run.Sample{Key: run.Key{Step: "s", Item: fmt.Sprint(i), Condition: condition}, Data: data, Schema: run.SampleSchema}
				if err := json.NewEncoder(&lines).Encode(s); err != nil {
					t.Fatal(err)
				}
			}
		}
		d, err := run.Create(path, id, []string{m.task})
		if err != nil {
			t.Fatal(err)
		}
		if m.file != "" {
			b, err := json.Marshal(m.tree)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(path, m.file), b, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if err := errors.Join(d.WriteFile(run.SamplesFile, []byte(lines.String())), d.Close(run.StatusDone)); err != nil {
			t.Fatal(err)
		}
		r, err := archive.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, claims.Run{Name: fmt.Sprintf("run-%d", k), Run: r})
	}
	return out
}

// timing is a run that asks for the turn.
func timing(model, condition string, columns map[string]column) made {
	return made{task: "timing", model: model, options: map[string]any{"mode": condition, "mask_markers": false}, rows: map[string]map[string]column{condition: columns}}
}

// beside is a timing run whose accuracy stands beside a baseline's.
func beside(model, mode, baseline string, accuracy, of float64) made {
	m := timing(model, mode, map[string]column{"correct": share(accuracy)})
	m.metrics = map[string]any{"turn_acc": estimate(accuracy), "baselines": []any{map[string]any{"name": "uniform"}, map[string]any{"name": baseline, "interval": estimate(of)}}}
	return m
}

var reliable = map[string]any{"labels": "as reliable as the recorded labels"}

// mediation is a run with a metric under two conditions.
func mediation(model, a, b, metric string, under, beside float64) made {
	return made{task: "mediation", model: model, options: map[string]any{"turn": "gold"}, metrics: reliable,
		rows: map[string]map[string]column{a: {metric: about(under, uint64(len(model)))}, b: {metric: about(beside, 0)}}}
}

// reference is a run whose ground truth improves on nobody in a share of dialogues, with a
// metric there and elsewhere.
func reference(improved float64, metric string, there, elsewhere float64) made {
	return made{task: "mediation", model: "m", options: map[string]any{"turn": "gold"}, metrics: reliable,
		rows: map[string]map[string]column{"ground-truth": {
			"delta_auc": func(i int) any { return map[bool]float64{true: 1, false: -1}[share(improved)(i).(bool)] },
			metric: func(i int) any {
				return about(map[bool]float64{true: there, false: elsewhere}[share(improved)(i).(bool)], 3)(i)
			}}}}
}

// probes are the findings of a store: accuracies by cell at the last of two layers.
func probes(model string, values map[string]float64) made {
	at := func(name string) []any { return []any{estimate(0), estimate(values[name])} }
	cell := func(context, text, position string) map[string]any {
		return map[string]any{"context": context, "text": text, "position": position}
	}
	gap := estimate(values["gap"])
	gap["lo"], gap["hi"], gap["margin"] = values["gap"]-0.008, values["gap"]+0.008, 0.02
	return made{task: "extract", model: model, file: "probe.json", tree: map[string]any{
		"layers": []any{"block.1", "block.2"}, "at": "block.2",
		"cells": []any{
			map[string]any{"cell": cell("D", "prompt", "prompt_end"), "accuracy": at("prompt D")},
			map[string]any{"cell": cell("ND", "prompt", "prompt_end"), "accuracy": at("prompt ND")},
			map[string]any{"cell": cell("D", "own-D", "utterance_end"), "accuracy": at("line D")},
			map[string]any{"cell": cell("ND", "placebo-1", "utterance_end"), "accuracy": at("placebo")},
			map[string]any{"cell": cell("ND", "own-ND", "utterance_end"), "accuracy": at("line ND"), "delta_late": estimate(values["late"])}},
		"decomposition": []any{map[string]any{}, map[string]any{"elic": estimate(values["elic"]), "text": estimate(values["text"])}},
		"content": map[string]any{"gap": gap, "cells": []any{
			map[string]any{"cell": cell("ND", "prompt", "prompt_end"), "skill": at("content before")},
			map[string]any{"cell": cell("ND", "own-ND", "utterance_end"), "skill": at("content after")}}}}}
}

// pairs is a run of pairs that were built.
func pairs(name string, v float64) made {
	return made{task: "construct-pairs", model: "m", metrics: map[string]any{"pairs": map[string]any{"labeller_grade": "consistent", "chosen": map[string]any{name: estimate(v)}}}}
}
