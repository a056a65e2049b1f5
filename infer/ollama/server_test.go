package ollama_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/ccmed/ccmed/infer"
	"github.com/ccmed/ccmed/infer/infertest"
	"github.com/ccmed/ccmed/infer/ollama"
)

// The tests in this file ask a real server.

const numCtx = 1024

func served(t *testing.T) *ollama.Backend {
	t.Helper()
	b, err := ollama.New(infertest.StartOllama(t), infertest.TestModel, ollama.Options{NumCtx: numCtx})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// prefixes are prompts as streaming asks them: the same dialogue, a turn longer
// each time, with the question in the system message.
func prefixes(dialogue string, turns int) []infer.Prompt {
	says := []string{
		"In my family we settle this at the table, with everyone present, before anything is signed.",
		"Where I work a decision is made by whoever is responsible, and the others hear of it afterwards.",
		"That would look as if I hid something from them. My uncle has asked twice what was agreed.",
		"I do not see why your uncle should know the terms of a contract between the two of us!",
		"Because it is his name on the door as well. It always was, even if no paper says so.",
		"Then we need a paper that says so, or we need to speak of something else today.",
	}
	var text strings.Builder
	text.WriteString(dialogue + "\n")
	var ps []infer.Prompt
	for i := range turns {
		fmt.Fprintf(&text, "Turn %d (%s): %s\n", i+1, []string{"Amara", "Jonas"}[i%2], says[i%len(says)])
		ps = append(ps, infer.Prompt{Messages: []infer.Message{
			{Role: infer.System, Content: "You watch a conversation between two people. Say yes if a mediator should speak now, otherwise no."},
			{Role: infer.User, Content: text.String()},
		}, LeadIn: "Answer:"})
	}
	return ps
}

var loading = regexp.MustCompile(`loading cache slot" id=\d+ cache=(\d+) prompt=(\d+) used=(\d+) remaining=(\d+)`)

// logged adds up what the server's log says of the prompts loaded since from.
func logged(t *testing.T, from int) (requests, prompt, evaluated int) {
	t.Helper()
	for _, m := range loading.FindAllStringSubmatch(infertest.OllamaLog(t)[from:], -1) {
		p, err1 := strconv.Atoi(m[2])
		r, err2 := strconv.Atoi(m[4])
		if err1 != nil || err2 != nil {
			t.Fatalf("cannot read %q", m[0])
		}
		requests, prompt, evaluated = requests+1, prompt+p, evaluated+r
	}
	return requests, prompt, evaluated
}

func total(cs []infer.Choice) infer.Usage {
	var u infer.Usage
	for _, c := range cs {
		u = u.Add(c.Usage)
	}
	return u
}

func TestServerEvaluatesSharedPrefixesOnce(t *testing.T) {
	b, ctx := served(t), context.Background()
	var ps []infer.Prompt
	a, c := prefixes("First dialogue, about a contract.", 6), prefixes("Second dialogue, about the same contract.", 6)
	for i := range a {
		ps = append(ps, c[i], a[i]) // in turns: the worst order for one slot
	}
	if err := b.Unload(ctx, ""); err != nil { // another test's prompt is in its cache
		t.Fatal(err)
	}
	from := len(infertest.OllamaLog(t))
	cs, err := b.Choose(ctx, ps, infer.Words("yes", "no"), infer.Params{NumCtx: numCtx})
	if err != nil {
		t.Fatal(err)
	}
	u := total(cs)
	n, prompt, evaluated := logged(t, from)
	t.Logf("%d requests; usage %+v; the log says prompt %d, evaluated %d", n, u, prompt, evaluated)
	if n < len(ps) {
		t.Fatalf("%d requests in the server's log, want at least %d", n, len(ps))
	}
	if u.Prompt != prompt && n == len(ps) {
		t.Errorf("prompt tokens: %d, the log says %d", u.Prompt, prompt)
	}
	if !u.Estimated {
		t.Error("the usage is not marked as estimated")
	}
	if off := math.Abs(float64(u.Evaluated-evaluated)) / float64(evaluated); off > 0.02 {
		t.Errorf("evaluated tokens: estimated %d, the log says %d: %.1f %% off, want at most 2 %%", u.Evaluated, evaluated, 100*off)
	}
	if r := float64(evaluated) / float64(u.Unique); r > 1.10 {
		t.Errorf("evaluated / unique = %d / %d = %.3f, want at most 1.10", evaluated, u.Unique, r)
	}
	for i, c := range cs {
		sum := 0.0
		for _, p := range c.P {
			sum += p
		}
		if math.Abs(sum-c.Mass) > 1e-9 || len(c.Top) != 20 {
			t.Errorf("choice %d: %d alternatives, mass %v, sum %v", i, len(c.Top), c.Mass, sum)
		}
	}
}

// Asked one prefix after the other, as a run with an early end does, the cache
// is followed from call to call, and through a generated answer.
func TestServerReuseFromCallToCall(t *testing.T) {
	b, ctx, o := served(t), context.Background(), infer.Params{NumCtx: numCtx, MaxTokens: 12}
	if err := b.Unload(ctx, ""); err != nil { // another test's prompt is in its cache
		t.Fatal(err)
	}
	from := len(infertest.OllamaLog(t))
	var u infer.Usage
	for _, p := range prefixes("Third dialogue, about a visit.", 5) {
		cs, err := b.Choose(ctx, []infer.Prompt{p}, infer.Words("yes", "no"), o)
		if err != nil {
			t.Fatal(err)
		}
		u = u.Add(cs[0].Usage)
		p.LeadIn = ""
		r, err := b.Chat(ctx, p, o)
		if err != nil {
			t.Fatal(err)
		}
		u = u.Add(r.Usage)
	}
	_, _, evaluated := logged(t, from)
	t.Logf("usage %+v; the log says evaluated %d", u, evaluated)
	if off := math.Abs(float64(u.Evaluated-evaluated)) / float64(evaluated); off > 0.02 {
		t.Errorf("evaluated tokens: estimated %d, the log says %d: %.1f %% off", u.Evaluated, evaluated, 100*off)
	}
}

func TestServerRefusesLongPrompt(t *testing.T) {
	b := served(t)
	long := infer.Prompt{Raw: strings.Repeat("The two of them speak about the contract again. ", 200)}
	need := 0
	for name, ask := range map[string]func() error{
		"choose": func() error {
			_, err := b.Choose(context.Background(), []infer.Prompt{long}, infer.Digits(1, 6), infer.Params{NumCtx: numCtx})
			return err
		},
		"chat": func() error {
			p := infer.Prompt{Messages: []infer.Message{{Role: infer.System, Content: "s"}, {Role: infer.User, Content: long.Raw}}}
			_, err := b.Chat(context.Background(), p, infer.Params{NumCtx: numCtx, MaxTokens: 2})
			return err
		},
	} {
		var e *infer.ContextError
		if err := ask(); !errors.As(err, &e) {
			t.Errorf("%s: %v, want a *infer.ContextError", name, err)
			continue
		}
		need = e.Need
		if e.Have != numCtx || !e.About || math.Abs(float64(need)-2010) > 100 {
			t.Errorf("%s: %v; the prompt has about 2,000 tokens", name, e)
		}
	}
}

func TestServerShowsTheModel(t *testing.T) {
	b, ctx := served(t), context.Background()
	m, err := b.Model(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if m.Architecture != "llama" || m.ContextTrain != 8192 || !strings.HasPrefix(m.Digest, "sha256:") || m.Quantization == "" {
		t.Errorf("got %+v", m)
	}
	served, err := os.Stat(m.Path)
	if err != nil {
		t.Fatalf("the weights' path: %v", err)
	}
	given, err := os.Stat(infertest.ModelPath(t))
	if err != nil {
		t.Fatal(err)
	}
	if served.Size() != given.Size() {
		t.Errorf("the weights have %d bytes, the file given %d", served.Size(), given.Size())
	}
	other, err := ollama.New(infertest.StartOllama(t), "no-such-model", ollama.Options{})
	if err != nil {
		t.Fatal(err)
	}
	_, err = other.Model(ctx)
	var e *infer.MissingError
	if !errors.As(err, &e) || !strings.Contains(e.Fix, "ollama pull no-such-model") {
		t.Errorf("a model that is not there: %v", err)
	}
}

func TestServerRendersWithoutDefaultSystem(t *testing.T) {
	b := served(t)
	s, err := b.Render(context.Background(), infer.Prompt{Messages: []infer.Message{
		{Role: infer.System, Content: "Be brief."}, {Role: infer.User, Content: "Hello"}}, LeadIn: "Stage: "})
	if err != nil {
		t.Fatal(err)
	}
	want := "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\nStage: "
	if s != want {
		t.Errorf("got %q, want %q", s, want)
	}
}

// After a complete answer the end of the turn is the most probable token, and
// the server hides the alternatives of a token that ends the answer.
func TestServerHiddenAlternatives(t *testing.T) {
	b := served(t)
	p := infer.Prompt{Raw: "<|im_start|>user\nWhat is the capital of France?<|im_end|>\n<|im_start|>assistant\nThe capital of France is Paris."}
	cs, err := b.Choose(context.Background(), []infer.Prompt{p}, infer.Words("yes", "no"), infer.Params{NumCtx: numCtx})
	if err != nil {
		t.Fatal(err)
	}
	if len(cs[0].Top) != 20 || cs[0].Top[0].Token != "<|im_end|>" {
		t.Errorf("top alternatives %v, want <|im_end|> first of 20", cs[0].Top[:min(3, len(cs[0].Top))])
	}
}

func TestServerChats(t *testing.T) {
	b := served(t)
	p := infer.Prompt{Messages: []infer.Message{{Role: infer.System, Content: "Be brief."}, {Role: infer.User, Content: "Say hello."}}}
	o := infer.Params{NumCtx: numCtx, MaxTokens: 5, Seed: 3, Temperature: 0.8}
	r, err := b.Chat(context.Background(), p, o)
	if err != nil {
		t.Fatal(err)
	}
	if r.Text == "" || r.Usage.Generated > 5 || r.Usage.Prompt == 0 || r.Rendered == "" {
		t.Errorf("got %+v", r)
	}
	p.LeadIn = "Hello"
	if r, err = b.Chat(context.Background(), p, o); err != nil || strings.HasPrefix(r.Text, "Hello") {
		t.Errorf("with a lead-in: %+v, %v", r, err)
	}
}

func TestServerLoadsAndUnloads(t *testing.T) {
	b, ctx := served(t), context.Background()
	if _, err := b.Chat(ctx, infer.Prompt{Raw: "Hello"}, infer.Params{NumCtx: numCtx, MaxTokens: 1}); err != nil {
		t.Fatal(err)
	}
	host := infertest.StartOllama(t)
	ls, err := ollama.Loaded(ctx, host)
	if err != nil || len(ls) != 1 || ls[0].NumCtx != numCtx || !strings.HasPrefix(ls[0].Name, infertest.TestModel) {
		t.Fatalf("loaded: %+v, %v; want the test model with num_ctx %d, unchanged by rendering", ls, err, numCtx)
	}
	es, err := b.Embed(ctx, []string{"one text", "another"})
	if err != nil || len(es) != 2 || len(es[0]) != 576 {
		t.Errorf("embeddings: %d, %v", len(es), err)
	}
	ms, err := ollama.Models(ctx, host) // other tests make models of their own there
	if err != nil || !slices.ContainsFunc(ms, func(m infer.Model) bool { return strings.HasPrefix(m.Name, infertest.TestModel) }) {
		t.Errorf("models: %+v, %v; want %s among them", ms, err, infertest.TestModel)
	}
	if err := b.Unload(ctx, ""); err != nil {
		t.Fatal(err)
	}
}

func TestServerAllowsTwentyAlternatives(t *testing.T) {
	host := infertest.StartOllama(t)
	for n, want := range map[int]int{20: 200, 21: 400} {
		if got := postStatus(t, host+"/api/generate", fmt.Sprintf(
			`{"model":%q,"prompt":"x","raw":true,"stream":false,"logprobs":true,"top_logprobs":%d,"options":{"num_predict":1,"num_ctx":%d}}`,
			infertest.TestModel, n, numCtx)); got != want {
			t.Errorf("top_logprobs %d: status %d, want %d", n, got, want)
		}
	}
}

func postStatus(t *testing.T, url, body string) int {
	t.Helper()
	r, err := http.Post(url, "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Body.Close()
	return r.StatusCode
}
