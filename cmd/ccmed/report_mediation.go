package main

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/ccmed/ccmed/bench/mediation"
	"github.com/ccmed/ccmed/bench/report"
	"github.com/ccmed/ccmed/bench/run"
)

// conditionWords say how a condition's line comes about.
var conditionWords = map[string]string{
	mediation.ND:          "the model, from the dialogue alone",
	mediation.D:           "the model, told the conflict's stage",
	mediation.Foreign:     "a line made elsewhere",
	mediation.GroundTruth: "the record's own mediation",
	mediation.Generic:     "a fixed line that fits any conflict",
	mediation.Unmediated:  "nobody steps in",
	mediation.Card:        "the recorded continuation, for the labeller card",
}

// shownMeasures are the measures of a dialogue under a condition; dialogues are
// sorted by the first.
var shownMeasures = []struct{ metric, name string }{{mediation.AUC, "AUC"}, {mediation.W1, "signed W1"}, {mediation.Judge, "Judge"}}

// mediation adds the dialogues of a mediation run, all conditions of a dialogue in
// one item. Values that no table has, for their labeller is not qualified or their
// judge degenerate, are left out here too.
func (r *items) mediation(m mediation.Metrics) error {
	samples, err := samplesOf(r.dir)
	if err != nil {
		return err
	}
	if m.PipelineCheck {
		r.notes = append(r.notes, r.name+": "+mediation.PipelineCheck+"; the stages and scores are the models' raw answers, and no AUC is shown")
	}
	type key struct{ item, condition string }
	units := map[key]map[string]run.Sample{}
	var order []string
	seen := map[string]bool{}
	for _, s := range samples {
		k := key{s.Item, s.Condition}
		if units[k] == nil {
			units[k] = map[string]run.Sample{}
		}
		units[k][s.Step] = s
		if !seen[s.Item] {
			seen[s.Item] = true
			order = append(order, s.Item)
		}
	}
	outcomes := map[key]mediation.Outcome{}
	for _, o := range m.Outcomes {
		outcomes[key{o.Item, o.Condition}] = o
	}
	predicted := slices.ContainsFunc(m.Outcomes, func(o mediation.Outcome) bool { return o.Turn != o.Gold })
	conditions := itemFacets[2].Order
	names := []string{goldTurn}
	if predicted {
		names = append(names, predictedTurn, turnError)
	}
	sorted := shownMeasures[0]
	for _, c := range m.Conditions {
		if _, ok := c.Values[sorted.metric]; ok {
			names = append(names, sorted.name+" "+c.Condition)
		}
	}
	for _, item := range order {
		it := report.Item{Title: item}
		d, known := r.dialogues[item]
		if known {
			it.Blocks = append(it.Blocks, scene(d))
		}
		measures := map[string]float64{}
		var has, outcome, why []string
		stage, last := "", 0
		var blocks []report.Block
		for _, c := range conditions {
			u := units[key{item, c}]
			if u == nil {
				continue
			}
			has = append(has, c)
			o, scored := outcomes[key{item, c}]
			b, utt, err := r.condition(item, c, u, o, m)
			if err != nil {
				return err
			}
			blocks = append(blocks, b)
			stage, last = cmp.Or(utt.Stage, stage), max(last, utt.Turn, utt.Gold)
			if utt.Gold > 0 {
				measures[goldTurn] = float64(utt.Gold)
			}
			if !scored && c != mediation.Card {
				why = append(why, c+": a step has no sample")
			}
			if !scored {
				continue
			}
			if predicted && (c == mediation.ND || c == mediation.D || c == mediation.Foreign) && outcome == nil {
				outcome = prediction(o.Turn, o.Gold, measures)
			}
			if reason := o.Unscored[mediation.AUC]; reason != "" {
				why = append(why, c+": "+reason)
			}
			if v, ok := o.Values[sorted.metric]; ok {
				measures[sorted.name+" "+c] = v
			}
		}
		if len(why) > 0 {
			outcome = append(outcome, "unscored")
			it.Note = "unscored: " + strings.Join(why, "; ")
		} else {
			outcome = append(outcome, "scored")
		}
		if known {
			it.Blocks = append(it.Blocks, report.Block{Title: "The dialogue before any mediation", Turns: said(d, last, d.ConflictTurn)})
		}
		it.Blocks = append(it.Blocks, blocks...)
		r.add(it, stage, has, outcome, measures, names)
	}
	return nil
}

// condition shows what became of a dialogue under one condition: the line, the turns
// after it with the labeller's stages, and the judge's answer.
func (r *items) condition(item, name string, u map[string]run.Sample, o mediation.Outcome, m mediation.Metrics) (report.Block, mediation.Utterance, error) {
	b := report.Block{Title: name + ": " + conditionWords[name], Shares: stageNames()}
	miss := func(step, why string) {
		if why != "" {
			b.Notes = append(b.Notes, step+" unscored: "+why)
		}
	}
	var utt mediation.Utterance
	var cont mediation.Continuation
	var labels mediation.Labels
	var err error
	if s, ok := u[mediation.StepUtterance]; !ok {
		miss("line", "there is no sample of it")
	} else if utt, err = decodeData[mediation.Utterance](s); err != nil {
		return b, utt, err
	} else {
		miss("line", s.Unscored)
	}
	if s, ok := u[mediation.StepSimulate]; !ok {
		miss("continuation", "there is no sample of it")
	} else if cont, err = decodeData[mediation.Continuation](s); err != nil {
		return b, utt, err
	} else {
		miss("continuation", s.Unscored)
	}
	if s, ok := u[mediation.StepLabel]; !ok {
		miss("stages", "there is no sample of them")
	} else if labels, err = decodeData[mediation.Labels](s); err != nil {
		return b, utt, err
	} else {
		miss("stages", s.Unscored)
		if s.Unscored == "" {
			pre := report.Turn{Name: strconv.Itoa(labels.Pre.Turn), Speaker: "before any mediation"}
			label(&pre, labels.Pre)
			b.Turns = append(b.Turns, pre)
		}
	}
	if utt.Text != "" {
		b.Turns = append(b.Turns, report.Turn{Name: fmt.Sprintf("after %d", utt.Turn), Speaker: "Mediator", Text: utt.Text})
	}
	for _, t := range cont.Turns {
		turn := report.Turn{Name: strconv.Itoa(t.T), Speaker: fmt.Sprintf("speaker %d", t.Agent), Text: t.Text}
		if d, ok := r.dialogues[item]; ok {
			turn.Speaker = cmp.Or(d.Name(t.Agent), turn.Speaker)
		}
		if t.Recorded != "" {
			turn.Marks = append(turn.Marks, "recorded: "+t.Recorded)
		}
		if i := slices.IndexFunc(labels.After, func(l mediation.TurnLabel) bool { return l.Turn == t.T }); i >= 0 {
			label(&turn, labels.After[i])
		}
		b.Turns = append(b.Turns, turn)
	}
	for _, c := range m.Conditions {
		for _, x := range shownMeasures {
			if _, ok := c.Values[x.metric]; !ok || c.Condition != name {
				continue // no table has it
			}
			if v, ok := o.Values[x.metric]; ok {
				b.Facts = append(b.Facts, [2]string{x.name, strconv.FormatFloat(v, 'f', 2, 64)})
			} else if why := o.Unscored[x.metric]; why != "" {
				b.Facts = append(b.Facts, [2]string{x.name, "unscored: " + why})
			}
		}
	}
	if s, ok := u[mediation.StepJudge]; ok {
		j, err := decodeData[mediation.Judgement](s)
		if err != nil {
			return b, utt, err
		}
		miss("judge", s.Unscored)
		if s.Unscored == "" && j.NotApplicable == "" {
			b.Facts = append(b.Facts, [2]string{"judge's answer, 1 to 5", judgement(j)})
		}
	}
	return b, utt, nil
}

// label puts the labeller's answer beside a turn.
func label(t *report.Turn, l mediation.TurnLabel) {
	d, ok := l.Dist()
	if !ok {
		t.Unscored = cmp.Or(l.Unscored, "no stage has any probability")
		return
	}
	for _, p := range d {
		t.Shares = append(t.Shares, rounded(p))
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
func judgement(j mediation.Judgement) string {
	var parts []string
	for i, p := range j.P {
		parts = append(parts, fmt.Sprintf("%d: %.0f %%", i+1, 100*p/j.Mass))
	}
	return fmt.Sprintf("%d (mean %.2f; %s)", j.Score, j.Expected, strings.Join(parts, ", "))
}
