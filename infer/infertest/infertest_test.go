package infertest_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"strings"
	"testing"

	"github.com/ccmed/ccmed/infer"
	"github.com/ccmed/ccmed/infer/infertest"
)

func TestScriptedIsDeterministicAndRecords(t *testing.T) {
	ctx, boom := context.Background(), errors.New("boom")
	s := &infertest.Scripted{Fail: infertest.FailAt(3, boom)}
	ps := []infer.Prompt{{Raw: "a"}, {Raw: "b"}}
	one, err := s.Choose(ctx, ps, infer.Digits(1, 6), infer.Params{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Chat(ctx, ps[0], infer.Params{}); !errors.Is(err, boom) {
		t.Errorf("third call: %v", err)
	}
	two, err := (&infertest.Scripted{}).Choose(ctx, ps, infer.Digits(1, 6), infer.Params{})
	if err != nil || !reflect.DeepEqual(one, two) {
		t.Errorf("another backend chooses %v (%v), want %v", two, err, one)
	}
	if reflect.DeepEqual(one[0].P, one[1].P) {
		t.Error("two prompts have the same choice")
	}
	if calls := s.Calls(); len(calls) != 3 || calls[1].Prompt.Raw != "b" || calls[2].Method != "Chat" {
		t.Errorf("recorded %+v", calls)
	}
	if _, err := s.Choose(ctx, ps, []infer.Answer{{Label: "x"}}, infer.Params{}); err == nil {
		t.Error("an answer without variants was accepted")
	}
}

func TestAlways(t *testing.T) {
	s := &infertest.Scripted{Answer: infertest.Always("no", 0.9), Forget: true}
	cs, err := s.Choose(context.Background(), []infer.Prompt{{Raw: "a"}}, infer.Words("yes", "no"), infer.Params{})
	if err != nil || cs[0].Argmax() != 1 || cs[0].P[1] != 0.9 {
		t.Errorf("got %+v, %v", cs, err)
	}
	if s.Count() != 1 || len(s.Calls()) != 0 {
		t.Errorf("counted %d, kept %d", s.Count(), len(s.Calls()))
	}
}

func TestServerFollowsItsScript(t *testing.T) {
	s := infertest.NewServer(t).On("/x", infertest.Response{Status: 503, Body: "busy"}, infertest.Response{Body: map[string]int{"n": 1}})
	post := func(path string) (int, string) {
		r, err := http.Post(s.URL+path, "application/json", strings.NewReader(`{"a":0}`))
		if err != nil {
			t.Fatal(err)
		}
		defer r.Body.Close()
		b, err := io.ReadAll(r.Body)
		if err != nil {
			t.Fatal(err)
		}
		return r.StatusCode, string(b)
	}
	for _, want := range []struct {
		status int
		body   string
	}{{503, "busy"}, {200, `{"n":1}`}, {200, `{"n":1}`}} {
		if code, body := post("/x"); code != want.status || body != want.body {
			t.Errorf("got %d %q, want %d %q", code, body, want.status, want.body)
		}
	}
	if code, _ := post("/y"); code != 404 {
		t.Errorf("an unscripted path answers %d", code)
	}
	if rs := s.Requests("/x"); len(rs) != 3 || rs[0].Body["a"] != 0.0 {
		t.Errorf("recorded %+v", rs)
	}
}

func Example() {
	b := &infertest.Scripted{Answer: infertest.Always("yes", 0.9)}
	cs, err := b.Choose(context.Background(), []infer.Prompt{{Raw: "Is it time?"}}, infer.Words("yes", "no"), infer.Params{})
	fmt.Println(cs[0].Argmax(), cs[0].P[0], err)
	// Output: 0 0.9 <nil>
}
