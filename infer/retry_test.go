package infer_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/ccmed/ccmed/infer"
	"github.com/ccmed/ccmed/infer/infertest"
)

var (
	refused = &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
	gone    = &infer.MissingError{What: "no server answers", Err: refused}
)

func status(code int) error {
	return fmt.Errorf("asking: %w", &infer.StatusError{Code: code, Message: "m"})
}

func TestRetry(t *testing.T) {
	for _, c := range []struct {
		name  string
		err   error
		after int // calls that succeed first
		tries int // calls made for the one that fails once
		ok    bool
	}{
		{"429", status(429), 0, 2, true},
		{"500", status(500), 0, 2, true},
		{"503", status(503), 0, 2, true},
		{"400", status(400), 0, 1, false},
		{"404", status(404), 1, 1, false},
		{"context too small", &infer.ContextError{Need: 9, Have: 8}, 1, 1, false},
		{"connection, before the first success", refused, 0, 1, false},
		{"connection, after it", refused, 1, 2, true},
		{"missing server, before", gone, 0, 1, false},
		{"missing server, after", gone, 1, 2, true},
		{"missing model, after", &infer.MissingError{What: "no model", Err: status(404)}, 1, 1, false},
		{"cut off, after", io.ErrUnexpectedEOF, 1, 2, true},
		{"anything else", errors.New("x"), 1, 1, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := &infertest.Scripted{Fail: infertest.FailAt(c.after+1, c.err)}
			notified := 0
			b := infer.Retry(s, infer.RetryPolicy{First: time.Microsecond, Notify: func(string) { notified++ }})
			for range c.after {
				if _, err := b.Chat(context.Background(), infer.Prompt{Raw: "x"}, infer.Params{}); err != nil {
					t.Fatal(err)
				}
			}
			_, err := b.Chat(context.Background(), infer.Prompt{Raw: "x"}, infer.Params{})
			if (err == nil) != c.ok {
				t.Errorf("got %v", err)
			}
			if err != nil && !errors.Is(err, c.err) {
				t.Errorf("got %v, want %v kept", err, c.err)
			}
			if n := s.Count() - c.after; n != c.tries || notified != c.tries-1 {
				t.Errorf("%d tries, %d notices; want %d tries", n, notified, c.tries)
			}
		})
	}
}

func TestRetryGivesUp(t *testing.T) {
	s := &infertest.Scripted{Fail: func(int, infertest.Call) error { return status(503) }}
	b := infer.Retry(s, infer.RetryPolicy{Tries: 3, First: time.Microsecond})
	_, err := b.Choose(context.Background(), []infer.Prompt{{Raw: "x"}}, infer.Digits(1, 2), infer.Params{})
	var e *infer.StatusError
	if !errors.As(err, &e) || s.Count() != 3 {
		t.Errorf("%d tries, %v", s.Count(), err)
	}
}

func TestRetryEndsWithTheContext(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	s := &infertest.Scripted{Fail: func(int, infertest.Call) error { cancel(); return status(503) }}
	b := infer.Retry(s, infer.RetryPolicy{First: time.Hour})
	if _, err := b.Chat(ctx, infer.Prompt{Raw: "x"}, infer.Params{}); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if s.Count() != 1 {
		t.Errorf("%d tries after the end of the context", s.Count())
	}
}

func TestIsConnection(t *testing.T) {
	for err, want := range map[error]bool{
		refused: true, io.EOF: true, io.ErrUnexpectedEOF: true, syscall.ECONNRESET: true, &net.DNSError{}: true,
		context.Canceled: false, status(500): false, errors.New("x"): false, nil: false,
	} {
		if got := infer.IsConnection(err); got != want {
			t.Errorf("IsConnection(%v) = %v", err, got)
		}
	}
}

func TestErrorsSayWhatToDo(t *testing.T) {
	for err, want := range map[error]string{
		&infer.ContextError{Need: 2050, Have: 2048}:              "the prompt needs 2050 tokens of context and num_ctx is 2048; raise --num-ctx",
		&infer.ContextError{Need: 2050, Have: 2048, About: true}: "the prompt needs about 2050 tokens of context and num_ctx is 2048; raise --num-ctx",
		&infer.MissingError{What: "no model", Fix: "pull it"}:    "no model; pull it",
		&infer.MissingError{What: "w", Fix: "f", Err: io.EOF}:    "w: EOF; f",
		&infer.StatusError{Code: 503, Message: "busy"}:           "the server answered 503: busy",
	} {
		if err.Error() != want {
			t.Errorf("got %q, want %q", err.Error(), want)
		}
	}
}
