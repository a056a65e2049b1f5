// Package schemas holds the JSON Schemas (draft 2020-12) of the files that ccmed
// writes, one a file beside this one. docs/formats.md says which is for which.
//
//	err := schemas.Validate("manifest", text)
package schemas

import (
	"bytes"
	"embed"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"
	"golang.org/x/text/language"
	"golang.org/x/text/message"
)

//go:embed *.schema.json
var files embed.FS

const suffix = ".schema.json"

// Names lists the schemas.
func Names() []string {
	entries, err := files.ReadDir(".")
	if err != nil {
		panic(err) // the files are part of the program
	}
	var out []string
	for _, e := range entries {
		out = append(out, strings.TrimSuffix(e.Name(), suffix))
	}
	return out
}

// compiled are all schemas, by name.
var compiled = sync.OnceValues(func() (map[string]*jsonschema.Schema, error) {
	c := jsonschema.NewCompiler()
	c.AssertFormat()
	out := map[string]*jsonschema.Schema{}
	for _, name := range Names() {
		text, err := files.ReadFile(name + suffix)
		if err != nil {
			return nil, fmt.Errorf("read the schema %s: %w", name, err)
		}
		doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
		if err != nil {
			return nil, fmt.Errorf("read the schema %s: %w", name, err)
		}
		if err := c.AddResource(name+suffix, doc); err != nil {
			return nil, fmt.Errorf("read the schema %s: %w", name, err)
		}
	}
	for _, name := range Names() {
		s, err := c.Compile(name + suffix)
		if err != nil {
			return nil, fmt.Errorf("compile the schema %s: %w", name, err)
		}
		out[name] = s
	}
	return out, nil
})

// Validate checks a JSON text against the schema of that name and returns what is
// wrong in one sentence, the place first: "data.curve.0.p: got string, want number".
func Validate(name string, text []byte) error {
	all, err := compiled()
	if err != nil {
		return err
	}
	s, ok := all[name]
	if !ok {
		return fmt.Errorf("there is no schema %q; known are %s", name, strings.Join(Names(), ", "))
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		return fmt.Errorf("not JSON: %w", err)
	}
	err = s.Validate(doc)
	var invalid *jsonschema.ValidationError
	if !errors.As(err, &invalid) {
		return err
	}
	return errors.New(strings.Join(faults(invalid), "; "))
}

// mostFaults is how many places one sentence names.
const mostFaults = 5

// faults lists what is wrong where, without the schema's own structure.
func faults(e *jsonschema.ValidationError) []string {
	var out []string
	p := message.NewPrinter(language.English)
	var walk func(e *jsonschema.ValidationError)
	walk = func(e *jsonschema.ValidationError) {
		switch e.ErrorKind.(type) {
		case *kind.Schema, *kind.Reference, *kind.Group, *kind.AllOf, *kind.AnyOf:
		default:
			at := strings.Join(e.InstanceLocation, ".")
			if at != "" {
				at += ": "
			}
			if f := at + e.ErrorKind.LocalizedString(p); !slices.Contains(out, f) {
				out = append(out, f)
			}
		}
		for _, c := range e.Causes {
			walk(c)
		}
	}
	walk(e)
	slices.Sort(out)
	if len(out) > mostFaults {
		out = append(out[:mostFaults], fmt.Sprintf("and %d more", len(out)-mostFaults))
	}
	return out
}
