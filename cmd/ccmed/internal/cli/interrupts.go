package cli

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

// Work says how something ends at the first interrupt.
type Work struct {
	// Saves is work that saves its state when it is asked to stop and is waited for,
	// until a second interrupt. Other work has inHand for what it has in hand.
	Saves bool
	Again string // the command line that goes on with it
}

// Interrupts are what a user asks for by Ctrl-C or SIGTERM. The first one asks work
// that is under way (Begin) to stop, and ends anything else; the second one ends
// everything; the third one kills the process.
type Interrupts struct {
	soft chan struct{} // closed by the first one
	Say  func()        // called at the first one where items are finished; may be nil
	// Leave ends the process, for what did not end by itself; may be nil.
	Leave func(again string)

	mu     sync.Mutex
	inWork []Work
}

// Begin announces work until end is called.
func (i *Interrupts) Begin(w Work) (end func()) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.inWork = append(i.inWork, w)
	n := len(i.inWork) // work ends in the order opposite to that of its Begin
	return func() {
		i.mu.Lock()
		defer i.mu.Unlock()
		i.inWork = i.inWork[:n-1]
	}
}

// now is the innermost work, and the line that goes on with the outermost.
func (i *Interrupts) now() (w Work, held bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if len(i.inWork) == 0 {
		return Work{}, false
	}
	return Work{i.inWork[len(i.inWork)-1].Saves, i.inWork[0].Again}, true
}

// Listen returns a context that interrupts end, until stop is called, and the channel that
// the first one closes.
func (i *Interrupts) Listen(parent context.Context) (ctx context.Context, soft <-chan struct{}, stop func()) {
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
				if w, _ := i.now(); i.Leave != nil {
					i.Leave(w.Again)
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
				case !w.Saves:
					drop, leave = time.After(inHand), time.After(patience)
				}
				if asked == 1 {
					if held && !w.Saves && i.Say != nil {
						i.Say()
					}
					close(i.soft)
				}
			}
		}
	}()
	return ctx, i.soft, func() {
		signal.Stop(c)
		close(done)
		cancel()
	}
}
