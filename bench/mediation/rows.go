package mediation

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/ccmed/ccmed/bench/dialogue"
	"github.com/ccmed/ccmed/bench/run"
	"github.com/ccmed/ccmed/bench/task"
)

// Row is one row of a mediation run: one dialogue under one condition.
type Row struct {
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
	LabellerGrade   string   `json:"labeller_grade" parquet:"labeller_grade" doc:"what the labels are worth: as reliable as the recorded labels, weak (no number is a finding), degenerate or no card; of the last two, stages and all metrics are withheld"`
	LabellerKappa   *float64 `json:"labeller_kappa" parquet:"labeller_kappa" doc:"its quadratic kappa with recorded labels; null where it was not computed"`
	DeltaAUC        *float64 `json:"delta_auc" parquet:"delta_auc" doc:"AUC minus that of the unmediated continuation of the same dialogue from the same turn; 0 where nobody speaks or no turn follows"`
	DeltaAUCOwn     *float64 `json:"delta_auc_own" parquet:"delta_auc_own" doc:"the same over the conflict speaker's own turns"`
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

// Metrics returns where each metric of an outcome has its column.
func (r *Row) Metrics() map[string]**float64 {
	return map[string]**float64{DAUC: &r.DeltaAUC, DAUCOwn: &r.DeltaAUCOwn, AUC: &r.AUC, AUCIndex: &r.AUCIndex, AUCOwn: &r.AUCOwn,
		AUCE: &r.AUCE, DW1: &r.DeltaW1, W1: &r.W1, W1Index: &r.W1Index, DeltaE: &r.DeltaE,
		JS: &r.JS, TV: &r.TV, Judge: &r.JudgeScore, JudgeTop: &r.JudgeArgmax}
}

// Table holds a row for every unit of the run that has its utterance. The labeller's card
// is no dialogue under a condition and has no row.
func (r *Result) Table(context.Context) (task.Table, error) {
	samples, err := r.samples()
	if err != nil {
		return task.Table{}, err
	}
	units := task.Units(samples)
	gate, outcomes, err := outcomesByRepeat(units, r.settings.LabelReliability)
	if err != nil {
		return task.Table{}, err
	}
	t := task.Table{MaxTokens: r.settings.MaxTokens, Temperature: r.settings.Temperature}
	switch gate.Grade() {
	case Reliable:
	case Weak:
		t.Cautions = append(t.Cautions, WeakLabels)
	default:
		t.Cautions = append(t.Cautions, PipelineCheck+": AUC, W1, judge and stages are withheld")
	}
	t.Cautions = append(t.Cautions, slices.Concat(gate.Degenerate, gate.Notes)...)
	for _, u := range units {
		if borrowed := r.settings.Baselines != "" && !slices.Contains(r.own(), u.Key.Condition); borrowed {
			continue
		}
		o, ok := outcomes[u.Key]
		if !ok {
			t.Rest = append(t.Rest, u.Costs()...)
			continue
		}
		row, err := r.row(u, o, gate)
		if err != nil {
			return t, err
		}
		t.Rows = append(t.Rows, row)
	}
	return t, nil
}

// own are the conditions that a run with borrowed baselines makes itself.
func (r *Result) own() []string { return []string{ND, D, Foreign, UnmediatedAt} }

// row makes the row of a unit.
func (r *Result) row(u task.Unit, o Outcome, gate *Gate) (task.Row, error) {
	why := maps.Clone(o.Unscored)
	if why == nil {
		why = map[string]string{}
	}
	maps.Copy(why, o.Withheld)
	id := r.in.Identity()
	usage, seconds := task.Cost(u.Steps)
	row := &Row{Run: r.in.Name(), Mediator: id.Models[RoleMediator].Name,
		Simulator: id.Models[RoleSimulator].Name, Labeller: id.Models[RoleLabeller].Name, Judge: id.Models[RoleJudge].Name, Seed: id.Seed,
		Item: u.Key.Item, Condition: u.Key.Condition, Repeat: int32(u.Key.Repeat), Stage: o.Stage, Context: o.Context, Gold: int32(o.Gold), LastTurn: int32(o.LastTurn),
		Scored: len(why) == 0, Unscored: task.Known(task.Reasons(why, MetricNames)), LabellerGrade: gate.Grade(),
		Utterance: task.Known(o.Utterance), Stop: task.Known(o.Stop), CutTurns: int32(o.CutTurns),
		PromptTokens: int64(usage.Prompt), Evaluated: int64(usage.Evaluated), Generated: int64(usage.Generated), Seconds: seconds,
		Continuation: []string{}, TrajectoryTurn: []int32{}, TrajectoryStage: []int32{}}
	if card := gate.Labeller; card != nil && !card.NoKappa {
		row.LabellerKappa = &card.Kappa
	}
	if o.Turn > 0 {
		turn := int32(o.Turn)
		row.Turn = &turn
	}
	row.PreStage, row.PostStage = narrow(o.PreStage), narrow(o.PostStage)
	for _, p := range o.Trajectory {
		row.TrajectoryTurn = append(row.TrajectoryTurn, int32(p[0]))
		row.TrajectoryStage = append(row.TrajectoryStage, int32(p[1]))
	}
	out := task.Row{Key: u.Key, Value: row, Prompt: &row.Prompt, Cluster: o.Context, Input: task.LastPrompt(u.Steps, StepUtterance), Output: o.Utterance, Stop: o.Stop, Steps: u.Costs()}
	columns := row.Metrics()
	for _, name := range MetricNames {
		v, ok := o.Values[name]
		if ok {
			*columns[name] = &v
		}
		if ok || why[name] != "" {
			out.Scores = append(out.Scores, task.Score{Metric: name, Value: v, Unscored: why[name], LowerIsBetter: name == JS || name == TV})
		}
	}
	var err error
	if s, ok := u.Step(StepSimulate); ok {
		c, err := task.Data[Continuation](s)
		if err != nil {
			return out, err
		}
		for _, t := range c.Turns {
			row.Continuation = append(row.Continuation, t.Text)
		}
	}
	out.Asked, err = asked(u)
	if len(out.Asked) > 0 && out.Asked[0].Role == RoleMediator {
		out.Said = out.Asked[0].Said
	}
	return out, err
}

// asked are the questions of a unit: the line, the simulated turns, their labels, the judge.
func asked(u task.Unit) (out []task.Asked, err error) {
	line, _, err := task.StepData[Utterance](u, StepUtterance)
	if err == nil && line.Source == "model" {
		out = append(out, task.Asked{Role: RoleMediator, About: "line", Prompt: task.LastPrompt(u.Steps, StepUtterance), Said: line.Text, Stop: line.Stop})
	}
	if err != nil {
		return nil, err
	}
	talk, _, err := task.StepData[Continuation](u, StepSimulate)
	if err != nil {
		return nil, err
	}
	prompts := task.PromptsOf(u.Steps, StepSimulate, len(talk.Turns))
	for i, t := range talk.Turns {
		if prompts[i] != "" { // a recorded turn was asked of nobody
			out = append(out, task.Asked{Role: RoleSimulator, About: fmt.Sprintf("turn %d", t.T), Prompt: prompts[i], Said: t.Text, Stop: t.Stop})
		}
	}
	labels, _, err := task.StepData[Labels](u, StepLabel)
	if err != nil {
		return nil, err
	}
	all := labels.all()
	prompts = task.PromptsOf(u.Steps, StepLabel, len(all))
	for i, l := range all {
		out = append(out, task.Asked{Role: RoleLabeller, About: fmt.Sprintf("stage after turn %d", l.Turn), Prompt: prompts[i], P: digits(l.P[:]), Mass: l.Mass, Top: l.Top, Unscored: l.Unscored})
	}
	judged, unscored, err := task.StepData[Judgement](u, StepJudge)
	if _, there := u.Step(StepJudge); there && err == nil && judged.NotApplicable == "" {
		out = append(out, task.Asked{Role: RoleJudge, About: "line", Prompt: task.LastPrompt(u.Steps, StepJudge), P: digits(judged.P[:]), Mass: judged.Mass, Top: judged.Top, Unscored: unscored})
	}
	return out, err
}

// all are the labels in the order of asking.
func (l Labels) all() (out []TurnLabel) {
	if l.Pre.Turn == 0 {
		return nil
	}
	out = append([]TurnLabel{l.Pre}, l.After...)
	if l.Again != nil {
		out = append(out, *l.Again)
	}
	return out
}

func digits(p []float64) map[string]float64 {
	out := map[string]float64{}
	for i, v := range p {
		out[strconv.Itoa(i+1)] = v
	}
	return out
}

// outcomesByRepeat computes the metrics of every unit, without those that may not be said;
// outcomes know no repeats, so each repeat is computed for itself. The labeller is the same
// in all.
func outcomesByRepeat(units []task.Unit, recorded *dialogue.Agreement) (*Gate, map[run.Key]Outcome, error) {
	byRepeat := map[int][]run.Sample{}
	var all []run.Sample
	for _, u := range units {
		byRepeat[u.Key.Repeat] = append(byRepeat[u.Key.Repeat], u.Steps...)
		all = append(all, u.Steps...)
	}
	gate, err := NewGate(all, recorded)
	if err != nil {
		return nil, nil, err
	}
	out := map[run.Key]Outcome{}
	for repeat, samples := range byRepeat {
		os, err := Outcomes(samples)
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

func narrow(n *int) *int32 {
	if n == nil {
		return nil
	}
	v := int32(*n)
	return &v
}
