package timing

import (
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"
)

// markerCues are everyday English cues of the three ethnocentric stages, one
// point each, for the stages' definitions (difference not registered; us against
// them; sameness assumed). The list was written with sight of the released training
// turns, not of the evaluation ones, and is fixed: no record changes it.
var markerCues = func() []*regexp.Regexp {
	cues := []string{
		// Denial: difference is not registered, or does not matter.
		`whatever`,
		`no (real |big |meaningful )?differences?`,
		`don't (really )?see`,
		`all the same`,
		`people are people`,
		`(no|not a) big deal`,
		`(do|does)n't matter`,
		`never (really )?(noticed|thought)`,
		// Defense: our way against yours, with a verdict.
		`our (own )?(ways?|cultures?|traditions?|country|people|values|system)`,
		`your (kind|ways?|people|culture|country)`,
		`naive|backwards?|primitive|inferior|superior|ignorant|ridiculous|uncivili[sz]ed`,
		`us and them|people like you|you people`,
		// Minimization: underneath, everyone is alike.
		`deep down`,
		`the same`,
		`everyone|everybody`,
		`universal(ly)?`,
		`human nature|all human|(we're|we are) all`,
		`like us`,
		`everywhere`,
	}
	compiled := make([]*regexp.Regexp, len(cues))
	for i, c := range cues {
		compiled[i] = regexp.MustCompile(`\b(?:` + c + `)\b`)
	}
	return compiled
}()

// markerThreshold is the score from which a turn counts as marked. Shouted
// words give at most this many points.
const markerThreshold = 2

// markerScore counts the cues in a turn, and its shouted words: runs of at least
// three letters, all upper-case.
func markerScore(turn string) int {
	turn = strings.ReplaceAll(turn, "’", "'")
	score := 0
	for _, w := range strings.FieldsFunc(turn, func(r rune) bool { return !unicode.IsLetter(r) }) {
		// Scripts without upper case equal their upper-case form: not shouted.
		if score < markerThreshold && utf8.RuneCountInString(w) >= 3 && w == strings.ToUpper(w) && w != strings.ToLower(w) {
			score++
		}
	}
	turn = strings.ToLower(turn)
	for _, cue := range markerCues {
		if cue.MatchString(turn) {
			score++
		}
	}
	return score
}

// marked returns the first turn whose score reaches the threshold, else 0.
func (in BaselineInput) marked(d BaselineDialogue) int {
	for t := in.First; t <= len(d.Turns); t++ {
		if markerScore(d.Turns[t-1]) >= markerThreshold {
			return t
		}
	}
	return 0
}
