// Package schema makes JSON Schemas (draft 2020-12) of Go types, and holds texts against
// them. A schema says no more and no less than the type and its tags: a field that the
// type does not have, or one that is missing, is a fault.
//
//	f := schema.Of("manifest", "The manifest of a run", run.Manifest{})
//	err := f.Validate(text)
package schema

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"reflect"
	"slices"
	"strings"
	"sync"

	"github.com/invopop/jsonschema"
	validator "github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"
	"golang.org/x/text/language"
	"golang.org/x/text/message"
)

// Form is the form of a file, or of a line of one.
type Form struct {
	Name   string // of the schema's file, without its ending
	schema *jsonschema.Schema

	once     sync.Once
	compiled *validator.Schema
	err      error
}

// Comments are those of Go types and their fields, see jsonschema.Reflector.AddGoComments.
// nil leaves the descriptions out.
type Comments map[string]string

// Of is the form of a value of a struct type.
func Of(name, title string, value any, c Comments) *Form {
	return newForm(name, title, reflector(c).Reflect(value), reflect.TypeOf(value))
}

// Line is the form of a struct whose field member is, by the value of its field by, of one
// of the given types: a list of values is of any of theirs. Where the field without is not
// there, the member must be.
func Line(name, title string, value any, by, member, without string, forms map[string]any, c Comments) *Form {
	r := reflector(c)
	s := r.Reflect(value)
	var names []any
	for _, n := range sorted(forms) {
		names = append(names, n)
		alternatives, several := forms[n].([]any)
		if !several {
			alternatives = []any{forms[n]}
		}
		var refs []*jsonschema.Schema
		for _, a := range alternatives {
			t := reflect.TypeOf(a)
			inner := r.ReflectFromType(t)
			nullable(inner, t, s.Definitions)
			def := *inner
			def.Version, def.ID, def.Definitions = "", "", nil
			s.Definitions[typeName(t)] = &def
			for k, d := range inner.Definitions {
				s.Definitions[k] = d
			}
			refs = append(refs, &jsonschema.Schema{Ref: "#/$defs/" + typeName(t)})
		}
		of := refs[0]
		if len(refs) > 1 {
			of = &jsonschema.Schema{AnyOf: refs}
		}
		s.AllOf = append(s.AllOf, &jsonschema.Schema{If: property(by, &jsonschema.Schema{Const: n}), Then: property(member, of)})
	}
	s.AllOf = append(s.AllOf, &jsonschema.Schema{If: &jsonschema.Schema{Not: &jsonschema.Schema{Required: []string{without}}}, Then: &jsonschema.Schema{Required: []string{member}}})
	if p, ok := s.Properties.Get(by); ok {
		p.Enum = names
	}
	return newForm(name, title, s, reflect.TypeOf(value))
}

// With gives a field of the form the type of a value.
func (f *Form) With(field string, value any, c Comments) *Form {
	t := reflect.TypeOf(value)
	inner := reflector(c).ReflectFromType(t)
	nullable(inner, t, inner.Definitions)
	def := *inner
	def.Version, def.ID, def.Definitions = "", "", nil
	for k, d := range inner.Definitions {
		f.schema.Definitions[k] = d
	}
	f.schema.Definitions[typeName(t)] = &def
	f.schema.Properties.Set(field, &jsonschema.Schema{Ref: "#/$defs/" + typeName(t)})
	return f
}

// Constant gives a field of the form one value.
func (f *Form) Constant(field string, value any) *Form {
	f.schema.Properties.Set(field, &jsonschema.Schema{Const: value})
	return f
}

// MarshalJSON writes the schema.
func (f *Form) MarshalJSON() ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	err := enc.Encode(f.schema)
	return b.Bytes(), err
}

func property(name string, s *jsonschema.Schema) *jsonschema.Schema {
	p := jsonschema.NewProperties()
	p.Set(name, s)
	return &jsonschema.Schema{Properties: p}
}

func sorted(m map[string]any) []string {
	var out []string
	for k := range m {
		out = append(out, k)
	}
	slices.Sort(out)
	return out
}

func reflector(c Comments) *jsonschema.Reflector {
	return &jsonschema.Reflector{ExpandedStruct: true, CommentMap: c, Anonymous: true, Namer: typeName, Mapper: func(t reflect.Type) *jsonschema.Schema {
		if t == reflect.TypeFor[json.RawMessage]() || t.Kind() == reflect.Interface {
			return &jsonschema.Schema{}
		}
		return nil
	}}
}

// typeName names a definition by the package too, for two may have a type of one name.
func typeName(t reflect.Type) string {
	if t.Name() == "" {
		return ""
	}
	return path.Base(t.PkgPath()) + "." + t.Name()
}

func newForm(name, title string, s *jsonschema.Schema, t reflect.Type) *Form {
	if s.Definitions == nil {
		s.Definitions = jsonschema.Definitions{}
	}
	nullable(s, t, s.Definitions)
	s.ID, s.Title = jsonschema.ID(name+".schema.json"), title
	return &Form{Name: name, schema: s}
}

// nullable lets those fields be null that are written as null when they are empty: pointers,
// slices and maps that are not left out.
func nullable(s *jsonschema.Schema, t reflect.Type, defs jsonschema.Definitions) {
	seen := map[reflect.Type]bool{}
	var walk func(t reflect.Type, s *jsonschema.Schema)
	var inside func(t reflect.Type)
	inside = func(t reflect.Type) {
		switch t.Kind() {
		case reflect.Pointer, reflect.Slice, reflect.Array, reflect.Map:
			inside(t.Elem())
		case reflect.Struct:
			walk(t, defs[typeName(t)])
		}
	}
	walk = func(t reflect.Type, s *jsonschema.Schema) {
		if seen[t] || s == nil {
			return
		}
		seen[t] = true
		for _, f := range reflect.VisibleFields(t) {
			tag := f.Tag.Get("json")
			name, _, _ := strings.Cut(tag, ",")
			if !f.IsExported() || name == "-" || f.Anonymous && name == "" {
				continue
			}
			if name == "" {
				name = f.Name
			}
			p, ok := s.Properties.Get(name)
			k := f.Type.Kind()
			empty := k == reflect.Pointer || k == reflect.Slice && f.Type != reflect.TypeFor[json.RawMessage]() || k == reflect.Map
			if ok && empty && !strings.Contains(tag, ",omit") && len(p.OneOf) == 0 {
				described := p.Description
				p.Description = ""
				s.Properties.Set(name, &jsonschema.Schema{Description: described, OneOf: []*jsonschema.Schema{p, {Type: "null"}}})
			}
			inside(f.Type)
		}
	}
	walk(t, s)
}

// Validate checks a JSON text against the form and returns what is wrong in one sentence,
// the place first: "data.curve.0.p: got string, want number".
func (f *Form) Validate(text []byte) error {
	f.once.Do(f.compile)
	if f.err != nil {
		return f.err
	}
	doc, err := validator.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		return fmt.Errorf("not JSON: %w", err)
	}
	err = f.compiled.Validate(doc)
	var invalid *validator.ValidationError
	if !errors.As(err, &invalid) {
		return err
	}
	return errors.New(strings.Join(faults(invalid), "; "))
}

func (f *Form) compile() {
	text, err := f.MarshalJSON()
	if err == nil {
		var doc any
		if doc, err = validator.UnmarshalJSON(bytes.NewReader(text)); err == nil {
			c := validator.NewCompiler()
			c.AssertFormat()
			if err = c.AddResource(f.Name, doc); err == nil {
				f.compiled, err = c.Compile(f.Name)
			}
		}
	}
	if err != nil {
		f.err = fmt.Errorf("compile the schema %s: %w", f.Name, err)
	}
}

// mostFaults is how many places one sentence names.
const mostFaults = 5

// faults lists what is wrong where, without the schema's own structure.
func faults(e *validator.ValidationError) []string {
	var out []string
	p := message.NewPrinter(language.English)
	var walk func(e *validator.ValidationError)
	walk = func(e *validator.ValidationError) {
		switch e.ErrorKind.(type) {
		case *kind.Schema, *kind.Reference, *kind.Group, *kind.AllOf, *kind.AnyOf, *kind.OneOf:
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
