// Command ccmed measures when and how well local language models mediate
// cross-cultural conflict. See `ccmed help` and the docs folder.
package main

import (
	"context"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"
	"time"
)

func main() {
	a := &app{stdin: os.Stdin, stdout: os.Stdout, stderr: os.Stderr, getenv: os.Getenv, now: time.Now}
	os.Exit(a.main(os.Args[1:]))
}

// interrupts are what a user asks for by Ctrl-C or SIGTERM. The first one asks
// work that holds them (app.hold) to finish its items in hand, and ends anything
// else; the second one ends everything; the third one kills the process, for what
// does not look at its context.
type interrupts struct {
	soft    chan struct{} // closed by the first one
	holders atomic.Int32  // of work that finishes its items at the first one
	say     func()        // called at the first one where something is finished; may be nil
}

// listen returns a context that interrupts end, until stop is called.
func (i *interrupts) listen(parent context.Context) (ctx context.Context, stop func()) {
	ctx, cancel := context.WithCancel(parent)
	i.soft = make(chan struct{})
	c := make(chan os.Signal, 2)
	signal.Notify(c, os.Interrupt, syscall.SIGTERM)
	done := make(chan struct{})
	go func() {
		select {
		case <-c:
		case <-done:
			return
		}
		if i.holders.Load() == 0 {
			cancel()
		} else if i.say != nil {
			i.say()
		}
		close(i.soft)
		select {
		case <-c:
			signal.Stop(c)
			cancel()
		case <-done:
		}
	}()
	return ctx, func() {
		signal.Stop(c)
		close(done)
		cancel()
	}
}
