package doctor

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ccmed/ccmed/bench/report"
	"github.com/ccmed/ccmed/infer"
	"github.com/ccmed/ccmed/infer/fleet"
	"github.com/ccmed/ccmed/infer/infertest"
)

func TestDiagnose(t *testing.T) {
	if err := Diagnose([]Finding{{"engine", OK, "llama.cpp", ""}, {"GPU", Absent, "no nvidia-smi", "none is needed"}}, "1").Err(); err != nil {
		t.Errorf("nothing is wrong: %v", err)
	}
	d := Diagnose([]Finding{{"engine", Faulty, "crashed", "ccmed engine install"}, {"GPU", Absent, "no nvidia-smi", ""}}, "1")
	var missing *infer.MissingError
	if err := d.Err(); !errors.As(err, &missing) || d.Faults != 1 {
		t.Errorf("a fault ends with %v", err)
	}
	var b strings.Builder
	if err := report.Write(&b, report.Terminal, []report.Section{d.Section()}, report.Options{}); err != nil {
		t.Fatal(err)
	}
	if s := b.String(); !strings.Contains(s, "ccmed engine install") || !strings.Contains(s, "no nvidia-smi") {
		t.Errorf("printed %q", s)
	}
}

type obj = map[string]any

func TestDiskUse(t *testing.T) {
	dir := t.TempDir()
	for name, n := range map[string]int{"a": 1000, "b/c": 500} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, make([]byte, n), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(filepath.Join(dir, "a"), filepath.Join(dir, "again")); err != nil {
		t.Fatal(err)
	}
	if n := diskUse(t.Context(), dir); n != 1500 {
		t.Errorf("%d bytes, want 1500: a link is no second file", n)
	}
	if n := diskUse(t.Context(), filepath.Join(dir, "nowhere")); n != 0 {
		t.Errorf("%d bytes where nothing is", n)
	}
	for n, want := range map[int64]string{0: "0 kB", 1500: "2 kB", 3e6: "3 MB", 5_400_000_000: "5.4 GB"} {
		if got := gigabytes(n); got != want {
			t.Errorf("%d bytes: %s, want %s", n, got, want)
		}
	}
}

func TestCheckDisk(t *testing.T) {
	f := checkDisk("disk of runs", filepath.Join(t.TempDir(), "not", "there", "yet"), "free some")
	if f.Result == OK != (f.Fix == "") || !strings.Contains(f.Detail, "free in ") {
		t.Errorf("%+v", f)
	}
}

// A server whose log-probabilities are none is no server to measure with.
func TestDoctorSeesLogprobs(t *testing.T) {
	answer := func(logprobs func(i int) any) infertest.Response {
		top := []obj{}
		for i := range 20 {
			top = append(top, obj{"token": fmt.Sprint(i + 1), "logprob": logprobs(i)})
		}
		return infertest.Response{Body: obj{"model": "m", "usage": obj{"prompt_tokens": 30, "completion_tokens": 1}, "choices": []obj{{"finish_reason": "length",
			"message": obj{"content": "1"}, "logprobs": obj{"content": []obj{{"token": "1", "logprob": 0, "top_logprobs": top}}}}}}}
	}
	good := answer(func(i int) any { return -0.1 - 5*float64(i) })
	null := answer(func(int) any { return nil })
	without := infertest.Response{Body: obj{"model": "m", "choices": []obj{{"finish_reason": "length", "message": obj{"content": "1"}}}}}
	for name, c := range map[string]struct {
		answers []infertest.Response
		says    string
	}{
		"good":         {[]infertest.Response{good}, ""},
		"null":         {[]infertest.Response{null}, `the log-probability of "1" is missing`},
		"none":         {[]infertest.Response{without}, "the server returned no log-probabilities"},
		"logits":       {[]infertest.Response{answer(func(i int) any { return 14.2 - float64(i) })}, "above 0"},
		"more than 1":  {[]infertest.Response{answer(func(i int) any { return -0.1 })}, "add up to"},
		"now and then": {[]infertest.Response{good, good, null}, `the log-probability of "1" is missing`},
	} {
		s := infertest.NewServer(t).On("/v1/models", infertest.Response{Body: obj{"data": []obj{{"id": "m"}}}}).On("/v1/chat/completions", c.answers...)
		env := Env{Env: fleet.Env{Note: t.Logf, Getenv: func(string) string { return "" }}}
		fs, err := CheckModel(t.Context(), env, &fleet.Flags{Model: "m", Backend: "openai", Hosts: []string{s.URL + "/v1"}, Cache: "off", Concurrency: 1,
			Patience: time.Millisecond, RequestTimeout: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		said := ""
		for _, f := range fs {
			if f.Result == Faulty {
				said += f.Detail
			}
			if f.Check == "repeated choice" && c.says != "" {
				t.Errorf("%s: %s although nothing was scored", name, f.Detail)
			}
		}
		if (said == "") != (c.says == "") || !strings.Contains(said, c.says) {
			t.Errorf("%s: faults %q, want %q", name, said, c.says)
		}
	}
}
