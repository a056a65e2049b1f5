package claims_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ccmed/ccmed/bench/dialogue"
	"github.com/ccmed/ccmed/bench/study/claims"
)

const (
	gemma = "gemma2:9b"
	llama = "llama3.1:8b"
	phi   = "phi3.5"
)

var tuned = map[string]string{"gemma-mediator": gemma, "llama-mediator": llama, "phi-mediator": phi}

func correct(p float64) map[string]column { return map[string]column{"correct": share(p)} }

// turns are predicted and conflict turns, by the share of turn 3.
func turns(predicted, gold float64) map[string]column {
	return map[string]column{"predicted_turn": third(predicted), "gold_turn": third(gold)}
}

func probe(name string, v float64) []made { return []made{probes(gemma, map[string]float64{name: v})} }

func tunedAUC(metric string, base, after float64) []made {
	return []made{mediation(gemma, "ND", "D", metric, base, base), mediation("gemma-mediator", "ND", "D", metric, after, after)}
}

func ranks(l, g, p float64) []made {
	return []made{timing("llama-mediator", "dual-head", correct(l)), timing("gemma-mediator", "dual-head", correct(g)), timing("phi-mediator", "dual-head", correct(p))}
}

func tunedProbes(base, after float64) []made {
	return []made{probes(gemma, map[string]float64{"line ND": base}), probes("gemma-mediator", map[string]float64{"line ND": after})}
}

// worlds hold, for every claim that is tested, runs in which it is true and in which it is
// false.
var worlds = map[string][2][]made{
	"data.gap_again": {{pairs("auc_again", 0.5)}, {pairs("auc_again", 0.01)}},
	"data.gap_w1":    {{pairs("w1_again", 0.4)}, {pairs("w1_again", -0.2)}},

	"timing.range":        {{timing("m", "stream", correct(0.2))}, {timing("m", "stream", correct(0.6))}},
	"timing.chance":       {{timing("m", "stream", correct(0.08))}, {timing("m", "stream", correct(0.4))}},
	"timing.longest":      {{beside("m", "stream", "longest turn", 0.3, 0.78)}, {beside("m", "stream", "longest turn", 0.9, 0.78)}},
	"timing.cot":          {{timing("m", "stream", correct(0.3)), timing("m", "cot", correct(0.3))}, {timing("m", "stream", correct(0.2)), timing("m", "cot", correct(0.6))}},
	"timing.early":        {{timing("m", "stream", turns(0.8, 0.16))}, {timing("m", "stream", turns(0.14, 0.16))}},
	"timing.turn3.gemma":  {{timing(gemma, "stream", turns(0.76, 0.16))}, {timing(gemma, "stream", turns(0.3, 0.16))}},
	"mediation.positive":  {{mediation("m", "ND", "D", "auc_paige", 0.9, 0.9)}, {mediation("m", "ND", "D", "auc_paige", -0.3, 0)}},
	"mediation.effect":    {{mediation("m", "ND", "D", "delta_auc", 0.5, 0.5)}, {mediation("m", "ND", "D", "delta_auc", -0.1, 0)}},
	"mediation.gemma.auc": {{mediation(gemma, "D", "ND", "auc_paige", 0.7, 0.7)}, {mediation(gemma, "D", "ND", "auc_paige", 1.2, 0.7)}},
	"mediation.gemma.w1":  {{mediation(gemma, "D", "ND", "w1_paige", 0.8, 0.8)}, {mediation(gemma, "D", "ND", "w1_paige", 0.2, 0.8)}},

	"mediation.below_reference": {{mediation("m", "ND", "ground-truth", "auc_paige", 0.9, 1.6)}, {mediation("m", "ND", "ground-truth", "auc_paige", 1.7, 1.6)}},
	"mediation.stage_named":     {{mediation("m", "D", "ND", "auc_paige", 1.1, 0.8)}, {mediation("m", "D", "ND", "auc_paige", 0.7, 0.8)}},
	"mediation.gemma.judge":     {{mediation(gemma, "D", "ND", "judge", 3.3, 3.3)}, {mediation(gemma, "D", "ND", "judge", 4.2, 3.2)}},
	"mediation.filter":          {{reference(0.25, "judge", 4, 4)}, {reference(0.8, "judge", 4, 4)}},
	"mediation.filter.auc":      {{reference(0.5, "auc_paige", 2.4, 1.4)}, {reference(0.5, "auc_paige", 1.3, 1.5)}},
	"mediation.filter.w1":       {{reference(0.5, "w1_paige", 1.8, 1.4)}, {reference(0.5, "w1_paige", 1.2, 1.6)}},
	"mediation.filter.judge":    {{reference(0.5, "judge", 4.5, 4.5)}, {reference(0.5, "judge", 4.8, 3.8)}},

	"probe.prompt_nd":      {probe("prompt ND", 0.99), probe("prompt ND", 0.8)},
	"probe.prompt_d":       {probe("prompt D", 0.99), probe("prompt D", 0.5)},
	"probe.knows_not_says": {{probes("m", map[string]float64{"prompt ND": 0.96, "line ND": 0.8})}, {probes("m", map[string]float64{"prompt ND": 0.96, "line ND": 0.96})}},
	"probe.late":           {probe("late", 0.15), probe("late", 0)},
	"probe.elic":           {probe("elic", 0.15), probe("elic", 0)},
	"probe.text":           {probe("text", 0.15), probe("text", 0)},
	"probe.gemma_d":        {probe("line D", 1.01), probe("line D", 0.8)},
	"probe.gemma_nd":       {probe("line ND", 0.8), probe("line ND", 0.6)},
	"probe.content":        {probe("gap", 0), probe("gap", 0.06)},
	"probe.position":       {probe("content after", 0.1), probe("content before", 0.1)},

	"tuned.timing": {
		{timing(gemma, "stream", correct(0.3)), timing("gemma-mediator", "dual-head", correct(0.95))},
		{timing(gemma, "stream", correct(0.9)), timing("gemma-mediator", "dual-head", correct(0.9))}},
	"tuned.words":       {{beside("gemma-mediator", "dual-head", "bag of words, first", 0.98, 0.8)}, {beside("gemma-mediator", "dual-head", "bag of words, first", 0.9, 0.99)}},
	"tuned.level.llama": {{timing("llama-mediator", "dual-head", correct(0.98))}, {timing("llama-mediator", "dual-head", correct(0.7))}},
	"tuned.level.gemma": {{timing("gemma-mediator", "dual-head", correct(0.97))}, {timing("gemma-mediator", "dual-head", correct(0.7))}},
	"tuned.level.phi":   {{timing("phi-mediator", "dual-head", correct(0.92))}, {timing("phi-mediator", "dual-head", correct(0.7))}},
	"tuned.rank":        {ranks(0.98, 0.8, 0.5), ranks(0.5, 0.8, 0.98)},
	"tuned.calibrated":  {{timing("phi-mediator", "dual-head", turns(0.16, 0.16))}, {timing("phi-mediator", "dual-head", turns(0.6, 0.16))}},
	"tuned.auc":         {tunedAUC("auc_paige", 0.6, 1.1), tunedAUC("auc_paige", 0.9, 0.6)},
	"tuned.judge":       {tunedAUC("judge", 2.9, 4.4), tunedAUC("judge", 4.4, 2.9)},
	"tuned.probe_level": {tunedProbes(0.8, 0.98), tunedProbes(0.8, 0.8)},
	"tuned.probe_gain":  {tunedProbes(0.8, 0.9), tunedProbes(0.9, 0.8)},
}

// alone are claims that no run supports or contradicts: their numbers have no interval, or
// they are about the records, see TestRecords.
var alone = map[string]bool{"timing.v": true, "timing.v.llama": true, "data.gap_auc": true}

func judged(t *testing.T, id string, ev claims.Evidence) []claims.Finding {
	t.Helper()
	set, err := claims.Published()
	if err != nil {
		t.Fatal(err)
	}
	set.Claims = slices.DeleteFunc(set.Claims, func(c claims.Claim) bool { return c.ID != id })
	f, err := claims.Judge(t.Context(), set, ev, 1)
	if err != nil {
		t.Fatal(err)
	}
	return f.All
}

// TestEveryClaimBothWays: each claim is supported where it is true and contradicted where it
// is false, and without a run it is not testable.
func TestEveryClaimBothWays(t *testing.T) {
	t.Parallel()
	set, err := claims.Published()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range set.Claims {
		if _, ok := worlds[c.ID]; !ok && c.Test != claims.Untested && !alone[c.ID] {
			t.Errorf("no world is planted for %s", c.ID)
		}
	}
	for id, world := range worlds {
		t.Run(id, func(t *testing.T) {
			t.Parallel()
			for i, want := range []string{claims.Supported, claims.Contradicted} {
				fs := judged(t, id, claims.Evidence{Runs: plant(t, world[i]...), Tuned: tuned})
				if got := claims.Overall(fs); got != want {
					t.Errorf("%s, want %s: %+v", got, want, fs)
				}
			}
			fs := judged(t, id, claims.Evidence{})
			if len(fs) != 1 || fs[0].Verdict != claims.NotTestable || !strings.HasPrefix(fs[0].Why, "run missing: ") {
				t.Errorf("without a run: %+v", fs)
			}
		})
	}
}

// TestNotTestable: what is missing is named.
func TestNotTestable(t *testing.T) {
	t.Parallel()
	weak := mediation("m", "D", "ND", "auc_paige", 1.5, 0.8)
	weak.metrics = map[string]any{"labels": "weak"}
	few := mediation("m", "D", "ND", "auc_paige", 1.5, 0.8)
	few.n = 12
	noisy := mediation("m", "ND", "D", "delta_auc", 0, 0)
	noisy.rows["ND"]["delta_auc"] = func(i int) any { return 0.05 + []float64{-0.7, 0.7}[i/2%2] }
	constant := timing("m", "stream", correct(0.16))
	constant.options["constant"] = true
	elsewhere := mediation("m", "ND", "D", "auc_paige", 0.8, 0.8)
	elsewhere.options = map[string]any{"turn": "predicted"}
	v := timing("m", "stream", correct(0.2))
	v.metrics = map[string]any{"v": map[string]any{"raw": 0.2}}
	cot := timing("m", "cot", correct(0.3))
	tests := map[string]struct {
		id   string
		runs []made
		why  string
	}{
		"weak labels":        {"mediation.stage_named", []made{weak}, "its labels: weak, not as reliable as the recorded labels"},
		"few items":          {"mediation.stage_named", []made{few}, "n: 12, and the claim needs 60"},
		"power":              {"mediation.effect", []made{noisy}, "power: "},
		"a constant answer":  {"timing.chance", []made{constant}, "constant answer"},
		"another turn":       {"mediation.positive", []made{elsewhere}, "run missing: mediation, turn gold under ND"},
		"no interval":        {"timing.v", []made{v}, "no interval"},
		"another model":      {"timing.turn3.gemma", []made{timing(phi, "stream", turns(0.7, 0.2))}, "run missing: timing under stream of Gemma-2-9B"},
		"no partner":         {"timing.cot", []made{cot}, "run missing: timing under stream"},
		"a partner's model":  {"timing.cot", []made{cot, timing("other", "stream", correct(0.3))}, "run missing: timing under stream of m"},
		"two partners":       {"timing.cot", []made{cot, timing("m", "stream", correct(0.3)), timing("m", "stream", correct(0.3))}, "several runs could be taken off"},
		"nobody says tuned":  {"tuned.timing", []made{timing("mine", "dual-head", correct(0.9))}, "run missing: timing, mask_markers false under dual-head of a fine-tuned model (--base-of)"},
		"no probes trained":  {"probe.elic", []made{{task: "extract", model: "m"}}, "run missing: it has no probe.json"},
		"people":             {"people.pairs", nil, "people are needed"},
		"a part not read":    {"probe.text", []made{{task: "extract", model: "m", file: "probe.json", tree: map[string]any{"layers": []any{"b"}, "at": "b"}}}, "not measured: there is no decomposition"},
		"one model of three": {"tuned.rank", []made{timing("gemma-mediator", "dual-head", correct(0.9))}, "run missing: timing, mask_markers false under dual-head of a fine-tuned model (--base-of) of Llama-3.1-8B"},
	}
	for name, x := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			fs := judged(t, x.id, claims.Evidence{Runs: plant(t, x.runs...), Tuned: tuned})
			if len(fs) != 1 || fs[0].Verdict != claims.NotTestable || !strings.HasPrefix(fs[0].Why, x.why) {
				t.Errorf("%+v, want %q", fs, x.why)
			}
		})
	}
}

// TestOverall: one model against it contradicts a claim about every model, and all must
// support it.
func TestOverall(t *testing.T) {
	t.Parallel()
	good, bad := timing("a", "stream", correct(0.1)), timing("b", "stream", correct(0.7))
	unsure := timing("c", "stream", correct(0.36))
	for _, x := range []struct {
		runs []made
		want string
	}{{[]made{good, bad}, claims.Contradicted}, {[]made{good, unsure}, claims.NotTestable}, {[]made{good, good}, claims.Supported}} {
		if got := claims.Overall(judged(t, "timing.range", claims.Evidence{Runs: plant(t, x.runs...)})); got != x.want {
			t.Errorf("%s, want %s", got, x.want)
		}
	}
}

// TestParse: a mistake in a file of claims is named with its claim.
func TestParse(t *testing.T) {
	t.Parallel()
	const head = "study: mine\nclaims:\n- {id: a, topic: t, claim: It is so., "
	for source, want := range map[string]string{
		"": "has no claims",
		head + "test: superiority, of: {task: toy, column: x}}": "needs a direction",
		head + "test: equivalence, of: {task: toy, column: x}}": "smallest effect of interest above 0",
		head + "test: guess}":                                                                        `the test "guess"`,
		head + "test: none}":                                                                         "does not say why",
		head + "test: superiority, direction: less}":                                                 "what is measured",
		head + "test: superiority, direction: less, of: {task: toy}}":                                "exactly one of column, path and records",
		head + "test: superiority, direction: less, of: {column: x}}":                                "no task",
		head + "test: superiority, direction: less, of: {task: toy, column: x}, minus: {path: y}}":   "both must be of one kind",
		head + "test: superiority, direction: less, of: {task: toy, column: x, among: {column: y}}}": "either above or most",
		head + "test: superiority, direction: less, of: {task: toy, path: x, file: ../y}}":           "without folders",
		head + "test: rank, direction: less, of: {task: toy, column: x}}":                            "an order of two models",
		head + "test: superiority, direction: less, of: {task: toy, columm: x}}":                     "line 3: field columm not found",
		head + "test: none, why: so}\n- {id: a, topic: t, claim: c, test: none, why: so}":            "two claims have the id a",
		head + "test: superiority, direction: less, of: {task: toy, column: x}, unit: points}":       `the unit "points"`,
		head + "test: difference, direction: less, smallest: 1, of: {task: toy, column: x}}":         "if and only if",
		head + "test: superiority, direction: less, smallest: -1, of: {task: toy, column: x}}":       "below 0",
		head + "test: superiority, direction: less, of: {task: toy, column: x, is: 1, above: 2}}":    "belong to a column",
		head + "test: superiority, direction: less, of: {records: size}}":                            "known is auc_gap",
		head + "test: rank, direction: less, order: [a, b], of: {task: toy, path: x}}":               "takes a column",
	} {
		if _, err := claims.Parse("f.yaml", []byte(source)); err == nil || !strings.Contains(err.Error(), want) || !strings.HasPrefix(err.Error(), "f.yaml") {
			t.Errorf("%q: %v, want %q", source, err, want)
		}
	}
}

// TestOwnClaims: claims of another study are judged alike, those of a difference on either
// side too, and a claim that is there but too small is contradicted.
func TestOwnClaims(t *testing.T) {
	t.Parallel()
	for _, x := range []struct {
		test      string
		mean      float64
		want, why string
	}{
		{"test: difference, smallest: 0.2", 0.5, claims.Supported, ""},
		{"test: difference, smallest: 0.2", -0.5, claims.Supported, ""},
		{"test: difference, smallest: 0.2", 0, claims.Contradicted, ""},
		{"test: superiority, direction: greater, smallest: 2", 0.5, claims.Contradicted, "smaller than the smallest effect"},
		{"test: superiority, direction: less, bound: 1, smallest: 0.2", 0.5, claims.Supported, ""},
	} {
		set, err := claims.Parse("f.yaml", fmt.Appendf(nil, "study: mine\nclaims:\n- {id: a, topic: t, claim: It is so., %s, of: {task: mediation, condition: c, column: x}}", x.test))
		if err != nil {
			t.Fatal(err)
		}
		runs := plant(t, made{task: "mediation", model: "m", rows: map[string]map[string]column{"c": {"x": about(x.mean, 7)}}})
		f, err := claims.Judge(t.Context(), set, claims.Evidence{Runs: runs}, 1)
		if err != nil {
			t.Fatal(err)
		}
		if got := f.All[0]; got.Verdict != x.want || !strings.Contains(got.Why, x.why) || got.Value.N != 200 || got.Value.Groups != 100 {
			t.Errorf("%s of %v: %+v", x.test, x.mean, got)
		}
	}
}

// TestRecords: the gap that records state is the published one, or is not.
func TestRecords(t *testing.T) {
	t.Parallel()
	for gap, want := range map[float64]string{0.7: claims.Supported, 0.2: claims.Contradicted} {
		dir := t.TempDir()
		if err := dialogue.Write(dir, dialogue.Sample()); err != nil {
			t.Fatal(err)
		}
		files, err := filepath.Glob(filepath.Join(dir, "*.json"))
		if err != nil {
			t.Fatal(err)
		}
		for i, f := range files {
			var r map[string]any
			if b, err := os.ReadFile(f); err != nil || json.Unmarshal(b, &r) != nil {
				t.Fatalf("%s: %v", f, err)
			}
			paths := r["continuations"].(map[string]any)
			for name, auc := range map[string]float64{"positive": 0.3 + gap + 0.02*float64(i%3-1), "negative": 0.3} {
				path, ok := paths[name].(map[string]any)
				if !ok {
					path = map[string]any{"intervention_turn": 3, "mediator_utterance": "Say more.", "turns": []any{}}
					paths[name] = path
				}
				path["metrics"] = map[string]any{"trajectory_auc": auc}
			}
			b, err := json.Marshal(r)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(f, b, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		ds, rep, err := dialogue.Read(t.Context(), dir, dialogue.ReadOptions{Lenient: true})
		if err != nil || len(ds) != len(files) {
			t.Fatalf("%d records, %+v, %v", len(ds), rep, err)
		}
		fs := judged(t, "data.gap_auc", claims.Evidence{Records: ds})
		if got := claims.Overall(fs); got != want || fs[0].Value.N != len(files) {
			t.Errorf("a gap of %v: %s, want %s: %+v", gap, got, want, fs)
		}
	}
	if fs := judged(t, "data.gap_auc", claims.Evidence{}); fs[0].Why != "records missing: --data names the study's" {
		t.Errorf("without records: %+v", fs)
	}
}
