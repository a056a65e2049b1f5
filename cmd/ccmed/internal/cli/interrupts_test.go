package cli

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

// work in hand has a moment, work that saves is waited for until the second
// interrupt, and anything else is ended by the first one; what does not end is left.
func TestInterrupts(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("a process cannot interrupt itself on Windows")
	}
	self, err := os.FindProcess(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	listen := func(t *testing.T) (i *Interrupts, ctx context.Context, left chan struct{}, said *int) {
		said, left = new(int), make(chan struct{})
		i = &Interrupts{Say: func() { *said++ }, Leave: func(again string) {
			if again != "outer" && again != "" {
				t.Errorf("it goes on with %q", again)
			}
			close(left)
		}}
		ctx, _, stop := i.Listen(context.Background())
		t.Cleanup(stop)
		return i, ctx, left, said
	}
	interrupt := func(t *testing.T) {
		if err := self.Signal(os.Interrupt); err != nil {
			t.Fatal(err)
		}
	}
	t.Run("in hand", func(t *testing.T) {
		i, ctx, left, said := listen(t)
		defer i.Begin(Work{Again: "outer"})()
		defer i.Begin(Work{Again: "inner"})()
		interrupt(t)
		within(t, "the first interrupt was not passed on", i.soft)
		if ctx.Err() != nil || *said != 1 {
			t.Errorf("after the first interrupt the context is %v and %d notices were given", ctx.Err(), *said)
		}
		within(t, "what is in hand was not dropped", ctx.Done())
		within(t, "the process was not left", left)
	})
	t.Run("saves", func(t *testing.T) {
		i, ctx, left, said := listen(t)
		defer i.Begin(Work{Again: "outer"})()
		defer i.Begin(Work{Saves: true})()
		interrupt(t)
		within(t, "the first interrupt was not passed on", i.soft)
		time.Sleep(patience + 200*time.Millisecond)
		select {
		case <-left:
			t.Error("work that saves was left")
		default:
		}
		if ctx.Err() != nil || *said != 0 {
			t.Errorf("work that saves was not waited for: %v, %d notices", ctx.Err(), *said)
		}
		interrupt(t)
		within(t, "the second interrupt did not end the context", ctx.Done())
		within(t, "the process was not left", left)
	})
	t.Run("nothing in hand", func(t *testing.T) {
		i, ctx, left, _ := listen(t)
		i.Begin(Work{Again: "x"})()
		interrupt(t)
		within(t, "the first interrupt did not end the context", ctx.Done())
		within(t, "the first interrupt was not passed on", i.soft)
		within(t, "the process was not left", left)
	})
}
