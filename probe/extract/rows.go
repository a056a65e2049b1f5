package extract

import (
	"context"
	"iter"
	"strings"

	"github.com/ccmed/ccmed/bench/run"
	"github.com/ccmed/ccmed/bench/task"
	"github.com/ccmed/ccmed/probe"
)

// Row is one row of an extraction: a state's place, and what it is of.
type Row struct {
	Run      string  `json:"run" parquet:"run" doc:"name of the run folder"`
	Model    string  `json:"model" parquet:"model" doc:"the model that was read"`
	Item     string  `json:"item" parquet:"item" doc:"key of the dialogue"`
	Stage    string  `json:"stage" parquet:"stage" doc:"DMIS stage of the conflict, or of the turn"`
	Context  string  `json:"context" parquet:"context" doc:"hash of the scenario context, the cluster for folds and intervals"`
	Turn     int32   `json:"turn" parquet:"turn" doc:"the turn that the state is about"`
	Told     string  `json:"condition" parquet:"condition" doc:"what the model was told before: D, ND, wrong, none, transcript or labeller"`
	Text     string  `json:"text" parquet:"text" doc:"name of the text that it read"`
	Position string  `json:"position" parquet:"position" doc:"prompt_end, utterance_end, content_end or turn_end"`
	Line     *string `json:"line" parquet:"line" doc:"the text itself, where it is the model's line or the turn"`
	Stop     *string `json:"stop" parquet:"stop" doc:"why the line ended: stop, or length where it was cut at its cap of tokens"`
	File     string  `json:"file" parquet:"file" doc:"the file of states, in the run folder"`
	Place    int32   `json:"row" parquet:"row" doc:"the state's row in the file, from 0"`
	Tokens   int32   `json:"tokens" parquet:"tokens" doc:"length of the sequence that was evaluated"`
	Token    int32   `json:"token" parquet:"token" doc:"whose state it is, from 0"`
	SHA256   *string `json:"sha256" parquet:"sha256" doc:"checksum of the row over all layers"`
}

// placed is the data of a sample of any store.
type placed struct {
	probe.States
	Turns []probe.TurnState `json:"turns"`
}

// samples are those of all units, which are read once.
func (r *Result) samples() iter.Seq2[run.Sample, error] {
	return func(yield func(run.Sample, error) bool) {
		units, err := r.units()
		if err != nil {
			yield(run.Sample{}, err)
			return
		}
		for _, u := range units {
			for _, s := range u.Steps {
				if !yield(s, nil) {
					return
				}
			}
		}
	}
}

// Table has a row for every state; the states themselves lie in the files that it names.
// Nothing in it is scored.
func (r *Result) Table(context.Context) (t task.Table, err error) {
	for sample, err := range r.samples() {
		if err != nil {
			return t, err
		}
		if sample.Step != probe.StepStates || sample.Unscored != "" {
			continue
		}
		st, err := task.Data[placed](sample)
		if err != nil {
			return t, err
		}
		turns := map[int]probe.TurnState{}
		for _, turn := range st.Turns {
			turns[turn.Row] = turn
		}
		for _, p := range st.States.States {
			row := &Row{Run: r.in.Name(), Model: r.in.Identity().ModelNames(), Item: sample.Item, Stage: st.Stage, Context: st.Context, Turn: int32(st.Turn),
				Told: p.Cell.Context, Text: p.Cell.Text, Position: p.Cell.Position, Line: task.Known(st.Texts[p.Cell.Text]), Stop: task.Known(st.Stop[p.Cell.Text]),
				File: p.Cell.File(), Place: int32(p.Row), Tokens: int32(p.Tokens), Token: int32(p.Token), SHA256: task.Known(p.SHA256)}
			if turn, ok := turns[p.Row]; ok && probe.HasRowsOfTurns(p.Cell) {
				row.Stage, row.Turn, row.Line = turn.Label, int32(turn.Turn), task.Known(turn.Text)
			}
			key := run.Key{Item: sample.Item, Condition: strings.TrimSuffix(p.Cell.File(), ".residual.safetensors")}
			cost := sample
			cost.Data = nil
			t.Rows = append(t.Rows, task.Row{Key: key, Value: row, Cluster: st.Context, Steps: []run.Sample{cost}})
		}
	}
	return t, nil
}
