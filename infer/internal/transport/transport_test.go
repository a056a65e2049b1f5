package transport_test

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ccmed/ccmed/infer"
	"github.com/ccmed/ccmed/infer/internal/transport"
)

// Policies that give up after the first failure, and after the first silence.
var (
	quick  = infer.RetryPolicy{Patience: -1, Timeout: time.Minute}
	silent = infer.RetryPolicy{Patience: -1, Timeout: 200 * time.Millisecond}
)

func client(t *testing.T, address string, p infer.RetryPolicy) *transport.Client {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	return transport.New(transport.Config{Server: u, Name: "test server", Fix: "start it", Policy: p})
}

// raw serves connections that are written to as they are.
func raw(t *testing.T, serve func(net.Conn)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				if r, err := http.ReadRequest(bufio.NewReader(c)); err == nil {
					_, _ = io.Copy(io.Discard, r.Body)
					serve(c)
				}
			}()
		}
	}()
	return "http://" + l.Addr().String()
}

// post makes a request as vendors' clients do and returns the body. Like
// Ollama's client it drops what reading a stream returns.
func post(ctx context.Context, c *transport.Client, address string) (string, error) {
	return transport.Do(ctx, c, func(ctx context.Context) (string, error) {
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, address, strings.NewReader(`{"prompt":"secret text"}`))
		if err != nil {
			return "", err
		}
		resp, err := c.HTTP.Do(r)
		if err != nil {
			return "", err
		}
		defer resp.Body.Close()
		b, _ := io.ReadAll(resp.Body)
		return string(b), nil
	})
}

func zipped(b []byte) []byte {
	var out bytes.Buffer
	z := gzip.NewWriter(&out)
	_, _ = z.Write(b) // a buffer does not fail
	_ = z.Close()
	return out.Bytes()
}

func TestNoFailedResponseIsAnAnswer(t *testing.T) {
	for _, c := range []struct {
		name, response string
		code           int    // of the status error; 0 for a broken answer
		says           string // and the whole of a good answer where it is no error
		good           bool
	}{
		{"good", "HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\n{\"a\":1}", 0, `{"a":1}`, true},
		{"good and pretty", "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n{\n \"error\": null\n}\n", 0, "{\n \"error\": null\n}\n", true},
		{"several objects", "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n{\"a\":1}\n{\"a\":2}\n", 0, "{\"a\":1}\n{\"a\":2}\n", true},
		{"a stream", "HTTP/1.1 200 OK\r\nContent-Type: application/x-ndjson\r\nConnection: close\r\n\r\n{\"a\":1}\n\n{\"a\":2}\n", 0, "{\"a\":1}\n{\"a\":2}\n", true},
		{"created", "HTTP/1.1 201 Created\r\nContent-Length: 0\r\n\r\n", 0, "", true},

		{"401", "HTTP/1.1 401 No\r\nContent-Length: 0\r\n\r\n", 401, "the server answered 401: unauthorized", false},
		{"502 in HTML", "HTTP/1.1 502 Bad\r\nConnection: close\r\n\r\n<html><head><title>Bad \x1b[31mgateway</title></head>", 502, "an HTML page (Bad [31mgateway)", false},
		{"503 in JSON", "HTTP/1.1 503 Busy\r\nConnection: close\r\n\r\n{\"error\":{\"message\":\"loading model\",\"code\":503}}", 503, "the server answered 503: loading model", false},
		{"503 in vLLM's JSON", "HTTP/1.1 400 Bad\r\nConnection: close\r\n\r\n{\"object\":\"error\",\"message\":\"no such\",\"code\":400}", 400, "no such", false},
		{"422 in detail", "HTTP/1.1 422 Bad\r\nConnection: close\r\n\r\n{\"detail\":[{\"msg\":\"m\"}]}", 422, `[{"msg":"m"}]`, false},
		{"503 in words", "HTTP/1.1 503 Busy\r\nConnection: close\r\n\r\nno capacity\nsecond line", 503, "the server answered 503: no capacity", false},
		{"503 cut off", "HTTP/1.1 503 Busy\r\nContent-Length: 99\r\n\r\n", 503, "service unavailable", false},
		{"304", "HTTP/1.1 304 Not Modified\r\n\r\n", 304, "not modified", false},
		{"an error with 200", "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n{\"error\":{\"message\":\"upstream rate limit\",\"code\":429}}", 429, "upstream rate limit", false},
		{"an error with 200 and no code", "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n{\"error\":\"runner died\"}", 500, "runner died", false},
		{"an error in a stream", "HTTP/1.1 200 OK\r\nContent-Type: application/x-ndjson\r\nConnection: close\r\n\r\n{\"a\":1}\n{\"error\":\"runner died\"}\n", 500, "runner died", false},

		{"204", "HTTP/1.1 204 No Content\r\n\r\n", 0, "is empty", false},
		{"200 and nothing", "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", 0, "is empty", false},
		{"an empty stream", "HTTP/1.1 200 OK\r\nContent-Type: application/x-ndjson\r\nConnection: close\r\n\r\n", 0, "is empty", false},
		{"cut off", "HTTP/1.1 200 OK\r\nContent-Length: 5000\r\n\r\n{\"model\":", 0, "ends after 9 of 5000 bytes", false},
		{"cut off without a length", "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n{\"model\":", 0, "breaks off after 9 bytes", false},
		{"a chunk cut off", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n8\r\n{\"mo", 0, "breaks off after 4 bytes", false},
		{"a stream cut off", "HTTP/1.1 200 OK\r\nContent-Type: application/x-ndjson\r\nTransfer-Encoding: chunked\r\n\r\n8\r\n{\"a\":1}\n\r\n", 0, "breaks off after 8 bytes", false},
		{"a line cut off", "HTTP/1.1 200 OK\r\nContent-Type: application/x-ndjson\r\nConnection: close\r\n\r\n{\"a\":1}\n{\"a\":", 0, "breaks off", false},
		{"HTML with 200", "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n<!doctype html><h1>Log in</h1>", 0, "an HTML page (Log in) and not with JSON", false},
		{"words with 200", "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nhello", 0, "is no JSON object: hello", false},
		{"a list", "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n[1]", 0, "is no JSON object: [1]", false},
		{"Latin-1", "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n{\"a\":\"\xff\"}", 0, "byte FF is no UTF-8", false},
		{"a key twice", "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n{\"a\":{\"b\":1,\"B\":null}}", 0, "differ in case only", false},
		{"bad gzip", "HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nConnection: close\r\n\r\n{\"a\":\"no gzip at all\"}", 0, "gzip", false},
		{"no HTTP", "hello\r\n\r\n", 0, "is not HTTP", false},
		{"nothing", "", 0, "closed the connection without an answer", false},
		{"half a header", "HTTP/1.1 200 OK\r\nContent-", 0, "is not HTTP", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			address := raw(t, func(n net.Conn) { _, _ = io.WriteString(n, c.response) })
			text, err := post(context.Background(), client(t, address, quick), address)
			if c.good {
				if err != nil || text != c.says {
					t.Errorf("got %q, %v", text, err)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), c.says) || strings.Contains(err.Error(), "invalid character '<'") {
				t.Fatalf("got %q, %v; want %q", text, err, c.says)
			}
			var status *infer.StatusError
			var broken *infer.BrokenError
			if errors.As(err, &status) && status.Code != c.code || !errors.As(err, &status) && (c.code != 0 || !errors.As(err, &broken)) {
				t.Errorf("got %T %v, want the status %d", err, err, c.code)
			}
		})
	}
}

func TestMemoryStaysSmall(t *testing.T) {
	bomb := zipped(append([]byte(`{"a":"`), make([]byte, 100<<20)...))
	line := append([]byte(`{"a":"`), bytes.Repeat([]byte("x"), transport.MaxLine)...)
	for name, serve := range map[string]func(http.ResponseWriter){
		"gzip bomb": func(w http.ResponseWriter) {
			w.Header().Set("Content-Encoding", "gzip")
			_, _ = w.Write(bomb)
		},
		"padding": func(w http.ResponseWriter) {
			for range 200 {
				if _, err := w.Write(bytes.Repeat([]byte(" "), 1<<20)); err != nil {
					return
				}
			}
		},
		"a long line": func(w http.ResponseWriter) {
			w.Header().Set("Content-Type", "application/x-ndjson")
			_, _ = w.Write(line)
		},
		"a stream without end": func(w http.ResponseWriter) {
			w.Header().Set("Content-Type", "application/x-ndjson")
			for {
				if _, err := io.WriteString(w, `{"a":"`+strings.Repeat("x", 1<<10)+"\"}\n"); err != nil {
					return
				}
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { serve(w) }))
			defer s.Close()
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, err := post(transport.WithLimit(context.Background(), 5<<20), client(t, s.URL, quick), s.URL)
			runtime.ReadMemStats(&after)
			var broken *infer.BrokenError
			if !errors.As(err, &broken) || !strings.Contains(err.Error(), "longer than") {
				t.Errorf("got %v", err)
			}
			if mb := int64(after.HeapSys-before.HeapSys) >> 20; mb > 150 { // the server is in this process too
				t.Errorf("the heap grew by %d MiB", mb)
			}
		})
	}
}

// A redirect off the host would carry the prompt to a stranger.
func TestRedirectsStayOnTheHost(t *testing.T) {
	var heard atomic.Int32
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		heard.Add(1)
		_, _ = io.WriteString(w, `{"a":2}`)
	}))
	defer other.Close()
	to := ""
	status := 307
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/here" {
			b, _ := io.ReadAll(r.Body)
			_ = json.NewEncoder(w).Encode(map[string]string{"method": r.Method, "body": string(b)})
			return
		}
		w.Header().Set("Location", to)
		w.WriteHeader(status)
	}))
	defer s.Close()
	for _, status = range []int{301, 302, 303, 307, 308} {
		to = other.URL + "/x"
		_, err := post(context.Background(), client(t, s.URL, quick), s.URL)
		var e *infer.StatusError
		if !errors.As(err, &e) || e.Code != status || !strings.Contains(err.Error(), other.URL) {
			t.Errorf("%d to another host: %v", status, err)
		}
		to = "/here"
		text, err := post(context.Background(), client(t, s.URL, quick), s.URL)
		if keeps := status > 303; keeps != (err == nil) || keeps && !strings.Contains(text, `"method":"POST"`) {
			t.Errorf("%d on the host: %q, %v", status, text, err)
		}
	}
	if heard.Load() != 0 {
		t.Errorf("the other host was asked %d times", heard.Load())
	}
}

func TestSilenceEnds(t *testing.T) {
	for name, answer := range map[string]string{
		"before the answer": "", "in an answer": "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n{",
		"in a stream": "HTTP/1.1 200 OK\r\nContent-Type: application/x-ndjson\r\n\r\n{}\n",
	} {
		t.Run(name, func(t *testing.T) {
			address := raw(t, func(n net.Conn) {
				_, _ = io.WriteString(n, answer)
				_, _ = io.Copy(io.Discard, n)
			})
			start := time.Now()
			_, err := post(context.Background(), client(t, address, silent), address)
			var e *infer.BrokenError
			if !errors.As(err, &e) || !strings.Contains(err.Error(), "silent for 200ms") {
				t.Errorf("got %v", err)
			}
			if d := time.Since(start); d > 10*time.Second {
				t.Errorf("it took %s", d)
			}
			ctx, cancel := context.WithCancel(context.Background())
			time.AfterFunc(20*time.Millisecond, cancel)
			start = time.Now()
			if _, err := post(ctx, client(t, address, quick), address); !errors.Is(err, context.Canceled) || time.Since(start) > 10*time.Second {
				t.Errorf("cancelled: %v after %s", err, time.Since(start))
			}
		})
	}
}

// A server that is silent for long is told of, once for all that wait for it.
func TestSilenceIsTold(t *testing.T) {
	address := raw(t, func(n net.Conn) {
		time.Sleep(time.Second)
		_, _ = io.WriteString(n, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")
	})
	told := make(chan string, 9)
	c := client(t, address, infer.RetryPolicy{Notify: func(s string) { told <- s }})
	transport.TellAfter(c, 50*time.Millisecond)
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			if text, err := post(context.Background(), c, address); err != nil || text != "{}" {
				t.Errorf("got %q, %v", text, err)
			}
		})
	}
	wg.Wait()
	if s := <-told; len(told) != 0 || s != address+" has been silent for 50ms (it may be loading the model); waiting up to 10m0s" {
		t.Errorf("told %q and %d more", s, len(told))
	}
}

// A server that goes on sending is not silent, however long it takes.
func TestASlowStreamIsNotSilent(t *testing.T) {
	address := raw(t, func(n net.Conn) {
		_, _ = io.WriteString(n, "HTTP/1.1 200 OK\r\nContent-Type: application/x-ndjson\r\nConnection: close\r\n\r\n")
		for range 6 {
			time.Sleep(250 * time.Millisecond)
			_, _ = io.WriteString(n, "{}\n")
		}
	})
	p := infer.RetryPolicy{Patience: -1, Timeout: time.Second}
	if text, err := post(context.Background(), client(t, address, p), address); err != nil || text != strings.Repeat("{}\n", 6) {
		t.Errorf("got %q, %v", text, err)
	}
}

// served answers by the number of the request.
func served(t *testing.T, f func(n int, w http.ResponseWriter)) (address string, count *atomic.Int32) {
	t.Helper()
	count = new(atomic.Int32)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { f(int(count.Add(1)), w) }))
	t.Cleanup(s.Close)
	return s.URL, count
}

func good(w http.ResponseWriter) { _, _ = io.WriteString(w, `{"a":1}`) }

func TestWhatIsTriedAgain(t *testing.T) {
	for status, again := range map[int]bool{400: false, 401: false, 403: false, 404: false, 408: true, 413: false, 422: false, 425: true, 429: true,
		500: true, 502: true, 503: true, 504: true} {
		address, count := served(t, func(n int, w http.ResponseWriter) {
			if n == 1 {
				w.WriteHeader(status)
				return
			}
			good(w)
		})
		notices := 0
		c := client(t, address, infer.RetryPolicy{First: time.Millisecond, Notify: func(s string) { notices++ }})
		_, err := post(context.Background(), c, address)
		if (err == nil) != again || (count.Load() == 2) != again || (notices == 1) != again {
			t.Errorf("%d: %d requests, %d notices, %v", status, count.Load(), notices, err)
		}
	}
}

// What the answer's form tells is tried again when it is broken, and at no other
// error; patience ends.
func TestWhatTheBackendFinds(t *testing.T) {
	for name, c := range map[string]struct {
		err   error
		again bool
	}{
		"broken":      {&infer.BrokenError{What: "no choices"}, true},
		"wrapped":     {fmt.Errorf("reading: %w", &infer.BrokenError{What: "no choices"}), true},
		"form":        {json.Unmarshal([]byte(`{"a":"b"}`), &struct{ A int }{}), true},
		"too long":    {&infer.ContextError{Need: 9, Have: 8}, false},
		"no model":    {&infer.MissingError{What: "no model", Err: &infer.StatusError{Code: 404}}, false},
		"unsupported": {infer.ErrUnsupported, false},
	} {
		tries := 0
		start := time.Now()
		asked := client(t, "http://127.0.0.1:1", infer.RetryPolicy{Patience: 100 * time.Millisecond, First: 10 * time.Millisecond})
		_, err := transport.Do(context.Background(), asked, func(context.Context) (int, error) { tries++; return 7, c.err })
		if err == nil || (tries > 1) != c.again || c.again && time.Since(start) < 100*time.Millisecond {
			t.Errorf("%s: %d tries in %s, %v", name, tries, time.Since(start), err)
		}
		var broken *infer.BrokenError
		if errors.As(err, &broken) != c.again || !errors.Is(err, c.err) {
			t.Errorf("%s: %T %v", name, err, err)
		}
	}
}

// With every fifth request failing, in changing ways, every answer arrives.
func TestAFifthMayFail(t *testing.T) {
	ways := []func(http.ResponseWriter){
		func(w http.ResponseWriter) { w.WriteHeader(503) },
		func(w http.ResponseWriter) { panic(http.ErrAbortHandler) },
		func(w http.ResponseWriter) { w.Header().Set("Content-Length", "99"); good(w) },
		func(w http.ResponseWriter) {},
		func(w http.ResponseWriter) { _, _ = io.WriteString(w, "<html>") },
		func(w http.ResponseWriter) { _, _ = io.WriteString(w, `{"error":{"code":429}}`) },
	}
	address, count := served(t, func(n int, w http.ResponseWriter) {
		if n%5 == 0 {
			ways[n/5%len(ways)](w)
			return
		}
		good(w)
	})
	c := client(t, address, infer.RetryPolicy{First: time.Microsecond, Longest: time.Microsecond})
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 100 {
				if text, err := post(context.Background(), c, address); err != nil || text != `{"a":1}` {
					t.Errorf("got %q, %v", text, err)
				}
			}
		})
	}
	wg.Wait()
	if n := count.Load(); n != 499 && n != 500 {
		t.Errorf("%d requests for 400 answers, want a quarter more", n)
	}
}

func TestRetryAfter(t *testing.T) {
	for _, c := range []struct {
		header func() string
		least  time.Duration
		most   time.Duration
		ok     bool
	}{
		{func() string { return "1" }, time.Second, 8 * time.Second, true},
		{func() string { return time.Now().Add(2 * time.Second).UTC().Format(http.TimeFormat) }, 900 * time.Millisecond, 8 * time.Second, true},
		{func() string { return "0" }, 0, 8 * time.Second, true},
		{func() string { return "soon" }, 0, 8 * time.Second, true},
		{func() string { return "3600" }, 0, 8 * time.Second, false},
	} {
		t.Run(c.header(), func(t *testing.T) {
			t.Parallel()
			address, _ := served(t, func(n int, w http.ResponseWriter) {
				if n == 1 {
					w.Header().Set("Retry-After", c.header())
					w.WriteHeader(503)
					return
				}
				good(w)
			})
			start := time.Now()
			_, err := post(context.Background(), client(t, address, infer.RetryPolicy{Patience: 10 * time.Second, First: time.Millisecond}), address)
			if d := time.Since(start); (err == nil) != c.ok || d < c.least || d > c.most {
				t.Errorf("%v after %s", err, d)
			}
			if !c.ok && !strings.Contains(err.Error(), "--patience") {
				t.Errorf("got %v", err)
			}
		})
	}
}

// A broken answer never says that no server answers, an absent server does, at
// once; one that was there is waited for.
func TestAbsentAndBroken(t *testing.T) {
	var missing *infer.MissingError
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := "http://" + l.Addr().String()
	l.Close()
	start := time.Now()
	if _, err := post(context.Background(), client(t, address, infer.RetryPolicy{}), address); !errors.As(err, &missing) ||
		err.Error() != fmt.Sprintf("no test server answers at %s: %v; start it", address, missing.Err) || time.Since(start) > 10*time.Second {
		t.Errorf("absent: %v after %s", err, time.Since(start))
	}
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { good(w) }))
	s.Start()
	c := client(t, s.URL, infer.RetryPolicy{Patience: 300 * time.Millisecond, First: 10 * time.Millisecond})
	if _, err := post(context.Background(), c, s.URL); err != nil {
		t.Fatal(err)
	}
	s.Close()
	start = time.Now()
	if _, err := post(context.Background(), c, s.URL); !errors.As(err, &missing) || time.Since(start) < 300*time.Millisecond {
		t.Errorf("gone: %v after %s", err, time.Since(start))
	}
	c = client(t, s.URL, infer.RetryPolicy{First: time.Hour, Longest: time.Hour})
	ctx, cancel := context.WithCancel(context.Background())
	time.AfterFunc(50*time.Millisecond, cancel)
	address, _ = served(t, func(_ int, w http.ResponseWriter) { w.WriteHeader(503) })
	start = time.Now()
	if _, err := post(ctx, c, address); !errors.Is(err, context.Canceled) || time.Since(start) > 10*time.Second {
		t.Errorf("cancelled in a wait: %v after %s", err, time.Since(start))
	}
}

func TestRedactedAddress(t *testing.T) {
	_, err := post(context.Background(), client(t, "http://alice:PW@127.0.0.1:1", infer.RetryPolicy{}), "http://alice:PW@127.0.0.1:1")
	if err == nil || strings.Contains(err.Error(), "PW") || strings.Contains(err.Error(), "alice") {
		t.Errorf("got %v", err)
	}
}
