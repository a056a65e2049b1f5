package probe

import (
	"hash/fnv"
	"maps"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"

	"github.com/ccmed/ccmed/bench/dmis"
)

// Edits of the conflict turn.
const (
	// EditMask puts Placeholder in the place of every word of a marker.
	EditMask = "mask"
	// EditStrip removes the conflict turn: the state is that of the turn before.
	EditStrip = "strip"
	// EditSwap puts another stage's phrase in the place of the stage's own.
	EditSwap = "swap"
)

// Edits lists them.
var Edits = []string{EditMask, EditStrip, EditSwap}

// Placeholder stands for a masked word.
const Placeholder = "___"

// Markers are n-grams of at most longestMarker words within a sentence that occur
// in at least leastMarkerShare of all conflict turns, in two at least, and of
// whose occurrences, each stage's turns weighing the same, markerPurity are one
// stage's.
const (
	longestMarker    = 5
	leastMarkerShare = 1.0 / 150
	markerPurity     = 0.9
)

// ScriptedTurn is a conflict turn and the stage that it was scripted with.
type ScriptedTurn struct {
	Item  string
	Stage dmis.Stage
	Text  string
}

// Edited is what an edit made of a conflict turn.
type Edited struct {
	Text   string `json:"text"`             // in the place of the turn; of EditStrip the turn before
	Masked int    `json:"masked,omitempty"` // words, of EditMask
	// From and To are the stages a and b of EditSwap, Out and In their phrases, and
	// Donor is the item that In comes from.
	From  string `json:"from,omitempty"`
	To    string `json:"to,omitempty"`
	Out   string `json:"out,omitempty"`
	In    string `json:"in,omitempty"`
	Donor string `json:"donor,omitempty"`
}

// Editor edits conflict turns by markers that it learns from all of them by
// document frequency, held-out ones included: every turn is edited by the same
// rule, which cannot depend on folds that are divided later. The stages' names are
// markers too, whether or not they occur.
type Editor struct {
	seed    uint64
	markers map[string]dmis.Stage
	turns   map[string]ScriptedTurn
	phrases map[string]phrase       // by item; none where a turn has no marker of its stage
	donors  map[dmis.Stage][]string // items with a phrase, by stage
	stages  []dmis.Stage            // that have donors
}

// word is a word of a text: where it stands, how it reads in lower case, and
// whether it begins a sentence.
type word struct {
	from, to int
	text     string
	starts   bool
}

// phrase is a stretch of a text.
type phrase struct{ from, to, words int }

var wordPattern = regexp.MustCompile(`[\pL\pN]+(?:['’][\pL\pN]+)*`)

func wordsOf(text string) []word {
	var out []word
	end := 0
	for _, at := range wordPattern.FindAllStringIndex(text, -1) {
		w := word{at[0], at[1], strings.ReplaceAll(strings.ToLower(text[at[0]:at[1]]), "’", "'"), len(out) == 0 || strings.ContainsAny(text[end:at[0]], ".!?\n")}
		end = at[1]
		out = append(out, w)
	}
	return out
}

// eachPhrase calls f for every run of up to longestMarker words within a sentence.
func eachPhrase(ws []word, f func(first, n int, text string)) {
	for i := range ws {
		text := ws[i].text
		f(i, 1, text)
		for n := 2; n <= longestMarker && i+n <= len(ws) && !ws[i+n-1].starts; n++ {
			text += " " + ws[i+n-1].text
			f(i, n, text)
		}
	}
}

// NewEditor learns the markers of the turns' stages. The seed chooses the stages
// and the phrases that are swapped in.
func NewEditor(turns []ScriptedTurn, seed uint64) *Editor {
	e := &Editor{seed: seed, markers: learnMarkers(turns), turns: map[string]ScriptedTurn{}, phrases: map[string]phrase{}, donors: map[dmis.Stage][]string{}}
	for _, t := range turns {
		e.turns[t.Item] = t
		if p, ok := e.phrase(t); ok {
			e.phrases[t.Item] = p
			e.donors[t.Stage] = append(e.donors[t.Stage], t.Item)
		}
	}
	e.stages = slices.Sorted(maps.Keys(e.donors))
	return e
}

func learnMarkers(turns []ScriptedTurn) map[string]dmis.Stage {
	out := map[string]dmis.Stage{}
	for s := dmis.Denial; s <= dmis.Integration; s++ {
		out[strings.ToLower(s.String())] = s
	}
	docs := map[string]*[dmis.NumStages]float64{}
	var all [dmis.NumStages]float64
	for _, t := range turns {
		all[t.Stage]++
		seen := map[string]bool{}
		eachPhrase(wordsOf(t.Text), func(_, _ int, text string) {
			if seen[text] {
				return
			}
			seen[text] = true
			if docs[text] == nil {
				docs[text] = new([dmis.NumStages]float64)
			}
			docs[text][t.Stage]++
		})
	}
	least := max(2, leastMarkerShare*float64(len(turns)))
	for text, in := range docs {
		count, rates, most := 0.0, 0.0, 0
		var rate [dmis.NumStages]float64
		for s, n := range in {
			if n == 0 {
				continue
			}
			count += n
			rate[s] = n / all[s]
			rates += rate[s]
			if rate[s] > rate[most] {
				most = s
			}
		}
		if _, name := out[text]; !name && count >= least && rate[most] >= markerPurity*rates {
			out[text] = dmis.Stage(most)
		}
	}
	return out
}

// Markers returns how many markers each stage has, its name among them.
func (e *Editor) Markers() map[dmis.Stage]int {
	out := map[dmis.Stage]int{}
	for _, s := range e.markers {
		out[s]++
	}
	return out
}

// covered tells of each word whether a marker that counts covers it.
func (e *Editor) covered(ws []word, counts func(dmis.Stage) bool) []bool {
	out := make([]bool, len(ws))
	eachPhrase(ws, func(first, n int, text string) {
		if s, ok := e.markers[text]; ok && counts(s) {
			for i := range n {
				out[first+i] = true
			}
		}
	})
	return out
}

// phrase is the longest run of words of a sentence that markers of the turn's own
// stage cover: the first of equals.
func (e *Editor) phrase(t ScriptedTurn) (phrase, bool) {
	ws := wordsOf(t.Text)
	in := e.covered(ws, func(s dmis.Stage) bool { return s == t.Stage })
	var best phrase
	for i := 0; i < len(ws); i++ {
		if !in[i] {
			continue
		}
		first := i
		for i+1 < len(ws) && in[i+1] && !ws[i+1].starts {
			i++
		}
		if n := i - first + 1; n > best.words {
			best = phrase{ws[first].from, ws[i].to, n}
		}
	}
	return best, best.words > 0
}

// Edit applies EditMask or EditSwap to the turn of an item, or says why it
// cannot be done.
func (e *Editor) Edit(edit, item string) (out Edited, missing string) {
	t, ok := e.turns[item]
	switch {
	case !ok:
		return out, "no such conflict turn"
	case edit == EditMask:
		return e.mask(t.Text), ""
	case edit == EditSwap:
		return e.swap(t)
	}
	return out, "no edit of a text"
}

func (e *Editor) mask(text string) Edited {
	var b strings.Builder
	var out Edited
	end := 0
	ws := wordsOf(text)
	for i, hit := range e.covered(ws, func(dmis.Stage) bool { return true }) {
		if !hit {
			continue
		}
		b.WriteString(text[end:ws[i].from])
		b.WriteString(Placeholder)
		end = ws[i].to
		out.Masked++
	}
	b.WriteString(text[end:])
	out.Text = b.String()
	return out
}

// swap takes stage b and the donor by a generator of the item's own, so that they
// depend neither on the order of items nor on shards.
func (e *Editor) swap(t ScriptedTurn) (out Edited, missing string) {
	own, ok := e.phrases[t.Item]
	if !ok {
		return out, "the turn has no marker of its stage"
	}
	others := slices.DeleteFunc(slices.Clone(e.stages), func(s dmis.Stage) bool { return s == t.Stage })
	if len(others) == 0 {
		return out, "no other stage has a marker"
	}
	h := fnv.New64a()
	h.Write([]byte(t.Item))
	rng := rand.New(rand.NewPCG(e.seed, h.Sum64()))
	to := others[rng.IntN(len(others))]
	donor := e.turns[e.donors[to][rng.IntN(len(e.donors[to]))]]
	p := e.phrases[donor.Item]
	out = Edited{From: t.Stage.String(), To: to.String(), Out: t.Text[own.from:own.to], In: donor.Text[p.from:p.to], Donor: donor.Item}
	out.Text = t.Text[:own.from] + out.In + t.Text[own.to:]
	return out, ""
}
