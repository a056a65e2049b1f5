package fleet

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/ccmed/ccmed/infer"
	"github.com/ccmed/ccmed/infer/infertest"
)

// TestServersThatHoldOneModel: models that are asked in turn are held together, or the run
// stops once all have answered.
func TestServersThatHoldOneModel(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, loaded string
		allow        bool
		missing      string
	}{
		{"both", `{"models": [{"name": "a:latest"}, {"name": "b:9b"}, {"name": "c:latest"}]}`, false, ""},
		{"one", `{"models": [{"name": "b:9b"}]}`, false, "a is out of memory"},
		{"one, allowed", `{"models": [{"name": "b:9b"}]}`, true, ""},
	} {
		s := infertest.NewServer(t)
		s.On("/api/ps", infertest.Response{Body: c.loaded})
		f := &Fleet{flags: &Flags{AllowReload: c.allow}}
		f.watchServers([]spec{{backend: "ollama", model: "a"}, {backend: "ollama", model: "b:9b"}, {backend: "ollama", model: "a"}, {backend: "embedded", model: "m.gguf"}})
		a, b := &watched{nil, f, s.URL, "a"}, &watched{nil, f, s.URL, "b:9b"}
		var errs []error
		for _, w := range []*watched{a, a, b, a, b} {
			errs = append(errs, w.answered(context.Background()))
		}
		if errs[0] != nil || errs[1] != nil || errs[3] != nil || errs[4] != nil {
			t.Errorf("%s: %v", c.name, errs)
		}
		var gone *infer.MissingError
		if c.missing == "" && errs[2] != nil || c.missing != "" && (!errors.As(errs[2], &gone) || !strings.Contains(gone.Error(), c.missing)) {
			t.Errorf("%s: once both have answered: %v", c.name, errs[2])
		}
	}
	f := &Fleet{flags: &Flags{}}
	if f.watchServers([]spec{{backend: "ollama", model: "a"}}); f.watch != nil {
		t.Error("one model is watched")
	}
}

func TestSlotsBelowPaths(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		slots, concurrency int
		told               string
	}{{0, 1, "along 3 token paths and the server keeps 1"}, {2, 1, "NUM_PARALLEL=3"}, {3, 1, ""}, {3, 2, "along 6"}, {6, 2, ""}} {
		told := ""
		env := Env{Note: func(f string, args ...any) { told += fmt.Sprintf(f, args...) }, Getenv: func(string) string { return "" }}
		f, err := New(env, &Flags{Model: "a", Cache: "off", Concurrency: c.concurrency, Slots: c.slots, RequestTimeout: time.Second}, map[string]string{"party": "", "mediator": "", "evaluator": "b"})
		if err != nil {
			t.Fatal(err)
		}
		f.SetPaths(map[string]int{"party": 2, "mediator": 1})
		f.noteSlots()
		if (told == "") != (c.told == "") || !strings.Contains(told, c.told) || strings.Count(told, "--slots)") > 1 {
			t.Errorf("%d slots, %d at a time: %q", c.slots, c.concurrency, told)
		}
		if n := f.pathsOf(f.roles["party"]); n != 3 {
			t.Errorf("%d paths, want 3", n)
		}
		_ = f.Close()
	}
}
