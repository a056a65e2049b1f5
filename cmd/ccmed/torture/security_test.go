//go:build linux && !race

package torture

import (
	"bytes"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"
	"unicode"
)

// hostile is text that means something to a terminal, a page, a spreadsheet or LaTeX.
const hostile = "\x1b]0;owned\x07\x1b[31m<script>alert(1)</script><img src=x onerror=alert(1)>\u202e\\input{/etc/passwd}"

// A place is a folder in which a line of docs/security.md is tried.
type place struct {
	*testing.T
	dir string
	srv *server
}

func (p place) ask(args ...string) []string {
	return append(args, "--model", model, "--host", p.srv.URL, "--data", "sample", "--limit", "2", "--cache", "off")
}

func (p place) at(names ...string) string { return filepath.Join(append([]string{p.dir}, names...)...) }

// refuses demands an error that says something.
func (p place) refuses(says string, args ...string) result {
	p.Helper()
	r := call(p, p.dir, 20*time.Second, args...)
	if err := r.lawful(megabytes); err != nil || r.code == 0 || !strings.Contains(r.errs+r.out, says) {
		p.Errorf("ccmed %s: %v: %s%s\nwhich does not refuse with %q", r.commandLine, err, r.out, r.brief(), says)
	}
	return r
}

func (p place) read(names ...string) string {
	p.Helper()
	b, err := os.ReadFile(p.at(names...))
	if err != nil {
		p.Error(err)
	}
	return string(b)
}

// unmarked demands text without characters that steer a terminal.
func (p place) unmarked(what, text string) {
	p.Helper()
	for _, c := range text {
		if unicode.Is(unicode.Cc, c) && !strings.ContainsRune("\n\t\r", c) || unicode.Is(unicode.Bidi_Control, c) {
			p.Errorf("%s holds %U: %.300q", what, c, text)
			return
		}
	}
}

// edit changes a file of a run.
func (p place) edit(file, from, to string) {
	p.Helper()
	s := p.read(file)
	if !strings.Contains(s, from) {
		p.Fatalf("%s does not hold %s", file, from)
	}
	write(p, p.at(file), strings.Replace(s, from, to, 1))
}

// security are the lines of docs/security.md that are tried here, by their names there.
var security = map[string]func(place){
	"redirects": func(p place) {
		other := newServer(p)
		to := elsewhere(other.URL, http.StatusTemporaryRedirect)
		p.srv.spoil = func(w http.ResponseWriter, r *http.Request, a *answer) bool {
			if a.kind == "about" {
				return false
			}
			to.send(w, r, nil)
			return true
		}
		p.refuses(strings.TrimPrefix(other.URL, "http://"), append(p.ask("timing", "--out", "run"), "--patience", "1s")...)
		if other.requests > 0 {
			p.Errorf("the other address received %d requests", other.requests)
		}
	},
	"words_of_a_server": func(p place) {
		p.srv.spoil = func(w http.ResponseWriter, _ *http.Request, a *answer) bool {
			if a.kind == "about" {
				return false
			}
			w.WriteHeader(http.StatusBadRequest)
			_, _ = w.Write([]byte(encode(obj{"error": hostile})))
			return true
		}
		p.unmarked("standard error", p.refuses("input", p.ask("timing", "--out", "run")...).errs)
		r := call(p, p.dir, time.Minute, "runs", "show", "run")
		p.unmarked("runs show", r.out+r.errs)
	},
	"passwords": func(p place) {
		at := strings.Replace(p.srv.URL, "//", "//alice:PW-9@", 1)
		r := must(p, p.dir, append(p.ask("timing", "--out", "run"), "--host", at)...)
		told := r.out + r.errs + must(p, p.dir, "runs", "show", "run").out + must(p, p.dir, "report", "run", "--format", "json", "--out", "-").out
		told += call(p, p.dir, time.Minute, append(p.ask("timing", "--out", "gone"), "--host", "http://alice:PW-9@127.0.0.1:1")...).errs
		files, _ := filepath.Glob(p.at("run", "*"))
		for _, f := range files {
			told += p.read("run", filepath.Base(f))
		}
		if i := strings.Index(told, "PW-9"); i >= 0 {
			p.Errorf("the password is told: %s", told[max(0, i-200):i+4])
		}
	},
	"private_files": func(p place) {
		must(p, p.dir, "timing", "--model", model, "--host", p.srv.URL, "--data", "sample", "--limit", "1", "--out", "run")
		cached, _ := filepath.Glob(p.at(".cache", "*.db*"))
		for _, f := range append(cached, p.at("run", "log.txt")) {
			if st, err := os.Stat(f); err != nil || st.Mode().Perm()&0o077 != 0 {
				p.Errorf("%s: %v, %v; want 0600", f, st.Mode(), err)
			}
		}
		if len(cached) == 0 {
			p.Error("there is no cache")
		}
	},
	"links_among_records": func(p place) {
		for name, make := range map[string]func(string) error{
			"link": func(f string) error { return os.Symlink("/etc/passwd", f) },
			"zero": func(f string) error { return os.Symlink("/dev/zero", f) },
			"fifo": func(f string) error { return syscall.Mkfifo(f, 0o600) },
		} {
			must(p, p.dir, "data", "sample", name)
			if err := make(p.at(name, "9000.json")); err != nil {
				p.Fatal(err)
			}
			p.refuses("9000.json", "data", "validate", name)
			p.refuses("9000.json", append(p.ask("timing", "--out", name+"-run"), "--data", name)...)
		}
	},
	"text_of_records": func(p place) {
		must(p, p.dir, "data", "sample", "records")
		p.edit("records/9001.json", `"scenario_context": "`, `"scenario_context": `+strings.TrimSuffix(encode(hostile), `"`))
		p.edit("records/9002.json", `"message": "`, `"message": `+strings.TrimSuffix(encode(hostile), `"`))
		r := call(p, p.dir, time.Minute, append(p.ask("timing", "--out", "run"), "--data", "records", "--limit", "0")...)
		p.unmarked("standard error", r.errs)
		p.unmarked("standard output", r.out)
		if r.code == 0 {
			p.sinks("run")
		}
	},
	"name_of_a_model": func(p place) {
		r := call(p, p.dir, time.Minute, append(p.ask("timing", "--out", "run"), "--model", hostile)...)
		p.unmarked("standard error", r.errs)
		p.unmarked("standard output", r.out)
		if r.code == 0 {
			p.sinks("run")
		}
	},
	"programs_of_a_run": func(p place) {
		must(p, p.dir, p.ask("timing", "--out", "run")...)
		write(p, p.at("evil.sh"), "#!/bin/sh\ntouch "+p.at("started")+"\n")
		_ = os.Chmod(p.at("evil.sh"), 0o755)
		p.edit("run/manifest.json", `"status": "done"`, `"status": "interrupted"`)
		text := p.read("run", "manifest.json")
		command := regexp.MustCompile(`(?s)"command": \[.*?\]`)
		for _, c := range []string{`["sft","train","--python","./evil.sh","--base","x","--data","y"]`, `["sft","setup","--python","./evil.sh"]`, `["timing","--python","./evil.sh"]`,
			`["suite","run","evil.yaml"]`} {
			write(p, p.at("run", "manifest.json"), command.ReplaceAllString(text, `"command": `+c))
			p.refuses("run", "runs", "resume", "run")
		}
		if _, err := os.Stat(p.at("started")); err == nil {
			p.Error("the program was started")
		}
	},
	"servers_of_a_run": func(p place) {
		must(p, p.dir, p.ask("timing", "--out", "run")...)
		p.edit("run/manifest.json", `"status": "done"`, `"status": "interrupted"`)
		_ = os.Remove(p.at("run", "samples.jsonl"))
		before := p.srv.requests
		r := start(p, p.dir, []string{"CCMED_CACHE=" + p.at("another")}, "runs", "resume", "run").end(time.Minute)
		if r.code == 0 || !strings.Contains(r.errs, "--host") || p.srv.requests != before {
			p.Errorf("%d requests; %s", p.srv.requests-before, r.brief())
		}
	},
	"changed_samples": func(p place) {
		must(p, p.dir, p.ask("timing", "--out", "run")...)
		must(p, p.dir, append(p.ask("timing", "--out", "run2"), "--model", "other")...)
		p.edit("run/samples.jsonl", `"gold":3`, `"gold":4`)
		for _, args := range [][]string{{"runs", "verify", "run"}, {"runs", "show", "run"}, {"score", "run"}, {"compare", "run", "run2"}, {"runs", "export", "run", "--out", "-"},
			{"report", "run", "--out", "page.html"}} {
			if r := call(p, p.dir, time.Minute, args...); r.code == 0 && !strings.Contains(r.errs, "samples.jsonl") {
				p.Errorf("ccmed %s says nothing of the changed samples: %s", r.commandLine, r.brief())
			}
		}
	},
	"links_in_a_run": func(p place) {
		for _, name := range []string{"lock", "log.txt", "errors.jsonl", "samples.jsonl", "prompts.jsonl", "metrics.json", "manifest.json"} {
			run := "run-" + name
			must(p, p.dir, p.ask("timing", "--out", run)...)
			p.edit(run+"/manifest.json", `"status": "done"`, `"status": "interrupted"`)
			b := p.read(run, name)
			write(p, p.at("target"), b)
			_ = os.Remove(p.at(run, name))
			if err := os.Symlink(p.at("target"), p.at(run, name)); err != nil {
				p.Fatal(err)
			}
			for _, args := range [][]string{{"runs", "resume", run}, {"score", run}} {
				r := call(p, p.dir, time.Minute, args...)
				if err := r.lawful(megabytes); err != nil {
					p.Errorf("ccmed %s: %v", r.commandLine, err)
				}
			}
			if now := p.read("target"); now != b {
				p.Errorf("%s was written through a link: %d bytes became %d", name, len(b), len(now))
			}
		}
	},
	"out_and_pipes": func(p place) {
		must(p, p.dir, p.ask("timing", "--out", "run")...)
		if err := syscall.Mkfifo(p.at("pipe"), 0o600); err != nil {
			p.Fatal(err)
		}
		pipe, err := os.OpenFile(p.at("pipe"), os.O_RDWR|syscall.O_NONBLOCK, 0) // neither waits for the other side
		if err != nil {
			p.Fatal(err)
		}
		defer pipe.Close()
		r := call(p, p.dir, time.Minute, "runs", "export", "run", "--format", "csv", "--out", "pipe", "--force")
		if st, err := os.Lstat(p.at("pipe")); err != nil || st.Mode()&os.ModeNamedPipe == 0 {
			p.Errorf("the pipe was replaced: %v", err)
		}
		_ = pipe.SetReadDeadline(time.Now().Add(time.Second))
		if n, _ := pipe.Read(make([]byte, 100)); r.code == 0 && n == 0 {
			p.Error("nothing came through the pipe")
		}
		write(p, p.at("target"), "kept")
		_ = os.Symlink(p.at("target"), p.at("link"))
		p.refuses("link", "runs", "export", "run", "--format", "csv", "--out", "link", "--force")
		if p.read("target") != "kept" {
			p.Error("a link was followed")
		}
		// A device of the test's own: the machine's would be lost to everyone.
		if err := syscall.Mknod(p.at("null"), syscall.S_IFCHR|0o666, 1<<8|3); err != nil {
			p.Log("no device can be made: ", err)
			return
		}
		call(p, p.dir, time.Minute, "report", "run", "--out", "null", "--force")
		if st, err := os.Lstat(p.at("null")); err != nil || st.Mode()&os.ModeDevice == 0 {
			p.Errorf("the device was replaced: %v", err)
		}
	},
	"names_of_exports": func(p place) {
		for i, name := range []string{"..", "../../x", "/x", "a/../../x"} {
			run := fmt.Sprint("run", i)
			must(p, p.dir, append(p.ask("timing", "--out", run), "--model", name)...)
			if err := os.MkdirAll(p.at("deep", "deep"), 0o755); err != nil {
				p.Fatal(err)
			}
			call(p, p.dir, time.Minute, "runs", "export", run, "--format", "lm-eval", "--out", fmt.Sprint("deep/deep/", run))
		}
		out, _ := filepath.Glob(p.at("*results*"))
		more, _ := filepath.Glob(p.at("deep", "*"))
		if x, _ := filepath.Glob(p.at("x*")); len(out)+len(x) > 0 || len(more) > 1 {
			p.Errorf("written outside --out: %v %v %v", out, x, more)
		}
	},
	"settings_found": func(p place) {
		write(p, p.at("ccmed.yaml"), "limit: 1\n")
		if r := must(p, p.dir, "timing", "--model", model, "--host", p.srv.URL, "--data", "sample", "--out", "run", "--cache", "off"); !strings.Contains(r.errs, "ccmed.yaml") {
			p.Errorf("the settings file is not named: %s", r.brief())
		}
		for _, text := range []string{"host: http://192.0.2.1:11434\n", "sft:\n  train:\n    python: ./evil.sh\n", "out: elsewhere\n", "cache: elsewhere.db\n"} {
			write(p, p.at("ccmed.yaml"), text)
			p.refuses("ccmed.yaml", "timing", "--model", model, "--data", "sample", "--limit", "1")
		}
	},
	"expansions": func(p place) {
		var s strings.Builder
		s.WriteString("vars:\n  a: xxxxxxxxxx\n")
		for c := 'b'; c <= 'z'; c++ {
			fmt.Fprintf(&s, "  %c: \"%s\"\n", c, strings.Repeat(fmt.Sprintf("${%c}", c-1), 10))
		}
		write(p, p.at("wide.yaml"), s.String()+"steps:\n  - name: s\n    command: [timing, --model, \"${z}\"]\n")
		p.refuses("wide.yaml", "suite", "run", "wide.yaml", "--out", "made", "--dry-run")
		s.Reset()
		s.WriteString("a: &a [x,x,x,x,x,x,x,x,x,x]\n")
		for c := 'b'; c <= 'k'; c++ {
			fmt.Fprintf(&s, "%c: &%c [%s*%c]\n", c, c, strings.Repeat(fmt.Sprintf("*%c,", c-1), 9), c-1)
		}
		write(p, p.at("aliases.yaml"), s.String())
		p.refuses("aliases.yaml", "timing", "--config", "aliases.yaml", "--model", model, "--data", "sample")
		p.refuses("aliases.yaml", "suite", "show", "aliases.yaml")
		many := "vars: {l: [" + strings.Repeat("x,", 999) + "x]}\nsteps:\n  - name: s\n    matrix: {a: \"${l}\", b: \"${l}\", c: \"${l}\"}\n    command: [timing]\n"
		write(p, p.at("matrix.yaml"), many)
		p.refuses("matrix.yaml", "suite", "run", "matrix.yaml", "--out", "made", "--dry-run")
	},
	"interrupts": func(p place) {
		data := records(p, p.dir, scale(3, 20))
		must(p, p.dir, "mediate", "--model", model, "--host", p.srv.URL, "--data", data, "--cache", "off", "--card-items", "2", "--out", "run")
		stopped := 0
		for _, args := range [][]string{{"score", "run"}, {"runs", "show", "run"}, {"runs", "verify", "run"}, {"report", "run", "--out", "-"}, {"runs", "export", "run", "--out", "-"},
			{"metrics"}, {"score", data}, {"data", "validate", data}} {
			r, w, err := os.Pipe()
			if err != nil {
				p.Fatal(err)
			}
			c := prepare(p.dir, nil, args...)
			c.Stdin = r // nothing comes
			c.start(p)
			time.Sleep(60 * time.Millisecond)
			sent := time.Now()
			_ = c.Process.Signal(os.Interrupt)
			res := c.end(10 * time.Second)
			if took := time.Since(sent); res.hung || took > 1500*time.Millisecond {
				p.Errorf("ccmed %s ends %s after an interrupt", res.commandLine, took.Round(time.Millisecond))
			}
			if res.code == 130 || res.code == -1 && !res.hung { // -1: before it listened
				stopped++
			} else if res.code != 0 {
				p.Errorf("ccmed %s, interrupted: %s", res.commandLine, res.brief())
			}
			_, _ = r.Close(), w.Close()
		}
		if stopped < scale(1, 2) {
			p.Errorf("%d commands were interrupted; the others were done before", stopped)
		}
	},
	"python_packages": func(p place) {
		var all []string
		for _, pattern := range []string{"../../../scripts/requirements*.txt", "../../../sft/*requirements*.txt", "../../../sft/*.lock", "../../../scripts/*.lock"} {
			found, _ := filepath.Glob(pattern)
			all = append(all, found...)
		}
		locked := 0
		for _, f := range all {
			b, err := os.ReadFile(f)
			if err != nil {
				p.Fatal(err)
			}
			if !bytes.Contains(b, []byte("--hash=sha256:")) {
				continue // what is asked for; its lock lies beside it
			}
			locked++
			for _, entry := range regexp.MustCompile(`(?m)^[A-Za-z0-9_.\[\]-]+==[^\n]*(\n\s[^\n]*)*`).FindAllString(string(b), -1) {
				if !strings.Contains(entry, "--hash=sha256:") {
					p.Errorf("%s: without a hash: %s", f, entry)
				}
			}
		}
		if locked == 0 {
			p.Errorf("no list with hashes among %v", all)
		}
	},
	"templates_that_do_not_end": func(p place) {
		gguf := os.Getenv("CCMED_TEST_MODEL")
		if gguf == "" {
			missing(p.T, "no test model: CCMED_TEST_MODEL names no GGUF file")
		}
		for name, text := range map[string]string{"loop": "{% for i in range(999999999) %}x{% endfor %}", "nested": strings.Repeat("{% for i in range(99999) %}", 4) + "x" + strings.Repeat("{% endfor %}", 4)} {
			write(p, p.at(name+".jinja"), text)
			r := start(p, p.dir, engine(p.T), "timing", "--model", gguf, "--data", "sample", "--limit", "1", "--dry-run", "--chat-template", name+".jinja", "--cache", "off").end(30 * time.Second)
			if err := r.lawful(1500); err != nil || r.code == 0 {
				p.Errorf("%s: %v: %s", name, err, r.brief())
			}
		}
	},
}

// sinks sends a run everywhere that text goes.
func (p place) sinks(run string) {
	p.Helper()
	for _, args := range [][]string{{"runs", "show", run}, {"runs", "show", run, "--samples"}, {"runs", "ls", "."}, {"runs", "verify", run}, {"score", run}, {"runs", "show", run, "--item", "9002"}} {
		r := call(p, p.dir, time.Minute, args...)
		p.unmarked("ccmed "+strings.Join(args, " "), r.out+r.errs)
	}
	must(p, p.dir, "report", run, "--out", "page.html")
	html := p.read("page.html")
	for _, tag := range []string{"<script>alert", "<img src=x", "\x1b"} {
		if strings.Contains(html, tag) {
			p.Errorf("the page holds %q", tag)
		}
	}
	r := call(p, p.dir, time.Minute, "compare", run, run, "--format", "latex")
	if r.code == 0 && strings.Contains(r.out, `\input{`) {
		p.Error("LaTeX holds \\input")
	}
	p.unmarked("LaTeX", r.out)
}

// TestSecurity tries what docs/security.md promises, line by line.
func TestSecurity(t *testing.T) {
	for name, try := range security {
		t.Run(name, func(t *testing.T) { try(place{t, t.TempDir(), newServer(t)}) })
	}
}

var (
	testName = regexp.MustCompile("`(Test[A-Za-z]+)(?:/([a-z_]+))?`")
	testFunc = regexp.MustCompile(`(?m)^func (Test[A-Za-z]+)\(`)
)

// TestSecurityPage: every line of the page names a test, every test that it names is
// there, and everything that is tried here has its line.
func TestSecurityPage(t *testing.T) {
	there := map[string]bool{}
	err := filepath.WalkDir("../../..", func(path string, d fs.DirEntry, err error) error {
		if err == nil && strings.HasSuffix(path, "_test.go") {
			b, err := os.ReadFile(path)
			for _, m := range testFunc.FindAllSubmatch(b, -1) {
				there[string(m[1])] = true
			}
			return err
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile("../../../docs/security.md")
	if err != nil {
		t.Fatal(err)
	}
	named := map[string]bool{}
	for line := range strings.Lines(string(page)) {
		found := testName.FindAllStringSubmatch(line, -1)
		if strings.HasPrefix(line, "| ") && !strings.HasPrefix(line, "| what ") && len(found) == 0 {
			t.Errorf("no test stands beside: %s", line)
		}
		for _, m := range found {
			named[m[2]] = true
			if !there[m[1]] || m[2] != "" && security[m[2]] == nil {
				t.Errorf("there is no test %s", m[0])
			}
		}
	}
	for name := range security {
		if !named[name] {
			t.Errorf("TestSecurity/%s has no line", name)
		}
	}
}
