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

type keptKey struct{}

// keep returns a context under which the body of a request's answer is copied
// into body, see keeping.
func keep(ctx context.Context, body *[]byte) context.Context {
	return context.WithValue(ctx, keptKey{}, body)
}

// keeping copies the bodies of answers. go-openai reads a log-probability of
// null as 0, which is certainty, and leaves out what servers add to the API:
// the answer is read once more, from its body.
type keeping struct{ next http.RoundTripper }

func (k keeping) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := k.next.RoundTrip(r)
	body, _ := r.Context().Value(keptKey{}).(*[]byte)
	if err != nil || body == nil {
		return resp, err
	}
	defer resp.Body.Close()
	if *body, err = io.ReadAll(resp.Body); err != nil {
		return nil, err
	}
	resp.Body = io.NopCloser(bytes.NewReader(*body))
	return resp, nil
}
