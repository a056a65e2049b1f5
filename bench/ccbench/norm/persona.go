package norm

import (
	"fmt"
	"hash/fnv"
	"math/rand/v2"
)

// Ages of personas in years, both included.
const (
	youngest = 18
	oldest   = 84
)

// Bounds of the search for personas: up to countable values all vectors can be counted,
// and after patience draws in a row without a new persona the search ends.
const (
	countable = 20
	patience  = 100_000
)

// Persona is an invented person: the values that they subscribe to (+1) or not (-1).
type Persona struct {
	ID     string         `json:"id"` // nepali-p01
	Sex    string         `json:"sex"`
	Age    int            `json:"age"`
	Values map[string]int `json:"values"`
}

// State is the persona's stance towards a norm: the sign of the mean of the norm's values.
func (p Persona) State(n Norm) State {
	sum := 0
	for _, v := range n.Values {
		sum += p.Values[v]
	}
	switch {
	case sum > 0:
		return Follow
	case sum < 0:
		return Avoid
	}
	return Neutral
}

// Personas draws n personas with distinct values. The first ones of a seed are the same
// however many are drawn, and do not depend on other cultures. A persona is accepted
// when, of the norms that text can show and that apply to everyone, it follows at least
// one and avoids at least one.
func (c *Culture) Personas(n int, seed int64) ([]Persona, error) {
	if n < 1 {
		return nil, fmt.Errorf("draw %d personas of %s: there must be at least one", n, c.ID)
	}
	if m := len(c.Values); m <= countable && n > 1<<m/4 {
		if most := c.countAccepted(); n > most {
			return nil, fmt.Errorf("draw %d personas of %s: its %d values allow %d that follow a norm and avoid one; ask for fewer", n, c.ID, m, most)
		}
	}
	h := fnv.New64a()
	h.Write([]byte(c.ID)) // a hash's Write returns no error
	r := rand.New(rand.NewPCG(uint64(seed), h.Sum64()))
	taken := map[string]bool{}
	vector := make([]byte, len(c.Values))
	var out []Persona
	for tries := 0; len(out) < n; tries++ {
		if tries == patience {
			return nil, fmt.Errorf("draw %d personas of %s: after %d there was no further one in %d draws; ask for fewer, or give its norms more values", n, c.ID, len(out), patience)
		}
		p := Persona{ID: fmt.Sprintf("%s-p%02d", c.ID, len(out)+1), Values: map[string]int{}}
		for i, v := range c.Values {
			vector[i] = '-'
			p.Values[v.ID] = -1
			if r.IntN(2) == 1 {
				vector[i], p.Values[v.ID] = '+', 1
			}
		}
		if taken[string(vector)] || !c.accepts(p) {
			continue
		}
		taken[string(vector)] = true
		p.Sex, p.Age = Female, youngest+r.IntN(oldest-youngest+1)
		if r.IntN(2) == 1 {
			p.Sex = Male
		}
		out, tries = append(out, p), -1
	}
	return out, nil
}

// accepts says whether a persona follows a norm and avoids one.
func (c *Culture) accepts(p Persona) bool {
	follows, avoids := false, false
	for _, n := range c.Norms {
		if n.Textual && n.AppliesIf == nil {
			s := p.State(n)
			follows, avoids = follows || s == Follow, avoids || s == Avoid
		}
	}
	return follows && avoids
}

// countAccepted counts the vectors of values that are accepted.
func (c *Culture) countAccepted() (n int) {
	p := Persona{Values: map[string]int{}}
	for bits := range 1 << len(c.Values) {
		for i, v := range c.Values {
			p.Values[v.ID] = bits>>i&1*2 - 1
		}
		if c.accepts(p) {
			n++
		}
	}
	return n
}

// NeutralShare is the expected share of Neutral among the norms when the values of a
// persona are drawn alone, each way with one half.
func (c *Culture) NeutralShare() float64 {
	sum := 0.0
	for _, n := range c.Norms {
		k := len(n.Values)
		if k%2 == 1 {
			continue
		}
		p := 1.0 // of as many values one way as the other: C(k, k/2) / 2^k
		for i := 1; i <= k/2; i++ {
			p *= float64(k/2+i) / float64(i) / 4
		}
		sum += p
	}
	return sum / float64(len(c.Norms))
}
