package infertest

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"
)

// Response is one scripted HTTP answer. Body is sent as it is when it is a
// string, and as JSON otherwise. Status 0 means 200. Hang closes the connection
// without an answer, as a server that dies does. Delay is waited for before the
// answer.
type Response struct {
	Status int
	Body   any
	Hang   bool
	Delay  time.Duration
}

// Request is one recorded HTTP request.
type Request struct {
	Method, Path string
	Raw          []byte
	Body         map[string]any // the JSON object sent; nil when there was none
}

// Server is an HTTP server that answers from a script and records what it was
// asked. A path that was never scripted is answered with 404.
type Server struct {
	URL string

	mu       sync.Mutex
	script   map[string][]Response
	requests []Request
	inFlight int
	most     int
}

// NewServer starts a scripted server, which stops at the end of the test.
func NewServer(tb testing.TB) *Server {
	tb.Helper()
	s := &Server{script: map[string][]Response{}}
	h := httptest.NewServer(s)
	s.URL = h.URL
	tb.Cleanup(h.Close)
	return s
}

// On scripts the answers to a path, one a request, of which the last is
// repeated. It replaces an earlier script for the path and returns the server.
func (s *Server) On(path string, rs ...Response) *Server {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.script[path] = rs
	return s
}

// Requests returns the requests to a path so far, in order; all when path is
// empty.
func (s *Server) Requests(path string) []Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []Request
	for _, r := range s.requests {
		if path == "" || r.Path == path {
			out = append(out, r)
		}
	}
	return out
}

// MostInFlight returns the greatest number of requests that were waiting for their
// answer at one time.
func (s *Server) MostInFlight() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.most
}

// ServeHTTP answers from the script.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	raw, err := io.ReadAll(r.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	rec := Request{Method: r.Method, Path: r.URL.Path, Raw: raw}
	_ = json.Unmarshal(raw, &rec.Body) // a body that is no object stays in Raw
	s.mu.Lock()
	s.requests = append(s.requests, rec)
	s.inFlight++
	s.most = max(s.most, s.inFlight)
	queue := s.script[r.URL.Path]
	if len(queue) > 1 {
		s.script[r.URL.Path] = queue[1:]
	}
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.inFlight--
	}()
	if len(queue) == 0 {
		http.Error(w, `{"error":"infertest: nothing scripted for `+r.URL.Path+`"}`, http.StatusNotFound)
		return
	}
	answer := queue[0]
	time.Sleep(answer.Delay)
	if answer.Hang {
		panic(http.ErrAbortHandler)
	}
	status := answer.Status
	if status == 0 {
		status = http.StatusOK
	}
	body, ok := answer.Body.(string)
	if !ok {
		b, err := json.Marshal(answer.Body)
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		body = string(b)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = io.WriteString(w, body) // a client that went away is its own affair
}
