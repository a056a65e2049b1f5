package build

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/ccmed/ccmed/bench/ccbench/norm"
	"github.com/ccmed/ccmed/bench/checksum"
	"github.com/ccmed/ccmed/bench/disk"
	"github.com/ccmed/ccmed/bench/strictjson"
)

// maxFile is the largest file of a build in bytes.
const maxFile = 256 << 20

//go:embed sample.json
var sample []byte

func fields(text string) []string { return strings.Fields(text) }

// Read reads a build from its file or folder, or the embedded one. The error joins all
// faults, each with the file and the place.
func Read(path string) (*Build, error) {
	if path == Sample {
		return parse("the embedded build", sample)
	}
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		path = filepath.Join(path, File)
	}
	b, err := disk.ReadFile(path, maxFile)
	if err != nil {
		return nil, fmt.Errorf("read a build of CCBench: %w", err)
	}
	return parse(path, b)
}

func parse(file string, text []byte) (*Build, error) {
	b := &Build{}
	if err := strictjson.Unmarshal(text, b, strictjson.RefuseNUL, strictjson.RefuseNullEntries); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	switch err := checksum.Check(text); {
	case errors.Is(err, checksum.ErrChanged), errors.Is(err, checksum.ErrNone):
		return nil, fmt.Errorf("%s is not as ccmed ccbench build wrote it: %w; build it again, or take the file that was written", file, err)
	case err != nil:
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	var sealed struct {
		Hash string `json:"content_sha256"`
		Build
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&sealed); err != nil {
		return nil, fmt.Errorf("%s: %s; it may be of another version of ccmed", file, strings.TrimPrefix(err.Error(), "json: "))
	}
	b.Hash = sealed.Hash
	faults := b.Validate()
	joined := make([]error, len(faults))
	for i, f := range faults {
		joined[i] = fmt.Errorf("%s: %w", file, f)
	}
	if len(faults) > 0 {
		return nil, errors.Join(joined...)
	}
	return b, nil
}

// Seal is the build as its file holds it, with the checksum. A build with faults is an error.
func (b *Build) Seal() ([]byte, error) {
	var faults []error
	for _, f := range b.Validate() {
		faults = append(faults, f)
	}
	if len(faults) > 0 {
		return nil, errors.Join(faults...)
	}
	return checksum.Seal(b)
}

var identifier = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]*$`)

// validation collects the faults of a build.
type validation struct {
	faults []norm.Fault
	norms  map[string]norm.Norm // by id, of all cultures
	ids    map[string]bool
}

func (v *validation) fault(field, format string, args ...any) {
	v.faults = append(v.faults, norm.Fault{Field: field, What: fmt.Sprintf(format, args...)})
}

func (v *validation) id(field, id string) {
	switch {
	case !identifier.MatchString(id):
		v.fault(field, "%q is no id; it is made of a-z, 0-9, - and _", id)
	case v.ids[id]:
		v.fault(field, "%q stands there twice; each needs its own id", id)
	}
	v.ids[id] = true
}

// Validate lists all faults of a build, in the order of its fields.
func (b *Build) Validate() []norm.Fault {
	v := &validation{norms: map[string]norm.Norm{}, ids: map[string]bool{}}
	if b.Schema != Schema {
		v.fault("schema", "it is %d; this version of ccmed reads %d", b.Schema, Schema)
	}
	if len(b.Cultures) == 0 {
		v.fault("cultures", "there is none")
	}
	for i, c := range b.Cultures {
		v.culture(fmt.Sprintf("cultures[%d]", i), c)
	}
	if len(b.Queries) == 0 {
		v.fault("queries", "there is none")
	}
	for i, q := range b.Queries {
		v.query(fmt.Sprintf("queries[%d]", i), q)
	}
	return v.faults
}

func (v *validation) culture(field string, c Culture) {
	for _, f := range c.Culture.Validate() {
		v.fault(field+".culture."+f.Field, "%s", f.What)
	}
	v.id(field+".culture.id", c.Culture.ID)
	for i, n := range c.Culture.Norms {
		if _, twice := v.norms[n.ID]; twice {
			v.fault(fmt.Sprintf("%s.culture.norms[%d].id", field, i), "%q is a norm of another culture, too", n.ID)
		}
		v.norms[n.ID] = n
	}
	if len(c.Personas) == 0 {
		v.fault(field+".personas", "there is none")
	}
	vectors := map[string]string{}
	for i, p := range c.Personas {
		field := fmt.Sprintf("%s.personas[%d]", field, i)
		v.persona(field, c, p)
		vector := fmt.Sprint(p.Values)
		if other := vectors[vector]; other != "" {
			v.fault(field+".values", "they are those of %s; no two personas have the same", other)
		}
		vectors[vector] = p.ID
	}
}

func (v *validation) persona(field string, c Culture, p Persona) {
	v.id(field+".id", p.ID)
	if p.Sex != norm.Female && p.Sex != norm.Male {
		v.fault(field+".sex", "%q; it is %s or %s", p.Sex, norm.Female, norm.Male)
	}
	for _, value := range c.Culture.Values {
		if a := p.Values[value.ID]; a != 1 && a != -1 {
			v.fault(field+".values."+value.ID, "it is %d; it must be 1 or -1", a)
		}
	}
	if len(p.Values) > len(c.Culture.Values) {
		v.fault(field+".values", "there are %d, and the culture has %d", len(p.Values), len(c.Culture.Values))
	}
	stances := map[string]norm.State{}
	states := map[norm.State]int{}
	for _, s := range c.Stances(p.Persona) {
		stances[s.Norm.ID] = s.State
		states[s.State]++
	}
	if states[norm.Follow] == 0 || states[norm.Avoid] == 0 {
		v.fault(field+".values", "the persona follows %d norms and avoids %d; it needs one of each", states[norm.Follow], states[norm.Avoid])
	}
	if len(p.Sessions) == 0 {
		v.fault(field+".sessions", "there is none")
	}
	signalled := map[string]bool{}
	for i, s := range p.Sessions {
		v.session(fmt.Sprintf("%s.sessions[%d]", field, i), s, stances, signalled)
	}
	for _, s := range c.Stances(p.Persona) {
		if !signalled[s.Norm.ID] {
			v.fault(field+".sessions", "none of them shows that the persona is to %s %s", s.State, s.Norm.ID)
		}
	}
}

func (v *validation) session(field string, s Session, stances map[string]norm.State, signalled map[string]bool) {
	if s.Kind != Everyday && s.Kind != Health {
		v.fault(field+".kind", "%q; it is %s or %s", s.Kind, Everyday, Health)
	}
	if len(s.Turns) == 0 || len(s.Turns)%2 != 0 {
		v.fault(field+".turns", "there are %d; a session begins with the person and ends with the assistant", len(s.Turns))
	}
	for i, t := range s.Turns {
		field := fmt.Sprintf("%s.turns[%d]", field, i)
		if want := []string{Person, Assistant}[i%2]; t.By != want {
			v.fault(field+".by", "%q; it is the turn of the %s", t.By, want)
		}
		if strings.TrimSpace(t.Text) == "" {
			v.fault(field+".text", "there is no text")
		}
	}
	for i, id := range s.Signals {
		field := fmt.Sprintf("%s.signals[%d]", field, i)
		if _, has := stances[id]; !has {
			v.fault(field, "the persona has no stance towards %q that text can show", id)
		}
		signalled[id] = true
	}
}

func (v *validation) query(field string, q Query) {
	v.id(field+".id", q.ID)
	if !slices.Contains(Topics(), q.Topic) {
		v.fault(field+".topic", "%q; known are %s", q.Topic, strings.Join(Topics(), ", "))
	}
	if strings.TrimSpace(q.Text) == "" {
		v.fault(field+".text", "there is no text")
	}
	if len(q.Norms) == 0 {
		v.fault(field+".norms", "no norm is relevant to the query; leave it out")
	}
	seen := map[string]bool{}
	for i, id := range q.Norms {
		field := fmt.Sprintf("%s.norms[%d]", field, i)
		switch n, known := v.norms[id]; {
		case !known:
			v.fault(field, "%q is no norm of a culture of this build", id)
		case !n.Textual:
			v.fault(field, "text cannot show %s", id)
		case seen[id]:
			v.fault(field, "%q stands there twice", id)
		}
		seen[id] = true
	}
}
