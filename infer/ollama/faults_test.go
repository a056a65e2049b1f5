package ollama_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/ccmed/ccmed/infer"
	"github.com/ccmed/ccmed/infer/infertest"
	"github.com/ccmed/ccmed/infer/ollama"
)

// with is the answer with a member changed; nil takes it away.
func with(r infertest.Response, key string, v any) infertest.Response {
	body := obj{}
	for k, old := range r.Body.(obj) {
		body[k] = old
	}
	if body[key] = v; v == nil {
		delete(body, key)
	}
	r.Body = body
	return r
}

// half is the first half of an answer.
func half(r infertest.Response) infertest.Response {
	text := mustJSON(r.Body)
	r.Body = text[:len(text)/2]
	return r
}

// twice is an answer in which a key stands a second time.
func twice(r infertest.Response, key string, v any) infertest.Response {
	r.Body = strings.TrimSuffix(mustJSON(r.Body), "}") + fmt.Sprintf(",%q:%s}", key, mustJSON(v))
	return r
}

// never are faults of every endpoint: none of them is an answer.
func never(good infertest.Response) map[string]infertest.Response {
	return map[string]infertest.Response{
		"closed":          {Hang: true},
		"502 without":     {Status: 502, Body: ""},
		"503 without":     {Status: 503, Body: ""},
		"503 with":        {Status: 503, Body: obj{"error": "busy"}},
		"429":             {Status: 429, Body: obj{"error": "busy"}},
		"204":             {Status: 204, Body: ""},
		"200 without":     {Body: ""},
		"an empty object": {Body: obj{}},
		"null":            {Body: "null"},
		"a page":          {Body: "<html><title>Log in</title></html>"},
		"half":            half(good),
		"an error in 200": {Body: obj{"error": obj{"message": "upstream rate limit", "code": 429}}},
		"too long":        {Body: strings.Repeat(" ", 65<<20) + mustJSON(good.Body)},
	}
}

func TestNoFaultBecomesAnAnswer(t *testing.T) {
	ctx, digits := context.Background(), infer.Digits(1, 6)
	choice := generated(9, "4", token("4", "4", 0.9))
	render := rendered("s: s, u: 2+2?")
	spoken := infertest.Response{Body: obj{"model": "m", "message": obj{"content": "Yes."}, "done": true, "done_reason": "stop", "prompt_eval_count": 9, "eval_count": 3}}
	vectors := func(v ...any) infertest.Response { return infertest.Response{Body: obj{"model": "m", "embeddings": v}} }
	generation := func(good infertest.Response) map[string]infertest.Response {
		out := never(good)
		for name, r := range map[string]infertest.Response{
			"another model":   with(good, "model", "other"),
			"no model":        with(good, "model", nil),
			"not done":        with(good, "done", false),
			"nothing done":    with(good, "done", nil),
			"only loaded":     with(good, "done_reason", "load"),
			"only unloaded":   with(good, "done_reason", "unload"),
			"no reason":       with(good, "done_reason", ""),
			"prompt not read": with(good, "prompt_eval_count", nil),
			"no count":        with(good, "eval_count", nil),
			"too many tokens": with(good, "eval_count", 500),
			"done twice":      twice(good, "done", true),
			"Done":            twice(good, "Done", false),
			"two answers":     {Body: mustJSON(good.Body) + "\n" + mustJSON(good.Body)},
		} {
			out[name] = r
		}
		return out
	}
	choices := generation(choice)
	choices["no text"] = with(choice, "response", nil)
	choices["an endless text"] = with(choice, "response", strings.Repeat("no ", 1000))
	chats := generation(spoken)
	chats["no message"] = with(spoken, "message", nil)
	chats["no content"] = with(spoken, "message", obj{"content": nil})
	chats["an endless text"] = with(spoken, "message", obj{"content": strings.Repeat("no ", 1000)})
	renders := never(render)
	renders["another model"] = with(render, "model", "other")
	renders["nothing rendered"] = rendered("")
	renders["no rendering"] = with(render, "_debug_info", obj{})
	renders["half the prompt"] = rendered("s: s, u: 2+")
	embeds := never(vectors([]float64{1, 0}))
	embeds["one too few"] = vectors()
	embeds["one too many"] = vectors([]float64{1, 0}, []float64{1, 0})
	embeds["null"] = vectors(nil)
	embeds["a null within"] = vectors([]any{1.0, nil})
	embeds["zero"] = vectors([]float64{0, 0})
	embeds["another model"] = with(vectors([]float64{1, 0}), "model", "other")
	shows := never(infertest.Response{Body: show})
	shows["no weights"] = infertest.Response{Body: obj{"modelfile": "TEMPLATE x\n"}}

	for _, c := range []struct {
		path   string
		good   infertest.Response
		faults map[string]infertest.Response
		ask    func(*ollama.Backend) (any, error)
	}{
		{"/api/generate", choice, choices, func(b *ollama.Backend) (any, error) {
			cs, err := b.Choose(ctx, []infer.Prompt{{Raw: "2+2?"}}, digits, infer.Params{})
			if err != nil || cs[0].Argmax() < 0 {
				return cs, err
			}
			return digits[cs[0].Argmax()].Label, nil
		}},
		{"/api/chat", render, renders, func(b *ollama.Backend) (any, error) { return b.Render(ctx, question("2+2?")) }},
		{"/api/chat", spoken, chats, func(b *ollama.Backend) (any, error) {
			r, err := b.Chat(ctx, question("2+2?"), infer.Params{MaxTokens: 5})
			return r.Text, err
		}},
		{"/api/embed", vectors([]float64{1, 0}), embeds, func(b *ollama.Backend) (any, error) {
			v, err := b.Embed(ctx, []string{"x"})
			return fmt.Sprint(v), err
		}},
		{"/api/show", infertest.Response{Body: show}, shows, func(b *ollama.Backend) (any, error) {
			m, err := b.Model(ctx)
			return m.Digest, err
		}},
		{"/api/version", infertest.Response{Body: obj{"version": "1"}}, never(infertest.Response{Body: obj{"version": "1"}}), func(b *ollama.Backend) (any, error) {
			m, err := b.Model(ctx)
			return m.Server, err
		}},
	} {
		script := func(s *infertest.Server, rs ...infertest.Response) {
			if _, isChat := c.faults["no message"]; isChat {
				rs = append([]infertest.Response{render}, rs...)
			}
			s.On(c.path, rs...)
		}
		s, b := scripted(t, ollama.Options{})
		script(s, c.good)
		want, err := c.ask(b)
		if err != nil {
			t.Fatalf("%s, without a fault: %v", c.path, err)
		}
		for name, fault := range c.faults {
			t.Run(strings.TrimPrefix(c.path, "/api/")+"/"+name, func(t *testing.T) {
				s, b := scripted(t, ollama.Options{})
				script(s, fault, c.good)
				if got, err := c.ask(b); err != nil || mustJSON(got) != mustJSON(want) {
					t.Errorf("once: %v, %v; want %v", got, err, want)
				}
				s, b = scripted(t, ollama.Options{})
				script(s, fault)
				if got, err := c.ask(b); err == nil {
					t.Errorf("always: it is taken for the answer %v", got)
				}
			})
		}
	}
}

// What can be no probability is unscored in the end, and asked for again before.
func TestLogprobsThatAreNone(t *testing.T) {
	top := func(f func(entries []obj) []obj) infertest.Response {
		k := token("4", "4", 0.5, "2", 0.3)
		k["top_logprobs"] = f(k["top_logprobs"].([]obj))
		return generated(9, "4", k)
	}
	good := top(func(es []obj) []obj { return es })
	for name, c := range map[string]struct {
		answer infertest.Response
		why    string // "" is scored
	}{
		"null":      {top(func(es []obj) []obj { es[0]["logprob"] = nil; return es }), `the log-probability of "4" is missing`},
		"missing":   {top(func(es []obj) []obj { delete(es[1], "logprob"); return es }), `the log-probability of "2" is missing`},
		"no token":  {top(func(es []obj) []obj { delete(es[0], "token"); return es }), "is missing"},
		"logits":    {top(func(es []obj) []obj { es[0]["logprob"] = 14.2; return es }), "above 0"},
		"above one": {top(func(es []obj) []obj { es[1]["logprob"] = -0.01; return es }), "add up to"},
		"none":      {with(good, "logprobs", nil), "the server returned no log-probabilities"},
		"no top":    {top(func([]obj) []obj { return nil }), "the server returned no log-probabilities"},
		"doubled":   {top(func(es []obj) []obj { es[19] = es[1]; es[18] = es[1]; return es }), ""},
	} {
		t.Run(name, func(t *testing.T) {
			for _, always := range []bool{true, false} {
				s, b := scripted(t, ollama.Options{})
				s.On("/api/generate", c.answer, good)
				if always {
					s.On("/api/generate", c.answer)
				}
				cs, err := b.Choose(context.Background(), []infer.Prompt{{Raw: "2+2?"}}, infer.Digits(1, 6), infer.Params{})
				if err != nil {
					t.Fatal(err)
				}
				if always && c.why != "" {
					if cs[0].Argmax() != -1 || !strings.Contains(cs[0].Unscored, c.why) {
						t.Errorf("unscored %q, want %q", cs[0].Unscored, c.why)
					}
				} else if cs[0].Argmax() != 3 {
					t.Errorf("always %v: %+v", always, cs[0])
				}
				if n := len(s.Requests("/api/generate")); n > 3 {
					t.Errorf("%d requests", n)
				}
			}
		})
	}
}

// A stream that is cut says nothing of the model.
func TestReasoningThatIsCutIsAskedAgain(t *testing.T) {
	think := token("<think>", "<think>", 0.9)
	line := func(k obj) string {
		return mustJSON(obj{"model": "m", "response": k["token"], "logprobs": []obj{k}}) + "\n"
	}
	cut := infertest.Response{Body: line(think) + line(token("hm"))}
	whole := infertest.Response{Body: cut.Body.(string) + line(token("</think>")) + line(token("4", "4", 0.9)) +
		mustJSON(obj{"model": "m", "response": "", "done": true, "done_reason": "stop", "prompt_eval_count": 9, "eval_count": 4})}
	s, b := scripted(t, ollama.Options{})
	ask := func() ([]infer.Choice, error) {
		return b.Choose(context.Background(), []infer.Prompt{{Raw: "2+2?"}}, infer.Digits(1, 6), infer.Params{})
	}
	s.On("/api/generate", generated(9, "<think>", think), cut, whole)
	if cs, err := ask(); err != nil || cs[0].Argmax() != 3 || cs[0].Thinking != "hm" {
		t.Errorf("cut once: %+v, %v", cs, err)
	}
	s.On("/api/generate", generated(9, "<think>", think), cut)
	var broken *infer.BrokenError
	if cs, err := ask(); !errors.As(err, &broken) {
		t.Errorf("cut always: %+v, %v", cs, err)
	}
}

func TestTemplateThatLeavesOutAMessage(t *testing.T) {
	s, b := scripted(t, ollama.Options{})
	s.On("/api/chat", rendered("user: 2+2?"))
	ms := []infer.Message{{Role: infer.System, Content: " Be brief.\n"}, {Role: infer.User, Content: "2+2?"}}
	_, err := b.Render(context.Background(), infer.Prompt{Messages: ms})
	if err == nil || !strings.Contains(err.Error(), "the template of m leaves out the system message, number 1 of 2") || len(s.Requests("/api/chat")) != 2 {
		t.Errorf("after %d requests: %v", len(s.Requests("/api/chat")), err)
	}
	s.On("/api/chat", rendered("user: Be brief.\n\n2+2?")) // trimmed, and in the user's turn
	if _, err := b.Render(context.Background(), infer.Prompt{Messages: ms}); err != nil {
		t.Error(err)
	}
}

// Every prompt is read as 100 tokens by a server that cuts.
func TestCutPromptsAreNoticedByTheirText(t *testing.T) {
	s, b := scripted(t, ollama.Options{})
	s.On("/api/generate", generated(100, "4", token("4", "4", 0.9)))
	_, err := b.Choose(context.Background(), []infer.Prompt{{Raw: strings.Repeat("The two of them speak. ", 100)}}, infer.Digits(1, 6), infer.Params{})
	if err == nil || !strings.Contains(err.Error(), "the server read 100 prompt tokens of a text of about") {
		t.Errorf("got %v", err)
	}
}

func TestAModelElsewhereIsRefused(t *testing.T) {
	s, b := scripted(t, ollama.Options{})
	s.On("/api/show", with(infertest.Response{Body: show}, "remote_host", "https://ollama.com"))
	if _, err := b.Model(context.Background()); err == nil || !strings.Contains(err.Error(), "it sends prompts on to https://ollama.com") {
		t.Errorf("got %v", err)
	}
}

func TestRefreshAsksAnew(t *testing.T) {
	s, b := scripted(t, ollama.Options{})
	was, err := b.Model(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	s.On("/api/show", with(infertest.Response{Body: show}, "modelfile", "FROM /var/blobs/sha256-other\n"))
	is, err := b.Refresh(context.Background())
	if err != nil || is.Digest == was.Digest {
		t.Errorf("%s became %s, %v", was.Digest, is.Digest, err)
	}
}

func TestListsThatAreNone(t *testing.T) {
	for name, fault := range never(infertest.Response{Body: obj{"models": []obj{}}}) {
		if name == "closed" || strings.HasPrefix(name, "50") || name == "429" {
			continue // tried again for seconds
		}
		s := infertest.NewServer(t).On("/api/tags", fault, infertest.Response{Body: obj{"models": []obj{{"name": "m"}}}})
		if ms, err := ollama.Models(context.Background(), s.URL); err != nil || len(ms) != 1 {
			t.Errorf("%s: %v, %v", name, ms, err)
		}
	}
}
