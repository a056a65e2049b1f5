package ollama

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"strings"

	"github.com/ccmed/ccmed/bench/strictjson"
	"github.com/ccmed/ccmed/infer"
)

// part is an object of the answer to /api/generate or /api/chat: all of it, or
// what a stream has of it.
type part struct {
	Model      string  `json:"model"`
	RemoteHost string  `json:"remote_host"`
	Response   *string `json:"response"`
	Thinking   string  `json:"thinking"`
	Message    *struct {
		Content  *string `json:"content"`
		Thinking string  `json:"thinking"`
	} `json:"message"`
	Logprobs []token `json:"logprobs"`
	Debug    *struct {
		Rendered string `json:"rendered_template"`
	} `json:"_debug_info"`
	Done       bool   `json:"done"`
	DoneReason string `json:"done_reason"`
	Prompt     int    `json:"prompt_eval_count"` // 0 is not there: there is no empty prompt
	Generated  *int   `json:"eval_count"`
}

// token is one generated token with its alternatives.
type token struct {
	Token string `json:"token"`
	Top   []struct {
		Token   *string  `json:"token"`
		Logprob *float64 `json:"logprob"`
	} `json:"top_logprobs"`
}

// alternatives returns the token's alternatives; one without a log-probability
// has NaN, which no choice can be made with.
func (t token) alternatives() []infer.TokenLogprob {
	out := make([]infer.TokenLogprob, 0, len(t.Top))
	for _, a := range t.Top {
		x := infer.TokenLogprob{Logprob: math.NaN()}
		if a.Token != nil {
			x.Token = *a.Token
		}
		if a.Token != nil && a.Logprob != nil {
			x.Logprob = *a.Logprob
		}
		out = append(out, x)
	}
	return out
}

// parse reads a part and checks what every part must have: the model that was
// asked, and every key once.
func (b *Backend) parse(object json.RawMessage) (p part, err error) {
	if err := strictjson.Check(object); err != nil {
		return p, &infer.BrokenError{What: "the server's answer is malformed: " + err.Error(), Err: err}
	}
	if err := json.Unmarshal(object, &p); err != nil {
		return p, err
	}
	switch {
	case p.Model == "":
		return p, broken("the server's answer does not say which model gave it")
	case !sameModel(p.Model, b.model):
		return p, broken("the answer is one of the model %q, and %q was asked", p.Model, b.model)
	case p.RemoteHost != "":
		return p, elsewhere(b.model, p.RemoteHost)
	}
	return p, nil
}

// answer is what the parts of one generation add up to.
type answer struct {
	text, thinking string
	tokens         []token
	stop           string
	prompt         int // tokens that the server read; 0 when the generation did not come to its end
	generated      int
	ended          bool // the last part has come
}

// The longest texts of tokens that vocabularies have, and what may come beside.
const (
	bytesPerToken = 128
	bytesBeside   = 1024
)

// add takes the next part of the answer to r.
func (a *answer) add(p part, r request) error {
	if a.ended {
		return broken("the server's answer goes on after its end")
	}
	content, thinking := p.Response, p.Thinking
	if r.chat != nil {
		if p.Message == nil {
			return broken("the server's answer has no message")
		}
		content, thinking = p.Message.Content, p.Message.Thinking
	}
	if content == nil && !p.Done {
		return broken("a part of the server's answer has no text")
	}
	if content != nil {
		a.text += *content
	}
	a.thinking += thinking
	a.tokens = append(a.tokens, p.Logprobs...)
	if n := len(a.text) + len(a.thinking); n > bytesBeside+bytesPerToken*r.tokens() || len(a.tokens) > r.tokens() {
		return broken("the server's answer has %d bytes and %d tokens, and %d tokens were asked for", n, len(a.tokens), r.tokens())
	}
	if !p.Done {
		a.generated = len(a.tokens)
		return nil
	}
	a.ended, a.prompt, a.stop = true, p.Prompt, p.DoneReason
	switch {
	case content == nil && r.follow == nil:
		return broken("the server's answer has no text")
	case p.DoneReason != "stop" && p.DoneReason != "length":
		return broken("the server ended the generation with the reason %q, which is none", p.DoneReason)
	case p.Prompt <= 0:
		return broken("the server's answer does not say how many tokens of the prompt were read")
	case p.Generated == nil || *p.Generated < 0:
		return broken("the server's answer does not say how many tokens were generated")
	case *p.Generated > r.tokens():
		return broken("the server generated %d tokens, and %d were asked for", *p.Generated, r.tokens())
	}
	a.generated = *p.Generated
	return nil
}

// silent reports whether nothing can be seen of what was generated.
func (a *answer) silent() bool { return a.text+a.thinking == "" && len(a.tokens) == 0 }

// says reports whether a part of /api/generate has a text.
func (p part) says() bool {
	return p.Response != nil && *p.Response != "" || p.Thinking != ""
}

// end checks an answer of which no more comes. The server gives up after 30 equal
// tokens, without a last part; any other end without one is a cut.
func (a *answer) end() error {
	if a.ended {
		return nil
	}
	if a.prompt = 0; !loops(a.text + a.thinking) {
		return broken("the server's answer ends without its last part (done is not true)")
	}
	a.stop = "length"
	return nil
}

// loops reports whether a text ends with 30 equal tokens, white space apart.
func loops(text string) bool {
	const times = 30
	if len(text)-len(strings.TrimSpace(text)) >= times {
		return true
	}
	text = strings.Join(strings.Fields(text), "")
	for n := 1; n <= bytesPerToken && n*times <= len(text); n++ {
		if last := text[len(text)-n:]; strings.HasSuffix(text, strings.Repeat(last, times)) {
			return true
		}
	}
	return false
}

// patience is how often log-probabilities that are wrong are asked for, before
// the choice is left unscored: a fault of the way passes, one of the server or of
// the model stays.
const patience = 3

// weigh says what is wrong with the log-probabilities of an answer's token;
// what comes back is a reason to ask again.
func (b *Backend) weigh(r request, a answer, t *token) error {
	what := ""
	switch {
	case t == nil && a.silent():
		return nil // the server hides those of a token that ends the answer
	case t == nil || len(t.Top) == 0:
		what = noLogprobs
	default:
		kept, unscored := infer.Alternatives(t.alternatives())
		total := 0.0
		for _, x := range kept {
			total += math.Exp(x.Logprob)
		}
		// Fewer than before are enough where nothing is left for the others.
		if what = unscored; what == "" && len(t.Top) < int(b.most.Load()) && total < 1-1e-3 {
			what = fmt.Sprintf("%d of %d alternatives were returned", len(t.Top), b.most.Load())
		}
	}
	if what == "" {
		b.sound.Store(true)
		return nil
	}
	if r.doubts[what]++; r.doubts[what] < patience && (b.sound.Load() || !b.unsound.Load()) {
		return broken("the server's answer cannot be scored: %s", what)
	}
	if t != nil && len(t.Top) > 0 && strings.HasSuffix(what, "alternatives were returned") {
		b.most.Store(int64(len(t.Top)))
		if b.opts.Retry.Notify != nil {
			b.opts.Retry.Notify("the server returns " + strings.TrimSuffix(what, " were returned") + " asked for: answers that are not among them are bounded less closely")
		}
		return nil
	}
	if !b.sound.Load() {
		b.unsound.Store(true) // the server never gave any: it is not asked twice from now on
	}
	return nil
}

// again reports err as one that the next attempt may not have; the same error a
// second time stays.
func (r request) again(err error) error {
	if err == nil {
		return nil
	}
	if r.doubts[err.Error()]++; r.doubts[err.Error()] > 1 {
		return err
	}
	return &infer.BrokenError{What: strings.TrimPrefix(err.Error(), "ollama: "), Err: err}
}

// tooLongStatus reports whether the server refused a prompt for its length.
func tooLongStatus(err error) bool {
	var status *infer.StatusError
	return errors.As(err, &status) && status.Code == http.StatusBadRequest && strings.Contains(status.Message, "exceeds the context length")
}
