package sft

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/gofrs/flock"

	"github.com/ccmed/ccmed/bench/disk"
	"github.com/ccmed/ccmed/bench/report"
	"github.com/ccmed/ccmed/infer"
	"github.com/ccmed/ccmed/infer/llamacpp"
	"github.com/ccmed/ccmed/scripts"
)

// Environment is a Python that trains.
type Environment struct {
	Python   string            `json:"python"`  // path of the interpreter
	Version  string            `json:"version"` // of Python
	Packages map[string]string `json:"packages"`
	GPUs     []GPU             `json:"gpus"` // that torch sees
	// Differences are packages whose version is not the one that this program was
	// tested with, as "torch 2.14.0 (tested with 2.15.0)".
	Differences []string `json:"differences,omitempty"`
}

// Names lists the packages in order.
func (e *Environment) Names() []string { return sortedKeys(e.Packages) }

// GPU is a device that torch can train on.
type GPU struct {
	Name  string `json:"name"`
	Bytes int64  `json:"bytes"` // of memory
}

// requirement is a package with its version.
type requirement struct{ name, version string }

// requirements reads the packages that a training environment needs.
func requirements() ([]requirement, error) {
	b, err := scripts.Files.ReadFile(scripts.Training)
	if err != nil {
		return nil, fmt.Errorf("read the requirements of training: %w", err)
	}
	var out []requirement
	for line := range strings.Lines(string(b)) {
		line, _, _ = strings.Cut(line, "#")
		if name, version, ok := strings.Cut(strings.TrimSpace(line), "=="); ok {
			out = append(out, requirement{name, version})
		}
	}
	return out, nil
}

// quantizer is the package behind 4-bit training; an environment need not have it.
const quantizer = "bitsandbytes"

// CheckPython asks a Python for the packages of training. A missing interpreter
// or package is an *infer.MissingError; other versions are noted in
// Environment.Differences.
func CheckPython(ctx context.Context, python string) (*Environment, error) {
	needed, err := requirements()
	if err != nil {
		return nil, err
	}
	dir, err := UnpackScripts()
	if err != nil {
		return nil, err
	}
	args := []string{filepath.Join(dir, "environment.py"), quantizer}
	for _, r := range needed {
		args = append(args, r.name)
	}
	cmd := exec.Command(python, args...)
	var out bytes.Buffer
	cmd.Stdout = &out
	if err := runGroup(ctx, cmd); err != nil {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		return nil, &infer.MissingError{What: "the Python " + python + " does not run", Err: err, Fix: "name another with --python, or make one with: ccmed sft setup"}
	}
	var answer struct {
		Environment
		Packages map[string]*string `json:"packages"`
		Torch    string             `json:"torch_error"`
	}
	if err := json.Unmarshal(out.Bytes(), &answer); err != nil {
		return nil, fmt.Errorf("ask %s for its packages: %w", python, err)
	}
	e := &answer.Environment
	e.Packages = map[string]string{}
	var missing []string
	for _, r := range needed {
		switch v := answer.Packages[r.name]; {
		case v == nil:
			missing = append(missing, r.name+"=="+r.version)
		case *v != r.version:
			e.Differences = append(e.Differences, fmt.Sprintf("%s %s (tested with %s)", r.name, *v, r.version))
			fallthrough
		default:
			e.Packages[r.name] = *v
		}
	}
	if v := answer.Packages[quantizer]; v != nil {
		e.Packages[quantizer] = *v
	}
	if len(missing) > 0 {
		return nil, &infer.MissingError{What: fmt.Sprintf("%s lacks packages of training", python),
			Fix: fmt.Sprintf("install them with `%s -m pip install %s`, or make an environment with: ccmed sft setup", python, strings.Join(missing, " "))}
	}
	if answer.Torch != "" {
		return nil, &infer.MissingError{What: fmt.Sprintf("torch does not load in %s", python), Err: errors.New(answer.Torch),
			Fix: "install it again, or make an environment with: ccmed sft setup"}
	}
	return e, nil
}

// UnpackScripts writes the Python programs into the cache folder, under a name
// that tells their content, and returns the folder.
func UnpackScripts() (string, error) {
	cache, err := llamacpp.CacheDir()
	if err != nil {
		return "", fmt.Errorf("find the cache folder: %w", err)
	}
	digest, err := ScriptsDigest()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(cache, "scripts", digest[:12])
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("unpack the Python programs: %w", err)
	}
	err = eachScript(func(name string, b []byte) error {
		path := filepath.Join(dir, name)
		if have, err := os.ReadFile(path); err == nil && bytes.Equal(have, b) {
			return nil
		}
		return disk.WriteEntry(path, b, 0o644)
	})
	if err != nil {
		return "", fmt.Errorf("unpack the Python programs: %w", err)
	}
	return dir, nil
}

// ScriptsDigest identifies the Python programs: the SHA-256 of their names and
// contents, in hexadecimal.
func ScriptsDigest() (string, error) {
	var all bytes.Buffer
	err := eachScript(func(name string, b []byte) error {
		fmt.Fprintf(&all, "%s %s\n", sum(b), name)
		return nil
	})
	return sum(all.Bytes()), err
}

func eachScript(do func(name string, b []byte) error) error {
	return fs.WalkDir(scripts.Files, ".", func(name string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		b, err := scripts.Files.ReadFile(name)
		if err != nil {
			return err
		}
		return do(name, b)
	})
}

// Files in a virtual environment that Setup makes.
const (
	venvMark     = "ccmed-environment" // Setup began it, and may do so again
	venvComplete = "ccmed-complete"    // the packages are in
	venvLog      = "pip.log"
)

// VenvDir returns where Setup makes the environment unless told otherwise: in the
// cache folder, under a name that changes with the requirements.
func VenvDir() (string, error) {
	cache, err := llamacpp.CacheDir()
	if err != nil {
		return "", fmt.Errorf("find the cache folder: %w", err)
	}
	lock, err := scripts.Files.ReadFile(scripts.TrainingLock)
	if err != nil {
		return "", fmt.Errorf("read the requirements of training: %w", err)
	}
	return filepath.Join(cache, "python", "sft-"+sum(lock)[:12]), nil
}

// VenvPython returns the interpreter of a virtual environment.
func VenvPython(dir string) string { return filepath.Join(dir, "bin", "python") }

// DefaultPython returns the interpreter of the environment that Setup made, or an
// *infer.MissingError where there is none.
func DefaultPython() (string, error) {
	dir, err := VenvDir()
	if err != nil {
		return "", err
	}
	if _, err := os.Stat(filepath.Join(dir, venvComplete)); err != nil {
		return "", &infer.MissingError{What: "there is no Python environment for training", Fix: "make one with: ccmed sft setup, or name your own with --python"}
	}
	return VenvPython(dir), nil
}

// Setup makes a virtual environment with what training needs, by pip, and checks
// it. base is the Python to make it with. A complete one is only checked; one
// that broke off is made again; a folder with anything else is refused. What pip
// does is told to progress, and all it says goes into pip.log of the environment.
func Setup(ctx context.Context, dir, base string, progress io.Writer) (*Environment, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("make the environment: %w", err)
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return nil, fmt.Errorf("make the environment: %w", err)
	}
	lock := flock.New(dir + ".lock")
	if ok, err := lock.TryLock(); err != nil {
		return nil, fmt.Errorf("lock the environment: %w", err)
	} else if !ok {
		return nil, fmt.Errorf("another process is making %s; wait for it", dir)
	}
	defer func() { _ = lock.Unlock() }() // closing the file frees it in any case
	if _, err := os.Stat(filepath.Join(dir, venvComplete)); err == nil {
		return CheckPython(ctx, VenvPython(dir))
	}
	if err := venvPlace(dir); err != nil {
		return nil, err
	}
	fmt.Fprintf(progress, "making %s\n", dir)
	if err := runGroup(ctx, exec.Command(base, "-m", "venv", dir)); err != nil {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		return nil, &infer.MissingError{What: fmt.Sprintf("%s makes no virtual environment", base), Err: err,
			Fix: "install Python 3.11 or later with its venv module (Debian: apt install python3-venv), or name one with --python"}
	}
	programs, err := UnpackScripts()
	if err != nil {
		return nil, err
	}
	fmt.Fprintln(progress, "installing torch, transformers and others (3 GB to fetch, 6 GB on disk)")
	if err := pip(ctx, dir, filepath.Join(programs, scripts.TrainingLock), progress); err != nil {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(dir, venvComplete), nil, 0o644); err != nil {
		return nil, fmt.Errorf("make the environment: %w", err)
	}
	return CheckPython(ctx, VenvPython(dir))
}

// venvPlace makes an empty folder for an environment, in place of one that Setup
// began and did not finish.
func venvPlace(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("make the environment: %w", err)
	}
	if len(entries) > 0 {
		if _, err := os.Stat(filepath.Join(dir, venvMark)); err != nil {
			return fmt.Errorf("%s holds something else; name a new folder with --venv, or use an environment of your own with --python", dir)
		}
		if err := os.RemoveAll(dir); err != nil {
			return fmt.Errorf("remove the unfinished environment: %w", err)
		}
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("make the environment: %w", err)
	}
	if err := os.WriteFile(filepath.Join(dir, venvMark), []byte("made by ccmed sft setup\n"), 0o644); err != nil {
		return fmt.Errorf("make the environment: %w", err)
	}
	return nil
}

// pipInstall is pip's part of a command line that installs nothing but files whose
// hashes are in the list that follows -r, which is whole. Building a package would
// fetch tools without a hash.
var pipInstall = []string{"-m", "pip", "install", "--disable-pip-version-check", "--only-binary", ":all:", "--require-hashes", "--no-deps"}

// pip installs a list of packages into an environment.
func pip(ctx context.Context, dir, list string, progress io.Writer) error {
	log, err := os.Create(filepath.Join(dir, venvLog))
	if err != nil {
		return fmt.Errorf("make the environment: %w", err)
	}
	defer log.Close()
	output, says := io.Pipe()
	done := make(chan struct{})
	go func() {
		defer close(done)
		lines := bufio.NewScanner(output)
		for lines.Scan() {
			line := strings.TrimSpace(lines.Text())
			switch first, _, _ := strings.Cut(line, " "); first {
			case "Downloading", "Using", "Installing": // "Using cached …"
				fmt.Fprintf(progress, "  %s\n", report.Shorten(line, 100))
			}
		}
		_, _ = io.Copy(io.Discard, output) // a line too long for the scanner must not stop pip
	}()
	cmd := exec.Command(VenvPython(dir), slices.Concat(pipInstall, []string{"--no-input", "--progress-bar", "off", "-r", list})...)
	cmd.Stdout = io.MultiWriter(log, says)
	cmd.Stderr = log
	err = runGroup(ctx, cmd)
	_ = says.Close() // never fails
	<-done
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case err != nil:
		return fmt.Errorf("pip cannot install the packages: %s; see %s, then run ccmed sft setup again", pipReason(err), log.Name())
	}
	return nil
}

// pipReason takes the reason out of the error of a pip that failed.
func pipReason(err error) string {
	return report.Shorten(strings.TrimPrefix(err.Error(), "ERROR: "), 300)
}
