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

// The least sample and the level at which a collapse may be claimed, and the accuracy above
// which there is no room: where an interval reaches it.
const (
	gateSamples = 600
	gateLevel   = 0.05
	ceiling     = 0.97
)

// Evidence is what one gate rests on.
type Evidence struct {
	*Effect // nil where it was not measured
	// Untestable says why the measurement could not have come out otherwise; "" where it
	// could.
	Untestable string
}

// Gates holds the evidence for a collapse.
type Gates struct {
	N     int     // paired samples
	Least int     // that a collapse needs; 0 means 600
	Elic  *Effect // the difference that is to be explained; nil where it was not measured
	// TextFit (a): how much better D texts fit the stage than ND texts, by a text-only
	// classifier.
	TextFit Evidence
	Text    Evidence // (b) Δtext, of the order that shows least
	Excess  Evidence // (c) excess loss
	Matched Evidence // (d) the stage's lost share minus that of a matched attribute
	Late    Evidence // (e) Δlate of the model's own ND lines
}

// Gate is one condition and whether it holds.
type Gate struct {
	Name     string  `json:"name"`
	Effect   *Effect `json:"effect"`
	Adjusted float64 `json:"adjusted"` // Holm-corrected p; 1 when not measured
	Holds    bool    `json:"holds"`    // above 0 with an adjusted p below .05
	// Untestable says why the gate could not have come out otherwise; "" where it could.
	Untestable string `json:"untestable,omitempty"`
}

// Verdict is the sentence that the evidence allows, and why.
type Verdict struct {
	Sentence string   `json:"sentence"` // Collapse, NotSeparable or NotTestable
	Gates    []Gate   `json:"gates"`
	Reasons  []string `json:"reasons"` // of every sentence but Collapse
}

// Judge applies the gates. All must hold for Collapse. Too few samples, a gate that was
// not measured, or no D−ND difference to explain make it NotTestable; so does a gate that
// cannot be tested, unless another one that can be does not hold.
func (g Gates) Judge() Verdict {
	names := []string{"(a) D texts fit the stage better", "(b) Δtext", "(c) excess loss", "(d) lost share above a matched attribute's", "(e) Δlate"}
	v := Verdict{}
	least := g.Least
	if least == 0 {
		least = gateSamples
	}
	var missing, failed, untestable []string
	if g.N < least {
		missing = append(missing, fmt.Sprintf("%d paired samples, fewer than %d", g.N, least))
	}
	switch {
	case g.Elic == nil:
		missing = append(missing, "Δelic was not measured")
	case !positive(g.Elic, g.Elic.P):
		missing = append(missing, fmt.Sprintf("there is no D−ND difference to explain: Δelic is %.3f, p = %.3g", g.Elic.Value, g.Elic.P))
	}
	evidence := []Evidence{g.TextFit, g.Text, g.Excess, g.Matched, g.Late}
	ps := make([]float64, len(evidence))
	for k, e := range evidence {
		ps[k] = 1
		if e.Effect != nil && e.Untestable == "" && !math.IsNaN(e.P) {
			ps[k] = e.P
		}
	}
	for k, p := range stats.Holm(ps) {
		e := evidence[k]
		gate := Gate{Name: names[k], Effect: e.Effect, Adjusted: p, Untestable: e.Untestable}
		switch {
		case e.Untestable != "":
			untestable = append(untestable, gate.Name+" cannot be tested: "+e.Untestable)
		case e.Effect == nil:
			missing = append(missing, gate.Name+" was not measured")
		case positive(e.Effect, p):
			gate.Holds = true
		default:
			failed = append(failed, fmt.Sprintf("%s is %.3f, adjusted p = %.3g", gate.Name, e.Value, p))
		}
		v.Gates = append(v.Gates, gate)
	}
	switch {
	case len(missing) > 0:
		v.Sentence = NotTestable
	case len(failed) > 0:
		v.Sentence = NotSeparable
	case len(untestable) > 0:
		v.Sentence = NotTestable
	default:
		v.Sentence = Collapse
	}
	v.Reasons = slices.Concat(missing, failed, untestable)
	return v
}

func positive(e *Effect, p float64) bool { return e.Value > 0 && p < gateLevel }

// leastOf is the evidence that shows least: the most negative effect where one is not above
// 0, else the largest p.
func leastOf(of []Effect) *Effect {
	var out *Effect
	for i := range of {
		e := &of[i]
		switch {
		case out == nil,
			e.Value <= 0 && (out.Value > 0 || e.Value < out.Value),
			e.Value > 0 && out.Value > 0 && e.P > out.P:
			out = e
		}
	}
	return out
}

// lostShare gives, for each row, the share of what could be read above chance that was
// lost: its mean is S = mean(lost)/(mean(before) − chance), and a row's value is S plus its
// part in what resampling rows does to S (the delta method). ok is false where nothing
// could be read above chance.
func lostShare(lost, before Outcomes, chance float64) (share Outcomes, ok bool) {
	room := before.Mean() - chance
	if room <= 0 {
		return Outcomes{}, false
	}
	s := lost.Mean() / room
	share = Outcomes{Groups: lost.Groups, Width: math.Max(lost.Width, before.Width)}
	for k, rows := range lost.Rounds {
		values := make([]float64, len(rows))
		for i, v := range rows {
			values[i] = s + (v-s*(before.Rounds[k][i]-chance))/room
		}
		share.Rounds = append(share.Rounds, values)
	}
	return share, true
}
