package sft

import (
	"path/filepath"
	"strings"
	"testing"

	"gopkg.in/yaml.v3"
)

// header reads the header of a card.
func header(t *testing.T, dir string) (map[string]any, string) {
	t.Helper()
	parts := strings.SplitN(read(t, dir, ReadmeFile), "---\n", 3)
	if len(parts) != 3 || parts[0] != "" {
		t.Fatal("the card has no header")
	}
	var h map[string]any
	if err := yaml.Unmarshal([]byte(parts[1]), &h); err != nil {
		t.Fatal(err)
	}
	return h, parts[2]
}

// TestDataCard: the card of an export names its files and nothing that is not there.
func TestDataCard(t *testing.T) {
	t.Parallel()
	for holdout, want := range map[Holdout][]string{HoldoutRandom: {TrainFile, ValidFile}, HoldoutCountry: {TrainFile, ValidFile, HeldOutFile}} {
		dir := t.TempDir()
		x, err := WriteExport(t.Context(), dir, surveyed(t, 60), ExportOptions{Holdout: holdout, Fraction: 0.2, Seed: 3})
		if err != nil {
			t.Fatal(err)
		}
		h, text := header(t, dir)
		var files []string
		for _, f := range h["configs"].([]any)[0].(map[string]any)["data_files"].([]any) {
			files = append(files, f.(map[string]any)["path"].(string))
		}
		if strings.Join(files, " ") != strings.Join(want, " ") || h["license"] != unknownLicence {
			t.Errorf("%s: files %q and licence %v, want %q and none", holdout, files, h["license"], want)
		}
		for _, want := range []string{x.Data, "## Limits", "which is the last", "| decisions, positive | "} {
			if !strings.Contains(text, want) {
				t.Errorf("%s: the card does not say %q:\n%s", holdout, want, text)
			}
		}
		if _, err := WriteExport(t.Context(), dir, surveyed(t, 60), ExportOptions{Holdout: holdout, Fraction: 0.2, Seed: 3, Force: true}); err != nil {
			t.Error(err)
		}
	}
}

// TestModelCard: the card of a package gives the base's licence where the base states it, and
// every proof with its result.
func TestModelCard(t *testing.T) {
	t.Parallel()
	limit := 0.02
	for base, want := range map[string]string{"---\nlanguage: en\nlicense: apache-2.0\n---\n# Base\nlicense: other\n": "apache-2.0", "# Base\n\nlicense: mit\n": unknownLicence, "": unknownLicence} {
		dir := t.TempDir()
		if base != "" {
			write(t, filepath.Join(dir, "base", ReadmeFile), base)
		}
		p := &Package{Dir: dir, Merged: filepath.Join(dir, mergedDir), Training: &Manifest{Base: Checkpoint{Dir: filepath.Join(dir, "base")}},
			Card: Card{Schema: CardSchema, Name: "tuned", Digest: "sha256:aa", Base: Base{Name: filepath.Join(dir, "base")}, Width: 3,
				Proofs: []Proof{measured("greedy", "same tokens", 0.01, &limit), measured("state", "far", 0.5, &limit), NotRun("rendered", "no server")}}}
		if err := p.Finish(); err != nil {
			t.Fatal(err)
		}
		h, text := header(t, dir)
		if h["license"] != want || h["base_model"] != "base" || strings.Contains(text, dir) {
			t.Errorf("licence %v of the base %v, want %s", h["license"], h["base_model"], want)
		}
		for _, says := range []string{"| greedy | ok |", "| state | FAILED |", "| rendered | not run |", "look it up"} {
			if strings.Contains(text, says) == (says == "look it up" && want != unknownLicence) {
				t.Errorf("with the licence %s: %q in\n%s", want, says, text)
			}
		}
	}
}
