package sft

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ccmed/ccmed/bench/dialogue"
	"github.com/ccmed/ccmed/infer"
	"github.com/ccmed/ccmed/infer/infertest"
)

func TestDiverges(t *testing.T) {
	w := func(text string) word { return word{text: []byte(text)} }
	end := word{ends: true}
	for _, c := range []struct {
		name, text, stop string
		want             []word
		at               int
	}{
		{"equal and cut", " one two", "length", []word{w(" one"), w(" two")}, 2},
		{"equal and ended", " one", "stop", []word{w(" one"), end}, 2},
		{"more than was asked of PyTorch", " one two three", "length", []word{w(" one"), w(" two")}, 2},
		{"other tokens, one text", " one two", "length", []word{w(" o"), w("ne tw"), w("o")}, 3},
		{"another word", " one too", "length", []word{w(" one"), w(" two")}, 1},
		{"ended early", " one", "stop", []word{w(" one"), w(" two")}, 1},
		{"ran on", " one two", "stop", []word{w(" one"), end}, 1},
		{"ran on without a text", " one", "length", []word{w(" one"), end}, 1},
		{"a control token shows no text", " one", "stop", []word{w(" one"), w(""), end}, 3},
		{"ended at once", "", "stop", []word{end}, 1},
		{"half a character", "\xe2\x80", "length", []word{w("\xe2\x80"), w("\x99")}, 1},
		{"nothing to follow", "x", "stop", nil, 0},
	} {
		if got := diverges(c.want, c.text, c.stop); got != c.at {
			t.Errorf("%s: token %d, want %d", c.name, got, c.at)
		}
	}
}

// spelling gives token 'a'+i the letter; token 0 ends a text.
type spelling struct{}

func (spelling) Piece(t int32) ([]byte, bool, error) {
	if t < 0 {
		return nil, false, fmt.Errorf("token %d", t)
	}
	return []byte(string(rune(t))), t == 0, nil
}

func letters(s string, gap ...float64) Reference {
	r := Reference{Held: Held{ID: s, Dialogue: "x" + TurnEnd, At: 1}, Gap: gap}
	for _, c := range s {
		if c == '_' { // the model's own end
			c = 0
		}
		r.Greedy = append(r.Greedy, c)
	}
	return r
}

func TestProveWords(t *testing.T) {
	says := func(text, stop string) infer.Backend {
		return &infertest.Scripted{Say: func(p infer.Prompt, o infer.Params) infer.Reply {
			if p.Raw != "x"+TurnEnd+Speak || !slices.Equal(o.Stop, []string{EndSpeak}) || o.Temperature != 0 {
				return infer.Reply{Text: "not what was asked"}
			}
			return infer.Reply{Text: text, Stop: stop}
		}}
	}
	marker := MarkerTokens{EndSpeak: 'Z'}
	for _, c := range []struct {
		name, text, stop string
		ref              Reference
		quantization     string
		greedy, ends     bool
		wrong            float64
		notRun           bool
	}{
		{"equal", "ab", "stop", letters("abZ", 9, 9, 9), "F16", true, true, 0, false},
		{"the model's own end", "ab", "stop", letters("ab_", 9, 9, 9), "F16", true, true, 0, false},
		{"no end to compare", "ab", "length", letters("ab", 9, 9), "F16", true, false, 0, true},
		{"another token where PyTorch is sure", "ax", "stop", letters("abZ", 9, 0.06, 9), "F16", false, false, 1, true},
		{"another token where rounding decides", "ax", "stop", letters("abZ", 9, 0.05, 9), "F16", true, false, 0, true},
		{"runs on", "abc", "length", letters("abZ", 9, 9, 9), "F16", false, false, 1, false},
		{"a disagreement of quantised weights", "ax", "stop", letters("abZ", 9, 9, 9), "Q8_0", true, false, 1, true},
	} {
		p := &Package{Card: Card{Quantization: c.quantization}}
		ps, err := p.ProveWords(t.Context(), "test", says(c.text, c.stop), spelling{}, marker, []Reference{c.ref})
		if err != nil || len(ps) != 2 {
			t.Fatalf("%s: %v %v", c.name, ps, err)
		}
		if ps[0].OK != c.greedy || *ps[0].Value != c.wrong || (ps[0].Limit != nil) != (c.quantization == "F16") {
			t.Errorf("%s: %+v", c.name, ps[0])
		}
		if ps[1].OK != c.ends || (ps[1].NotRun != "") != c.notRun {
			t.Errorf("%s: %+v", c.name, ps[1])
		}
		if failed := Failed(ps); (failed != nil) != (!c.greedy || !c.ends && !c.notRun) {
			t.Errorf("%s: %v", c.name, failed)
		}
	}
}

func TestFailed(t *testing.T) {
	limit := 0.5
	ps := []Proof{holds("a", "fine"), NotRun("b", "left out"), measured("c", "near", 0.5, &limit), measured("d", "only told", 7, nil)}
	if err := Failed(ps); err != nil {
		t.Errorf("nothing failed: %v", err)
	}
	ps = append(ps, measured("far", "too far", 0.51, &limit), holds("bad", "fine", "lost"))
	if err := Failed(ps); err == nil || err.Error() != "not proved: far: too far; bad: lost" {
		t.Errorf("error %v", err)
	}
}

// engine is a Prover with the tokens and states of counting.
type engine struct {
	counting
	infertest.Scripted
	spelling
	width int
}

func (e *engine) Width() int { return e.width }

func TestProve(t *testing.T) {
	d := shout(dialogue.Sample()[:1], 3)[0]
	held, err := HoldDialogues([]dialogue.Dialogue{d})
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	h := &Head{Weight: []float64{1}, Bias: -0.5, Model: "sha256:aa"}
	if err := h.Write(filepath.Join(dir, HeadFile)); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name   string
		change func(*Package, *engine, *Reference)
		failed string // name of the proof
		words  string
	}{
		{"all holds", func(*Package, *engine, *Reference) {}, "", ""},
		{"another width", func(_ *Package, e *engine, _ *Reference) { e.width = 2 }, ProofHead, "width 1"},
		{"another model", func(_ *Package, e *engine, _ *Reference) { e.Identity.Digest = "sha256:bb" }, ProofHead, "sha256:bb"},
		{"no head", func(p *Package, _ *engine, _ *Reference) { p.Dir = filepath.Join(dir, "none") }, ProofHead, "none"},
		{"other markers", func(p *Package, _ *engine, _ *Reference) { p.Card.Markers = map[string]int32{TurnEnd: 1} }, ProofMarkers, "in training"},
		{"other tokens", func(_ *Package, _ *engine, r *Reference) { r.Tokens[7]++ }, ProofTokens, "number 7"},
		{"a token too many", func(_ *Package, _ *engine, r *Reference) { r.Tokens = append(r.Tokens, 1) }, ProofTokens, "dialogue " + d.Key()},
		{"another P", func(_ *Package, _ *engine, r *Reference) { r.P[3] += 0.021 }, ProofP, "turn 4"},
		{"almost another P", func(_ *Package, _ *engine, r *Reference) { r.P[3] += 0.019 }, "", ""},
		{"a turn too few", func(_ *Package, _ *engine, r *Reference) { r.P = r.P[1:] }, ProofP, "in PyTorch"},
		{"other words", func(_ *Package, _ *engine, r *Reference) { r.Greedy[0] = 'b' }, ProofGreedy + ", embedded engine", "token 1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			e := &engine{width: 1}
			e.Identity = infer.Model{Name: "tuned", Digest: h.Model}
			e.Say = func(infer.Prompt, infer.Params) infer.Reply { return infer.Reply{Text: "a", Stop: "stop"} }
			p := &Package{Dir: dir, Card: Card{Quantization: "F16", Markers: map[string]int32{TurnEnd: bytesEnd, Speak: bytesEnd + 1, EndSpeak: bytesEnd + 2}}}
			ref := Reference{Held: held[0], Greedy: []int32{'a', bytesEnd + 2}, Gap: []float64{1, 1}}
			if ref.Tokens, err = e.LiteralTokens(ref.Dialogue); err != nil {
				t.Fatal(err)
			}
			for turn := range d.LastTurn() {
				ref.P = append(ref.P, sigmoid(-0.5))
				if turn >= 2 {
					ref.P[turn] = sigmoid(0.5)
				}
			}
			c.change(p, e, &ref)
			ps, err := p.Prove(t.Context(), e, []Reference{ref})
			if err != nil {
				t.Fatal(err)
			}
			var failed []string
			for _, p := range ps {
				if !p.OK && p.NotRun == "" {
					failed = append(failed, p.Name)
				}
			}
			if c.failed == "" {
				if len(failed) > 0 || len(ps) != 6 {
					t.Errorf("%d proofs, %v failed: %v", len(ps), failed, Failed(ps))
				}
				return
			}
			if !slices.Equal(failed, []string{c.failed}) || !strings.Contains(Failed(ps).Error(), c.words) {
				t.Errorf("%v failed (%v), want %s about %q", failed, Failed(ps), c.failed, c.words)
			}
		})
	}
}

func TestProveRendered(t *testing.T) {
	ctx := context.Background()
	p, err := ProveRendered(ctx, &infertest.Scripted{}, &infertest.Scripted{}, ChatPrompts(), "")
	if err != nil || !p.OK {
		t.Errorf("one template: %+v %v", p, err)
	}
	p, err = ProveRendered(ctx, &infertest.Scripted{}, shouting{&infertest.Scripted{}}, ChatPrompts(), "")
	if err != nil || p.OK || !strings.Contains(p.Detail, "prompt 1 of 4") {
		t.Errorf("two templates: %+v %v", p, err)
	}
}

// shouting renders in capitals.
type shouting struct{ infer.Backend }

func (s shouting) Render(ctx context.Context, p infer.Prompt) (string, error) {
	r, err := s.Backend.Render(ctx, p)
	return strings.ToUpper(r), err
}

func TestReadHeld(t *testing.T) {
	dir := t.TempDir()
	if _, err := WriteExport(t.Context(), dir, dialogue.Sample(), ExportOptions{Fraction: 0.25}); err != nil {
		t.Fatal(err)
	}
	held, err := ReadHeld(filepath.Join(dir, TrainFile))
	if err != nil || len(held) == 0 {
		t.Fatalf("%d held, %v", len(held), err)
	}
	for _, h := range held {
		d := dialogue.Sample()[slices.IndexFunc(dialogue.Sample(), func(d dialogue.Dialogue) bool { return d.Key() == h.ID })]
		if want := Sequence(d, d.ConflictTurn) + Speak; h.prompt() != want {
			t.Errorf("dialogue %s is continued from\n%s\nwant\n%s", h.ID, h.prompt(), want)
		}
	}
	for content, want := range map[string]string{
		"":           "holds no records",
		`{"id":"1"}`: "record 1: it has no dialogue",
		`{"id":"1","dialogue":"a<TURN_END>","gold":2}`:                 "record 1: it has the gold turn 2 and a dialogue of 1 turns",
		`{"id":"1","dialogue":"a<TURN_END>","gold":1,"Gold":2}`:        "record 1: field Gold: the keys",
		`{"id":"1","dialogue":"a<TURN_END>","gold":1,"labels":[null]}`: "record 1: field labels[0]: null",
		"\xEF\xBB\xBF{}":                  "record 1: byte 0: the text begins with a byte order mark",
		`{"id":"1","dialogue":"x"` + "\n": "record 1",
	} {
		path := filepath.Join(dir, "bad.jsonl")
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := ReadHeld(path); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), path) {
			t.Errorf("%q: error %v, want %s", content, err, want)
		}
	}
}
