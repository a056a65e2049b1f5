package ollama

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/ollama/ollama/types/model"

	"github.com/ccmed/ccmed/infer"
	"github.com/ccmed/ccmed/infer/internal/transport"
)

// server is where all requests of this package go. Ollama's own client is not
// used: it takes an answer that ends early, or has no body, for a good one, and
// reads a log-probability of null as 0, which is certainty.
type server struct {
	client *transport.Client
	base   *url.URL
}

func dial(host string, hc *http.Client, policy infer.RetryPolicy) (*server, error) {
	base, err := baseURL(host)
	if err != nil {
		return nil, err
	}
	return &server{base: base, client: transport.New(transport.Config{Base: hc, Server: base, Name: "Ollama server",
		Fix: "start it with `ollama serve`, or name another with --host", Policy: policy})}, nil
}

// String returns the address, without a password.
func (s *server) String() string { return infer.Redact(s.base.String()) }

// once makes a request and gives every JSON object of the answer to take, whose
// error ends it.
func (s *server) once(ctx context.Context, method, path string, body any, take func(json.RawMessage) error) error {
	upload, streamed := body.(io.Reader)
	if !streamed && body != nil {
		b, err := json.Marshal(body)
		if err != nil {
			return fmt.Errorf("writing a request: %w", err)
		}
		upload = bytes.NewReader(b)
	}
	if upload == nil {
		upload = http.NoBody
	}
	r, err := http.NewRequestWithContext(ctx, method, s.base.JoinPath(path).String(), upload)
	if err != nil {
		return err
	}
	r.Header.Set("Content-Type", "application/json")
	resp, err := s.client.HTTP.Do(r)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	for d := json.NewDecoder(resp.Body); ; {
		var object json.RawMessage
		if err := d.Decode(&object); err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
		if err := take(object); err != nil {
			return err
		}
	}
}

// get makes a request whose answer is one object, again while that can help;
// check says what is wrong with it.
func get[T any](ctx context.Context, s *server, method, path string, body any, check func(*T) error) (*T, error) {
	return transport.Do(ctx, s.client, func(ctx context.Context) (*T, error) {
		out, n := new(T), 0
		err := s.once(ctx, method, path, body, func(object json.RawMessage) error {
			n++
			return json.Unmarshal(object, out)
		})
		if err != nil {
			return nil, err
		}
		if n != 1 {
			return nil, broken("the server's answer has %d objects instead of one", n)
		}
		return out, check(out)
	})
}

func broken(format string, a ...any) error {
	return &infer.BrokenError{What: fmt.Sprintf(format, a...)}
}

// elsewhere refuses a model that the server only passes requests on to.
func elsewhere(name, host string) error {
	return fmt.Errorf("%s does not run on the server that was asked: it sends prompts on to %s; use a model that it holds itself",
		name, infer.Redact(host))
}

// sameModel compares names as the server does: without regard to case, ":latest"
// and the registry's own name understood.
func sameModel(a, b string) bool {
	x, y := model.ParseName(a), model.ParseName(b)
	if !x.IsValid() || !y.IsValid() {
		return strings.EqualFold(a, b)
	}
	return x.EqualFold(y)
}

// wrap says what was being done, and turns a model that is not there into a
// *infer.MissingError.
func (s *server) wrap(model, doing string, err error) error {
	var missing *infer.MissingError
	var status *infer.StatusError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &missing):
		return err
	case errors.As(err, &status) && status.Code == http.StatusNotFound && model != "" && strings.Contains(status.Message, "not found"):
		return &infer.MissingError{What: fmt.Sprintf("the Ollama server at %s has no model %q", s, model),
			Fix: "get it with `ollama pull " + model + "`", Err: status}
	}
	return fmt.Errorf("ollama: %s: %w", doing, err)
}
