package dualhead

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ccmed/ccmed/bench/run"
	"github.com/ccmed/ccmed/bench/timing"
	"github.com/ccmed/ccmed/infer"
	"github.com/ccmed/ccmed/sft"
)

func card(t *testing.T, shared int, proofs ...sft.Proof) *sft.Card {
	t.Helper()
	e, err := json.Marshal(map[string]any{"description": sft.Export{Leaks: map[string]sft.Leaks{"evaluation": {Contexts: sft.Overlap{Shared: shared, Of: 159}}}}})
	if err != nil {
		t.Fatal(err)
	}
	return &sft.Card{Export: e, Proofs: proofs}
}

// Every caution has a package that it is about, and one like it that it is not.
func TestPackageCautions(t *testing.T) {
	said := func(c *sft.Card) string {
		r := &Result{card: c}
		if c == nil {
			r.noCard = errors.New("no card")
		}
		return strings.Join(r.packageCautions(), "\n")
	}
	clean := card(t, 0, sft.Proof{Name: "ends", OK: true})
	if got := said(clean); got != "" {
		t.Errorf("a clean package has the cautions %q", got)
	}
	for says, c := range map[string]*sft.Card{
		"trained on is unknown: no card":                          nil,
		"trained on the scenario context of 95.0 % (151/159)":     card(t, 151),
		"there were none when it was exported":                    {Export: []byte(`{}`)},
		"its card does not say it":                                {},
		`the proof "ends" of the package was not made: no Ollama`: card(t, 0, sft.Proof{Name: "ends", NotRun: "no Ollama"}),
		`the proof "ends" of the package failed`:                  card(t, 0, sft.Proof{Name: "ends"}),
	} {
		if got := said(c); !strings.Contains(got, says) {
			t.Errorf("no %q in %q", says, got)
		}
	}
}

func TestThresholdCautions(t *testing.T) {
	for _, c := range []struct {
		settings settings
		says     bool
	}{
		{settings{Threshold: 0.2}, true},
		{settings{Threshold: 0.5}, false},
		{settings{Threshold: 0.41, ThresholdFrom: "validation"}, false},
	} {
		if got := c.settings.caution(); (got != "") != c.says || c.says && !strings.Contains(got, "the threshold 0.2 was given by hand") {
			t.Errorf("%+v: %q", c.settings, got)
		}
	}
}

func TestCardOfARun(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "pkg")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	c := card(t, 3)
	c.Schema, c.Digest = sft.CardSchema, "sha256:1"
	if err := c.Write(dir); err != nil {
		t.Fatal(err)
	}
	of := func(digest, pkg string) error {
		_, err := cardOf(run.Identity{Models: map[string]infer.Model{timing.Role: {Digest: digest}}}, settings{Package: pkg})
		return err
	}
	if err := of("sha256:1", dir); err != nil {
		t.Error(err)
	}
	if err := of("sha256:2", dir); err == nil || !strings.Contains(err.Error(), "another model") {
		t.Errorf("a package of another model: %v", err)
	}
	if of("sha256:1", dir+"gone") == nil || of("sha256:1", "") == nil {
		t.Error("a package that is not there has a card")
	}
}
