package sft

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/ccmed/ccmed/bench/dialogue"
	"github.com/ccmed/ccmed/bench/run"
	"github.com/ccmed/ccmed/bench/timing"
	"github.com/ccmed/ccmed/infer"
)

// Reader tokenises for a tuned model and reads its hidden states; a
// *llamacpp.Engine is one.
type Reader interface {
	// Tokenize adds no beginning-of-sequence token and recognises control tokens;
	// LiteralTokens adds one where the model wants it, and takes the text of a
	// control token for text. Both recognise markers.
	Tokenize(text string) ([]int32, error)
	LiteralTokens(text string) ([]int32, error)
	// States calls row with each wanted token's state, see llamacpp.Engine.
	States(ctx context.Context, seqs []infer.Sequence, layers []string, row func(seq, pos, layer int, x []float32) error) error
}

// MarkerTokens are the tokens of the markers in a vocabulary.
type MarkerTokens struct{ TurnEnd, Speak, EndSpeak int32 }

// MarkerTokensOf finds the markers' tokens. A vocabulary in which one of them is not
// a single token is that of another model: an error.
func MarkerTokensOf(r Reader) (MarkerTokens, error) {
	var m MarkerTokens
	for text, id := range map[string]*int32{TurnEnd: &m.TurnEnd, Speak: &m.Speak, EndSpeak: &m.EndSpeak} {
		ts, err := r.Tokenize(text)
		if err != nil {
			return m, fmt.Errorf("tokenise %s: %w", text, err)
		}
		if len(ts) != 1 {
			return m, fmt.Errorf("%s is %d tokens of this model and not one: it was not tuned by `ccmed sft train`, or its conversion lost the markers", text, len(ts))
		}
		*id = ts[0]
	}
	return m, nil
}

// Prediction reads when a tuned model steps in, and what it says.
type Prediction struct {
	Reader  Reader
	Head    *Head
	Markers MarkerTokens
	// Threshold is the P(speak) from which the model steps in; 0 means 0.5.
	Threshold float64
	FirstTurn int // predictions start here; 0 means 3
	MaxTokens int // of an utterance; 0 means 160
	Seed      int64
	// Reword, unless nil, changes every message before the model reads it.
	Reword func(message string) string
}

// Steps of a prediction. The first one's samples are timing's.
const (
	StepDecide    = timing.StepDecide
	StepUtterance = timing.StepUtterance
)

func (p *Prediction) withDefaults() Prediction {
	q := *p
	if q.Threshold == 0 {
		q.Threshold = 0.5
	}
	if q.FirstTurn == 0 {
		q.FirstTurn = 3
	}
	if q.MaxTokens == 0 {
		q.MaxTokens = 160
	}
	return q
}

// Task returns the prediction over dialogues: first the decisions, then the
// utterances, because an engine keeps one context for reading states and another
// for writing. It refuses dialogues whose text holds a marker.
func (p *Prediction) Task(ds []dialogue.Dialogue) (run.Task[dialogue.Dialogue], error) {
	q := p.withDefaults()
	t := run.Task[dialogue.Dialogue]{Name: "timing"}
	for _, d := range ds {
		if err := markerFree(q.read(d), ""); err != nil {
			return run.Task[dialogue.Dialogue]{}, err
		}
		t.Units = append(t.Units, run.Unit[dialogue.Dialogue]{Item: d.Key(), Condition: string(timing.DualHead), Group: d.Key(), Value: d})
	}
	t.Steps = []run.Step[dialogue.Dialogue]{
		{Name: StepDecide, Role: timing.Role, Do: q.decide},
		{Name: StepUtterance, Role: timing.Role, Do: q.utter},
	}
	return t, nil
}

// Text is what the model reads of the first turns of a dialogue.
func (p *Prediction) Text(d dialogue.Dialogue, turns int) string {
	return Sequence(p.read(d), turns)
}

// read is the dialogue as the model reads it.
func (p *Prediction) read(d dialogue.Dialogue) dialogue.Dialogue {
	if p.Reword == nil {
		return d
	}
	return d.Reword(p.Reword)
}

// Prompt is what an utterance after the turn is decoded from.
func (p *Prediction) Prompt(d dialogue.Dialogue, turn int) infer.Prompt {
	return infer.Prompt{Raw: p.Text(d, turn) + Speak, Literal: true}
}

// Curve returns the head's P(speak), from 0 to 1, after each turn that a sequence
// closes: one evaluation of the sequence gives all of them.
func (p *Prediction) Curve(ctx context.Context, text string) ([]float64, error) {
	tokens, err := p.Reader.LiteralTokens(text)
	if err != nil {
		return nil, fmt.Errorf("tokenise a dialogue: %w", err)
	}
	var at []int
	for i, t := range tokens {
		if t == p.Markers.TurnEnd {
			at = append(at, i)
		}
	}
	if want := strings.Count(text, TurnEnd); len(at) != want {
		return nil, fmt.Errorf("a text with %d times %s has %d such tokens: the tokenizer does not keep the marker apart", want, TurnEnd, len(at))
	}
	curve := make([]float64, len(at))
	err = p.Reader.States(ctx, []infer.Sequence{{Tokens: tokens, At: at}}, []string{infer.LayerFinalNorm}, func(_, pos, _ int, x []float32) error {
		if len(x) != len(p.Head.Weight) {
			return fmt.Errorf("%w: it reads states of width %d and got one of %d", ErrOtherHead, len(p.Head.Weight), len(x))
		}
		i, _ := slices.BinarySearch(at, pos)
		curve[i] = p.Head.P(x)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read the states after each turn: %w", err)
	}
	return curve, nil
}

func (p Prediction) decide(ctx context.Context, _ infer.Backend, u run.Unit[dialogue.Dialogue], _ run.Lookup) (run.Sample, error) {
	d := u.Value
	curve, err := p.Curve(ctx, p.Text(d, d.LastTurn()))
	var bad *infer.NonFiniteError
	unscored := ""
	if errors.As(err, &bad) {
		unscored, curve = bad.Error(), make([]float64, d.LastTurn())
	} else if err != nil {
		return run.Sample{}, err
	}
	dec, err := timing.DecideAt(p.read(d), curve, p.FirstTurn, p.Threshold) // with the lengths that the model read
	if err != nil {
		return run.Sample{}, err
	}
	if unscored != "" {
		dec.Curve, dec.Predicted = nil, 0
	}
	return encoded(dec, unscored)
}

func (p Prediction) utter(ctx context.Context, b infer.Backend, u run.Unit[dialogue.Dialogue], look run.Lookup) (run.Sample, error) {
	d := u.Value
	s, ok := look(StepDecide)
	if !ok {
		return run.Sample{}, fmt.Errorf("the decision about %s is missing", u.Item)
	}
	var dec timing.Decision
	if err := json.Unmarshal(s.Data, &dec); err != nil {
		return run.Sample{}, fmt.Errorf("read the decision about %s: %w", u.Item, err)
	}
	out := timing.Utterance{Gold: dec.Gold, Turn: dec.Predicted, LastTurn: dec.LastTurn, Stage: dec.Stage, Context: dec.Context, Source: "none"}
	switch {
	case s.Unscored != "":
		return encoded(out, s.Unscored)
	case out.Turn == 0:
		return encoded(out, timing.NotSpoken)
	}
	r, err := b.Chat(ctx, p.Prompt(d, out.Turn), infer.Params{MaxTokens: p.MaxTokens, TopP: 1, Seed: p.Seed, Stop: []string{EndSpeak}})
	if err != nil {
		return run.Sample{}, fmt.Errorf("write the utterance: %w", err)
	}
	out.Text, out.Source, out.Stop = strings.TrimSpace(r.Text), "model", r.Stop
	if out.Text == "" {
		return encoded(out, "the model said nothing")
	}
	return encoded(out, "")
}

func encoded(data any, unscored string) (run.Sample, error) {
	b, err := json.Marshal(data)
	if err != nil {
		return run.Sample{}, fmt.Errorf("encode a sample: %w", err)
	}
	return run.Sample{Unscored: unscored, Data: b}, nil
}
