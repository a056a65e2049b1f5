package main

import (
	"context"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"
)

// Every command has ended a second after an interrupt: what is in hand may finish
// within inHand, and what does not look at its context is left behind after
// patience.
const (
	inHand   = 300 * time.Millisecond
	patience = 600 * time.Millisecond
)

// work says how something ends at the first interrupt.
type work struct {
	// saves is work that saves its state when it is asked to stop and is waited for,
	// until a second interrupt. Other work has inHand for what it has in hand.
	saves bool
	again string // the command line that goes on with it
}

// interrupts are what a user asks for by Ctrl-C or SIGTERM. The first one asks work
// that is under way (app.hold) to stop, and ends anything else; the second one ends
// everything; the third one kills the process.
type interrupts struct {
	soft chan struct{} // closed by the first one
	say  func()        // called at the first one where items are finished; may be nil
	// leave ends the process, for what did not end by itself; may be nil.
	leave func(again string)

	mu     sync.Mutex
	inWork []work
}

// begin announces work until end is called.
func (i *interrupts) begin(w work) (end func()) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.inWork = append(i.inWork, w)
	n := len(i.inWork) // work ends in the order opposite to that of its begin
	return func() {
		i.mu.Lock()
		defer i.mu.Unlock()
		i.inWork = i.inWork[:n-1]
	}
}

// now is the innermost work, and the line that goes on with the outermost.
func (i *interrupts) now() (w work, held bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if len(i.inWork) == 0 {
		return work{}, false
	}
	return work{i.inWork[len(i.inWork)-1].saves, i.inWork[0].again}, true
}

// listen returns a context that interrupts end, until stop is called.
func (i *interrupts) listen(parent context.Context) (ctx context.Context, stop func()) {
	ctx, cancel := context.WithCancel(parent)
	i.soft = make(chan struct{})
	c := make(chan os.Signal, 2)
	signal.Notify(c, os.Interrupt, syscall.SIGTERM)
	done := make(chan struct{})
	go func() {
		var drop, leave <-chan time.Time
		for asked := 0; ; {
			select {
			case <-done:
				return
			case <-drop:
				cancel()
			case <-leave:
				if w, _ := i.now(); i.leave != nil {
					i.leave(w.again)
				}
				return
			case <-c:
				w, held := i.now()
				switch asked++; {
				case asked > 1:
					signal.Stop(c)
					cancel()
					leave = time.After(patience)
				case !held:
					cancel()
					leave = time.After(patience)
				case !w.saves:
					drop, leave = time.After(inHand), time.After(patience)
				}
				if asked == 1 {
					if held && !w.saves && i.say != nil {
						i.say()
					}
					close(i.soft)
				}
			}
		}
	}()
	return ctx, func() {
		signal.Stop(c)
		close(done)
		cancel()
	}
}
