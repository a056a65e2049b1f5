// Package dialogue reads CC-Mediation records: conversations between two people
// of different cultures with a scripted conflict, and how they went on with and
// without a mediator.
//
//	ds, _, err := dialogue.Read(ctx, "CC-Mediation/data", dialogue.ReadOptions{})
//	fmt.Print(dialogue.Transcript(ds[0].Unmediated()))
//
// Sample returns twelve records that come with the package and show the format.
package dialogue

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/ccmed/ccmed/bench/dmis"
)

// Mediator is the Agent of a mediator's turn; the speakers are 1 and 2.
const Mediator = 3

// Dialogue is one record, checked: its turns run from 1 without a gap, and the
// conflict lies in the shared prefix.
type Dialogue struct {
	ID     int
	Subset string // the record's own name of its split
	// Stage is the DMIS stage that the conflict was scripted with.
	Stage dmis.Stage
	// ConflictTurn is the turn in which the conflict breaks out, counted from 1;
	// ConflictAgent (1 or 2) speaks it.
	ConflictTurn  int
	ConflictAgent int
	// Context is the scene that both speakers share.
	Context string

	agents   [2]agent
	values   [2]string
	goals    [2][]string
	prefix   []Turn
	original []Turn
	positive *continuation
	negative *continuation
	raw      json.RawMessage   // where ReadOptions ask for it
	sum      [sha256.Size]byte // of the compact record; zero where there is none
}

type agent struct {
	name, gender, nationality, occupation string
	age                                   int // years; 0 where unknown
}

// continuation is a mediated path. Its turns leave the mediator's out.
type continuation struct {
	utterance string
	turn      int // the mediator speaks after it
	judge     *int
	auc       *float64
	turns     []Turn
}

// Turn is one thing said.
type Turn struct {
	T       int // counted from 1; a mediator's turn carries the one before it
	Speaker string
	Agent   int // 1, 2 or Mediator
	Message string
	// Label names the DMIS stage of the one who speaks the turn, as the turn shows it:
	// the public code asks about each turn's own speaker. Before the conflict it says what
	// the turn is there for ("transition").
	Label string
	Phase string
}

// Key returns the id as a decimal; it names the dialogue in runs.
func (d Dialogue) Key() string { return strconv.Itoa(d.ID) }

// ContextKey returns 16 hexadecimal digits that are equal for dialogues of the
// same context, whatever its case and spacing. Intervals are clustered by it.
func (d Dialogue) ContextKey() string {
	h := sha256.Sum256([]byte(strings.Join(strings.Fields(strings.ToLower(d.Context)), " ")))
	return hex.EncodeToString(h[:8])
}

// LastTurn returns N, the number of the last turn without mediation.
func (d Dialogue) LastTurn() int { return len(d.prefix) + len(d.original) }

// Unmediated returns the whole conversation as it went without a mediator. Turn
// t is its element t-1.
func (d Dialogue) Unmediated() []Turn { return slices.Concat(d.prefix, d.original) }

// Mediated returns the turns after the record's own mediation, without the
// mediator's; nil where the record holds none.
func (d Dialogue) Mediated() []Turn {
	if d.positive == nil {
		return nil
	}
	return slices.Clone(d.positive.turns)
}

// Mediation returns what the record's mediator says after the conflict turn. It
// is usable when there is text, it does come there, and a turn follows.
func (d Dialogue) Mediation() (text string, usable bool) {
	if d.positive == nil {
		return "", false
	}
	text = strings.TrimSpace(d.positive.utterance)
	return text, text != "" && d.positive.turn == d.ConflictTurn && len(d.positive.turns) > 0
}

// JudgeScore returns the stored score (1 to 5) of the record's mediation, nil
// where there is none.
func (d Dialogue) JudgeScore() *int {
	if d.positive == nil || d.positive.judge == nil {
		return nil
	}
	v := *d.positive.judge
	return &v
}

// Negative returns the continuation of the rejected mediation, without the
// mediator's turn: the turns after turn, which is the intervention, or the
// conflict where the mediator came earlier. ok is false where there is none.
func (d Dialogue) Negative() (after []Turn, turn int, ok bool) {
	if d.negative == nil {
		return nil, 0, false
	}
	turn = max(d.negative.turn, d.ConflictTurn)
	for _, t := range d.negative.turns {
		if t.T > turn {
			after = append(after, t)
		}
	}
	return after, turn, len(after) > 0
}

// Kind names a mediated path of a record.
type Kind string

// The kinds: the mediation that was chosen and the one that was rejected.
const (
	Positive Kind = "positive"
	Negative Kind = "negative"
)

// StoredAUC returns the trajectory AUC that the record itself states for a
// mediated path.
func (d Dialogue) StoredAUC(k Kind) (auc float64, ok bool) {
	c := d.positive
	if k == Negative {
		c = d.negative
	}
	if c == nil || c.auc == nil {
		return 0, false
	}
	return *c.auc, true
}

// Name returns a speaker's first name, "Mediator" for the mediator and "" for
// anybody else.
func (d Dialogue) Name(agent int) string {
	switch agent {
	case 1, 2:
		return d.agents[agent-1].name
	case Mediator:
		return "Mediator"
	}
	return ""
}

// Who describes a speaker by what is known: "a 29-year-old accountant from
// Egypt"; "" where nothing is.
func (d Dialogue) Who(agent int) string {
	if agent != 1 && agent != 2 {
		return ""
	}
	a := d.agents[agent-1]
	var words []string
	if a.age > 0 {
		words = append(words, fmt.Sprintf("%d-year-old", a.age))
	}
	if a.gender != "" {
		words = append(words, strings.ToLower(a.gender))
	}
	noun := a.occupation
	if noun == "" && len(words)+len(a.nationality) > 0 && !slices.Contains([]string{"man", "woman"}, strings.ToLower(a.gender)) {
		noun = "person"
	}
	if noun != "" {
		words = append(words, noun)
	}
	if len(words) == 0 {
		return ""
	}
	who := article(words[0]) + " " + strings.Join(words, " ")
	if a.nationality != "" {
		who += " from " + a.nationality
	}
	return who
}

// article returns the indefinite article before a word or a number in digits.
func article(word string) string {
	if strings.ContainsAny(word[:1], "aeioAEIO") || strings.HasPrefix(word, "8") || strings.HasPrefix(word, "11-") || strings.HasPrefix(word, "18-") {
		return "an"
	}
	return "a"
}

// Person returns a speaker's (1 or 2) age in years, 0 where unknown, gender and occupation.
func (d Dialogue) Person(agent int) (age int, gender, occupation string) {
	if agent != 1 && agent != 2 {
		return 0, "", ""
	}
	a := d.agents[agent-1]
	return a.age, a.gender, a.occupation
}

// Value returns the cultural value that a speaker (1 or 2) holds, as a sentence.
func (d Dialogue) Value(agent int) string {
	if agent != 1 && agent != 2 {
		return ""
	}
	return d.values[agent-1]
}

// GoalsOf returns what a speaker (1 or 2) wants to bring up, in the order of the
// record's goal names.
func (d Dialogue) GoalsOf(agent int) []string {
	if agent != 1 && agent != 2 {
		return nil
	}
	return slices.Clone(d.goals[agent-1])
}
