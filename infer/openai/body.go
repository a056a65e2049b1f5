package openai

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
)

// fields are members to be written into a request's JSON body.
type fields map[string]any

type fieldsKey struct{}

func withFields(ctx context.Context, f fields) context.Context {
	return context.WithValue(ctx, fieldsKey{}, f)
}

// explicit writes the fields that a request's context carries into its body.
// go-openai drops zeros (omitempty), so that temperature 0 would become the
// server's default; a tiny number instead, as its author advises, crashes
// Ollama's runner.
type explicit struct{ next http.RoundTripper }

func (e explicit) RoundTrip(r *http.Request) (*http.Response, error) {
	f, _ := r.Context().Value(fieldsKey{}).(fields)
	if len(f) == 0 || r.Body == nil {
		return e.next.RoundTrip(r)
	}
	raw, err := io.ReadAll(r.Body)
	r.Body.Close()
	if err != nil {
		return nil, fmt.Errorf("reading a request's body: %w", err)
	}
	body := map[string]json.RawMessage{}
	if err := json.Unmarshal(raw, &body); err != nil {
		return nil, fmt.Errorf("reading a request's body as JSON: %w", err)
	}
	for k, v := range f {
		if body[k], err = json.Marshal(v); err != nil {
			return nil, fmt.Errorf("writing %s into a request's body: %w", k, err)
		}
	}
	if raw, err = json.Marshal(body); err != nil {
		return nil, fmt.Errorf("writing a request's body: %w", err)
	}
	sent := r.Clone(r.Context()) // a RoundTripper must not change its request
	sent.Body = io.NopCloser(bytes.NewReader(raw))
	sent.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(raw)), nil }
	sent.ContentLength = int64(len(raw))
	sent.Header.Set("Content-Length", strconv.Itoa(len(raw)))
	return e.next.RoundTrip(sent)
}
