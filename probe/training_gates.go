package probe

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/ccmed/ccmed/bench/stats"
)

// MaxStatistic tests the outcomes of many layers at once, two-sided, with the
// family-wise error held whatever the correlation of layers: signs of whole groups
// are flipped in all layers together, and each layer's |t| is compared with the
// permutations' largest (Westfall and Young 1993). All layers have the same rows
// and rounds; rounds are joined and corrected as in Outcomes.Test. The result is
// the adjusted p of each layer.
func MaxStatistic(layers []Outcomes, r Resampling) ([]float64, error) {
	if len(layers) == 0 {
		return nil, nil
	}
	first := layers[0]
	for k, o := range layers {
		if len(o.Rounds) != len(first.Rounds) || len(o.Rounds) == 0 || !slices.Equal(o.Groups, first.Groups) {
			return nil, fmt.Errorf("%w: layer %d has %d rounds of %d rows; the first has %d of %d", ErrDesign, k, len(o.Rounds), len(o.Groups), len(first.Rounds), len(first.Groups))
		}
	}
	ps := make([][]float64, len(layers))
	for round := range first.Rounds {
		d := make([][]float64, len(layers))
		for k, o := range layers {
			d[k] = o.moved(round, o.Mean())
		}
		one, err := maxStatistic(d, first.Groups, r.withDefaults())
		if err != nil {
			return nil, err
		}
		for k, p := range one {
			ps[k] = append(ps[k], p)
		}
	}
	out := make([]float64, len(layers))
	for k, p := range ps {
		slices.Sort(p)
		out[k] = p[len(p)/2]
	}
	return out, nil
}

// maxStatistic is the test of one round; d[layer][row].
func maxStatistic(d [][]float64, groups []string, r Resampling) ([]float64, error) {
	number := map[string]int{}
	for _, g := range groups {
		if _, ok := number[g]; !ok {
			number[g] = len(number)
		}
	}
	sums := make([][]float64, len(d))
	size, observed := make([]float64, len(d)), make([]float64, len(d))
	for k, row := range d {
		if len(row) != len(groups) {
			return nil, fmt.Errorf("%w: layer %d has %d differences for %d groups' names", ErrDesign, k, len(row), len(groups))
		}
		sums[k] = make([]float64, len(number))
		for i, v := range row {
			if math.IsNaN(v) || math.IsInf(v, 0) {
				return nil, fmt.Errorf("%w: difference %d of layer %d is %v", ErrDesign, i, k, v)
			}
			sums[k][number[groups[i]]] += v
		}
		total := 0.0
		for _, v := range sums[k] {
			total += v
			size[k] += v * v // the same under every pattern of signs
		}
		size[k] = math.Sqrt(size[k])
		if size[k] > 0 {
			observed[k] = math.Abs(total) / size[k]
		}
	}
	extreme := make([]int, len(d))
	rng := rand.New(rand.NewPCG(r.Seed, orderStream))
	sign := make([]float64, len(number))
	for range r.Resamples {
		for g := range sign {
			sign[g] = 1 - 2*float64(rng.Uint64()>>63)
		}
		most := 0.0
		for k := range d {
			if size[k] == 0 {
				continue
			}
			total := 0.0
			for g, v := range sums[k] {
				total += sign[g] * v
			}
			most = math.Max(most, math.Abs(total)/size[k])
		}
		for k, t := range observed {
			if most >= t-1e-9 {
				extreme[k]++
			}
		}
	}
	p := make([]float64, len(d))
	for k, n := range extreme {
		p[k] = float64(n+1) / float64(r.Resamples+1)
	}
	return p, nil
}

// The sentences that the gates allow.
const (
	Collapse     = "collapse"
	NotSeparable = "D−ND difference; not separable from reading the prompt"
	NotTestable  = "not testable on this model"
)

// The least sample and the level at which a collapse may be claimed.
const (
	gateSamples = 600
	gateLevel   = 0.05
)

// Gates holds the evidence for a collapse. What was not measured is nil.
type Gates struct {
	N    int     // paired samples
	Elic *Effect // the difference that is to be explained
	// TextFit (a): how much better D texts fit the stage than ND texts, by a text-only
	// classifier or a qualified judge.
	TextFit *Effect
	Text    *Effect // (b) Δtext
	Excess  *Effect // (c) excess loss
	Matched *Effect // (d) excess loss minus that of a matched attribute
}

// Gate is one condition and whether it holds.
type Gate struct {
	Name     string  `json:"name"`
	Effect   *Effect `json:"effect"`
	Adjusted float64 `json:"adjusted"` // Holm-corrected p; 1 when not measured
	Holds    bool    `json:"holds"`    // above 0 with an adjusted p below .05
}

// Verdict is the sentence that the evidence allows, and why.
type Verdict struct {
	Sentence string   `json:"sentence"` // Collapse, NotSeparable or NotTestable
	Gates    []Gate   `json:"gates"`
	Reasons  []string `json:"reasons"` // of every sentence but Collapse
}

// Judge applies the gates. All four must hold for Collapse. Too few samples, a
// gate that was not measured, or no D−ND difference to explain make it
// NotTestable.
func (g Gates) Judge() Verdict {
	v := Verdict{Sentence: Collapse, Gates: []Gate{
		{Name: "(a) D texts fit the stage better", Effect: g.TextFit}, {Name: "(b) Δtext", Effect: g.Text},
		{Name: "(c) excess loss", Effect: g.Excess}, {Name: "(d) excess loss above a matched attribute", Effect: g.Matched},
	}}
	untestable := func(format string, args ...any) {
		v.Sentence = NotTestable
		v.Reasons = append(v.Reasons, fmt.Sprintf(format, args...))
	}
	if g.N < gateSamples {
		untestable("%d paired samples, fewer than %d", g.N, gateSamples)
	}
	switch {
	case g.Elic == nil:
		untestable("Δelic was not measured")
	case !positive(g.Elic, g.Elic.P):
		untestable("there is no D−ND difference to explain: Δelic is %.3f, p = %.3g", g.Elic.Value, g.Elic.P)
	}
	ps := make([]float64, len(v.Gates))
	for k, gate := range v.Gates {
		ps[k] = 1
		switch {
		case gate.Effect == nil:
			untestable("%s was not measured", gate.Name)
		case !math.IsNaN(gate.Effect.P):
			ps[k] = gate.Effect.P
		}
	}
	for k, p := range stats.Holm(ps) {
		gate := &v.Gates[k]
		gate.Adjusted = p
		gate.Holds = gate.Effect != nil && positive(gate.Effect, p)
		if gate.Holds || gate.Effect == nil {
			continue
		}
		if v.Sentence == Collapse {
			v.Sentence = NotSeparable
		}
		v.Reasons = append(v.Reasons, fmt.Sprintf("%s is %.3f, adjusted p = %.3g", gate.Name, gate.Effect.Value, p))
	}
	return v
}

func positive(e *Effect, p float64) bool { return e.Value > 0 && p < gateLevel }
