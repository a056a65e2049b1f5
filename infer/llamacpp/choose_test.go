package llamacpp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/ccmed/ccmed/infer"
	"github.com/hybridgroup/yzma/pkg/llama"
)

// A made-up dialogue, asked about after each turn as timing's stream mode does:
// the prompts share their start, and each ends in the same question.
var turns = []string{
	"Amara: We agreed to start the meeting at nine, and half the team came at half past.",
	"Jonas: Where I come from the talk before a meeting is the meeting. Nobody was late.",
	"Amara: That may be, but the client was waiting on the line for all of it.",
	"Jonas: The client laughed with us. You are the only one who looked at the clock.",
	"Amara: People like you always think that rules are for somebody else.",
	"Jonas: And people like you would rather have a schedule than a friend.",
	"Amara: So how should we decide when the next one begins?",
	"Jonas: Let us ask the others what they would count as being on time.",
}

func streamPrompts() []infer.Prompt {
	var ps []infer.Prompt
	for n := range turns {
		ps = append(ps, infer.Prompt{
			Messages: []infer.Message{
				{Role: infer.System, Content: "You watch a conversation and decide when a mediator should step in. Answer with yes or no."},
				{Role: infer.User, Content: strings.Join(turns[:n+1], "\n") + "\n\nShould a mediator step in now?"},
			},
			LeadIn: "Answer: ",
		})
	}
	return ps
}

// TestTreeEqualsSeparate is the engine's promise: sharing prefixes changes no
// number. The same prompts are evaluated as one tree, and one by one with an
// empty cache. The difference is 0 where this was written; another processor's
// kernels may add in another order.
func TestTreeEqualsSeparate(t *testing.T) {
	e := open(t, 1024)
	ctx := context.Background()
	ps, as := streamPrompts(), infer.Words("yes", "no")
	together, err := e.Choose(ctx, ps, as, infer.Params{})
	if err != nil {
		t.Fatal(err)
	}
	var sum infer.Usage
	worstP, worstTop := 0.0, 0.0
	for i, p := range ps {
		sum = sum.Add(together[i].Usage)
		if err := e.forget(); err != nil {
			t.Fatal(err)
		}
		alone, err := e.Choose(ctx, []infer.Prompt{p}, as, infer.Params{})
		if err != nil {
			t.Fatal(err)
		}
		if alone[0].Usage.Evaluated != alone[0].Usage.Prompt {
			t.Fatalf("prompt %d with an empty cache: evaluated %d of %d tokens", i, alone[0].Usage.Evaluated, alone[0].Usage.Prompt)
		}
		for k := range as {
			worstP = max(worstP, math.Abs(together[i].P[k]-alone[0].P[k]))
		}
		for k := range 5 {
			x, y := together[i].Top[k], alone[0].Top[k]
			worstTop = max(worstTop, math.Abs(math.Exp(x.Logprob)-math.Exp(y.Logprob)))
		}
	}
	t.Logf("largest difference: answers %.2g, five most probable tokens %.2g", worstP, worstTop)
	if worstP > 1e-3 || worstTop > 1e-3 {
		t.Errorf("tree and separate evaluation differ: answers by %v, most probable tokens by %v", worstP, worstTop)
	}
	t.Logf("prompt %d, unique %d, evaluated %d tokens", sum.Prompt, sum.Unique, sum.Evaluated)
	if r := float64(sum.Evaluated) / float64(sum.Unique); r > 1.02 || sum.Unique >= sum.Prompt/2 {
		t.Errorf("evaluated %d of %d unique tokens (%.3f), %d in all", sum.Evaluated, sum.Unique, r, sum.Prompt)
	}
}

func TestChooseTwiceIsTheSame(t *testing.T) {
	e := open(t, 1024)
	ctx := context.Background()
	ps, as := streamPrompts()[:3], infer.Words("yes", "no")
	var runs [2][]infer.Choice
	for i := range runs {
		if err := e.forget(); err != nil {
			t.Fatal(err)
		}
		var err error
		if runs[i], err = e.Choose(ctx, ps, as, infer.Params{}); err != nil {
			t.Fatal(err)
		}
	}
	a, _ := json.Marshal(runs[0])
	b, err := json.Marshal(runs[1])
	if err != nil {
		t.Fatal(err)
	}
	if string(a) != string(b) {
		t.Errorf("two equal calls differ:\n%s\n%s", a, b)
	}
	again, err := e.Choose(ctx, ps, as, infer.Params{}) // warm
	if err != nil {
		t.Fatal(err)
	}
	evaluated := 0
	for i := range again {
		evaluated += again[i].Usage.Evaluated
		if d := math.Abs(again[i].P[0] - runs[0][i].P[0]); d > 1e-3 {
			t.Errorf("prompt %d: warm and cold differ by %v", i, d)
		}
	}
	unique := 0
	for _, c := range again {
		unique += c.Usage.Unique
	}
	if evaluated >= unique/2 {
		t.Errorf("a repeated call evaluated %d of %d tokens: the cache was not used", evaluated, unique)
	}
}

func TestChooseDigits(t *testing.T) {
	e := open(t, 512)
	p := infer.Prompt{Raw: "one two three four five six\n1 2 3 4 5 6\none two three four five six\n1 2 3"}
	cs, err := e.Choose(context.Background(), []infer.Prompt{p}, infer.Digits(1, 6), infer.Params{})
	if err != nil {
		t.Fatal(err)
	}
	c := cs[0]
	if c.Unscored != "" || c.Argmax() != 3 {
		t.Fatalf("after \"1 2 3\" the choice is %d (%q), want 4: %v", c.Argmax()+1, c.Unscored, c.P)
	}
	sum := 0.0
	for i, p := range c.P {
		if sum += p; c.Bound[i] != p {
			t.Errorf("bound %v of answer %d, want its exact probability %v", c.Bound[i], i+1, p)
		}
	}
	if math.Abs(sum-c.Mass) > 1e-12 || c.Mass > 1 {
		t.Errorf("mass %v, want the sum %v", c.Mass, sum)
	}
	if len(c.Top) != topCount || !slices.IsSortedFunc(c.Top, func(a, b infer.TokenLogprob) int {
		return int(math.Copysign(1, b.Logprob-a.Logprob))
	}) {
		t.Errorf("%d alternatives, want %d, most probable first: %v", len(c.Top), topCount, c.Top)
	}
}

// TestChooseMergesVariants: " yes" and "Yes" are other tokens than "yes", and an
// answer's probability is the sum over all of them.
func TestChooseMergesVariants(t *testing.T) {
	e := open(t, 512)
	ps := []infer.Prompt{{Raw: "Is water wet? yes\nIs fire cold? no\nIs ice cold?"}}
	whole, err := e.Choose(context.Background(), ps, infer.Words("yes", "no"), infer.Params{})
	if err != nil {
		t.Fatal(err)
	}
	var single []infer.Answer
	for _, v := range []string{"yes", " yes", "Yes", " Yes", "YES", " YES"} {
		if n := len(e.texts[v]); n == 1 {
			single = append(single, infer.Answer{Label: v, Variants: []string{v}})
		}
	}
	if len(single) < 4 {
		t.Fatalf("%d variants of yes are tokens of SmolLM2, want at least 4", len(single))
	}
	parts, err := e.Choose(context.Background(), ps, single, infer.Params{})
	if err != nil {
		t.Fatal(err)
	}
	if math.Abs(parts[0].Mass-whole[0].P[0]) > 1e-9 || parts[0].P[1] < 0.01 {
		t.Errorf("variants of yes %v add up to %v, want %v", parts[0].P, parts[0].Mass, whole[0].P[0])
	}
}

func TestChoosePrefixOfAnother(t *testing.T) {
	e := open(t, 512)
	ctx := context.Background()
	as := infer.Words("yes", "no")
	raw := func(s string) infer.Prompt { return infer.Prompt{Raw: s} }
	ps := []infer.Prompt{raw("Is it late? Is it dark? Is it cold?"), raw("Is it late?"), raw("Is it late? Is it dark?"), raw("Is it late?"), raw("Is it early?")}
	cs, err := e.Choose(ctx, ps, as, infer.Params{})
	if err != nil {
		t.Fatal(err)
	}
	evaluated, unique := 0, 0
	for i, c := range cs {
		evaluated += c.Usage.Evaluated
		unique += c.Usage.Unique
		if err := e.forget(); err != nil {
			t.Fatal(err)
		}
		alone, err := e.Choose(ctx, ps[i:i+1], as, infer.Params{})
		if err != nil {
			t.Fatal(err)
		}
		if d := math.Abs(c.P[0] - alone[0].P[0]); d > 1e-3 {
			t.Errorf("prompt %d: %v in the tree, %v alone", i, c.P, alone[0].P)
		}
	}
	if evaluated != unique {
		t.Errorf("evaluated %d tokens, want each of the %d nodes once", evaluated, unique)
	}
	if u := cs[1].Usage.Unique * cs[3].Usage.Unique; u != 0 {
		t.Errorf("the same prompt twice has %d and %d nodes, want none for one of them", cs[1].Usage.Unique, cs[3].Usage.Unique)
	}
}

func TestChooseAfterThinking(t *testing.T) {
	e := open(t, 512)
	shots := "Q: 1+1\n<think>easy sum</think>2\nQ: 2+1\n<think>easy sum</think>3\nQ: 3+1\n<think>easy sum</think>4\nQ: 2+2\n"
	cs, err := e.Choose(context.Background(), []infer.Prompt{{Raw: shots}}, infer.Digits(1, 6), infer.Params{})
	if err != nil {
		t.Fatal(err)
	}
	if c := cs[0]; c.Unscored != "" || c.Thinking != "easy sum" || c.Usage.Generated < 3 || c.Mass < 0.5 {
		t.Errorf("choice after reasoning %q (%d tokens): mass %v, unscored %q", c.Thinking, c.Usage.Generated, c.Mass, c.Unscored)
	}
	cs, err = e.Choose(context.Background(), []infer.Prompt{{Raw: shots}}, infer.Digits(1, 6), infer.Params{ThinkTokens: 3})
	if err != nil {
		t.Fatal(err)
	}
	if c := cs[0]; c.Unscored != ReasonThinking || c.Argmax() != -1 {
		t.Errorf("with 3 tokens of reasoning: unscored %q, want %q", c.Unscored, ReasonThinking)
	}
}

func TestChooseRefuses(t *testing.T) {
	e := open(t, 64)
	ctx := context.Background()
	long := infer.Prompt{Raw: strings.Repeat("and so on, ", 40)}
	_, err := e.Choose(ctx, []infer.Prompt{{Raw: "short"}, long}, infer.Digits(1, 6), infer.Params{})
	var short *infer.ContextError
	if !errors.As(err, &short) || short.Have != 64 || short.Need < 100 || short.About {
		t.Errorf("a prompt longer than the context: %v", err)
	}
	if n, err := e.CountTokens(ctx, long.Raw); err != nil || n+1 != short.Need {
		t.Errorf("CountTokens %d (%v), and the error says %d with the answer", n, err, short.Need)
	}
	for name, c := range map[string]struct {
		p    infer.Prompt
		as   []infer.Answer
		want string
	}{
		"an answer of several tokens": {infer.Prompt{Raw: "x"}, []infer.Answer{{Label: "turn 12", Variants: []string{"turn twelve"}}}, `"turn 12"`},
		"a shared variant":            {infer.Prompt{Raw: "x"}, []infer.Answer{{Label: "a", Variants: []string{"A"}}, {Label: "b", Variants: []string{"A"}}}, "told apart"},
		"no prompt":                   {infer.Prompt{}, infer.Digits(1, 2), "empty"},
		"raw and messages":            {infer.Prompt{Raw: "x", LeadIn: "y"}, infer.Digits(1, 2), "raw"},
		"a NUL":                       {infer.Prompt{Raw: "a\x00b"}, infer.Digits(1, 2), "NUL character at byte 1"},
		"not UTF-8":                   {infer.Prompt{Raw: "a\xff"}, infer.Digits(1, 2), "UTF-8"},
	} {
		if _, err := e.Choose(ctx, []infer.Prompt{c.p}, c.as, infer.Params{}); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want %q in it", name, err, c.want)
		}
	}
	cancelled, cancel := context.WithCancel(ctx)
	cancel()
	if _, err := e.Choose(cancelled, []infer.Prompt{{Raw: "x"}}, infer.Digits(1, 2), infer.Params{}); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	if _, err := e.Choose(ctx, []infer.Prompt{long}, infer.Digits(1, 6), infer.Params{NumCtx: 512}); err != nil {
		t.Errorf("with a longer context: %v", err)
	}
}

func TestChoiceOfOddLogits(t *testing.T) {
	e := &Engine{weights: &weights{}}
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	for name, c := range map[string]struct {
		logits   []float32
		unscored string
		p        float64
	}{
		"NaN":              {[]float32{0, nan, 0}, ReasonNaN, 0},
		"+Inf":             {[]float32{0, inf, 0}, ReasonNaN, 0},
		"all -Inf":         {[]float32{-inf, -inf, -inf}, ReasonNaN, 0},
		"-Inf of another":  {[]float32{0, 0, -inf}, "", 0.5},
		"-Inf of ours":     {[]float32{-inf, 0, 0}, "no answer has any probability", 0},
		"far from zero":    {[]float32{1e30, 1e30, -1e30}, "", 0.5},
		"ln 3 against 0 0": {[]float32{float32(math.Log(3)), 0, 0}, "", 0.6},
	} {
		got := e.choice(c.logits, [][]llama.Token{{0}})
		if got.Unscored != c.unscored || math.Abs(got.P[0]-c.p) > 1e-7 {
			t.Errorf("%s: P %v, unscored %q; want %v, %q", name, got.P, got.Unscored, c.p, c.unscored)
		}
		if _, err := json.Marshal(got); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestLargest(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		xs := make([]float32, 1+r.IntN(60))
		for i := range xs {
			xs[i] = float32(r.IntN(20))
		}
		want := make([]llama.Token, len(xs))
		for i := range want {
			want[i] = llama.Token(i)
		}
		slices.SortStableFunc(want, func(a, b llama.Token) int { return int(xs[b] - xs[a]) })
		if got := largest(xs, 7); !slices.Equal(got, want[:min(7, len(want))]) {
			t.Fatalf("largest of %v: %v, want %v", xs, got, want)
		}
	}
}

// TestDepthFirst simulates the evaluation of random trees: from an empty cache
// every node is evaluated once, whatever the order of the sequences, and a
// resident path saves what it shares.
func TestDepthFirst(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for range 500 {
		seqs := make([][]step, 1+r.IntN(8))
		nodes := map[string]bool{}
		for i := range seqs {
			for range 1 + r.IntN(6) {
				seqs[i] = append(seqs[i], step{llama.Token(r.IntN(2)), editID(r.IntN(2))})
				nodes[fmt.Sprint(seqs[i])] = true
			}
		}
		for _, warm := range []bool{false, true} {
			var path []step
			if warm {
				path = slices.Clone(seqs[r.IntN(len(seqs))])
			}
			shared := 0
			for n := 1; n <= len(path); n++ {
				if nodes[fmt.Sprint(path[:n])] {
					shared++
				}
			}
			evaluated := 0
			for _, i := range depthFirst(seqs, path) {
				keep := commonPrefix(path, seqs[i])
				evaluated += len(seqs[i]) - keep
				if keep < len(seqs[i]) {
					path = seqs[i]
				}
			}
			if evaluated != len(nodes)-shared {
				t.Fatalf("%v: evaluated %d of %d nodes, %d resident", seqs, evaluated, len(nodes), shared)
			}
		}
	}
}

func BenchmarkChooseStream(b *testing.B) {
	e := openThreads(b, 1024, 0)
	ps, as := streamPrompts(), infer.Words("yes", "no")
	tokens := 0
	for b.Loop() {
		if err := e.forget(); err != nil {
			b.Fatal(err)
		}
		cs, err := e.Choose(context.Background(), ps, as, infer.Params{})
		if err != nil {
			b.Fatal(err)
		}
		for _, c := range cs {
			tokens += c.Usage.Evaluated
		}
	}
	b.ReportMetric(float64(tokens)/b.Elapsed().Seconds(), "tokens/s")
}

// Logits that are no numbers are unscored, and gone with what made them.
func TestChoiceOfNoNumbers(t *testing.T) {
	e := open(t, 256)
	ctx, ps := context.Background(), []infer.Prompt{{Raw: "one two three\n1 2"}, {Raw: "one two three\n1 2 3"}}
	reasons := func() []string {
		t.Helper()
		cs, err := e.Choose(ctx, ps, infer.Digits(1, 6), infer.Params{})
		if err != nil {
			t.Fatal(err)
		}
		return []string{cs[0].Unscored, cs[1].Unscored}
	}
	if got := reasons(); got[0]+got[1] != "" {
		t.Fatalf("unscored: %q", got)
	}
	vector := make([]float32, 29*e.Width())
	if err := e.forget(); err != nil {
		t.Fatal(err)
	}
	vector[3*e.Width()] = float32(math.NaN())
	if code := llama.SetAdapterCvec(e.llama, vector, int32(e.Width()), 1, 29); code != 0 {
		t.Fatalf("setting a control vector: code %d", code)
	}
	if got := reasons(); got[0] != ReasonNaN || got[1] != ReasonNaN {
		t.Errorf("unscored %q, want %q", got, ReasonNaN)
	}
	clear(vector)
	if code := llama.SetAdapterCvec(e.llama, vector, int32(e.Width()), 1, 29); code != 0 {
		t.Fatalf("clearing the control vector: code %d", code)
	}
	if got := reasons(); got[0]+got[1] != "" {
		t.Errorf("afterwards unscored: %q", got)
	}
}
