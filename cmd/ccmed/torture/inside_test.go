//go:build linux && !race

package torture

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// inside runs one of the tests below in namespaces of its own, where it may mount disks
// and has no network but loopback.
func inside(t *testing.T, name string, flags uintptr) {
	t.Helper()
	c := exec.Command(os.Args[0], "-test.run=^TestInside$", "-test.v", "-test.timeout=10m")
	c.Env = append(os.Environ(), "TORTURE_INSIDE="+name, "TORTURE_BINARY="+program)
	c.SysProcAttr = &syscall.SysProcAttr{Cloneflags: flags}
	if os.Getuid() != 0 {
		c.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
		c.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}}
		c.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}}
	}
	out, err := c.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		missing(t, "no namespaces here: "+err.Error())
	}
	for line := range strings.Lines(string(out)) {
		if strings.HasPrefix(line, "torture: ") {
			fmt.Print(line)
		}
	}
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	} else if strings.Contains(string(out), "--- SKIP") {
		missing(t, string(out))
	}
}

// TestInside is what inside starts.
func TestInside(t *testing.T) {
	switch os.Getenv("TORTURE_INSIDE") {
	case "disk":
		insideDisk(t)
	case "network":
		insideNetwork(t)
	}
}

// TestDisk fills disks, takes write permission away, and takes away locks.
func TestDisk(t *testing.T) {
	inside(t, "disk", syscall.CLONE_NEWNS)
}

// TestNetwork runs the program where there is no network but loopback, and looks at
// every address that it connects to.
func TestNetwork(t *testing.T) { inside(t, "network", syscall.CLONE_NEWNET) }

// mount makes a disk of so many kilobytes at a place, or changes the one that is there.
func mount(t *testing.T, at string, kilobytes int, flags uintptr) {
	t.Helper()
	if err := os.MkdirAll(at, 0o755); err != nil && flags&unix.MS_REMOUNT == 0 {
		t.Fatal(err)
	}
	if err := unix.Mount("tmpfs", at, "tmpfs", flags, fmt.Sprintf("size=%dk", kilobytes)); err != nil {
		t.Skip("no disk can be mounted: ", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(at, unix.MNT_DETACH) })
}

func insideDisk(t *testing.T) {
	if err := unix.Mount("", "/", "", unix.MS_PRIVATE|unix.MS_REC, ""); err != nil {
		t.Skip("mounts cannot be made private: ", err)
	}
	s := newServer(t)
	dir := t.TempDir()
	begin := []string{"timing", "--model", model, "--host", s.URL, "--data", "sample"}
	must(t, dir, slices.Concat(begin, []string{"--cache", "off", "--out", "whole"})...)
	want := runOutcome(t, filepath.Join(dir, "whole"))
	same := func(run string) {
		t.Helper()
		for name, is := range runOutcome(t, filepath.Join(dir, run)) {
			if is != want[name] && name != "identity" {
				t.Errorf("%s: %s is\n%.300s\nand without a fault\n%.300s", run, name, is, want[name])
			}
		}
	}
	full := 0
	refused := func(r result, says string) {
		t.Helper()
		full++
		if err := r.lawful(megabytes); err != nil || r.code == 0 || !strings.Contains(r.errs, says) {
			t.Errorf("ccmed %s: %v: %s, which does not say %q", r.commandLine, err, r.brief(), says)
		}
	}

	// A disk that fills at every stage of a run, and is given room again.
	for _, kb := range []int{4, 12, 24, 48, 80, 120} {
		name := fmt.Sprintf("disk%d", kb)
		mount(t, filepath.Join(dir, name), kb, 0)
		run := name + "/run"
		refused(call(t, dir, time.Minute, slices.Concat(begin, []string{"--cache", "off", "--out", run})...), "no space left")
		if err := os.RemoveAll(filepath.Join(dir, name, "x")); err != nil {
			t.Error(err)
		}
		mount(t, filepath.Join(dir, name), 8192, unix.MS_REMOUNT)
		again := []string{"runs", "resume", run}
		if _, err := os.Stat(filepath.Join(dir, run, "manifest.json")); err != nil {
			again = slices.Concat(begin, []string{"--cache", "off", "--out", run})
		}
		if r := call(t, dir, time.Minute, again...); r.code != 0 {
			t.Errorf("with room again after %d kB: ccmed %s: %s", kb, r.commandLine, r.brief())
			continue
		}
		same(run)
	}

	// A full disk below the response cache costs no answer: what cannot be opened is
	// refused at once, and what fills up is done without.
	for _, kb := range []int{4, 40, 100, 200} {
		at := filepath.Join(dir, fmt.Sprintf("cache%d", kb))
		mount(t, at, kb, 0)
		run := fmt.Sprintf("cached%d", kb)
		r := start(t, dir, []string{"CCMED_CACHE=" + at}, slices.Concat(begin, []string{"--out", run})...).end(time.Minute)
		switch {
		case kb < 100 && r.code == 1 && strings.Contains(r.errs, "--cache off"):
			refused(r, "full")
		case r.code != 0:
			t.Errorf("a cache on a disk of %d kB: %s", kb, r.brief())
		default:
			same(run)
		}
	}

	// Nothing that is printed gets lost in silence.
	for _, args := range [][]string{{"data", "validate", "sample"}, {"data", "stats", "sample"}, {"runs", "show", "whole"}, {"runs", "ls", "."}, {"score", "whole"},
		{"runs", "verify", "whole"}, {"runs", "export", "whole", "--format", "csv", "--out", "-"}, {"report", "whole", "--format", "json", "--out", "-"}, {"help"},
		{"suite", "show", "sft"}, {"suite", "ls"}, {"--version"}, {"doctor", "--host", s.URL}} {
		f, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		p := prepare(dir, nil, args...)
		p.Stdout = f
		p.start(t)
		refused(p.end(time.Minute), "no space left")
		_ = f.Close()
	}

	// A folder that cannot be written: it is read, and nothing else.
	mount(t, filepath.Join(dir, "fixed"), 8192, 0)
	if err := os.CopyFS(filepath.Join(dir, "fixed", "run"), os.DirFS(filepath.Join(dir, "whole"))); err != nil {
		t.Fatal(err)
	}
	mount(t, filepath.Join(dir, "fixed"), 8192, unix.MS_REMOUNT|unix.MS_RDONLY)
	for _, args := range [][]string{{"runs", "show", "fixed/run"}, {"runs", "verify", "fixed/run"}, {"report", "fixed/run", "--format", "json", "--out", "-"},
		{"runs", "export", "fixed/run", "--format", "csv", "--out", "-"}, {"runs", "ls", "fixed"}} {
		if r := call(t, dir, time.Minute, args...); r.code != 0 {
			t.Errorf("on a read-only disk, ccmed %s: %s", r.commandLine, r.brief())
		}
	}
	for _, args := range [][]string{slices.Concat(begin, []string{"--cache", "off", "--out", "fixed/new"}), {"report", "fixed/run", "--out", "fixed/page.html"},
		{"runs", "merge", "fixed/run", "fixed/run", "--out", "fixed/merged"}, {"data", "sample", "fixed/records"}, {"sft", "export", "--data", "sample", "--out", "fixed/sft"}} {
		r := call(t, dir, time.Minute, args...)
		if args[1] == "merge" {
			refused(r, "merge") // they are no shards
		} else {
			refused(r, "read-only")
		}
	}
	fmt.Printf("torture: disk: %d calls on full or read-only disks refused in words, 6 runs gone on with after a full disk\n", full)

	writers(t, dir, s, begin, same)
}

// writers starts two programs on one folder, with the lock and without it.
func writers(t *testing.T, dir string, s *server, begin []string, same func(string)) {
	s.delay = 2 * time.Millisecond
	rounds := scale(3, 20)
	refused, r := 0, chance("writers")
	for i := range rounds {
		out := fmt.Sprintf("two%d", i)
		args := slices.Concat(begin, []string{"--cache", "off", "--out", out})
		first := start(t, dir, nil, args...)
		time.Sleep(time.Duration(r.IntN(60)) * time.Millisecond)
		if i%2 == 1 { // the lock is taken away while the first one writes
			for time.Sleep(30 * time.Millisecond); ; time.Sleep(time.Millisecond) {
				if os.Remove(filepath.Join(dir, out, "lock")) == nil || time.Since(first.began) > time.Second {
					break
				}
			}
			args = []string{"runs", "resume", out}
		}
		second := start(t, dir, nil, args...)
		a, b := first.end(time.Minute), second.end(time.Minute)
		for _, x := range []result{a, b} {
			if err := x.lawful(megabytes); err != nil {
				t.Errorf("two writers: %v", err)
			}
			if x.code != 0 {
				refused++
			}
		}
		last := b
		for try := 0; !finished(filepath.Join(dir, out)) && try < 3; try++ {
			again := []string{"runs", "resume", out}
			if _, err := os.Stat(filepath.Join(dir, out, "manifest.json")); err != nil {
				again = slices.Concat(begin, []string{"--cache", "off", "--out", out})
			}
			last = call(t, dir, time.Minute, again...)
		}
		if !finished(filepath.Join(dir, out)) {
			t.Errorf("%s cannot be gone on with:\nfirst %s\nsecond %s\nthen %s", out, a.brief(), b.brief(), last.brief())
			continue
		}
		same(out)
	}
	fmt.Printf("torture: locks: %d times two writers, every second time with the lock taken away: %d refused, nothing double\n", rounds, refused)
}

var connects = regexp.MustCompile(`(?:connect|sendto|sendmsg)\(.*(?:sin_port=htons\((\d+)\), sin_addr=inet_addr\("([^"]+)"\)|sin6_port=htons\((\d+)\).*inet_pton\(AF_INET6, "([^"]+)")`)

func insideNetwork(t *testing.T) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	lo, err := unix.NewIfreq("lo")
	if err != nil {
		t.Fatal(err)
	}
	lo.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	if err := unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, lo); err != nil {
		t.Skip("loopback cannot be brought up: ", err)
	}
	_ = unix.Close(fd)
	strace, err := exec.LookPath("strace")
	if err != nil {
		t.Skip("no strace: apt-get install strace")
	}
	s := newServer(t)
	dir := t.TempDir()
	host := []string{"--model", model, "--host", s.URL, "--data", "sample", "--limit", "2"}
	calls, contacted := 0, map[string]int{}
	allowed := strings.TrimPrefix(s.URL, "http://")
	watched := func(alone bool, env []string, args ...string) {
		t.Helper()
		calls++
		log := filepath.Join(dir, fmt.Sprintf("trace%d", calls))
		p := prepare(dir, env)
		p.Path, p.Args = strace, append([]string{"strace", "-f", "-e", "trace=connect,sendto,sendmsg", "-o", log, program}, args...)
		p.start(t)
		if r := p.end(3 * time.Minute); r.code != 0 {
			t.Errorf("with loopback only, ccmed %s: %s", strings.Join(args, " "), r.brief())
		}
		b, err := os.ReadFile(log)
		if err != nil || len(b) == 0 {
			t.Fatalf("strace wrote nothing: %v", err)
		}
		for _, m := range connects.FindAllStringSubmatch(string(b), -1) {
			to := m[2] + ":" + m[1]
			if m[1] == "" {
				to = "[" + m[4] + "]:" + m[3]
			}
			contacted[to]++
			if to != allowed || alone {
				t.Errorf("ccmed %s contacts %s", strings.Join(args, " "), to)
			}
		}
	}
	watched(false, nil, slices.Concat([]string{"timing", "--out", "timing"}, host)...)
	watched(false, nil, slices.Concat([]string{"mediate", "--card-items", "1", "--out", "mediation"}, host)...)
	watched(false, nil, "timing", "--backend", "openai", "--model", model, "--host", s.URL+"/v1", "--data", "sample", "--limit", "2", "--out", "completions")
	if contacted[allowed] == 0 {
		t.Error("strace saw no connection to the server: it sees nothing")
	}
	for _, args := range [][]string{{"data", "validate", "sample"}, {"score", "timing"}, {"runs", "verify", "timing", "mediation"}, {"compare", "timing", "completions", "--force"},
		{"report", "timing", "mediation", "--out", "page.html"}, {"runs", "export", "timing", "--format", "inspect", "--out", "inspect.json"},
		{"sft", "export", "--data", "sample", "--out", "sft", "--fraction", "0.25"}, {"suite", "ls"}, {"help"}} {
		watched(true, nil, args...)
	}
	if gguf := os.Getenv("CCMED_TEST_MODEL"); gguf != "" {
		watched(true, engine(t), "timing", "--model", gguf, "--data", "sample", "--limit", "1", "--mode", "pick", "--cache", "off", "--out", "embedded")
	} else if require {
		t.Error("no test model: CCMED_TEST_MODEL names no GGUF file")
	}
	fmt.Printf("torture: network: %d calls with loopback only; addresses contacted: %v\n", calls, contacted)
}
