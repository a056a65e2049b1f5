// Package cache keeps a model's answers in a file, so that the same question is
// asked once: a run that is repeated, resumed or extended pays only for what is
// new in it.
//
//	db, err := cache.Open("responses.db")
//	...
//	defer db.Close()
//	model, err := backend.Model(ctx)
//	...
//	backend, err = cache.Wrap(backend, db, model, false)
//
// An answer is found again by everything that could change it: the model's
// backend, name, digest, quantisation, template hash and edits, the kind of call,
// the prompt, every field of infer.Params and the answers offered. Sampling is no
// exception: a repetition needs its own Params.Repeat. Failures are not kept, nor
// are answers that do not say that they are whole.
package cache

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/ccmed/ccmed/infer"
	"github.com/ccmed/ccmed/infer/internal/reasoning"
)

// format is part of every key; it is raised when what an answer means or how it
// is encoded changes, so that older files are asked past instead of misread. In
// the answers of format 1 a failed response could stand for one of the model's.
const format = 2

type bypassKey struct{}

// Bypass returns a context under which a wrapped backend neither looks up nor
// keeps answers, for checks of whether a model repeats itself.
func Bypass(ctx context.Context) context.Context { return context.WithValue(ctx, bypassKey{}, true) }

func bypassed(ctx context.Context) bool { return ctx.Value(bypassKey{}) != nil }

// Wrap returns b with its answers to Chat and Choose kept in db under the
// identity m. Closing it closes b and leaves db open. It implements
// infer.TokenCounter if b does.
//
// Without m.Digest another version of the weights would be served the answers
// of this one, so that Wrap refuses it unless force is true.
func Wrap(b infer.Backend, db *DB, m infer.Model, force bool) (infer.Backend, error) {
	if m.Digest == "" && !force {
		return nil, fmt.Errorf("cache the answers of %s: the backend %s tells no digest of the weights, so that an update of the model "+
			"could not be told apart; give --cache off, or --cache force if the weights never change", m.Name, m.Backend)
	}
	c := &cached{Backend: b, db: db, model: identity{m.Backend, m.Name, m.Digest, m.TemplateHash, m.Quantization, m.Edits}}
	if t, ok := b.(infer.TokenCounter); ok {
		return &counting{c, t}, nil
	}
	return c, nil
}

type cached struct {
	infer.Backend
	db    *DB
	model identity
}

type counting struct {
	*cached
	infer.TokenCounter
}

type identity struct {
	Backend, Name, Digest, TemplateHash, Quantization string
	Edits                                             string `json:",omitempty"` // files from before there were any hold keys without it
}

type request struct {
	Format  int
	Model   identity
	Call    string
	Prompt  infer.Prompt
	Params  infer.Params
	Answers []infer.Answer
}

// key returns the SHA-256 of the request's JSON form.
func (c *cached) key(call string, p infer.Prompt, o infer.Params, as []infer.Answer) ([]byte, error) {
	b, err := json.Marshal(request{format, c.model, call, p, o, as})
	if err != nil {
		return nil, fmt.Errorf("identify a request for the response cache: %w", err)
	}
	sum := sha256.Sum256(b)
	return sum[:], nil
}

// replay returns the usage of an answer that nothing was computed for.
func replay(u infer.Usage) infer.Usage { return infer.Usage{Replayed: u.Prompt} }

// Chat returns the kept reply, with only Usage.Replayed set in its usage, or
// asks the wrapped backend and keeps what it says.
func (c *cached) Chat(ctx context.Context, p infer.Prompt, o infer.Params) (infer.Reply, error) {
	if bypassed(ctx) {
		return c.Backend.Chat(ctx, p, o)
	}
	key, err := c.key("chat", p, o, nil)
	if err != nil {
		return infer.Reply{}, err
	}
	var r infer.Reply
	hit, err := c.db.get(ctx, key, &r)
	if err != nil {
		return infer.Reply{}, err
	}
	if hit {
		c.db.hits.Add(1)
		r.Usage = replay(r.Usage)
		return r, nil
	}
	c.db.misses.Add(1)
	if r, err = c.Backend.Chat(ctx, p, o); err != nil {
		return r, err
	}
	if r.Stop == "" {
		return r, nil // it does not say that it is whole
	}
	answer, err := encode(r)
	if err != nil {
		return infer.Reply{}, err
	}
	c.db.keep(ctx, []row{{key, answer}})
	return r, nil
}

// Choose looks every prompt up and asks the wrapped backend the missing ones, as
// one slice in their order, so that they still share what they have in common.
// A found choice has only Usage.Replayed set in its usage.
func (c *cached) Choose(ctx context.Context, ps []infer.Prompt, as []infer.Answer, o infer.Params) ([]infer.Choice, error) {
	if bypassed(ctx) {
		return c.Backend.Choose(ctx, ps, as, o)
	}
	choices := make([]infer.Choice, len(ps))
	var (
		missing []infer.Prompt
		at      []int    // of each missing prompt in ps
		keys    [][]byte // of each missing prompt
	)
	for i, p := range ps {
		key, err := c.key("choose", p, o, as)
		if err != nil {
			return nil, err
		}
		var kept infer.Choice
		hit, err := c.db.get(ctx, key, &kept)
		if err != nil {
			return nil, err
		}
		if !hit {
			missing, at, keys = append(missing, p), append(at, i), append(keys, key)
			continue
		}
		kept.Usage = replay(kept.Usage)
		choices[i] = kept
	}
	c.db.hits.Add(int64(len(ps) - len(missing)))
	c.db.misses.Add(int64(len(missing)))
	if len(missing) == 0 {
		return choices, nil
	}
	fresh, err := c.Backend.Choose(ctx, missing, as, o)
	if err != nil {
		return nil, err
	}
	if len(fresh) != len(missing) {
		return nil, fmt.Errorf("%s answered %d of %d prompts", c.model.Name, len(fresh), len(missing))
	}
	var rows []row
	for i, f := range fresh {
		choices[at[i]] = f
		if !lasting(f) {
			continue
		}
		answer, err := encode(f)
		if err != nil {
			return nil, err
		}
		rows = append(rows, row{keys[i], answer})
	}
	c.db.keep(ctx, rows)
	return choices, nil
}

// lasting reports whether a choice is the model's own doing. Any other reason
// for being unscored (no log-probabilities, NaN) is the server's or the
// machine's, and may be gone when it is asked again.
func lasting(c infer.Choice) bool {
	own := []string{"", infer.NoAnswerSeen, reasoning.NoAnswer, reasoning.Mixed}
	return slices.Contains(own, c.Unscored)
}
