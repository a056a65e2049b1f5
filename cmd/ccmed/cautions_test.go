package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ccmed/ccmed/bench/mediation"
	"github.com/ccmed/ccmed/bench/run"
	"github.com/ccmed/ccmed/bench/stats"
	"github.com/ccmed/ccmed/bench/timing"
	"github.com/ccmed/ccmed/infer"
	"github.com/ccmed/ccmed/probe"
	"github.com/ccmed/ccmed/probe/activation"
	"github.com/ccmed/ccmed/sft"
)

// clean is a run that nothing speaks against.
func clean(found any, change ...func(*scoredRun)) scoredRun {
	r := scoredRun{name: "r", found: found, manifest: run.Manifest{Status: run.StatusDone}}
	r.manifest.Identity.Items = make([]string, smallSample)
	r.manifest.Identity.Options = map[string]any{}
	for _, f := range change {
		f(&r)
	}
	return r
}

func timingOf(change func(*timingFound)) timingFound {
	f := timingFound{Metrics: timing.Metrics{Mode: timing.Stream, N: 100, Scored: 100, Correct: 90},
		Baselines: []timing.BaselineResult{{Name: "longest turn", N: 100, Accuracy: 0.7, Predicted: []int{3}}, {Name: timing.MarkerBaseline, N: 100, Accuracy: 0.4, Predicted: []int{3}}}}
	if change != nil {
		change(&f)
	}
	return f
}

func mediationOf(change func(*mediation.Metrics)) mediation.Metrics {
	m := mediation.Metrics{Labeller: &mediation.LabellerCard{Qualified: true, Kappa: 0.7, N: 108},
		Conditions:  []mediation.ConditionMetrics{{Condition: mediation.ND}},
		Differences: []mediation.Difference{{A: mediation.ND, B: mediation.Generic, Metric: mediation.AUC, Value: stats.Estimate{Value: 0.5, Lo: 0.3, Hi: 0.7, N: 100}, PHolm: 0.001}}}
	if change != nil {
		change(&m)
	}
	return m
}

func models(labeller, simulator infer.Model) func(*scoredRun) {
	return func(r *scoredRun) {
		r.manifest.Identity.Models = map[string]infer.Model{mediation.RoleMediator: {Name: "m", Digest: "sha256:1", Family: "gemma2"}, mediation.RoleLabeller: labeller, mediation.RoleSimulator: simulator}
	}
}

func card(t *testing.T, shared int, proofs ...sft.Proof) *sft.Card {
	t.Helper()
	e, err := json.Marshal(map[string]any{"description": sft.Export{Leaks: map[string]sft.Leaks{"evaluation": {Contexts: sft.Overlap{Shared: shared, Of: 159}}}}})
	if err != nil {
		t.Fatal(err)
	}
	return &sft.Card{Export: e, Proofs: proofs}
}

// Every caution has a run that it stands beside, and one like it that it does not.
func TestCautions(t *testing.T) {
	option := func(name string, v any) func(*scoredRun) {
		return func(r *scoredRun) { r.manifest.Identity.Options[name] = v }
	}
	tuned := timingOf(func(f *timingFound) { f.Mode = timing.DualHead })
	other := infer.Model{Name: "l", Digest: "sha256:2", Family: "qwen2"}
	med := mediationOf(nil)
	for _, c := range []struct {
		says          string
		with, without scoredRun
	}{
		{"not finished (interrupted)", clean(timingOf(nil), func(r *scoredRun) { r.manifest.Status = run.StatusInterrupted }), clean(timingOf(nil))},
		{"99 dialogues: intervals are wide", clean(timingOf(nil), func(r *scoredRun) { r.manifest.Identity.Items = make([]string, 99) }), clean(timingOf(nil))},
		{"degenerate: constant answer (turn 3 in 95 of 100)", clean(timingOf(func(f *timingFound) { f.DegenerateAnswer = "turn 3 in 95 of 100" })), clean(timingOf(nil))},
		{"unscored dialogues: 2 (no mass)", clean(timingOf(func(f *timingFound) { f.Unscored = map[string]int{"no mass": 2} })), clean(timingOf(nil))},
		{"longest turn) does as well or better: 70.0 %", clean(timingOf(func(f *timingFound) { f.Correct = 70 })), clean(timingOf(func(f *timingFound) { f.Correct = 71 }))},
		{"marker phrases are in the turns", clean(timingOf(func(f *timingFound) { f.Baselines[1].Accuracy = 0.86 })), clean(timingOf(nil))},
		{"the threshold 0.2 was given by hand", clean(tuned, option("threshold", 0.2)), clean(tuned, option("threshold", 0.5))},
		{"was given by hand", clean(tuned, option("threshold", 0.2)), clean(tuned, option("threshold", 0.41), option("threshold_from", "validation"))},

		{mediation.PipelineCheck, clean(mediationOf(func(m *mediation.Metrics) { m.PipelineCheck = true })), clean(med)},
		{"no labeller card", clean(mediationOf(func(m *mediation.Metrics) { m.Labeller = nil })), clean(med)},
		{"not qualified: kappa", clean(mediationOf(func(m *mediation.Metrics) {
			m.Labeller = &mediation.LabellerCard{Why: []string{"kappa is low"}}
		})), clean(med)},
		{"is qualified (kappa 0.70 on 108", clean(med), clean(mediationOf(func(m *mediation.Metrics) { m.Labeller = nil }))},
		{"judge: degenerate", clean(mediationOf(func(m *mediation.Metrics) { m.Degenerate = []string{"judge: degenerate: constant answer"} })), clean(med)},
		{"names the conflict's stage", clean(mediationOf(func(m *mediation.Metrics) { m.Conditions[0].Condition = mediation.D })), clean(med)},
		{"unscored ND dialogues: 3 (short)", clean(mediationOf(func(m *mediation.Metrics) {
			m.Conditions[0].Unscored = map[string]map[string]int{mediation.AUC: {"short": 3}}
		})), clean(med)},
		{"a fixed line that fits any conflict does as well as ND", clean(mediationOf(func(m *mediation.Metrics) { m.Differences[0].PHolm = 0.2 })), clean(med)},
		{"does as well as ND", clean(mediationOf(func(m *mediation.Metrics) { m.Differences[0].Value.Value = -0.5 })), clean(med)},

		{"mediator and labeller are the same model", clean(med, models(infer.Model{Name: "again", Digest: "sha256:1"}, other)), clean(med, models(other, other))},
		{"same family (gemma2)", clean(med, models(infer.Model{Name: "l", Digest: "sha256:2", Family: "gemma2"}, other)), clean(med, models(other, other))},
		{"it answers itself", clean(med, models(other, infer.Model{Name: "m", Digest: "sha256:1"})), clean(med, models(other, other))},

		// 6 of 100 are more than one in twenty, 5 are not.
		{"6.0 % (6/100) of simulated turns after ND end at their cap of tokens", clean(mediationOf(func(m *mediation.Metrics) {
			m.Conditions[0].Cut = map[string]mediation.Rate{mediation.StepSimulate: {K: 6, N: 100}}
		})), clean(mediationOf(func(m *mediation.Metrics) {
			m.Conditions[0].Cut = map[string]mediation.Rate{mediation.StepSimulate: {K: 5, N: 100}}
		}))},
		{"50.0 % (1/2) of ND lines end at their cap", clean(mediationOf(func(m *mediation.Metrics) {
			m.Conditions[0].Cut = map[string]mediation.Rate{mediation.StepUtterance: {K: 1, N: 2}}
		})), clean(med)},
		{"of reasonings end at their cap", clean(timingOf(func(f *timingFound) { f.Cut = map[string]timing.Rate{timing.StepReason: {K: 3, N: 50}} })),
			clean(timingOf(func(f *timingFound) { f.Cut = map[string]timing.Rate{timing.StepReason: {K: 2, N: 50}} }))},
		{"of own-D lines that states were read after end at their cap", clean(&probe.Findings{N: 100, Cut: map[string]int{"own-D": 6}}),
			clean(&probe.Findings{N: 100, Cut: map[string]int{"own-D": 5}})},

		{"the probes allow: D−ND", clean(&probe.Findings{Verdict: &probe.Verdict{Sentence: "D−ND difference"}}), clean(&probe.Findings{Verdict: &probe.Verdict{Sentence: probe.Collapse}})},
		{"4 dialogues are left out", clean(&probe.Findings{Left: 4}), clean(&probe.Findings{})},
		{"names the stage that the probes look for", clean(&probe.Findings{Cells: []probe.CellFindings{{Cell: activation.Cell{Context: probe.ContextD}}}}),
			clean(&probe.Findings{Cells: []probe.CellFindings{{Cell: activation.Cell{Context: probe.ContextND}}}})},

		{"is unknown: gone", clean(timingOf(nil), func(r *scoredRun) { r.leak.unknown = "gone" }), clean(timingOf(nil))},
		{"hold the scenario context of 96.2 % (153/159)", clean(timingOf(nil), func(r *scoredRun) { r.leak.contexts = &sft.Overlap{Shared: 153, Of: 159} }),
			clean(timingOf(nil), func(r *scoredRun) { r.leak.contexts = &sft.Overlap{Of: 159} })},
		{"trained on is unknown: no card", clean(tuned, func(r *scoredRun) { r.leak.noCard = "no card" }), clean(tuned, func(r *scoredRun) { r.leak.card = card(t, 0) })},
		{"trained on the scenario context of 95.0 % (151/159)", clean(tuned, func(r *scoredRun) { r.leak.card = card(t, 151) }), clean(tuned, func(r *scoredRun) { r.leak.card = card(t, 0) })},
		{"there were none when it was exported", clean(tuned, func(r *scoredRun) { r.leak.card = &sft.Card{Export: []byte(`{}`)} }), clean(tuned, func(r *scoredRun) { r.leak.card = card(t, 0) })},
		{"its card does not say it", clean(tuned, func(r *scoredRun) { r.leak.card = &sft.Card{} }), clean(tuned, func(r *scoredRun) { r.leak.card = card(t, 0) })},
		{`the proof "ends" of the package was not made: no Ollama`, clean(tuned, func(r *scoredRun) { r.leak.card = card(t, 0, sft.Proof{Name: "ends", NotRun: "no Ollama"}) }),
			clean(tuned, func(r *scoredRun) { r.leak.card = card(t, 0, sft.Proof{Name: "ends", OK: true}) })},
		{`the proof "ends" of the package failed`, clean(tuned, func(r *scoredRun) { r.leak.card = card(t, 0, sft.Proof{Name: "ends"}) }),
			clean(tuned, func(r *scoredRun) { r.leak.card = card(t, 0, sft.Proof{Name: "ends", OK: true}) })},
	} {
		if got := strings.Join(c.with.cautions(), "\n"); !strings.Contains(got, c.says) {
			t.Errorf("no %q in:\n%s", c.says, got)
		}
		if got := strings.Join(c.without.cautions(), "\n"); strings.Contains(got, c.says) {
			t.Errorf("%q where it does not hold:\n%s", c.says, got)
		}
	}
	if got := clean(timingOf(nil)).cautions(); len(got) > 0 {
		t.Errorf("a clean run has cautions: %q", got)
	}
}

func TestTrainingCautions(t *testing.T) {
	leaking := &sft.Export{Leaks: map[string]sft.Leaks{"evaluation": {Contexts: sft.Overlap{Shared: 151, Of: 159}}}}
	whole := strings.Join(trainingCautions(&sft.Manifest{Status: sft.TrainDone, Export: &sft.Export{}, Config: sft.Config{Seed: 7}}), "\n")
	broken := strings.Join(trainingCautions(&sft.Manifest{Status: sft.TrainInterrupted, Export: leaking}), "\n")
	for _, w := range []string{"not finished (interrupted)", "95.0 % (151/159)"} {
		if !strings.Contains(broken, w) || strings.Contains(whole, w) {
			t.Errorf("%q: with it %q, without it %q", w, broken, whole)
		}
	}
	if !strings.Contains(whole, "one seed (7)") {
		t.Errorf("%q", whole)
	}
}

func TestSeedCautions(t *testing.T) {
	mediate := func(name string, seed int64, change ...func(*scoredRun)) scoredRun {
		r := clean(mediationOf(nil), change...)
		r.name, r.manifest.Identity.Task, r.manifest.Identity.Seed = name, "mediation", seed
		r.manifest.Identity.Options["sim_temperature"] = 0.8
		return r
	}
	otherItems := func(r *scoredRun) { r.manifest.Identity.ItemsHash = "other" }
	timed := clean(timingOf(nil))
	for _, c := range []struct {
		fact string
		runs []scoredRun
		want []string // runs that are named
	}{
		{"one run", []scoredRun{mediate("a", 1), timed}, []string{"a"}},
		{"two seeds", []scoredRun{mediate("a", 1), mediate("b", 2)}, nil},
		{"the same seed twice", []scoredRun{mediate("a", 1), mediate("b", 1)}, []string{"a", "b"}},
		{"another seed of other dialogues", []scoredRun{mediate("a", 1), mediate("b", 2, otherItems)}, []string{"a", "b"}},
		{"nothing is drawn", []scoredRun{timed}, nil},
	} {
		var got []string
		for _, w := range seedCautions(c.runs) {
			if !strings.Contains(w.text, "one seed") {
				t.Errorf("%s: %q", c.fact, w)
			}
			got = append(got, w.run)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", c.fact, got, c.want)
		}
	}
}

func TestACautionOfSeveralRunsIsToldOnce(t *testing.T) {
	got := told([]caution{{"a", "few"}, {"a", "unfinished"}, {"b", "few"}, {"c", "leaks"}})
	if want := []string{"a, b: few", "a: unfinished", "c: leaks"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestCardOfAPrediction(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "pkg"), 0o755); err != nil {
		t.Fatal(err)
	}
	c := card(t, 3)
	c.Schema, c.Digest = sft.CardSchema, "sha256:1"
	if err := c.Write(filepath.Join(dir, "pkg")); err != nil {
		t.Fatal(err)
	}
	of := func(digest string, command ...string) error {
		m := run.Manifest{Sessions: []run.Session{{Dir: dir, Command: command}}}
		m.Identity.Models = map[string]infer.Model{timing.Role: {Digest: digest}}
		_, err := cardOf(m)
		return err
	}
	for _, ok := range [][]string{{"sft", "predict", "--model", "pkg"}, {"sft", "predict", "--model=pkg"}, {"sft", "predict", "--model", "NAME", "--head", "pkg/head.safetensors"}} {
		if err := of("sha256:1", ok...); err != nil {
			t.Errorf("%q: %v", ok, err)
		}
	}
	if err := of("sha256:2", "--model", "pkg"); err == nil || !strings.Contains(err.Error(), "another model") {
		t.Errorf("a package of another model: %v", err)
	}
	if err := of("sha256:1", "--model", "gone"); err == nil {
		t.Error("a package that is gone is read")
	}
	if _, err := cardOf(run.Manifest{}); err == nil {
		t.Error("a run without a command has a card")
	}
}
