package schemas_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/ccmed/ccmed/bench/mediation"
	"github.com/ccmed/ccmed/bench/run"
	"github.com/ccmed/ccmed/bench/timing"
	"github.com/ccmed/ccmed/docs/schemas"
	"github.com/ccmed/ccmed/probe"
	"github.com/ccmed/ccmed/sft"
)

type object = map[string]any

func read(t *testing.T, name string) object {
	t.Helper()
	b, err := os.ReadFile(name + ".schema.json")
	if err != nil {
		t.Fatal(err)
	}
	var o object
	if err := json.Unmarshal(b, &o); err != nil {
		t.Fatal(err)
	}
	return o
}

func TestSchemasAreWhatTheySay(t *testing.T) {
	for _, name := range schemas.Names() {
		o := read(t, name)
		if o["$schema"] != "https://json-schema.org/draft/2020-12/schema" || o["$id"] != name+".schema.json" || o["title"] == nil || o["description"] == nil || o["additionalProperties"] != false {
			t.Errorf("%s: %v, %v, %v", name, o["$schema"], o["$id"], o["title"])
		}
		if err := schemas.Validate(name, []byte("[]")); err == nil || !strings.Contains(err.Error(), "want object") {
			t.Errorf("%s of a list: %v", name, err)
		}
	}
	if err := schemas.Validate("holiday", []byte("{}")); err == nil || !strings.Contains(err.Error(), "manifest") {
		t.Errorf("an unknown schema: %v", err)
	}
	if err := schemas.Validate("manifest", []byte("{")); err == nil {
		t.Error("half a text was accepted")
	}
}

// Every field that the program writes is in its schema, and nothing else.
func TestSchemasHaveTheFieldsOfTheProgram(t *testing.T) {
	for _, c := range []struct {
		name, def string // "" is the schema itself
		of        any
	}{
		{"manifest", "", run.Manifest{}}, {"manifest", "Identity", run.Identity{}}, {"manifest", "Session", run.Session{}}, {"manifest", "Summary", run.Summary{}},
		{"manifest", "FileSum", run.FileSum{}},
		{"timing-sample", "", run.Sample{}}, {"timing-sample", "Decision", timing.Decision{}}, {"timing-sample", "Point", timing.Point{}}, {"timing-sample", "Utterance", timing.Utterance{}},
		{"mediation-sample", "", run.Sample{}}, {"mediation-sample", "Utterance", mediation.Utterance{}}, {"mediation-sample", "Continuation", mediation.Continuation{}},
		{"mediation-sample", "SimTurn", mediation.SimTurn{}}, {"mediation-sample", "Labels", mediation.Labels{}}, {"mediation-sample", "TurnLabel", mediation.TurnLabel{}},
		{"mediation-sample", "Judgement", mediation.Judgement{}},
		{"extract-sample", "", run.Sample{}}, {"extract-sample", "Lines", probe.Lines{}}, {"extract-sample", "States", probe.States{}},
		{"extract-sample", "TurnStates", probe.TurnStates{}}, {"extract-sample", "TurnState", probe.TurnState{}},
		{"timing-metrics", "", run.StoredMetrics{}}, {"mediation-metrics", "Metrics", mediation.Metrics{}}, {"mediation-metrics", "ConditionMetrics", mediation.ConditionMetrics{}},
		{"mediation-metrics", "Outcome", mediation.Outcome{}}, {"mediation-metrics", "LabellerCard", mediation.LabellerCard{}},
		{"failure", "", run.Failure{}}, {"findings", "", probe.Findings{}}, {"findings", "CellFindings", probe.CellFindings{}},
		{"findings", "Decomposition", probe.Decomposition{}}, {"findings", "Gate", probe.Gate{}}, {"turns", "", probe.TurnFindings{}},
		{"train", "", sft.Manifest{}}, {"train", "Config", sft.Config{}}, {"train", "TrainResult", sft.TrainResult{}}, {"export", "", sft.Export{}}, {"card", "", sft.Card{}}, {"card", "Proof", sft.Proof{}},
	} {
		o := read(t, c.name)
		if c.def != "" {
			o = o["$defs"].(object)[c.def].(object)
		}
		var there []string
		for name := range o["properties"].(object) {
			there = append(there, name)
		}
		slices.Sort(there)
		if want := fields(reflect.TypeOf(c.of)); !slices.Equal(there, want) {
			t.Errorf("%s %s has %v, and %T %v", c.name, c.def, there, c.of, want)
		}
		for f := range reflect.TypeOf(c.of).Fields() {
			name, always := strings.CutSuffix(f.Tag.Get("json"), ",omitempty")
			p, _ := o["properties"].(object)[name].(object)
			if f.Type.Kind() == reflect.Pointer && f.Type.Elem().Kind() == reflect.Struct && !always && p["$ref"] != nil && c.name == "findings" {
				t.Errorf("%s %s: %s may be null, and the schema takes none", c.name, c.def, name)
			}
		}
	}
	// The metrics of timing are those of the package and more.
	o := read(t, "timing-metrics")["$defs"].(object)["timingFound"].(object)["properties"].(object)
	for _, f := range fields(reflect.TypeFor[timing.Metrics]()) {
		if o[f] == nil {
			t.Errorf("timing-metrics has no %s", f)
		}
	}
}

// fields are the names that a struct has as JSON, sorted.
func fields(t reflect.Type) []string {
	var out []string
	for f := range t.Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case name == "-" || !f.IsExported():
		case f.Anonymous && name == "":
			out = append(out, fields(f.Type)...)
		default:
			if name == "" {
				name = f.Name
			}
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

// A real run folder, made by the program, and what a change to each part comes to.
func TestRealRun(t *testing.T) {
	text := map[string]string{}
	dir := filepath.Join("testdata", "run")
	for schema, file := range map[string]string{"manifest": "manifest.json", "timing-sample": "samples.jsonl", "prompt": "prompts.jsonl"} {
		b, err := os.ReadFile(filepath.Join(dir, file))
		if err != nil {
			t.Fatal(err)
		}
		lines := []string{string(b)}
		if filepath.Ext(file) == ".jsonl" {
			lines = strings.Split(strings.TrimSpace(string(b)), "\n")
		}
		for i, l := range lines {
			if err := schemas.Validate(schema, []byte(l)); err != nil {
				t.Errorf("%s, line %d: %v", file, i+1, err)
			}
		}
		text[schema] = lines[0]
	}
	for _, c := range []struct{ schema, old, now, want string }{
		{"manifest", `"status": "done"`, `"status": "finished"`, "status: value must be one of"},
		{"manifest", `"seed": 1`, `"seed": "1"`, "identity.seed: got string, want integer"},
		{"manifest", `"seed": 1`, `"sead": 1`, "identity: missing property 'seed'"},
		{"manifest", `"seed": 1`, `"sead": 1`, "identity: additional properties 'sead' not allowed"},
		{"manifest", `"samples_sha256": "sha256:d`, `"samples_sha256": "sha256:`, "samples_sha256: "},
		{"manifest", `"start": "2026`, `"start": "yesterday 2026`, "sessions.0.start: "},
		{"manifest", `"samples": 2`, `"samples": -2`, "samples: minimum"},
		{"timing-sample", `"step":"decide"`, `"step":"decode"`, "step: value must be one of"},
		{"timing-sample", `"gold":`, `"gould":`, "data: missing property 'gold'"},
		{"timing-sample", `"predicted":0`, `"predicted":"none"`, "data.predicted: got string, want integer"},
		{"timing-sample", `"turn":1,"p":`, `"turn":1,"p":null,"q":`, "data.curve.0.p: got null, want number"},
		{"timing-sample", `"schema":1`, `"schema":2`, "schema: value must be 1"},
		{"timing-sample", `"data":{`, `"dat":{`, "missing property 'data'"},
		{"prompt", `"hash":"`, `"hash":"x`, "hash: "},
	} {
		after := strings.Replace(text[c.schema], c.old, c.now, 1)
		if after == text[c.schema] {
			t.Errorf("%s has no %s", c.schema, c.old)
		}
		if err := schemas.Validate(c.schema, []byte(after)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s with %s: error %v, want one with %q", c.schema, c.now, err, c.want)
		}
	}
}
