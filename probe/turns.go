package probe

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/ccmed/ccmed/bench/dialogue"
	"github.com/ccmed/ccmed/bench/dmis"
	"github.com/ccmed/ccmed/bench/prompt"
	"github.com/ccmed/ccmed/bench/run"
	"github.com/ccmed/ccmed/infer"
	"github.com/ccmed/ccmed/probe/activation"
)

// ContextTranscript is the mediator's ND prompt as far as its transcript goes:
// nothing has been asked yet. The transcript is that of the dialogue as it went
// without a mediator.
const ContextTranscript = "transcript"

// TextOriginal is the transcript as it is, in cells at TurnEnd. The names of
// edits stand for the transcript with the conflict turn edited.
const TextOriginal = "original"

// TurnEnd is the line break that ends a turn: the same token for every turn,
// where the vocabulary does not join it with a full stop before.
const TurnEnd = "turn_end"

// TurnExtraction is a task that reads the states at the end of the conflict
// agent's own turns: of the scripted one, in which the conflict breaks out, and
// of all later ones, which nobody scripted. One evaluation a dialogue gives all
// of them, since a state depends on nothing that comes after it.
type TurnExtraction struct {
	Reader   StateReader
	Render   func(context.Context, infer.Prompt) (string, error)
	Tokens   Tokens
	Controls *infer.Controls // of the model, which Render may break
	Prompts  *prompt.Set
	Edits    []string // of the conflict turn: EditMask, EditStrip, EditSwap
	DType    activation.DType
	Model    infer.Model
	Seed     int64 // of the phrases that EditSwap takes

	rowsOfTurns
	rows   map[string]int // of each dialogue, in the cells of edits
	editor *Editor
}

// TurnState is one own turn of the conflict agent.
type TurnState struct {
	Turn     int    `json:"turn"`
	Row      int    `json:"row"`      // in the cell of TextOriginal
	Label    string `json:"label"`    // the stage after the turn, as released
	Scripted bool   `json:"scripted"` // it is the conflict turn
	Text     string `json:"text"`
}

// TurnStates is the data of a sample of a TurnExtraction.
type TurnStates struct {
	activation.Places
	Stage   string            `json:"stage"`
	Context string            `json:"context"` // hash of the scenario context, the group of all statistics
	Turn    int               `json:"turn"`    // in which the conflict breaks out
	Turns   []TurnState       `json:"turns"`
	Edits   map[string]Edited `json:"edits,omitempty"`
	Missing map[string]string `json:"missing,omitempty"` // edit to reason
	// NonFinite counts the states that are no numbers, by layer.
	NonFinite []infer.NonFinite `json:"non_finite,omitempty"`
}

func turnCell(text string) activation.Cell {
	return activation.Cell{Context: ContextTranscript, Text: text, Position: TurnEnd}
}

// HoldsTurns tells whether a run directory holds states at TurnEnd.
func HoldsTurns(dir *run.Dir) bool { return holds(dir, turnCell(TextOriginal)) }

// ownTurns are the conflict turn and the later ones of the conflict agent that
// carry the name of a stage.
func ownTurns(d dialogue.Dialogue) []dialogue.Turn {
	var out []dialogue.Turn
	for _, t := range d.Unmediated()[d.ConflictTurn-1:] {
		if _, err := dmis.ParseStage(t.Label); err == nil && t.Agent == d.ConflictAgent {
			out = append(out, t)
		}
	}
	return out
}

// plain returns turns without white space at the ends of their messages and with
// single spaces for line breaks: how white space before the line break of a turn
// is tokenised depends on what follows it.
func plain(turns []dialogue.Turn) []dialogue.Turn {
	out := slices.Clone(turns)
	for i := range out {
		out[i].Message = strings.Join(strings.Fields(out[i].Message), " ")
	}
	return out
}

// Cells lists the cells that the extraction fills.
func (x *TurnExtraction) Cells() []activation.Cell {
	out := []activation.Cell{turnCell(TextOriginal)}
	for _, e := range x.Edits {
		out = append(out, turnCell(e))
	}
	return out
}

// Use sets the dialogues, which give the rows, and learns the edits from them.
// An extraction that goes on, or is one of several shards, gets all of them.
func (x *TurnExtraction) Use(ds []dialogue.Dialogue) error {
	for i, e := range x.Edits {
		if !slices.Contains(Edits, e) {
			return fmt.Errorf("unknown edit %q; known are %s", e, strings.Join(Edits, ", "))
		}
		if slices.Contains(x.Edits[:i], e) {
			return fmt.Errorf("the edit %s is named twice", e)
		}
	}
	x.rows = map[string]int{}
	if err := x.use(ds, func(d dialogue.Dialogue) (int, error) { return len(ownTurns(d)), nil }); err != nil {
		return err
	}
	var turns []ScriptedTurn
	for i, d := range ds {
		x.rows[d.Key()] = i
		turns = append(turns, ScriptedTurn{Item: d.Key(), Stage: d.Stage, Text: plain(d.Unmediated())[d.ConflictTurn-1].Message})
	}
	if x.total == 0 {
		return errors.New("no turn of a conflict agent carries the name of a stage; there are no states to read")
	}
	x.editor = NewEditor(turns, uint64(x.Seed))
	return nil
}

func (x *TurnExtraction) samples(c activation.Cell) int {
	if c.Text == TextOriginal {
		return x.total
	}
	return len(x.order)
}

// Bytes is what the files need on disk.
func (x *TurnExtraction) Bytes() int64 {
	size := int64(4)
	if x.DType == activation.F16 {
		size = 2
	}
	n := 0
	for _, c := range x.Cells() {
		n += x.samples(c)
	}
	return int64(n) * int64(len(x.Reader.Layers())) * int64(x.Reader.Width()) * size
}

// Open makes the files of the cells in the run directory, or opens those that
// are there to go on with them. Use comes before it. The caller closes the
// extraction.
func (x *TurnExtraction) Open(ctx context.Context, dir *run.Dir) (err error) {
	x.files, err = createCells(ctx, dir, activation.Spec{Model: activation.ModelOf(x.Model), Layers: x.Reader.Layers(), Width: x.Reader.Width(), DType: x.DType},
		x.Cells(), x.samples)
	return err
}

// Task returns the extraction over the dialogues that Use got.
func (x *TurnExtraction) Task() run.Task[dialogue.Dialogue] { return x.task(x.states) }

// Prompt is the mediator's ND prompt after the whole dialogue. What follows the
// transcript in it is cut off before the model reads it.
func (x *TurnExtraction) Prompt(d dialogue.Dialogue) (infer.Prompt, error) {
	return x.prompt(plain(d.Unmediated()))
}

func (x *TurnExtraction) prompt(turns []dialogue.Turn) (infer.Prompt, error) {
	return x.Prompts.Build("mediate", map[string]any{"Transcript": dialogue.Transcript(turns), "Turn": len(turns), "Stage": "", "Speaker": "", "Pattern": "", "Move": ""})
}

// transcript renders the prompt of turns and returns it up to the transcript, and
// the tokens of it with the transcript up to the end of turn last.
func (x *TurnExtraction) transcript(ctx context.Context, turns []dialogue.Turn, last int) (before string, tokens []int32, err error) {
	p, err := x.prompt(turns)
	if err != nil {
		return "", nil, err
	}
	rendered, err := x.Render(ctx, p)
	if err != nil {
		return "", nil, fmt.Errorf("render the prompt: %w", err)
	}
	// A template may trim what it is given, so the last line break is not looked for.
	text := strings.TrimSuffix(dialogue.Transcript(turns), "\n")
	before, _, ok := strings.Cut(rendered, text)
	if !ok {
		before, _, ok = strings.Cut(rendered, x.Controls.Break(text))
	}
	if !ok {
		return "", nil, errors.New("the rendered prompt does not hold the transcript as it is: the ends of turns have no place; use a template mediate that shows {{.Transcript}}")
	}
	tokens, err = x.Tokens(ctx, infer.Prompt{Raw: before}, dialogue.Transcript(turns[:last]))
	if err != nil {
		return "", nil, fmt.Errorf("tokenise the transcript: %w", err)
	}
	return before, tokens, nil
}

// end returns the index of the token that ends the given number of turns.
func (x *TurnExtraction) end(ctx context.Context, before string, turns []dialogue.Turn, tokens []int32) (int, error) {
	part, err := x.Tokens(ctx, infer.Prompt{Raw: before}, dialogue.Transcript(turns))
	if err != nil {
		return 0, fmt.Errorf("tokenise the transcript up to turn %d: %w", len(turns), err)
	}
	if len(part) == 0 || len(part) > len(tokens) || !slices.Equal(tokens[:len(part)], part) {
		return 0, fmt.Errorf("a token of this vocabulary spans the end of turn %d and what follows: turn_end has no place", len(turns))
	}
	return len(part) - 1, nil
}

func (x *TurnExtraction) states(ctx context.Context, _ infer.Backend, u run.Unit[dialogue.Dialogue], _ run.Lookup) (run.Sample, error) {
	d := u.Value
	out := TurnStates{Stage: d.Stage.String(), Context: d.ContextKey(), Turn: d.ConflictTurn, Edits: map[string]Edited{}, Missing: map[string]string{}}
	turns, own := plain(d.Unmediated()), ownTurns(d)
	last := d.ConflictTurn
	if len(own) > 0 {
		last = own[len(own)-1].T
	}
	var seqs []infer.Sequence
	places := map[want][]place{}
	add := func(seq, at int, p place) {
		w := want{seq, at}
		if places[w] == nil {
			seqs[seq].At = append(seqs[seq].At, at)
		}
		places[w] = append(places[w], p)
		out.States = append(out.States, activation.Place{Cell: p.cell, Row: p.row, Tokens: len(seqs[seq].Tokens), Token: at})
	}
	before, tokens, err := x.transcript(ctx, turns, last)
	if err != nil {
		return run.Sample{}, err
	}
	seqs = append(seqs, infer.Sequence{Tokens: tokens})
	for i, t := range own {
		at, err := x.end(ctx, before, turns[:t.T], tokens)
		if err != nil {
			return run.Sample{}, err
		}
		row := x.first[u.Item] + i
		add(0, at, place{turnCell(TextOriginal), row})
		out.Turns = append(out.Turns, TurnState{Turn: t.T, Row: row, Label: t.Label, Scripted: t.T == d.ConflictTurn, Text: turns[t.T-1].Message})
	}
	for _, e := range x.Edits {
		to := place{turnCell(e), x.rows[u.Item]}
		if e == EditStrip {
			if d.ConflictTurn < 2 {
				out.Missing[e] = "no turn before the conflict"
				continue
			}
			at, err := x.end(ctx, before, turns[:d.ConflictTurn-1], tokens)
			if err != nil {
				return run.Sample{}, err
			}
			add(0, at, to)
			out.Edits[e] = Edited{Text: turns[d.ConflictTurn-2].Message}
			continue
		}
		edited, missing := x.editor.Edit(e, u.Item)
		if missing != "" {
			out.Missing[e] = missing
			continue
		}
		out.Edits[e] = edited
		changed := slices.Clone(turns[:d.ConflictTurn])
		changed[d.ConflictTurn-1].Message = edited.Text
		_, ts, err := x.transcript(ctx, changed, d.ConflictTurn)
		if err != nil {
			return run.Sample{}, fmt.Errorf("edit %s: %w", e, err)
		}
		seqs = append(seqs, infer.Sequence{Tokens: ts})
		add(len(seqs)-1, len(ts)-1, to)
	}
	return x.keep(ctx, x.Reader, &out, seqs, places)
}

// Markers returns how many marker phrases of each stage the edits go by.
func (x *TurnExtraction) Markers() map[dmis.Stage]int { return x.editor.Markers() }
