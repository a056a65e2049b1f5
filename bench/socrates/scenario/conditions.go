package scenario

import (
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"
)

// Condition puts a scenario into a social setting. Each changes one axis.
type Condition struct {
	Name string // culture:US-CN
	Axis string // culture
	kind []string
}

// Axes lists the axes in the order of Conditions.
func Axes() []string {
	return []string{"general", "strategy", "parties", "history", "emotion", "culture"}
}

// Conditions lists the 15 conditions.
func Conditions() []Condition {
	out := []Condition{{Name: "general", Axis: "general"}}
	for _, s := range strategies {
		out = append(out, Condition{Name: "strategy:" + s.name, Axis: "strategy", kind: []string{s.name}})
	}
	out = append(out, Condition{Name: "parties", Axis: "parties"}, Condition{Name: "history", Axis: "history"})
	for _, pair := range []string{"CC", "CR", "RR"} {
		out = append(out, Condition{Name: "emotion:" + pair, Axis: "emotion", kind: strings.Split(pair, "")})
	}
	for _, pair := range []string{"US-US", "CN-CN", "KR-KR", "US-CN", "US-KR", "CN-KR"} {
		out = append(out, Condition{Name: "culture:" + pair, Axis: "culture", kind: strings.Split(pair, "-")})
	}
	return out
}

// Choose finds conditions by name or by axis, each once and in the order of Conditions.
func Choose(names []string) ([]Condition, error) {
	known := Conditions()
	for _, n := range names {
		if !slices.ContainsFunc(known, func(c Condition) bool { return c.Name == n || c.Axis == n }) {
			var all []string
			for _, c := range known {
				all = append(all, c.Name)
			}
			return nil, fmt.Errorf("unknown condition %q; known are %s, and the axes %s", n, strings.Join(all, ", "), strings.Join(Axes(), ", "))
		}
	}
	if len(names) == 0 {
		return known, nil
	}
	return slices.DeleteFunc(known, func(c Condition) bool { return !slices.Contains(names, c.Name) && !slices.Contains(names, c.Axis) }), nil
}

// strategies are three modes of Thomas and Kilmann, told to the parties.
var strategies = []struct{ name, instruction string }{
	{"competing", "In this talk you press your own position. You argue for it with all you have, yield nothing that you are not forced to, and care little whether the others are content."},
	{"avoiding", "In this talk you would rather not face the conflict. You put off what is contested, change the subject when it gets heated, and commit yourself to nothing while you can help it."},
	{"accommodating", "In this talk the good relation comes first. You give way where you can, set your own wishes behind those of the others, and smooth over what divides you."},
}

// temper is what a party is told of its reactivity r, 0 or 1.
var temper = map[string]string{
	"C": "Your emotional reactivity is r = 0 on a scale from 0 to 1. You stay composed: whatever is said, you answer the matter and not the tone, and what angers you does not show.",
	"R": "Your emotional reactivity is r = 1 on a scale from 0 to 1. You react at once: what you take for a slight angers you, the anger is heard in your words, and it takes a while until you can talk of the matter again.",
}

// hofstede holds the scores of PDI, IDV, MAS, UAI, LTO and IVR.
var hofstede = map[string][6]int{"US": {40, 91, 62, 46, 26, 68}, "CN": {80, 20, 66, 30, 87, 24}, "KR": {60, 18, 39, 85, 100, 29}}

var countries = map[string]string{"US": "the United States", "CN": "China", "KR": "South Korea"}

func culture(code string) string {
	h := hofstede[code]
	return fmt.Sprintf("You grew up and live in %s. On Hofstede's dimensions, from 0 to 100, your culture has power distance %d, individualism %d, masculinity %d, uncertainty avoidance %d, long-term orientation %d and indulgence %d. "+
		"Let this shape how you speak, what you take for polite, and what you weigh, without naming it.", countries[code], h[0], h[1], h[2], h[3], h[4], h[5])
}

// Told are the texts of all strategies, tempers and cultures, for the identity of a run.
func Told() []string {
	var out []string
	for _, s := range strategies {
		out = append(out, s.instruction)
	}
	for _, k := range keys(temper) {
		out = append(out, temper[k])
	}
	for _, k := range keys(hofstede) {
		out = append(out, culture(k))
	}
	return out
}

// Case is a scenario under a condition.
type Case struct {
	Condition string   `json:"condition"`
	Axis      string   `json:"axis"`
	Scenario  Scenario `json:"scenario"` // with the third party and the history where the condition brings them
	// Posture is what all parties are told of their strategy.
	Posture string `json:"posture,omitempty"`
	// Kinds says by party what it was dealt, Traits what it is told of it: temper or culture.
	Kinds  map[string]string `json:"kinds,omitempty"`
	Traits map[string]string `json:"traits,omitempty"`
}

// Missing says that a scenario lacks what a condition needs.
type Missing struct{ Scenario, Condition, What string }

func (m Missing) String() string {
	return fmt.Sprintf("%s under %s: the scenario has no %s", m.Scenario, m.Condition, m.What)
}

// Expand puts a scenario under conditions. The same scenario gives the same cases: who is
// dealt which side of an unequal pair follows from the scenario's id and the condition.
func Expand(s Scenario, conditions []Condition) (cases []Case, left []Missing) {
	for _, c := range conditions {
		of := s
		of.Parties, of.Third, of.History = slices.Clone(s.Parties), nil, nil
		x := Case{Condition: c.Name, Axis: c.Axis}
		switch c.Axis {
		case "strategy":
			for _, mode := range strategies {
				if mode.name == c.kind[0] {
					x.Posture = mode.instruction
				}
			}
		case "parties":
			if s.Third == nil {
				left = append(left, Missing{s.ID, c.Name, "third party"})
				continue
			}
			of.Parties = append(of.Parties, *s.Third)
		case "history":
			if len(s.History) == 0 {
				left = append(left, Missing{s.ID, c.Name, "history"})
				continue
			}
			of.History = s.History
		case "emotion", "culture":
			x.deal(of, c)
		}
		x.Scenario = of
		cases = append(cases, x)
	}
	return cases, left
}

// deal gives the parties the two sides of a pair in turn.
func (x *Case) deal(s Scenario, c Condition) {
	h := sha256.Sum256([]byte(s.ID + "\x00" + c.Name))
	first := int(h[0] & 1)
	x.Kinds, x.Traits = map[string]string{}, map[string]string{}
	for i, p := range s.Parties {
		kind := c.kind[(i+first)%2]
		x.Kinds[p.ID] = kind
		if c.Axis == "culture" {
			x.Traits[p.ID] = culture(kind)
		} else {
			x.Traits[p.ID] = temper[kind]
		}
	}
}
