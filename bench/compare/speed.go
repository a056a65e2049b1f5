package compare

import (
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"unicode"
)

// WriteSpeed writes a line of Go's benchmark format for each sample, with its
// seconds and its tokens per second, each run under a key of its own. Answers out of
// the response cache are left out: they tell the speed of a disk.
func WriteSpeed(w io.Writer, runs []Run) error {
	var b strings.Builder
	b.WriteString("Unit sec/op better=lower\nUnit tokens/s better=higher\n")
	// benchstat sets only those results side by side whose other keys are equal.
	shared := benchKeys(runs[0])
	for _, r := range runs[1:] {
		there := benchKeys(r)
		shared = slices.DeleteFunc(shared, func(k string) bool { return !slices.Contains(there, k) })
	}
	for _, k := range shared {
		b.WriteString(k + "\n")
	}
	for _, r := range runs {
		m := r.Run.Manifest()
		fmt.Fprintf(&b, "\nrun: %s\n", benchValue(r.Name))
		replayed := 0
		for s, err := range r.Run.Samples() {
			if err != nil {
				return err
			}
			if s.Usage.Replayed > 0 {
				replayed++
				continue
			}
			tokens := s.Usage.Evaluated + s.Usage.Generated
			if tokens == 0 || s.Seconds <= 0 {
				continue // nothing was asked
			}
			name := "Benchmark" + title(m.Identity.Task) + "/step=" + benchName(s.Step)
			if s.Condition != "" {
				name += "/condition=" + benchName(s.Condition)
			}
			fmt.Fprintf(&b, "%s 1 %g sec/op %g tokens/s\n", name, s.Seconds, float64(tokens)/s.Seconds)
		}
		if replayed > 0 {
			r.Run.Archive.Note("%s: %d samples have answers out of the response cache and are left out; --cache off makes runs to time", r.Path, replayed)
		}
	}
	if _, err := io.WriteString(w, b.String()); err != nil {
		return fmt.Errorf("write the benchmark lines: %w", err)
	}
	return nil
}

// benchKeys says what a run was and where, a "key: value" each.
func benchKeys(r Run) []string {
	m := r.Run.Manifest()
	keys := []string{"task: " + benchValue(m.Identity.Task), "model: " + benchValue(m.Identity.ModelNames())}
	if n := len(m.Sessions); n > 0 {
		e := m.Sessions[n-1].Environment
		goos, goarch, _ := strings.Cut(e.OS, "/")
		keys = append(keys, "goos: "+benchValue(goos), "goarch: "+benchValue(goarch), "host: "+benchValue(e.Host))
	}
	return keys
}

// title makes a word begin as the name of a benchmark must.
func title(s string) string {
	if s == "" {
		return s
	}
	return strings.ToUpper(s[:1]) + s[1:]
}

// procs is what the end of a benchmark's name says of GOMAXPROCS.
var procs = regexp.MustCompile(`-(\d+)$`)

// benchName keeps a part of a benchmark's name in one piece.
func benchName(s string) string {
	s = strings.Map(func(r rune) rune {
		if unicode.IsSpace(r) || unicode.IsControl(r) || r == '/' || r == '=' {
			return '_'
		}
		return r
	}, s)
	return procs.ReplaceAllString(s, "_$1")
}

// benchValue keeps a value on its line.
func benchValue(s string) string { return strings.Join(strings.Fields(s), " ") }
