// Command ccmed measures when and how well local language models mediate
// cross-cultural conflict. See `ccmed help` and the docs folder.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
	"time"
)

func main() {
	a := &app{stdin: os.Stdin, stdout: os.Stdout, stderr: os.Stderr, getenv: os.Getenv, now: time.Now}
	os.Exit(a.main(os.Args[1:]))
}

// signals turns the first interrupt into a request to stop after the items in
// hand (soft is closed) and the second one into a cancelled context.
func signals(parent context.Context) (ctx context.Context, soft <-chan struct{}, stop func()) {
	ctx, cancel := context.WithCancel(parent)
	first := make(chan struct{})
	c := make(chan os.Signal, 2)
	signal.Notify(c, os.Interrupt, syscall.SIGTERM)
	done := make(chan struct{})
	go func() {
		select {
		case <-c:
			close(first)
		case <-done:
			return
		}
		select {
		case <-c:
			cancel()
		case <-done:
		}
	}()
	return ctx, first, func() {
		signal.Stop(c)
		close(done)
		cancel()
	}
}
