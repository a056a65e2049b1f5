// Package build holds builds of CCBench: personas of cultures with their past sessions,
// and the questions that they ask. A build is one JSON file with a checksum of its own
// content, so that one that was edited by hand is refused.
//
//	b, err := build.Read(build.Sample)
//	for _, c := range b.Cultures {
//		for _, p := range c.Personas {
//			fmt.Println(p.ID, len(p.Sessions), len(c.Items(p, b.Queries[0])))
//		}
//	}
package build

import (
	"slices"

	"github.com/ccmed/ccmed/bench/ccbench/norm"
)

// Schema is the version of the format.
const Schema = 1

// Sample names the embedded build, in words of this project.
const Sample = "sample"

// File is the name of a build in its folder.
const File = "build.json"

// Kinds of a session.
const (
	Everyday = "everyday"
	Health   = "health"
)

// Speakers of a session.
const (
	Person    = "person"
	Assistant = "assistant"
)

// Build is a set of personas and questions.
type Build struct {
	Schema int    `json:"schema"`
	Source string `json:"source"` // where it comes from, with its licence
	// Writer and Checker are the models that wrote and checked the sessions; "" where people did.
	Writer   string    `json:"writer,omitempty"`
	Checker  string    `json:"checker,omitempty"`
	Cultures []Culture `json:"cultures"`
	Queries  []Query   `json:"queries"`
	// Hash is the checksum of the file.
	Hash string `json:"-"`
}

// Culture is a culture with personas that were drawn of it.
type Culture struct {
	Seed     int64        `json:"seed"` // of the personas
	Culture  norm.Culture `json:"culture"`
	Personas []Persona    `json:"personas"`
}

// Persona is an invented person with what they talked about before, the oldest first.
type Persona struct {
	norm.Persona
	Sessions []Session `json:"sessions"`
}

// Session is one past talk with an assistant. It begins with the person and ends with the
// assistant.
type Session struct {
	Kind  string `json:"kind"`
	Turns []Turn `json:"turns"`
	// Signals are the ids of norms towards which the talk shows the persona's stance.
	Signals []string `json:"signals"`
}

// Turn is something said in a session.
type Turn struct {
	By   string `json:"by"`
	Text string `json:"text"`
}

// Query is a question on health.
type Query struct {
	ID    string `json:"id"`
	Topic string `json:"topic"`
	Text  string `json:"text"`
	// Norms are the ids of those that an answer can fit or not, of all cultures.
	Norms []string `json:"norms"`
}

// Topics are those of queries. The paper has twelve and names the first five; the others
// are this project's.
func Topics() []string {
	return []string{"disease", "mental health", "reproductive health", "relationships", "addiction",
		"nutrition", "sleep", "pain", "medicines", "ageing", "prevention", "children"}
}

// Stance is a persona's stance towards a norm: norm.Follow or norm.Avoid.
type Stance struct {
	Norm  norm.Norm
	State norm.State
}

// Stances are those that a persona has and that text can show, in the order of the norms.
func (c Culture) Stances(p norm.Persona) (out []Stance) {
	for _, n := range c.Culture.Norms {
		if s := p.State(n); n.Textual && n.AppliesTo(p) && s != norm.Neutral {
			out = append(out, Stance{n, s})
		}
	}
	return out
}

// Items are the stances of a persona that an answer to the query can fit or not.
func (c Culture) Items(p norm.Persona, q Query) []Stance {
	return slices.DeleteFunc(c.Stances(p), func(s Stance) bool { return !slices.Contains(q.Norms, s.Norm.ID) })
}

// Words counts the words of a session.
func (s Session) Words() (n int) {
	for _, t := range s.Turns {
		n += len(fields(t.Text))
	}
	return n
}

// Within takes the latest sessions that hold at most so many words together, and how many
// older ones it drops. 0 takes all.
func (p Persona) Within(words int) (kept []Session, dropped int) {
	if words == 0 {
		return p.Sessions, 0
	}
	at, sum := len(p.Sessions), 0
	for at > 0 {
		if sum += p.Sessions[at-1].Words(); sum > words {
			break
		}
		at--
	}
	return p.Sessions[at:], at
}

// Lost are the ids of norms that sessions of the persona signal and the kept ones do not.
func (p Persona) Lost(dropped int) (out []string) {
	for _, s := range p.Sessions[:dropped] {
		for _, id := range s.Signals {
			kept := slices.ContainsFunc(p.Sessions[dropped:], func(s Session) bool { return slices.Contains(s.Signals, id) })
			if !kept && !slices.Contains(out, id) {
				out = append(out, id)
			}
		}
	}
	return out
}
