package main

import (
	"context"
	"os"
	"runtime"
	"testing"
	"time"
)

func within(t *testing.T, what string, c <-chan struct{}) {
	t.Helper()
	select {
	case <-c:
	case <-time.After(10 * time.Second):
		t.Fatal(what)
	}
}

// Work that holds the interrupts is asked to stop first and ended by the second
// interrupt; anything else is ended by the first one.
func TestInterrupts(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("a process cannot interrupt itself on Windows")
	}
	self, err := os.FindProcess(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	interrupt := func() {
		if err := self.Signal(os.Interrupt); err != nil {
			t.Fatal(err)
		}
	}
	t.Run("held", func(t *testing.T) {
		said := 0
		a := &app{interrupts: &interrupts{say: func() { said++ }}}
		ctx, stop := a.interrupts.listen(context.Background())
		defer stop()
		release := a.hold()
		interrupt()
		within(t, "the first interrupt was not passed on", a.interrupts.soft)
		if ctx.Err() != nil || said != 1 {
			t.Errorf("after the first interrupt the context is %v and %d notices were given", ctx.Err(), said)
		}
		interrupt()
		within(t, "the second interrupt did not end the context", ctx.Done())
		release()
	})
	t.Run("not held", func(t *testing.T) {
		a := &app{interrupts: &interrupts{}}
		ctx, stop := a.interrupts.listen(context.Background())
		defer stop()
		a.hold()()
		interrupt()
		within(t, "the first interrupt did not end the context", ctx.Done())
		within(t, "the first interrupt was not passed on", a.interrupts.soft)
	})
}
