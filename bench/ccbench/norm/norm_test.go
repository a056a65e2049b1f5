package norm

import (
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func named(t *testing.T, name string) Culture {
	t.Helper()
	c, err := Named(name)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestCounts(t *testing.T) {
	t.Parallel()
	want := map[string][3]int{"afghan": {13, 9, 1}, "burmese": {15, 18, 1}, "chinese": {20, 8, 0}, "maori": {19, 10, 0}, "nepali": {13, 9, 2}, "vietnamese": {15, 10, 2}}
	var untextual []string
	ids := map[string]bool{}
	total := 0
	for _, name := range Names() {
		c := named(t, name)
		conditional := 0
		for _, n := range c.Norms {
			ids[n.ID] = true
			if n.AppliesIf != nil {
				conditional++
			}
			if !n.Textual {
				untextual = append(untextual, n.ID)
			}
		}
		total += len(c.Norms)
		if got := [3]int{len(c.Norms), len(c.Values), conditional}; got != want[name] {
			t.Errorf("%s has %d norms, values and conditional norms, not %d", name, got, want[name])
		}
	}
	if total != 95 || len(ids) != 95 || len(want) != len(Names()) {
		t.Errorf("%d norms with %d ids in %d cultures", total, len(ids), len(Names()))
	}
	if !slices.Equal(untextual, []string{"maori-13", "nepali-11"}) {
		t.Errorf("text cannot show %v", untextual)
	}
}

// TestTextsDiffer: no statement or item of a culture stands for two norms, and no item
// fits both stances.
func TestTextsDiffer(t *testing.T) {
	t.Parallel()
	for _, name := range Names() {
		statements := map[string]string{}
		for _, n := range named(t, name).Norms {
			if first, twice := statements[n.Statement]; twice {
				t.Errorf("%s and %s have one statement", first, n.ID)
			}
			statements[n.Statement] = n.ID
			if n.Follow == n.Avoid {
				t.Errorf("%s: Follow and Avoid have one item", n.ID)
			}
		}
	}
}

// The shares of Neutral are those that the maps of values to norms give: 1/2 for a norm of
// two values, none for one of one or three.
var neutral = map[string]float64{"afghan": .385, "burmese": .500, "chinese": .200, "maori": .500, "nepali": .346, "vietnamese": .300}

func TestNeutralShare(t *testing.T) {
	t.Parallel()
	for _, name := range Names() {
		c := named(t, name)
		if got := c.NeutralShare(); math.Abs(got-neutral[name]) > .0005 {
			t.Errorf("%s: %.4f, not %.3f", name, got, neutral[name])
		}
	}
	c := Culture{Norms: []Norm{{Values: make([]string, 4)}}}
	if got := c.NeutralShare(); got != .375 { // 6 of 16
		t.Errorf("four values: %v", got)
	}
}

// TestNeutralDrawn draws 100,000 personas a culture, in sets of ten with distinct values.
func TestNeutralDrawn(t *testing.T) {
	t.Parallel()
	for _, name := range Names() {
		c := named(t, name)
		count := 0
		for seed := range int64(10_000) {
			personas, err := c.Personas(10, seed)
			if err != nil {
				t.Fatal(err)
			}
			for _, p := range personas {
				for _, n := range c.Norms {
					if p.State(n) == Neutral {
						count++
					}
				}
			}
		}
		got := float64(count) / 100_000 / float64(len(c.Norms))
		if math.Abs(got-neutral[name]) > .01 {
			t.Errorf("%s: %.4f, not %.3f", name, got, neutral[name])
		}
	}
}

func TestState(t *testing.T) {
	t.Parallel()
	p := Persona{Values: map[string]int{"a": 1, "b": -1, "c": 1}}
	for values, want := range map[string]State{"a": Follow, "b": Avoid, "a b": Neutral, "a c": Follow, "a b c": Follow} {
		if got := p.State(Norm{Values: strings.Fields(values)}); got != want {
			t.Errorf("%s: %v, not %v", values, got, want)
		}
	}
}

func TestAppliesTo(t *testing.T) {
	t.Parallel()
	women, old := Norm{AppliesIf: &Condition{Sex: Female}}, Norm{AppliesIf: &Condition{MinAge: 65}}
	for _, x := range []struct {
		n    Norm
		sex  string
		age  int
		want bool
	}{{Norm{}, Male, 20, true}, {women, Female, 20, true}, {women, Male, 20, false}, {old, Male, 64, false}, {old, Male, 65, true}} {
		if got := x.n.AppliesTo(Persona{Sex: x.sex, Age: x.age}); got != x.want {
			t.Errorf("%+v, %s, %d: %v", x.n.AppliesIf, x.sex, x.age, got)
		}
	}
}

func TestPersonas(t *testing.T) {
	t.Parallel()
	for _, name := range Names() {
		c := named(t, name)
		many, err := c.Personas(40, 7)
		if err != nil {
			t.Fatal(err)
		}
		few, err := c.Personas(10, 7)
		if err != nil {
			t.Fatal(err)
		}
		other, err := c.Personas(10, 8)
		if err != nil {
			t.Fatal(err)
		}
		vectors := map[string]bool{}
		changed := false
		for i, p := range many {
			follows, avoids := 0, 0
			for _, n := range c.Norms {
				if n.Textual && n.AppliesIf == nil {
					switch p.State(n) {
					case Follow:
						follows++
					case Avoid:
						avoids++
					}
				}
			}
			if follows == 0 || avoids == 0 || p.Age < youngest || p.Age > oldest || p.Sex != Female && p.Sex != Male {
				t.Errorf("%s: %d followed, %d avoided, %s of %d years", p.ID, follows, avoids, p.Sex, p.Age)
			}
			vectors[vector(c, p)] = true
			if i < len(few) {
				if vector(c, few[i]) != vector(c, p) || few[i].Sex != p.Sex || few[i].Age != p.Age {
					t.Errorf("%s is another one among ten than among forty", p.ID)
				}
				changed = changed || vector(c, other[i]) != vector(c, p)
			}
		}
		if len(vectors) != len(many) || !changed {
			t.Errorf("%s: %d of %d vectors are distinct; another seed changes them: %v", name, len(vectors), len(many), changed)
		}
	}
}

func vector(c Culture, p Persona) string {
	s := ""
	for _, v := range c.Values {
		s += string(rune('0' + p.Values[v.ID]))
	}
	return s
}

// TestPersonasRunOut: all vectors of a culture can be drawn, and no more. Two values of
// one norm each allow two personas that follow one and avoid the other.
func TestPersonasRunOut(t *testing.T) {
	t.Parallel()
	c := Culture{ID: "x", Values: []Value{{ID: "a"}, {ID: "b"}},
		Norms: []Norm{{Values: []string{"a"}, Textual: true}, {Values: []string{"b"}, Textual: true}}}
	if got, err := c.Personas(2, 1); err != nil || len(got) != 2 {
		t.Errorf("%v, %v", got, err)
	}
	if _, err := c.Personas(3, 1); err == nil || !strings.Contains(err.Error(), "its 2 values allow 2") {
		t.Errorf("three: %v", err)
	}
	if _, err := c.Personas(0, 1); err == nil {
		t.Error("none are drawn")
	}
	chinese := named(t, "chinese") // all but the vectors without a Follow or without an Avoid
	if got, err := chinese.Personas(244, 1); err != nil || len(got) != 244 {
		t.Errorf("%d, %v", len(got), err)
	}
	one := Culture{ID: "x"} // its norms have one stance in common
	for range 30 {
		id := string(rune('a' + len(one.Values)))
		one.Values = append(one.Values, Value{ID: id})
	}
	one.Norms = []Norm{{Values: []string{"a"}, Textual: true}, {Values: []string{"a"}, Textual: true}}
	if _, err := one.Personas(1, 1); err == nil || !strings.Contains(err.Error(), "no further one") {
		t.Errorf("no vector is accepted: %v", err)
	}
}

const good = `{"id": "x", "name": "X", "values": [{"id": "a", "name": "A"}, {"id": "b", "name": "B"}], "norms": [
	{"id": "x-1", "statement": "S", "values": ["a"], "kind": "practice", "textual": true, "follow": "F", "avoid": "V"},
	{"id": "x-2", "statement": "T", "values": ["a", "b"], "kind": "communication", "textual": true, "follow": "G", "avoid": "W"},
	{"id": "x-3", "statement": "U", "values": ["b"], "kind": "practice", "textual": false, "applies_if": {"sex": "female"}, "follow": "H", "avoid": "X"}]}`

func TestParse(t *testing.T) {
	t.Parallel()
	if c, faults := Parse([]byte(good)); len(faults) > 0 || len(c.Norms) != 3 {
		t.Fatal(c, faults)
	}
	for _, x := range []struct{ old, new, want string }{
		{`"values": ["a"], `, ``, "field norms[0].values: the norm has no values"},
		{`["a", "b"]`, `["a", "z"]`, `field norms[1].values: "z" is no value of this culture`},
		{`["a", "b"]`, `["a", "a"]`, `field norms[1].values: "a" stands there twice`},
		{`{"id": "b", "name": "B"}`, `{"id": "b", "name": "B"}, {"id": "c", "name": "C"}`, `field values[2]: no norm names the value "c"`},
		{`"id": "x-2"`, `"id": "x-1"`, `field norms[1].id: "x-1" stands there twice`},
		{`"id": "x-2"`, `"id": "X 2"`, `field norms[1].id: "X 2" is no id`},
		{`"communication"`, `"habit"`, `field norms[1].kind: "habit" is no kind`},
		{`"female"`, `"woman"`, `field norms[2].applies_if.sex: "woman"`},
		{`{"sex": "female"}`, `{"min_age": 85}`, "field norms[2].applies_if.min_age: it is 85; personas are 18 to 84 years old"},
		{`{"sex": "female"}`, `{}`, "field norms[2].applies_if: it names no condition"},
		{`"textual": false, `, ``, "field norms[2].textual: it is missing"},
		{`"kind": "communication", "textual": true`, `"kind": "communication", "textual": false`, "field norms: 1 of them can be shown"},
		{`"follow": "G"`, `"follow": " "`, "field norms[1].follow: there is no text"},
		{`"name": "X"`, `"nam": "X"`, `unknown field "nam"`},
		{`"textual": false`, `"textual": "no"`, "field norms[2].textual: a JSON string stands where true or false is expected"},
	} {
		text := strings.Replace(good, x.old, x.new, 1)
		if text == good {
			t.Fatalf("%q is not there", x.old)
		}
		_, faults := Parse([]byte(text))
		if !slices.ContainsFunc(faults, func(f error) bool { return strings.HasPrefix(strings.TrimPrefix(f.Error(), "json: "), x.want) }) {
			t.Errorf("%s: %v", x.want, faults)
		}
	}
}

func TestSurvey(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "x.json")
	if _, _, err := Survey(file); err == nil {
		t.Error("a file that is not there is read")
	}
	if err := os.WriteFile(file, []byte(good), 0o600); err != nil {
		t.Fatal(err)
	}
	if c, faults, err := Survey(file); err != nil || len(faults) > 0 || c.ID != "x" {
		t.Error(c, faults, err)
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(good))
	f.Fuzz(func(t *testing.T, b []byte) {
		c, faults := Parse(b)
		if len(faults) > 0 || len(c.Values) > 12 {
			return
		}
		if _, err := c.Personas(1, 1); err != nil && !strings.Contains(err.Error(), "allow 0") && !strings.Contains(err.Error(), "no further one") {
			t.Error(err)
		}
	})
}
