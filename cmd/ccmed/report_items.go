package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/ccmed/ccmed/bench/dialogue"
	"github.com/ccmed/ccmed/bench/dmis"
	"github.com/ccmed/ccmed/bench/mediation"
	"github.com/ccmed/ccmed/bench/report"
	"github.com/ccmed/ccmed/bench/run"
	"github.com/ccmed/ccmed/bench/timing"
)

// dialogueBrowser is a browser without any dialogue yet.
var dialogueBrowser = report.Browser{Name: "dialogues", Title: "id"}

// Facets that dialogues of every task have.
var itemFacets = []report.Facet{
	{Name: "run"},
	{Name: "stage", Order: stageNames()},
	{Name: "condition", Order: []string{mediation.ND, mediation.D, mediation.Foreign, mediation.GroundTruth, mediation.Generic, mediation.Unmediated, mediation.Card}},
	{Name: "outcome", Order: []string{"right", "wrong", "early", "late", "no turn", "scored", "unscored", "missing"}},
}

func stageNames() []string {
	var out []string
	for s := dmis.Denial; s <= dmis.Integration; s++ {
		out = append(out, s.String())
	}
	return out
}

// browse puts every dialogue of a run into a browser: what was asked, what came
// out, and why where nothing did. A task without dialogues gives no items.
func (a *app) browse(ctx context.Context, name string, dir *run.Dir, found any) (report.Browser, []string, error) {
	r := &items{Browser: dialogueBrowser, name: name, dir: dir}
	var err error
	if r.dialogues, err = a.dialoguesOf(ctx, dir); err != nil {
		r.notes = append(r.notes, fmt.Sprintf("%s: the dialogues' texts are left out: %v", name, err))
	}
	switch f := found.(type) {
	case timingFound:
		err = r.timing()
	case mediation.Metrics:
		err = r.mediation(f)
	default:
		return report.Browser{}, nil, nil
	}
	if err != nil {
		return report.Browser{}, nil, err
	}
	if err := r.missing(); err != nil {
		return report.Browser{}, nil, err
	}
	return r.Browser, r.notes, nil
}

// items are a run's dialogues on their way into a browser.
type items struct {
	report.Browser
	name      string
	dir       *run.Dir
	dialogues map[string]dialogue.Dialogue
	notes     []string
}

// dialoguesOf reads the dialogues of a run again, if they are still what the run
// read.
func (a *app) dialoguesOf(ctx context.Context, dir *run.Dir) (map[string]dialogue.Dialogue, error) {
	m := dir.Manifest()
	path, _ := m.Identity.Options["data"].(string)
	if path == "" {
		return nil, fmt.Errorf("the manifest does not say where they lie")
	}
	if path != "sample" && !filepath.IsAbs(path) && len(m.Sessions) > 0 {
		path = filepath.Join(m.Sessions[0].Dir, path)
	}
	split, _ := m.Identity.Options["split"].(string)
	quiet := *a
	quiet.quiet = true
	all, err := (&dataFlags{dir: path, lenient: true}).read(ctx, &quiet, split)
	if err != nil {
		return nil, err
	}
	wanted := map[string]bool{}
	for _, k := range m.Identity.Items {
		wanted[k] = true
	}
	out := map[string]dialogue.Dialogue{}
	var used []dialogue.Dialogue
	for _, d := range all {
		if wanted[d.Key()] {
			used = append(used, d)
			out[d.Key()] = d
		}
	}
	if dialogue.Hash(used) != m.Identity.DataHash {
		return nil, fmt.Errorf("%s is not what the run read (its hash differs)", path)
	}
	if masked, _ := m.Identity.Options["mask_markers"].(bool); masked {
		for k, d := range out {
			out[k] = d.Reword(timing.MaskMarkers)
		}
	}
	return out, nil
}

// add adds a dialogue. Measures are by name; those that no dialogue has are not
// listed.
func (r *items) add(it report.Item, stage string, conditions, outcome []string, measures map[string]float64, order []string) {
	if r.Facets == nil {
		r.Facets, r.Measures = slices.Clone(itemFacets), order
	}
	var stages []string
	if stage != "" {
		stages = []string{stage}
	}
	it.Facets = [][]string{{r.name}, stages, conditions, outcome}
	it.Measures = slices.Repeat(report.Values{math.NaN()}, len(r.Measures))
	for i, name := range r.Measures {
		if v, ok := measures[name]; ok {
			it.Measures[i] = v
		}
	}
	r.Items = append(r.Items, it)
}

// missing adds the dialogues that the run names and has no sample of, with their
// last failure.
func (r *items) missing() error {
	failures, err := r.dir.Failures()
	if err != nil {
		return err
	}
	why := map[string]string{}
	for _, f := range failures {
		why[f.Item] = f.Error
	}
	have := map[string]bool{}
	for _, it := range r.Items {
		have[it.Title] = true
	}
	for _, key := range r.dir.Manifest().Identity.Items {
		if have[key] {
			continue
		}
		it := report.Item{Title: key, Note: "no sample: it was not asked yet"}
		if e := why[key]; e != "" {
			it.Note = "no sample: " + e
		}
		stage := ""
		measures := map[string]float64{}
		if d, ok := r.dialogues[key]; ok {
			stage, measures[goldTurn] = d.Stage.String(), float64(d.ConflictTurn)
			it.Blocks = []report.Block{scene(d), {Title: "Dialogue", Turns: said(d, d.LastTurn(), d.ConflictTurn)}}
		}
		r.add(it, stage, nil, []string{"missing"}, measures, []string{goldTurn})
	}
	slices.SortStableFunc(r.Items, func(a, b report.Item) int {
		x, errX := strconv.Atoi(a.Title)
		y, errY := strconv.Atoi(b.Title)
		if errX != nil || errY != nil {
			return cmp.Compare(a.Title, b.Title)
		}
		return x - y
	})
	return nil
}

// Measures that dialogues are sorted by.
const (
	goldTurn      = "gold turn"
	predictedTurn = "predicted turn"
	turnError     = "predicted − gold"
)

// prediction says how a predicted turn (0 for none) compares with the gold turn.
func prediction(predicted, gold int, measures map[string]float64) []string {
	if predicted == 0 {
		return []string{"wrong", "no turn"}
	}
	measures[predictedTurn], measures[turnError] = float64(predicted), float64(predicted-gold)
	switch {
	case predicted < gold:
		return []string{"wrong", "early"}
	case predicted > gold:
		return []string{"wrong", "late"}
	}
	return []string{"right"}
}

// scene says who speaks and where.
func scene(d dialogue.Dialogue) report.Block {
	b := report.Block{Title: "Scene", Notes: []string{d.Context}}
	for agent := 1; agent <= 2; agent++ {
		fact := ""
		for _, s := range nonempty(d.Who(agent), d.Value(agent)) {
			fact += s + "\n"
		}
		if fact != "" {
			b.Facts = append(b.Facts, [2]string{cmp.Or(d.Name(agent), fmt.Sprintf("speaker %d", agent)), fact[:len(fact)-1]})
		}
	}
	return b
}

// said are a dialogue's turns up to last, as they went without mediation.
func said(d dialogue.Dialogue, last, gold int) []report.Turn {
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

// decodeData decodes the data of a sample.
func decodeData[T any](s run.Sample) (v T, err error) {
	if err := json.Unmarshal(s.Data, &v); err != nil {
		return v, fmt.Errorf("%s: %w", s.Key, err)
	}
	return v, nil
}

// rounded keeps the digits that a page can show: probabilities in full would make
// up most of it.
func rounded(v float64) float64 { return math.Round(v*1e4) / 1e4 }
