// Package transport carries the requests of the backends that ask a server. It
// lets an answer through only when the server gave one: with a good status,
// whole, of the host that was asked, in time, of a size that memory bears. What
// else comes back is an error, and Do makes the request again where that can
// help.
//
//	c := transport.New(transport.Config{Server: base, Name: "Ollama server", Policy: policy})
//	vendor := api.NewClient(base, c.HTTP)
//	version, err := transport.Do(ctx, c, func(ctx context.Context) (string, error) { return vendor.Version(ctx) })
//
// What only the vendor's protocol can tell (a missing "done", no choices) the
// function given to Do reports as *infer.BrokenError, which is tried again too.
package transport

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/ccmed/ccmed/infer"
)

// Limits on what a server may send, decompressed.
const (
	MaxBody = 64 << 20 // bytes of an answer, unless WithLimit says fewer
	MaxLine = 4 << 20  // bytes of one line of a stream
	maxFail = 64 << 10 // bytes read of an answer with an error status
)

// Config says whom a Client asks.
type Config struct {
	Base   *http.Client // carries the requests; nil means a transport of our own
	Server *url.URL
	Name   string // of the kind of server, for messages: "Ollama server"
	Fix    string // what to do when none answers
	Policy infer.RetryPolicy
}

// Client makes requests to one server. It is safe for concurrent use.
type Client struct {
	HTTP *http.Client // for the vendor's client

	next      http.RoundTripper
	server    *url.URL
	name      string
	fix       string
	policy    infer.RetryPolicy
	tellAfter time.Duration
	answered  atomic.Bool  // the server has answered, if only to refuse
	noticed   atomic.Int64 // when a silence was last told, in Unix nanoseconds
}

// pool keeps a connection for every worker. The environment's proxies hold, but
// never for this machine's own addresses.
var pool = func() *http.Transport {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.MaxIdleConns, t.MaxIdleConnsPerHost = 0, 64
	return t
}()

// New returns a client of a server.
func New(c Config) *Client {
	p := c.Policy
	orElse := func(d *time.Duration, value time.Duration) {
		if *d == 0 {
			*d = value
		}
	}
	orElse(&p.Patience, infer.DefaultPatience)
	orElse(&p.Timeout, infer.DefaultTimeout)
	orElse(&p.First, 500*time.Millisecond)
	orElse(&p.Longest, 30*time.Second)
	if p.Notify == nil {
		p.Notify = func(string) {}
	}
	var hc http.Client
	if c.Base != nil {
		hc = *c.Base
	}
	t := &Client{next: hc.Transport, server: c.Server, name: c.Name, fix: c.Fix, policy: p, tellAfter: noticeAfter}
	if t.next == nil {
		t.next = pool
	}
	hc.Transport = roundTripper{t}
	t.HTTP = &hc
	return t
}

type limitKey struct{}

// WithLimit returns a context whose requests' answers may be that many bytes
// long: what the answer that was asked for can need.
func WithLimit(ctx context.Context, bytes int) context.Context {
	return context.WithValue(ctx, limitKey{}, min(bytes, MaxBody))
}

func limit(ctx context.Context) int {
	if n, ok := ctx.Value(limitKey{}).(int); ok {
		return n
	}
	return MaxBody
}

type roundTripper struct{ *Client }

// RoundTrip makes a request once. The body of the answer that it returns has
// been read and checked; that of a stream is checked line by line.
func (c roundTripper) RoundTrip(r *http.Request) (*http.Response, error) {
	a := attemptOf(r.Context())
	a.set(nil)
	ctx, cancel := context.WithCancelCause(r.Context())
	wait := c.watch(cancel)
	sent := r.WithContext(ctx)
	if r.Body != nil {
		sent.Body = upload{r.Body, wait}
	}
	resp, err := c.next.RoundTrip(sent)
	if err != nil {
		err = c.unanswered(ctx, err)
		wait.stop()
		return nil, err
	}
	c.answered.Store(true)
	wait.touch()
	body := &answer{ctx: ctx, raw: resp.Body, wait: wait, limit: limit(ctx), length: resp.ContentLength}
	if resp.StatusCode/100 == 2 && strings.Contains(resp.Header.Get("Content-Type"), "ndjson") {
		body.fail = a.set
		resp.Body = newLines(body)
		return resp, nil
	}
	defer body.Close()
	text, err := c.whole(body, r, resp)
	if err != nil {
		return nil, err
	}
	resp.Body, resp.ContentLength = io.NopCloser(bytes.NewReader(text)), int64(len(text))
	return resp, nil
}

// whole reads an answer that is no stream, and returns an error for what is none.
func (c roundTripper) whole(body *answer, r *http.Request, resp *http.Response) ([]byte, error) {
	switch {
	case resp.StatusCode/100 == 3 && resp.Header.Get("Location") != "":
		to, err := r.URL.Parse(resp.Header.Get("Location"))
		if err == nil && sameHost(r.URL, to) && (r.Method == http.MethodGet || resp.StatusCode == 307 || resp.StatusCode == 308) {
			return nil, nil
		}
		return nil, &infer.StatusError{Code: resp.StatusCode, Message: "it sends us to " + clean(resp.Header.Get("Location")) +
			", which was not asked; name that address with --host if it is the right one"}
	case resp.StatusCode/100 != 2:
		body.limit = maxFail
		text, _ := body.all() // the status says enough
		return nil, &infer.StatusError{Code: resp.StatusCode, Message: words(resp, text), After: retryAfter(resp.Header, time.Now())}
	}
	text, err := body.all()
	if err != nil {
		return nil, err
	}
	if r.Method == http.MethodHead || resp.StatusCode == http.StatusCreated && len(text) == 0 {
		return text, nil
	}
	return text, check(text)
}

// unanswered says why there is no response.
func (c *Client) unanswered(ctx context.Context, err error) error {
	var op *net.OpError
	var dns *net.DNSError
	switch {
	case context.Cause(ctx) == errSilent:
		return c.silent()
	case ctx.Err() != nil:
		return err
	case errors.As(err, &dns), errors.As(err, &op) && op.Op == "dial":
		return &infer.MissingError{What: "no " + c.name + " answers at " + c.address(), Fix: c.fix, Err: err}
	case strings.Contains(err.Error(), "malformed"): // net/http has no type for it
		return &infer.BrokenError{What: "the server's answer is not HTTP: " + clean(err.Error()), Err: err}
	case infer.IsConnection(err):
		return &infer.BrokenError{What: "the server closed the connection without an answer", Err: err}
	}
	return err
}

func (c *Client) address() string { return infer.Redact(c.server.String()) }

func sameHost(a, b *url.URL) bool {
	port := func(u *url.URL) string {
		if u.Port() == "" && u.Scheme == "https" {
			return "443"
		} else if u.Port() == "" {
			return "80"
		}
		return u.Port()
	}
	return a.Scheme == b.Scheme && strings.EqualFold(a.Hostname(), b.Hostname()) && port(a) == port(b)
}

// retryAfter reads how long a server asks to wait, in seconds or until a date.
func retryAfter(h http.Header, now time.Time) time.Duration {
	text := strings.TrimSpace(h.Get("Retry-After"))
	if n, err := strconv.ParseUint(text, 10, 31); err == nil {
		return time.Duration(n) * time.Second
	}
	if t, err := http.ParseTime(text); err == nil {
		return max(0, t.Sub(now))
	}
	return 0
}

func (c *Client) silent() error {
	return &infer.BrokenError{What: fmt.Sprintf("the server was silent for %s; --request-timeout sets how long to wait", c.policy.Timeout)}
}
