package sft

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"time"
)

// runGroup runs a command in a process group of its own and leaves none of the
// group behind: it is killed when the context ends, and what a command that ended
// has left running is killed too. The error tells the last line of stderr.
func runGroup(ctx context.Context, cmd *exec.Cmd) error {
	var tail tail
	if cmd.Stderr == nil {
		cmd.Stderr = &tail
	} else {
		cmd.Stderr = io.MultiWriter(cmd.Stderr, &tail)
	}
	// The system ties the signal for a parent's death to the thread that started
	// the child.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	ownGroup(cmd)
	cmd.WaitDelay = 5 * time.Second // for pipes that a process of the group holds open
	if err := cmd.Start(); err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { signalGroup(cmd, syscall.SIGKILL) })
	err := cmd.Wait()
	stop()
	signalGroup(cmd, syscall.SIGKILL)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		if line := tail.last(); line != "" {
			return fmt.Errorf("%s (%w)", line, err)
		}
	}
	return err
}

// ownGroup makes a command the leader of a process group when it starts.
func ownGroup(cmd *exec.Cmd) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Setpgid = true
	dieWithParent(cmd.SysProcAttr)
}

// signalGroup signals every process of a started command's group. That none is
// left is no error.
func signalGroup(cmd *exec.Cmd, sig syscall.Signal) {
	_ = syscall.Kill(-cmd.Process.Pid, sig)
}

// tail keeps the end of what is written to it.
type tail struct{ b []byte }

const tailBytes = 4096

func (t *tail) Write(p []byte) (int, error) {
	t.b = append(t.b, p...)
	if len(t.b) > 2*tailBytes {
		t.b = append(t.b[:0], t.b[len(t.b)-tailBytes:]...)
	}
	return len(p), nil
}

// last returns the last line that says something.
func (t *tail) last() string {
	lines := bytes.FieldsFunc(t.b, func(r rune) bool { return r == '\n' || r == '\r' })
	for i := len(lines) - 1; i >= 0; i-- {
		if s := strings.TrimSpace(string(lines[i])); s != "" {
			return strings.ToValidUTF8(s, "")
		}
	}
	return ""
}
