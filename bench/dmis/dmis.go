// Package dmis holds the Developmental Model of Intercultural Sensitivity and
// the measures of stance change that rest on it: stages, distributions over
// stages, signed Wasserstein distance, trajectory AUC. Everything is a pure
// function.
//
//	pre := dmis.Distribution{0.1, 0.7, 0.2}          // mostly Defense
//	post := dmis.Distribution{0, 0.2, 0.3, 0.5}      // mostly Acceptance
//	dmis.SignedW1(pre, post, dmis.Paige)             // 1.7: towards integration
//
// Two scales give stages a position. Index counts them, 0..5. Paige has -3, -2,
// -1, +1, +2, +3, a wider gap where the ethnocentric stages end. A number without
// its scale means nothing, so every function that depends on one takes it.
package dmis

import (
	"fmt"
	"strings"
)

// Stage is one of the six stages, in developmental order, 0..5. A labeller's
// digit is the stage plus one.
type Stage int

// The stages (Bennett 1986, 1993). The first three are ethnocentric, the last
// three ethnorelative.
const (
	Denial Stage = iota
	Defense
	Minimization
	Acceptance
	Adaptation
	Integration
)

// NumStages is the number of stages.
const NumStages = 6

var names = [NumStages]string{"Denial", "Defense", "Minimization", "Acceptance", "Adaptation", "Integration"}

// String returns the stage's name, or "Stage(n)" for a value outside 0..5.
func (s Stage) String() string {
	if !s.Valid() {
		return fmt.Sprintf("Stage(%d)", int(s))
	}
	return names[s]
}

// Valid reports whether s is one of the six stages.
func (s Stage) Valid() bool { return s >= Denial && s <= Integration }

// Ethnocentric reports whether s is one of the stages that conflicts start in:
// Denial, Defense or Minimization.
func (s Stage) Ethnocentric() bool { return s >= Denial && s <= Minimization }

// ParseStage returns the stage of that name, in any case and with surrounding
// white space.
func ParseStage(name string) (Stage, error) {
	for i, n := range names {
		if strings.EqualFold(n, strings.TrimSpace(name)) {
			return Stage(i), nil
		}
	}
	return 0, fmt.Errorf("dmis: %q is not a stage; the stages are %s", name, strings.Join(names[:], ", "))
}

// Scale gives each stage a position on a line.
type Scale int

// The scales.
const (
	Index Scale = iota // 0, 1, 2, 3, 4, 5
	Paige              // -3, -2, -1, +1, +2, +3
)

var positions = [...][NumStages]float64{Index: {0, 1, 2, 3, 4, 5}, Paige: {-3, -2, -1, 1, 2, 3}}

// String returns "index" or "paige".
func (c Scale) String() string { return [...]string{"index", "paige"}[c] }

// Position returns where a stage lies. The stage must be Valid.
func (c Scale) Position(s Stage) float64 { return positions[c][s] }

// Gaps returns the distances between neighbouring stages: five ones on Index,
// 1, 1, 2, 1, 1 on Paige.
func (c Scale) Gaps() [NumStages - 1]float64 {
	var g [NumStages - 1]float64
	for i := range g {
		g[i] = positions[c][i+1] - positions[c][i]
	}
	return g
}
