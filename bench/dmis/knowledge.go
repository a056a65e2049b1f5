package dmis

// Definition describes a stage for a prompt.
type Definition struct {
	Number     int // 1..6, the labeller's digit
	Name       string
	Definition string // one sentence
}

// Wording is ours, after Bennett (1986, 1993, 2004).
var definitions = [NumStages]string{
	Denial:       "The speaker does not register cultural difference: the own way is simply how things are, and other ways are overlooked, waved aside or lumped together.",
	Defense:      "The speaker notices cultural difference and ranks it: there is an us and a them, one side is better, and the other side is judged or felt as a threat.",
	Minimization: "The speaker grants surface differences but holds that deep down everyone is the same, so that the own values pass for universal ones.",
	Acceptance:   "The speaker sees the other's behaviour and values as one of several workable ways of life, one's own included, without having to agree.",
	Adaptation:   "The speaker looks at the matter from within the other culture and adjusts words or behaviour to it on purpose, without giving up the own culture.",
	Integration:  "The speaker moves between cultural frames as part of who they are and weighs the matter from several of them at once.",
}

type guidance struct{ pattern, move string }

var guidances = [...]guidance{
	Denial: {
		pattern: "The speaker does not perceive that culture is at work here at all; what the other person describes is missed, treated as odd or of no account, or met with no curiosity.",
		move:    "Make one cultural dimension noticeable, in a low-stakes and curious way: point to something concrete that the two do differently and invite both to tell how it goes where they come from. Draw no deep contrasts yet.",
	},
	Defense: {
		pattern: "The speaker sees difference as us against them: the own side is praised or defended, the other is put down with evaluative stereotypes, and the talk turns into a contest.",
		move:    "Take the contest out: name the concern that both share and what both want to protect, in words that praise or blame neither side. Do not set the two cultures against each other.",
	},
	Minimization: {
		pattern: "The speaker covers difference with sameness: an appeal to common humanity or common sense stands in for listening, and the own standard passes for everybody's.",
		move:    "Turn each speaker to the particularity of their own culture: ask where their own way comes from and what they take for granted about it, so that what seems universal becomes visible as one way among several.",
	},
}

// Definitions returns the six stages' definitions in order.
func Definitions() []Definition {
	ds := make([]Definition, NumStages)
	for i := range ds {
		ds[i] = Definition{i + 1, names[i], definitions[i]}
	}
	return ds
}

// Pattern says how an ethnocentric stage shows in a conversation. It is empty
// for the others.
func (s Stage) Pattern() string { return s.guidance().pattern }

// Move says what a mediator does about an ethnocentric stage. It is empty for
// the others.
func (s Stage) Move() string { return s.guidance().move }

func (s Stage) guidance() guidance {
	if !s.Ethnocentric() {
		return guidance{}
	}
	return guidances[s]
}
