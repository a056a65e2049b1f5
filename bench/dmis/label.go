package dmis

import (
	"fmt"
	"math"
	"strings"
)

// Label is a stage distribution that a labeller gave by the probabilities of
// the digits 1-6 as its next token.
type Label struct {
	Dist      Distribution // sums to 1; zero when unscored
	Mass      float64      // of the six digits before renormalising, 0..1
	Missing   []int        // digits 1..6 that were not seen, ascending
	Ambiguous bool
	Unscored  string // why there is no distribution; empty when there is one
}

// NoDigit is Label.Unscored when no stage digit was seen.
const NoDigit = "no stage digit among the labeller's alternatives"

// FromProbabilities makes a label of the raw probabilities of the digits 1-6
// over the whole vocabulary. It is unscored when no digit has any, or when they
// have less than minMass together: an answer that is hardly about stages is not
// a uniform distribution over them.
func FromProbabilities(p [NumStages]float64, minMass float64) Label {
	var l Label
	for i, v := range p {
		if math.IsNaN(v) || math.IsInf(v, 0) || v < 0 {
			return Label{Unscored: fmt.Sprintf("the probability of digit %d is %v", i+1, v)}
		}
		if v == 0 {
			l.Missing = append(l.Missing, i+1)
		}
		l.Mass += v
	}
	l.Mass = min(1, l.Mass)
	d, ok := Distribution(p).Normalise()
	switch {
	case len(l.Missing) == NumStages:
		l.Unscored = NoDigit
	case !ok:
		l.Unscored = fmt.Sprintf("the stage digits' probabilities %v have no finite sum", p)
	case l.Mass < minMass:
		l.Unscored = fmt.Sprintf("the stage digits have a probability of %.3f together, less than %g", l.Mass, minMass)
	default:
		l.Dist, l.Ambiguous = d, d.Ambiguous()
	}
	return l
}

// FromTop makes a label of a labeller's most probable next tokens and their
// natural-log probabilities. The variants of a digit ("4", " 4") add up; a digit
// that was not seen has probability 0. See FromProbabilities for minMass.
func FromTop(tokens []string, logprobs []float64, minMass float64) Label {
	if len(tokens) != len(logprobs) {
		return unequal(tokens, logprobs)
	}
	var p [NumStages]float64
	for i, t := range tokens {
		if s, ok := digit(t); ok && finite(logprobs[i]) {
			p[s] += math.Exp(logprobs[i])
		}
	}
	return FromProbabilities(p, minMass)
}

// unseenLogprob is what the study's public code takes for a digit that was not
// among the alternatives.
const unseenLogprob = -50

// FromTopReference is FromTop by the rule of the study's public code: the most
// probable variant stands for a digit, a digit that was not seen has
// log-probability −50, and there is no least mass. Where that code answers Denial
// although no digit was seen, the label is unscored all the same.
func FromTopReference(tokens []string, logprobs []float64) Label {
	if len(tokens) != len(logprobs) {
		return unequal(tokens, logprobs)
	}
	best := [NumStages]float64{}
	var seen [NumStages]bool
	for i, t := range tokens {
		if s, ok := digit(t); ok && finite(logprobs[i]) && (!seen[s] || logprobs[i] > best[s]) {
			best[s], seen[s] = logprobs[i], true
		}
	}
	var l Label
	top := math.Inf(-1)
	for s := range best {
		if seen[s] {
			l.Mass += math.Exp(best[s])
			top = max(top, best[s])
		} else {
			best[s] = unseenLogprob
			l.Missing = append(l.Missing, s+1)
		}
	}
	l.Mass = min(1, l.Mass)
	if len(l.Missing) == NumStages {
		l.Unscored = NoDigit
		return l
	}
	top = max(top, unseenLogprob)
	sum := 0.0
	for s := range best {
		l.Dist[s] = math.Exp(best[s] - top)
		sum += l.Dist[s]
	}
	for s := range l.Dist {
		l.Dist[s] /= sum
	}
	l.Ambiguous = l.Dist.Ambiguous()
	return l
}

func digit(token string) (Stage, bool) {
	t := strings.TrimSpace(token)
	if len(t) != 1 || t[0] < '1' || t[0] > '6' {
		return 0, false
	}
	return Stage(t[0] - '1'), true
}

func finite(x float64) bool { return !math.IsNaN(x) && !math.IsInf(x, 0) }

func unequal(tokens []string, logprobs []float64) Label {
	return Label{Unscored: fmt.Sprintf("%d tokens came with %d log-probabilities", len(tokens), len(logprobs))}
}
