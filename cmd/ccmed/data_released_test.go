package main

import (
	"path/filepath"
	"slices"
	"testing"

	"github.com/ccmed/ccmed/bench/dialogue"
)

// What the paper counts of its data comes out of the released records.
func TestReleasedRecords(t *testing.T) {
	data := filepath.Join("..", "..", "..", "shared", "data", "cc-mediation")
	if !exists(data) {
		t.Skip("the public records are not at hand: there is no ../shared/data/cc-mediation beside the repository")
	}
	read := func(split string) []dialogue.Dialogue {
		ds, _, err := dialogue.Read(t.Context(), data, dialogue.ReadOptions{Split: split, Lenient: true})
		if err != nil {
			t.Fatal(err)
		}
		return ds
	}
	eval, training := read("evaluate"), read("training")
	s, ok := releasedSection(eval, training)
	if !ok {
		t.Fatal("the records are not the released ones, or their hash changed")
	}
	var got []string
	for _, r := range s.Tables[0].Rows {
		got = append(got, r[4].String())
	}
	if !slices.Equal(got, []string{"difference +0", "difference +0.000"}) {
		t.Errorf("%q", got)
	}
	if _, ok := releasedSection(eval[1:], training); ok {
		t.Error("other records stand beside the published numbers")
	}
}
