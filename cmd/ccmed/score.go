package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ccmed/ccmed/bench/dialogue"
	"github.com/ccmed/ccmed/bench/dmis"
	"github.com/ccmed/ccmed/bench/mediation"
	"github.com/ccmed/ccmed/bench/prompt"
	"github.com/ccmed/ccmed/bench/report"
	"github.com/ccmed/ccmed/bench/run"
	"github.com/ccmed/ccmed/bench/stats"
	"github.com/ccmed/ccmed/bench/timing"
	"github.com/ccmed/ccmed/bench/visible"
)

func (a *app) scoreCmd() *cobra.Command {
	m := mediateFlags{turn: "gold"}
	var format, condition, rule string
	cmd := &cobra.Command{
		Use:   "score FILE...",
		Short: "Annotate and score dialogues and predictions made elsewhere, or a run again",
		Long: `score takes

  a run            and computes its metrics again from its samples
  records          (a folder or JSONL file) and scores their own continuations:
                   from the recorded labels, or with --labeller from a model's
  predictions      {"per_sid":[{"sid","predicted_turn","utterance"}]} with --data:
                   the turns alone, or with --labeller and --simulator the lines
                   too, in a run of its own

--format reference writes the reference repository's result format instead of
tables: {"summary":{...},"per_sid":[{"sid","pred_turn","gt_turn","auc","w1","judge",
"pre_idx","post_idx","trajectory"}]}. What no table may say, as of a labeller who is
not qualified, is null in it.`,
		Example: `  ccmed score runs/MEDIATION
  ccmed score runs/MEDIATION --format reference --condition ND
  ccmed score CC-Mediation/data/evaluate
  ccmed score CC-Mediation/data/evaluate --labeller qwen2.5:14b
  ccmed score predictions.json --data CC-Mediation/data`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if format != "table" && format != "reference" {
				return usagef("unknown --format %q; known are table and reference", format)
			}
			if rule != "ours" && rule != "reference" {
				return usagef("unknown --labeller-rule %q; known are ours and reference", rule)
			}
			m.reference = rule == "reference"
			if err := m.checkOptions(); err != nil {
				return err
			}
			if len(args) > 1 && m.run.out != "" {
				return usagef("--out names one run and %d files are given; score them one by one", len(args))
			}
			for _, path := range args {
				if err := a.scorePath(cmd.Context(), path, &m, format, condition); err != nil {
					return err
				}
			}
			return nil
		},
	}
	m.models.register(cmd)
	m.data.register(cmd)
	m.run.register(cmd)
	f := cmd.Flags()
	f.StringVar(&m.simulator, "simulator", "", "model that plays the speakers (default: --model)")
	f.StringVar(&m.labeller, "labeller", "", "model that gives the stages (default: --model)")
	f.StringVar(&m.judge, "judge", "", "model that rates the line (default: --model, else the labeller)")
	f.StringVar(&m.baselines, "baselines", "", "a mediation run whose baselines are used")
	f.IntVar(&m.cardItems, "card-items", 40, "dialogues labelled for the labeller card")
	f.StringVar(&format, "format", "table", "table or reference")
	f.StringVar(&rule, "labeller-rule", "ours", "ours, or reference: label a run again by the public code's rule, from its raw alternatives")
	f.StringVar(&condition, "condition", "", "condition for --format reference (default: the run's first mediated one)")
	m.registerOptions(cmd)
	return cmd
}

func (a *app) scorePath(ctx context.Context, path string, m *mediateFlags, format, condition string) error {
	st, err := os.Stat(path)
	if err != nil {
		return fmt.Errorf("score: %w; name a run folder, a folder of records, or a file of predictions (ccmed help score shows them)", err)
	}
	show := showRun(a.tables)
	if format == "reference" {
		show = func(path string, _ []report.Section) error { return a.printReference(path, condition, m.reference) }
	}
	if st.IsDir() && exists(filepath.Join(path, "manifest.json")) {
		return a.scoreRun(ctx, path, scoreFlags{data: m.data, seed: m.run.seed, reference: m.reference},
			func(s []report.Section) error { return show(path, s) })
	}
	modelled := m.labeller != "" || m.models.model != ""
	if !st.IsDir() && !strings.EqualFold(filepath.Ext(path), ".jsonl") {
		if !modelled {
			if format == "reference" {
				return usagef("--format reference holds AUC, W1 and judge scores, which need models: give --labeller and --simulator, or --model")
			}
			return a.scoreTurns(ctx, path, m)
		}
		child := *m
		child.utterances, child.rubric = path, nil
		child.defaultModels()
		return a.mediate(ctx, &child, show)
	}
	data := m.data
	data.dir = path
	ds, err := data.load(ctx, a)
	if err != nil {
		return err
	}
	if !modelled {
		if format == "reference" {
			return a.encode(referenceOfRecords(ds))
		}
		return a.scoreRecords(ds, uint64(m.run.seed))
	}
	return a.labelRecords(ctx, ds, data, m, show)
}

// defaultModels lets the labeller stand in where no model is named: a prediction
// file needs no mediator.
func (m *mediateFlags) defaultModels() {
	if m.models.model == "" {
		m.models.model = m.labeller
	}
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// scoreTurns scores the turns of a prediction file.
func (a *app) scoreTurns(ctx context.Context, path string, m *mediateFlags) error {
	entries, err := readPredictions(path)
	if err != nil {
		return err
	}
	ds, all, err := m.data.loadOf(ctx, a)
	if err != nil {
		return err
	}
	lines, err := a.checked(path, entries, all, m.data.lenient)
	if err != nil {
		return err
	}
	var samples []run.Sample
	var eval []dialogue.Dialogue
	for _, d := range ds {
		l, ok := lines[d.Key()]
		if !ok {
			continue
		}
		eval = append(eval, d)
		dec := timing.Decision{Mode: "given", Gold: d.ConflictTurn, Stage: d.Stage.String(), Context: d.ContextKey(), FirstTurn: 1, LastTurn: d.LastTurn()}
		s := run.Sample{Key: run.Key{Step: timing.StepDecide, Item: d.Key()}}
		if l.Turn == nil {
			s.Unscored = "the file gives no predicted_turn"
		} else {
			dec.Predicted = *l.Turn
		}
		if s.Data, err = json.Marshal(dec); err != nil {
			return fmt.Errorf("encode a decision: %w", err)
		}
		samples = append(samples, s)
	}
	if len(eval) == 0 {
		return fmt.Errorf("%s has a prediction for none of the %d dialogues that --limit takes", path, len(ds))
	}
	if n := len(ds) - len(eval); n > 0 {
		a.note("%d dialogues of the data have no prediction in %s: they are not scored", n, path)
	}
	met, err := timing.Score(samples, timing.ScoreOptions{Seed: uint64(m.run.seed)})
	if err != nil {
		return err
	}
	bs, err := timing.Baselines(ctx, eval, nil, 3, met.ScoredItems())
	if err != nil {
		return fmt.Errorf("compute the baselines: %w", err)
	}
	return a.print(timing.Sections(filepath.Base(path), met, bs))
}

// recordedAUC is the AUC of a record's own stage labels, PRE being the stage
// that the conflict was scripted with; with own, over the turns of the conflict
// speaker alone.
func recordedAUC(d dialogue.Dialogue, after []dialogue.Turn, turn int, scale dmis.Scale, own bool) (float64, []dmis.StageAt, error) {
	var points []dmis.StageAt
	for _, t := range after {
		if t.Agent == dialogue.Mediator || own && t.Agent != d.ConflictAgent {
			continue
		}
		s, err := dmis.ParseStage(t.Label)
		if err != nil {
			return 0, nil, fmt.Errorf("turn %d carries no stage label", t.T)
		}
		points = append(points, dmis.StageAt{Turn: t.T, Stage: s})
	}
	v, err := dmis.StageAUC(d.Stage, turn, d.LastTurn(), points, scale)
	return v, points, err
}

// scoreRecords scores records from the labels that they carry.
func (a *app) scoreRecords(ds []dialogue.Dialogue, seed uint64) error {
	t := report.Table{Title: "AUC from the recorded labels (95 % intervals over scenario contexts)",
		Columns: []report.Column{{Name: "continuation"}, {Name: "AUC, Paige", Align: report.Right}, {Name: "AUC, index", Align: report.Right}, {Name: "n", Align: report.Right}, {Name: "unscored", Align: report.Right},
			{Name: "AUC_own, Paige", Align: report.Right}, {Name: "n", Align: report.Right}}}
	boot := stats.Bootstrap{Resamples: 10_000, Seed: seed}
	for _, kind := range []string{"original", "positive", "negative"} {
		var paige, index, own []float64
		var groups, ownGroups []string
		unscored := 0
		for _, d := range ds {
			after, turn, ok := continuation(d, kind)
			if !ok {
				continue
			}
			if v, _, err := recordedAUC(d, after, turn, dmis.Paige, true); err == nil {
				own, ownGroups = append(own, v), append(ownGroups, d.ContextKey())
			}
			p, _, err := recordedAUC(d, after, turn, dmis.Paige, false)
			i, _, err2 := recordedAUC(d, after, turn, dmis.Index, false)
			if errors.Join(err, err2) != nil {
				unscored++
				continue
			}
			paige, index, groups = append(paige, p), append(index, i), append(groups, d.ContextKey())
		}
		if len(paige)+unscored == 0 {
			continue
		}
		row := []report.Cell{report.Text(kind), report.Text(""), report.Text(""), report.Int(len(paige)), report.Int(unscored), report.Text(""), report.Int(len(own))}
		if len(paige) > 0 {
			p, err := boot.Mean(paige, groups)
			if err != nil {
				return err
			}
			i, err := boot.Mean(index, groups)
			if err != nil {
				return err
			}
			row[1], row[2] = report.Text(report.Estimate(p, 3)), report.Text(report.Estimate(i, 3))
		}
		if len(own) > 0 {
			o, err := boot.Mean(own, ownGroups)
			if err != nil {
				return err
			}
			row[5] = report.Text(report.Estimate(o, 3))
		}
		t.Rows = append(t.Rows, row)
	}
	return a.print([]report.Section{{Title: fmt.Sprintf("Records: %d dialogues", len(ds)), Tables: []report.Table{t},
		Notes: []string{"AUC_own: turns of the conflict speaker alone. The negative continuation is counted from the conflict turn where its mediator spoke before",
			"the labels come with the records; W1 needs stage distributions, which they do not hold: give --labeller"}}})
}

// continuation returns what follows the conflict in a record, and the turn that
// it follows.
func continuation(d dialogue.Dialogue, kind string) (after []dialogue.Turn, turn int, ok bool) {
	switch kind {
	case "original":
		return d.Unmediated()[d.ConflictTurn:], d.ConflictTurn, true
	case "positive":
		_, ok := d.Mediation()
		return d.Mediated(), d.ConflictTurn, ok
	}
	return d.Negative()
}

// labelRecords labels the records' own continuations with a model.
func (a *app) labelRecords(ctx context.Context, ds []dialogue.Dialogue, data dataFlags, m *mediateFlags, show showRun) error {
	set, err := prompt.Load(m.run.prompts)
	if err != nil {
		return err
	}
	m.opt.Prompts, m.opt.Seed = set, m.run.seed
	m.data = data
	m.defaultModels()
	m.recorded = true
	var items []mediation.Item
	card := cardDialogues(ds, m.cardItems)
	for _, d := range ds {
		items = append(items, mediation.RecordedItems(d)...)
		if card[d.Key()] {
			items = append(items, mediation.CardItem(d))
		}
	}
	return a.mediateItems(ctx, m, ds, items, show)
}

// The reference repository's result format.
type referenceResult struct {
	Summary referenceSummary `json:"summary"`
	PerSID  []referenceRow   `json:"per_sid"`
}

type referenceSummary struct {
	Scenarios int            `json:"n_scenarios"`
	Evaluated int            `json:"n_evaluated"`
	AUC       referenceStats `json:"auc"`
	W1        referenceStats `json:"w1"`
	Judge     referenceStats `json:"judge"`
}

type referenceStats struct {
	N      int      `json:"n"`
	Mean   *float64 `json:"mean"`
	Median *float64 `json:"median"`
	Std    *float64 `json:"std"`
}

type referenceRow struct {
	SID        string   `json:"sid"`
	PredTurn   int      `json:"pred_turn"`
	GTTurn     int      `json:"gt_turn"`
	AUC        *float64 `json:"auc"`
	W1         *float64 `json:"w1"`
	Judge      *int     `json:"judge"`
	PreIdx     *int     `json:"pre_idx"`
	PostIdx    *int     `json:"post_idx"`
	Trajectory [][2]int `json:"trajectory"`
}

func summarize(rows []referenceRow) referenceResult {
	var auc, w1, judge []float64
	for _, r := range rows {
		if r.AUC != nil {
			auc = append(auc, *r.AUC)
		}
		if r.W1 != nil {
			w1 = append(w1, *r.W1)
		}
		if r.Judge != nil {
			judge = append(judge, float64(*r.Judge))
		}
	}
	return referenceResult{referenceSummary{len(rows), len(auc), statsOf(auc), statsOf(w1), statsOf(judge)}, rows}
}

// statsOf gives mean, median and the sample standard deviation.
func statsOf(v []float64) referenceStats {
	s := referenceStats{N: len(v)}
	if len(v) == 0 {
		return s
	}
	mean := 0.0
	for _, x := range v {
		mean += x / float64(len(v))
	}
	sorted := slices.Sorted(slices.Values(v))
	median := (sorted[(len(v)-1)/2] + sorted[len(v)/2]) / 2
	s.Mean, s.Median = &mean, &median
	if len(v) > 1 { // of one value there is none
		sd := 0.0
		for _, x := range v {
			sd += (x - mean) * (x - mean) / float64(len(v)-1)
		}
		sd = math.Sqrt(sd)
		s.Std = &sd
	}
	return s
}

func referenceOfRecords(ds []dialogue.Dialogue) referenceResult {
	var rows []referenceRow
	for _, d := range ds {
		after, turn, ok := continuation(d, "positive")
		if !ok {
			continue
		}
		pre := int(d.Stage)
		r := referenceRow{SID: d.Key(), PredTurn: turn, GTTurn: d.ConflictTurn, PreIdx: &pre}
		if v, points, err := recordedAUC(d, after, turn, dmis.Paige, false); err == nil {
			r.AUC = &v
			for _, p := range points {
				r.Trajectory = append(r.Trajectory, [2]int{p.Turn, int(p.Stage)})
				if i := int(p.Stage); p.Turn == min(d.ConflictTurn+3, d.LastTurn()) {
					r.PostIdx = &i
				}
			}
		}
		if j := d.JudgeScore(); j != nil {
			r.Judge = j
		}
		rows = append(rows, r)
	}
	return summarize(rows)
}

func (a *app) printReference(path, condition string, reference bool) error {
	dir, err := a.reading(path)
	if err != nil {
		return err
	}
	if t := dir.Manifest().Identity.Task; t != "mediation" {
		return usagef("--format reference is for mediation runs; %s is a %s run", path, t)
	}
	samples, err := dir.Samples()
	if err != nil {
		return err
	}
	// The format holds no interval: one resample is the least that there is.
	scored, err := mediation.Score(samples, mediation.ScoreOptions{ReferenceRule: reference, Resamples: 1})
	if err != nil {
		return err
	}
	os := scored.Outcomes
	if condition == "" {
		for _, c := range []string{mediation.Foreign, mediation.ND, mediation.D, mediation.GroundTruth} {
			if slices.ContainsFunc(os, func(o mediation.Outcome) bool { return o.Condition == c }) {
				condition = c
				break
			}
		}
	}
	var rows []referenceRow
	var withheld []string
	for _, o := range os {
		if o.Condition != condition {
			continue
		}
		for _, why := range o.Withheld {
			if !slices.Contains(withheld, why) {
				withheld = append(withheld, why)
			}
		}
		r := referenceRow{SID: o.Item, PredTurn: o.Turn, GTTurn: o.Gold, PreIdx: o.PreStage, PostIdx: o.PostStage, Trajectory: o.Trajectory}
		if v, ok := o.Values[mediation.AUC]; ok {
			r.AUC = &v
		}
		if v, ok := o.Values[mediation.W1]; ok {
			r.W1 = &v
		}
		if v, ok := o.Values[mediation.JudgeTop]; ok {
			j := int(v)
			r.Judge = &j
		}
		rows = append(rows, r)
	}
	if len(rows) == 0 {
		return usagef("the run has no condition %q", condition)
	}
	if len(withheld) > 0 {
		a.note("%s, condition %s: the format has null for what is %s", path, condition, strings.Join(withheld, "; "))
	}
	return a.encode(summarize(rows))
}

func (a *app) encode(v any) error { return encodeTo(a.stdout, v) }

func encodeTo(w io.Writer, v any) error {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	err := enc.Encode(v)
	if err == nil {
		_, err = io.WriteString(w, visible.JSON(b.String()))
	}
	if err != nil {
		return fmt.Errorf("write result: %w", err)
	}
	return nil
}
