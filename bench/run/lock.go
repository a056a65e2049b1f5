package run

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/ccmed/ccmed/bench/disk"
)

// LockedError reports a run directory that another process writes to.
type LockedError struct {
	Path  string
	Owner Owner // zero where it cannot be read
}

func (e *LockedError) Error() string {
	if e.Owner.PID == 0 {
		return e.Path + " is in use by another process; wait for it, or choose another folder with --out"
	}
	return fmt.Sprintf("%s is in use by process %d on %s since %s; wait for it, or choose another folder with --out",
		e.Path, e.Owner.PID, e.Owner.Host, e.Owner.Since.Format(time.DateTime))
}

// Owner is the process that holds a run's lock.
type Owner struct {
	PID   int       `json:"pid"`
	Host  string    `json:"host"`
	Since time.Time `json:"since"`
}

// LostError reports a run directory that was taken away while it was written to:
// its lock was removed, or the directory renamed, removed or replaced.
type LostError struct{ Path string }

func (e *LostError) Error() string {
	return fmt.Sprintf("the lock of %s is no longer this run's: somebody removed it, or moved or replaced the folder; the run stops, so that no two write to it, "+
		"and what was done is kept: see to it that nothing else writes there, then go on with: ccmed runs resume FOLDER", e.Path)
}

// lock is what keeps other writers out of a run directory. The directory is
// locked besides the file, so that removing the file lets nobody in.
type lock struct {
	file, folder *os.File // folder is nil where the file system cannot lock one
}

func (l *lock) close() error {
	err := l.file.Close()
	if l.folder != nil {
		err = errors.Join(err, l.folder.Close())
	}
	return err
}

// lockTries is how often a lock is tried, since Holder takes it for a moment.
const lockTries = 3

// acquire takes the lock and writes down who has it.
func (d *Dir) acquire() (err error) {
	file := filepath.Join(d.path, lockFile)
	var l *lock
	for try := range lockTries {
		if l, err = takeLock(d.path, file); !errors.Is(err, disk.ErrLocked) {
			break
		}
		if try < lockTries-1 {
			time.Sleep(10 * time.Millisecond)
		}
	}
	switch {
	case errors.Is(err, disk.ErrLocked):
		owner, _ := readOwner(file)
		return &LockedError{d.path, owner}
	case err != nil:
		return fmt.Errorf("lock the run folder %s: %w; choose one that can be written with --out", d.path, err)
	}
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	b, err := json.Marshal(Owner{os.Getpid(), host, time.Now().UTC().Truncate(time.Second)})
	if err == nil {
		// In place: a renamed file would be another lock.
		err = l.file.Truncate(0)
	}
	if err == nil {
		_, err = l.file.WriteAt(append(b, '\n'), 0)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("lock the run folder: %w", err), l.close())
	}
	d.lock = l
	return nil
}

func takeLock(dir, file string) (*lock, error) {
	f, err := disk.Lock(file, 0o644)
	if err != nil {
		return nil, err
	}
	folder, err := disk.LockFolder(dir)
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return &lock{f, folder}, nil
}

// release gives the lock back. The file stays: removing it would let two
// processes hold locks of two files with one name.
func (d *Dir) release() error {
	if d.lock == nil {
		return nil
	}
	err := d.lock.close()
	d.lock = nil
	if err != nil {
		return fmt.Errorf("unlock the run folder: %w", err)
	}
	return nil
}

// owned returns a *LostError when the path no longer holds the lock that was taken.
func (d *Dir) owned() error {
	if l := d.lock; l != nil && !disk.Same(filepath.Join(d.path, lockFile), l.file) {
		return &LostError{d.path}
	}
	return nil
}

// Holder tells who holds the lock of a run directory now.
func Holder(path string) (Owner, bool) {
	file := filepath.Join(path, lockFile)
	if !disk.Locked(file) && !disk.Locked(path) {
		return Owner{}, false
	}
	owner, _ := readOwner(file)
	return owner, true
}

// maxLock is the limit in bytes of a lock, which holds an Owner.
const maxLock = 4096

func readOwner(file string) (o Owner, err error) {
	b, err := disk.ReadEntry(file, maxLock)
	if err != nil {
		return o, err
	}
	return o, json.Unmarshal(b, &o)
}
