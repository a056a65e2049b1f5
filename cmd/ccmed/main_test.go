package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/ccmed/ccmed/bench/run"
)

func TestMain(m *testing.M) {
	// engineCheck starts its own file again. Were that to run the tests, they would
	// start it once more.
	if len(os.Args) > 1 && os.Args[1] == "__engine-check" {
		main()
		return
	}
	testscript.Main(m, map[string]func(){"ccmed": main})
}

// TestScripts runs the scripts in testdata/script against the real program, with
// a stand-in for Ollama of their own. Besides testscript's commands they have
//
//	code N ccmed ARGS...   runs the program, which must exit with N
//	interrupt N ccmed ARGS...  stops the program after N more answers; it must exit with 130
//	interrupt N twice ccmed ARGS...  the same, with a second interrupt right after the first
//	fake dies N | lives    breaks all connections after N more answers, or no longer
//	fake fails N           spoils every Nth answer, in many ways
//	fake unrendered 1      renders nothing from now on; 0 does again
//	fake swaps N           the models have other weights after N generations; 0 the first ones again
//	fake spoilt N          at least so many were spoilt
//	fake asked [N]         the number of answers given (since the last time) is N, or above 0
//	fake wait N            waits for N answers since the last time
//	edit FILE PATH JSON    sets a place in a JSON file; without JSON removes it
//	json FILE PATH JSON    the place in a JSON file (or "stdout") has the value, numbers to 1e-9
//	same FILE FILE PATH    the place has the same value in both files
//	vouch RUN [killed]     makes the manifest's checksums those of the run's files, or leaves them out as a kill does
//
// The race detector watches those in which much goes on at once.
func TestScripts(t *testing.T) {
	dir, files := filepath.Join("testdata", "script"), []string(nil)
	if raceEnabled {
		dir, files = "", concurrentScripts()
	}
	testscript.Run(t, testscript.Params{
		Dir: dir, Files: files,
		Setup: setup,
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"code": code, "interrupt": interrupt, "fake": fakeCmd, "edit": edit, "json": jsonCmd, "same": same, "vouch": vouch,
		},
		ContinueOnError:    true,
		RequireUniqueNames: true,
	})
}

// concurrentScripts are those with several workers, servers or signals.
func concurrentScripts() []string {
	var files []string
	for _, name := range []string{"flaky", "flaky_ollama", "hosts", "interrupt", "limits", "missing", "socrates_run", "suite_stops", "timing"} {
		files = append(files, filepath.Join("testdata", "script", name+".txtar"))
	}
	return files
}

// withoutRaces leaves a test to the run without the race detector, which would find nothing in
// it that other tests do not show it, and makes it many times slower.
func withoutRaces(t *testing.T) {
	t.Helper()
	if raceEnabled {
		t.Skip("it runs without the race detector")
	}
}

func setup(e *testscript.Env) error {
	f := newFake()
	e.Defer(f.Close)
	e.Values["fake"] = f
	e.Setenv("OLLAMA_HOST", f.URL)
	e.Setenv("FAKE", f.URL)
	e.Setenv("FAKE_AGAIN", strings.Replace(f.URL, "127.0.0.1", "localhost", 1)) // the same server by another name
	e.Setenv("CCMED_CACHE", filepath.Join(e.WorkDir, ".cache"))
	e.Setenv("HOME", e.WorkDir)
	e.Setenv("YZMA_LIB", "")
	return nil
}

func vouch(ts *testscript.TestScript, _ bool, args []string) {
	ts.Check(vouchFor(ts.MkAbs(args[0]), len(args) > 1 && args[1] == "killed"))
}

// vouchFor writes the manifest that a run would have which made the files in its
// folder, or, killed, was making them in its first session.
func vouchFor(dir string, killed bool) error {
	file := filepath.Join(dir, run.ManifestFile)
	b, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	var m run.Manifest
	if err := json.Unmarshal(b, &m); err != nil {
		return err
	}
	sum := func(b []byte) string { return fmt.Sprintf("sha256:%x", sha256.Sum256(b)) }
	var id bytes.Buffer
	enc := json.NewEncoder(&id)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(m.Identity); err != nil {
		return err
	}
	m.IdentityHash = sum(bytes.TrimSuffix(id.Bytes(), []byte("\n")))
	m.Samples, m.SamplesHash, m.Files = 0, "", map[string]run.FileSum{}
	for _, name := range []string{run.SamplesFile, run.PromptsFile, run.ErrorsFile} {
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		m.Files[name] = run.FileSum{Bytes: int64(len(text)), SHA256: sum(text)}
		if name == run.SamplesFile {
			m.Samples, m.SamplesHash = bytes.Count(text, []byte("\n")), sum(text)
			delete(m.Files, name)
		}
	}
	if killed {
		m.Status, m.Samples, m.SamplesHash, m.Files = run.StatusStarted, 0, "", nil
	}
	if b, err = json.MarshalIndent(m, "", "  "); err != nil {
		return err
	}
	return os.WriteFile(file, b, 0o600)
}

func code(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: code N command args...")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	got := 0
	var exit *exec.ExitError
	if err := ts.Exec(args[1], args[2:]...); errors.As(err, &exit) {
		got = exit.ExitCode()
	} else {
		ts.Check(err)
	}
	if got != want {
		ts.Fatalf("exit code %d, want %d", got, want)
	}
}

func interrupt(ts *testscript.TestScript, _ bool, args []string) {
	n, err := strconv.Atoi(args[0])
	ts.Check(err)
	twice := args[1] == "twice"
	if twice {
		args = args[1:]
	}
	f := ts.Value("fake").(*fake)
	c := exec.Command(args[1], args[2:]...)
	c.Dir, c.Stdout, c.Stderr = ts.MkAbs("."), ts.Stdout(), ts.Stderr()
	for _, name := range []string{"OLLAMA_HOST", "CCMED_CACHE", "HOME", "PATH"} {
		c.Env = append(c.Env, name+"="+ts.Getenv(name))
	}
	start := f.count()
	ts.Check(c.Start())
	for limit := time.Now().Add(20 * time.Second); f.count() < start+n && time.Now().Before(limit); {
		time.Sleep(time.Millisecond)
	}
	stopped := time.Now()
	ts.Check(c.Process.Signal(os.Interrupt))
	if twice {
		time.Sleep(50 * time.Millisecond) // two at once may arrive as one
		ts.Check(c.Process.Signal(os.Interrupt))
	}
	var exit *exec.ExitError
	if err := c.Wait(); !errors.As(err, &exit) || exit.ExitCode() != exitInterrupted {
		ts.Fatalf("interrupted, it ended with %v, want %d", err, exitInterrupted)
	}
	if took := time.Since(stopped); took > 30*time.Second {
		ts.Fatalf("it ended %s after the interrupt", took)
	}
}

func fakeCmd(ts *testscript.TestScript, _ bool, args []string) {
	f := ts.Value("fake").(*fake)
	number := func() int {
		n, err := strconv.Atoi(args[1])
		ts.Check(err)
		return n
	}
	switch args[0] {
	case "lives":
		f.setLives(-1)
	case "dies":
		f.setLives(number())
	case "fails":
		f.mu.Lock()
		f.fails = number()
		f.mu.Unlock()
	case "unrendered", "swaps":
		f.mu.Lock()
		f.unrendered = args[0] == "unrendered" && number() > 0
		f.swaps = 0
		if args[0] == "swaps" && number() > 0 {
			f.swaps = f.asked + number()
		}
		f.mu.Unlock()
	case "spoilt": // at least so many
		f.mu.Lock()
		defer f.mu.Unlock()
		if f.spoilt < number() {
			ts.Fatalf("the server spoilt %d answers", f.spoilt)
		}
	case "asked":
		n := f.count() - f.seen
		if len(args) == 1 && n == 0 || len(args) == 2 && n != number() {
			ts.Fatalf("the server answered %d times", n)
		}
		f.seen = f.count()
	case "wait":
		for limit := time.Now().Add(20 * time.Second); f.count()-f.seen < number(); time.Sleep(time.Millisecond) {
			if time.Now().After(limit) {
				ts.Fatalf("the server answered %d times only", f.count()-f.seen)
			}
		}
	default:
		ts.Fatalf("unknown: fake %s", args[0])
	}
}

// step goes one step into a decoded JSON value.
func step(v any, name string) (any, error) {
	switch x := v.(type) {
	case map[string]any:
		if e, ok := x[name]; ok {
			return e, nil
		}
	case []any: // "len" is its length
		if i, err := strconv.Atoi(name); err == nil && i >= 0 && i < len(x) {
			return x[i], nil
		}
		if name == "len" {
			return float64(len(x)), nil
		}
	}
	return nil, fmt.Errorf("nothing at %q of %.200s", name, fmt.Sprint(v))
}

func at(ts *testscript.TestScript, file, path string) any {
	var v any
	if err := json.Unmarshal([]byte(ts.ReadFile(file)), &v); err != nil {
		ts.Fatalf("%s is not JSON: %v", file, err)
	}
	if path == "." {
		return v
	}
	for _, name := range strings.Split(path, ".") {
		var err error
		v, err = step(v, name)
		ts.Check(err)
	}
	return v
}

func edit(ts *testscript.TestScript, _ bool, args []string) {
	if len(args) < 2 || len(args) > 3 {
		ts.Fatalf("usage: edit file path [value]")
	}
	root := at(ts, args[0], ".")
	names := strings.Split(args[1], ".")
	parent, last := root, names[len(names)-1]
	for _, n := range names[:len(names)-1] {
		var err error
		parent, err = step(parent, n)
		ts.Check(err)
	}
	var v any
	if len(args) == 3 {
		ts.Check(json.Unmarshal([]byte(args[2]), &v))
	}
	switch p := parent.(type) {
	case map[string]any:
		if len(args) == 2 {
			delete(p, last)
		} else {
			p[last] = v
		}
	case []any:
		i, err := strconv.Atoi(last)
		ts.Check(err)
		p[i] = v
	default:
		ts.Fatalf("%s has nothing at %s", args[0], args[1])
	}
	b, err := json.MarshalIndent(root, "", "  ")
	ts.Check(err)
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), b, 0o600))
}

func jsonCmd(ts *testscript.TestScript, neg bool, args []string) {
	if len(args) != 3 {
		ts.Fatalf("usage: json file path value")
	}
	var want any
	ts.Check(json.Unmarshal([]byte(args[2]), &want))
	got := at(ts, args[0], args[1])
	if equal(got, want) == neg {
		ts.Fatalf("%s: %s is %v, and want %v is %t", args[0], args[1], got, want, !neg)
	}
}

func same(ts *testscript.TestScript, neg bool, args []string) {
	if len(args) != 3 {
		ts.Fatalf("usage: same file file path")
	}
	x, y := at(ts, args[0], args[2]), at(ts, args[1], args[2])
	if reflect.DeepEqual(x, y) == neg {
		ts.Fatalf("%s: %v and %v", args[2], x, y)
	}
}

func equal(got, want any) bool {
	x, isNumber := got.(float64)
	y, both := want.(float64)
	if isNumber && both {
		return math.Abs(x-y) <= 1e-9
	}
	return reflect.DeepEqual(got, want)
}
