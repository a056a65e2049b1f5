package infer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"syscall"
	"time"
)

// ErrUnsupported reports that a backend cannot do what was asked.
var ErrUnsupported = errors.New("infer: not supported by this backend")

// MissingError reports a service, model or library that is needed and not
// there. Fix is a command or sentence that mends it. The command exits with 4.
type MissingError struct {
	What, Fix string
	Err       error
}

func (e *MissingError) Error() string {
	s := e.What
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	if e.Fix != "" {
		s += "; " + e.Fix
	}
	return s
}

func (e *MissingError) Unwrap() error { return e.Err }

// ContextError reports a prompt that does not fit the context. Need counts the
// prompt's tokens plus one for the answer; About is true where it is an estimate.
type ContextError struct {
	Need, Have int
	About      bool
}

func (e *ContextError) Error() string {
	about := ""
	if e.About {
		about = "about "
	}
	return fmt.Sprintf("the prompt needs %s%d tokens of context and num_ctx is %d; raise --num-ctx", about, e.Need, e.Have)
}

// StatusError is an HTTP error status of a server, with its own words. An error
// that a server sends with the status 200 is one too.
type StatusError struct {
	Code    int
	Message string
	// After is how long the server asks to wait (Retry-After); 0 where it does not.
	After time.Duration
}

func (e *StatusError) Error() string {
	return fmt.Sprintf("the server answered %d: %s", e.Code, e.Message)
}

// BrokenError reports an answer that is incomplete or malformed, or did not come
// in time. What says what happened, as a clause: "the server's answer ends after
// 11 of 5000 bytes". The same request may be answered well when it is made again.
type BrokenError struct {
	What string
	Err  error // what was read from the connection; may be nil
}

func (e *BrokenError) Error() string { return e.What }

func (e *BrokenError) Unwrap() error { return e.Err }

// IsConnection reports whether err is a failure to reach a server or to keep
// its connection, as opposed to an answer of it or to the caller's giving up.
func IsConnection(err error) bool {
	if err == nil || errors.Is(err, context.Canceled) {
		return false
	}
	var op *net.OpError
	var dns *net.DNSError
	return errors.As(err, &op) || errors.As(err, &dns) ||
		errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE) ||
		errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF)
}
