package timing

import (
	"fmt"
	"strings"
	"testing"

	"github.com/ccmed/ccmed/bench/report"
)

// Three dialogues, of which a model has one right, one wrong and one unscored, and a
// baseline the unscored one right: 50 % of two beside 33 % of three was read as better.
func TestEveryRowIsOfTheSameDialogues(t *testing.T) {
	in := BaselineInput{}
	for i := range 3 {
		d := BaselineDialogue{ID: fmt.Sprint(95 + i), Group: fmt.Sprint(i), Gold: 3 + i, Turns: []string{"a", "b", "c", "d", "e", "f"}}
		d.Turns[2] = "the longest turn of them all" // is gold in the first dialogue alone
		in.Eval = append(in.Eval, d)
	}
	ss := predictions(t, 3, func(i, gold int) int { return gold + []int{1, 0, 0}[i] })
	for unscored := range 2 {
		if unscored == 1 {
			ss[0].Unscored = "no mass"
		}
		m := scored(t, ss)
		in.Scored = m.ScoredItems()
		bs, err := in.Results(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		longest := baselineNamed(t, bs, "longest turn")
		table := Sections("model", m, bs)[0].Tables[0]
		if unscored == 0 {
			if longest.Share() != "33.3 % (1/3)" || longest.ShareOfAll() != "" || m.Bounds != nil || len(table.Columns) != 4 {
				t.Errorf("all scored: %s, %s, %+v, %d columns", longest.Share(), longest.ShareOfAll(), m.Bounds, len(table.Columns))
			}
			continue
		}
		if longest.Share() != "0.0 % (0/2)" || longest.ShareOfAll() != "33.3 % (1/3)" || longest.N != 2 || len(longest.Predicted) != 3 {
			t.Errorf("one unscored: %s of the same, %s of all", longest.Share(), longest.ShareOfAll())
		}
		if u := bs[0]; u.Accuracy != 1.0/6 || u.AccuracyAll != 1.0/6 || u.NAll != 3 {
			t.Errorf("uniform: %+v", u)
		}
		row := table.Rows[0]
		if len(table.Columns) != 5 || table.Columns[3].Name != "of all 3" || row[1] != report.Text("100.0 % (2/2)") || row[3] != report.Text("66.7 to 100.0 %") {
			t.Errorf("columns %v, row %v", table.Columns, row)
		}
		for _, r := range table.Rows[1:] {
			if s := r[1].String(); !strings.Contains(s, "/2)") && !strings.Contains(s, "expected") {
				t.Errorf("a row of other dialogues: %v", r)
			}
		}
		for _, x := range Sections("model", m, bs)[0].Tables {
			for _, r := range x.Rows {
				if strings.HasPrefix(r[0].String(), "TurnAcc, six models") && r[4] != report.Text("above the range; its interval reaches into it") {
					t.Errorf("2 of 3 right at least: %v", r)
				}
			}
		}
	}
}

// The published range of untuned models is 11.3 to 35.8 %. 15 of 40 scored are above
// it; with 4 more unscored 34.1 % of all could be right, with 1 more still 36.6 %.
func TestAboveTheRangeWhateverIsUnscored(t *testing.T) {
	for _, c := range []struct {
		unscored int
		want     string
	}{
		{0, "above the range; its interval reaches into it"},
		{1, "above the range; its interval reaches into it"},
		{4, "above the range; its interval reaches into it; of all 44 dialogues it is 34.1 % to 43.2 %"},
	} {
		ss := predictions(t, 40+c.unscored, func(i, gold int) int {
			if i%8 < 3 {
				return gold
			}
			return gold%6 + 3
		})
		for i := 40; i < len(ss); i++ {
			ss[i].Unscored = "no mass"
		}
		m := scored(t, ss)
		table, ok := publishedTable(nil, m)
		if !ok || m.Correct != 15 || table.Rows[0][4] != report.Text(c.want) {
			t.Errorf("%d unscored, %d right: %v, want %q", c.unscored, m.Correct, table.Rows[0], c.want)
		}
	}
}
