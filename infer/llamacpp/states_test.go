package llamacpp

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ccmed/ccmed/infer"
	"github.com/hybridgroup/yzma/pkg/llama"
)

// place says where a state was read.
type place struct{ seq, pos, layer int }

func readStates(t testing.TB, e *Engine, seqs []infer.Sequence, layers []string) map[place][]float32 {
	t.Helper()
	states := map[place][]float32{}
	err := e.States(context.Background(), seqs, layers, func(seq, pos, layer int, x []float32) error {
		p := place{seq, pos, layer}
		if states[p] != nil {
			t.Errorf("%+v came twice", p)
		}
		states[p] = slices.Clone(x)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return states
}

// A dialogue of several micro-batches, two endings, one of which goes on, and a
// text of its own, each alone in an empty cache and all together: every state is
// the same to the bit, wherever the cache was cut back and whatever is an output.
func TestStatesShareAndAgree(t *testing.T) {
	e, err := Open(context.Background(), Options{ModelPath: need(t), NumCtx: 512, UBatch: 48, Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	text := func(s string) []int32 {
		t.Helper()
		ts, err := e.Tokenize(s)
		if err != nil {
			t.Fatal(err)
		}
		return ts
	}
	dialogue := text(strings.Repeat("Anna: Please answer in writing. Kenji: I prefer to meet in person. ", 8))
	ask := slices.Concat(dialogue, text("Mediator: What does each of you expect?"))
	more := slices.Concat(ask, text(" Let us begin with Anna."))
	end := len(dialogue) - 1
	all := make([]int, len(ask))
	for i := range all {
		all[i] = i
	}
	seqs := []infer.Sequence{
		{Tokens: more, At: []int{len(more) - 1, end, end}},
		{Tokens: ask, At: all},
		{Tokens: dialogue, At: []int{0, end}},
		{Tokens: dialogue, At: []int{end}},
		{Tokens: text("Another text."), At: []int{1}},
		{Tokens: dialogue}, // nothing wanted
	}
	layers := []string{infer.LayerBlock(30), infer.LayerEmbed, infer.LayerFinalNorm, infer.LayerBlock(12)}
	together := readStates(t, e, seqs, layers)
	if want := (2 + len(ask) + 2 + 1 + 1) * len(layers); len(together) != want {
		t.Errorf("%d states, want %d", len(together), want)
	}
	alone := 0
	for i, s := range seqs {
		if err := e.forget(); err != nil {
			t.Fatal(err)
		}
		for p, x := range readStates(t, e, []infer.Sequence{s}, layers) {
			alone++
			p.seq = i
			if !slices.Equal(x, together[p]) {
				t.Fatalf("%+v differs when its sequence is evaluated alone", p)
			}
		}
	}
	if alone != len(together) {
		t.Errorf("%d states alone, %d together", alone, len(together))
	}
	if slices.Equal(together[place{1, end, 0}], together[place{1, end - 1, 0}]) {
		t.Error("two tokens have the same state")
	}
	if !slices.Equal(together[place{0, end, 0}], together[place{3, end, 0}]) {
		t.Error("sequences that share a token have different states of it")
	}
}

// What Choose says must not depend on States having been called, nor the states
// on Choose.
func TestStatesBesideChoose(t *testing.T) {
	e := open(t, 512)
	ts, err := e.Tokenize("One, two, three, four, five")
	if err != nil {
		t.Fatal(err)
	}
	seqs := []infer.Sequence{{Tokens: ts, At: []int{len(ts) - 1}}}
	choose := func() []infer.Choice {
		t.Helper()
		c, err := e.Choose(context.Background(), []infer.Prompt{{Raw: "The digit is "}}, infer.Digits(1, 6), infer.Params{})
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	c, s := choose(), readStates(t, e, seqs, e.Layers())
	if again := choose(); !reflect.DeepEqual(again, c) {
		t.Errorf("after States:\n%+v\nbefore:\n%+v", again, c)
	}
	if again := readStates(t, e, seqs, e.Layers()); !reflect.DeepEqual(again, s) {
		t.Error("the states differ after Choose")
	}
}

func TestLayers(t *testing.T) {
	e := open(t, 64)
	layers := e.Layers()
	if len(layers) != 32 || layers[0] != "embed" || layers[1] != "block.1" || layers[30] != "block.30" || layers[31] != "final_norm" {
		t.Errorf("layers %v", layers)
	}
	if e.Width() != 576 {
		t.Errorf("width %d, want 576", e.Width())
	}
}

func TestStatesBadInput(t *testing.T) {
	e := open(t, 64)
	ctx := context.Background()
	none := func(int, int, int, []float32) error { return nil }
	embed := []string{infer.LayerEmbed}
	for _, c := range []struct {
		name   string
		seq    infer.Sequence
		layers []string
		want   string
	}{
		{"no layer", infer.Sequence{}, nil, "no layer"},
		{"block 0", infer.Sequence{}, []string{"block.0"}, `has no layer "block.0": it has embed, block.1 to block.30 and final_norm`},
		{"block 31", infer.Sequence{}, []string{"block.31"}, `no layer "block.31"`},
		{"zero in front", infer.Sequence{}, []string{"block.01"}, `no layer "block.01"`},
		{"a layer twice", infer.Sequence{}, []string{"embed", "embed"}, "twice"},
		{"before the text", infer.Sequence{Tokens: []int32{5}, At: []int{-1}}, embed, "tokens [-1] of a text of 1"},
		{"after the text", infer.Sequence{Tokens: []int32{5}, At: []int{0, 1}}, embed, "tokens [0 1] of a text of 1"},
		{"of no text", infer.Sequence{At: []int{0}}, embed, "text of 0"},
		{"negative token", infer.Sequence{Tokens: []int32{-1}}, embed, "token 0 is -1"},
		{"token too large", infer.Sequence{Tokens: []int32{5, 49152}}, embed, "token 1 is 49152, and the vocabulary has 49152"},
	} {
		err := e.States(ctx, []infer.Sequence{{}, c.seq}, c.layers, none)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}

	long := infer.Sequence{Tokens: make([]int32, 65), At: []int{64}}
	var tooLong *infer.ContextError
	if err := e.States(ctx, []infer.Sequence{long}, embed, none); !errors.As(err, &tooLong) || tooLong.Need != 65 || tooLong.Have != 64 {
		t.Errorf("65 tokens in a context of 64: %v", err)
	}
	long = infer.Sequence{Tokens: make([]int32, 64), At: []int{63}}
	if got := readStates(t, e, []infer.Sequence{long}, embed); len(got) != 1 {
		t.Errorf("64 tokens in a context of 64: %d states", len(got))
	}

	stop := errors.New("stop")
	calls := 0
	err := e.States(ctx, []infer.Sequence{{Tokens: []int32{5, 6, 7}, At: []int{1, 2}}}, e.Layers(), func(int, int, int, []float32) error {
		calls++
		return stop
	})
	if !errors.Is(err, stop) || calls != 1 {
		t.Errorf("after an error of row: %v, %d calls", err, calls)
	}
	cancelled, cancel := context.WithCancel(ctx)
	cancel()
	if err := e.States(cancelled, []infer.Sequence{long}, embed, none); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	e.tap.asked = []string{"embd", "norm-0", "x_out-0", "x_out-1", "x_out-1 (view)"}
	err = e.States(ctx, nil, e.Layers(), none)
	if err == nil || !strings.Contains(err.Error(), "block.1 cannot be read: architecture llama has no tensor l_out-0, only embd, norm-#, x_out-#") {
		t.Errorf("another architecture: %v", err)
	}
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	if err := e.States(ctx, nil, embed, none); !errors.Is(err, ErrClosed) {
		t.Errorf("a closed engine: %v", err)
	}
}

// A control vector puts a NaN into block 5: the layers below are delivered, and
// those from there on are counted by name.
func TestStatesNotFinite(t *testing.T) {
	e := open(t, 64)
	seqs := []infer.Sequence{{Tokens: []int32{5, 6, 7}, At: []int{1, 2}}, {Tokens: []int32{5, 6}, At: []int{1}}}
	layers := []string{infer.LayerBlock(4), infer.LayerBlock(5), infer.LayerBlock(6)}
	readStates(t, e, seqs, layers) // makes the context
	if err := e.forget(); err != nil {
		t.Fatal(err)
	}
	vector := make([]float32, 29*e.Width()) // for blocks 2 to 30 of 30
	vector[3*e.Width()+7] = float32(math.NaN())
	vector[3*e.Width()+8] = float32(math.Inf(1))
	if code := llama.SetAdapterCvec(e.llama, vector, int32(e.Width()), 1, 29); code != 0 {
		t.Fatalf("setting a control vector: code %d", code)
	}
	delivered := map[string]int{}
	err := e.States(context.Background(), seqs, layers, func(_, _, layer int, _ []float32) error {
		delivered[layers[layer]]++
		return nil
	})
	var bad *infer.NonFiniteError
	if !errors.As(err, &bad) {
		t.Fatalf("got %v", err)
	}
	if len(delivered) != 1 || delivered["block.4"] != 3 {
		t.Errorf("delivered %v, want the 3 states of block.4", delivered)
	}
	if want := []infer.NonFinite{{Layer: "block.5", Rows: 3, Values: 6}, {Layer: "block.6", Rows: 3, Values: 3 * 576}}; !slices.Equal(bad.Layers, want) {
		t.Errorf("got %+v\nwant %+v", bad.Layers, want)
	}
	if !strings.Contains(err.Error(), "block.5 (6 values in 3 states)") {
		t.Error(err)
	}
}

// Tensors of another kind or shape than a state's are refused by name.
func TestTapRefuses(t *testing.T) {
	need(t)
	info, err := Load("")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := evalCallback(info.Dir); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name string
		t    tensor
		want string
	}{
		{"16-bit floats", tensor{kind: 1, shape: [4]int64{8, 5, 1, 1}, stride: [4]uint64{2, 16, 80, 80}}, "l_out-3 is f16"},
		{"another width", tensor{shape: [4]int64{4, 5, 1, 1}, stride: [4]uint64{4, 16, 80, 80}}, "[4 5 1 1]"},
		{"three dimensions", tensor{shape: [4]int64{8, 5, 2, 1}, stride: [4]uint64{4, 32, 160, 320}}, "[8 5 2 1]"},
		{"gaps", tensor{shape: [4]int64{8, 5, 1, 1}, stride: [4]uint64{4, 64, 320, 320}}, "l_out-3 is f32"},
		{"other rows", tensor{shape: [4]int64{8, 4, 1, 1}, stride: [4]uint64{4, 32, 128, 128}}, "4 rows for 5 tokens with 2 outputs"},
	} {
		p := &tap{width: 8, tensors: []string{"l_out-3"}}
		p.expect(5, []int{1, 4})
		if err := p.take(0, &c.t); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
		if missing := p.missing(); len(missing) != 1 {
			t.Errorf("%s: missing %v", c.name, missing)
		}
	}
}

// TestVisits simulates the evaluation of random trees from an empty cache: every
// wanted state is read once, on a path that its sequence shares, and no node is
// evaluated twice but for the token before a visit's first wanted one.
func TestVisits(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 6))
	for range 500 {
		r := reading{}
		left, nodes := map[string]bool{}, map[string]bool{}
		for s := range 1 + random.IntN(8) {
			var seq infer.Sequence
			for i := range 1 + random.IntN(7) {
				seq.Tokens = append(seq.Tokens, int32(random.IntN(3)))
				if random.IntN(3) == 0 {
					seq.At = append(seq.At, i)
					left[fmt.Sprint(s, " at ", i)] = true
				}
			}
			if err := r.add(seq, 3, 8, plan{}); err != nil {
				t.Fatal(err)
			}
			if len(seq.At) > 0 {
				for i := range slices.Max(seq.At) + 1 {
					nodes[fmt.Sprint(seq.Tokens[:i+1])] = true
				}
			}
		}
		var path []step
		evaluated, again := 0, 0
		for _, v := range r.visits(nil) {
			common := commonPrefix(path, v.path)
			keep := min(common, max(0, v.want[0]+1-fewestRows))
			evaluated, again, path = evaluated+len(v.path)-keep, again+common-keep, v.path
			if common-keep > 1 {
				t.Fatalf("%v: a visit evaluates %d tokens again", r.seqs, common-keep)
			}
			if last := v.want[len(v.want)-1]; last != len(v.path)-1 {
				t.Fatalf("%v: a path of %d tokens for states up to %d", r.seqs, len(v.path), last)
			}
			for _, at := range v.want {
				for _, s := range v.waiting[at] {
					key := fmt.Sprint(s, " at ", at)
					if !left[key] || commonPrefix(r.seqs[s], v.path) <= at {
						t.Fatalf("%v: %s read twice, unasked, or on another path %v", r.seqs, key, v.path)
					}
					delete(left, key)
				}
			}
		}
		if len(left) > 0 {
			t.Fatalf("%v: not read: %v", r.seqs, left)
		}
		if evaluated-again != len(nodes) {
			t.Fatalf("%v: %d nodes evaluated, %d again, of %d", r.seqs, evaluated, again, len(nodes))
		}
	}
}

// BenchmarkStates evaluates a prompt of 400 tokens with and without reading the
// last token's state in every layer, in turns, and reports the median of plain
// time over reading time: 1 is no cost. Run it with -benchtime 20x or more.
func BenchmarkStates(b *testing.B) {
	plain, reader := openThreads(b, 512, 0), openThreads(b, 512, 0)
	tokens, err := plain.Tokenize(strings.Repeat("Anna: Please answer in writing. Kenji: I prefer to meet in person. ", 30))
	if err != nil {
		b.Fatal(err)
	}
	seqs := []infer.Sequence{{Tokens: tokens[:400], At: []int{399}}}
	prompt := make([]llama.Token, 400)
	for i := range prompt {
		prompt[i] = llama.Token(tokens[i])
	}
	ctx := context.Background()
	readStates(b, reader, seqs, reader.Layers())
	var ratios []float64
	var reading time.Duration
	for b.Loop() {
		if err := errors.Join(plain.forget(), reader.forget()); err != nil {
			b.Fatal(err)
		}
		timed := func(f func() error) time.Duration {
			start := time.Now()
			if err := f(); err != nil {
				b.Fatal(err)
			}
			return time.Since(start)
		}
		var times [2]time.Duration
		for i := range 2 { // the first of a pair is now this one, now that
			if which := (i + len(ratios)) % 2; which == 0 {
				times[0] = timed(func() error {
					return plain.push(ctx, steps(prompt, 0), []int{399}, func(int, []float32) error { return nil })
				})
			} else {
				times[1] = timed(func() error {
					return reader.States(ctx, seqs, reader.Layers(), func(int, int, int, []float32) error { return nil })
				})
			}
		}
		ratios = append(ratios, times[0].Seconds()/times[1].Seconds())
		reading += times[1]
	}
	slices.Sort(ratios)
	b.ReportMetric(ratios[len(ratios)/2], "plain/reading")
	b.ReportMetric(float64(len(ratios)*400)/reading.Seconds(), "tokens/s")
}
