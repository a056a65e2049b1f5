package sft

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A line torn by a kill is lost; a line that something else damaged is told.
func TestDamagedEvents(t *testing.T) {
	step := func(n string) string { return `{"time":"t","event":"step","step":` + n + `,"loss":1}` }
	start := `{"time":"t","event":"start","steps":3}`
	for _, c := range []struct {
		name, text, err string
		points          int
	}{
		{"whole", start + "\n" + step("1") + "\n" + step("2") + "\n", "", 2},
		{"torn at the end", step("1") + "\n" + step("2")[:20], "", 1},
		{"torn, then gone on with", step("1") + "\n" + step("2")[:20] + start + "\n" + step("2") + "\n", "", 2},
		{"a hole within a line", step("1") + "\n" + step("2")[:20] + step("2")[25:] + "\n", "events.jsonl:2: ", 0},
		{"half a surrogate pair", step("1")[:21] + `\ud83d` + step("1")[21:] + "\n", "events.jsonl:1: ", 0},
		{"a hole over two lines", step("1")[:20] + step("2")[10:] + "\n", "events.jsonl:1: ", 0},
	} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, EventsFile), []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		points, err := ReadCurve(dir)
		if len(points) != c.points || (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%s: %d points, %v", c.name, len(points), err)
		}
	}
}
