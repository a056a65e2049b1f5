package infer

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/cenkalti/backoff/v5"
)

// Defaults of a RetryPolicy.
const (
	DefaultPatience = 5 * time.Minute
	DefaultTimeout  = 10 * time.Minute
)

// RetryPolicy says how long a backend waits for one request; the zero value
// means the defaults.
type RetryPolicy struct {
	// Patience is how long a request that failed is made again, counted from its
	// first failure; 0 means DefaultPatience, below 0 not at all.
	Patience time.Duration
	// Timeout is how long a server may be silent before the request counts as
	// failed; 0 means DefaultTimeout. It is long because a server loads its model
	// before the first answer.
	Timeout time.Duration
	First   time.Duration // wait before the second attempt, growing from there; 0 means 0.5 s
	Longest time.Duration // longest wait that the server did not ask for; 0 means 30 s
	// Notify is told, in a sentence, of a request that is made again and of a
	// server that has been silent for long. It may be nil and must be safe for
	// concurrent use.
	Notify func(notice string)

	Tries uint // of Retry; 0 means 6
}

// Retry wraps a backend so that failed requests are tried again with growing
// waits: 429 and 5xx, and connection errors once a request has succeeded.
// Before the first success a connection error is a *MissingError at once, since
// the server is then most likely not running. No other 4xx is tried again.
func Retry(b Backend, p RetryPolicy) Backend {
	if p.Tries == 0 {
		p.Tries = 6
	}
	if p.First == 0 {
		p.First = 500 * time.Millisecond
	}
	if p.Longest == 0 {
		p.Longest = 30 * time.Second
	}
	return &retrying{Backend: b, policy: p}
}

type retrying struct {
	Backend
	policy    RetryPolicy
	succeeded atomic.Bool
}

func retry[T any](ctx context.Context, r *retrying, f func() (T, error)) (T, error) {
	wait := backoff.NewExponentialBackOff()
	wait.InitialInterval = r.policy.First
	wait.MaxInterval = r.policy.Longest
	return backoff.Retry(ctx, func() (T, error) {
		v, err := f()
		if err == nil {
			r.succeeded.Store(true)
			return v, nil
		}
		if ctx.Err() != nil {
			return v, backoff.Permanent(ctx.Err())
		}
		if !r.again(err) {
			return v, backoff.Permanent(err)
		}
		return v, err
	}, backoff.WithBackOff(wait), backoff.WithMaxTries(r.policy.Tries), backoff.WithMaxElapsedTime(0),
		backoff.WithNotify(func(err error, d time.Duration) {
			if r.policy.Notify != nil {
				r.policy.Notify(fmt.Sprintf("trying again in %s: %v", d.Round(100*time.Millisecond), err))
			}
		}))
}

func (r *retrying) again(err error) bool {
	var missing *MissingError
	var status *StatusError
	switch {
	case errors.As(err, &missing):
		// A server that is gone in mid-run says "missing" too: it may come back.
		return r.succeeded.Load() && IsConnection(missing.Err)
	case errors.As(err, &status):
		return status.Code == http.StatusTooManyRequests || status.Code >= 500
	}
	return r.succeeded.Load() && IsConnection(err)
}

func (r *retrying) Chat(ctx context.Context, p Prompt, o Params) (Reply, error) {
	return retry(ctx, r, func() (Reply, error) { return r.Backend.Chat(ctx, p, o) })
}

func (r *retrying) Choose(ctx context.Context, ps []Prompt, as []Answer, o Params) ([]Choice, error) {
	return retry(ctx, r, func() ([]Choice, error) { return r.Backend.Choose(ctx, ps, as, o) })
}

func (r *retrying) Embed(ctx context.Context, texts []string) ([][]float32, error) {
	return retry(ctx, r, func() ([][]float32, error) { return r.Backend.Embed(ctx, texts) })
}

func (r *retrying) Model(ctx context.Context) (Model, error) {
	return retry(ctx, r, func() (Model, error) { return r.Backend.Model(ctx) })
}

func (r *retrying) Render(ctx context.Context, p Prompt) (string, error) {
	return retry(ctx, r, func() (string, error) { return r.Backend.Render(ctx, p) })
}

// CountTokens asks the wrapped backend, where it can count.
func (r *retrying) CountTokens(ctx context.Context, rendered string) (int, error) {
	if c, ok := r.Backend.(TokenCounter); ok {
		return c.CountTokens(ctx, rendered)
	}
	return 0, ErrUnsupported
}
