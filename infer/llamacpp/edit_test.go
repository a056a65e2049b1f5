package llamacpp

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/ccmed/ccmed/infer"
	"github.com/ccmed/ccmed/infer/cache"
	"github.com/hybridgroup/yzma/pkg/llama"
)

// rowOf draws a vector of an engine's width.
func rowOf(e *Engine, seed uint64, size float64) []float32 {
	r := rand.New(rand.NewPCG(seed, 1))
	out := make([]float32, e.Width())
	for i := range out {
		out[i] = float32(size * r.NormFloat64())
	}
	return out
}

func edited(t testing.TB, e *Engine, edits ...infer.Edit) *Engine {
	t.Helper()
	out, err := e.Edited(edits)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := out.Close(); err != nil {
			t.Error(err)
		}
	})
	return out
}

// answers of one engine to everything that it can be asked about a prompt.
type answers struct {
	choice   infer.Choice
	text     string
	logProbs []infer.TokenLogprob
}

var yesNo = infer.Words("yes", "no")

func ask(t testing.TB, b infer.Backend, e *Engine, p infer.Prompt) answers {
	t.Helper()
	ctx := context.Background()
	c, err := b.Choose(ctx, []infer.Prompt{p}, yesNo, infer.Params{})
	if err != nil {
		t.Fatal(err)
	}
	r, err := b.Chat(ctx, p, infer.Params{MaxTokens: 6})
	if err != nil {
		t.Fatal(err)
	}
	lp, err := e.LogProbs(ctx, p, "no, they will find a way", infer.Params{})
	if err != nil {
		t.Fatal(err)
	}
	c[0].Usage = infer.Usage{}
	return answers{c[0], r.Text, lp}
}

// TestEditsOfNothing: a dose of 0, no edit, a patch with the prompt's own state, and an
// erasure of nothing answer as the plain model does, to the bit.
func TestEditsOfNothing(t *testing.T) {
	e := open(t, 1024)
	p := streamPrompts()[0]
	ts, err := e.Tokens(context.Background(), p, "")
	if err != nil {
		t.Fatal(err)
	}
	blocks := []int{1, 12, e.blocks}
	var layers []string
	for _, b := range blocks {
		layers = append(layers, infer.LayerBlock(b))
	}
	own := readStates(t, e, []infer.Sequence{{Tokens: ts, At: []int{len(ts) - 1}}}, layers)
	want := ask(t, e, e, p)
	zero := make([]float32, e.Width())
	var all []infer.Edit
	for i, b := range blocks {
		patch := infer.Edit{Block: b, Scope: infer.ScopePromptEnd, Replace: map[string][]float32{p.Hash(): own[place{0, len(ts) - 1, i}]}}
		all = append(all, patch, infer.Edit{Block: b, Scope: infer.ScopeAll, Add: zero},
			infer.Edit{Block: b, Scope: infer.ScopeAll, Erase: &infer.Erase{U: [][]float32{zero}, V: [][]float32{rowOf(e, 1, 1)}, Mean: zero}})
		for name, edits := range map[string][]infer.Edit{
			"patch":                   {patch},
			"patch of another prompt": {{Block: b, Scope: infer.ScopePromptEnd, Replace: map[string][]float32{"other": zero}}},
			"generated, dose 0":       {{Block: b, Scope: infer.ScopeGenerated, Add: zero}},
			"prompt_end, dose 0":      {{Block: b, Scope: infer.ScopePromptEnd, Add: zero}},
		} {
			x := edited(t, e, edits...)
			if got := ask(t, x, x, p); !reflect.DeepEqual(got, want) {
				t.Errorf("%s after block %d: %+v\nwant %+v", name, b, got, want)
			}
		}
	}
	for name, edits := range map[string][]infer.Edit{"all": all, "none": nil} {
		x := edited(t, e, edits...)
		if got := ask(t, x, x, p); !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v\nwant %+v", name, got, want)
		}
	}
}

// TestEditsInAnyOrder: engines on the same weights give, in any order, what each gives
// alone, through the response cache too.
func TestEditsInAnyOrder(t *testing.T) {
	e := open(t, 1024)
	ctx := context.Background()
	ps := streamPrompts()[:2]
	add := rowOf(e, 1, 4)
	replace := map[string][]float32{ps[0].Hash(): rowOf(e, 2, 20)}
	erase := &infer.Erase{U: [][]float32{rowOf(e, 4, .3), rowOf(e, 5, .3)}, V: [][]float32{rowOf(e, 6, .3), rowOf(e, 7, .3)}, Mean: rowOf(e, 8, 1)}
	open := []*Engine{e}
	for _, edits := range [][]infer.Edit{
		{{Block: 12, Scope: infer.ScopeGenerated, Add: add}},
		{{Block: 12, Scope: infer.ScopePromptEnd, Add: add}},
		{{Block: 12, Scope: infer.ScopePromptEnd, Add: add}, {Block: 12, Scope: infer.ScopeGenerated, Add: add}},
		{{Block: 15, Scope: infer.ScopeAll, Add: add}, {Block: 1, Scope: infer.ScopeAll, Add: add}},
		{{Block: 20, Scope: infer.ScopePromptEnd, Replace: replace}},
		{{Block: 8, Scope: infer.ScopeAll, Erase: erase}, {Block: 30, Scope: infer.ScopeGenerated, Erase: erase}},
	} {
		open = append(open, edited(t, e, edits...))
	}
	type asked struct{ engine, prompt int }
	alone := map[asked]answers{}
	var order []asked
	for i, x := range open {
		for j, p := range ps {
			if err := e.forget(); err != nil {
				t.Fatal(err)
			}
			alone[asked{i, j}] = ask(t, x, x, p)
			order = append(order, asked{i, j}, asked{i, j})
			if i > 0 && j == 0 && reflect.DeepEqual(alone[asked{i, j}], alone[asked{0, j}]) {
				t.Errorf("the edits of engine %d change nothing", i)
			}
		}
	}
	db, err := cache.Open(filepath.Join(t.TempDir(), "c.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	wrapped := make([]infer.Backend, len(open))
	for i, x := range open {
		m, err := x.Model(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if wrapped[i], err = cache.Wrap(x, db, m, false); err != nil {
			t.Fatal(err)
		}
	}
	rand.New(rand.NewPCG(9, 9)).Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
	for n, a := range order {
		if got := ask(t, wrapped[a.engine], open[a.engine], ps[a.prompt]); !reflect.DeepEqual(got, alone[a]) {
			t.Errorf("answer %d, engine %d, prompt %d: %+v\nalone %+v", n, a.engine, a.prompt, got, alone[a])
		}
	}
	for i, x := range open { // one tree, in which prompts share what edits leave alone
		cs, err := x.Choose(ctx, ps, yesNo, infer.Params{})
		if err != nil {
			t.Fatal(err)
		}
		for j := range ps {
			if want := alone[asked{i, j}].choice; !slices.Equal(cs[j].P, want.P) {
				t.Errorf("engine %d, prompt %d in a tree: %v, alone %v", i, j, cs[j].P, want.P)
			}
		}
	}
}

// TestVectorEqualsCallback: an addition to generated tokens gives the same logits, to the
// bit, by llama.cpp's control vector and by the evaluation callback.
func TestVectorEqualsCallback(t *testing.T) {
	e := open(t, 256)
	ctx := context.Background()
	p := streamPrompts()[1]
	read := func(x *Engine) [][]float32 {
		t.Helper()
		if err := errors.Join(e.ready(ctx, infer.Params{}, false), x.ready(ctx, infer.Params{}, false), e.forget()); err != nil {
			t.Fatal(err)
		}
		ts, err := e.promptTokens([]part{{text: "Amara: We agreed to start at nine."}})
		if err != nil {
			t.Fatal(err)
		}
		m := x.plan(p.Hash())
		var out [][]float32
		path := m.path(ts, len(ts))
		for range 8 {
			err := x.push(ctx, path, []int{len(path) - 1}, func(_ int, row []float32) error {
				out = append(out, slices.Clone(row))
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			path = steps(largest(out[len(out)-1], 1), m.answer)
		}
		return out
	}
	plain := read(e)
	for _, b := range []int{2, 17, e.blocks} {
		x := edited(t, e, infer.Edit{Block: b, Scope: infer.ScopeGenerated, Add: rowOf(e, 3, 2)})
		byVector := read(x)
		if e.tap != nil || e.changes.vector == 0 {
			t.Fatalf("block %d: the control vector is not used", b)
		}
		e.changes.hooked[b] = false // as of an architecture without the hook
		byCallback := read(x)
		if e.tap == nil || e.changes.vector != 0 {
			t.Fatalf("block %d: the callback is not used", b)
		}
		if !reflect.DeepEqual(byVector, byCallback) {
			t.Errorf("block %d: the two differ", b)
		}
		if !slices.Equal(byVector[0], plain[0]) || slices.Equal(byVector[1], plain[1]) {
			t.Errorf("block %d: not just generated tokens are changed", b)
		}
		if err := e.dropContext(); err != nil { // the next begins without a tap
			t.Fatal(err)
		}
		if again := read(e); !reflect.DeepEqual(again, plain) {
			t.Errorf("block %d: the plain model answers otherwise afterwards", b)
		}
	}
}

// TestStatesAfterEdits: the state at the edited token is the plain one plus what is added,
// that before it the plain one.
func TestStatesAfterEdits(t *testing.T) {
	e := open(t, 256)
	ts, err := e.Tokenize("Amara: We agreed to start the meeting at nine, and half the team came at half past.")
	if err != nil {
		t.Fatal(err)
	}
	v := rowOf(e, 1, 3)
	n := len(ts)
	layers := []string{infer.LayerBlock(10), infer.LayerBlock(11), infer.LayerBlock(30)}
	at := []int{n - 4, n - 3, n - 2, n - 1}
	seqs := []infer.Sequence{{Tokens: ts, At: at, Prompt: n}, {Tokens: ts, At: at, Prompt: n - 2}, {Tokens: ts[:n-2], At: at[:2], Prompt: n - 3}}
	plain := readStates(t, e, seqs, layers)
	for _, b := range []int{10, 30} {
		got := readStates(t, edited(t, e, infer.Edit{Block: b, Scope: infer.ScopePromptEnd, Add: v}), seqs, layers)
		for p, x := range got {
			want := slices.Clone(plain[p])
			end := seqs[p.seq].Prompt - 1
			if p.pos < end || b == 30 && p.layer < 2 { // before the prompt's end, or below the edit
				if !slices.Equal(x, want) {
					t.Errorf("edit after block %d: %+v is changed", b, p)
				}
				continue
			}
			if p.pos == end && layers[p.layer] == infer.LayerBlock(b) {
				for i := range want {
					want[i] += v[i]
				}
				if !slices.Equal(x, want) {
					t.Errorf("edit after block %d: %+v is not the plain state and what is added", b, p)
				}
			}
			if p.pos > end && b == 10 && p.layer == 1 && slices.Equal(x, want) {
				t.Errorf("edit after block %d: %+v does not see it", b, p)
			}
		}
	}
	none := func(int, int, int, []float32) error { return nil }
	x := edited(t, e, infer.Edit{Block: 10, Scope: infer.ScopePromptEnd, Add: v})
	if err := x.States(context.Background(), []infer.Sequence{{Tokens: ts, At: at}}, layers, none); err == nil || !strings.Contains(err.Error(), "text 1 of 1 is no prompt") {
		t.Errorf("a text that is no prompt: %v", err)
	}
}

// TestLogProbsAndDivergence: what Choose says of an answer is what LogProbs says of its
// token; a model does not diverge from itself, and an edited one as its probabilities say.
func TestLogProbsAndDivergence(t *testing.T) {
	e := open(t, 1024)
	ctx := context.Background()
	p := streamPrompts()[3]
	text := "yes, since " + strings.Repeat("the two of them no longer listen to each other and ", 8)
	for name, x := range map[string]*Engine{"plain": e, "edited": edited(t, e, infer.Edit{Block: 14, Scope: infer.ScopePromptEnd, Add: rowOf(e, 2, 4)})} {
		lp, err := x.LogProbs(ctx, p, text, infer.Params{})
		if err != nil {
			t.Fatal(err)
		}
		c, err := x.Choose(ctx, []infer.Prompt{p}, []infer.Answer{{Label: "first", Variants: []string{lp[0].Token}}, {Label: "other", Variants: []string{"no"}}}, infer.Params{})
		if err != nil {
			t.Fatal(err)
		}
		if d := math.Abs(math.Exp(lp[0].Logprob) - c[0].P[0]); d > 1e-12 {
			t.Errorf("%s: LogProbs says %g of %q, Choose %g", name, math.Exp(lp[0].Logprob), lp[0].Token, c[0].P[0])
		}
		kl, err := x.Divergence(ctx, p, text, infer.Params{})
		if err != nil {
			t.Fatal(err)
		}
		if len(kl) != len(lp) || len(kl) <= 2*maxOutputs {
			t.Fatalf("%s: %d divergences of %d tokens; the text must need several pieces", name, len(kl), len(lp))
		}
		for i, d := range kl {
			if (name == "plain") != (d == 0) {
				t.Errorf("%s: token %d diverges by %g", name, i, d)
			}
		}
		if name == "plain" {
			continue
		}
		// By hand, from the probabilities of the first token.
		want := 0.0
		var rows [2][]float32
		for i, b := range []*Engine{x, e} {
			ts, err := b.Tokens(ctx, p, "")
			if err != nil {
				t.Fatal(err)
			}
			path := b.plan(p.Hash()).path(toTokens(ts), len(ts))
			if err := b.logits(ctx, path, len(ts), func(_ int, row []float32) error { rows[i] = slices.Clone(row); return nil }); err != nil {
				t.Fatal(err)
			}
		}
		var sums [2]float64
		for i, row := range rows {
			for _, l := range row {
				sums[i] += math.Exp(float64(l))
			}
		}
		for k := range rows[0] {
			pk, qk := math.Exp(float64(rows[0][k]))/sums[0], math.Exp(float64(rows[1][k]))/sums[1]
			want += pk * math.Log(pk/qk)
		}
		if math.Abs(kl[0]-want) > 1e-9*math.Max(1, want) {
			t.Errorf("the first token diverges by %g, by hand %g", kl[0], want)
		}
	}
	if lp, err := e.LogProbs(ctx, p, "", infer.Params{}); err != nil || len(lp) != 0 {
		t.Errorf("of no text: %v, %v", lp, err)
	}
	var tooLong *infer.ContextError
	if _, err := e.LogProbs(ctx, p, strings.Repeat("long ", 1100), infer.Params{}); !errors.As(err, &tooLong) {
		t.Errorf("a text beyond the context: %v", err)
	}
}

func toTokens(ids []int32) []llama.Token {
	out := make([]llama.Token, len(ids))
	for i, t := range ids {
		out[i] = llama.Token(t)
	}
	return out
}

// TestArmsShareTheirPrompts: arms whose edits begin at the end of the prompt evaluate what
// is before it once.
func TestArmsShareTheirPrompts(t *testing.T) {
	e := open(t, 1024)
	ctx := context.Background()
	arms := []*Engine{e}
	for dose := range 5 {
		arms = append(arms, edited(t, e, infer.Edit{Block: 15, Scope: infer.ScopePromptEnd, Add: rowOf(e, 1, float64(dose))}))
	}
	if _, err := arms[1].Choose(ctx, streamPrompts()[:1], yesNo, infer.Params{}); err != nil { // makes the context
		t.Fatal(err)
	}
	if err := e.forget(); err != nil {
		t.Fatal(err)
	}
	evaluated, unique := 0, 0
	for _, first := range []string{"Wei: The report is late.", "Ines: Nobody greeted me.", "Omar: You spoke to my boss first."} {
		p := streamPrompts()[7]
		p.Messages = slices.Clone(p.Messages)
		p.Messages[1].Content = first + "\n" + p.Messages[1].Content
		for i, x := range arms {
			c, err := x.Choose(ctx, []infer.Prompt{p}, yesNo, infer.Params{})
			if err != nil {
				t.Fatal(err)
			}
			u := c[0].Usage
			evaluated += u.Evaluated
			if i == 0 {
				unique += u.Evaluated
			} else {
				unique++ // its last token
			}
		}
	}
	ratio := float64(evaluated) / float64(unique)
	t.Logf("%d tokens evaluated for %d nodes, a ratio of %.4f", evaluated, unique, ratio)
	if ratio > 1.05 {
		t.Errorf("%d tokens evaluated for %d nodes, a ratio of %.3f", evaluated, unique, ratio)
	}
}

func TestEditedIdentity(t *testing.T) {
	e := open(t, 64)
	ctx := context.Background()
	x := edited(t, e, infer.Edit{Block: 1, Scope: infer.ScopeAll, Add: rowOf(e, 1, 1)})
	plain, err := e.Model(ctx)
	if err != nil {
		t.Fatal(err)
	}
	m, err := x.Model(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if plain.Edits != "" || m.Edits == "" || m.Digest != plain.Digest {
		t.Errorf("the plain model is %+v, the edited one %+v", plain, m)
	}
	nan := rowOf(e, 1, 1)
	nan[3] = float32(math.NaN())
	for want, bad := range map[string]infer.Edit{"blocks 1 to 30": {Block: 31, Scope: infer.ScopeAll, Add: nan}, "NaN": {Block: 3, Scope: infer.ScopeAll, Add: nan},
		"have 576": {Block: 3, Scope: infer.ScopeAll, Add: []float32{1}}} {
		if _, err := e.Edited([]infer.Edit{bad}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	// The weights are there until both are closed.
	if err := errors.Join(x.Close(), x.Close()); err != nil {
		t.Fatal(err)
	}
	if _, err := e.Tokenize("still there"); err != nil {
		t.Error(err)
	}
	y := edited(t, e)
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := y.Choose(ctx, []infer.Prompt{{Raw: "The digit is "}}, infer.Digits(1, 6), infer.Params{}); err != nil {
		t.Error(err)
	}
	if err := y.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := y.Edited(nil); !errors.Is(err, ErrClosed) {
		t.Errorf("a closed engine is edited: %v", err)
	}
}
