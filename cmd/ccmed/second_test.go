//go:build unix

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/tools/txtar"
)

// The longest that any command may take to end after an interrupt.
const allowed = time.Second

// stopping is a command that can take long: which, when it is under way, and how it
// is stopped.
type stopping struct {
	name    string
	args    string
	begun   func() bool
	signals []os.Signal
}

// stop runs the program until it is under way, stops it, and returns how long it
// took to end after the last signal.
func (s stopping) stop(t *testing.T, env []string) (took time.Duration, code int, errs string) {
	t.Helper()
	var stderr bytes.Buffer
	cmd := exec.Command("ccmed", strings.Fields(s.args)...)
	// A program that was built with -race waits a second before it exits.
	cmd.Env, cmd.Stderr, cmd.WaitDelay = append(env, "GORACE=atexit_sleep_ms=0"), &stderr, time.Second
	if s.args == "metrics" { // which waits for its input
		in, out, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		defer out.Close()
		defer in.Close()
		cmd.Stdin = in
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		_ = cmd.Wait() // the code is read below
		close(ended)
	}()
	fail := func(what string) {
		_ = cmd.Process.Kill()
		<-ended
		t.Fatalf("%s\n%s", what, stderr.String())
	}
	for limit := time.Now().Add(30 * time.Second); !s.begun(); time.Sleep(5 * time.Millisecond) {
		select {
		case <-ended:
			if cmd.ProcessState.Success() {
				t.Skip("it was done sooner on this machine")
			}
			fail("it ended before it was stopped")
		default:
		}
		if time.Now().After(limit) {
			fail("it did not begin")
		}
	}
	var at time.Time
	for i, sig := range s.signals {
		if i > 0 {
			time.Sleep(300 * time.Millisecond)
		}
		at = time.Now()
		if err := cmd.Process.Signal(sig); err != nil && i == 0 {
			fail("it ended before it was stopped")
		}
	}
	select {
	case <-ended:
	case <-time.After(5 * time.Second):
		fail("it does not end")
	}
	return time.Since(at), cmd.ProcessState.ExitCode(), stderr.String()
}

// home makes a folder with what the commands need: records enough to compute on for
// seconds, runs of them, training data, and what stands in for Python.
func home(t *testing.T, host string) string {
	t.Helper()
	dir := t.TempDir()
	t.Chdir(dir)
	must := func(call string) {
		t.Helper()
		if code, out, errs := exits(map[string]string{"OLLAMA_HOST": host}, strings.Fields(call)...); code != exitDone {
			t.Fatalf("%s: exit code %d\n%s%s", call, code, out, errs)
		}
	}
	must("data sample all")
	var many bytes.Buffer
	for i := range 50 {
		for n := range 12 {
			b, err := os.ReadFile(filepath.Join("all", fmt.Sprintf("%d.json", 9001+n)))
			if err != nil {
				t.Fatal(err)
			}
			var record map[string]any
			if err := json.Unmarshal(b, &record); err != nil {
				t.Fatal(err)
			}
			record["scenario_id"] = 100_000 + 12*i + n
			line, err := json.Marshal(record)
			if err != nil {
				t.Fatal(err)
			}
			many.Write(append(line, '\n'))
		}
	}
	if err := os.WriteFile("many.jsonl", many.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	must("timing --model fake --data many.jsonl --mode pick --num-ctx 2048 --cache off --concurrency 4 --out big")
	must("timing --model fake --data sample --out small")
	must("sft export --data sample --fraction 0.25 --out data")
	script, err := txtar.ParseFile(filepath.Join(testdata, "sft_train.txtar"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range script.Files {
		if err := os.WriteFile(f.Name, f.Data, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if out, err := exec.Command("sh", "base.sh", "base").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for name, text := range map[string]string{
		"makes": "#!/bin/sh\ntouch begun-venv\nsleep 60\n",
		"asks":  "#!/bin/sh\ntouch begun-asks\ntrap '' INT TERM\nsleep 60 & wait; sleep 60\n",
		"stubborn": "#!/bin/sh\ncase \"$1\" in *environment.py) exec \"$(dirname \"$0\")/python\" \"$@\" ;; esac\n" +
			"trap '' INT TERM\ntouch \"$(dirname \"$3\")/ready\"\nwhile :; do sleep 0.05; done\n",
		"stall.yaml": "vars: {host: }\nsteps:\n  - {name: a, command: [timing, --model, fake, --data, sample, --cache, off, --num-ctx, 2048, --host, \"${host}\"]}\n",
	} {
		if err := os.WriteFile(name, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := syscall.Mkfifo("pipe", 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

var testdata, _ = filepath.Abs(filepath.Join("testdata", "script"))

// Every command that can take long has ended a second after an interrupt, whatever
// it does: it waits for a server, computes, runs Python, or waits for the reader of a
// pipe.
func TestEveryCommandEndsWithinASecond(t *testing.T) {
	withoutRaces(t)
	f := newFake()
	defer f.Close()
	asked, stall := make(chan struct{}, 1000), make(chan struct{})
	stalled := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(b))
		if r.Method == http.MethodGet || r.URL.Path == "/api/show" || bytes.Contains(b, []byte("_debug_render_only")) {
			f.Config.Handler.ServeHTTP(w, r)
			return
		}
		asked <- struct{}{}
		<-stall
	}))
	defer stalled.Close()
	defer close(stall)
	dir := home(t, f.URL)
	waits := func() bool { return len(asked) > 0 }
	there := func(file string) func() bool { return func() bool { return exists(file) } }
	var started time.Time
	computes := func() bool { return time.Since(started) > 300*time.Millisecond }
	once, twice, term := []os.Signal{os.Interrupt}, []os.Signal{os.Interrupt, os.Interrupt}, []os.Signal{syscall.SIGTERM}
	model := " --model fake --data sample --num-ctx 2048 --cache off --host " + stalled.URL
	for _, s := range []stopping{
		{"timing", "timing" + model, waits, once},
		{"timing, terminated", "timing" + model, waits, term},
		{"timing, twice", "timing --out begun" + model, waits, twice},
		{"timing, four at a time", "timing --concurrency 4" + model, waits, once},
		{"openai", "timing --backend openai --model fake --data sample --cache off --host " + stalled.URL + "/v1", waits, once},
		{"mediate", "mediate" + model, waits, once},
		{"score with a labeller", "score all --labeller fake --num-ctx 2048 --cache off --host " + stalled.URL, waits, once},
		{"suite", "suite run stall.yaml --out suite --set host=" + stalled.URL, waits, once},
		{"doctor", "doctor --model fake --host " + stalled.URL, waits, once},
		{"resume", "runs resume begun", waits, once},
		{"score", "score big", computes, once},
		{"score, terminated", "score big", computes, term},
		{"score, twice", "score big", computes, twice},
		{"show", "runs show big", computes, once},
		{"verify", "runs verify big", computes, once},
		{"report", "report big --out page.html", computes, once},
		{"export to a pipe", "runs export small --format csv --out pipe", computes, once},
		{"metrics", "metrics", computes, once},
		{"sft setup", "sft setup --venv venv --interpreter " + filepath.Join(dir, "makes"), there("begun-venv"), once},
		{"sft train, before it trains", "sft train --base base --data data --python " + filepath.Join(dir, "asks"), there("begun-asks"), once},
		{"sft train, twice", "sft train --base base --data data --out cut --python " + filepath.Join(dir, "stubborn"), there("cut/ready"), twice},
	} {
		t.Run(s.name, func(t *testing.T) {
			for len(asked) > 0 {
				<-asked
			}
			started = time.Now()
			took, code, errs := s.stop(t, append(os.Environ(), "CCMED_CACHE="+dir, "HOME="+dir, "FAKE=wait"))
			t.Logf("%s", took.Round(time.Millisecond))
			if took > allowed || code != exitInterrupted && code != exitDone {
				t.Errorf("it ended with %d, %s after the interrupt\n%s", code, took, errs)
			}
		})
	}
	if left, err := filepath.Glob(".page*"); err != nil || len(left) > 0 {
		t.Errorf("temporary files are left: %q, %v", left, err)
	}
}
