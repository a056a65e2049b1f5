package infer

import (
	"context"
	"errors"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/cenkalti/backoff/v5"
)

// RetryPolicy says how long to go on trying.
type RetryPolicy struct {
	Tries   uint          // attempts in all; 0 means 6
	First   time.Duration // wait before the second attempt; 0 means 0.5 s
	Longest time.Duration // longest single wait; 0 means 30 s
	// Notify is told of every failed attempt that is tried again; may be nil.
	Notify func(err error, wait time.Duration)
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
				r.policy.Notify(err, d)
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
