package ccbench

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/ccmed/ccmed/bench/run"
	"github.com/ccmed/ccmed/bench/task"
)

// TestPublished: the harmonic mean of the printed rates is the printed CCS in all cells of
// history, culture-cot and norms, within what rounding allows, and in none of none.
func TestPublished(t *testing.T) {
	t.Parallel()
	if len(published) != 5 {
		t.Fatalf("%d models", len(published))
	}
	for _, p := range published {
		for k, setting := range settingNames {
			f, a := p.follow[k], p.avoid[k]
			lo, hi := 2*(f-.0005)*(a-.0005)/(f+a-.001)-.0005, 2*(f+.0005)*(a+.0005)/(f+a+.001)+.0005
			if got := Harmonic(f, a); math.Abs(got-2/(1/f+1/a)) > 1e-12 {
				t.Errorf("%s %s: %v", p.model, setting, got)
			}
			if fits := p.ccs[k] >= lo && p.ccs[k] <= hi; fits != (setting != None) {
				t.Errorf("%s %s: CCS %.3f, from the rates %.4f to %.4f", p.model, setting, p.ccs[k], lo, hi)
			}
		}
	}
}

func TestHarmonic(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 1))
	for range 1000 {
		n := 2 + r.IntN(9)
		sumF, sumA, mean := 0.0, 0.0, 0.0
		for range n {
			f, a := r.Float64(), r.Float64()
			sumF, sumA, mean = sumF+f, sumA+a, mean+Harmonic(f, a)
			if Harmonic(f, a) != Harmonic(a, f) || Harmonic(0, a) != 0 || Harmonic(f, 0) != 0 || math.Abs(Harmonic(f, f)-f) > 1e-12 {
				t.Fatalf("%v, %v", f, a)
			}
		}
		if k := float64(n); mean/k > Harmonic(sumF/k, sumA/k)+1e-12 {
			t.Fatalf("the mean of CCS %v is above CCS of the mean rates %v", mean/k, Harmonic(sumF/k, sumA/k))
		}
	}
	if Harmonic(0, 0) != 0 {
		t.Error("of nothing it is not 0")
	}
}

// planted makes a unit of a persona with items written "norm stance yes|no own|other".
func planted(setting, culture, persona, query string, items ...string) judgedUnit {
	u := judgedUnit{key: run.Key{Item: persona + " " + query, Condition: setting}, answer: Answer{Culture: culture, Persona: persona, Query: query, Topic: "sleep", Text: "A."},
		Judged: Judged{Culture: culture, Persona: persona, Query: query, Topic: "sleep"}}
	for _, s := range items {
		f := strings.Fields(s)
		it := Item{Norm: f[0], Stance: f[1], Kind: "practice", Text: "The answer " + f[0], P: map[string]float64{"yes": .9, "no": .1}[f[2]]}
		switch f[3] {
		case "own":
			it.Of = []string{persona}
		case "other":
		default:
			it.Of = strings.Split(f[3], ",")
		}
		u.Items = append(u.Items, it)
	}
	return u
}

func near(t *testing.T, what string, got, want float64) {
	t.Helper()
	if !(math.Abs(got-want) < 1e-12) {
		t.Errorf("%s is %v, want %v", what, got, want)
	}
}

// TestRatesByHand: three personas of one culture and one of another, two queries.
func TestRatesByHand(t *testing.T) {
	t.Parallel()
	all := []judgedUnit{
		planted(History, "x", "p1", "q1", "a follow yes own", "a avoid no other", "b avoid yes own", "b follow no other"),
		planted(History, "x", "p2", "q1", "a avoid yes own", "a follow no other", "b avoid no own", "b follow yes other"),
		planted(History, "x", "p3", "q1", "a avoid no own", "a follow yes other", "b follow no own", "b avoid yes other"),
		planted(History, "x", "p1", "q2", "a follow no own", "a avoid yes other"),
		planted(History, "x", "p2", "q2", "a avoid yes own", "a follow yes other"),
		planted(History, "y", "r1", "q1", "c follow yes own", "d avoid yes own"),
		planted(None, "x", "", "q1", "a follow yes p1", "a avoid no p2,p3", "b avoid yes p1,p2", "b follow yes p3"),
	}
	m, err := measure(all, 1)
	if err != nil {
		t.Fatal(err)
	}
	if m.Personas != 4 || m.Queries != 2 || len(m.Settings) != 2 || m.Settings[1].Name != History {
		t.Fatalf("%+v", m)
	}
	// Own:  q1 p1 a+ 1 (swapped: p2 0, p3 1 → ½), p1 b− 1 (p3 1), p2 a− 1 (p1 0), p2 b− 0 (p3 1),
	//       p3 a− 0 (p1 0), p3 b+ 0 (p1 0, p2 1 → ½); q2 p1 a+ 0 (p2 1), p2 a− 1 (p1 1); r1: no opposite.
	h := m.Settings[1]
	near(t, "Follow", h.FollowRate.Value, 2./4) // p1 q1, p3, p1 q2, r1
	near(t, "Avoid", h.AvoidRate.Value, 4./6)   // p1, p2 a, p2 b, p3, p2 q2, r1
	near(t, "overall", h.Overall.Value, 6./10)
	near(t, "CCS", h.CCS.Value, 2*.5*(2./3)/(.5+2./3))
	// p1: F ½ A 1; p2: no Follow; p3: F 0 A 0; r1: F 1 A 1.
	near(t, "mean CCS", h.MeanCCS.Value, (2./3+0+1)/3)
	near(t, "adaptation", h.Adaptation.Value, (.5+0+1-1+0-.5-1+0)/8)
	near(t, "equal CCS", h.EqualCCS.Value, Harmonic((1./3+1)/2, (3./5+1)/2))
	near(t, "equal adaptation", h.EqualAdaptation.Value, -1./8) // of x alone
	if h.Swaps != 8 || h.NoSwap != 2 || h.OwnYes != 4 || h.Answers != 6 || h.Adaptation.Groups != 4 {
		t.Errorf("%d swaps, %d without, %d own, %d answers, %d personas", h.Swaps, h.NoSwap, h.OwnYes, h.Answers, h.Adaptation.Groups)
	}
	near(t, "swapped", h.swapped(), (.5+1+0+1+0+.5+1+1)/8)
	if len(h.ByCulture) != 2 || h.ByCulture[0].Follow != 3 || h.ByCulture[1].Adaptation != nil || h.ByCulture[1].CCS == nil {
		t.Errorf("by culture %+v", h.ByCulture)
	}
	// Follow among items: p1 2 of 3, p2 0 of 3, p3 1 of 2, r1 1 of 2.
	if e := h.ByEmbeddedness; len(e) != 2 || e[0].Name != thirds[0] || e[0].Avoid != 3 || e[1].Follow != 4 || e[1].Avoid != 3 {
		t.Errorf("by embeddedness %+v", e)
	}
	n := m.Settings[0]
	near(t, "none, Follow", n.FollowRate.Value, 1) // a of p1, b of p3
	near(t, "none, Avoid", n.AvoidRate.Value, 2./4)
	if n.Adaptation.Value != 0 || n.Swaps != 6 {
		t.Errorf("none: adaptation %v of %d", n.Adaptation.Value, n.Swaps)
	}
}

// TestAllAvoid: a model of which only Avoid items hold has CCS 0, however often they hold.
func TestAllAvoid(t *testing.T) {
	t.Parallel()
	m, err := measure([]judgedUnit{planted(History, "x", "p1", "q1", "a follow no own", "b avoid yes own"), planted(History, "x", "p2", "q1", "a follow no own", "b avoid yes own")}, 1)
	if err != nil || m.Settings[0].CCS.Value != 0 || m.Settings[0].AvoidRate.Value != 1 {
		t.Errorf("%+v, %v", m.Settings, err)
	}
}

// TestSwapTwice: exchanging the verdicts of own and swapped answers turns the sign of the
// adaptation, and doing it twice gives every metric again.
func TestSwapTwice(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(3, 4))
	word := func() string { return []string{"yes", "no"}[r.IntN(2)] }
	for range 50 {
		var all []judgedUnit
		for _, q := range []string{"q1", "q2", "q3"} {
			all = append(all, planted(History, "x", "p1", q, "a follow "+word()+" own", "a avoid "+word()+" other", "b avoid "+word()+" own", "b follow "+word()+" other"),
				planted(History, "x", "p2", q, "a avoid "+word()+" own", "a follow "+word()+" other", "b follow "+word()+" own", "b avoid "+word()+" other"))
		}
		before, err := measure(all, 1)
		if err != nil {
			t.Fatal(err)
		}
		swap := func() {
			for i := 0; i < len(all); i += 2 {
				x, y := all[i].Items, all[i+1].Items
				for k := range x {
					x[k].P, y[k^1].P = y[k^1].P, x[k].P
				}
			}
		}
		swap()
		swapped, err := measure(all, 1)
		if err != nil {
			t.Fatal(err)
		}
		near(t, "swapped", swapped.Settings[0].Adaptation.Value, -before.Settings[0].Adaptation.Value)
		swap()
		again, err := measure(all, 1)
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(before, again); d != "" {
			t.Fatal(d)
		}
	}
}

// TestUnscoredNeverFails: an answer that is not there and an item that the judge cannot
// tell count in no rate, and not in swapped ones either.
func TestUnscoredNeverFails(t *testing.T) {
	t.Parallel()
	all := []judgedUnit{
		planted(History, "x", "p1", "q1", "a follow yes own", "a avoid no other"),
		planted(History, "x", "p2", "q1", "a avoid yes own", "a follow no other"),
		planted(History, "x", "p1", "q2", "a follow yes own", "a avoid no other"),
		planted(History, "x", "p2", "q2"),
		planted(History, "x", "p1", "q3", "a follow yes own", "a avoid no other"),
		planted(History, "x", "p2", "q3", "a avoid no own", "a follow yes other"),
	}
	all[3].unscored = "the answer is empty"
	all[5].Items[0].Unscored, all[5].Items[1].Unscored = "low mass", "low mass"
	m, err := measure(all, 1)
	if err != nil {
		t.Fatal(err)
	}
	h := m.Settings[0]
	if h.Follow != 3 || h.FollowYes != 3 || h.Avoid != 1 || h.AvoidYes != 1 || h.Swaps != 2 || h.NoSwap != 2 || h.Unscored["the answer is empty"] != 1 || h.ItemsUnscored != 2 {
		t.Errorf("%+v", h)
	}
	near(t, "adaptation", h.Adaptation.Value, 1)
	all[0].Items[0].Lost, all[0].Items[1].Lost = true, true
	if m, err = measure(all, 1); err != nil {
		t.Fatal(err)
	}
	if h = m.Settings[0]; h.Lost.Follow != 1 || h.Follow != 2 || h.NoSwap != 3 || h.Swaps != 0 || h.Adaptation != nil {
		t.Errorf("a lost norm: %+v", h)
	}
}

func TestAcquiescenceAndCard(t *testing.T) {
	t.Parallel()
	u := planted(History, "x", "p1", "q1", "a follow yes own", "b avoid yes own", "c follow no own", "d follow no own")
	for i, p := range []float64{.8, .2, .7, .3} {
		u.Items[i].Negated = &p
	}
	all := []judgedUnit{u}
	for i, x := range []string{"yes yes", "yes yes", "no no", "yes no", "no no", "no yes"} {
		f := strings.Fields(x)
		all = append(all, judgedUnit{key: run.Key{Item: "label " + string(rune('1'+i)), Condition: Card}, unit: task.Unit{},
			Judged: Judged{Items: []Item{{Text: "T", P: map[string]float64{"yes": .7, "no": .2}[f[0]], Label: f[1]}}}})
	}
	m, err := measure(all, 1)
	if err != nil {
		t.Fatal(err)
	}
	if m.Acquiescence != (Acquiescence{4, 1, 1}) {
		t.Errorf("%+v", m.Acquiescence)
	}
	// 4 of 6 agree; by chance (3·3 + 3·3)/36 = ½: κ = (2/3 − 1/2)/(1/2).
	near(t, "agreement", m.Card.Agreement.Value, 4./6)
	near(t, "kappa", m.Card.Kappa.Value, 1./3)
	if m.Personas != 1 || m.Card.N != 6 {
		t.Errorf("%d personas, card of %d", m.Personas, m.Card.N)
	}
}
