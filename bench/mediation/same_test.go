package mediation

import (
	"fmt"
	"math"
	"strings"
	"testing"
)

// One dialogue of 30 has no stages under D: its row has 29, the others 30. Beside them
// stand the rows of the same 29, and what D's mean can be of all 30.
func TestTheSameDialoguesInEveryRow(t *testing.T) {
	whole, err := Score(samplesOfUnits(t, study(30)...), quick)
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := sharedTable(whole); ok {
		t.Error("all rows are of the same dialogues, and there is a table of those that are")
	}
	lost := study(30)
	for i, u := range lost {
		if u.item == "97" && u.condition == D {
			lost[i].after = []int{-1, -1, -1, -1, -1, -1}
		}
	}
	m, err := Score(samplesOfUnits(t, lost...), quick)
	if err != nil {
		t.Fatal(err)
	}
	table, ok := sharedTable(m)
	if !ok || len(table.Rows) != 4 {
		t.Fatalf("%v, %d rows", ok, len(table.Rows))
	}
	for _, c := range m.Conditions {
		e, ok := c.Shared[AUC]
		if !ok || e.N != 29 {
			t.Errorf("%s: %+v over the shared dialogues", c.Condition, e)
		}
		var sum float64
		for _, o := range m.Outcomes {
			if o.Condition == c.Condition && o.Item != "97" {
				sum += o.Values[AUC]
			}
		}
		if math.Abs(e.Value-sum/29) > 1e-12 {
			t.Errorf("%s: AUC %v of the shared dialogues, want %v", c.Condition, e.Value, sum/29)
		}
		b, bounded := c.Bounds[AUC]
		if bounded != (c.Condition == D) {
			t.Errorf("%s: bounds %+v", c.Condition, b)
		}
		if bounded && (b.N != 30 || math.Abs(b.Lo-(sum-6)/30) > 1e-12 || math.Abs(b.Hi-(sum+6)/30) > 1e-12) {
			t.Errorf("bounds %+v of a sum of %v and one between -6 and 6", b, sum)
		}
	}
	want := fmt.Sprintf("D, AUC: of all 30 dialogues from %.2f to %.2f", m.Conditions[1].Bounds[AUC].Lo, m.Conditions[1].Bounds[AUC].Hi)
	if notes := strings.Join(mainTable(m).Notes, "\n"); !strings.Contains(notes, want) {
		t.Errorf("notes %q, want %q", notes, want)
	}
}
