// Package strictjson reads JSON that other people or programs wrote, and refuses
// what encoding/json takes in silence: byte order marks, UTF-16, bytes that are
// no UTF-8 and halves of surrogate pairs (read as U+FFFD), and objects in which
// a key stands twice or in two cases (the last one would count).
//
//	var r record
//	if err := strictjson.Unmarshal(b, &r, strictjson.RefuseNUL); err != nil {
//		return fmt.Errorf("%s: %w", file, err) // 3.json: field goals.agent_1: the key stands twice …
//	}
package strictjson

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// Option changes what is refused.
type Option int

const (
	// RefuseNUL refuses strings with the character NUL, which no person writes and
	// many programs end a text at.
	RefuseNUL Option = 1
	// RefuseNullEntries refuses null as an entry of a list, which a list of numbers
	// would read as 0.
	RefuseNullEntries Option = 2
)

// Error says what is wrong with a JSON text, where, and what to do.
type Error struct {
	Field  string // path as goals.agent_1[2]; empty for the whole text
	Offset int64  // in bytes from the start of the text
	What   string
	Remedy string

	cause error
}

// Unwrap returns the *json.UnmarshalTypeError of a value of another type.
func (e *Error) Unwrap() error { return e.cause }

func (e *Error) Error() string {
	where := fmt.Sprintf("byte %d", e.Offset)
	if e.Field != "" {
		where = "field " + e.Field
	}
	return where + ": " + e.What + "; " + e.Remedy
}

// Unmarshal checks b and decodes it into v as encoding/json does. A failed check
// is an *Error, and so is a value of another type, around encoding/json's own
// *json.UnmarshalTypeError.
func Unmarshal(b []byte, v any, opts ...Option) error {
	if err := Check(b, opts...); err != nil {
		return err
	}
	err := json.Unmarshal(b, v)
	var te *json.UnmarshalTypeError
	if !errors.As(err, &te) {
		return err
	}
	e := &Error{Field: path(pointerAt(b, int(te.Offset)-1)), Offset: te.Offset, cause: te,
		What: fmt.Sprintf("a JSON %s stands where %s is expected", cut(te.Value), inWords(te.Type)), Remedy: "mend the field"}
	if e.Field == "" {
		e.Remedy = "write it so"
	}
	return e
}

// inWords names what a Go type is read from.
func inWords(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64, reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return "a whole number"
	case reflect.Float32, reflect.Float64:
		return "a number"
	case reflect.String:
		return "a text"
	case reflect.Bool:
		return "true or false"
	case reflect.Slice, reflect.Array:
		return "a list"
	case reflect.Struct, reflect.Map:
		return "an object"
	}
	return t.String()
}

// Check reports the first fault of a JSON text as an *Error.
func Check(b []byte, opts ...Option) error {
	if e := encoding(b); e != nil {
		if e.Offset > 0 {
			e.Field = path(pointerAt(b, int(e.Offset)))
		}
		return e
	}
	nul, entries := slices.Contains(opts, RefuseNUL), slices.Contains(opts, RefuseNullEntries)
	d := jsontext.NewDecoder(bytes.NewBuffer(b)) // which, unlike other readers, is not copied
	var open []object
	for first := true; ; first = false {
		// A name is a string token of an object before which an even number of tokens was read.
		kind, n := d.StackIndex(d.StackDepth())
		t, err := d.ReadToken()
		switch {
		case err == io.EOF && !first:
			return nil
		case err == io.EOF:
			return &Error{What: "there is no JSON", Remedy: "an object is expected here"}
		case err != nil:
			return syntax(b, err)
		case d.StackDepth() == 0 && rest(b, d.InputOffset()):
			return &Error{Offset: d.InputOffset(), What: "text follows the JSON value", Remedy: "one value is expected: put each on a line of its own in a .jsonl file"}
		}
		switch t.Kind() {
		case 'n':
			if entries && kind == '[' {
				return &Error{Field: path(d.StackPointer()), Offset: d.InputOffset(), What: "null stands in a list", Remedy: "give the value, or take the entry out"}
			}
		case '{':
			open = append(open, object{})
		case '}':
			open = open[:len(open)-1]
		case '"':
			name := kind == '{' && n%2 == 0
			if !name && !nul {
				continue
			}
			s := t.String()
			if nul && strings.ContainsRune(s, 0) {
				return &Error{Field: path(d.StackPointer()), Offset: d.InputOffset(), What: "the text holds the character NUL", Remedy: "take it out"}
			}
			if !name {
				continue
			}
			if other, twice := open[len(open)-1].add(s); twice {
				return &Error{Field: path(d.StackPointer()), Offset: d.InputOffset(),
					What: fmt.Sprintf("the keys %q and %q of one object differ in case only", cut(other), cut(s)), Remedy: "keep one of them"}
			}
		}
	}
}

// object holds the keys of an object that is being read: in a list, and by their folded
// form where there are many.
type object struct {
	keys   []string
	folded map[string]string
}

// fewKeys are as many as a list is searched for one by one.
const fewKeys = 32

// add adds a key, or finds the one that encoding/json would take for the same.
func (o *object) add(key string) (other string, twice bool) {
	if len(o.keys) < fewKeys {
		for _, k := range o.keys {
			if strings.EqualFold(k, key) {
				return k, true
			}
		}
		o.keys = append(o.keys, key)
		return "", false
	}
	if o.folded == nil {
		o.folded = map[string]string{}
		for _, k := range o.keys {
			o.folded[fold(k)] = k
		}
	}
	f := fold(key)
	if other, twice = o.folded[f]; !twice {
		o.folded[f] = key
	}
	return other, twice
}

// fold maps the names that encoding/json takes for one field to one name: those
// of equal letters in any case, ſ and the Kelvin sign included.
func fold(name string) string {
	return strings.Map(func(r rune) rune {
		least := r
		for f := unicode.SimpleFold(r); f != r; f = unicode.SimpleFold(f) {
			least = min(least, f)
		}
		return least
	}, name)
}

func rest(b []byte, from int64) bool { return len(bytes.TrimSpace(b[from:])) > 0 }

// Text reports the first fault of a text that people wrote and that is not JSON, a
// template or YAML: a byte order mark, UTF-16, bytes that are no UTF-8, NUL. The
// error names the line.
func Text(b []byte) error {
	e := encoding(b)
	if at := bytes.IndexByte(b, 0); e == nil && at >= 0 {
		e = &Error{Offset: int64(at), What: "the text holds the character NUL", Remedy: "take it out"}
	}
	if e == nil {
		return nil
	}
	return fmt.Errorf("line %d: %s; %s", 1+bytes.Count(b[:e.Offset], []byte{'\n'}), e.What, e.Remedy)
}

// encoding names what is not UTF-8 as a whole, and where.
func encoding(b []byte) *Error {
	const save = "save the file as UTF-8 without a byte order mark"
	switch {
	case bytes.HasPrefix(b, []byte{0xEF, 0xBB, 0xBF}):
		return &Error{What: "the text begins with a byte order mark", Remedy: save}
	case bytes.HasPrefix(b, []byte{0xFF, 0xFE}), bytes.HasPrefix(b, []byte{0xFE, 0xFF}),
		len(b) > 1 && (b[0] == 0) != (b[1] == 0):
		return &Error{What: "the text is UTF-16", Remedy: save}
	}
	for i := 0; i < len(b); {
		r, n := utf8.DecodeRune(b[i:])
		if r == utf8.RuneError && n == 1 {
			return &Error{Offset: int64(i), What: fmt.Sprintf("byte %02X is no UTF-8", b[i]), Remedy: "save the file as UTF-8"}
		}
		i += n
	}
	return nil
}

// pointerAt returns the place of the value that holds byte at.
func pointerAt(b []byte, at int) jsontext.Pointer {
	d := jsontext.NewDecoder(bytes.NewReader(b), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	for {
		if _, err := d.ReadToken(); err != nil {
			return ""
		}
		if d.InputOffset() > int64(at) {
			return d.StackPointer()
		}
	}
}

// syntax says in plain words what the decoder found.
func syntax(b []byte, err error) error {
	var s *jsontext.SyntacticError
	if !errors.As(err, &s) {
		return &Error{What: err.Error(), Remedy: "mend the text"}
	}
	e := &Error{Field: path(s.JSONPointer), Offset: s.ByteOffset, What: "not JSON: " + s.Err.Error(), Remedy: "mend it there"}
	switch {
	case bytes.HasPrefix(bytes.TrimSpace(b), []byte{'<'}):
		e.What, e.Remedy = "not JSON but HTML or XML", "fetch the file itself"
	case errors.Is(s.Err, jsontext.ErrDuplicateName):
		e.What, e.Remedy = "the key stands twice in its object", "keep one of them"
	case errors.Is(s.Err, io.ErrUnexpectedEOF):
		e.What, e.Remedy = "not JSON: the text ends too early", "mend or remove it; it may be a download that broke off"
		e.Offset = int64(len(b))
	case strings.Contains(s.Err.Error(), "surrogate"):
		e.What, e.Remedy = "the text holds half a surrogate pair, "+escape.FindString(s.Err.Error()), "write the character in full"
	}
	return e
}

// path turns a JSON pointer into the form in which fields are named elsewhere.
func path(p jsontext.Pointer) string {
	var b strings.Builder
	for t := range p.Tokens() {
		if t != "" && strings.Trim(t, "0123456789") == "" {
			b.WriteString("[" + t + "]")
			continue
		}
		if b.Len() > 0 {
			b.WriteByte('.')
		}
		if t = cut(t); !plainKey.MatchString(t) {
			t = strconv.Quote(t)
		}
		b.WriteString(t)
		if b.Len() > longestPath {
			return b.String() + "…"
		}
	}
	return b.String()
}

// escape matches how a JSON text writes half a pair.
var escape = regexp.MustCompile(`\\u[0-9A-Fa-f]{4}`)

// plainKey matches keys that a path shows without quotes.
var plainKey = regexp.MustCompile(`^[\pL\pN_ …-]+$`)

const longestKey, longestPath = 60, 300 // in bytes, of what an error quotes

func cut(s string) string {
	if len(s) <= longestKey {
		return s
	}
	return strings.ToValidUTF8(s[:longestKey], "") + "…"
}
