package llamacpp

import (
	"context"
	"errors"

	"github.com/ccmed/ccmed/infer"
)

// Render returns the prompt as the model reads it, its lead-in included. A
// beginning-of-sequence token that the template does not write is not shown.
func (e *Engine) Render(ctx context.Context, p infer.Prompt) (string, error) {
	parts, err := e.parts(ctx, p)
	return joined(parts), err
}

// parts renders the prompt. Control tokens are those of the template and of the
// lead-in: in a message they are text.
func (e *Engine) parts(ctx context.Context, p infer.Prompt) ([]part, error) {
	switch {
	case p.Raw != "" && (len(p.Messages) > 0 || p.LeadIn != ""):
		return nil, errors.New("llamacpp: a raw prompt takes no messages and no lead-in")
	case p.Raw != "":
		return []part{{p.Raw, p.Literal}}, nil
	case len(p.Messages) == 0:
		return nil, errors.New("llamacpp: the prompt is empty")
	case e.opts.Render != nil:
		s, err := e.opts.Render(ctx, p.Messages)
		return []part{{text: s + p.LeadIn}}, err
	}
	hidden, texts := e.hide(p.Messages)
	s, err := e.template.render(hidden)
	if err != nil {
		return nil, err
	}
	parts, err := e.show(s, texts)
	return meant(parts, p.LeadIn), err
}

// Tokens returns the token ids of a prompt as Chat and Choose evaluate it, with
// one beginning-of-sequence token where the model wants one, and after it those
// of what was said already. Prompt and said are tokenised as one text: the model
// never saw a seam.
func (e *Engine) Tokens(ctx context.Context, p infer.Prompt, answer string) ([]int32, error) {
	parts, err := e.parts(ctx, p)
	if err != nil {
		return nil, err
	}
	return e.idsOf(e.withAnswer(parts, answer))
}

// LiteralTokens is PromptTokens for a text in which control tokens are not meant,
// see infer.Prompt.Literal.
func (e *Engine) LiteralTokens(text string) ([]int32, error) { return e.idsOf([]part{{text, true}}) }

// Controls are the vocabulary's control tokens, and LiteralControls those that
// are not meant in a literal text.
func (e *Engine) Controls() *infer.Controls        { return e.all }
func (e *Engine) LiteralControls() *infer.Controls { return e.own }

// Tokenize returns the token ids of a text, special tokens recognised. It adds
// no beginning-of-sequence token.
func (e *Engine) Tokenize(text string) ([]int32, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.model == 0 {
		return nil, ErrClosed
	}
	ts, err := e.tokens(text, true)
	return ids(ts), err
}

// PromptTokens returns the token ids of a rendered prompt, control tokens
// recognised throughout, with one beginning-of-sequence token where the model
// wants one.
func (e *Engine) PromptTokens(rendered string) ([]int32, error) {
	return e.idsOf([]part{{text: rendered}})
}

func (e *Engine) idsOf(parts []part) ([]int32, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.model == 0 {
		return nil, ErrClosed
	}
	ts, err := e.promptTokens(parts)
	return ids(ts), err
}

// CountTokens returns the number of tokens that PromptTokens gives.
func (e *Engine) CountTokens(ctx context.Context, rendered string) (int, error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	ts, err := e.PromptTokens(rendered)
	return len(ts), err
}

// fitting returns the prompt's path, or an *infer.ContextError when they leave
// no room for an answer.
func (e *Engine) fitting(parts []part, m plan) ([]step, error) {
	ts, err := e.promptTokens(parts)
	if err != nil {
		return nil, err
	}
	if len(ts) == 0 {
		return nil, errors.New("llamacpp: the prompt has no tokens")
	}
	if need := len(ts) + 1; need > e.numCtx {
		return nil, &infer.ContextError{Need: need, Have: e.numCtx}
	}
	return m.path(ts, len(ts)), nil
}
