package main

import (
	"bytes"
	"strings"
	"syscall"
	"testing"
	"time"
)

// full is a device without room.
type full struct{}

func (full) Write([]byte) (int, error) { return 0, syscall.ENOSPC }

// Every command whose results could not be written ends with 1, and says so.
func TestUnwritableOutput(t *testing.T) {
	t.Setenv("CCMED_CACHE", t.TempDir())
	f := newFake()
	defer f.Close()
	env := map[string]string{"OLLAMA_HOST": f.URL}
	t.Chdir(t.TempDir())
	for _, made := range []string{
		"timing --model fake --data sample --limit 3 --out runs/t",
		"timing --model other --data sample --limit 3 --out runs/u",
		"mediate --model fake --data sample --limit 2 --card-items 0 --out runs/m",
		"sft export --data sample --out data",
	} {
		if code, out, errs := exits(env, strings.Fields(made)...); code != exitDone {
			t.Fatalf("%s: exit code %d\n%s%s", made, code, out, errs)
		}
	}
	for _, call := range []string{
		"--help", "--version", "help exit-codes", "timing --help", "completion bash", "docs config-schema", "doctor --model fake", "doctor --json",
		"data stats sample", "data validate sample", "timing --model fake --data sample --limit 1 --dry-run",
		"timing --model fake --data sample --limit 1 --out runs/n", "score runs/t", "score runs/m --format reference", "metrics", "suite ls", "suite show sft",
		"suite run paper --set models=fake --set data=sample --out s --dry-run", "runs ls", "runs show runs/t", "runs show runs/t --json", "runs verify runs/t",
		"runs verify runs/t --json", "runs export runs/t --format csv --out -", "compare runs/t runs/u", "compare runs/t runs/u --format latex",
		"report runs/t --out -", "report runs/t --format md --out -", "probe report --help",
		"runs export runs/t --format csv --out /dev/full", "report runs/t --out /dev/full",
	} {
		var errs bytes.Buffer
		a := &app{stdin: strings.NewReader("{}\n"), stdout: full{}, stderr: &errs, now: time.Now, getenv: func(k string) string { return env[k] }}
		if code := a.main(strings.Fields(call)); code != exitFailed || !strings.Contains(errs.String(), "no space left on device") {
			t.Errorf("%s: exit code %d, %s", call, code, errs.String())
		}
	}
}
