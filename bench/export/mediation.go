package export

import (
	"maps"
	"slices"
	"strings"

	"github.com/ccmed/ccmed/bench/mediation"
	"github.com/ccmed/ccmed/bench/run"
)

// MediationRow is one row of a mediation run: one dialogue under one condition.
type MediationRow struct {
	Run             string   `json:"run" parquet:"run" doc:"name of the run folder"`
	Mediator        string   `json:"mediator_model" parquet:"mediator_model" doc:"the model that mediates; empty where none was asked"`
	Simulator       string   `json:"simulator_model" parquet:"simulator_model" doc:"the model that goes on with the dialogue"`
	Labeller        string   `json:"labeller_model" parquet:"labeller_model" doc:"the model that names the stage of a turn"`
	Judge           string   `json:"judge_model" parquet:"judge_model" doc:"the model that scores the line"`
	Seed            int64    `json:"seed" parquet:"seed" doc:"seed of the run"`
	Item            string   `json:"item" parquet:"item" doc:"key of the dialogue"`
	Condition       string   `json:"condition" parquet:"condition" doc:"whose line: ND, D, ground-truth, generic, unmediated, ..."`
	Repeat          int32    `json:"repeat" parquet:"repeat" doc:"repetition, from 0"`
	Stage           string   `json:"conflict_stage" parquet:"conflict_stage" doc:"DMIS stage of the conflict"`
	Context         string   `json:"context" parquet:"context" doc:"hash of the scenario context, the cluster for intervals"`
	Gold            int32    `json:"gold_turn" parquet:"gold_turn" doc:"the conflict turn"`
	Turn            *int32   `json:"turn" parquet:"turn" doc:"turn after which the mediator speaks; null where no turn was predicted"`
	LastTurn        int32    `json:"last_turn" parquet:"last_turn" doc:"last turn of the dialogue"`
	Scored          bool     `json:"scored" parquet:"scored" doc:"no metric that applies is missing"`
	Unscored        *string  `json:"unscored" parquet:"unscored" doc:"reasons of missing metrics, as metric, metric: reason; ..."`
	Utterance       *string  `json:"utterance" parquet:"utterance" doc:"the mediator's line"`
	Stop            *string  `json:"stop" parquet:"stop" doc:"why a generated line ended: stop, or length where it was cut at its cap of tokens"`
	CutTurns        int32    `json:"cut_turns" parquet:"cut_turns" doc:"turns after it that were cut at their cap of tokens"`
	Continuation    []string `json:"continuation" parquet:"continuation,list" doc:"the turns after it"`
	PreStage        *int32   `json:"pre_stage" parquet:"pre_stage" doc:"most probable stage before the line, 0..5"`
	PostStage       *int32   `json:"post_stage" parquet:"post_stage" doc:"most probable stage at the end, 0..5"`
	TrajectoryTurn  []int32  `json:"trajectory_turn" parquet:"trajectory_turn,list" doc:"labelled turns after the line"`
	TrajectoryStage []int32  `json:"trajectory_stage" parquet:"trajectory_stage,list" doc:"their most probable stages, 0..5"`
	LabellerGrade   string   `json:"labeller_grade" parquet:"labeller_grade" doc:"what the labeller's card says: qualified, not qualified or no card; unless qualified, stages and all metrics are withheld"`
	LabellerKappa   *float64 `json:"labeller_kappa" parquet:"labeller_kappa" doc:"its quadratic kappa with recorded labels; null where it was not computed"`
	DeltaAUC        *float64 `json:"delta_auc" parquet:"delta_auc" doc:"AUC minus that of the unmediated continuation of the same dialogue"`
	AUC             *float64 `json:"auc_paige" parquet:"auc_paige" doc:"trajectory AUC, Paige scale"`
	AUCIndex        *float64 `json:"auc_index" parquet:"auc_index" doc:"trajectory AUC, index scale"`
	AUCOwn          *float64 `json:"auc_own" parquet:"auc_own" doc:"AUC over the conflict speaker's own turns"`
	AUCE            *float64 `json:"auc_e" parquet:"auc_e" doc:"AUC of the expected position"`
	DeltaW1         *float64 `json:"delta_w1_paige" parquet:"delta_w1_paige" doc:"signed W1 minus the unmediated one"`
	W1              *float64 `json:"w1_paige" parquet:"w1_paige" doc:"signed Wasserstein-1 between before and after, Paige scale"`
	W1Index         *float64 `json:"w1_index" parquet:"w1_index" doc:"the same, index scale"`
	DeltaE          *float64 `json:"delta_e" parquet:"delta_e" doc:"change of the expected position, Paige scale"`
	JS              *float64 `json:"js" parquet:"js" doc:"Jensen-Shannon divergence"`
	TV              *float64 `json:"tv" parquet:"tv" doc:"total variation"`
	JudgeScore      *float64 `json:"judge" parquet:"judge" doc:"expected score, 1..5"`
	JudgeArgmax     *float64 `json:"judge_argmax" parquet:"judge_argmax" doc:"most probable score, 1..5"`
	Prompt          *string  `json:"prompt" parquet:"prompt" doc:"the mediator's prompt, as the model read it"`
	PromptTokens    int64    `json:"prompt_tokens" parquet:"prompt_tokens" doc:"tokens of all prompts as sent, all roles"`
	Evaluated       int64    `json:"evaluated_tokens" parquet:"evaluated_tokens" doc:"of these, computed by the models"`
	Generated       int64    `json:"generated_tokens" parquet:"generated_tokens" doc:"tokens that the models wrote"`
	Seconds         float64  `json:"seconds" parquet:"seconds" doc:"wall clock"`
}

// metrics returns where each metric of an outcome has its column.
func (r *MediationRow) metrics() map[string]**float64 {
	return map[string]**float64{mediation.DAUC: &r.DeltaAUC, mediation.AUC: &r.AUC, mediation.AUCIndex: &r.AUCIndex, mediation.AUCOwn: &r.AUCOwn,
		mediation.AUCE: &r.AUCE, mediation.DW1: &r.DeltaW1, mediation.W1: &r.W1, mediation.W1Index: &r.W1Index, mediation.DeltaE: &r.DeltaE,
		mediation.JS: &r.JS, mediation.TV: &r.TV, mediation.Judge: &r.JudgeScore, mediation.JudgeTop: &r.JudgeArgmax}
}

// mediationRows makes a row of every unit that has its utterance. The labeller's
// card is no dialogue under a condition and has no row.
func (x *Run) mediationRows() (table[MediationRow], error) {
	gate, outcomes, err := x.outcomes()
	if err != nil {
		return nil, err
	}
	if gate.PipelineCheck() {
		x.cautions = append(x.cautions, mediation.PipelineCheck+": AUC, W1, judge and stages are withheld")
	}
	x.cautions = append(x.cautions, slices.Concat(gate.Degenerate, gate.Notes)...)
	id := x.manifest.Identity
	var out table[MediationRow]
	for _, u := range x.all {
		o, ok := outcomes[u.key]
		if !ok {
			continue
		}
		why := maps.Clone(o.Unscored)
		maps.Copy(why, o.Withheld)
		usage, seconds := u.cost()
		r := MediationRow{Run: x.name, Mediator: id.Models[mediation.RoleMediator].Name, Simulator: id.Models[mediation.RoleSimulator].Name,
			Labeller: id.Models[mediation.RoleLabeller].Name, Judge: id.Models[mediation.RoleJudge].Name, Seed: id.Seed,
			Item: u.key.Item, Condition: u.key.Condition, Repeat: int32(u.key.Repeat), Stage: o.Stage, Context: o.Context, Gold: int32(o.Gold), LastTurn: int32(o.LastTurn),
			Scored: len(why) == 0, Unscored: known(reasons(why, mediation.MetricNames)), LabellerGrade: gate.Grade(), Utterance: known(o.Utterance), Stop: known(o.Stop), CutTurns: int32(o.CutTurns),
			PromptTokens: int64(usage.Prompt), Evaluated: int64(usage.Evaluated), Generated: int64(usage.Generated), Seconds: seconds,
			Continuation: []string{}, TrajectoryTurn: []int32{}, TrajectoryStage: []int32{}}
		if card := gate.Labeller; card != nil && !card.NoKappa {
			r.LabellerKappa = &card.Kappa
		}
		if o.Turn > 0 {
			turn := int32(o.Turn)
			r.Turn = &turn
		}
		r.PreStage, r.PostStage = narrow(o.PreStage), narrow(o.PostStage)
		for _, p := range o.Trajectory {
			r.TrajectoryTurn = append(r.TrajectoryTurn, int32(p[0]))
			r.TrajectoryStage = append(r.TrajectoryStage, int32(p[1]))
		}
		columns := r.metrics()
		for _, name := range mediation.MetricNames {
			v, ok := o.Values[name]
			if ok {
				*columns[name] = &v
			}
			if ok || why[name] != "" {
				u.scores = append(u.scores, score{metric: name, value: v, unscored: why[name]})
			}
		}
		c, _, _, err := data[mediation.Continuation](u, mediation.StepSimulate)
		if err != nil {
			return nil, err
		}
		for _, t := range c.Turns {
			r.Continuation = append(r.Continuation, t.Text)
		}
		r.Prompt = known(x.lastPrompt(u, mediation.StepUtterance))
		out = append(out, r)
		u.asking, u.context, u.output, u.stop = mediation.StepUtterance, o.Context, o.Utterance, stopReasons[o.Stop]
		x.units = append(x.units, u)
	}
	return out, nil
}

// outcomes computes the metrics of every unit, without those that may not be said;
// package mediation knows no repeats, so each repeat is computed for itself. The
// labeller is the same in all.
func (x *Run) outcomes() (*mediation.Gate, map[run.Key]mediation.Outcome, error) {
	byRepeat := map[int][]run.Sample{}
	var all []run.Sample
	for _, u := range x.all {
		byRepeat[u.key.Repeat] = append(byRepeat[u.key.Repeat], u.samples()...)
		all = append(all, u.samples()...)
	}
	gate, err := mediation.NewGate(all)
	if err != nil {
		return nil, nil, err
	}
	out := map[run.Key]mediation.Outcome{}
	for repeat, samples := range byRepeat {
		os, err := mediation.Outcomes(samples)
		if err != nil {
			return nil, nil, err
		}
		gate.Withhold(os)
		for _, o := range os {
			out[run.Key{Item: o.Item, Condition: o.Condition, Repeat: repeat}] = o
		}
	}
	return gate, out, nil
}

// reasons writes each reason once, after the metrics that it keeps from being
// computed.
func reasons(unscored map[string]string, names []string) string {
	var order []string
	metrics := map[string][]string{}
	for _, name := range names {
		why, ok := unscored[name]
		if !ok {
			continue
		}
		if metrics[why] == nil {
			order = append(order, why)
		}
		metrics[why] = append(metrics[why], name)
	}
	parts := make([]string, len(order))
	for i, why := range order {
		parts[i] = strings.Join(metrics[why], ", ") + ": " + why
	}
	return strings.Join(parts, "; ")
}

func narrow(n *int) *int32 {
	if n == nil {
		return nil
	}
	v := int32(*n)
	return &v
}
