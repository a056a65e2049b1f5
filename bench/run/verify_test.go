package run

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// three makes a finished run of the items item-000 to item-002.
func three(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "run")
	d, err := Create(path, threeIdentity(), []string{"words"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Execute(t.Context(), d, words(3), Options{Workers: (&echo{}).workers(1)}); err != nil {
		t.Fatal(err)
	}
	return path
}

func threeIdentity() Identity {
	id := identity()
	id.Items = []string{"item-000", "item-001", "item-002"}
	return id
}

// change edits a file of a run.
func change(t *testing.T, path, name string, edit func(string) string) {
	t.Helper()
	file := filepath.Join(path, name)
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	after := edit(string(b))
	if after == string(b) {
		t.Fatalf("the edit of %s changes nothing", name)
	}
	if err := os.WriteFile(file, []byte(after), 0o644); err != nil {
		t.Fatal(err)
	}
}

func replace(old, now string) func(string) string {
	return func(s string) string { return strings.Replace(s, old, now, 1) }
}

func TestVerifyFinds(t *testing.T) {
	cutFirstLine := func(s string) string { return s[strings.IndexByte(s, '\n')+1:] }
	for _, c := range []struct {
		name, file string
		change     func(string) string
		want       []string
	}{
		{"a changed item", SamplesFile, replace("item-001", "item-xxx"), []string{"was changed", "samples of 1 items that the manifest does not list: item-xxx"}},
		{"a changed number", SamplesFile, replace(`"data":8`, `"data":9`), []string{"was changed"}},
		{"a sample that is gone", SamplesFile, cutFirstLine, []string{"holds 5 samples and the manifest says 6"}},
		{"an item that is gone", SamplesFile, func(s string) string {
			var kept []string
			for l := range strings.Lines(s) {
				if !strings.Contains(l, "item-001") {
					kept = append(kept, l)
				}
			}
			return strings.Join(kept, "")
		}, []string{"1 of 3 items have neither a sample nor a failure: item-001"}},
		{"a sample twice", SamplesFile, func(s string) string { return s + s }, []string{"samples.jsonl:7: there is a sample of say of item item-000 on line 1 already"}},
		{"damaged lines", SamplesFile, func(s string) string { return strings.ReplaceAll(s, `{"step":"say"`, `"step"`) }, []string{"samples.jsonl:1 is damaged", "samples.jsonl:3 is damaged"}},
		{"a sample of a newer form", SamplesFile, replace(`"schema":1`, `"schema":7`), []string{"samples.jsonl:1 has schema 7 and this version reads up to 1"}},
		{"a changed prompt", PromptsFile, replace("item-001", "item-00x"), []string{"prompts.jsonl:2: the prompt is not the one that its hash"}},
		{"a prompt that is gone", PromptsFile, cutFirstLine, []string{"of say of item item-000 is not in prompts.jsonl"}},
		{"a changed option", ManifestFile, replace(`"limit": 20`, `"limit": 21`), []string{"manifest.json: identity was changed", "identity_sha256"}},
		{"a changed model", ManifestFile, replace(`"name": "echo"`, `"name": "gpt"`), []string{"identity was changed"}},
		{"a changed count", ManifestFile, replace(`"scored": 6`, `"scored": 60`), []string{"sessions.0.summary counts 60 scored and 0 unscored samples, and there are 6"}},
		{"a changed list of items", ManifestFile, replace(`"item-002"`, `"item-003"`), []string{"items_hash is stored as", "item-003"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := three(t)
			if err := Verify(path, VerifyOptions{}); err != nil {
				t.Fatal(err)
			}
			change(t, path, c.file, c.change)
			err := Verify(path, VerifyOptions{})
			for _, want := range c.want {
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("error %v, want one with %q", err, want)
				}
			}
		})
	}
}

// Every line and the manifest pass the given check, and what it says is told with
// file and line.
func TestVerifyChecksForms(t *testing.T) {
	path := three(t)
	seen := map[string]int{}
	err := Verify(path, VerifyOptions{Form: func(file string, text []byte) error {
		seen[file]++
		if strings.Contains(string(text), `"step":"length","item":"item-001"`) {
			return errors.New("no such step")
		}
		return nil
	}})
	if err == nil || !strings.HasSuffix(err.Error(), "samples.jsonl:5: no such step") {
		t.Errorf("error %v", err)
	}
	if seen[ManifestFile] != 1 || seen[SamplesFile] != 6 || seen[PromptsFile] != 3 {
		t.Errorf("checked %v", seen)
	}
}
