// Package disk opens and replaces files that other people or programs may have
// made, by the rules of docs/security.md:
//
//	f, err := disk.Open("records.jsonl")               // named by the user: a regular file, or a link to one
//	b, err := disk.ReadEntry("folder/1.json", 64<<20)  // found in a folder: never through a link
//	err = disk.WriteFile("out.csv", b, 0o644)          // named by the user: replaces regular files only
//	err = disk.WriteEntry("folder/card.json", b, 0o644) // of a folder: neither through a link nor into a pipe
//
// A FIFO, a socket or a device among the inputs would hang the program or fill
// its memory. A link in a folder that was copied from elsewhere could make the
// program read or overwrite any file of the user. All of them are refused with a
// *NodeError that names the path and says what lies there.
package disk

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"syscall"

	"github.com/google/renameio/v2"
)

// MaxText is the limit, in bytes, for text files that are read whole.
const MaxText = 256 << 20

// NodeError reports a path at which something else lies than a regular file.
type NodeError struct {
	Path, What, Remedy string
}

func (e *NodeError) Error() string { return e.Path + " is " + e.What + "; " + e.Remedy }

// SizeError reports a file that is longer than what is read of its kind.
type SizeError struct {
	Path        string
	Size, Limit int64 // in bytes
}

func (e *SizeError) Error() string {
	return fmt.Sprintf("%s has %d bytes, and at most %d are read of such a file; split it, or name another", e.Path, e.Size, e.Limit)
}

const (
	nameRegular = "name a regular file"
	folder      = "a folder"
)

// Open opens for reading a file that the user named: a regular file, or a link
// to one.
func Open(path string) (*os.File, error) { return open(path, os.Stat, os.O_RDONLY, 0) }

// OpenEntry opens for reading a file that was found in a folder. Links are
// refused.
func OpenEntry(path string) (*os.File, error) { return open(path, os.Lstat, os.O_RDONLY, 0) }

// OpenFile opens a file of a folder of the program's own, which may have been
// copied from elsewhere, like os.OpenFile. Links are refused.
func OpenFile(path string, flag int, perm fs.FileMode) (*os.File, error) {
	return open(path, os.Lstat, flag, perm)
}

// Append opens such a file for appending and makes it when it is missing.
func Append(path string, perm fs.FileMode) (*os.File, error) {
	return OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, perm)
}

// open looks before it opens, since opening a FIFO would wait for its other end,
// and looks again at what was opened, since the path may have changed meanwhile.
// It never empties a file before that.
func open(path string, look func(string) (fs.FileInfo, error), flag int, perm fs.FileMode) (*os.File, error) {
	before, err := look(path)
	if errors.Is(err, fs.ErrNotExist) && flag&os.O_CREATE != 0 {
		if _, err := os.Lstat(path); err == nil {
			return nil, &NodeError{path, "a link to nothing", nameRegular}
		}
		f, err := os.OpenFile(path, flag|os.O_EXCL, perm)
		if errors.Is(err, fs.ErrExist) { // made by another process since
			return open(path, look, flag&^os.O_CREATE, perm)
		}
		return f, err
	}
	if err != nil {
		return nil, err
	}
	if err := regular(path, before); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(path, flag&^os.O_TRUNC|syscall.O_NONBLOCK, perm)
	if err != nil {
		return nil, err
	}
	now, err := f.Stat()
	switch {
	case err != nil:
	case !os.SameFile(before, now):
		err = &NodeError{path, "another file than a moment ago", "see who changes that folder, and try again"}
	case flag&os.O_TRUNC != 0:
		err = f.Truncate(0)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// regular reports what lies at path when it is no regular file.
func regular(path string, info fs.FileInfo) error {
	switch m := info.Mode(); {
	case m.IsRegular():
		return nil
	case m.IsDir():
		return &NodeError{path, folder, nameRegular}
	case m&fs.ModeSymlink != 0:
		to, err := os.Readlink(path)
		if err != nil {
			to = "another place"
		}
		return &NodeError{path, "a link to " + to, "links in a folder are not followed: put the file itself there"}
	case m&fs.ModeNamedPipe != 0:
		return &NodeError{path, "a pipe (FIFO)", nameRegular}
	case m&fs.ModeSocket != 0:
		return &NodeError{path, "a socket", nameRegular}
	default:
		return &NodeError{path, "a device", nameRegular}
	}
}

// ReadFile reads a file that the user named, of at most limit bytes.
func ReadFile(path string, limit int64) ([]byte, error) {
	f, err := Open(path)
	if err != nil {
		return nil, err
	}
	return read(f, path, limit)
}

// ReadEntry reads a file that was found in a folder, of at most limit bytes.
func ReadEntry(path string, limit int64) ([]byte, error) {
	f, err := OpenEntry(path)
	if err != nil {
		return nil, err
	}
	return read(f, path, limit)
}

func read(f *os.File, path string, limit int64) ([]byte, error) {
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if info.Size() > limit {
		return nil, &SizeError{path, info.Size(), limit}
	}
	b, err := io.ReadAll(io.LimitReader(f, limit+1)) // the file may be growing
	if err != nil {
		return nil, err
	}
	if int64(len(b)) > limit {
		return nil, &SizeError{path, int64(len(b)), limit}
	}
	return b, nil
}

// WriteFile writes data to path. A regular file is replaced as a whole, so that
// a reader finds the old or the new one. A pipe or device (/dev/stdout) is
// written to and stays. A link or folder is refused: what a link points to
// belongs to somebody.
func WriteFile(path string, data []byte, perm fs.FileMode) error {
	to, err := Look(path)
	if err != nil {
		return err
	}
	if to == Stream {
		return writeThrough(path, data)
	}
	return replace(path, data, perm)
}

// Target is what WriteFile meets at a path.
type Target int

const (
	Vacant Target = iota // nothing is there
	File                 // a regular file, which is replaced
	Stream               // a pipe or device, which is written to
)

// Look tells what WriteFile would meet at path. A link or folder is the *NodeError
// with which WriteFile would refuse it.
func Look(path string) (Target, error) {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return Vacant, nil
	case err != nil:
		return Vacant, err
	case info.Mode().IsRegular():
		return File, nil
	case info.Mode()&fs.ModeSymlink != 0: // /dev/stdout is a link
		if end, err := os.Stat(path); err == nil && stream(end) {
			return Stream, nil
		}
	case stream(info):
		return Stream, nil
	}
	err = regular(path, info)
	var n *NodeError
	if errors.As(err, &n) {
		n.Remedy = "name another file: only regular files are replaced"
	}
	return Vacant, err
}

func stream(info fs.FileInfo) bool {
	return info.Mode()&(fs.ModeNamedPipe|fs.ModeDevice|fs.ModeCharDevice) != 0
}

// pending are the temporary files of replacements that are going on.
var pending sync.Map

// RemovePending removes the temporary files of writes that are going on, for a
// process that ends without waiting for them.
func RemovePending() {
	pending.Range(func(path, _ any) bool {
		_ = os.Remove(path.(string)) // another goroutine may have renamed it by now
		return true
	})
}

// WriteEntry writes data to a file of a folder as WriteFile does. A pipe or device
// in its place is refused: a folder that was copied from elsewhere may hold one, and
// writing would wait for a reader.
func WriteEntry(path string, data []byte, perm fs.FileMode) error {
	if info, err := os.Lstat(path); err == nil {
		if err := regular(path, info); err != nil {
			return err
		}
	}
	return replace(path, data, perm)
}

func replace(path string, data []byte, perm fs.FileMode) error {
	f, err := renameio.NewPendingFile(path, renameio.WithPermissions(perm), renameio.WithTempDir(filepath.Dir(path)), renameio.WithExistingPermissions())
	if err != nil {
		return err
	}
	pending.Store(f.Name(), nil)
	defer pending.Delete(f.Name())
	defer func() { _ = f.Cleanup() }() // nothing is left to do after the replacement
	if _, err := f.Write(data); err != nil {
		return err
	}
	return f.CloseAtomicallyReplace()
}

func writeThrough(path string, data []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	return errors.Join(err, f.Close())
}
