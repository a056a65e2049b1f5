package probe_test

import (
	"context"
	"encoding/json"
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ccmed/ccmed/bench/dialogue"
	"github.com/ccmed/ccmed/bench/run"
	"github.com/ccmed/ccmed/infer"
	"github.com/ccmed/ccmed/probe"
	"github.com/ccmed/ccmed/probe/activation"
)

func turnExtraction(t *testing.T, r probe.StateReader, edits ...string) *probe.TurnExtraction {
	t.Helper()
	x := extraction(t, &reader{}, nil)
	return &probe.TurnExtraction{Reader: r, Render: x.Render, PromptTokens: tokens, Prompts: x.Prompts, Edits: edits, DType: activation.F32, Model: x.Model, Seed: 1}
}

func extractTurns(t *testing.T, x *probe.TurnExtraction, path, shard string, ds []dialogue.Dialogue) (*run.Dir, error) {
	t.Helper()
	if err := x.Use(ds); err != nil {
		t.Fatal(err)
	}
	dir, err := run.Create(path, run.Identity{Task: "extract", Shard: shard}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := x.Open(t.Context(), dir); err != nil {
		t.Fatal(err)
	}
	_, err = run.Execute(t.Context(), dir, x.Task(), run.Options{Shard: shard})
	if err := errors.Join(err, x.Close()); err != nil {
		return nil, err
	}
	return run.Open(path)
}

func turnStates(t *testing.T, dir *run.Dir) map[string]probe.TurnStates {
	t.Helper()
	out := map[string]probe.TurnStates{}
	for s, err := range dir.All() {
		if err != nil {
			t.Fatal(err)
		}
		var st probe.TurnStates
		if err := json.Unmarshal(s.Data, &st); err != nil {
			t.Fatal(err)
		}
		out[s.Item] = st
	}
	return out
}

// spy keeps the sequences that it was asked for.
type spy struct {
	reader
	seqs []infer.Sequence
}

func (s *spy) States(ctx context.Context, seqs []infer.Sequence, layers []string, row func(seq, pos, layer int, x []float32) error) error {
	s.seqs = append(s.seqs, seqs...)
	return s.reader.States(ctx, seqs, layers, row)
}

func text(tokens []int32) string {
	var b strings.Builder
	for _, t := range tokens {
		b.WriteByte(byte(t))
	}
	return b.String()
}

// TestTurnStatesLieWhereTheyBelong holds every place against the text that a
// model has read by then: the transcript, with its edit, up to that turn.
func TestTurnStatesLieWhereTheyBelong(t *testing.T) {
	ds := dialogue.Sample()
	for _, d := range ds {
		r := &spy{}
		x := turnExtraction(t, r, probe.EditMask, probe.EditStrip, probe.EditSwap)
		// The rows of a dialogue are its own, whichever part of the task is done.
		if err := x.Use(ds); err != nil {
			t.Fatal(err)
		}
		dir, err := run.Create(filepath.Join(t.TempDir(), "run"), run.Identity{Task: "extract"}, nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := x.Open(t.Context(), dir); err != nil {
			t.Fatal(err)
		}
		task := x.Task()
		for _, u := range task.Units {
			if u.Item == d.Key() {
				task.Units = []run.Unit[dialogue.Dialogue]{u}
			}
		}
		if _, err := run.Execute(t.Context(), dir, task, run.Options{}); err != nil {
			t.Fatal(err)
		}
		if err := x.Close(); err != nil {
			t.Fatal(err)
		}
		st := turnStates(t, dir)[d.Key()]
		if len(st.Turns) == 0 || !st.Turns[0].Scripted || st.Turns[0].Turn != d.ConflictTurn || st.Turns[0].Label != d.Stage.String() {
			t.Fatalf("%s: own turns %+v, want the conflict turn first", d.Key(), st.Turns)
		}
		own := map[int]probe.TurnState{}
		for _, turn := range st.Turns {
			own[turn.Row] = turn
			if got := d.Unmediated()[turn.Turn-1]; got.Agent != d.ConflictAgent || got.Label != turn.Label || turn.Scripted != (turn.Turn == d.ConflictTurn) {
				t.Errorf("%s: turn %+v is not an own turn %+v", d.Key(), turn, got)
			}
		}
		unmediated := d.Unmediated()
		seen := map[string]int{}
		for _, p := range st.States {
			f, err := activation.Open(filepath.Join(dir.Path(), p.Cell.File()))
			if err != nil {
				t.Fatal(err)
			}
			rows, err := f.Rows("block.1")
			if err != nil {
				t.Fatal(err)
			}
			if got := rows.Row(p.Row); got[1] != float32(p.Token) || got[2] != '\n' {
				t.Errorf("%s: row %d of %s holds the token %q at %v, want a line break at %d", d.Key(), p.Row, p.Cell, rune(got[2]), got[1], p.Token)
			}
			if err := f.Close(); err != nil {
				t.Fatal(err)
			}
			turns := unmediated[:d.ConflictTurn]
			switch p.Cell.Text {
			case probe.TextOriginal:
				turns = unmediated[:own[p.Row].Turn]
			case probe.EditStrip:
				turns = unmediated[:d.ConflictTurn-1]
			default:
				turns = append([]dialogue.Turn(nil), turns...)
				turns[d.ConflictTurn-1].Message = st.Edits[p.Cell.Text].Text
			}
			read := 0
			for _, s := range r.seqs {
				if len(s.Tokens) > p.Token && strings.HasSuffix(text(s.Tokens[:p.Token+1]), "Conversation so far:\n"+dialogue.Transcript(turns)) {
					read++
				}
			}
			if read == 0 {
				t.Errorf("%s: the model never read the transcript of %s at token %d", d.Key(), p.Cell, p.Token)
			}
			seen[p.Cell.Text]++
		}
		if seen[probe.TextOriginal] != len(st.Turns) || seen[probe.EditMask] != 1 || seen[probe.EditStrip] != 1 {
			t.Errorf("%s: %v states", d.Key(), seen)
		}
		if seen[probe.EditSwap] == 0 && st.Missing[probe.EditSwap] == "" {
			t.Errorf("%s: neither a swapped turn nor a reason", d.Key())
		}
	}
}

// TestTurnRowsAreThoseOfAllDialogues: shards fill disjoint rows of the same
// files, and together all of them.
func TestTurnRowsAreThoseOfAllDialogues(t *testing.T) {
	ds := dialogue.Sample()
	rows := map[int]string{}
	for _, shard := range []string{"1/2", "2/2"} {
		x := turnExtraction(t, &reader{}, probe.EditStrip)
		dir, err := extractTurns(t, x, filepath.Join(t.TempDir(), "run"), shard, ds)
		if err != nil {
			t.Fatal(err)
		}
		if !probe.HoldsTurns(dir) {
			t.Error("a store of turns is not known as one")
		}
		for item, st := range turnStates(t, dir) {
			for _, turn := range st.Turns {
				if rows[turn.Row] != "" {
					t.Errorf("row %d belongs to %s and %s", turn.Row, rows[turn.Row], item)
				}
				rows[turn.Row] = item
			}
		}
		if got := x.Turns(); shard == "2/2" && len(rows) != got {
			t.Errorf("%d rows are filled, want %d", len(rows), got)
		}
	}
}

func TestTurnExtractionRefuses(t *testing.T) {
	ds := dialogue.Sample()[:1]
	for _, edits := range [][]string{{"shout"}, {probe.EditMask, probe.EditMask}} {
		if err := turnExtraction(t, &reader{}, edits...).Use(ds); err == nil {
			t.Errorf("edits %v are accepted", edits)
		}
	}
	if err := turnExtraction(t, &reader{}).Use(nil); err == nil {
		t.Error("no dialogues are accepted")
	}
	x := turnExtraction(t, &reader{})
	x.Render = func(context.Context, infer.Prompt) (string, error) { return "nothing of it", nil }
	if _, err := extractTurns(t, x, filepath.Join(t.TempDir(), "run"), "", ds); err == nil || !strings.Contains(err.Error(), "does not hold the transcript") {
		t.Errorf("a prompt without the transcript: error %v", err)
	}
	// A vocabulary in which the end of a turn is inside a token.
	x = turnExtraction(t, &reader{})
	x.PromptTokens = func(s string) ([]int32, error) { return tokens(strings.ReplaceAll(s, "\nT", "\x01")) }
	if _, err := extractTurns(t, x, filepath.Join(t.TempDir(), "other"), "", ds); err == nil || !strings.Contains(err.Error(), "spans the end of turn") {
		t.Errorf("a token across turns: error %v", err)
	}
}

func TestTurnStatesThatAreNoNumbers(t *testing.T) {
	bad := &infer.NonFiniteError{Layers: []infer.NonFinite{{Layer: "block.1", Rows: 1, Values: 2}}}
	dir, err := extractTurns(t, turnExtraction(t, &reader{fail: bad}), filepath.Join(t.TempDir(), "run"), "", dialogue.Sample()[:1])
	if err != nil {
		t.Fatal(err)
	}
	if got := turnStates(t, dir)[dialogue.Sample()[0].Key()].NonFinite; len(got) != 1 || got[0] != bad.Layers[0] {
		t.Errorf("non-finite states %+v, want %+v", got, bad.Layers)
	}
	x := turnExtraction(t, &reader{fail: errors.New("no memory")})
	if _, err := extractTurns(t, x, filepath.Join(t.TempDir(), "other"), "", dialogue.Sample()[:1]); err == nil {
		t.Error("a failure of the model must fail the item")
	}
}
