package transport

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v5"

	"github.com/ccmed/ccmed/infer"
)

// attempt holds what reading a stream met, since vendors' clients may drop it.
type attempt struct {
	mu  sync.Mutex
	err error
}

type attemptKey struct{}

func attemptOf(ctx context.Context) *attempt {
	if a, ok := ctx.Value(attemptKey{}).(*attempt); ok {
		return a
	}
	return &attempt{}
}

func (a *attempt) set(err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.err = err
}

func (a *attempt) get() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.err
}

// Do calls f, which makes one request under the context that it is given, and
// calls it again, with growing waits or after what the server asks for, while
// that can help and the policy's Patience lasts: after 408, 425, 429, 5xx and
// *infer.BrokenError, and after *infer.MissingError of a server that has
// answered before. The error is f's own, of package infer where the transport
// or the form of the answer was at fault. It returns at once when ctx ends.
func Do[T any](ctx context.Context, c *Client, f func(context.Context) (T, error)) (T, error) {
	waits := backoff.NewExponentialBackOff()
	waits.InitialInterval, waits.MaxInterval = c.policy.First, c.policy.Longest
	waits.Reset()
	var none T
	var failing time.Time // since when
	for {
		a := &attempt{}
		v, err := f(context.WithValue(ctx, attemptKey{}, a))
		if err == nil {
			err = a.get()
		}
		switch {
		case err == nil:
			return v, nil
		case ctx.Err() != nil:
			return none, ctx.Err()
		}
		if err = typed(err); !c.again(err) {
			return none, err
		}
		if failing.IsZero() {
			failing = time.Now()
		}
		left := c.policy.Patience - time.Since(failing)
		wait := min(waits.NextBackOff(), left)
		var status *infer.StatusError
		if errors.As(err, &status) && status.After > 0 {
			if wait = status.After; wait > left && left > 0 {
				return none, fmt.Errorf("%w (it asks to wait %s, longer than --patience allows)", err, wait)
			}
		}
		if left <= 0 {
			return none, err
		}
		c.policy.Notify(fmt.Sprintf("trying again in %s: %s: %v", wait.Round(100*time.Millisecond), c.address(), err))
		select {
		case <-ctx.Done():
			return none, ctx.Err()
		case <-time.After(wait):
		}
	}
}

// typed takes off what the HTTP client wraps around an error, and names an
// answer of another form than the vendor's.
func typed(err error) error {
	var u *url.Error
	if errors.As(err, &u) {
		err = u.Err
	}
	var syntax *json.SyntaxError
	var form *json.UnmarshalTypeError
	if errors.As(err, &form) || errors.As(err, &syntax) {
		return &infer.BrokenError{What: "the server's answer has not the form of one: " + clean(err.Error()), Err: err}
	}
	return err
}

func (c *Client) again(err error) bool {
	var missing *infer.MissingError
	var broken *infer.BrokenError
	var status *infer.StatusError
	switch {
	case errors.As(err, &missing):
		return c.answered.Load() && infer.IsConnection(missing.Err)
	case errors.As(err, &broken):
		return true
	case errors.As(err, &status):
		switch status.Code {
		case http.StatusRequestTimeout, http.StatusTooEarly, http.StatusTooManyRequests:
			return true
		}
		return status.Code >= 500
	}
	return false
}
