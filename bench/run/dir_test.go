package run

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ccmed/ccmed/infer"
)

func TestNewName(t *testing.T) {
	now := time.Date(2026, 11, 30, 6, 12, 0, 0, time.FixedZone("CEST", 2*3600))
	for _, c := range []struct{ task, model, want string }{
		{"timing", "smollm2", `^20261130T0412-timing-smollm2-[0-9a-f]{4}$`},
		{"timing", "hf.co/Org/SmolLM2:135M, gemma", `^20261130T0412-timing-smollm2-135m-gemma-[0-9a-f]{4}$`},
		{"timing", "模型", `^20261130T0412-timing-x-[0-9a-f]{4}$`},
	} {
		if got := NewName(c.task, c.model, now); !regexp.MustCompile(c.want).MatchString(got) {
			t.Errorf("NewName(%q, %q) = %q, want %s", c.task, c.model, got, c.want)
		}
	}
}

func TestCreateRefuses(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	full := filepath.Join(dir, "full")
	if err := os.MkdirAll(filepath.Join(full, "holiday"), 0o755); err != nil {
		t.Fatal(err)
	}
	finished := filepath.Join(dir, "finished")
	if err := create(t, finished).Close(StatusDone); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ name, path, want string }{
		{"a file", file, "--out"},
		{"below a file", filepath.Join(file, "run"), "--out"},
		{"a folder with other things", full, "holiday"},
		{"a finished run", finished, "ccmed runs resume"},
	} {
		d, err := Create(c.path, identity(), nil)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want one with %q", c.name, err, c.want)
		}
		if d != nil {
			t.Errorf("%s: a run was made", c.name)
		}
	}
	if _, err := os.Stat(filepath.Join(full, lockFile)); !errors.Is(err, fs.ErrNotExist) {
		t.Error("a lock was left in a folder that is not a run")
	}
	bad := identity()
	bad.Options["f"] = func() {}
	if _, err := Create(filepath.Join(dir, "new"), bad, nil); err == nil {
		t.Error("an identity that JSON cannot hold was accepted")
	}
}

// A run that is killed at its beginning is its user's all the same.
func TestFirstManifestIsSealed(t *testing.T) {
	path := filepath.Join(t.TempDir(), "run")
	d, err := Create(path, Identity{Task: "t"}, []string{"timing"}, func(command []string, _ string) string { return command[0] + " sealed" })
	if err != nil {
		t.Fatal(err)
	}
	m, err := readManifest(path)
	if err != nil || m.Sessions[0].Seal != "timing sealed" {
		t.Errorf("%+v, %v", m.Sessions, err)
	}
	if err := d.Close(StatusFailed); err != nil {
		t.Fatal(err)
	}
}

func TestReadOnlyFolder(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Skip("root may write to every folder")
	}
	dir := filepath.Join(t.TempDir(), "run")
	if err := os.Mkdir(dir, 0o555); err != nil {
		t.Fatal(err)
	}
	if _, err := Create(dir, identity(), nil); !errors.Is(err, fs.ErrPermission) || !strings.Contains(err.Error(), "--out") {
		t.Errorf("error %v", err)
	}
}

// What a Create leaves behind that was killed before it wrote its manifest does
// not spoil the folder.
func TestCreateAfterKilledCreate(t *testing.T) {
	path := t.TempDir()
	for _, name := range []string{lockFile, "." + ManifestFile + "12345"} {
		if err := os.WriteFile(filepath.Join(path, name), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	create(t, path)
}

func TestTwoRunsOnOneFolder(t *testing.T) {
	path := filepath.Join(t.TempDir(), "run")
	first := create(t, path)
	_, createErr := Create(path, identity(), nil)
	_, _, resumeErr := Resume(path, identity(), nil)
	for name, err := range map[string]error{"Create": createErr, "Resume": resumeErr, "Verify": Verify(path, VerifyOptions{})} {
		var locked *LockedError
		if !errors.As(err, &locked) || locked.Owner.PID != os.Getpid() || locked.Owner.Host == "" || locked.Owner.Since.IsZero() {
			t.Errorf("%s: error %v, want the owner", name, err)
		}
	}
	if d, err := Open(path); err != nil || d.Manifest().Status != StatusStarted {
		t.Errorf("a run in use cannot be read: %v", err)
	}
	if err := first.Close(StatusInterrupted); err != nil {
		t.Fatal(err)
	}
	resume(t, path)
}

func TestResumeNeedsAnEqualIdentity(t *testing.T) {
	path := filepath.Join(t.TempDir(), "run")
	there := identity()
	there.Items = []string{"a", "b"}
	d, err := Create(path, there, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Close(StatusInterrupted); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name   string
		change func(*Identity)
		want   string
	}{
		{"seed beyond float64", func(id *Identity) { id.Seed = 1<<53 + 1 }, "seed (was 1, is 9007199254740993)"},
		{"an option", func(id *Identity) { id.Options = map[string]any{"limit": 21} }, "options.limit (was 20, is 21)"},
		{"an option that is new", func(id *Identity) { id.Options["mode"] = "pick" }, `options.mode (was absent, is "pick")`},
		{"a model's digest", func(id *Identity) {
			id.Models["speaker"] = infer.Model{Backend: "echo", Name: "echo", Digest: "sha256:01"}
		}, "models.speaker.digest"},
		{"an item more", func(id *Identity) { id.Items = []string{"a", "b", "c"} }, "items (was 2 items, is 3 items)"},
		{"items in another order", func(id *Identity) { id.Items = []string{"b", "a"} }, "items (was 2 items, is other ones)"},
		{"a shard", func(id *Identity) { id.Shard = "1/2" }, "shard"},
	} {
		id := identity()
		id.Items = slices.Clone(there.Items)
		c.change(&id)
		_, _, err := Resume(path, id, nil)
		var ie *IdentityError
		if !errors.As(err, &ie) || len(ie.Fields) != 1 || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want one field with %q", c.name, err, c.want)
		}
	}
	// A refusal gives the lock back, and leaves no session.
	d, _, err = Resume(path, there, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close(StatusFailed)
	if len(d.Manifest().Sessions) != 2 {
		t.Errorf("%d sessions, want 2", len(d.Manifest().Sessions))
	}
}

func TestChangedEnvironmentIsAWarning(t *testing.T) {
	path := filepath.Join(t.TempDir(), "run")
	if err := create(t, path).Close(StatusInterrupted); err != nil {
		t.Fatal(err)
	}
	id := identity()
	m := id.Models["speaker"]
	m.Server = "2.0"
	id.Models["speaker"] = m
	d, warnings, err := Resume(path, id, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close(StatusFailed)
	if len(warnings) != 1 || !strings.Contains(warnings[0], "speaker") || !strings.Contains(warnings[0], "2.0") {
		t.Errorf("warnings %q", warnings)
	}
	before := Environment{Host: "a", OS: "linux/amd64", Go: "go1.26", CPUs: 2, GPUs: []string{"H200"}, Driver: "1", Servers: map[string]string{"judge": "1"}}
	now := Environment{Host: "b", OS: "darwin/arm64", Go: "go1.27", CPUs: 4}
	if got := now.changes(before); len(got) != 7 {
		t.Errorf("%d changes, want 7: %q", len(got), got)
	}
}

// A run that was killed stays started; the next session says that the last one
// did not end by itself.
func TestResumeAfterKill(t *testing.T) {
	path := filepath.Join(t.TempDir(), "run")
	d := create(t, path)
	if err := d.release(); err != nil { // what the system does to the lock of a killed process
		t.Fatal(err)
	}
	if err := Verify(path, VerifyOptions{}); err == nil || !strings.Contains(err.Error(), "runs resume") {
		t.Errorf("verify: %v", err)
	}
	if s := resume(t, path).Manifest().Sessions; len(s) != 2 || s[0].Status != StatusInterrupted {
		t.Errorf("sessions %+v", s)
	}
}

func TestSamplesRefusesTwoOfOneKey(t *testing.T) {
	path := three(t)
	change(t, path, SamplesFile, func(s string) string { return s + s })
	d, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	if s, err := d.Samples(); err == nil || !strings.Contains(err.Error(), "samples.jsonl:7: there is a sample of say of item item-000 on line 1 already") {
		t.Errorf("%d samples, error %v", len(s), err)
	}
}

// A list of numbers would read null as 0.
func TestSamplesRefusesNullInAList(t *testing.T) {
	path := three(t)
	change(t, path, SamplesFile, func(s string) string { return strings.Replace(s, `{"step"`, `{"more":{"p":[0.5,null]},"step"`, 1) })
	d, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.Samples(); err == nil || !strings.Contains(err.Error(), "samples.jsonl:1 is damaged: field more.p[1]: null stands in a list") {
		t.Errorf("error %v", err)
	}
}

func TestOpenFaults(t *testing.T) {
	dir := t.TempDir()
	if _, err := Open(dir); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "not a run") {
		t.Errorf("a folder without a manifest: %v", err)
	}
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(file); err == nil || !strings.Contains(err.Error(), "not a run") {
		t.Errorf("a file: %v", err)
	}
	for text, want := range map[string]string{"{": "damaged", "null": "no task", `{"schema":99}`: "newer"} {
		if err := os.WriteFile(filepath.Join(dir, ManifestFile), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := Open(dir); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("manifest %s: error %v, want one with %q", text, err, want)
		}
	}
}

func TestWriteMetrics(t *testing.T) {
	d := create(t, filepath.Join(t.TempDir(), "run"))
	if err := d.WriteMetrics(map[string]float64{"auc": 0.5}); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(filepath.Join(d.Path(), MetricsFile))
	var got struct{ AUC float64 }
	if err != nil || json.Unmarshal(b, &got) != nil || got.AUC != 0.5 {
		t.Errorf("%s, %v", b, err)
	}
	if _, err := d.Metrics(); err != nil {
		t.Error(err)
	}
	change(t, d.Path(), MetricsFile, replace("0.5", "0.6"))
	if _, err := d.Metrics(); err == nil || !strings.Contains(err.Error(), "score the run again: ccmed score") {
		t.Errorf("edited metrics: %v", err)
	}
	change(t, d.Path(), MetricsFile, replace("0.6", "0.5"))
	if err := d.WriteMetrics(map[string]any{"auc": func() {}}); err == nil {
		t.Error("metrics that JSON cannot hold were written")
	}
	if again, err := os.ReadFile(filepath.Join(d.Path(), MetricsFile)); err != nil || string(again) != string(b) {
		t.Errorf("a failed write changed the file: %s, %v", again, err)
	}
}
