package disk

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// ErrLocked is wrapped by errors about what another process has locked.
var ErrLocked = errors.New("locked by another process")

// Lock takes the advisory lock of a file of the program's own, which is made
// when it is missing. Links are refused. The lock lasts until the file is closed
// or the process ends.
func Lock(path string, perm fs.FileMode) (*os.File, error) {
	for {
		f, err := OpenFile(path, os.O_CREATE|os.O_RDWR, perm)
		if err != nil {
			return nil, err
		}
		if err := flock(f, unix.LOCK_EX); err != nil {
			return nil, errors.Join(err, f.Close())
		}
		// The file may have been removed before the lock was taken: a lock of
		// nothing keeps nobody out.
		if Same(path, f) {
			return f, nil
		}
		if err := f.Close(); err != nil {
			return nil, err
		}
	}
}

// LockFolder takes the advisory lock of a folder, which stays when files in it
// are removed. The file is nil on file systems that cannot lock folders.
func LockFolder(path string) (*os.File, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	if err := flock(f, unix.LOCK_EX); err != nil {
		if !errors.Is(err, ErrLocked) {
			err = nil
		}
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// Locked reports whether another holder has the lock of a file or folder.
func Locked(path string) bool {
	f, err := open(path, os.Lstat, os.O_RDONLY, 0)
	var n *NodeError
	if errors.As(err, &n) && n.What == folder {
		f, err = os.Open(path)
	}
	if err != nil {
		return false
	}
	defer f.Close() // which gives the lock back
	return errors.Is(flock(f, unix.LOCK_SH), ErrLocked)
}

// Same reports whether path names, without a link, the file that is open as f.
func Same(path string, f *os.File) bool {
	there, err := os.Lstat(path)
	if err != nil {
		return false
	}
	own, err := f.Stat()
	return err == nil && os.SameFile(there, own)
}

// flock takes a lock of the open file without waiting for it.
func flock(f *os.File, how int) error {
	err := unix.Flock(int(f.Fd()), how|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return fmt.Errorf("%s: %w", f.Name(), ErrLocked)
	}
	if err != nil {
		return fmt.Errorf("lock %s: %w", f.Name(), err)
	}
	return nil
}
