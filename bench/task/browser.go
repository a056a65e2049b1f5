package task

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"strconv"

	"github.com/ccmed/ccmed/bench/dialogue"
	"github.com/ccmed/ccmed/bench/dmis"
	"github.com/ccmed/ccmed/bench/report"
)

// Dialogues builds the browser of a run over records of CC-Mediation: every dialogue of
// the run is an item, with or without a sample.
type Dialogues struct {
	report.Browser
	// Records are the dialogues by key; none where they cannot be read again.
	Records map[string]dialogue.Dialogue
	Notes   []string
	run     *Run
}

// Outcomes of a dialogue, in the order of a filter.
const (
	Right    = "right"
	Wrong    = "wrong"
	Early    = "early"
	Late     = "late"
	NoTurn   = "no turn"
	Scored   = "scored"
	Unscored = "unscored"
	absent   = "missing"
)

// CutMark marks a generated text that ended at its cap of tokens.
const CutMark = "cut at its limit"

// Measures that dialogues are sorted by.
const (
	GoldTurn      = "gold turn"
	PredictedTurn = "predicted turn"
	TurnError     = "predicted − gold"
)

// NewDialogues starts the browser of a run with conditions and measures in their order.
// Records that are read otherwise than they are written are changed by reword; nil
// changes nothing.
func NewDialogues(ctx context.Context, r *Run, conditions, measures []string, reword func(string) string) *Dialogues {
	b := &Dialogues{run: r, Records: map[string]dialogue.Dialogue{}, Browser: report.Browser{Name: "dialogues", Title: "id", Measures: measures, Facets: []report.Facet{
		{Name: "stage", Order: StageNames()}, {Name: "condition", Order: conditions},
		{Name: "outcome", Order: []string{Right, Wrong, Early, Late, NoTurn, Scored, Unscored, absent}}}}}
	ds, err := r.Dialogues(ctx, Records{})
	if err != nil {
		b.Notes = append(b.Notes, fmt.Sprintf("the dialogues' texts are left out: %v", err))
	}
	for _, d := range ds {
		if reword != nil {
			d = d.Reword(reword)
		}
		b.Records[d.Key()] = d
	}
	return b
}

// StageNames are the DMIS stages in their order.
func StageNames() []string {
	var out []string
	for s := dmis.Denial; s <= dmis.Integration; s++ {
		out = append(out, s.String())
	}
	return out
}

// Add adds a dialogue with its measures by name.
func (b *Dialogues) Add(it report.Item, stage string, conditions, outcome []string, measures map[string]float64) {
	var stages []string
	if stage != "" {
		stages = []string{stage}
	}
	it.Facets = [][]string{stages, conditions, outcome}
	it.Measures = slices.Repeat(report.Values{math.NaN()}, len(b.Measures))
	for i, name := range b.Measures {
		if v, ok := measures[name]; ok {
			it.Measures[i] = v
		}
	}
	b.Items = append(b.Items, it)
}

// Complete adds the dialogues that the run names and has no sample of, with their last
// failure, and sorts all by key.
func (b *Dialogues) Complete() error {
	failures, err := b.run.Failures()
	if err != nil {
		return err
	}
	why := map[string]string{}
	for _, f := range failures {
		why[f.Item] = f.Error
	}
	have := map[string]bool{}
	for _, it := range b.Items {
		have[it.Title] = true
	}
	for _, key := range b.run.Identity().Items {
		if have[key] {
			continue
		}
		it := report.Item{Title: key, Note: "no sample: it was not asked yet"}
		if e := why[key]; e != "" {
			it.Note = "no sample: " + e
		}
		stage := ""
		measures := map[string]float64{}
		if d, ok := b.Records[key]; ok {
			stage, measures[GoldTurn] = d.Stage.String(), float64(d.ConflictTurn)
			it.Blocks = []report.Block{Scene(d), {Title: "Dialogue", Turns: Turns(d, d.LastTurn(), d.ConflictTurn)}}
		}
		b.Add(it, stage, nil, []string{absent}, measures)
	}
	slices.SortStableFunc(b.Items, func(a, b report.Item) int {
		x, errX := strconv.Atoi(a.Title)
		y, errY := strconv.Atoi(b.Title)
		if errX != nil || errY != nil {
			return cmp.Compare(a.Title, b.Title)
		}
		return x - y
	})
	return nil
}

// CompareTurns says how a predicted turn (0 for none) compares with the gold turn, and
// adds both to the measures.
func CompareTurns(predicted, gold int, measures map[string]float64) (outcome []string) {
	if predicted == 0 {
		return []string{Wrong, NoTurn}
	}
	measures[PredictedTurn], measures[TurnError] = float64(predicted), float64(predicted-gold)
	switch {
	case predicted < gold:
		return []string{Wrong, Early}
	case predicted > gold:
		return []string{Wrong, Late}
	}
	return []string{Right}
}

// Scene says who speaks and where.
func Scene(d dialogue.Dialogue) report.Block {
	b := report.Block{Title: "Scene", Notes: []string{d.Context}}
	for agent := 1; agent <= 2; agent++ {
		fact := ""
		for _, s := range []string{d.Who(agent), d.Value(agent)} {
			if s != "" {
				fact += s + "\n"
			}
		}
		if fact != "" {
			b.Facts = append(b.Facts, [2]string{cmp.Or(d.Name(agent), fmt.Sprintf("speaker %d", agent)), fact[:len(fact)-1]})
		}
	}
	return b
}

// Turns are a dialogue's turns up to last, as they went without mediation.
func Turns(d dialogue.Dialogue, last, gold int) []report.Turn {
	var out []report.Turn
	for _, t := range d.Unmediated()[:min(last, d.LastTurn())] {
		turn := report.Turn{Name: strconv.Itoa(t.T), Speaker: t.Speaker, Text: t.Message}
		if t.T == gold {
			turn.Marks = []string{"conflict turn"}
		}
		out = append(out, turn)
	}
	return out
}

// Rounded keeps the digits that a page can show: probabilities in full would make up most
// of it.
func Rounded(v float64) float64 { return math.Round(v*1e4) / 1e4 }
