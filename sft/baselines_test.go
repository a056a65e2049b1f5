package sft

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ccmed/ccmed/bench/dialogue"
	"github.com/ccmed/ccmed/bench/timing"
)

// The words of a record are those of its dialogue, without the turns' numbers and
// speakers.
func TestMessagesOfARecord(t *testing.T) {
	for _, d := range dialogue.Sample() {
		r, err := Training(d)
		if err != nil {
			t.Fatal(err)
		}
		var want []string
		for _, x := range d.Unmediated() {
			want = append(want, strings.Join(strings.FieldsFunc(x.Message, func(r rune) bool { return r == '\n' || r == '\r' }), " "))
		}
		if got := r.messages(); !slices.Equal(got, want) {
			t.Fatalf("dialogue %s: %q, want %q", d.Key(), got, want)
		}
	}
}

func TestValidationBaselines(t *testing.T) {
	dir := t.TempDir()
	x, err := WriteExport(t.Context(), dir, surveyed(t, 60), ExportOptions{Fraction: 0.2})
	if err != nil {
		t.Fatal(err)
	}
	m := &Manifest{Config: Config{Data: dir}, ExportDigest: x.Digest()}
	bs, err := ValidationBaselines(t.Context(), m)
	if err != nil || len(bs) == 0 {
		t.Fatalf("%v, %v", bs, err)
	}
	for _, b := range bs {
		if b.N != x.Counts["valid"] {
			t.Errorf("%s: of %d dialogues, the validation has %d", b.Name, b.N, x.Counts["valid"])
		}
	}
	if !slices.ContainsFunc(bs, func(b timing.BaselineResult) bool { return strings.HasPrefix(b.Name, timing.BagBaseline) }) {
		t.Error("no bag of words among the baselines")
	}
	m.ExportDigest = "sha256:other"
	if _, err := ValidationBaselines(t.Context(), m); err == nil || !strings.Contains(err.Error(), "another export") {
		t.Errorf("another export: %v", err)
	}
	if err := os.Remove(filepath.Join(dir, TrainFile)); err != nil {
		t.Fatal(err)
	}
	if _, err := ValidationBaselines(t.Context(), m); err == nil {
		t.Error("an export without its training file")
	}
}
