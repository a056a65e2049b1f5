package export

import (
	"cmp"
	"fmt"
	"strconv"

	"github.com/ccmed/ccmed/bench/mediation"
	"github.com/ccmed/ccmed/bench/timing"
)

// TimingRow is one row of a timing run: one decision about one dialogue.
type TimingRow struct {
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

// timingRows makes a row of every unit whose decision is there.
func (x *Run) timingRows() (table[TimingRow], error) {
	id := x.manifest.Identity
	var out table[TimingRow]
	var predicted []int
	for _, u := range x.all {
		s, ok := u.steps[timing.StepDecide]
		if !ok {
			continue
		}
		d, unscored, err := timing.ReadDecision(s)
		if err != nil {
			return nil, fmt.Errorf("sample %s: its data cannot be read: %w", s.Key, err)
		}
		usage, seconds := u.cost()
		r := TimingRow{Run: x.name, Model: id.Models[timing.Role].Name, Seed: id.Seed, Item: u.key.Item, Condition: u.key.Condition, Repeat: int32(u.key.Repeat),
			Stage: d.Stage, Context: d.Context, Gold: int32(d.Gold), FirstTurn: int32(d.FirstTurn), LastTurn: int32(d.LastTurn),
			Scored: unscored == "", Unscored: known(unscored), Reasoning: known(d.Reasoning),
			PromptTokens: int64(usage.Prompt), Evaluated: int64(usage.Evaluated), GeneratedToken: int64(usage.Generated), Seconds: seconds,
			CurveTurn: []int32{}, CurveP: []float64{}, CurveShare: []float64{}, CurveMass: []float64{}}
		if r.Scored {
			predicted = append(predicted, d.Predicted)
			correct := d.Predicted == d.Gold
			r.Correct = &correct
			if d.Predicted > 0 {
				turn, off := int32(d.Predicted), int32(d.Predicted-d.Gold)
				r.Predicted, r.SignedError = &turn, &off
			}
		}
		if d.Mode == timing.DualHead {
			r.Threshold = &d.Threshold
		}
		for _, p := range d.Curve {
			if p.Unscored == "" {
				r.CurveTurn = append(r.CurveTurn, int32(p.Turn))
				r.CurveP = append(r.CurveP, p.P)
				r.CurveShare = append(r.CurveShare, p.Share)
				r.CurveMass = append(r.CurveMass, p.Mass)
			}
		}
		line, _, _, err := data[struct{ Text, Stop string }](u, stepUtterance)
		if err != nil {
			return nil, err
		}
		reasoned, _, _, err := data[struct{ Stop string }](u, timing.StepReason)
		if err != nil {
			return nil, err
		}
		r.Stop = known(cmp.Or(line.Stop, reasoned.Stop))
		r.Utterance = known(line.Text)
		r.Prompt = known(x.lastPrompt(u, timing.StepDecide))
		out = append(out, r)
		u.asking, u.context, u.target = timing.StepDecide, d.Context, strconv.Itoa(d.Gold)
		u.output, u.scores = verdict(d, unscored)
		u.stop = "stop" // a choice is whole: nothing of it could be cut
		x.units = append(x.units, u)
	}
	if answer := timing.Constant(predicted); answer != "" {
		x.constant = true
		x.cautions = append(x.cautions, timing.Degenerate+" ("+answer+"): its accuracy has no standard error")
	}
	return out, nil
}

// turnAcc is the metric of a timing run.
const turnAcc = "turn_acc"

// verdict says in words what was decided, and whether it was right.
func verdict(d timing.Decision, unscored string) (string, []score) {
	s := score{metric: turnAcc, unscored: unscored}
	if unscored != "" {
		return "", []score{s}
	}
	answer := "no turn"
	if d.Predicted > 0 {
		answer = strconv.Itoa(d.Predicted)
	}
	if d.Predicted == d.Gold {
		s.value = 1
	}
	s.explanation = fmt.Sprintf("predicted %s, conflict turn %d", answer, d.Gold)
	return answer, []score{s}
}

// stepUtterance is the name of the step that writes the mediator's line, of
// mediation runs and of a decision head's.
const stepUtterance = "utterance"

// stepRoles names the role that a step asks.
var stepRoles = map[string]string{
	timing.StepReason: timing.Role, timing.StepDecide: timing.Role, stepUtterance: mediation.RoleMediator,
	mediation.StepSimulate: mediation.RoleSimulator, mediation.StepLabel: mediation.RoleLabeller, mediation.StepJudge: mediation.RoleJudge,
}

// known is nil for an empty text.
func known(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}
