package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ccmed/ccmed/bench/dialogue"
	"github.com/ccmed/ccmed/probe/effect"
)

// plantDialogues writes short dialogues, each of a scenario context of its own, whose conflict
// turn holds the word that scripts/planted_models.py takes for its stage's, and noise.
//
// Where named, every eighth names the stage, which the models hear unsteered: without them all
// differences would be alike, and have no interval.
func plantDialogues(t *testing.T, path string, from, to int, named bool) {
	t.Helper()
	markers := map[string]string{"Denial": "basil", "Defense": "cedar", "Minimization": "maple"}
	noise := strings.Fields("silver copper winter summer morning river forest mountain")
	dir := t.TempDir()
	if err := dialogue.Write(dir, dialogue.Sample()); err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(dir, "*.json"))
	if err != nil {
		t.Fatal(err)
	}
	var lines bytes.Buffer
	for i := from; i < to; i++ {
		rng := rand.New(rand.NewPCG(uint64(i), 1))
		var r map[string]any
		if err := json.Unmarshal([]byte(readFile(t, files[i%len(files)], func() {})), &r); err != nil {
			t.Fatal(err)
		}
		meta := r["metadata"].(map[string]any)
		r["scenario_id"], meta["scenario_context"] = 10000+i, fmt.Sprintf("The scene numbered %d.", i)
		names := map[string]string{"agent_1": "Anna", "agent_2": "Paul"} // none begins as a stage does
		for agent, person := range meta["agents"].(map[string]any) {
			person.(map[string]any)["name"] = names[agent]
		}
		for _, turn := range r["shared_prefix"].([]any) {
			turn := turn.(map[string]any)
			turn["message"], turn["speaker"] = "Yes, so it is.", names[turn["agent"].(string)]
			if turn["t"] == meta["conflict_turn"] {
				stage := meta["conflict_stage"].(string)
				words := []string{"I see" + strings.Repeat(" "+markers[stage], 2+rng.IntN(2))}
				if named && i%8 == 0 {
					words = append(words, `"`+stage+`"`)
				}
				for _, w := range noise {
					if rng.IntN(2) == 0 {
						words = append(words, w)
					}
				}
				turn["message"] = strings.Join(words, " ") + "."
			}
		}
		b, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		lines.Write(append(b, '\n'))
	}
	if err := os.WriteFile(path, lines.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
}

// plantedArms asks a planted model under a direction and a dose, unless that is 0, and under
// other edits, and finds their effects.
func plantedArms(t *testing.T, name, dir string, limit, dose int, kinds []string, others map[string][]string) effect.Findings {
	t.Helper()
	model := []string{"--model", filepath.Join(os.Getenv("CCMED_TINY_MODELS"), "planted_"+name+".gguf"), "--num-ctx", "1024", "--threads", "1", "--cache", "off"}
	at := func(what string) string { return filepath.Join(dir, name+"-"+what) }
	do := func(args ...string) { ccmed(t, nil, slices.Concat(args, model)...) }
	for data, n := range map[string]int{"training": 0, "held": limit} {
		do("probe", "extract", "--data", filepath.Join(dir, data+".jsonl"), "--limit", fmt.Sprint(n), "--conditions", "D,ND", "--max-tokens", "3", "--dtype", "f32", "--out", at(data))
	}
	for _, kind := range kinds {
		store := at(map[bool]string{true: "held", false: "training"}[kind == "patch" || kind == "lens"])
		ccmed(t, nil, "probe", "direction", store, "--layers", "block.2", "--kind", kind, "--out", at(kind))
	}
	arms := map[string][]string{"plain": nil}
	for _, class := range []string{"Denial", "Defense", "Minimization"} {
		for _, control := range []string{"", ":shuffled-1"} {
			if dose > 0 {
				arms[class+control] = []string{"--edit", fmt.Sprintf("%s,%s,%d", at("mean"), class+control, dose)}
			}
		}
	}
	for arm, flags := range others {
		arms[arm] = append([]string{"--edit", at(arm) + ",1"}, flags...)
	}
	asked := []string{"probe", "effect", "--lines", at("training"), "--resamples", "500", "--format", "json"}
	for arm, flags := range arms {
		out := at("run-" + strings.NewReplacer(":", "-", ",", "-").Replace(arm))
		do(slices.Concat([]string{"probe", "ask", at("held"), "--out", out}, flags)...)
		asked = append(asked, out)
	}
	if slices.Contains(kinds, "leace") {
		ccmed(t, nil, "probe", "train", at("training"), "--folds", "2", "--seeds", "1", "--controls", "0", "--resamples", "200")
		do("probe", "extract", "--data", filepath.Join(dir, "held.jsonl"), "--limit", fmt.Sprint(limit), "--conditions", "ND", "--max-tokens", "3", "--dtype", "f32",
			"--edit", at("leace")+",stage,1", "--out", at("ends-erased"))
		asked = append(asked, at("held"), at("ends-erased"))
	}
	var f effect.Findings
	if err := json.Unmarshal([]byte(ccmed(t, nil, asked...)), &f); err != nil {
		t.Fatal(err)
	}
	return f
}

// TestPlantedEffects takes models whose workings are known from dialogues to verdicts: where
// the head reads what the stage's word leaves, steering recovers all and shuffled labels
// nothing; where it reads elsewhere, nothing moves; where the steered line is improbable to
// the model, it stays on the surface; and an erasure takes the stage out of what is said.
func TestPlantedEffects(t *testing.T) {
	if os.Getenv("CCMED_TINY_MODELS") == "" {
		t.Skip("CCMED_TINY_MODELS names no folder of planted models; scripts/test_states.sh makes them")
	}
	needEngine(t)
	dir := t.TempDir()
	plantDialogues(t, filepath.Join(dir, "training.jsonl"), 0, 84, false)
	plantDialogues(t, filepath.Join(dir, "held.jsonl"), 84, 84+156, true)
	const few, dose = 24, 3
	other := t.TempDir()
	for _, f := range []string{"training.jsonl", "held.jsonl"} {
		if err := os.Link(filepath.Join(dir, f), filepath.Join(other, f)); err != nil {
			t.Fatal(err)
		}
	}

	used := plantedArms(t, "used", dir, 0, dose, []string{"mean"}, nil)
	s := used.Steer[0]
	if s.Verdict != effect.Used || s.N != 156 || s.Recovery == nil || math.Abs(s.Recovery.Value-1) > 1e-9 {
		t.Errorf("a head that reads the direction: %q because %q, recovery %+v of %d", s.Verdict, s.Reasons, s.Recovery, s.N)
	}
	if over := s.Over[len(s.Over)-1]; over.With != "shuffled labels" || over.Value < 0.9*s.Gap.Value {
		t.Errorf("the right stage less %s is %g, of a gap of %g", over.With, over.Value, s.Gap.Value)
	}

	s = plantedArms(t, "unread", dir, few, dose, []string{"mean"}, nil).Steer[0]
	if s.Verdict != effect.Decodable || s.Recovery == nil || s.Recovery.Value != 0 || !strings.Contains(s.Reasons[0], "do not fit the stage better") {
		t.Errorf("a head that reads elsewhere: %q because %q, recovery %+v", s.Verdict, s.Reasons, s.Recovery)
	}
	s = plantedArms(t, "costly", dir, few, dose, []string{"mean"}, nil).Steer[0]
	if s.Verdict != effect.Surface || s.Recovery == nil || math.Abs(s.Recovery.Value-1) > 1e-9 || !strings.Contains(s.Reasons[0], "nats a token") {
		t.Errorf("improbable lines: %q because %q, recovery %+v", s.Verdict, s.Reasons, s.Recovery)
	}

	patched := plantedArms(t, "used", other, few, 0, []string{"patch", "lens"}, map[string][]string{"lens,block.2": nil, "patch,own": nil, "patch,own:same-stage": nil, "patch,own:other-stage": nil})
	erased := plantedArms(t, "follows", dir, few, 0, []string{"leace"}, map[string][]string{"leace,stage": nil, "leace,stage:shuffled-1": nil})
	if len(erased.Arms) != 2 || len(patched.Other) != 4 || len(erased.Ends) != 3 {
		t.Fatalf("%d erasures, %d patches, %d ends of lines", len(erased.Arms), len(patched.Other), len(erased.Ends))
	}
	if m := erased.Plain[0].M.Value; m < 0.85 {
		t.Errorf("a head that follows a weak trace: M of ND is %g", m)
	}
	for _, a := range erased.Arms {
		if of := a.Of; of == "" && a.M.Value > 0.45 || of != "" && a.M.Value < 0.65 {
			t.Errorf("M is %g with the stage erased (%q)", a.M.Value, of)
		}
	}
	for _, e := range erased.Ends {
		at := slices.Index(e.Layers, "block.2")
		if share := e.Shares[at].Value; e.Edited != strings.HasSuffix(e.Name, "ends-erased") || e.Edited && share > 0.6 || !e.Edited && share < 0.95 {
			t.Errorf("probes read the stage at the end of the lines of %s in %g", e.Name, share)
		}
	}
	for _, c := range patched.Other {
		if c.Kind == "lens" { // the block after it does nothing
			if c.M.Value != 0 || c.FirstWord == nil || c.FirstWord.Value != 0 {
				t.Errorf("through the last block: %+v, names %+v", c.M, c.FirstWord)
			}
			continue
		}
		want := map[string]float64{"": 1, "same-stage": 1, "other-stage": -0.5}[c.Of]
		if c.Recovery == nil || c.Recovery.Value > want+1e-9 || want == 1 && c.Recovery.Value < 1-1e-9 {
			t.Errorf("the state at the end of D (%q) recovers %+v, want %g", c.Of, c.Recovery, want)
		}
	}

	of := func(name string) string { return filepath.Join(dir, "used-"+name) }
	at := func(arm string) string { return of("run-" + arm) }
	for reason, args := range map[string][]string{
		"none of the runs asked the unchanged model under ND": {"effect", at("Denial"), at("Defense")},
		"is a store: name the store whose probes read it":     {"effect", at("plain"), of("held")},
		"unknown --format": {"effect", at("plain"), at("Denial"), "--lines", of("training"), "--format", "xml"},
		"asked another model than the runs before it": {"effect", at("plain"), filepath.Join(dir, "unread-run-plain")},
		"no edit has a recovery on training groups":   {"effect", at("plain"), at("Denial"), "--lines", of("training"), "--resamples", "200", "--choose", of("chosen")},
		"no D lines of training dialogues at hand":    {"effect", at("plain"), at("Denial")},
		"not the same model":                          {"ask", of("held"), "--model", filepath.Join(os.Getenv("CCMED_TINY_MODELS"), "planted_unread.gguf"), "--out", of("x")},
		`has no class "Acceptance"`:                   {"ask", of("held"), "--model", filepath.Join(os.Getenv("CCMED_TINY_MODELS"), "planted_used.gguf"), "--edit", of("mean") + ",Acceptance,1", "--out", of("x")},
	} {
		if code, _, errs := exits(nil, append([]string{"probe"}, args...)...); code == 0 || !strings.Contains(errs, reason) {
			t.Errorf("%s: exit code %d\n%s", reason, code, errs)
		}
	}
}

// TestPlantedTiming: a model that says yes to a strong trace alone never steps in. Moved along
// the direction to speak it does at the conflict's turn, and moved the other way it does not.
func TestPlantedTiming(t *testing.T) {
	if os.Getenv("CCMED_TINY_MODELS") == "" {
		t.Skip("CCMED_TINY_MODELS names no folder of planted models; scripts/test_states.sh makes them")
	}
	needEngine(t)
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	plantDialogues(t, at("training.jsonl"), 0, 72, false)
	plantDialogues(t, at("held.jsonl"), 72, 96, false)
	model := []string{"--model", filepath.Join(os.Getenv("CCMED_TINY_MODELS"), "planted_timely.gguf"), "--num-ctx", "1024", "--threads", "1", "--cache", "off"}
	ccmed(t, nil, append([]string{"probe", "extract", "--data", at("training.jsonl"), "--task", "timing", "--out", at("questions")}, model...)...)
	ccmed(t, nil, "probe", "direction", at("questions"), "--kind", "speak", "--layers", "block.2", "--out", at("speak.edit"))
	for class, want := range map[string]int{"speak,0": 0, "speak,1.5": 24, "speak:negated,1.5": 0} {
		out := at(class)
		ccmed(t, nil, append([]string{"timing", "--backend", "embedded", "--data", at("held.jsonl"), "--edit", at("speak.edit") + "," + class, "--out", out}, model...)...)
		var found struct {
			Metrics struct{ N, Scored, Correct int }
		}
		if err := json.Unmarshal([]byte(readFile(t, filepath.Join(out, "metrics.json"), func() {})), &found); err != nil {
			t.Fatal(err)
		}
		if m := found.Metrics; m.N != 24 || m.Scored != 24 || m.Correct != want {
			t.Errorf("%s: %+v, want %d right", class, m, want)
		}
	}
}
