// Package scenario holds the disputes of the SoCRATES benchmark (arXiv 2606.05563): their
// files, what makes a file usable, and the 15 social conditions that each is put under.
//
//	all, err := scenario.Read("my-disputes", false)
//	for _, s := range all {
//		cases, left := scenario.Expand(s, scenario.Conditions())
//	}
package scenario

// Sample is the name of the embedded scenarios.
const Sample = "sample"

// Domains lists the domains, as the paper has them.
func Domains() []string {
	return []string{"transactional", "healthcare", "environmental", "business-to-business", "public-policy", "international", "legal", "intra-organizational"}
}

// Scenario is a dispute of several parties about several topics.
type Scenario struct {
	ID         string  `json:"id,omitempty"` // the file's name where it is left out
	Title      string  `json:"title"`
	Domain     string  `json:"domain"`
	Source     string  `json:"source,omitempty"` // where it comes from, with its licence
	Background string  `json:"background"`       // with topics and talk, all that a mediator knows
	Topics     []Topic `json:"topics"`
	Parties    []Party `json:"parties"` // in the order of speaking
	// Third is the party that joins under the condition parties, History the entries that
	// stand before the background under the condition history.
	Third   *Party  `json:"third,omitempty"`
	History []Entry `json:"history,omitempty"`
}

// Topic is what the parties disagree on.
type Topic struct {
	ID          string   `json:"id"`
	Name        string   `json:"name"`
	Description string   `json:"description"`
	Options     []Option `json:"options"`
}

// Option is one way to settle a topic. Letters are A, B, C … in their order.
type Option struct {
	Letter string `json:"letter"`
	Text   string `json:"text"`
}

// Party is one side. What it wants is known to itself alone.
type Party struct {
	ID       string `json:"id"`
	Name     string `json:"name"`
	Role     Role   `json:"role"`
	Relation string `json:"relation,omitempty"` // to the other parties
	// Profile is a text of its own, such as the instructions of a role play; it may stand
	// in the place of role and preferences.
	Profile     string            `json:"profile,omitempty"`
	Preferences map[string]string `json:"preferences,omitempty"` // by topic, in words
	Weights     map[string]int    `json:"weights,omitempty"`     // by topic; their sum is 100
	Stances     map[string]string `json:"stances,omitempty"`     // by topic, the letter that the party begins with
}

// Role is what a party is after.
type Role struct {
	Objective   string `json:"objective,omitempty"`
	Constraints string `json:"constraints,omitempty"`
	Fallback    string `json:"fallback,omitempty"` // what it does without an agreement
}

// Entry is a dated part of what went before.
type Entry struct {
	Date string `json:"date"` // 2024-03-15
	Text string `json:"text"`
}

// all are the parties with the third one.
func (s *Scenario) all() []Party {
	out := s.Parties[:len(s.Parties):len(s.Parties)]
	if s.Third != nil {
		out = append(out, *s.Third)
	}
	return out
}
