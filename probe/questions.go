package probe

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/ccmed/ccmed/bench/dialogue"
	"github.com/ccmed/ccmed/bench/run"
	"github.com/ccmed/ccmed/infer"
	"github.com/ccmed/ccmed/probe/activation"
)

// questionCell is the end of the labeller's question, where its answer comes next.
var questionCell = activation.Cell{Context: "labeller", Text: "question", Position: PromptEnd, Kind: activation.Residual}

// timingCell is the end of the question whether a mediator should speak after a turn.
var timingCell = activation.Cell{Context: "timing", Text: "question", Position: PromptEnd, Kind: activation.Residual}

// Question asks for the stage of a recorded turn's own speaker, or whether a mediator should
// speak after it.
type Question struct {
	Turn   int
	Stage  string // as recorded; of the second kind that of the conflict
	Text   string // the turn alone
	Prompt infer.Prompt
}

// QuestionExtraction is a task that reads the states at the ends of the labeller's
// questions, one row a labelled turn: what a classifier is fitted to that answers them.
// The questions of a dialogue begin alike, and what they share is evaluated once.
type QuestionExtraction struct {
	// Timing says that the questions are whether a mediator should speak.
	Timing bool
	Reader StateReader
	Tokens Tokens
	Ask    func(dialogue.Dialogue) ([]Question, error)
	DType  activation.DType
	Model  infer.Model

	rowsOfTurns
	asked map[string][]Question
}

// HasRowsOfTurns tells whether a cell has a row for each turn of a dialogue.
func HasRowsOfTurns(c activation.Cell) bool {
	return c.Text == TextOriginal || c.Text == questionCell.Text
}

// HoldsQuestions tells whether a run directory holds states at the ends of the labeller's
// questions.
func HoldsQuestions(dir *run.Dir) bool { return holds(dir, questionCell) }

// HoldsTiming tells whether a run directory holds states at the ends of questions whether a
// mediator should speak.
func HoldsTiming(dir *run.Dir) bool { return holds(dir, timingCell) }

func holds(dir *run.Dir, c activation.Cell) bool {
	_, err := os.Stat(filepath.Join(dir.Path(), c.File()))
	return err == nil
}

// cell is where the states of the extraction lie.
func (x *QuestionExtraction) cell() activation.Cell {
	if x.Timing {
		return timingCell
	}
	return questionCell
}

// Use sets the dialogues, which give the rows. An extraction that goes on, or is one of
// several shards, gets all of them.
func (x *QuestionExtraction) Use(ds []dialogue.Dialogue) error {
	x.asked = map[string][]Question{}
	err := x.use(ds, func(d dialogue.Dialogue) (int, error) {
		qs, err := x.Ask(d)
		if err != nil {
			return 0, fmt.Errorf("ask about dialogue %s: %w", d.Key(), err)
		}
		x.asked[d.Key()] = qs
		return len(qs), nil
	})
	if err != nil {
		return err
	}
	if x.total == 0 {
		return errors.New("no turn of the dialogues carries the name of a stage; there is nothing to ask about")
	}
	return nil
}

// Bytes is what the file needs on disk.
func (x *QuestionExtraction) Bytes() int64 {
	size := int64(4)
	if x.DType == activation.F16 {
		size = 2
	}
	return int64(x.total) * int64(len(x.Reader.Layers())) * int64(x.Reader.Width()) * size
}

// Open makes the file of states in the run directory, or opens the one that is there to
// go on with it. Use comes before it. The caller closes the extraction.
func (x *QuestionExtraction) Open(ctx context.Context, dir *run.Dir) (err error) {
	x.files, err = createCells(ctx, dir, activation.Spec{Model: activation.ModelOf(x.Model), Layers: x.Reader.Layers(), Width: x.Reader.Width(), DType: x.DType},
		[]activation.Cell{x.cell()}, func(activation.Cell) int { return x.total })
	return err
}

// Task returns the extraction over the dialogues that Use got.
func (x *QuestionExtraction) Task() run.Task[dialogue.Dialogue] { return x.task(x.states) }

func (x *QuestionExtraction) states(ctx context.Context, _ infer.Backend, u run.Unit[dialogue.Dialogue], _ run.Lookup) (run.Sample, error) {
	d := u.Value
	out := TurnStates{Stage: d.Stage.String(), Context: d.ContextKey(), Turn: d.ConflictTurn}
	var seqs []infer.Sequence
	places := map[want][]place{}
	for i, q := range x.asked[u.Item] {
		tokens, err := x.Tokens(ctx, q.Prompt, "")
		if err != nil {
			return run.Sample{}, fmt.Errorf("tokenise the question about turn %d: %w", q.Turn, err)
		}
		at, row := len(tokens)-1, x.first[u.Item]+i
		seqs = append(seqs, infer.Sequence{Tokens: tokens, At: []int{at}, Prompt: len(tokens), Hash: q.Prompt.Hash()})
		places[want{i, at}] = []place{{x.cell(), row}}
		out.States = append(out.States, activation.Place{Cell: x.cell(), Row: row, Tokens: len(tokens), Token: at})
		out.Turns = append(out.Turns, TurnState{Turn: q.Turn, Row: row, Label: q.Stage, Scripted: q.Turn == d.ConflictTurn, Text: q.Text})
	}
	return x.keep(ctx, x.Reader, &out, seqs, places)
}
