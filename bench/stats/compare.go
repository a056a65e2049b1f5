package stats

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
)

// ErrNothingShared reports two sides without an item that both have a value of.
var ErrNothingShared = errors.New("no item has a value on both sides")

// ErrOneGroup reports values of a single group: how groups differ cannot be told
// from one.
var ErrOneGroup = errors.New("all items are of one group; an interval needs at least 2")

// Observation is what one item came to.
type Observation struct {
	Item  string
	Group string // items of one group, such as dialogues of a scenario context, are not independent
	Value float64
	// Unscored says why there is no value, and is empty where there is one.
	Unscored string
	// Said is what the value was made from, for readers: "turn 4".
	Said string
}

// Measure is one quantity of all items of a run.
type Measure struct {
	Name      string
	Heading   string // as tables show it; "" is Name
	Condition string // of the run, where it has several
	Binary    bool   // values are 0 and 1: wrong and right
	// Weak says why no difference of the measure is significant, whatever its p: what it
	// was measured with is not reliable enough. "" where it is.
	Weak         string
	Observations []Observation
}

// Comparison is the difference of a measure between two sides, B − A.
type Comparison struct {
	Measure   string `json:"measure"`
	Heading   string `json:"-"` // of the measure, as tables show it
	Condition string `json:"condition,omitempty"`
	Binary    bool   `json:"binary,omitempty"`
	Paired    bool   `json:"paired"`
	// Weak says why the difference is not significant whatever its p, see Measure.Weak.
	Weak string `json:"weak,omitempty"`
	// A and B are the means over the items that were compared, Difference is B − A
	// with its interval. Its N counts pairs, or unpaired the items of both sides.
	A          float64  `json:"a"`
	B          float64  `json:"b"`
	Difference Estimate `json:"difference"`
	P          float64  `json:"p"`      // of a permutation of groups
	PHolm      float64  `json:"p_holm"` // corrected over the family that the caller chose
	// Effect is nil where all differences are equal.
	Effect *Effect `json:"effect,omitempty"`
	// What was dropped: items with no value on a side, and paired, items that the
	// other side does not have at all.
	// WithUnscored is what Difference could be of a binary measure if the unscored items
	// were counted, each against B and each for B; nil without any.
	WithUnscored *Range `json:"with_unscored,omitempty"`
	UnscoredA    int    `json:"unscored_a"`
	UnscoredB    int    `json:"unscored_b"`
	OnlyA        int    `json:"only_a"`
	OnlyB        int    `json:"only_b"`
	// Changes are the pairs whose values differ, the largest change first. Unpaired
	// there are none.
	Changes []Change `json:"changes,omitempty"`
}

// Alpha is the level below which a corrected p is called significant.
const Alpha = 0.05

// Significant says whether the difference may be spoken of.
func (c *Comparison) Significant() bool { return c.PHolm < Alpha && c.Weak == "" }

// Flips counts the changes of a binary measure to wrong and to right.
func (c *Comparison) Flips() (lost, won int) {
	for _, x := range c.Changes {
		if x.B < x.A {
			lost++
		} else {
			won++
		}
	}
	return lost, won
}

// Change is an item whose value differs between two sides.
type Change struct {
	Item  string  `json:"item"`
	A     float64 `json:"a"`
	B     float64 `json:"b"`
	SaidA string  `json:"said_a,omitempty"`
	SaidB string  `json:"said_b,omitempty"`
}

// Resampling sets how Compare draws.
type Resampling struct {
	Resamples int // at least 1
	Seed      uint64
}

// Compare pairs two sides by item. Its interval is that of Bootstrap.MeanT and its
// p that of SignFlip, both by group. PHolm is P until Adjust sets it.
func Compare(a, b Measure, r Resampling) (Comparison, error) {
	c := Comparison{Measure: b.Name, Heading: cmp.Or(b.Heading, b.Name), Condition: b.Condition, Binary: b.Binary, Paired: true, Weak: cmp.Or(a.Weak, b.Weak)}
	there := make(map[string]Observation, len(a.Observations))
	for _, x := range a.Observations {
		if _, dup := there[x.Item]; dup {
			return c, fmt.Errorf("%s: item %s occurs twice", a.Name, x.Item)
		}
		there[x.Item] = x
	}
	var d, va, vb []float64
	var groups []string
	worst, best, unknown := 0.0, 0.0, 0
	seen := make(map[string]bool, len(b.Observations))
	for _, y := range sorted(b.Observations) {
		if seen[y.Item] {
			return c, fmt.Errorf("%s: item %s occurs twice", b.Name, y.Item)
		}
		seen[y.Item] = true
		x, ok := there[y.Item]
		switch {
		case !ok:
			c.OnlyB++
		case x.Unscored != "" || y.Unscored != "":
			c.UnscoredA += count(x.Unscored != "")
			c.UnscoredB += count(y.Unscored != "")
			ax, bx := binaryRange(x), binaryRange(y)
			worst, best, unknown = worst+bx.Lo-ax.Hi, best+bx.Hi-ax.Lo, unknown+1
		default:
			d, groups = append(d, y.Value-x.Value), append(groups, y.Group)
			va, vb = append(va, x.Value), append(vb, y.Value)
			if x.Value != y.Value {
				c.Changes = append(c.Changes, Change{y.Item, x.Value, y.Value, x.Said, y.Said})
			}
		}
	}
	c.OnlyA = len(there) - (len(seen) - c.OnlyB)
	if len(d) == 0 {
		return c, ErrNothingShared
	}
	// Changes that differ by rounding alone stay in the order of items.
	size := func(x Change) float64 { return math.Round(math.Abs(x.B-x.A) / rounding) }
	slices.SortStableFunc(c.Changes, func(x, y Change) int { return cmp.Compare(size(y), size(x)) })
	c.A, c.B = mean(va), mean(vb)
	var err error
	if c.Difference, err = (Bootstrap{Resamples: r.Resamples, Seed: r.Seed}).MeanT(d, groups); err != nil {
		return c, fmt.Errorf("interval of the difference: %w", err)
	}
	if c.Binary {
		c.Difference = Bootstrap{}.Within(c.Difference, -1, 1)
		if n := len(d) + unknown; unknown > 0 {
			known := c.Difference.Value * float64(len(d))
			c.WithUnscored = &Range{(known + worst) / float64(n), (known + best) / float64(n), n}
		}
	}
	if c.P, err = SignFlip(d, groups, r.Resamples, r.Seed); err != nil {
		return c, fmt.Errorf("permutation test of the difference: %w", err)
	}
	c.PHolm = c.P
	c.Effect = PairedEffect(d)
	return c, nil
}

// CompareUnpaired takes the two sides as independent samples, whatever items they
// share. Its interval is that of Bootstrap.DifferenceT and its p that of
// PermuteLabels. Where the sides do share items, which tend to be easy or hard on
// both, both are wider than they need be.
func CompareUnpaired(a, b Measure, r Resampling) (Comparison, error) {
	c := Comparison{Measure: b.Name, Heading: cmp.Or(b.Heading, b.Name), Condition: b.Condition, Binary: b.Binary, Weak: cmp.Or(a.Weak, b.Weak)}
	va, ga := scored(a, &c.UnscoredA)
	vb, gb := scored(b, &c.UnscoredB)
	if len(va) == 0 || len(vb) == 0 {
		return c, ErrNoItems
	}
	c.A, c.B = mean(va), mean(vb)
	var err error
	if c.Difference, err = (Bootstrap{Resamples: r.Resamples, Seed: r.Seed}).DifferenceT(va, ga, vb, gb); err != nil {
		return c, fmt.Errorf("interval of the difference: %w", err)
	}
	if c.Binary {
		c.Difference = unpairedWithin(c.Difference, va, ga, vb, gb)
		if c.UnscoredA+c.UnscoredB > 0 {
			x, y := shareRange(a), shareRange(b)
			c.WithUnscored = &Range{y.Lo - x.Hi, y.Hi - x.Lo, x.N + y.N}
		}
	}
	if c.P, err = PermuteLabels(va, ga, vb, gb, r.Resamples, r.Seed); err != nil {
		return c, fmt.Errorf("permutation test of the difference: %w", err)
	}
	c.PHolm = c.P
	c.Effect = IndependentEffect(va, vb)
	return c, nil
}

// binaryRange is what a value that is 0 or 1 can be.
func binaryRange(x Observation) Range {
	if x.Unscored != "" {
		return Range{0, 1, 1}
	}
	return Range{x.Value, x.Value, 1}
}

// shareRange is what a share can be, whatever its unscored items are.
func shareRange(m Measure) Range {
	var out Range
	for _, x := range m.Observations {
		r := binaryRange(x)
		out = Range{out.Lo + r.Lo, out.Hi + r.Hi, out.N + 1}
	}
	return Range{out.Lo / float64(out.N), out.Hi / float64(out.N), out.N}
}

// unpairedWithin keeps the interval of a difference of shares of independent samples
// within −1..1. Where both samples are all alike it goes from the ends of their exact
// intervals, each at half the error (Bonferroni).
func unpairedWithin(e Estimate, va []float64, ga []string, vb []float64, gb []string) Estimate {
	if e.NoInterval == "" {
		return Bootstrap{}.Within(e, -1, 1)
	}
	exact := func(v []float64, groups []string) Estimate {
		names := map[string]bool{}
		for _, g := range groups {
			names[g] = true
		}
		of := Estimate{Value: mean(v), Groups: len(names), NoInterval: AllAlike}
		return Bootstrap{Confidence: (1 + defaultConfidence) / 2}.Within(of, 0, 1)
	}
	a, b := exact(va, ga), exact(vb, gb)
	e.Lo, e.Hi, e.NoInterval, e.Exact = b.Lo-a.Hi, b.Hi-a.Lo, "", true
	return e
}

// Adjust sets PHolm of all comparisons as one family.
func Adjust(family []*Comparison) {
	ps := make([]float64, len(family))
	for i, c := range family {
		ps[i] = c.P
	}
	for i, p := range Holm(ps) {
		family[i].PHolm = p
	}
}

func scored(m Measure, unscored *int) (v []float64, groups []string) {
	for _, x := range sorted(m.Observations) {
		if x.Unscored != "" {
			*unscored++
			continue
		}
		v, groups = append(v, x.Value), append(groups, x.Group)
	}
	return v, groups
}

// sorted puts items in one order, so that a result does not depend on theirs.
func sorted(obs []Observation) []Observation {
	return slices.SortedStableFunc(slices.Values(obs), func(a, b Observation) int {
		return cmp.Or(cmp.Compare(len(a.Item), len(b.Item)), cmp.Compare(a.Item, b.Item))
	})
}

func count(yes bool) int {
	if yes {
		return 1
	}
	return 0
}
