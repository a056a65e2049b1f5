package sft

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ccmed/ccmed/infer"
)

// interpreter stands in for the Python that makes an environment: "-m venv DIR"
// copies it there, "-m pip" runs the commands given, and asked for packages it has
// all in the version 1.
func interpreter(t *testing.T, pip string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "python3")
	script := `#!/bin/sh
case "$1 $2" in
"-m venv") mkdir -p "$3/bin" && cp "$0" "$3/bin/python" ;;
"-m pip") ` + pip + ` ;;
*)
	shift
	printf '{"python":"p","version":"3.12.1","packages":{"none":null'
	for p in "$@"; do printf ',"%s":"1"' "$p"; done
	printf '},"gpus":[{"name":"L4","bytes":24000000000}]}' ;;
esac
`
	if err := os.WriteFile(file, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	return file
}

func TestSetup(t *testing.T) {
	t.Setenv("CCMED_CACHE", t.TempDir())
	var missing *infer.MissingError
	if _, err := DefaultPython(); !errors.As(err, &missing) {
		t.Errorf("an environment before there is one: %v", err)
	}
	dir, err := VenvDir()
	if err != nil {
		t.Fatal(err)
	}
	var said bytes.Buffer
	broken := interpreter(t, `echo 'ERROR: No matching distribution found for torch==2.15.0' >&2; exit 1`)
	_, err = Setup(t.Context(), dir, broken, &said)
	if err == nil || !strings.HasPrefix(err.Error(), "pip cannot install the packages: No matching distribution found for torch==2.15.0 (exit status 1); see ") || !strings.Contains(err.Error(), filepath.Join(dir, venvLog)) {
		t.Errorf("a pip that fails: %v", err)
	}
	if !strings.Contains(read(t, dir, venvLog), "No matching distribution") {
		t.Error("pip's words are not kept")
	}

	works := interpreter(t, `echo 'Collecting a'; echo '  Downloading torch-2.15.0.whl (800 MB)'; [ "$3 $7" = "install --require-hashes" ] && grep -q sha256 "${13}" || exit 9`)
	e, err := Setup(t.Context(), dir, works, &said)
	if err != nil {
		t.Fatalf("an environment that broke off is not made again: %v", err)
	}
	if e.Version != "3.12.1" || len(e.GPUs) != 1 || e.GPUs[0].Bytes != 24e9 || e.Packages["torch"] != "1" || len(e.Differences) == 0 || e.Packages[quantizer] != "1" {
		t.Errorf("environment %+v", e)
	}
	if s := said.String(); !strings.Contains(s, "Downloading torch-2.15.0.whl") || strings.Contains(s, "Collecting") {
		t.Errorf("progress:\n%s", s)
	}
	if p, err := DefaultPython(); err != nil || p != VenvPython(dir) {
		t.Errorf("the environment is not found: %s, %v", p, err)
	}
	// A whole one is not made again.
	if _, err := Setup(t.Context(), dir, "/nowhere/python", &said); err != nil {
		t.Error(err)
	}
}

func TestSetupRefuses(t *testing.T) {
	t.Setenv("CCMED_CACHE", t.TempDir())
	mine := t.TempDir()
	if err := os.WriteFile(filepath.Join(mine, "thesis.tex"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Setup(t.Context(), mine, "python3", &bytes.Buffer{}); err == nil || !strings.Contains(err.Error(), "holds something else") {
		t.Errorf("a folder of the user's: %v", err)
	}
	if _, err := os.Stat(filepath.Join(mine, "thesis.tex")); err != nil {
		t.Error(err)
	}
	var missing *infer.MissingError
	if _, err := Setup(t.Context(), filepath.Join(t.TempDir(), "v"), "/nowhere/python3", &bytes.Buffer{}); !errors.As(err, &missing) {
		t.Errorf("no interpreter: %v", err)
	}
}

func TestSetupIsInterrupted(t *testing.T) {
	t.Setenv("CCMED_CACHE", t.TempDir())
	dir := filepath.Join(t.TempDir(), "v")
	slow := interpreter(t, `touch "$(dirname "$0")/../begun"; sleep 60`)
	ctx, cancel := context.WithCancel(t.Context())
	begun := closing(t, filepath.Join(dir, "begun"))
	go func() { <-begun; cancel() }()
	start := time.Now()
	if _, err := Setup(ctx, dir, slow, &bytes.Buffer{}); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
	if d := time.Since(start); d > 20*time.Second {
		t.Errorf("it took %s to stop", d)
	}
}

func TestScriptsAreUnpacked(t *testing.T) {
	t.Setenv("CCMED_CACHE", t.TempDir())
	dir, err := UnpackScripts()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"train_dual_head.py", "gguf_checkpoint.py", "merge_dual_head.py", "reference_dual_head.py", "environment.py"} {
		want := read(t, filepath.Join("..", "scripts"), name)
		if got := read(t, dir, name); got != want {
			t.Errorf("%s is not the repository's", name)
		}
	}
	// One that was changed is put back: the folder's name tells the content.
	file := filepath.Join(dir, "environment.py")
	if err := os.WriteFile(file, []byte("import os"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := UnpackScripts(); err != nil || read(t, dir, "environment.py") == "import os" {
		t.Errorf("a changed program is kept (%v)", err)
	}
}
