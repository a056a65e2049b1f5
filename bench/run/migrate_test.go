package run

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// testdata/schema-1 is a finished run of the tool before manifests had the
// identity's hash.
func older(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "run")
	if err := os.CopyFS(path, os.DirFS(filepath.Join("testdata", "schema-1"))); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestMigrate(t *testing.T) {
	path := older(t)
	before, err := os.ReadFile(filepath.Join(path, ManifestFile))
	if err != nil {
		t.Fatal(err)
	}
	if err := Verify(path, VerifyOptions{}); err != nil {
		t.Errorf("as it is: %v", err)
	}
	now := time.Date(2027, 1, 2, 3, 4, 5, 6, time.UTC)
	from, err := Migrate(path, "2.0", now)
	if err != nil || from != 1 {
		t.Fatalf("migrated from %d, %v", from, err)
	}
	d, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	m := d.Manifest()
	// Python: sha256(json.dumps(manifest["identity"], separators=(",", ":"), ensure_ascii=False).encode())
	const hash = "sha256:6a5365129e3caa2f0972af41e987110f7fd85fd5dfc9c11ad8b0291f05765b7c"
	if m.Schema != Schema || m.IdentityHash != hash || len(m.Migrations) != 1 || m.Migrations[0] != (Migration{1, Schema, now.Truncate(time.Second), "2.0"}) {
		t.Errorf("%+v", m)
	}
	if kept, err := os.ReadFile(filepath.Join(path, "manifest.schema-1.json")); err != nil || string(kept) != string(before) {
		t.Errorf("the copy differs from what was there: %v", err)
	}
	if err := Verify(path, VerifyOptions{}); err != nil {
		t.Errorf("afterwards: %v", err)
	}
	samples, err := d.Samples()
	if err != nil || len(samples) != m.Samples {
		t.Errorf("%d samples of %d, %v", len(samples), m.Samples, err)
	}
	if from, err := Migrate(path, "2.0", now); err != nil || from != 0 {
		t.Errorf("a second time: from %d, %v", from, err)
	}
	// From now on a change shows.
	change(t, path, ManifestFile, replace(`"seed": 1`, `"seed": 2`))
	if err := Verify(path, VerifyOptions{}); err == nil || !strings.Contains(err.Error(), "identity was changed") {
		t.Errorf("after a change by hand: %v", err)
	}
}

func TestMigrateRefuses(t *testing.T) {
	newer := older(t)
	change(t, newer, ManifestFile, func(s string) string {
		return replace(`"version": "0.1`, `"version": "9.1`)(replace(`"schema": 1`, `"schema": 99`)(s))
	})
	var e *NewerError
	_, err := Migrate(newer, "2.0", time.Now())
	if !errors.As(err, &e) || e.Schema != 99 || !strings.Contains(err.Error(), "use ccmed 9.1") || !strings.Contains(err.Error(), "which wrote it, or a newer one") {
		t.Errorf("a newer run: %v", err)
	}
	if _, err := Migrate(t.TempDir(), "2.0", time.Now()); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no run: %v", err)
	}
	held := older(t)
	d := &Dir{path: held}
	if err := d.acquire(); err != nil {
		t.Fatal(err)
	}
	var locked *LockedError
	if _, err := Migrate(held, "2.0", time.Now()); !errors.As(err, &locked) {
		t.Errorf("a run in use: %v", err)
	}
	if err := d.release(); err != nil {
		t.Fatal(err)
	}
	other := older(t)
	if err := os.WriteFile(filepath.Join(other, "manifest.schema-1.json"), []byte("{}"), 0o644); err != nil {
		t.Fatal(err)
	}
	before, _ := os.ReadFile(filepath.Join(other, ManifestFile))
	if _, err := Migrate(other, "2.0", time.Now()); err == nil || !strings.Contains(err.Error(), "move it away first") {
		t.Errorf("another copy there: %v", err)
	}
	if after, _ := os.ReadFile(filepath.Join(other, ManifestFile)); string(after) != string(before) {
		t.Error("the manifest was changed all the same")
	}
}

// An older run goes on as it is, and has the present form then.
func TestOlderRunsResume(t *testing.T) {
	path := older(t)
	d, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	d, _, err = Resume(path, d.Manifest().Identity, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Close(StatusDone); err != nil {
		t.Fatal(err)
	}
	if err := Verify(path, VerifyOptions{}); err != nil {
		t.Error(err)
	}
	if d, err = Open(path); err != nil || d.Manifest().Schema != Schema || d.Manifest().IdentityHash == "" {
		t.Errorf("%+v, %v", d.Manifest(), err)
	}
}

func TestMetricsOfARun(t *testing.T) {
	d, err := Open(older(t))
	if err != nil {
		t.Fatal(err)
	}
	m, err := d.Metrics()
	if err != nil || m.Schema != 1 || m.Task != "timing" || len(m.Metrics) == 0 || m.SamplesHash != d.Manifest().SamplesHash {
		t.Errorf("%+v, %v", m, err)
	}
	change(t, d.Path(), MetricsFile, replace(`"schema": 1`, `"schema": 99`))
	var e *NewerError
	if _, err := d.Metrics(); !errors.As(err, &e) {
		t.Errorf("newer metrics: %v", err)
	}
	change(t, d.Path(), MetricsFile, func(string) string { return "{" })
	if _, err := d.Metrics(); err == nil || !strings.Contains(err.Error(), "ccmed score") {
		t.Errorf("damaged metrics: %v", err)
	}
	if err := os.Remove(filepath.Join(d.Path(), MetricsFile)); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Metrics(); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no metrics: %v", err)
	}
}
