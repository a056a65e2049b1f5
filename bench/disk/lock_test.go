//go:build unix

package disk

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

func TestLock(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "lock")
	for what, lock := range map[string]func() (*os.File, error){
		path: func() (*os.File, error) { return Lock(path, 0o644) },
		dir:  func() (*os.File, error) { return LockFolder(dir) },
	} {
		f, err := lock()
		if err != nil || f == nil {
			t.Fatalf("%v, %v", f, err)
		}
		if _, err := lock(); !errors.Is(err, ErrLocked) {
			t.Errorf("%s was locked twice: %v", what, err)
		}
		if !Locked(what) {
			t.Errorf("%s does not count as locked", what)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
		if Locked(what) {
			t.Errorf("%s counts as locked after its holder closed it", what)
		}
	}
	if Locked(filepath.Join(dir, "absent")) {
		t.Error("what is absent counts as locked")
	}
}

func TestLockFollowsNoLink(t *testing.T) {
	dir := t.TempDir()
	for _, target := range []string{"there", "absent"} {
		if target == "there" {
			if err := os.WriteFile(filepath.Join(dir, target), []byte("text"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		link := filepath.Join(dir, "link to "+target)
		if err := os.Symlink(target, link); err != nil {
			t.Fatal(err)
		}
		var n *NodeError
		if f, err := Lock(link, 0o644); !errors.As(err, &n) {
			t.Errorf("a link to what is %s was locked: %v, %v", target, f, err)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "absent")); err == nil {
		t.Error("a file was made through a link")
	}
}

func TestSame(t *testing.T) {
	dir := t.TempDir()
	path, moved := filepath.Join(dir, "lock"), filepath.Join(dir, "moved")
	f, err := Lock(path, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if !Same(path, f) {
		t.Error("a file is not the one that was opened")
	}
	if err := os.Rename(path, moved); err != nil {
		t.Fatal(err)
	}
	if Same(path, f) || !Same(moved, f) {
		t.Error("a file that was moved counts as still there")
	}
	if err := os.WriteFile(path, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if Same(path, f) {
		t.Error("another file counts as the one that was opened")
	}
}
