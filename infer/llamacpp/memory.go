package llamacpp

import (
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/hybridgroup/yzma/pkg/llama"
)

// FreeMemory is how many bytes of memory programs can still have; ok is false where the
// system does not tell (it is told by /proc/meminfo).
func FreeMemory() (bytes int64, ok bool) {
	b, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0, false
	}
	return free(string(b))
}

func free(meminfo string) (bytes int64, ok bool) {
	for line := range strings.Lines(meminfo) {
		rest, is := strings.CutPrefix(line, "MemAvailable:")
		if !is {
			continue
		}
		kilobytes, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 10, 64)
		return kilobytes * 1024, err == nil
	}
	return 0, false
}

// cacheBytes is what the keys and values of a context of n tokens take on every path: two
// vectors a token, block and key-value head, of two bytes a value. 0 where the model does not
// say how wide a head is.
func (e *Engine) cacheBytes(n int) int64 {
	heads, all := int64(llama.ModelNHeadKV(e.model)), int64(llama.ModelNHead(e.model))
	if heads <= 0 || all <= 0 {
		return 0
	}
	width := int64(e.width) / all
	architecture, _ := llama.ModelMetaValStr(e.model, "general.architecture")
	if text, ok := llama.ModelMetaValStr(e.model, architecture+".attention.key_length"); ok {
		if w, err := strconv.ParseInt(text, 10, 64); err == nil {
			width = w
		}
	}
	return int64(e.opts.Paths) * int64(n) * 2 * 2 * int64(e.blocks) * heads * width
}

// FitsMemory refuses a context of n tokens for which there is no memory. On a GPU llama.cpp
// refuses it itself; in main memory the system would end the program.
func (e *Engine) FitsMemory(n int) error {
	free, ok := FreeMemory()
	if need := e.cacheBytes(n); ok && !e.onGPU && need > free {
		return fmt.Errorf("llamacpp: %d token paths of %d tokens take %.1f GB of memory for %s, and %.1f GB are free; lower --num-ctx, or shorten what is asked",
			e.opts.Paths, n, float64(need)/1e9, e.opts.Name, float64(free)/1e9)
	}
	return nil
}
