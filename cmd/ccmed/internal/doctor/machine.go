package doctor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ccmed/ccmed/infer"
	"github.com/ccmed/ccmed/infer/fleet"
	"github.com/ccmed/ccmed/infer/llamacpp"
	"github.com/ccmed/ccmed/infer/ollama"
	"github.com/ccmed/ccmed/sft"
)

// Env is what doctor takes of the program.
type Env struct {
	fleet.Env
	// Engine looks at the engine, with a GGUF file unless it is "": a library that crashes
	// must not take the program along.
	Engine func(ctx context.Context, model string) (llamacpp.Info, error)
}

// CheckMachine checks everything that needs no model.
func CheckMachine(ctx context.Context, env Env, m *fleet.Flags) []Finding {
	var out []Finding
	usable := m.Backend == "openai" // then --host names that server, which the model's check asks
	var hosts []string
	if !usable {
		hosts = m.OllamaHosts(env.Getenv)
	}
	for _, h := range hosts {
		f := checkOllama(ctx, h)
		usable = usable || f.Result == OK
		out = append(out, f)
	}
	gpu := checkGPU(ctx)
	engine := checkEngine(ctx, env, m, gpu.Result == OK)
	usable = usable || engine.Result == OK
	out = append(out, engine)
	if !usable {
		out = append(out, Finding{"a way to run models", Faulty, "neither a server nor the engine", "ccmed engine install"})
	}
	out = append(out, gpu, checkPython(ctx), checkTraining(ctx), checkDisk("disk of runs", "runs", "free some, or put runs elsewhere with --out"))
	if dir, err := llamacpp.CacheDir(); err != nil {
		out = append(out, Finding{"cache folder", Faulty, err.Error(), "set CCMED_CACHE"})
	} else {
		out = append(out, checkDisk("disk of caches", dir, "free some, or put caches elsewhere with CCMED_CACHE"), checkCache(ctx, dir))
	}
	return append(out, checkLimits(), Finding{"machine", OK, machine(), ""})
}

func checkOllama(ctx context.Context, host string) Finding {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	name := "Ollama at " + fleet.HostName(host)
	v, err := ollama.Version(ctx, host)
	if err != nil {
		return Finding{name, Absent, "no answer", "start it with `ollama serve`, or name another with --host"}
	}
	models, err := ollama.Models(ctx, host)
	switch {
	case err != nil:
		return Finding{name, Faulty, err.Error(), "restart the server"}
	case len(models) == 0:
		return Finding{name, OK, "version " + v + ", no models", "ollama pull gemma2:2b"}
	}
	const most = 5
	names := make([]string, 0, most)
	for _, x := range models[:min(most, len(models))] {
		names = append(names, x.Name)
	}
	detail := fmt.Sprintf("version %s, %d models: %s", v, len(models), strings.Join(names, ", "))
	if len(models) > most {
		detail += ", ..."
	}
	return Finding{name, OK, detail, ""}
}

func checkEngine(ctx context.Context, env Env, m *fleet.Flags, gpu bool) Finding {
	model := ""
	if strings.HasSuffix(strings.ToLower(m.Model), ".gguf") {
		model = m.Model
	}
	i, err := env.Engine(ctx, model)
	var missing *infer.MissingError
	switch {
	case errors.As(err, &missing) && missing.Err != nil:
		return Finding{"engine", Faulty, fmt.Sprintf("%s: %v", missing.What, missing.Err), missing.Fix}
	case missing != nil:
		return Finding{"engine", Absent, "not installed", "ccmed engine install"}
	case err != nil:
		return Finding{"engine", Faulty, err.Error(), "ccmed engine install"}
	}
	f := Finding{"engine", OK, fmt.Sprintf("llama.cpp %s in %s; %s", i.Release, i.Dir, strings.Join(i.Devices, ", ")), ""}
	if ffi := loadedLibrary("libffi"); ffi != "" {
		f.Detail += "; " + ffi
	}
	switch {
	case i.Warning != "":
		f.Detail += "; " + i.Warning
		f.Fix = "ccmed engine install --variant cuda12"
	case gpu && !i.GPU:
		f.Detail += "; the GPU is not used"
		f.Fix = "ccmed engine install --variant cuda"
	}
	return f
}

// loadedLibrary returns the file of a shared library that this process has loaded,
// where the system tells.
func loadedLibrary(name string) string {
	b, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(b)) {
		if i := strings.Index(line, "/"); i >= 0 && strings.Contains(line[i:], "/"+name) {
			return strings.TrimSpace(line[i:])
		}
	}
	return ""
}

// output runs a program of the system for at most ten seconds.
func output(ctx context.Context, name string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.WaitDelay = 100 * time.Millisecond // what it started may hold its output open
	out, err := cmd.Output()
	return strings.ReplaceAll(strings.TrimSpace(string(out)), "\n", "; "), err
}

func checkGPU(ctx context.Context) Finding {
	out, err := output(ctx, "nvidia-smi", "--query-gpu=name,memory.total,memory.free,driver_version", "--format=csv,noheader")
	switch {
	case errors.Is(err, exec.ErrNotFound):
		return Finding{"GPU", Absent, "no nvidia-smi", "none is needed for small models; on a workstation install its driver"}
	case err != nil:
		return Finding{"GPU", Faulty, strings.TrimSpace("nvidia-smi fails: " + err.Error() + " " + out), "reboot, or install the driver again"}
	}
	return Finding{"GPU", OK, out + " (name, memory, free, driver)", ""}
}

func checkPython(ctx context.Context) Finding {
	out, err := output(ctx, "python3", "--version")
	fix := "install Python 3.11 or newer"
	if err != nil {
		return Finding{"Python", Absent, "no python3 for fine-tuning", fix}
	}
	var major, minor int
	if n, err := fmt.Sscanf(out, "Python %d.%d", &major, &minor); err == nil && n == 2 && (major < 3 || major == 3 && minor < 11) {
		return Finding{"Python", Absent, out + " is too old for fine-tuning", fix}
	}
	return Finding{"Python", OK, out, ""}
}

// checkTraining looks at the environment that `ccmed sft setup` makes.
func checkTraining(ctx context.Context) Finding {
	const name = "Python packages of training"
	python, err := sft.DefaultPython()
	var missing *infer.MissingError
	switch {
	case errors.As(err, &missing):
		return Finding{name, Absent, "not installed", "ccmed sft setup"}
	case err != nil:
		return Finding{name, Faulty, err.Error(), "ccmed sft setup"}
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	e, err := sft.CheckPython(ctx, python)
	if err != nil {
		return Finding{name, Faulty, err.Error(), "delete " + filepath.Dir(filepath.Dir(python)) + ", then: ccmed sft setup"}
	}
	detail := fmt.Sprintf("torch %s, transformers %s, %d GPUs that torch sees", e.Packages["torch"], e.Packages["transformers"], len(e.GPUs))
	if len(e.Differences) > 0 {
		detail += "; not the tested versions: " + strings.Join(e.Differences, ", ")
	}
	return Finding{name, OK, detail, ""}
}

// leastDisk is what a run of some hundred dialogues with hidden states, or a small
// model, needs.
const leastDisk = 2e9

func checkDisk(name, path, fix string) Finding {
	free, err := sft.FreeDisk(path)
	if err != nil {
		return Finding{name, Faulty, err.Error(), fix}
	}
	if abs, err := filepath.Abs(path); err == nil {
		path = abs
	}
	f := Finding{name, OK, fmt.Sprintf("%s free in %s", gigabytes(free), path), ""}
	if free < leastDisk {
		f.Result, f.Fix = Faulty, fix
	}
	return f
}

// checkCache says what lies in the cache folder, each part with its size. Files
// that go while it looks are left out.
func checkCache(ctx context.Context, dir string) Finding {
	parts := []struct{ name, path string }{{"engine", "engine"}, {"responses", "responses.db"}, {"models", "models"}, {"Python", "python"}, {"checkpoints", "checkpoints"}}
	var out []string
	for _, p := range parts {
		if n := diskUse(ctx, filepath.Join(dir, p.path)); n > 0 {
			out = append(out, p.name+" "+gigabytes(n))
		}
	}
	if len(out) == 0 {
		return Finding{"caches", OK, "empty", ""}
	}
	return Finding{"caches", OK, strings.Join(out, ", ") + "; each may be deleted, and is made again when it is needed", ""}
}

func diskUse(ctx context.Context, path string) (n int64) {
	// What cannot be read has no size to tell.
	_ = filepath.WalkDir(path, func(_ string, d fs.DirEntry, err error) error {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			return nil
		}
		if info, err := d.Info(); err == nil && info.Mode().IsRegular() {
			n += info.Size()
		}
		return nil
	})
	return n
}

func gigabytes(n int64) string {
	switch {
	case n >= 1e9:
		return fmt.Sprintf("%.1f GB", float64(n)/1e9)
	case n >= 1e6:
		return fmt.Sprintf("%.0f MB", float64(n)/1e6)
	}
	return fmt.Sprintf("%.0f kB", float64(n)/1e3)
}

// leastFiles allows a store of hidden states with all its cells open, and servers.
const leastFiles = 256

func checkLimits() Finding {
	var l unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &l); err != nil {
		return Finding{"open files", Faulty, err.Error(), "ulimit -n 4096"}
	}
	f := Finding{"open files", OK, fmt.Sprintf("at most %d", l.Cur), ""}
	if l.Cur < leastFiles {
		f.Result, f.Fix = Faulty, "ulimit -n 4096"
	}
	return f
}

// machine describes the system and its memory, where it tells.
func machine() string {
	s := fmt.Sprintf("%s/%s, %d cores", runtime.GOOS, runtime.GOARCH, runtime.NumCPU())
	b, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return s
	}
	for _, field := range []struct{ name, what string }{{"MemTotal:", "memory"}, {"MemAvailable:", "free for programs"}} {
		for line := range strings.Lines(string(b)) {
			var kilobytes int64
			rest, ok := strings.CutPrefix(line, field.name)
			if !ok {
				continue
			}
			if _, err := fmt.Sscan(rest, &kilobytes); err == nil {
				s += fmt.Sprintf(", %s %s", gigabytes(kilobytes*1024), field.what)
			}
		}
	}
	return s
}
