package probe_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/ccmed/ccmed/bench/dialogue"
	"github.com/ccmed/ccmed/bench/prompt"
	"github.com/ccmed/ccmed/bench/run"
	"github.com/ccmed/ccmed/infer"
	"github.com/ccmed/ccmed/infer/infertest"
	"github.com/ccmed/ccmed/probe"
	"github.com/ccmed/ccmed/probe/activation"
)

const endOfTurn = 1_000_001

// reader stands in for a model: a token is a byte, and a state says which layer,
// which position and which token it belongs to.
type reader struct{ fail error }

func (*reader) Tokenize(text string) ([]int32, error) { return tokens(text) }
func (*reader) Layers() []string                      { return infer.LayerNames(1) }
func (*reader) Width() int                            { return 3 }

func tokens(text string) ([]int32, error) {
	var out []int32
	for _, b := range []byte(text) {
		out = append(out, int32(b))
	}
	return out, nil
}

func (r *reader) States(_ context.Context, seqs []infer.Sequence, layers []string, row func(seq, pos, layer int, x []float32) error) error {
	if r.fail != nil {
		return r.fail
	}
	for i, s := range seqs {
		for _, at := range s.At {
			for l := range layers {
				if err := row(i, at, l, []float32{float32(l), float32(at), float32(s.Tokens[at])}); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

func extraction(t *testing.T, r *reader, pairs []probe.Pair) *probe.Extraction {
	t.Helper()
	set, err := prompt.Load("")
	if err != nil {
		t.Fatal(err)
	}
	x := &probe.Extraction{Reader: r, EndOfTurn: endOfTurn, Prompts: set, Pairs: pairs, DType: activation.F32,
		Model: infer.Model{Name: "bytes", Digest: "sha256:00"},
		Render: func(_ context.Context, p infer.Prompt) (string, error) {
			var b strings.Builder
			for _, m := range p.Messages {
				fmt.Fprintf(&b, "<%s>%s", m.Role, m.Content)
			}
			return b.String() + "<assistant>", nil
		}}
	x.Tokens = tokensOf(x.Render, tokens)
	return x
}

// tokensOf is probe.Tokens by a rendering and a tokeniser.
func tokensOf(render func(context.Context, infer.Prompt) (string, error), tokenise func(string) ([]int32, error)) probe.Tokens {
	return func(ctx context.Context, p infer.Prompt, said string) ([]int32, error) {
		if p.Raw != "" {
			return tokenise(p.Raw + said)
		}
		rendered, err := render(ctx, p)
		if err != nil {
			return nil, err
		}
		return tokenise(rendered + said)
	}
}

// extract runs an extraction over the first n sample dialogues, whose mediator
// says "line of ITEM" followed by the condition; under D its lines are cut.
func extract(t *testing.T, x *probe.Extraction, path string, n int) ([]run.Sample, error) {
	t.Helper()
	return extractFrom(t, x, path, dialogue.Sample()[:n])
}

func extractFrom(t *testing.T, x *probe.Extraction, path string, ds []dialogue.Dialogue) ([]run.Sample, error) {
	t.Helper()
	dir, err := run.Create(path, run.Identity{Task: "extract"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	x.Use(ds)
	if err := x.Open(context.Background(), dir); err != nil {
		t.Fatal(err)
	}
	defer x.Close()
	return executed(t, x, dir, func(p infer.Prompt, _ infer.Params) infer.Reply {
		text := p.Messages[1].Content
		cond := "ND"
		if strings.Contains(text, "Pattern:") {
			cond = "D"
		}
		stop := map[string]string{"D": infer.StopLength, "ND": infer.StopEnd}[cond]
		return infer.Reply{Text: fmt.Sprintf("line of %d %s", len(text), cond), Stop: stop}
	})
}

// executed runs an extraction whose mediator says so.
func executed(t *testing.T, x *probe.Extraction, dir *run.Dir, say func(infer.Prompt, infer.Params) infer.Reply) ([]run.Sample, error) {
	t.Helper()
	b := &infertest.Scripted{Say: say}
	_, err := run.Execute(context.Background(), dir, x.Task(), run.Options{Workers: func(context.Context, string) ([]infer.Backend, error) { return []infer.Backend{b}, nil }})
	if err != nil {
		return nil, err
	}
	samples, err := dir.Samples()
	if err != nil {
		t.Fatal(err)
	}
	return samples, nil
}

func mustPairs(t *testing.T, contexts, texts string) []probe.Pair {
	t.Helper()
	ps, err := probe.Pairs(strings.Split(contexts, ","), strings.Split(texts, ","))
	if err != nil {
		t.Fatal(err)
	}
	return ps
}

func TestPairs(t *testing.T) {
	if got := len(mustPairs(t, "D,ND,wrong,none", "own-D,own-ND,placebo,other")); got != 4*6 {
		t.Errorf("the full design has %d cells of context and text, want 24: three placebos count", got)
	}
	for _, bad := range [][2]string{{"E", "own-D"}, {"D", "own"}} {
		if _, err := probe.Pairs([]string{bad[0]}, []string{bad[1]}); err == nil || !strings.Contains(err.Error(), "known are") {
			t.Errorf("%v: error %v, want one that names what is known", bad, err)
		}
	}
}

// TestStatesLieWhereTheyBelong reads every stored row back and holds it against
// the token that stands at its position.
func TestStatesLieWhereTheyBelong(t *testing.T) {
	x := extraction(t, &reader{}, mustPairs(t, "D,ND,wrong,none", "own-D,own-ND,placebo,other"))
	path := filepath.Join(t.TempDir(), "run")
	samples, err := extract(t, x, path, 3)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range samples {
		var st probe.States
		if err := json.Unmarshal(s.Data, &st); err != nil {
			t.Fatal(err)
		}
		if len(st.Stop) != 2 || st.Stop[probe.TextOwnD] != infer.StopLength || st.Stop[probe.TextOwnND] != infer.StopEnd {
			t.Errorf("%s keeps %v; under D lines are cut, under ND they end", s.Key, st.Stop)
		}
	}
	index, err := activation.ReadIndex(func(yield func(run.Sample, error) bool) {
		for _, s := range samples {
			if !yield(s, nil) {
				return
			}
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	if got, want := len(index.Cells()), 4+2*24; got != want {
		t.Errorf("%d cells, want %d", got, want)
	}
	for _, c := range index.Cells() {
		f, err := activation.Open(filepath.Join(path, c.File()))
		if err != nil {
			t.Fatal(err)
		}
		entries := index.Entries(c)
		if len(entries) != 3 {
			t.Errorf("%s: %d rows, want 3", c, len(entries))
		}
		for l, name := range infer.LayerNames(1) {
			rows, err := f.Rows(name)
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range entries {
				got := rows.Row(e.Row)
				if got[0] != float32(l) || got[1] != float32(e.Token) {
					t.Errorf("%s, %s, %s: layer and position %v, want %d and %d", c, name, e.Item, got, l, e.Token)
				}
				if c.Position == probe.UtteranceEnd && (got[2] != endOfTurn || e.Token != e.Tokens-1) {
					t.Errorf("%s, %s: the state of token %v at %d of %d, want the end-of-turn token at the end", c, e.Item, got[2], e.Token, e.Tokens)
				}
				if c.Position == probe.PromptEnd && got[2] != '>' {
					t.Errorf("%s, %s: the state of token %q, want the prompt's last", c, e.Item, rune(got[2]))
				}
			}
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

func statesOf(t *testing.T, samples []run.Sample, item string) probe.States {
	t.Helper()
	for _, s := range samples {
		if s.Step == probe.StepStates && s.Item == item {
			var st probe.States
			if err := json.Unmarshal(s.Data, &st); err != nil {
				t.Fatal(err)
			}
			return st
		}
	}
	t.Fatalf("no states of item %s", item)
	return probe.States{}
}

func TestTexts(t *testing.T) {
	x := extraction(t, &reader{}, mustPairs(t, "ND", "own-D,own-ND,placebo,other"))
	samples, err := extract(t, x, filepath.Join(t.TempDir(), "run"), 3)
	if err != nil {
		t.Fatal(err)
	}
	first, second := statesOf(t, samples, "9001"), statesOf(t, samples, "9002")
	if first.Texts["own-D"] == first.Texts["own-ND"] || !strings.HasSuffix(first.Texts["own-D"], " D") {
		t.Errorf("own lines %q and %q: each must come from its own prompt", first.Texts["own-D"], first.Texts["own-ND"])
	}
	if got, want := first.Texts["other"], second.Texts["own-ND"]; got != want {
		t.Errorf("the other line is %q, want the next dialogue's %q", got, want)
	}
	if diff := cmp.Diff(first.Texts["placebo-1"], second.Texts["placebo-1"]); diff != "" {
		t.Errorf("placebos differ between items:\n%s", diff)
	}
}

// TestGivenLines takes lines from elsewhere: nothing is generated, and a line
// that is not there leaves its rows missing.
func TestGivenLines(t *testing.T) {
	x := extraction(t, &reader{}, mustPairs(t, "D,ND", "own-ND"))
	x.Given = map[string]map[string]string{"9001": {"own-ND": "given"}, "9002": {}}
	path := filepath.Join(t.TempDir(), "run")
	samples, err := extract(t, x, path, 2)
	if err != nil {
		t.Fatal(err)
	}
	if len(samples) != 2 {
		t.Errorf("%d samples, want 2: no line is generated", len(samples))
	}
	if st := statesOf(t, samples, "9002"); st.Missing["own-ND"] == "" || len(st.States) != 2 {
		t.Errorf("without a line: %d places and reason %q, want the two prompt ends and a reason", len(st.States), st.Missing["own-ND"])
	}
	f, err := activation.Open(filepath.Join(path, activation.Cell{Context: "ND", Text: "own-ND", Position: probe.UtteranceEnd}.File()))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for sample, want := range []bool{true, false} {
		if got, err := f.Has(sample); err != nil || got != want {
			t.Errorf("row %d is there: %v (%v), want %v", sample, got, err, want)
		}
	}
}

func TestTokenCountsMustBeTheServers(t *testing.T) {
	x := extraction(t, &reader{}, mustPairs(t, "ND", "placebo"))
	x.Expected = map[string]map[string]int{"9001": {"ND": 7}}
	_, err := extract(t, x, filepath.Join(t.TempDir(), "run"), 1)
	if err == nil || !strings.Contains(err.Error(), "had 7 on the server") {
		t.Errorf("error %v, want one that names both counts", err)
	}
}

// TestNonFiniteStatesAreCounted keeps the sample and says which layer failed.
func TestNonFiniteStatesAreCounted(t *testing.T) {
	bad := &infer.NonFiniteError{Layers: []infer.NonFinite{{Layer: "block.1", Rows: 1, Values: 2}}}
	x := extraction(t, &reader{fail: bad}, mustPairs(t, "ND", "placebo"))
	path := filepath.Join(t.TempDir(), "run")
	samples, err := extract(t, x, path, 1)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(bad.Layers, statesOf(t, samples, "9001").NonFinite); diff != "" {
		t.Errorf("non-finite states (-want +got):\n%s", diff)
	}
	f, err := activation.Open(filepath.Join(path, activation.Cell{Context: "ND", Text: "placebo-1", Position: probe.UtteranceEnd}.File()))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var refused *activation.NonFiniteError
	if _, err := f.Rows("block.1"); !errors.As(err, &refused) {
		t.Errorf("reading the layer gives %v, want it refused by name", err)
	}
	x = extraction(t, &reader{fail: errors.New("no memory")}, mustPairs(t, "ND", "placebo"))
	if _, err := extract(t, x, filepath.Join(t.TempDir(), "other"), 1); err == nil {
		t.Error("a failure of the model must fail the item")
	}
}

// TestContexts: D names the conflict's stage, wrong another one, ND none, and
// the context none shows no dialogue.
func TestContexts(t *testing.T) {
	x := extraction(t, &reader{}, nil)
	for _, d := range dialogue.Sample() {
		text := map[string]string{}
		for _, c := range []string{probe.ContextD, probe.ContextND, probe.ContextWrong, probe.ContextNone} {
			p, err := x.Prompt(d, c)
			if err != nil {
				t.Fatal(err)
			}
			text[c] = p.Messages[1].Content
		}
		stage := `"` + d.Stage.String() + `"`
		if !strings.Contains(text[probe.ContextD], stage) || strings.Contains(text[probe.ContextWrong], stage) || strings.Contains(text[probe.ContextND], stage) {
			t.Errorf("%s: the stage must be named in D alone", d.Key())
		}
		if !strings.Contains(text[probe.ContextWrong], "Pattern:") {
			t.Errorf("%s: the wrong context names no stage", d.Key())
		}
		if strings.Contains(text[probe.ContextNone], d.Unmediated()[0].Message) {
			t.Errorf("%s: the context none shows the dialogue", d.Key())
		}
	}
}
