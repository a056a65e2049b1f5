package timing

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ccmed/ccmed/bench/report"
	"github.com/ccmed/ccmed/bench/stats"
)

// The bins and the Brier score are scikit-learn's, equal probabilities and empty
// bins included.
func TestReliabilityAgainstScikitLearn(t *testing.T) {
	b, err := os.ReadFile(filepath.Join("testdata", "calibration.json"))
	if err != nil {
		t.Fatal(err)
	}
	var golden struct {
		Cases []struct {
			Name              string
			Bins              int
			P, Y, Share, Mean []float64
			N                 []int
			ECE, Brier        float64
		}
	}
	if err := json.Unmarshal(b, &golden); err != nil {
		t.Fatal(err)
	}
	if len(golden.Cases) != 3 {
		t.Fatalf("%d cases, want 3", len(golden.Cases))
	}
	near := func(a, b float64) bool { return math.Abs(a-b) < 1e-12 }
	for _, c := range golden.Cases {
		bins := reliability(c.P, c.Y, c.Bins)
		if len(bins) != len(c.N) {
			t.Errorf("%s: %d bins, want %d", c.Name, len(bins), len(c.N))
			continue
		}
		for i, b := range bins {
			if b.N != c.N[i] || !near(b.Share, c.Share[i]) || !near(b.Mean, c.Mean[i]) || b.Lo > b.Share || b.Hi < b.Share {
				t.Errorf("%s, bin %d: %+v, want n %d, share %v, mean %v", c.Name, i+1, b, c.N[i], c.Share[i], c.Mean[i])
			}
		}
		if got := calibrationError(bins); !near(got, c.ECE) {
			t.Errorf("%s: ECE %v, want %v", c.Name, got, c.ECE)
		}
		if got := brier(c.P, c.Y); !near(got, c.Brier) {
			t.Errorf("%s: Brier score %v, want %v", c.Name, got, c.Brier)
		}
	}
}

// curves returns dialogues whose probabilities distort turns the truth into.
func curves(n int, mode Mode, distort func(p float64) float64) []Decision {
	r := rand.New(rand.NewPCG(1, 2))
	var ds []Decision
	for i := range n {
		d := Decision{Mode: mode, Context: fmt.Sprint(i / 2), FirstTurn: 3, LastTurn: 10}
		for turn := 1; turn <= d.LastTurn; turn++ {
			p := r.Float64()
			d.Curve = append(d.Curve, Point{Turn: turn, Share: distort(p)})
			if turn >= d.FirstTurn && d.Gold == 0 && r.Float64() < p {
				d.Gold = turn // the hazard at each turn is p
			}
		}
		if d.Gold > 0 {
			ds = append(ds, d)
		}
	}
	return ds
}

func TestCalibrationTellsRightProbabilitiesFromWrongOnes(t *testing.T) {
	boot := stats.Bootstrap{Resamples: 200, Seed: 1}
	right, err := calibration(curves(400, Stream, func(p float64) float64 { return p }), boot)
	if err != nil {
		t.Fatal(err)
	}
	bold, err := calibration(curves(400, Stream, func(p float64) float64 { return math.Round(p) }), boot)
	if err != nil {
		t.Fatal(err)
	}
	if right.ECE.Value > 2*right.ECEIfCalibrated || right.Skill.Lo <= 0 {
		t.Errorf("right probabilities: ECE %v against %v, skill %v", right.ECE, right.ECEIfCalibrated, right.Skill)
	}
	if bold.ECE.Lo < 2*right.ECE.Value || bold.Brier.Value <= right.Brier.Value {
		t.Errorf("bold probabilities: ECE %v (right %v), Brier %v (right %v)", bold.ECE, right.ECE, bold.Brier, right.Brier)
	}
	for _, c := range []*Calibration{right, bold} {
		n := 0
		for _, b := range c.Bins {
			n += b.N
		}
		if n != c.Turns || c.BrierBase != c.BaseRate*(1-c.BaseRate) || math.Abs(c.Skill.Value-(1-c.Brier.Value/c.BrierBase)) > 1e-12 {
			t.Errorf("%d turns in the bins of %d; Brier %v, base %v, skill %v", n, c.Turns, c.Brier.Value, c.BrierBase, c.Skill.Value)
		}
		s := calibrationSection(*c)
		if err := s.Figures[0].Check(); err != nil {
			t.Error(err)
		}
		if len(s.Tables[1].Rows) != len(c.Bins) {
			t.Errorf("%d rows for %d bins", len(s.Tables[1].Rows), len(c.Bins))
		}
	}
}

func TestAskedTurns(t *testing.T) {
	curve := []Point{{Turn: 1, Share: .1}, {Turn: 2, Share: .2}, {Turn: 3, Share: .3}, {Turn: 4, Share: .4, Unscored: "no answer"}, {Turn: 5, Share: .5}, {Turn: 6, Share: .6}}
	for _, c := range []struct {
		mode Mode
		want []float64
	}{
		{Stream, []float64{.3, .5}}, // up to the conflict turn, as the model would be asked
		{DualHead, []float64{.3, .5}},
		{Pick, []float64{.3, .5, .6}}, // all that are offered
		{CoT, []float64{.3, .5, .6}},
	} {
		var got []float64
		for _, a := range askedTurns(Decision{Mode: c.mode, Gold: 5, FirstTurn: 3, Curve: curve}) {
			got = append(got, a.p)
			if a.gold != (a.p == .5) {
				t.Errorf("%s: turn with %v: gold is %v", c.mode, a.p, a.gold)
			}
		}
		if fmt.Sprint(got) != fmt.Sprint(c.want) {
			t.Errorf("%s: %v, want %v", c.mode, got, c.want)
		}
	}
}

func TestNoCalibrationWithoutBothKinds(t *testing.T) {
	alike := curves(100, Stream, func(p float64) float64 { return p })
	for i := range alike {
		alike[i].FirstTurn = alike[i].Gold // the conflict turn is the only one asked about
	}
	for name, ds := range map[string][]Decision{"none": nil, "few": curves(2, Stream, func(p float64) float64 { return p })[:1], "conflict turns only": alike} {
		if c, err := calibration(ds, stats.Bootstrap{Resamples: 10}); c != nil || err != nil {
			t.Errorf("%s: %v, %v", name, c, err)
		}
	}
}

func TestGroupsHaveIntervalsWhereTheyDiffer(t *testing.T) {
	ss := predictions(t, 60, func(i, gold int) int {
		if gold == 4 && i%4 == 3 {
			return 3
		}
		return gold
	})
	dimensions := map[string]string{}
	for i, s := range ss {
		dimensions[s.Item] = []string{"religious values", "migration", ""}[i%3]
	}
	m, err := Score(answers(t, ss), ScoreOptions{Seed: 1, Resamples: 200, Dimensions: dimensions})
	if err != nil {
		t.Fatal(err)
	}
	if r := m.PerTurn[4]; r.Acc == nil || r.Acc.N != 10 || !(r.Acc.Lo < r.Acc.Value && r.Acc.Value < r.Acc.Hi) || r.K != 5 {
		t.Errorf("turn 4: %+v", r)
	}
	if r := m.PerTurn[5]; r.K != 10 || r.Acc == nil || !r.Acc.Exact || r.Acc.Hi != 1 || math.Abs(r.Acc.Lo-math.Pow(0.025, 1/float64(r.Acc.Groups))) > 1e-12 {
		t.Errorf("turn 5, all right: %+v", r)
	}
	few := map[string]string{}
	for _, x := range ss[:8] { // four contexts
		few[x.Item] = "corruption"
	}
	x, err := Score(answers(t, ss), ScoreOptions{Seed: 1, Resamples: 200, Dimensions: few})
	if err != nil {
		t.Fatal(err)
	}
	if r := x.PerDimension["corruption"]; r.Acc != nil || r.K == 0 || r.K == r.N {
		t.Errorf("an interval of four contexts: %+v", r)
	}
	if got := groupTables(x)[2].Rows[0][2]; got != report.Text("few contexts") {
		t.Errorf("a group of four contexts has the interval %v", got)
	}
	if len(m.PerDimension) != 2 || m.PerDimension["migration"].N != 20 {
		t.Errorf("dimensions: %+v", m.PerDimension)
	}
	var titles []string
	for _, x := range groupTables(m) {
		titles = append(titles, x.Title)
	}
	if len(titles) != 3 {
		t.Errorf("tables: %v", titles)
	}
	m = scored(t, predictions(t, 60, func(i, gold int) int { return 3 }))
	if r := m.PerStage["Denial"]; r.Acc != nil || len(m.PerDimension) != 0 {
		t.Errorf("an interval of a constant answer: %+v", r)
	}
	if got := groupTables(m)[0].Rows[0][2]; got != report.Text(Degenerate) {
		t.Errorf("a constant answer is shown as %v", got)
	}
}

// A number of one model is compared with that model only, which a tuned one is by the
// name of its base.
func TestPublishedNumbersOfANamedModel(t *testing.T) {
	ss := predictions(t, 60, perfect)
	for i := range ss {
		ss[i].Data = bytes.Replace(ss[i].Data, []byte(`"mode":"stream"`), []byte(`"mode":"dual-head"`), 1)
	}
	m := scored(t, ss)
	reading := func(names ...string) (out []string) {
		t.Helper()
		x, ok := publishedTable(names, m)
		if !ok {
			t.Fatal("no published numbers")
		}
		for _, r := range x.Rows {
			out = append(out, r[4].String())
		}
		return out
	}
	if got := reading("mediator"); !slices.Equal(got, []string{"another model", "another model", "another model"}) {
		t.Errorf("%q", got)
	}
	if f := accuracyFigure("mediator", m, nil); f.Points.References != nil || !strings.Contains(f.Description, "they are of other dialogues") {
		t.Errorf("of %d dialogues, references %+v, %q", m.N, f.Points.References, f.Description)
	}
	m.N = 159
	if f := accuracyFigure("mediator", m, nil); len(f.Points.References) != 2 || f.Points.References[1].Value != 98.1 {
		t.Errorf("references %+v", f.Points.References)
	}
	m.Mode = "given" // made elsewhere: of no kind that numbers are published of
	if _, ok := publishedTable([]string{"llama3.1:8b"}, m); ok {
		t.Error("published numbers beside decisions of nobody knows what")
	}
	if f := accuracyFigure("file", m, nil); f.Points.References != nil {
		t.Errorf("references %+v", f.Points.References)
	}
	m.Mode = DualHead
	if got := reading("mediator", "ollama:llama3.1:8b"); !slices.Equal(got, []string{"within the range ± 4.0 %", "another model", "another model"}) {
		t.Errorf("%q", got)
	}
}

// Whatever the probabilities are: no bin is empty, every turn is in one, equal
// probabilities share one, and error and score lie between 0 and 1.
func FuzzReliability(f *testing.F) {
	f.Add([]byte{0, 10, 20, 30, 255, 128, 128, 128, 7, 9}, uint8(3))
	f.Add([]byte{5, 5, 5, 5}, uint8(2))
	f.Add([]byte{1}, uint8(10))
	f.Fuzz(func(t *testing.T, raw []byte, bins uint8) {
		if len(raw) == 0 || bins < 2 {
			return
		}
		p, y := make([]float64, len(raw)), make([]float64, len(raw))
		distinct := map[byte]bool{}
		for i, b := range raw {
			p[i], y[i] = float64(b>>1)/127, float64(b&1)
			distinct[b>>1] = true
		}
		out := reliability(p, y, int(bins))
		n := 0
		last := math.Inf(-1)
		for _, b := range out {
			n += b.N
			if b.N == 0 || b.Mean < last || b.Share < 0 || b.Share > 1 || b.Lo > b.Share || b.Hi < b.Share {
				t.Errorf("bin %+v of %v", b, out)
			}
			last = b.Mean
		}
		if n != len(raw) || len(out) > min(int(bins), len(distinct)) {
			t.Errorf("%d turns of %d in %d bins, of %d probabilities", n, len(raw), len(out), len(distinct))
		}
		if e, b := calibrationError(out), brier(p, y); e < 0 || e > 1 || b < 0 || b > 1 {
			t.Errorf("ECE %v, Brier score %v", e, b)
		}
	})
}

// Three turns of which none is what its certain probability says: 1, and not the
// 1.0000000000000002 of a root that is squared again.
func TestBrierStaysInRange(t *testing.T) {
	for n := 1; n < 2000; n++ {
		p, y := make([]float64, n), make([]float64, n)
		for i := range p {
			p[i], y[i] = float64(i%2), float64((i+1)%2)
		}
		if b := brier(p, y); b != 1 {
			t.Fatalf("Brier score of %d certain errors is %v", n, b)
		}
	}
}
