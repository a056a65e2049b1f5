package suite

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"
)

// A small file does not grow into a large plan, and a large one is read in time.
func TestExpansionIsCapped(t *testing.T) {
	double := func(form string) string {
		b := strings.Builder{}
		b.WriteString("vars:\n  v0: " + strings.ReplaceAll(form, "%", "x") + "\n")
		for i := range 40 {
			fmt.Fprintf(&b, "  v%d: %s\n", i+1, strings.ReplaceAll(form, "%", fmt.Sprintf("${v%d}", i)))
		}
		return b.String() + "steps: [{name: a, command: [data, stats, \"${v40}\"]}]\n"
	}
	values := strings.Repeat("a, ", 99) + "b"
	list := func(n int) string {
		var vs []string
		for i := range n {
			vs = append(vs, fmt.Sprint(i))
		}
		return "[" + strings.Join(vs, ",") + "]"
	}
	keys := strings.Builder{}
	keys.WriteString("vars:\n")
	for i := range 60_000 {
		fmt.Fprintf(&keys, "  v%d: x\n", i)
	}
	for name, c := range map[string]struct{ source, want string }{
		"a text that doubles":  {double(`"%%"`), "grows beyond 64 KB"},
		"a list that doubles":  {double(`["%", "%"]`), "more than 10000 values"},
		"a matrix":             {"steps: [{name: a, matrix: {x: " + list(90) + ", y: " + list(90) + "}, command: [data]}]", "more than 1000 steps"},
		"a long name":          {"steps: [{name: a, matrix: {x: [" + strings.Repeat("y", 300) + "]}, command: [data]}]", "longer than 200 bytes"},
		"many arguments":       {"vars: {l: [" + values + "]}\nsteps: [{name: a, command: [" + strings.Repeat(`"${l}", `, 200) + "x]}]", "beyond 10000 in a step"},
		"many long arguments":  {"vars: {l: " + strings.Repeat("y", 60000) + "}\nsteps: [{name: a, matrix: {x: " + list(900) + "}, command: [\"${l}\", \"${x}\"]}]", "16 MB in the suite"},
		"one text, many times": {"vars: {l: " + strings.Repeat("y", 60000) + "}\nsteps: [{name: a, command: [\"" + strings.Repeat("${l}", 100000) + "\"]}]", "grows beyond 64 KB"},
		"many brackets":        {strings.Repeat("[", 500_000), "exceeded max depth"},
		"many dashes":          {strings.Repeat("- ", 500_000), "exceeded max depth"},
		"many documents":       {strings.Repeat("--- a\n", 150_000), "a suite must be keys with values"},
		"many keys":            {keys.String(), "the suite has no steps"},
		"aliases of aliases":   {"vars:\n  a: &a [x, x]\n  b: &b [*a, *a]\n  c: [*b, *b]\nsteps: [{name: a, command: [data]}]", "c.yaml:"},
	} {
		t.Run(name, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			start := time.Now()
			s, err := Parse("c.yaml", []byte(c.source))
			if err == nil {
				_, err = s.Plan("out", nil)
			}
			runtime.ReadMemStats(&after)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%.200v", err)
			}
			if mb := (after.TotalAlloc - before.TotalAlloc) >> 20; mb > 200 || time.Since(start) > 5*time.Second {
				t.Errorf("%d MB and %s for a file of %d bytes", mb, time.Since(start), len(c.source))
			}
		})
	}
}
