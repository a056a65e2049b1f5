package mediation

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/ccmed/ccmed/bench/dmis"
	"github.com/ccmed/ccmed/bench/published"
)

// The area under a dialogue's curve, above where it started, is its AUC.
func TestTheCurveIsThatOfTheAUC(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	for range 40 {
		u := unit{item: "70", condition: ND, turn: 1 + r.IntN(7), pre: r.IntN(3)}
		for range 9 - u.turn {
			u.after = append(u.after, r.IntN(6))
		}
		o := outcomeOf(t, u)
		const steps = 5040 // a multiple of 2..8, so that every turn falls on a step
		area := 0.0
		for i := range steps {
			area += (o.position(float64(i)/steps) + o.position(float64(i+1)/steps)) / 2 / steps
		}
		if got := area - dmis.Paige.Position(dmis.Stage(u.pre)); math.Abs(got-o.Values[AUC]) > 1e-6 {
			t.Errorf("mediation after turn %d, stages %v: area %v, AUC %v", u.turn, u.after, got, o.Values[AUC])
		}
	}
}

func TestMeanTrajectoryAndFlow(t *testing.T) {
	us := study(18)
	us[0].after[5] = -1 // the last label of an ND dialogue: no trajectory, but a flow
	us[5].after[2] = -1 // the POST label of an ND dialogue: neither
	m := scored(t, us)
	nd, d, un := conditionOf(t, m, ND), conditionOf(t, m, D), conditionOf(t, m, Unmediated)
	if len(nd.Trajectory.Points) != 11 || nd.Trajectory.Pre.N != 16 || d.Trajectory.Pre.N != 18 {
		t.Fatalf("ND %d points of %d dialogues, D of %d", len(nd.Trajectory.Points), nd.Trajectory.Pre.N, d.Trajectory.Pre.N)
	}
	last := len(d.Trajectory.Points) - 1
	if p := d.Trajectory.Points[last]; p.Tau != 1 || p.Value <= un.Trajectory.Points[last].Value || !(p.Lo <= p.Value && p.Value <= p.Hi) {
		t.Errorf("D ends at %+v, the unmediated at %+v", p, un.Trajectory.Points[last])
	}
	if nd.Flow.Scored != 17 || nd.Flow.Unscored != 1 {
		t.Errorf("ND flow %+v", nd.Flow)
	}
	// In D every dialogue is two stages up by the POST turn.
	if d.Flow.Counts != [6][6]int{0: {2: 6}, 1: {3: 6}, 2: {4: 6}} || d.Flow.Scored != 18 {
		t.Errorf("D flow %+v", d.Flow)
	}
	if e := d.PerStage["Defense"][W1]; e.N != 6 || e.Groups < 1 {
		t.Errorf("W1 of D at Defense: %+v", e)
	}
	out := text(t, m)
	for _, w := range []string{"How the stance goes on", "From which stage to which", "17 dialogues, 1 more are unscored"} {
		if !strings.Contains(out, w) {
			t.Errorf("the report lacks %q", w)
		}
	}
	for _, s := range Sections(m) {
		for _, f := range s.Figures {
			if err := f.Check(); err != nil {
				t.Error(err)
			}
		}
	}
}

func TestNoTrajectoryWithoutAQualifiedLabeller(t *testing.T) {
	var us []unit
	for _, u := range study(18) {
		if u.condition != Card {
			us = append(us, u)
		}
	}
	m := scored(t, us)
	for _, c := range m.Conditions {
		if c.Trajectory != nil || c.Flow != nil {
			t.Errorf("%s has a trajectory or a flow", c.Condition)
		}
	}
	out := text(t, m)
	if strings.Contains(out, "How the stance goes on") || strings.Contains(out, "From which stage to which") || !strings.Contains(out, withoutLabeller) {
		t.Errorf("the report shows stages of nobody knows whom, or does not say why none:\n%s", out)
	}
}

// Published levels were labelled by another model: they stand beside ours and
// nothing is subtracted.
func TestPublishedNumbersStandBeside(t *testing.T) {
	m := scored(t, study(18))
	s, ok := PublishedSection(m, published.Options{Labeller: "L", Judge: "J"})
	if !ok || len(s.Tables) != 1 || len(s.Tables[0].Rows) < 8 {
		t.Fatalf("%v, %+v", ok, s)
	}
	for _, r := range s.Tables[0].Rows {
		if r[2].String() != string(published.None) || !strings.HasSuffix(r[4].String(), "levels are not comparable") {
			t.Errorf("%v", r)
		}
	}
	weak := m
	weak.Grade, weak.PipelineCheck = Weak, true
	if _, ok := PublishedSection(weak, published.Options{}); ok {
		t.Error("numbers on weak labels stand beside published ones")
	}
	m.Labeller, m.Conditions, m.Differences = nil, nil, nil
	if _, ok := PublishedSection(m, published.Options{}); ok {
		t.Error("published numbers beside none")
	}
}
