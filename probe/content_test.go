package probe

import (
	"math"
	"strings"
	"testing"

	"github.com/ccmed/ccmed/probe/activation"
	"github.com/ccmed/ccmed/probe/linear"
)

// contentOf runs the content probe on n rows in as many groups, the classes in turn,
// with states that hold the embedding: there is something to be found.
func contentOf(t *testing.T, n, folds int) *ContentResult {
	t.Helper()
	s := Samples{Classes: 3}
	for i := range n {
		s.Y, s.Groups = append(s.Y, i%3), append(s.Groups, string(rune('a'+i)))
	}
	x := plant(n, 4, 1, nil)
	var data []float64
	for i := range n {
		data = append(data, float64(x.Row(i)[0]), float64(x.Row(i)[1]))
	}
	targets := must(linear.NewDense(n, 2, data))(t)
	fixed := func(Split) (*linear.Dense, error) { return targets, nil }
	return must(Content(t.Context(), planted{x}, fixed, s, Design{Folds: folds, Seeds: []uint64{1}, Inner: 2}))(t)[0]
}

// One line of each stage is held out at a time: there is no other to compare with.
func TestContentWithoutAnotherLine(t *testing.T) {
	r := contentOf(t, 12, 4)
	if r.Compared != 0 || !math.IsNaN(r.Permuted) || !math.IsNaN(r.Skill) || math.IsNaN(r.Cosine) || len(r.Beyond().Rounds) != 0 {
		t.Errorf("%d rows compared: cosine %v, others %v, skill %v", r.Compared, r.Cosine, r.Permuted, r.Skill)
	}
	// With two of each the same program compares all rows.
	if r := contentOf(t, 24, 4); r.Compared != 24 || math.IsNaN(r.Permuted) || math.Abs(r.Skill-r.Beyond().Mean()/(1-r.Permuted)) > 1e-12 {
		t.Errorf("%d of 24 rows compared: others %v, skill %v", r.Compared, r.Permuted, r.Skill)
	}
	// Two of one stage, one of the others: only the two are compared, no zero stands in.
	c := cosines{guess: [][]float64{{1, 0}, {0, 1}, {1, 0}}, truth: [][]float64{{1, 0}, {1, 0}, {0, 1}}}
	if o := c.others([]int{0, 0, 1}); o[0] != 1 || o[1] != 0 || !math.IsNaN(o[2]) {
		t.Errorf("mean cosines with others %v, want 1, 0 and none", o)
	}
}

// A model that says one line for each stage has no content to be told apart.
func TestAlikeLinesAreNotCompared(t *testing.T) {
	for want, r := range map[string]*ContentResult{alikeLines: {Compared: 9, Permuted: 1}, noOtherLine: {Permuted: math.NaN()}, "": {Compared: 9, Permuted: 0.99}} {
		if got := uncompared([]*ContentResult{{Compared: 9, Permuted: 0.5}, r}); got != want {
			t.Errorf("%+v: %q, want %q", r, got, want)
		}
	}
}

func TestContentSectionSaysWhatIsNotComputed(t *testing.T) {
	cell := activation.Cell{Context: ContextD, Text: TextOwnD, Position: UtteranceEnd}
	none := ContentCell{Cell: cell, Cosine: []float64{0.345}, Lines: 12, NotComputed: noOtherLine}
	f := &Findings{Layers: []string{"block.0"}, At: "block.0", Content: &ContentFindings{Embedder: "e", Cells: []ContentCell{none}}}
	row := f.contentSection(0).Tables[0].Rows[0]
	if len(row) != 4 || row[1].String() != "0.345" || row[3].String() != "not computed: no other line of this stage" {
		t.Errorf("row %v", row)
	}
	some := ContentCell{Cell: cell, Cosine: []float64{0.345}, Permuted: []float64{0.1}, Skill: []Effect{{P: 0.25}}, Lines: 12, Compared: 10}
	f.Content.Cells[0] = some
	table := f.contentSection(0).Tables[0]
	if row := table.Rows[0]; len(row) != 5 || row[4].String() != "0.250" || !strings.Contains(strings.Join(table.Notes, "\n"), "10 of 12 lines") {
		t.Errorf("row %v, notes %q", row, table.Notes)
	}
}
