package ollama_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/ccmed/ccmed/infer"
	"github.com/ccmed/ccmed/infer/infertest"
	"github.com/ccmed/ccmed/infer/ollama"
)

type obj = map[string]any

// show is what the scripted server tells of its model.
var show = obj{
	"modelfile":  "# FROM x\n\nFROM /var/blobs/sha256-abc123\nTEMPLATE x\n",
	"template":   "{{ .Prompt }}",
	"parameters": `stop                           "<|im_end|>"`,
	"details":    obj{"family": "llama", "quantization_level": "Q4_1", "parameter_size": "135M"},
	"model_info": obj{"general.architecture": "llama", "llama.context_length": 2048},
}

func rendered(text string) infertest.Response {
	return infertest.Response{Body: obj{"model": "m", "_debug_info": obj{"rendered_template": text}}}
}

// token is one generated token with its alternatives: text, probability, ..., and
// others of 1e-4 until there are as many as are asked for.
func token(text string, alternatives ...any) obj {
	var top []obj
	for i := 0; i < len(alternatives); i += 2 {
		top = append(top, obj{"token": alternatives[i], "logprob": math.Log(alternatives[i+1].(float64))})
	}
	for i := len(top); i < 20; i++ {
		top = append(top, obj{"token": fmt.Sprintf("~%d", i), "logprob": math.Log(1e-4)})
	}
	return obj{"token": text, "logprob": -0.1, "top_logprobs": top}
}

func generated(prompt int, text string, tokens ...obj) infertest.Response {
	return infertest.Response{Body: obj{"model": "m", "response": text, "done": true, "done_reason": "length", "prompt_eval_count": prompt,
		"eval_count": max(1, len(tokens)), "logprobs": tokens}}
}

func scripted(t *testing.T, o ollama.Options) (*infertest.Server, *ollama.Backend) {
	t.Helper()
	s := infertest.NewServer(t).
		On("/api/show", infertest.Response{Body: show}).
		On("/api/version", infertest.Response{Body: obj{"version": "0.17.4"}}).
		On("/api/chat", rendered("user: 2+2?\nassistant: "))
	if o.Retry.Patience == 0 {
		o.Retry = infer.RetryPolicy{First: time.Millisecond, Longest: time.Millisecond, Patience: 100 * time.Millisecond}
	}
	b, err := ollama.New(s.URL, "m", o)
	if err != nil {
		t.Fatal(err)
	}
	return s, b
}

func question(text string) infer.Prompt {
	return infer.Prompt{Messages: []infer.Message{{Role: infer.System, Content: "s"}, {Role: infer.User, Content: text}}}
}

// Ollama samples with penalties, cuts prompts and lets models reason unless a
// request says otherwise; api.Options would drop every zero.
func TestEveryRequestStatesEveryOption(t *testing.T) {
	s, b := scripted(t, ollama.Options{})
	s.On("/api/generate", generated(9, "4", token("4", "4", 0.9)))
	ctx, o := context.Background(), infer.Params{NumCtx: 512, Seed: 7}
	if _, err := b.Choose(ctx, []infer.Prompt{question("2+2?")}, infer.Digits(1, 6), o); err != nil {
		t.Fatal(err)
	}
	s.On("/api/chat", rendered("user: 2+2?\nassistant: "),
		infertest.Response{Body: obj{"model": "m", "message": obj{"content": "4"}, "done": true, "done_reason": "stop", "prompt_eval_count": 9, "eval_count": 1}})
	if _, err := b.Chat(ctx, question("2+2?"), o); err != nil { // MaxTokens is 0
		t.Fatal(err)
	}
	want := obj{"num_ctx": 512.0, "temperature": 0.0, "top_p": 1.0, "top_k": 0.0, "min_p": 0.0, "typical_p": 1.0,
		"repeat_penalty": 1.0, "repeat_last_n": 0.0, "presence_penalty": 0.0, "frequency_penalty": 0.0, "num_predict": 1.0}
	n := 0
	for _, r := range s.Requests("") {
		if r.Path != "/api/chat" && r.Path != "/api/generate" {
			continue
		}
		n++
		opts, _ := r.Body["options"].(obj)
		for k, v := range want {
			if !reflect.DeepEqual(opts[k], v) {
				t.Errorf("%s: %s is %v, want %v", r.Path, k, opts[k], v)
			}
		}
		for _, k := range []string{"seed", "stop"} {
			if _, ok := opts[k]; !ok {
				t.Errorf("%s: %s is not stated", r.Path, k)
			}
		}
		for _, k := range []string{"truncate", "shift", "think", "stream"} {
			if r.Body[k] != false {
				t.Errorf("%s: %s is %v, want false", r.Path, k, r.Body[k])
			}
		}
		if r.Path == "/api/generate" && (r.Body["raw"] != true || r.Body["top_logprobs"] != 20.0) {
			t.Errorf("raw %v, top_logprobs %v; want true and 20, the most that is allowed", r.Body["raw"], r.Body["top_logprobs"])
		}
	}
	if n != 4 {
		t.Fatalf("%d requests to the model, want 4", n)
	}
	last := s.Requests("/api/chat")[2].Body["options"].(obj)
	if !reflect.DeepEqual(last["stop"], []any{"<|im_end|>"}) || last["seed"] != 7.0 {
		t.Errorf("stop %v, seed %v; want the model's own stop text and 7", last["stop"], last["seed"])
	}
}

func TestNumCtxStaysTheSame(t *testing.T) {
	s, b := scripted(t, ollama.Options{})
	s.On("/api/generate", generated(9, "4", token("4", "4", 0.9)))
	ask := func(n int) error {
		_, err := b.Choose(context.Background(), []infer.Prompt{question("2+2?")}, infer.Digits(1, 6), infer.Params{NumCtx: n})
		return err
	}
	if err := ask(512); err != nil {
		t.Fatal(err)
	}
	before := len(s.Requests(""))
	if err := ask(1024); err == nil || !strings.Contains(err.Error(), "num_ctx 1024 after requests with 512") {
		t.Errorf("a second num_ctx: %v", err)
	}
	if n := len(s.Requests("")); n != before {
		t.Errorf("the second num_ctx reached the server")
	}
}

func TestChoose(t *testing.T) {
	digit := token("4", "4", 0.5, " 4", 0.25, "1", 0.05)
	stream := func(tokens ...obj) infertest.Response {
		var lines strings.Builder
		for _, k := range tokens {
			lines.WriteString(`{"model":"m","response":"x","logprobs":[` + mustJSON(k) + `]}` + "\n")
		}
		lines.WriteString(`{"model":"m","response":"","done":true,"done_reason":"length","prompt_eval_count":9,"eval_count":` + mustJSON(len(tokens)) + `}`)
		return infertest.Response{Body: lines.String()}
	}
	think, end, nl := token("<think>", "<think>", 0.9), token("</think>", "</think>", 1.0), token("\n\n", "\n\n", 1.0)
	for _, c := range []struct {
		name     string
		script   []infertest.Response
		p4       float64
		bound2   float64 // of "2", which is never seen
		unscored string
		thinking string
	}{
		{"variants are added up", []infertest.Response{generated(9, "4", digit)}, 0.75, 2e-4, "", ""},
		{"first token is hidden", []infertest.Response{generated(9, ""), generated(9, "x", digit)}, 0.75, 2e-4, "", ""},
		{"stays hidden", []infertest.Response{generated(9, "")}, 0, 1,
			"empty answer: the model ended at once and the server gave no log-probabilities", ""},
		{"prose", []infertest.Response{generated(9, "The", token("The", "The", 0.8, "I", 0.1))}, 0, 2e-4, infer.NoAnswerSeen, ""},
		{"reasoning", []infertest.Response{generated(9, "<think>", think), stream(think, token("hm"), end, nl, digit)}, 0.75, 2e-4, "", "hm"},
		{"reasoning without end", []infertest.Response{generated(9, "<think>", think), stream(think, token("hm"))}, 0, 1,
			"reasoning without an answer", "hm"},
		{"a mark that is none", []infertest.Response{generated(9, "<", token("<", "<", 0.5, "4", 0.25)),
			stream(token("<"), token("b>"))}, 0.25, 2e-4, "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, b := scripted(t, ollama.Options{})
			s.On("/api/generate", c.script...)
			cs, err := b.Choose(context.Background(), []infer.Prompt{question("2+2?")}, infer.Digits(1, 6), infer.Params{})
			if err != nil {
				t.Fatal(err)
			}
			got := cs[0]
			if math.Abs(got.P[3]-c.p4) > 1e-9 || got.Unscored != c.unscored || got.Thinking != c.thinking {
				t.Errorf("P(4) %v, unscored %q, thinking %q", got.P[3], got.Unscored, got.Thinking)
			}
			if math.Abs(got.Bound[1]-c.bound2) > 1e-9 {
				t.Errorf("bound of an answer outside the alternatives: %v, want %v", got.Bound[1], c.bound2)
			}
		})
	}
}

func TestLeadInFollowsTheRenderedPrompt(t *testing.T) {
	for rendered1, want := range map[string]string{
		"s q\nassistant:":           "s q\nassistant:Stage: ",
		"s q<|start|>assistant":     "s q<|start|>assistant<|channel|>final<|message|>Stage: ",
		"s q<|Assistant|><think>\n": "s q<|Assistant|><think>\n\n</think>\n\nStage: ",
	} {
		s, b := scripted(t, ollama.Options{})
		s.On("/api/chat", rendered(rendered1)).On("/api/generate", generated(9, "4", token("4", "4", 0.9)))
		p := question("q")
		p.LeadIn = "Stage: "
		if _, err := b.Choose(context.Background(), []infer.Prompt{p}, infer.Digits(1, 6), infer.Params{}); err != nil {
			t.Fatal(err)
		}
		if got := s.Requests("/api/generate")[0].Body["prompt"]; got != want {
			t.Errorf("sent %q, want %q", got, want)
		}
	}
}

func TestPromptsAreSentInPrefixOrder(t *testing.T) {
	s, b := scripted(t, ollama.Options{})
	s.On("/api/generate", generated(9, "4", token("4", "4", 0.9)))
	var ps []infer.Prompt
	for _, raw := range []string{"dialogue two", "dialogue one and more", "dialogue two and more", "dialogue one"} {
		ps = append(ps, infer.Prompt{Raw: raw})
	}
	cs, err := b.Choose(context.Background(), ps, infer.Digits(1, 6), infer.Params{})
	if err != nil {
		t.Fatal(err)
	}
	var order []string
	for _, r := range s.Requests("/api/generate") {
		order = append(order, r.Body["prompt"].(string))
	}
	for i := 0; i < len(order); i += 2 {
		if !strings.HasPrefix(order[i+1], order[i]) {
			t.Errorf("sent in the order %q", order)
		}
	}
	for i, p := range ps {
		if cs[i].Rendered != p.Raw {
			t.Errorf("choice %d is that of %q, want %q", i, cs[i].Rendered, p.Raw)
		}
	}
}

func TestChatParts(t *testing.T) {
	loop := "Well," + strings.Repeat(" no", 31)
	chat := func(content, thinking, reason string, done bool) infertest.Response {
		return infertest.Response{Body: obj{"model": "m", "message": obj{"content": content, "thinking": thinking}, "done": done, "done_reason": reason,
			"prompt_eval_count": 9, "eval_count": 3}}
	}
	for _, c := range []struct {
		name   string
		answer infertest.Response
		want   infer.Reply
	}{
		{"plain", chat("Yes.", "", "stop", true), infer.Reply{Text: "Yes.", Stop: "stop"}},
		{"cut", chat("Yes", "", "length", true), infer.Reply{Text: "Yes", Stop: "length"}},
		{"server parts it", chat("Yes.", "hm", "stop", true), infer.Reply{Text: "Yes.", Thinking: "hm", Stop: "stop"}},
		{"text holds it", chat("<think>hm</think>\n\nYes.", "", "stop", true), infer.Reply{Text: "Yes.", Thinking: "hm", Stop: "stop"}},
		{"no answer after it", chat("<think>hm", "", "length", true), infer.Reply{Thinking: "hm", Stop: "length"}},
		{"empty", chat("", "", "stop", true), infer.Reply{Stop: "stop"}},
		{"server stops a loop", chat(loop, "", "", false), infer.Reply{Text: loop, Stop: "length"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, b := scripted(t, ollama.Options{})
			s.On("/api/chat", rendered("s, q"), c.answer)
			got, err := b.Chat(context.Background(), question("q"), infer.Params{MaxTokens: 9})
			if err != nil {
				t.Fatal(err)
			}
			if got.Rendered != "s, q" {
				t.Errorf("rendered %q", got.Rendered)
			}
			got.Rendered, got.Usage = "", infer.Usage{}
			if !reflect.DeepEqual(got, c.want) {
				t.Errorf("got %+v, want %+v", got, c.want)
			}
		})
	}
}

func TestErrors(t *testing.T) {
	type missing = *infer.MissingError
	tooLong := infertest.Response{Status: 400, Body: obj{"error": "the input length exceeds the context length"}}
	five := func(context.Context, string) ([]int32, error) { return []int32{1, 2, 3, 4, 5}, nil }
	for _, c := range []struct {
		name   string
		opts   ollama.Options
		answer infertest.Response
		check  func(error) bool
	}{
		{"no such model", ollama.Options{}, infertest.Response{Status: 404, Body: obj{"error": "model 'm' not found"}}, func(err error) bool {
			var e missing
			return errors.As(err, &e) && strings.Contains(e.Fix, "ollama pull m")
		}},
		{"busy", ollama.Options{}, infertest.Response{Status: 503, Body: obj{"error": "server busy"}}, func(err error) bool {
			var e *infer.StatusError
			return errors.As(err, &e) && e.Code == 503 && strings.Contains(err.Error(), "server busy")
		}},
		{"too long", ollama.Options{}, tooLong, func(err error) bool {
			var e *infer.ContextError
			return errors.As(err, &e) && e.About && e.Need > e.Have && e.Have == 512
		}},
		{"too long, counted", ollama.Options{Tokenize: func(context.Context, string) ([]int32, error) { return make([]int32, 700), nil }},
			tooLong, func(err error) bool {
				var e *infer.ContextError
				return errors.As(err, &e) && *e == infer.ContextError{Need: 701, Have: 512}
			}},
		{"fills the context", ollama.Options{}, generated(512, "4", token("4", "4", 0.9)), func(err error) bool {
			var e *infer.ContextError
			return errors.As(err, &e) && e.About
		}},
		{"other count than ours", ollama.Options{Tokenize: five}, generated(4, "4", token("4", "4", 0.9)), func(err error) bool {
			return err != nil && strings.Contains(err.Error(), "read 4 prompt tokens and 5 were sent")
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, b := scripted(t, c.opts)
			s.On("/api/generate", c.answer)
			_, err := b.Choose(context.Background(), []infer.Prompt{{Raw: "one two three"}}, infer.Digits(1, 6), infer.Params{NumCtx: 512})
			if !c.check(err) {
				t.Errorf("got %v", err)
			}
		})
	}
}

func TestCutPromptIsNoticedWithoutTokenizer(t *testing.T) {
	s, b := scripted(t, ollama.Options{})
	s.On("/api/generate", generated(300, "4", token("4", "4", 0.9)), generated(200, "4", token("4", "4", 0.9)))
	ps := []infer.Prompt{{Raw: "a dialogue"}, {Raw: "a dialogue that goes on"}}
	_, err := b.Choose(context.Background(), ps, infer.Digits(1, 6), infer.Params{NumCtx: 512})
	if err == nil || !strings.Contains(err.Error(), "read 200 prompt tokens, and 300 of a prompt that this one begins with") {
		t.Errorf("got %v", err)
	}
}

func TestNoServer(t *testing.T) {
	b, err := ollama.New("127.0.0.1:1", "m", ollama.Options{})
	if err != nil {
		t.Fatal(err)
	}
	_, err = b.Model(context.Background())
	var e *infer.MissingError
	if !errors.As(err, &e) || !infer.IsConnection(e.Err) || !strings.Contains(err.Error(), "ollama serve") {
		t.Errorf("got %v", err)
	}
}

func TestServerDiesInMidAnswer(t *testing.T) {
	s, b := scripted(t, ollama.Options{})
	s.On("/api/generate", infertest.Response{Hang: true})
	_, err := b.Choose(context.Background(), []infer.Prompt{{Raw: "x"}}, infer.Digits(1, 6), infer.Params{})
	var e *infer.BrokenError
	if !errors.As(err, &e) || !infer.IsConnection(e.Err) {
		t.Errorf("got %v", err)
	}
}

func TestModel(t *testing.T) {
	_, b := scripted(t, ollama.Options{})
	m, err := b.Model(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	if m.Digest != "sha256:abc123" || m.ContextTrain != 2048 || m.Quantization != "Q4_1" || m.Architecture != "llama" ||
		m.Server != "0.17.4" || m.Path != "" || !strings.HasPrefix(m.TemplateHash, "sha256:") {
		t.Errorf("got %+v", m)
	}
	other := obj{}
	for k, v := range show {
		other[k] = v
	}
	other["system"] = "be kind"
	other["modelfile"] = show["modelfile"].(string) + "ADAPTER /x\n"
	s2, b2 := scripted(t, ollama.Options{})
	s2.On("/api/show", infertest.Response{Body: other}).
		On("/api/tags", infertest.Response{Body: obj{"models": []obj{{"name": "m:latest", "digest": "def"}}}})
	m2, err := b2.Model(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	if m2.TemplateHash == m.TemplateHash {
		t.Error("a system text does not change the template hash")
	}
	if m2.Digest != "sha256:def" {
		t.Errorf("digest of an adapted model is %s, want the manifest's", m2.Digest)
	}
}

func TestHosts(t *testing.T) {
	for host, ok := range map[string]bool{"": true, "box:1": true, "http://box": true, "0.0.0.0:11434": true, "http://": false, "a b": false} {
		if _, err := ollama.New(host, "m", ollama.Options{}); (err == nil) != ok {
			t.Errorf("New(%q): %v", host, err)
		}
	}
	if _, err := ollama.New("", " ", ollama.Options{}); err == nil {
		t.Error("New without a model")
	}
}

func TestConcurrentCallersKeepTheirOrder(t *testing.T) {
	s, b := scripted(t, ollama.Options{HTTP: &http.Client{}})
	s.On("/api/generate", generated(9, "4", token("4", "4", 0.9)))
	errs := make(chan error, 8)
	for i := range 8 {
		go func() {
			raw := strings.Repeat(string(rune('a'+i)), 4)
			_, err := b.Choose(context.Background(), []infer.Prompt{{Raw: raw + " 1"}, {Raw: raw + " 2"}}, infer.Digits(1, 6), infer.Params{})
			errs <- err
		}()
	}
	for range 8 {
		if err := <-errs; err != nil {
			t.Fatal(err)
		}
	}
	rs := s.Requests("/api/generate")
	for i := 0; i < len(rs); i += 2 {
		a, b := rs[i].Body["prompt"].(string), rs[i+1].Body["prompt"].(string)
		if a[0] != b[0] {
			t.Errorf("%q is followed by %q of another caller", a, b)
		}
	}
}

func mustJSON(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return string(b)
}

// The form of an answer is sent with the chat, and with a rendered prompt.
func TestSchemaIsSent(t *testing.T) {
	s, b := scripted(t, ollama.Options{})
	answer := infertest.Response{Body: obj{"model": "m", "message": obj{"content": "{}"}, "response": "{}", "done": true, "done_reason": "stop", "prompt_eval_count": 9, "eval_count": 3}}
	s.On("/api/chat", rendered("s, q"), answer)
	s.On("/api/generate", answer)
	form := &infer.Schema{Texts: []infer.SchemaText{{Name: "thought", Max: 9}}}
	if _, err := b.Chat(context.Background(), question("q"), infer.Params{MaxTokens: 9, Schema: form}); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Chat(context.Background(), infer.Prompt{Raw: "q"}, infer.Params{MaxTokens: 9, Schema: form}); err != nil {
		t.Fatal(err)
	}
	bound := 0
	for _, path := range []string{"/api/chat", "/api/generate"} {
		for _, q := range s.Requests(path) {
			if strings.Contains(string(q.Raw), `"format":`+string(form.JSON())) {
				bound++
			}
		}
	}
	if bound != 2 {
		t.Errorf("%d of 2 requests have the form", bound)
	}
}
