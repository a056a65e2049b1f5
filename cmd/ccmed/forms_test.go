package main

import (
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/invopop/jsonschema"

	"github.com/ccmed/ccmed/bench/folder"
	"github.com/ccmed/ccmed/bench/schema"
)

var update = flag.Bool("update", false, "write docs/schemas anew")

// docs/schemas holds the schemas of the Go types, with the comments of their fields.
func TestSchemasOfTheDocs(t *testing.T) {
	r := &jsonschema.Reflector{}
	t.Chdir(projectRoot)
	for _, room := range []string{"bench", "probe", "sft", "infer"} {
		if err := r.AddGoComments("github.com/ccmed/ccmed", room); err != nil {
			t.Fatal(err)
		}
	}
	there := map[string]bool{"ccmed": true} // of the settings file
	for name, f := range folder.Forms(benches, schema.Comments(r.CommentMap)) {
		there[name] = true
		want, err := f.MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join("docs", "schemas", name+".schema.json")
		if *update {
			if err := os.WriteFile(path, want, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if got, err := os.ReadFile(path); err != nil || string(got) != string(want) {
			t.Errorf("%s is old (%v); run: go test ./cmd/ccmed -run TestSchemasOfTheDocs -update", path, err)
		}
	}
	files, err := filepath.Glob(filepath.Join("docs", "schemas", "*.schema.json"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if name := strings.TrimSuffix(filepath.Base(f), ".schema.json"); !there[name] {
			t.Errorf("%s is the schema of nothing", f)
		}
	}
}

// A real run folder, made by the program, and what a change to each part comes to.
func TestFormsOfARealRun(t *testing.T) {
	all := folder.Forms(benches, nil)
	text := map[string]string{}
	dir := filepath.Join("testdata", "run")
	for form, file := range map[string]string{"manifest": "manifest.json", "timing-sample": "samples.jsonl", "prompt": "prompts.jsonl"} {
		lines := []string{fileText(t, filepath.Join(dir, file))}
		if filepath.Ext(file) == ".jsonl" {
			lines = strings.Split(strings.TrimSpace(lines[0]), "\n")
		}
		for i, l := range lines {
			if err := all[form].Validate([]byte(l)); err != nil {
				t.Errorf("%s, line %d: %v", file, i+1, err)
			}
		}
		text[form] = lines[0]
	}
	for _, c := range []struct{ form, old, now, want string }{
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
		after := strings.Replace(text[c.form], c.old, c.now, 1)
		if after == text[c.form] {
			t.Errorf("%s has no %s", c.form, c.old)
		}
		if err := all[c.form].Validate([]byte(after)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s with %s: error %v, want one with %q", c.form, c.now, err, c.want)
		}
	}
	for name, f := range all {
		if err := f.Validate([]byte("[]")); err == nil || !strings.Contains(err.Error(), "want object") {
			t.Errorf("%s of a list: %v", name, err)
		}
	}
	if err := all["manifest"].Validate([]byte("{")); err == nil || json.Valid([]byte("{")) {
		t.Error("half a text was accepted")
	}
}
