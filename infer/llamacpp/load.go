package llamacpp

import (
	"context"
	"debug/elf"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"time"
	"unsafe"

	"github.com/ccmed/ccmed/infer"
	"github.com/ccmed/ccmed/infer/llamacpp/internal/libffi"
	"github.com/hybridgroup/yzma/pkg/llama"
	"github.com/hybridgroup/yzma/pkg/loader"
	"github.com/jupiterrider/ffi"
)

// Info says which llama.cpp is loaded and what it found on this machine.
type Info struct {
	Dir     string   `json:"dir"`
	Release string   `json:"release"`           // "v0.5.0"; empty for a build whose file names do not tell
	Devices []string `json:"devices"`           // "CPU: AMD EPYC 9654", "CUDA0: NVIDIA L40S (45 GiB)"
	GPU     bool     `json:"gpu"`               // whether a device other than the CPU was found
	System  string   `json:"system"`            // llama.cpp's line about the instruction sets in use
	Warning string   `json:"warning,omitempty"` // e.g. why a GPU variant runs on the CPU
	// What SelfCheck evaluated, when it was given a model.
	Model           *infer.Model `json:"model,omitempty"`
	Evaluated       int          `json:"evaluated,omitempty"`         // tokens
	TokensPerSecond float64      `json:"tokens_per_second,omitempty"` // of prefill, the load not counted
}

// library is the one llama.cpp of this process: shared libraries cannot be
// exchanged once they are loaded.
var library struct {
	sync.Mutex
	tried bool
	info  Info
	err   error
}

// Load loads the shared libraries in dir, or those that Locate finds when dir
// is empty, verifies that they are the release whose structs this package knows,
// and loads their CPU and GPU backends. It does so once in a process: later
// calls return the same result, and an error when they name another folder.
//
// A library that is not the expected release is refused with an error. One that
// fails an assertion of its own later ends the process; SelfCheck in a child
// process tells beforehand.
func Load(dir string) (Info, error) {
	if err := needLibffi(); err != nil {
		return Info{}, err
	}
	library.Lock()
	defer library.Unlock()
	if library.tried && (dir == "" || dir == library.info.Dir) {
		return library.info, library.err
	}
	if library.tried {
		return Info{}, fmt.Errorf("llamacpp: this process has loaded llama.cpp from %s already, not from %s", library.info.Dir, dir)
	}
	var err error
	if dir == "" {
		if dir, err = Locate(); err != nil {
			return Info{}, err
		}
	}
	if dir, err = filepath.Abs(dir); err != nil {
		return Info{}, fmt.Errorf("llamacpp: %w", err)
	}
	release, err := inspect(dir)
	if err != nil {
		return Info{}, err
	}
	library.tried = true // from here on the process holds the libraries
	library.info, library.err = loadFrom(dir, release)
	return library.info, library.err
}

var libffiMissing = libffi.Missing()

// needLibffi returns an *infer.MissingError where there is no libffi, with which
// llama.cpp is called. Nothing else needs it.
func needLibffi() error {
	if libffiMissing == nil {
		return nil
	}
	return &infer.MissingError{What: "libffi is missing, which the in-process engine calls llama.cpp with", Err: libffiMissing,
		Fix: "install it (Debian and Ubuntu: apt install libffi8; Fedora: dnf install libffi)"}
}

func loadFrom(dir, release string) (Info, error) {
	info := Info{Dir: dir, Release: release}
	if err := llama.Load(dir); err != nil {
		return info, fmt.Errorf("llamacpp: loading llama.cpp from %s: %w; ccmed needs release %s", dir, err, Release)
	}
	if err := verifyLayout(dir); err != nil {
		return info, err
	}
	llama.LogSet(logCallback())
	llama.BackendInit()
	if err := llama.GGMLBackendLoadAllFromPath(dir); err != nil {
		return info, fmt.Errorf("llamacpp: loading the backends in %s: %w", dir, err)
	}
	for i := range llama.GGMLBackendDeviceCount() {
		d := llama.GGMLBackendDeviceGet(i)
		s := llama.GGMLBackendDeviceName(d) + ": " + llama.GGMLBackendDeviceDescription(d)
		if !strings.HasPrefix(s, "CPU") {
			info.GPU = true
			if _, total := llama.GGMLBackendDeviceMemory(d); total > 0 {
				s += fmt.Sprintf(" (%d GiB)", total>>30)
			}
		}
		info.Devices = append(info.Devices, s)
	}
	if len(info.Devices) == 0 {
		return info, fmt.Errorf("llamacpp: llama.cpp in %s found no device to compute on: its CPU backend libraries (libggml-cpu-*) are missing", dir)
	}
	info.System = strings.TrimSpace(llama.PrintSystemInfo())
	if !info.GPU {
		info.Warning = whyNoGPU(dir)
	}
	return info, nil
}

// whyNoGPU says why a GPU backend that lies in dir was not used; llama.cpp's
// release builds skip it without a word.
func whyNoGPU(dir string) string {
	for _, name := range []string{"ggml-cuda", "ggml-vulkan"} {
		file := loader.GetLibraryFilename(dir, name)
		if _, err := os.Stat(file); err != nil {
			continue
		}
		if lib, err := ffi.Load(file); err != nil {
			return fmt.Sprintf("computing on the CPU: %v", err)
		} else if err := lib.Close(); err != nil {
			return fmt.Sprintf("computing on the CPU: closing %s: %v", file, err)
		}
		return fmt.Sprintf("computing on the CPU: %s loads but finds no device", filepath.Base(file))
	}
	return ""
}

// releaseInName finds the release in names such as libllama.cuda.v0.5.0.so,
// libllama.so.0.5.0 and libllama.0.5.0.dylib.
var releaseInName = regexp.MustCompile(`\.v?(\d+\.\d+\.\d+)(?:\.|$)`)

// inspect reads what can be known of the libraries in dir without running their
// code, and returns the release that their names tell, or "".
func inspect(dir string) (release string, err error) {
	if err := checkDir(dir); err != nil {
		return "", &infer.MissingError{What: "llama.cpp's shared libraries are not complete", Err: err,
			Fix: "run `ccmed engine install`, or link the missing names"}
	}
	for _, name := range []string{"ggml", "ggml-base", "llama"} {
		file := loader.GetLibraryFilename(dir, name)
		real, err := filepath.EvalSymlinks(file)
		if err != nil {
			return "", fmt.Errorf("llamacpp: %w", err)
		}
		names := []string{filepath.Base(real)}
		if runtime.GOOS == "linux" {
			soname, err := elfName(real)
			if err != nil {
				return "", fmt.Errorf("llamacpp: %s is not a shared library for this machine: %w; run `ccmed engine install`", file, err)
			}
			names = append(names, soname)
		}
		if name != "llama" { // ggml has version numbers of its own
			continue
		}
		for _, n := range names {
			m := releaseInName.FindStringSubmatch(n)
			if m == nil {
				continue
			}
			if release = "v" + m[1]; release != Release {
				return "", fmt.Errorf("llamacpp: %s is llama.cpp %s and ccmed needs %s, whose structs it knows; run `ccmed engine install`",
					file, release, Release)
			}
		}
	}
	return release, nil
}

// elfName returns the name that a shared library gives itself, and an error
// when the file is not a shared library for this processor.
func elfName(file string) (string, error) {
	f, err := elf.Open(file)
	if err != nil {
		return "", err
	}
	defer f.Close()
	machine, known := map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64}[runtime.GOARCH]
	if f.Type != elf.ET_DYN || known && f.Machine != machine {
		return "", fmt.Errorf("ELF %v for %v", f.Type, f.Machine)
	}
	names, err := f.DynString(elf.DT_SONAME)
	if err != nil || len(names) == 0 {
		return "", err
	}
	return names[0], nil
}

// The defaults of llama.cpp v0.5.0 (llama_model_default_params and
// llama_context_default_params in src/llama-model.cpp and
// src/llama-context.cpp). Their non-zero values are spread over the structs, so
// that a field added, removed or moved shows.
var (
	defaultModel = llama.ModelParams{NGpuLayers: -1, SplitMode: llama.SplitModeLayer, LoadMode: llama.LoadModeAuto,
		LazyMode: llama.LazyModeAuto, UseExtraBufts: 1}
	defaultContext = llama.ContextParams{NCtx: 512, NBatch: 2048, NUbatch: 512, NSeqMax: 1, NOutputsMaxPerSeq: 1,
		NThreads: 4, NThreadsBatch: 4, RopeScalingType: -1, PoolingType: -1, AttentionType: -1, FlashAttentionType: -1,
		YarnExtFactor: -1, YarnAttnFactor: -1, YarnBetaFast: -1, YarnBetaSlow: -1, DefragThold: -1,
		TypeK: llama.GGMLTypeF16, TypeV: llama.GGMLTypeF16, Offload_kqv: 1, NoPerf: 1, OpOffload: 1, SwaFull: 1}
)

// verifyLayout compares the size and the default values of llama.cpp's two
// parameter structs with what this package was compiled for. All that ccmed
// passes by value is in these and in llama_batch, which has not changed in years.
func verifyLayout(dir string) error {
	lib, err := loader.LoadLibrary(dir, "llama")
	if err != nil {
		return fmt.Errorf("llamacpp: loading llama.cpp from %s: %w", dir, err)
	}
	if err := sameDefaults(lib, "llama_model_default_params", defaultModel); err != nil {
		return fmt.Errorf("llamacpp: the llama.cpp in %s is not release %s: %w; run `ccmed engine install`", dir, Release, err)
	}
	if err := sameDefaults(lib, "llama_context_default_params", defaultContext); err != nil {
		return fmt.Errorf("llamacpp: the llama.cpp in %s is not release %s: %w; run `ccmed engine install`", dir, Release, err)
	}
	return nil
}

// sameDefaults calls a function that returns a struct, with far more room than
// the struct should need: a struct that has grown must not overwrite anything.
// Two calls over different fillings tell how much was written.
func sameDefaults[T comparable](lib loader.Lib, symbol string, want T) error {
	const words = 128
	fields := make([]*ffi.Type, words)
	for i := range fields {
		fields[i] = &ffi.TypeUint64
	}
	room := ffi.NewType(fields...)
	fn, err := lib.Prep(symbol, &room)
	if err != nil {
		return fmt.Errorf("%s: %w", symbol, err)
	}
	var a, b [words]uint64
	for i := range words {
		a[i], b[i] = 0xA5A5A5A5A5A5A5A5, 0x5A5A5A5A5A5A5A5A
	}
	fn.Call(&a)
	fn.Call(&b)
	runtime.KeepAlive(room)
	size := 0
	for i := range words {
		if a[i]^b[i] != ^uint64(0) { // a byte of it was written
			size = 8 * (i + 1)
		}
	}
	if size != int(unsafe.Sizeof(want)) {
		return fmt.Errorf("%s returns %d bytes, want %d", symbol, size, unsafe.Sizeof(want))
	}
	got := *(*T)(unsafe.Pointer(&a))
	if got == want {
		return nil
	}
	g, w := reflect.ValueOf(got), reflect.ValueOf(want)
	var moved []string
	for i := range g.NumField() {
		if x, y := g.Field(i), w.Field(i); !x.Equal(y) {
			moved = append(moved, fmt.Sprintf("%s is %#v, want %#v", g.Type().Field(i).Name, x, y))
		}
	}
	return fmt.Errorf("%s: %s", symbol, strings.Join(moved, ", "))
}

// SelfCheck loads the libraries and, when modelPath is not empty, that model,
// and evaluates a few tokens. A failed assertion in llama.cpp ends the process:
// call it in a child process to try an engine without risk.
func SelfCheck(ctx context.Context, modelPath string) (Info, error) {
	info, err := Load("")
	if err != nil || modelPath == "" {
		return info, err
	}
	e, err := Open(ctx, Options{ModelPath: modelPath, NumCtx: 256, GPULayers: -1})
	if err != nil {
		return info, err
	}
	defer e.Close()
	m, err := e.Model(ctx)
	if err != nil {
		return info, err
	}
	start := time.Now()
	reply, err := e.Chat(ctx, infer.Prompt{Raw: "One, two, three, four, five, six, seven, eight, nine,"}, infer.Params{MaxTokens: 1})
	if err != nil {
		return info, err
	}
	info.Model, info.Evaluated = &m, reply.Usage.Evaluated
	info.TokensPerSecond = float64(reply.Usage.Evaluated) / time.Since(start).Seconds()
	return info, nil
}
