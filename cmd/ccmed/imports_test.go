package main

import (
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/ccmed/ccmed/"

// floors are the packages of CONTRIBUTING.md, from what anyone may import to what
// nobody does.
var floors = [][]string{
	{"bench/dmis", "bench/stats", "bench/disk", "bench/strictjson", "bench/checksum", "bench/visible", "bench/usage", "probe/linear", "bench/schema", "docs", "scripts",
		"infer/llamacpp/internal/libffi"},
	{"infer", "infer/ollama", "infer/openai", "infer/llamacpp", "infer/cache", "infer/infertest", "infer/internal/prefix", "infer/internal/reasoning",
		"infer/internal/transport", "infer/fleet"},
	{"bench/run", "bench/prompt", "bench/dialogue", "bench/report", "bench/socrates/scenario", "bench/ccbench/norm"},
	{"bench/published", "bench/suite", "probe/activation", "probe/effect", "bench/task", "bench/ccbench/build"},
	{"bench/timing", "bench/mediation", "bench/socrates", "bench/ccbench", "bench/ccbench/writing", "probe", "bench/compare", "bench/page", "bench/export"},
	{"sft", "bench/construct", "probe/extract", "probe/direction", "probe/arrays", "bench/task/tasktest", "bench/study/claims"},
	{"sft/dualhead", "bench/folder", "probe/ask"},
	{"cmd/ccmed/internal/doctor", "cmd/ccmed/internal/cli"},
	{"cmd/ccmed", "cmd/ccmed/torture", "scripts/ollama"},
}

// TestImportsPointOneWay: a package imports only those of lower floors, and of its
// own floor none; only what a model can be asked has several packages on one.
func TestImportsPointOneWay(t *testing.T) {
	floorOf := map[string]int{}
	for i, floor := range floors {
		for _, name := range floor {
			floorOf[name] = i
		}
	}
	files := 0
	err := fs.WalkDir(os.DirFS(projectRoot), ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (strings.HasPrefix(d.Name(), ".") && name != "." || d.Name() == "testdata"):
			return fs.SkipDir
		case d.IsDir() || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go"):
			return nil
		}
		room := path.Dir(name)
		floor, known := floorOf[room]
		if !known {
			t.Errorf("%s has no floor: give it one here and in CONTRIBUTING.md", room)
			return nil
		}
		files++
		f, err := parser.ParseFile(token.NewFileSet(), filepath.Join(projectRoot, name), nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		for _, spec := range f.Imports {
			imported, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				return err
			}
			other, ours := strings.CutPrefix(imported, module)
			if !ours || strings.HasPrefix(room, "infer") && strings.HasPrefix(other, "infer") {
				continue
			}
			if at, known := floorOf[other]; !known || at >= floor {
				t.Errorf("%s imports %s, which is not below it", name, other)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if files < 100 {
		t.Errorf("only %d files were read", files)
	}
}
