package tasktest_test

import (
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/ccmed/ccmed/bench/run"
	"github.com/ccmed/ccmed/bench/task/tasktest"
	"github.com/ccmed/ccmed/infer"
	"github.com/google/go-cmp/cmp"
)

func TestToyConforms(t *testing.T) {
	var samples []run.Sample
	for i := range 6 {
		for step, data := range map[string]any{"answer": tasktest.Verdict{Place: fmt.Sprint("place ", i/2), Polite: i%2 == 0, Said: i < 4, P: 0.5}, "check": tasktest.Check{Agrees: i%3 == 0}} {
			b, err := json.Marshal(data)
			if err != nil {
				t.Fatal(err)
			}
			s := run.Sample{Key: run.Key{Step: step, Item: fmt.Sprint(i + 1)}, Data: b, Prompts: []string{"d6c7ce48a02502e628729f054f1d5a58"}, Seconds: 0.5}
			if i == 5 {
				s.Unscored = "no mass"
			}
			samples = append(samples, s)
		}
	}
	tasktest.Conform(t, tasktest.Case{Bench: tasktest.Toy{}, Samples: samples, Flags: []string{},
		Identity: run.Identity{Task: "toy", Seed: 1, Items: []string{"1", "2", "3", "4", "5", "6"}, Models: map[string]infer.Model{"speaker": {Name: "m"}, "checker": {Name: "c"}}}})
}

// The tutorial shows the toy, whole and in its order.
func TestTutorialShowsTheToy(t *testing.T) {
	page, err := os.ReadFile("../../../docs/new-benchmark.md")
	if err != nil {
		t.Fatal(err)
	}
	var shown []string
	for _, m := range regexp.MustCompile("(?s)```go\n(.*?)\n```").FindAllStringSubmatch(string(page), -1) {
		shown = append(shown, m[1])
	}
	source, err := os.ReadFile("toy.go")
	if err != nil {
		t.Fatal(err)
	}
	_, body, _ := strings.Cut(string(source), "\n)\n\n") // after the imports
	if d := cmp.Diff(strings.TrimSpace(body), strings.Join(shown, "\n\n")); d != "" {
		t.Errorf("docs/new-benchmark.md differs from toy.go (-toy.go +page):\n%s", d)
	}
}
