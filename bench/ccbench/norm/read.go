package norm

import (
	"bytes"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/ccmed/ccmed/bench/disk"
	"github.com/ccmed/ccmed/bench/strictjson"
)

// maxFile is the largest file of a culture in bytes.
const maxFile = 4 << 20

// Limits of a culture.
const (
	maxValues = 64
	maxNorms  = 200
)

//go:embed data/*.json
var embedded embed.FS

// Names lists the embedded cultures in the paper's order, which is that of the alphabet.
func Names() []string {
	entries, _ := embedded.ReadDir("data") // it is embedded
	out := make([]string, len(entries))
	for i, e := range entries {
		out[i] = strings.TrimSuffix(e.Name(), ".json")
	}
	return out
}

// Named returns an embedded culture by its id, in any case.
func Named(name string) (Culture, error) {
	id := strings.ToLower(strings.ReplaceAll(name, "ā", "a"))
	if !slices.Contains(Names(), id) {
		return Culture{}, fmt.Errorf("there is no culture %q; known are %s", name, strings.Join(Names(), ", "))
	}
	b, err := embedded.ReadFile(path.Join("data", id+".json"))
	if err != nil {
		return Culture{}, fmt.Errorf("read the norms of %s: %w", id, err)
	}
	c, faults := Parse(b)
	return c, errors.Join(faults...)
}

// Survey reads a culture from a file. Faults say what keeps it from being used.
func Survey(file string) (c Culture, faults []error, err error) {
	b, err := disk.ReadFile(file, maxFile)
	if err != nil {
		return c, nil, fmt.Errorf("read a culture: %w", err)
	}
	c, faults = Parse(b)
	return c, faults, nil
}

// Parse reads a culture. Unknown fields are faults.
func Parse(b []byte) (Culture, []error) {
	var c Culture
	if err := strictjson.Unmarshal(b, &c, strictjson.RefuseNUL, strictjson.RefuseNullEntries); err != nil {
		return c, []error{err}
	}
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(&Culture{}); err != nil {
		return c, []error{fmt.Errorf("%s; take it out, or mend its name", strings.TrimPrefix(err.Error(), "json: "))}
	}
	// Textual has no default: a norm that lacks it would never be asked about.
	var given struct{ Norms []struct{ Textual *bool } }
	if err := json.Unmarshal(b, &given); err != nil {
		return c, []error{err}
	}
	faults := c.Validate()
	for i, n := range given.Norms {
		if n.Textual == nil {
			faults = append(faults, Fault{fmt.Sprintf("norms[%d].textual", i), "it is missing; write true if text can show whether the norm is followed"})
		}
	}
	out := make([]error, len(faults))
	for i, f := range faults {
		out[i] = f
	}
	return c, out
}

// Fault says what is wrong with a culture, and where.
type Fault struct {
	Field string // norms[1].values
	What  string
}

func (f Fault) Error() string { return "field " + f.Field + ": " + f.What }

var identifier = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]*$`)

// checker collects the faults of a culture.
type checker struct {
	faults []Fault
	used   map[string]bool // by value
}

func (c *checker) fault(field, format string, args ...any) {
	c.faults = append(c.faults, Fault{field, fmt.Sprintf(format, args...)})
}

// Validate lists all faults of a culture, in the order of its fields.
func (c *Culture) Validate() []Fault {
	k := &checker{used: map[string]bool{}}
	k.id("id", c.ID, map[string]bool{})
	k.text("name", c.Name)
	if n := len(c.Values); n < 1 || n > maxValues {
		k.fault("values", "there are %d; a culture has 1 to %d", n, maxValues)
	}
	values, norms := map[string]bool{}, map[string]bool{}
	for i, v := range c.Values {
		field := fmt.Sprintf("values[%d]", i)
		k.id(field+".id", v.ID, values)
		k.text(field+".name", v.Name)
	}
	if n := len(c.Norms); n < 1 || n > maxNorms {
		k.fault("norms", "there are %d; a culture has 1 to %d", n, maxNorms)
	}
	asked := 0
	for i, n := range c.Norms {
		k.norm(fmt.Sprintf("norms[%d]", i), n, values, norms)
		if n.Textual && n.AppliesIf == nil {
			asked++
		}
	}
	if asked < 2 {
		k.fault("norms", "%d of them can be shown by text and apply to everyone; a persona needs two of these, one to follow and one to avoid", asked)
	}
	for i, v := range c.Values {
		if !k.used[v.ID] {
			k.fault(fmt.Sprintf("values[%d]", i), "no norm names the value %q; take it out", v.ID)
		}
	}
	return k.faults
}

func (k *checker) id(field, id string, before map[string]bool) {
	switch {
	case !identifier.MatchString(id):
		k.fault(field, "%q is no id; it is made of a-z, 0-9, - and _", id)
	case before[id]:
		k.fault(field, "%q stands there twice; each needs its own id", id)
	}
	before[id] = true
}

func (k *checker) text(field, text string) {
	if strings.TrimSpace(text) == "" {
		k.fault(field, "there is no text")
	}
}

func (k *checker) norm(field string, n Norm, values, norms map[string]bool) {
	k.id(field+".id", n.ID, norms)
	k.text(field+".statement", n.Statement)
	if len(n.Values) == 0 {
		k.fault(field+".values", "the norm has no values, so no persona can follow or avoid it; name at least one")
	}
	seen := map[string]bool{}
	for _, v := range n.Values {
		switch {
		case !values[v]:
			k.fault(field+".values", "%q is no value of this culture", v)
		case seen[v]:
			k.fault(field+".values", "%q stands there twice", v)
		}
		seen[v], k.used[v] = true, true
	}
	if n.Kind != Communication && n.Kind != Practice {
		k.fault(field+".kind", "%q is no kind; it is %s or %s", n.Kind, Communication, Practice)
	}
	if c := n.AppliesIf; c != nil {
		if c.Sex != "" && c.Sex != Female && c.Sex != Male {
			k.fault(field+".applies_if.sex", "%q; it is %s or %s", c.Sex, Female, Male)
		}
		if c.MinAge < 0 || c.MinAge > oldest {
			k.fault(field+".applies_if.min_age", "it is %d; personas are %d to %d years old", c.MinAge, youngest, oldest)
		}
		if *c == (Condition{}) {
			k.fault(field+".applies_if", "it names no condition; name sex or min_age, or leave it out")
		}
	}
	k.text(field+".follow", n.Follow)
	k.text(field+".avoid", n.Avoid)
}
