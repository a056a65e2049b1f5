package sft

import (
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ccmed/ccmed/bench/dialogue"
	"github.com/ccmed/ccmed/bench/report"
	"github.com/ccmed/ccmed/bench/timing"
)

// The words of a record are those of its dialogue, without the turns' numbers and
// speakers.
func TestMessagesOfARecord(t *testing.T) {
	for _, d := range dialogue.Sample() {
		r, err := Training(d, false)
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

// The baselines beside a training are those that timing finds on the same
// dialogues, and differences are those of a model of which the right answers are
// known.
func TestBaselinesBesideATraining(t *testing.T) {
	ds := surveyed(t, 24)
	dir := filepath.Join(t.TempDir(), "data")
	x, err := WriteExport(t.Context(), dir, ds, ExportOptions{Fraction: 0.25, Holdout: HoldoutTemplate, Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	at := func(file string) (out []dialogue.Dialogue, ids []string) {
		held, err := ReadHeld(filepath.Join(dir, file))
		if err != nil {
			t.Fatal(err)
		}
		for _, h := range held {
			i := slices.IndexFunc(ds, func(d dialogue.Dialogue) bool { return d.Key() == h.ID })
			out, ids = append(out, ds[i]), append(ids, h.ID)
		}
		return out, ids
	}
	train, _ := at(TrainFile)
	eval, ids := at(HeldOutFile)
	held := &Validation{N: len(ids), TurnAcc: 1, Right: ids, Threshold: 0.4, ThresholdTurnAcc: 0.5}
	m := &Manifest{Config: Config{Data: dir, Seed: 1}, ExportDigest: x.Digest(), Result: &TrainResult{HeldOut: held}}
	got, err := Baselines(t.Context(), m)
	if err != nil {
		t.Fatal(err)
	}
	want, err := timing.Baselines(t.Context(), eval, train, 0, nil, "")
	if err != nil {
		t.Fatal(err)
	}
	if len(got) != 1 || len(got[HeldOutFile]) != len(want) {
		t.Fatalf("%d files, %d baselines, want 1 and %d", len(got), len(got[HeldOutFile]), len(want))
	}
	for i, b := range got[HeldOutFile] {
		if b.Name != want[i].Name || b.Accuracy != want[i].Accuracy || b.N != len(eval) {
			t.Errorf("%+v, want %+v", b, want[i])
		}
		if want[i].Predicted == nil != (b.Compared == nil) {
			t.Errorf("%s: predicts turns %t, is compared %t", b.Name, want[i].Predicted != nil, b.Compared != nil)
		}
		if b.Tuned == nil || b.Tuned.Value != 1 || b.Tuned.N != len(eval) || b.Tuned.Groups < 2 {
			t.Errorf("%s: the tuned model, which is always right, has %+v", b.Name, b.Tuned)
		}
		if b.Compared != nil && math.Abs(b.Compared.Difference.Value-(1-b.Accuracy)) > 1e-12 {
			t.Errorf("%s: difference %g to a model that is always right, TurnAcc %g", b.Name, b.Compared.Difference.Value, b.Accuracy)
		}
	}

	tables := besideTables(m.Result, x.Holdout, got)
	var out strings.Builder
	if err := report.Write(&out, report.Markdown, []report.Section{{Title: "x", Tables: tables}}, report.Options{}); err != nil {
		t.Fatal(err)
	}
	for _, says := range []string{"Held out by template (" + x.Holdout.Keys[0], "threshold 0.4 of the validation", timing.BagBaseline} {
		if !strings.Contains(out.String(), says) {
			t.Errorf("no %q in\n%s", says, out.String())
		}
	}

	m.ExportDigest = "sha256:other"
	if _, err := Baselines(t.Context(), m); err == nil || !strings.Contains(err.Error(), "another export") {
		t.Errorf("another export: %v", err)
	}
	if err := os.Remove(filepath.Join(dir, TrainFile)); err != nil {
		t.Fatal(err)
	}
	if _, err := Baselines(t.Context(), m); err == nil {
		t.Error("an export without its training file")
	}
}
