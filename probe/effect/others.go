package effect

import (
	"fmt"
	"slices"

	"github.com/ccmed/ccmed/bench/stats"
)

// Change is what an edit that adds no direction, such as an erasure or another prompt's
// state, does to the lines and answers of the same condition.
type Change struct {
	Name  string `json:"name"`
	Named bool   `json:"stage_named"`
	Edit
	// M and Ask are the edited arm less the plain one of the same condition.
	M Difference `json:"m"`
	// Recovery is the share of M of D less M of ND in these dialogues that the arm takes; nil
	// under D, for erasures, and where the gap is not above 0.
	Recovery *stats.Estimate `json:"recovery,omitempty"`
	Ask      *Difference     `json:"ask,omitempty"`
	// FirstWord is the change of the probability that the line begins with the gold stage's
	// name.
	FirstWord *Difference `json:"first_word,omitempty"`
	// Over is the change of M less the mean change of the controls; nil without any.
	Over     *Difference `json:"over_controls,omitempty"`
	Controls int         `json:"controls"`
}

// others holds the arms that steer nothing against the plain arm of their condition.
func (f *finder) others() error {
	for _, a := range f.Input.Arms {
		if a.Edit.Kind == "" || a.steers() {
			continue
		}
		plain := f.ND
		if a.Named {
			plain = f.D
		}
		c := Change{Name: a.Name, Named: a.Named, Edit: a.Edit}
		var controls []Arm
		for _, b := range f.Input.Arms {
			if b.Named == a.Named && a.Edit.Of == "" && b.Edit.Of != "" && b.Edit.Class == a.Edit.Class && placeOf(b.Edit) == placeOf(a.Edit) {
				controls = append(controls, b)
			}
		}
		c.Controls = len(controls)
		d, err := f.against(a, plain, controls, &c)
		if err != nil {
			return fmt.Errorf("%s: %w", a.Name, err)
		}
		if d != nil {
			c.M = *d
			f.Other = append(f.Other, c)
		}
	}
	return nil
}

// against is M of an arm less M of the plain one, nil where they share no dialogue; it fills
// the rest of the change.
func (f *finder) against(a, plain Arm, controls []Arm, c *Change) (*Difference, error) {
	var m, ask, name, over column
	var rows []row
	for _, l := range a.Lines {
		v, ok := f.m[a.Name][l.Item]
		was, had := f.m[plain.Name][l.Item]
		if !ok || !had {
			continue
		}
		m.add(v-was, l.Group)
		if d, ok := f.m[f.D.Name][l.Item]; ok {
			rows = append(rows, row{Line: l, nd: was, d: d, right: v})
		}
		if i := slices.IndexFunc(plain.Lines, func(p Line) bool { return p.Item == l.Item }); i >= 0 {
			ask.add(l.Answer-plain.Lines[i].Answer, l.Group)
			name.add(l.Name-plain.Lines[i].Name, l.Group)
		}
		sum, n := 0.0, 0.0
		for _, b := range controls {
			if w, ok := f.m[b.Name][l.Item]; ok {
				sum, n = sum+w, n+1
			}
		}
		if n > 0 {
			over.add(v-sum/n, l.Group)
		}
	}
	var err error
	if !a.Named && a.Edit.Kind != "leace" && len(rows) > 0 { // what is taken out recovers nothing
		gap, err := columnOf(rows, func(r row) float64 { return r.d - r.nd }).test(f)
		if err != nil {
			return nil, err
		}
		if gap.above() {
			if c.Recovery, err = f.recovery(rows); err != nil {
				return nil, err
			}
		}
	}
	if c.Ask, err = ask.test(f); err != nil {
		return nil, err
	}
	if c.FirstWord, err = name.test(f); err != nil {
		return nil, err
	}
	if c.Over, err = over.test(f); err != nil {
		return nil, err
	}
	return m.test(f)
}
