package ollama

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/ollama/ollama/api"

	"github.com/ccmed/ccmed/infer"
)

// Exists tells whether the server at host has a model of the name.
func Exists(ctx context.Context, host, name string) (bool, error) {
	at, err := dial(host, nil, quick)
	if err != nil {
		return false, err
	}
	_, err = at.shown(ctx, name)
	var missing *infer.MissingError
	var status *infer.StatusError
	if errors.As(err, &missing) && errors.As(err, &status) {
		return false, nil
	}
	return err == nil, err
}

// CreateLike gives the server at host the GGUF file as a model of the name that
// is asked in the way of base: with its template, system text, messages,
// parameters, renderer and parser; with an empty base, with the chat template in
// the file. The texts of stop are added to the parameters' own. A model of the
// name is replaced. It returns the digest of the file, "sha256:…".
//
// A parameter is a default that every request may replace, and this package's
// requests state all of them.
func CreateLike(ctx context.Context, host, name, gguf, base string, stop ...string) (digest string, err error) {
	at, err := dial(host, nil, quick)
	if err != nil {
		return "", err
	}
	no := false
	q := &api.CreateRequest{Model: name, Stream: &no}
	if base != "" {
		s, err := at.shown(ctx, base)
		if err != nil {
			return "", err
		}
		q.Template, q.System, q.Messages, q.Renderer, q.Parser = s.Template, s.System, s.Messages, s.Renderer, s.Parser
		if q.Parameters, err = parameters(s.Parameters); err != nil {
			return "", fmt.Errorf("ollama: the parameters of %s: %w", base, err)
		}
		if s.License != "" {
			q.License = s.License
		}
	}
	if len(stop) > 0 {
		if q.Parameters == nil {
			q.Parameters = map[string]any{}
		}
		own, _ := q.Parameters["stop"].([]any)
		for _, s := range stop {
			if !slices.Contains(own, any(s)) {
				own = append(own, s)
			}
		}
		q.Parameters["stop"] = own
	}
	if digest, err = at.upload(ctx, gguf); err != nil {
		return "", err
	}
	q.Files = map[string]string{filepath.Base(gguf): digest}
	_, err = get(ctx, at, http.MethodPost, "/api/create", q, func(p *api.ProgressResponse) error {
		if p.Status != "success" {
			return errors.New("the server ended with " + strconv.Quote(p.Status))
		}
		return nil
	})
	return digest, at.wrap("", "creating "+name, err)
}

// upload gives the server a file as a blob, unless it has it, and returns its
// digest.
func (s *server) upload(ctx context.Context, path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", fmt.Errorf("ollama: uploading %s: %w", path, err)
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", fmt.Errorf("ollama: reading %s: %w", path, err)
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return "", fmt.Errorf("ollama: reading %s: %w", path, err)
	}
	digest := "sha256:" + hex.EncodeToString(h.Sum(nil))
	none := func(json.RawMessage) error { return nil }
	err = s.once(ctx, http.MethodHead, "/api/blobs/"+digest, nil, none)
	var status *infer.StatusError
	if errors.As(err, &status) && status.Code == http.StatusNotFound {
		// The transport closes what it sends; the reader hides the file's Close.
		err = s.once(ctx, http.MethodPost, "/api/blobs/"+digest, struct{ io.Reader }{f}, none)
	}
	return digest, s.wrap("", "uploading "+path, err)
}

// parameters reads what the server shows of a model's parameters: one a line,
// its value as Go writes it, the lines of a list each with the name.
func parameters(shown string) (map[string]any, error) {
	lists := map[string][]any{}
	for line := range strings.Lines(shown) {
		name, text, ok := strings.Cut(strings.TrimSpace(line), " ")
		if name == "" {
			continue
		}
		if !ok {
			return nil, fmt.Errorf("the line %q has no value", line)
		}
		v, err := value(strings.TrimSpace(text))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		lists[name] = append(lists[name], v)
	}
	out := map[string]any{}
	for name, vs := range lists {
		if len(vs) == 1 && name != "stop" {
			out[name] = vs[0]
		} else {
			out[name] = vs
		}
	}
	return out, nil
}

func value(text string) (any, error) {
	if strings.HasPrefix(text, `"`) {
		s, err := strconv.Unquote(text)
		if err != nil {
			return nil, fmt.Errorf("%s is no string", text)
		}
		return s, nil
	}
	if b, err := strconv.ParseBool(text); err == nil && (text == "true" || text == "false") {
		return b, nil
	}
	n, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return nil, fmt.Errorf("%s is neither a string nor a number", text)
	}
	return n, nil
}
