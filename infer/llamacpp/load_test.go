package llamacpp

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ccmed/ccmed/infer"
	"github.com/hybridgroup/yzma/pkg/llama"
	"github.com/hybridgroup/yzma/pkg/loader"
)

func TestInspect(t *testing.T) {
	need(t)
	installed, err := Locate()
	if err != nil {
		t.Fatal(err)
	}
	if release, err := inspect(installed); err != nil || release != Release {
		t.Fatalf("the installed engine: %q, %v", release, err)
	}
	// Each case is a folder with libggml.so, libggml-base.so and libllama.so
	// made as given: a copy of the real one under a name of its own, or text.
	for _, c := range []struct {
		name  string
		files map[string]string // plain name to the file it links to; "" for text
		want  string
	}{
		{"missing files", map[string]string{"libggml.so": "libggml.v0.5.0.so"}, "has no libggml-base.so, libllama.so"},
		{"text", map[string]string{"libggml.so": "libggml.v0.5.0.so", "libggml-base.so": "libggml-base.v0.5.0.so", "libllama.so": ""},
			"libllama.so is not a shared library for this machine"},
		{"another release", map[string]string{"libggml.so": "libggml.v0.4.0.so", "libggml-base.so": "libggml-base.so.1", "libllama.so": "libllama.cuda.v0.4.0.so"},
			"is llama.cpp v0.4.0 and ccmed needs v0.5.0"},
		{"a release of cmake's naming", map[string]string{"libggml.so": "libggml.so.0.25.1", "libggml-base.so": "libggml-base.so.0.25.1", "libllama.so": "libllama.so.0.6.1"},
			"is llama.cpp v0.6.1"},
	} {
		dir := t.TempDir()
		for plain, real := range c.files {
			if real == "" {
				if err := os.WriteFile(filepath.Join(dir, plain), []byte("not a library\n"), 0o600); err != nil {
					t.Fatal(err)
				}
				continue
			}
			copyFile(t, filepath.Join(installed, plain), filepath.Join(dir, real))
			if err := os.Symlink(real, filepath.Join(dir, plain)); err != nil && !errors.Is(err, os.ErrExist) {
				t.Fatal(err)
			}
		}
		if _, err := inspect(dir); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	r, err := os.Open(from)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	w, err := os.Create(to)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(w, r); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestSameDefaults: a struct of another size, and a value in another place, are
// both noticed.
func TestSameDefaults(t *testing.T) {
	need(t)
	info, err := Load("")
	if err != nil {
		t.Fatal(err)
	}
	lib, err := loader.LoadLibrary(info.Dir, "llama")
	if err != nil {
		t.Fatal(err)
	}
	if err := sameDefaults(lib, "llama_context_default_params", defaultContext); err != nil {
		t.Error(err)
	}
	moved := defaultContext
	moved.NBatch, moved.NUbatch = moved.NUbatch, moved.NBatch
	if err := sameDefaults(lib, "llama_context_default_params", moved); err == nil || !strings.Contains(err.Error(), "NBatch is 0x800, want 0x200") {
		t.Errorf("two fields exchanged: %v", err)
	}
	type longer struct {
		llama.ContextParams
		Extra uint64
	}
	if err := sameDefaults(lib, "llama_context_default_params", longer{ContextParams: defaultContext}); err == nil || !strings.Contains(err.Error(), "bytes, want") {
		t.Errorf("a longer struct: %v", err)
	}
	if err := sameDefaults(lib, "llama_no_such_function", defaultModel); err == nil {
		t.Error("a function that is not there was called")
	}
	if _, err := Load(t.TempDir()); err == nil || !strings.Contains(err.Error(), info.Dir) {
		t.Errorf("a second folder: %v, want the first one named", err)
	}
}

func TestLocate(t *testing.T) {
	cache := t.TempDir()
	t.Setenv("CCMED_CACHE", cache)
	t.Setenv("YZMA_LIB", "")
	var missing *infer.MissingError
	if _, err := Locate(); !errors.As(err, &missing) || !strings.Contains(missing.Fix, "ccmed engine install") {
		t.Errorf("nothing installed: %v", err)
	}
	put := func(dir string) string {
		t.Helper()
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"ggml", "ggml-base", "llama"} {
			if err := os.WriteFile(loader.GetLibraryFilename(dir, name), nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		return dir
	}
	for _, variant := range []string{CPU, Vulkan, CUDA12, CUDA} { // each is preferred to those before
		want := put(filepath.Join(cache, "engine", "llama.cpp-"+Release+"-"+variant))
		if got, err := Locate(); err != nil || got != want {
			t.Errorf("with %s installed: %q, %v", variant, got, err)
		}
	}
	own := put(t.TempDir())
	t.Setenv("YZMA_LIB", own)
	if got, err := Locate(); err != nil || got != own {
		t.Errorf("with YZMA_LIB: %q, %v", got, err)
	}
	if err := os.Remove(loader.GetLibraryFilename(own, "ggml-base")); err != nil {
		t.Fatal(err)
	}
	if _, err := Locate(); !errors.As(err, &missing) || !strings.Contains(err.Error(), "libggml-base") {
		t.Errorf("YZMA_LIB without a library: %v", err)
	}
}

// TestSelfCheck tries the engine as doctor does, in a child process, and reads
// what llama.cpp writes to standard error: nothing, unless it is asked to.
func TestSelfCheck(t *testing.T) {
	if os.Getenv("CCMED_SELF_CHECK_CHILD") == "1" {
		info, err := SelfCheck(context.Background(), os.Getenv("CCMED_TEST_MODEL"))
		if err != nil {
			t.Fatal(err)
		}
		if err := json.NewEncoder(os.Stdout).Encode(info); err != nil {
			t.Fatal(err)
		}
		os.Exit(0)
	}
	need(t)
	for _, log := range []string{"", "1"} {
		var stdout, stderr strings.Builder
		cmd := exec.Command(os.Args[0], "-test.run=^TestSelfCheck$")
		cmd.Env = append(os.Environ(), "CCMED_SELF_CHECK_CHILD=1", "CCMED_LLAMA_LOG="+log)
		cmd.Stdout, cmd.Stderr = &stdout, &stderr
		if err := cmd.Run(); err != nil {
			t.Fatalf("%v: %s%s", err, stdout.String(), stderr.String())
		}
		var info Info
		if err := json.Unmarshal([]byte(stdout.String()), &info); err != nil {
			t.Fatalf("%v: %s", err, stdout.String())
		}
		if info.Release != Release || len(info.Devices) == 0 || info.Model == nil || info.Model.Architecture != "llama" || info.Evaluated < 10 {
			t.Errorf("self-check: %+v", info)
		}
		if (stderr.Len() > 0) != (log == "1") {
			t.Errorf("CCMED_LLAMA_LOG=%q: llama.cpp wrote %d bytes of log", log, stderr.Len())
		}
	}
}
