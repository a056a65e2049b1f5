package infer_test

import (
	"context"
	"errors"
	"io"
	"net"
	"syscall"
	"testing"

	"github.com/ccmed/ccmed/infer"
)

func TestIsConnection(t *testing.T) {
	for err, want := range map[error]bool{
		&net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}: true, io.EOF: true, io.ErrUnexpectedEOF: true, syscall.ECONNRESET: true, &net.DNSError{}: true,
		context.Canceled: false, &infer.StatusError{Code: 500}: false, errors.New("x"): false, nil: false,
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
