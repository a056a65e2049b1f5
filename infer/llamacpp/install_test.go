package llamacpp

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"crypto/sha512"
	"encoding/base64"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/ccmed/ccmed/infer"
)

// archive writes an npm archive with the given files and returns its path and
// integrity.
func archive(t *testing.T, files map[string]string, more ...tar.Header) (path, integrity string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "package.tgz")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	z := gzip.NewWriter(f)
	w := tar.NewWriter(z)
	for name, content := range files {
		if err := w.WriteHeader(&tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: 0o644, Size: int64(len(content))}); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(content)); err != nil {
			t.Fatal(err)
		}
	}
	whole := true
	for _, h := range more {
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		whole = whole && h.Size == 0
	}
	if err := w.Close(); whole && err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(z.Close(), f.Close()); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	sum := sha512.Sum512(b)
	return path, "sha512-" + base64.StdEncoding.EncodeToString(sum[:])
}

// fakeNPM puts an npm on the PATH that packs the given archive.
func fakeNPM(t *testing.T, script string) {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "npm"), []byte("#!/bin/sh\n"+script), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+string(os.PathListSeparator)+os.Getenv("PATH"))
}

// published gives this platform's CPU variant one package with the integrity.
func published(t *testing.T, integrity string) {
	t.Helper()
	key := runtime.GOOS + "/" + runtime.GOARCH + "/" + CPU
	was, ok := packages[key]
	packages[key] = []npmPackage{{"@test/engine", integrity}}
	t.Cleanup(func() {
		if delete(packages, key); ok {
			packages[key] = was
		}
	})
}

func TestInstall(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("the packages are laid out for Linux")
	}
	cache := t.TempDir()
	t.Setenv("CCMED_CACHE", cache)
	path, integrity := archive(t, map[string]string{
		"package/LICENSE":                              "MIT",
		"package/package.json":                         "{}",
		"package/bins/linux-x64/libllama.v0.5.0.so":    "llama",
		"package/bins/linux-x64/libggml.cpu.v0.5.0.so": "ggml",
		"package/bins/linux-x64/libggml-base.so":       "base",
		"package/bins/linux-x64/llama-addon.node":      "addon",
	}, tar.Header{Name: "package/bins/", Typeflag: tar.TypeDir})
	fakeNPM(t, `[ "$1 $2 $3" = "pack @test/engine@`+npmVersion+` --pack-destination" ] || exit 9; cp `+path+` "$4"/`)
	published(t, integrity)
	var progress strings.Builder
	dir, err := Install(context.Background(), "", &progress)
	if err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	want := []string{"LICENSE", "libggml-base.so", "libggml.cpu.v0.5.0.so", "libggml.so", "libllama.so", "libllama.v0.5.0.so"}
	if !slices.Equal(names, want) {
		t.Errorf("installed %v, want %v", names, want)
	}
	for plain, content := range map[string]string{"libllama.so": "llama", "libggml.so": "ggml"} {
		if b, err := os.ReadFile(filepath.Join(dir, plain)); err != nil || string(b) != content {
			t.Errorf("%s: %q, %v", plain, b, err)
		}
	}
	if !strings.Contains(progress.String(), dir) {
		t.Errorf("progress %q does not say where", progress.String())
	}
	fakeNPM(t, "exit 1")
	if again, err := Install(context.Background(), CPU, nil); err != nil || again != dir {
		t.Errorf("installing again: %q, %v; want npm not asked", again, err)
	}
	if err := os.Remove(filepath.Join(dir, "libggml-base.so")); err != nil {
		t.Fatal(err)
	}
	fakeNPM(t, `cp `+path+` "$4"/`)
	if _, err := Install(context.Background(), CPU, nil); err != nil || checkDir(dir) != nil {
		t.Errorf("mending a broken installation: %v, %v", err, checkDir(dir))
	}
}

func TestInstallFails(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("the packages are laid out for Linux")
	}
	path, integrity := archive(t, map[string]string{"package/bins/libllama.v0.5.0.so": "llama"})
	for _, c := range []struct {
		name, script, integrity, want string
		missing                       bool
	}{
		{"another file than was published", `cp ` + path + ` "$4"/`, "sha512-AAAA", "not what was published", false},
		{"libraries missing in it", `cp ` + path + ` "$4"/`, integrity, "has no libggml.so, libggml-base.so", false},
		{"no network", "echo ENOTFOUND >&2; exit 1", integrity, "ENOTFOUND", true},
		{"npm writes nothing", "exit 0", integrity, "0 archives", false},
		{"not an archive", `echo x > "$4"/x.tgz`, "sha512-ibWGkBFGzJ0PXnbWYtLLVslCXhQI0ec8wB4TM32aTz2GiMqsKVi6rjqmFUrr7PZfuTOl3VCUdYoW+tSh1VTbWg==", "", false},
	} {
		cache := t.TempDir()
		t.Setenv("CCMED_CACHE", cache)
		fakeNPM(t, c.script)
		published(t, c.integrity)
		_, err := Install(context.Background(), CPU, nil)
		var missing *infer.MissingError
		if err == nil || !strings.Contains(err.Error(), c.want) || errors.As(err, &missing) != c.missing {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
		if left, err := os.ReadDir(filepath.Join(cache, "engine")); err != nil || len(left) > 0 {
			t.Errorf("%s left %v behind (%v)", c.name, left, err)
		}
	}
	for name, h := range map[string]tar.Header{
		"leads out of the folder": {Name: "../../outside.so", Typeflag: tar.TypeReg},
		"/etc/x.so":               {Name: "/etc/x.so", Typeflag: tar.TypeReg},
		"is a link":               {Name: "package/bins/libllama.so", Typeflag: tar.TypeSymlink, Linkname: "/etc/passwd"},
		"libhard.so":              {Name: "package/libhard.so", Typeflag: tar.TypeLink, Linkname: "/etc/passwd"},
		"device":                  {Name: "package/null", Typeflag: tar.TypeChar},
		"2048 MiB a file":         {Name: "package/huge.so", Typeflag: tar.TypeReg, Size: maxEntry + 1},
	} {
		cache := t.TempDir()
		t.Setenv("CCMED_CACHE", cache)
		path, integrity := archive(t, map[string]string{"package/LICENSE": "MIT"}, h)
		fakeNPM(t, `cp `+path+` "$4"/`)
		published(t, integrity)
		if _, err := Install(context.Background(), CPU, nil); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("an archive with %s: %v", name, err)
		}
		if left, err := os.ReadDir(filepath.Join(cache, "engine")); err != nil || len(left) > 0 {
			t.Errorf("an archive with %s left %v behind (%v)", name, left, err)
		}
	}
	path, _ = archive(t, map[string]string{"package/a.txt": strings.Repeat("a", 700), "package/b.txt": strings.Repeat("b", 700)})
	if err := unpack(path, t.TempDir(), 1000); err == nil || !strings.Contains(err.Error(), "MiB in all") {
		t.Errorf("entries of more than most bytes in all: %v", err)
	}
	t.Setenv("PATH", t.TempDir())
	var missing *infer.MissingError
	if _, err := Install(context.Background(), CPU, nil); !errors.As(err, &missing) || !strings.Contains(missing.Fix, "install npm") {
		t.Errorf("no npm: %v", err)
	}
	if _, err := Install(context.Background(), "rocm", nil); err == nil || !strings.Contains(err.Error(), "cuda, cuda12, vulkan, cpu") {
		t.Errorf("an unknown variant: %v", err)
	}
}

func TestCacheDir(t *testing.T) {
	for _, c := range []struct{ ccmed, xdg, home, want string }{
		{"/a", "/b", "/c", "/a"}, {"", "/b", "/c", "/b/ccmed"}, {"", "", "/c", "/c/.cache/ccmed"}, {"", "relative", "/c", "/c/.cache/ccmed"},
	} {
		t.Setenv("CCMED_CACHE", c.ccmed)
		t.Setenv("XDG_CACHE_HOME", c.xdg)
		t.Setenv("HOME", c.home)
		if got, err := CacheDir(); err != nil || got != c.want {
			t.Errorf("CCMED_CACHE=%q XDG_CACHE_HOME=%q: %q, %v; want %q", c.ccmed, c.xdg, got, err, c.want)
		}
	}
}
