package socrates

import (
	"math"

	"github.com/ccmed/ccmed/bench/stats"
)

// Correlation is how far two evaluators order talks alike, by Spearman's coefficient.
type Correlation struct {
	A       string          `json:"a"`
	B       string          `json:"b"`
	Measure string          `json:"measure"`
	Rho     *stats.Estimate `json:"rho,omitempty"` // nil where a value is constant
}

// correlations compares the evaluators pairwise, over talks that both scored.
func correlations(by [][]evaluated, roles []string, seed uint64) (out []Correlation) {
	measures := []struct {
		name string
		of   func(evaluated) (float64, bool)
	}{
		{"final S, mediated", func(e evaluated) (float64, bool) {
			t, ok := e.trajectory(StepMediated)
			if !ok {
				return 0, false
			}
			return t.s(t.turns()), true
		}},
		{"ΔS", func(e evaluated) (float64, bool) {
			t, ok := e.trajectory(StepMediated)
			u, base := e.trajectory(StepUnmediated)
			if !ok || !base {
				return 0, false
			}
			return t.s(t.turns()) - u.s(u.turns()), true
		}},
		{"timeliness", func(e evaluated) (float64, bool) {
			t, ok := e.trajectory(StepMediated)
			if !ok {
				return 0, false
			}
			v, _, ok := t.timeliness(e.talks[StepMediated].Interventions())
			return v, ok
		}},
	}
	for a := range by {
		for b := a + 1; b < len(by); b++ {
			for _, m := range measures {
				var x, y []float64
				var groups []string
				for i := range by[a] {
					v, okV := m.of(by[a][i])
					w, okW := m.of(by[b][i])
					if okV && okW {
						x, y, groups = append(x, v), append(y, w), append(groups, by[a][i].key.Key.Item)
					}
				}
				c := Correlation{A: roles[a], B: roles[b], Measure: m.name}
				if !math.IsNaN(stats.Spearman(x, y)) {
					e, err := stats.Bootstrap{Resamples: resamples, Seed: seed}.Statistic(func(rows []int) float64 {
						var p, q []float64
						for _, i := range rows {
							p, q = append(p, x[i]), append(q, y[i])
						}
						return stats.Spearman(p, q)
					}, groups)
					if err == nil { // else too many resamples hold one value alone
						c.Rho = &e
					}
				}
				out = append(out, c)
			}
		}
	}
	return out
}
