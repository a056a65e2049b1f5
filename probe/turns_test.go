package probe_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ccmed/ccmed/bench/dialogue"
	"github.com/ccmed/ccmed/bench/dmis"
	"github.com/ccmed/ccmed/bench/report"
	"github.com/ccmed/ccmed/bench/run"
	"github.com/ccmed/ccmed/infer"
	"github.com/ccmed/ccmed/probe"
	"github.com/ccmed/ccmed/probe/activation"
)

func turnExtraction(t *testing.T, r probe.StateReader, edits ...string) *probe.TurnExtraction {
	t.Helper()
	x := extraction(t, &reader{}, nil)
	return &probe.TurnExtraction{Reader: r, Render: x.Render, Tokens: x.Tokens, Prompts: x.Prompts, Edits: edits, DType: activation.F32, Model: x.Model, Seed: 1}
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
		if got := x.Rows(); shard == "2/2" && len(rows) != got {
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
	x.Tokens = tokensOf(x.Render, func(s string) ([]int32, error) { return tokens(strings.ReplaceAll(s, "\nT", "\x01")) })
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

// reading is a model whose block.1 holds, at the end of a turn, which of the
// markers the turn itself has, and whose other layers hold nothing.
type reading struct{ reader }

func (*reading) Width() int { return 6 }

var markers = []string{"there is nothing to it", "our way is right", "we are all the same"}

func (r *reading) States(_ context.Context, seqs []infer.Sequence, layers []string, row func(seq, pos, layer int, x []float32) error) error {
	for i, s := range seqs {
		for _, at := range s.At {
			read := strings.Split(strings.TrimSuffix(text(s.Tokens[:at+1]), "\n"), "\n")
			for l, name := range layers {
				h := fnv.New64a()
				h.Write([]byte(strings.Join(read, name)))
				rng := rand.New(rand.NewPCG(h.Sum64(), uint64(l)))
				x := make([]float32, r.Width())
				for j := range x {
					x[j] = float32(rng.NormFloat64())
				}
				for k, m := range markers {
					if name == "block.1" && strings.Contains(read[len(read)-1], m) {
						x[k] += 12
					}
				}
				if err := row(i, at, l, x); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// marked returns dialogues whose conflict turns have the marker of their stage,
// and whose later own turns that of their label.
func marked(t *testing.T) []dialogue.Dialogue {
	t.Helper()
	var out bytes.Buffer
	for _, d := range many(t, 0, 5) {
		dir := t.TempDir()
		if err := dialogue.Write(dir, []dialogue.Dialogue{d}); err != nil {
			t.Fatal(err)
		}
		b, err := os.ReadFile(filepath.Join(dir, d.Key()+".json"))
		if err != nil {
			t.Fatal(err)
		}
		for _, turn := range ownLines(d) {
			stage, err := dmis.ParseStage(turn.Label)
			if turn.T == d.ConflictTurn {
				stage = d.Stage
			}
			if err != nil || !stage.Ethnocentric() {
				continue
			}
			old, err := json.Marshal(turn.Message)
			if err != nil {
				t.Fatal(err)
			}
			b = bytes.ReplaceAll(b, bytes.Trim(old, `"`), []byte(fmt.Sprintf("turn %d: %s. Go on", turn.T, markers[stage])))
		}
		var one bytes.Buffer
		if err := json.Compact(&one, b); err != nil {
			t.Fatal(err)
		}
		out.Write(append(one.Bytes(), '\n'))
	}
	path := filepath.Join(t.TempDir(), "all.jsonl")
	if err := os.WriteFile(path, out.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
	ds, _, err := dialogue.Read(t.Context(), path, dialogue.ReadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return ds
}

func ownLines(d dialogue.Dialogue) []dialogue.Turn {
	var out []dialogue.Turn
	for _, turn := range d.Unmediated()[d.ConflictTurn-1:] {
		if turn.Agent == d.ConflictAgent {
			out = append(out, turn)
		}
	}
	return out
}

// TestFindTurns goes the whole way from dialogues to sentences: a layer that reads
// markers transfers to later turns, follows swaps, and is blind to masked turns.
func TestFindTurns(t *testing.T) {
	x := turnExtraction(t, &reading{}, probe.EditMask, probe.EditStrip, probe.EditSwap)
	dir, err := extractTurns(t, x, filepath.Join(t.TempDir(), "run"), "", marked(t))
	if err != nil {
		t.Fatal(err)
	}
	f, err := probe.FindTurns(t.Context(), dir, probe.FindOptions{Design: probe.Design{Folds: 3, Seeds: []uint64{1, 2}, CPath: []float64{1e-2}, Inner: 1}, Resampling: probe.Resampling{Resamples: 200}})
	if err != nil {
		t.Fatal(err)
	}
	if f.N != 60 || f.Left != 0 || f.At != "block.1" || f.Unscripted == nil || f.Swap == nil || len(f.Edits) != 2 {
		t.Fatalf("findings %+v", f)
	}
	at := 1 // embed, block.1, final_norm
	for what, got := range map[string]float64{"scripted": f.Scripted[at].Value, "transfer": f.Unscripted.Balanced[at].Value, "swaps that are followed": f.Swap.Follow[at].Value} {
		if got < 0.95 {
			t.Errorf("%s is %.3f, want it near 1", what, got)
		}
	}
	for _, e := range f.Edits {
		if e.Applied[at].Value > 0.6 || e.Retrained[at].Value > 0.6 {
			t.Errorf("%s: accuracies %.3f and %.3f without markers, want them near chance", e.Edit, e.Applied[at].Value, e.Retrained[at].Value)
		}
	}
	if got := f.Unscripted.Balanced[0].Value; got > 0.65 {
		t.Errorf("a layer that holds nothing transfers with %.3f", got)
	}
	outside := 0
	for _, d := range dialogue.Sample() {
		for _, turn := range ownLines(d)[1:] {
			if s, err := dmis.ParseStage(turn.Label); err == nil && !s.Ethnocentric() {
				outside += 5
			}
		}
	}
	got := 0
	for _, n := range f.Unscripted.Outside {
		got += n
	}
	if got != outside {
		t.Errorf("%d turns of other stages are left out, want %d", got, outside)
	}
	var terminal, page, table bytes.Buffer
	sections := probe.TurnSections("bytes", f)
	for _, s := range sections {
		for _, fig := range s.Figures {
			if err := fig.Check(); err != nil {
				t.Errorf("%s: %v", s.Title, err)
			}
		}
	}
	if err := report.Write(&terminal, report.Terminal, sections, report.Options{}); err != nil {
		t.Fatal(err)
	}
	if err := report.Write(&page, report.HTML, sections, report.Options{}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"From scripted turns to unscripted ones", "Marker swap", "marker phrases masked"} {
		if !strings.Contains(terminal.String(), want) {
			t.Errorf("the report does not say %q", want)
		}
	}
	if err := probe.WriteTurnsCSV(&table, f); err != nil {
		t.Fatal(err)
	}
	if got := strings.Count(table.String(), "\n"); got != 1+3*(1+3+1+3+1+2*2)+1+2+3+2*2 {
		t.Errorf("%d lines of CSV", got)
	}
	if _, err := probe.FindTurns(t.Context(), dir, probe.FindOptions{Layers: []string{"block.9"}}); err == nil || !strings.Contains(err.Error(), "block.9") {
		t.Errorf("a layer that is not there: error %v", err)
	}
	if _, err := probe.FindTurns(t.Context(), dir, probe.FindOptions{Grouping: probe.GroupCountry}); err == nil {
		t.Error("folds by country are accepted")
	}
	data, err := json.Marshal(f)
	if err != nil {
		t.Fatal(err)
	}
	var again probe.TurnFindings
	if err := json.Unmarshal(data, &again); err != nil || again.Schema != probe.TurnFindingsSchema {
		t.Errorf("read back: schema %d, %v", again.Schema, err)
	}
}

// A store of other states, and one whose turns were never read, say what to do.
func TestFindTurnsNeedsTurns(t *testing.T) {
	x := extraction(t, &reader{}, mustPairs(t, "ND", "placebo"))
	path := filepath.Join(t.TempDir(), "run")
	if _, err := extract(t, x, path, 1); err != nil {
		t.Fatal(err)
	}
	other, err := run.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	dir, err := extractTurns(t, turnExtraction(t, &reader{}), filepath.Join(t.TempDir(), "turns"), "2/2", dialogue.Sample()[:1])
	if err != nil {
		t.Fatal(err)
	}
	for what, d := range map[string]*run.Dir{"no states at the ends of turns": other, "no state of a conflict turn": dir} {
		if _, err := probe.FindTurns(t.Context(), d, probe.FindOptions{}); err == nil || !strings.Contains(err.Error(), what) || !strings.Contains(err.Error(), "--turns") {
			t.Errorf("error %v, want one that says %q", err, what)
		}
	}
}
