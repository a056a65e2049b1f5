package transport

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"
)

// noticeAfter is how long a server may be silent before the user is told, and
// noticeEvery how often at most.
const (
	noticeAfter = 30 * time.Second
	noticeEvery = 5 * time.Minute
)

var errSilent = errors.New("transport: the server was silent for too long")

// silence ends a request during which nothing moves for the policy's Timeout.
type silence struct {
	longest   time.Duration
	tellAfter time.Duration
	cancel    context.CancelCauseFunc

	mu              sync.Mutex // a request may still be sent when its answer has been read
	timeout, notice *time.Timer
	stopped         bool
}

func (c *Client) watch(cancel context.CancelCauseFunc) *silence {
	return &silence{
		longest: c.policy.Timeout, cancel: cancel,
		timeout: time.AfterFunc(c.policy.Timeout, func() { cancel(errSilent) }),
		notice:  time.AfterFunc(c.tellAfter, c.tell), tellAfter: c.tellAfter,
	}
}

func (s *silence) touch() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.stopped {
		s.timeout.Reset(s.longest)
		s.notice.Reset(s.tellAfter)
	}
}

func (s *silence) stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stopped = true
	s.timeout.Stop()
	s.notice.Stop()
	s.cancel(nil)
}

func (c *Client) tell() {
	now, last := time.Now().UnixNano(), c.noticed.Load()
	if c.policy.Timeout > c.tellAfter && now-last >= int64(noticeEvery) && c.noticed.CompareAndSwap(last, now) {
		c.policy.Notify(fmt.Sprintf("%s has been silent for %s (it may be loading the model); waiting up to %s",
			c.address(), c.tellAfter, c.policy.Timeout))
	}
}

// upload is a request's body; sending it is no silence.
type upload struct {
	io.ReadCloser
	wait *silence
}

func (u upload) Read(p []byte) (int, error) {
	u.wait.touch()
	return u.ReadCloser.Read(p)
}
