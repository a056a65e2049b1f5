package llamacpp

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ccmed/ccmed/infer"
)

// ending is a context that ends when it has been looked at so many times, which
// places the end within a piece of work.
type ending struct {
	context.Context
	looks atomic.Int64
}

func endingAfter(n int64) *ending {
	e := &ending{Context: context.Background()}
	e.looks.Store(n)
	return e
}

func (e *ending) Err() error {
	if e.looks.Add(-1) < 0 {
		return context.Canceled
	}
	return nil
}

// Loading, reading a prompt, writing and reading states end where they are, and
// the engine answers afterwards as if nothing had happened.
func TestWorkEndsWithItsContext(t *testing.T) {
	path := need(t)
	for _, looks := range []int64{1, 2, 40} {
		if e, err := Open(endingAfter(looks), Options{ModelPath: path, NumCtx: 256, Threads: 1}); !errors.Is(err, context.Canceled) {
			t.Fatalf("a model was loaded after %d looks: %v, %v", looks, e, err)
		}
	}
	e := open(t, 512)
	p := infer.Prompt{Raw: strings.Repeat("One two three four. ", 40)}
	ids, err := e.PromptTokens(p.Raw)
	if err != nil {
		t.Fatal(err)
	}
	seqs := []infer.Sequence{{Tokens: ids, At: []int{len(ids) - 1}}}
	chat := func(ctx context.Context) (string, error) {
		r, err := e.Chat(ctx, p, infer.Params{MaxTokens: 4})
		return r.Text, err
	}
	choose := func(ctx context.Context) ([]float64, error) {
		cs, err := e.Choose(ctx, []infer.Prompt{p}, infer.Words("One", "Two"), infer.Params{})
		if err != nil {
			return nil, err
		}
		return cs[0].P, nil
	}
	states := func(ctx context.Context) (x []float32, err error) {
		err = e.States(ctx, seqs, []string{infer.LayerFinalNorm}, func(_, _, _ int, s []float32) error { x = slices.Clone(s); return nil })
		return x, err
	}
	ctx := context.Background()
	text, err := chat(ctx)
	if err != nil {
		t.Fatal(err)
	}
	ps, err := choose(ctx)
	if err != nil {
		t.Fatal(err)
	}
	x, err := states(ctx)
	if err != nil {
		t.Fatal(err)
	}
	// Other prompts in between, so that nothing of these is left in the cache.
	for _, looks := range []int64{3, 300, 1200} {
		if _, err := e.Choose(ctx, []infer.Prompt{{Raw: "x"}, {Raw: "y"}}, infer.Words("One", "Two"), infer.Params{NumCtx: 256}); err != nil {
			t.Fatal(err)
		}
		if _, err := chat(endingAfter(looks)); !errors.Is(err, context.Canceled) {
			t.Errorf("a chat after %d looks: %v", looks, err)
		}
		if _, err := states(endingAfter(min(looks, 300))); !errors.Is(err, context.Canceled) {
			t.Errorf("states after %d looks: %v", looks, err)
		}
	}
	if got, err := states(ctx); err != nil || !slices.Equal(got, x) {
		t.Errorf("states after an end: %v", err)
	}
	if got, err := chat(ctx); err != nil || got != text {
		t.Errorf("a chat after an end: %q, %v, want %q", got, err, text)
	}
	if got, err := choose(ctx); err != nil || !slices.Equal(got, ps) {
		t.Errorf("a choice after an end: %v, %v, want %v", got, err, ps)
	}
}

// An interrupt is followed within a second, however long the prompt is.
func TestInterruptIsQuick(t *testing.T) {
	e := open(t, 4096)
	p := infer.Prompt{Raw: strings.Repeat("One two three four. ", 700)}
	ids, err := e.PromptTokens(p.Raw)
	if err != nil {
		t.Fatal(err)
	}
	for name, work := range map[string]func(context.Context) error{
		"chat": func(ctx context.Context) error {
			_, err := e.Chat(ctx, p, infer.Params{MaxTokens: 100})
			return err
		},
		"choose": func(ctx context.Context) error {
			_, err := e.Choose(ctx, []infer.Prompt{p}, infer.Words("One", "Two"), infer.Params{})
			return err
		},
		"states": func(ctx context.Context) error {
			return e.States(ctx, []infer.Sequence{{Tokens: ids, At: []int{len(ids) - 1}}}, e.Layers(), func(int, int, int, []float32) error { return nil })
		},
	} {
		ctx, cancel := context.WithCancel(context.Background())
		var at time.Time
		time.AfterFunc(300*time.Millisecond, func() { at = time.Now(); cancel() })
		err := work(ctx)
		took := time.Since(at)
		t.Logf("%s: %v after %s", name, err, took)
		if !errors.Is(err, context.Canceled) || took > time.Second {
			t.Errorf("%s: %v, %s after the interrupt", name, err, took)
		}
	}
}
