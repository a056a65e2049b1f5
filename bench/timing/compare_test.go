package timing

import (
	"encoding/json"
	"math"
	"strings"
	"testing"

	"github.com/ccmed/ccmed/bench/run"
	"github.com/ccmed/ccmed/bench/stats"
)

func TestMeasures(t *testing.T) {
	a := predictions(t, 30, func(i, gold int) int { return gold + btoi(i%3 == 0) }) // wrong: 0, 3, 6, ...
	b := predictions(t, 30, func(i, gold int) int { return gold + 2*btoi(i == 1 || i == 3) })
	b = append(b, run.Sample{Key: run.Key{Step: StepReason, Item: "95"}})
	b[5].Unscored = "too little mass" // right in A
	var sides [2][]stats.Measure
	for i, s := range [][]run.Sample{a, b} {
		ms, notes := answers(t, s).Measures()
		if len(notes) > 0 || len(ms) != 3 || !ms[0].Binary || !ms[1].Binary || ms[2].Binary {
			t.Fatalf("measures %+v, notes %q", ms, notes)
		}
		sides[i] = ms
	}
	r := stats.Resampling{Resamples: 500, Seed: 1}
	hit, err := stats.Compare(sides[0][0], sides[1][0], r)
	if err != nil {
		t.Fatal(err)
	}
	if hit.Difference.N != 29 || hit.UnscoredB != 1 || hit.UnscoredA != 0 || len(hit.Changes) != 10 || math.Abs(hit.Difference.Value-8.0/29) > 1e-9 {
		t.Errorf("%+v", hit)
	}
	for _, c := range hit.Changes {
		if !strings.Contains(c.SaidA, "turn") || !strings.Contains(c.SaidB, "gold") {
			t.Errorf("change %+v does not say what was predicted", c)
		}
	}
	near, err := stats.Compare(sides[0][1], sides[1][1], r)
	if err != nil || near.A != 1 || math.Abs(near.B-27.0/29) > 1e-9 {
		t.Errorf("within one turn: %+v, %v; all of A are, and all but two of B", near, err)
	}
}

func TestMeasuresOfAConstantAnswer(t *testing.T) {
	ms, notes := answers(t, predictions(t, 30, func(int, int) int { return 0 })).Measures()
	if len(ms) != 2 || len(notes) != 1 || !strings.Contains(notes[0], Degenerate+" for all 30 dialogues (never steps in)") {
		t.Errorf("%d measures, notes %q", len(ms), notes)
	}
	for _, o := range ms[1].Observations {
		if o.Value != 0 || !strings.HasPrefix(o.Said, "no turn, gold ") {
			t.Fatalf("%+v: no turn is not within one turn", o)
		}
	}
}

func TestAUROCOfADialogue(t *testing.T) {
	curve := func(shares ...float64) (c []Point) {
		for i, s := range shares {
			c = append(c, Point{Turn: i + 1, Share: s})
		}
		return c
	}
	for _, c := range []struct {
		name  string
		d     Decision
		want  float64
		noted bool
	}{
		{"above all before", Decision{Gold: 3, Curve: curve(.1, .2, .9, .99)}, 1, false},
		{"above one, below one", Decision{Gold: 3, Curve: curve(.1, .7, .5)}, .5, false},
		{"a tie", Decision{Gold: 2, Curve: curve(.4, .4)}, .5, false},
		{"nothing before", Decision{Gold: 1, Curve: curve(.4, .4)}, 0, true},
		{"unscored before", Decision{Gold: 2, Curve: []Point{{Turn: 1, Unscored: "mass"}, {Turn: 2}}}, 0, true},
		{"unscored after", Decision{Gold: 2, Curve: append(curve(.1, .2), Point{Turn: 3, Unscored: "mass"})}, 1, false},
	} {
		if v, why := c.d.auroc(); v != c.want || (why != "") != c.noted {
			t.Errorf("%s: %v, %q", c.name, v, why)
		}
	}
}

func TestMeasuresRefuseDamagedSamples(t *testing.T) {
	s := predictions(t, 2, func(_, gold int) int { return gold })
	s[1].Data = json.RawMessage(`[1]`)
	if _, err := Read(run.Each(s)); err == nil || !strings.Contains(err.Error(), "item "+s[1].Item) {
		t.Errorf("error %v", err)
	}
}
