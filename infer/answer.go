package infer

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Answer is one of the answers offered to Choose. Variants are the token texts
// that mean it ("4", " 4"); their probabilities are added up.
type Answer struct {
	Label    string
	Variants []string
}

// ErrAmbiguous reports answers that share a variant, so that the first token
// cannot tell them apart.
var ErrAmbiguous = errors.New("infer: answers are not told apart by their first token")

// Digits returns the answers lo..hi as single digits, each with and without a
// leading space.
func Digits(lo, hi int) []Answer {
	as := make([]Answer, 0, hi-lo+1)
	for d := lo; d <= hi; d++ {
		s := strconv.Itoa(d)
		as = append(as, Answer{s, []string{s, " " + s}})
	}
	return as
}

// Words returns one answer a word, with its lower-case, capitalised and
// upper-case forms, each with and without a leading space.
func Words(words ...string) []Answer {
	as := make([]Answer, 0, len(words))
	for _, w := range words {
		lower := strings.ToLower(w)
		title := strings.ToUpper(lower[:1]) + lower[1:]
		var vs []string
		for _, v := range []string{lower, title, strings.ToUpper(w)} {
			if !slices.Contains(vs, v) {
				vs = append(vs, v, " "+v)
			}
		}
		as = append(as, Answer{w, vs})
	}
	return as
}

// Letters returns n answers A, B, C, ..., each with and without a leading
// space. n must be at most 26.
func Letters(n int) []Answer {
	as := make([]Answer, 0, n)
	for i := range n {
		s := string(rune('A' + i))
		as = append(as, Answer{s, []string{s, " " + s}})
	}
	return as
}

// CheckAnswers returns ErrAmbiguous, wrapped with the answers' labels, when two
// answers share a variant, and an error when an answer has none.
func CheckAnswers(as []Answer) error {
	owner := map[string]string{}
	for _, a := range as {
		if len(a.Variants) == 0 {
			return fmt.Errorf("infer: answer %q has no variants", a.Label)
		}
		for _, v := range a.Variants {
			if o, ok := owner[v]; ok && o != a.Label {
				return fmt.Errorf("%w: %q means both %q and %q; letter the answers instead", ErrAmbiguous, v, o, a.Label)
			}
			owner[v] = a.Label
		}
	}
	return nil
}

// NoAnswerSeen is the Unscored reason when none of the answers was among the
// alternatives that the backend returned.
const NoAnswerSeen = "no answer among the returned alternatives"

// noLogprobs is the Unscored reason of a server that gives none.
const noLogprobs = "no log-probabilities were returned"

// rounding is how far probabilities may exceed 1 and still be probabilities.
const rounding = 1e-3

// Alternatives returns the alternatives that count, most probable first, and why
// they cannot be a model's probabilities, which is empty when they can. Equal
// entries count once, since a server that lists one twice has not seen it twice;
// entries of the probability 0 are dropped. Log-probabilities that are missing
// (NaN) or above 0, and probabilities that add up to more than 1 (logits do),
// leave nothing to rely on.
func Alternatives(top []TokenLogprob) (kept []TokenLogprob, unscored string) {
	total := 0.0
	listed := map[TokenLogprob]bool{}
	for _, t := range top {
		if math.IsInf(t.Logprob, -1) || listed[t] {
			continue
		}
		// A token of half a character is shown as U+FFFD, as others are.
		listed[t] = !strings.ContainsRune(t.Token, utf8.RuneError)
		kept = append(kept, t)
		switch {
		case math.IsNaN(t.Logprob) && unscored == "":
			unscored = fmt.Sprintf("the log-probability of %q is missing", t.Token)
		case t.Logprob > rounding && unscored == "":
			unscored = fmt.Sprintf("the log-probability of %q is %.4g, above 0", t.Token, t.Logprob)
		}
		total += math.Exp(t.Logprob)
	}
	if unscored == "" && total > 1+rounding {
		unscored = fmt.Sprintf("the probabilities of the alternatives add up to %.4g", total)
	}
	slices.SortStableFunc(kept, func(a, b TokenLogprob) int { return cmp.Compare(b.Logprob, a.Logprob) })
	return kept, unscored
}

// Merge turns the most probable alternatives for the next token into a Choice:
// P adds up each answer's variants (log-sum-exp over their log-probabilities),
// Bound adds what the alternatives that were not returned could still hold, at
// most the probability mass that is left and at most the smallest returned
// probability for each variant that was not seen. Without any alternative, with
// some that are no probabilities (see Alternatives), or with none of the answers
// among them, the choice is unscored.
func Merge(top []TokenLogprob, as []Answer) (Choice, error) {
	c := Choice{P: make([]float64, len(as)), Bound: make([]float64, len(as))}
	if err := CheckAnswers(as); err != nil {
		return c, err
	}
	c.Top, c.Unscored = Alternatives(top)
	if len(c.Top) == 0 {
		c.Unscored = noLogprobs
	}
	if c.Unscored != "" {
		for i := range c.Bound {
			c.Bound[i] = 1
		}
		return c, nil
	}
	seen := map[string]float64{}
	total, least := 0.0, 1.0
	for _, t := range c.Top {
		p := math.Min(1, math.Exp(t.Logprob))
		seen[t.Token] += p
		total += p
		least = math.Min(least, p)
	}
	left := math.Max(0, 1-total)
	for i, a := range as {
		unseen := 0
		for _, v := range a.Variants {
			if p, ok := seen[v]; ok {
				c.P[i] += p
			} else {
				unseen++
			}
		}
		c.P[i] = math.Min(1, c.P[i])
		c.Mass += c.P[i]
		c.Bound[i] = math.Min(1, c.P[i]+math.Min(left, float64(unseen)*least))
	}
	c.Mass = math.Min(1, c.Mass)
	if c.Mass == 0 {
		c.Unscored = NoAnswerSeen
	}
	return c, nil
}
