//go:build linux && !race

package torture

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

var (
	full    = os.Getenv("CCMED_TORTURE") == "1"
	require = os.Getenv("CCMED_REQUIRE") == "1"
	seed    = uint64(1)
	program string // the program
)

func TestMain(m *testing.M) {
	os.Exit(func() int {
		if s := os.Getenv("TORTURE_SEED"); s != "" {
			n, err := strconv.ParseUint(s, 10, 64)
			if err != nil {
				fmt.Fprintln(os.Stderr, "TORTURE_SEED is not a number:", s)
				return 2
			}
			seed = n
		}
		if program = os.Getenv("TORTURE_BINARY"); program == "" {
			dir, err := os.MkdirTemp("", "torture-")
			if err != nil {
				fmt.Fprintln(os.Stderr, err)
				return 2
			}
			defer os.RemoveAll(dir)
			program = filepath.Join(dir, "ccmed")
			build := exec.Command("go", "build", "-o", program, "..")
			build.Env = append(os.Environ(), "CGO_ENABLED=0")
			if out, err := build.CombinedOutput(); err != nil {
				fmt.Fprintf(os.Stderr, "%v\n%s", err, out)
				return 2
			}
		}
		return m.Run()
	}())
}

// scale is how much of something is done in the short form, and in `make torture`.
func scale(short, whole int) int {
	if full {
		return whole
	}
	return short
}

// chance gives the random numbers of one part of the torture.
func chance(part string) *rand.Rand { return rand.New(rand.NewPCG(seed, hash(part))) }

// missing skips a part that cannot be done here, or fails with CCMED_REQUIRE=1.
func missing(t *testing.T, why string) {
	t.Helper()
	if require {
		t.Fatal(why)
	}
	t.Skip(why)
}

// megabytes is the memory that the program may take where it loads no model.
const megabytes = 200

// A process is one call of the program.
type process struct {
	*exec.Cmd
	stdout, stderr bytes.Buffer
	began          time.Time

	mu    sync.Mutex
	peak  int // of resident memory so far, in MB
	ended chan struct{}
}

// A result is how a call ended.
type result struct {
	code        int // -1 where a signal ended it
	out, errs   string
	took        time.Duration
	peak        int // MB
	hung        bool
	commandLine string
}

// start starts the program in dir, with no settings but those given in env.
func start(t testing.TB, dir string, env []string, args ...string) *process {
	t.Helper()
	p := prepare(dir, env, args...)
	p.start(t)
	return p
}

func prepare(dir string, env []string, args ...string) *process {
	p := &process{Cmd: exec.Command(program, args...), ended: make(chan struct{})}
	p.Dir, p.Stdout, p.Stderr = dir, &p.stdout, &p.stderr
	p.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir, "CCMED_CACHE=" + filepath.Join(dir, ".cache")}, env...)
	p.WaitDelay = 5 * time.Second
	return p
}

func (p *process) start(t testing.TB) {
	t.Helper()
	p.began = time.Now()
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	go p.watch()
}

// watch follows the memory: the kernel's own high-water mark, which rusage mixes
// with that of the process that started it.
func (p *process) watch() {
	for {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.Process.Pid))
		if _, after, ok := bytes.Cut(b, []byte("VmHWM:")); err == nil && ok {
			kb, _ := strconv.Atoi(strings.Fields(string(after))[0])
			p.mu.Lock()
			p.peak = max(p.peak, kb/1024)
			p.mu.Unlock()
			if kb > 3<<20 {
				_ = p.Process.Kill() // others work on this machine
			}
		}
		select {
		case <-p.ended:
			return
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// end waits for the program, and kills it where it outlasts the limit.
func (p *process) end(limit time.Duration) result {
	timer := time.AfterFunc(limit-time.Since(p.began), func() { _ = p.Process.Kill() })
	err := p.Wait()
	hung := !timer.Stop()
	close(p.ended)
	p.mu.Lock()
	defer p.mu.Unlock()
	r := result{code: p.ProcessState.ExitCode(), out: p.stdout.String(), errs: p.stderr.String(), took: time.Since(p.began), peak: p.peak, hung: hung,
		commandLine: strings.Join(p.Args[1:], " ")}
	if errors.Is(err, exec.ErrWaitDelay) {
		r.hung = true
	}
	return r
}

// call runs the program to its end.
func call(t testing.TB, dir string, limit time.Duration, args ...string) result {
	t.Helper()
	return start(t, dir, nil, args...).end(limit)
}

// must runs the program and demands that it succeeds.
func must(t testing.TB, dir string, args ...string) result {
	t.Helper()
	r := call(t, dir, 2*time.Minute, args...)
	if r.code != 0 {
		t.Fatalf("ccmed %s: %s", r.commandLine, r.brief())
	}
	return r
}

func (r result) brief() string {
	errs := strings.TrimSpace(r.errs)
	if len(errs) > 600 {
		errs = errs[:200] + " … " + errs[len(errs)-400:]
	}
	return fmt.Sprintf("exit code %d after %s, %d MB: %s", r.code, r.took.Round(time.Millisecond), r.peak, errs)
}

// lawful holds a call against what every call promises: it ends, by itself, with a
// documented code, without a panic, and within its memory.
func (r result) lawful(mb int) error {
	switch {
	case r.hung:
		return fmt.Errorf("hangs: killed after %s", r.took.Round(time.Second))
	case strings.Contains(r.errs, "goroutine ") || strings.Contains(r.errs, "panic:") || strings.Contains(r.errs, "SIGSEGV"):
		return fmt.Errorf("panics: %s", r.brief())
	case !slices.Contains([]int{0, 1, 2, 3, 4, 130}, r.code):
		return fmt.Errorf("exit code %d: %s", r.code, r.brief())
	case r.peak > mb:
		return fmt.Errorf("%d MB of memory", r.peak)
	case r.code != 0 && strings.TrimSpace(r.errs) == "":
		return fmt.Errorf("exit code %d without a word", r.code)
	}
	return nil
}

// A lineOf is one line of a JSONL file, as far as it may not depend on time.
type lineOf = map[string]any

// jsonLines reads a JSONL file; a torn last line is an error.
func jsonLines(path string) ([]lineOf, error) {
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var out []lineOf
	for i, line := range bytes.Split(bytes.TrimSuffix(b, []byte("\n")), []byte("\n")) {
		if len(line) == 0 {
			continue
		}
		var v lineOf
		if err := json.Unmarshal(line, &v); err != nil {
			return nil, fmt.Errorf("%s:%d: %w", path, i+1, err)
		}
		out = append(out, v)
	}
	return out, nil
}

// timeless takes out what may differ between two equal runs: times, durations, and
// what a server had in its prompt cache.
func timeless(v any) any {
	switch x := v.(type) {
	case map[string]any:
		out := map[string]any{}
		for k, e := range x {
			switch k {
			case "seconds", "start", "end", "evaluated", "cached", "unique", "replayed", "estimated", "samples_sha256", "content_sha256", "tokens_per_second":
			default:
				out[k] = timeless(e)
			}
		}
		return out
	case []any:
		out := make([]any, len(x))
		for i, e := range x {
			out[i] = timeless(e)
		}
		return out
	}
	return v
}

func encode(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // of what was decoded from JSON
	}
	return string(b)
}

// key names a sample.
func key(s lineOf) string {
	return fmt.Sprint(s["step"], "/", s["item"], "/", s["condition"], "/", s["repeat"])
}

// samplesOf reads a run's samples by their keys; twice counts keys that came again.
func samplesOf(run string) (by map[string]lineOf, twice int, err error) {
	lines, err := jsonLines(filepath.Join(run, "samples.jsonl"))
	by = map[string]lineOf{}
	for _, s := range lines {
		if _, there := by[key(s)]; there {
			twice++
		}
		by[key(s)] = s
	}
	return by, twice, err
}

// records writes n times the sample dialogues, each time with other ids, contexts
// and first words, and returns the file.
func records(t testing.TB, dir string, n int) string {
	t.Helper()
	must(t, dir, "data", "sample", "sampled")
	files, err := filepath.Glob(filepath.Join(dir, "sampled", "*.json"))
	if err != nil || len(files) == 0 {
		t.Fatal("no sample dialogues:", err)
	}
	var all bytes.Buffer
	for i := range n {
		for _, f := range files {
			b, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			var r lineOf
			if err := json.Unmarshal(b, &r); err != nil {
				t.Fatal(err)
			}
			meta, first := r["metadata"].(lineOf), r["shared_prefix"].([]any)[0].(lineOf)
			r["scenario_id"] = r["scenario_id"].(float64) + float64(100*i)
			meta["scenario_context"] = fmt.Sprintf("%s (%d)", meta["scenario_context"], i)
			first["message"] = fmt.Sprintf("%d: %s", i, first["message"])
			all.WriteString(encode(r) + "\n")
		}
	}
	path := filepath.Join(dir, fmt.Sprintf("records%d.jsonl", n))
	if err := os.WriteFile(path, all.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// sleep waits, unless the context ends first.
func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}
