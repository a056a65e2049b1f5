package scenario

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// Limits of a scenario.
const (
	maxTopics  = 8
	maxParties = 8
	maxOptions = 10
	entries    = 4 // of a history, as in the paper
)

// Marks with which a party ends a talk. No text of a scenario may hold one.
const (
	AgreementMark = "[FINAL AGREEMENT]"
	ImpasseMark   = "[IMPASSE]"
)

// Fault says what is wrong with a scenario, and where.
type Fault struct {
	Field string // parties[1].weights
	What  string
}

func (f Fault) Error() string { return "field " + f.Field + ": " + f.What }

var identifier = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]*$`)

// checker collects the faults of a scenario.
type checker struct {
	faults []Fault
	topics map[string]Topic
}

func (c *checker) fault(field, format string, args ...any) {
	c.faults = append(c.faults, Fault{field, fmt.Sprintf(format, args...)})
}

// Validate lists all faults of a scenario, in the order of its fields.
func (s *Scenario) Validate() []Fault {
	c := &checker{topics: map[string]Topic{}}
	c.id("id", s.ID)
	c.text("title", s.Title, true)
	if !slices.Contains(Domains(), s.Domain) {
		c.fault("domain", "%q is no domain; known are %s", s.Domain, strings.Join(Domains(), ", "))
	}
	c.text("background", s.Background, true)
	c.checkTopics(s.Topics)
	if n := len(s.Parties); n < 2 || n > maxParties {
		c.fault("parties", "there are %d; a dispute has 2 to %d", n, maxParties)
	}
	ids, names := map[string]string{}, map[string]string{}
	weighted := len(s.Parties) > 0 && s.Parties[0].Weights != nil
	for i, p := range s.all() {
		field := fmt.Sprintf("parties[%d]", i)
		if i == len(s.Parties) {
			field = "third"
		}
		c.once(field+".id", "id", p.ID, ids)
		c.once(field+".name", "name", strings.ToLower(strings.TrimSpace(p.Name)), names)
		if (p.Weights != nil) != weighted {
			c.fault(field+".weights", "some parties have weights and some have none; give them to all or to none")
		}
		c.party(field, p)
	}
	c.history(s.History)
	return c.faults
}

func (c *checker) id(field, id string) {
	if !identifier.MatchString(id) {
		c.fault(field, "%q is no id; it is made of a-z, 0-9, - and _", id)
	}
}

func (c *checker) once(field, what, value string, before map[string]string) {
	if first, twice := before[value]; twice && value != "" {
		c.fault(field, "%q is the %s of %s too; each party needs its own", value, what, strings.TrimSuffix(first, "."+what))
	}
	before[value] = field
}

func (c *checker) text(field, text string, required bool) {
	switch {
	case required && strings.TrimSpace(text) == "":
		c.fault(field, "there is no text")
	case !utf8.ValidString(text) || strings.ContainsRune(text, 0):
		c.fault(field, "the text holds NUL or bytes that are no UTF-8")
	}
	for _, mark := range []string{AgreementMark, ImpasseMark} {
		if strings.Contains(strings.ToUpper(text), mark) {
			c.fault(field, "the text holds %s, with which a party ends the talk; write it otherwise", mark)
		}
	}
}

func (c *checker) checkTopics(topics []Topic) {
	if n := len(topics); n < 2 || n > maxTopics {
		c.fault("topics", "there are %d; a dispute has 2 to %d", n, maxTopics)
	}
	for i, t := range topics {
		field := fmt.Sprintf("topics[%d]", i)
		c.id(field+".id", t.ID)
		if _, twice := c.topics[t.ID]; twice {
			c.fault(field+".id", "%q is the id of an earlier topic", t.ID)
		}
		c.topics[t.ID] = t
		c.text(field+".name", t.Name, true)
		c.text(field+".description", t.Description, false)
		if n := len(t.Options); n < 2 || n > maxOptions {
			c.fault(field+".options", "there are %d; a topic has 2 to %d", n, maxOptions)
		}
		for j, o := range t.Options {
			if want := string(rune('A' + j)); o.Letter != want {
				c.fault(fmt.Sprintf("%s.options[%d].letter", field, j), "it is %q and must be %q: letters follow each other from A", o.Letter, want)
			}
			c.text(fmt.Sprintf("%s.options[%d].text", field, j), o.Text, true)
		}
	}
}

func (c *checker) party(field string, p Party) {
	c.id(field+".id", p.ID)
	c.text(field+".name", p.Name, true)
	if strings.EqualFold(strings.TrimSpace(p.Name), "mediator") {
		c.fault(field+".name", "the name is the mediator's; give the party another")
	}
	if strings.ContainsAny(p.Name, "\n\r:") {
		c.fault(field+".name", "%q holds a colon or a line break; a talk is written as name: words", p.Name)
	}
	own := strings.TrimSpace(p.Profile) == ""
	c.text(field+".role.objective", p.Role.Objective, own)
	c.text(field+".role.constraints", p.Role.Constraints, false)
	c.text(field+".role.fallback", p.Role.Fallback, false)
	c.text(field+".relation", p.Relation, false)
	c.text(field+".profile", p.Profile, false)
	for _, id := range c.known(field+".preferences", keys(p.Preferences), own) {
		c.text(field+".preferences."+id, p.Preferences[id], true)
	}
	c.weights(field+".weights", p.Weights)
	for _, id := range c.known(field+".stances", keys(p.Stances), false) {
		letter, options := p.Stances[id], c.topics[id].Options
		if !slices.ContainsFunc(options, func(o Option) bool { return o.Letter == letter }) {
			c.fault(field+".stances."+id, "%q is no option of the topic, which has A to %c", letter, 'A'+max(len(options), 1)-1)
		}
	}
}

// known returns those of the ids that are topics, and faults the others; all asks for
// every topic.
func (c *checker) known(field string, ids []string, all bool) (out []string) {
	for _, id := range ids {
		if _, ok := c.topics[id]; !ok {
			c.fault(field+"."+id, "there is no topic of this id")
			continue
		}
		out = append(out, id)
	}
	for _, id := range keys(c.topics) {
		if all && !slices.Contains(ids, id) {
			c.fault(field, "the topic %s is missing", id)
		}
	}
	return out
}

func (c *checker) weights(field string, weights map[string]int) {
	if weights == nil {
		return
	}
	sum, equal := 0, true
	ids := c.known(field, keys(weights), true)
	for _, id := range ids {
		w := weights[id]
		if w < 1 || w > 100 {
			c.fault(field+"."+id, "it is %d; a weight is 1 to 100", w)
		}
		sum += w
		equal = equal && w == weights[ids[0]]
	}
	switch {
	case sum != 100:
		c.fault(field, "their sum is %d and must be 100", sum)
	case equal && len(ids) > 1:
		c.fault(field, "all are %d; a party that cares for all topics alike has nothing to trade", weights[ids[0]])
	}
}

func (c *checker) history(history []Entry) {
	if n := len(history); n != 0 && n != entries {
		c.fault("history", "there are %d entries; a history has %d", n, entries)
	}
	var before time.Time
	for i, e := range history {
		before = c.entry(fmt.Sprintf("history[%d]", i), e, before)
	}
}

// entry checks an entry of a history, and returns its date.
func (c *checker) entry(field string, e Entry, before time.Time) time.Time {
	c.text(field+".text", e.Text, true)
	at, err := time.Parse(time.DateOnly, e.Date)
	switch {
	case err != nil:
		c.fault(field+".date", "%q is no date like 2024-03-15", e.Date)
	case !at.After(before):
		c.fault(field+".date", "%s does not come after the entry before it", e.Date)
	}
	return at
}
