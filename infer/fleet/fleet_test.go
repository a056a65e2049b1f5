package fleet

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/ccmed/ccmed/infer/infertest"
)

// TestFreeGPU: before the embedded engine takes the GPU, what Ollama holds there
// is unloaded, and the user is told. Models in main memory stay.
func TestFreeGPU(t *testing.T) {
	const loaded = `{"models":[{"name":"big:9b","size":6000000000,"size_vram":5000000000},{"name":"small:1b","size":1000000000,"size_vram":0}]}`
	for _, c := range []struct {
		name      string
		gpuLayers int
		unloads   []string
	}{{"on the GPU", -1, []string{"big:9b"}}, {"on the CPU", 0, nil}} {
		s := infertest.NewServer(t)
		s.On("/api/ps", infertest.Response{Body: loaded})
		s.On("/api/generate", infertest.Response{Body: `{"model":"big:9b","done":true,"done_reason":"unload"}`})
		var stderr bytes.Buffer
		env := Env{Note: func(format string, args ...any) { fmt.Fprintf(&stderr, format, args...) }, Getenv: func(string) string { return "" }}
		f := &Fleet{env: env, flags: &Flags{GPULayers: c.gpuLayers, Hosts: []string{s.URL}}}
		if err := f.freeGPU(context.Background()); err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		var got []string
		for _, r := range s.Requests("/api/generate") {
			got = append(got, r.Body["model"].(string))
			if r.Body["keep_alive"] == nil {
				t.Errorf("%s: a request without keep_alive: %s", c.name, r.Raw)
			}
		}
		if strings.Join(got, " ") != strings.Join(c.unloads, " ") {
			t.Errorf("%s: unloaded %v, want %v", c.name, got, c.unloads)
		}
		if told := strings.Contains(stderr.String(), "big:9b"); told != (len(c.unloads) > 0) {
			t.Errorf("%s: the user reads %q", c.name, stderr.String())
		}
	}
}
