package mediation

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/ccmed/ccmed/bench/dialogue"
	"github.com/ccmed/ccmed/bench/dmis"
	"github.com/ccmed/ccmed/bench/run"
	"github.com/ccmed/ccmed/infer"
)

// BaselineItems returns the baselines of a dialogue, all at the conflict turn.
// A record without a usable mediation has no ground-truth item.
func BaselineItems(d dialogue.Dialogue) []Item {
	items := []Item{{Dialogue: d, Condition: Unmediated, Turn: d.ConflictTurn}, {Dialogue: d, Condition: Generic, Turn: d.ConflictTurn}}
	if text, ok := d.Mediation(); ok {
		items = append(items, Item{Dialogue: d, Condition: GroundTruth, Turn: d.ConflictTurn, Given: text})
	}
	return items
}

// MatchedItem returns the continuation without a mediator from the turn at which one
// speaks, against which what follows that turn is held: over the same turns, after the
// same words. The conflict turn has the baseline Unmediated; where nobody speaks, or no
// turn follows, there is nothing to hold against anything: ok is false.
func MatchedItem(d dialogue.Dialogue, turn int) (it Item, ok bool) {
	return Item{Dialogue: d, Condition: UnmediatedAt, Turn: turn}, turn > 0 && turn < d.LastTurn() && turn != d.ConflictTurn
}

// Names of the metrics of an outcome.
const (
	AUC      = "auc_paige" // most probable stage, Paige scale
	AUCIndex = "auc_index"
	AUCOwn   = "auc_own" // turns of the conflict speaker only, Paige scale
	AUCE     = "auc_e"   // expected position, Paige scale
	W1       = "w1_paige"
	W1Index  = "w1_index"
	DeltaE   = "delta_e" // change of the expected position, Paige scale
	JS       = "js"
	TV       = "tv"
	Judge    = "judge"        // expected score
	JudgeTop = "judge_argmax" // most probable score
	// Differences from the unmediated continuation of the same dialogue, over the same
	// turns: from the turn at which the mediator speaks. Where nobody speaks, or no turn
	// follows, they are 0.
	DAUC    = "delta_auc"
	DAUCOwn = "delta_auc_own"
	DW1     = "delta_w1_paige"
)

// MetricNames lists the metrics that a single outcome can have, in the order
// in which tables show them.
var MetricNames = []string{DAUC, DAUCOwn, AUC, AUCIndex, AUCOwn, AUCE, DW1, W1, W1Index, DeltaE, JS, TV, Judge, JudgeTop}

// Outcome is what became of one dialogue under one condition. Values holds the
// metrics that could be computed, Unscored the reasons for those that could not.
type Outcome struct {
	Item      string `json:"item"`
	Condition string `json:"condition"`
	Stage     string `json:"stage"`
	Context   string `json:"context"`
	Gold      int    `json:"gold"`
	Turn      int    `json:"turn"` // 0: no prediction, nobody mediated
	LastTurn  int    `json:"last_turn"`
	Utterance string `json:"utterance,omitempty"`
	// Stop says why the generated line ended (infer.Reply), "" of any other line. Of
	// Turns that were generated after it, CutTurns end at their cap of tokens.
	Stop     string             `json:"stop,omitempty"`
	Turns    int                `json:"turns,omitempty"`
	CutTurns int                `json:"cut_turns,omitempty"`
	Values   map[string]float64 `json:"values,omitempty"`
	Unscored map[string]string  `json:"unscored,omitempty"`
	// Withheld says of metrics that were measured why they may not be said.
	Withheld map[string]string `json:"withheld,omitempty"`
	// PreStage and PostStage are the most probable stages (index 0..5) before the
	// mediation and at the POST turn, where that label is scored.
	PreStage  *int `json:"pre_stage,omitempty"`
	PostStage *int `json:"post_stage,omitempty"`
	// Trajectory holds turn and most probable stage, where every label is scored.
	Trajectory [][2]int `json:"trajectory,omitempty"`
	// NoDirection marks a W1 whose expected positions differ by less than 0.05.
	NoDirection bool `json:"no_direction,omitempty"`
}

func (o *Outcome) set(name string, v float64) { o.Values[name] = v }

func (o *Outcome) miss(reason string, names ...string) {
	for _, n := range names {
		o.Unscored[n] = reason
	}
}

// samplesOf are the four steps' samples of one unit.
type samplesOf map[string]run.Sample

func group(samples []run.Sample) (map[[2]string]samplesOf, [][2]string) {
	units := map[[2]string]samplesOf{}
	var keys [][2]string
	for _, s := range samples {
		k := [2]string{s.Item, s.Condition}
		if units[k] == nil {
			units[k] = samplesOf{}
			keys = append(keys, k)
		}
		units[k][s.Step] = s
	}
	slices.SortFunc(keys, func(a, b [2]string) int {
		if c := strings.Compare(a[1], b[1]); c != 0 {
			return c
		}
		if len(a[0]) != len(b[0]) {
			return len(a[0]) - len(b[0])
		}
		return strings.Compare(a[0], b[0])
	})
	return units, keys
}

func decode[T any](u samplesOf, step, item string) (v T, unscored string, ok bool, err error) {
	s, ok := u[step]
	if !ok {
		return v, "", false, nil
	}
	if err := json.Unmarshal(s.Data, &v); err != nil {
		return v, "", false, fmt.Errorf("mediation sample %s of item %s: %w", step, item, err)
	}
	return v, s.Unscored, true, nil
}

// Outcomes computes every unit's metrics from its samples, cards left out.
func Outcomes(samples []run.Sample) ([]Outcome, error) {
	units, keys := group(samples)
	var out []Outcome
	for _, k := range keys {
		if k[1] == Card {
			continue
		}
		o, err := outcome(k[0], k[1], units[k])
		if err != nil {
			return nil, err
		}
		if o != nil {
			out = append(out, *o)
		}
	}
	type place struct {
		item string
		turn int
	}
	unmediated := map[place]Outcome{}
	for _, o := range out {
		if o.Condition == Unmediated || o.Condition == UnmediatedAt {
			unmediated[place{o.Item, o.Turn}] = o
		}
	}
	for i := range out {
		o := &out[i]
		if unspoken(o.Condition) {
			continue
		}
		base, ok := unmediated[place{o.Item, o.Turn}]
		o.subtract(base, ok)
	}
	return out, nil
}

// deltas are the differences from the unmediated continuation, and what they are of.
var deltas = []struct{ delta, of string }{{DAUC, AUC}, {DAUCOwn, AUCOwn}, {DW1, W1}}

// subtract sets the differences from the unmediated continuation from the same turn; ok
// is false where there is none.
func (o *Outcome) subtract(base Outcome, ok bool) {
	for _, d := range deltas {
		a, okA := o.Values[d.of]
		b, okB := base.Values[d.of]
		switch {
		case o.Turn == 0, o.Turn >= o.LastTurn:
			o.set(d.delta, 0) // the dialogue goes as it went without a mediator
		case !ok:
			o.miss(fmt.Sprintf("no unmediated continuation from turn %d in this run", o.Turn), d.delta)
		case okA && okB:
			o.set(d.delta, a-b)
		case !okA:
			o.miss(o.Unscored[d.of], d.delta)
		default:
			o.miss("unmediated: "+base.Unscored[d.of], d.delta)
		}
	}
}

var labelMetrics = []string{AUC, AUCIndex, AUCOwn, AUCE, W1, W1Index, DeltaE, JS, TV}

func outcome(item, condition string, u samplesOf) (*Outcome, error) {
	utt, uttUnscored, ok, err := decode[Utterance](u, StepUtterance, item)
	if err != nil || !ok {
		return nil, err
	}
	o := &Outcome{Item: item, Condition: condition, Stage: utt.Stage, Context: utt.Context, Gold: utt.Gold, Turn: utt.Turn, LastTurn: utt.LastTurn,
		Utterance: utt.Text, Stop: utt.Stop, Values: map[string]float64{}, Unscored: map[string]string{}}
	if err := o.judge(u, uttUnscored); err != nil {
		return nil, err
	}
	cont, _, _, err := decode[Continuation](u, StepSimulate, item)
	if err != nil {
		return nil, err
	}
	for _, t := range cont.Turns {
		if t.Stop != "" {
			o.Turns++
		}
		if t.Stop == infer.StopLength {
			o.CutTurns++
		}
	}
	labels, unscored, ok, err := decode[Labels](u, StepLabel, item)
	if err != nil {
		return nil, err
	}
	if !ok {
		unscored = "the label step failed"
	}
	if unscored != "" {
		o.miss(unscored, labelMetrics...)
		return o, nil
	}
	o.trajectory(labels)
	o.shift(labels)
	return o, nil
}

func (o *Outcome) judge(u samplesOf, uttUnscored string) error {
	j, unscored, ok, err := decode[Judgement](u, StepJudge, o.Item)
	switch {
	case err != nil:
		return err
	case uttUnscored != "":
		o.miss(uttUnscored, Judge, JudgeTop)
	case !ok:
		o.miss("the judge step failed", Judge, JudgeTop)
	case unscored != "":
		o.miss(unscored, Judge, JudgeTop)
	case j.NotApplicable != "":
		// Nothing was said, so nothing is missing either.
	default:
		o.set(Judge, j.Expected)
		o.set(JudgeTop, float64(j.Score))
	}
	return nil
}

// trajectory computes the AUC in its four forms. One unusable label leaves the
// whole trajectory unscored: a gap is not a stage.
func (o *Outcome) trajectory(l Labels) {
	pre, ok := l.Pre.Dist()
	bad, all := 0, len(l.After)+1
	reason := l.Pre.Unscored
	if ok {
		i := int(pre.Argmax())
		o.PreStage = &i
	} else {
		bad++
	}
	var paige, index, expected, own []dmis.Point
	for _, t := range l.After {
		d, ok := t.Dist()
		if !ok {
			bad++
			reason = t.Unscored
			continue
		}
		s := d.Argmax()
		o.Trajectory = append(o.Trajectory, [2]int{t.Turn, int(s)})
		p := dmis.Point{Turn: t.Turn, Position: dmis.Paige.Position(s)}
		paige = append(paige, p)
		index = append(index, dmis.Point{Turn: t.Turn, Position: dmis.Index.Position(s)})
		expected = append(expected, dmis.Point{Turn: t.Turn, Position: d.Expected(dmis.Paige)})
		if t.Own {
			own = append(own, p)
		}
	}
	if bad > 0 {
		o.Trajectory = nil
		o.miss(fmt.Sprintf("%d of %d labels are unscored (%s)", bad, all, reason), AUC, AUCIndex, AUCOwn, AUCE)
		return
	}
	s := pre.Argmax()
	for _, m := range []struct {
		name   string
		pre    float64
		points []dmis.Point
	}{{AUC, dmis.Paige.Position(s), paige}, {AUCIndex, dmis.Index.Position(s), index}, {AUCE, pre.Expected(dmis.Paige), expected}, {AUCOwn, dmis.Paige.Position(s), own}} {
		v, err := dmis.AUC(m.pre, o.Turn, o.LastTurn, m.points)
		if err != nil {
			o.miss(err.Error(), m.name)
			continue
		}
		o.set(m.name, v)
	}
}

// shift compares the stage distribution before with the one at the POST turn,
// three turns after the conflict turn or at the last turn.
func (o *Outcome) shift(l Labels) {
	names := []string{W1, W1Index, DeltaE, JS, TV}
	post := min(o.Gold+3, o.LastTurn)
	if o.Turn >= post {
		o.miss(fmt.Sprintf("the mediator speaks after turn %d, not before the POST turn %d", o.Turn, post), names...)
		return
	}
	pre, ok := l.Pre.Dist()
	if !ok {
		o.miss(l.Pre.Unscored, names...)
		return
	}
	for _, t := range l.After {
		if t.Turn != post {
			continue
		}
		d, ok := t.Dist()
		if !ok {
			o.miss(t.Unscored, names...)
			return
		}
		i := int(d.Argmax())
		o.PostStage = &i
		o.set(W1, dmis.SignedW1(pre, d, dmis.Paige))
		o.set(W1Index, dmis.SignedW1(pre, d, dmis.Index))
		o.set(DeltaE, d.Expected(dmis.Paige)-pre.Expected(dmis.Paige))
		o.NoDirection = dmis.NoDirection(pre, d, dmis.Paige)
		o.set(JS, dmis.JS(pre, d))
		o.set(TV, dmis.TV(pre, d))
		return
	}
	o.miss(fmt.Sprintf("no label at the POST turn %d", post), names...)
}
