package sft

import (
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"

	"github.com/ccmed/ccmed/bench/dialogue"
)

// Holdout says what training must not have seen of the held-out dialogues.
type Holdout string

// The holdouts. Random holds nothing out but validation dialogues; the others
// hold whole keys out, so that no training dialogue has one of them.
const (
	HoldoutRandom    Holdout = "random"
	HoldoutDimension Holdout = "dimension" // of the World Values Survey
	HoldoutTemplate  Holdout = "template"  // the survey's question, or the statement's own ending
	HoldoutCountry   Holdout = "country"   // of either speaker
)

// Holdouts lists the holdouts by name.
var Holdouts = []Holdout{HoldoutRandom, HoldoutDimension, HoldoutTemplate, HoldoutCountry}

// keys returns what of a dialogue is held out together. A dialogue with two
// countries has two keys, and is held out for either.
func (h Holdout) keys(d dialogue.Dialogue) []string {
	switch h {
	case HoldoutDimension:
		if dim := d.Dimension(); dim != "" {
			return []string{dim}
		}
		return nil
	case HoldoutTemplate:
		if t := d.Template(); t != "" {
			return []string{dialogue.Question(t)}
		}
		return nil
	case HoldoutCountry:
		return d.Countries()
	}
	return nil
}

// HeldOut tells what was held out.
type HeldOut struct {
	Kind     Holdout `json:"kind"`
	Fraction float64 `json:"fraction"` // asked for
	Seed     int64   `json:"seed"`
	// Keys that no training or validation dialogue has, of Of keys in all; none
	// for HoldoutRandom.
	Keys []string `json:"keys,omitempty"`
	Of   int      `json:"of,omitempty"`
}

// Holds tells whether a dialogue has a key that was held out, so that no training
// dialogue had it.
func (h HeldOut) Holds(d dialogue.Dialogue) bool {
	return slices.ContainsFunc(h.Kind.keys(d), func(k string) bool { return slices.Contains(h.Keys, k) })
}

// holdOut takes keys in an order given by the seed until the dialogues that have
// one of them are at least fraction of all, and returns both parts sorted by id.
func holdOut(ds []dialogue.Dialogue, kind Holdout, fraction float64, seed int64) (rest, held []dialogue.Dialogue, out HeldOut, err error) {
	out = HeldOut{Kind: kind, Fraction: fraction, Seed: seed}
	count := map[string]int{}
	for _, d := range ds {
		ks := kind.keys(d)
		if len(ks) == 0 {
			return nil, nil, out, &UnusableError{d.Key(), fmt.Sprintf("its %s is not known, so that it can neither be held out nor trained on under --holdout %s (value statement: %q)", kind, kind, d.Value(1)),
				"choose another holdout, or leave the record out with --lenient"}
		}
		for _, k := range ks {
			count[k]++
		}
	}
	keys := sortedKeys(count)
	out.Of = len(keys)
	rng := rand.New(rand.NewPCG(uint64(seed), 0))
	rng.Shuffle(len(keys), func(i, j int) { keys[i], keys[j] = keys[j], keys[i] })
	taken := map[string]bool{}
	rest = ds
	// A key with many dialogues is passed over as long as others are enough, so
	// that about as many are held out as were asked for.
	for _, most := range []float64{2 * fraction * float64(len(ds)), float64(len(ds))} {
		for _, k := range keys {
			if taken[k] || float64(len(held)) >= fraction*float64(len(ds)) {
				continue
			}
			taken[k] = true
			r, h := divide(ds, func(d dialogue.Dialogue) bool {
				return slices.ContainsFunc(kind.keys(d), func(k string) bool { return taken[k] })
			})
			if float64(len(h)) > most {
				delete(taken, k)
				continue
			}
			rest, held = r, h
		}
	}
	if len(rest) == 0 {
		return nil, nil, out, fmt.Errorf("hold out %ss: nothing is left to train on after %d of %d; choose a smaller --fraction, another --seed or another --holdout", kind, len(taken), len(keys))
	}
	out.Keys = sortedKeys(taken)
	return rest, held, out, nil
}

// divide returns the dialogues that are not and those that are in, each sorted
// by id.
func divide(ds []dialogue.Dialogue, in func(dialogue.Dialogue) bool) (out, inside []dialogue.Dialogue) {
	for _, d := range ds {
		if in(d) {
			inside = append(inside, d)
		} else {
			out = append(out, d)
		}
	}
	byID := func(a, b dialogue.Dialogue) int { return cmp.Compare(a.ID, b.ID) }
	slices.SortFunc(out, byID)
	slices.SortFunc(inside, byID)
	return out, inside
}

func sortedKeys[K cmp.Ordered, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }
