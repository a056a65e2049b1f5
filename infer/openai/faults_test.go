package openai_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ccmed/ccmed/infer"
	"github.com/ccmed/ccmed/infer/infertest"
	"github.com/ccmed/ccmed/infer/openai"
)

// changed is the good answer with one thing changed.
func changed(f func(body, choice obj)) infertest.Response {
	b, err := json.Marshal(completion("4", "", "length", token("4", "4", 0.5, " 4", 0.25, "1", 0.05)).Body)
	if err != nil {
		panic(err)
	}
	var body obj
	if err := json.Unmarshal(b, &body); err != nil {
		panic(err)
	}
	body["model"] = "m"
	f(body, body["choices"].([]any)[0].(obj))
	return infertest.Response{Body: body}
}

func tops(choice obj) []any {
	return choice["logprobs"].(obj)["content"].([]any)[0].(obj)["top_logprobs"].([]any)
}

func setTops(choice obj, top []any) {
	choice["logprobs"].(obj)["content"].([]any)[0].(obj)["top_logprobs"] = top
}

// faults are answers that must not count, each with what is said of it.
var faults = map[string]struct {
	answer   infertest.Response
	says     string
	unscored bool // the answer came whole, and its figures are none
}{
	"another model":           {changed(func(b, _ obj) { b["model"] = "other" }), `one of the model "other", and "m" was asked`, false},
	"a longer name":           {changed(func(b, _ obj) { b["model"] = "m-mini" }), `one of the model "m-mini"`, false},
	"no choices":              {changed(func(b, _ obj) { b["choices"] = []obj{} }), "without choices", false},
	"null choices":            {changed(func(b, _ obj) { b["choices"] = nil }), "without choices", false},
	"no message":              {changed(func(_, c obj) { delete(c, "message") }), "without choices", false},
	"choices of another kind": {changed(func(b, _ obj) { b["choices"] = "4" }), "form", false},
	"not ended":               {changed(func(_, c obj) { c["finish_reason"] = nil }), "finish_reason", false},
	"an endless text":         {changed(func(_, c obj) { c["message"] = obj{"content": strings.Repeat("4", 2000)} }), "too many for max_tokens 1", false},
	"longer than memory":      {infertest.Response{Body: `{"choices":[` + strings.Repeat(" ", 3<<20) + `]}`}, "longer than", false},
	"other tokens":            {changed(func(_, c obj) { c["message"] = obj{"content": "7"} }), "of other tokens", false},
	"half the alternatives":   {changed(func(_, c obj) { setTops(c, tops(c)[1:9]) }), "8 of the 20 alternatives", false},

	"null log-probabilities": {changed(func(_, c obj) {
		for _, t := range tops(c) {
			t.(obj)["logprob"] = nil
		}
	}), `the log-probability of "4" is missing`, true},
	"one missing": {changed(func(_, c obj) { delete(tops(c)[1].(obj), "logprob") }), `the log-probability of " 4" is missing`, true},
	"logits": {changed(func(_, c obj) {
		for i, t := range tops(c) {
			t.(obj)["logprob"] = 14.2 - float64(i)
		}
	}), "above 0", true},
	"more than all": {changed(func(_, c obj) { tops(c)[2].(obj)["logprob"] = -0.1 }), "add up to 1.655", true},
}

func TestFaultedAnswersCountForNothing(t *testing.T) {
	good := changed(func(_, _ obj) {})
	for name, f := range faults {
		t.Run(name, func(t *testing.T) {
			_, b := scripted(t, openai.Options{}, f.answer)
			cs, err := b.Choose(context.Background(), []infer.Prompt{prompt}, infer.Digits(1, 6), infer.Params{})
			var broken *infer.BrokenError
			switch {
			case f.unscored && (err != nil || cs[0].Argmax() != -1 || !strings.Contains(cs[0].Unscored, f.says) || len(cs[0].Top) != 20):
				t.Errorf("got %+v, %v; want it unscored: %s", cs, err, f.says)
			case !f.unscored && (!errors.As(err, &broken) || !strings.Contains(err.Error(), f.says)):
				t.Errorf("got %+v, %v; want %q", cs, err, f.says)
			}
			if f.unscored {
				return
			}
			s, b := scripted(t, openai.Options{Retry: infer.RetryPolicy{First: time.Microsecond}}, f.answer, good)
			cs, err = b.Choose(context.Background(), []infer.Prompt{prompt}, infer.Digits(1, 6), infer.Params{})
			if err != nil || cs[0].Argmax() != 3 || len(s.Requests(path)) != 2 {
				t.Errorf("asked again: %+v, %v after %d requests", cs, err, len(s.Requests(path)))
			}
		})
	}
}

// What a server has given before is missing, and not only unknown.
func TestWhatAServerGaveItOwes(t *testing.T) {
	good := changed(func(_, _ obj) {})
	for name, without := range map[string]infertest.Response{
		"log-probabilities": changed(func(_, c obj) { c["logprobs"] = nil }),
		"alternatives":      changed(func(_, c obj) { setTops(c, []any{}) }),
		"usage":             changed(func(b, _ obj) { delete(b, "usage") }),
	} {
		s, b := scripted(t, openai.Options{Retry: infer.RetryPolicy{First: time.Microsecond}}, without, good, without, good)
		for i := range 3 {
			cs, err := b.Choose(context.Background(), []infer.Prompt{prompt}, infer.Digits(1, 6), infer.Params{})
			if err != nil || (cs[0].Argmax() == 3) != (i > 0 || name == "usage") || cs[0].Usage.Prompt == 0 {
				t.Errorf("%s, choice %d: %+v, %v", name, i, cs, err)
			}
		}
		if n := len(s.Requests(path)); n != 4 {
			t.Errorf("%s: %d requests for 3 choices, want one of them made again", name, n)
		}
	}
}

// A server that returns fewer alternatives every time is taken at its word.
func TestFewerAlternativesAreTold(t *testing.T) {
	var told []string
	s, b := scripted(t, openai.Options{Retry: infer.RetryPolicy{First: time.Microsecond, Notify: func(n string) { told = append(told, n) }}},
		changed(func(_, c obj) { setTops(c, tops(c)[:3]) }))
	for range 2 {
		cs, err := b.Choose(context.Background(), []infer.Prompt{prompt}, infer.Digits(1, 6), infer.Params{})
		if err != nil || cs[0].Argmax() != 3 || math.Abs(cs[0].Bound[5]-0.1) > 1e-9 {
			t.Errorf("got %+v, %v", cs, err)
		}
	}
	if n := len(s.Requests(path)); n != 4 || !strings.Contains(told[len(told)-1], "returns 3 of the 20 alternatives") {
		t.Errorf("%d requests, told %q", n, told)
	}
}

func TestNamesOfOneModel(t *testing.T) {
	for _, c := range []struct {
		name, says string
		list       any
		ok         bool
	}{
		{"m", "m", nil, true}, {"m", "", nil, true}, {"m:latest", "m", nil, true}, {"m", "M:latest", nil, true}, {"m", "m-2024-08-06", nil, true},
		{"m", "x", nil, false}, {"m", "m:7b", nil, false}, {"m:7b", "m:13b", nil, false},
		{"m", "first", []obj{{"id": "first", "root": "/weights"}, {"id": "m", "root": "/weights"}}, true},
		{"m", "other", []obj{{"id": "other", "root": "/others"}, {"id": "m", "root": "/weights"}}, false},
		{"m", "other", []obj{{"id": "other"}, {"id": "m"}}, false},
		{"m", "main", []obj{{"id": "main", "aliases": []string{"m", "main"}}}, true},
	} {
		s := infertest.NewServer(t).On(path, changed(func(b, _ obj) { b["model"] = c.says }))
		if c.list != nil {
			s.On("/v1/models", infertest.Response{Body: obj{"data": c.list}})
		}
		b, err := openai.New(s.URL+"/v1", c.name, "", openai.Options{Retry: infer.RetryPolicy{Patience: -1}})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := b.Chat(context.Background(), prompt, infer.Params{MaxTokens: 4}); (err == nil) != c.ok {
			t.Errorf("asked %q, answered %q of %v: %v", c.name, c.says, c.list, err)
		}
	}
}

// Ollama's /v1 ends without a reason where a token has come 30 times in a row.
func TestRepetitionEndsAnAnswer(t *testing.T) {
	for text, ok := range map[string]bool{"so " + strings.Repeat(" no", 30): true, "so " + strings.Repeat(" no", 29): false, "so": false} {
		_, b := scripted(t, openai.Options{}, changed(func(_, c obj) { c["message"], c["finish_reason"] = obj{"content": text}, nil }))
		r, err := b.Chat(context.Background(), prompt, infer.Params{MaxTokens: 40})
		if (err == nil) != ok || ok && (r.Stop != "length" || r.Text != text) {
			t.Errorf("%q: %+v, %v", text, r, err)
		}
	}
}

// One after the other, a slice of 18 prompts would start again at each failure
// and never end; in flight are never more than Parallel, whoever asks.
func TestAFifthOfRequestsMayFail(t *testing.T) {
	var mu sync.Mutex
	rng := rand.New(rand.NewPCG(7, 7))
	var asked, flying, most atomic.Int64
	var names []string
	for n := range maps.Keys(faults) {
		if !faults[n].unscored && n != "half the alternatives" {
			names = append(names, n)
		}
	}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasSuffix(r.URL.Path, "/completions") {
			http.NotFound(w, r)
			return
		}
		asked.Add(1)
		now := flying.Add(1)
		defer flying.Add(-1)
		for m := most.Load(); now > m && !most.CompareAndSwap(m, now); m = most.Load() {
		}
		raw, _ := io.ReadAll(r.Body)
		time.Sleep(time.Millisecond)
		var q struct{ Messages []infer.Message }
		_ = json.Unmarshal(raw, &q)
		mu.Lock()
		bad, way := rng.IntN(5) == 0, rng.IntN(5+len(names))
		mu.Unlock()
		digit := q.Messages[len(q.Messages)-1].Content[:1]
		good, _ := json.Marshal(obj{"model": "m", "choices": []obj{{"message": obj{"content": digit}, "finish_reason": "length",
			"logprobs": obj{"content": []obj{token(digit, digit, 0.8)}}}}, "usage": obj{"prompt_tokens": 20, "completion_tokens": 1}})
		switch {
		case !bad:
			_, _ = w.Write(good)
		case way == 0:
			panic(http.ErrAbortHandler)
		case way == 1:
			w.WriteHeader(503)
		case way == 2:
			w.Header().Set("Content-Length", "5000")
			_, _ = w.Write(good)
		case way == 3:
			w.Header().Set("Retry-After", "1")
			http.Error(w, "slow down", http.StatusTooManyRequests)
		case way == 4:
			_, _ = w.Write(bytes.ReplaceAll(good, []byte("}"), nil))
		default:
			b, _ := json.Marshal(faults[names[way-5]].answer.Body)
			_, _ = w.Write(b)
		}
	}))
	defer s.Close()
	b, err := openai.New(s.URL+"/v1", "m", "", openai.Options{Parallel: 4, Retry: infer.RetryPolicy{First: time.Millisecond, Longest: 2 * time.Millisecond}})
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for worker := range 3 {
		wg.Go(func() {
			for slice := range 6 {
				var ps []infer.Prompt
				for i := range 18 {
					ps = append(ps, infer.Prompt{Messages: []infer.Message{{Role: infer.User, Content: fmt.Sprintf("%d of %d.%d", 1+i%6, worker, slice)}}})
				}
				cs, err := b.Choose(context.Background(), ps, infer.Digits(1, 6), infer.Params{})
				if err != nil {
					t.Error(err)
					return
				}
				for i, c := range cs {
					if c.Argmax() != i%6 {
						t.Errorf("prompt %d: %+v", i, c)
					}
				}
			}
		})
	}
	wg.Wait()
	if n := asked.Load(); n < 350 || n > 500 {
		t.Errorf("%d requests for 324 answers", n)
	}
	if n := most.Load(); n < 4 || n > 6 { // the server may see the end of a broken answer later than we
		t.Errorf("%d requests at a time, want 4", n)
	}
}
