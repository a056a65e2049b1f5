package main

import (
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/ccmed/ccmed/bench/study/claims"
	"github.com/ccmed/ccmed/probe"
)

// TestClaimsNameWhatThereIs: the tasks, columns and places in metrics and findings that the
// published claims name are those of the benchmarks.
func TestClaimsNameWhatThereIs(t *testing.T) {
	t.Parallel()
	set, err := claims.Published()
	if err != nil {
		t.Fatal(err)
	}
	check := func(id, task string, s claims.Source, metrics []string) {
		found := false
		for _, b := range benches {
			about := b.About()
			if about.Task != task {
				continue
			}
			root := about.Metrics
			if s.File == probe.FindingsFile {
				root = probe.Findings{}
			}
			fits := s.Path == "" || member(reflect.TypeOf(root), s.Path)
			for _, column := range columnsOf(s) {
				fits = fits && about.Row != nil && member(reflect.TypeOf(about.Row), column)
			}
			for _, m := range metrics {
				fits = fits && member(reflect.TypeOf(about.Metrics), m)
			}
			found = found || fits
		}
		if !found {
			t.Errorf("%s: no benchmark of task %s has %+v and %v", id, task, s, metrics)
		}
	}
	for _, c := range set.Claims {
		if c.Test == claims.Untested || c.Of.Records != "" {
			continue
		}
		var metrics []string
		for m := range c.Needs.Metrics {
			metrics = append(metrics, m)
		}
		check(c.ID, c.Of.Task, *c.Of, metrics)
		if c.Minus != nil {
			m := *c.Minus
			m.File = c.Of.File
			check(c.ID, c.Of.Task, m, nil)
		}
	}
}

func columnsOf(s claims.Source) (out []string) {
	if s.Column != "" {
		out = append(out, s.Column)
	}
	if s.Among != nil {
		out = append(out, s.Among.Column)
	}
	return out
}

var brackets = regexp.MustCompile(`\[[^\]]*\]`)

// member tells whether values of a type have a member at a path of JSON names.
func member(t reflect.Type, path string) bool {
	for _, name := range strings.Split(brackets.ReplaceAllString(path, ""), ".") {
		for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice {
			t = t.Elem()
		}
		f, ok := fieldNamed(t, name)
		if !ok {
			return false
		}
		t = f
	}
	return true
}

func fieldNamed(t reflect.Type, name string) (reflect.Type, bool) {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct {
		return nil, false
	}
	for f := range t.Fields() {
		tag, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if tag == name {
			return f.Type, true
		}
		if f.Anonymous {
			if inner, ok := fieldNamed(f.Type, name); ok {
				return inner, true
			}
		}
	}
	return nil, false
}
