package timing

import (
	"regexp"
	"strings"
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

// words finds runs of letters of any script.
var words = regexp.MustCompile(`\p{L}+`)

// markerScore counts the cues in a turn, and its shouted words: runs of at least
// three letters, all upper-case.
func markerScore(turn string) int {
	score := 0
	for _, w := range words.FindAllString(turn, -1) {
		if score < markerThreshold && shouted(w) {
			score++
		}
	}
	form := matchable(turn)
	for _, cue := range markerCues {
		if cue.MatchString(form) {
			score++
		}
	}
	return score
}

// Masked stands in the place of a phrase that MaskMarkers took out.
const Masked = "…"

// MaskMarkers takes out of a turn what the marker baseline looks for: its cues
// become Masked and shouted words lower-case. What is left gives no point.
func MaskMarkers(turn string) string {
	turn = words.ReplaceAllStringFunc(turn, func(w string) string {
		if shouted(w) {
			return strings.ToLower(w)
		}
		return w
	})
	for {
		from, to := firstCue(turn)
		if to == 0 {
			return turn
		}
		runes := []rune(turn)
		turn = string(runes[:from]) + Masked + string(runes[to:])
	}
}

// firstCue returns the runes of a turn that a cue matches, from and up to but
// without to; 0, 0 where none does. The form that cues are matched in has a rune
// for each of the turn.
func firstCue(turn string) (from, to int) {
	form := matchable(turn)
	for _, cue := range markerCues {
		if at := cue.FindStringIndex(form); at != nil {
			return utf8.RuneCountInString(form[:at[0]]), utf8.RuneCountInString(form[:at[1]])
		}
	}
	return 0, 0
}

// matchable is the form of a turn that cues are matched in.
func matchable(turn string) string { return strings.ToLower(strings.ReplaceAll(turn, "’", "'")) }

// shouted tells whether a word has at least three letters, all upper-case.
// Scripts without upper case equal their upper-case form: not shouted.
func shouted(w string) bool {
	return utf8.RuneCountInString(w) >= 3 && w == strings.ToUpper(w) && w != strings.ToLower(w)
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
