// Package effect says what an edit of a model's states did to what the model says: how much
// of the way from its ND line to its D line an edit takes the line, whether the model's answer
// to a question moves as well, and what it costs.
//
//	found, err := effect.Find(ctx, effect.Input{Training: lines, ND: plain, D: named, Arms: arms}, effect.Options{Seed: 1})
package effect

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/ccmed/ccmed/bench/stats"
)

// Line is what was said in a dialogue.
type Line struct {
	Item, Group string // dialogue, scenario context
	Stage       int    // of the conflict
	Text        string // "" where nothing usable was said
	// Answer is P(gold stage) by Choose; NaN where it was not asked or cannot be used.
	Answer float64
	// Name is the probability that the line begins with the gold stage's name, Names with any
	// stage's; NaN where they were not measured.
	Name, Names float64
	// Nats a token under the plain model, and the share of repeated tokens; NaN where they
	// were not measured.
	Nats, Repeated float64
}

// Edit is what an arm changes; the zero value changes nothing.
type Edit struct {
	File   string   `json:"file,omitempty"`
	Kind   string   `json:"kind,omitempty"`
	Layers []string `json:"layers,omitempty"`
	Class  string   `json:"class,omitempty"`   // without its control
	Of     string   `json:"control,omitempty"` // "negated", "shuffled-3"; "" is the class itself
	Dose   float64  `json:"dose,omitempty"`
	// Widest is how many times the mean length of the states an addition is long.
	Widest float64 `json:"lengths,omitempty"`
	// Groups are the scenario contexts that the edit was learnt from.
	Groups []string `json:"-"`
}

// Arm is a run: what was said under one edit.
type Arm struct {
	Name string
	// Named says that the prompt named the stage: condition D.
	Named bool
	Edit  Edit
	Lines []Line
	// Drift is the mean KL divergence from the plain model on neutral text, in nats a token;
	// NaN where it was not measured.
	Drift float64
}

// Input is what effects are found in.
type Input struct {
	// Training are D lines that the bag of words is fitted to.
	Training []Line
	// ND and D are the plain model's, without and with the stage named.
	ND, D Arm
	Arms  []Arm
	// Ends are what saved probes read at the end of lines that were said under edits.
	Ends []Ends
}

// Ends are accuracies of probes of the unchanged model at the end of the lines of a store.
type Ends struct {
	Name   string           `json:"name"`
	Named  bool             `json:"stage_named"`
	Edited bool             `json:"edited"`
	N      int              `json:"n"`
	Layers []string         `json:"layers"`
	Shares []stats.Estimate `json:"accuracy"` // by layer
}

// Options of Find.
type Options struct {
	Resamples int // 0 means 10000
	Seed      uint64
}

// Bounds of the verdicts.
const (
	usedRecovery = 0.5
	usedLower    = 0.25
	costMost     = 0.3 // nats a token above the plain ND lines
	usedN        = 150
	mostNorm     = 3.0 // times a state's length
)

// Verdicts.
const (
	Used      = "used"
	Surface   = "surface"
	Decodable = "decodable, not shown to be used"
)

// Schema is the version of Findings as JSON.
const Schema = 1

// Findings are what edits did.
type Findings struct {
	Schema int `json:"schema"`
	// Words is the bag of words that M is read by: how often it tells the stage of D lines
	// of groups that it was not fitted to, beside the most frequent stage.
	Words WordFindings `json:"words"`
	// Plain are the ND and D lines of the unchanged model, Gap is M of D less M of ND.
	Plain []ArmFindings `json:"plain"`
	Gap   Difference    `json:"gap"`
	Arms  []ArmFindings `json:"arms"`
	Steer []Steering    `json:"steering,omitempty"`
	Other []Change      `json:"other,omitempty"`
	Ends  []Ends        `json:"ends,omitempty"`
	// Chosen is the number in Steer of the best cell on training groups; nil where none was
	// measured there at a cost that counts.
	Chosen *int `json:"chosen,omitempty"`
}

// WordFindings say what the bag of words is worth.
type WordFindings struct {
	Lines    int            `json:"lines"`
	Terms    int            `json:"terms"`
	Accuracy stats.Estimate `json:"accuracy"`
	Majority float64        `json:"majority"`
}

// ArmFindings are one arm's means.
type ArmFindings struct {
	Name  string `json:"name"`
	Named bool   `json:"stage_named"`
	Edit
	N        int             `json:"n"`
	Unscored int             `json:"unscored"` // without a line
	M        stats.Estimate  `json:"m"`        // P(gold stage | line)
	Answer   *stats.Estimate `json:"ask,omitempty"`
	// GoldName is the probability that the line begins with the gold stage's name, AnyName with
	// any stage's.
	GoldName *stats.Estimate `json:"gold_name,omitempty"`
	AnyName  *stats.Estimate `json:"any_name,omitempty"`
	// Nats are a token's under the plain model, above the plain ND lines of the same
	// dialogues.
	Nats     *stats.Estimate `json:"nats_above,omitempty"`
	Repeated *stats.Estimate `json:"repeated,omitempty"`
	Drift    *float64        `json:"kl,omitempty"`
}

// Difference is a mean of paired differences with its test.
type Difference struct {
	stats.Estimate
	P float64 `json:"p"`
}

// above tells whether the difference is shown to be more than 0.
func (d *Difference) above() bool { return d != nil && d.NoInterval == "" && d.Lo > 0 }

// finder holds what the parts of Find share.
type finder struct {
	Input
	Options
	*Findings
	words *words
	m     map[string]map[string]float64 // by arm and item
}

// Find puts together what the arms show.
func Find(ctx context.Context, in Input, o Options) (*Findings, error) {
	if o.Resamples == 0 {
		o.Resamples = 10_000
	}
	f := &finder{Input: in, Options: o, Findings: &Findings{Schema: Schema, Ends: in.Ends}, m: map[string]map[string]float64{}}
	if len(in.ND.Lines) == 0 || len(in.D.Lines) == 0 {
		return nil, errors.New("an effect is held against the plain model's ND and D lines; one of them is missing")
	}
	var err error
	if f.words, err = fitWords(ctx, in.Training); err != nil {
		return nil, err
	}
	if err := f.judgeWords(); err != nil {
		return nil, err
	}
	names := map[string]bool{}
	for _, a := range slices.Concat([]Arm{in.ND, in.D}, in.Arms) {
		if names[a.Name] {
			return nil, fmt.Errorf("two runs are named %s; an arm is one run", a.Name)
		}
		names[a.Name] = true
		if f.m[a.Name], err = f.read(a); err != nil {
			return nil, err
		}
	}
	for _, a := range []Arm{in.ND, in.D} {
		one, err := f.arm(a)
		if err != nil {
			return nil, err
		}
		f.Plain = append(f.Plain, one)
	}
	if f.Gap, err = f.gap(nil); err != nil {
		return nil, fmt.Errorf("compare the plain D and ND lines: %w", err)
	}
	for _, a := range in.Arms {
		one, err := f.arm(a)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", a.Name, err)
		}
		f.Findings.Arms = append(f.Findings.Arms, one)
	}
	if err := f.steer(); err != nil {
		return nil, err
	}
	return f.Findings, f.others()
}

func (f *finder) bootstrap() stats.Bootstrap {
	return stats.Bootstrap{Resamples: f.Resamples, Seed: f.Seed}
}

// judgeWords holds the bag of words against D lines of groups that it was not fitted to.
func (f *finder) judgeWords() error {
	fits, err := f.words.fits(f.Training)
	if err != nil {
		return err
	}
	hits, groups, count := make([]float64, len(fits)), make([]string, len(fits)), map[int]float64{}
	for i, p := range fits {
		l := f.Training[i]
		groups[i] = l.Group
		count[l.Stage]++
		if slices.Index(p, slices.Max(p)) == l.Stage {
			hits[i] = 1
		}
	}
	f.Words = WordFindings{Lines: len(fits), Terms: f.words.terms}
	for _, n := range count {
		f.Words.Majority = math.Max(f.Words.Majority, n/float64(len(fits)))
	}
	f.Words.Accuracy, err = f.bootstrap().Share(hits, groups)
	return err
}

// read gives M of an arm's lines, by item.
func (f *finder) read(a Arm) (map[string]float64, error) {
	var spoken []Line
	for _, l := range a.Lines {
		if strings.TrimSpace(l.Text) != "" {
			spoken = append(spoken, l)
		}
	}
	fits, err := f.words.fits(spoken)
	if err != nil {
		return nil, fmt.Errorf("read the lines of %s: %w", a.Name, err)
	}
	out := map[string]float64{}
	for i, l := range spoken {
		if _, twice := out[l.Item]; twice {
			return nil, fmt.Errorf("%s holds dialogue %s twice", a.Name, l.Item)
		}
		out[l.Item] = fits[i][l.Stage]
	}
	return out, nil
}

// arm gives an arm's means.
func (f *finder) arm(a Arm) (ArmFindings, error) {
	out := ArmFindings{Name: a.Name, Named: a.Named, Edit: a.Edit}
	plain := map[string]float64{}
	for _, l := range f.ND.Lines {
		plain[l.Item] = l.Nats
	}
	var m, answers, name, names, nats, repeated column
	for _, l := range a.Lines {
		v, ok := f.m[a.Name][l.Item]
		if !ok {
			out.Unscored++
			continue
		}
		m.add(v, l.Group)
		answers.add(l.Answer, l.Group)
		name.add(l.Name, l.Group)
		names.add(l.Names, l.Group)
		if p, ok := plain[l.Item]; ok {
			nats.add(l.Nats-p, l.Group)
		}
		repeated.add(l.Repeated, l.Group)
	}
	out.N = len(m.values)
	if out.N == 0 {
		return out, errors.New("no dialogue has a line")
	}
	e, err := m.mean(f.bootstrap())
	if err != nil {
		return out, err
	}
	out.M = *e
	for c, to := range map[*column]**stats.Estimate{&answers: &out.Answer, &name: &out.GoldName, &names: &out.AnyName, &nats: &out.Nats, &repeated: &out.Repeated} {
		if *to, err = c.mean(f.bootstrap()); err != nil {
			return out, err
		}
	}
	if !math.IsNaN(a.Drift) {
		out.Drift = &a.Drift
	}
	return out, nil
}

// column is a list of values that are there, with their groups.
type column struct {
	values []float64
	groups []string
}

func (c *column) add(v float64, group string) {
	if !math.IsNaN(v) {
		c.values, c.groups = append(c.values, v), append(c.groups, group)
	}
}

// mean is nil where there is no value.
func (c *column) mean(b stats.Bootstrap) (*stats.Estimate, error) {
	if len(c.values) == 0 {
		return nil, nil
	}
	e, err := b.Mean(c.values, c.groups)
	return &e, err
}

// test is the mean with the p of its being 0.
func (c *column) test(f *finder) (*Difference, error) {
	e, err := c.mean(f.bootstrap())
	if err != nil || e == nil {
		return nil, err
	}
	p, err := stats.SignFlip(c.values, c.groups, f.Resamples, f.Seed)
	return &Difference{*e, p}, err
}

// gap is M of D less M of ND, in the named dialogues or in all.
func (f *finder) gap(items map[string]bool) (Difference, error) {
	var c column
	for _, l := range f.ND.Lines {
		d, hasD := f.m[f.D.Name][l.Item]
		nd, hasND := f.m[f.ND.Name][l.Item]
		if hasD && hasND && (items == nil || items[l.Item]) {
			c.add(d-nd, l.Group)
		}
	}
	d, err := c.test(f)
	if err == nil && d == nil {
		err = errors.New("no dialogue has both lines")
	}
	if err != nil {
		return Difference{}, err
	}
	return *d, nil
}
