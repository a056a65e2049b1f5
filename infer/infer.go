// Package infer says what a model can be asked, and by which errors an answer
// can fail. It knows no vendor: infer/ollama, infer/openai and infer/llamacpp
// implement Backend, and infer/cache wraps any of them.
//
// Most questions of this field are "which of these answers comes next, and with
// what probability": yes or no after each turn, a stage digit, a score. They
// are asked by Choose, which never parses an answer out of text:
//
//	prompts := []infer.Prompt{{Messages: []infer.Message{
//		{Role: infer.System, Content: "Answer with one digit."},
//		{Role: infer.User, Content: "2 + 2 ="},
//	}}}
//	choices, err := backend.Choose(ctx, prompts, infer.Digits(1, 6), infer.Params{NumCtx: 2048})
//	// choices[0].P[3] is the probability of "4" over the whole vocabulary
//
// The slice given to Choose is the sharing unit: a backend evaluates what its
// prompts have in common once where it can.
package infer

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"math"
	"strings"
)

// Roles of a Message.
const (
	System    = "system"
	User      = "user"
	Assistant = "assistant"
)

// Message is one turn of a chat prompt. Its content is text: what reads like a
// control token of the model in it is none, see Controls.
type Message struct {
	Role    string `json:"role"`
	Content string `json:"content"`
}

// Prompt is one request to a model: chat messages which the backend renders
// with the model's template, or Raw text which is sent as it is.
type Prompt struct {
	Messages []Message `json:"messages,omitempty"`
	// LeadIn is the start of the assistant's answer, for the model to continue
	// ("Stage: "). A lead-in puts a small model's probability on the answers.
	LeadIn string `json:"lead_in,omitempty"`
	// Raw is an already rendered prompt; Messages and LeadIn must be empty.
	Raw string `json:"raw,omitempty"`
	// Literal says that Raw is text throughout, as Messages are: control tokens
	// in it are not meant. Tokens that were added to the vocabulary for users
	// ([SPEAK]) are.
	Literal bool `json:"literal,omitempty"`
}

// Hash identifies the prompt's content: the first 16 bytes of the SHA-256 of
// its JSON form, in hexadecimal.
func (p Prompt) Hash() string {
	b, _ := json.Marshal(p) // strings only: cannot fail
	s := sha256.Sum256(b)
	return hex.EncodeToString(s[:16])
}

// Params are the sampling parameters of a request. All of them are sent
// explicitly, zeros included.
type Params struct {
	MaxTokens   int      `json:"max_tokens"`  // at least 1; Choose ignores it
	NumCtx      int      `json:"num_ctx"`     // context length in tokens, equal for every request of a run
	Temperature float64  `json:"temperature"` // 0 is greedy
	TopP        float64  `json:"top_p"`       // 0 means 1 (off)
	Seed        int64    `json:"seed"`
	Stop        []string `json:"stop,omitempty"`
	// Repeat numbers independent repetitions of one request, so that a cache
	// keeps them apart. It does not reach the model.
	Repeat int `json:"repeat"`
	// ThinkTokens is the most tokens of reasoning that are waited for when a
	// model reasons although it was asked not to. 0 means 1,024.
	ThinkTokens int `json:"think_tokens,omitempty"`
	// Schema binds the answer of Chat to a form; nil leaves it free. Choose ignores it.
	Schema *Schema `json:"schema,omitempty"`
}

// Usage counts tokens of one request, or of many when added up.
type Usage struct {
	Prompt    int `json:"prompt"`    // tokens of the prompts as sent (the naive sum)
	Unique    int `json:"unique"`    // of these, nodes of the prefix tree of one call
	Evaluated int `json:"evaluated"` // really computed by the model
	Cached    int `json:"cached"`    // taken from a prefix cache (Prompt - Evaluated for a fresh answer)
	Generated int `json:"generated"`
	// Replayed are prompt tokens of answers that came out of the response cache.
	Replayed int `json:"replayed,omitempty"`
	// Estimated is true where Unique, Evaluated and Cached were computed from
	// the order of requests because the server does not report them.
	Estimated bool `json:"estimated,omitempty"`
}

// Add returns the sum of two usages; the sum is estimated if either is.
func (u Usage) Add(v Usage) Usage {
	return Usage{u.Prompt + v.Prompt, u.Unique + v.Unique, u.Evaluated + v.Evaluated, u.Cached + v.Cached,
		u.Generated + v.Generated, u.Replayed + v.Replayed, u.Estimated || v.Estimated}
}

// TokenLogprob is one alternative for the next token with its natural-log
// probability over the whole vocabulary: NaN where the server gave none, which
// is null in JSON.
type TokenLogprob struct {
	Token string `json:"token"`
	// Logprob is null where the server gave none, which leaves the choice unscored.
	Logprob float64 `json:"logprob" jsonschema:"oneof_type=number;null"`
}

type tokenLogprobJSON struct {
	Token   string   `json:"token"`
	Logprob *float64 `json:"logprob"`
}

// MarshalJSON writes a log-probability that is no number as null.
func (t TokenLogprob) MarshalJSON() ([]byte, error) {
	out := tokenLogprobJSON{Token: t.Token}
	if !math.IsNaN(t.Logprob) && !math.IsInf(t.Logprob, 0) {
		out.Logprob = &t.Logprob
	}
	return json.Marshal(out)
}

// UnmarshalJSON reads a null or missing log-probability as NaN, never as 0,
// which would be certainty.
func (t *TokenLogprob) UnmarshalJSON(b []byte) error {
	var in tokenLogprobJSON
	if err := json.Unmarshal(b, &in); err != nil {
		return err
	}
	*t = TokenLogprob{in.Token, math.NaN()}
	if in.Logprob != nil {
		t.Logprob = *in.Logprob
	}
	return nil
}

// Why generation ended, in Reply.Stop.
const (
	StopEnd    = "stop"   // the model ended its turn
	StopLength = "length" // at its cap of tokens: the text is cut
)

// Reply is the answer to Chat.
type Reply struct {
	Text     string // without reasoning; may be empty, which is never a wrong answer but an unscored one
	Thinking string // reasoning that came back although it was not asked for
	Stop     string // why generation ended: StopEnd, StopLength or a server's own word
	Rendered string // the prompt as the model read it, where the backend knows it
	Usage    Usage
}

// Choice is the answer to one prompt of Choose: how probable each answer is as
// the next token. All slices are in the order of the answers.
type Choice struct {
	// P holds each answer's probability over the whole vocabulary, its variants
	// added up; in 0..1. It is a lower bound where the backend saw only the most
	// probable alternatives.
	P []float64 `json:"p"`
	// Bound holds each answer's greatest possible probability: equal to P when
	// the whole vocabulary was seen.
	Bound []float64 `json:"bound"`
	// Mass is the sum of P before any renormalising.
	Mass float64 `json:"mass"`
	// Top are the raw most probable alternatives, most probable first, kept so
	// that any other rule can be applied later.
	Top []TokenLogprob `json:"top,omitempty"`
	// Unscored says why the answer cannot be used, and is empty when it can.
	Unscored string `json:"unscored,omitempty"`
	// Thinking is reasoning that came before the answer.
	Thinking string `json:"thinking,omitempty"`
	// Rendered is the prompt as the model read it, where the backend knows it.
	Rendered string `json:"-"`
	Usage    Usage  `json:"-"`
}

// Argmax returns the index of the most probable answer, the first one of
// equals, and -1 when the choice is unscored or no answer was seen.
func (c Choice) Argmax() int {
	best, at := 0.0, -1
	if c.Unscored != "" {
		return -1
	}
	for i, p := range c.P {
		if p > best {
			best, at = p, i
		}
	}
	return at
}

// ReadoutBackend is the Backend of a Model that answers by a classifier of its hidden states,
// fitted to one form of one question.
const ReadoutBackend = "probe"

// Model is the identity of what answers: everything about it that could change
// a number.
type Model struct {
	Backend      string `json:"backend"` // "ollama", "openai", "embedded", ReadoutBackend
	Name         string `json:"name"`
	Digest       string `json:"digest,omitempty"`        // of the weights, "sha256:…"; empty where the server does not tell
	Quantization string `json:"quantization,omitempty"`  // e.g. "Q4_K_M"
	Edits        string `json:"edits,omitempty"`         // HashEdits of the changes of its residual stream; empty for the plain model
	TemplateHash string `json:"template_hash,omitempty"` // of the chat template in use
	Architecture string `json:"architecture,omitempty"`  // e.g. "llama", "gemma2"
	Family       string `json:"family,omitempty"`
	Parameters   string `json:"parameters,omitempty"`     // e.g. "135M"
	ContextTrain int    `json:"context_train,omitempty"`  // context length of training, in tokens
	Path         string `json:"-"`                        // of the weights on this machine, where known
	Server       string `json:"server_version,omitempty"` // of the server or the library
}

// Backend is a model that can be asked. Implementations are safe for concurrent
// use, and honour the context at the latest between two requests.
type Backend interface {
	// Model identifies what answers.
	Model(ctx context.Context) (Model, error)
	// Render returns the prompt as the model would read it, or ErrUnsupported.
	Render(ctx context.Context, p Prompt) (string, error)
	// Chat generates one answer.
	Chat(ctx context.Context, p Prompt, o Params) (Reply, error)
	// Choose gives, for each prompt, the probability of each answer being the
	// next token. It returns as many choices as prompts, or an error.
	Choose(ctx context.Context, ps []Prompt, as []Answer, o Params) ([]Choice, error)
	// Embed returns one sentence embedding a text, or ErrUnsupported.
	Embed(ctx context.Context, texts []string) ([][]float32, error)
	// Close frees what the backend holds. The backend is not usable afterwards.
	Close() error
}

// TokenCounter is implemented by backends that can say exactly how many tokens
// a rendered prompt has.
type TokenCounter interface {
	CountTokens(ctx context.Context, rendered string) (int, error)
}

// ShortDigest is the beginning of a digest, as far as people compare it.
func ShortDigest(digest string) string {
	digest = strings.TrimPrefix(digest, "sha256:")
	return digest[:min(12, len(digest))]
}
