package probe_test

import (
	"context"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ccmed/ccmed/bench/dialogue"
	"github.com/ccmed/ccmed/bench/dmis"
	"github.com/ccmed/ccmed/bench/run"
	"github.com/ccmed/ccmed/infer"
	"github.com/ccmed/ccmed/probe"
)

// world is a model whose truth is known: in which share of the dialogues the state at the
// end of a line holds the stage, or what the speakers disagree about.
type world struct {
	reader
	ds   []dialogue.Dialogue
	seed uint64
	// stage and topic are shares by context and text ("own-D", "own-ND", "fixed"), in the
	// last block; early is that of the stage in the block before, whatever the cell.
	stage, topic func(context, text string) float64
	early        float64
	// words are the shares of D and of ND lines that name the stage.
	words [2]float64
	// wrong is the share of dialogues whose states hold another stage than the record says.
	wrong float64
	// offset is added to all states at the end of a line.
	offset float32
}

func (*world) Layers() []string { return infer.LayerNames(2) }
func (*world) Width() int       { return 15 }

// draw is a number in 0..1 of a dialogue, for one purpose.
func (w *world) draw(d dialogue.Dialogue, purpose string) float64 {
	h := fnv.New64a()
	fmt.Fprint(h, d.ID, purpose)
	return rand.New(rand.NewPCG(h.Sum64(), w.seed)).Float64()
}

func (w *world) dialogueOf(text string) dialogue.Dialogue {
	var out dialogue.Dialogue
	most := 0
	for _, d := range w.ds { // the text of dialogue 1 is within that of 11
		if first := d.Unmediated()[0].Message; len(first) > most && strings.Contains(text, first) {
			out, most = d, len(first)
		}
	}
	return out
}

// say is what the mediator says: with the stage's word where it fits, with another's
// elsewhere.
func (w *world) say(p infer.Prompt, _ infer.Params) infer.Reply {
	d := w.dialogueOf(p.Messages[1].Content)
	name, share := "ND", w.words[1]
	if strings.Contains(p.Messages[1].Content, "Pattern:") {
		name, share = "D", w.words[0]
	}
	word := int(d.Stage)
	if w.draw(d, "words") >= share {
		word = int(3 * w.draw(d, "word of "+name))
	}
	return infer.Reply{Text: fmt.Sprintf("my %s line is %s here", name, []string{"apples", "pears", "plums"}[word]), Stop: infer.StopEnd}
}

func (w *world) States(_ context.Context, seqs []infer.Sequence, layers []string, row func(seq, pos, layer int, x []float32) error) error {
	for i, s := range seqs {
		var b strings.Builder
		for _, t := range s.Tokens {
			if t < 256 {
				b.WriteByte(byte(t))
			}
		}
		text := b.String()
		d := w.dialogueOf(text)
		contextName, line := "ND", "fixed"
		for st := range dmis.Minimization + 1 {
			if strings.Contains(text, st.Pattern()) {
				contextName = "D"
			}
		}
		for _, own := range []string{"D", "ND"} {
			if strings.Contains(text, "my "+own+" line") {
				line = "own-" + own
			}
		}
		held := d.Stage
		if w.draw(d, "wrong") < w.wrong {
			held = (held + 1) % 3
		}
		for _, pos := range s.At {
			end := s.Tokens[pos] == endOfTurn
			for l, name := range layers {
				h := fnv.New64a()
				fmt.Fprint(h, text, name)
				rng := rand.New(rand.NewPCG(h.Sum64()^w.seed, uint64(pos)))
				x := make([]float32, w.Width())
				for j := range x {
					x[j] = float32(rng.NormFloat64())
					if end {
						x[j] += w.offset
					}
				}
				stage, topic := 0.0, 0.0
				switch {
				case name == "block.2" && end:
					stage, topic = w.stage(contextName, line), w.topic(contextName, line)
				case name == "block.1" && end:
					stage = w.early
				case name == "block.1" || name == "block.2":
					stage = 1
				}
				if w.draw(d, "stage") < stage {
					x[held] += 12
				}
				if w.draw(d, "topic") < topic {
					x[3+(d.ID-1)%100%12] += 12
				}
				if err := row(i, pos, l, x); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

func (w *world) find(t *testing.T) *probe.Findings {
	t.Helper()
	x := extraction(t, &w.reader, mustPairs(t, "D,ND", "own-D,own-ND,placebo"))
	x.Reader = w
	dir, err := run.Create(filepath.Join(t.TempDir(), "run"), run.Identity{Task: "extract"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	x.Use(w.ds)
	if err := x.Open(t.Context(), dir); err != nil {
		t.Fatal(err)
	}
	defer x.Close()
	if _, err := executed(t, x, dir, w.say); err != nil {
		t.Fatal(err)
	}
	if dir, err = run.Open(dir.Path()); err != nil {
		t.Fatal(err)
	}
	o := findOptions
	o.Dialogues, o.Least, o.Controls = w.ds, len(w.ds), -1
	f, err := probe.Find(t.Context(), dir, o)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// cells gives a share to each cell: after D and after ND the D line, the ND line and the
// fixed lines.
func cells(dOwnD, dOwnND, dFixed, ndOwnD, ndOwnND, ndFixed float64) func(context, text string) float64 {
	of := map[string]float64{"D own-D": dOwnD, "D own-ND": dOwnND, "D fixed": dFixed, "ND own-D": ndOwnD, "ND own-ND": ndOwnND, "ND fixed": ndFixed}
	return func(context, text string) float64 { return of[context+" "+text] }
}

func everywhere(share float64) func(context, text string) float64 {
	return cells(share, share, share, share, share, share)
}

// worlds are truths and the sentence that each must get; docs/probing.md lists them.
var worlds = []struct {
	name string
	want string
	world
}{
	{"writing loses the stage and nothing else", probe.Collapse,
		world{stage: cells(0.9, 0.55, 0.9, 0.7, 0.3, 0.9), topic: everywhere(0.85), early: 1, words: [2]float64{0.9, 0.3}}},
	{"the same, with the D lines read perfectly after D", probe.Collapse,
		world{stage: cells(1, 1, 1, 0.75, 0.3, 0.9), topic: everywhere(0.85), early: 1, words: [2]float64{0.9, 0.3}}},
	{"the same, with one label in eight wrong", probe.Collapse,
		world{stage: cells(0.95, 0.5, 0.95, 0.7, 0.2, 0.95), topic: everywhere(0.85), early: 1, words: [2]float64{0.9, 0.2}, wrong: 0.12}},
	{"the stage is read from the prompt alone", probe.NotSeparable,
		world{stage: cells(0.9, 0.9, 0.9, 0, 0, 0), topic: everywhere(0.85), early: 0.5, words: [2]float64{0.4, 0.4}}},
	{"the words fit better and nothing is lost", probe.NotSeparable,
		world{stage: cells(0.9, 0.5, 0.6, 0.8, 0.5, 0.5), topic: everywhere(0.85), early: 1, words: [2]float64{0.9, 0.3}}},
	{"an attribute loses more than the stage", probe.NotSeparable,
		world{stage: cells(0.9, 0.55, 0.9, 0.7, 0.5, 0.9), topic: cells(0.1, 0.1, 0.9, 0.1, 0.1, 0.9), early: 1, words: [2]float64{0.9, 0.3}}},
	{"after long lines everything is lost", probe.NotSeparable,
		world{stage: cells(0.9, 0.55, 0.9, 0.7, 0.3, 0.9), topic: cells(0.3, 0.3, 0.9, 0.3, 0.3, 0.9), early: 1, words: [2]float64{0.9, 0.3}}},
	{"the stage is in the late layer only", probe.NotSeparable,
		world{stage: cells(0.9, 0.55, 0.9, 0.7, 0.3, 0.9), topic: everywhere(0.85), early: 0, words: [2]float64{0.9, 0.3}}},
	{"the ND lines hold more than the D lines", probe.NotSeparable,
		world{stage: cells(0.6, 0.9, 0.9, 0.1, 0.3, 0.9), topic: everywhere(0.85), early: 1, words: [2]float64{0.9, 0.3}}},
	{"no room after D, nothing to lose after ND", probe.NotTestable,
		world{stage: cells(1, 1, 1, 0, 0, 0), topic: everywhere(0.85), early: 1, words: [2]float64{0.9, 0.3}}},
	{"no signal", probe.NotTestable,
		world{stage: everywhere(0), topic: everywhere(0), words: [2]float64{0.3, 0.3}}},
	{"only what the speakers disagree about, by context", probe.NotTestable,
		world{stage: everywhere(0), topic: everywhere(1), words: [2]float64{0.3, 0.3}}},
}

// No verdict can be had by a truth that contradicts it.
func TestWorldsGetTheirVerdicts(t *testing.T) {
	for _, w := range worlds {
		for seed := range uint64(3) {
			t.Run(fmt.Sprintf("%s/%d", w.name, seed), func(t *testing.T) {
				t.Parallel()
				truth := w.world
				truth.seed, truth.ds = seed, many(t, 12*int(seed), 12*int(seed)+12)
				v := truth.find(t).Verdict
				if v.Sentence != w.want {
					t.Errorf("%q, want %q: %q", v.Sentence, w.want, v.Reasons)
				}
			})
		}
	}
}

// States that lie apart by a constant fall into one class; re-centred they are read by the
// same direction.
func TestTransferOverAnOffset(t *testing.T) {
	w := world{stage: everywhere(0.9), topic: everywhere(0), early: 1, words: [2]float64{0.5, 0.5}, offset: 200, ds: many(t, 0, 6)}
	seen := 0
	for _, x := range w.find(t).Transfers {
		if x.From.Position == x.To.Position {
			continue
		}
		seen++
		last := 2 // block.2
		if x.Accuracy[last].Value > 0.6 || x.TopShare[last] < 0.8 || x.Recentred[last].Value < 0.8 || x.RecentredTopShare[last] > 0.5 {
			t.Errorf("%s to %s: accuracy %.3f with one class in %.3f, re-centred %.3f with one class in %.3f", x.From, x.To, x.Accuracy[last].Value, x.TopShare[last],
				x.Recentred[last].Value, x.RecentredTopShare[last])
		}
	}
	if seen != 2 {
		t.Errorf("%d transfers between positions, want 2", seen)
	}
}
