package mediation

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ccmed/ccmed/bench/run"
	"github.com/ccmed/ccmed/bench/stats"
	"github.com/ccmed/ccmed/bench/task"
	"github.com/ccmed/ccmed/infer"
)

// Every caution has a run that it stands beside, and one like it that it does not.
func TestCautions(t *testing.T) {
	said := func(change func(*Metrics)) string {
		m := Metrics{Grade: Reliable, Labeller: &LabellerCard{Kappa: 0.7, N: 108}, Conditions: []ConditionMetrics{{Condition: ND}},
			Differences: []Difference{{A: ND, B: Generic, Metric: AUC, Value: stats.Estimate{Value: 0.5, Lo: 0.3, Hi: 0.7, N: 100}, PHolm: 0.001}}}
		change(&m)
		return strings.Join(m.cautions(), "\n")
	}
	cut := func(step string, k, n int) func(*Metrics) {
		return func(m *Metrics) { m.Conditions[0].Cut = map[string]Rate{step: {K: k, N: n}} }
	}
	clean, noCard := func(*Metrics) {}, func(m *Metrics) { m.Grade, m.Labeller = NoCard, nil }
	graded := func(grade string) func(m *Metrics) {
		return func(m *Metrics) { m.Grade, m.Labeller.Why = grade, []string{"kappa is low"} }
	}
	for says, c := range map[string]struct{ with, without func(*Metrics) }{
		PipelineCheck:      {func(m *Metrics) { m.PipelineCheck = true }, clean},
		"no labeller card": {noCard, clean},
		"no number on them is a finding: kappa is low":           {graded(Weak), clean},
		"nothing rests on the labels; kappa is low":              {graded(DegenerateLabels), graded(Weak)},
		"as reliable as the recorded ones (kappa 0.70 on 108":    {clean, graded(Weak)},
		"judge: same score":                                      {func(m *Metrics) { m.Degenerate = []string{"judge: same score in 100 % of 54 (4)"} }, clean},
		"names the conflict's stage":                             {func(m *Metrics) { m.Conditions[0].Condition = D }, clean},
		"unscored ND dialogues: 3 (short)":                       {func(m *Metrics) { m.Conditions[0].Unscored = map[string]map[string]int{AUC: {"short": 3}} }, clean},
		"a fixed line that fits any conflict does as well as ND": {func(m *Metrics) { m.Differences[0].PHolm = 0.2 }, clean},
		"does as well as ND":                                     {func(m *Metrics) { m.Differences[0].Value.Value = -0.5 }, clean},
		// 6 of 100 are more than one in twenty, 5 are not.
		"6.0 % (6/100) of simulated turns after ND end at their cap of tokens": {cut(StepSimulate, 6, 100), cut(StepSimulate, 5, 100)},
		"50.0 % (1/2) of ND lines end at their cap":                            {cut(StepUtterance, 1, 2), clean},
	} {
		if got := said(c.with); !strings.Contains(got, says) {
			t.Errorf("no %q in %q", says, got)
		}
		if got := said(c.without); strings.Contains(got, says) {
			t.Errorf("%q where it does not hold: %q", says, got)
		}
	}
}

func TestRoleCautions(t *testing.T) {
	other := infer.Model{Name: "l", Digest: "sha256:2", Family: "qwen2"}
	said := func(labeller, simulator infer.Model) string {
		return strings.Join(roleCautions(map[string]infer.Model{RoleMediator: {Name: "m", Digest: "sha256:1", Family: "gemma2"}, RoleLabeller: labeller, RoleSimulator: simulator}), "\n")
	}
	if got := said(other, other); got != "" {
		t.Errorf("models of their own: %q", got)
	}
	for says, got := range map[string]string{
		"mediator and labeller are the same model":  said(infer.Model{Name: "again", Digest: "sha256:1"}, other),
		"same family (gemma2)":                      said(infer.Model{Name: "l", Digest: "sha256:2", Family: "gemma2"}, other),
		"mediator and simulator are the same model": said(other, infer.Model{Name: "m", Digest: "sha256:1"}),
	} {
		if !strings.Contains(got, says) {
			t.Errorf("no %q in %q", says, got)
		}
	}
}

// A run whose continuations were drawn once says so, unless a run like it with another
// seed stands beside it.
func TestSeedCautions(t *testing.T) {
	archive := &task.Archive{Benches: task.Registry{Bench{}}, Note: func(string, ...any) {}}
	result := func(name string, seed int64, temperature float64, items ...string) task.Neighbour {
		id := run.Identity{Task: TaskName, Seed: seed, Items: items, Options: map[string]any{"sim_temperature": temperature}}
		d, err := run.Create(filepath.Join(t.TempDir(), name), id, []string{"mediate"})
		if err != nil {
			t.Fatal(err)
		}
		if err := d.Close(run.StatusDone); err != nil {
			t.Fatal(err)
		}
		r, err := archive.Open(d.Path())
		if err != nil {
			t.Fatal(err)
		}
		res, err := r.Result(t.Context(), task.ScoreOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return task.Neighbour{Name: name, Run: r, Result: res}
	}
	for fact, c := range map[string]struct {
		runs []task.Neighbour
		want []string // runs that are named
	}{
		"one run":                         {[]task.Neighbour{result("a", 1, 0.8, "1")}, []string{"a"}},
		"two seeds":                       {[]task.Neighbour{result("a", 1, 0.8, "1"), result("b", 2, 0.8, "1")}, nil},
		"the same seed twice":             {[]task.Neighbour{result("a", 1, 0.8, "1"), result("b", 1, 0.8, "1")}, []string{"a", "b"}},
		"another seed of other dialogues": {[]task.Neighbour{result("a", 1, 0.8, "1"), result("b", 2, 0.8, "2")}, []string{"a", "b"}},
		"nothing is drawn":                {[]task.Neighbour{result("a", 1, 0, "1")}, nil},
	} {
		var got []string
		for _, n := range c.runs {
			_, cautions, err := n.Result.(task.Beside).Beside(n, c.runs, 1)
			if err != nil {
				t.Fatal(err)
			}
			if strings.Contains(strings.Join(cautions, ""), "one seed") {
				got = append(got, n.Name)
			}
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", fact, got, c.want)
		}
	}
}
