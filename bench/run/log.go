package run

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/ccmed/ccmed/bench/disk"
	"github.com/ccmed/ccmed/bench/visible"
)

// logFile is log.txt. What cannot be written there stops nothing, and is told when
// the session ends.
type logFile struct {
	mu     sync.Mutex
	f      *os.File
	failed error
}

func (l *logFile) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.failed == nil {
		_, l.failed = l.f.Write(b)
	}
	return len(b), nil
}

func (l *logFile) close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	err := l.failed
	if l.f != nil {
		err = errors.Join(err, l.f.Close())
	}
	if err != nil {
		return fmt.Errorf("write the run's log: %w; the samples are whole, and ccmed runs resume goes on from them", err)
	}
	return nil
}

// Log returns the run's log.txt for appending, which only its owner may read, since
// it holds what models and servers said; nothing is kept for a run that is open for
// reading.
func (d *Dir) Log() io.Writer {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.lock == nil {
		return io.Discard
	}
	if d.log == nil {
		f, err := disk.Append(filepath.Join(d.path, LogFile), 0o600)
		d.log = &logFile{f: f, failed: err}
	}
	return d.log
}

func (d *Dir) logf(format string, a ...any) {
	// One line: what a server said must not look like an entry of its own.
	fmt.Fprintf(d.Log(), "%s %s\n", time.Now().UTC().Format("2006-01-02T15:04:05.000Z"), visible.Line(fmt.Sprintf(format, a...)))
}
