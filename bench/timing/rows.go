package timing

import (
	"context"
	"fmt"
	"strconv"

	"github.com/ccmed/ccmed/bench/task"
	"github.com/ccmed/ccmed/infer"
)

// Row is one row of a timing run: one decision about one dialogue.
type Row struct {
	Run            string    `json:"run" parquet:"run" doc:"name of the run folder"`
	Model          string    `json:"model" parquet:"model" doc:"the model that decides"`
	Seed           int64     `json:"seed" parquet:"seed" doc:"seed of the run"`
	Item           string    `json:"item" parquet:"item" doc:"key of the dialogue"`
	Condition      string    `json:"condition" parquet:"condition" doc:"how the turn was asked for: stream, pick, cot or dual-head"`
	Repeat         int32     `json:"repeat" parquet:"repeat" doc:"repetition, from 0"`
	Stage          string    `json:"conflict_stage" parquet:"conflict_stage" doc:"DMIS stage of the conflict"`
	Context        string    `json:"context" parquet:"context" doc:"hash of the scenario context, the cluster for intervals"`
	Gold           int32     `json:"gold_turn" parquet:"gold_turn" doc:"the conflict turn"`
	FirstTurn      int32     `json:"first_turn" parquet:"first_turn" doc:"first turn that could be predicted"`
	LastTurn       int32     `json:"last_turn" parquet:"last_turn" doc:"last turn of the dialogue"`
	Scored         bool      `json:"scored" parquet:"scored" doc:"there is a usable answer"`
	Unscored       *string   `json:"unscored" parquet:"unscored" doc:"why there is none"`
	Predicted      *int32    `json:"predicted_turn" parquet:"predicted_turn" doc:"the model's turn; null where it never steps in"`
	Correct        *bool     `json:"correct" parquet:"correct" doc:"predicted and conflict turn are equal; false where it never steps in"`
	SignedError    *int32    `json:"signed_error" parquet:"signed_error" doc:"predicted minus conflict turn"`
	Threshold      *float64  `json:"threshold" parquet:"threshold" doc:"P(speak) from which a decision head steps in"`
	CurveTurn      []int32   `json:"curve_turn" parquet:"curve_turn,list" doc:"turns that were asked about and answered"`
	CurveP         []float64 `json:"curve_p" parquet:"curve_p,list" doc:"P(yes), or of the turn, over the whole vocabulary, by curve_turn"`
	CurveShare     []float64 `json:"curve_share" parquet:"curve_share,list" doc:"the same, renormalised over the offered answers"`
	CurveMass      []float64 `json:"curve_mass" parquet:"curve_mass,list" doc:"probability of all offered answers together"`
	Reasoning      *string   `json:"reasoning" parquet:"reasoning" doc:"what the model wrote before it chose (cot)"`
	Utterance      *string   `json:"utterance" parquet:"utterance" doc:"the mediator's line (dual-head)"`
	Stop           *string   `json:"stop" parquet:"stop" doc:"why the reasoning or the line ended: stop, or length where it was cut at its cap of tokens"`
	Prompt         *string   `json:"prompt" parquet:"prompt" doc:"the last prompt of the decision, as the model read it"`
	PromptTokens   int64     `json:"prompt_tokens" parquet:"prompt_tokens" doc:"tokens of all prompts as sent"`
	Evaluated      int64     `json:"evaluated_tokens" parquet:"evaluated_tokens" doc:"of these, computed by the model"`
	GeneratedToken int64     `json:"generated_tokens" parquet:"generated_tokens" doc:"tokens that the model wrote"`
	Seconds        float64   `json:"seconds" parquet:"seconds" doc:"wall clock"`
}

// turnAcc is the metric of an exported decision.
const turnAcc = "turn_acc"

// Table holds a row for every decision.
func (r *Result) Table(context.Context) (task.Table, error) {
	a, err := r.answers()
	if err != nil {
		return task.Table{}, err
	}
	id := r.in.Identity()
	t := task.Table{Rest: a.Undecided}
	var predicted []int
	for _, d := range a.Decided {
		row := d.row()
		row.Run, row.Model, row.Seed = r.in.Name(), id.Models[Role].Name, id.Seed
		if row.Scored {
			predicted = append(predicted, d.Predicted)
		}
		answer, score := d.verdict()
		// A decision head is asked for no text: what it decided about is then the prompt
		// of the line that it speaks.
		input := task.LastPrompt(d.Steps, StepDecide, StepUtterance)
		t.Rows = append(t.Rows, task.Row{Key: d.Key, Value: row, Prompt: &row.Prompt, Cluster: d.Context, Input: input, Target: strconv.Itoa(d.Gold), Output: answer,
			Stop: infer.StopEnd, // a choice is whole: nothing of it could be cut
			Said: d.said(), Asked: d.asked(), Scores: []task.Score{score}, Steps: d.Steps})
	}
	if answer := Constant(predicted); answer != "" {
		t.Constant = true
		t.Cautions = append(t.Cautions, Degenerate+" "+answer+": its accuracy has no standard error")
	}
	return t, nil
}

// said is the line that a tuned model speaks; others are asked for no text but reasoning.
func (d Decided) said() string {
	if d.Line == nil {
		return ""
	}
	return d.Line.Text
}

// asked are the questions that led to the decision.
func (d Decided) asked() (out []task.Asked) {
	if d.Reasoning != "" {
		out = append(out, task.Asked{Role: Role, About: "reasoning", Prompt: task.PromptsOf(d.Steps, StepReason, 1)[0], Said: d.Reasoning, Stop: d.Stop})
	}
	switch d.Mode {
	case Stream:
		prompts := task.PromptsOf(d.Steps, StepDecide, len(d.Curve))
		for i, p := range d.Curve {
			out = append(out, task.Asked{Role: Role, About: fmt.Sprintf("turn %d", p.Turn), Prompt: prompts[i], P: map[string]float64{"yes": p.P, "no": p.No},
				Mass: p.Mass, Top: p.Top, Unscored: p.Unscored})
		}
	case DualHead:
		for _, p := range d.Curve {
			out = append(out, task.Asked{Role: Role, About: fmt.Sprintf("turn %d", p.Turn), P: map[string]float64{"speak": p.P}, Mass: p.Mass, Unscored: p.Unscored})
		}
	default:
		if len(d.Curve) == 0 {
			break
		}
		q := task.Asked{Role: Role, About: "the turn", Prompt: task.PromptsOf(d.Steps, StepDecide, 1)[0], P: map[string]float64{}, Mass: d.Curve[0].Mass, Top: d.Curve[0].Top,
			Unscored: d.Unscored}
		for _, p := range d.Curve {
			q.P[fmt.Sprintf("turn %d", p.Turn)] = p.P
		}
		out = append(out, q)
	}
	if d.Line != nil && d.Line.Text != "" {
		out = append(out, task.Asked{Role: Role, About: "line", Prompt: task.LastPrompt(d.Steps, StepUtterance), Said: d.Line.Text, Stop: d.Line.Stop})
	}
	return out
}

// row is the decision's row, without what it shares with the run's others.
func (d Decided) row() *Row {
	usage, seconds := task.Cost(d.Steps)
	r := &Row{Item: d.Key.Item, Condition: d.Key.Condition, Repeat: int32(d.Key.Repeat),
		Stage: d.Stage, Context: d.Context, Gold: int32(d.Gold), FirstTurn: int32(d.FirstTurn), LastTurn: int32(d.LastTurn),
		Scored: d.Unscored == "", Unscored: task.Known(d.Unscored), Reasoning: task.Known(d.Reasoning), Stop: task.Known(d.Stop),
		PromptTokens: int64(usage.Prompt), Evaluated: int64(usage.Evaluated), GeneratedToken: int64(usage.Generated), Seconds: seconds,
		CurveTurn: []int32{}, CurveP: []float64{}, CurveShare: []float64{}, CurveMass: []float64{}}
	if r.Scored {
		correct := d.Predicted == d.Gold
		r.Correct = &correct
		if d.Predicted > 0 {
			turn, off := int32(d.Predicted), int32(d.Predicted-d.Gold)
			r.Predicted, r.SignedError = &turn, &off
		}
	}
	if d.Mode == DualHead {
		r.Threshold = &d.Threshold
	}
	if d.Line != nil {
		r.Utterance = task.Known(d.Line.Text)
	}
	for _, p := range d.Curve {
		if p.Unscored == "" {
			r.CurveTurn = append(r.CurveTurn, int32(p.Turn))
			r.CurveP = append(r.CurveP, p.P)
			r.CurveShare = append(r.CurveShare, p.Share)
			r.CurveMass = append(r.CurveMass, p.Mass)
		}
	}
	return r
}

// verdict says in words what was decided, and whether it was right.
func (d Decided) verdict() (string, task.Score) {
	s := task.Score{Metric: turnAcc, Unscored: d.Unscored, Binary: true}
	if d.Unscored != "" {
		return "", s
	}
	answer := "no turn"
	if d.Predicted > 0 {
		answer = strconv.Itoa(d.Predicted)
	}
	if d.Predicted == d.Gold {
		s.Value = 1
	}
	s.Explanation = fmt.Sprintf("predicted %s, conflict turn %d", answer, d.Gold)
	return answer, s
}
