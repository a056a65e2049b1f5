// Package norm holds the cultural norms of CCBench (arXiv 2607.05405), in words of this
// project, and the personas that follow, avoid or are neutral to them.
//
//	c, err := norm.Named("nepali")
//	personas, err := c.Personas(10, 1)
//	for _, n := range c.Norms {
//		if n.AppliesTo(personas[0]) {
//			fmt.Println(n.ID, personas[0].State(n))
//		}
//	}
//
// Norms are tendencies that were told of groups. They say nothing of any person.
package norm

// Kinds of a norm: how one speaks, or what one does. The paper does not print them.
const (
	Communication = "communication"
	Practice      = "practice"
)

// Sexes of a persona.
const (
	Female = "female"
	Male   = "male"
)

// Culture is a set of norms and the values that govern them.
type Culture struct {
	ID     string  `json:"id"`
	Name   string  `json:"name"`
	Source string  `json:"source,omitempty"` // where it comes from, with its licence
	Values []Value `json:"values"`
	Norms  []Norm  `json:"norms"`
}

// Value is what a persona subscribes to or does not.
type Value struct {
	ID   string `json:"id"`
	Name string `json:"name"`
}

// Norm is a way of behaving in matters of health.
type Norm struct {
	ID        string   `json:"id"`
	Statement string   `json:"statement"` // of "the person", without a subject
	Values    []string `json:"values"`    // by id
	Kind      string   `json:"kind"`
	// Textual says that text can show whether the norm is followed.
	Textual   bool       `json:"textual"`
	AppliesIf *Condition `json:"applies_if,omitempty"` // nil: to everyone
	// Follow and Avoid say how an answer fits a person who follows or avoids the norm.
	Follow string `json:"follow"`
	Avoid  string `json:"avoid"`
}

// Condition says to whom a norm applies.
type Condition struct {
	Sex    string `json:"sex,omitempty"`
	MinAge int    `json:"min_age,omitempty"` // in years
}

// AppliesTo says whether the norm applies to a person of the persona's sex and age.
func (n Norm) AppliesTo(p Persona) bool {
	c := n.AppliesIf
	return c == nil || (c.Sex == "" || c.Sex == p.Sex) && p.Age >= c.MinAge
}

// State is a persona's stance towards a norm.
type State int

// States of a norm: the sign of the mean of its values.
const (
	Avoid   State = -1
	Neutral State = 0
	Follow  State = 1
)

// String is the state in lower case.
func (s State) String() string {
	switch s {
	case Follow:
		return "follow"
	case Avoid:
		return "avoid"
	}
	return "neutral"
}

// MarshalText writes the state as String does.
func (s State) MarshalText() ([]byte, error) { return []byte(s.String()), nil }
