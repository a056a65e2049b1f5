package main

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ccmed/ccmed/infer"
)

func TestDiagnose(t *testing.T) {
	var out bytes.Buffer
	a := &app{stdout: &out, getenv: func(string) string { return "" }}
	if err := a.diagnose([]finding{{"engine", ok, "llama.cpp", ""}, {"GPU", absent, "no nvidia-smi", "none is needed"}}); err != nil {
		t.Errorf("nothing is wrong: %v", err)
	}
	var missing *infer.MissingError
	err := a.diagnose([]finding{{"engine", faulty, "crashed", "ccmed engine install"}})
	if !errors.As(err, &missing) || exitCode(err) != exitMissing {
		t.Errorf("a fault ends with %v", err)
	}
	if s := out.String(); !strings.Contains(s, "ccmed engine install") || !strings.Contains(s, "no nvidia-smi") {
		t.Errorf("printed %q", s)
	}
}

func TestDiskUse(t *testing.T) {
	dir := t.TempDir()
	for name, n := range map[string]int{"a": 1000, "b/c": 500} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, make([]byte, n), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(filepath.Join(dir, "a"), filepath.Join(dir, "again")); err != nil {
		t.Fatal(err)
	}
	if n := diskUse(dir); n != 1500 {
		t.Errorf("%d bytes, want 1500: a link is no second file", n)
	}
	if n := diskUse(filepath.Join(dir, "nowhere")); n != 0 {
		t.Errorf("%d bytes where nothing is", n)
	}
	for n, want := range map[int64]string{0: "0 kB", 1500: "2 kB", 3e6: "3 MB", 5_400_000_000: "5.4 GB"} {
		if got := gigabytes(n); got != want {
			t.Errorf("%d bytes: %s, want %s", n, got, want)
		}
	}
}

func TestCheckDisk(t *testing.T) {
	f := checkDisk("disk of runs", filepath.Join(t.TempDir(), "not", "there", "yet"), "free some")
	if f.Result == ok != (f.Fix == "") || !strings.Contains(f.Detail, "free in ") {
		t.Errorf("%+v", f)
	}
}
