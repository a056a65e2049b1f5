package openai_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/ccmed/ccmed/infer"
	"github.com/ccmed/ccmed/infer/infertest"
	"github.com/ccmed/ccmed/infer/openai"
)

const path = "/v1/chat/completions"

type obj = map[string]any

var prompt = infer.Prompt{LeadIn: "Stage: ", Messages: []infer.Message{
	{Role: infer.System, Content: "Answer with a digit."}, {Role: infer.User, Content: "2 + 2 ="}}}

// token is one generated token with its alternatives: text, probability, ... If
// there are any they are filled up to the 20 that are asked for.
func token(text string, alternatives ...any) obj {
	top := []obj{}
	for i := 0; i < len(alternatives); i += 2 {
		top = append(top, obj{"token": alternatives[i], "logprob": math.Log(alternatives[i+1].(float64)), "bytes": []int{52}})
	}
	for i := len(top); i > 0 && i < 20; i++ {
		top = append(top, obj{"token": fmt.Sprintf("w%d", i), "logprob": -20.5, "bytes": []int{119}})
	}
	return obj{"token": text, "logprob": -0.1, "top_logprobs": top}
}

func completion(text, thinking, stop string, tokens ...obj) infertest.Response {
	c := obj{"message": obj{"role": "assistant", "content": text, "reasoning_content": thinking}, "finish_reason": stop}
	if tokens != nil {
		c["logprobs"] = obj{"content": tokens}
	}
	return infertest.Response{Body: obj{"choices": []obj{c}, "usage": obj{"prompt_tokens": 20, "completion_tokens": max(1, len(tokens))}}}
}

func failed(status int, message string) infertest.Response {
	return infertest.Response{Status: status, Body: obj{"error": obj{"message": message}}}
}

func scripted(t *testing.T, o openai.Options, rs ...infertest.Response) (*infertest.Server, *openai.Backend) {
	t.Helper()
	s := infertest.NewServer(t).On(path, rs...)
	if o.Retry.First == 0 {
		o.Retry.Patience, o.Retry.First = -1, time.Microsecond
	}
	b, err := openai.New(s.URL+"/v1/", "m", "key", o)
	if err != nil {
		t.Fatal(err)
	}
	return s, b
}

// go-openai leaves zeros out of the body, and the server then takes its own
// defaults.
func TestZerosAreWritten(t *testing.T) {
	s, b := scripted(t, openai.Options{Extra: map[string]any{"top_k": -1}}, completion("4", "", "length", token("4", "4", 0.9)))
	if _, err := b.Choose(context.Background(), []infer.Prompt{prompt}, infer.Digits(1, 6), infer.Params{}); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Chat(context.Background(), prompt, infer.Params{}); err != nil {
		t.Fatal(err)
	}
	rs := s.Requests(path)
	for i, r := range rs {
		for k, want := range map[string]float64{"temperature": 0, "seed": 0, "top_p": 1, "presence_penalty": 0, "frequency_penalty": 0,
			"max_tokens": 1, "top_k": -1} {
			if got, ok := r.Body[k].(float64); !ok || got != want {
				t.Errorf("request %d: %s is %v, want %v written out", i, k, r.Body[k], want)
			}
		}
		if n := len(r.Body["messages"].([]any)); n != 2 {
			t.Errorf("request %d has %d messages; want the lead-in dropped", i, n)
		}
	}
	if rs[0].Body["top_logprobs"] != 20.0 || rs[1].Body["logprobs"] != nil {
		t.Errorf("top_logprobs %v of a choice, logprobs %v of a chat", rs[0].Body["top_logprobs"], rs[1].Body["logprobs"])
	}
}

func TestLeadInIsContinued(t *testing.T) {
	s, b := scripted(t, openai.Options{ContinueFinal: true}, completion("4", "", "length", token("4", "4", 0.9)))
	if _, err := b.Choose(context.Background(), []infer.Prompt{prompt}, infer.Digits(1, 6), infer.Params{}); err != nil {
		t.Fatal(err)
	}
	body := s.Requests(path)[0].Body
	ms := body["messages"].([]any)
	last := ms[len(ms)-1].(obj)
	if last["role"] != "assistant" || last["content"] != "Stage: " || body["continue_final_message"] != true || body["add_generation_prompt"] != false {
		t.Errorf("got %v", body)
	}
	_, dropped := scripted(t, openai.Options{})
	m1, err1 := b.Model(context.Background())
	m2, err2 := dropped.Model(context.Background())
	if err1 != nil || err2 != nil || m1.TemplateHash == m2.TemplateHash || m1.Digest != "" {
		t.Errorf("identities %+v and %+v (%v, %v) must differ", m1, m2, err1, err2)
	}
	if n := len(dropped.Notes()) - len(b.Notes()); n != 1 {
		t.Errorf("dropped lead-ins add %d notes, want 1", n)
	}
}

func TestChoose(t *testing.T) {
	digit := token("4", "4", 0.5, " 4", 0.25, "1", 0.05)
	think, end := token("<think>", "<think>", 0.9), token("</think>")
	for _, c := range []struct {
		name     string
		script   []infertest.Response
		p4       float64
		unscored string
		thinking string
	}{
		{"variants are added up", []infertest.Response{completion("4", "", "length", digit)}, 0.75, "", ""},
		{"no log-probabilities", []infertest.Response{completion("4", "", "length")}, 0, "the server returned no log-probabilities", ""},
		{"empty", []infertest.Response{completion("", "", "stop")}, 0,
			"empty answer: the model ended at once and the server gave no log-probabilities", ""},
		{"prose", []infertest.Response{completion("The", "", "length", token("The", "The", 0.9))}, 0, infer.NoAnswerSeen, ""},
		{"marks in the text", []infertest.Response{completion("<think>", "", "length", think),
			completion("<think>hm</think>\n\n4", "", "stop", think, token("hm"), end, token("\n\n"), digit)}, 0.75, "", "hm"},
		{"server parts it", []infertest.Response{completion("", "So", "length", token("So", "So", 0.9)),
			completion("4", "So it is", "stop", token("So"), token(" it"), token(" is"), end, digit)}, 0.75, "", "So it is"},
		{"server hides it under another name", []infertest.Response{completion("", "", "length", think),
			completion("4", "", "stop", think, token("hm"), end, digit)}, 0.75, "", "hm"},
		{"never ends", []infertest.Response{completion("", "So", "length", token("So", "So", 0.9)),
			completion("", "So it", "length", token("So"), token(" it"))}, 0, "reasoning without an answer", "So it"},
		{"a server of five", []infertest.Response{failed(400, "top_logprobs must be at most 5"), completion("4", "", "length", digit)}, 0.75, "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, b := scripted(t, openai.Options{}, c.script...)
			cs, err := b.Choose(context.Background(), []infer.Prompt{prompt}, infer.Digits(1, 6), infer.Params{})
			if err != nil {
				t.Fatal(err)
			}
			if math.Abs(cs[0].P[3]-c.p4) > 1e-9 || cs[0].Unscored != c.unscored || cs[0].Thinking != c.thinking {
				t.Errorf("P(4) %v, unscored %q, thinking %q", cs[0].P[3], cs[0].Unscored, cs[0].Thinking)
			}
		})
	}
}

func TestFiveAlternativesAreRemembered(t *testing.T) {
	s, b := scripted(t, openai.Options{}, failed(400, "top_logprobs must be at most 5"), completion("4", "", "length", token("4", "4", 0.9)))
	for range 2 {
		if _, err := b.Choose(context.Background(), []infer.Prompt{prompt}, infer.Digits(1, 6), infer.Params{}); err != nil {
			t.Fatal(err)
		}
	}
	var got []any
	for _, r := range s.Requests(path) {
		got = append(got, r.Body["top_logprobs"])
	}
	if len(got) != 3 || got[0] != 20.0 || got[1] != 5.0 || got[2] != 5.0 {
		t.Errorf("top_logprobs %v, want 20, 5, 5", got)
	}
}

func TestErrors(t *testing.T) {
	for _, c := range []struct {
		name   string
		answer infertest.Response
		check  func(error) bool
	}{
		{"vLLM: too long", failed(400, "This model's maximum context length is 2048 tokens. However, you requested 3001 tokens (3000 in the messages, 1 in the completion)."),
			func(err error) bool {
				var e *infer.ContextError
				return errors.As(err, &e) && *e == infer.ContextError{Need: 3001, Have: 2048}
			}},
		{"llama-server: too long", failed(400, "the request exceeds the available context size, try increasing it"), func(err error) bool {
			var e *infer.ContextError
			return errors.As(err, &e) && e.About
		}},
		{"busy", failed(429, "slow down"), func(err error) bool {
			var e *infer.StatusError
			return errors.As(err, &e) && e.Code == 429 && e.Message == "slow down"
		}},
		{"broken", infertest.Response{Status: 502, Body: "<html>bad gateway"}, func(err error) bool {
			var e *infer.StatusError
			return errors.As(err, &e) && e.Code == 502
		}},
		{"no such model", failed(404, `model "m" not found`), func(err error) bool {
			var e *infer.MissingError
			return errors.As(err, &e)
		}},
		{"hangs up", infertest.Response{Hang: true}, func(err error) bool {
			var e *infer.BrokenError
			return errors.As(err, &e) && !strings.Contains(err.Error(), "no server answers")
		}},
		{"no choices", infertest.Response{Body: obj{}}, func(err error) bool { return err != nil && strings.Contains(err.Error(), "without choices") }},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, b := scripted(t, openai.Options{}, c.answer)
			_, err := b.Choose(context.Background(), []infer.Prompt{prompt}, infer.Digits(1, 6), infer.Params{})
			if !c.check(err) {
				t.Errorf("got %v", err)
			}
		})
	}
}

func TestCutPromptIsNoticed(t *testing.T) {
	_, b := scripted(t, openai.Options{}, completion("4", "", "length", token("4", "4", 0.9))) // it read 20 tokens
	long := infer.Prompt{Messages: []infer.Message{{Role: infer.User, Content: strings.Repeat("They speak about it again. ", 40)}}}
	_, err := b.Choose(context.Background(), []infer.Prompt{long}, infer.Digits(1, 6), infer.Params{})
	if err == nil || !strings.Contains(err.Error(), "read 20 prompt tokens") {
		t.Errorf("got %v", err)
	}
}

func TestUnsupported(t *testing.T) {
	_, b := scripted(t, openai.Options{})
	if _, err := b.Chat(context.Background(), infer.Prompt{Raw: "x"}, infer.Params{}); !errors.Is(err, infer.ErrUnsupported) {
		t.Errorf("raw: %v", err)
	}
	if _, err := b.Render(context.Background(), prompt); !errors.Is(err, infer.ErrUnsupported) {
		t.Errorf("render: %v", err)
	}
	for _, u := range []string{"", "127.0.0.1:8000", "ftp://x/v1"} {
		if _, err := openai.New(u, "m", "", openai.Options{}); err == nil {
			t.Errorf("New(%q) succeeded", u)
		}
	}
}

func TestModelIsListed(t *testing.T) {
	s, b := scripted(t, openai.Options{})
	s.On("/v1/models", infertest.Response{Body: obj{"data": []obj{{"id": "other"}}}}, infertest.Response{Body: obj{"data": []obj{{"id": "m"}}}})
	var e *infer.MissingError
	if _, err := b.Model(context.Background()); !errors.As(err, &e) || !strings.Contains(err.Error(), "other") {
		t.Errorf("a model that is not listed: %v", err)
	}
	if m, err := b.Model(context.Background()); err != nil || m.Name != "m" {
		t.Errorf("a listed model: %+v, %v", m, err)
	}
}

func TestChatReasoning(t *testing.T) {
	for _, c := range []struct {
		answer         infertest.Response
		text, thinking string
	}{
		{completion("Yes.", "", "stop"), "Yes.", ""},
		{completion("Yes.", "hm", "stop"), "Yes.", "hm"},
		{completion("<think>hm</think>Yes.", "", "stop"), "Yes.", "hm"},
		{completion("<think>hm", "", "length"), "", "hm"},
		{completion("", "", "stop"), "", ""},
	} {
		_, b := scripted(t, openai.Options{}, c.answer)
		r, err := b.Chat(context.Background(), prompt, infer.Params{MaxTokens: 9})
		if err != nil || r.Text != c.text || r.Thinking != c.thinking {
			t.Errorf("got %+v, %v; want %q, %q", r, err, c.text, c.thinking)
		}
	}
}

// Ollama's own /v1 gives log-probabilities and survives temperature 0.
func TestServerOllamaV1(t *testing.T) {
	host := infertest.StartOllama(t)
	b, err := openai.New(host+"/v1", infertest.TestModel, "", openai.Options{})
	if err != nil {
		t.Fatal(err)
	}
	ctx := context.Background()
	m, err := b.Model(ctx)
	if err != nil || m.Digest != "" {
		t.Fatalf("model %+v, %v", m, err)
	}
	ps := []infer.Prompt{prompt, prompt}
	cs, err := b.Choose(ctx, ps, infer.Digits(1, 6), infer.Params{})
	if err != nil {
		t.Fatal(err)
	}
	for i, c := range cs {
		if len(c.Top) != 20 || c.Usage.Prompt == 0 {
			t.Errorf("choice %d: %d alternatives, usage %+v", i, len(c.Top), c.Usage)
		}
	}
	r, err := b.Chat(ctx, prompt, infer.Params{MaxTokens: 3})
	if err != nil || r.Usage.Generated == 0 || r.Usage.Generated > 3 {
		t.Errorf("chat: %+v, %v", r, err)
	}
	es, err := b.Embed(ctx, []string{"one", "two"})
	if err != nil || len(es) != 2 {
		t.Errorf("embeddings: %d, %v", len(es), err)
	}
	var e *infer.MissingError
	if x, _ := openai.New(host+"/v1", "nope", "", openai.Options{}); x != nil {
		if _, err := x.Chat(ctx, prompt, infer.Params{MaxTokens: 1}); !errors.As(err, &e) {
			t.Errorf("a model that is not there: %v", err)
		}
	}
}

func TestSchemaIsSent(t *testing.T) {
	form := &infer.Schema{Texts: []infer.SchemaText{{Name: "thought", Max: 9}}}
	s, b := scripted(t, openai.Options{}, infertest.Response{Body: `{"choices":[{"index":0,"finish_reason":"stop","message":{"role":"assistant","content":"{}"}}],"usage":{"prompt_tokens":3,"completion_tokens":1}}`})
	if _, err := b.Chat(context.Background(), infer.Prompt{Messages: []infer.Message{{Role: infer.User, Content: "q"}}}, infer.Params{MaxTokens: 9, Schema: form}); err != nil {
		t.Fatal(err)
	}
	if n := len(s.Requests(path)); n != 1 {
		t.Errorf("%d requests", n)
	}
	for _, q := range s.Requests(path) {
		if q.Body["response_format"] == nil || !strings.Contains(string(q.Raw), `"schema":`+string(form.JSON())) {
			t.Errorf("the request is %s", q.Raw)
		}
	}
}
