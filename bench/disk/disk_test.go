//go:build unix

package disk

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// nodes makes one of each kind in a folder: name to path.
func nodes(t *testing.T) map[string]string {
	t.Helper()
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	must := func(err error) {
		if err != nil {
			t.Fatal(err)
		}
	}
	must(os.WriteFile(at("file"), []byte("text"), 0o600))
	must(os.Symlink("file", at("link")))
	must(os.Symlink("nowhere", at("dangling")))
	must(os.Symlink("/dev/zero", at("zero")))
	must(syscall.Mkfifo(at("fifo"), 0o600))
	must(os.Mkdir(at("folder"), 0o700))
	out := map[string]string{"absent": at("absent"), "device": "/dev/zero"}
	for _, n := range []string{"file", "link", "dangling", "zero", "fifo", "folder"} {
		out[n] = at(n)
	}
	return out
}

func refused(err error, what string) bool {
	var n *NodeError
	return errors.As(err, &n) && strings.Contains(n.What, what)
}

func TestReadingRefusesWhatIsNoRegularFile(t *testing.T) {
	p := nodes(t)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for name, want := range map[string]string{"fifo": "pipe", "device": "device", "zero": "device", "folder": "folder"} {
			if _, err := ReadFile(p[name], 10); !refused(err, want) {
				t.Errorf("ReadFile of the %s: %v", name, err)
			}
		}
		for name, want := range map[string]string{"fifo": "pipe", "device": "device", "zero": "link", "link": "link", "dangling": "link", "folder": "folder"} {
			if _, err := ReadEntry(p[name], 10); !refused(err, want) {
				t.Errorf("ReadEntry of the %s: %v", name, err)
			}
		}
	}()
	select {
	case <-done:
	case <-time.After(10 * time.Second):
		t.Fatal("reading a FIFO or device hangs")
	}
	for _, name := range []string{"file", "link"} {
		if b, err := ReadFile(p[name], 4); err != nil || string(b) != "text" {
			t.Errorf("ReadFile of the %s: %q, %v", name, b, err)
		}
	}
	var size *SizeError
	if _, err := ReadEntry(p["file"], 3); !errors.As(err, &size) || size.Size != 4 {
		t.Errorf("a file over the limit: %v", err)
	}
	if _, err := ReadFile(p["absent"], 3); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("an absent file: %v", err)
	}
}

func TestOpeningForWritingFollowsNoLink(t *testing.T) {
	p := nodes(t)
	for _, name := range []string{"link", "dangling", "zero", "fifo", "folder"} {
		if f, err := OpenFile(p[name], os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600); err == nil {
			f.Close()
			t.Errorf("the %s was opened for writing", name)
		}
	}
	if b, err := os.ReadFile(p["file"]); string(b) != "text" {
		t.Errorf("the link's target holds %q, %v", b, err)
	}
	if _, err := os.Stat(filepath.Join(filepath.Dir(p["file"]), "nowhere")); err == nil {
		t.Error("a file was made through a dangling link")
	}
	for _, name := range []string{"file", "absent"} {
		f, err := Append(p[name], 0o600)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.WriteString("+"); err != nil {
			t.Fatal(err)
		}
		f.Close()
	}
	if b, _ := os.ReadFile(p["file"]); string(b) != "text+" {
		t.Errorf("appending gave %q", b)
	}
}

func TestWriteFileReplacesRegularFilesOnly(t *testing.T) {
	p := nodes(t)
	for _, name := range []string{"link", "dangling", "folder"} {
		var n *NodeError
		if err := WriteFile(p[name], []byte("new"), 0o644); !errors.As(err, &n) {
			t.Errorf("writing to the %s: %v", name, err)
		}
		if info, err := os.Lstat(p[name]); err != nil || info.Mode().IsRegular() {
			t.Errorf("the %s was replaced", name)
		}
	}
	for _, name := range []string{"file", "absent"} {
		if err := WriteFile(p[name], []byte("new"), 0o644); err != nil {
			t.Errorf("writing to the %s file: %v", name, err)
		}
		if b, _ := os.ReadFile(p[name]); string(b) != "new" {
			t.Errorf("the %s file holds %q", name, b)
		}
	}
	if info, err := os.Stat(p["file"]); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("a private file did not stay private: %v", info.Mode())
	}
	got := make(chan string)
	go func() {
		f, err := os.Open(p["fifo"])
		if err != nil {
			got <- err.Error()
			return
		}
		defer f.Close()
		b, _ := io.ReadAll(f)
		got <- string(b)
	}()
	if err := WriteFile(p["fifo"], []byte("through"), 0o644); err != nil {
		t.Error(err)
	}
	if s := <-got; s != "through" {
		t.Errorf("the pipe's reader got %q", s)
	}
	if info, err := os.Lstat(p["fifo"]); err != nil || info.Mode()&os.ModeNamedPipe == 0 {
		t.Error("the pipe was replaced")
	}
	for _, name := range []string{"fifo", "link", "dangling", "zero", "folder"} {
		var n *NodeError
		if err := WriteEntry(p[name], []byte("x"), 0o644); !errors.As(err, &n) {
			t.Errorf("writing the %s of a folder: %v", name, err)
		}
	}
	if err := WriteEntry(p["file"], []byte("entry"), 0o644); err != nil {
		t.Error(err)
	}
	if err := WriteFile("/dev/null", []byte("x"), 0o644); err != nil {
		t.Error(err)
	}
	if err := WriteFile("/dev/full", []byte("x"), 0o644); err == nil {
		t.Error("a full device took the text")
	}
}
