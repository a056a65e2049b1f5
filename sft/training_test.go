package sft

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A link in the folder of a training would lead the trainer elsewhere.
func TestResumeRefusesLinks(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "t", ManifestFile), `{"schema": 1, "status": "interrupted"}`)
	write(t, filepath.Join(dir, "mine", "step-1", "x"), "mine")
	write(t, filepath.Join(dir, "t", FinalDir, "x"), "")
	run, err := ResumeTraining(filepath.Join(dir, "t"))
	if err != nil {
		t.Fatal(err)
	}
	if err := run.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("../mine", filepath.Join(dir, "t", Checkpoints)); err != nil {
		t.Fatal(err)
	}
	if _, err := ResumeTraining(filepath.Join(dir, "t")); err == nil || !strings.Contains(err.Error(), "checkpoints is a link to ../mine") {
		t.Errorf("%v", err)
	}
}
