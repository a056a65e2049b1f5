package mediation

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/ccmed/ccmed/bench/report"
	"github.com/ccmed/ccmed/bench/run"
	"github.com/ccmed/ccmed/bench/task"
	"github.com/ccmed/ccmed/infer"
)

// conditionWords say how a condition's line comes about.
var conditionWords = map[string]string{
	ND:           "the model, from the dialogue alone",
	D:            "the model, told the conflict's stage",
	Foreign:      "a line made elsewhere",
	GroundTruth:  "the record's own mediation",
	Generic:      "a fixed line that fits any conflict",
	Unmediated:   "nobody steps in",
	UnmediatedAt: "nobody steps in, from the turn at which the mediator would speak",
	Card:         "the recorded continuation, for the labeller card",
}

// shownMeasures are the measures of a dialogue under a condition; dialogues are
// sorted by the first.
var shownMeasures = []struct{ metric, name string }{{AUC, "AUC"}, {W1, "signed W1"}, {Judge, "Judge"}}

// browsedConditions are the conditions in the order of a page.
var browsedConditions = []string{ND, D, Foreign, GroundTruth, Generic, Unmediated, UnmediatedAt, Card}

// browsed is a dialogue under a condition.
type browsed struct{ item, condition string }

// browser builds the browser of a run.
type browser struct {
	*task.Dialogues
	metrics   Metrics
	units     map[browsed]map[string]run.Sample
	outcomes  map[browsed]Outcome
	predicted bool // turns were predicted
}

// Browser holds every dialogue, all conditions of it in one item. Values that no table
// has, for their labeller is not qualified or their judge degenerate, are left out here
// too.
func (r *Result) Browser(ctx context.Context) (report.Browser, []string, error) {
	samples, err := r.samples()
	if err != nil {
		return report.Browser{}, nil, err
	}
	m := r.Scored
	b := &browser{metrics: m, units: map[browsed]map[string]run.Sample{}, outcomes: map[browsed]Outcome{},
		predicted: slices.ContainsFunc(m.Outcomes, func(o Outcome) bool { return o.Turn != o.Gold })}
	measures := []string{task.GoldTurn}
	if b.predicted {
		measures = append(measures, task.PredictedTurn, task.TurnError)
	}
	for _, c := range m.Conditions {
		if _, ok := c.Values[shownMeasures[0].metric]; ok {
			measures = append(measures, shownMeasures[0].name+" "+c.Condition)
		}
	}
	b.Dialogues = task.NewDialogues(ctx, r.in.Run, browsedConditions, measures, nil)
	switch {
	case m.Withheld():
		b.Notes = append(b.Notes, PipelineCheck+"; the stages and scores are the models' raw answers, and no AUC is shown")
	case m.PipelineCheck:
		b.Notes = append(b.Notes, WeakLabels)
	}
	for _, o := range m.Outcomes {
		b.outcomes[browsed{o.Item, o.Condition}] = o
	}
	var order []string
	seen := map[string]bool{}
	for _, s := range samples {
		k := browsed{s.Item, s.Condition}
		if b.units[k] == nil {
			b.units[k] = map[string]run.Sample{}
		}
		b.units[k][s.Step] = s
		if !seen[s.Item] {
			seen[s.Item] = true
			order = append(order, s.Item)
		}
	}
	for _, item := range order {
		if err := b.add(item); err != nil {
			return report.Browser{}, nil, err
		}
	}
	return b.Browser, b.Notes, b.Complete()
}

// add adds a dialogue.
func (b *browser) add(item string) error {
	it := report.Item{Title: item}
	d, known := b.Records[item]
	if known {
		it.Blocks = append(it.Blocks, task.Scene(d))
	}
	measures := map[string]float64{}
	var has, outcome, why []string
	stage, last := "", 0
	var blocks []report.Block
	for _, c := range browsedConditions {
		k := browsed{item, c}
		if b.units[k] == nil {
			continue
		}
		has = append(has, c)
		o, scored := b.outcomes[k]
		block, utt, err := b.condition(k, o)
		if err != nil {
			return err
		}
		blocks = append(blocks, block)
		stage, last = cmp.Or(utt.Stage, stage), max(last, utt.Turn, utt.Gold)
		if utt.Gold > 0 {
			measures[task.GoldTurn] = float64(utt.Gold)
		}
		if !scored && c != Card {
			why = append(why, c+": a step has no sample")
		}
		if !scored {
			continue
		}
		if b.predicted && (c == ND || c == D || c == Foreign) && outcome == nil {
			outcome = task.CompareTurns(o.Turn, o.Gold, measures)
		}
		if reason := o.Unscored[AUC]; reason != "" {
			why = append(why, c+": "+reason)
		}
		if v, ok := o.Values[shownMeasures[0].metric]; ok {
			measures[shownMeasures[0].name+" "+c] = v
		}
	}
	if len(why) > 0 {
		outcome = append(outcome, task.Unscored)
		it.Note = "unscored: " + strings.Join(why, "; ")
	} else {
		outcome = append(outcome, task.Scored)
	}
	if known {
		it.Blocks = append(it.Blocks, report.Block{Title: "The dialogue before any mediation", Turns: task.Turns(d, last, d.ConflictTurn)})
	}
	it.Blocks = append(it.Blocks, blocks...)
	b.Add(it, stage, has, outcome, measures)
	return nil
}

// condition shows what became of a dialogue under one condition: the line, the turns
// after it with the labeller's stages, and the judge's answer.
func (b *browser) condition(k browsed, o Outcome) (report.Block, Utterance, error) {
	u, name := b.units[k], k.condition
	out := report.Block{Title: name + ": " + conditionWords[name], Beside: true, Shares: task.StageNames()}
	miss := func(step, why string) {
		if why != "" {
			out.Notes = append(out.Notes, step+" unscored: "+why)
		}
	}
	var utt Utterance
	var cont Continuation
	var labels Labels
	var err error
	if s, ok := u[StepUtterance]; !ok {
		miss("line", "there is no sample of it")
	} else if utt, err = task.Data[Utterance](s); err != nil {
		return out, utt, err
	} else {
		miss("line", s.Unscored)
	}
	if s, ok := u[StepSimulate]; !ok {
		miss("continuation", "there is no sample of it")
	} else if cont, err = task.Data[Continuation](s); err != nil {
		return out, utt, err
	} else {
		miss("continuation", s.Unscored)
	}
	if s, ok := u[StepLabel]; !ok {
		miss("stages", "there is no sample of them")
	} else if labels, err = task.Data[Labels](s); err != nil {
		return out, utt, err
	} else {
		miss("stages", s.Unscored)
		if s.Unscored == "" {
			pre := report.Turn{Name: strconv.Itoa(labels.Pre.Turn), Speaker: "before any mediation"}
			label(&pre, labels.Pre)
			out.Turns = append(out.Turns, pre)
		}
	}
	if utt.Text != "" {
		out.Turns = append(out.Turns, report.Turn{Name: fmt.Sprintf("after %d", utt.Turn), Speaker: "Mediator", Text: utt.Text, Marks: cutMark(utt.Stop)})
	}
	for _, t := range cont.Turns {
		turn := report.Turn{Name: strconv.Itoa(t.T), Speaker: fmt.Sprintf("speaker %d", t.Agent), Text: t.Text, Marks: cutMark(t.Stop)}
		if d, ok := b.Records[k.item]; ok {
			turn.Speaker = cmp.Or(d.Name(t.Agent), turn.Speaker)
		}
		if t.Recorded != "" {
			turn.Marks = append(turn.Marks, "recorded: "+t.Recorded)
		}
		if i := slices.IndexFunc(labels.After, func(l TurnLabel) bool { return l.Turn == t.T }); i >= 0 {
			label(&turn, labels.After[i])
		}
		out.Turns = append(out.Turns, turn)
	}
	for _, c := range b.metrics.Conditions {
		for _, x := range shownMeasures {
			if _, ok := c.Values[x.metric]; !ok || c.Condition != name {
				continue // no table has it
			}
			if v, ok := o.Values[x.metric]; ok {
				out.Facts = append(out.Facts, [2]string{x.name, strconv.FormatFloat(v, 'f', 2, 64)})
			} else if why := o.Unscored[x.metric]; why != "" {
				out.Facts = append(out.Facts, [2]string{x.name, "unscored: " + why})
			}
		}
	}
	if s, ok := u[StepJudge]; ok {
		j, err := task.Data[Judgement](s)
		if err != nil {
			return out, utt, err
		}
		miss("judge", s.Unscored)
		if s.Unscored == "" && j.NotApplicable == "" {
			out.Facts = append(out.Facts, [2]string{"judge's answer, 1 to 5", judgement(j)})
		}
	}
	return out, utt, nil
}

// cutMark marks a text that was cut.
func cutMark(stop string) []string {
	if stop == infer.StopLength {
		return []string{task.CutMark}
	}
	return nil
}

// label puts the labeller's answer beside a turn.
func label(t *report.Turn, l TurnLabel) {
	d, ok := l.Dist()
	if !ok {
		t.Unscored = cmp.Or(l.Unscored, "no stage has any probability")
		return
	}
	for _, p := range d {
		t.Shares = append(t.Shares, task.Rounded(p))
	}
	if l.Own {
		t.Marks = append(t.Marks, "conflict speaker")
	}
	if l.Ambiguous {
		t.Marks = append(t.Marks, "ambiguous")
	}
}

// judgement writes the judge's answer, which is a distribution over the scores and
// no text.
func judgement(j Judgement) string {
	var parts []string
	for i, p := range j.P {
		parts = append(parts, fmt.Sprintf("%d: %.0f %%", i+1, 100*p/j.Mass))
	}
	return fmt.Sprintf("%d (mean %.2f; %s)", j.Score, j.Expected, strings.Join(parts, ", "))
}
