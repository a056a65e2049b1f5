package scenario

import (
	"cmp"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"github.com/ccmed/ccmed/bench/disk"
	"github.com/ccmed/ccmed/bench/strictjson"
)

// maxFile is the largest file of a scenario in bytes.
const maxFile = 4 << 20

//go:embed sample/*.json
var embedded embed.FS

// Problem is what a file's reader must know: a fault, or a note on what was read leniently.
type Problem struct {
	File string
	Err  error
}

func (p Problem) Error() string { return p.File + ": " + p.Err.Error() }

func (p Problem) Unwrap() error { return p.Err }

// Read reads a file, all *.json files of a folder, or the embedded scenarios, in the order
// of their names. The error joins every fault of every file. Lenient reading takes the
// forms that normalize knows and passes over fields that it does not.
func Read(path string, lenient bool) ([]Scenario, error) {
	all, faults, _, err := Survey(path, lenient)
	if err != nil {
		return nil, err
	}
	joined := make([]error, len(faults))
	for i, f := range faults {
		joined[i] = f
	}
	return all, errors.Join(joined...)
}

// Survey reads like Read and tells usable scenarios, faults and notes apart.
func Survey(path string, lenient bool) (usable []Scenario, faults, notes []Problem, err error) {
	files, open, err := list(path)
	if err != nil {
		return nil, nil, nil, err
	}
	from := map[string]string{}
	for _, name := range files {
		b, err := open(name)
		if err != nil {
			return nil, nil, nil, fmt.Errorf("read a scenario: %w", err)
		}
		s, wrong, unknown := Parse(b, strings.TrimSuffix(filepath.Base(name), ".json"), lenient)
		if first, twice := from[s.ID]; twice && len(wrong) == 0 {
			wrong = append(wrong, Fault{"id", fmt.Sprintf("%q is the id of %s too", s.ID, first)})
		}
		for _, e := range wrong {
			faults = append(faults, Problem{name, e})
		}
		for _, e := range unknown {
			notes = append(notes, Problem{name, e})
		}
		if len(wrong) == 0 {
			usable, from[s.ID] = append(usable, s), name
		}
	}
	return usable, faults, notes, nil
}

func list(path string) (files []string, open func(string) ([]byte, error), err error) {
	if path == Sample {
		files, err = fs.Glob(embedded, "sample/*.json")
		return files, embedded.ReadFile, err
	}
	files, err = Files(path)
	return files, func(name string) ([]byte, error) { return disk.ReadFile(name, maxFile) }, err
}

// Files lists a file, or the *.json files of a folder.
func Files(path string) ([]string, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("find the scenarios: %w; name a file, a folder of *.json files, or %q", err, Sample)
	}
	if !info.IsDir() {
		return []string{path}, nil
	}
	inside, err := os.ReadDir(path)
	if err != nil {
		return nil, fmt.Errorf("list the scenarios: %w", err)
	}
	var files []string
	for _, e := range inside {
		if !e.IsDir() && strings.HasSuffix(e.Name(), ".json") {
			files = append(files, filepath.Join(path, e.Name()))
		}
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("%s holds no *.json files", path)
	}
	return files, nil
}

// Parse reads a scenario; id stands in for one that is left out. Unknown fields are
// faults, when reading leniently notes.
func Parse(b []byte, id string, lenient bool) (s Scenario, faults, notes []error) {
	if err := strictjson.Check(b, strictjson.RefuseNUL); err != nil {
		return s, []error{err}, nil
	}
	var tree any
	if err := json.Unmarshal(b, &tree); err != nil {
		return s, []error{err}, nil
	}
	if lenient {
		tree = normalize(tree)
		var err error
		if b, err = json.Marshal(tree); err != nil {
			return s, []error{err}, nil
		}
	}
	unknown := unknownFields(tree, reflect.TypeFor[Scenario](), "")
	if lenient {
		notes = unknown
	} else {
		faults = unknown
	}
	if err := strictjson.Unmarshal(b, &s, strictjson.RefuseNUL); err != nil {
		return s, append(faults, err), notes
	}
	s.ID = cmp.Or(s.ID, id)
	for _, f := range s.Validate() {
		faults = append(faults, f)
	}
	return s, faults, notes
}

// unknownFields names the fields of a JSON value that a type does not have.
func unknownFields(v any, t reflect.Type, at string) (out []error) {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch v := v.(type) {
	case []any:
		if t.Kind() == reflect.Slice {
			for i, x := range v {
				out = append(out, unknownFields(x, t.Elem(), fmt.Sprintf("%s[%d]", at, i))...)
			}
		}
	case map[string]any:
		if t.Kind() != reflect.Struct {
			return nil
		}
		fields := map[string]reflect.Type{}
		for i := range t.NumField() {
			name, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ",")
			fields[name] = t.Field(i).Type
		}
		for _, k := range keys(v) {
			field := strings.TrimPrefix(at+"."+k, ".")
			if inner, ok := fields[k]; ok {
				out = append(out, unknownFields(v[k], inner, field)...)
			} else {
				out = append(out, Fault{field, "there is no such field; known here are " + strings.Join(keys(fields), ", ")})
			}
		}
	}
	return out
}

func keys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// Encode writes a scenario, or another value of this package, as its file holds it.
func Encode(v any) ([]byte, error) {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	err := e.Encode(v)
	return []byte(b.String()), err
}
