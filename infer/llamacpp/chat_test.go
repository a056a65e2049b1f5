package llamacpp

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/ccmed/ccmed/infer"
)

var greeting = infer.Prompt{Messages: []infer.Message{
	{Role: infer.System, Content: "You are a friendly mediator."},
	{Role: infer.User, Content: "Greet two people who disagree."},
}}

// TestChatAgreesWithChoose: the greedy token is the one Choose finds most probable.
func TestChatAgreesWithChoose(t *testing.T) {
	e := open(t, 512)
	ctx := context.Background()
	for _, p := range append(streamPrompts()[:2], greeting, infer.Prompt{Raw: "1 2 3"}) {
		cs, err := e.Choose(ctx, []infer.Prompt{p}, infer.Words("yes", "no"), infer.Params{})
		if err != nil {
			t.Fatal(err)
		}
		r, err := e.Chat(ctx, p, infer.Params{MaxTokens: 1})
		if err != nil {
			t.Fatal(err)
		}
		if top := cs[0].Top[0].Token; r.Text != top {
			t.Errorf("greedy token %q, most probable %q", r.Text, top)
		}
		if r.Usage.Generated != 1 || r.Stop != "length" || r.Usage.Evaluated != fewestRows || r.Usage.Cached != r.Usage.Prompt-fewestRows {
			t.Errorf("one token after the same prompt: %+v, stopped by %q", r.Usage, r.Stop)
		}
		if r.Rendered != cs[0].Rendered || r.Rendered == "" {
			t.Errorf("rendered %q and %q", r.Rendered, cs[0].Rendered)
		}
	}
}

func TestChatSampling(t *testing.T) {
	e := open(t, 512)
	ctx := context.Background()
	say := func(o infer.Params) string {
		t.Helper()
		o.MaxTokens = 12
		r, err := e.Chat(ctx, greeting, o)
		if err != nil {
			t.Fatal(err)
		}
		return r.Text
	}
	greedy := say(infer.Params{})
	if a, b := say(infer.Params{Temperature: 1, Seed: 7}), say(infer.Params{Temperature: 1, Seed: 7}); a != b {
		t.Errorf("seed 7 gave %q and %q", a, b)
	}
	seen := map[string]bool{}
	for seed := range int64(4) {
		seen[say(infer.Params{Temperature: 1.5, Seed: seed})] = true
	}
	if len(seen) < 2 {
		t.Errorf("four seeds at temperature 1.5 gave only %v", seen)
	}
	for name, o := range map[string]infer.Params{
		"a temperature that overflows when divided by": {Temperature: 1e-45},
		"a temperature next to nothing":                {Temperature: 1e-5},
		"top_p next to nothing":                        {Temperature: 1, TopP: 1e-9, Seed: 3},
	} {
		if got := say(o); got != greedy {
			t.Errorf("%s: %q, want the greedy %q", name, got, greedy)
		}
	}
}

func TestChatStops(t *testing.T) {
	e := open(t, 512)
	ctx := context.Background()
	count := infer.Prompt{Raw: "1, 2, 3, 4, 5, 6, 7,"}
	r, err := e.Chat(ctx, count, infer.Params{MaxTokens: 40, Stop: []string{"9", "zzz"}})
	if err != nil {
		t.Fatal(err)
	}
	if r.Stop != "stop" || r.Text != " 8, " {
		t.Errorf("counting up to the stop string 9: %q (%s)", r.Text, r.Stop)
	}
	r, err = e.Chat(ctx, count, infer.Params{MaxTokens: 3})
	if err != nil {
		t.Fatal(err)
	}
	if r.Stop != "length" || r.Usage.Generated != 3 {
		t.Errorf("three tokens: %q, %d tokens (%s)", r.Text, r.Usage.Generated, r.Stop)
	}
	r, err = e.Chat(ctx, infer.Prompt{Messages: []infer.Message{{Role: infer.System, Content: "Be brief."}, {Role: infer.User, Content: "Say hello."}}},
		infer.Params{MaxTokens: 200})
	if err != nil {
		t.Fatal(err)
	}
	if r.Stop != "stop" || strings.Contains(r.Text, "<|") || r.Text == "" {
		t.Errorf("a greeting: %q (%s), want it ended by the model and without control tokens", r.Text, r.Stop)
	}
	n, err := e.CountTokens(ctx, count.Raw)
	if err != nil {
		t.Fatal(err)
	}
	r, err = e.Chat(ctx, count, infer.Params{MaxTokens: 1000, NumCtx: 256})
	if err != nil {
		t.Fatal(err)
	}
	if r.Stop != "length" || r.Usage.Generated != 256-n+1 {
		t.Errorf("a full context: %d tokens after %d (%s), want %d", r.Usage.Generated, n, r.Stop, 256-n+1)
	}
}

func TestChatThinking(t *testing.T) {
	e := open(t, 512)
	shots := "Q: 1+1\n<think>easy sum</think>2\nQ: 2+1\n<think>easy sum</think>3\nQ: 3+1\n<think>easy sum</think>4\nQ: 2+2\n"
	r, err := e.Chat(context.Background(), infer.Prompt{Raw: shots}, infer.Params{MaxTokens: 2, Stop: []string{"\n"}})
	if err != nil {
		t.Fatal(err)
	}
	if r.Thinking != "easy sum" || r.Text == "" || strings.Contains(r.Text, "think") {
		t.Errorf("answer %q, reasoning %q", r.Text, r.Thinking)
	}
	r, err = e.Chat(context.Background(), infer.Prompt{Raw: shots}, infer.Params{MaxTokens: 2, ThinkTokens: 3})
	if err != nil {
		t.Fatal(err)
	}
	if r.Text != "" || r.Usage.Generated > 5 {
		t.Errorf("reasoning cut off after 3 tokens gave the answer %q (%d tokens)", r.Text, r.Usage.Generated)
	}
}

func TestChatRefuses(t *testing.T) {
	e := open(t, 64)
	ctx := context.Background()
	for name, o := range map[string]infer.Params{
		"no tokens": {}, "negative temperature": {MaxTokens: 1, Temperature: -1}, "top_p above 1": {MaxTokens: 1, TopP: 2},
	} {
		if _, err := e.Chat(ctx, greeting, o); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	var short *infer.ContextError
	if _, err := e.Chat(ctx, infer.Prompt{Raw: strings.Repeat("no ", 80)}, infer.Params{MaxTokens: 1}); !errors.As(err, &short) {
		t.Errorf("a prompt longer than the context: %v", err)
	}
	if _, err := e.Embed(ctx, []string{"x"}); !errors.Is(err, infer.ErrUnsupported) {
		t.Errorf("Embed: %v", err)
	}
	soon, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
	defer cancel()
	start := time.Now()
	_, err := e.Chat(soon, infer.Prompt{Raw: "1, 2, 3,"}, infer.Params{MaxTokens: 4000, NumCtx: 4096})
	if !errors.Is(err, context.DeadlineExceeded) || time.Since(start) > 5*time.Second {
		t.Errorf("a deadline in mid-answer: %v after %v", err, time.Since(start))
	}
	if r, err := e.Chat(ctx, infer.Prompt{Raw: "1, 2, 3,"}, infer.Params{MaxTokens: 1}); err != nil || r.Text == "" {
		t.Errorf("after an interrupted answer: %q, %v", r.Text, err)
	}
}

func TestWhole(t *testing.T) {
	for _, c := range []struct{ in, want string }{
		{"", ""}, {"abc", "abc"}, {"caf\xc3\xa9", "café"}, {"caf\xc3", "caf"},
		{"\xe4\xbd", ""}, {"a\xf0\x9f\x98", "a"}, {"\xf0\x9f\x98\x80", "😀"}, {"a\xffb", "a\uFFFDb"},
	} {
		if got := whole([]byte(c.in)); got != c.want {
			t.Errorf("whole(%q) = %q, want %q", c.in, got, c.want)
		}
	}
}

func FuzzWhole(f *testing.F) {
	f.Add("caf\xc3", 2)
	f.Fuzz(func(t *testing.T, s string, n int) {
		if got := whole([]byte(s)); !utf8.ValidString(got) {
			t.Errorf("whole(%q) = %q is not UTF-8", s, got)
		}
		if !utf8.ValidString(s) || n < 0 || n > len(s) {
			return
		}
		if got := whole([]byte(s[:n])); !strings.HasPrefix(s, got) || len(got) < n-3 {
			t.Errorf("the first %d bytes of %q became %q", n, s, got)
		}
	})
}

func TestSeed32(t *testing.T) {
	for seed, want := range map[int64]uint32{0: 0, 42: 42, 1 << 32: 1, 0xFFFFFFFF: 0xFFFFFFFE, -1: 0} {
		if got := seed32(seed); got != want {
			t.Errorf("seed32(%d) = %d, want %d", seed, got, want)
		}
	}
}

// Whatever a model would say, its answer has the form that is asked for.
func TestChatKeepsToASchema(t *testing.T) {
	e := open(t, 512)
	form := &infer.Schema{Texts: []infer.SchemaText{{Name: "thought", Max: 20}, {Name: "utterance", Max: 30}}}
	prompt := infer.Prompt{Messages: []infer.Message{{Role: infer.User, Content: "Tell me a joke."}}}
	for seed := range int64(10) {
		o := infer.Params{MaxTokens: 120, Temperature: 1.5 * float64(seed%2), TopP: 1, Seed: seed, Schema: form}
		r, err := e.Chat(context.Background(), prompt, o)
		if err != nil {
			t.Fatal(err)
		}
		var a map[string]string
		if err := json.Unmarshal([]byte(r.Text), &a); err != nil || r.Stop != infer.StopEnd || len(a) != 2 || a["thought"] == "" || len([]rune(a["utterance"])) > 30 {
			t.Errorf("seed %d: %q (%s), %v", seed, r.Text, r.Stop, err)
		}
	}
	bad := &infer.Schema{Texts: []infer.SchemaText{{Name: `a"b`, Max: 20}}}
	if _, err := e.Chat(context.Background(), prompt, infer.Params{MaxTokens: 5, Schema: bad}); err == nil || !strings.Contains(err.Error(), "takes no grammar") {
		t.Errorf("a grammar that cannot be read: %v", err)
	}
}

// TestThousandForms: the answers of models that know nothing at all have the form, of one
// field to three, whatever is drawn: a thousand of them with CCMED_TORTURE=1, else 160.
func TestThousandForms(t *testing.T) {
	dir := needReference(t)
	files, err := filepath.Glob(filepath.Join(dir, "*.gguf"))
	if err != nil || len(files) < 4 {
		t.Fatalf("%d tiny models, %v", len(files), err)
	}
	forms := []*infer.Schema{{Texts: []infer.SchemaText{{Name: "r", Max: 12}}}, {Texts: []infer.SchemaText{{Name: "t", Max: 4}, {Name: "u", Max: 7}}},
		{Texts: []infer.SchemaText{{Name: "a", Max: 1}, {Name: "b", Max: 3}, {Name: "c", Max: 2}}}}
	each := int64(40)
	if os.Getenv("CCMED_TORTURE") == "1" {
		each = 250
	}
	texts := map[string]bool{}
	for _, file := range files[:4] {
		e, err := Open(t.Context(), Options{ModelPath: file, NumCtx: 512, Threads: 1})
		if err != nil {
			t.Fatal(err)
		}
		for seed := range each {
			form := forms[seed%3]
			r, err := e.Chat(t.Context(), infer.Prompt{Raw: "Say: "}, infer.Params{MaxTokens: 120, Temperature: 0.5 + float64(seed%4)/2, TopP: 1, Seed: seed, Schema: form})
			if err != nil {
				t.Fatal(err)
			}
			var a map[string]string
			if err := json.Unmarshal([]byte(r.Text), &a); err != nil || r.Stop != infer.StopEnd || len(a) != len(form.Texts) {
				t.Fatalf("%s, seed %d: %q (%s), %v", filepath.Base(file), seed, r.Text, r.Stop, err)
			}
			for _, x := range form.Texts {
				if text, ok := a[x.Name]; !ok || len([]rune(text)) > x.Max {
					t.Errorf("%s, seed %d: %s is %q, of at most %d characters", filepath.Base(file), seed, x.Name, text, x.Max)
				}
			}
			texts[r.Text] = true
		}
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	}
	if 2*len(texts) < 4*int(each) {
		t.Errorf("only %d of %d answers differ: hardly anything is drawn", len(texts), 4*each)
	}
}
