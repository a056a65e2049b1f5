package dialogue

import (
	"regexp"
	"slices"
	"strings"

	"github.com/ccmed/ccmed/bench/dmis"
)

// Summary counts what a set of dialogues holds.
type Summary struct {
	N                int
	Stages           map[string]int // dialogues by the name of the conflict stage
	ConflictTurns    map[int]int    // dialogues by conflict turn
	LastTurns        map[int]int    // dialogues by last turn
	UsableMediations int
	Contexts         int // distinct scenes
	Templates        int // distinct values of Template
	Agents           int // speakers, two a dialogue
	// StoredPositive and StoredNegative are the AUCs that the records state, and
	// StoredPairs counts the records that state both.
	StoredPositive, StoredNegative Mean
	StoredPairs                    int

	missing [4]int
}

// Mean is a mean over N values; 0 where there are none.
type Mean struct {
	N    int
	Mean float64
}

// AgentField counts the speakers for whom a field is not given.
type AgentField struct {
	Name    string
	Missing int
}

// AgentFields returns the fields that say who a speaker is, in the order of Who.
func (s Summary) AgentFields() []AgentField {
	return []AgentField{{"age", s.missing[0]}, {"gender", s.missing[1]}, {"nationality", s.missing[2]}, {"occupation", s.missing[3]}}
}

// StageNames returns the stages that occur, from Denial on.
func (s Summary) StageNames() []string {
	var names []string
	for st := dmis.Denial; st <= dmis.Integration; st++ {
		if s.Stages[st.String()] > 0 {
			names = append(names, st.String())
		}
	}
	return names
}

// Stats counts what ds holds.
func Stats(ds []Dialogue) Summary {
	s := Summary{N: len(ds), Stages: map[string]int{}, ConflictTurns: map[int]int{}, LastTurns: map[int]int{}, Agents: 2 * len(ds)}
	contexts, templates := map[string]bool{}, map[string]bool{}
	for _, d := range ds {
		s.Stages[d.Stage.String()]++
		s.ConflictTurns[d.ConflictTurn]++
		s.LastTurns[d.LastTurn()]++
		contexts[d.ContextKey()], templates[d.Template()] = true, true
		if _, ok := d.Mediation(); ok {
			s.UsableMediations++
		}
		for _, a := range d.agents {
			for i, absent := range [4]bool{a.age == 0, a.gender == "", a.nationality == "", a.occupation == ""} {
				if absent {
					s.missing[i]++
				}
			}
		}
		p, okP := d.StoredAUC(Positive)
		n, okN := d.StoredAUC(Negative)
		s.StoredPositive.add(p, okP)
		s.StoredNegative.add(n, okN)
		if okP && okN {
			s.StoredPairs++
		}
	}
	s.Contexts, s.Templates = len(contexts), len(templates)
	return s
}

func (m *Mean) add(v float64, ok bool) {
	if ok {
		m.N++
		m.Mean += (v - m.Mean) / float64(m.N)
	}
}

// SharedContexts counts the evaluation dialogues whose context also occurs in
// training. Their scores are not those of unseen scenes.
func SharedContexts(eval, training []Dialogue) (shared, total int) {
	seen := map[string]bool{}
	for _, d := range training {
		seen[d.ContextKey()] = true
	}
	for _, d := range eval {
		if seen[d.ContextKey()] {
			shared++
		}
	}
	return shared, len(eval)
}

// fromCountry matches the head of a value statement, "People from Peru", up to
// its verb: names of countries have several words too, and some statements add an
// occupation.
var fromCountry = regexp.MustCompile(`^People from (?:the )?(.+?)(?: who .+?)? (?:strongly|agree|disagree|have|place|would|do|believe|consider|expect|feel|find|like|prefer|see|think|value)\b`)

// Country returns the country that a speaker's (1 or 2) value statement names, or
// else the speaker's nationality; "" where neither is known.
func (d Dialogue) Country(agent int) string {
	if agent != 1 && agent != 2 {
		return ""
	}
	if m := fromCountry.FindStringSubmatch(d.values[agent-1]); m != nil {
		return m[1]
	}
	return d.agents[agent-1].nationality
}

// Countries returns both speakers' countries, sorted, each once.
func (d Dialogue) Countries() []string {
	var cs []string
	for agent := 1; agent <= 2; agent++ {
		if c := d.Country(agent); c != "" {
			cs = append(cs, c)
		}
	}
	slices.Sort(cs)
	return slices.Compact(cs)
}

// Template returns what the speakers disagree about: the words in which both
// value statements end, without their countries and without who is for and who
// against. Dialogues that only differ in countries and sides share a template; it
// is "" where the statements have no ending in common.
func (d Dialogue) Template() string {
	var words [2][]string
	for i, v := range d.values {
		if m := fromCountry.FindStringSubmatchIndex(v); m != nil {
			v = v[m[3]:]
		}
		words[i] = strings.Fields(v)
	}
	a, b := words[0], words[1]
	n := 0
	for n < min(len(a), len(b)) && a[len(a)-1-n] == b[len(b)-1-n] {
		n++
	}
	return strings.Join(a[len(a)-n:], " ")
}
