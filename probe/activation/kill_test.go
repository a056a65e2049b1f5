package activation

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

const killedDir = "CCMED_TEST_KILLED_DIR"

func killedSpec() Spec {
	s := spec(F32)
	s.Samples, s.Width = 400, 1000 // rows that do not end where pages do
	return s
}

// A child process that writes states is killed three times, while it makes the
// file or puts rows, and started again. What it had said was done is there, and
// every other row is missing as a whole or there as a whole. The child gets leave
// for one sample at a time, the last time just before it is killed.
func TestKilledRunGoesOn(t *testing.T) {
	if dir := os.Getenv(killedDir); dir != "" {
		writeUntilKilled(t, dir)
		return
	}
	dir := t.TempDir()
	done := map[int]bool{}
	for _, lines := range []int{1, 60, 90} {
		cmd := exec.Command(os.Args[0], "-test.run=^TestKilledRunGoesOn$")
		cmd.Env = append(os.Environ(), killedDir+"="+dir)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		leave, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		for in := bufio.NewScanner(out); lines > 0 && in.Scan(); lines-- {
			var sample int
			if _, err := fmt.Sscanf(in.Text(), "done %d", &sample); err == nil {
				done[sample] = true
			} else if !strings.HasPrefix(in.Text(), "start") {
				t.Fatalf("the child says %q", in.Text())
			}
			if _, err := leave.Write([]byte{1}); err != nil {
				t.Fatal(err)
			}
		}
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait() // it was killed: the error is the point
	}
	if len(done) < 100 {
		t.Fatalf("only %d samples were done before the last kill", len(done))
	}
	f := mustCreate(t, dir, killedSpec())
	for l, name := range f.spec.Layers {
		r, err := f.Rows(name)
		if err != nil {
			t.Fatal(err)
		}
		for sample := range f.spec.Samples {
			missing := slices.Contains(r.Missing, sample)
			if missing && done[sample] {
				t.Errorf("layer %s of sample %d was done and is missing", name, sample)
			}
			if !missing && !slices.Equal(r.Row(sample), state(l, sample, f.spec.Width)) {
				t.Errorf("layer %s of sample %d is not what was put", name, sample)
			}
		}
	}
	a, err := f.Audit(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d samples done, %d of %d missing", len(done), len(a.Missing), f.spec.Samples)
}

func writeUntilKilled(t *testing.T, dir string) {
	fmt.Println("start")
	f, err := Create(t.Context(), dir, killedSpec())
	if err != nil {
		t.Fatal(err)
	}
	for sample := range f.spec.Samples {
		ok, err := f.Has(sample)
		if err != nil {
			t.Fatal(err)
		}
		if ok {
			continue
		}
		if _, err := os.Stdin.Read(make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
		for l := range f.spec.Layers {
			mustPut(t, f, l, sample, state(l, sample, f.spec.Width))
		}
		fmt.Println("done", sample)
	}
}
