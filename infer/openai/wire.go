package openai

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strconv"
	"strings"

	"github.com/ccmed/ccmed/infer"
	"github.com/ccmed/ccmed/infer/internal/prefix"
	"github.com/ccmed/ccmed/infer/internal/transport"
)

// completion is a server's answer to a chat request, as far as it is read.
type completion struct {
	Model   string `json:"model"`
	Choices []struct {
		Message *struct {
			Content   string `json:"content"`
			Reasoning string `json:"reasoning"` // of vLLM from 0.12 on
			Thinking  string `json:"reasoning_content"`
		} `json:"message"`
		FinishReason string `json:"finish_reason"`
		Logprobs     *struct {
			Content []token `json:"content"`
		} `json:"logprobs"`
	} `json:"choices"`
	Usage *struct {
		PromptTokens     int `json:"prompt_tokens"`
		CompletionTokens int `json:"completion_tokens"`
		Details          struct {
			CachedTokens int `json:"cached_tokens"`
		} `json:"prompt_tokens_details"`
	} `json:"usage"`
}

// token is one generated token with its alternatives.
type token struct {
	Token string               `json:"token"`
	Top   []infer.TokenLogprob `json:"top_logprobs"`
}

// send makes a request, again while that can help, and reads the answer; check
// says what it lacks.
func send[T any](ctx context.Context, b *Backend, ask func(context.Context) error, check func(*T) error) (*T, error) {
	return transport.Do(ctx, b.requests, func(ctx context.Context) (*T, error) {
		out := new(T)
		body, err := b.once(ctx, ask)
		if err == nil {
			err = json.Unmarshal(body, out)
		}
		if err == nil {
			err = check(out) // which may ask for the list of models: no place is held
		}
		return out, err
	})
}

// once asks within a place and returns the body of the answer.
func (b *Backend) once(ctx context.Context, ask func(context.Context) error) (body []byte, err error) {
	select {
	case b.places <- struct{}{}:
		defer func() { <-b.places }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	err = ask(keep(ctx, &body))
	return body, err
}

func pieces(p infer.Prompt) int {
	n := 0
	for _, m := range p.Messages {
		n += len(prefix.Pieces(m.Content))
	}
	return n
}

// checkCut notices a prompt of which the server read far fewer tokens than its
// text has. Tokenizers make between 0.9 and 1.5 tokens of a piece.
func checkCut(p infer.Prompt, tokens int) error {
	if n := pieces(p); n > 100 && float64(tokens) < 0.6*float64(n) {
		return fmt.Errorf("openai: the server read %d prompt tokens of a text of about %d: it cut the prompt; raise the server's context length",
			tokens, n)
	}
	return nil
}

// have and need as vLLM writes them, and as others do.
var (
	haveTokens = regexp.MustCompile(`(?:context length is|context size \(|n_ctx["\s:=]+)\s*(\d+)`)
	needTokens = regexp.MustCompile(`(?:requested|prompt contains|request \(|n_prompt_tokens["\s:=]+)\s*(?:at least )?(\d+)`)
)

// failure names a prompt that was too long, and wraps everything else.
func (b *Backend) failure(p infer.Prompt, err error) error {
	text := strings.ToLower(err.Error())
	tooLong := strings.Contains(text, "context length") || strings.Contains(text, "context size") || strings.Contains(text, "context_length")
	var status *infer.StatusError
	if !tooLong || !errors.As(err, &status) || status.Code != http.StatusBadRequest && status.Code != http.StatusRequestEntityTooLarge {
		return b.wrap("asking "+b.model, err)
	}
	e := &infer.ContextError{Have: number(haveTokens, text), Need: number(needTokens, text)}
	if e.Need == 0 {
		e.Need, e.About = max(pieces(p), e.Have)+1, true
	}
	return e
}

func number(re *regexp.Regexp, text string) int {
	m := re.FindStringSubmatch(text)
	if m == nil {
		return 0
	}
	n, err := strconv.Atoi(m[1])
	if err != nil {
		return 0
	}
	return n
}

func (b *Backend) wrap(doing string, err error) error {
	var missing *infer.MissingError
	var status *infer.StatusError
	switch {
	case errors.As(err, &missing):
		return err
	case errors.As(err, &status) && status.Code == http.StatusNotFound && strings.Contains(status.Message, b.model):
		return &infer.MissingError{What: fmt.Sprintf("the server at %s has no model %q", infer.Redact(b.base), b.model),
			Fix: "name one that it serves (GET " + infer.Redact(b.base) + "/models)", Err: status}
	}
	return fmt.Errorf("openai: %s: %w", doing, err)
}
