package fleet

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

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

// Roles of several models are open together, each model once; another role closes them.
func TestTogether(t *testing.T) {
	t.Parallel()
	s := infertest.NewServer(t)
	s.On("/v1/models", infertest.Response{Body: `{"data":[{"id":"a"},{"id":"b"},{"id":"c"}]}`})
	env := Env{Note: func(string, ...any) {}, Getenv: func(string) string { return "" }}
	flags := &Flags{Model: "a", Backend: "openai", Hosts: []string{s.URL + "/v1"}, Concurrency: 2, Cache: "off", RequestTimeout: time.Second}
	f, err := New(env, flags, map[string]string{"mediator": "", "party": "b", "evaluator": "b", "judge": "c"})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	ctx := context.Background()
	workers, err := f.Together(ctx, []string{"mediator", "party", "evaluator"})
	if err != nil {
		t.Fatal(err)
	}
	if len(workers) != 2 || len(workers[1]) != 3 {
		t.Fatalf("the workers are %v", workers)
	}
	if f.Raw("mediator") == nil || f.Raw("party") == nil || f.Raw("party") != f.Raw("evaluator") || f.Raw("mediator") == f.Raw("party") || f.Raw("judge") != nil {
		t.Error("not each model of the roles is open once")
	}
	open := f.Raw("party")
	if _, err := f.Workers(ctx, "party"); err != nil || f.Raw("party") != open || f.Raw("mediator") == nil {
		t.Errorf("one of the roles opens its model anew, %v", err)
	}
	if _, err := f.Workers(ctx, "judge"); err != nil || f.Raw("party") != nil || f.Raw("mediator") != nil {
		t.Errorf("another role's model is opened beside them, %v", err)
	}
	if _, err := f.Together(ctx, []string{"nobody"}); err == nil {
		t.Error("a role without a model is lent")
	}
}
