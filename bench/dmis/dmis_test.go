package dmis_test

import (
	"encoding/json"
	"errors"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/ccmed/ccmed/bench/dmis"
)

const tolerance = 1e-9

func near(t *testing.T, what string, got, want float64) {
	t.Helper()
	if !(math.Abs(got-want) <= tolerance) {
		t.Errorf("%s = %.12g, want %.12g", what, got, want)
	}
}

// reference holds figures that CC-Mediation's public code gives for synthetic
// inputs, 40 of each kind.
type reference struct {
	Pairs []struct {
		Pre          dmis.Distribution `json:"pre"`
		Post         dmis.Distribution `json:"post"`
		ExpectedPre  float64           `json:"expected_position_pre"`
		ExpectedPost float64           `json:"expected_position_post"`
		IndexPre     float64           `json:"expected_stage_index_pre"`
		IndexPost    float64           `json:"expected_stage_index_post"`
		W1           float64           `json:"wasserstein_1"`
		SignedW1     float64           `json:"signed_wasserstein_1"`
		TV           float64           `json:"total_variation"`
		JS           float64           `json:"js_divergence"`
		Dominance    string            `json:"stochastic_dominance"`
	} `json:"distribution_pairs"`
	Trajectories []struct {
		Pre        dmis.Stage `json:"pre_stage_index"`
		TInt       int        `json:"intervention_turn"`
		Last       int        `json:"last_turn"`
		Trajectory [][2]int   `json:"trajectory"`
		Paige      *float64   `json:"auc_paige"` // null where there is no label
		Index      *float64   `json:"auc_index"`
	} `json:"trajectories"`
	Logprobs []struct {
		Top []struct {
			Token   string  `json:"token"`
			Logprob float64 `json:"logprob"`
		} `json:"top_logprobs"`
		Distribution dmis.Distribution `json:"distribution"`
	} `json:"digit_logprobs"`
}

func readReference(t *testing.T) reference {
	t.Helper()
	b, err := os.ReadFile("testdata/metrics.json")
	if err != nil {
		t.Fatal(err)
	}
	var r reference
	if err := json.Unmarshal(b, &r); err != nil {
		t.Fatal(err)
	}
	if len(r.Pairs) != 40 || len(r.Trajectories) != 40 || len(r.Logprobs) != 40 {
		t.Fatalf("testdata has %d, %d and %d cases, want 40 of each", len(r.Pairs), len(r.Trajectories), len(r.Logprobs))
	}
	return r
}

func TestReferencePairs(t *testing.T) {
	for _, c := range readReference(t).Pairs {
		near(t, "expected position of pre", c.Pre.Expected(dmis.Paige), c.ExpectedPre)
		near(t, "expected position of post", c.Post.Expected(dmis.Paige), c.ExpectedPost)
		near(t, "expected index of pre", c.Pre.Expected(dmis.Index), c.IndexPre)
		near(t, "expected index of post", c.Post.Expected(dmis.Index), c.IndexPost)
		near(t, "W1", dmis.W1(c.Pre, c.Post, dmis.Paige), c.W1)
		near(t, "signed W1", dmis.SignedW1(c.Pre, c.Post, dmis.Paige), c.SignedW1)
		near(t, "TV", dmis.TV(c.Pre, c.Post), c.TV)
		near(t, "JS", dmis.JS(c.Pre, c.Post), c.JS)
		if got := dmis.Dominance(c.Pre, c.Post); got != c.Dominance {
			t.Errorf("Dominance(%v, %v) = %s, want %s", c.Pre, c.Post, got, c.Dominance)
		}
	}
}

func TestReferenceTrajectories(t *testing.T) {
	for _, c := range readReference(t).Trajectories {
		stages := make([]dmis.StageAt, len(c.Trajectory))
		for i, p := range c.Trajectory {
			stages[i] = dmis.StageAt{Turn: p[0], Stage: dmis.Stage(p[1])}
		}
		for scale, want := range map[dmis.Scale]*float64{dmis.Paige: c.Paige, dmis.Index: c.Index} {
			got, err := dmis.StageAUC(c.Pre, c.TInt, c.Last, stages, scale)
			if want == nil {
				if !errors.Is(err, dmis.ErrNoTurn) {
					t.Errorf("AUC without a label = %v, %v, want ErrNoTurn", got, err)
				}
				continue
			}
			if err != nil {
				t.Fatal(err)
			}
			near(t, "AUC on "+scale.String(), got, *want)
		}
	}
}

func TestReferenceLogprobs(t *testing.T) {
	for _, c := range readReference(t).Logprobs {
		var tokens []string
		var logprobs []float64
		for _, x := range c.Top {
			tokens, logprobs = append(tokens, x.Token), append(logprobs, x.Logprob)
		}
		l := dmis.FromTopReference(tokens, logprobs)
		for i := range c.Distribution {
			near(t, "probability of "+dmis.Stage(i).String(), l.Dist[i], c.Distribution[i])
		}
	}
}

func TestStages(t *testing.T) {
	ds := dmis.Definitions()
	if len(ds) != 6 {
		t.Fatalf("%d definitions, want 6", len(ds))
	}
	for s := dmis.Denial; s <= dmis.Integration; s++ {
		for _, name := range []string{s.String(), strings.ToUpper(s.String()), " " + strings.ToLower(s.String()) + "\n"} {
			if got, err := dmis.ParseStage(name); err != nil || got != s {
				t.Errorf("ParseStage(%q) = %v, %v, want %v", name, got, err, s)
			}
		}
		if d := ds[s]; d.Number != int(s)+1 || d.Name != s.String() || d.Definition == "" {
			t.Errorf("definition of %v is %+v", s, d)
		}
		if (s.Pattern() != "") != s.Ethnocentric() || (s.Move() != "") != s.Ethnocentric() {
			t.Errorf("%v: a pattern and a move belong to the ethnocentric stages alone", s)
		}
	}
	for _, name := range []string{"", "denia", "7", "Defence"} {
		if s, err := dmis.ParseStage(name); err == nil {
			t.Errorf("ParseStage(%q) = %v, want an error", name, s)
		}
	}
	if bad := dmis.Stage(6); bad.Valid() || bad.String() != "Stage(6)" || bad.Move() != "" || bad.Pattern() != "" {
		t.Errorf("Stage(6) passes for a stage: %q", bad)
	}
}

func TestGaps(t *testing.T) {
	if got := dmis.Paige.Gaps(); got != [5]float64{1, 1, 2, 1, 1} {
		t.Errorf("Paige gaps are %v", got)
	}
	if got := dmis.Index.Gaps(); got != [5]float64{1, 1, 1, 1, 1} {
		t.Errorf("index gaps are %v", got)
	}
}

func TestValidate(t *testing.T) {
	for name, c := range map[string]struct {
		d    dmis.Distribution
		says string // "" where valid
	}{
		"point mass":         {dmis.Distribution{0, 0, 1}, ""},
		"rounding":           {dmis.Distribution{0.5, 0.5 + 1e-7}, ""},
		"sum too small":      {dmis.Distribution{0.5, 0.4}, "add up to 0.9"},
		"beyond rounding":    {dmis.Distribution{0.5, 0.5 + 2e-6}, "add up to 1.000"},
		"all zero":           {dmis.Distribution{}, "add up to 0"},
		"negative":           {dmis.Distribution{-0.5, 1.5}, "Denial is -0.5"},
		"not a number":       {dmis.Distribution{0, math.NaN()}, "Defense is NaN"},
		"infinite":           {dmis.Distribution{0, 0, math.Inf(1)}, "Minimization is +Inf"},
		"negative, infinite": {dmis.Distribution{0, 0, math.Inf(-1)}, "Minimization is -Inf"},
	} {
		err := c.d.Validate()
		if (err == nil) != (c.says == "") || err != nil && !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: error %v, want one that says %q", name, err, c.says)
		}
	}
}

func TestNormalise(t *testing.T) {
	got, ok := dmis.Distribution{1, 3}.Normalise()
	if !ok || got != (dmis.Distribution{0.25, 0.75}) {
		t.Errorf("Normalise = %v, %v", got, ok)
	}
	for name, d := range map[string]dmis.Distribution{
		"zero": {}, "negative": {-1, 2}, "not a number": {math.NaN(), 1}, "infinite": {math.Inf(1)}, "sum not finite": {math.MaxFloat64, math.MaxFloat64},
	} {
		if _, ok := d.Normalise(); ok {
			t.Errorf("%s is normalised", name)
		}
	}
}

func TestArgmaxIsTheFirstOfEquals(t *testing.T) {
	if got := (dmis.Distribution{0.1, 0.4, 0.4, 0.1}).Argmax(); got != dmis.Defense {
		t.Errorf("Argmax = %v, want Defense", got)
	}
}

func TestAmbiguous(t *testing.T) {
	sixth := 1.0 / 6
	for name, c := range map[string]struct {
		d    dmis.Distribution
		want bool
	}{
		"uniform":                    {dmis.Distribution{sixth, sixth, sixth, sixth, sixth, sixth}, true},
		"largest just under 0.30":    {dmis.Distribution{0.299, 0.299, 0.299, 0.103}, true},
		"largest 0.30, low entropy":  {dmis.Distribution{0.30, 0.30, 0.30, 0.10}, false},
		"largest 0.34, high entropy": {dmis.Distribution{0.34, 0.132, 0.132, 0.132, 0.132, 0.132}, true},
		"point mass":                 {dmis.Distribution{0, 1}, false},
	} {
		if got := c.d.Ambiguous(); got != c.want {
			t.Errorf("%s: ambiguous %v (entropy %.3f), want %v", name, got, c.d.Entropy(), c.want)
		}
	}
	near(t, "entropy of the uniform distribution", dmis.Distribution{sixth, sixth, sixth, sixth, sixth, sixth}.Entropy(), math.Log(6))
}

func TestNoDirection(t *testing.T) {
	mid := dmis.Distribution{0, 0.5, 0.5}
	for name, c := range map[string]struct {
		post dmis.Distribution
		want bool
	}{
		"wider, same mean":  {dmis.Distribution{0.5, 0, 0, 0.5}, false}, // Paige: −1.5 to −1
		"same":              {mid, true},
		"moved by 0.04":     {dmis.Distribution{0, 0.46, 0.54}, true},
		"moved by 0.06":     {dmis.Distribution{0, 0.44, 0.56}, false},
		"moved back by .06": {dmis.Distribution{0, 0.56, 0.44}, false},
	} {
		if got := dmis.NoDirection(mid, c.post, dmis.Paige); got != c.want {
			t.Errorf("%s: NoDirection = %v, want %v", name, got, c.want)
		}
	}
}

func TestSignFollowsTheScale(t *testing.T) {
	// On the index nothing moves on average; Paige's wide middle gap makes the
	// step across it weigh more.
	pre, post := dmis.Distribution{0, 0, 1}, dmis.Distribution{0, 0.5, 0, 0.5}
	near(t, "signed W1 on the index", dmis.SignedW1(pre, post, dmis.Index), 1)
	near(t, "signed W1 on Paige", dmis.SignedW1(pre, post, dmis.Paige), 1.5)
	near(t, "signed W1 back on Paige", dmis.SignedW1(post, pre, dmis.Paige), -1.5)
}

func randomDistribution(r *rand.Rand) dmis.Distribution {
	var d dmis.Distribution
	for i := range d {
		if r.IntN(3) > 0 { // zeros are as common as in a labeller's answers
			d[i] = r.ExpFloat64()
		}
	}
	n, ok := d.Normalise()
	if !ok {
		return dmis.Distribution{0, 1}
	}
	return n
}

func TestMetricsHaveTheirProperties(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 5000 {
		a, b, c := randomDistribution(r), randomDistribution(r), randomDistribution(r)
		for scale, bound := range map[dmis.Scale]float64{dmis.Paige: 6, dmis.Index: 5} {
			ab, ba := dmis.W1(a, b, scale), dmis.W1(b, a, scale)
			near(t, "symmetric W1", ab, ba)
			near(t, "W1 to itself", dmis.W1(a, a, scale), 0)
			if ac, cb := dmis.W1(a, c, scale), dmis.W1(c, b, scale); ab > ac+cb+tolerance {
				t.Fatalf("W1 breaks the triangle inequality: %v > %v + %v", ab, ac, cb)
			}
			if ab <= 0 && dmis.TV(a, b) > tolerance || ab > bound+tolerance {
				t.Fatalf("W1 = %v on scale %v", ab, scale)
			}
			shift := b.Expected(scale) - a.Expected(scale)
			if math.Abs(shift) > ab+tolerance {
				t.Fatalf("the mean moves by %v, further than the mass: %v", shift, ab)
			}
			s := dmis.SignedW1(a, b, scale)
			near(t, "size of signed W1", math.Abs(s), ab)
			if s*shift < 0 {
				t.Fatalf("signed W1 %v and the shift %v point apart", s, shift)
			}
			switch dmis.Dominance(a, b) {
			case dmis.PostDominates:
				near(t, "W1 under dominance", shift, ab)
			case dmis.PreDominates:
				near(t, "W1 under dominance", -shift, ab)
			}
		}
		js, tv := dmis.JS(a, b), dmis.TV(a, b)
		near(t, "symmetric JS", js, dmis.JS(b, a))
		near(t, "JS to itself", dmis.JS(a, a), 0)
		if js < 0 || js > math.Ln2 || tv < 0 || tv > 1+tolerance {
			t.Fatalf("JS = %v, TV = %v", js, tv)
		}
		// Lin (1991): JS ≤ TV·ln 2; Pinsker: JS ≥ TV²/2.
		if js > tv*math.Ln2+tolerance || js < tv*tv/2-tolerance {
			t.Fatalf("JS = %v does not fit TV = %v", js, tv)
		}
	}
	ends := [2]dmis.Distribution{{1}, {0, 0, 0, 0, 0, 1}}
	near(t, "signed W1 between the ends, Paige", dmis.SignedW1(ends[1], ends[0], dmis.Paige), -6)
	near(t, "signed W1 between the ends, index", dmis.SignedW1(ends[0], ends[1], dmis.Index), 5)
	near(t, "JS between the ends", dmis.JS(ends[0], ends[1]), math.Ln2)
}

func TestAUC(t *testing.T) {
	for name, c := range map[string]struct {
		pre    float64
		tInt   int
		last   int
		points []dmis.Point
		want   float64
	}{
		"one point gives its change":         {-2, 4, 10, []dmis.Point{{7, 1}}, 3},
		"constant":                           {-1, 4, 8, []dmis.Point{{5, 1}, {6, 1}, {7, 1}, {8, 1}}, 2},
		"first value is carried back":        {0, 4, 6, []dmis.Point{{5, 1}, {6, 3}}, 1.5},
		"last value is carried on":           {0, 4, 8, []dmis.Point{{5, 1}, {6, 3}}, 1*0.25 + 2*0.25 + 3*0.5},
		"a hole is bridged in straight line": {0, 0, 4, []dmis.Point{{1, 0}, {4, 3}}, 1.5 * 0.75},
		"any order":                          {0, 4, 6, []dmis.Point{{6, 3}, {5, 1}}, 1.5},
	} {
		got, err := dmis.AUC(c.pre, c.tInt, c.last, c.points)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		near(t, name, got, c.want)
	}
}

func TestAUCErrors(t *testing.T) {
	for name, c := range map[string]struct {
		tInt, last int
		points     []dmis.Point
		says       string
	}{
		"no point":                {4, 8, nil, "no labelled turn after the intervention"},
		"nothing follows":         {8, 8, nil, "turn 8 of 8"},
		"before the intervention": {4, 8, []dmis.Point{{4, 1}}, "turn 4, outside of 5..8"},
		"after the end":           {4, 8, []dmis.Point{{9, 1}}, "turn 9"},
		"twice":                   {4, 8, []dmis.Point{{5, 1}, {6, 1}, {5, 2}}, "two trajectory points lie at turn 5"},
		"not finite":              {4, 8, []dmis.Point{{5, math.NaN()}}, "turn 5 is NaN"},
	} {
		if v, err := dmis.AUC(0, c.tInt, c.last, c.points); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, %v, want an error that says %q", name, v, err, c.says)
		}
	}
	if _, err := dmis.AUC(math.Inf(1), 4, 8, []dmis.Point{{5, 1}}); err == nil {
		t.Error("an infinite position before is accepted")
	}
	for _, c := range []struct{ pre, at dmis.Stage }{{6, 0}, {-1, 0}, {0, 6}} {
		if _, err := dmis.StageAUC(c.pre, 4, 8, []dmis.StageAt{{5, c.at}}, dmis.Paige); err == nil {
			t.Errorf("stages %d and %d are accepted", c.pre, c.at)
		}
	}
}

func TestAUCIsMonotoneAndBounded(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for range 2000 {
		tInt, n := r.IntN(9), 1+r.IntN(8)
		last := tInt + n
		var low, high []dmis.Point
		least, most := math.Inf(1), math.Inf(-1)
		for turn := tInt + 1; turn <= last; turn++ {
			if r.IntN(3) == 0 && turn < last {
				continue
			}
			v := 6*r.Float64() - 3
			least, most = min(least, v), max(most, v)
			low = append(low, dmis.Point{Turn: turn, Position: v})
			high = append(high, dmis.Point{Turn: turn, Position: v + r.Float64()})
		}
		pre := 6*r.Float64() - 3
		a, errA := dmis.AUC(pre, tInt, last, low)
		slices.Reverse(high)
		b, errB := dmis.AUC(pre, tInt, last, high)
		if errA != nil || errB != nil {
			t.Fatal(errA, errB)
		}
		if a > b+tolerance {
			t.Fatalf("higher positions lower the AUC from %v to %v", a, b)
		}
		if a < least-pre-tolerance || a > most-pre+tolerance {
			t.Fatalf("AUC %v lies outside the changes %v to %v", a, least-pre, most-pre)
		}
	}
}
